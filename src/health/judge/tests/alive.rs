//! Down, up, restarted.

use super::*;

#[test]
fn a_bookie_that_does_not_answer_is_down_after_ten_seconds_and_up_at_its_first_answer() {
    let world = run(
        settings(),
        "0 state writable
         5 state none
         14 state none
         14 process none
         40 state starting
         50 state writable
         99 -",
    );
    assert_eq!(world.events(), ["15 bookieDown", "50 bookieUp"]);
    let told: Vec<&str> = world.told.iter().map(|(_, told)| &*told.message).collect();
    assert_eq!(
        told,
        [
            "the bookie has not served for 10 s: its admin server does not answer (connection refused); no process of \
             it is there",
            "the bookie answers and runs again, after 45 s"
        ]
    );
}

#[test]
fn one_answer_that_is_lost_is_no_news() {
    let world = run(
        settings(),
        "0 state writable
         5 state none
         9 state writable
         12 state none
         21 state writable
         99 -",
    );
    assert_eq!(world.events(), [""; 0]);
}

/// #3150: it answers `running: false, readOnly: true, shuttingDown: true` for a second, then no more.
#[test]
fn a_bookie_that_dies_of_a_full_journal_is_down_and_never_read_only() {
    let mut world = run(settings(), "0 state writable\n 3 state ending");
    assert_eq!(world.judge.observed(), None);
    world.until(20);
    assert_eq!(world.events(), ["13 bookieDown"]);
    assert!(
        world.message().contains("readOnly means nothing"),
        "{}",
        world.message()
    );
}

#[test]
fn a_bookie_that_never_answered_is_down_too() {
    let world = run(settings(), "3 state none\n 60 -");
    assert_eq!(world.events(), ["13 bookieDown"]);
}

#[test]
fn another_process_is_a_restart() {
    let world = run(
        settings(),
        "0 state writable
         1 process 7 100
         5 process none
         6 process 8 106
         7 process 8 106",
    );
    assert_eq!(world.events(), ["6 bookieRestarted"]);
    assert_eq!(
        world.message(),
        "the bookie was started again: process 8 instead of 7; a read-only mode set by hand is forgotten, unless \
         persistBookieStatusEnabled is true"
    );
}

/// In a container the bookie always has the same id; and a corrected clock moves every start.
#[test]
fn the_same_id_is_a_restart_when_the_bookie_was_away() {
    let clock = run(
        settings(),
        "0 state writable
         1 process 1 100
         9 process 1 160",
    );
    assert_eq!(clock.events(), [""; 0]);
    let restarted = run(
        settings(),
        "0 state writable
         1 process 1 100
         5 state none
         8 state writable
         9 process 1 106
         20 process 1 106",
    );
    assert_eq!(restarted.events(), ["9 bookieRestarted"]);
}

#[test]
fn counters_that_begin_anew_are_a_restart_where_processes_cannot_be_seen() {
    let unseen = run(
        settings(),
        "0 state writable
         1 gc 3@0,9@0
         60 gc 0@59,0@59",
    );
    assert_eq!(unseen.events(), ["60 bookieRestarted"]);
    let seen = run(
        settings(),
        "0 state writable
         0 process 1 100
         1 gc 3@0,9@0
         60 gc 0@59,0@59",
    );
    assert_eq!(seen.events(), [""; 0]);
}
