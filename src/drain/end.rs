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
}

impl Left {
    /// Nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.tasks == 0
            && self.ledgers == 0
            && self.unreadable.count == 0
            && self.lacking.is_empty()
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
    #[error("{bookie} is still registered: stop it first, and delete its cookie then")]
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
    Ok(left)
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
