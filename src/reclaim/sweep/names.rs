//! Which ledgers a single node names, for looks at one owner after the scan.

use crate::cluster::pulsar::PulsarError;
use crate::reclaim::plan::LedgerId;
use crate::reclaim::scan::reading;
use crate::reclaim::state::scan::Tree;

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
        let tree = match path.starts_with("/schemas/") {
            true => Tree::Schemas,
            false => Tree::Topics,
        };
        let reading = reading(tree, path, bytes)?.unwrap_or_default();
        Ok(Names {
            hard: reading.seen.ledgers,
            moved: reading.moved,
            positions: reading.positions,
            more: reading.hidden.is_some(),
        })
    }
}
