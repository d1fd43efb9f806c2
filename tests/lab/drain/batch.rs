//! Two bookies emptied at once while clients read and write, then stopped and deleted: nobody notices.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Drain, tell};
use crate::harness::bench::Bench;
use crate::harness::run::wait_for;
use crate::stand::drain::{
    Ledger, Stand, assert_no_worse, assert_only_members, assert_same_entries,
};

/// Time between two looks of a bookie for ledgers of which it is no member any more.
const PASS: Duration = Duration::from_secs(10);

/// Two passes and one that is under way, each of some seconds.
const PASSES: Duration = Duration::from_secs(120);

/// A worker beside the test ends by itself once nothing is left.
const END: Duration = Duration::from_secs(300);

/// Ledgers, of which some stay open with an owner that does nothing.
const LEDGERS: &str = "500";
const IDLE: &str = "12";

/// The most members of an ensemble: so many entries in turn go to each of them.
const MEMBERS: usize = 3;

/// The first line of what the drain must show.
pub(crate) fn two_at_once(bench: &Bench) {
    let began = bench.now();
    let stand = Stand::up(bench, 5, PASS);
    let make = "--rounds 4 --entries 3 --ledgers";
    let make: Vec<&str> = make.split(' ').chain([LEDGERS, "--open", IDLE]).collect();
    let mut owner = stand.make(&make);
    let entries = stand.entries("entries-before");
    let replicas = stand.replicas("replicas-before");
    let ledgers = stand.ledgers();
    let (mut holder, held) = stand.hold(&["--refresh"]);
    let mut writer = stand.beside(
        "write",
        &["--ledgers", "3", "--rate", "40", "--roll", "300"],
    );
    writer.wait("writing");

    let drain = Drain::new(&stand, &[1, 2]);
    // Handles of the lab's client follow metadata, as those of brokers do that know how.
    let refresh = "--readers-refresh";
    drain.must(&["plan", "--bookies", &drain.ids().join(","), refresh]);
    writer.mark("idle");
    let job = drain.start(&[refresh]);
    let mut worker = drain.work("worker", &job, &["--workers", "4"]);
    // Everything is read all the time.
    let mut reads = 0;
    wait_for("only idle ledgers are left", END, || {
        holder.order("read");
        reads += 1;
        let (code, status) = drain.status(&job);
        assert_ne!(code, Some(0), "ledgers of an idle owner cannot be done");
        only_waiting(&status).then_some(())
    });
    // The owner adds an entry for each member, and learns that some of them are read-only.
    for _ in 0..MEMBERS {
        owner.order("add");
    }
    let ended = worker.wait(END).expect("the worker ends by itself");
    assert!(ended.success(), "{ended}");
    drain.wait_finished(&job);
    let phase = writer.mark("drained");
    assert_eq!(phase["errors"], 0, "{phase}");
    drain.assert_unnamed();

    let now = stand.ledgers();
    let replaced = assert_only_members(&ledgers, &now, &drain.ids());
    stand.wait_two_passes(&[1, 2], PASSES);
    holder.order("read");
    drain.finish_and_delete(&job);
    holder.order("read");
    owner.order("add");
    owner.order("close");
    writer.say("stop");
    let last = writer.wait("phase");
    assert_eq!(last["errors"], 0, "{last}");
    writer.wait("stopped");

    assert_same_entries(&entries, &stand.entries("entries-after"));
    assert_no_worse(&replicas, &stand.replicas("replicas-after"));
    drain.assert_unnamed();
    let shows = "two of five bookies emptied at once under readers and writers, then stopped and deleted: every entry is as it was, no metadata names them, handles opened before read on through two over-replicated passes, the writer sees no error";
    let result = format!(
        "{} ledgers, {} entries, {replaced} members replaced, {held} held handles read {} times, p99 of the writer {:.0} ms",
        ledgers.len(),
        entries.len(),
        reads + 2,
        phase["p99"].as_f64().expect("a number")
    );
    tell(bench, began, shows, result);
}

/// All that is left waits for a writer, and each ledger is named with its reason.
fn only_waiting(status: &serde_json::Value) -> bool {
    let kinds = status["kinds"].as_array().expect("it says what is left");
    let waits = |kind: &serde_json::Value| {
        let reasons = kind["reasons"].as_array().expect("each kind has reasons");
        kind["status"] == "waitingOpen"
            && reasons.iter().all(|reason| reason["ledgers"][0].is_u64())
    };
    !kinds.is_empty() && kinds.iter().all(waits)
}

/// All that is left is moved, and kept for readers.
fn is_held(status: &serde_json::Value) -> bool {
    let kinds = status["kinds"].as_array().expect("it says what is left");
    !kinds.is_empty() && kinds.iter().all(|kind| kind["status"] == "held")
}

/// Handles that keep their old ensembles, of ledgers that lost two of their members at once: the sources keep what they had until
/// the operator says that no reader needs it.
pub(crate) fn readers_are_waited_for(bench: &Bench) {
    let began = bench.now();
    let stand = Stand::up(bench, 5, PASS);
    let mut owner = stand.make(&["--ledgers", "200", "--rounds", "2", "--max", "20000"]);
    owner.say("quit");
    let (entries, replicas) = (stand.entries("entries-before"), stand.replicas("before"));
    let ledgers = stand.ledgers();
    let (mut holder, _) = stand.hold(&[]);
    let drain = Drain::new(&stand, &[1, 2]);
    let refused = drain.run(&["plan", "--bookies", &drain.ids().join(",")]);
    assert_ne!(refused.code, Some(0), "two replicas at once: {refused:#?}");
    let job = drain.start(&["--reader-gate", "per-ledger"]);
    let mut worker = drain.work("worker", &job, &[]);
    wait_for("all is moved and held", END, || {
        let (_, status) = drain.status(&job);
        (status["left"] == 0 && is_held(&status)).then_some(())
    });
    drain.assert_unnamed();
    stand.wait_two_passes(&[1, 2], PASSES);
    let read = holder.order("read");
    assert!(worker.is_running(), "it keeps what readers may need");
    let refused = drain.run(&["finish", "--job", &job, "--execute"]);
    assert_eq!(refused.code, Some(1), "{refused:#?}");
    drain.must(&["finish", "--job", &job, "--readers-safe", "--execute"]);
    let ended = worker.wait(END).expect("the worker ends by itself");
    assert!(ended.success(), "{ended}");
    stand.wait_unlocked();
    // Nobody keeps anything any more, so that the same handles fail: the passes were no idle ones.
    stand.wait_two_passes(&[1, 2], PASSES);
    holder.say("read");
    let forgotten = holder.wait("read");
    let lost = forgotten["errors"].as_u64().expect("a number");
    assert_ne!(lost, 0, "the sources have forgotten nothing: {forgotten}");
    drop(holder);
    drain.delete(&job);
    let replaced = assert_only_members(&ledgers, &stand.ledgers(), &drain.ids());
    assert_same_entries(&entries, &stand.entries("entries-after"));
    assert_no_worse(&replicas, &stand.replicas("after"));
    let shows = "two bookies emptied at once with --reader-gate per-ledger: handles that keep their old ensembles read everything through two over-replicated passes, until the operator says that readers are safe";
    let result = format!(
        "{} entries read, {replaced} members replaced; two passes after the end {lost} reads fail",
        read["entries"]
    );
    tell(bench, began, shows, result);
}

/// Six bookies in three racks; one of each of two racks is emptied.
const RACKS: [&str; 6] = ["/a", "/a", "/b", "/b", "/c", "/c"];

/// Replicas of an entry are spread over no fewer racks than before.
pub(crate) fn racks_are_kept(bench: &Bench) {
    let began = bench.now();
    let stand = Stand::up(bench, RACKS.len(), Duration::from_secs(86_400));
    stand.set_racks(&RACKS);
    let racks: BTreeMap<String, &str> = (1..).map(|n| stand.bookie(n).id()).zip(RACKS).collect();
    let mut owner = stand.make(&["--ledgers", "200", "--rounds", "2", "--max", "20000"]);
    owner.say("quit");
    let (entries, replicas) = (stand.entries("entries-before"), stand.replicas("before"));
    let ledgers = stand.ledgers();
    let drain = Drain::new(&stand, &[1, 3]);
    let job = drain.start(&["--readers-refresh"]);
    drain.must(&["run", "--job", &job, "--execute"]);
    drain.wait_finished(&job);
    drain.finish_and_delete(&job);
    let now = stand.ledgers();
    let replaced = assert_only_members(&ledgers, &now, &drain.ids());
    let (was, is) = (spreads(&ledgers, &racks), spreads(&now, &racks));
    for (place, count) in &was {
        assert!(
            count <= &is[place],
            "{place:?}: {count} racks became {}",
            is[place]
        );
    }
    assert_same_entries(&entries, &stand.entries("entries-after"));
    assert_no_worse(&replicas, &stand.replicas("after"));
    let result = format!("{} write sets, {replaced} members replaced", was.len());
    let shows =
        "one bookie of each of two racks is emptied: no write set is on fewer racks than before";
    tell(bench, began, shows, result);
}

/// Ledger, first entry of the fragment, and the place in the ensemble at which a write set begins.
type WriteSet = (u64, u64, usize);

/// How many racks each write set is on.
fn spreads(
    ledgers: &BTreeMap<u64, Ledger>,
    racks: &BTreeMap<String, &str>,
) -> BTreeMap<WriteSet, usize> {
    let mut spreads = BTreeMap::new();
    for (id, ledger) in ledgers {
        let quorum = ledger.rest.split(" W").nth(1);
        let quorum = quorum.and_then(|rest| rest.split(' ').next()).unwrap();
        let quorum: usize = quorum.parse().unwrap();
        for (first, members) in &ledger.fragments {
            for start in 0..members.len() {
                let set = members.iter().cycle().skip(start).take(quorum);
                let on: BTreeSet<&str> = set.map(|member| racks[member]).collect();
                spreads.insert((*id, *first, start), on.len());
            }
        }
    }
    spreads
}
