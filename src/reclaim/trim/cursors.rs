//! Where the slowest of a topic's subscriptions stands: in the nodes of its cursors, and of those that were loaded when their
//! broker died, in the last entry of a ledger. Without an answer of the bookies it may stand anywhere.

use std::sync::atomic::Ordering;

use super::super::plan::LedgerId;
use super::super::plan::trim::Slowest;
use super::{Pass, TrimError, at};
use crate::cluster::ledger::LedgerMetadata;
use crate::cluster::pulsar::{CursorEntry, ManagedCursor, Node, Position};
use crate::cluster::store::{StoreError, children_if_any, get_all};

/// After so many cursors in a row about which bookies said nothing, no more are asked for in this pass: each question to one
/// that is down takes seconds, and trimming goes on without the answers.
const MOST_SILENT: u32 = 8;

/// Who is asked about cursors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// The metadata store alone.
    Store,
    /// Bookies too, for what stands in ledgers.
    Bookies,
}

impl Pass<'_> {
    /// The slowest of a topic's cursors.
    pub(super) async fn slowest(&self, node: &str, ask: Ask) -> Result<Slowest, TrimError> {
        let store = &*self.cluster.pulsar.store;
        let names = at(node, children_if_any(store, node).await)?;
        let paths: Vec<_> = names.iter().map(|name| format!("{node}/{name}")).collect();
        let mut slowest: Option<Position> = None;
        for (bytes, _) in at(node, get_all(store, &paths).await)?
            .into_iter()
            .flatten()
        {
            let position = match (Node::decode(&bytes), ask) {
                (
                    Ok(Node::Cursor(ManagedCursor {
                        ledger: None,
                        mark_delete,
                        ..
                    })),
                    _,
                ) => mark_delete,
                (
                    Ok(Node::Cursor(ManagedCursor {
                        ledger: Some(ledger),
                        ..
                    })),
                    Ask::Bookies,
                ) => self.in_ledger(ledger).await?,
                _ => None,
            };
            // In a ledger that nobody reads, or nowhere.
            let Some(position) = position else {
                return Ok(Slowest::Unknown);
            };
            slowest = Some(slowest.map_or(position, |other| other.min(position)));
        }
        Ok(slowest.map_or(Slowest::None, Slowest::At))
    }

    /// Where a cursor stands by its ledger: of all entries that may be the last one the earliest; none if that is not known.
    async fn in_ledger(&self, ledger: LedgerId) -> Result<Option<Position>, TrimError> {
        let Some(entries) = self.cluster.entries else {
            return Ok(None);
        };
        if MOST_SILENT <= self.silent.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(metadata) = self.metadata(ledger).await? else {
            return Ok(None);
        };
        let Ok(last) = entries.end(ledger, &metadata).await else {
            self.silent.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        self.silent.store(0, Ordering::Relaxed);
        let positions: Result<Vec<_>, _> = last
            .iter()
            .map(|bytes| CursorEntry::decode(bytes).map(|entry| entry.mark_delete))
            .collect();
        Ok(positions.ok().and_then(|all| all.into_iter().min()))
    }

    async fn metadata(&self, id: LedgerId) -> Result<Option<LedgerMetadata>, TrimError> {
        let ledgers = &self.cluster.ledgers;
        let Some(path) = self.layout.path(id) else {
            return Ok(None);
        };
        let path = format!("{}/{path}", ledgers.root);
        match ledgers.store.get(&path).await {
            Err(StoreError::NoNode) => Ok(None),
            other => Ok(LedgerMetadata::decode(&at(&path, other)?.0).ok()),
        }
    }
}
