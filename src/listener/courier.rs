//! When an event is brought to a hook or webhook and how often. One thread for each of them starts the
//! runs, each in a thread of its own: one at a time for a directory, some in parallel, again after a
//! wait if it asks for that. An event is acknowledged when it was taken or refused for good, never before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use super::backlog::{Backlog, Entry, LaneKey};
use super::hook::{self, HookOptions, Notice, Patience, Threads};
use super::outbox::Outbox;
use super::webhook::Webhook;
use super::{lock, wants};
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::health::event::EventKind;
use crate::health::moment::Elapsed;
use crate::health::snapshot::{Histogram, ListenerView};

/// Runs of one hook or webhook at a time, each for another directory. A node has several disks behind
/// one controller; when it dies, four calls of a paging service do no harm, and forty might.
pub(super) const MAX_PARALLEL: usize = 4;

/// Stack of our threads: formatting an event with hundreds of directories is the most they do. With
/// locked memory each stack counts in full.
const STACK: usize = 256 << 10;

pub(super) fn thread_named(name: &str) -> thread::Builder {
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK)
}

/// Events of one directory that wait behind the one that is running: the first and the newest. What
/// was between is history by the time the hook gets to it. Part of the contract.
const LANE_LIMIT: usize = 2;

/// Events that wait for one receiver in all: both of each of 1000 directories, twice what a node is
/// built for, about 4 MiB.
const LIMIT: usize = 2000;

/// Characters of a receiver's trouble, its output among them, that are shown as a problem: a few lines
/// of the status page. All of it is in the log.
const MAX_SHOWN: usize = 400;

/// Limits that tests shorten.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// For each run.
    pub(super) patience: Patience,
    /// Wait before the second try: what asked for it is rarely over sooner.
    pub(super) retry_first: Duration,
    /// Longest wait between two tries: an event is not later than that once the trouble is over.
    pub(super) retry_limit: Duration,
    /// There is another try while the last one is not later than this after the first: one that
    /// was away for so long gets everything. A paging service is back within an hour, or somebody
    /// knows; the directory's newer events wait behind.
    pub(super) retry_age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            patience: Patience::default(),
            retry_first: Duration::from_secs(1),
            retry_limit: Duration::from_secs(60),
            retry_age: Duration::from_secs(3600),
        }
    }
}

#[cfg(test)]
impl Limits {
    /// A second instead of an hour, and no more patience than a test needs.
    pub(super) fn short() -> Limits {
        Limits {
            patience: Patience {
                grace: Duration::from_millis(100),
                ..Patience::default()
            },
            retry_first: Duration::from_millis(10),
            retry_limit: Duration::from_millis(100),
            retry_age: Duration::from_secs(1),
        }
    }
}

/// What all couriers of a dispatcher share.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) outbox: Arc<dyn Outbox>,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    /// Touched whenever a run begins or ends.
    pub(super) settled: watch::Sender<()>,
}

/// What a courier runs for an event.
#[derive(Debug, Clone)]
pub(super) enum Receiver {
    Hook(HookOptions),
    Webhook(Webhook),
}

impl Receiver {
    pub(super) fn name(&self) -> &str {
        match self {
            Receiver::Hook(hook) => &hook.name,
            Receiver::Webhook(webhook) => &webhook.options().name,
        }
    }

    fn events(&self) -> &[EventKind] {
        match self {
            Receiver::Hook(hook) => &hook.events,
            Receiver::Webhook(webhook) => &webhook.options().events,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Receiver::Hook(_) => "hook",
            Receiver::Webhook(_) => "webhook",
        }
    }
}

/// How one run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) verdict: Verdict,
    /// In words.
    pub(super) end: String,
    /// It asks not to be tried again before that.
    pub(super) wait: Option<Duration>,
    pub(super) duration: Duration,
    /// What was said about it.
    pub(super) output: String,
    /// Bytes of that which were thrown away.
    pub(super) output_dropped: u64,
}

/// What a run means for the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was taken.
    Delivered,
    /// It is tried again later.
    Again,
    /// It was refused; counted and not repeated.
    Failed,
}

/// A hook or webhook at work. Dropping it begins nothing new.
pub(super) struct Courier {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    kind: &'static str,
    around: Surroundings,
    threads: Threads,
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    receiver: Arc<Receiver>,
    backlog: Backlog<Notice>,
    /// Deliveries begun and not ended; their lanes are busy.
    deliveries: BTreeMap<LaneKey, Delivery>,
    phase: Phase,
    delivered: u64,
    failed: u64,
    retried: u64,
    coalesced: u64,
    durations: Histogram,
    problem: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Working,
    /// The agent stops: what is not acknowledged is delivered by the next one.
    Stopped,
    /// The receiver is not configured any more: nothing will ever deliver what it has not taken.
    Removed,
}

struct Delivery {
    entry: Entry<Notice>,
    first_try: Elapsed,
    backoff: Backoff,
    /// When it is tried again; none while it runs.
    next_try: Option<Elapsed>,
    /// Its directory is not watched any more: it is not tried again.
    last: bool,
}

impl State {
    fn running(&self) -> usize {
        let deliveries = self.deliveries.values();
        deliveries.filter(|it| it.next_try.is_none()).count()
    }

    fn next_try(&self) -> Option<(Elapsed, &LaneKey)> {
        let deliveries = self.deliveries.iter();
        deliveries
            .filter_map(|(lane, it)| Some((it.next_try?, lane)))
            .min()
    }

    /// The delivery to be run now, if there is one and room for it.
    fn begin(&mut self, now: Elapsed, limits: &Limits) -> Option<LaneKey> {
        if self.running() >= MAX_PARALLEL {
            return None;
        }
        if let Some((at, lane)) = self.next_try()
            && at <= now
        {
            let lane = lane.clone();
            self.deliveries.get_mut(&lane)?.next_try = None;
            return Some(lane);
        }
        let (lane, mut entry) = self.backlog.take()?;
        entry.event.coalesce(entry.coalesced);
        let delivery = Delivery {
            entry,
            first_try: now,
            backoff: Backoff::new(limits.retry_first, limits.retry_limit),
            next_try: None,
            last: false,
        };
        self.deliveries.insert(lane.clone(), delivery);
        Some(lane)
    }

    /// Counts a run and says what it means for its event; none where there is no such delivery.
    fn judge(
        &mut self,
        lane: &LaneKey,
        run: &Run,
        now: Elapsed,
        limits: &Limits,
    ) -> Option<Verdict> {
        let delivery = self.deliveries.get_mut(lane)?;
        self.durations.observe(run.duration);
        match run.verdict {
            Verdict::Delivered => {
                self.delivered += 1;
                return Some(Verdict::Delivered);
            }
            Verdict::Again
                if self.phase != Phase::Removed
                    && !delivery.last
                    && now <= delivery.first_try + limits.retry_age =>
            {
                let wait = delivery.backoff.next_wait(fastrand::f64());
                self.retried += 1;
                delivery.next_try = Some(now + wait.max(run.wait.unwrap_or_default()));
                return Some(Verdict::Again);
            }
            Verdict::Again | Verdict::Failed => {}
        }
        self.failed += 1;
        Some(Verdict::Failed)
    }
}

impl Courier {
    pub(super) fn start(receiver: Receiver, around: Surroundings) -> Courier {
        let shared = Arc::new(Shared {
            name: receiver.name().to_owned(),
            kind: receiver.kind(),
            around,
            threads: Arc::default(),
            state: Mutex::new(State {
                receiver: Arc::new(receiver),
                backlog: Backlog::new(LANE_LIMIT, LIMIT),
                deliveries: BTreeMap::new(),
                phase: Phase::Working,
                delivered: 0,
                failed: 0,
                retried: 0,
                coalesced: 0,
                durations: Histogram::default(),
                problem: None,
            }),
            wake: Condvar::new(),
        });
        let thread = thread_named(shared.kind);
        let worker = Arc::clone(&shared);
        if let Err(error) = thread.spawn(move || worker.work()) {
            let problem = format!("{} {} has no thread: {error}", shared.kind, shared.name);
            lock(&shared.state).problem = Some(problem);
        }
        Courier { shared }
    }

    pub(super) fn name(&self) -> &str {
        &self.shared.name
    }

    pub(super) fn kind(&self) -> &'static str {
        self.shared.kind
    }

    pub(super) fn wants(&self, kind: EventKind) -> bool {
        wants(lock(&self.shared.state).receiver.events(), kind)
    }

    /// Takes in an event. Never blocks.
    pub(super) fn push(&self, seq: u64, notice: Notice) {
        let mut state = lock(&self.shared.state);
        if state.phase != Phase::Working {
            return;
        }
        let pushed = state.backlog.push(notice.dir().cloned(), seq, notice);
        state.coalesced += u64::from(pushed.coalesced);
        state.failed += pushed.lost;
        self.shared.wake.notify_one();
        drop(state);
        self.shared.acknowledge(pushed.released);
    }

    /// Counts an event that could not be taken in at all.
    pub(super) fn lose(&self, problem: String) {
        let mut state = lock(&self.shared.state);
        state.failed += 1;
        state.problem = Some(problem);
    }

    /// New options from the next run on. What waits, waits on.
    pub(super) fn configure(&self, receiver: Receiver) {
        lock(&self.shared.state).receiver = Arc::new(receiver);
    }

    pub(super) fn view(&self) -> ListenerView {
        let state = lock(&self.shared.state);
        ListenerView {
            name: self.shared.name.clone(),
            kind: self.shared.kind,
            delivered: state.delivered,
            failed: state.failed,
            retried: state.retried,
            coalesced: state.coalesced,
            pending: (state.backlog.len() + state.deliveries.len()) as u64,
            durations: Some(state.durations.clone()),
        }
    }

    /// What was wrong with the newest run; none when it was well.
    pub(super) fn problem(&self) -> Option<String> {
        lock(&self.shared.state).problem.clone()
    }

    /// All that can be begun was begun.
    pub(super) fn has_begun(&self) -> bool {
        let state = lock(&self.shared.state);
        state.running() >= MAX_PARALLEL || !state.backlog.has_ready()
    }

    /// No run is going on.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.shared.state).running() == 0
    }

    /// Begins nothing new. What is running may end and is acknowledged.
    pub(super) fn stop(&self) {
        let mut state = lock(&self.shared.state);
        if state.phase == Phase::Working {
            state.phase = Phase::Stopped;
        }
        self.shared.wake.notify_one();
    }

    /// The receiver is not configured any more: what waits is ended, acknowledged and counted. A run
    /// that is going on may end; it is not repeated.
    pub(super) fn remove(&self) -> u64 {
        let mut state = lock(&self.shared.state);
        state.phase = Phase::Removed;
        let waiting = state
            .deliveries
            .extract_if(.., |_, it| it.next_try.is_some());
        let mut ended: Vec<Entry<Notice>> = waiting.map(|(_, it)| it.entry).collect();
        ended.extend(state.backlog.clear());
        self.shared.wake.notify_one();
        drop(state);
        self.shared.acknowledge(ended.iter().flat_map(Entry::seqs));
        ended.len() as u64
    }

    /// Directories that are not kept are not watched any more: what waits for them is ended and
    /// acknowledged. A run that is going on may end; it is not repeated.
    pub(super) fn keep_dirs(&self, dirs: &BTreeSet<PathBuf>) -> u64 {
        let keep = |lane: &LaneKey| lane.as_ref().is_none_or(|dir| dirs.contains(dir));
        let mut state = lock(&self.shared.state);
        let mut ended = state.backlog.remove_lanes(keep);
        let State {
            deliveries,
            backlog,
            ..
        } = &mut *state;
        let waiting = deliveries.extract_if(.., |lane, it| !keep(lane) && it.next_try.is_some());
        for (lane, delivery) in waiting {
            backlog.finish(&lane);
            ended.push(delivery.entry);
        }
        for (_, delivery) in deliveries.iter_mut().filter(|(lane, _)| !keep(lane)) {
            delivery.last = true;
        }
        self.shared.wake.notify_one();
        drop(state);
        self.shared.acknowledge(ended.iter().flat_map(Entry::seqs));
        ended.len() as u64
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn acknowledge(&self, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            self.around.outbox.acknowledge(&self.name, seq);
        }
    }

    /// Begins runs as they become due, until the receiver is stopped or removed.
    fn work(self: Arc<Shared>) {
        let mut state = lock(&self.state);
        while state.phase == Phase::Working {
            let now = self.around.clock.elapsed();
            if let Some(lane) = state.begin(now, &self.around.limits) {
                drop(state);
                self.run(lane);
                state = lock(&self.state);
                continue;
            }
            let due = state.next_try().map(|(at, _)| at.saturating_sub(now));
            let full = state.running() >= MAX_PARALLEL;
            state = match due.filter(|_| !full) {
                Some(due) => {
                    let waited = self.wake.wait_timeout(state, due);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.wake.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Runs a delivery in a thread of its own.
    fn run(self: &Arc<Shared>, lane: LaneKey) {
        let (shared, its) = (Arc::clone(self), lane.clone());
        let thread = thread_named("delivery");
        let spawned = thread.spawn(move || {
            let Some((receiver, notice)) = shared.delivery(&its) else {
                return;
            };
            let around = &shared.around;
            let run = match &*receiver {
                Receiver::Hook(options) => {
                    let patience = &around.limits.patience;
                    hook::run(options, &notice, patience, &shared.threads, &around.clock)
                }
                Receiver::Webhook(webhook) => webhook.post(&notice, &around.clock),
            };
            shared.ended(&its, &notice, &run);
        });
        if let Err(error) = spawned
            && let Some((_, notice)) = self.delivery(&lane)
        {
            let run = Run {
                verdict: Verdict::Again,
                end: format!("it has no thread: {error}"),
                wait: None,
                duration: Duration::ZERO,
                output: String::new(),
                output_dropped: 0,
            };
            self.ended(&lane, &notice, &run);
        }
        self.around.settled.send_replace(());
    }

    fn delivery(&self, lane: &LaneKey) -> Option<(Arc<Receiver>, Notice)> {
        let state = lock(&self.state);
        let delivery = state.deliveries.get(lane)?;
        Some((Arc::clone(&state.receiver), delivery.entry.event.clone()))
    }

    /// Draws the consequences of a run.
    fn ended(&self, lane: &LaneKey, notice: &Notice, run: &Run) {
        let now = self.around.clock.elapsed();
        let mut state = lock(&self.state);
        let Some(verdict) = state.judge(lane, run, now, &self.around.limits) else {
            return;
        };
        let text = self.text(notice, run, verdict);
        let shown = text.chars().take(MAX_SHOWN).collect();
        state.problem = (verdict != Verdict::Delivered).then_some(shown);
        if verdict != Verdict::Again {
            state.backlog.finish(lane);
            // Before the lock is given back: who sees no run going on may rely on it.
            if let Some(done) = state.deliveries.remove(lane) {
                self.acknowledge(done.entry.seqs());
            }
        }
        self.wake.notify_one();
        drop(state);
        match verdict {
            Verdict::Delivered => tracing::info!("{text}"),
            Verdict::Again | Verdict::Failed => tracing::warn!("{text}"),
        }
        self.around.settled.send_replace(());
    }

    /// A run in words, with its output.
    fn text(&self, notice: &Notice, run: &Run, verdict: Verdict) -> String {
        let (kind, name, title, end) = (self.kind, &self.name, notice.title(), &run.end);
        let seconds = run.duration.as_secs_f64();
        let mut text = match verdict {
            Verdict::Delivered => format!("{kind} {name} took {title} in {seconds:.2} s"),
            Verdict::Again => {
                format!(
                    "{kind} {name} will be tried again with {title}: {end} after {seconds:.2} s"
                )
            }
            Verdict::Failed => {
                format!("{kind} {name} failed on {title}: {end} after {seconds:.2} s")
            }
        };
        if !run.output.is_empty() {
            text += &format!(", output {:?}", run.output.trim_end());
        }
        if run.output_dropped > 0 {
            text += &format!(" and {} bytes more", run.output_dropped);
        }
        text
    }
}

#[cfg(test)]
mod tests;
