//! How fast something runs out right now, and how soon it must be looked at again so that a threshold
//! is not crossed unnoticed. Works for bytes and for inodes alike; knows nothing of trends.

use std::time::Duration;

use super::{difference, float};
use crate::health::moment::Elapsed;

/// The shortest wait between two looks: half of the 100 ms for which a crossing may go unnoticed, and
/// at twenty `statvfs` calls a second still a small part of a core.
pub const MIN_LOOK: Duration = Duration::from_millis(50);

/// The next look comes when this part of the way to the nearest threshold can have been used up. A
/// quarter, because the rate over the last wait may be that of a filler which began in its midst.
const PART: f64 = 0.25;

/// A rate that has grown by this factor is a filler that has just begun.
const SURGE: f64 = 2.0;

/// A surge matters when so many waits like the last one would reach the threshold. Beyond, the
/// quarter of the way is long enough to wait for a better measurement.
const SURGE_WAITS: f64 = 64.0;

/// After this time a rate that is not seen any more counts half: short, so that looks become rare
/// again soon, and longer than the pauses of a writer that syncs.
const HALF_LIFE: f64 = 1.0;

/// The short-term rate of one quantity that runs out.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pace {
    last: Option<(Elapsed, u64)>,
    /// Units a second; the newest rate, or a higher one that fades.
    rate: f64,
    /// The wait before the newest look if a surge was seen in it, in seconds.
    surge: Option<f64>,
}

impl Pace {
    /// A pace that has seen nothing.
    #[must_use]
    pub fn new() -> Pace {
        Pace::default()
    }

    /// Takes in how much is available.
    pub fn observe(&mut self, at: Elapsed, available: u64) {
        let Some((before, previous)) = self.last else {
            self.last = Some((at, available));
            return;
        };
        let Some(wait) = at.checked_sub(before).filter(|wait| !wait.is_zero()) else {
            return;
        };
        self.last = Some((at, available));
        // Nearly always: nothing runs out, and nothing is left that could fade.
        if self.rate == 0.0 && previous <= available {
            return;
        }
        let wait = wait.as_secs_f64();
        let newest = (difference(previous, available) / wait).max(0.0);
        let faded = self.rate * (-wait / HALF_LIFE).exp2();
        self.surge = (SURGE * faded < newest).then_some(wait);
        self.rate = newest.max(faded);
    }

    /// Takes in a look whose difference to the one before means nothing (a resize).
    pub fn resume(&mut self, at: Elapsed, available: u64) {
        self.last = Some((at, available));
        self.surge = None;
    }

    /// Units a second by which it has run out lately; 0 when it has not.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Wait from the newest look to the next one, between [`MIN_LOOK`] and `interval`.
    ///
    /// `thresholds` are amounts available; those that are crossed already do not count. At the
    /// measured rate the next look comes before a quarter of the way to the nearest one is used up,
    /// so a crossing is seen [`MIN_LOOK`] late at most. When something begins to fill between two
    /// looks, the measured rate is too low; then each wait is at most half of the one before, until
    /// the rate is known.
    #[must_use]
    pub fn next_look(&self, thresholds: &[u64], interval: Duration) -> Duration {
        let Some((_, available)) = self.last else {
            return interval.max(MIN_LOOK);
        };
        if self.rate == 0.0 {
            return interval.max(MIN_LOOK);
        }
        let nearest = thresholds
            .iter()
            .filter(|threshold| **threshold < available)
            .map(|threshold| float(available - threshold))
            .fold(f64::INFINITY, f64::min);
        let mut wait = nearest * PART / self.rate;
        if let Some(before) = self.surge
            && nearest < self.rate * before * SURGE_WAITS
        {
            wait = wait.min(before / 2.0);
        }
        Duration::try_from_secs_f64(wait)
            .unwrap_or(interval)
            .min(interval)
            .max(MIN_LOOK)
    }
}
