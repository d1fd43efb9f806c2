//! How much of a journal the bookie still needs, and whether that ever becomes less. Joins the
//! `lastMark` of ledger directories with the files of a journal directory. Pure.
//!
//! Read from BookKeeper 4.17.3: `Journal.LastLogMark` takes the largest mark of all ledger
//! directories and passes over those that it cannot read; `BookieImpl.replay` reads the file that the
//! mark names, from its offset on, and all files with a higher number.

use std::time::Duration;

use super::moment::Elapsed;
use super::observation::{BookieFiles, JournalFile};
use super::words::bytes_text;

/// BookKeeper's defaults of `journalMaxSizeMB` and `logSizeLimit`, the larger of both.
const ROLL_BYTES: u64 = 2 << 30;

/// A mark moves when an entry log is full or a flush is due, so a journal grows by one entry log or
/// one file in between; twice that is not the rhythm of the bookie any more.
const ROLLS: u64 = 2;

/// In a journal directory over warn, a mark that stands so long while the journal grows is told
/// sooner: the bookie flushes every 10 s or with each entry log, and its disk is about to be full.
const STANDS: Duration = Duration::from_secs(600);

/// Up to where a journal is not needed any more: number of the file, bytes of it. Nothing was ever
/// marked: both are zero.
pub(super) type Position = (u64, u64);

/// A journal directory's files, as the snapshot shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalView {
    /// Bytes that a start of the bookie would have to read again, at most: files are preallocated.
    /// None while not every ledger directory's mark is known.
    pub unmarked: Option<u64>,
    /// Files of the journal.
    pub files: u64,
    /// Number of the oldest one that is known.
    pub oldest: Option<u64>,
}

/// What a replay would find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Replay {
    /// Bytes to read, at most.
    pub(super) bytes: u64,
    /// In so many files.
    pub(super) files: u64,
    /// The file that the mark names is not there.
    pub(super) missing: Option<u64>,
}

/// The mark that counts for the journal at this place of the bookie's list. A bookie with one
/// journal writes `lastMark`, one with several writes a numbered file for each.
pub(super) fn mark<'a>(
    index: u32,
    several: bool,
    ledgers: impl Iterator<Item = &'a BookieFiles>,
) -> Position {
    let name = several.then_some(index);
    let marks = ledgers.flat_map(|files| &files.marks);
    let ours = marks.filter(|mark| mark.journal == name);
    let positions = ours.map(|mark| (mark.file, mark.offset));
    positions.max().unwrap_or_default()
}

/// What a replay from that mark on would find among these files.
pub(super) fn replay(mark: Position, files: &BookieFiles) -> Replay {
    let (file, offset) = mark;
    let mut replay = Replay::default();
    for JournalFile { id, bytes } in &files.journals {
        let needed = match id.cmp(&file) {
            std::cmp::Ordering::Less => continue,
            std::cmp::Ordering::Equal => bytes.saturating_sub(offset),
            std::cmp::Ordering::Greater => *bytes,
        };
        replay.bytes = replay.bytes.saturating_add(needed);
        replay.files += 1;
    }
    let listed = |id| files.journals.iter().any(|known| known.id == id);
    if file != 0 && !listed(file) && files.left_out == 0 {
        replay.missing = Some(file);
    }
    replay
}

/// The directory's files for the snapshot.
pub(super) fn view(files: &BookieFiles, replay: Option<Replay>) -> JournalView {
    JournalView {
        unmarked: replay.map(|replay| replay.bytes),
        files: files.left_out + files.journals.len() as u64,
        oldest: files.journals.first().map(|file| file.id),
    }
}

/// Watches whether the mark of one journal moves.
#[derive(Debug, Clone)]
pub(super) struct Drain {
    mark: Position,
    since: Elapsed,
    unmarked: u64,
    told: bool,
    /// When the journal was first listed without the file that the mark names.
    missed: Option<Elapsed>,
}

impl Drain {
    /// The journal as it was first seen.
    pub(super) fn new(now: Elapsed, mark: Position, unmarked: u64) -> Drain {
        Drain {
            mark,
            since: now,
            unmarked,
            told: false,
            missed: None,
        }
    }

    /// Whether the file that the mark names was there when the journal was listed.
    pub(super) fn note_listing(&mut self, listed: Elapsed, missing: bool) {
        self.missed = missing.then(|| self.missed.unwrap_or(listed));
    }

    /// The file is not there, and neither of two other reasons is left for it: it was made after the
    /// journal had been listed, or marked as done and removed after the mark had been read.
    pub(super) fn surely_misses(&self, listed: Elapsed, mark_read: Elapsed) -> bool {
        let removed_since = self.missed.is_none_or(|missed| mark_read < missed);
        let made_since = listed <= self.since;
        !removed_since && !made_since
    }

    /// Takes in what is there now. What to say when the journal does not drain, once until the mark
    /// moves. `roll` is the larger of a full journal file and a full entry log.
    pub(super) fn observe(
        &mut self,
        now: Elapsed,
        mark: Position,
        replay: Replay,
        over_warn: bool,
        roll: Option<u64>,
    ) -> Option<String> {
        if mark != self.mark {
            *self = Drain::new(now, mark, replay.bytes);
            return None;
        }
        let stands = now.saturating_sub(self.since);
        let grown = replay.bytes.saturating_sub(self.unmarked);
        let too_much = roll.unwrap_or(ROLL_BYTES).saturating_mul(ROLLS) < grown;
        let too_long = over_warn && 0 < grown && STANDS <= stands;
        if self.told || !(too_much || too_long) {
            return None;
        }
        self.told = true;
        Some(format!(
            "lastMark has not moved for {} min while the journal grew by {}; up to {} in {} {} are \
             needed for a start: look for flush errors in the bookie's log, make room on its ledger \
             directories, and never delete the journal file {:x}.txn or a later one",
            stands.as_secs() / 60,
            bytes_text(grown),
            bytes_text(replay.bytes),
            replay.files,
            if replay.files == 1 { "file" } else { "files" },
            mark.0,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::observation::Mark;
    use super::*;

    fn marks(marks: &[(Option<u32>, u64, u64)]) -> BookieFiles {
        let marks = marks.iter().map(|(journal, file, offset)| Mark {
            journal: *journal,
            file: *file,
            offset: *offset,
        });
        BookieFiles {
            marks: marks.collect(),
            ..BookieFiles::default()
        }
    }

    fn journal(files: &[(u64, u64)]) -> BookieFiles {
        let journals = files.iter().map(|(id, bytes)| JournalFile {
            id: *id,
            bytes: *bytes,
        });
        BookieFiles {
            journals: journals.collect(),
            ..BookieFiles::default()
        }
    }

    /// A directory that was full when the others were marked has an old mark; the file decides
    /// before the offset.
    #[test]
    fn the_largest_mark_of_all_ledger_directories_counts() {
        let dirs = [
            marks(&[(None, 5, 900), (Some(0), 99, 0)]),
            marks(&[]),
            marks(&[(None, 6, 10)]),
            marks(&[(None, 6, 7)]),
        ];
        assert_eq!(mark(0, false, dirs.iter()), (6, 10));
        assert_eq!(mark(0, false, dirs[1..2].iter()), (0, 0));
    }

    #[test]
    fn each_of_several_journals_has_its_own_mark() {
        let dirs = [marks(&[(None, 99, 0), (Some(0), 5, 1), (Some(1), 6, 2)])];
        assert_eq!(mark(0, true, dirs.iter()), (5, 1));
        assert_eq!(mark(1, true, dirs.iter()), (6, 2));
        assert_eq!(mark(2, true, dirs.iter()), (0, 0));
    }

    #[test]
    fn needed_is_what_is_behind_the_mark() {
        let check = |mark, files: &[(u64, u64)], bytes, count, missing| {
            let expected = Replay {
                bytes,
                files: count,
                missing,
            };
            assert_eq!(
                replay(mark, &journal(files)),
                expected,
                "{mark:?} {files:?}"
            );
        };
        let files = [(4, 100), (5, 200), (6, 300)];
        check((5, 150), &files, 350, 2, None);
        check((0, 0), &files, 600, 3, None);
        check((6, 300), &files, 0, 1, None);
        check((6, 999), &files, 0, 1, None);
        check((7, 10), &files, 0, 0, Some(7));
        check((3, 10), &files, 600, 3, Some(3));
        check((0, 0), &[], 0, 0, None);
        check((1, 0), &[(1, u64::MAX), (2, u64::MAX)], u64::MAX, 2, None);
    }

    #[test]
    fn a_file_that_may_be_among_those_left_out_is_not_missing() {
        let files = BookieFiles {
            left_out: 1,
            ..journal(&[(5, 1)])
        };
        assert_eq!(replay((3, 0), &files).missing, None);
        let expected = JournalView {
            unmarked: None,
            files: 2,
            oldest: Some(5),
        };
        assert_eq!(view(&files, None), expected);
    }

    /// Steps of minute, mark, unmarked bytes, over warn; rolls of 100 bytes.
    fn told(steps: &[(u64, u64, u64, bool)]) -> Vec<u64> {
        let minute = |minutes: u64| Elapsed::from_secs(60 * minutes);
        let (_, first, bytes, _) = steps[0];
        let mut drain = Drain::new(minute(steps[0].0), (first, 0), bytes);
        let told = steps.iter().filter(|(at, file, bytes, over_warn)| {
            let replay = Replay {
                bytes: *bytes,
                files: 1,
                missing: None,
            };
            let text = drain.observe(minute(*at), (*file, 0), replay, *over_warn, Some(100));
            text.is_some()
        });
        told.map(|(at, ..)| *at).collect()
    }

    #[test]
    fn growth_by_two_rolls_without_a_mark_is_told_once_until_the_mark_moves() {
        let steps = [
            (0, 1, 50, false),
            (1, 1, 250, false),
            (2, 1, 251, false),
            (3, 1, 900, false),
            (4, 2, 400, false),
            (5, 2, 600, false),
            (6, 2, 601, false),
        ];
        assert_eq!(told(&steps), [2, 6]);
    }

    #[test]
    fn over_warn_a_mark_that_stands_for_ten_minutes_is_told_if_the_journal_grew() {
        let steps = [(0, 1, 50, true), (9, 1, 60, true), (10, 1, 60, true)];
        assert_eq!(told(&steps), [10]);
        let below = [(0, 1, 50, false), (10, 1, 60, false)];
        assert_eq!(told(&below), [0; 0]);
        let idle = [(0, 1, 50, true), (999, 1, 50, true)];
        assert_eq!(told(&idle), [0; 0]);
    }

    #[test]
    fn a_file_is_missing_when_the_mark_still_names_it_after_a_listing_without_it() {
        let second = Elapsed::from_secs;
        let mut drain = Drain::new(second(5), (7, 0), 0);
        assert!(!drain.surely_misses(second(6), second(6)), "it is there");
        drain.note_listing(second(5), true);
        assert!(!drain.surely_misses(second(5), second(9)), "made since");
        drain.note_listing(second(8), true);
        assert!(drain.surely_misses(second(8), second(7)));
        let mut late = Drain::new(second(5), (7, 0), 0);
        late.note_listing(second(8), true);
        assert!(!late.surely_misses(second(8), second(7)), "removed since");
        assert!(late.surely_misses(second(9), second(8)));
        late.note_listing(second(10), false);
        assert!(!late.surely_misses(second(10), second(11)), "back again");
    }

    #[test]
    fn the_text_has_numbers_and_a_warning() {
        let mut drain = Drain::new(Elapsed::ZERO, (0x1a2, 0), 0);
        let replay = Replay {
            bytes: 5 << 30,
            files: 3,
            missing: None,
        };
        let now = Elapsed::from_secs(720);
        let text = drain.observe(now, (0x1a2, 0), replay, false, None);
        assert_eq!(
            text.unwrap_or_default(),
            "lastMark has not moved for 12 min while the journal grew by 5.0 GiB; up to 5.0 GiB in \
             3 files are needed for a start: look for flush errors in the bookie's log, make room \
             on its ledger directories, and never delete the journal file 1a2.txn or a later one"
        );
    }
}
