//! Whether BookKeeper knows of ledgers with too few replicas: one node for each, four levels deep below
//! `underreplication/ledgers` (`LedgerUnderreplicationManager`). Folders above them may be left empty.

use super::paths::Paths;
use super::store::{MetaStore, StoreError, children_if_any};

/// Names of ledgers; everything else in there is a folder.
const LEDGER: &str = "urL";

/// Folders that are looked into at most. Empty ones are removed with their last ledger, so that many
/// mean that there are ledgers, too.
const FOLDERS: usize = 1000;

/// There is at least one ledger with too few replicas.
///
/// # Errors
/// A folder could not be read.
pub(super) async fn is_lacking(store: &dyn MetaStore, paths: &Paths) -> Result<bool, StoreError> {
    let mut folders = vec![paths.under_replicated()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        let children = children_if_any(store, &folder).await?;
        seen += 1;
        if FOLDERS < seen || children.iter().any(|child| child.starts_with(LEDGER)) {
            return Ok(true);
        }
        folders.extend(children.iter().map(|child| format!("{folder}/{child}")));
    }
    Ok(false)
}
