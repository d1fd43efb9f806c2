//! What happened in histories, by kinds, so that none of them turns into one in which nothing does.

use std::collections::BTreeMap;
use std::fmt;

use crate::reclaim::plan::class::Class;

/// Kinds of events, each of which has to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::reclaim) enum Kind {
    Scan,
    SnapshotScan,
    Marked,
    MarkDropped,
    MarkPutOff,
    Refused,
    Deleted(Class),
    OpenDeleted,
    /// One who scans, marks or sweeps dies.
    Death,
    AnswerLost,
    /// Another one acts between two calls of the first.
    TwoAtOnce,
    WrongClock,
    /// A list comes back from a backup; its topic was gone before.
    Restored,
    OwnerBack,
    /// By its owner, in the moment before it is deleted.
    NamedAgain,
    BrokerDied,
    TopicDeleted,
    NamespaceDeleted,
    Trimmed,
    Moved,
    SchemaMade,
    CompactionMade,
    BucketMade,
    ForeignMade,
    OpenMade,
    /// The second cluster is in a store of its own.
    SecondStore,
    /// All that leaked was looked for in the end.
    Ended,
}

impl Kind {
    pub(in crate::reclaim) const ALL: [(Kind, &'static str); 31] = [
        (Kind::Scan, "scans"),
        (Kind::SnapshotScan, "scans of snapshots"),
        (Kind::Marked, "marks"),
        (Kind::MarkDropped, "marks dropped"),
        (Kind::MarkPutOff, "deletions put off"),
        (Kind::Refused, "transactions refused"),
        (Kind::Deleted(Class::Trimmed), "deletions of r1"),
        (Kind::Deleted(Class::OwnerGone), "of r2"),
        (Kind::Deleted(Class::NeverListed), "of r3"),
        (Kind::Deleted(Class::NoOwner), "of r4"),
        (Kind::Deleted(Class::Offloaded), "of r5"),
        (Kind::OpenDeleted, "of open ledgers"),
        (Kind::Death, "deaths"),
        (Kind::AnswerLost, "answers lost"),
        (Kind::TwoAtOnce, "two at once"),
        (Kind::WrongClock, "wrong clocks refused"),
        (Kind::Restored, "lists restored"),
        (Kind::OwnerBack, "of owners that were gone"),
        (Kind::NamedAgain, "ledgers named again"),
        (Kind::BrokerDied, "brokers died"),
        (Kind::TopicDeleted, "topics deleted"),
        (Kind::NamespaceDeleted, "namespaces deleted"),
        (Kind::Trimmed, "ledgers trimmed"),
        (Kind::Moved, "offloaded"),
        (Kind::SchemaMade, "schema ledgers made"),
        (Kind::CompactionMade, "compacted"),
        (Kind::BucketMade, "buckets"),
        (Kind::ForeignMade, "foreign"),
        (Kind::OpenMade, "open"),
        (Kind::SecondStore, "histories with a second store"),
        (Kind::Ended, "looked at to the end"),
    ];
}

#[derive(Debug, Clone, Default)]
pub(in crate::reclaim) struct Tally(BTreeMap<Kind, u64>);

impl Tally {
    pub(in crate::reclaim) fn add(&mut self, kind: Kind, count: usize) {
        *self.0.entry(kind).or_default() += count as u64;
    }

    pub(in crate::reclaim) fn join(&mut self, other: &Tally) {
        for (kind, count) in &other.0 {
            *self.0.entry(*kind).or_default() += count;
        }
    }

    pub(in crate::reclaim) fn of(&self, kind: Kind) -> u64 {
        self.0.get(&kind).copied().unwrap_or_default()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Kind::ALL.iter();
        let words: Vec<_> = all
            .map(|(kind, name)| format!("{name} {}", self.of(*kind)))
            .collect();
        formatter.write_str(&words.join(", "))
    }
}
