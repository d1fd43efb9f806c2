//! What scans saw of those that name ledgers, one scan after the other. An owner that named a ledger and, in a
//! later version, names it no more has let it go before our eyes; that a ledger was never seen named
//! proves little, for whoever makes a ledger names it afterwards.

use super::{LedgerId, Millis};

/// One in so many owners may be gone: people delete topics, and a namespace at once. More of them look like metadata that
/// was lost, half restored, or read at the wrong place.
const ONE_IN: u64 = 5;

/// Fewer owners than this say nothing: in a small cluster somebody tidied up.
const FEW: u64 = 10;

/// A node that names ledgers, as one scan saw it: a topic, a cursor, the locator of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The transaction that made the node: another one of the same name is another owner.
    pub created: i64,
    /// The version of its data.
    pub version: i32,
    /// What it names, ascending, each once.
    pub ledgers: Vec<LedgerId>,
}

/// What is kept of an owner between scans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// As it was seen last.
    pub seen: Seen,
    /// Since which scan it is not there.
    pub absence: Option<Absence>,
}

/// An owner that is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absence {
    /// The first scan that did not find it.
    pub since: Millis,
    /// The last one.
    pub until: Millis,
    /// How many did not find it.
    pub scans: u32,
}

/// How an owner let a ledger go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    /// It named the ledger in one version and did not in a later one.
    Trimmed {
        /// The transaction that made the owner's node.
        created: i64,
        /// The version that named it.
        from: i32,
        /// The version that did not.
        to: i32,
        /// The scan that saw it.
        at: Millis,
    },
    /// It named the ledger and is gone.
    Gone {
        /// The transaction that made the owner's node.
        created: i64,
        /// Since when, and how often that was seen.
        absence: Absence,
    },
}

/// How many owners are gone and have left ledgers behind that nobody names, of all that are known. Those of earlier scans
/// count until their ledgers are gone too: an empty tree that is scanned again is no smaller loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vanished {
    /// Gone.
    pub gone: u64,
    /// Still there, and naming ledgers.
    pub there: u64,
}

impl Vanished {
    /// So many that none of them is believed.
    #[must_use]
    pub fn is_mass(self) -> bool {
        let all = self.gone.saturating_add(self.there);
        FEW <= self.gone && all < self.gone.saturating_mul(ONE_IN)
    }
}

impl Known {
    /// The first look at an owner.
    #[must_use]
    pub fn new(seen: Seen) -> Known {
        Known {
            seen,
            absence: None,
        }
    }
}

/// What a complete scan at `at` adds to what is known of one owner, which is one by its name and the transaction that made its
/// node, so that another one of the same name has no part in it: what is to be kept (none once nothing can follow from
/// it), and the ledgers that it let go. Only a scan in which everything was read may be handed in.
#[must_use]
pub fn compare(
    known: Option<Known>,
    now: Option<Seen>,
    at: Millis,
) -> (Option<Known>, Vec<(LedgerId, Witness)>) {
    match (known, now) {
        (None, now) => (now.map(Known::new), Vec::new()),
        (Some(known), None) => absent(known, at),
        (Some(known), Some(seen)) => {
            let lost = if known.seen.version < seen.version {
                trimmed(&known.seen, &seen, at)
            } else {
                // The same, or the store was set back: nothing follows.
                Vec::new()
            };
            (Some(Known::new(seen)), lost)
        }
    }
}

fn absent(mut known: Known, at: Millis) -> (Option<Known>, Vec<(LedgerId, Witness)>) {
    let absence = match known.absence {
        None => Absence {
            since: at,
            until: at,
            scans: 1,
        },
        Some(absence) => Absence {
            until: at.max(absence.until),
            scans: absence.scans.saturating_add(1),
            ..absence
        },
    };
    known.absence = Some(absence);
    let created = known.seen.created;
    let lost = known.seen.ledgers.iter();
    let lost = lost.map(|id| (*id, Witness::Gone { created, absence }));
    let lost = lost.collect();
    (Some(known), lost)
}

fn trimmed(before: &Seen, now: &Seen, at: Millis) -> Vec<(LedgerId, Witness)> {
    let witness = Witness::Trimmed {
        created: now.created,
        from: before.version,
        to: now.version,
        at,
    };
    // Numbers of ledgers rise, and the oldest go first. A list that names older ones than those that it has lost may be an old one
    // that somebody wrote back.
    let oldest = now.ledgers.first();
    let lost = before.ledgers.iter();
    let lost = lost.filter(|id| oldest.is_none_or(|oldest| *id < oldest));
    lost.map(|id| (*id, witness)).collect()
}
