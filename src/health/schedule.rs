//! When a directory is looked at next, and how thoroughly. One look at a time. Each directory has an
//! instant of its own within the interval at which it is probed, so that a round is spread and not a
//! burst, also after a start or a pause; whatever cannot wait for it is asked for at once.

use std::time::Duration;

use super::ballast::Order;
use super::dir::{DirId, ProbePolicy};
use super::moment::Elapsed;
use super::observation::Medium;

/// After a first error, and between good rounds on probation at the soonest, a directory is probed
/// again after so long: long enough for a path fail-over, short enough that a fault is
/// confirmed within one interval and 3 s.
pub const PROBE_AGAIN: Duration = Duration::from_secs(1);

/// Space of a network or FUSE file system is asked for at most this often: each ask is a round trip
/// to a server that many agents share.
const NETWORK_SPACE_INTERVAL: Duration = Duration::from_secs(5);

/// Looks at the space that are due each second or less often are due at one of two instants of a
/// second: directories then share the agent's and the prober's wake-ups, and are still spread.
const BEAT: Duration = Duration::from_secs(1);
const PHASES: u32 = 2;

/// A probe that could not begin within this part of the interval after it was due waits for the
/// directory's next instant: the whole agent was stopped then, and all others are late as well.
/// Shorter stalls make at most this part of all directories due at once.
const LATE_PART: u32 = 10;

/// The wait until the next full look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Something is to be confirmed: after so long, whatever the others do.
    Soon(Duration),
    /// All is well: the directory's next instant in a round of so long.
    Round(Duration),
}

/// What a look is to contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookPlan {
    /// Beside space and identity: the cookie, left-over files, and the probe if allowed.
    pub full: bool,
    /// Write, sync and read back.
    pub probe: bool,
    /// What to do with the ballast file.
    pub ballast: Order,
}

/// The due times of one directory.
#[derive(Debug, Clone)]
pub struct Schedule {
    id: DirId,
    full_due: Elapsed,
    space_due: Elapsed,
    last_full: Option<Elapsed>,
    last_ended: Elapsed,
    outstanding: Option<bool>,
    /// The full look is due by its turn in rounds of so long, and may wait for the next turn.
    turn: Option<Duration>,
    /// Asked for while a full look was under way, which had perhaps gone past what is to be seen.
    asked: Option<Elapsed>,
}

impl Schedule {
    /// Everything is due.
    #[must_use]
    pub fn new(id: DirId) -> Schedule {
        Schedule {
            id,
            full_due: Elapsed::ZERO,
            space_due: Elapsed::ZERO,
            last_full: None,
            last_ended: Elapsed::ZERO,
            outstanding: None,
            turn: None,
            asked: None,
        }
    }

    /// When the next look is due; none while one is under way.
    #[must_use]
    pub fn due(&self) -> Option<Elapsed> {
        match self.outstanding {
            None => Some(self.full_due.min(self.space_due)),
            Some(_) => None,
        }
    }

    /// Begins a look if one is due: `Some(true)` for a full one.
    pub fn begin(&mut self, now: Elapsed) -> Option<bool> {
        if self.due()? > now {
            return None;
        }
        self.give_up_turn(now);
        let full = self.full_due <= now;
        if !full && self.space_due > now {
            return None;
        }
        self.outstanding = Some(full);
        Some(full)
    }

    /// A turn that was missed by a pause is made up for at the next one, but only once, so that an
    /// agent that is stopped again and again still probes. A wait for the directory's own look is
    /// no pause.
    fn give_up_turn(&mut self, now: Elapsed) {
        let Some(interval) = self.turn else {
            return;
        };
        let late = now.saturating_sub(self.full_due.max(self.last_ended));
        if interval / LATE_PART < late {
            self.turn = None;
            self.full_due = next_turn(self.id, now, interval);
        }
    }

    /// The look under way ended; the next ones are due after `full_wait`, which is asked for
    /// after a full look only, and `space_wait`.
    pub fn ended(&mut self, now: Elapsed, full_wait: impl FnOnce() -> Wait, space_wait: Duration) {
        self.last_ended = now;
        if self.outstanding.take() == Some(true) {
            self.last_full = Some(now);
            (self.full_due, self.turn) = match full_wait() {
                // What is to be confirmed is given its time for a fail-over.
                Wait::Soon(wait) if self.asked.is_some() => (now + wait.min(PROBE_AGAIN), None),
                Wait::Soon(wait) => (now + wait, None),
                Wait::Round(interval) => (next_turn(self.id, now, interval), Some(interval)),
            };
            if let Some(asked) = self.asked.take()
                && self.turn.is_some()
            {
                (self.full_due, self.turn) = (self.full_due.min(asked.max(now)), None);
            }
        }
        self.space_due = self.on_the_beat(now + space_wait, space_wait).max(now);
    }

    /// The directory's own instant at or before `due`; a shorter wait than a beat is kept.
    fn on_the_beat(&self, due: Elapsed, wait: Duration) -> Elapsed {
        if wait < BEAT {
            return due;
        }
        // The beat is a second, so what is over it is the part below one.
        let phase = BEAT / PHASES * (self.id.0 % PHASES);
        let since = due.saturating_sub(phase).subsec_nanos();
        due.saturating_sub(Duration::from_nanos(u64::from(since)))
    }

    /// A full look as soon as possible, but not within [`PROBE_AGAIN`] of the last one unless it
    /// is `urgent`.
    pub fn hurry(&mut self, now: Elapsed, urgent: bool) {
        let soonest = match self.last_full {
            Some(last) if !urgent => now.max(last + PROBE_AGAIN),
            _ => now,
        };
        if self.outstanding == Some(true) {
            self.asked = Some(self.asked.map_or(soonest, |asked| asked.min(soonest)));
        } else {
            self.full_due = self.full_due.min(soonest);
            self.turn = None;
        }
    }

    /// The child that was asked is gone: nothing is under way. A look at the space is due, which is
    /// enough to know again what was known before; so is a probe that was under way or never ended,
    /// but the others wait for their turns.
    pub fn void(&mut self, now: Elapsed) {
        let was_full = self.outstanding.take() == Some(true);
        self.asked = None;
        if was_full || self.last_full.is_none() {
            self.full_due = now;
            self.turn = None;
        }
        self.space_due = now;
    }
}

/// The directory's next instant in rounds of so long: after `now`, and at the latest an interval
/// after it.
fn next_turn(id: DirId, now: Elapsed, interval: Duration) -> Elapsed {
    // Multiples of the golden ratio are spread evenly for any number of directories.
    let part = (f64::from(id.0) * 0.618_033_988_749_895).fract();
    let mut offset = interval.mul_f64(part);
    if BEAT <= interval {
        // On a beat of some directories' looks at the space: a wake-up less for each probe.
        let since = offset.as_nanos() % (BEAT / PHASES).as_nanos();
        offset -= nanos(since);
    }
    let interval = interval.as_nanos().max(1);
    let since = (now.as_nanos() + interval - offset.as_nanos() % interval) % interval;
    now + nanos(interval - since)
}

/// A part of an interval, which is far shorter than the 584 years that fit.
fn nanos(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}

/// The longest wait until the next look at the space.
#[must_use]
pub fn longest_space_wait(policy: &ProbePolicy, medium: Medium) -> Duration {
    match medium {
        Medium::Network => policy.space_interval.max(NETWORK_SPACE_INTERVAL),
        _ => policy.space_interval,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);
    const BEATS: u128 = 20;
    const DIRS: u32 = 500;
    const SECOND: Duration = Duration::from_secs(1);

    /// 500 directories whose looks end after 5 ms, and full looks begun so far by beat.
    struct World {
        now: Elapsed,
        schedules: Vec<Schedule>,
        begun: BTreeMap<u128, u32>,
        last: Vec<Elapsed>,
    }

    impl World {
        fn new() -> World {
            World {
                now: Elapsed::ZERO,
                schedules: (0..DIRS).map(|id| Schedule::new(DirId(id))).collect(),
                begun: BTreeMap::new(),
                last: vec![Elapsed::ZERO; DIRS as usize],
            }
        }

        fn run(&mut self, time: Duration) {
            const STEP: Duration = Duration::from_millis(5);
            let end = self.now + time;
            while self.now < end {
                for (schedule, last) in self.schedules.iter_mut().zip(&mut self.last) {
                    if schedule.outstanding.is_some() {
                        schedule.ended(self.now, || Wait::Round(INTERVAL), SECOND);
                    }
                    if schedule.begin(self.now) == Some(true) {
                        *last = self.now;
                        *self.begun.entry(self.now.as_millis() / 500).or_default() += 1;
                    }
                }
                self.now += STEP;
            }
        }

        /// The most full looks of one beat since the last call, and the oldest of the newest ones.
        fn busiest(&mut self) -> (u32, Duration) {
            let most = std::mem::take(&mut self.begun).into_values().max();
            let oldest = self.last.iter().map(|last| self.now - *last).max();
            (most.unwrap_or(0), oldest.unwrap_or_default())
        }

        fn assert_spread(&mut self, what: &str) {
            let (most, oldest) = self.busiest();
            let share = u128::from(DIRS) / BEATS;
            // A fifth above the even share, for what the golden ratio leaves uneven.
            assert!(
                u128::from(most) * 5 <= share * 6,
                "{what}: {most} of {share}"
            );
            assert!(oldest <= INTERVAL + 2 * SECOND, "{what}: {oldest:?}");
        }
    }

    #[test]
    fn all_are_looked_at_at_once_and_then_each_in_its_turn() {
        let mut world = World::new();
        world.run(Duration::from_millis(5));
        assert_eq!(world.busiest().0, DIRS);
        world.run(INTERVAL);
        world.assert_spread("first round");
        world.run(INTERVAL * 6);
        world.assert_spread("steady");
    }

    #[test]
    fn a_pause_makes_no_burst_and_costs_one_turn() {
        let mut world = World::new();
        world.run(INTERVAL * 2);
        world.busiest();
        world.now += Duration::from_secs(20);
        world.run(INTERVAL + 2 * SECOND);
        world.assert_spread("after the pause");
        world.run(INTERVAL * 3);
        world.assert_spread("later");
    }

    /// Whoever is stopped for longer than an interval, again and again, still probes every second time.
    #[test]
    fn a_turn_is_given_up_only_once() {
        let mut schedule = Schedule::new(DirId(0));
        let mut fulls = 0;
        for pause in 0..10_u32 {
            let now = INTERVAL * 3 * pause + SECOND;
            fulls += u32::from(schedule.begin(now) == Some(true));
            schedule.ended(now, || Wait::Round(INTERVAL), SECOND);
        }
        assert_eq!(fulls, 5);
    }

    #[test]
    fn a_new_prober_is_asked_for_the_space_first_and_for_probes_in_their_turn() {
        let mut world = World::new();
        world.run(INTERVAL * 2);
        world.busiest();
        let now = world.now;
        for schedule in &mut world.schedules {
            schedule.void(now);
            assert_eq!(schedule.due(), Some(now));
        }
        world.run(INTERVAL);
        world.assert_spread("after a restart");
    }

    #[test]
    fn what_is_to_be_confirmed_does_not_wait_for_its_turn() {
        let mut schedule = Schedule::new(DirId(7));
        assert_eq!(schedule.begin(SECOND), Some(true));
        schedule.ended(SECOND, || Wait::Soon(PROBE_AGAIN), SECOND);
        assert_eq!(schedule.begin(SECOND * 60), Some(true), "late, but urgent");
        schedule.ended(SECOND * 60, || Wait::Round(INTERVAL), SECOND);
        schedule.hurry(SECOND * 60, true);
        assert_eq!(
            schedule.begin(SECOND * 90),
            Some(true),
            "late, but asked for"
        );
    }

    /// The look under way may be past what the signal is about.
    #[test]
    fn what_is_asked_for_during_a_look_is_looked_at_after_it() {
        for (full, urgent, wait, due) in [
            (
                true,
                true,
                Wait::Round(INTERVAL),
                Duration::from_millis(1500),
            ),
            (
                true,
                false,
                Wait::Round(INTERVAL),
                Duration::from_millis(1500),
            ),
            (
                true,
                true,
                Wait::Soon(PROBE_AGAIN),
                Duration::from_millis(2500),
            ),
            (
                true,
                true,
                Wait::Soon(INTERVAL),
                Duration::from_millis(2500),
            ),
            (
                false,
                true,
                Wait::Round(INTERVAL),
                Duration::from_millis(1200),
            ),
        ] {
            let mut schedule = Schedule::new(DirId(0));
            if !full {
                schedule.begin(Elapsed::ZERO);
                schedule.ended(Elapsed::ZERO, || Wait::Round(INTERVAL), SECOND);
            }
            assert_eq!(schedule.begin(SECOND), Some(full));
            schedule.hurry(Duration::from_millis(1200), urgent);
            schedule.hurry(Duration::from_millis(1400), urgent);
            schedule.ended(Duration::from_millis(1500), || wait, INTERVAL);
            assert_eq!(schedule.full_due, due, "{full} {urgent} {wait:?}");
            let now = due.max(Duration::from_millis(1500));
            assert_eq!(schedule.begin(now), Some(true));
            schedule.ended(now, || Wait::Round(INTERVAL), SECOND);
            assert!(now + SECOND < schedule.full_due, "once");
        }
        let mut schedule = Schedule::new(DirId(0));
        schedule.begin(SECOND);
        schedule.hurry(SECOND, true);
        schedule.void(SECOND * 2);
        assert_eq!(
            schedule.begin(SECOND * 2),
            Some(true),
            "lost with its child"
        );
        schedule.ended(SECOND * 2, || Wait::Round(INTERVAL), SECOND);
        assert!(SECOND * 2 < schedule.full_due, "and asked for once");
    }

    #[test]
    fn a_turn_is_at_most_an_interval_away() {
        for interval in [1, 250, 1000, 10_000, 7_777].map(Duration::from_millis) {
            for id in 0..50 {
                for now in [0, 1, 249, 1000, 9_999, 123_456].map(Duration::from_millis) {
                    let next = next_turn(DirId(id), now, interval);
                    assert!(
                        now < next && next <= now + interval,
                        "{interval:?} {now:?} {next:?}"
                    );
                    let after = next_turn(DirId(id), next, interval);
                    assert_eq!(after, next + interval);
                }
            }
        }
        assert!(SECOND < next_turn(DirId(1), SECOND, Duration::ZERO));
    }
}
