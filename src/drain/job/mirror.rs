//! The tasks of a job once more, as the proposal for BookKeeper has them: one empty node for each ledger in
//! `offline_ledgers`, for people and scripts that look there. It is one folder, and BookKeeper warns of it in flat layouts, so
//! nothing here depends on it.

use std::pin::Pin;

use super::document::Task;
use super::jobs::{JobError, failed};
use crate::cluster::store::{
    Kind, MetaStore, READS_AT_ONCE, Stat, StoreError, create_with_parents, together,
};

/// The folder.
#[derive(Debug, Clone)]
pub(super) struct Mirror {
    top: String,
}

/// One of several nodes that are made at once.
type Made<'a> = Pin<Box<dyn Future<Output = Result<Stat, StoreError>> + Send + 'a>>;

impl Mirror {
    pub(super) fn below(ledgers_root: &str) -> Mirror {
        let root = ledgers_root.trim_end_matches('/');
        Mirror {
            top: format!("{root}/offline_ledgers"),
        }
    }

    fn path(&self, ledger: u64) -> String {
        format!("{}/{ledger}", self.top)
    }

    /// Shows those that are not shown yet.
    pub(super) async fn show(&self, store: &dyn MetaStore, tasks: &[Task]) -> Result<(), JobError> {
        for some in tasks.chunks(READS_AT_ONCE) {
            let paths: Vec<_> = some.iter().map(|task| self.path(task.ledger)).collect();
            let made = paths.iter().map(|path| -> Made<'_> {
                Box::pin(create_with_parents(store, path, &[], Kind::Persistent))
            });
            for (made, path) in together(made.collect()).await.into_iter().zip(&paths) {
                match made {
                    Ok(_) | Err(StoreError::NodeExists) => {}
                    Err(source) => return Err(failed(path, source)),
                }
            }
        }
        Ok(())
    }

    /// Shows one no more.
    pub(super) async fn hide(&self, store: &dyn MetaStore, ledger: u64) -> Result<(), JobError> {
        let path = self.path(ledger);
        match store.delete(&path, None).await {
            Ok(()) | Err(StoreError::NoNode) => Ok(()),
            Err(source) => Err(failed(&path, source)),
        }
    }
}
