//! Which bookie takes the place of one that is to be emptied: never one that makes the ledger worse off. The same question
//! has the same answer on every machine.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::racks::{Racks, rack_of};
use crate::health::words::counted;

/// Of a bookie's bytes, so many are left free by what it is given, one of so many: BookKeeper takes no more writes
/// at 95 % by default.
const KEPT_FREE: u64 = 20;

/// A bookie of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// Its id.
    pub id: String,
    /// Its rack; none where nobody says.
    pub rack: Option<String>,
    /// Its isolation group; none where nobody says.
    pub group: Option<String>,
    /// Bytes free, as it says itself.
    pub free: u64,
    /// Bytes it has, as it says itself; 0 where it does not answer.
    pub total: u64,
    /// It takes writes, and is not to be emptied itself.
    pub is_writable: bool,
    /// One of its directories is near full, as its agent says.
    pub warn: bool,
}

impl Target {
    /// Bytes that it may be given beside those that it was given already.
    #[must_use]
    pub fn room(&self, given: u64) -> u64 {
        let kept = self.total / KEPT_FREE;
        self.free.saturating_sub(kept).saturating_sub(given)
    }
}

/// What is known of bookies beside the map of racks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Those in the list of writable ones and not in that of read-only ones.
    pub writable: BTreeSet<String>,
    /// Free and total bytes of those that said so.
    pub space: BTreeMap<String, (u64, u64)>,
    /// Those whose agents say that a directory is over warn.
    pub warn: BTreeSet<String>,
}

/// Every bookie of the map of racks and every writable one, by id. Also those that can be no target, because their
/// racks count.
#[must_use]
pub fn targets(racks: &Racks, seen: &Seen, drained: &BTreeSet<String>) -> Vec<Target> {
    let mut ids: BTreeSet<&str> = racks.bookies().collect();
    ids.extend(seen.writable.iter().map(String::as_str));
    let target = |id: &str| {
        let (free, total) = seen.space.get(id).copied().unwrap_or_default();
        Target {
            id: id.to_owned(),
            rack: racks.rack(id).map(str::to_owned),
            group: racks.group(id).map(str::to_owned),
            free,
            total,
            is_writable: seen.writable.contains(id) && !drained.contains(id),
            warn: seen.warn.contains(id),
        }
    };
    ids.into_iter().map(target).collect()
}

/// Bytes that bookies were given by this job since their free space was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Load {
    given: BTreeMap<String, u64>,
}

impl Load {
    /// Bytes given to that bookie.
    #[must_use]
    pub fn given(&self, bookie: &str) -> u64 {
        self.given.get(bookie).copied().unwrap_or_default()
    }

    /// It is given so many more.
    pub fn give(&mut self, bookie: &str, bytes: u64) {
        let given = self.given.entry(bookie.to_owned()).or_default();
        *given = given.saturating_add(bytes);
    }
}

/// Why a bookie is no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// It holds another replica.
    InEnsemble,
    /// It takes no writes, or is to be emptied itself.
    NotWritable,
    /// It was tried, and did not take it.
    Rejected,
    /// It is of another isolation group than the bookie it would replace.
    OtherGroup,
    /// Replicas of an entry would be in fewer racks than before.
    Rack,
    /// It is near full, as its agent says, or would be with what this job gave it.
    NearFull,
    /// It does not say how much space it has.
    SpaceUnknown,
}

impl Refusal {
    /// In words, after a number of bookies: after one, and after many.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Refusal::InEnsemble => ("holds another replica", "hold another replica"),
            Refusal::NotWritable => (
                "is not writable or leaves too",
                "are not writable or leave too",
            ),
            Refusal::Rejected => ("did not take it", "did not take it"),
            Refusal::OtherGroup => (
                "is of another isolation group",
                "are of another isolation group",
            ),
            Refusal::Rack => (
                "would leave it in fewer racks",
                "would leave it in fewer racks",
            ),
            Refusal::NearFull => ("is nearly full", "are nearly full"),
            Refusal::SpaceUnknown => (
                "does not say how much space it has",
                "do not say how much space they have",
            ),
        }
    }
}

/// Nobody can take it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoTarget {
    /// How many bookies were no target, and why.
    pub refused: BTreeMap<Refusal, usize>,
}

impl std::error::Error for NoTarget {}

impl fmt::Display for NoTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no bookie can take the replica")?;
        let mut between = ": ";
        for (refusal, count) in &self.refused {
            let (one, many) = refusal.words();
            write!(f, "{between}{}", counted(*count, one, many))?;
            between = ", ";
        }
        Ok(())
    }
}

/// Who takes the place `index` of an ensemble. `bookies` are all that are known, with those that can be no target: the
/// group of the old one and the racks of all are looked up there. `rejected` are not chosen. One without a
/// place in the ensemble is nobody's to replace.
///
/// # Errors
/// Why nobody can.
pub fn choose<'a>(
    ensemble: &[String],
    index: usize,
    write_quorum: u32,
    bookies: &'a [Target],
    rejected: &BTreeSet<String>,
    spread: &Load,
) -> Result<&'a Target, NoTarget> {
    let known: BTreeMap<&str, &Target> = bookies.iter().map(|one| (one.id.as_str(), one)).collect();
    let group = |id: &str| known.get(id).and_then(|one| one.group.as_deref());
    let rack = |id: &str| rack_of(known.get(id).and_then(|one| one.rack.as_deref()));
    let racks: Vec<&str> = ensemble.iter().map(|id| rack(id)).collect();
    let old = ensemble.get(index).map(String::as_str);
    let mut refused = BTreeMap::new();
    let mut best: Option<&Target> = None;
    for one in bookies {
        let given = spread.given(&one.id);
        let refusal = if ensemble.contains(&one.id) {
            Some(Refusal::InEnsemble)
        } else if !one.is_writable {
            Some(Refusal::NotWritable)
        } else if rejected.contains(&one.id) {
            Some(Refusal::Rejected)
        } else if old.is_none_or(|old| group(old) != one.group.as_deref()) {
            Some(Refusal::OtherGroup)
        } else if !keeps_racks(&racks, index, write_quorum, rack(&one.id)) {
            Some(Refusal::Rack)
        } else if one.total == 0 {
            Some(Refusal::SpaceUnknown)
        } else if one.warn || one.room(given) == 0 {
            Some(Refusal::NearFull)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            *refused.entry(refusal).or_default() += 1;
            continue;
        }
        let rank = |one: &Target| (one.room(spread.given(&one.id)), Reverse(one.id.clone()));
        if best.is_none_or(|best| rank(best) < rank(one)) {
            best = Some(one);
        }
    }
    best.ok_or(NoTarget { refused })
}

/// No entry's replicas are in fewer racks with `new` at that place.
fn keeps_racks(racks: &[&str], index: usize, write_quorum: u32, new: &str) -> bool {
    let (size, quorum) = (racks.len(), write_quorum as usize);
    let count = |start: usize, replaced: Option<&str>| {
        let places = (0..quorum).map(|copy| (start + copy) % size);
        let rack = |place: usize| match replaced {
            Some(new) if place == index => new,
            _ => racks[place],
        };
        places.map(rack).collect::<BTreeSet<_>>().len()
    };
    // Write sets without that place do not change.
    (0..size).all(|start| count(start, None) <= count(start, Some(new)))
}

#[cfg(test)]
mod tests;
