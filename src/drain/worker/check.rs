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

/// By its list, or by the edges of the replica.
pub(super) async fn kept(lists: &Lists, copier: &Copier, one: &Transfer) -> Missing {
    let listed = lists.missing(copier, one);
    if listed != Missing::Unknown {
        return listed;
    }
    let target = copier.replicas.get(&one.target);
    let turns = u64::from(copier.metadata.ensemble_size);
    let last = one.what.last.unwrap_or(one.what.first);
    let mut entries = one.what.entries(&copier.metadata);
    let first = entries.next();
    // The last is among those of the last turn of the ensemble.
    let mut turn = one.what.clone();
    turn.first = last.saturating_sub(turns).max(one.what.first);
    let last = turn.entries(&copier.metadata).last();
    let about = copier.about();
    for entry in first
        .into_iter()
        .chain(last.filter(|last| first != Some(*last)))
    {
        match target.read(copier.ledger, entry, about).await {
            Ok(raw) if copier.digest.open(copier.ledger, Some(entry), &raw).is_ok() => {}
            Ok(_) => return Missing::Entry(entry),
            Err(error) if error.is_absent() => return Missing::Entry(entry),
            Err(_) => return Missing::Unknown,
        }
    }
    Missing::Nothing
}
