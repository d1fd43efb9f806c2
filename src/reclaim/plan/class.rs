//! The class of a ledger: what is known about who references it, and what may be done. The names R0 to R8
//! are those of the reports and of `--class`.

use std::fmt;

use super::evidence::Witness;
use super::{DAY, HOUR, Millis};

/// How much evidence it takes, and how long a mark stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// A ledger must be so old before its being named by nobody means anything: longer than the longest compaction,
    /// whose result is named only at its end.
    pub min_age: Millis,
    /// Scans that have to find nothing where there is no witness.
    pub min_scans: u32,
    /// Over what time.
    pub min_span: Millis,
    /// Scans that have to miss an owner: brokers move topics within seconds, and operators restore what they deleted
    /// by mistake within minutes.
    pub gone_scans: u32,
    /// How far apart.
    pub gone_span: Millis,
    /// Between mark and deletion of what an owner that is there let go.
    pub grace_let_go: Millis,
    /// The same of what an owner left that is gone.
    pub grace_owner_gone: Millis,
    /// The same of what nobody was ever seen to name.
    pub grace_unwitnessed: Millis,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            min_age: 7 * DAY,
            min_scans: 3,
            min_span: DAY,
            gone_scans: 2,
            gone_span: HOUR,
            grace_let_go: HOUR,
            grace_owner_gone: DAY,
            grace_unwitnessed: DAY,
        }
    }
}

impl Rules {
    /// How long a mark stands before the ledger may be deleted; none for what is never marked.
    #[must_use]
    pub fn grace(&self, class: Class) -> Option<Millis> {
        match class {
            Class::Trimmed | Class::Offloaded => Some(self.grace_let_go),
            Class::OwnerGone => Some(self.grace_owner_gone),
            Class::NeverListed | Class::NoOwner => Some(self.grace_unwitnessed),
            Class::Referenced | Class::Compacted | Class::Schema | Class::Foreign => None,
        }
    }
}

/// What is known about who references a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// R0: somebody names it.
    Referenced,
    /// R1: its owner was seen to let it go.
    Trimmed,
    /// R2: its owner was seen with it, and is gone.
    OwnerGone,
    /// R3: its owner is there and was never seen to name it.
    NeverListed,
    /// R4: it has no owner, and none was ever seen.
    NoOwner,
    /// R5: its entries were moved to other storage, and its owner says that it was deleted.
    Offloaded,
    /// R6: a compacted topic of which it is not known which ledger is the one in use.
    Compacted,
    /// R7: a version of a schema whose older versions are not all known.
    Schema,
    /// R8: another application's, or of a kind that is not known.
    Foreign,
}

impl Class {
    /// All, in their order.
    pub const ALL: [Class; 9] = [
        Class::Referenced,
        Class::Trimmed,
        Class::OwnerGone,
        Class::NeverListed,
        Class::NoOwner,
        Class::Offloaded,
        Class::Compacted,
        Class::Schema,
        Class::Foreign,
    ];

    /// As in `--class`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Referenced => "r0",
            Class::Trimmed => "r1",
            Class::OwnerGone => "r2",
            Class::NeverListed => "r3",
            Class::NoOwner => "r4",
            Class::Offloaded => "r5",
            Class::Compacted => "r6",
            Class::Schema => "r7",
            Class::Foreign => "r8",
        }
    }

    /// In a few words, for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Class::Referenced => "referenced",
            Class::Trimmed => "let go by its owner",
            Class::OwnerGone => "owner is gone",
            Class::NeverListed => "never listed by its owner",
            Class::NoOwner => "no owner was ever seen",
            Class::Offloaded => "moved to other storage",
            Class::Compacted => "compacted, not determinable",
            Class::Schema => "schema, not determinable",
            Class::Foreign => "not known to be Pulsar's",
        }
    }

    /// It rests on somebody not being there, or not naming it, which lost metadata looks like.
    #[must_use]
    pub fn is_of_absence(self) -> bool {
        matches!(self, Class::OwnerGone | Class::NeverListed | Class::NoOwner)
    }

    /// The class of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.name() == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What may be done about a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, now or later, by what is known.
    Keep(&'static str),
    /// Nothing yet: the reason passes with time.
    Wait(&'static str),
    /// It may be marked, and deleted after the grace of its class, unless something speaks against it by then. Classes
    /// without a witness only if they were asked for.
    Deletable,
}

/// Who made the ledger, by its own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// A topic, one of its cursors, or its buckets of delayed messages.
    Topic,
    /// A compaction.
    Compaction,
    /// The registry of schemas.
    Schema,
    /// Nobody that is known.
    Foreign,
}

/// Who names the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// Nobody.
    Not,
    /// Positions only, which may outlive their ledger.
    ByPosition,
    /// Lists that say of it that it is moved and deleted.
    AsMoved,
    /// Somebody who needs it.
    Hard,
}

/// The owner that the ledger itself names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// It is there.
    Present,
    /// It is nowhere in the metadata that was read.
    Absent,
}

/// All that the class of an existing ledger follows from. It comes from one scan in which everything was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Who made it.
    pub maker: Maker,
    /// Who names it.
    pub named: Named,
    /// The owner it names.
    pub owner: Owner,
    /// Everything that could name a ledger of this maker was read: the chain of a schema, the ledger in use of a
    /// compacted topic.
    pub all_read: bool,
    /// The metadata of every Pulsar cluster on these bookies was declared and read.
    pub all_clusters: bool,
    /// The owner's namespace is still known.
    pub namespace: bool,
    /// Somebody may add entries, and was seen to since the first scan that suspected it.
    pub is_written: bool,
    /// How an owner let it go, if that was seen.
    pub witness: Option<Witness>,
    /// When the ledger was made.
    pub made: Millis,
    /// The first scan that found it named by nobody, and how many did in a row.
    pub suspected: Option<(Millis, u32)>,
    /// When the scan began: what is named later was made later, or is old enough to have been named by then.
    pub now: Millis,
}

/// The class of a ledger, and what may be done.
#[must_use]
pub fn classify(facts: &Facts, rules: &Rules) -> (Class, Verdict) {
    match (facts.maker, facts.named) {
        (_, Named::Hard) => (Class::Referenced, Verdict::Keep("it is referenced")),
        (Maker::Foreign, _) => (
            Class::Foreign,
            Verdict::Keep("it does not say that it is Pulsar's"),
        ),
        (Maker::Topic, Named::AsMoved) => (Class::Offloaded, Verdict::Deletable),
        (_, Named::AsMoved) => (Class::Referenced, Verdict::Keep("it is referenced")),
        (Maker::Compaction, _) if !facts.all_read => (
            Class::Compacted,
            Verdict::Keep("its topic is loaded, and says only in a ledger which one is in use"),
        ),
        (Maker::Schema, _) if !facts.all_read => (
            Class::Schema,
            Verdict::Keep("older versions of its schema are named in ledgers only"),
        ),
        _ => unnamed(facts, rules),
    }
}

/// Named by nobody, or by positions only.
fn unnamed(facts: &Facts, rules: &Rules) -> (Class, Verdict) {
    match (facts.witness, facts.owner) {
        (Some(Witness::Trimmed { .. }), _) => (Class::Trimmed, Verdict::Deletable),
        (Some(Witness::Gone { absence, .. }), _) => {
            let long = rules.gone_scans <= absence.scans
                && rules.gone_span <= absence.until - absence.since;
            let verdict = match (facts.all_clusters, long) {
                (false, _) => Verdict::Keep(NOT_ALL_CLUSTERS),
                (true, false) => {
                    Verdict::Wait("its owner has to be absent in more scans, further apart")
                }
                (true, true) => Verdict::Deletable,
            };
            (Class::OwnerGone, verdict)
        }
        (None, Owner::Present) => (Class::NeverListed, without_witness(facts, rules)),
        (None, Owner::Absent) if facts.namespace => (
            Class::NoOwner,
            Verdict::Keep("its namespace is there, or that is not known"),
        ),
        (None, Owner::Absent) => (Class::NoOwner, without_witness(facts, rules)),
    }
}

const NOT_ALL_CLUSTERS: &str = "not every Pulsar cluster on these bookies was declared";

fn without_witness(facts: &Facts, rules: &Rules) -> Verdict {
    let (first, scans) = facts.suspected.unwrap_or((facts.now, 0));
    if !facts.all_clusters {
        Verdict::Keep(NOT_ALL_CLUSTERS)
    } else if facts.named == Named::ByPosition {
        Verdict::Keep("a position names it")
    } else if facts.is_written {
        Verdict::Keep("somebody may be writing it")
    } else if facts.now - facts.made < rules.min_age {
        Verdict::Wait("it is too young for that to mean anything")
    } else if scans < rules.min_scans || facts.now - first < rules.min_span {
        Verdict::Wait("it takes more scans over a longer time")
    } else {
        Verdict::Deletable
    }
}
