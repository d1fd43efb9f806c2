//! The loop that owns all state. It waits for the next action, applies it at once and without
//! waiting for anything, and publishes what follows: events in their order, and an immutable
//! snapshot. No lock, no disk, no socket, no listener is waited for here.

mod action;
mod beside;
mod kept;
mod mode;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

pub use action::Action;
use kept::Holding;

use crate::clock::Clock;
use crate::health::ballast::{self, Order};
use crate::health::beside::BesideView;
use crate::health::bookkeeper;
use crate::health::dir::{Dir, DirId, path_text};
use crate::health::event::{Event, EventKind};
use crate::health::identity::Pin;
use crate::health::judge::Judge;
use crate::health::moment::{Elapsed, Moment};
use crate::health::observation::Observation;
use crate::health::policy::{Mode, Policy};
use crate::health::snapshot::{DirView, ModeView, RECENT_EVENTS, Snapshot};
use crate::health::tracker::Tracker;
use crate::probe::{LookKind, Prober, Report, WatchedDir};

/// Actions waiting for the loop. Each directory has one look under way and reports of operations
/// in flight twice a second, so 4,096 hold several seconds of 500 directories; when it is full the
/// senders wait, the loop never does.
pub const ACTION_QUEUE: usize = 4096;

/// Reports of the prober that one turn takes in; then whoever shares the thread (the way of events to
/// the store, hooks, the keeper of the mode) has its turn. In the program that ships 64 that all change something
/// take a few milliseconds.
const REPORTS_A_TURN: usize = 64;

/// Snapshots are made at most so often unless there is an event: the space is looked at each second,
/// scrapes and pages look less often, and a picture costs some microseconds for each directory.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);

/// The same until every directory was judged once: somebody waits for the first verdict.
const FIRST_PUBLISH_INTERVAL: Duration = Duration::from_millis(20);

/// The loop turns and publishes at least so often: the snapshot's time says that it is alive.
const IDLE_TURN: Duration = Duration::from_secs(1);

/// A prober that died may be away for so long before its directories are unknown: restarts take
/// less than a second, and a crash of ours is no news about a disk.
const PROBER_AWAY: Duration = Duration::from_secs(5);

/// Events of a start wait for their numbers so long: a store whose last agent was killed opens within
/// a second or two, and one on a dead disk must not keep events back.
const NUMBER_PATIENCE: Duration = Duration::from_secs(3);

/// So many may wait: 512 directories that all changed, with the node's own.
const MAX_UNNUMBERED: usize = 1024;

/// After so long without a prober nobody should rely on the agent any more: a program that was
/// removed or cannot be executed does not heal by itself.
const PROBER_GONE: Duration = Duration::from_secs(60);

/// Gives the pin of an earlier run, if there is one.
pub type KnownPins = Box<dyn FnMut(&Dir) -> Option<Pin> + Send>;

/// Takes a pin that changed; must not wait.
pub type KeepPin = Box<dyn FnMut(&Dir, &Pin) + Send>;

/// Takes events in their order; must not wait.
pub type Publish = Box<dyn FnMut(Arc<Event>) + Send>;

/// What the loop needs.
pub struct MonitorOptions {
    /// Directories to start with.
    pub dirs: Vec<Dir>,
    /// How they count.
    pub policy: Policy,
    /// Pins of earlier runs.
    pub pins: KnownPins,
    /// Keeps pins for later runs.
    pub keep_pin: KeepPin,
    /// Hands events on.
    pub publish: Publish,
    /// Number of the newest event of earlier runs. None while the state store has not said it: then
    /// events wait for [`Action::Numbered`], because a number must not be given twice, but not long.
    pub last_seq: Option<u64>,
    /// Ballast is looked at, and neither made nor given back.
    pub look_only: bool,
}

/// The loop's state.
pub struct Monitor {
    clock: Clock,
    tracker: Tracker,
    prober: Prober,
    options: MonitorOptions,
    snapshots: watch::Sender<Arc<Snapshot>>,
    views: BTreeMap<DirId, Arc<DirView>>,
    dirty: BTreeSet<DirId>,
    started: Moment,
    published: Option<Elapsed>,
    events_waiting: bool,
    /// The published snapshot says ready.
    ready: bool,
    recent: Arc<Vec<Arc<Event>>>,
    last_seq: u64,
    /// Events that wait for their numbers; none when numbers are known.
    unnumbered: Option<Vec<Event>>,
    problems: BTreeMap<&'static str, String>,
    duplicates: Vec<String>,
    prober_away: Option<Away>,
    prober_restarts: u64,
    observed_mode: Option<Mode>,
    changes: mode::Changes,
    judge: Judge,
    holding: Holding,
    mode_transitions: BTreeMap<(Mode, &'static str), u64>,
}

/// The prober is not there.
struct Away {
    since: Elapsed,
    reason: String,
    told: bool,
    told_fatal: bool,
}

impl Monitor {
    /// A monitor that will look through this prober. Snapshots appear in the receiver.
    #[must_use]
    pub fn new(
        mut options: MonitorOptions,
        prober: Prober,
        clock: Clock,
    ) -> (Monitor, watch::Receiver<Arc<Snapshot>>) {
        let started = clock.now();
        let mut tracker = Tracker::new(options.policy);
        let dirs = std::mem::take(&mut options.dirs);
        let policy = options.policy;
        let early = tracker.configure(started, dirs, policy, &mut options.pins);
        debug_assert!(
            early.is_empty(),
            "nothing is known yet, so nothing can change"
        );
        let unnumbered = options.last_seq.is_none().then(Vec::new);
        let last_seq = options.last_seq.unwrap_or_default();
        let (snapshots, receiver) = watch::channel(Arc::new(empty_snapshot(started)));
        let mut monitor = Monitor {
            clock,
            tracker,
            prober,
            options,
            snapshots,
            views: BTreeMap::new(),
            dirty: BTreeSet::new(),
            started,
            published: None,
            events_waiting: true,
            ready: false,
            recent: Arc::new(Vec::new()),
            last_seq,
            unnumbered,
            problems: BTreeMap::new(),
            duplicates: Vec::new(),
            prober_away: None,
            prober_restarts: 0,
            observed_mode: None,
            changes: mode::Changes::default(),
            judge: Judge::new(policy.beside),
            holding: Holding::default(),
            mode_transitions: mode::all_transitions(),
        };
        monitor.watch_configured();
        // Known at once from the pins of an earlier run.
        monitor.find_duplicates();
        monitor.publish_snapshot(started);
        (monitor, receiver)
    }

    /// Runs until [`Action::Stop`] or until nobody can send actions any more; then stops the
    /// prober, which returns at once even when a disk holds it.
    pub async fn run(
        mut self,
        mut actions: mpsc::Receiver<Action>,
        mut reports: mpsc::Receiver<Report>,
    ) {
        loop {
            let wait = self.wait();
            let action = tokio::select! {
                action = actions.recv() => match action {
                    None | Some(Action::Stop) => break,
                    Some(action) => Some(action),
                },
                Some(report) = reports.recv() => Some(Action::Report(Box::new(report))),
                () = tokio::time::sleep(wait) => None,
            };
            let now = self.clock.now();
            if let Some(action) = action {
                self.apply(now, action);
            }
            // Whatever else the prober has said is applied in the same turn, within the limit.
            let mut taken = 0;
            while taken < REPORTS_A_TURN
                && let Ok(report) = reports.try_recv()
            {
                self.report(now, report);
                taken += 1;
            }
            self.turn(now);
            if taken == REPORTS_A_TURN {
                tokio::task::yield_now().await;
            }
        }
        self.stop();
    }

    fn stop(mut self) {
        self.number();
        self.prober.stop();
        let now = self.clock.now();
        self.publish_snapshot(now);
    }

    /// How long nothing needs to be done, unless something arrives.
    fn wait(&self) -> Duration {
        let now = self.clock.elapsed();
        let mut due = self.tracker.next_due().min(now + IDLE_TURN);
        due = due.min(self.judge.due().unwrap_or(due));
        due = due.min(self.holding.due().unwrap_or(due));
        if self.events_waiting || !self.dirty.is_empty() {
            due = due.min(self.publish_due());
        }
        due.saturating_sub(now)
    }

    fn publish_due(&self) -> Elapsed {
        match self.published {
            Some(at) if !self.events_waiting => match self.ready {
                true => at + PUBLISH_INTERVAL,
                false => at + FIRST_PUBLISH_INTERVAL,
            },
            _ => Elapsed::ZERO,
        }
    }

    fn apply(&mut self, now: Moment, action: Action) {
        match action {
            Action::Report(report) => self.report(now, *report),
            Action::Configure(dirs, policy) => self.configure(now, dirs, policy),
            Action::Probe(None) => self.tracker.hurry(now, None),
            Action::Probe(Some(path)) => {
                // One that left the configuration meanwhile is no reason to look at all others.
                if let Some(id) = self.find(&path) {
                    self.tracker.hurry(now, Some(id));
                }
            }
            Action::Accept(path) => {
                let ids: Vec<DirId> = self
                    .tracker
                    .dirs()
                    .filter(|(_, dir)| dir.path == path)
                    .map(|(id, _)| id)
                    .collect();
                for id in ids {
                    if self.tracker.accept(now, id) {
                        self.prober.resolve_again(id);
                    }
                }
            }
            Action::ModeObserved(mode) => self.mode_observed(now, mode),
            Action::Heard(heard) => self.heard(now, heard),
            Action::Kept(kept) => self.kept(now, kept),
            Action::Acted(action) => self.judge.acted(now.elapsed, action),
            Action::Problem(key, Some(text)) => {
                self.problems.insert(key, text);
                self.events_waiting = true;
            }
            Action::Problem(key, None) => {
                self.problems.remove(key);
                self.events_waiting = true;
            }
            Action::Recall => self.tracker.recall(now, &mut self.options.pins),
            Action::Numbered(seq) => {
                self.last_seq = self.last_seq.max(seq);
                self.number();
            }
            Action::Stop => {}
        }
    }

    fn report(&mut self, now: Moment, report: Report) {
        match report {
            Report::Observed { dir, observation } => {
                self.dirty.insert(dir);
                let events = self.tracker.observe(now, dir, observation);
                self.tell(events);
                // No event tells of a suspicion: only the snapshot does, so it does so at once.
                let shown = self.views.get(&dir).is_some_and(|view| view.suspect);
                self.events_waiting |= self.tracker.is_suspect(dir) != shown;
            }
            Report::Alive { .. } => {
                self.prober_away = None;
                self.tracker.void_looks(now);
            }
            Report::Lost {
                reason,
                silent,
                restarts,
            } => {
                self.prober_restarts = restarts;
                // A child that was silent has been away for that long already.
                let since = if silent {
                    now.elapsed.saturating_sub(PROBER_AWAY)
                } else {
                    now.elapsed
                };
                self.prober_away.get_or_insert(Away {
                    since,
                    reason,
                    told: false,
                    told_fatal: false,
                });
            }
            Report::Signal { dir, what } => {
                self.dirty.insert(dir);
                self.tracker.signal(now, dir, what);
            }
            Report::Sources { dir, sources } => {
                self.dirty.insert(dir);
                self.tracker.set_sources(dir, sources);
            }
        }
    }

    /// What follows from time and from what was applied.
    fn turn(&mut self, now: Moment) {
        let waiting = self.unnumbered.as_ref().map_or(0, Vec::len);
        let since = now.elapsed.saturating_sub(self.started.elapsed);
        if NUMBER_PATIENCE <= since || MAX_UNNUMBERED <= waiting {
            self.number();
        }
        self.check_prober(now);
        self.judge(now);
        self.check_held(now);
        let events = self.tracker.tick(now);
        self.tell(events);
        for (dir, plan) in self.tracker.begin_looks(now) {
            let kind = match (plan.full, plan.probe) {
                (false, _) => LookKind::Space,
                (true, probe) => LookKind::Full {
                    probe,
                    ballast: match plan.ballast {
                        Order::Fill(_) | Order::Release if self.options.look_only => Order::Measure,
                        order => order,
                    },
                },
            };
            self.prober.look(dir, kind);
        }
        self.keep_pins();
        let changed = self.events_waiting || !self.dirty.is_empty();
        let idle = self
            .published
            .is_none_or(|at| at + IDLE_TURN <= now.elapsed);
        if (changed && self.publish_due() <= now.elapsed) || idle {
            self.publish_snapshot(now);
        }
    }

    fn keep_pins(&mut self) {
        let changed = self.tracker.take_changed_pins();
        if changed.is_empty() {
            return;
        }
        for (dir, pin) in &changed {
            (self.options.keep_pin)(dir, pin);
        }
        self.find_duplicates();
    }

    /// Follows from the pins and the configured directories: to be called when either changes.
    fn find_duplicates(&mut self) {
        let duplicates = self.tracker.duplicates().into_iter().map(|(dir, earlier)| {
            let (role, path) = (dir.role.name(), path_text(&dir.path));
            let (earlier_role, earlier) = (earlier.role.name(), path_text(&earlier.path));
            format!(
                "the {role} directory {path} leads to the {earlier_role} directory {earlier}, \
                 which is watched already: name each directory once"
            )
        });
        self.duplicates = duplicates.collect();
    }

    fn check_prober(&mut self, now: Moment) {
        let Some(away) = &mut self.prober_away else {
            return;
        };
        let time = now.elapsed.saturating_sub(away.since);
        let unknown = !away.told && PROBER_AWAY <= time;
        let fatal = !away.told_fatal && PROBER_GONE <= time;
        away.told |= unknown;
        away.told_fatal |= fatal;
        if !unknown && !fatal {
            return;
        }
        let reason = away.reason.clone();
        if unknown {
            self.lose_all(now, &reason);
        }
        if fatal {
            let message = format!("nothing has been watched for a minute: {reason}");
            let event = self
                .tracker
                .node_event(now, EventKind::FatalError, None, message);
            self.tell(vec![event]);
        }
    }

    /// Nobody can say anything about any directory.
    fn lose_all(&mut self, now: Moment, reason: &str) {
        let ids: Vec<DirId> = self.tracker.dirs().map(|(id, _)| id).collect();
        for id in ids {
            self.dirty.insert(id);
            let lost = Observation::ProberLost(reason.to_owned());
            let events = self.tracker.observe(now, id, lost);
            self.tell(events);
        }
    }

    fn configure(&mut self, now: Moment, dirs: Vec<Dir>, policy: Policy) {
        self.judge.configure(policy.beside);
        let events = self
            .tracker
            .configure(now, dirs, policy, &mut self.options.pins);
        self.tell(events);
        self.watch_configured();
        self.find_duplicates();
        self.tracker.hurry(now, None);
        let ids: BTreeSet<DirId> = self.tracker.dirs().map(|(id, _)| id).collect();
        self.views.retain(|id, _| ids.contains(id));
        self.dirty = ids;
        self.events_waiting = true;
    }

    fn watch_configured(&mut self) {
        let watched = self
            .tracker
            .dirs()
            .map(|(id, dir)| {
                let watched = WatchedDir {
                    path: dir.path.clone(),
                    role: dir.role,
                    await_cookie: dir.await_cookie,
                    require_mount: dir.require_mount,
                    pinned: self.tracker.pinned_path(id),
                };
                (id, watched)
            })
            .collect();
        self.prober.configure(watched);
        self.find_duplicates();
        self.dirty.extend(self.tracker.dirs().map(|(id, _)| id));
    }

    fn find(&self, path: &std::path::Path) -> Option<DirId> {
        let mut dirs = self.tracker.dirs();
        dirs.find(|(_, dir)| dir.path == path).map(|(id, _)| id)
    }

    /// Gives numbers to the events that waited for them.
    fn number(&mut self) {
        if let Some(waiting) = self.unnumbered.take() {
            self.tell(waiting);
        }
    }

    /// Numbers events and hands them on.
    fn tell(&mut self, events: Vec<Event>) {
        if let Some(waiting) = &mut self.unnumbered {
            waiting.extend(events);
            return;
        }
        for mut event in events {
            self.last_seq += 1;
            event.seq = self.last_seq;
            let event = Arc::new(event);
            let recent = Arc::make_mut(&mut self.recent);
            if recent.len() == RECENT_EVENTS {
                recent.remove(0);
            }
            recent.push(Arc::clone(&event));
            self.events_waiting = true;
            (self.options.publish)(event);
        }
    }

    fn publish_snapshot(&mut self, now: Moment) {
        self.dirty.extend(self.tracker.refresh_journals());
        for id in std::mem::take(&mut self.dirty) {
            if let Some(view) = self.tracker.view(now, id) {
                self.views.insert(id, view);
            }
        }
        let node = self.tracker.node();
        let beside = self.judge.view(now.elapsed);
        let by_itself = beside
            .should_be
            .as_ref()
            .filter(|should_be| should_be.mode == bookkeeper::Mode::ReadOnly);
        let mode = ModeView {
            wanted: node.wanted(),
            reason: node.wanted_reason().map(str::to_owned),
            observed: self.observed_mode,
            high_priority_writes: node.high_priority_writes(),
            transitions: self.mode_transitions.clone(),
            control: self.holding.kept.control(),
            claims: self
                .holding
                .shown(by_itself.map(|should_be| should_be.reason.as_str())),
            held: self.holding.kept.held.clone(),
            journal_emergency: node.journal_emergency(),
        };
        let dirs: Vec<_> = self
            .tracker
            .dirs()
            .filter_map(|(id, _)| self.views.get(&id).cloned())
            .collect();
        let ballast = ballast::trouble(&dirs);
        let snapshot = Snapshot {
            time: now.wall,
            elapsed: now.elapsed,
            started_at: self.started.wall,
            severity: self.tracker.severity(),
            ready: self.tracker.is_ready(),
            mode,
            beside,
            dirs,
            totals: self.tracker.totals(),
            recent_events: Arc::clone(&self.recent),
            event_counts: self.tracker.event_counts().clone(),
            last_seq: self.last_seq,
            restart: self.tracker.restart(),
            probe_histograms: self.tracker.histograms().clone(),
            problems: self
                .problems
                .values()
                .chain(&self.duplicates)
                .cloned()
                .chain(self.tracker.own_trouble())
                .chain(self.tracker.layout_advice())
                .chain(self.tracker.root_disk_advice())
                .chain(ballast)
                .collect(),
            prober_restarts: self.prober_restarts,
            children_abandoned: self.prober.abandoned(),
            watches_nothing: self
                .prober_away
                .as_ref()
                .is_some_and(|away| away.told_fatal),
        };
        self.published = Some(now.elapsed);
        self.ready = snapshot.ready;
        self.events_waiting = false;
        self.snapshots.send_replace(Arc::new(snapshot));
    }
}

fn empty_snapshot(now: Moment) -> Snapshot {
    Snapshot {
        time: now.wall,
        elapsed: now.elapsed,
        started_at: now.wall,
        severity: crate::health::status::Severity::Unknown,
        ready: false,
        mode: ModeView::default(),
        beside: BesideView::default(),
        dirs: Vec::new(),
        totals: BTreeMap::new(),
        recent_events: Arc::new(Vec::new()),
        event_counts: BTreeMap::new(),
        last_seq: 0,
        restart: None,
        probe_histograms: BTreeMap::new(),
        problems: Vec::new(),
        prober_restarts: 0,
        children_abandoned: 0,
        watches_nothing: false,
    }
}
