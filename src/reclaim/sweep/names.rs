//! Which ledgers a single node names, for looks at one owner after the scan.

use crate::cluster::pulsar::{Node, PulsarError, SchemaLocator};
use crate::reclaim::plan::LedgerId;

/// The cursor of a compaction.
const COMPACTION: &str = "__compaction";

/// The ledgers that a node names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Needed.
    pub(super) hard: Vec<LedgerId>,
    /// Moved to other storage and deleted.
    pub(super) moved: Vec<LedgerId>,
    /// Named by a position.
    pub(super) positions: Vec<LedgerId>,
    /// More may be named inside ledgers.
    pub(super) more: bool,
}

impl Names {
    /// Of the node at that path, from `/managed-ledgers` or `/schemas` on.
    pub(super) fn of(path: &str, bytes: &[u8]) -> Result<Names, PulsarError> {
        let mut names = Names::default();
        if path.starts_with("/schemas/") {
            // A folder has no data.
            if !bytes.is_empty() {
                let locator = SchemaLocator::decode(bytes)?;
                names.hard = locator.positions.iter().map(|at| at.ledger).collect();
                names.more = !locator.is_whole;
            }
            return Ok(names);
        }
        match Node::decode(bytes)? {
            Node::Empty => {}
            Node::Topic(topic) => {
                names
                    .positions
                    .extend(topic.terminated_at.map(|at| at.ledger));
                for ledger in topic.ledgers {
                    match ledger.gone_to_storage {
                        true => names.moved.push(ledger.id),
                        false => names.hard.push(ledger.id),
                    }
                }
            }
            Node::Cursor(cursor) => {
                names
                    .positions
                    .extend(cursor.mark_delete.map(|at| at.ledger));
                let is_compaction = path
                    .rsplit_once('/')
                    .is_some_and(|(_, name)| name == COMPACTION);
                names.more = is_compaction && cursor.ledger.is_some();
                names.hard = cursor.buckets;
                names.hard.extend(cursor.ledger);
                names.hard.extend(cursor.compacted_ledger);
            }
        }
        Ok(names)
    }
}
