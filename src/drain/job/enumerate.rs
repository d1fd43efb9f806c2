//! One pass over the metadata of all ledgers, for what it says of the bookies that are to be emptied. Nothing is kept of a
//! ledger that was looked at, so that a million of them need no more memory than a few. Takes as long as the store lets
//! it: hand it one at a pace.

use std::collections::BTreeSet;

use tokio::sync::watch;

use super::document::{Fragment, Status, Task};
use super::jobs::JobError;
use super::tasks::Tasks;
use crate::cluster::ledger::{LedgerMetadata, MetadataError};
use crate::cluster::ledgers::Walk;
use crate::cluster::pulsar::Component;
use crate::cluster::store::MetaStore;
use crate::drain::plan::fragment::{Wait, Work, work};
use crate::drain::plan::survey::{Listed, Survey, share};

/// Tasks that wait to be written: one transaction.
const WAITING: usize = 100;

/// How far a pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Ledgers looked at.
    pub seen: u64,
    /// Those that name one of the bookies.
    pub named: u64,
}

/// What is found of a ledger.
struct Found {
    ledger: u64,
    /// What its metadata says, or why it is not understood.
    metadata: Result<LedgerMetadata, MetadataError>,
    /// What is to be done with it; nothing where the metadata is not understood.
    work: Work,
}

/// Goes through all ledgers below that root, in no order, and hands each to `on_ledger`, whose first error ends it.
async fn enumerate(
    store: &dyn MetaStore,
    ledgers_root: &str,
    drained: &BTreeSet<String>,
    mut on_ledger: impl AsyncFnMut(Found) -> Result<(), JobError>,
    progress: &watch::Sender<Progress>,
) -> Result<(), JobError> {
    let mut walk = Walk::begin(store, ledgers_root).await?;
    let mut done = Progress::default();
    while let Some(nodes) = walk.next().await? {
        for node in nodes {
            let metadata = LedgerMetadata::decode(&node.bytes);
            let work = metadata.as_ref().map(|metadata| work(metadata, drained));
            let work = work.unwrap_or_default();
            done.seen += 1;
            done.named += u64::from(!work.is_nothing());
            on_ledger(Found {
                ledger: node.id,
                metadata,
                work,
            })
            .await?;
        }
        progress.send_replace(done);
    }
    Ok(())
}

/// What a drain of those bookies would move. `alive` are the bookies that are registered, writable or not.
///
/// # Errors
/// The ledgers cannot be read whole.
pub async fn survey(
    store: &dyn MetaStore,
    ledgers_root: &str,
    drained: &BTreeSet<String>,
    alive: &BTreeSet<String>,
    progress: &watch::Sender<Progress>,
) -> Result<Survey, JobError> {
    let mut survey = Survey::default();
    let add = async |found: Found| {
        match &found.metadata {
            Ok(metadata) => survey.add(found.ledger, metadata, &found.work, drained, alive),
            Err(why) => survey.add_unreadable(found.ledger, why.to_string()),
        }
        Ok(())
    };
    enumerate(store, ledgers_root, drained, add, progress).await?;
    Ok(survey)
}

/// What became of a pass that wrote tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filled {
    /// Ledgers looked at, and those that name one of the bookies.
    pub progress: Progress,
    /// Tasks that were not there before.
    pub added: u64,
    /// Ledgers whose metadata is not understood, each with the reason. They may name any bookie.
    pub unreadable: Listed<(u64, String)>,
}

/// Writes a task for each ledger that names one of the bookies and has none yet. Where it was interrupted, it can be
/// repeated.
///
/// # Errors
/// The ledgers cannot be read whole, the job is over, or a task could not be written.
pub async fn fill(
    tasks: &Tasks,
    store: &dyn MetaStore,
    ledgers_root: &str,
    drained: &BTreeSet<String>,
    progress: &watch::Sender<Progress>,
) -> Result<Filled, JobError> {
    let mut filled = Filled::default();
    let mut waiting = Vec::with_capacity(WAITING);
    let add = async |found: Found| {
        match &found.metadata {
            Ok(metadata) if !found.work.is_nothing() => {
                waiting.push(task(found.ledger, metadata, &found.work));
            }
            Ok(_) => {}
            Err(why) => filled.unreadable.push((found.ledger, why.to_string())),
        }
        if waiting.len() == WAITING {
            filled.added += tasks.add_missing(&waiting).await? as u64;
            waiting.clear();
        }
        Ok(())
    };
    enumerate(store, ledgers_root, drained, add, progress).await?;
    filled.added += tasks.add_missing(&waiting).await? as u64;
    filled.progress = *progress.borrow();
    Ok(filled)
}

/// A ledger's task before anybody began with it.
fn task(ledger: u64, metadata: &LedgerMetadata, work: &Work) -> Task {
    let fragments = work.moves.iter().map(|one| Fragment {
        first: one.first,
        index: one.index,
        old: one.old.clone(),
        new: None,
    });
    let bytes = work
        .moves
        .iter()
        .map(|one| share(metadata, one.count(metadata)));
    // What can be moved now is moved first, also of a ledger that is written.
    let (status, reason) = match work.waits {
        Some(Wait::InRecovery) => (Status::WaitingRecovery, "it is in recovery"),
        Some(Wait::OpenTail) if work.moves.is_empty() => {
            (Status::WaitingOpen, "its last fragment is still written")
        }
        _ => (Status::Todo, ""),
    };
    Task {
        ledger,
        status,
        fragments: fragments.collect(),
        reason: (!reason.is_empty()).then(|| reason.to_owned()),
        tries: 0,
        owner: owner(metadata),
        bytes: bytes.flatten().fold(0, u64::saturating_add),
    }
}

/// Who owns a ledger, as far as Pulsar says.
fn owner(metadata: &LedgerMetadata) -> Option<String> {
    match Component::of(&metadata.custom) {
        Component::Topic(owner)
        | Component::Cursor { topic: owner, .. }
        | Component::Schema(owner)
        | Component::Compacted(owner)
        | Component::Bucket(owner) => Some(owner.to_owned()),
        Component::Unknown | Component::Foreign => None,
    }
}
