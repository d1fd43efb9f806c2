//! What scans add up to for a ledger: since when nobody names it, and what it is by now. Pure; the walk over all ledgers is
//! in `judge`.

use super::plan::class::{Facts, Maker, Named, Owner, Verdict};
use super::plan::evidence::Witness;
use super::plan::{LedgerId, Millis};
use super::scan::{Ledger, OwnerKey};
use crate::cluster::ledger::LedgerState;

/// What is said of a ledger that is simply referenced.
pub(super) const REFERENCED: &str = "it is referenced";

/// A ledger that nobody names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    /// The transaction that made its node: another one is another ledger.
    pub created: i64,
    /// The first scan that found it so, when that scan had read everything.
    pub first: Millis,
    /// How many did, one after the other.
    pub scans: u32,
    /// The newest entry known to be confirmed, of a ledger that is not closed, at the first of them.
    pub lac: Option<i64>,
    /// How its owner let it go, and who that was.
    pub witness: Option<(OwnerKey, Witness)>,
}

/// What may be done about a ledger; [`Verdict`] without its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ruling {
    /// Nothing.
    Keep,
    /// Nothing yet.
    Wait,
    /// It may be marked.
    Deletable,
}

impl Ruling {
    /// A verdict and its words.
    #[must_use]
    pub fn of(verdict: Verdict) -> (Ruling, &'static str) {
        match verdict {
            Verdict::Keep(why) => (Ruling::Keep, why),
            Verdict::Wait(why) => (Ruling::Wait, why),
            Verdict::Deletable => (Ruling::Deletable, ""),
        }
    }
}

/// When a scan began, and when it had read everything. What is new counts from its end and what lasts up to its beginning, so
/// that a scan that took hours, or was interrupted for hours, makes no absence longer than it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) began: Millis,
    pub(super) ended: Millis,
}

/// Its owner let it go before our eyes, whatever becomes of that owner.
fn is_seen((_, how): &(OwnerKey, Witness)) -> bool {
    matches!(how, Witness::Trimmed { .. })
}

impl Suspect {
    /// All that was counted is counted anew: the scans until now did not read everything that this one reads.
    pub(super) fn anew(self, span: Span) -> Suspect {
        Suspect {
            first: span.ended,
            scans: 0,
            witness: self.witness.filter(is_seen),
            ..self
        }
    }
}

/// A ledger that nobody names, by one more scan.
pub(super) fn suspected(
    ledger: &Ledger,
    known: Option<Suspect>,
    witness: Option<(OwnerKey, Witness)>,
    lac: Option<i64>,
    span: Span,
) -> Suspect {
    // That its owner is gone each scan says anew: it may be back.
    let known = known.filter(|known| known.created == ledger.created);
    let known = known.map(|known| Suspect {
        witness: known.witness.filter(is_seen),
        ..known
    });
    // Somebody wrote since, or that was not known then: all begins anew, with what was witnessed.
    let is_moved = |known: &Suspect| lac.is_some() && known.lac != lac;
    match known {
        Some(known) if !is_moved(&known) => Suspect {
            scans: known.scans.saturating_add(1),
            witness: witness.or(known.witness),
            ..known
        },
        known => Suspect {
            created: ledger.created,
            first: span.ended,
            scans: 1,
            lac,
            witness: witness.or(known.and_then(|known| known.witness)),
        },
    }
}

/// What was read about a ledger beside the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Around {
    /// The owner that it names itself is there.
    pub(super) is_owner_there: bool,
    /// References of that owner stand inside ledgers, and were not read there.
    pub(super) is_hidden: bool,
    /// The owner's namespace has policies.
    pub(super) is_namespace_there: bool,
}

/// When it was made, given the newest transaction at the end of the scan before, and when that was: its own date may be that
/// of a server whose clock was behind.
pub(super) fn made(ledger: &Ledger, before: Option<(i64, Millis)>) -> Millis {
    match before {
        Some((transaction, ended)) if transaction < ledger.created => ledger.made.max(ended),
        _ => ledger.made,
    }
}

/// What its class follows from.
pub(super) fn facts(
    ledger: &Ledger,
    named: Named,
    suspect: Option<&Suspect>,
    lac: Option<i64>,
    around: Around,
    all_clusters: bool,
    began: Millis,
) -> Facts {
    let stands =
        suspect.is_some_and(|suspect| 1 < suspect.scans && lac.is_some() && suspect.lac == lac);
    Facts {
        maker: ledger.maker,
        named,
        owner: match around.is_owner_there {
            true => Owner::Present,
            false => Owner::Absent,
        },
        all_read: !around.is_hidden || matches!(ledger.maker, Maker::Topic | Maker::Foreign),
        all_clusters,
        namespace: around.is_namespace_there,
        is_written: ledger.state != LedgerState::Closed && !stands,
        witness: suspect.and_then(|suspect| suspect.witness.as_ref().map(|(_, witness)| *witness)),
        made: ledger.made,
        suspected: suspect.map(|suspect| (suspect.first, suspect.scans)),
        now: began,
    }
}

/// Who names which ledgers, by one scan.
#[derive(Debug, Default)]
pub(super) struct References {
    hard: Vec<LedgerId>,
    moved: Vec<LedgerId>,
    positions: Vec<LedgerId>,
}

impl References {
    pub(super) fn add(&mut self, hard: &[LedgerId], moved: &[LedgerId], positions: &[LedgerId]) {
        self.hard.extend_from_slice(hard);
        self.moved.extend_from_slice(moved);
        self.positions.extend_from_slice(positions);
    }

    /// To be called when all are there.
    pub(super) fn sorted(mut self) -> References {
        for ids in [&mut self.hard, &mut self.moved, &mut self.positions] {
            ids.sort_unstable();
            ids.dedup();
        }
        self
    }

    pub(super) fn of(&self, id: LedgerId) -> Named {
        let is_in = |ids: &[LedgerId]| ids.binary_search(&id).is_ok();
        if is_in(&self.hard) {
            Named::Hard
        } else if is_in(&self.moved) {
            Named::AsMoved
        } else if is_in(&self.positions) {
            Named::ByPosition
        } else {
            Named::Not
        }
    }
}
