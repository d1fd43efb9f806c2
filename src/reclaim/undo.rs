//! Makes a deleted ledger's node again, byte for byte, from the archive. That brings the entries back only as long as the
//! bookies have not collected them, which nobody can promise; so every bookie is asked what it still has.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use thiserror::Error;

use super::acting::Acting;
use super::failpoint::Failpoint;
use super::plan::LedgerId;
use super::state::StateError;
use super::state::marks::Archived;
use crate::cluster::ledger::{LedgerMetadata, LedgerState};
use crate::cluster::store::{Kind, StoreError, create_with_parents};

/// What an undo can be hoped to do, for people.
pub const HOPE: &str = "guaranteed for 0 s, probable for up to the bookies' gcWaitTime (15 minutes in Pulsar's package): each bookie \
                        deletes at its own time";

/// Which entries of a ledger a bookie has, as a question for each of them, or why it does not say.
pub type Has = Result<Box<dyn Fn(u64) -> bool + Send>, String>;

/// Asks bookies what they have.
pub trait Holders: Send + Sync {
    /// Which of these entries of a ledger a bookie still has.
    fn held<'a>(
        &'a self,
        bookie: &'a str,
        ledger: LedgerId,
        entries: Vec<u64>,
    ) -> Pin<Box<dyn Future<Output = Has> + Send + 'a>>;
}

/// What became of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It is there again.
    Again,
    /// It would be made.
    Would,
    /// It was there already, byte for byte.
    Already,
}

/// What an undo came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// Which ledger.
    pub id: LedgerId,
    /// Its node.
    pub path: String,
    /// What became of that.
    pub made: Made,
    /// Each bookie that should have entries.
    pub replicas: Vec<Replica>,
    /// Nobody knows where it ends: entries cannot be counted.
    pub is_open: bool,
}

/// The entries of a ledger on one bookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// The bookie.
    pub bookie: String,
    /// How many should be there.
    pub entries: u64,
    /// How many are not, or why that is not known.
    pub lost: Result<u64, String>,
}

impl Undone {
    /// Every replica of every entry is known to be there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.is_open && self.replicas.iter().all(|replica| replica.lost == Ok(0))
    }
}

/// Why nothing was undone.
#[derive(Debug, Error)]
pub enum UndoError {
    /// It was never deleted by us.
    #[error("ledger {id} is not in the archive, which keeps what was deleted for 30 days")]
    NotArchived {
        /// Which.
        id: LedgerId,
    },
    /// Something else is there.
    #[error("{path} is there and is not what was deleted: nothing was changed")]
    InTheWay {
        /// The node.
        path: String,
    },
    /// The lock.
    #[error("the lock of reclaim is not held")]
    NotLeader,
    /// The answer was lost.
    #[error("the answer to making {path} was lost: run it again")]
    Unanswered {
        /// The node.
        path: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The store.
    #[error("cannot make {path} again")]
    Store {
        /// The node.
        path: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// What is remembered.
    #[error("cannot remember what is done")]
    State(#[from] StateError),
}

/// Makes the node again if nothing is in its place, and asks what is left of the entries.
///
/// # Errors
/// Nothing was changed, unless the answer was lost.
pub async fn undo(
    acting: &Acting<'_>,
    id: LedgerId,
    holders: Option<&dyn Holders>,
    execute: bool,
) -> Result<Undone, UndoError> {
    let archived = acting
        .state
        .archived(id)?
        .ok_or(UndoError::NotArchived { id })?;
    let path = archived.mark.node.path.clone();
    let failed = |source| UndoError::Store {
        path: path.clone(),
        source,
    };
    let made = match acting.ledgers.store.get(&path).await {
        Ok((bytes, _)) if bytes == archived.mark.node.bytes => Made::Already,
        Ok(_) => return Err(UndoError::InTheWay { path }),
        Err(StoreError::NoNode) if execute => Made::Again,
        Err(StoreError::NoNode) => Made::Would,
        Err(source) => return Err(failed(source)),
    };
    acting.failpoints.reach(Failpoint::UndoChecked).await;
    if made == Made::Again {
        make(acting, &archived, &path).await?;
        acting.failpoints.reach(Failpoint::UndoCreated).await;
    }
    if execute && archived.undone_at.is_none() {
        let why = match made {
            Made::Already => "it was there already",
            _ => "its node was made again",
        };
        acting.state.undone(&archived, why, acting.now())?;
        acting.failpoints.reach(Failpoint::UndoDurable).await;
    }
    let (replicas, is_open) = match LedgerMetadata::decode(&archived.mark.node.bytes) {
        Ok(metadata) => (
            replicas(id, &metadata, holders).await,
            metadata.state != LedgerState::Closed,
        ),
        // It was understood when it was marked.
        Err(_) => (Vec::new(), true),
    };
    Ok(Undone {
        id,
        path,
        made,
        replicas,
        is_open,
    })
}

async fn make(acting: &Acting<'_>, archived: &Archived, path: &str) -> Result<(), UndoError> {
    if !(acting.is_leader)() {
        return Err(UndoError::NotLeader);
    }
    let store = &*acting.ledgers.store;
    let bytes = &archived.mark.node.bytes;
    let path = path.to_owned();
    match create_with_parents(store, &path, bytes, Kind::Persistent).await {
        Ok(_) => Ok(()),
        Err(StoreError::NodeExists) => Err(UndoError::InTheWay { path }),
        Err(source) if source.is_open() => Err(UndoError::Unanswered { path, source }),
        Err(source) => Err(UndoError::Store { path, source }),
    }
}

/// Asks each bookie about the entries that striping gives it. Of a ledger that is not closed about those before
/// its last segment: nobody knows where that one ends.
async fn replicas(
    id: LedgerId,
    metadata: &LedgerMetadata,
    holders: Option<&dyn Holders>,
) -> Vec<Replica> {
    let mut ranges = BTreeMap::<&str, Vec<(u64, u64, usize)>>::new();
    let segments = &metadata.segments;
    for (number, segment) in segments.iter().enumerate() {
        let end = match segments.get(number + 1) {
            Some(next) => next.first_entry,
            None => metadata.last_entry.map_or(0, |last| last + 1),
        };
        for (index, member) in segment.members.iter().enumerate() {
            let range = (segment.first_entry, end, index);
            ranges.entry(member).or_default().push(range);
        }
    }
    let size = u64::from(metadata.ensemble_size);
    let quorum = u64::from(metadata.write_quorum);
    // Entry e goes to the members (e + 0) to (e + quorum - 1), counted around.
    let is_on = |entry: u64, index: usize| (index as u64 + size - entry % size) % size < quorum;
    let mut replicas = Vec::with_capacity(ranges.len());
    for (bookie, ranges) in ranges {
        let of = |(first, end, index): &(u64, u64, usize)| {
            let index = *index;
            (*first..*end).filter(move |entry| is_on(*entry, index))
        };
        let entries = || ranges.iter().flat_map(of);
        let count = entries().count() as u64;
        let has = match holders {
            Some(holders) => holders.held(bookie, id, entries().collect()).await,
            None => Err("no bookie was asked".to_owned()),
        };
        let lost = has.map(|has| entries().filter(|entry| !has(*entry)).count() as u64);
        replicas.push(Replica {
            bookie: bookie.to_owned(),
            entries: count,
            lost,
        });
    }
    replicas
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::stage::now;
    use crate::reclaim::stage::wire;

    /// Bookies that have the entries below a number.
    struct Below(&'static [(&'static str, u64)]);

    impl Holders for Below {
        fn held<'a>(
            &'a self,
            bookie: &'a str,
            _: LedgerId,
            _: Vec<u64>,
        ) -> Pin<Box<dyn Future<Output = Has> + Send + 'a>> {
            let end = self.0.iter().find(|(name, _)| *name == bookie);
            let has: Has = match end {
                Some((_, end)) => Ok(Box::new(move |entry| entry < *end)),
                None => Err("it does not answer".to_owned()),
            };
            Box::pin(async move { has })
        }
    }

    #[test]
    fn what_is_left_of_entries() {
        // Ten entries, each on two of three bookies: 0 on 1 and 2, 1 on 2 and 3, 2 on 3 and 1, and so on.
        let metadata = LedgerMetadata::decode(&wire::ledger(&[])).unwrap();
        let told = |holders: Option<&dyn Holders>| {
            let replicas = now(replicas(1, &metadata, holders)).unwrap();
            let told = replicas.iter().map(|replica| match &replica.lost {
                Ok(lost) => format!("{} {lost} of {}", replica.bookie, replica.entries),
                Err(why) => format!("{} {}: {why}", replica.bookie, replica.entries),
            });
            let undone = Undone {
                id: 1,
                path: String::new(),
                made: Made::Again,
                is_open: false,
                replicas: replicas.clone(),
            };
            format!(
                "{}, whole: {}",
                told.collect::<Vec<_>>().join(", "),
                undone.is_whole()
            )
        };
        let all = Below(&[("b:1", 10), ("b:2", 10), ("b:3", 10)]);
        insta::assert_snapshot!(told(Some(&all)), @"b:1 0 of 7, b:2 0 of 7, b:3 0 of 6, whole: true");
        let some = Below(&[("b:1", 9), ("b:3", 0)]);
        insta::assert_snapshot!(told(Some(&some)), @"b:1 1 of 7, b:2 7: it does not answer, b:3 6 of 6, whole: false");
        insta::assert_snapshot!(told(None), @"b:1 7: no bookie was asked, b:2 7: no bookie was asked, b:3 6: no bookie was asked, whole: false");
    }
}
