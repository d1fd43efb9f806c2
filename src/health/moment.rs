//! Time as a value. `health` never asks what time it is; whoever calls it says so.

use std::time::Duration;

/// Monotonic time since the agent started. Differences are meaningful, the value itself is not.
pub type Elapsed = Duration;

/// Wall-clock time: milliseconds since 1970-01-01T00:00:00Z. For people and logs, never compared
/// to decide anything, because wall clocks step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Seconds since the epoch, for metrics.
    #[must_use]
    pub fn seconds(self) -> f64 {
        // Milliseconds since 1970 stay below 2^53 for the next 285,000 years.
        #[allow(clippy::cast_precision_loss)]
        let millis = self.0 as f64;
        millis / 1000.0
    }
}

/// One instant on both clocks: `elapsed` decides, `wall` is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// Monotonic time since the agent started.
    pub elapsed: Elapsed,
    /// Wall-clock time of the same instant.
    pub wall: Timestamp,
}
