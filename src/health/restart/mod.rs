//! Whether a start of the bookie would fail now. Says so only where a rule that BookKeeper itself
//! checks is violated, or a write without which it ends must fail; what is merely likely is "not
//! known", with its reason. Pure. Read from BookKeeper 4.17.3; each rule names its class.
//!
//! Seen with real bookies whose ledger directories were full and short of the reserve: one with
//! `InterleavedLedgerStorage` ended its replay with `NoWritableLedgerDirException` and did not run;
//! with `SortedLedgerStorage` and `DbLedgerStorage` it started, read-only, its replayed entries in memory.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::bookkeeper;
use super::dir::{Role, path_text};
use super::journal::Replay;
use super::moment::Elapsed;
use super::observation::{Device, Space};
use super::status::{AccessStatus, Cause};
use super::words::bytes_text;

/// Blocks that a new journal file needs at once: its header, and the last one of what it
/// preallocates; the rest of that is a hole (`JournalChannel.writeHeader`).
const NEW_JOURNAL_BYTES: u64 = 2 * 4096;

/// What the bookie's own file says about a start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BookieNeeds {
    /// `minUsableSizeForEntryLogCreation`.
    pub entry_log_reserve: u64,
    /// `minUsableSizeForIndexFileCreation`.
    pub index_file_reserve: u64,
    /// `readOnlyModeEnabled`.
    pub read_only_mode: bool,
    /// `diskUsageWarnThreshold`.
    pub warn: f64,
    /// `diskUsageThreshold`.
    pub full: f64,
    /// Entries are written to an entry log while they are replayed (`InterleavedLedgerStorage`);
    /// other storages keep them in memory first.
    pub writes_at_once: bool,
    /// `logSizeLimit`.
    pub entry_log_bytes: u64,
    /// `journalMaxSizeMB`.
    pub journal_file_bytes: u64,
    /// Bytes that the files of one journal may take.
    pub journal_bytes: u64,
    /// `journalPreAllocSizeMB`: a file is larger than what was written by up to this.
    pub journal_step: u64,
}

/// What is known about a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No reason is known for which it would fail.
    WouldSucceed,
    /// It would fail.
    WouldFail,
    /// It may fail, or too much is unknown.
    Unknown,
}

impl Verdict {
    /// The word used in events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::WouldSucceed => "wouldSucceed",
            Verdict::WouldFail => "wouldFail",
            Verdict::Unknown => "unknown",
        }
    }
}

/// The verdict with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartView {
    /// Verdict.
    pub verdict: Verdict,
    /// Why, those that are certain first; empty when it would succeed.
    pub reasons: Vec<String>,
}

/// A directory, as a start meets it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartDir<'a> {
    pub(super) path: &'a Path,
    pub(super) role: Role,
    pub(super) access: AccessStatus,
    pub(super) cause: Option<Cause>,
    /// It had a bookie's cookie when it was pinned.
    pub(super) had_cookie: bool,
    pub(super) device: Option<Device>,
    pub(super) space: Option<Space>,
}

/// A journal, as a start meets it. No replay: it is not known.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartJournal<'a> {
    pub(super) path: &'a Path,
    pub(super) replay: Option<Replay>,
    /// What could not be read, if that is why.
    pub(super) refused: Option<&'a str>,
    /// Mark and files were read in an order that leaves no other reason for a missing file.
    pub(super) in_order: bool,
}

struct Reasons {
    certain: Vec<String>,
    possible: Vec<String>,
}

impl Reasons {
    fn add(&mut self, certain: bool, text: String) {
        if certain {
            self.certain.push(text);
        } else {
            self.possible.push(text);
        }
    }
}

/// Judges a start with these directories.
pub(super) fn judge(
    dirs: &[StartDir<'_>],
    journals: &[StartJournal<'_>],
    needs: &BookieNeeds,
) -> RestartView {
    let mut reasons = Reasons {
        certain: Vec::new(),
        possible: Vec::new(),
    };
    for dir in dirs {
        usable(dir, needs, &mut reasons);
        if dir.role == Role::Journal {
            room_for_a_journal_file(dir, &mut reasons);
        }
    }
    let mut replayed = Replay::default();
    let mut surely = false;
    for journal in journals {
        let path = path_text(journal.path);
        let Some(replay) = journal.replay else {
            let why = journal.refused.map(|text| format!(": {text}"));
            let why = why.unwrap_or_default();
            let text = format!("what the journal {path} needs is not known{why}");
            reasons.add(false, text);
            continue;
        };
        // `BookieImpl.replay`: "Recovery log … is missing".
        if let Some(missing) = replay.missing {
            let text =
                format!("the journal file {missing:x}.txn, named by lastMark, is not in {path}");
            reasons.add(journal.in_order, text);
        }
        replayed.bytes = replayed.bytes.saturating_add(replay.bytes);
        surely |= needs.journal_step.saturating_mul(replay.files) < replay.bytes;
    }
    for role in [Role::Ledger, Role::Index] {
        reserves(role, dirs, needs, (replayed.bytes, surely), &mut reasons);
    }
    room_for_a_replay(dirs, replayed.bytes, &mut reasons);
    let verdict = match (reasons.certain.is_empty(), reasons.possible.is_empty()) {
        (false, _) => Verdict::WouldFail,
        (true, false) => Verdict::Unknown,
        (true, true) => Verdict::WouldSucceed,
    };
    reasons.certain.append(&mut reasons.possible);
    RestartView {
        verdict,
        reasons: reasons.certain,
    }
}

/// `LegacyCookieValidation`, `BookieImpl.checkDirectoryStructure`, `LedgerDirsMonitor.init` with
/// `DiskChecker.checkDir`, and the journal's first write.
fn usable(dir: &StartDir<'_>, needs: &BookieNeeds, reasons: &mut Reasons) {
    let what = format!("the {} directory {}", dir.role.name(), path_text(dir.path));
    // The monitor looks at the space first, and whether a directory can be written only below warn.
    let checked = dir.space.is_some_and(|space| !is_over(&space, needs.warn));
    let (certain, why) = match (dir.access, dir.cause) {
        (AccessStatus::Ok, _) => return,
        (AccessStatus::Unknown, _) => (false, "is not known"),
        (AccessStatus::Vanished, _) => (dir.had_cookie, "is not there, and with it its cookie"),
        (AccessStatus::Replaced, _) => (false, "is another one than before"),
        (AccessStatus::ReadOnly, _) if dir.role == Role::Journal => {
            (true, "is read-only, and a start makes a new file in it")
        }
        (AccessStatus::ReadOnly, Some(Cause::ReadOnlyMount)) => {
            (checked, "is read-only, and the bookie checks that")
        }
        (AccessStatus::ReadOnly, _) => (false, "is read-only"),
        (AccessStatus::Failed, Some(Cause::NotADirectory | Cause::Disconnected)) => {
            (true, "cannot be entered or made")
        }
        (AccessStatus::Failed, _) => (false, "fails"),
        (AccessStatus::Hung, _) => (false, "does not answer"),
    };
    reasons.add(certain, format!("{what} {why}"));
}

/// The first thing that the journal's thread does is a new file; without it the bookie ends.
fn room_for_a_journal_file(dir: &StartDir<'_>, reasons: &mut Reasons) {
    let Some(space) = dir.space.filter(|_| dir.access == AccessStatus::Ok) else {
        return;
    };
    let no_inode = space.inodes != 0 && space.inodes_free == 0;
    if space.available < NEW_JOURNAL_BYTES || no_inode {
        let path = path_text(dir.path);
        reasons.add(
            true,
            format!("there is no room for a new journal file in {path}"),
        );
    }
}

/// `LedgerDirsMonitor.init` and `LedgerDirsManager.getDirsAboveUsableThresholdSize`
/// (BOOKKEEPER-1034, issue 1316): with every directory full, the bookie starts read-only if it may,
/// and new files are made only in one with more than the reserve.
fn reserves(
    role: Role,
    dirs: &[StartDir<'_>],
    needs: &BookieNeeds,
    (replayed, surely): (u64, bool),
    reasons: &mut Reasons,
) {
    let (reserve, key) = match role {
        Role::Index => (
            needs.index_file_reserve,
            "minUsableSizeForIndexFileCreation",
        ),
        _ => (needs.entry_log_reserve, "minUsableSizeForEntryLogCreation"),
    };
    let of_role = || dirs.iter().filter(|dir| dir.role == role);
    let spaces: Option<Vec<Space>> = of_role().map(|dir| dir.space).collect();
    // Those that are unknown were named by themselves.
    let Some(spaces) = spaces.filter(|spaces| !spaces.is_empty()) else {
        return;
    };
    if !spaces.iter().all(|space| is_over(space, needs.full)) {
        return;
    }
    let name = role.name();
    if !needs.read_only_mode {
        let text = format!("every {name} directory is full and readOnlyModeEnabled is false");
        reasons.add(true, text);
        return;
    }
    let most = spaces.iter().map(|space| space.available).max();
    let most = most.unwrap_or_default();
    if most <= reserve && 0 < replayed {
        let certain = role == Role::Ledger && surely && needs.writes_at_once;
        let text = format!(
            "every {name} directory is full and none has more than {} ({key}) to replay the journal \
             into: the most is {}",
            bytes_text(reserve),
            bytes_text(most)
        );
        reasons.add(certain, text);
    }
}

/// What is replayed may have to be written again, entry by entry.
fn room_for_a_replay(dirs: &[StartDir<'_>], replayed: u64, reasons: &mut Reasons) {
    let mut counted = BTreeSet::new();
    let mut free: u64 = 0;
    for dir in dirs.iter().filter(|dir| dir.role == Role::Ledger) {
        let Some(space) = dir.space else {
            return;
        };
        if dir.device.is_none_or(|device| counted.insert(device)) {
            free = free.saturating_add(space.available);
        }
    }
    if free < replayed {
        let text = format!(
            "up to {} of the journal are to be replayed, and the ledger directories have room for {}",
            bytes_text(replayed),
            bytes_text(free)
        );
        reasons.add(false, text);
    }
}

/// Over a threshold by the bookie's own arithmetic.
fn is_over(space: &Space, threshold: f64) -> bool {
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    #[allow(clippy::cast_possible_truncation)] // the bookie reads a float
    let threshold = threshold as f32;
    threshold < bookkeeper::usage(number(space.available), number(space.size))
}

/// Which verdict was told last. A start that would fail, or would not fail any more, is told when
/// that has held for a while: a directory swings around a threshold, a look comes before another.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch {
    failing: bool,
    since: Option<Elapsed>,
}

impl Watch {
    /// What is to be told now, if anything. What is not known changes nothing.
    pub(super) fn observe(
        &mut self,
        now: Elapsed,
        verdict: Verdict,
        dwell: Duration,
    ) -> Option<Verdict> {
        let failing = verdict == Verdict::WouldFail;
        if verdict == Verdict::Unknown || failing == self.failing {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) < dwell {
            return None;
        }
        self.failing = failing;
        self.since = None;
        Some(verdict)
    }
}

#[cfg(test)]
pub(super) mod tests;
