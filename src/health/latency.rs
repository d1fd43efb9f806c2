//! The latency axis: probes that end, but late. Entered when most of the newest probes were over
//! the limit, left when none of them was for the dwell time; a single slow sync changes nothing.

use std::time::Duration;

use super::moment::Elapsed;
use super::observation::{Durations, Medium, Operation};
use super::status::{Cause, LatencyStatus, Reason};

/// How many of the newest probes are looked at.
const WINDOW: u32 = 5;

/// So many of them over the limit make the directory slow: three probes in a row at the soonest.
const ENTER: u32 = 3;

/// Judges the latency of one directory.
#[derive(Debug, Clone, Default)]
pub struct LatencyAxis {
    status: LatencyStatus,
    reason: Option<Reason>,
    /// One bit a probe, newest lowest: 1 was over the limit.
    recent: u8,
    seen: u32,
    good_since: Option<Elapsed>,
}

impl LatencyAxis {
    /// The axis' value.
    #[must_use]
    pub fn status(&self) -> LatencyStatus {
        self.status
    }

    /// Why it is slow.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        self.reason.as_ref()
    }

    /// Takes in the durations of a complete probe.
    pub fn observe(
        &mut self,
        now: Elapsed,
        durations: &Durations,
        slow: Duration,
        medium: Medium,
        dwell: Duration,
    ) {
        let limit = limit(slow, medium);
        let Some((operation, longest)) = longest(durations) else {
            return;
        };
        let over = longest > limit;
        self.recent = ((self.recent << 1) | u8::from(over)) & ((1 << WINDOW) - 1);
        self.seen = (self.seen + 1).min(WINDOW);
        if over {
            self.good_since = None;
        } else {
            self.good_since.get_or_insert(now);
        }
        if self.recent.count_ones() >= ENTER {
            if self.status != LatencyStatus::Slow {
                self.status = LatencyStatus::Slow;
                self.reason = Some(explain(operation, longest, limit, self.recent));
            }
        } else if self.status == LatencyStatus::Slow {
            let good_for = self.good_since.map(|since| now.saturating_sub(since));
            if self.recent == 0 && good_for.is_some_and(|time| time >= dwell) {
                self.status = LatencyStatus::Normal;
                self.reason = None;
            }
        } else if self.seen >= ENTER {
            self.status = LatencyStatus::Normal;
        }
    }
}

/// The limit is given for a rotating disk; solid state has a third of it (`slow` in the configuration).
fn limit(slow: Duration, medium: Medium) -> Duration {
    match medium {
        Medium::SolidState | Medium::Memory => slow / 3,
        Medium::Rotating | Medium::Network | Medium::Unknown => slow,
    }
}

/// The slowest step that reaches the disk. Opening and listing are left out: on a cold cache they
/// cost a seek or two that no write of a bookie would notice.
fn longest(durations: &Durations) -> Option<(Operation, Duration)> {
    let steps = [
        Operation::Create,
        Operation::Write,
        Operation::Sync,
        Operation::Read,
        Operation::Unlink,
    ];
    steps
        .into_iter()
        .filter_map(|step| durations.get(&step).map(|duration| (step, *duration)))
        .max_by_key(|(_, duration)| *duration)
}

fn explain(operation: Operation, longest: Duration, limit: Duration, recent: u8) -> Reason {
    let name = operation.name();
    let (took, limit) = (longest.as_millis(), limit.as_millis());
    let slow = recent.count_ones();
    Reason {
        cause: Cause::Timeout,
        operation,
        errno: None,
        message: format!(
            "{name} took {took} ms, over the limit of {limit} ms; {slow} of the newest {WINDOW} probes were over it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds sync times in milliseconds, one a second, and returns the statuses as initials.
    fn run(millis: &[u64], dwell: u64) -> String {
        let mut axis = LatencyAxis::default();
        let mut word = String::new();
        for (second, millis) in millis.iter().enumerate() {
            let durations = Durations::from([(Operation::Sync, Duration::from_millis(*millis))]);
            axis.observe(
                Duration::from_secs(second as u64),
                &durations,
                Duration::from_millis(250),
                Medium::Rotating,
                Duration::from_secs(dwell),
            );
            word.push_str(&axis.status().name()[..1]);
        }
        word
    }

    #[test]
    fn slow_takes_three_of_five_and_leaving_takes_five_good_ones() {
        assert_eq!(run(&[300, 300, 300, 9, 9, 9, 9, 9], 0), "uusssssn");
    }

    #[test]
    fn one_slow_sync_in_five_changes_nothing() {
        assert_eq!(run(&[9, 9, 9, 900, 9, 9, 9, 9, 900, 9], 0), "uunnnnnnnn");
    }

    #[test]
    fn leaving_waits_for_the_dwell_time() {
        assert_eq!(
            run(&[300, 300, 300, 9, 9, 9, 9, 9, 9, 9, 9], 6),
            "uusssssssnn"
        );
    }

    #[test]
    fn solid_state_has_a_third_of_the_limit() {
        assert_eq!(
            limit(Duration::from_millis(240), Medium::SolidState).as_millis(),
            80
        );
    }
}
