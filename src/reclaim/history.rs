//! What scans added up to: the owners as they were seen last, what they were seen to let go, and since when a ledger is
//! named by nobody. A new scan is taken in whole, and says of each ledger what it is.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::name;
use super::plan::class::{Class, Facts, Maker, Named, Owner, Rules, Verdict, classify};
use super::plan::evidence::{Known, Witness, compare};
use super::plan::{LedgerId, Millis};
use super::scan::{Found, Ledger, OwnerKey};
use crate::cluster::ledger::LedgerState;

/// All that is remembered between scans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The cluster's id; another one's scans prove nothing here.
    pub instance: Option<String>,
    /// Everybody who was seen to name ledgers.
    pub owners: BTreeMap<OwnerKey, Known>,
    /// Ledgers that nobody names any more.
    pub suspects: BTreeMap<LedgerId, Suspect>,
}

/// A ledger that nobody names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    /// The transaction that made its node: another one is another ledger.
    pub created: i64,
    /// The first scan that found it so.
    pub first: Millis,
    /// How many did, one after the other.
    pub scans: u32,
    /// How its owner let it go, and who that was.
    pub witness: Option<(OwnerKey, Witness)>,
}

/// A ledger, and what follows for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged<'a> {
    /// The ledger.
    pub ledger: &'a Ledger,
    /// What is known about who references it.
    pub class: Class,
    /// What may be done.
    pub verdict: Verdict,
}

impl History {
    /// Takes in a complete scan. `all_clusters`: every Pulsar cluster on these bookies was declared. The scan has to be of the
    /// cluster that is remembered.
    pub fn take<'a>(
        &mut self,
        found: &'a Found,
        all_clusters: bool,
        rules: &Rules,
    ) -> Vec<Judged<'a>> {
        self.instance = Some(found.instance.clone());
        let mut witnessed = self.compare(found);
        let named = found.owners.values().flat_map(|seen| &seen.ledgers);
        let named: HashSet<LedgerId> = named.copied().collect();
        let mut before = std::mem::take(&mut self.suspects);
        let mut judged = Vec::with_capacity(found.ledgers.len());
        for ledger in &found.ledgers {
            let named = named_by(ledger, &named, found);
            let known = before.remove(&ledger.id);
            let suspect = (named != Named::Hard).then(|| {
                let known = known.filter(|known| known.created == ledger.created);
                let witness = witnessed.remove(&ledger.id);
                Suspect {
                    created: ledger.created,
                    first: known.as_ref().map_or(found.began, |known| known.first),
                    scans: known
                        .as_ref()
                        .map_or(1, |known| known.scans.saturating_add(1)),
                    witness: witness.or(known.and_then(|known| known.witness)),
                }
            });
            let facts = facts(ledger, named, suspect.as_ref(), found, all_clusters);
            let (class, verdict) = classify(&facts, rules);
            self.suspects
                .extend(suspect.map(|suspect| (ledger.id, suspect)));
            judged.push(Judged {
                ledger,
                class,
                verdict,
            });
        }
        self.forget(found);
        judged
    }

    /// What owners let go between the scans.
    fn compare(&mut self, found: &Found) -> HashMap<LedgerId, (OwnerKey, Witness)> {
        let mut witnessed = HashMap::new();
        let mut owners = BTreeMap::new();
        let mut known = std::mem::take(&mut self.owners);
        let now = found.owners.iter().map(|(key, seen)| (key, Some(seen)));
        let gone: Vec<_> = known
            .keys()
            .filter(|key| !found.owners.contains_key(*key))
            .cloned()
            .collect();
        for (key, seen) in now.chain(gone.iter().map(|key| (key, None))) {
            let (kept, lost) = compare(known.remove(key), seen.cloned(), found.began);
            owners.extend(kept.map(|kept| (key.clone(), kept)));
            witnessed.extend(
                lost.into_iter()
                    .map(|(id, witness)| (id, (key.clone(), witness))),
            );
        }
        self.owners = owners;
        witnessed
    }

    /// Owners that are gone are remembered for as long as a ledger of theirs is there.
    fn forget(&mut self, found: &Found) {
        let there = |id: &LedgerId| {
            let at = found.ledgers.binary_search_by_key(id, |ledger| ledger.id);
            at.is_ok()
        };
        self.owners
            .retain(|_, known| known.absence.is_none() || known.seen.ledgers.iter().any(there));
    }
}

fn named_by(ledger: &Ledger, named: &HashSet<LedgerId>, found: &Found) -> Named {
    if named.contains(&ledger.id) {
        Named::Hard
    } else if found.moved.contains(&ledger.id) {
        Named::AsMoved
    } else if found.positions.contains(&ledger.id) {
        Named::ByPosition
    } else {
        Named::Not
    }
}

fn facts(
    ledger: &Ledger,
    named: Named,
    suspect: Option<&Suspect>,
    found: &Found,
    all_clusters: bool,
) -> Facts {
    let tree = match ledger.maker {
        Maker::Schema => "/schemas",
        _ => "/managed-ledgers",
    };
    let is_there = found.paths.contains(&format!("{tree}/{}", ledger.owner));
    let unknown = match ledger.maker {
        Maker::Compaction => found.compaction_unknown.contains(&*ledger.owner),
        Maker::Schema => found.schema_unknown.contains(&*ledger.owner),
        Maker::Topic | Maker::Foreign => false,
    };
    Facts {
        maker: ledger.maker,
        named,
        owner: if is_there {
            Owner::Present
        } else {
            Owner::Absent
        },
        all_read: !unknown,
        all_clusters,
        namespace: name::namespaces(&ledger.owner).any(|name| found.namespaces.contains(name)),
        // Whether entries come is known to its bookies alone.
        is_written: ledger.state != LedgerState::Closed,
        witness: suspect.and_then(|suspect| suspect.witness.as_ref().map(|(_, witness)| *witness)),
        made: ledger.made,
        suspected: suspect.map(|suspect| (suspect.first, suspect.scans)),
        now: found.began,
    }
}
