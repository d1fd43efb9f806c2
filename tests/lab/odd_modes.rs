//! Modes and registrations that nobody asked for: a read-only that status files keep over a restart, one that a
//! failed flush began, and lists of `ZooKeeper` that say something else than the bookie. The agent says so in
//! words, ends nothing that it did not begin, and sends no PUT that could hurt.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::harness::bench::Bench;
use crate::harness::run::{try_for, wait_for};
use crate::stand::lab::{Bookie, Lab, Mode, STANDARD};
use crate::stand::load::Load;
use crate::stand::pair::{ENTER, LEAVE, Pair};

const MISMATCH: &str = "modeMismatch";

/// How long a writer of twenty megabytes may take, the start of its JVM on a busy machine included.
const WRITTEN: Duration = Duration::from_secs(180);

/// What was not said by then is not going to be: half a minute of grace, and some looks.
const QUIET: Duration = Duration::from_secs(45);

/// Bookies that go read-only by themselves and say so in their status files.
const PERSISTENT: [&str; 3] = [
    "persistBookieStatusEnabled=true",
    "readOnlyModeOnAnyDiskFullEnabled=true",
    "diskCheckInterval=1000",
];

/// The disk fills until the bookie's own monitor acts, and has room again before the bookie's next start.
fn restarted_after_full(pair: &Pair<'_>) {
    pair.disk().set_usage(0.97);
    pair.becomes(Mode::ReadOnly, "readonly", ENTER);
    pair.bookie().stop("TERM");
    pair.free();
    pair.bookie().start();
}

/// Read-only with healthy disks: an agent that observes says why, one that enforces ends nothing that it did not
/// begin, and an operator ends it for good.
fn kept_until_an_operator_ends_it(mut pair: Pair<'_>) {
    pair.says(
        0,
        MISMATCH,
        &[
            "in its first answer after its start",
            "persistBookieStatusEnabled",
        ],
    );
    pair.is_claimed_by(&["bookie"]);
    pair.crash_agent();
    let before = pair.bookie().logged("to Writable mode");
    pair.start_agent("enforce");
    let words = ["no claim explains it", "a restart need not end that"];
    pair.says(0, MISMATCH, &words);
    pair.stays(Mode::ReadOnly);
    assert_eq!(pair.bookie().logged("to Writable mode"), before);
    pair.must_order(&["set", "writable", "--reason", "the disks are well"]);
    pair.becomes(Mode::Writable, "available", ENTER);
    pair.must_order(&["release"]);
    pair.is_let_go();
    pair.bookie().stop("TERM");
    pair.bookie().start();
    pair.stays(Mode::Writable);
}

/// #4640 as it was reported: the first check after the start finds no directory that has recovered.
pub(crate) fn persisted_by_the_disks_4_16_6(bench: &Bench) {
    let pair = Pair::observed(bench, "4.16.6", &PERSISTENT);
    restarted_after_full(&pair);
    pair.stays(Mode::ReadOnly);
    kept_until_an_operator_ends_it(pair);
}

/// From 4.17.3 on the first check ends it, unless it comes before anybody listens to it (W5): here because checks
/// follow one another faster than the bookie starts.
pub(crate) fn persisted_by_the_disks_4_17_3(bench: &Bench) {
    let [persistent, any_full, _] = PERSISTENT;
    let fast = "diskCheckInterval=5";
    let pair = Pair::observed(bench, STANDARD, &[persistent, any_full, fast]);
    restarted_after_full(&pair);
    pair.stays(Mode::ReadOnly);
    kept_until_an_operator_ends_it(pair);
}

/// At a usual interval the first check ends it, and there is nothing to say.
pub(crate) fn persisted_by_the_disks_4_18_0(bench: &Bench) {
    let [persistent, _, interval] = PERSISTENT;
    let pair = Pair::observed(bench, "4.18.0", &[persistent, interval]);
    restarted_after_full(&pair);
    let first = pair.agent().last_seq();
    pair.becomes(Mode::Writable, "available", ENTER);
    pair.wait(QUIET);
    pair.has_not_said(first, MISMATCH);
}

/// A PUT by hand outlives restarts in every version, and each agent tells whose doing it may be.
fn persisted_by_hand(bench: &Bench, version: &str) {
    let pair = Pair::observed(bench, version, &PERSISTENT);
    assert_eq!(pair.bookie().put_read_only(true).unwrap(), 200);
    pair.becomes(Mode::ReadOnly, "readonly", ENTER);
    pair.bookie().stop("TERM");
    pair.bookie().start();
    pair.stays(Mode::ReadOnly);
    kept_until_an_operator_ends_it(pair);
}

pub(crate) fn persisted_by_hand_4_17_3(bench: &Bench) {
    persisted_by_hand(bench, STANDARD);
}
pub(crate) fn persisted_by_hand_4_18_0(bench: &Bench) {
    persisted_by_hand(bench, "4.18.0");
}

/// What a claim of the agent's own began it ends, also where status files kept it over the restart.
pub(crate) fn persisted_claim(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &PERSISTENT[..1]);
    pair.fill();
    pair.is_held();
    pair.bookie().stop("TERM");
    pair.free();
    pair.bookie().start();
    assert_eq!(pair.bookie().mode(), Mode::ReadOnly, "it was not persisted");
    pair.is_claimed_by(&["agent"]);
    pair.is_let_go();
    pair.has_not_said(0, MISMATCH);
}

/// In the way of every new entry log of a bookie, and of nothing else: no check of a directory looks at it, neither
/// the bookie's nor the agent's.
struct NoNewLog(Vec<PathBuf>);

impl NoNewLog {
    fn on(bookie: Bookie<'_>) -> NoNewLog {
        let dirs = ["ledger1", "ledger2"].map(|dir| bookie.dir(dir).join("current/lastId"));
        for file in &dirs {
            let _ = fs::remove_file(file);
            fs::create_dir(file).expect("the folder is ours");
        }
        NoNewLog(dirs.into())
    }

    fn end(self) {
        for dir in self.0 {
            fs::remove_dir(dir).expect("nothing was put into it");
        }
    }
}

/// Twenty megabytes to both bookies: more than a mem table and an entry log hold.
fn write(bench: &Bench, lab: &Lab) -> usize {
    let words = "--ledgers 4 --entries 600 --size 8192 --ensemble 2 --write 2 --ack 2";
    let words: Vec<&str> = words.split(' ').collect();
    let mut load = Load::start(bench, lab, &words);
    load.wait_end(WRITTEN);
    let told = fs::read_to_string(load.written()).unwrap_or_default();
    told.lines()
        .filter(|line| line.contains("\"closed\""))
        .count()
}

/// #1919, #4270: a mem table cannot be flushed for a moment, its bookie goes read-only, and nothing in it ends that,
/// although its disks are well all the time.
fn a_flush_fails(bench: &Bench, version: &str) {
    // What is allocated before it is needed would put the error off by a log. The first look of the bookie's own monitor
    // makes it writable once, whatever the reason: it has to be over.
    let settings = [
        "entryLogFilePreallocationEnabled=false",
        "diskCheckInterval=200",
    ];
    let pair = Pair::new(bench, version, &settings);
    let failed = || {
        pair.bookie()
            .logged("Exception thrown while flushing skip list")
    };
    let fail = || {
        let before = failed();
        let fault = NoNewLog::on(pair.bookie());
        write(bench, &pair.lab);
        pair.becomes(Mode::ReadOnly, "readonly", ENTER);
        assert!(before < failed(), "it has another reason");
        fault.end();
    };
    fail();
    pair.says(
        0,
        MISMATCH,
        &[
            "its disks are healthy",
            "a flush of its storage failed",
            "#1919",
        ],
    );
    pair.says(0, "highPriorityMismatch", &["a failed flush", "W36"]);
    pair.is_claimed_by(&["bookie"]);
    pair.stays(Mode::ReadOnly);
    pair.must_order(&[
        "set",
        "writable",
        "--reason",
        "the log of the bookie was read",
    ]);
    pair.becomes(Mode::Writable, "available", ENTER);
    pair.must_order(&["release"]);
    pair.is_let_go();
    assert_eq!(write(bench, &pair.lab), 4, "it takes writes again");
    let healed = pair.agent().last_seq();
    fail();
    pair.says(healed, MISMATCH, &["a flush of its storage failed"]);
    pair.bookie().stop("TERM");
    pair.bookie().start();
    pair.stays(Mode::Writable);
    pair.is_let_go();
}

pub(crate) fn a_flush_fails_4_17_3(bench: &Bench) {
    a_flush_fails(bench, STANDARD);
}
pub(crate) fn a_flush_fails_4_18_0(bench: &Bench) {
    a_flush_fails(bench, "4.18.0");
}

/// A node of a bookie in one of the lists.
fn node(bookie: Bookie<'_>, list: &str) -> String {
    format!("/ledgers/{list}/{}", bookie.id())
}

const WRITABLE: &str = "available";
const READ_ONLY: &str = "available/readonly";

/// Somebody takes a node of the bookie away behind its back.
fn removed(pair: &Pair<'_>, bookie: Bookie<'_>, list: &str) {
    let done = pair.lab.zk(&["delete", &node(bookie, list)]);
    assert!(done.is_some(), "{list} has no such node");
}

/// Somebody makes one: of no session, so it does not end by itself.
fn made(pair: &Pair<'_>, bookie: Bookie<'_>, list: &str) {
    let done = pair.lab.zk(&["create", &node(bookie, list), ""]);
    assert!(done.is_some(), "{list} has it already");
}

/// The agent sees the bookie under these lists.
fn is_seen(pair: &Pair<'_>, writable: bool, read_only: bool) {
    let mut seen = Value::Null;
    let wanted = serde_json::json!({ "writable": writable, "readOnly": read_only });
    let found = try_for(ENTER, || {
        seen = pair.agent().status()?["beside"]["registration"].clone();
        (seen == wanted).then_some(())
    });
    assert!(found.is_some(), "{seen} is not {wanted}");
}

/// How often the bookie was told, or went, into another mode.
fn changes(bookie: Bookie<'_>) -> usize {
    bookie.logged("Transitioning Bookie to")
}

/// W33, in neither list: said again each time, held and let go as ever, which registers it anew.
pub(crate) fn registered_nowhere(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    let bookie = pair.bookie();
    is_seen(&pair, true, false);
    removed(&pair, bookie, WRITABLE);
    is_seen(&pair, false, false);
    let words = ["says that it is writable", "in neither list", "W33"];
    let first = pair.says(0, MISMATCH, &words);
    assert_eq!(changes(bookie), 0, "a PUT was sent");
    pair.fill();
    pair.is_held();
    removed(&pair, bookie, READ_ONLY);
    pair.says(
        first,
        MISMATCH,
        &["says that it is read-only", "in neither list"],
    );
    assert_eq!(changes(bookie), 1, "it was told again");
    pair.free();
    pair.is_let_go();
    assert_eq!(changes(bookie), 2);
    let healed = pair.agent().last_seq();
    pair.wait(QUIET);
    pair.has_not_said(healed, MISMATCH);
}

/// W34, in both lists: the second node is not the bookie's own, and a PUT would end the bookie. Nothing is sent
/// until it is gone, in either direction.
pub(crate) fn registered_twice(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    let bookie = pair.bookie();
    let twice = |mode: Mode, list: &str, before: usize, since: u64| {
        is_seen(&pair, true, true);
        pair.is_in_the_way("in both lists by two sessions");
        let since = pair.says(
            since,
            MISMATCH,
            &["among the writable and among the read-only", "W34"],
        );
        pair.stays(mode);
        assert_eq!(changes(bookie), before, "a PUT was sent");
        assert_eq!(bookie.ended(), None, "the bookie ended");
        removed(&pair, bookie, list);
        since
    };
    made(&pair, bookie, READ_ONLY);
    pair.fill();
    let first = twice(Mode::Writable, READ_ONLY, 0, 0);
    pair.is_held();
    made(&pair, bookie, WRITABLE);
    pair.free();
    twice(Mode::ReadOnly, WRITABLE, 1, first);
    pair.becomes(Mode::Writable, "available", LEAVE);
    pair.is_let_go();
    assert_eq!(changes(bookie), 2);
}

/// W33, in the other list: no PUT, because the admin server may be another bookie's. A restart heals it.
pub(crate) fn registered_in_the_other_list(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    let bookie = pair.bookie();
    removed(&pair, bookie, WRITABLE);
    made(&pair, bookie, READ_ONLY);
    is_seen(&pair, false, true);
    pair.says(
        0,
        MISMATCH,
        &["says that it is writable", "in the other list"],
    );
    pair.fill();
    pair.is_in_the_way("registered in another mode than it says");
    pair.stays(Mode::Writable);
    assert_eq!(changes(bookie), 0, "a PUT was sent");
    removed(&pair, bookie, READ_ONLY);
    bookie.stop("TERM");
    bookie.start();
    pair.is_held();
    pair.free();
    pair.is_let_go();
}

/// The other bookie is in neither list, or in both: it does not count as one that stays writable, so this one stays.
pub(crate) fn another_is_registered_wrongly(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    let (bookie, other) = (pair.bookie(), pair.lab.bookie(2));
    made(&pair, other, READ_ONLY);
    pair.fill();
    pair.is_in_the_way("0 other bookies are writable and 1 must stay so");
    removed(&pair, other, READ_ONLY);
    pair.is_held();
    pair.free();
    pair.is_let_go();
    removed(&pair, other, WRITABLE);
    pair.fill();
    pair.is_in_the_way("0 other bookies are writable and 1 must stay so");
    pair.stays(Mode::Writable);
    assert_eq!(changes(bookie), 2, "a PUT was sent");
    other.stop("TERM");
    other.start();
    wait_for("the other one is registered again", ENTER, || {
        (other.registered() == Some("available")).then_some(())
    });
    pair.is_held();
    pair.free();
    pair.is_let_go();
}
