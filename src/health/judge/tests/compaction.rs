//! Compaction and collections.

use super::*;

/// A collector for each of two ledger directories.
fn db() -> Settings {
    Settings {
        collector_for_each_dir: true,
        ..settings()
    }
}

const OVER_WARN_AND_BACK: &str = "0 state writable
    1 flags ok
    20 disks l1:92 l2:50
    40 flags major
    60 disks l1:50 l2:50";

/// apache/pulsar#22901, W19: back below warn without having been full.
#[test]
fn suspended_with_no_directory_over_warn_is_told_after_two_checks() {
    let lines = format!("{OVER_WARN_AND_BACK}\n 70 flags major\n 200 -");
    let world = run(settings(), &lines);
    assert_eq!(world.events(), ["82 compactionSuspended"]);
    assert!(
        world.message().contains("apache/pulsar#22901"),
        "{}",
        world.message()
    );
    let resumed = format!("{OVER_WARN_AND_BACK}\n 70 flags ok\n 200 -");
    assert_eq!(run(settings(), &resumed).events(), [""; 0]);
}

#[test]
fn who_suspended_it_is_not_known_if_no_trip_was_seen() {
    let world = run(settings(), "0 state writable\n 1 flags major minor\n 99 -");
    assert_eq!(world.events(), ["22 compactionSuspended"]);
    assert!(
        world
            .message()
            .starts_with("major and minor compaction are suspended")
    );
    assert!(world.message().contains("by whom is not known"));
    assert_eq!(world.action(), None, "a person may have wanted it so");
}

/// `DbLedgerStorage` says false unless all are suspended, so it is concluded from what was seen.
#[test]
fn one_collector_of_several_is_judged_by_the_history_of_its_directory() {
    let lines = OVER_WARN_AND_BACK.replace("flags major", "flags ok");
    let world = run(db(), &format!("{lines}\n 200 -"));
    assert_eq!(world.events(), ["82 compactionSuspended"]);
    assert!(
        world
            .message()
            .contains("suspended in /l1 by what was seen"),
        "{}",
        world.message()
    );
    let suspended = world
        .judge
        .view(Duration::from_secs(200))
        .compaction
        .suspended;
    assert!(
        suspended.is_some_and(|suspended| suspended.major && !suspended.minor && !suspended.seen)
    );
}

fn suspended(settings: Settings, lines: &str) -> Vec<u64> {
    let world = run(settings, lines);
    let told = world.told.iter();
    let told = told.filter(|(_, told)| told.kind == EventKind::CompactionSuspended);
    told.map(|(at, _)| *at).collect()
}

/// Full and then below warn at the next check: the bookie resumes both by itself.
#[test]
fn a_full_directory_that_is_emptied_at_once_leaves_nothing_suspended() {
    let lines = "0 state writable
        1 flags ok
        20 disks l1:97 l2:50
        60 disks l1:50 l2:50
        200 -";
    assert_eq!(suspended(db(), lines), [0; 0]);
    let over_warn_on_its_way = lines.replace("60 disks", "50 disks l1:92 l2:50\n 80 disks");
    assert_eq!(suspended(db(), &over_warn_on_its_way), [102]);
}

#[test]
fn with_forced_collections_nothing_is_suspended() {
    let settings = Settings {
        forced_gc_allowed: true,
        ..db()
    };
    let lines = OVER_WARN_AND_BACK.replace("flags major", "flags ok");
    assert_eq!(run(settings, &format!("{lines}\n 200 -")).events(), [""; 0]);
}

#[test]
fn resumed_is_only_what_the_bookie_suspended_for_a_trip_that_was_seen_to_begin() {
    let ask = |lines: &str| run(settings(), lines).action();
    let major = Some(BesideAction::ResumeCompaction {
        major: true,
        minor: false,
    });
    let clean = format!("{OVER_WARN_AND_BACK}\n 70 flags major\n");
    assert_eq!(
        ask(&format!("{clean} 79 -")),
        None,
        "two checks are not over"
    );
    assert_eq!(ask(&format!("{clean} 90 -")), major);
    let again = format!("{clean} 90 acted\n 91 flags major\n");
    assert_eq!(ask(&format!("{again} 600 -")), None);
    assert_eq!(ask(&format!("{again} 700 -")), major, "it came to nothing");
    let over = format!("{clean} 90 disks l1:50 l2:91\n 91 -");
    assert_eq!(ask(&over), None, "another one is over warn");
    let suspended_before = clean.replace("1 flags ok", "1 flags major");
    assert_eq!(ask(&format!("{suspended_before} 90 -")), None);
    let begun_before = clean.replace("0 state", "0 disks l1:92 l2:50\n 0 state");
    assert_eq!(ask(&format!("{begun_before} 90 -")), None);
    let unknown = clean.replace("1 flags ok", "1 flags none");
    assert_eq!(ask(&format!("{unknown} 90 -")), None);
    let restarted = format!("0 process 1 1\n{clean} 75 process 2 75\n 76 flags major\n 120 -");
    assert_eq!(
        ask(&restarted),
        None,
        "whoever suspended it then, the trip did not"
    );
}

#[test]
fn a_collection_is_asked_for_while_space_is_short_and_once_an_hour() {
    let ask = |lines: &str| run(settings(), lines).action();
    let gc = Some(BesideAction::RequestGc);
    let full = "0 state readOnly\n 0 forced no\n 10 disks l1:97 l2:50\n";
    assert_eq!(ask(&format!("{full} 70 -")), None);
    assert_eq!(ask(&format!("{full} 72 -")), gc);
    let warn = full.replace("97", "92");
    assert_eq!(ask(&format!("{warn} 600 -")), None);
    assert_eq!(ask(&format!("{warn} 700 -")), gc);
    assert_eq!(ask(&format!("{full} 80 acted\n 3600 -")), None);
    assert_eq!(ask(&format!("{full} 80 acted\n 3700 -")), gc);
    assert_eq!(
        ask(&format!("{full} 90 forced yes\n 99 -")),
        None,
        "one runs"
    );
    let jitter = Settings {
        jitter: Duration::from_secs(100),
        ..settings()
    };
    assert_eq!(run(jitter, &format!("{full} 80 -")).action(), None);
    assert_eq!(run(jitter, &format!("{full} 180 -")).action(), gc);
}

#[test]
fn no_collection_while_deletions_could_be_undone() {
    let mut world = run(
        settings(),
        "0 state readOnly\n 0 forced no\n 10 disks l1:97\n 99 -",
    );
    assert_eq!(world.action(), Some(BesideAction::RequestGc));
    world.at += 1;
    let now = world.now();
    let (mut judge, mut facts) = world.split();
    facts.undoable = true;
    judge.tick(now, &facts);
    assert_eq!(judge.action(now.elapsed), None);
}

/// Minor each hour, collections each quarter of one: three intervals and two collections.
#[test]
fn no_compaction_for_three_intervals_is_told_once() {
    let last = 3 * 3600 + 2 * 900;
    let lines = format!(
        "0 state writable
         1 flags ok
         2 gc 1@0,5@0
         {} -",
        last + 100
    );
    let world = run(settings(), &lines);
    assert_eq!(world.events(), [format!("{} compactionStalled", last + 1)]);
    assert!(
        world
            .message()
            .starts_with("the bookie: no minor compaction has ended for 3 h")
    );
    let moving = lines.replace("2 gc 1@0,5@0", "2 gc 1@0,5@0\n 9000 gc 1@0,6@9000");
    assert_eq!(run(settings(), &moving).events(), [""; 0]);
    // Shown until one ends, or one may not run.
    let stalled = |lines: &str| run(settings(), lines).view().compaction.stalled;
    assert_eq!(stalled("0 state writable"), None);
    assert_eq!(stalled("0 state writable\n 2 gc 1@0,5@0"), Some(false));
    assert_eq!(stalled(&lines), Some(true));
    let end = last + 110;
    assert_eq!(
        stalled(&format!("{lines}\n{end} gc 1@0,6@{end}\n{} -", end + 1)),
        Some(false)
    );
    assert_eq!(
        stalled(&format!("{lines}\n{end} disks l1:92\n{} -", end + 1)),
        Some(false)
    );
}

/// The agent may be younger than the silence.
#[test]
fn what_ended_before_the_agent_started_counts_by_its_own_time() {
    let world = run(settings(), "0 state writable\n 2 gc 1@-400000,9@1\n 9 -");
    assert_eq!(world.events(), ["3 compactionStalled"]);
    assert!(
        world
            .message()
            .contains("no major compaction has ended for 111 h"),
        "{}",
        world.message()
    );
}

#[test]
fn a_compaction_that_is_off_or_held_back_is_not_stalled() {
    let lines = "0 state writable\n 2 gc 1@0,5@0\n 20000 -";
    let off = Settings {
        minor: None,
        ..settings()
    };
    assert_eq!(run(off, lines).events(), [""; 0]);
    let over_warn = lines.replace("2 gc", "1 disks l1:92\n 2 gc");
    assert_eq!(run(settings(), &over_warn).events(), [""; 0]);
}

/// #1946: each looks at the metadata of all ledgers, and nothing is freed.
#[test]
fn forced_collections_that_free_nothing_are_told_once() {
    let looks = |used: fn(u64) -> u64, forced: fn(u64) -> bool| {
        let mut lines = "0 state readOnly\n".to_owned();
        for look in 0..120 {
            let forced = if forced(look) { "yes" } else { "no" };
            let (at, used) = (look * 20, used(look));
            lines.push_str(&format!("{at} disks l1:{used}\n{at} forced {forced}\n"));
        }
        let world = run(settings(), &lines);
        let told = world.told.iter();
        let told = told.filter(|(_, told)| told.kind == EventKind::ForcedGcLoop);
        told.map(|(at, _)| *at).collect::<Vec<_>>()
    };
    assert_eq!(looks(|_| 92, |look| look % 5 != 0), [600]);
    assert_eq!(looks(|look| 94 - look / 30, |_| true), [0; 0], "it frees");
    assert_eq!(
        looks(|_| 92, |look| look % 2 == 0),
        [0; 0],
        "half of the looks"
    );
    // Shown until most of the looks find none.
    let look = |look: u64, forced| format!("{} forced {forced}\n", look * 20);
    let busy: String = (0..40).map(|at| look(at, "yes")).collect();
    let calm: String = (40..80).map(|at| look(at, "no")).collect();
    let shown = |lines: &str| run(settings(), lines).view().compaction.forced_loop;
    assert_eq!(shown("0 state readOnly"), None);
    assert_eq!(shown(&look(0, "yes")), Some(false));
    assert_eq!(shown(&busy), Some(true));
    assert_eq!(shown(&(busy + &calm)), Some(false));
}
