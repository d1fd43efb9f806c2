//! Whether BookKeeper knows of ledgers with too few replicas: one node for each, four levels deep below
//! `underreplication/ledgers` (`LedgerUnderreplicationManager`). Folders above them may be left empty.

use std::collections::BTreeSet;

use super::paths::Paths;
use super::store::{MetaStore, StoreError, children_if_any, get_all};

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

/// Ledgers that BookKeeper waits to replicate because of one of these bookies, at most so many. Reads every such node: few
/// where all is well.
///
/// # Errors
/// One of them could not be read.
pub async fn lacking_on(
    store: &dyn MetaStore,
    ledgers_root: &str,
    bookies: &BTreeSet<String>,
    most: usize,
) -> Result<Vec<u64>, StoreError> {
    let mut walk = Walk::begin(ledgers_root);
    let mut found = Vec::new();
    while let Some(ledgers) = walk.next(store).await? {
        let paths: Vec<_> = ledgers.iter().map(|(_, path)| path.clone()).collect();
        for ((id, _), node) in ledgers.iter().zip(get_all(store, &paths).await?) {
            if node.is_some_and(|(bytes, _)| names_one(&bytes, bookies)) {
                found.push(*id);
            }
            if found.len() == most {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Ledgers that BookKeeper waits to replicate because of any bookie, at most so many.
///
/// # Errors
/// A folder could not be read.
pub async fn lacking(
    store: &dyn MetaStore,
    ledgers_root: &str,
    most: usize,
) -> Result<Vec<u64>, StoreError> {
    let mut walk = Walk::begin(ledgers_root);
    let mut found = Vec::new();
    while found.len() < most
        && let Some(ledgers) = walk.next(store).await?
    {
        found.extend(ledgers.into_iter().map(|(id, _)| id));
    }
    found.truncate(most);
    Ok(found)
}

/// A walk over the folders.
struct Walk {
    folders: Vec<String>,
}

impl Walk {
    fn begin(ledgers_root: &str) -> Walk {
        Walk {
            folders: vec![Paths::new(ledgers_root, "", "").under_replicated()],
        }
    }

    /// The ledgers of the next folder, each with its node; none at the end.
    async fn next(
        &mut self,
        store: &dyn MetaStore,
    ) -> Result<Option<Vec<(u64, String)>>, StoreError> {
        let Some(folder) = self.folders.pop() else {
            return Ok(None);
        };
        let mut ledgers = Vec::new();
        for child in children_if_any(store, &folder).await? {
            let path = format!("{folder}/{child}");
            match child.strip_prefix(LEDGER) {
                Some(id) => ledgers.extend(id.parse().ok().map(|id| (id, path))),
                None => self.folders.push(path),
            }
        }
        Ok(Some(ledgers))
    }
}

/// Whether the text (`UnderreplicatedLedgerFormat`: lines of `replica: "ID"`) names one of them. One that cannot be read
/// may.
fn names_one(bytes: &[u8], bookies: &BTreeSet<String>) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return true;
    };
    let quoted = text.split('"').skip(1).step_by(2);
    quoted.into_iter().any(|name| bookies.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::cluster::memory::Memory;
    use crate::cluster::store::{Kind, create_with_parents};

    #[tokio::test]
    async fn whose_ledgers_wait() {
        let store = Memory::new(Clock::manual()).connect();
        let top = "/ledgers/underreplication/ledgers";
        for (path, text) in [
            (
                "0000/0000/0000/0001/urL0000000001",
                "replica: \"a:1\"\nctime: 5\n",
            ),
            (
                "0000/0000/0000/0002/urL0000000002",
                "replica: \"b:1\"\nreplica: \"a:1\"\n",
            ),
            ("0000/0000/0000/0003/urL0000000003", "replica: \"aa:1\"\n"),
            ("0000/0000/0000/0004", ""),
        ] {
            let path = format!("{top}/{path}");
            let made = create_with_parents(&store, &path, text.as_bytes(), Kind::Persistent).await;
            made.unwrap();
        }
        let on = async |name: &str, most| {
            let bookies = BTreeSet::from([name.to_owned()]);
            let mut found = lacking_on(&store, "/ledgers", &bookies, most)
                .await
                .unwrap();
            found.sort_unstable();
            found
        };
        assert_eq!(on("a:1", 10).await, [1, 2]);
        assert_eq!(on("b:1", 10).await, [2]);
        assert_eq!(on("a", 10).await, [] as [u64; 0]);
        assert_eq!(on("a:1", 1).await.len(), 1);
        let mut all = lacking(&store, "/ledgers", 10).await.unwrap();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
        assert_eq!(lacking(&store, "/ledgers", 2).await.unwrap().len(), 2);
    }
}
