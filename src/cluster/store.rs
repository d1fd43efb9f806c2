//! The metadata store as the rooms that need one see it: a tree of small nodes with versions, nodes that
//! go with their session, transactions and one-shot watches. ZooKeeper is the real one, `memory` the one
//! for tests; `contract.rs` holds both to the same words.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use thiserror::Error;
use tokio::sync::watch;

use crate::health::moment::Elapsed;

/// What a call comes to. The call is under way once this is polled; dropping it takes nothing back.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Ends when what was watched changed, or the session with which it was watched ended.
pub type Changed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Calls under way at a time when many nodes are read: enough to hide the way to the server, few enough
/// to leave its queue to the bookies.
pub const READS_AT_ONCE: usize = 64;

/// What a store says about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// Rises by one with each change of the data.
    pub version: i32,
    /// The transaction that made the node: another node of the same name has another.
    pub created: i64,
    /// When that was, in milliseconds since 1970 by the store's clock.
    pub created_at: i64,
    /// The session with which it goes; none when it stays.
    pub owner: Option<i64>,
    /// How many children it has.
    pub children: u32,
    /// When its data was written last, in milliseconds by the store's clock. Only compared with others of the store.
    pub modified: i64,
}

/// How long a node lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Until somebody deletes it.
    Persistent,
    /// Until the session of its creator ends.
    Ephemeral,
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// The node is there in this version.
    Check {
        /// Of which node.
        path: String,
        /// The version it must have.
        version: i32,
    },
    /// Makes a node.
    Create {
        /// Where.
        path: String,
        /// What it holds.
        data: Vec<u8>,
        /// How long it lives.
        kind: Kind,
    },
    /// Replaces the data.
    Set {
        /// Of which node.
        path: String,
        /// By what.
        data: Vec<u8>,
        /// The version it must have; any if none.
        version: Option<i32>,
    },
    /// Takes a node away.
    Delete {
        /// Which.
        path: String,
        /// The version it must have; any if none.
        version: Option<i32>,
    },
}

/// The session as the store sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// No server is reached, since then. The session may still live, and its nodes with it.
    Lost {
        /// When that began.
        since: Elapsed,
    },
    /// A server answers in this session. Another number: the one before ended, and its nodes are gone.
    Connected(i64),
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The node, or its parent when one is made, is not there.
    #[error("there is no such node")]
    NoNode,
    /// It is there already.
    #[error("the node is there already")]
    NodeExists,
    /// It has another version.
    #[error("the node has another version")]
    BadVersion,
    /// It has children.
    #[error("the node has children")]
    NotEmpty,
    /// The parent goes with its session.
    #[error("a node that goes with its session can have no children")]
    EphemeralParent,
    /// The server refuses.
    #[error("the server does not allow it (ACL)")]
    NoAuth,
    /// No server is reached. Whether the call took effect is not known.
    #[error("there is no connection")]
    Lost,
    /// The session ended meanwhile. Whether the call took effect is not known.
    #[error("the session ended")]
    Expired,
    /// No answer within the deadline. Whether the call took effect, or still will, is not known.
    #[error("there was no answer in time")]
    TimedOut,
    /// A step of a transaction, and with it all of them.
    #[error("step {at} of the transaction failed")]
    Step {
        /// Counted from 0.
        at: usize,
        /// Why.
        #[source]
        source: Box<StoreError>,
    },
    /// Something else, in the words of the store.
    #[error("{0}")]
    Other(String),
}

impl StoreError {
    /// The call may have taken effect all the same, or may yet.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(
            self,
            StoreError::Lost | StoreError::Expired | StoreError::TimedOut | StoreError::Other(_)
        )
    }
}

/// A tree of nodes, seen through one session that is renewed when it ends. Paths are absolute, without a
/// final slash. No call has a deadline of its own, and none is made twice.
pub trait MetaStore: Send + Sync + 'static {
    /// Data and stat of a node.
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)>;
    /// The stat of a node; none where there is no node.
    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Stat>>;
    /// The names of a node's children, in no order.
    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>>;
    /// Makes a node below one that is there.
    fn create<'a>(&'a self, path: &'a str, data: &'a [u8], kind: Kind) -> Answer<'a, Stat>;
    /// Replaces the data of a node, if it has that version.
    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], version: Option<i32>) -> Answer<'a, Stat>;
    /// Deletes a node without children, if it has that version.
    fn delete<'a>(&'a self, path: &'a str, version: Option<i32>) -> Answer<'a, ()>;
    /// All steps or none.
    fn multi<'a>(&'a self, ops: &'a [Op]) -> Answer<'a, ()>;
    /// The stat now, and when the node is made, deleted or given other data.
    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<Stat>, Changed)>;
    /// The children now, and when one comes or goes.
    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Changed)>;
    /// The session, now and later.
    fn link(&self) -> watch::Receiver<Link>;
}

/// Makes a node and every node above it that is missing; those stay.
///
/// # Errors
/// As [`MetaStore::create`].
pub async fn create_with_parents(
    store: &dyn MetaStore,
    path: &str,
    data: &[u8],
    kind: Kind,
) -> Result<Stat, StoreError> {
    match store.create(path, data, kind).await {
        Err(StoreError::NoNode) => {}
        other => return other,
    }
    let ends = path.match_indices('/').map(|(at, _)| at);
    for end in ends.filter(|end| 0 < *end) {
        match store.create(&path[..end], &[], Kind::Persistent).await {
            Ok(_) | Err(StoreError::NodeExists) => {}
            // Who may not make a node that is there already is refused before it is looked for.
            Err(StoreError::NoAuth) if store.stat(&path[..end]).await?.is_some() => {}
            Err(error) => return Err(error),
        }
    }
    store.create(path, data, kind).await
}

/// The children of a node; none where there is no node.
///
/// # Errors
/// As [`MetaStore::children`], but for [`StoreError::NoNode`].
pub async fn children_if_any(store: &dyn MetaStore, path: &str) -> Result<Vec<String>, StoreError> {
    match store.children(path).await {
        Err(StoreError::NoNode) => Ok(Vec::new()),
        other => other,
    }
}

/// Data and stat of many nodes, in their order; none for those that went meanwhile.
///
/// # Errors
/// The first that is not [`StoreError::NoNode`].
pub async fn get_all(
    store: &dyn MetaStore,
    paths: &[String],
) -> Result<Vec<Option<(Vec<u8>, Stat)>>, StoreError> {
    let mut all = Vec::with_capacity(paths.len());
    for some in paths.chunks(READS_AT_ONCE) {
        let answers = together(some.iter().map(|path| store.get(path)).collect()).await;
        for answer in answers {
            all.push(match answer {
                Ok(found) => Some(found),
                Err(StoreError::NoNode) => None,
                Err(error) => return Err(error),
            });
        }
    }
    Ok(all)
}

/// Waits for a few calls at once; what they came to is in their order.
pub async fn together<T>(calls: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    let mut slots: Vec<_> = calls.into_iter().map(|call| (Some(call), None)).collect();
    poll_fn(|context| {
        let mut waiting = false;
        for (call, answer) in &mut slots {
            if let Some(running) = call {
                match running.as_mut().poll(context) {
                    Poll::Ready(result) => (*call, *answer) = (None, Some(result)),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    slots.into_iter().filter_map(|(_, answer)| answer).collect()
}
