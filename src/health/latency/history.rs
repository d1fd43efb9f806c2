//! The newest durations of each step of the probe of one directory, and what they are like: a
//! bounded ring of whole microseconds, so that a directory costs a kilobyte and a quarter.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::observation::{Durations, Operation};

/// Probes kept: ten minutes of one each ten seconds, long enough to tell a bad minute from a bad
/// disk, and 60 × 20 bytes.
pub(super) const KEPT: usize = 60;

/// The steps that reach the file system. Opening and listing are left out: on a cold cache they
/// cost a seek or two that no write of a bookie would notice.
pub(super) const STEPS: [Operation; 5] = [
    Operation::Create,
    Operation::Write,
    Operation::Sync,
    Operation::Read,
    Operation::Unlink,
];

/// A step that was not part of a probe.
const ABSENT: u32 = u32::MAX;

/// What the kept probes say about one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepView {
    /// Which step.
    pub step: Operation,
    /// How long it took in the newest probe that had it.
    pub last: Duration,
    /// In the middle.
    pub median: Duration,
    /// At most. Of sixty probes that is the 99th percentile as well.
    pub max: Duration,
}

/// The newest probes, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    probes: VecDeque<[u32; STEPS.len()]>,
    /// What they are like, as of the newest: shown far more often than there are new ones.
    steps: Vec<StepView>,
}

impl History {
    pub(super) fn push(&mut self, durations: &Durations) {
        let micros = |duration: &Duration| {
            // An hour and more is all the same.
            u32::try_from(duration.as_micros()).map_or(ABSENT - 1, |micros| micros.min(ABSENT - 1))
        };
        if self.probes.len() == KEPT {
            self.probes.pop_front();
        }
        self.probes
            .push_back(STEPS.map(|step| durations.get(&step).map_or(ABSENT, micros)));
        self.steps = self.sum_up();
    }

    /// Microseconds of the newest probes, at most `count` of them, newest first.
    pub(super) fn newest(&self, step: Operation, count: usize) -> impl Iterator<Item = u32> {
        let place = STEPS.iter().position(|known| *known == step);
        let probes = self.probes.iter().rev().take(count);
        probes
            .filter_map(move |probe| Some(probe[place?]))
            .filter(|micros| *micros != ABSENT)
    }

    pub(super) fn steps(&self) -> &[StepView] {
        &self.steps
    }

    fn sum_up(&self) -> Vec<StepView> {
        let time = |micros: u32| Duration::from_micros(u64::from(micros));
        let view = |step| {
            let mut all: Vec<u32> = self.newest(step, KEPT).collect();
            let last = *all.first()?;
            all.sort_unstable();
            Some(StepView {
                step,
                last: time(last),
                median: time(middle(&all)?),
                max: time(*all.last()?),
            })
        };
        STEPS.into_iter().filter_map(view).collect()
    }
}

/// The middle of sorted numbers, of an even number of them the lower one: always a number that was
/// measured.
pub(in super::super) fn middle(sorted: &[u32]) -> Option<u32> {
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sixty_are_kept_and_summed_up() {
        let mut history = History::default();
        for millis in 1..=100 {
            let sync = (Operation::Sync, Duration::from_millis(millis));
            let open = (Operation::Open, Duration::from_secs(9));
            history.push(&Durations::from([sync, open]));
        }
        assert_eq!(history.probes.len(), KEPT);
        let millis = Duration::from_millis;
        let sync = StepView {
            step: Operation::Sync,
            last: millis(100),
            median: millis(70),
            max: millis(100),
        };
        assert_eq!(history.steps(), [sync]);
        let newest: Vec<u32> = history.newest(Operation::Sync, 2).collect();
        assert_eq!(newest, [100_000, 99_000]);
        assert_eq!(history.newest(Operation::Open, 2).count(), 0);
    }

    #[test]
    fn an_hour_and_more_does_not_overflow() {
        let mut history = History::default();
        let long = Durations::from([
            (Operation::Sync, Duration::MAX),
            (Operation::Read, Duration::ZERO),
        ]);
        history.push(&long);
        let steps = history.steps();
        assert_eq!(steps.len(), 2, "{steps:?}");
        assert!(Duration::from_secs(3600) < steps[0].max);
        assert_eq!(steps[1].median, Duration::ZERO);
    }

    #[test]
    fn a_kilobyte_and_a_quarter() {
        assert!(KEPT * size_of::<[u32; STEPS.len()]>() <= 1280);
    }
}
