//! What the bookie's own monitor should be making of its disks: the model of BookKeeper 4.17.3, fed at
//! the bookie's own interval with what the disks show and with the thresholds of its own file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::beside::ShouldBe;
use super::super::bookkeeper::{DirIndex, Event, Mode, Model, Observed, Setup, Trouble};
use super::super::dir::{Role, path_text};
use super::super::moment::Elapsed;
use super::super::observation::Device;
use super::super::status::{AccessStatus, SpaceStatus};
use super::{DirNow, NodeFacts, SHORTEST_TICK, Settings};

/// The bookie's monitor, followed.
#[derive(Debug, Clone, Default)]
pub(super) struct Shadow {
    model: Option<Model>,
    /// Directories that it watches, in configured order.
    dirs: Vec<(PathBuf, Role)>,
    next: Elapsed,
    /// The bookie's start was seen: what was full then is known.
    from_start: bool,
    /// In read-only on any full disk, it is writable beside a full directory.
    writable_by: Option<WritableBy>,
    /// What was suspended by events that were seen, and not resumed by any: one for the bookie, or one
    /// for each ledger directory.
    collectors: Vec<Collector>,
}

/// Why the model is writable although a directory is full for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WritableBy {
    /// It was full at the start, and is never newly full.
    Start,
    /// Directories of another role have recovered.
    OtherRole,
}

/// A garbage collector's suspensions, as events of the monitor left them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Collector {
    /// Its ledger directory; none for the only one of the bookie.
    dir: Option<DirIndex>,
    /// Major compaction.
    pub(super) major: bool,
    /// Minor compaction.
    pub(super) minor: bool,
}

impl Shadow {
    /// The bookie was started again just now.
    pub(super) fn restarted(&mut self, settings: &Settings, node: &NodeFacts<'_>) {
        *self = Shadow {
            from_start: true,
            ..Shadow::default()
        };
        if let Some(seen) = observed(node) {
            self.begin(settings, node, &seen);
        }
    }

    /// One cycle of the bookie's monitor, when it is due. What is not known is not made up: then the
    /// cycle is left out.
    pub(super) fn tick(&mut self, now: Elapsed, settings: &Settings, node: &NodeFacts<'_>) {
        let same = self.dirs.len() == node.watched().count()
            && node
                .watched()
                .zip(&self.dirs)
                .all(|(dir, (path, role))| dir.path == path && dir.role == *role);
        if !same && self.model.is_some() {
            *self = Shadow::default();
        }
        if now < self.next {
            return;
        }
        let Some(seen) = observed(node) else {
            return;
        };
        self.next = now + settings.check_interval.max(SHORTEST_TICK);
        if self.model.is_none() {
            self.begin(settings, node, &seen);
        }
        let Some(model) = &mut self.model else {
            return;
        };
        let before = model.mode();
        model.step(seen.into_iter().enumerate());
        let events = model.events().to_vec();
        let any_full = !model.full(Role::Ledger).is_empty() || !model.full(Role::Index).is_empty();
        match model.mode() {
            Mode::Writable if any_full && before == Mode::ReadOnly => {
                self.writable_by = Some(WritableBy::OtherRole);
            }
            Mode::Writable if any_full => {}
            _ => self.writable_by = None,
        }
        if !settings.forced_gc_allowed {
            for event in events {
                self.suspend(event);
            }
        }
    }

    /// The model's start. Of a bookie that runs already nothing is known, so it is taken for one that
    /// started on empty disks: what is full in its first cycle has then just become so.
    fn begin(&mut self, settings: &Settings, node: &NodeFacts<'_>, seen: &[Observed]) {
        let mut numbers: BTreeMap<Device, u32> = BTreeMap::new();
        let setups: Vec<Setup> = node
            .watched()
            .map(|dir| {
                let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                Setup {
                    role: dir.role,
                    filesystem: dir
                        .device
                        .map(|device| *numbers.entry(device).or_insert(next)),
                }
            })
            .collect();
        self.dirs = node
            .watched()
            .map(|dir| (dir.path.to_owned(), dir.role))
            .collect();
        let ledgers = (0..self.dirs.len()).filter(|dir| self.dirs[*dir].1 == Role::Ledger);
        self.collectors = if settings.collector_for_each_dir {
            let of = |dir| Collector {
                dir: Some(dir),
                ..Collector::default()
            };
            ledgers.map(of).collect()
        } else {
            vec![Collector::default()]
        };
        let Ok(mut model) = Model::new(settings.model, &setups) else {
            // Thresholds with which the bookie refuses to start.
            return;
        };
        let empty = Observed {
            total: 1,
            usable: 1,
            error: None,
        };
        let first = seen
            .iter()
            .map(|seen| if self.from_start { *seen } else { empty });
        model.step(first.enumerate());
        let is_full = !model.full(Role::Ledger).is_empty() || !model.full(Role::Index).is_empty();
        self.writable_by = (is_full && model.mode() == Mode::Writable).then_some(WritableBy::Start);
        self.model = Some(model);
    }

    /// What the listener of the storage makes of an event (`SingleDirectoryDbLedgerStorage`,
    /// `InterleavedLedgerStorage`): over warn suspends the major compaction, full both; only a full
    /// directory that is below warn at once resumes both (W19, apache/pulsar#22901).
    fn suspend(&mut self, event: Event) {
        let dir = match event {
            Event::DiskAlmostFull(dir)
            | Event::DiskFull(dir)
            | Event::DiskWritable(dir)
            | Event::DiskJustWritable(dir) => Some(dir),
            Event::AllDisksFull(_) => None,
            _ => return,
        };
        let pair = dir.and_then(|dir| self.ledger_beside(dir));
        for collector in &mut self.collectors {
            let is_meant = collector.dir.is_none() || dir.is_none() || collector.dir == pair;
            if !is_meant {
                continue;
            }
            match event {
                Event::DiskAlmostFull(_) => collector.major = true,
                Event::DiskFull(_) | Event::AllDisksFull(_) => {
                    (collector.major, collector.minor) = (true, true);
                }
                Event::DiskWritable(_) => (collector.major, collector.minor) = (false, false),
                _ => collector.minor = false,
            }
        }
    }

    /// The ledger directory whose collector hears of this one: itself, or the one at the same place in
    /// the list of an index directory (W42).
    fn ledger_beside(&self, dir: DirIndex) -> Option<DirIndex> {
        let role = self.dirs.get(dir)?.1;
        let of = |role| (0..self.dirs.len()).filter(move |dir| self.dirs[*dir].1 == role);
        let place = of(role).position(|other| other == dir)?;
        of(Role::Ledger).nth(place)
    }

    /// Suspensions by what was seen.
    pub(super) fn collectors(&self) -> &[Collector] {
        &self.collectors
    }

    /// What the collector at that place is for, in words.
    pub(super) fn collector_text(&self, place: usize) -> String {
        let dir = self.collectors.get(place).and_then(|known| known.dir);
        let path = dir.and_then(|dir| self.dirs.get(dir));
        path.map_or_else(|| "the bookie".to_owned(), |(path, _)| path_text(path))
    }

    /// It is known that compaction goes on in the collector at that place, or everywhere.
    pub(super) fn resumed(&mut self, place: Option<usize>, major: bool, minor: bool) {
        for (at, collector) in self.collectors.iter_mut().enumerate() {
            if place.is_none_or(|place| place == at) {
                collector.major &= !major;
                collector.minor &= !minor;
            }
        }
    }

    /// What the bookie should be, and why; none while that is not known.
    pub(super) fn view(&self) -> Option<ShouldBe> {
        let model = self.model.as_ref()?;
        Some(ShouldBe {
            mode: model.mode(),
            reason: self.reason(model),
        })
    }

    fn reason(&self, model: &Model) -> String {
        let full: Vec<&DirIndex> = model
            .full(Role::Ledger)
            .iter()
            .chain(model.full(Role::Index))
            .collect();
        let name = full.first().and_then(|dir| self.dirs.get(**dir));
        let Some((path, role)) = name else {
            return match model.mode() {
                Mode::Shutdown => "a directory cannot be read or written (W9)".to_owned(),
                _ => "no ledger or index directory is full by its own thresholds".to_owned(),
            };
        };
        let path = path_text(path);
        match model.mode() {
            Mode::Shutdown => format!("{path} is full, and readOnlyModeEnabled is false"),
            Mode::ReadOnly if model.writable(*role).is_empty() => {
                format!(
                    "every {} directory is full for it, {path} first",
                    role.name()
                )
            }
            Mode::ReadOnly => format!("{path} is full for it"),
            Mode::Writable => match self.writable_by {
                Some(WritableBy::Start) => format!(
                    "{path} was full when it started, and that never counts as newly full (W1)"
                ),
                Some(WritableBy::OtherRole) => format!(
                    "directories of another role recovered, which made it writable although {path} is full (W4)"
                ),
                None => format!(
                    "{path} is full for it, but not all are, and readOnlyModeOnAnyDiskFullEnabled is not in force"
                ),
            },
        }
    }

    /// Why the bookie is read-only, if its own monitor is why.
    pub(super) fn why_read_only(&self) -> Option<String> {
        let view = self.view().filter(|view| view.mode == Mode::ReadOnly)?;
        Some(format!("its own monitor keeps it there, {}", view.reason))
    }

    /// Why the bookie is writable although our disks ask for read-only.
    pub(super) fn why_writable(&self, settings: &Settings, node: &NodeFacts<'_>) -> String {
        if let Some(why) = unseen(node) {
            return why;
        }
        let Some(view) = self.view() else {
            return "what its own monitor makes of its disks is not known".to_owned();
        };
        let reason = view.reason;
        match view.mode {
            Mode::Writable => format!("for its own monitor that is right, {reason}"),
            Mode::Shutdown => format!("its own monitor should have ended it, {reason}"),
            Mode::ReadOnly => {
                let start = if settings.model.any_full && !self.from_start {
                    ", or that directory was full when it started (W1)"
                } else {
                    ""
                };
                let unknown = if settings.any_full_known {
                    ""
                } else {
                    ", or its version does not go read-only on one full directory"
                };
                format!(
                    "its own monitor should have made it read-only by now, {reason}: that monitor hangs (W12) or has \
                     ended (W17), or somebody made the bookie writable (W37){start}{unknown}"
                )
            }
        }
    }
}

/// What BookKeeper's monitor does not see at all.
fn unseen(node: &NodeFacts<'_>) -> Option<String> {
    let bad = |dir: &&DirNow<'_>| dir.access.is_unusable() || dir.space_status == SpaceStatus::Full;
    let dir = node.dirs.iter().find(|dir| dir.access.is_unusable());
    let dir = dir.or_else(|| node.dirs.iter().find(bad));
    let path = path_text(dir.map(|dir| dir.path)?);
    let dir = dir?;
    if dir.role == Role::Journal {
        let others = node.watched().any(|dir| bad(&dir));
        return (!others || dir.access.is_unusable())
            .then(|| format!("it does not watch its journal {path} (W38, #1349)"));
    }
    let why = match dir.access {
        AccessStatus::Hung => "its monitor waits for that directory without a limit (W12)",
        AccessStatus::Vanished | AccessStatus::Replaced => {
            "it makes a missing directory anew on whatever disk is there (W14)"
        }
        AccessStatus::Failed => "it neither writes nor reads its disks to try them (W11, #4114)",
        AccessStatus::ReadOnly => {
            "over its warn threshold it does not look whether a directory can be written (W10)"
        }
        AccessStatus::Ok | AccessStatus::Unknown => return None,
    };
    Some(format!("{path}: {why}"))
}

/// What Java would report about the directories that the bookie watches; none while one is not known, or
/// hangs: then its monitor does nothing either.
fn observed(node: &NodeFacts<'_>) -> Option<Vec<Observed>> {
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let seen: Option<Vec<Observed>> = node
        .watched()
        .map(|dir| {
            let space = dir.space.filter(|_| {
                !matches!(
                    dir.access,
                    AccessStatus::Hung | AccessStatus::Vanished | AccessStatus::Replaced
                )
            })?;
            Some(Observed {
                total: number(space.size),
                usable: number(space.available),
                error: (dir.access == AccessStatus::ReadOnly).then_some(Trouble::Io),
            })
        })
        .collect();
    seen.filter(|seen| !seen.is_empty())
}
