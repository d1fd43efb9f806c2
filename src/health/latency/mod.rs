//! The latency axis: probes that end, but late. Slow by the limit when most of the newest probes
//! were over it, and left when none of them was for the dwell time; slow by the siblings when the
//! disk has stood out among them for some rounds. A single slow sync changes nothing.

pub(super) mod history;
mod score;

use std::time::Duration;

use super::moment::Elapsed;
use super::observation::{Durations, Medium, Operation};
use super::outlier::{self, Comparison};
use super::status::{Cause, LatencyStatus, Reason};
use history::{History, STEPS, middle};
use score::Score;

pub use history::StepView;

/// How many of the newest probes are looked at.
const WINDOW: u32 = 5;

/// So many of them over the limit make the directory slow: three probes in a row at the soonest.
const ENTER: u32 = 3;

/// The steps that are compared with those of siblings: the two that reach the disk itself. The
/// others end in the page cache, and what they take says more about the processor.
pub(super) const COMPARED: [Operation; 2] = [Operation::Sync, Operation::Read];

/// An outlier must be one in so many rounds in a row, each with a new probe: two were enough for a
/// scrub or a snapshot of one disk, and the middle of nine has lasted for five probes already.
const OUTLIER_ROUNDS: u32 = 3;

/// Judges the latency of one directory.
#[derive(Debug, Clone, Default)]
pub struct LatencyAxis {
    history: History,
    score: Score,
    /// One bit a probe, newest lowest: 1 was over the limit.
    recent: u8,
    seen: u32,
    good_since: Option<Elapsed>,
    by_limit: Option<Reason>,
    siblings: Siblings,
}

/// Where a directory stands among its siblings.
#[derive(Debug, Clone, Default)]
struct Siblings {
    /// A probe has not been part of a comparison yet.
    news: bool,
    /// The newest comparison was over the siblings' limit.
    over: bool,
    /// So many in a row were.
    rounds: u32,
    back_since: Option<Elapsed>,
    reason: Option<Reason>,
    /// By which comparison it was told.
    told: Option<(Operation, Comparison)>,
}

/// What the snapshot shows of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LatencyView {
    /// From 1, never late, to 100, always late; none before the first probe.
    pub score: Option<u8>,
    /// The steps of the newest probes, at most sixty of them.
    pub steps: Vec<StepView>,
}

impl LatencyAxis {
    /// The axis' value.
    #[must_use]
    pub fn status(&self) -> LatencyStatus {
        if self.reason().is_some() {
            LatencyStatus::Slow
        } else if self.seen < ENTER {
            LatencyStatus::Unknown
        } else {
            LatencyStatus::Normal
        }
    }

    /// Why it is slow.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        self.by_limit.as_ref().or(self.siblings.reason.as_ref())
    }

    /// Score and history.
    #[must_use]
    pub fn view(&self) -> LatencyView {
        LatencyView {
            score: self.score.get(),
            steps: self.history.steps().to_vec(),
        }
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
        self.history.push(durations);
        self.siblings.news = true;
        self.score.probe(over || self.siblings.over);
        self.recent = ((self.recent << 1) | u8::from(over)) & ((1 << WINDOW) - 1);
        self.seen = (self.seen + 1).min(WINDOW);
        if over {
            self.good_since = None;
        } else {
            self.good_since.get_or_insert(now);
        }
        if self.recent.count_ones() >= ENTER {
            self.by_limit
                .get_or_insert_with(|| explain(operation, longest, limit, self.recent));
        } else if self.recent == 0 {
            let good_for = self.good_since.map(|since| now.saturating_sub(since));
            if good_for.is_some_and(|time| time >= dwell) {
                self.by_limit = None;
            }
        }
    }

    /// Another disk is there now: what the old one took says nothing about it.
    pub fn forget(&mut self) {
        *self = LatencyAxis::default();
    }

    /// Microseconds that a step took in the newest probes.
    pub(super) fn newest(&self, step: Operation) -> Vec<u32> {
        self.history.newest(step, outlier::NEWEST).collect()
    }

    /// There is a probe that was not compared with those of siblings yet.
    pub(super) fn has_news(&self) -> bool {
        self.siblings.news
    }

    /// Takes in one round of comparisons with siblings, one for each of [`COMPARED`]. None: nobody
    /// can say. That makes no disk an outlier, and one that is stays it until it is back by the
    /// limit of its day: siblings that are gone say nothing good about it.
    pub(super) fn compared(
        &mut self,
        now: Elapsed,
        round: [Option<Comparison>; COMPARED.len()],
        dwell: Duration,
    ) {
        let siblings = &mut self.siblings;
        siblings.news = false;
        let mut known = COMPARED.into_iter().zip(round);
        let over = known.find_map(|(step, found)| Some((step, found.filter(Comparison::is_over)?)));
        siblings.over = over.is_some();
        let is_back = match siblings.told {
            Some((step, told)) if round.iter().all(Option::is_none) => {
                let mut micros: Vec<u32> = self.history.newest(step, outlier::NEWEST).collect();
                micros.sort_unstable();
                middle(&micros).is_some_and(|own| told.at(own).is_back())
            }
            _ => round.iter().flatten().all(Comparison::is_back),
        };
        if let Some((step, comparison)) = over {
            siblings.rounds = (siblings.rounds + 1).min(OUTLIER_ROUNDS);
            siblings.back_since = None;
            if siblings.rounds == OUTLIER_ROUNDS {
                siblings.told.get_or_insert((step, comparison));
                siblings.reason.get_or_insert_with(|| Reason {
                    cause: Cause::Timeout,
                    operation: step,
                    errno: None,
                    message: format!("{} {}", step.name(), comparison.text()),
                });
            }
            return;
        }
        siblings.rounds = 0;
        if !is_back {
            siblings.back_since = None;
            return;
        }
        let since = *siblings.back_since.get_or_insert(now);
        if dwell <= now.saturating_sub(since) {
            siblings.reason = None;
            siblings.told = None;
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

/// The slowest step of those that count.
fn longest(durations: &Durations) -> Option<(Operation, Duration)> {
    STEPS
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
    use super::super::observation::Device;
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

    /// One sign a round, ten seconds apart: `x` stands out, `-` is between the marks, `.` is like the
    /// others, `?` cannot be said. Statuses as initials.
    fn among_siblings(rounds: &str) -> String {
        let group = |own: u32| {
            let sample = |minor, micros| outlier::Sample {
                device: Device { major: 8, minor },
                medium: Medium::SolidState,
                micros: vec![micros; outlier::MIN_SAMPLES],
            };
            let mut all: Vec<_> = (1..6).map(|minor| sample(minor, 10_000)).collect();
            all.push(sample(0, own));
            outlier::compare(&all).pop().flatten()
        };
        let mut axis = LatencyAxis::default();
        let mut word = String::new();
        for (round, sign) in (0..).zip(rounds.chars()) {
            let now = Duration::from_secs(round * 10);
            let millis = if "x!".contains(sign) { 48 } else { 1 };
            let took = Durations::from([(Operation::Sync, Duration::from_millis(millis))]);
            let (slow, dwell) = (Duration::from_millis(250), Duration::from_secs(20));
            axis.observe(now, &took, slow, Medium::SolidState, dwell);
            let sync = match sign {
                'x' => group(48_000),
                '-' => group(25_000),
                '.' => group(10_000),
                _ => None,
            };
            assert!(axis.has_news());
            axis.compared(now, [sync, None], dwell);
            assert!(!axis.has_news());
            word.push_str(&axis.status().name()[..1]);
        }
        word
    }

    #[test]
    fn an_outlier_is_slow_in_the_third_round_and_normal_after_the_dwell_time() {
        assert_eq!(among_siblings("...xxxx...."), "uunnnssssnn");
    }

    #[test]
    fn two_rounds_out_change_nothing() {
        assert_eq!(among_siblings("...xx.xx-xx?xx."), "uunnnnnnnnnnnnn");
    }

    #[test]
    fn between_the_marks_an_outlier_does_not_come_back() {
        assert_eq!(among_siblings("xxx..-..-...."), "uusssssssssnn");
    }

    /// Missing siblings are no good news: by the limit of its day it stays or comes back.
    #[test]
    fn without_siblings_an_outlier_is_held_against_itself() {
        assert_eq!(among_siblings("xxx!!!!!!"), "uusssssss");
        assert_eq!(among_siblings("xxx???????"), "uusssssnnn");
    }
}
