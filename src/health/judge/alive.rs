//! Whether the bookie serves, and whether it is still the same process.

use std::time::Duration;

use super::super::beside::{BookieProcess, BookieState};
use super::super::event::EventKind;
use super::super::moment::Elapsed;
use super::{Told, time_text};

/// So long may the bookie not serve before it is down: a restart without a replay takes 3 s, an answer
/// that does not come is given up after 1 s, and one lost answer is no news.
const DOWN_GRACE: Duration = Duration::from_secs(10);

/// A process that seems to have started at another time by no more than this, under the same id, is
/// the same one: the start is reckoned from a wall clock that may have been corrected.
const CLOCK_STEP: u64 = 2000;

/// The bookie's process as far as it is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Alive {
    /// The newest answer; none when the newest look got none.
    state: Option<BookieState>,
    /// The newest answer of a bookie that served.
    served: Option<BookieState>,
    /// Since when it does not serve, and why by the newest look.
    trouble: Option<(Elapsed, String)>,
    told: bool,
    /// It did not serve at some time since its process was last seen.
    was_away: bool,
    process: Option<BookieProcess>,
    /// The newest look for its process found none.
    is_gone: bool,
}

impl Alive {
    /// Takes in an answer of the admin server, or why there was none.
    pub(super) fn state(
        &mut self,
        now: Elapsed,
        state: Result<BookieState, String>,
    ) -> Option<Told> {
        self.state = state.as_ref().ok().copied();
        let trouble = match state {
            Ok(state) => not_serving(state),
            Err(why) => Some(format!("its admin server does not answer ({why})")),
        };
        if let Some(words) = trouble {
            let since = self.trouble.as_ref().map_or(now, |(since, _)| *since);
            self.trouble = Some((since, words));
            self.was_away = true;
            return None;
        }
        self.served = self.state;
        let (since, _) = self.trouble.take()?;
        if !std::mem::take(&mut self.told) {
            return None;
        }
        let away = time_text(now.saturating_sub(since));
        Some(Told::new(
            EventKind::BookieUp,
            format!("the bookie answers and runs again, after {away}"),
        ))
    }

    /// Says once that it is down.
    pub(super) fn tick(&mut self, now: Elapsed) -> Option<Told> {
        let (since, words) = self.trouble.as_ref()?;
        let away = now.saturating_sub(*since);
        if away < DOWN_GRACE {
            return None;
        }
        self.served = None;
        if std::mem::replace(&mut self.told, true) {
            return None;
        }
        let gone = if self.is_gone {
            "; no process of it is there"
        } else {
            ""
        };
        let away = time_text(away);
        Some(Told::new(
            EventKind::BookieDown,
            format!("the bookie has not served for {away}: {words}{gone}"),
        ))
    }

    /// The state in which it serves. One answer that did not come changes nothing: what it said last
    /// counts until it is down.
    pub(super) fn serving(&self) -> Option<BookieState> {
        match (self.state, &self.trouble) {
            // It said itself that it does not run.
            (Some(_), Some(_)) => None,
            _ => self.served,
        }
    }

    /// The process that was last seen.
    pub(super) fn known_process(&self) -> Option<&BookieProcess> {
        self.process.as_ref().filter(|_| !self.is_gone)
    }

    /// Takes in which process there is; an event when it is another one than before.
    pub(super) fn process(
        &mut self,
        process: Result<Option<BookieProcess>, String>,
        persists_status: Option<bool>,
    ) -> Option<Told> {
        let process = process.ok()?;
        self.is_gone = process.is_none();
        let process = process?;
        let was_away = std::mem::replace(&mut self.was_away, self.trouble.is_some());
        let before = self.process.replace(process.clone())?;
        let moved = process.started.0.abs_diff(before.started.0);
        let is_other = process.pid != before.pid || (was_away && CLOCK_STEP < moved);
        if !is_other {
            return None;
        }
        let version = match (&before.version, &process.version) {
            (Some(old), Some(new)) if old != new => format!(", now version {new} instead of {old}"),
            _ => String::new(),
        };
        Some(Told::new(
            EventKind::BookieRestarted,
            format!(
                "the bookie was started again: process {} instead of {}{version}; {}",
                process.pid,
                before.pid,
                kept(persists_status)
            ),
        ))
    }

    /// The bookie's counters began anew: another process, where processes cannot be seen.
    pub(super) fn counters_fell(&self, fell: bool) -> Option<Told> {
        (fell && self.process.is_none()).then(|| {
            Told::new(
                EventKind::BookieRestarted,
                "the bookie was started again: its counters of compactions began anew",
            )
        })
    }
}

/// Why a bookie that answers does not serve. One whose journal has failed says `readOnly` too, and is
/// gone a second later (`BookieImpl.triggerBookieShutdown`, #3150): never the read-only of a healthy one.
fn not_serving(state: BookieState) -> Option<String> {
    match state {
        BookieState {
            running: true,
            shutting_down: false,
            ..
        } => None,
        BookieState {
            shutting_down: true,
            read_only: true,
            ..
        } => Some("it is about to end, and readOnly means nothing then".to_owned()),
        BookieState {
            shutting_down: true,
            ..
        } => Some("it is about to end".to_owned()),
        _ => Some("it answers that it does not run".to_owned()),
    }
}

/// What becomes of a manual read-only at a start (`BookieStateManager.initState`, #2799, W30).
fn kept(persists_status: Option<bool>) -> &'static str {
    match persists_status {
        Some(true) => {
            "a read-only mode of before is kept by its status files, unless its disks were full at the start"
        }
        Some(false) => {
            "a read-only mode set by hand is forgotten: persistBookieStatusEnabled is false"
        }
        None => {
            "a read-only mode set by hand is forgotten, unless persistBookieStatusEnabled is true"
        }
    }
}
