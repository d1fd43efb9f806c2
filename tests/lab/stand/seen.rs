//! The time line of a test: what a bookie said of itself and when, asked all the time from a thread of its
//! own, and what the test notes beside it. Times are milliseconds since the start of the line.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use dirkeeper::clock::Clock;

use super::lab::{Bookie, Mode, mode_of};
use crate::harness::run::{pass, try_for};

/// Between two questions: far below the second of the bookie's own checks, and no load.
const STEP: Duration = Duration::from_millis(20);

/// A mode of a bookie, from this time on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) at: Duration,
    pub(crate) mode: Mode,
}

/// Asks one bookie until it is dropped.
pub(crate) struct Seen {
    clock: Clock,
    changes: Arc<Mutex<Vec<Change>>>,
    notes: Mutex<Vec<(Duration, String)>>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Seen {
    pub(crate) fn of(bookie: Bookie<'_>) -> Seen {
        let clock = Clock::start();
        let changes = Arc::new(Mutex::new(Vec::new()));
        let ending = Arc::new(AtomicBool::new(false));
        let thread = {
            let (clock, changes, ending) = (clock.clone(), changes.clone(), ending.clone());
            let port = bookie.admin_port();
            std::thread::spawn(move || {
                let mut last = None;
                while !ending.load(Ordering::Relaxed) {
                    let mode = mode_of(port);
                    if last != Some(mode) {
                        last = Some(mode);
                        let at = clock.elapsed();
                        let mut changes = changes.lock().unwrap_or_else(PoisonError::into_inner);
                        changes.push(Change { at, mode });
                    }
                    pass(STEP);
                }
            })
        };
        Seen {
            clock,
            changes,
            notes: Mutex::default(),
            ending,
            thread: Some(thread),
        }
    }

    /// Time since the start of the line.
    pub(crate) fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Notes that something happens now.
    pub(crate) fn note(&self, what: &str) -> Duration {
        let now = self.now();
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push((now, what.to_owned()));
        now
    }

    pub(crate) fn changes(&self) -> Vec<Change> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.clone()
    }

    /// The first change to one of these modes at or after a time; waits for it.
    pub(crate) fn change(
        &self,
        since: Duration,
        modes: &[Mode],
        limit: Duration,
    ) -> Option<Change> {
        try_for(limit, || {
            let changes = self.changes().into_iter();
            changes
                .filter(|change| change.at >= since)
                .find(|change| modes.contains(&change.mode))
        })
    }

    /// How long after a time the first change to a mode came.
    pub(crate) fn delay(&self, since: Duration, mode: Mode, limit: Duration) -> Option<Duration> {
        let change = self.change(since, &[mode], limit)?;
        Some(change.at - since)
    }

    /// Changes at or after a time.
    pub(crate) fn count_since(&self, since: Duration) -> usize {
        let changes = self.changes();
        changes.iter().filter(|change| change.at >= since).count()
    }

    /// The whole line as text, for people.
    pub(crate) fn text(&self) -> String {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = notes.clone();
        let changes = self.changes();
        lines.extend(
            changes
                .iter()
                .map(|change| (change.at, format!("bookie: {:?}", change.mode))),
        );
        lines.sort();
        let mut text = String::new();
        for (at, what) in lines {
            let _ = writeln!(text, "{:>8} ms  {what}", at.as_millis());
        }
        text
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
