//! Being written.

use super::moment::Elapsed;
use super::snapshot::ForecastView;
use std::time::Duration;

/// x
#[derive(Debug, Clone, Default)]
pub struct Forecast {}

impl Forecast {
    /// x
    pub fn observe(&mut self, _now: Elapsed, _available: u64) {}
    /// x
    pub fn full_in(&self, _now: Elapsed, _available: u64, _target: u64) -> Option<ForecastView> {
        None
    }
    /// x
    pub fn next_look(
        &self,
        _now: Elapsed,
        _available: u64,
        _target: u64,
        longest: Duration,
    ) -> Duration {
        longest
    }
}
