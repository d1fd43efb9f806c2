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
            let text = format!("what the journal {path} needs is not known");
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
pub(super) mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// BookKeeper's defaults.
    pub(in super::super) fn needs() -> BookieNeeds {
        BookieNeeds {
            entry_log_reserve: 1024 * MIB,
            index_file_reserve: 100 * MIB,
            read_only_mode: true,
            warn: 0.90,
            full: 0.95,
            writes_at_once: true,
            entry_log_bytes: 1024 * MIB,
            journal_file_bytes: 2048 * MIB,
            journal_bytes: 12 * 1024 * MIB,
            journal_step: 16 * MIB,
        }
    }

    /// Of 100 GiB, so many MiB available.
    fn dir(role: Role, available: u64) -> StartDir<'static> {
        let path = match role {
            Role::Ledger => "/l",
            Role::Journal => "/j",
            Role::Index => "/i",
        };
        StartDir {
            path: Path::new(path),
            role,
            access: AccessStatus::Ok,
            cause: None,
            had_cookie: true,
            device: None,
            space: Some(Space {
                size: 100 * 1024 * MIB,
                available: available * MIB,
                inodes: 10,
                inodes_free: 5,
            }),
        }
    }

    fn broken(role: Role, access: AccessStatus, cause: Cause) -> StartDir<'static> {
        StartDir {
            access,
            cause: Some(cause),
            ..dir(role, 50_000)
        }
    }

    fn replay(mib: u64, files: u64) -> StartJournal<'static> {
        let replay = Replay {
            bytes: mib * MIB,
            files,
            missing: None,
        };
        StartJournal {
            path: Path::new("/j"),
            replay: Some(replay),
            in_order: true,
        }
    }

    fn check(
        dirs: &[StartDir<'_>],
        journals: &[StartJournal<'_>],
        needs: &BookieNeeds,
        expected: &str,
    ) {
        let view = judge(dirs, journals, needs);
        let found = format!("{}: {}", view.verdict.name(), view.reasons.join("; "));
        assert_eq!(found, expected);
    }

    #[test]
    fn with_room_everywhere_a_start_would_succeed() {
        let dirs = [dir(Role::Journal, 50_000), dir(Role::Ledger, 50_000)];
        check(&dirs, &[replay(2048, 2)], &needs(), "wouldSucceed: ");
    }

    #[test]
    fn without_the_reserve_a_replay_has_nowhere_to_go() {
        let text = "every ledger directory is full and none has more than 1.0 GiB \
                    (minUsableSizeForEntryLogCreation) to replay the journal into: the most is 1.0 GiB";
        let dirs = [dir(Role::Ledger, 900), dir(Role::Ledger, 1024)];
        check(
            &dirs,
            &[replay(40, 2)],
            &needs(),
            &format!("wouldFail: {text}"),
        );
        // What is behind the mark may all be preallocated.
        check(
            &dirs,
            &[replay(32, 2)],
            &needs(),
            &format!("unknown: {text}"),
        );
        check(&dirs, &[replay(0, 1)], &needs(), "wouldSucceed: ");
        // Other storages keep replayed entries in memory, and may start.
        let memory = BookieNeeds {
            writes_at_once: false,
            ..needs()
        };
        check(
            &dirs,
            &[replay(40, 2)],
            &memory,
            &format!("unknown: {text}"),
        );
        // One byte more than the reserve, or one directory that is not full, and it may go.
        let room = [dir(Role::Ledger, 900), dir(Role::Ledger, 1025)];
        check(&room, &[replay(40, 2)], &needs(), "wouldSucceed: ");
        let writable = [dir(Role::Ledger, 900), dir(Role::Ledger, 6000)];
        check(&writable, &[replay(40, 2)], &needs(), "wouldSucceed: ");
    }

    #[test]
    fn an_index_without_its_reserve_matters_for_new_ledgers_only() {
        let dirs = [dir(Role::Ledger, 50_000), dir(Role::Index, 100)];
        check(
            &dirs,
            &[replay(40, 2)],
            &needs(),
            "unknown: every index directory is full and none has more than 100.0 MiB \
             (minUsableSizeForIndexFileCreation) to replay the journal into: the most is 100.0 MiB",
        );
    }

    #[test]
    fn without_read_only_mode_full_directories_end_the_start() {
        let needs = BookieNeeds {
            read_only_mode: false,
            ..needs()
        };
        check(
            &[dir(Role::Ledger, 4000)],
            &[replay(0, 1)],
            &needs,
            "wouldFail: every ledger directory is full and readOnlyModeEnabled is false",
        );
    }

    #[test]
    fn what_a_journal_cannot_do_without() {
        let ledger = dir(Role::Ledger, 50_000);
        check(
            &[dir(Role::Journal, 0), ledger],
            &[replay(0, 1)],
            &needs(),
            "wouldFail: there is no room for a new journal file in /j",
        );
        let mut no_inodes = dir(Role::Journal, 50_000);
        no_inodes.space = no_inodes.space.map(|space| Space {
            inodes_free: 0,
            ..space
        });
        check(
            &[no_inodes, ledger],
            &[replay(0, 1)],
            &needs(),
            "wouldFail: there is no room for a new journal file in /j",
        );
        let missing = StartJournal {
            replay: Some(Replay {
                missing: Some(0x1a2),
                ..Replay::default()
            }),
            ..replay(0, 0)
        };
        check(
            &[ledger],
            &[missing],
            &needs(),
            "wouldFail: the journal file 1a2.txn, named by lastMark, is not in /j",
        );
        let too_early = StartJournal {
            in_order: false,
            ..missing
        };
        check(
            &[ledger],
            &[too_early],
            &needs(),
            "unknown: the journal file 1a2.txn, named by lastMark, is not in /j",
        );
    }

    #[test]
    fn more_to_replay_than_there_is_room_may_fail() {
        let device = Some(Device { major: 8, minor: 1 });
        let one = StartDir {
            device,
            ..dir(Role::Ledger, 6000)
        };
        check(&[one, one], &[replay(6000, 3)], &needs(), "wouldSucceed: ");
        check(
            &[one, one],
            &[replay(6001, 3)],
            &needs(),
            "unknown: up to 5.9 GiB of the journal are to be replayed, and the ledger directories \
             have room for 5.9 GiB",
        );
    }

    #[test]
    fn broken_directories_count_as_far_as_bookkeeper_checks_them() {
        let ledger = |access, cause| broken(Role::Ledger, access, cause);
        let check = |dir: StartDir<'_>, expected| check(&[dir], &[], &needs(), expected);
        check(
            ledger(AccessStatus::Vanished, Cause::Missing),
            "wouldFail: the ledger directory /l is not there, and with it its cookie",
        );
        check(
            ledger(AccessStatus::ReadOnly, Cause::ReadOnlyMount),
            "wouldFail: the ledger directory /l is read-only, and the bookie checks that",
        );
        let over_warn = StartDir {
            space: dir(Role::Ledger, 9000).space,
            ..ledger(AccessStatus::ReadOnly, Cause::ReadOnlyMount)
        };
        check(
            over_warn,
            "unknown: the ledger directory /l is read-only, and the bookie checks that",
        );
        check(
            broken(Role::Journal, AccessStatus::ReadOnly, Cause::KernelError),
            "wouldFail: the journal directory /j is read-only, and a start makes a new file in it",
        );
        check(
            ledger(AccessStatus::Failed, Cause::NotADirectory),
            "wouldFail: the ledger directory /l cannot be entered or made",
        );
        check(
            ledger(AccessStatus::Failed, Cause::Io),
            "unknown: the ledger directory /l fails",
        );
        check(
            ledger(AccessStatus::Hung, Cause::Timeout),
            "unknown: the ledger directory /l does not answer",
        );
    }

    #[test]
    fn a_verdict_is_told_when_it_has_held_and_the_unknown_never() {
        use Verdict::{Unknown, WouldFail, WouldSucceed};
        let mut watch = Watch::default();
        let mut told = Vec::new();
        for (second, verdict) in [
            (0, WouldSucceed),
            (10, WouldFail),
            (39, WouldFail),
            (40, WouldFail),
            (50, WouldSucceed),
            (60, Unknown),
            (70, WouldSucceed),
            (80, WouldFail),
            (90, WouldSucceed),
            (120, WouldSucceed),
            (200, Unknown),
        ] {
            let dwell = Duration::from_secs(30);
            if let Some(verdict) = watch.observe(Elapsed::from_secs(second), verdict, dwell) {
                told.push((second, verdict));
            }
        }
        assert_eq!(told, [(40, WouldFail), (120, WouldSucceed)]);
    }
}
