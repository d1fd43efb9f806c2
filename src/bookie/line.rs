//! Who may ask the admin server now. It is one ordered worker inside the bookie: a second request
//! waits behind the first, and one that hangs holds up all. So one request is in flight at a time,
//! orders go before questions, polls do not wait at all, and after a time-out there is a pause.

use std::time::Duration;

use tokio::sync::watch;

use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::health::moment::Elapsed;

/// Pauses after questions without an answer. Each leaves a connection behind, in a bookie that hangs
/// for as long as its ZooKeeper is away: at most six a minute, and it is back for us within 10 s.
const QUESTIONS: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

/// Pauses after orders without an answer, for further orders. The order may still take effect, and
/// each one more would be carried out too, long after it was meant.
const ORDERS: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(30));

/// What a caller wants of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A question that is asked again soon anyway: never waits.
    Poll,
    /// A question whose answer is waited for.
    Question,
    /// Changes something: goes before questions that wait, and is not held back by their pauses.
    Order,
}

/// Why it was not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotNow {
    /// Another request is in flight, or waits before this one.
    Busy,
    /// The pause after a request without an answer goes on for so long.
    Pause(Duration),
}

/// The line. One for each bookie.
#[derive(Debug)]
pub(super) struct Line {
    queue: watch::Sender<Queue>,
    clock: Clock,
}

#[derive(Debug)]
struct Queue {
    in_flight: bool,
    orders_waiting: usize,
    questions: Pause,
    orders: Pause,
}

#[derive(Debug)]
struct Pause {
    backoff: Backoff,
    until: Elapsed,
}

/// The permission to ask, given back when it is dropped. Unless [`Turn::answered`] was called it
/// counts as a request without an answer, also when its caller gave up.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    line: &'a Line,
    kind: Kind,
    answered: bool,
}

/// An order that waits; counted until it has its turn or gives up.
struct Waiting<'a>(&'a Line);

impl Line {
    pub(super) fn new(clock: Clock) -> Line {
        let pause = |backoff| Pause {
            backoff,
            until: Elapsed::ZERO,
        };
        let queue = Queue {
            in_flight: false,
            orders_waiting: 0,
            questions: pause(QUESTIONS),
            orders: pause(ORDERS),
        };
        Line {
            queue: watch::Sender::new(queue),
            clock,
        }
    }

    /// Waits for the turn, a poll not at all and others for at most `limit`.
    pub(super) async fn turn(&self, kind: Kind, limit: Duration) -> Result<Turn<'_>, NotNow> {
        if kind == Kind::Poll {
            return self.take(kind).unwrap_or(Err(NotNow::Busy));
        }
        let _waiting = (kind == Kind::Order).then(|| Waiting::new(self));
        let turn = async {
            let mut changes = self.queue.subscribe();
            loop {
                if let Some(turn) = self.take(kind) {
                    return turn;
                }
                // The sender lives in `self`, so this never fails.
                let _ = changes.changed().await;
            }
        };
        let turn = tokio::time::timeout(limit, turn).await;
        turn.unwrap_or(Err(NotNow::Busy))
    }

    /// The turn if the line is free for that kind; none if not.
    fn take(&self, kind: Kind) -> Option<Result<Turn<'_>, NotNow>> {
        let now = self.clock.elapsed();
        let mut taken = None;
        self.queue.send_if_modified(|queue| {
            if queue.in_flight || (kind != Kind::Order && 0 < queue.orders_waiting) {
                return false;
            }
            let pause = match kind {
                Kind::Order => &queue.orders,
                Kind::Poll | Kind::Question => &queue.questions,
            };
            let left = pause.until.saturating_sub(now);
            if !left.is_zero() {
                taken = Some(Err(NotNow::Pause(left)));
                return false;
            }
            queue.in_flight = true;
            taken = Some(Ok(()));
            true
        });
        // Made outside: its end would lock the queue again.
        taken.map(|taken| {
            taken.map(|()| Turn {
                line: self,
                kind,
                answered: false,
            })
        })
    }
}

impl Turn<'_> {
    /// Something came back, if only a refusal.
    pub(super) fn answered(&mut self) {
        self.answered = true;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let now = self.line.clock.elapsed();
        self.line.queue.send_modify(|queue| {
            queue.in_flight = false;
            if self.answered {
                queue.questions.end();
                queue.orders.end();
                return;
            }
            queue.questions.begin(now);
            if self.kind == Kind::Order {
                queue.orders.begin(now);
            }
        });
    }
}

impl Pause {
    fn begin(&mut self, now: Elapsed) {
        self.until = now + self.backoff.next_wait(fastrand::f64());
    }

    fn end(&mut self) {
        self.until = Elapsed::ZERO;
        self.backoff.reset();
    }
}

impl<'a> Waiting<'a> {
    fn new(line: &'a Line) -> Waiting<'a> {
        line.queue.send_modify(|queue| queue.orders_waiting += 1);
        Waiting(line)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.queue.send_modify(|queue| queue.orders_waiting -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn orders_go_before_questions_and_polls_do_not_wait() {
        let line = Arc::new(Line::new(Clock::manual()));
        let mut first = line.turn(Kind::Poll, LONG).await.unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for (kind, name) in [
            (Kind::Question, "question"),
            (Kind::Order, "order 1"),
            (Kind::Order, "order 2"),
        ] {
            let (line, said) = (Arc::clone(&line), Arc::clone(&said));
            tasks.push(tokio::spawn(async move {
                let mut turn = line.turn(kind, LONG).await.unwrap();
                turn.answered();
                said.lock().unwrap().push(name);
            }));
        }
        let mut changes = line.queue.subscribe();
        let both = changes.wait_for(|queue| queue.orders_waiting == 2);
        drop(tokio::time::timeout(LONG, both).await.unwrap().unwrap());
        assert_eq!(line.turn(Kind::Poll, LONG).await.unwrap_err(), NotNow::Busy);
        first.answered();
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        let said = said.lock().unwrap();
        assert_eq!(said.len(), 3, "{said:?}");
        assert_eq!(said[2], "question", "{said:?}");
    }

    #[tokio::test]
    async fn who_waits_too_long_is_told_so_and_forgotten() {
        let line = Line::new(Clock::manual());
        let held = line.turn(Kind::Question, LONG).await.unwrap();
        let soon = Duration::from_millis(1);
        for kind in [Kind::Question, Kind::Order] {
            assert_eq!(line.turn(kind, soon).await.unwrap_err(), NotNow::Busy);
        }
        drop(held);
        assert_eq!(line.queue.borrow().orders_waiting, 0);
        assert!(line.turn(Kind::Order, soon).await.is_ok());
    }

    #[tokio::test]
    async fn after_a_time_out_there_is_a_pause_that_grows_and_ends() {
        let clock = Clock::manual();
        let line = Line::new(clock.clone());
        let mut pauses = Vec::new();
        for _ in 0..6 {
            drop(line.turn(Kind::Poll, LONG).await.unwrap());
            let Err(NotNow::Pause(pause)) = line.turn(Kind::Question, LONG).await else {
                panic!("no pause after {pauses:?}");
            };
            pauses.push(pause);
            clock.advance(pause + Duration::from_millis(1));
        }
        // A quarter at most is chance.
        assert!(pauses[0] <= Duration::from_secs(1), "{pauses:?}");
        assert!(Duration::from_millis(7500) <= pauses[5], "{pauses:?}");
        assert!(pauses[5] <= Duration::from_secs(10), "{pauses:?}");

        let mut turn = line.turn(Kind::Poll, LONG).await.unwrap();
        turn.answered();
        drop(turn);
        assert!(line.turn(Kind::Poll, LONG).await.is_ok());
    }

    /// Entering read-only is never delayed because a question was lost.
    #[tokio::test]
    async fn orders_are_held_back_by_lost_orders_only() {
        let line = Line::new(Clock::manual());
        drop(line.turn(Kind::Poll, LONG).await.unwrap());
        drop(line.turn(Kind::Order, LONG).await.unwrap());
        for kind in [Kind::Order, Kind::Question, Kind::Poll] {
            let refused = line.turn(kind, LONG).await.unwrap_err();
            assert!(matches!(refused, NotNow::Pause(_)), "{kind:?}: {refused:?}");
        }
    }
}
