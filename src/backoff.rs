//! Waits between retries: doubling, bounded, with a random part so that many agents do not act in
//! step. The random part comes from the caller, and is zero in tests.

use std::time::Duration;

/// Waits that double from `first` up to `limit`.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    limit: Duration,
    next: Duration,
}

impl Backoff {
    /// Starts at `first`; never longer than `limit`.
    #[must_use]
    pub const fn new(first: Duration, limit: Duration) -> Backoff {
        Backoff {
            first,
            limit,
            next: first,
        }
    }

    /// The wait before the next try. `jitter`, from 0 to 1, takes away up to a quarter of it.
    pub fn next_wait(&mut self, jitter: f64) -> Duration {
        let wait = self.next;
        self.next = (self.next * 2).min(self.limit);
        wait.mul_f64(1.0 - 0.25 * jitter.clamp(0.0, 1.0))
    }

    /// Back to the first wait, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_start_again_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(800));
        let waits: Vec<u128> = (0..6).map(|_| backoff.next_wait(0.0).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 800]);
        backoff.reset();
        assert_eq!(backoff.next_wait(1.0).as_micros(), 37_500);
    }
}
