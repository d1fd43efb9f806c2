//! Joins everything: observations in, events and looks out. Owns one [`Track`] a directory and the
//! [`Node`]; the monitor loop owns it and is the only one to call it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::ballast::JOURNAL_STEP;
use super::bookie_files::BookieWatch;
use super::dir::{Dir, DirId};
use super::event::{Event, EventKind};
use super::forecast::HORIZON_SOON;
use super::identity::Pin;
use super::latency::COMPARED;
use super::moment::{Elapsed, Moment};
use super::node::{self, DirFacts, Node, NodeChange};
use super::observation::{Observation, Operation};
use super::outlier::{self, Sample};
use super::policy::{Mode, Policy};
use super::schedule::LookPlan;
use super::snapshot::{DirView, Histogram, Sources};
use super::space;
use super::status::{AccessStatus, Axis, Cause, Reason, Severity, SpaceStatus, Status};
use super::track::ballast::Ballasts;
use super::track::{AxisChange, Track};
use super::tracks::Tracks;
use super::view::{back_to_good, reason, view};
use super::words::bytes_text;

/// A forecast is told when it has held for this part of the time that it foretells: one of an hour
/// for six minutes, one of ten minutes for one. A burst of writes is no trend.
const FORECAST_PART: u32 = 10;

/// How often forecasts, siblings and reminders are considered; all are about minutes.
const SLOW_TICK: Duration = Duration::from_secs(5);

/// How a directory stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stand {
    /// In one word.
    pub status: Status,
    /// Space axis.
    pub space: SpaceStatus,
    /// Access axis.
    pub access: AccessStatus,
}

/// Decides for all directories of a node.
#[derive(Debug, Clone)]
pub struct Tracker {
    pub(super) tracks: Tracks,
    pub(super) ballasts: Ballasts,
    pub(super) policy: Policy,
    pub(super) bookie: BookieWatch,
    node: Node,
    next_id: u32,
    next_slow_tick: Elapsed,
    event_counts: BTreeMap<EventKind, u64>,
    histograms: BTreeMap<Operation, Histogram>,
}

impl Tracker {
    /// A tracker without directories; [`Tracker::configure`] gives it some.
    #[must_use]
    pub fn new(policy: Policy) -> Tracker {
        let event_counts = EventKind::ALL.iter().map(|kind| (*kind, 0)).collect();
        let histograms = Operation::ALL
            .into_iter()
            .map(|operation| (operation, Histogram::default()))
            .collect();
        Tracker {
            tracks: Tracks::default(),
            ballasts: Ballasts::default(),
            policy,
            bookie: BookieWatch::default(),
            node: Node::default(),
            next_id: 0,
            next_slow_tick: Elapsed::ZERO,
            event_counts,
            histograms,
        }
    }

    /// Replaces the set of directories. One that stays (same path and role) keeps its state and id
    /// and takes its new settings; `pin` is asked for those that are new. Returns the events that
    /// follow for the node.
    pub fn configure(
        &mut self,
        now: Moment,
        dirs: Vec<Dir>,
        policy: Policy,
        mut pin: impl FnMut(&Dir) -> Option<Pin>,
    ) -> Vec<Event> {
        let mut old = std::mem::take(&mut self.tracks).into_vec();
        let needs = policy.bookie.as_ref();
        let journal_step = needs.map_or(JOURNAL_STEP, |needs| needs.journal_step);
        for dir in dirs {
            let same = |track: &Track| track.dir.path == dir.path && track.dir.role == dir.role;
            let mut track = if let Some(place) = old.iter().position(same) {
                let mut track = old.swap_remove(place);
                track.dir = dir;
                track
            } else {
                let id = DirId(self.next_id);
                self.next_id += 1;
                let pin = pin(&dir);
                Track::new(id, dir, pin)
            };
            track.journal_step = journal_step;
            self.tracks.push(track);
        }
        self.ballasts = Ballasts::of(&mut self.tracks);
        self.policy = policy;
        self.node_events(now)
    }

    /// Directories with their ids, in configured order.
    pub fn dirs(&self) -> impl Iterator<Item = (DirId, &Dir)> {
        self.tracks.iter().map(|track| (track.id, &track.dir))
    }

    /// Takes in one observation; returns the events that follow, not yet numbered. An id that is
    /// not configured any more is ignored.
    pub fn observe(&mut self, now: Moment, id: DirId, observation: Observation) -> Vec<Event> {
        let Some(place) = self.place(id) else {
            return Vec::new();
        };
        let is_mount = matches!(observation, Observation::Mounted(_));
        let track = &mut self.tracks[place];
        let room_before = track.high_priority_room().map(|room| room.enough);
        let emergency = track.emergency;
        if let Observation::Looked(look) = &observation {
            for (operation, duration) in &look.durations {
                if let Some(histogram) = self.histograms.get_mut(operation) {
                    histogram.observe(*duration);
                }
            }
            track.beside = self.ballasts.beside(track);
            track.looked(now, look);
        } else {
            track.observe(now, observation);
        }
        self.ballasts.follow(&mut self.tracks, place);
        if is_mount {
            self.doubt();
        }
        let track = &mut self.tracks[place];
        let changes = track.take_changes(now);
        let room = track.high_priority_room().map(|room| room.enough);
        let given = track.take_ballast_given();
        let same = room == room_before && emergency == track.emergency;
        if changes.is_empty() && same && given.is_none() {
            return Vec::new();
        }
        let mut events = self.tell(now, place, changes);
        events.extend(given.map(|bytes| self.ballast_event(now, place, bytes)));
        events
    }

    /// Everything that time alone brings: comparisons with siblings, forecasts, reminders.
    pub fn tick(&mut self, now: Moment) -> Vec<Event> {
        if now.elapsed < self.next_slow_tick {
            return Vec::new();
        }
        self.next_slow_tick = now.elapsed + SLOW_TICK;
        let mut events = self.compare_siblings(now);
        for place in 0..self.tracks.len() {
            let event = self.forecast_event(now, place);
            events.extend(event);
            let event = self.reminder(now, place);
            events.extend(event);
        }
        events.extend(self.bookie_events(now));
        events
    }

    /// The looks that are due; they count as under way from now on.
    pub fn begin_looks(&mut self, now: Moment) -> Vec<(DirId, LookPlan)> {
        self.tracks
            .iter_mut()
            .filter_map(|track| track.begin_look(now).map(|plan| (track.id, plan)))
            .collect()
    }

    /// When the next look or slow tick is due.
    #[must_use]
    pub fn next_due(&self) -> Elapsed {
        self.tracks
            .iter()
            .filter_map(|track| track.schedule.due())
            .fold(self.next_slow_tick, Elapsed::min)
    }

    /// A new prober has taken over: whatever was under way is not any more.
    pub fn void_looks(&mut self, now: Moment) {
        for track in self.tracks.iter_mut() {
            track.void_look(now);
        }
    }

    /// Something suspicious was seen: a full look as soon as possible. None for all directories.
    pub fn hurry(&mut self, now: Moment, id: Option<DirId>) {
        for track in self.tracks.iter_mut() {
            if id.is_none_or(|id| id == track.id) {
                track.schedule.hurry(now.elapsed, true);
            }
        }
    }

    /// The kernel said something suspicious about a directory: a full look as soon as possible, and
    /// a line of evidence for a while.
    pub fn signal(&mut self, now: Moment, id: DirId, what: String) {
        if let Some(place) = self.place(id) {
            self.tracks[place].signal(now, what);
        }
    }

    /// An operator takes the disk that is there as the right one. False when the directory is not
    /// `replaced` (there is nothing to accept) or not configured.
    pub fn accept(&mut self, now: Moment, id: DirId) -> bool {
        let Some(place) = self.place(id) else {
            return false;
        };
        let is_accepted = self.tracks[place].accept(now);
        self.ballasts.follow(&mut self.tracks, place);
        is_accepted
    }

    /// Which sources of observation work for a directory.
    pub fn set_sources(&mut self, id: DirId, sources: Sources) {
        if let Some(place) = self.place(id) {
            self.tracks[place].sources = sources;
        }
    }

    /// What keeps us from knowing a directory although its disk may be well: our own shortcomings, in
    /// words. The first of them, and how many directories there are.
    #[must_use]
    pub fn own_trouble(&self) -> Option<String> {
        let unknown = self
            .tracks
            .iter()
            .filter(|track| track.access.status() == AccessStatus::Unknown);
        let mut reasons = unknown.filter_map(|track| track.access.reason());
        let first = &reasons.next()?.message;
        let others = match reasons.count() {
            0 => String::new(),
            more => format!(" (and {more} other directories)"),
        };
        Some(format!("a directory cannot be judged: {first}{others}"))
    }

    /// Every directory was judged once, `unknown` by the prober's own trouble included.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.tracks.iter().all(|track| {
            track.status.is_some()
                && (track.told.access_known
                    || track.access.reason().is_some()
                    || track.space.reason().is_some())
        })
    }

    /// The node's facts.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Events so far, by kind.
    #[must_use]
    pub fn event_counts(&self) -> &BTreeMap<EventKind, u64> {
        &self.event_counts
    }

    /// Durations of all steps so far.
    #[must_use]
    pub fn histograms(&self) -> &BTreeMap<Operation, Histogram> {
        &self.histograms
    }

    /// One directory as the snapshot shows it. None for an unknown id.
    #[must_use]
    pub fn view(&self, now: Moment, id: DirId) -> Option<Arc<DirView>> {
        let track = &self.tracks[self.place(id)?];
        Some(Arc::new(view(track, now)))
    }

    /// How a directory stands, without the cost of a whole view. None for an unknown id.
    #[must_use]
    pub fn stand(&self, id: DirId) -> Option<Stand> {
        let track = &self.tracks[self.place(id)?];
        Some(Stand {
            status: track.status_now(),
            space: track.space.status(),
            access: track.access.status(),
        })
    }

    /// Something may be wrong with the directory, without proof yet.
    #[must_use]
    pub fn is_suspect(&self, id: DirId) -> bool {
        let place = self.place(id);
        place.is_some_and(|at| self.tracks[at].access.is_suspect())
    }

    /// The worst severity; unknown while a directory was not judged yet.
    #[must_use]
    pub fn severity(&self) -> Severity {
        let severities = self
            .tracks
            .iter()
            .map(|track| track.status_now().severity());
        severities.max().unwrap_or(Severity::Unknown)
    }

    /// Bytes of the file systems of each role, each counted once.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<super::dir::Role, super::observation::Space> {
        node::totals(self.tracks.iter().filter_map(|track| {
            let device = track.mount.as_ref().map(|mount| mount.device);
            Some((track.dir.role, device, track.present_space()?))
        }))
    }

    /// An event of the node that is decided elsewhere (the observed mode).
    pub fn node_event(
        &mut self,
        now: Moment,
        kind: EventKind,
        change: Option<(&'static str, &'static str)>,
        message: String,
    ) -> Event {
        let change = NodeChange {
            kind,
            role: None,
            change,
            message,
        };
        self.event_of_node(now, change, None)
    }

    pub(super) fn place(&self, id: DirId) -> Option<usize> {
        // Ids are given in rising order and directories keep theirs, so the place is nearly
        // always found at once.
        let guess = id.0 as usize;
        match self.tracks.get(guess) {
            Some(track) if track.id == id => Some(guess),
            _ => self.tracks.iter().position(|track| track.id == id),
        }
    }

    /// Events of a directory's changes, then those of the node that follow from them.
    fn tell(&mut self, now: Moment, place: usize, changes: Vec<AxisChange>) -> Vec<Event> {
        let node_changes = self.update_node();
        let mut events: Vec<Event> = Vec::new();
        for change in changes {
            events.extend(self.event_of_axis(now, place, change));
        }
        let trigger = events.last().and_then(|event| event.reason.clone());
        for change in node_changes {
            events.push(self.event_of_node(now, change, trigger.as_ref()));
        }
        events
    }

    fn node_events(&mut self, now: Moment) -> Vec<Event> {
        let changes = self.update_node();
        changes
            .into_iter()
            .map(|change| self.event_of_node(now, change, None))
            .collect()
    }

    fn update_node(&mut self) -> Vec<NodeChange> {
        let facts = facts(&self.tracks);
        self.node.update(&facts, self.policy)
    }

    fn event_of_axis(&mut self, now: Moment, place: usize, change: AxisChange) -> Option<Event> {
        let kind = change.kind?;
        let mut event = self.event(now, kind);
        let track = &mut self.tracks[place];
        track.told_at = Some(now);
        event.dir = Some(track.dir.path.clone());
        event.role = Some(track.dir.role);
        event.axis = Some(change.axis);
        event.from = Some(change.from);
        event.to = Some(change.to);
        event.reason = change.reason.or_else(|| back_to_good(track, change.axis));
        event.space = track.last_space;
        Some(event)
    }

    fn ballast_event(&mut self, now: Moment, place: usize, bytes: u64) -> Event {
        let mut event = self.event(now, EventKind::BallastReleased);
        let track = &self.tracks[place];
        event.dir = Some(track.dir.path.clone());
        event.role = Some(track.dir.role);
        event.axis = Some(Axis::Space);
        event.space = track.last_space;
        event.reason = Some(Reason {
            cause: Cause::Bytes,
            operation: Operation::Ballast,
            errno: None,
            message: format!(
                "{} of ballast were given back: make room before they are needed again",
                bytes_text(bytes)
            ),
        });
        event
    }

    /// `trigger` is the reason of the directory's change that the node's change follows from.
    fn event_of_node(
        &mut self,
        now: Moment,
        change: NodeChange,
        trigger: Option<&Reason>,
    ) -> Event {
        let mut event = self.event(now, change.kind);
        event.role = change.role;
        event.from = change.change.map(|(from, _)| from);
        event.to = change.change.map(|(_, to)| to);
        if change
            .change
            .is_some_and(|(_, to)| to == Mode::Writable.name())
        {
            event.severity = Severity::Ok;
        }
        event.reason = Some(Reason {
            cause: trigger.map_or(Cause::Bytes, |reason| reason.cause),
            operation: trigger.map_or(Operation::Statvfs, |reason| reason.operation),
            errno: trigger.and_then(|reason| reason.errno),
            message: change.message,
        });
        event
    }

    pub(super) fn event(&mut self, now: Moment, kind: EventKind) -> Event {
        *self.event_counts.entry(kind).or_default() += 1;
        Event {
            seq: 0,
            time: now.wall,
            kind,
            severity: kind.severity(),
            dir: None,
            role: None,
            axis: None,
            from: None,
            to: None,
            coalesced: 0,
            reason: None,
            space: None,
            node: self.node.summary(&facts(&self.tracks)),
        }
    }

    /// Compares the directories that were probed since the last time with their siblings.
    fn compare_siblings(&mut self, now: Moment) -> Vec<Event> {
        if !self.tracks.iter().any(|track| track.latency.has_news()) {
            return Vec::new();
        }
        let fresh = self.tracks.iter().enumerate();
        let fresh = fresh.filter(|(_, track)| track.is_fresh(now));
        let places: Vec<usize> = fresh.map(|(place, _)| place).collect();
        let [syncs, reads] = COMPARED.map(|step| {
            let samples = places.iter().map(|place| self.tracks[*place].sample(step));
            outlier::compare(&samples.collect::<Vec<Sample>>())
        });
        let mut events = Vec::new();
        for (place, (sync, read)) in places.into_iter().zip(syncs.into_iter().zip(reads)) {
            let track = &mut self.tracks[place];
            if !track.latency.has_news() {
                continue;
            }
            let dwell = track.dir.thresholds.dwell;
            track.latency.compared(now.elapsed, [sync, read], dwell);
            let changes = track.take_changes(now);
            if !changes.is_empty() {
                events.extend(self.tell(now, place, changes));
            }
        }
        events
    }

    fn forecast_event(&mut self, now: Moment, place: usize) -> Option<Event> {
        let track = &mut self.tracks[place];
        track.forecast_view = track.last_space.and_then(|space| {
            let target = space::full_below(&space, &track.dir.thresholds)
                .saturating_add(track.ballast_around());
            track.forecast.estimate(target)
        });
        let forecast = track.forecast_view;
        let soon = forecast.is_some_and(|view| view.expected <= HORIZON_SOON);
        let not_soon = forecast.is_none_or(|view| view.expected > 2 * HORIZON_SOON);
        let full = track.space.status() == SpaceStatus::Full;
        let told = track.forecast_told;
        if !soon || told || full {
            track.forecast_told = told && !not_soon && !full;
            track.forecast_since = track.forecast_since.filter(|_| soon && !full);
            return None;
        }
        let since = *track.forecast_since.get_or_insert(now.elapsed);
        let lasted = now.elapsed.saturating_sub(since);
        if forecast.is_some_and(|view| lasted < view.expected / FORECAST_PART) {
            return None;
        }
        self.tracks[place].forecast_told = true;
        let view = forecast?;
        let mut event = self.event(now, EventKind::FillForecast);
        let track = &self.tracks[place];
        event.dir = Some(track.dir.path.clone());
        event.role = Some(track.dir.role);
        event.axis = Some(Axis::Space);
        event.space = track.last_space;
        event.reason = Some(Reason {
            cause: Cause::Bytes,
            operation: Operation::Statvfs,
            errno: None,
            message: format!(
                "full in about {} at the present rate, in {} at the earliest",
                rough(view.expected),
                rough(view.earliest)
            ),
        });
        Some(event)
    }

    fn reminder(&mut self, now: Moment, place: usize) -> Option<Event> {
        let interval = self.policy.reminder_interval;
        let track = &self.tracks[place];
        let status = track
            .status
            .filter(|status| status.value.severity() == Severity::Critical)?;
        let since = track.told_at.map_or(status.since, |told| told).elapsed;
        if interval.is_zero() || now.elapsed.saturating_sub(since) < interval {
            return None;
        }
        let mut event = self.event(now, EventKind::Reminder);
        let track = &mut self.tracks[place];
        track.told_at = Some(now);
        event.severity = status.value.severity();
        event.dir = Some(track.dir.path.clone());
        event.role = Some(track.dir.role);
        event.to = Some(status.value.name());
        event.reason = reason(track).cloned();
        event.space = track.last_space;
        Some(event)
    }
}

/// A time within the forecast's horizon, as people say it.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

fn facts(tracks: &[Track]) -> Vec<DirFacts<'_>> {
    tracks
        .iter()
        .map(|track| DirFacts {
            path: &track.dir.path,
            role: track.dir.role,
            space: track.space.status(),
            access: track.access.status(),
            room: track.high_priority_room().is_some_and(|room| room.enough),
            emergency: track.emergency,
        })
        .collect()
}
