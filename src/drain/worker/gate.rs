//! How many requests are under way to a bookie at a time. More and more while it answers fast, and half as many at once
//! when it says that it has too much to do, or answers much later than it can: its clients come first.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// At first: what hides the way to a bookie of the same building.
const FIRST: usize = 16;

/// Never fewer: a bookie whose clients keep it busy for hours is emptied all the same.
const FEWEST: usize = 4;

/// Never more: as many as the client lets through to one bookie.
const MOST: usize = 256;

/// An answer that takes so long on average, and so many times as long as the fastest, says that requests queue there.
const SLOW: Duration = Duration::from_millis(100);
const TIMES_SLOWER: f64 = 4.0;

/// What the newest answer counts for in the average.
const NEWEST: f64 = 0.05;

/// How much of the fastest answer is forgotten with each: a bookie whose usual pace changed is known after some hundred
/// thousand, and one that is slow because of us for some minutes is not.
const FORGOTTEN: f64 = 1.00002;

/// The way to one bookie.
#[derive(Debug)]
pub(super) struct Gate {
    turns: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    /// Turns that are to go when they end.
    surplus: usize,
    /// Answers since the limit changed.
    answers: usize,
    /// In seconds.
    average: f64,
    fastest: f64,
}

/// A request may be under way.
#[derive(Debug)]
pub(super) struct Turn {
    gate: Arc<Gate>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            turns: Arc::new(Semaphore::new(FIRST)),
            state: Mutex::new(State {
                limit: FIRST,
                surplus: 0,
                answers: 0,
                average: 0.0,
                fastest: f64::INFINITY,
            }),
        }
    }
}

impl Gate {
    /// Waits for a turn.
    pub(super) async fn enter(self: &Arc<Gate>) -> Turn {
        let turns = Arc::clone(&self.turns);
        Turn {
            gate: Arc::clone(self),
            permit: turns.acquire_owned().await.ok(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut State) -> usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = change(&mut state).clamp(FEWEST, MOST);
        if limit < state.limit {
            let fewer = state.limit - limit;
            state.surplus += fewer - self.turns.forget_permits(fewer);
        } else {
            let more = limit - state.limit;
            let kept = more.min(state.surplus);
            state.surplus -= kept;
            self.turns.add_permits(more - kept);
        }
        if limit != state.limit {
            (state.limit, state.answers) = (limit, 0);
        }
    }
}

impl State {
    /// How many there may be after an answer that took so long.
    fn after(&mut self, took: f64) -> usize {
        self.answers += 1;
        self.average += NEWEST * (took - self.average);
        self.fastest = (self.fastest * FORGOTTEN).min(took);
        if self.answers < self.limit {
            return self.limit;
        }
        let is_slow = SLOW.as_secs_f64().max(TIMES_SLOWER * self.fastest) < self.average;
        self.answers = 0;
        if is_slow {
            self.limit / 2
        } else {
            self.limit + 1
        }
    }
}

impl Turn {
    /// An answer came.
    pub(super) fn answered(self, took: Duration) {
        self.gate.change(|state| state.after(took.as_secs_f64()));
    }

    /// It has too much to do.
    pub(super) fn busy(self) {
        self.gate.change(|state| state.limit / 2);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let state = self.gate.state.lock();
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if 0 < state.surplus
            && let Some(permit) = self.permit.take()
        {
            state.surplus -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answers(gate: &Arc<Gate>, count: usize, took: Duration) {
        for _ in 0..count {
            gate.enter().await.answered(took);
        }
    }

    fn limit(gate: &Gate) -> usize {
        gate.state.lock().unwrap().limit
    }

    #[tokio::test]
    async fn a_fast_bookie_is_asked_more_and_a_slow_one_less() {
        let gate = Arc::<Gate>::default();
        answers(&gate, 500, Duration::from_millis(2)).await;
        let fast = limit(&gate);
        assert!(25 < fast, "{fast}");
        answers(&gate, 1000, Duration::from_millis(400)).await;
        assert!(limit(&gate) < fast / 2, "{}", limit(&gate));
        answers(&gate, 10_000, Duration::from_millis(400)).await;
        assert_eq!(limit(&gate), FEWEST);
        answers(&gate, 100_000, Duration::from_millis(2)).await;
        assert_eq!(limit(&gate), MOST);
        assert_eq!(gate.turns.available_permits(), MOST);
    }

    #[tokio::test]
    async fn turns_that_are_out_go_when_they_end() {
        let gate = Arc::<Gate>::default();
        let mut out = Vec::new();
        for _ in 0..FIRST {
            out.push(gate.enter().await);
        }
        out.pop().unwrap().busy();
        assert_eq!(limit(&gate), FIRST / 2);
        drop(out);
        assert_eq!(gate.turns.available_permits(), FIRST / 2);
    }
}
