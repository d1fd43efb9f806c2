//! A drain on real bookies while what it stands on dies: its own process at each step, a target, ZooKeeper; and BookKeeper's
//! own repair at work on the same ledgers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Drain, tell};
use crate::harness::bench::Bench;
use crate::harness::run::{pass, try_for, wait_for};
use crate::stand::drain::{
    At, Ledger, Replicas, Stand, assert_no_worse, assert_only_members, assert_same_entries,
};
use crate::stand::told::seconds;

/// No pass comes in the way of what is counted.
const NO_PASS: Duration = Duration::from_secs(86_400);

/// A worker beside the test ends by itself once nothing is left.
const END: Duration = Duration::from_secs(300);

/// The locks of one who was killed go with its session.
const SESSION: Duration = Duration::from_secs(120);

/// The job looks at its bookies each 5 s.
const AGAIN: Duration = Duration::from_secs(30);

/// So slow that a fault hits it in the midst of its work: a dozen megabytes for each bookie.
const SLOW: &[&str] = &["--max-bytes-per-second", "500KiB"];

/// Every acknowledged entry is on its whole write set, so that the repair has nothing to do but for the dead.
const WHOLE: &str = "--kind 3,2,2";

/// Steps of a worker, in their order.
const STEPS: &[&str] = &[
    "drain-chosen",
    "drain-lock-held",
    "drain-part-copied",
    "drain-copied",
    "drain-verified",
    "drain-before-change",
    "drain-after-change",
    "drain-checked",
    "drain-done",
];

/// What was there before.
struct Before {
    entries: BTreeMap<At, String>,
    replicas: Replicas,
    ledgers: BTreeMap<u64, Ledger>,
}

fn prepared(stand: &Stand<'_>, words: &str) -> Before {
    let make = "--rounds 3 --entries 4 --max 200000".split(' ');
    let make: Vec<&str> = make.chain(words.split(' ')).collect();
    let mut owner = stand.make(&make);
    owner.say("quit");
    Before {
        entries: stand.entries("entries-before"),
        replicas: stand.replicas("replicas-before"),
        ledgers: stand.ledgers(),
    }
}

/// All is as it was, but for the members `gone`.
fn assert_as_before(stand: &Stand<'_>, before: &Before, gone: &[String]) -> usize {
    assert_same_entries(&before.entries, &stand.entries("entries-after"));
    assert_no_worse(&before.replicas, &stand.replicas("replicas-after"));
    assert_only_members(&before.ledgers, &stand.ledgers(), gone)
}

/// SIGKILL at each step, while BookKeeper's own repair works for a dead bookie on the same ledgers: what is left behind is good
/// at every moment, and the next one comes to the end.
pub(crate) fn killed_anywhere(bench: &Bench) {
    let began = bench.now();
    let stand = Stand::up(bench, 6, NO_PASS);
    let before = prepared(&stand, &format!("--ledgers 120 {WHOLE}"));
    let drain = Drain::new(&stand, &[1]);
    let job = drain.start(&[]);
    stand.bookie(6).stop("KILL");
    // What is there without it never becomes less.
    let least = stand.replicas("replicas-without");
    stand.lab.start_auto_recovery();
    let both = stand.ids(&[1, 6]);
    for step in STEPS {
        let done = drain.work_until(step, &job);
        assert_eq!(done.code, None, "{step}: it did not end there: {done:#?}");
        assert_no_worse(&least, &stand.replicas("replicas-now"));
        assert_only_members(&before.ledgers, &stand.ledgers(), &both);
        println!("    killed at {step}: every replica is there");
    }
    wait_for("the locks of the dead are gone", SESSION, || {
        let done = drain.run(&["run", "--job", &job, "--execute"]);
        (done.code == Some(0)).then_some(())
    });
    drain.wait_finished(&job);
    drain.assert_unnamed();
    wait_repaired(&stand, &both);
    stand.bookie(6).start();
    drain.finish_and_delete(&job);
    assert_unlocked_after_repair(&stand);
    let replaced = assert_as_before(&stand, &before, &both);
    let shows = "a worker ends at once at each of its steps, while BookKeeper's own repair works for a dead bookie: every replica is there at every moment, and the next one comes to the same end";
    let result = format!(
        "{} steps, {} ledgers, {replaced} members replaced",
        STEPS.len(),
        before.ledgers.len()
    );
    tell(bench, began, shows, result);
}

/// Waits until no metadata names these.
fn wait_repaired(stand: &Stand<'_>, ids: &[String]) {
    let left = || -> Vec<(u64, Ledger)> {
        let ledgers = stand.ledgers().into_iter();
        ledgers.filter(|(_, ledger)| ledger.names(ids)).collect()
    };
    let is_done = try_for(END, || left().is_empty().then_some(()));
    let left = left();
    assert!(is_done.is_some(), "not repaired within {END:?}: {left:#?}");
}

/// The repair keeps the locks of what it could not repair for minutes: all locks that are left when it has ended are ours.
fn assert_unlocked_after_repair(stand: &Stand<'_>) {
    stand.lab.stop_auto_recovery();
    stand.wait_unlocked();
}

/// A bookie that is emptied starts again in the midst of it, and has forgotten that it is to take nothing.
pub(crate) fn source_restarts(bench: &Bench) {
    let began = bench.now();
    let stand = Stand::up(bench, 5, NO_PASS);
    let before = prepared(&stand, "--ledgers 120");
    let drain = Drain::new(&stand, &[1]);
    let job = drain.start(SLOW);
    let mut worker = drain.work("worker", &job, &[]);
    let moved = wait_some_moved(&stand, &before, &drain.ids());
    stand.bookie(1).stop("TERM");
    stand.bookie(1).start();
    let started = bench.now();
    wait_for("it is read-only again", AGAIN, || {
        (stand.bookie(1).registered() == Some("readonly")).then_some(())
    });
    let took = seconds(bench.since(started));
    assert!(worker.is_running(), "{}", worker.log());
    drain.must(&["set", "--job", &job, "--max-bytes-per-second", "100MiB"]);
    let ended = worker.wait(END).expect("the worker ends by itself");
    assert!(ended.success(), "{ended}: {}", worker.log());
    assert!(
        worker.log().contains("is read-only again"),
        "{}",
        worker.log()
    );
    drain.wait_finished(&job);
    drain.finish_and_delete(&job);
    stand.wait_unlocked();
    let replaced = assert_as_before(&stand, &before, &drain.ids());
    let shows = "a bookie that is emptied starts again in the midst of it: the job makes it read-only again, and comes to the same end";
    let result = format!(
        "read-only {took} after it answered; {moved} ledgers had moved before, {replaced} members replaced in all"
    );
    tell(bench, began, shows, result);
}

/// A target dies by SIGKILL while it is copied to, and comes back after the job.
pub(crate) fn target_killed(bench: &Bench) {
    let began = bench.now();
    let stand = Stand::up(bench, 5, NO_PASS);
    let before = prepared(&stand, "--ledgers 200");
    let drain = Drain::new(&stand, &[1]);
    let job = drain.start(SLOW);
    let mut worker = drain.work("worker", &job, &[]);
    let moved = wait_some_moved(&stand, &before, &drain.ids());
    stand.bookie(5).stop("KILL");
    drain.must(&["set", "--job", &job, "--max-bytes-per-second", "100MiB"]);
    // What has its only other replica on the dead one waits for it; all else goes on.
    wait_for("the job goes on without the target", END, || {
        let left = stand.ledgers();
        let named = left.values().filter(|ledger| ledger.names(&drain.ids()));
        let blocked = named.filter(|ledger| !ledger.names(&stand.ids(&[5])));
        (blocked.count() == 0).then_some(())
    });
    stand.bookie(5).start();
    let ended = worker.wait(END);
    if !ended.is_some_and(|status| status.success()) {
        worker.kill();
        drain.must(&["run", "--job", &job, "--execute"]);
    }
    drain.wait_finished(&job);
    drain.assert_unnamed();
    stand.wait_unlocked();
    let replaced = assert_as_before(&stand, &before, &drain.ids());
    let shows = "a target dies while it is copied to: others take its place, and no entry has fewer replicas";
    let result = format!("{moved} ledgers had moved before, {replaced} members replaced in all");
    tell(bench, began, shows, result);
}

/// BookKeeper's own repair works for a dead bookie beside two workers, on the same ledgers.
pub(crate) fn beside_auto_recovery(bench: &Bench) {
    let began = bench.now();
    let stand = Stand::up(bench, 6, NO_PASS);
    let before = prepared(&stand, &format!("--ledgers 200 {WHOLE}"));
    let drain = Drain::new(&stand, &[1]);
    stand.lab.start_auto_recovery();
    let job = drain.start(SLOW);
    let mut workers = ["one", "two"].map(|name| drain.work(name, &job, &["--workers", "2"]));
    wait_some_moved(&stand, &before, &drain.ids());
    stand.bookie(6).stop("KILL");
    drain.must(&["set", "--job", &job, "--max-bytes-per-second", "2MiB"]);
    let both = stand.ids(&[1, 6]);
    wait_repaired(&stand, &both);
    stand.bookie(6).start();
    for worker in &mut workers {
        worker.kill();
    }
    wait_for("the locks of the dead are gone", SESSION, || {
        let done = drain.run(&["run", "--job", &job, "--execute"]);
        (done.code == Some(0)).then_some(())
    });
    drain.wait_finished(&job);
    drain.assert_unnamed();
    assert_unlocked_after_repair(&stand);
    let replaced = assert_as_before(&stand, &before, &both);
    let shows = "two workers and BookKeeper's own repair of a dead bookie on the same ledgers: no entry is lost and none has fewer replicas";
    tell(
        bench,
        began,
        shows,
        format!("{replaced} members replaced by both"),
    );
}

/// ZooKeeper is away for a minute, longer than any session.
pub(crate) fn zookeeper_away(bench: &Bench) {
    let began = bench.now();
    let stand = Stand::up(bench, 5, NO_PASS);
    let before = prepared(&stand, "--ledgers 120");
    let drain = Drain::new(&stand, &[1]);
    let job = drain.start(SLOW);
    let mut worker = drain.work("worker", &job, &[]);
    wait_some_moved(&stand, &before, &drain.ids());
    stand.lab.stop_zookeeper();
    pass(Duration::from_secs(60));
    stand.lab.start_zookeeper();
    for number in 1..=5 {
        // A bookie that did not get over it is started by its supervisor.
        if stand.bookie(number).ended().is_some() {
            stand.bookie(number).start();
        }
    }
    let went_on = worker.wait(END).is_some_and(|status| status.success());
    if !went_on {
        worker.kill();
        wait_for("the job goes on", SESSION, || {
            let done = drain.run(&["run", "--job", &job, "--execute"]);
            (done.code == Some(0)).then_some(())
        });
    }
    drain.wait_finished(&job);
    drain.assert_unnamed();
    stand.wait_unlocked();
    assert_as_before(&stand, &before, &drain.ids());
    let result = if went_on {
        "the same worker went on"
    } else {
        "the worker ended, and the next one went on"
    };
    tell(
        bench,
        began,
        "ZooKeeper is away for a minute in the midst of a drain",
        result,
    );
}

/// The work has begun, and is not done.
fn wait_some_moved(stand: &Stand<'_>, before: &Before, ids: &[String]) -> usize {
    let named = |ledgers: &BTreeMap<u64, Ledger>| {
        let named = ledgers.values().filter(|ledger| ledger.names(ids));
        named.count()
    };
    let all = named(&before.ledgers);
    wait_for("some ledgers have moved", END, || {
        let moved = all - named(&stand.ledgers());
        assert_ne!(moved, all, "all have moved already");
        (5 <= moved).then_some(moved)
    })
}
