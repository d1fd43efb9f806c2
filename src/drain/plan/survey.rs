//! What a drain would move, added up ledger by ledger, and what was seen of the cluster on the way. Lists in it are cut
//! off at a length that people read, and counted on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::fragment::{Wait, Work};
use crate::cluster::ledger::{LedgerMetadata, Segment};

/// Items of a list that are kept: what somebody looks at, and a bound of memory where every ledger has the same trouble.
pub const LISTED: usize = 1000;

/// A segment of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fragment {
    /// The ledger.
    pub ledger: u64,
    /// The first entry of the segment.
    pub first: u64,
}

/// The first of many, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    /// At most [`LISTED`].
    pub some: Vec<T>,
    /// All of them.
    pub count: u64,
}

impl<T> Default for Listed<T> {
    fn default() -> Listed<T> {
        Listed {
            some: Vec::new(),
            count: 0,
        }
    }
}

impl<T> Listed<T> {
    /// One more.
    pub fn push(&mut self, item: T) {
        self.count += 1;
        if self.some.len() < LISTED {
            self.some.push(item);
        }
    }
}

/// What lies on one of the bookies that are to be emptied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Source {
    /// Replicas of segments.
    pub fragments: u64,
    /// Bytes of closed ledgers among them: a ledger's length, spread evenly over its entries.
    pub bytes: u64,
    /// The largest ensemble that it is a part of.
    pub largest_ensemble: u32,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// Ledgers of the cluster.
    pub seen: u64,
    /// Those with something on the bookies that are to be emptied.
    pub ledgers: u64,
    /// By bookie; all that are to be emptied and have something.
    pub sources: BTreeMap<String, Source>,
    /// Replicas that only need another name, because nothing is in them.
    pub empty: u64,
    /// Entries to be copied.
    pub entries: u64,
    /// Replicas whose size is not known, because their ledgers are still written.
    pub unmeasured: u64,
    /// Ledgers whose last segment is there and may grow.
    pub open: Listed<u64>,
    /// Ledgers there that are in recovery.
    pub in_recovery: Listed<u64>,
    /// The largest ensemble of all ledgers.
    pub largest_ensemble: u32,
    /// Segments there with entries that fewer bookies hold than their ack quorum, going by who is registered.
    pub short: Listed<Fragment>,
    /// Segments with two or more replicas of one entry there.
    pub doubled: Listed<Fragment>,
    /// Ledgers whose metadata is not understood, each with the reason. They may name any bookie.
    pub unreadable: Listed<(u64, String)>,
}

impl Survey {
    /// Adds a ledger. `alive` are the bookies that are registered, writable or not.
    pub fn add(
        &mut self,
        ledger: u64,
        metadata: &LedgerMetadata,
        work: &Work,
        drained: &BTreeSet<String>,
        alive: &BTreeSet<String>,
    ) {
        self.seen += 1;
        self.largest_ensemble = self.largest_ensemble.max(metadata.ensemble_size);
        if work.is_nothing() {
            return;
        }
        self.ledgers += 1;
        match work.waits {
            Some(Wait::OpenTail) => self.open.push(ledger),
            Some(Wait::InRecovery) => self.in_recovery.push(ledger),
            None => {}
        }
        for one in &work.moves {
            let source = self.sources.entry(one.old.clone()).or_default();
            let count = one.count(metadata);
            let bytes = share(metadata, count);
            source.fragments += 1;
            source.bytes = source.bytes.saturating_add(bytes.unwrap_or_default());
            source.largest_ensemble = source.largest_ensemble.max(metadata.ensemble_size);
            self.entries = self.entries.saturating_add(count);
            self.empty += u64::from(count == 0);
            self.unmeasured += u64::from(bytes.is_none());
        }
        let named = |segment: &&Segment| segment.members.iter().any(|one| drained.contains(one));
        for segment in metadata.segments.iter().filter(named) {
            let first = segment.first_entry;
            let mut moves = work
                .moves
                .iter()
                .filter(|one| one.first == first)
                .peekable();
            // Nothing can be lost where nothing is.
            if moves.peek().is_some() && moves.all(|one| one.last.is_none()) {
                continue;
            }
            let fragment = Fragment { ledger, first };
            let (fewest, most) = copies(metadata, segment, drained, alive);
            if fewest < metadata.ack_quorum as usize {
                self.short.push(fragment);
            }
            if 1 < most {
                self.doubled.push(fragment);
            }
        }
    }

    /// Adds a ledger whose metadata is not understood.
    pub fn add_unreadable(&mut self, ledger: u64, why: String) {
        self.seen += 1;
        self.unreadable.push((ledger, why));
    }

    /// Replicas to be moved, those that only need another name included.
    #[must_use]
    pub fn fragments(&self) -> u64 {
        self.sources.values().map(|source| source.fragments).sum()
    }

    /// Bytes to be moved, as far as they are known.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = self.sources.values().map(|source| source.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// How long that takes, if each of the bookies is read at so many bytes a second and all of them at once; none
    /// without a limit.
    #[must_use]
    pub fn time_at(&self, bytes_per_second: u64) -> Option<Duration> {
        let largest = self.sources.values().map(|source| source.bytes).max();
        let seconds = largest.unwrap_or_default().checked_div(bytes_per_second)?;
        Some(Duration::from_secs(seconds))
    }
}

/// The bytes of so many of a ledger's entries; none where they are not known.
pub(in crate::drain) fn share(metadata: &LedgerMetadata, entries: u64) -> Option<u64> {
    if entries == 0 {
        return Some(0);
    }
    let all = u128::from(metadata.last_entry?) + 1;
    let bytes = u128::from(metadata.length) * u128::from(entries) / all;
    u64::try_from(bytes).ok()
}

/// Of the write sets of a segment that name a bookie to be emptied: the fewest replicas on registered bookies, and the most on
/// bookies to be emptied.
fn copies(
    metadata: &LedgerMetadata,
    segment: &Segment,
    drained: &BTreeSet<String>,
    alive: &BTreeSet<String>,
) -> (usize, usize) {
    let members = &segment.members;
    let quorum = metadata.write_quorum as usize;
    let (mut fewest, mut most) = (quorum, 0);
    for start in 0..members.len() {
        let set = || (0..quorum).map(|copy| &members[(start + copy) % members.len()]);
        let leaving = set().filter(|one| drained.contains(*one)).count();
        if leaving != 0 {
            most = most.max(leaving);
            fewest = fewest.min(set().filter(|one| alive.contains(*one)).count());
        }
    }
    (fewest, most)
}

#[cfg(test)]
mod tests {
    use super::super::fragment::work;
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Metadata in format 1, with an ack quorum of one less than the write quorum.
    fn ledger(lines: &str) -> LedgerMetadata {
        let bytes = format!("BookieMetadataFormatVersion\t1\n{lines}");
        let mut metadata = LedgerMetadata::decode(bytes.as_bytes()).unwrap();
        metadata.ack_quorum -= 1;
        metadata
    }

    fn survey(ledgers: &[&str]) -> Survey {
        let (drained, alive) = (set(&["a", "b"]), set(&["a", "b", "c", "d"]));
        let mut survey = Survey::default();
        for (id, lines) in ledgers.iter().enumerate() {
            let metadata = ledger(lines);
            let work = work(&metadata, &drained);
            survey.add(id as u64, &metadata, &work, &drained, &alive);
        }
        survey
    }

    #[test]
    fn bytes_are_those_of_the_entries_that_move() {
        // Ten entries of 100 bytes on three bookies, two each.
        let one = survey(&["2\n3\n1000\n0\ta\tc\td\n9\tCLOSED"]);
        // 0, 2, 3, 5, 6, 8 and 9.
        assert_eq!(
            (one.ledgers, one.fragments(), one.entries, one.bytes()),
            (1, 1, 7, 700)
        );
        let two = survey(&[
            "2\n3\n1000\n0\ta\tc\td\n9\tCLOSED",
            "2\n2\n50\n0\tb\ta\n4\tc\ta\n4\tCLOSED",
            "2\n2\n50\n0\tc\td\n4\tCLOSED",
            "2\n5\n0\n0\te\tf\tg\th\ti",
        ]);
        assert_eq!((two.seen, two.ledgers, two.fragments()), (4, 2, 4));
        assert_eq!((two.sources["a"].bytes, two.sources["b"].bytes), (750, 40));
        assert_eq!(two.sources["a"].largest_ensemble, 3);
        assert_eq!(two.largest_ensemble, 5);
        // Each of them is read at that pace.
        assert_eq!(two.time_at(75), Some(Duration::from_secs(10)));
        assert_eq!(two.time_at(0), None);
    }

    #[test]
    fn sizes_beyond_any_disk() {
        let huge = survey(&["1\n1\n9223372036854775807\n0\ta\n9223372036854775806\tCLOSED"]);
        assert_eq!(huge.bytes(), i64::MAX as u64);
    }

    #[test]
    fn what_is_not_known_or_not_there() {
        let open = survey(&["2\n2\n0\n0\ta\tc\n7\tc\td", "2\n2\n0\n0\ta\tc"]);
        assert_eq!(open.ledgers, 2);
        assert_eq!(survey(&["1\n1\n0\n0\tother"]).ledgers, 0);
        assert_eq!((open.unmeasured, open.empty, open.bytes()), (1, 0, 0));
        assert_eq!((open.open.count, &open.open.some), (1, &vec![1]));
        let empty = survey(&[
            "2\n2\n0\n0\ta\tc\n-1\tCLOSED",
            "2\n2\n0\n0\ta\tc\n-102\tCLOSED",
        ]);
        assert_eq!(
            (empty.unmeasured, empty.empty, empty.in_recovery.count),
            (0, 1, 1)
        );
    }

    #[test]
    fn replicas_that_lack_and_those_that_leave_together() {
        let told = |ledger: &str| {
            let found = survey(&[ledger]);
            (found.short.count, found.doubled.count)
        };
        assert_eq!(told("2\n3\n9\n0\ta\tc\td\n9\tCLOSED"), (0, 0));
        // With an ack quorum of 1 one that is gone is no matter, and two are.
        assert_eq!(told("2\n3\n9\n0\ta\tgone\td\n9\tCLOSED"), (0, 0));
        assert_eq!(told("3\n3\n9\n0\ta\tgone\tgone2\n9\tCLOSED"), (1, 0));
        // Two of one segment that share no entry.
        assert_eq!(told("2\n4\n9\n0\ta\tc\tb\td\n9\tCLOSED"), (0, 0));
        assert_eq!(told("2\n4\n9\n0\ta\tc\td\tb\n9\tCLOSED"), (0, 1));
        assert_eq!(told("2\n2\n9\n0\ta\tb\n5\tb\ta\n9\tCLOSED"), (0, 2));
        // Nothing is in it.
        assert_eq!(told("2\n2\n9\n0\tc\td\n5\tb\ta\n4\tCLOSED"), (0, 0));
        assert_eq!(told("2\n2\n0\n0\ta\tb"), (0, 1));
    }

    #[test]
    fn lists_have_an_end() {
        let mut survey = Survey::default();
        for ledger in 0..LISTED as u64 + 5 {
            survey.add_unreadable(ledger, "damaged".to_owned());
        }
        assert_eq!(survey.unreadable.some.len(), LISTED);
        assert_eq!((survey.unreadable.count, survey.seen), (1005, 1005));
    }
}
