//! The only place that reads a clock. Everything else is handed a [`Moment`] or a [`Clock`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::health::moment::{Elapsed, Moment, Timestamp};

/// A source of time. Cheap to clone; clones show the same time.
#[derive(Debug, Clone)]
pub struct Clock {
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    /// The machine's clocks, counted from this start.
    Machine(Instant),
    /// Milliseconds that only move when told to.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's clocks. `elapsed` is CLOCK_MONOTONIC, which stands still while the machine is
    /// suspended.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // the one place
    pub fn start() -> Clock {
        Clock {
            source: Source::Machine(Instant::now()),
        }
    }

    /// A clock that stands still until [`Clock::advance`] moves it. For tests and simulations.
    #[must_use]
    pub fn manual() -> Clock {
        Clock {
            source: Source::Manual(Arc::new(AtomicU64::new(0))),
        }
    }

    /// Moves a manual clock; the machine's clock ignores it.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(millis) = &self.source {
            let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
            millis.fetch_add(by, Ordering::SeqCst);
        }
    }

    /// Monotonic time since the start of this clock. Never blocks.
    #[must_use]
    pub fn elapsed(&self) -> Elapsed {
        match &self.source {
            Source::Machine(start) => start.elapsed(),
            Source::Manual(millis) => Duration::from_millis(millis.load(Ordering::SeqCst)),
        }
    }

    /// This instant on both clocks. Never blocks. A manual clock starts in 1970.
    #[must_use]
    pub fn now(&self) -> Moment {
        let elapsed = self.elapsed();
        let wall = match &self.source {
            Source::Machine(_) => wall(),
            Source::Manual(_) => millis(elapsed),
        };
        Moment { elapsed, wall }
    }
}

#[allow(clippy::disallowed_methods)] // the one place
fn wall() -> Timestamp {
    // A clock before 1970 is shown as 1970: wall time is for people only.
    millis(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

fn millis(since_epoch: Duration) -> Timestamp {
    Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
