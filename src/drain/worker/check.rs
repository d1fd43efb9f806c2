//! Whether a target has what it was given: by its own list of entries, where it has one, and else by the first and the
//! last of them.

use std::collections::{BTreeMap, BTreeSet};

use super::copy::{Copier, Transfer};
use crate::cluster::bookie::Held;

/// What of a replica is not on its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// Nothing, as far as that can be told.
    Nothing,
    /// This entry, for certain.
    Entry(u64),
    /// Nobody says.
    Unknown,
}

/// What targets say that they have of a ledger; none of those that say nothing.
pub(super) struct Lists(BTreeMap<String, Option<Held>>);

impl Lists {
    /// Asks each target once.
    pub(super) async fn of(copier: &Copier, transfers: &[Transfer]) -> Lists {
        let with_entries = transfers.iter().filter(|one| one.what.last.is_some());
        let targets: BTreeSet<_> = with_entries.map(|one| one.target.as_str()).collect();
        let mut lists = BTreeMap::new();
        for id in targets {
            let held = copier.replicas.get(id).held(copier.ledger).await;
            lists.insert(id.to_owned(), held);
        }
        Lists(lists)
    }

    /// By the list of the target alone.
    pub(super) fn missing(&self, copier: &Copier, one: &Transfer) -> Missing {
        if one.what.last.is_none() {
            return Missing::Nothing;
        }
        let Some(Some(held)) = self.0.get(&one.target) else {
            return Missing::Unknown;
        };
        let mut entries = one.what.entries(&copier.metadata);
        let missing = entries.find(|entry| !held.contains(*entry));
        missing.map_or(Missing::Nothing, Missing::Entry)
    }
}

/// By its list, or by the edges of the replica. What the list lacks is asked for before that is believed: a bookie that is
/// just writing its entries from memory to its disk may forget some in such a list.
pub(super) async fn kept(lists: &Lists, copier: &Copier, one: &Transfer) -> Missing {
    match lists.missing(copier, one) {
        Missing::Nothing => return Missing::Nothing,
        Missing::Entry(entry) => match look(copier, one, entry).await {
            Missing::Nothing => {}
            missing => return missing,
        },
        Missing::Unknown => {}
    }
    let turns = u64::from(copier.metadata.ensemble_size);
    let last = one.what.last.unwrap_or(one.what.first);
    let first = one.what.entries(&copier.metadata).next();
    // The last is among those of the last turn of the ensemble.
    let mut turn = one.what.clone();
    turn.first = last.saturating_sub(turns).max(one.what.first);
    let last = turn.entries(&copier.metadata).last();
    let others = last.filter(|last| first != Some(*last));
    for entry in first.into_iter().chain(others) {
        match look(copier, one, entry).await {
            Missing::Nothing => {}
            missing => return missing,
        }
    }
    Missing::Nothing
}

/// Whether the target gives one entry.
async fn look(copier: &Copier, one: &Transfer, entry: u64) -> Missing {
    let (ledger, about) = (copier.ledger, copier.about());
    let target = copier.replicas.get(&one.target);
    match target.read(ledger, entry, about).await {
        Ok(raw) if copier.digest.open(ledger, Some(entry), &raw).is_ok() => Missing::Nothing,
        Ok(_) => Missing::Entry(entry),
        Err(error) if error.is_absent() => Missing::Entry(entry),
        Err(_) => Missing::Unknown,
    }
}
