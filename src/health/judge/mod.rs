//! What is concluded from what is heard of the bookie and its cluster: events, the view that the
//! snapshot shows, and what could be asked of the bookie. Pure, and never about a disk: what the disks
//! show comes in as [`NodeFacts`]. `alive` is about the process, `mode` about the mode it is in, `shadow`
//! about the mode its own monitor should have chosen, `compaction` about the space it gives back.

mod alive;
mod cluster;
mod compaction;
mod facts;
mod mode;
mod shadow;

use std::path::Path;
use std::time::Duration;

use super::beside::{BesideAction, BesideView, CompactionView, Heard, Registration, Session};
use super::bookkeeper;
use super::claim::Claim;
use super::dir::Role;
use super::event::EventKind;
use super::moment::{Elapsed, Moment};
use super::observation::{Device, Space};
use super::policy::Mode;
use super::status::{AccessStatus, SpaceStatus};
use alive::Alive;
use cluster::ClusterWatch;
use compaction::Compaction;
use mode::{ModeWatch, Priority, Registered};
use shadow::Shadow;

/// What the bookie's file says about its own watch and its housekeeping, with BookKeeper's defaults for
/// what it does not say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// `diskCheckInterval`.
    pub check_interval: Duration,
    /// Of its monitor.
    pub model: bookkeeper::Settings,
    /// It is known whether one full directory makes it read-only: its file says so, or its version.
    pub any_full_known: bool,
    /// `persistBookieStatusEnabled`; none where no file says it.
    pub persists_status: Option<bool>,
    /// `forceReadOnlyBookie`.
    pub force_read_only: bool,
    /// `DbLedgerStorage`: a garbage collector for each ledger directory.
    pub collector_for_each_dir: bool,
    /// `isForceGCAllowWhenNoSpace`: a full directory forces collections and suspends nothing.
    pub forced_gc_allowed: bool,
    /// `gcWaitTime`.
    pub gc_wait: Duration,
    /// `minorCompactionInterval`; none where it is turned off.
    pub minor: Option<Duration>,
    /// `majorCompactionInterval`, likewise.
    pub major: Option<Duration>,
    /// By so much this bookie waits longer than others before it asks for a collection.
    pub jitter: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            check_interval: Duration::from_secs(10),
            // What is unknown counts as what makes a bookie read-only more often.
            model: bookkeeper::Settings {
                any_full: true,
                ..bookkeeper::Settings::defaults()
            },
            any_full_known: false,
            persists_status: None,
            force_read_only: false,
            collector_for_each_dir: false,
            forced_gc_allowed: false,
            gc_wait: Duration::from_secs(900),
            minor: Some(Duration::from_secs(3600)),
            major: Some(Duration::from_secs(86_400)),
            jitter: Duration::ZERO,
        }
    }
}

/// BookKeeper's release in which the any-full key began to count (`docs/bookkeeper-versions.md`).
pub const ANY_FULL_SINCE: (u32, u32) = (4, 16);

/// The one in which it began to be the default.
pub const ANY_FULL_DEFAULT_SINCE: (u32, u32) = (4, 18);

impl Settings {
    /// The same beside a bookie of this release: what its file leaves open is then known.
    fn of_version(mut self, version: Option<(u32, u32)>) -> Settings {
        let Some(version) = version else {
            return self;
        };
        if version < ANY_FULL_SINCE {
            self.model.any_full = false;
        } else if !self.any_full_known {
            self.model.any_full = ANY_FULL_DEFAULT_SINCE <= version;
        }
        self.any_full_known = true;
        self
    }
}

/// Major and minor number of a version such as `4.17.3`.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// A directory, as it stands now.
#[derive(Debug, Clone, Copy)]
pub struct DirNow<'a> {
    /// Path as configured.
    pub path: &'a Path,
    /// Role.
    pub role: Role,
    /// File system, where it is known.
    pub device: Option<Device>,
    /// Newest numbers; none when they are not of the right disk.
    pub space: Option<Space>,
    /// Space axis.
    pub space_status: SpaceStatus,
    /// Access axis.
    pub access: AccessStatus,
}

/// What the disks say, and who holds the mode.
#[derive(Debug, Clone)]
pub struct NodeFacts<'a> {
    /// Directories in configured order.
    pub dirs: Vec<DirNow<'a>>,
    /// Mode that the disks allow; none while too much is unknown.
    pub wanted: Option<Mode>,
    /// Why it is not writable.
    pub wanted_reason: Option<&'a str>,
    /// Recovery writes are possible.
    pub high_priority_writes: bool,
    /// Who holds the server in a mode.
    pub claims: &'a [Claim],
    /// Deletions of ledgers could still be undone: the bookie must not collect them now.
    pub undoable: bool,
}

impl NodeFacts<'_> {
    /// Every directory's space and access is known.
    fn is_known(&self) -> bool {
        !self.dirs.is_empty()
            && self.dirs.iter().all(|dir| {
                dir.space_status != SpaceStatus::Unknown && dir.access != AccessStatus::Unknown
            })
    }

    /// Directories that the bookie's own monitor watches: not those of the journal (W38).
    fn watched(&self) -> impl Iterator<Item = &DirNow<'_>> {
        self.dirs.iter().filter(|dir| dir.role != Role::Journal)
    }
}

/// An event to tell, with what the monitor loop cannot know by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Which.
    pub kind: EventKind,
    /// Old and new value, where it has them.
    pub change: Option<(&'static str, &'static str)>,
    /// Why, in words.
    pub message: String,
}

impl Told {
    fn new(kind: EventKind, message: impl Into<String>) -> Told {
        Told {
            kind,
            change: None,
            message: message.into(),
        }
    }
}

/// The judgements and what they have to remember. Its size depends on the numbers of directories and
/// of bookies only.
#[derive(Debug, Clone, Default)]
pub struct Judge {
    /// As configured.
    given: Settings,
    /// As they count, with what the bookie's version says.
    settings: Settings,
    /// Something was heard of the bookie: there is one to judge.
    has_bookie: bool,
    alive: Alive,
    priority: Priority,
    mode: ModeWatch,
    registered: Registered,
    registration: Option<Registration>,
    shadow: Shadow,
    compaction: Compaction,
    cluster: ClusterWatch,
    session: Option<Session>,
    /// BookKeeper's version, as the bookie's process shows it.
    version: Option<(u32, u32)>,
    /// The mode of the server, however it was learnt.
    server: Option<Mode>,
    next_tick: Elapsed,
}

/// Time is looked at so often: every grace is a multiple of it, and the bookie's state is asked for
/// as often.
const TICK: Duration = Duration::from_secs(1);

/// BookKeeper's monitor is not followed faster than this: more would be a turn of the loop for nothing.
const SHORTEST_TICK: Duration = Duration::from_millis(250);

impl Judge {
    /// Nothing was heard yet.
    #[must_use]
    pub fn new(settings: Settings) -> Judge {
        Judge {
            given: settings,
            settings,
            ..Judge::default()
        }
    }

    /// Judges by these settings from now on.
    pub fn configure(&mut self, settings: Settings) {
        self.given = settings;
        let settings = settings.of_version(self.version);
        if settings.model != self.settings.model {
            self.shadow = Shadow::default();
        }
        self.settings = settings;
    }

    /// Takes in one thing heard; the events that follow at once.
    pub fn hear(&mut self, now: Moment, heard: Heard, node: &NodeFacts<'_>) -> Vec<Told> {
        let elapsed = now.elapsed;
        match heard {
            Heard::State(state) => {
                self.has_bookie = true;
                // Not what it said before, which counts for a while without an answer.
                let answered = state.as_ref().ok().and_then(|state| state.mode());
                let told = self.alive.state(elapsed, state);
                if let Some(mode) = answered {
                    self.mode.first_answer(mode);
                }
                told.into_iter().collect()
            }
            Heard::Process(process) => {
                self.has_bookie = true;
                if let Ok(Some(process)) = &process {
                    self.version = process.version.as_deref().and_then(release);
                    self.configure(self.given);
                }
                let told = self.alive.process(process, self.settings.persists_status);
                self.restarted(told.is_some(), node);
                told.into_iter().collect()
            }
            Heard::Compaction(flags) => {
                self.compaction.flags(elapsed, flags.ok().flatten());
                Vec::new()
            }
            Heard::Gc(details) => {
                let began_anew = self.compaction.details(now, details.unwrap_or_default());
                let told = self.alive.counters_fell(began_anew);
                self.restarted(told.is_some(), node);
                told.into_iter().collect()
            }
            Heard::ForcedGc(forced) => {
                let told = self.compaction.forced(elapsed, forced.ok(), node);
                told.into_iter().collect()
            }
            Heard::Registration(registration) => {
                self.registration = registration.ok();
                Vec::new()
            }
            Heard::Cluster(view) => self.cluster.hear(elapsed, view.ok()),
            Heard::Session(session) => {
                self.session = Some(session);
                Vec::new()
            }
        }
    }

    fn restarted(&mut self, restarted: bool, node: &NodeFacts<'_>) {
        if restarted {
            self.compaction.restarted();
            self.shadow.restarted(&self.settings, node);
            self.mode.restarted();
        }
    }

    /// When [`Judge::tick`] has something to do; none while there is nothing to judge.
    #[must_use]
    pub fn due(&self) -> Option<Elapsed> {
        let is_any = self.has_bookie || self.cluster.is_known() || self.server.is_some();
        is_any.then_some(self.next_tick)
    }

    /// Everything that time alone brings.
    pub fn tick(&mut self, now: Moment, node: &NodeFacts<'_>) -> Vec<Told> {
        let now = now.elapsed;
        if self.due().is_none_or(|due| now < due) {
            return Vec::new();
        }
        let pace = self.settings.check_interval.clamp(SHORTEST_TICK, TICK);
        self.next_tick = now + pace;
        let mut told = Vec::new();
        told.extend(self.alive.tick(now));
        let serving = self.alive.serving();
        if serving.is_some() {
            self.shadow.tick(now, &self.settings, node);
        }
        let settings = &self.settings;
        told.extend(self.priority.tick(now, settings, serving, node));
        told.extend(self.registered.tick(
            now,
            self.session,
            self.registration.filter(|_| self.has_bookie),
            serving,
        ));
        told.extend(
            self.compaction
                .tick(now, settings, node, &mut self.shadow, serving.is_some()),
        );
        told.extend(self.check_mode(now, node));
        told.extend(self.cluster.tick(now));
        told
    }

    fn check_mode(&mut self, now: Elapsed, node: &NodeFacts<'_>) -> Option<Told> {
        let observed = self.server;
        let explained = match (node.wanted, observed) {
            (Some(wanted), Some(observed)) if wanted != observed => {
                // Of a server that embeds the library nothing else is known.
                if self.has_bookie {
                    self.mode
                        .explain(observed, &self.settings, &self.shadow, node)
                } else {
                    Some(String::new())
                }
            }
            _ => None,
        };
        self.mode.tick(now, node.wanted, observed, explained)
    }

    /// The server is in this mode; none when it cannot be asked.
    pub fn server(&mut self, mode: Option<Mode>) {
        self.server = mode;
    }

    /// The mode that the bookie says it has; none while it does not serve.
    #[must_use]
    pub fn observed(&self) -> Option<Mode> {
        self.alive.serving()?.mode()
    }

    /// The one thing that should be asked of the bookie now, if there is one.
    #[must_use]
    pub fn action(&self, now: Elapsed) -> Option<BesideAction> {
        self.alive.serving()?;
        self.compaction.action(now, &self.settings)
    }

    /// It was asked, well or not: it is not asked again soon.
    pub fn acted(&mut self, now: Elapsed, action: BesideAction) {
        self.compaction.acted(now, action, &mut self.shadow);
    }

    /// As the snapshot shows it.
    #[must_use]
    pub fn view(&self, now: Elapsed) -> BesideView {
        let details = self.compaction.newest();
        BesideView {
            bookie_up: self.has_bookie.then(|| self.alive.serving().is_some()),
            high_priority_writes: self
                .alive
                .serving()
                .and_then(|state| state.high_priority_writes),
            zookeeper: match self.session {
                None | Some(Session::None) => None,
                Some(Session::Lost(_)) => Some(false),
                Some(Session::Connected) => Some(true),
            },
            cluster: self.cluster.view().cloned(),
            orphaned: self.cluster.orphaned(),
            headroom_low: self.cluster.headroom_low(),
            process: self.alive.known_process().cloned(),
            registration: self.registration,
            should_be: self.shadow.view(),
            compaction: CompactionView {
                flags: self.compaction.newest_flags(),
                suspended: self.compaction.suspended(),
                details: details.to_vec(),
                forced: self.compaction.is_forced(),
                stalled: self.compaction.is_stalled(),
                forced_loop: self.compaction.is_forced_loop(),
            },
            action: self.action(now),
        }
    }
}

/// A time as people say it.
fn time_text(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests;
