//! What a start is said to do, reason by reason.

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
        refused: None,
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
