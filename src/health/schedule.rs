//! When a directory is looked at next, and how thoroughly. One look at a time; due times follow
//! from the end of the last look, so nothing is caught up in a burst after a pause.

use std::time::Duration;

use super::ballast::Order;
use super::dir::{DirId, ProbePolicy};
use super::moment::Elapsed;
use super::observation::{Device, Medium};

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

/// What a look is to contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookPlan {
    /// Beside space and identity: the cookie, left-over files, and the probe if allowed.
    pub full: bool,
    /// Write, sync and read back.
    pub probe: bool,
    /// The device on which alone a probe may write; a look that finds another one ends there.
    pub device: Option<Device>,
    /// What to do with the ballast file.
    pub ballast: Order,
}

/// The due times of one directory.
#[derive(Debug, Clone)]
pub struct Schedule {
    phase: Duration,
    full_due: Elapsed,
    space_due: Elapsed,
    last_full: Option<Elapsed>,
    outstanding: Option<bool>,
    rounds: u64,
}

impl Schedule {
    /// Everything is due.
    #[must_use]
    pub fn new(id: DirId) -> Schedule {
        Schedule {
            phase: BEAT / PHASES * (id.0 % PHASES),
            full_due: Elapsed::ZERO,
            space_due: Elapsed::ZERO,
            last_full: None,
            outstanding: None,
            rounds: 0,
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
        let full = self.full_due <= now;
        self.outstanding = Some(full);
        Some(full)
    }

    /// The look under way ended; the next ones are due after `full_wait`, which gets the number of
    /// complete looks before this one and is asked only when it counts, and `space_wait`.
    pub fn ended(
        &mut self,
        now: Elapsed,
        full_wait: impl FnOnce(u64) -> Duration,
        space_wait: Duration,
    ) {
        if self.outstanding.take() == Some(true) {
            self.last_full = Some(now);
            self.full_due = now + full_wait(self.rounds);
            self.rounds += 1;
        }
        self.space_due = self.on_the_beat(now + space_wait, space_wait).max(now);
    }

    /// The directory's own instant at or before `due`; a shorter wait than a beat is kept.
    fn on_the_beat(&self, due: Elapsed, wait: Duration) -> Elapsed {
        if wait < BEAT {
            return due;
        }
        // The beat is a second, so what is over it is the part below one.
        let since = due.saturating_sub(self.phase).subsec_nanos();
        due.saturating_sub(Duration::from_nanos(u64::from(since)))
    }

    /// A full look as soon as possible, but not within [`PROBE_AGAIN`] of the last one unless it
    /// is `urgent`.
    pub fn hurry(&mut self, now: Elapsed, urgent: bool) {
        let soonest = match self.last_full {
            Some(last) if !urgent => now.max(last + PROBE_AGAIN),
            _ => now,
        };
        self.full_due = self.full_due.min(soonest);
    }

    /// The child that was asked is gone: nothing is under way, everything is due.
    pub fn void(&mut self, now: Elapsed) {
        self.outstanding = None;
        self.full_due = now;
        self.space_due = now;
    }

    /// Complete looks so far.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }
}

/// The wait until the next full look of a directory that is well: the interval, the first time cut
/// by a part that differs between directories, so that rounds are spread and not a burst.
#[must_use]
pub fn spread(id: DirId, rounds: u64, interval: Duration) -> Duration {
    if rounds > 0 {
        return interval;
    }
    // Multiples of the golden ratio are spread evenly for any number of directories.
    let part = (f64::from(id.0) * 0.618_033_988_749_895).fract();
    interval.mul_f64(0.5 + 0.5 * part)
}

/// The longest wait until the next look at the space.
#[must_use]
pub fn longest_space_wait(policy: &ProbePolicy, medium: Medium) -> Duration {
    match medium {
        Medium::Network => policy.space_interval.max(NETWORK_SPACE_INTERVAL),
        _ => policy.space_interval,
    }
}
