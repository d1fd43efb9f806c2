//! The mode, its registration, and recovery writes.

use super::*;

fn explained(lines: &str) -> String {
    let world = run(settings(), lines);
    let mismatches = world.told.iter();
    let mut mismatches = mismatches.filter(|(_, told)| told.kind == EventKind::ModeMismatch);
    let text = mismatches
        .next()
        .map(|(at, told)| format!("{at} {}", told.message));
    assert!(mismatches.next().is_none(), "{:?}", world.events());
    text.unwrap_or_default()
}

fn check(lines: &str, expected: &[&str]) {
    let text = explained(lines);
    for part in expected {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_bookie_that_should_be_read_only_by_its_own_monitor_and_is_not() {
    check(
        "0 state writable
         5 disks l1:97 l2:50 j1:50
         99 -",
        &[
            "36 the disks ask for readOnly, the server has been writable",
            "its own monitor should have",
            "W12",
            "W1)",
        ],
    );
}

#[test]
fn what_is_full_at_a_start_that_was_seen_never_counts_w1() {
    check(
        "0 state writable
         0 process 7 100
         1 disks l1:97 l2:50 j1:50
         2 process 8 102
         99 -",
        &[
            "for its own monitor that is right, /l1 was full when it started",
            "W1",
        ],
    );
}

/// The other ledger directory is not full, so nothing says again that all are.
#[test]
fn index_directories_that_recover_make_it_writable_beside_a_full_ledger_w4() {
    check(
        "0 disks l1:50 l2:50 i1:50
         0 state writable
         15 disks l1:97 l2:50 i1:97
         15 state readOnly
         30 disks l1:97 l2:50 i1:50
         41 state writable
         120 -",
        &["72 ", "directories of another role recovered", "W4"],
    );
}

#[test]
fn a_journal_is_not_watched_by_the_bookie_w38() {
    check(
        "0 state writable\n 5 disks l1:50 j1:97\n 99 -",
        &["it does not watch its journal /j1 (W38"],
    );
}

#[test]
fn what_its_monitor_cannot_see_is_said() {
    for (state, why) in [("hung", "W12"), ("gone", "W14"), ("failed", "W11")] {
        let lines = format!("0 state writable\n 5 disks l1:{state} l2:50\n 99 -");
        check(&lines, &["/l1: ", why]);
    }
}

#[test]
fn without_any_full_one_of_two_full_directories_is_right_for_the_bookie() {
    let mut settings = settings();
    settings.model.any_full = false;
    let world = run(settings, "0 state writable\n 5 disks l1:97 l2:50\n 99 -");
    let text = world.message();
    assert!(
        text.contains("not all are, and readOnlyModeOnAnyDiskFullEnabled"),
        "{text}"
    );
}

/// From 4.18 on it is the default, and before 4.16 the key does not count.
#[test]
fn the_version_of_the_process_says_what_the_file_leaves_open() {
    let open = Settings {
        any_full_known: false,
        ..settings()
    };
    for (settings, version, right) in [
        (open, "4.17.3", true),
        (open, "4.18.0", false),
        (settings(), "4.17.3", false),
        (settings(), "4.14.8", true),
    ] {
        let lines = format!(
            "0 state writable
             0 process 7 100 {version}
             5 disks l1:97 l2:50
             99 -"
        );
        let world = run(settings, &lines);
        let text = world.message();
        assert_eq!(text.contains("that is right"), right, "{version}: {text}");
    }
}

#[test]
fn read_only_with_healthy_disks_and_no_claim_w20() {
    check(
        "0 state writable
         5 state readOnly
         99 -",
        &[
            "36 the disks ask for writable, the server has been readOnly: the bookie is read-only although its disks \
             are healthy and no claim explains it",
            "#1919, #4270",
        ],
    );
}

/// Its process is there seconds before it answers; what it said before its end is no first answer.
#[test]
fn read_only_kept_over_a_restart_that_takes_its_time_w5() {
    check(
        "0 state writable
         0 process 7 100
         3 state none
         4 process 8 103
         5 state none
         6 state none
         7 state readOnly
         99 -",
        &["in its first answer after its start"],
    );
}

/// An agent that is younger than the bookie has not seen its first answer; that a restart ends it is not to be said.
#[test]
fn read_only_of_a_bookie_that_persists_its_status_and_whose_start_was_not_seen() {
    let settings = Settings {
        persists_status: Some(true),
        ..settings()
    };
    let world = run(settings, "0 state readOnly\n 99 -");
    let text = world.message();
    for part in [
        "told it by PUT",
        "#1919",
        "a restart need not end that",
        "#4640",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn read_only_kept_over_a_restart_w5() {
    check(
        "0 state writable
         0 process 7 100
         3 state none
         5 process 8 103
         6 state readOnly
         99 -",
        &[
            "37 ",
            "in its first answer after its start",
            "#4640, #4225",
            "W5",
        ],
    );
}

#[test]
fn a_claim_explains_it_and_what_the_agent_holds_was_not_done_by_hand() {
    for owner in ["operator", "drain", "agent"] {
        let lines = format!("0 claim {owner}\n 0 state readOnly\n 99 -");
        assert_eq!(explained(&lines), "");
    }
    assert_eq!(priority("0 claim agent\n 0 state readOnly\n 99 -"), [""; 0]);
}

#[test]
fn another_file_of_the_bookie_is_another_model() {
    let mut world = run(settings(), "0 state writable\n 5 disks l1:97 l2:50\n 20 -");
    let should_be = |world: &World| {
        world
            .judge
            .view(world.now().elapsed)
            .should_be
            .unwrap()
            .mode
    };
    assert_eq!(should_be(&world), bookkeeper::Mode::ReadOnly);
    let mut other = settings();
    other.model.full = 0.98;
    world.judge.configure(other);
    world.until(40);
    assert_eq!(should_be(&world), bookkeeper::Mode::Writable);
}

#[test]
fn the_low_watermark_of_the_bookie_keeps_it_read_only() {
    let mut settings = settings();
    settings.model.low_watermark = 0.5;
    let lines = "0 disks l1:97
         0 state readOnly
         20 disks l1:80
         99 -";
    let world = run(settings, lines);
    assert!(
        world.message().contains("its own monitor keeps it there"),
        "{}",
        world.message()
    );
}

#[test]
fn registrations_have_to_agree_with_the_state_for_half_a_minute() {
    for (registered, why) in [
        ("writable readOnly", "W34, #4172"),
        ("none", "in neither list"),
        ("readOnly", "in the other list"),
    ] {
        let lines = format!(
            "0 session on
             0 state writable
             5 registered {registered}
             99 registered writable
             120 registered {registered}
             199 -"
        );
        let world = run(settings(), &lines);
        assert_eq!(world.events(), ["36 modeMismatch", "151 modeMismatch"]);
        assert!(world.message().contains(why), "{}", world.message());
    }
}

#[test]
fn registrations_say_nothing_without_a_session() {
    let lines = "0 session off\n 0 state writable\n 5 registered none\n 99 -";
    assert_eq!(run(settings(), lines).events(), [""; 0]);
}

fn priority(lines: &str) -> Vec<String> {
    let world = run(settings(), lines);
    let told = world.told.iter();
    let told = told.filter(|(_, told)| told.kind == EventKind::HighPriorityMismatch);
    told.map(|(at, told)| format!("{at} {}", told.message))
        .collect()
}

#[test]
fn recovery_writes_without_room_or_refused_with_room() {
    let takes = priority("0 room no\n 0 disks l1:97\n 0 state readOnly\n 99 -");
    assert!(
        takes[0].starts_with("21 the bookie takes recovery writes although"),
        "{takes:?}"
    );
    let refuses = priority("0 disks l1:97\n 0 state readOnly refuses\n 99 -");
    assert!(
        refuses[0].starts_with("21 the bookie refuses recovery writes although"),
        "{refuses:?}"
    );
    assert_eq!((takes.len(), refuses.len()), (1, 1));
}

/// W36: a bookie that is drained goes on taking them.
#[test]
fn a_manual_read_only_that_takes_recovery_writes_is_told_once() {
    let told = priority("0 claim operator\n 0 state readOnly\n 99 state readOnly\n 999 -");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("W36"), "{told:?}");
    let writable = priority("0 room no\n 0 state writable\n 99 -");
    assert_eq!(writable, [""; 0], "a writable bookie takes every write");
}
