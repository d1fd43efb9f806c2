//! Keeping the mode through all that goes wrong between an agent, a bookie, an operator and ZooKeeper. Each
//! case ends with a bookie that is writable and held by nobody: a read-only that nobody ends is the
//! worst that an agent can leave behind.

use std::fs;
use std::time::Duration;

use crate::harness::agent::Agent;
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::run::{pass, try_for, wait_for};
use crate::stand::lab::{Mode, STANDARD};
use crate::stand::pair::{ENTER, NEVER, Pair};

/// The agent makes the bookie read-only in time, says why, and ends it once the disk is free.
fn held_and_let_go(bench: &Bench, version: &str) {
    let pair = Pair::new(bench, version, &[]);
    pair.fill();
    pair.is_held();
    pair.is_claimed_by(&["agent"]);
    let nodes = pair.lab.zk(&["ls", "-R", "/dirkeeper"]).unwrap_or_default();
    let claim = format!("/claims/{}", pair.bookie().id());
    assert!(nodes.contains(&claim), "{claim} is not in:\n{nodes}");
    pair.stays(Mode::ReadOnly);
    pair.free();
    pair.is_let_go();
}

pub(crate) fn held_and_let_go_4_14_7(bench: &Bench) {
    held_and_let_go(bench, "4.14.7");
}
pub(crate) fn held_and_let_go_4_16_6(bench: &Bench) {
    held_and_let_go(bench, "4.16.6");
}
pub(crate) fn held_and_let_go_4_17_3(bench: &Bench) {
    held_and_let_go(bench, STANDARD);
}
pub(crate) fn held_and_let_go_4_18_0(bench: &Bench) {
    held_and_let_go(bench, "4.18.0");
}

/// A PUT with `readOnlyModeEnabled=false` ends a bookie of these versions: it gets none, and lives.
fn never_told(bench: &Bench, version: &str) {
    let pair = Pair::new(bench, version, &["readOnlyModeEnabled=false"]);
    pair.fill();
    pair.is_in_the_way("");
    pair.stays(Mode::Writable);
    let (code, told) = pair.order(&["set", "read-only", "--reason", "a try"]);
    assert_ne!(
        code,
        Some(0),
        "an order that cannot be followed was taken: {told}"
    );
    pair.stays(Mode::Writable);
    assert_eq!(pair.bookie().ended(), None, "the bookie ended");
    pair.free();
    pair.is_let_go();
}

pub(crate) fn never_told_4_14_7(bench: &Bench) {
    never_told(bench, "4.14.7");
}
pub(crate) fn never_told_4_16_5(bench: &Bench) {
    never_told(bench, "4.16.5");
}

/// The file was changed after the bookie's start, so that it promises a read-only mode and the bookie has none:
/// the bookie itself is asked before each PUT. It would refuse (400), or end.
fn started_without_read_only(bench: &Bench, version: &str) {
    let pair = Pair::with_hidden(bench, version, "readOnlyModeEnabled=false");
    pair.fill();
    pair.is_in_the_way("started with readOnlyModeEnabled=false");
    pair.stays(Mode::Writable);
    pair.free();
    pair.is_let_go();
    pair.must_order(&["set", "read-only", "--reason", "a try"]);
    pair.is_in_the_way("started with readOnlyModeEnabled=false");
    pair.stays(Mode::Writable);
    assert_eq!(pair.bookie().ended(), None, "the bookie ended");
    pair.must_order(&["release"]);
    pair.is_let_go();
}

pub(crate) fn started_without_read_only_4_16_5(bench: &Bench) {
    started_without_read_only(bench, "4.16.5");
}
pub(crate) fn started_without_read_only_4_17_3(bench: &Bench) {
    started_without_read_only(bench, STANDARD);
}

/// A restarted bookie has forgotten that it was read-only and is told again.
pub(crate) fn bookie_restarts(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    pair.fill();
    pair.is_held();
    for signal in ["TERM", "KILL"] {
        pair.bookie().stop(signal);
        pair.bookie().start();
        pair.is_held();
    }
    pair.free();
    pair.is_let_go();
}

/// An agent that is killed at any moment between a full disk and the PUT leaves nothing that the next one
/// does not put in order.
pub(crate) fn agent_killed_at_any_moment(bench: &Bench) {
    let mut pair = Pair::new(bench, STANDARD, &[]);
    for moment in [0, 60, 120, 250, 400, 600, 900] {
        pair.fill();
        pass(Duration::from_millis(moment));
        pair.crash_agent();
        pair.start_agent("enforce");
        pair.is_held();
        pair.crash_agent();
        pair.free();
        pair.start_agent("enforce");
        pair.is_let_go();
    }
}

/// An agent without its state directory finds its claim in ZooKeeper and ends what it began.
pub(crate) fn state_is_lost(bench: &Bench) {
    let mut pair = Pair::new(bench, STANDARD, &[]);
    pair.fill();
    pair.is_held();
    pair.crash_agent();
    fs::remove_dir_all(pair.state_dir()).unwrap();
    pair.start_agent("enforce");
    pair.is_claimed_by(&["agent"]);
    pair.stays(Mode::ReadOnly);
    pair.free();
    pair.is_let_go();
}

/// Turned to `observe`, an agent ends what it began as soon as the disks allow, and begins nothing.
pub(crate) fn enforce_to_observe(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    pair.fill();
    pair.is_held();
    pair.control("observe");
    pair.stays(Mode::ReadOnly);
    pair.free();
    pair.is_let_go();
    pair.fill();
    pair.stays(Mode::Writable);
}

/// An operator's read-only outlives the agent's, which stands beside it.
pub(crate) fn operator_after_the_agent(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    pair.fill();
    pair.is_held();
    pair.must_order(&["set", "read-only", "--reason", "a new disk comes"]);
    pair.is_claimed_by(&["operator", "agent"]);
    pair.free();
    pair.is_claimed_by(&["operator"]);
    pair.stays(Mode::ReadOnly);
    pair.must_order(&["release"]);
    pair.is_let_go();
}

/// The agent's read-only outlives an operator's.
pub(crate) fn agent_after_the_operator(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    pair.must_order(&["set", "read-only", "--reason", "a new disk comes"]);
    pair.is_held();
    pair.fill();
    pair.is_claimed_by(&["operator", "agent"]);
    pair.must_order(&["release"]);
    pair.is_claimed_by(&["agent"]);
    pair.stays(Mode::ReadOnly);
    pair.free();
    pair.is_let_go();
}

/// A raw PUT on a writable bookie is the operator's own, and kept. On one that is read-only already it
/// cannot be seen: the agent ends its read-only as if it had not been (docs/bookkeeper.md).
pub(crate) fn raw_puts(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    assert_eq!(pair.bookie().put_read_only(true).unwrap(), 200);
    pair.stays(Mode::ReadOnly);
    pair.fill();
    pair.free();
    pair.stays(Mode::ReadOnly);
    // Nobody whom the agent knows.
    pair.is_claimed_by(&["bookie"]);
    assert_eq!(pair.bookie().put_read_only(false).unwrap(), 200);
    pair.fill();
    pair.is_held();
    assert_eq!(pair.bookie().put_read_only(true).unwrap(), 200);
    pair.free();
    pair.is_let_go();
}

/// A raw PUT that makes a bookie writable which the agent holds is undone while the disk is full.
pub(crate) fn raw_put_against_the_agent(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    pair.fill();
    pair.is_held();
    assert_eq!(pair.bookie().put_read_only(false).unwrap(), 200);
    pair.is_held();
    pair.free();
    pair.is_let_go();
}

/// While the admin server is away nothing is claimed; once it is back the bookie is told.
pub(crate) fn admin_is_away(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    pair.bookie().stop("TERM");
    pair.fill();
    pair.wait(Duration::from_secs(5));
    assert_eq!(pair.claims(), [""; 0], "claimed without a bookie");
    pair.bookie().start();
    pair.is_held();
    pair.free();
    pair.is_let_go();
}

/// Without ZooKeeper nothing is sent, and the bookie's admin server goes on answering; when it is back, all
/// sessions have expired, and the bookie is told.
pub(crate) fn zookeeper_is_away(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    pair.lab.stop_zookeeper();
    pair.fill();
    pair.is_in_the_way("");
    pair.stays(Mode::Writable);
    pair.wait(Duration::from_secs(15));
    assert_eq!(pair.bookie().mode(), Mode::Writable, "a PUT was sent");
    pair.zookeeper_returns();
    pair.is_held();
    pair.free();
    pair.is_let_go();
}

/// An agent that starts while ZooKeeper is away waits for it, and holds no bookie before it knows the claims.
pub(crate) fn agent_starts_without_zookeeper(bench: &Bench) {
    let mut pair = Pair::new(bench, STANDARD, &[]);
    pair.lab.stop_zookeeper();
    pair.crash_agent();
    pair.fill();
    pair.start_agent("enforce");
    pair.is_in_the_way("");
    pair.stays(Mode::Writable);
    pair.zookeeper_returns();
    pair.is_held();
    pair.free();
    pair.is_let_go();
}

/// Before 4.17.3 a bookie forgets that it was told to be read-only when its own monitor sees a disk fill
/// and have room again: it is told once more.
pub(crate) fn bookie_recovers_by_itself(bench: &Bench) {
    let lines = [
        "readOnlyModeOnAnyDiskFullEnabled=true",
        "diskCheckInterval=1000",
    ];
    let pair = Pair::new(bench, "4.16.6", &lines);
    pair.fill();
    pair.is_held();
    let again = || {
        pair.bookie()
            .logged("Transitioning Bookie to Writable mode")
    };
    let before = again();
    pair.disk().set_usage(0.97);
    // The bookie's own monitor sees it within a second.
    pair.stays(Mode::ReadOnly);
    pair.disk().set_usage(0.7);
    wait_for("the bookie is writable by itself", NEVER, || {
        (before < again()).then_some(())
    });
    pair.is_held();
    pair.free();
    pair.is_let_go();
}

/// `mode may-stop` says yes to one bookie at a time where only one may go: that is reserved for it, also when it has gone
/// and its agent with it, until it is back.
pub(crate) fn may_stop(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    let (first, second) = (pair.agent(), &pair.other_agent());
    let says = |agent: &Agent, wanted: bool, words: &str| {
        let mut last = (None, String::new());
        let found = try_for(ENTER, || {
            last = pair.order_to(agent, &["may-stop"]);
            ((last.0 == Some(0)) == wanted && last.1.contains(words)).then_some(())
        });
        assert!(
            found.is_some(),
            "may-stop is not {wanted} with {words:?} but {last:?}"
        );
    };
    // A question without an order reserves nothing.
    wait_for("the second bookie may stop", ENTER, || {
        let answer = second.get("/api/v1/mode/may-stop")?;
        answer.contains("\"mayStop\":true").then_some(())
    });
    says(first, true, "reserved for it for 300 s, until 20");
    let (code, told) = pair.order_to(second, &["may-stop"]);
    assert_eq!(code, Some(1), "both were allowed: {told}");
    let id = pair.bookie().id();
    let counted = format!("{id} was allowed to stop and counts as gone for another 29");
    assert!(told.contains(&counted), "{told}");
    says(first, true, "reserved for it for 300 s");
    pair.bookie().stop("TERM");
    says(
        second,
        false,
        "0 other bookies are writable and 1 must stay so",
    );
    pair.bookie().start();
    says(second, true, "reserved");
    says(first, false, "was allowed to stop");
    pair.lab.stop_zookeeper();
    says(first, false, "ZooKeeper");
}

/// Two agents of one bookie, as by a copied configuration: the first looks after it, the second says that there are two, and
/// follows when the first is gone.
pub(crate) fn two_agents(bench: &Bench) {
    let mut pair = Pair::new(bench, STANDARD, &[]);
    let id = pair.bookie().id();
    wait_for("the first agent is in ZooKeeper", ENTER, || {
        let nodes = pair.lab.zk(&["ls", "-R", "/dirkeeper"]).unwrap_or_default();
        nodes.contains(&format!("/agents/{id}")).then_some(())
    });
    let twin = pair.twin();
    pair.fill();
    pair.is_held();
    Pair::has_problem(&twin, &format!("is the agent of {id} too, and was first"));
    let held = twin.status().unwrap_or_default()["mode"]["held"].clone();
    assert!(
        held.as_str().is_some_and(|held| held.contains("was first")),
        "{held}"
    );
    let (code, told) = pair.order_to(&twin, &["set", "writable", "--reason", "a try"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("give the order there"), "{told}");
    let of_first = pair.agent().problems().unwrap_or_default();
    let rivals = of_first.iter().filter(|text| text.contains("was first"));
    assert_eq!(rivals.count(), 0, "{of_first:?}");
    pair.stays(Mode::ReadOnly);
    pair.succeed(twin);
    pair.free();
    pair.is_let_go();
}

/// Where the state directory takes nothing, ZooKeeper's copy of the claims is enough, and it is said that it is the only one.
pub(crate) fn state_takes_nothing(bench: &Bench) {
    let state = Disk::tmpfs(bench, "state", "size=8m");
    state.remount(true);
    let mut pair = Pair::new(bench, STANDARD, &[]);
    pair.crash_agent();
    pair.keep_state_at(state.path());
    pair.start_agent("enforce");
    pair.fill();
    pair.is_held();
    pair.is_claimed_by(&["agent"]);
    Pair::has_problem(pair.agent(), "ZooKeeper has the only copy");
    let ok = pair.agent().metric("dirkeeper_state_store_ok", &[]);
    assert_eq!(ok, Some(0.0));
    // The next one knows of it by ZooKeeper alone.
    pair.crash_agent();
    pair.start_agent("enforce");
    pair.is_claimed_by(&["agent"]);
    pair.stays(Mode::ReadOnly);
    pair.free();
    pair.is_let_go();
}
