//! How the bookie gives space back: compaction that stays suspended or does not end, collections that
//! follow each other for nothing, and what could be asked of it. Events always; asking is an action.
//!
//! Read from BookKeeper: `GarbageCollectorThread.runWithFlags` counts a compaction when it has ended,
//! well or not, and a major one is a minor one too; `DbLedgerStorage` says that compaction is suspended
//! only when that of every ledger directory is, and its `resume` is for all of them.

mod forced;

use std::time::Duration;

use super::super::beside::{BesideAction, CompactionFlags, GcDetails, SuspendedView};
use super::super::bookkeeper;
use super::super::event::EventKind;
use super::super::moment::{Elapsed, Moment};
use super::super::status::SpaceStatus;
use super::shadow::Shadow;
use super::{DirNow, NodeFacts, Settings, Told, time_text};
use forced::ForcedLoop;

/// The bookie's monitor has looked at its disks once in this many intervals for sure.
const CHECKS: u32 = 2;

/// No compaction for so many of its intervals, and two collections, is no coincidence: the interval is
/// the shortest time between two, and a collection that takes long delays the next.
const STALLED_INTERVALS: u32 = 3;

/// Flags that are older say nothing about the moment in which a directory goes over warn.
const FLAGS_FRESH: Duration = Duration::from_secs(120);

/// A resume that came to nothing is asked for again after so long: a directory may have been over warn
/// for one check in between.
const RESUME_AGAIN: Duration = Duration::from_secs(600);

/// A collection is asked for at most so often: each reads the metadata of all ledgers (#1946, #2797).
const COLLECT_AGAIN: Duration = Duration::from_secs(3600);

/// A full directory is so for this long before a collection is asked for, one over warn for ten times
/// as long: the bookie collects by itself each `gcWaitTime`.
const FULL_LASTS: Duration = Duration::from_secs(60);
const WARN_LASTS: Duration = Duration::from_secs(600);

/// What is remembered of compaction.
#[derive(Debug, Clone, Default)]
pub(super) struct Compaction {
    flags: Option<(Elapsed, CompactionFlags)>,
    details: Vec<GcDetails>,
    collectors: Vec<Progress>,
    forced: ForcedLoop,
    /// A directory is over the bookie's own warn threshold; none before it was known once.
    over: Option<bool>,
    /// Since when no directory has been over it.
    calm_since: Option<Elapsed>,
    /// Since when none has been over ours either, and all are known.
    quiet_since: Option<Elapsed>,
    warn_since: Option<Elapsed>,
    full_since: Option<Elapsed>,
    /// The newest time over warn.
    trip: Option<Trip>,
    suspended: Option<SuspendedView>,
    suspended_told: bool,
    undoable: bool,
    resumed_at: Option<Elapsed>,
    collected_at: Option<Elapsed>,
}

/// A time in which a directory was over warn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Trip {
    /// It was seen to begin, and nothing was suspended then: what is suspended after it, the bookie
    /// suspended for it.
    clean: bool,
}

/// One collector's compactions.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    major: Kind,
    minor: Kind,
    told: bool,
    /// None has ended for several of its intervals.
    late: bool,
}

/// One kind of compaction of it.
#[derive(Debug, Clone, Copy, Default)]
struct Kind {
    count: u64,
    last: u64,
    /// When that was seen first.
    seen: Elapsed,
    /// How old it was then, by the clock that it was read from.
    age: Duration,
    /// Nothing has kept it from running since.
    free_since: Elapsed,
}

impl Compaction {
    pub(super) fn flags(&mut self, now: Elapsed, flags: Option<CompactionFlags>) {
        self.flags = flags.map(|flags| (now, flags));
    }

    /// Takes in the counters; true when they fell, as they do when the bookie is started again.
    pub(super) fn details(&mut self, now: Moment, details: Vec<GcDetails>) -> bool {
        if details.is_empty() {
            return false;
        }
        let known = self.details.len() == details.len();
        let fell = known
            && self
                .details
                .iter()
                .zip(&details)
                .any(|(old, new)| new.majors < old.majors || new.minors < old.minors);
        if !known || fell {
            self.collectors = vec![Progress::default(); details.len()];
        }
        for (progress, details) in self.collectors.iter_mut().zip(&details) {
            let before = (progress.major.count, progress.minor.count);
            progress.major.take(now, details.majors, details.last_major);
            progress.minor.take(now, details.minors, details.last_minor);
            if before != (progress.major.count, progress.minor.count) {
                progress.told = false;
            }
        }
        self.details = details;
        fell
    }

    pub(super) fn forced(
        &mut self,
        now: Elapsed,
        forced: Option<bool>,
        node: &NodeFacts<'_>,
    ) -> Option<Told> {
        self.forced.look(now, forced, node)
    }

    /// Another process: nothing is suspended, and nothing was counted.
    pub(super) fn restarted(&mut self) {
        *self = Compaction {
            collected_at: self.collected_at,
            ..Compaction::default()
        };
    }

    pub(super) fn newest(&self) -> &[GcDetails] {
        &self.details
    }

    pub(super) fn newest_flags(&self) -> Option<CompactionFlags> {
        self.flags.map(|(_, flags)| flags)
    }

    pub(super) fn is_forced(&self) -> Option<bool> {
        self.forced.newest()
    }

    pub(super) fn is_forced_loop(&self) -> Option<bool> {
        self.forced.newest().map(|_| self.forced.is_loop())
    }

    pub(super) fn is_stalled(&self) -> Option<bool> {
        let known = !self.collectors.is_empty();
        known.then(|| self.collectors.iter().any(|progress| progress.late))
    }

    pub(super) fn suspended(&self) -> Option<SuspendedView> {
        self.suspended
    }

    /// Everything that time and the disks bring.
    pub(super) fn tick(
        &mut self,
        now: Elapsed,
        settings: &Settings,
        node: &NodeFacts<'_>,
        shadow: &mut Shadow,
        serves: bool,
    ) -> Vec<Told> {
        self.undoable = node.undoable;
        self.watch_warn(now, settings, node);
        self.suspended = self.judge_suspended(shadow);
        let mut told = Vec::new();
        if serves {
            told.extend(self.tell_suspended(now, settings, shadow));
        }
        self.stalled(now, settings, shadow, serves, &mut told);
        told
    }

    /// Follows whether a directory is over warn, by the bookie's threshold and by ours.
    fn watch_warn(&mut self, now: Elapsed, settings: &Settings, node: &NodeFacts<'_>) {
        let over = over_warn(settings, node);
        let keep = |since: Option<Elapsed>, holds: bool| holds.then(|| since.unwrap_or(now));
        let status = |of: &[SpaceStatus]| {
            let mut dirs = node.watched();
            dirs.any(|dir| of.contains(&dir.space_status))
        };
        let ours = status(&[SpaceStatus::AlmostFull, SpaceStatus::Full]);
        self.calm_since = keep(self.calm_since, over == Some(false));
        self.quiet_since = keep(
            self.quiet_since,
            over == Some(false) && !ours && node.is_known(),
        );
        self.warn_since = keep(self.warn_since, over == Some(true) || ours);
        self.full_since = keep(self.full_since, status(&[SpaceStatus::Full]));
        if over == Some(true) && self.over != over {
            let fresh = self
                .flags
                .is_some_and(|(at, flags)| now <= at + FLAGS_FRESH && flags == NONE_SUSPENDED);
            let clean = self.over == Some(false) && fresh && self.suspended.is_none();
            // One that began clean and went below warn and over it again is still that one.
            let goes_on = self.trip.is_some_and(|trip| trip.clean)
                && self.over == Some(false)
                && self.suspended.is_some();
            self.trip = Some(Trip {
                clean: clean || goes_on,
            });
        }
        self.over = over.or(self.over);
    }

    fn judge_suspended(&self, shadow: &mut Shadow) -> Option<SuspendedView> {
        let several = 1 < shadow.collectors().len();
        let flags = self.newest_flags();
        if let Some(flags) = flags.filter(|flags| *flags != NONE_SUSPENDED) {
            return Some(SuspendedView {
                major: flags.major_suspended,
                minor: flags.minor_suspended,
                seen: true,
            });
        }
        // One flag for one collector is the truth.
        flags.filter(|_| several)?;
        if self.calm_since.is_some() {
            // Whoever compacts is not suspended.
            for (place, details) in self.details.iter().enumerate() {
                shadow.resumed(
                    Some(place),
                    details.major_compacting,
                    details.minor_compacting || details.major_compacting,
                );
            }
        }
        let known = shadow.collectors().iter();
        let (major, minor) = known.fold((false, false), |(major, minor), known| {
            (major | known.major, minor | known.minor)
        });
        (major || minor).then_some(SuspendedView {
            major,
            minor,
            seen: false,
        })
    }

    fn tell_suspended(
        &mut self,
        now: Elapsed,
        settings: &Settings,
        shadow: &Shadow,
    ) -> Option<Told> {
        let Some(suspended) = self.suspended else {
            self.suspended_told = false;
            return None;
        };
        let calm = now.saturating_sub(self.calm_since?);
        if self.suspended_told || calm <= CHECKS * settings.check_interval {
            return None;
        }
        self.suspended_told = true;
        let what = match (suspended.major, suspended.minor) {
            (true, true) => "major and minor compaction are",
            (true, false) => "major compaction is",
            _ => "minor compaction is",
        };
        let calm = time_text(calm);
        let remedy =
            "resume it with PUT /api/v1/bookie/gc/resume_compaction, or restart the bookie";
        let message = if !suspended.seen {
            let mut places = shadow.collectors().iter();
            let place = places.position(|known| known.major || known.minor);
            format!(
                "{what} suspended in {} by what was seen: a directory was over warn, has been below for {calm}, and \
                 nothing in the bookie resumes it then (apache/pulsar#22901); the bookie itself shows that only once \
                 every directory is suspended, so it is concluded and not read; {remedy}",
                shadow.collector_text(place.unwrap_or_default())
            )
        } else if self.trip.is_some() {
            format!(
                "{what} suspended, and no directory has been over warn for {calm}: the bookie resumes it only when a \
                 full directory is below warn at its next check (apache/pulsar#22901, #4018); {remedy}"
            )
        } else {
            format!(
                "{what} suspended, and no directory has been over warn for {calm}: by whom is not known, somebody \
                 suspended it or it is left from before this agent looked; {remedy}"
            )
        };
        Some(Told::new(EventKind::CompactionSuspended, message))
    }

    fn stalled(
        &mut self,
        now: Elapsed,
        settings: &Settings,
        shadow: &Shadow,
        serves: bool,
        told: &mut Vec<Told>,
    ) {
        let over = self.over == Some(true);
        let seen = self.suspended.filter(|suspended| suspended.seen);
        let held =
            |kind: fn(&SuspendedView) -> bool| over || !serves || seen.is_some_and(|s| kind(&s));
        let (major_held, minor_held) = (held(|s| s.major), held(|s| s.minor));
        for (place, progress) in self.collectors.iter_mut().enumerate() {
            let kinds = [
                ("major", &mut progress.major, settings.major, major_held),
                ("minor", &mut progress.minor, settings.minor, minor_held),
            ];
            let mut late = Vec::new();
            for (name, kind, interval, held) in kinds {
                let rest = kind.rest(now, held);
                let limit = interval
                    .map(|interval| STALLED_INTERVALS * interval + CHECKS * settings.gc_wait);
                if limit.is_some_and(|limit| limit < rest) {
                    late.push(format!(
                        "no {name} compaction has ended for {}",
                        time_text(rest)
                    ));
                }
            }
            progress.late = !late.is_empty();
            if late.is_empty() || std::mem::replace(&mut progress.told, true) {
                continue;
            }
            let runs = self.details.get(place).is_some_and(|details| {
                details.major_compacting || details.minor_compacting || details.force_compacting
            });
            let hint = if runs {
                "one is running"
            } else if shadow
                .collectors()
                .get(place)
                .is_some_and(|known| known.major)
            {
                "it was suspended when a directory was over warn, and nothing resumed it (apache/pulsar#22901)"
            } else {
                "the collector's thread may have ended by an error (#2103, #4596): look for it in the bookie's log"
            };
            told.push(Told::new(
                EventKind::CompactionStalled,
                format!(
                    "{}: {}; {hint}",
                    shadow.collector_text(place),
                    late.join(", ")
                ),
            ));
        }
    }

    /// What should be asked of the bookie now.
    pub(super) fn action(&self, now: Elapsed, settings: &Settings) -> Option<BesideAction> {
        self.resume(now, settings).or_else(|| {
            self.collect(now, settings)
                .then_some(BesideAction::RequestGc)
        })
    }

    /// Only what the bookie itself suspended for a trip that this agent saw from its beginning; a person
    /// who suspended compaction wants it so.
    fn resume(&self, now: Elapsed, settings: &Settings) -> Option<BesideAction> {
        let suspended = self.suspended?;
        self.trip.filter(|trip| trip.clean)?;
        let calm = now.saturating_sub(self.quiet_since?);
        let soon = self.resumed_at.is_some_and(|at| now < at + RESUME_AGAIN);
        (CHECKS * settings.check_interval < calm && !soon).then_some(
            BesideAction::ResumeCompaction {
                major: suspended.major,
                minor: suspended.minor,
            },
        )
    }

    fn collect(&self, now: Elapsed, settings: &Settings) -> bool {
        let lasts = |since: Option<Elapsed>, wait: Duration| {
            since.is_some_and(|since| since + wait + settings.jitter <= now)
        };
        let short = lasts(self.full_since, FULL_LASTS) || lasts(self.warn_since, WARN_LASTS);
        let soon = self.collected_at.is_some_and(|at| now < at + COLLECT_AGAIN);
        short && !soon && !self.undoable && self.forced.newest() == Some(false)
    }

    pub(super) fn acted(&mut self, now: Elapsed, action: BesideAction, shadow: &mut Shadow) {
        match action {
            BesideAction::ResumeCompaction { major, minor } => {
                self.resumed_at = Some(now);
                shadow.resumed(None, major, minor);
            }
            BesideAction::RequestGc => self.collected_at = Some(now),
        }
    }
}

const NONE_SUSPENDED: CompactionFlags = CompactionFlags {
    minor_suspended: false,
    major_suspended: false,
};

impl Kind {
    fn take(&mut self, now: Moment, count: u64, last: u64) {
        let is_new = (count, last) != (self.count, self.last);
        if !is_new {
            return;
        }
        let first = self.last == 0;
        let wall = u64::try_from(now.wall.0).unwrap_or_default();
        *self = Kind {
            count,
            last,
            seen: now.elapsed,
            // The bookie's clock is this machine's; a clock that was set back makes it newer at most.
            age: if first {
                Duration::from_millis(wall.saturating_sub(last))
            } else {
                Duration::ZERO
            },
            free_since: if first { Elapsed::ZERO } else { now.elapsed },
        };
    }

    /// How long none has ended although nothing kept it from running.
    fn rest(&mut self, now: Elapsed, held: bool) -> Duration {
        if held {
            self.free_since = now;
            self.age = Duration::ZERO;
        }
        let since = self.seen.max(self.free_since);
        now.saturating_sub(since) + self.age
    }
}

/// A directory that the bookie watches is over its own warn threshold; none while one is not known and
/// none of the others is.
fn over_warn(settings: &Settings, node: &NodeFacts<'_>) -> Option<bool> {
    let over = |dir: &DirNow<'_>| {
        let space = dir.space?;
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let used = bookkeeper::usage(number(space.available), number(space.size));
        Some(settings.model.warn < used)
    };
    let answers: Vec<Option<bool>> = node.watched().map(over).collect();
    if answers.contains(&Some(true)) {
        return Some(true);
    }
    (!answers.is_empty() && !answers.contains(&None)).then_some(false)
}
