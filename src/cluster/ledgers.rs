//! A walk over all ledgers of a cluster, a few at a time, so that a million of them need no memory: depth first, and what
//! waits is one list of names for each level. Ledgers that come while it goes on may be missed, and those that go
//! are left out.

use std::pin::Pin;
use std::time::Duration;

use thiserror::Error;
use tokio::time::timeout;

use super::ledger::{Layout, LayoutError};
use super::store::{Answer, Link, MetaStore, READS_AT_ONCE, Stat, StoreError, together};

/// How often a node is asked for while the store is in reach.
const TRIES: u32 = 6;

/// Between two tries: a short trouble is over by then.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// How long a store may be out of reach: an election or a rolling restart of its servers is over by then.
const PATIENCE: Duration = Duration::from_secs(300);

/// Why a walk ended early. Nothing may be concluded from it then.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WalkError {
    /// The store.
    #[error("cannot read {path}")]
    Store {
        /// Which node.
        path: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The layout.
    #[error("cannot tell where ledgers are")]
    Layout(#[from] LayoutError),
}

/// A ledger's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerNode {
    /// The ledger.
    pub id: u64,
    /// Its metadata.
    pub bytes: Vec<u8>,
}

/// One of several reads at once.
type Read<'a> =
    Pin<Box<dyn Future<Output = Result<Option<(Vec<u8>, Stat)>, WalkError>> + Send + 'a>>;

/// A pass over all ledgers.
pub struct Walk<'a> {
    store: &'a dyn MetaStore,
    root: String,
    layout: Layout,
    between_tries: Duration,
    /// Folders that are not read yet, below the root.
    folders: Vec<String>,
    /// Ledgers of the folder that was read last.
    ids: Vec<u64>,
}

impl std::fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a walk over the ledgers in {}", self.root)
    }
}

impl<'a> Walk<'a> {
    /// A pass over the ledgers below that root. Nothing is read yet but its layout.
    ///
    /// # Errors
    /// It cannot be told where ledgers are.
    pub async fn begin(store: &'a dyn MetaStore, root: &str) -> Result<Walk<'a>, WalkError> {
        let root = root.trim_end_matches('/').to_owned();
        let path = format!("{root}/LAYOUT");
        let mut walk = Walk {
            store,
            root,
            layout: Layout::Hierarchical,
            between_tries: BETWEEN_TRIES,
            folders: vec![String::new()],
            ids: Vec::new(),
        };
        let (bytes, _) = walk
            .patiently(&path, || store.get(&path))
            .await?
            .ok_or_else(|| {
                let source = StoreError::NoNode;
                WalkError::Store {
                    path: path.clone(),
                    source,
                }
            })?;
        walk.layout = Layout::parse(&bytes)?;
        Ok(walk)
    }

    /// The next few ledgers, at most [`READS_AT_ONCE`]; none at the end. May be none of a few that all went meanwhile.
    ///
    /// # Errors
    /// Something could not be read.
    pub async fn next(&mut self) -> Result<Option<Vec<LedgerNode>>, WalkError> {
        while self.ids.is_empty() {
            let Some(folder) = self.folders.pop() else {
                return Ok(None);
            };
            self.folder(&folder).await?;
        }
        let from = self.ids.len().saturating_sub(READS_AT_ONCE);
        let ids = self.ids.split_off(from);
        // A list of a large folder is not kept for the last few.
        if self.ids.is_empty() {
            self.ids = Vec::new();
        }
        let read = |id: u64| -> Read<'_> { Box::pin(self.ledger(id)) };
        let answers = together(ids.iter().map(|id| read(*id)).collect()).await;
        let mut nodes = Vec::with_capacity(ids.len());
        for (id, answer) in ids.into_iter().zip(answers) {
            if let Some((bytes, _)) = answer? {
                nodes.push(LedgerNode { id, bytes });
            }
        }
        Ok(Some(nodes))
    }

    async fn folder(&mut self, folder: &str) -> Result<(), WalkError> {
        let path = format!("{}{folder}", self.root);
        let store = self.store;
        let names = self.patiently(&path, || store.children(&path)).await?;
        // A folder goes with its last ledger.
        for name in names.unwrap_or_default() {
            let child = format!("{folder}/{name}");
            if let Some(id) = self.layout.id(&child[1..]) {
                self.ids.push(id);
            } else if self.layout.is_above(&child[1..]) {
                self.folders.push(child);
            }
        }
        Ok(())
    }

    async fn ledger(&self, id: u64) -> Result<Option<(Vec<u8>, Stat)>, WalkError> {
        let Some(below) = self.layout.path(id) else {
            return Ok(None);
        };
        let path = format!("{}/{below}", self.root);
        self.patiently(&path, || self.store.get(&path)).await
    }

    /// None for what is gone. A lost connection or an ended session is waited for: a read is none the worse for it.
    async fn patiently<'p, T>(
        &self,
        path: &str,
        read: impl Fn() -> Answer<'p, T>,
    ) -> Result<Option<T>, WalkError> {
        let failed = |source| WalkError::Store {
            path: path.to_owned(),
            source,
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let source = match read().await {
                Ok(found) => return Ok(Some(found)),
                Err(StoreError::NoNode) => return Ok(None),
                Err(source) => source,
            };
            if tries == TRIES || !source.is_open() {
                return Err(failed(source));
            }
            if 1 < tries {
                tokio::time::sleep(self.between_tries).await;
            }
            let mut link = self.store.link();
            let back = link.wait_for(|link| matches!(link, Link::Connected(_)));
            if timeout(PATIENCE, back).await.is_err() {
                return Err(failed(source));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::hooked::{Call, Fate, Hook, Hooked};
    use super::super::memory::Memory;
    use super::super::store::{Kind, create_with_parents};
    use super::*;
    use crate::clock::Clock;

    async fn put(store: &dyn MetaStore, path: &str) {
        let made = create_with_parents(store, path, b"x", Kind::Persistent).await;
        made.unwrap();
    }

    async fn walked(store: &dyn MetaStore) -> Result<Vec<u64>, WalkError> {
        let mut walk = Walk::begin(store, "/ledgers/").await?;
        walk.between_tries = Duration::ZERO;
        let mut ids = Vec::new();
        while let Some(nodes) = walk.next().await? {
            assert!(nodes.len() <= READS_AT_ONCE);
            assert!(nodes.iter().all(|node| node.bytes == b"x"));
            ids.extend(nodes.iter().map(|node| node.id));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    #[tokio::test]
    async fn every_ledger_of_every_layout_and_nothing_else() {
        for (class, layout) in [
            ("Flat", Layout::Flat),
            ("LegacyHierarchical", Layout::LegacyHierarchical),
            ("LongHierarchical", Layout::LongHierarchical),
            ("Hierarchical", Layout::Hierarchical),
        ] {
            let store = Memory::new(Clock::manual()).connect();
            let text = format!("2\nx.{class}LedgerManagerFactory:1");
            let path = "/ledgers/LAYOUT";
            let made = create_with_parents(&store, path, text.as_bytes(), Kind::Persistent).await;
            made.unwrap();
            let few = (0..200).map(|nth| nth * 997);
            let ids: Vec<u64> = few.chain([i32::MAX as u64 - 1, 1 << 50]).collect();
            let ids: Vec<_> = ids
                .into_iter()
                .filter(|id| layout.path(*id).is_some())
                .collect();
            for id in &ids {
                put(&store, &format!("/ledgers/{}", layout.path(*id).unwrap())).await;
            }
            for other in [
                "offline_ledgers/5",
                "underreplication/ledgers/0000/0000/0000/0000/urL0000000001",
                "available/readonly/b:1",
                "idgen-long/HOB-0000000000",
            ] {
                put(&store, &format!("/ledgers/{other}")).await;
            }
            assert_eq!(walked(&store).await.unwrap(), ids, "{class}");
        }
    }

    /// Answers get lost, so many of each few.
    struct Loses(AtomicUsize, usize);

    impl Hook for Loses {
        fn before(&self, _: &Call<'_>) -> Fate {
            match self.0.fetch_add(1, Ordering::SeqCst) % 5 < self.1 {
                true => Fate::Lost,
                false => Fate::Answered,
            }
        }
    }

    #[tokio::test]
    async fn lost_answers_are_asked_for_again_and_not_for_ever() {
        let store: Arc<dyn MetaStore> = Arc::new(Memory::new(Clock::manual()).connect());
        let text = b"2\nx.HierarchicalLedgerManagerFactory:1";
        let made = create_with_parents(&*store, "/ledgers/LAYOUT", text, Kind::Persistent).await;
        made.unwrap();
        put(&*store, "/ledgers/00/0000/L0001").await;
        let losing = |some| Hooked {
            store: store.clone(),
            hook: Loses(AtomicUsize::new(4), some),
        };
        assert_eq!(walked(&losing(2)).await, Ok(vec![1]));
        let (whole, never) = (losing(0), losing(5));
        let mut walk = Walk::begin(&whole, "/ledgers").await.unwrap();
        walk.store = &never;
        walk.between_tries = Duration::ZERO;
        let path = "/ledgers".to_owned();
        let source = StoreError::Lost;
        assert_eq!(walk.next().await, Err(WalkError::Store { path, source }));
        assert_eq!(never.hook.0.load(Ordering::SeqCst), 4 + TRIES as usize);
    }
}
