//! References that stand inside ledgers only: the compacted ledger of a loaded topic, and older versions of a schema. What
//! cannot be read there stays hidden, and ledgers that it may name are kept.

use std::collections::BTreeSet;

use super::ledgers::{decoded, path};
use super::reach::Reach;
use super::{BATCH, Hidden, OwnerKey, Reading, Scan, ScanError, Sources};
use crate::cluster::ledger::{Layout, LedgerMetadata};
use crate::cluster::pulsar::{CursorEntry, SchemaEntry};
use crate::reclaim::inside::Entries;
use crate::reclaim::plan::LedgerId;

/// Entries of one schema's chain that are read: each holds an index, and a schema with a thousand of them is damage.
const LONGEST_CHAIN: usize = 1000;

impl Scan<'_> {
    /// Reads what is hidden, as far as it can be.
    pub(super) async fn inside(&mut self) -> Result<(), ScanError> {
        let Some(entries) = self.sources.entries else {
            return Ok(());
        };
        let mut after: Option<OwnerKey> = None;
        loop {
            let owners = self.state.owners_after(after.as_ref(), BATCH)?;
            let Some((last, _)) = owners.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            for (key, reading) in owners {
                let Some(hidden) = reading.hidden else {
                    continue;
                };
                let inside = Inside {
                    sources: self.sources,
                    layout: self.layout,
                    reach: self.reach,
                    entries,
                };
                if let Some(ledgers) = inside.named(hidden).await? {
                    self.waiting.owners.push((key, with(reading, ledgers)));
                }
            }
            self.committed()?;
        }
    }
}

fn with(mut reading: Reading, ledgers: BTreeSet<LedgerId>) -> Reading {
    let all = &mut reading.seen.ledgers;
    all.extend(ledgers);
    all.sort_unstable();
    all.dedup();
    reading.hidden = None;
    reading
}

/// A look inside ledgers.
pub(in crate::reclaim) struct Inside<'a> {
    pub(in crate::reclaim) sources: Sources<'a>,
    pub(in crate::reclaim) layout: Layout,
    pub(in crate::reclaim) reach: &'a Reach<'a>,
    pub(in crate::reclaim) entries: &'a dyn Entries,
}

impl Inside<'_> {
    /// The ledgers that are named there; none if that cannot be read.
    async fn named(&self, hidden: Hidden) -> Result<Option<BTreeSet<LedgerId>>, ScanError> {
        match hidden {
            Hidden::Compacted(ledger) => self.compacted(ledger).await,
            Hidden::Schema { ledger, entry } => self.schema(ledger, entry).await,
        }
    }

    /// Every ledger that may be the compacted one once the cursor is recovered.
    async fn compacted(&self, cursor: LedgerId) -> Result<Option<BTreeSet<LedgerId>>, ScanError> {
        let Some(metadata) = self.metadata(cursor).await? else {
            return Ok(None);
        };
        let Ok(last) = self.entries.end(cursor, &metadata).await else {
            return Ok(None);
        };
        // A cursor's ledger is named when its first position is in it.
        if last.is_empty() {
            return Ok(None);
        }
        let mut all = BTreeSet::new();
        for bytes in last {
            match CursorEntry::decode(&bytes) {
                Ok(cursor) => all.extend(cursor.compacted_ledger),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// The chain of a schema's entries, each naming older ones, to the first version.
    async fn schema(
        &self,
        mut ledger: LedgerId,
        mut entry: u64,
    ) -> Result<Option<BTreeSet<LedgerId>>, ScanError> {
        let mut all = BTreeSet::new();
        for _ in 0..LONGEST_CHAIN {
            let Some(metadata) = self.metadata(ledger).await? else {
                return Ok(None);
            };
            let Ok(Some(bytes)) = self.entries.read(ledger, &metadata, entry).await else {
                return Ok(None);
            };
            let Ok(older) = SchemaEntry::decode(&bytes) else {
                return Ok(None);
            };
            all.extend(older.positions.iter().map(|at| at.ledger));
            if older.is_whole {
                return Ok(Some(all));
            }
            match older.oldest {
                Some(at) if (at.ledger, at.entry.unwrap_or(0)) != (ledger, entry) => {
                    (ledger, entry) = (at.ledger, at.entry.unwrap_or(0));
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The newest entry of an open ledger that is known to be confirmed, and its length so far; none if that is not known.
    pub(in crate::reclaim) async fn confirmed(
        &self,
        ledger: LedgerId,
    ) -> Result<Option<(i64, Option<u64>)>, ScanError> {
        let Some(metadata) = self.metadata(ledger).await? else {
            return Ok(None);
        };
        let confirmed = self.entries.confirmed_and_length(ledger, &metadata).await;
        Ok(confirmed.ok())
    }

    async fn metadata(&self, id: LedgerId) -> Result<Option<LedgerMetadata>, ScanError> {
        let ledgers = self.sources.ledgers;
        let Some(path) = path(ledgers, self.layout, id) else {
            return Ok(None);
        };
        match self.reach.get(&*ledgers.store, &path).await? {
            Some((bytes, _)) => decoded(id, &path, &bytes).map(Some),
            None => Ok(None),
        }
    }
}
