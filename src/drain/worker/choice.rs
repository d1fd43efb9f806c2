//! Who takes what of a ledger. What its task names already is kept where it still can be, so that a worker that goes on after
//! another one died leaves no half-filled targets behind.

use std::collections::BTreeSet;

use super::copy::Transfer;
use crate::cluster::ledger::LedgerMetadata;
use crate::drain::job::{Fragment, MOST_FRAGMENTS};
use crate::drain::plan::fragment::Move;
use crate::drain::plan::place::{self, Load, Target};
use crate::drain::plan::survey::share;

/// From what it is chosen.
pub(super) struct Choice<'a> {
    pub(super) metadata: &'a LedgerMetadata,
    pub(super) targets: &'a [Target],
    pub(super) rejected: &'a BTreeSet<String>,
    /// What was chosen before.
    pub(super) fragments: &'a [Fragment],
}

/// The transfers, and how the task names them.
///
/// # Errors
/// Nobody can take one of them, in words.
pub(super) fn choose(
    choice: &Choice<'_>,
    moves: &[Move],
    load: &mut Load,
) -> Result<(Vec<Transfer>, Vec<Fragment>), String> {
    let metadata = choice.metadata;
    let mut transfers = Vec::with_capacity(moves.len());
    let mut ensembles: Vec<_> = metadata
        .segments
        .iter()
        .map(|one| one.members.clone())
        .collect();
    for what in moves {
        let Some(ensemble) = ensembles.get_mut(what.segment) else {
            continue;
        };
        let quorum = metadata.write_quorum;
        let pick = |rejected: &BTreeSet<String>, load: &Load| {
            let (targets, index) = (choice.targets, what.index);
            let picked = place::choose(ensemble, index, quorum, targets, rejected, load);
            picked.map(|target| target.id.clone())
        };
        let before = choice.fragments.iter().find(|one| {
            (one.first, one.index, one.old.as_str()) == (what.first, what.index, what.old.as_str())
        });
        let before = before.and_then(|one| one.new.as_deref());
        let again = before
            .filter(|one| !choice.rejected.contains(*one))
            .and_then(|one| {
                let others = choice.targets.iter().map(|target| &target.id);
                let others = others.filter(|id| *id != one).cloned().collect();
                pick(&others, load).ok()
            });
        let target = match again {
            Some(again) => again,
            None => {
                let picked = pick(choice.rejected, load).map_err(|why| why.to_string())?;
                let bytes = share(metadata, what.count(metadata));
                load.give(&picked, bytes.unwrap_or_default());
                picked
            }
        };
        if let Some(place) = ensemble.get_mut(what.index) {
            place.clone_from(&target);
        }
        let what = what.clone();
        transfers.push(Transfer { what, target });
    }
    // What is beyond them is chosen anew by whoever goes on.
    let named = transfers.iter().take(MOST_FRAGMENTS).map(|one| Fragment {
        first: one.what.first,
        index: one.what.index,
        old: one.what.old.clone(),
        new: Some(one.target.clone()),
    });
    let named = named.collect();
    Ok((transfers, named))
}
