//! A lane: one thread for one file system, with one operation in flight. The start of each
//! operation is published in the lane's slot before it begins, so that the control thread can say
//! how old it is while it runs. A lane may never come back; nobody waits for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use std::{io, panic};

use crate::clock::Clock;
use crate::health::dir::DirId;
use crate::health::observation::{Device, Operation};
use crate::probe::wire::Kind;

use super::look::{self, Outcome, Task, Tools};
use super::stack::Stack;

/// Stack of a lane. The deepest path through a look needs less than half of it; pages of all lanes
/// may be locked in memory, and there may be forty of them.
const STACK: usize = 64 * 1024;

/// The most that one pause of the whole process can add to the duration of an operation.
const MAX_UNATTENDED: Duration = Duration::from_secs(1);

/// What a lane serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LaneKey {
    /// One directory whose path was not resolved yet, so nobody knows where it will lead.
    Unresolved(DirId),
    /// A file system.
    FileSystem(Device),
}

/// One look to be made. The token tells it from earlier looks at the same directory.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) token: u64,
    pub(super) dir: DirId,
    pub(super) task: Task,
}

/// One look that was made.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) lane: LaneKey,
    pub(super) token: u64,
    pub(super) dir: DirId,
    pub(super) outcome: Outcome,
}

/// What a lane is doing now, written by the lane and read by the control thread. Locked only for
/// copying, never across an operation.
#[derive(Debug)]
pub(super) struct Slot {
    time: Time,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of operations begun.
    sequence: u64,
    token: u64,
    dir: Option<DirId>,
    running: Option<Running>,
    attended_at_start: Duration,
}

/// An operation in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) sequence: u64,
    pub(super) token: u64,
    pub(super) dir: DirId,
    pub(super) operation: Operation,
    /// On the clock of this process, pauses included.
    pub(super) started: Duration,
}

/// The two ways in which this process counts time.
#[derive(Debug, Clone)]
pub(super) struct Time {
    /// Goes on while the process is stopped.
    pub(super) clock: Clock,
    /// Time during which the control thread was there to see it, in nanoseconds.
    attended: Arc<AtomicU64>,
}

impl Time {
    pub(super) fn start() -> Time {
        Time {
            clock: Clock::start(),
            attended: Arc::default(),
        }
    }

    /// Adds to the attended time.
    pub(super) fn attend(&self, gap: Duration) {
        let nanos = u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX);
        self.attended.fetch_add(nanos, Ordering::Relaxed);
    }

    fn attended(&self) -> Duration {
        Duration::from_nanos(self.attended.load(Ordering::Relaxed))
    }
}

impl Slot {
    fn new(time: Time) -> Slot {
        Slot {
            time,
            state: Mutex::default(),
        }
    }

    fn take_up(&self, job: &Job) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.token = job.token;
        state.dir = Some(job.dir);
    }

    /// Publishes the start of an operation. Call it before the operation.
    pub(super) fn begin(&self, operation: Operation) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.sequence += 1;
        state.attended_at_start = self.time.attended();
        state.running = state.dir.map(|dir| Running {
            sequence: state.sequence,
            token: state.token,
            dir,
            operation,
            started: self.time.clock.elapsed(),
        });
    }

    /// Publishes its end and says how long it took, without pauses of the whole process.
    pub(super) fn end(&self) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = state.running.take() else {
            return Duration::ZERO;
        };
        let took = self.time.clock.elapsed().saturating_sub(running.started);
        let attended = self.time.attended().saturating_sub(state.attended_at_start);
        took.min(attended + MAX_UNATTENDED)
    }

    /// How long the operation in flight has been running.
    pub(super) fn age(&self) -> Duration {
        let running = self.running();
        running.map_or(Duration::ZERO, |running| {
            self.time.clock.elapsed().saturating_sub(running.started)
        })
    }

    /// What is in flight now.
    pub(super) fn running(&self) -> Option<Running> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running
    }
}

/// The control thread's end of a lane. Dropping it ends the thread once that has nothing to do.
#[derive(Debug)]
pub(super) struct Lane {
    jobs: Sender<Vec<Job>>,
    /// Given and not handed over yet: jobs that come together wake the thread once.
    waiting: Vec<Job>,
    slot: Arc<Slot>,
    /// Jobs given and not answered.
    pub(super) pending: usize,
    /// Age of the operation of this number, without pauses of the whole process.
    age: (u64, Duration),
    /// What is under the file system that it serves. Kept here, because a reload may take away the
    /// directory whose look others wait for.
    pub(super) stack: Arc<Stack>,
    pub(super) writes: Writes,
}

/// The writes that the devices had completed when the operation of this number was first reported.
#[derive(Debug, Default)]
pub(super) struct Writes {
    sequence: u64,
    first: Option<u64>,
}

impl Writes {
    /// The devices have completed writes since this was first asked about the operation of that
    /// number: that is then, when it is overdue. What was completed before, its own parts and the
    /// writes with which a freeze begins, does not show that they go on; nor does a counter that
    /// comes, goes or begins anew.
    pub(super) fn go_on(&mut self, sequence: u64, written: Option<u64>) -> bool {
        if self.sequence != sequence {
            *self = Writes {
                sequence,
                first: None,
            };
        }
        self.first = self.first.or(written);
        self.first
            .zip(written)
            .is_some_and(|(first, now)| first < now)
    }
}

impl Lane {
    /// Starts the thread. `tell` takes what it finds; true asks to have it taken up at once.
    ///
    /// # Errors
    /// The system gives us no thread.
    pub(super) fn start(
        key: LaneKey,
        time: &Time,
        tools: &Arc<Tools>,
        tell: impl Fn(Done, bool) + Send + 'static,
    ) -> io::Result<Lane> {
        let (jobs, queue) = mpsc::channel::<Vec<Job>>();
        let slot = Arc::new(Slot::new(time.clone()));
        let (shown, tools) = (Arc::clone(&slot), Arc::clone(tools));
        let thread = thread::Builder::new().name("lane".into()).stack_size(STACK);
        thread.spawn(move || {
            let mut line = Line::default();
            for jobs in &queue {
                line.extend(jobs);
                while let Some(job) = line.next() {
                    let outcome = look_at(&job, &shown, &tools);
                    queue.try_iter().for_each(|jobs| line.extend(jobs));
                    // An answer may wait for that of a quick look that follows at once; should the
                    // look hang, the next heartbeat takes the answer along.
                    let at_once = !line.is_quick_next();
                    let done = Done {
                        lane: key,
                        token: job.token,
                        dir: job.dir,
                        outcome,
                    };
                    tell(done, at_once);
                }
            }
        })?;
        Ok(Lane {
            jobs,
            waiting: Vec::new(),
            slot,
            pending: 0,
            age: (0, Duration::ZERO),
            stack: Arc::default(),
            writes: Writes::default(),
        })
    }

    /// Takes a job, for [`Lane::hand_over`]. Each directory has at most one.
    pub(super) fn give(&mut self, job: Job) {
        self.waiting.push(job);
        self.pending += 1;
    }

    /// Hands the thread all that was given. Never blocks.
    pub(super) fn hand_over(&mut self) {
        if !self.waiting.is_empty() {
            // The thread ends only after this end of the queue is gone.
            let _ = self.jobs.send(std::mem::take(&mut self.waiting));
        }
    }

    /// What is in flight and how old it is. Call it once per heartbeat, with the attended time
    /// since the last one: a stopped process ages nothing.
    pub(super) fn in_flight(&mut self, gap: Duration) -> Option<(Running, Duration)> {
        let running = self.slot.running()?;
        let age = if self.age.0 == running.sequence {
            self.age.1 + gap
        } else {
            let since = self
                .slot
                .time
                .clock
                .elapsed()
                .saturating_sub(running.started);
            since.min(gap)
        };
        self.age = (running.sequence, age);
        Some((running, age))
    }
}

/// Looks that wait for their lane. Looks at the space go before full ones, which take a hundred times
/// as long; between two full ones only those that were there when the first had ended, so that a
/// file system with slow answers is still probed.
#[derive(Debug, Default)]
struct Line {
    quick: VecDeque<Job>,
    full: VecDeque<Job>,
    /// So many quick ones go before the next full one; none: all that are there.
    batch: Option<usize>,
}

impl Line {
    fn extend(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            match job.task.kind {
                Kind::Space => self.quick.push_back(job),
                Kind::Full | Kind::Probe => self.full.push_back(job),
            }
        }
    }

    fn is_quick_next(&self) -> bool {
        let batch = self.batch.unwrap_or(self.quick.len());
        !self.quick.is_empty() && (0 < batch || self.full.is_empty())
    }

    fn next(&mut self) -> Option<Job> {
        let batch = self.batch.take().unwrap_or(self.quick.len());
        if self.full.is_empty() || 0 < batch {
            self.batch = batch.checked_sub(1);
            self.quick.pop_front().or_else(|| self.full.pop_front())
        } else {
            self.full.pop_front()
        }
    }
}

fn look_at(job: &Job, shown: &Slot, tools: &Tools) -> Outcome {
    shown.take_up(job);
    let look = panic::AssertUnwindSafe(|| look::run(&job.task, shown, tools));
    panic::catch_unwind(look).unwrap_or_else(|_| {
        shown.end();
        Outcome::Looked(look::trouble("a look ended in a panic", None))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> (Slot, Clock, Time) {
        let clock = Clock::manual();
        let time = Time {
            clock: clock.clone(),
            attended: Arc::default(),
        };
        let slot = Slot::new(time.clone());
        slot.state.lock().unwrap().dir = Some(DirId(1));
        (slot, clock, time)
    }

    /// Whatever comes and goes, only a counter that rises shows that the device goes on.
    #[test]
    fn only_a_rise_between_known_numbers_is_progress() {
        let said = |operations: &[(u64, Option<u64>)]| -> Vec<bool> {
            let mut writes = Writes::default();
            let each = operations.iter();
            each.map(|(number, written)| writes.go_on(*number, *written))
                .collect()
        };
        assert_eq!(
            said(&[(1, Some(5)), (1, Some(5)), (1, Some(6))]),
            [false, false, true]
        );
        assert_eq!(
            said(&[(1, Some(5)), (1, None), (1, Some(5))]),
            [false; 3],
            "one failed reading"
        );
        assert_eq!(
            said(&[(1, Some(5)), (1, None), (1, None)]),
            [false; 3],
            "the device is gone"
        );
        assert_eq!(
            said(&[(1, None), (1, Some(5)), (1, Some(5))]),
            [false; 3],
            "known late"
        );
        assert_eq!(
            said(&[(1, Some(5)), (1, Some(0)), (1, Some(4))]),
            [false; 3],
            "counted anew"
        );
        assert_eq!(
            said(&[(1, Some(5)), (2, Some(6)), (2, Some(6))]),
            [false; 3],
            "the next operation"
        );
        assert_eq!(
            said(&[(1, Some(5)), (1, None), (1, Some(6))]),
            [false, false, true]
        );
    }

    #[test]
    fn an_operation_is_shown_from_its_start_to_its_end() {
        let (slot, clock, _) = slot();
        assert_eq!(slot.running(), None);
        slot.begin(Operation::Sync);
        clock.advance(Duration::from_millis(300));
        let running = slot.running().unwrap();
        assert_eq!(
            (running.operation, running.dir),
            (Operation::Sync, DirId(1))
        );
        assert_eq!(slot.end(), Duration::from_millis(300));
        assert_eq!(slot.running(), None);
        slot.begin(Operation::Read);
        assert_eq!(slot.running().unwrap().sequence, running.sequence + 1);
    }

    /// The process is stopped for twenty seconds in the middle of a sync.
    #[test]
    fn a_pause_of_the_process_is_no_slowness_of_the_disk() {
        let (slot, clock, time) = slot();
        slot.begin(Operation::Sync);
        clock.advance(Duration::from_secs(20));
        time.attend(Duration::from_secs(1));
        assert_eq!(slot.end(), Duration::from_secs(2));
    }

    #[test]
    fn age_is_counted_in_attended_time() {
        let (slot, clock, _) = slot();
        let (jobs, _queue) = mpsc::channel();
        let mut lane = Lane {
            waiting: Vec::new(),
            jobs,
            slot: Arc::new(slot),
            pending: 0,
            age: (0, Duration::ZERO),
            stack: Arc::default(),
            writes: Writes::default(),
        };
        let half = Duration::from_millis(500);
        assert_eq!(lane.in_flight(half), None);
        lane.slot.begin(Operation::Sync);
        clock.advance(Duration::from_millis(200));
        let mut age = |gap| lane.in_flight(gap).unwrap().1.as_millis();
        assert_eq!(age(half), 200, "it began after the last heartbeat");
        assert_eq!(age(half), 700);
        clock.advance(Duration::from_secs(20));
        assert_eq!(age(Duration::from_secs(1)), 1700);
    }

    /// Space looks are `s`, probes `P`.
    fn line_up(line: &mut Line, jobs: &str) {
        let job = |sign| Job {
            token: 0,
            dir: DirId(0),
            task: Task {
                path: "/d".into(),
                pinned: None,
                kind: if sign == 's' {
                    Kind::Space
                } else {
                    Kind::Probe
                },
                role: None,
                ballast: crate::health::ballast::Order::None,
                await_cookie: false,
                guard: look::Guard {
                    expected: None,
                    mount_id: None,
                    mount_missing: false,
                },
                uuid: None,
                source: None,
                fs_type: None,
            },
        };
        line.extend(jobs.chars().map(job).collect());
    }

    /// Takes them in their order; `arrivals` come after each one taken.
    fn taken(line: &mut Line, count: usize, arrivals: &str) -> String {
        let mut word = String::new();
        for _ in 0..count {
            let quick = line.is_quick_next();
            let Some(job) = line.next() else {
                break;
            };
            word.push(if job.task.kind == Kind::Space {
                's'
            } else {
                'P'
            });
            assert_eq!(quick, word.ends_with('s'));
            line_up(line, arrivals);
        }
        word
    }

    #[test]
    fn space_looks_do_not_wait_behind_the_probes_of_others() {
        let mut line = Line::default();
        line_up(&mut line, "PPPsPs");
        assert_eq!(taken(&mut line, 9, ""), "ssPPPP");
        line_up(&mut line, "PPs");
        assert_eq!(taken(&mut line, 2, ""), "sP");
        line_up(&mut line, "ss");
        assert_eq!(taken(&mut line, 9, ""), "ssP");
    }

    #[test]
    fn probes_are_not_held_up_by_space_looks_without_end() {
        let mut line = Line::default();
        line_up(&mut line, "ssPPP");
        assert_eq!(taken(&mut line, 12, "s"), "ssPsssPssssP");
    }
}
