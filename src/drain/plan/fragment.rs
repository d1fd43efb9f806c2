//! What of a ledger lies on the bookies that are to be emptied, and may be moved now. A segment that may still grow is left
//! alone: to end it would take the ledger away from its writer.

use std::collections::BTreeSet;

use crate::cluster::ledger::{LedgerMetadata, LedgerState};

/// What is to be done with a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Work {
    /// What can be moved now, by segment and place.
    pub moves: Vec<Move>,
    /// Why something of it cannot be moved yet.
    pub waits: Option<Wait>,
}

impl Work {
    /// Nothing of the ledger is on those bookies.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.moves.is_empty() && self.waits.is_none()
    }
}

/// Why a part of a ledger stays where it is for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// Its last segment may grow. A writer leaves a read-only bookie with its next entry.
    OpenTail,
    /// Somebody is finding out where it ends, and may change any of it.
    InRecovery,
}

/// One replica of one segment, which another bookie is to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Which of the ledger's segments.
    pub segment: usize,
    /// The first entry of the segment, by which BookKeeper knows it.
    pub first: u64,
    /// The last entry of the segment; none where no entry of it belongs on this bookie, so that only the name in
    /// the metadata is to be replaced.
    pub last: Option<u64>,
    /// The place in the ensemble.
    pub index: usize,
    /// The bookie that is there now.
    pub old: String,
}

impl Move {
    /// The entries that belong on that bookie, ascending.
    pub fn entries(&self, metadata: &LedgerMetadata) -> impl Iterator<Item = u64> + use<> {
        let turn = Turn::of(metadata, self.index);
        let ids = self.last.map(|last| self.first..=last);
        ids.into_iter().flatten().filter(move |id| turn.has(*id))
    }

    /// How many entries that are, without going through them.
    #[must_use]
    pub fn count(&self, metadata: &LedgerMetadata) -> u64 {
        let turn = Turn::of(metadata, self.index);
        self.last.map_or(0, |last| turn.count(self.first, last))
    }
}

/// When it is a bookie's turn: entry `id` goes to the places from `id % ensemble` on, as many as the write quorum says.
#[derive(Debug, Clone, Copy)]
struct Turn {
    ensemble: u64,
    quorum: u64,
    index: u64,
}

impl Turn {
    fn of(metadata: &LedgerMetadata, index: usize) -> Turn {
        Turn {
            // Metadata without bookies is not decoded.
            ensemble: u64::from(metadata.ensemble_size).max(1),
            quorum: u64::from(metadata.write_quorum),
            index: index as u64,
        }
    }

    fn has(self, entry: u64) -> bool {
        (self.index + self.ensemble - entry % self.ensemble) % self.ensemble < self.quorum
    }

    fn count(self, first: u64, last: u64) -> u64 {
        let Some(span) = last.checked_sub(first) else {
            return 0;
        };
        // Whole rounds over the ensemble, and what is left of one.
        let (rounds, rest) = (span / self.ensemble, span % self.ensemble);
        let left = (0..=rest).filter(|id| self.has(first + id)).count();
        rounds * self.quorum + left as u64
    }
}

/// What of a ledger is on the bookies in `drained`.
#[must_use]
pub fn work(metadata: &LedgerMetadata, drained: &BTreeSet<String>) -> Work {
    let mut work = Work::default();
    for (segment, ensemble) in metadata.segments.iter().enumerate() {
        let next = metadata.segments.get(segment + 1);
        let named = ensemble.members.iter().enumerate();
        let mut named = named
            .filter(|(_, member)| drained.contains(*member))
            .peekable();
        if named.peek().is_none() {
            continue;
        }
        let first = ensemble.first_entry;
        // A segment before another ends where that begins.
        let ends = next.map(|next| next.first_entry - 1);
        let last = match (metadata.state, ends) {
            (LedgerState::InRecovery, _) => {
                work.waits = Some(Wait::InRecovery);
                return work;
            }
            (LedgerState::Open, None) => {
                work.waits = Some(Wait::OpenTail);
                continue;
            }
            (LedgerState::Open, Some(end)) => Some(end),
            (LedgerState::Closed, end) => {
                let closed = metadata.last_entry;
                closed.map(|closed| end.map_or(closed, |end| end.min(closed)))
            }
        };
        for (index, old) in named {
            let turn = Turn::of(metadata, index);
            let last = last.filter(|last| 0 < turn.count(first, *last));
            work.moves.push(Move {
                segment,
                first,
                last,
                index,
                old: old.clone(),
            });
        }
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ledger::Segment;

    fn ledger(
        state: LedgerState,
        (ensemble, quorum): (u32, u32),
        last: Option<u64>,
        firsts: &[u64],
    ) -> LedgerMetadata {
        let members = |at: usize| (0..ensemble).map(move |index| format!("b{at}.{index}"));
        LedgerMetadata {
            format: 3,
            ensemble_size: ensemble,
            write_quorum: quorum,
            ack_quorum: quorum,
            length: 0,
            last_entry: last,
            state,
            segments: firsts
                .iter()
                .enumerate()
                .map(|(at, first)| Segment {
                    first_entry: *first,
                    members: members(at).collect(),
                })
                .collect(),
            digest: None,
            created_at: None,
            custom: Default::default(),
        }
    }

    fn of(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn told(work: &Work) -> String {
        let moves = work.moves.iter().map(|one| {
            let last = one.last.map_or("-".to_owned(), |last| last.to_string());
            format!(
                "{}:{}..{last}@{}={}",
                one.segment, one.first, one.index, one.old
            )
        });
        let mut all: Vec<_> = moves.collect();
        all.extend(work.waits.map(|wait| format!("{wait:?}")));
        all.join(" ")
    }

    #[test]
    fn entries_are_those_whose_write_set_names_the_bookie() {
        for ensemble in 1..=5 {
            for quorum in 1..=ensemble {
                for (first, last) in [(0, 0), (0, 23), (3, 4), (7, 31), (10, 9)] {
                    let closed = Some(last);
                    let mut one = ledger(LedgerState::Closed, (ensemble, quorum), closed, &[first]);
                    for ack in 1..=quorum {
                        one.ack_quorum = ack;
                        let everybody = one.bookies().into_iter().map(str::to_owned).collect();
                        let moves = work(&one, &everybody).moves;
                        assert_eq!(moves.len(), ensemble as usize);
                        for one_move in moves {
                            let old = one_move.old.as_str();
                            let expected: Vec<_> = (first..=last)
                                .filter(|id| one.write_set(*id).contains(&old))
                                .collect();
                            let found: Vec<_> = one_move.entries(&one).collect();
                            assert_eq!(found, expected, "{ensemble}/{quorum}/{ack} {one_move:?}");
                            assert_eq!(one_move.count(&one), expected.len() as u64);
                            assert_eq!(one_move.last.is_none(), expected.is_empty());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_count_needs_no_time() {
        let huge = ledger(LedgerState::Closed, (5, 2), Some(u64::MAX / 2), &[1]);
        let one = &work(&huge, &of(&["b0.3"])).moves[0];
        assert!(one.count(&huge).abs_diff(u64::MAX / 5) < 3);
        assert_eq!(one.entries(&huge).take(3).collect::<Vec<_>>(), [2, 3, 7]);
    }

    #[test]
    fn what_moves_and_what_waits() {
        use LedgerState::{Closed, InRecovery, Open};
        let check = |state, last, drained: &[&str]| {
            let one = ledger(state, (3, 2), last, &[0, 7, 12]);
            told(&work(&one, &of(drained)))
        };
        let both = ["b0.0", "b1.2"];
        let tail = ["b1.2", "b2.1"];
        assert_eq!(
            check(Closed, Some(20), &both),
            "0:0..6@0=b0.0 1:7..11@2=b1.2"
        );
        assert_eq!(
            check(Closed, Some(20), &tail),
            "1:7..11@2=b1.2 2:12..20@1=b2.1"
        );
        assert_eq!(check(Closed, Some(20), &["other"]), "");
        // Closed before its last ensemble got an entry, within one, or at once.
        assert_eq!(
            check(Closed, Some(11), &tail),
            "1:7..11@2=b1.2 2:12..-@1=b2.1"
        );
        assert_eq!(
            check(Closed, Some(8), &tail),
            "1:7..8@2=b1.2 2:12..-@1=b2.1"
        );
        assert_eq!(check(Closed, None, &both), "0:0..-@0=b0.0 1:7..-@2=b1.2");
        // No entry of 12 to 12 is for place 2.
        assert_eq!(check(Closed, Some(12), &["b2.2"]), "2:12..-@2=b2.2");
        assert_eq!(check(Open, None, &both), "0:0..6@0=b0.0 1:7..11@2=b1.2");
        assert_eq!(check(Open, None, &tail), "1:7..11@2=b1.2 OpenTail");
        assert_eq!(check(Open, None, &["b2.0", "b2.1"]), "OpenTail");
        assert_eq!(check(InRecovery, None, &both), "InRecovery");
        assert_eq!(check(InRecovery, None, &["other"]), "");
        assert!(work(&ledger(Open, (1, 1), None, &[]), &of(&["b"])).is_nothing());
    }
}
