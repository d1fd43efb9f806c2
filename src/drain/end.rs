//! The end of a job. That no task is left is not enough: all metadata is read once more, and nothing may name the bookies
//! any more. Cookies go by their version, and only when the bookies do not run.

use std::collections::BTreeSet;

use thiserror::Error;
use tokio::sync::watch;

use super::around::Place;
use super::job::{Job, JobError, Jobs, Progress, Status, fill, survey};
use super::plan::survey::Listed;
use crate::cluster::lacking_on;
use crate::cluster::store::{MetaStore, StoreError};

/// Ledgers that wait for BookKeeper's own replication and are listed.
const LISTED: usize = 1000;

/// What keeps the bookies from being stopped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Left {
    /// Tasks of the job with something left to do.
    pub tasks: u64,
    /// Those that are moved and locked for readers.
    pub held: u64,
    /// Ledgers that name one of the bookies.
    pub ledgers: u64,
    /// Those of them that had no task, and have one now.
    pub added: u64,
    /// Ledgers whose metadata is not understood, and may name them.
    pub unreadable: Listed<(u64, String)>,
    /// Ledgers that BookKeeper waits to replicate because of one of them.
    pub lacking: Vec<u64>,
    /// Those of the bookies that are writable, or were while the metadata was read: ledgers may name them that it does not
    /// show.
    pub writable: Vec<String>,
}

impl Left {
    /// Nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.tasks == 0
            && self.ledgers == 0
            && self.unreadable.count == 0
            && self.lacking.is_empty()
            && self.writable.is_empty()
    }
}

/// Why the end is not known.
#[derive(Debug, Error)]
pub enum EndError {
    /// The job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The store.
    #[error("cannot read {path}")]
    Store {
        /// Which node.
        path: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// It runs.
    #[error("{bookie} still runs: stop it first, and delete its cookie then")]
    Runs {
        /// Which bookie.
        bookie: String,
    },
}

/// Reads all metadata and says what is left. A ledger that names one of the bookies and has no task is given one (`execute`),
/// as one that was made while the bookies were still writable.
///
/// # Errors
/// Something cannot be read whole.
pub async fn left(
    store: &dyn MetaStore,
    place: &Place,
    jobs: &Jobs,
    job: &Job,
    execute: bool,
    progress: &watch::Sender<Progress>,
) -> Result<Left, EndError> {
    let root = &place.ledgers_root;
    let tasks = jobs.tasks_of(job, root);
    let mut left = Left::default();
    let before = registered(store, root, &job.bookies).await?;
    if execute && !job.phase.is_over() {
        let filled = fill(&tasks, store, root, &job.bookies, progress).await?;
        left.ledgers = filled.progress.named;
        left.added = filled.added;
        left.unreadable = filled.unreadable;
    } else {
        let survey = survey(store, root, &job.bookies, &BTreeSet::new(), progress).await?;
        left.ledgers = survey.ledgers;
        left.unreadable = survey.unreadable;
    }
    let counted = tasks.for_each(|stored| match stored.task.status {
        Status::Held => left.held += 1,
        _ => left.tasks += 1,
    });
    counted.await?;
    let lacking = lacking_on(store, root, &job.bookies, LISTED).await;
    left.lacking = lacking.map_err(|source| EndError::Store {
        path: format!("{root}/underreplication/ledgers"),
        source,
    })?;
    let after = registered(store, root, &job.bookies).await?;
    let both = job.bookies.iter().zip(before.into_iter().zip(after));
    let took = both.filter(|(_, (before, after))| may_have_taken(*before, *after));
    left.writable = took.map(|(bookie, _)| bookie.clone()).collect();
    Ok(left)
}

/// A bookie's nodes in the lists of writable and of read-only ones, each by the transaction that made it.
type Lists = (Option<i64>, Option<i64>);

async fn registered(
    store: &dyn MetaStore,
    root: &str,
    bookies: &BTreeSet<String>,
) -> Result<Vec<Lists>, EndError> {
    let stat = async |list: &str, bookie: &str| {
        let path = format!("{root}/{list}/{bookie}");
        let stat = store.stat(&path).await;
        let stat = stat.map_err(|source| EndError::Store { path, source })?;
        Ok::<_, EndError>(stat.map(|stat| stat.created))
    };
    let mut all = Vec::with_capacity(bookies.len());
    for bookie in bookies {
        let writable = stat("available", bookie).await?;
        all.push((writable, stat("available/readonly", bookie).await?));
    }
    Ok(all)
}

/// Whether a bookie may have been made part of a ledger between two looks. One that stopped meanwhile was not, and one that
/// came back came back writable.
fn may_have_taken(before: Lists, after: Lists) -> bool {
    let is_read_only = before.1 == after.1 || after.1.is_none();
    before.0.is_some() || after.0.is_some() || !is_read_only
}

/// Deletes the cookie of a bookie that was emptied and does not run, at the version at which that was seen. One that is gone
/// already is as good.
///
/// # Errors
/// It runs, or the store says why not.
pub async fn delete_cookie(
    store: &dyn MetaStore,
    place: &Place,
    bookie: &str,
) -> Result<(), EndError> {
    let root = &place.ledgers_root;
    let path = format!("{root}/cookies/{bookie}");
    let failed = |source| EndError::Store {
        path: path.clone(),
        source,
    };
    let Some(cookie) = store.stat(&path).await.map_err(failed)? else {
        return Ok(());
    };
    for list in ["available", "available/readonly"] {
        let path = format!("{root}/{list}/{bookie}");
        let there = store.stat(&path).await;
        if there
            .map_err(|source| EndError::Store { path, source })?
            .is_some()
        {
            let bookie = bookie.to_owned();
            return Err(EndError::Runs { bookie });
        }
    }
    match store.delete(&path, Some(cookie.version)).await {
        Ok(()) | Err(StoreError::NoNode) => Ok(()),
        Err(source) => Err(failed(source)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::clock::Clock;
    use crate::cluster::hooked::{Call, Fate, Hook, Hooked};
    use crate::cluster::memory::{Memory, MemorySession};
    use crate::cluster::store::{Kind, create_with_parents};
    use crate::drain::job::{Limits, New};

    const LISTS: [&str; 2] = ["available", "available/readonly"];

    /// The bookie stops, or starts anew as such a one, while the ledgers are read.
    struct Restarts(Arc<MemorySession>, Option<&'static str>, AtomicUsize);

    impl Hook for Restarts {
        fn before(&self, call: &Call<'_>) -> Fate {
            let is_walk = matches!(call, Call::Read("/ledgers/LAYOUT"));
            if is_walk && self.2.fetch_add(1, Ordering::Relaxed) == 0 {
                let session = Arc::clone(&self.0);
                session.expire();
                session.reconnect();
                if let Some(list) = self.1 {
                    let path = format!("/ledgers/{list}/b:1");
                    let mut made = session.create(&path, b"", Kind::Ephemeral);
                    let waker = std::task::Waker::noop();
                    let made = made
                        .as_mut()
                        .poll(&mut std::task::Context::from_waker(waker));
                    assert!(made.is_ready());
                }
            }
            Fate::Answered
        }
    }

    /// Whether nothing keeps the bookie from being stopped, as it is registered at first and from the middle on.
    async fn is_safe(before: Option<&str>, restarts: Option<Option<&'static str>>) -> bool {
        let server = Memory::new(Clock::manual());
        let (store, bookie) = (Arc::new(server.connect()), Arc::new(server.connect()));
        let layout = b"2\nx.HierarchicalLedgerManagerFactory:1";
        let persistent = Kind::Persistent;
        create_with_parents(&*store, "/ledgers/LAYOUT", layout, persistent)
            .await
            .unwrap();
        create_with_parents(&*store, "/ledgers/available/readonly", b"", persistent)
            .await
            .unwrap();
        if let Some(list) = before {
            let path = format!("/ledgers/{list}/b:1");
            bookie.create(&path, b"", Kind::Ephemeral).await.unwrap();
        }
        let count = AtomicUsize::new(usize::from(restarts.is_none()));
        let hook = Restarts(bookie, restarts.flatten(), count);
        let hooked: Arc<dyn MetaStore> = Arc::new(Hooked { store, hook });
        let jobs = Jobs::open(Arc::clone(&hooked), "/dirkeeper", "i");
        let new = New {
            bookies: BTreeSet::from(["b:1".to_owned()]),
            ..New::default()
        };
        let limits = Limits {
            max_bytes_per_second: 0,
            max_requests_per_second: 0,
            workers: 1,
        };
        let job = jobs.create(&new, &limits).await.unwrap();
        let place = Place {
            ledgers_root: "/ledgers".to_owned(),
            root: "/dirkeeper".to_owned(),
            instance: "i".to_owned(),
        };
        let progress = watch::Sender::new(Progress::default());
        let left = left(&*hooked, &place, &jobs, &job, true, &progress).await;
        left.unwrap().is_nothing()
    }

    #[tokio::test]
    async fn a_bookie_that_may_take_ledgers_is_not_safe_to_stop() {
        let [writable, read_only] = LISTS;
        assert!(is_safe(None, None).await);
        assert!(is_safe(Some(read_only), None).await);
        assert!(!is_safe(Some(writable), None).await);
        // It stopped meanwhile.
        assert!(is_safe(Some(read_only), Some(None)).await);
        assert!(!is_safe(Some(writable), Some(None)).await);
        // It was started again: it was writable for a moment.
        assert!(!is_safe(Some(read_only), Some(Some(writable))).await);
        assert!(!is_safe(Some(read_only), Some(Some(read_only))).await);
        assert!(!is_safe(None, Some(Some(read_only))).await);
    }
}
