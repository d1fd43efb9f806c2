//! A function as a listener: a thread of its own takes events from a bounded backlog and calls it,
//! the oldest first. It may stall (its events wait and are merged) or panic (caught and counted):
//! nothing else notices. The log is such a listener too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use tokio::sync::watch;

use super::backlog::{Backlog, LaneKey};
use super::{Callback, lock, wants};
use crate::health::event::{Event, EventKind};
use crate::health::snapshot::ListenerView;

/// Events of one directory that wait before they are merged: a minute of one change per second,
/// which is far longer than anything that is not stuck takes.
const LANE_LIMIT: usize = 64;

/// Events that wait in all: 8 for each of 512 directories, about 8 MiB.
const LIMIT: usize = 4096;

/// A running callback. Dropping it ends its thread after the call that is going on.
pub(super) struct CallbackWorker {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    kind: &'static str,
    events: Vec<EventKind>,
    state: Mutex<State>,
    wake: Condvar,
    settled: watch::Sender<()>,
}

struct State {
    backlog: Backlog<Arc<Event>>,
    calling: bool,
    stopped: bool,
    delivered: u64,
    failed: u64,
    coalesced: u64,
    problem: Option<String>,
}

impl CallbackWorker {
    /// Starts the thread. `settled` is touched after each call.
    pub(super) fn start(
        name: String,
        kind: &'static str,
        events: Vec<EventKind>,
        call: Callback,
        settled: watch::Sender<()>,
    ) -> CallbackWorker {
        let shared = Arc::new(Shared {
            name,
            kind,
            events,
            state: Mutex::new(State {
                backlog: Backlog::new(LANE_LIMIT, LIMIT),
                calling: false,
                stopped: false,
                delivered: 0,
                failed: 0,
                coalesced: 0,
                problem: None,
            }),
            wake: Condvar::new(),
            settled,
        });
        let thread = thread::Builder::new().name("listener".to_owned());
        let worker = Arc::clone(&shared);
        if let Err(error) = thread.spawn(move || worker.work(call)) {
            let problem = format!("listener {} has no thread: {error}", shared.name);
            lock(&shared.state).problem = Some(problem);
        }
        CallbackWorker { shared }
    }

    pub(super) fn name(&self) -> &str {
        &self.shared.name
    }

    pub(super) fn kind(&self) -> &'static str {
        self.shared.kind
    }

    /// Takes in an event if it is wanted. Never blocks.
    pub(super) fn push(&self, event: &Arc<Event>) {
        if !wants(&self.shared.events, event.kind) {
            return;
        }
        let mut state = lock(&self.shared.state);
        if state.stopped {
            return;
        }
        let pushed = state
            .backlog
            .push(event.dir.clone(), event.seq, Arc::clone(event));
        state.coalesced += u64::from(pushed.coalesced);
        state.failed += pushed.lost;
        self.shared.wake.notify_one();
    }

    pub(super) fn view(&self) -> ListenerView {
        let state = lock(&self.shared.state);
        ListenerView {
            name: self.shared.name.clone(),
            kind: self.shared.kind,
            delivered: state.delivered,
            failed: state.failed,
            retried: 0,
            coalesced: state.coalesced,
            pending: (state.backlog.len() + usize::from(state.calling)) as u64,
            durations: None,
        }
    }

    pub(super) fn problem(&self) -> Option<String> {
        lock(&self.shared.state).problem.clone()
    }

    /// Nothing waits and nothing is being called.
    pub(super) fn is_idle(&self) -> bool {
        let state = lock(&self.shared.state);
        !state.calling && state.backlog.len() == 0
    }

    /// Throws away what waits; the number of it is returned. The thread ends after the call that is
    /// going on.
    pub(super) fn end(&self) -> u64 {
        let mut state = lock(&self.shared.state);
        state.stopped = true;
        self.shared.wake.notify_one();
        state.backlog.clear().len() as u64
    }
}

impl Drop for CallbackWorker {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn work(&self, mut call: Callback) {
        while let Some((lane, event)) = self.next() {
            let called = catch_unwind(AssertUnwindSafe(|| call(&event)));
            let panic = called.err().map(|panic| {
                let text = panic_text(panic.as_ref());
                format!(
                    "listener {} panicked at event {}: {text}",
                    self.name, event.seq
                )
            });
            if let Some(panic) = &panic {
                tracing::error!("{panic}");
            }
            let mut state = lock(&self.state);
            state.backlog.finish(&lane);
            state.calling = false;
            state.delivered += u64::from(panic.is_none());
            state.failed += u64::from(panic.is_some());
            state.problem = panic.or(state.problem.take());
            drop(state);
            self.settled.send_replace(());
        }
    }

    /// Waits for an event; none when it is over.
    fn next(&self) -> Option<(LaneKey, Arc<Event>)> {
        let mut state = lock(&self.state);
        loop {
            if state.stopped {
                return None;
            }
            if let Some((lane, entry)) = state.backlog.take() {
                state.calling = true;
                if entry.coalesced == 0 {
                    return Some((lane, entry.event));
                }
                let mut event = Event::clone(&entry.event);
                event.coalesced = event.coalesced.saturating_add(entry.coalesced);
                return Some((lane, Arc::new(event)));
            }
            state = self
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}
