//! Reads that outlive a lost connection or an ended session for a bounded time, and then say in one sentence which
//! node was in the way. Counts what is asked.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use super::ScanError;
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::cluster::store::{
    Answer, Link, MetaStore, Op, READS_AT_ONCE, Stat, StoreError, together,
};

/// How often a node is asked for while the store is in reach. One that is larger than the connection allows ends it each time.
const TRIES: u32 = 6;

/// From this try on a node is asked for while no other such node is, so that one that breaks the connection is
/// not mistaken for those that were under way beside it.
const ALONE: u32 = 3;

/// Waits between two tries: at once after a short trouble, and no storm on a store that comes back.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A way to stores.
pub(in crate::reclaim) struct Reach<'a> {
    pub(in crate::reclaim) clock: &'a Clock,
    patience: Duration,
    calls: AtomicU64,
    alone: Mutex<()>,
}

/// One of many reads at once.
type Read<'a, T> = Pin<Box<dyn Future<Output = Result<T, ScanError>> + Send + 'a>>;

impl<'a> Reach<'a> {
    pub(in crate::reclaim) fn new(clock: &'a Clock, patience: Duration) -> Reach<'a> {
        Reach {
            clock,
            patience,
            calls: AtomicU64::new(0),
            alone: Mutex::new(()),
        }
    }

    /// Calls so far.
    pub(in crate::reclaim) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Data and stat; none where there is no node.
    pub(in crate::reclaim) async fn get(
        &self,
        store: &dyn MetaStore,
        path: &str,
    ) -> Result<Option<(Vec<u8>, Stat)>, ScanError> {
        match self.asked(store, path, || store.get(path)).await? {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::NoNode) => Ok(None),
            Err(source) => Err(refused(path, source)),
        }
    }

    /// Has the server know all that was written before, as [`Acting::settle`](crate::reclaim::acting::Acting) does.
    pub(in crate::reclaim) async fn settle(
        &self,
        store: &dyn MetaStore,
        path: &str,
    ) -> Result<(), ScanError> {
        let check = [Op::Check {
            path: path.to_owned(),
            version: 0,
        }];
        match self.asked(store, path, || store.multi(&check)).await? {
            Ok(()) | Err(StoreError::Step { .. }) => Ok(()),
            Err(source) => Err(refused(path, source)),
        }
    }

    /// The names of the children, in their order; none where there is no node.
    pub(in crate::reclaim) async fn children(
        &self,
        store: &dyn MetaStore,
        path: &str,
    ) -> Result<Vec<String>, ScanError> {
        match self.asked(store, path, || store.children(path)).await? {
            Ok(mut names) => {
                names.sort_unstable();
                Ok(names)
            }
            Err(StoreError::NoNode) => Ok(Vec::new()),
            Err(source) => Err(refused(path, source)),
        }
    }

    /// As [`Reach::get`], of many, in their order.
    pub(in crate::reclaim) async fn get_all(
        &self,
        store: &dyn MetaStore,
        paths: &[String],
    ) -> Result<Vec<Option<(Vec<u8>, Stat)>>, ScanError> {
        let mut all = Vec::with_capacity(paths.len());
        for some in paths.chunks(READS_AT_ONCE) {
            let reads = some
                .iter()
                .map(|path| -> Read<'_, _> { Box::pin(self.get(store, path)) });
            for read in together(reads.collect()).await {
                all.push(read?);
            }
        }
        Ok(all)
    }

    /// As [`Reach::children`], of a few, in their order.
    pub(in crate::reclaim) async fn children_all(
        &self,
        store: &dyn MetaStore,
        paths: &[String],
    ) -> Result<Vec<Vec<String>>, ScanError> {
        let mut all = Vec::with_capacity(paths.len());
        for some in paths.chunks(READS_AT_ONCE) {
            let reads = some
                .iter()
                .map(|path| -> Read<'_, _> { Box::pin(self.children(store, path)) });
            for read in together(reads.collect()).await {
                all.push(read?);
            }
        }
        Ok(all)
    }

    /// Asks until there is an answer, be it a refusal.
    async fn asked<'s, T>(
        &self,
        store: &'s dyn MetaStore,
        path: &str,
        ask: impl Fn() -> Answer<'s, T>,
    ) -> Result<Result<T, StoreError>, ScanError> {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        for tries in 1.. {
            let _alone = match ALONE < tries {
                true => Some(self.alone.lock().await),
                false => None,
            };
            self.calls.fetch_add(1, Ordering::Relaxed);
            let source = match ask().await {
                Err(source) if is_passing(&source) => source,
                answer => return Ok(answer),
            };
            if TRIES <= tries {
                return Err(ScanError::NoAnswer {
                    path: path.to_owned(),
                    tries,
                    source,
                });
            }
            if 1 < tries {
                let wait = backoff.next_wait(fastrand::f64());
                tokio::time::sleep(wait.min(self.patience)).await;
            }
            let mut link = store.link();
            let back = link.wait_for(|link| matches!(link, Link::Connected(_)));
            if timeout(self.patience, back).await.is_err() {
                return Err(ScanError::Unreachable {
                    path: path.to_owned(),
                    seconds: self.patience.as_secs(),
                    source,
                });
            }
        }
        unreachable!("the number of tries is bounded")
    }
}

/// The connection's trouble, which passes, and no word about the node.
fn is_passing(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Lost | StoreError::Expired | StoreError::TimedOut
    )
}

fn refused(path: &str, source: StoreError) -> ScanError {
    ScanError::Store {
        path: path.to_owned(),
        source,
    }
}
