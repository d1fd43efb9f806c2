//! A metadata store that is asked at a pace: one bucket of tokens for all that is asked of it, each step of a
//! transaction counted, and few calls under way. A scan of a million ledgers is nothing that the
//! bookies and brokers of the cluster should feel (pulsar #18128).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::store::{Answer, Changed, Kind, Link, MetaStore, Op, Stat, StoreError};

/// Calls under way at a time: enough to keep 200 a second up when an answer takes 80 ms.
const AT_ONCE: usize = 16;

/// The pace is this part of the limit: calls that leave at the pace may arrive a little closer together.
const OF_LIMIT: f64 = 0.975;

/// Wraps a store. Its calls wait for their turn, in the order in which they were made.
#[derive(Debug)]
pub struct Paced<S> {
    store: S,
    /// One tick for each call. Ticks that nobody waited for are lost, so that a pause is followed by no burst.
    turns: Mutex<Interval>,
    under_way: Semaphore,
    calls: AtomicU64,
}

impl<S: MetaStore> Paced<S> {
    /// At most `limit` calls a second, at least one. Needs a runtime.
    #[must_use]
    pub fn new(store: S, limit: u32) -> Paced<S> {
        let period = Duration::from_secs_f64(1.0 / (f64::from(limit.max(1)) * OF_LIMIT));
        let mut turns = interval(period);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Paced {
            store,
            turns: Mutex::new(turns),
            under_way: Semaphore::new(AT_ONCE),
            calls: AtomicU64::new(0),
        }
    }

    /// Calls made so far, steps of transactions counted one by one.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The store itself, for what must not wait.
    pub fn inner(&self) -> &S {
        &self.store
    }

    async fn paced<T>(&self, count: usize, call: Answer<'_, T>) -> Result<T, StoreError> {
        let _under_way = self.under_way.acquire().await;
        let mut turns = self.turns.lock().await;
        for _ in 0..count {
            turns.tick().await;
        }
        drop(turns);
        self.calls.fetch_add(count as u64, Ordering::Relaxed);
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
