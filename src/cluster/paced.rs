//! A metadata store that is asked at a pace: one bucket of tokens for all that is asked of it, each step of a
//! transaction counted, and few calls under way. A scan of a million ledgers is nothing that the
//! bookies and brokers of the cluster should feel (pulsar #18128).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::store::{Answer, Changed, Kind, Link, MetaStore, Op, Stat, StoreError};
use crate::clock::Clock;
use crate::health::moment::Elapsed;

/// Calls under way at a time: enough to keep 200 a second up when an answer takes 80 ms.
const AT_ONCE: usize = 16;

/// The pace is this part of the limit: calls that leave at the pace may arrive a little closer together.
const OF_LIMIT: f64 = 0.985;

/// Wraps a store. Its calls wait for their turn, in the order in which they were made.
#[derive(Debug)]
pub struct Paced<S> {
    store: S,
    clock: Clock,
    pace: Mutex<Pace>,
    under_way: Semaphore,
    calls: AtomicU64,
}

/// Turns that nobody took can be taken afterwards, up to so many: a program that was busy for a moment keeps its rate, and
/// a pause is followed by no burst. With the pace they stay below the limit in every second.
const SAVED: u32 = 4;

/// One turn after the other.
#[derive(Debug)]
struct Pace {
    period: Duration,
    next: Elapsed,
}

impl Pace {
    fn new(limit: u32) -> Pace {
        Pace {
            period: Pace::period(limit),
            next: Elapsed::ZERO,
        }
    }

    fn period(limit: u32) -> Duration {
        Duration::from_secs_f64(1.0 / (f64::from(limit.max(1)) * OF_LIMIT))
    }

    /// How long a call that counts for so many has to wait: until the turn of the last of them.
    fn wait(&mut self, now: Elapsed, count: u32) -> Duration {
        let earliest = now.saturating_sub(self.period * SAVED);
        let turn = self.next.max(earliest) + self.period * count.saturating_sub(1);
        self.next = turn + self.period;
        turn.saturating_sub(now)
    }
}

impl<S: MetaStore> Paced<S> {
    /// At most `limit` calls a second, at least one.
    #[must_use]
    pub fn new(store: S, limit: u32, clock: Clock) -> Paced<S> {
        Paced {
            store,
            clock,
            pace: Mutex::new(Pace::new(limit)),
            under_way: Semaphore::new(AT_ONCE),
            calls: AtomicU64::new(0),
        }
    }

    /// From now on at most `limit` calls a second, at least one. Calls that have their turn already keep it.
    pub fn set_limit(&self, limit: u32) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.period = Pace::period(limit);
    }

    /// Calls made so far, steps of transactions counted one by one.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    async fn paced<T>(&self, count: usize, call: Answer<'_, T>) -> Result<T, StoreError> {
        let _under_way = self.under_way.acquire().await;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let wait = {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            pace.wait(self.clock.elapsed(), count)
        };
        tokio::time::sleep(wait).await;
        self.calls.fetch_add(count.into(), Ordering::Relaxed);
        call.await
    }
}

impl<S: MetaStore> MetaStore for Paced<S> {
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        Box::pin(self.paced(1, self.store.get(path)))
    }
    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Stat>> {
        Box::pin(self.paced(1, self.store.stat(path)))
    }
    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(self.paced(1, self.store.children(path)))
    }
    fn create<'a>(&'a self, path: &'a str, data: &'a [u8], kind: Kind) -> Answer<'a, Stat> {
        Box::pin(self.paced(1, self.store.create(path, data, kind)))
    }
    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], version: Option<i32>) -> Answer<'a, Stat> {
        Box::pin(self.paced(1, self.store.set(path, data, version)))
    }
    fn delete<'a>(&'a self, path: &'a str, version: Option<i32>) -> Answer<'a, ()> {
        Box::pin(self.paced(1, self.store.delete(path, version)))
    }
    fn multi<'a>(&'a self, ops: &'a [Op]) -> Answer<'a, ()> {
        Box::pin(self.paced(ops.len(), self.store.multi(ops)))
    }
    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<Stat>, Changed)> {
        Box::pin(self.paced(1, self.store.watch(path)))
    }
    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Changed)> {
        Box::pin(self.paced(1, self.store.watch_children(path)))
    }
    fn link(&self) -> watch::Receiver<Link> {
        self.store.link()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of calls that are made one after the other, after a pause.
    fn times(limit: u32, counts: &[u32]) -> Vec<(Elapsed, u32)> {
        let mut pace = Pace::new(limit);
        let mut now = Duration::from_secs(100);
        counts
            .iter()
            .map(|count| {
                now += pace.wait(now, *count);
                (now, *count)
            })
            .collect()
    }

    #[test]
    fn no_second_has_more_calls_than_the_limit() {
        // Reads, with a transaction of five steps now and then.
        let counts: Vec<_> = (0..2000).map(|n| if n % 50 == 7 { 5 } else { 1 }).collect();
        for limit in [1, 10, 200, 5000] {
            let made = times(limit, &counts);
            let second = |from: Elapsed| from..from + Duration::from_secs(1);
            let in_second = |from| {
                let inside = made.iter().filter(|(at, _)| second(from).contains(at));
                inside.map(|(_, count)| count).sum::<u32>()
            };
            let most = made.iter().map(|(at, _)| in_second(*at)).max().unwrap();
            // A transaction is told at once.
            assert!(
                most <= limit + 4 + limit / 50,
                "{most} calls in a second of {limit}"
            );
            let took = (made[1999].0 - made[0].0).as_secs_f64();
            let rate = f64::from(counts.iter().sum::<u32>()) / took;
            let limit = f64::from(limit);
            assert!(
                0.95 * limit < rate && rate < 1.001 * limit,
                "{rate} a second of {limit}"
            );
        }
    }

    #[test]
    fn a_pause_is_followed_by_no_burst() {
        let mut pace = Pace::new(10);
        let waits: Vec<_> = (0..7)
            .map(|_| pace.wait(Duration::from_secs(60), 1))
            .collect();
        assert_eq!(
            waits[..5],
            [Duration::ZERO; 5],
            "those that were saved, and its own"
        );
        assert!(
            Duration::from_millis(100) < waits[5],
            "and no more: {waits:?}"
        );
    }
}
