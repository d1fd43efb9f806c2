//! The clocks of such a world: that of the store and the brokers, and one of each reclaimer, which may be set wrong.

use std::time::Duration;

use super::World;
use crate::clock::Clock;
use crate::reclaim::plan::{DAY, HOUR, Millis};

/// How far a clock jumps. A minute is what may go unnoticed.
const JUMPS: [Millis; 6] = [-2 * DAY, -HOUR, -30_000, 30_000, HOUR, 2 * DAY];

/// Once in so many times that a reclaimer looks at its clock, it jumps.
const JUMP: u8 = 40;

/// The clock of a reclaimer, and how far it is ahead.
pub(in crate::reclaim) struct Hands {
    clock: Clock,
    ahead: Millis,
}

impl World {
    /// A clock that is right so far.
    pub(in crate::reclaim) fn another_clock(&mut self) -> Clock {
        let clock = Clock::manual();
        clock.advance(self.clock.elapsed());
        self.hands.push(Hands {
            clock: clock.clone(),
            ahead: 0,
        });
        clock
    }

    /// All clocks go on.
    pub(super) fn all_pass(&mut self, by: Duration) {
        self.clock.advance(by);
        self.hands.iter().for_each(|hands| hands.clock.advance(by));
    }

    /// The clock of that reclaimer may be set wrong, or right again. Says whether it is wrong by so much that it has to be seen.
    pub(in crate::reclaim) fn jump(&mut self, number: usize, random: &mut fastrand::Rng) -> bool {
        let ahead = self.hands[number].ahead;
        if ahead != 0 && random.bool() {
            self.set(number, -ahead);
        } else if ahead == 0 && random.u8(0..JUMP) == 0 {
            self.set(number, JUMPS[random.usize(0..JUMPS.len())]);
        }
        60_000 < self.hands[number].ahead.abs()
    }

    pub(super) fn set_right(&mut self) {
        for number in 0..self.hands.len() {
            self.set(number, -self.hands[number].ahead);
        }
    }

    /// Clocks never run backwards here, so where one is set back the others go on without it.
    fn set(&mut self, number: usize, by: Millis) {
        self.hands[number].ahead += by;
        let duration = Duration::from_millis(by.unsigned_abs());
        if by < 0 {
            self.clock.advance(duration);
        }
        for (at, hands) in self.hands.iter().enumerate() {
            if (by < 0) != (at == number) {
                hands.clock.advance(duration);
            }
        }
        self.give_up();
    }
}
