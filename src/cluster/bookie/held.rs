//! Which entries of a ledger a bookie has, as it says itself (`AvailabilityOfEntriesOfLedger`): groups of
//! sequences of one length at one distance, which is what striping over an ensemble leaves. Pure. It
//! proves that the bookie has them, and nothing about their bytes.

use std::ops::RangeInclusive;

use thiserror::Error;

/// Bytes before the first group: version, count of groups, and room for later.
const HEADER: usize = 64;

/// Bytes of a group.
const GROUP: usize = 24;

/// Sequences of entries, one after the other at one distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    /// The first entry of the first and of the last sequence.
    starts: (u64, u64),
    /// Entries of a sequence.
    size: u64,
    /// From one start to the next; 0 if there is one sequence only.
    period: u64,
}

/// The entries of a ledger that a bookie has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    groups: Vec<Group>,
    /// One begins after the other ends, as bookies write them: one can be looked for, and not each be looked at.
    is_ascending: bool,
}

/// Why such a list is not understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HeldError {
    /// Of a later BookKeeper.
    #[error("the list of entries is written in version {0}, and only version 0 is known")]
    Version(i32),
    /// Too short or too long for what it announces.
    #[error("the list of entries has {bytes} bytes, which do not hold {groups} groups")]
    Length {
        /// How many there are.
        bytes: usize,
        /// How many are announced.
        groups: i32,
    },
    /// Numbers that cannot be.
    #[error("group {0} of the list of entries cannot be")]
    Group(usize),
}

impl Held {
    /// Reads such a list.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: &[u8]) -> Result<Held, HeldError> {
        let number = |at: usize| {
            let word = bytes
                .get(at..)
                .and_then(<[u8]>::first_chunk::<4>)
                .copied()
                .unwrap_or_default();
            i32::from_be_bytes(word)
        };
        let (version, count) = (number(0), number(4));
        let length = |groups| HeldError::Length {
            bytes: bytes.len(),
            groups,
        };
        if bytes.len() < HEADER {
            return Err(length(count));
        }
        if version != 0 {
            return Err(HeldError::Version(version));
        }
        let (groups, rest) = bytes[HEADER..].as_chunks::<GROUP>();
        if !rest.is_empty() || usize::try_from(count) != Ok(groups.len()) {
            return Err(length(count));
        }
        let groups = groups.iter().enumerate();
        let groups: Vec<_> = groups
            .map(|(at, bytes)| Group::decode(bytes).ok_or(HeldError::Group(at)))
            .collect::<Result<_, _>>()?;
        let mut pairs = groups.windows(2);
        Ok(Held {
            is_ascending: pairs.all(|pair| pair[0].last() < pair[1].starts.0),
            groups,
        })
    }

    /// It has this entry.
    #[must_use]
    pub fn contains(&self, entry: u64) -> bool {
        if !self.is_ascending {
            return self.groups.iter().any(|group| group.contains(entry));
        }
        let begun = self.groups.partition_point(|group| group.starts.0 <= entry);
        let group = begun.checked_sub(1).and_then(|at| self.groups.get(at));
        group.is_some_and(|group| group.contains(entry))
    }

    /// It has nothing of the ledger.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// How many it has.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.groups
            .iter()
            .fold(0, |sum, group| sum.saturating_add(group.count()))
    }

    /// From its first entry to its last; gaps between them are not told. None if it has nothing.
    #[must_use]
    pub fn span(&self) -> Option<RangeInclusive<u64>> {
        let first = self.groups.iter().map(|group| group.starts.0).min()?;
        let last = self.groups.iter().map(|group| group.last()).max()?;
        Some(first..=last)
    }
}

impl Group {
    fn decode(bytes: &[u8; GROUP]) -> Option<Group> {
        let long = |at: usize| {
            let word = bytes.get(at..)?.first_chunk::<8>()?;
            u64::try_from(i64::from_be_bytes(*word)).ok()
        };
        let int = |at: usize| {
            let word = bytes.get(at..)?.first_chunk::<4>()?;
            u64::try_from(i32::from_be_bytes(*word)).ok()
        };
        let group = Group {
            starts: (long(0)?, long(8)?),
            size: int(16)?,
            period: int(20)?,
        };
        let between = group.starts.1.checked_sub(group.starts.0)?;
        let fits = match group.period {
            0 => between == 0,
            period => group.size <= period && between % period == 0,
        };
        // One entry after the last must still be a number.
        let ends = i64::try_from(group.starts.1.checked_add(group.size)?).is_ok();
        (0 < group.size && fits && ends).then_some(group)
    }

    fn contains(&self, entry: u64) -> bool {
        if entry < self.starts.0 || self.last() < entry {
            return false;
        }
        let after = entry - self.starts.0;
        after.checked_rem(self.period).unwrap_or(after) < self.size
    }

    fn last(&self) -> u64 {
        self.starts.1 + (self.size - 1)
    }

    fn count(&self) -> u64 {
        let between = self.starts.1 - self.starts.0;
        let sequences = between.checked_div(self.period).unwrap_or(0) + 1;
        sequences.saturating_mul(self.size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(groups: &[(i64, i64, i32, i32)]) -> Vec<u8> {
        let mut all = vec![0; HEADER];
        all[4..8].copy_from_slice(&i32::try_from(groups.len()).unwrap().to_be_bytes());
        for (first, last, size, period) in groups {
            all.extend([first.to_be_bytes(), last.to_be_bytes()].concat());
            all.extend([size.to_be_bytes(), period.to_be_bytes()].concat());
        }
        all
    }

    fn entries(groups: &[(i64, i64, i32, i32)]) -> Vec<u64> {
        let held = Held::decode(&bytes(groups)).unwrap();
        let all: Vec<_> = (0..40).filter(|entry| held.contains(*entry)).collect();
        assert_eq!(held.count(), all.len() as u64);
        let span = all.first().zip(all.last());
        assert_eq!(held.span(), span.map(|(first, last)| *first..=*last));
        all
    }

    #[test]
    fn stripes_and_single_sequences() {
        assert_eq!(entries(&[]), Vec::<u64>::new());
        assert_eq!(entries(&[(3, 3, 4, 0)]), [3, 4, 5, 6]);
        // Two of three, as with ensembles of three and a write quorum of two.
        assert_eq!(entries(&[(1, 7, 2, 3)]), [1, 2, 4, 5, 7, 8]);
        assert_eq!(entries(&[(0, 6, 1, 3), (20, 20, 2, 0)]), [0, 3, 6, 20, 21]);
        // In any other order, and one within another.
        assert_eq!(entries(&[(20, 20, 2, 0), (0, 6, 1, 3)]), [0, 3, 6, 20, 21]);
        assert_eq!(entries(&[(0, 9, 1, 9), (4, 4, 2, 0)]), [0, 4, 5, 9]);
    }

    #[test]
    fn a_list_of_many_groups_is_not_gone_through_for_each_entry() {
        // Two in three, with a hole now and then: as many groups as fit into an answer.
        let groups: Vec<_> = (0..200_000)
            .map(|nth| (nth * 10, nth * 10 + 3, 2, 3))
            .collect();
        let held = Held::decode(&bytes(&groups)).unwrap();
        // In a list that is gone through these are 200 billion steps.
        let count = (0..2_000_000).filter(|entry| held.contains(*entry)).count();
        assert_eq!(count as u64, held.count());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let told = |bytes: &[u8]| Held::decode(bytes).unwrap_err().to_string();
        insta::assert_snapshot!(told(&[0; 63]), @"the list of entries has 63 bytes, which do not hold 0 groups");
        insta::assert_snapshot!(told(&bytes(&[(0, 0, 1, 0)])[..87]), @"the list of entries has 87 bytes, which do not hold 1 groups");
        let mut later = bytes(&[]);
        later[3] = 1;
        insta::assert_snapshot!(told(&later), @"the list of entries is written in version 1, and only version 0 is known");
        for odd in [
            (-1, 0, 1, 1),
            (4, 3, 1, 1),
            (0, 0, 0, 0),
            (0, 3, 1, 0),
            (0, 4, 1, 3),
            (0, 3, 4, 3),
            (0, 0, -1, 0),
            (i64::MAX, i64::MAX, 1, 0),
        ] {
            insta::allow_duplicates! {
                insta::assert_snapshot!(told(&bytes(&[odd])), @"group 0 of the list of entries cannot be");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 64..160), entry in any::<u64>()) {
            bytes[..8].copy_from_slice(&[0; 8]);
            bytes[7] = u8::try_from((bytes.len() - HEADER) / GROUP).unwrap();
            bytes.truncate(HEADER + usize::from(bytes[7]) * GROUP);
            if let Ok(held) = Held::decode(&bytes) {
                prop_assert_eq!(held.is_empty(), held.count() == 0);
                let inside = held.span().is_some_and(|span| span.contains(&entry));
                prop_assert!(inside || !held.contains(entry));
            }
        }
    }
}
