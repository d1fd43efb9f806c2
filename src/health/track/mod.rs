//! One directory: takes in observations, keeps the three axes, and says which of them changed.
//! Knows nothing of other directories and tells nobody; `tracker` does that.

pub(super) mod ballast;
mod take;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::access::AccessAxis;
use super::ballast::{Ballast, JOURNAL_STEP, Order};
use super::bookie_files::SeenFiles;
use super::dir::{Dir, DirId};
use super::edge::{access_event, latency_event, space_event};
use super::event::EventKind;
use super::forecast::Forecast;
use super::identity::Pin;
use super::journal::JournalView;
use super::latency::LatencyAxis;
use super::moment::{Elapsed, Moment};
use super::observation::{
    Cookie, Device, Durations, Medium, Mount, Observation, Operation, Pressure, Space,
};
use super::outlier::Sample;
use super::policy::HighPriorityRoom;
use super::schedule::{self, LookPlan, Schedule, Wait};
use super::snapshot::{ForecastView, Sources};
use super::space::{self, SpaceAxis};
use super::status::{AccessStatus, Axis, Cause, LatencyStatus, Reason, Since, SpaceStatus, Status};
use ballast::{Beside, Share};

/// Status changes kept for the page and the API: a day of one an hour, and then some.
const HISTORY: usize = 32;

/// Signals kept as evidence: what a person reads at one glance, and a source that repeats itself
/// cannot grow it.
const SIGNALS: usize = 5;

/// So many looks in a row may disagree with the mount table before they are believed: the table is
/// read on a signal and may lag by some milliseconds, a look takes less.
const STALE_LOOKS: u32 = 3;

/// What a directory showed counts among siblings for so many intervals: one that hangs or fails shows
/// nothing new, and what it showed before was of another hour of load.
const FRESH: u32 = 3;

/// Everything known about one directory.
#[derive(Debug, Clone)]
pub struct Track {
    pub(super) id: DirId,
    pub(super) dir: Dir,
    pub(super) space: SpaceAxis,
    pub(super) access: AccessAxis,
    pub(super) latency: LatencyAxis,
    pub(super) forecast: Forecast,
    pub(super) mount: Option<Mount>,
    pub(super) pin: Option<Pin>,
    pub(super) pin_changed: bool,
    pub(super) last_space: Option<Space>,
    pub(super) durations: Durations,
    /// At the newest probe, if that took long.
    pub(super) pressure: Option<Pressure>,
    pub(super) last_looked: Option<Moment>,
    pub(super) last_probe_success: Option<Moment>,
    pub(super) cookie: Cookie,
    pub(super) sources: Sources,
    /// What the kernel said by itself, oldest first.
    pub(super) signals: VecDeque<(Moment, String)>,
    /// When an error of the file system last hurried a look.
    error_hurried: Option<Elapsed>,
    /// What the file system has recorded of its own errors.
    pub(super) recorded: Option<String>,
    pub(super) schedule: Schedule,
    pub(super) told: Told,
    pub(super) status: Option<Since<Status>>,
    pub(super) axes_since: [Option<Moment>; 3],
    pub(super) transitions: BTreeMap<Status, u64>,
    pub(super) failures: BTreeMap<Cause, u64>,
    pub(super) history: VecDeque<(super::moment::Timestamp, Status)>,
    pub(super) told_at: Option<Moment>,
    /// The forecast as of the newest slow tick.
    pub(super) forecast_view: Option<ForecastView>,
    pub(super) forecast_told: bool,
    /// Since when the forecast has said that it will be full soon.
    pub(super) forecast_since: Option<Elapsed>,
    /// The bookie's own files, as last seen here.
    pub(super) bookie_files: Option<SeenFiles>,
    /// What they come to together with those of other directories.
    pub(super) journal_view: Option<JournalView>,
    pub(super) ballast: Ballast,
    /// What the bookie allocates at a time for a journal file.
    pub(super) journal_step: u64,
    /// As of the newest look.
    pub(super) beside: Beside,
    /// Its own part, as the sums of the file systems have it.
    share: Option<Share>,
    ballast_given: Option<u64>,
    /// A journal that has less than it needs next.
    pub(super) emergency: bool,
    /// Since when it has had more again.
    emergency_over: Option<Elapsed>,
    /// It may be an empty mount point, see `root_disk`.
    pub(super) doubtful: bool,
    boot_id: String,
    /// The newest look was at the pinned disk, and nothing was heard since that says otherwise.
    at_home: bool,
    stale_looks: u32,
    /// The look under way is to write.
    probe_asked: bool,
}

/// The values of the axes that were told last, and whether each was ever known.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    pub(super) space: SpaceStatus,
    pub(super) space_known: Option<SpaceStatus>,
    pub(super) access: AccessStatus,
    pub(super) access_known: bool,
    pub(super) latency: LatencyStatus,
    /// Why each axis was not good, as it was told last: what ends when it is good again.
    pub(super) causes: [Option<(Cause, Operation)>; 3],
}

impl Told {
    /// The reason of a change of an axis, kept if it has one.
    fn reason(&mut self, axis: Axis, reason: Option<&Reason>) -> Option<Reason> {
        if let Some(reason) = reason {
            self.causes[axis as usize] = Some((reason.cause, reason.operation));
        }
        reason.cloned()
    }
}

/// An axis that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AxisChange {
    /// Which axis.
    pub axis: Axis,
    /// The event, if the change is one.
    pub kind: Option<EventKind>,
    /// Value before.
    pub from: &'static str,
    /// Value now.
    pub to: &'static str,
    /// Why.
    pub reason: Option<Reason>,
}

impl Track {
    /// A directory of which nothing is known but, perhaps, its pin of an earlier run.
    #[must_use]
    pub fn new(id: DirId, dir: Dir, pin: Option<Pin>) -> Track {
        Track {
            id,
            dir,
            space: SpaceAxis::default(),
            access: AccessAxis::default(),
            latency: LatencyAxis::default(),
            forecast: Forecast::default(),
            mount: None,
            pin,
            pin_changed: false,
            last_space: None,
            durations: Durations::new(),
            pressure: None,
            last_looked: None,
            last_probe_success: None,
            cookie: Cookie::NotRead,
            sources: Sources::default(),
            signals: VecDeque::new(),
            error_hurried: None,
            recorded: None,
            schedule: Schedule::new(id),
            told: Told::default(),
            status: None,
            axes_since: [None; 3],
            transitions: BTreeMap::new(),
            failures: BTreeMap::new(),
            history: VecDeque::new(),
            told_at: None,
            forecast_view: None,
            forecast_told: false,
            forecast_since: None,
            bookie_files: None,
            journal_view: None,
            ballast: Ballast::default(),
            journal_step: JOURNAL_STEP,
            beside: Beside::default(),
            share: None,
            ballast_given: None,
            emergency: false,
            emergency_over: None,
            doubtful: false,
            boot_id: String::new(),
            at_home: false,
            stale_looks: 0,
            probe_asked: false,
        }
    }

    /// Takes in one observation.
    pub fn observe(&mut self, now: Moment, observation: Observation) {
        match observation {
            Observation::Looked(look) => self.looked(now, &look),
            Observation::InFlight(in_flight) => self.in_flight(in_flight),
            Observation::Mounted(mount) => self.mounted(now, mount),
            Observation::Stalled(what) => self.access.set_stalled(what),
            Observation::Recorded(what) => self.recorded = what,
            Observation::FileSystemError(what) => self.erred(now, what),
            Observation::ProberLost(text) => {
                self.access.set_stalled(None);
                self.access.lost(Reason {
                    cause: Cause::Prober,
                    operation: Operation::Prober,
                    errno: None,
                    message: text,
                });
            }
        }
    }

    /// Something suspicious was seen: a full look as soon as possible, and a line of evidence.
    pub fn signal(&mut self, now: Moment, what: String) {
        self.schedule.hurry(now.elapsed, true);
        self.keep(now, what);
    }

    /// The first error is a reason to look at once. Of a file system that goes on with errors each
    /// probe may make the next one: those that follow hurry it once an interval.
    fn erred(&mut self, now: Moment, what: String) {
        let interval = self.dir.probe.interval;
        let hurried = self.error_hurried;
        if hurried.is_none_or(|at| interval <= now.elapsed.saturating_sub(at)) {
            self.error_hurried = Some(now.elapsed);
            self.schedule.hurry(now.elapsed, true);
        }
        self.keep(now, what);
    }

    fn keep(&mut self, now: Moment, what: String) {
        self.signals.retain(|(_, known)| *known != what);
        if self.signals.len() == SIGNALS {
            self.signals.pop_front();
        }
        self.signals.push_back((now, what));
    }

    /// A new prober has taken over: nothing is under way, and what it stalls with it says anew.
    pub fn void_look(&mut self, now: Moment) {
        self.schedule.void(now.elapsed);
        self.access.set_stalled(None);
    }

    /// The next look, if one is due; it counts as under way from now on.
    pub fn begin_look(&mut self, now: Moment) -> Option<LookPlan> {
        let full = self.schedule.begin(now.elapsed)?;
        // Nothing is written before it is known that this is the right disk. It is probed again as
        // soon as it is back: good rounds are what ends `vanished` and `replaced`.
        let identified = self.pin.is_some() && self.boot_known() && self.at_home;
        self.probe_asked = full && identified && !self.awaits_cookie();
        let ballast = if full {
            let facts = identified.then(|| self.circumstances());
            self.ballast.begin(now.elapsed, facts.as_ref())
        } else {
            Order::None
        };
        Some(LookPlan {
            full,
            probe: self.probe_asked,
            ballast,
        })
    }

    /// An operator takes what is there as the right disk: the pin is made anew by the next look.
    /// False when nothing else than the pinned disk was seen: what might appear next is not it.
    pub fn accept(&mut self, now: Moment) -> bool {
        if self.access.status() != AccessStatus::Replaced {
            return false;
        }
        self.pin = None;
        self.at_home = false;
        self.forecast.reset();
        self.latency.forget();
        self.access.accept();
        self.schedule.hurry(now.elapsed, true);
        true
    }

    /// The pin of an earlier run became known after the start. The next look compares.
    pub fn recall(&mut self, now: Moment, pin: Pin) {
        if self.pin.as_ref() != Some(&pin) {
            self.pin = Some(pin);
            self.at_home = false;
            self.schedule.hurry(now.elapsed, true);
        }
    }

    /// Room for recovery writes; none while the space is unknown.
    #[must_use]
    pub fn high_priority_room(&self) -> Option<HighPriorityRoom> {
        let space = self.last_space.as_ref()?;
        let reserve = self.dir.thresholds.high_priority_reserve;
        Some(HighPriorityRoom::of(space.available, reserve))
    }

    /// The newest numbers, unless they are of a disk that is not there any more.
    pub(super) fn present_space(&self) -> Option<&Space> {
        self.last_space.as_ref().filter(|_| !self.is_elsewhere())
    }

    /// The storage under the directory, as far as known.
    #[must_use]
    pub fn medium(&self) -> Medium {
        self.mount
            .as_ref()
            .map_or(Medium::Unknown, |mount| mount.medium)
    }

    /// Its newest probes are new enough to be compared with those of siblings.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        self.last_probe_success.is_some_and(|probed| {
            let age = now.elapsed.saturating_sub(probed.elapsed);
            age <= FRESH * self.dir.probe.interval
        })
    }

    /// What its newest probes took. Of a directory without a mount there are none.
    pub(super) fn sample(&self, step: Operation) -> Sample {
        let device = self.mount.as_ref().map(|mount| mount.device);
        Sample {
            device: device.unwrap_or(Device { major: 0, minor: 0 }),
            medium: self.medium(),
            micros: self.latency.newest(step),
        }
    }

    /// How long an operation on it may take.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.dir
            .probe
            .deadline
            .unwrap_or_else(|| self.medium().deadline())
    }

    /// `initbookie` has not run here yet, so nothing may be written: it refuses
    /// folders that are not empty.
    #[must_use]
    pub fn awaits_cookie(&self) -> bool {
        self.dir.await_cookie && !matches!(self.cookie, Cookie::Present { .. })
    }

    fn is_elsewhere(&self) -> bool {
        matches!(
            self.access.status(),
            AccessStatus::Vanished | AccessStatus::Replaced
        )
    }

    /// The pin was compared with a look of this boot.
    fn boot_known(&self) -> bool {
        self.pin
            .as_ref()
            .is_some_and(|pin| !self.boot_id.is_empty() && pin.identity.boot_id == self.boot_id)
    }

    fn space_wait(&self) -> Duration {
        let longest = schedule::longest_space_wait(&self.dir.probe, self.medium());
        let Some(space) = &self.last_space else {
            return longest;
        };
        let limits = &self.dir.thresholds;
        let held = self.ballast_around();
        let marks = [
            space::full_below(space, limits).saturating_add(held),
            space::warn_below(space, limits).saturating_add(held),
        ];
        self.forecast.next_look(&marks, longest)
    }

    /// The one-word status.
    #[must_use]
    pub fn status_now(&self) -> Status {
        Status::of(
            self.space.status(),
            self.access.status(),
            self.latency.status(),
        )
    }

    /// The axes that changed since the last call, each with its event. Empty, and without cost, when
    /// nothing did.
    pub fn take_changes(&mut self, now: Moment) -> Vec<AxisChange> {
        let mut changes = Vec::new();
        let space = self.space.status();
        if space != self.told.space {
            let kind = space_event(self.told.space, self.told.space_known, space);
            changes.push(AxisChange {
                axis: Axis::Space,
                kind,
                from: self.told.space.name(),
                to: space.name(),
                reason: self.told.reason(Axis::Space, self.space.reason()),
            });
            self.told.space = space;
            self.axes_since[0] = Some(now);
        }
        if space != SpaceStatus::Unknown {
            self.told.space_known = Some(space);
        }
        let access = self.access.status();
        if access != self.told.access {
            let kind = access_event(self.told.access_known, access);
            changes.push(AxisChange {
                axis: Axis::Access,
                kind,
                from: self.told.access.name(),
                to: access.name(),
                reason: self.told.reason(Axis::Access, self.access.reason()),
            });
            self.told.access = access;
            self.axes_since[1] = Some(now);
        }
        self.told.access_known |= access != AccessStatus::Unknown;
        let latency = self.latency.status();
        if latency != self.told.latency {
            changes.push(AxisChange {
                axis: Axis::Latency,
                kind: latency_event(self.told.latency, latency),
                from: self.told.latency.name(),
                to: latency.name(),
                reason: self.told.reason(Axis::Latency, self.latency.reason()),
            });
            self.told.latency = latency;
            self.axes_since[2] = Some(now);
        }
        if !changes.is_empty() || self.status.is_none() {
            self.update_status(now);
        }
        changes
    }

    fn update_status(&mut self, now: Moment) {
        let status = self.status_now();
        if self.status.is_some_and(|known| known.value == status) {
            return;
        }
        if self.status.is_some() {
            *self.transitions.entry(status).or_default() += 1;
        }
        self.status = Some(Since {
            value: status,
            since: now,
        });
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back((now.wall, status));
    }
}

/// The wait until the next full look.
fn full_wait(dir: &Dir, access: &AccessAxis, filling: impl FnOnce() -> bool) -> Wait {
    let interval = dir.probe.interval;
    if access.suspicion().is_some() || filling() {
        Wait::Soon(schedule::PROBE_AGAIN.min(interval))
    } else if access.is_on_probation() {
        let third = dir.thresholds.dwell / 3;
        Wait::Soon(third.max(schedule::PROBE_AGAIN).min(interval))
    } else {
        Wait::Round(interval)
    }
}
