//! What a scan cannot read or understand, and stores that refuse: nothing is marked, nothing is deleted, one clear
//! sentence.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::{COMMAND_LIMIT, Program, ended, tell};
use crate::harness::bench::Bench;
use crate::harness::run::pass;
use crate::stand::pulsar::{Pulsar, Setup};

/// Its first line; a second one may name a remedy.
fn sentence(errors: &str) -> String {
    let mut lines = errors.lines();
    let line = lines.find(|line| line.starts_with("dirkeeper: "));
    line.unwrap_or_default().to_owned()
}

/// What the unit tests take for BookKeeper's own bytes.
const GOLDEN: &str = include_str!("../../../src/cluster/ledger/golden.txt");

/// Bad corners, one after the other, each mended before the next.
pub(crate) fn refused(bench: &Bench) {
    let began = bench.now();
    let pulsar = Setup::new(bench).up();
    assert_eq!(pulsar.tool(&["golden"]), GOLDEN);
    pulsar.retention("public/default", 600);
    pulsar.produce("public/default/t", 100);
    pulsar.order("PUT", "/admin/v2/namespaces/public/default/unload", None);
    pulsar.stop("broker1");
    let zookeeper = pulsar.zookeeper();
    let program = Program::new(
        bench,
        "reclaim",
        &pulsar,
        &[(&zookeeper, "")],
        "max_deletes = 1000",
    );
    program.scan();
    let topic = "/managed-ledgers/public/default/persistent/t";
    let list = pulsar.list("public/default/persistent/t");
    pulsar.tool(&["forget", topic, &list[0].to_string()]);
    let all: BTreeSet<u64> = pulsar.ledgers().into_keys().collect();
    let refused = |what: &str, code: i32| {
        let done = program.run(&["scan"]);
        let sentence = sentence(&done.errors);
        println!("    {what}: {code} {sentence}");
        assert_eq!(done.code, Some(code), "{what}: {done:#?}");
        assert!(!sentence.is_empty(), "{what}: {done:#?}");
        // What is known is the scan before; nothing follows from one that did not end.
        program.run(&["mark", "--execute"]);
        assert_eq!(program.marks(), BTreeSet::new(), "{what}");
    };

    pulsar.tool(&["deny", topic]);
    refused("a topic that may not be read", 77);
    pulsar.tool(&["allow", topic]);
    let hidden = "/ledgers/00/0000";
    pulsar.tool(&["deny", hidden]);
    refused("a folder of ledgers that may not be listed", 77);
    pulsar.tool(&["allow", hidden]);
    let sound = pulsar.tool(&["hex", topic]);
    pulsar.tool(&["set", topic, "ffffffff"]);
    refused("a topic that cannot be understood", 65);
    pulsar.tool(&["set", topic, sound.trim()]);
    pulsar.tool(&["set", "/ledgers/00/0000/L9999", "3c68746d6c3e"]);
    refused("a ledger that cannot be understood", 65);
    pulsar.tool(&["remove", "/ledgers/00/0000/L9999"]);
    let layout = pulsar.tool(&["hex", "/ledgers/LAYOUT"]);
    pulsar.tool(&[
        "set",
        "/ledgers/LAYOUT",
        "320a6f72672e6f746865722e466163746f72793a31",
    ]);
    refused("an unknown layout", 78);
    pulsar.tool(&["set", "/ledgers/LAYOUT", layout.trim()]);
    let instance = pulsar.tool(&["hex", "/ledgers/INSTANCEID"]);
    pulsar.tool(&["set", "/ledgers/INSTANCEID", "6f74686572"]);
    refused("another cluster", 78);
    pulsar.tool(&["set", "/ledgers/INSTANCEID", instance.trim()]);
    pulsar.stop("zk");
    refused("no ZooKeeper", 69);
    pulsar.start("zk");

    // ZooKeeper goes in the middle of a scan, which then goes on where it was.
    let slow = Program::new(bench, "slow", &pulsar, &[(&zookeeper, "")], "");
    let mut scan = slow.begin("slow", &["scan", "--max-requests-per-second", "2"]);
    pass(std::time::Duration::from_secs(3));
    pulsar.stop("zk");
    pulsar.start("zk");
    scan.kill();
    slow.scan();

    // All is mended: what was let go is found, could be marked, and goes when it may.
    program.scan();
    not_acted_on(&pulsar, &program);
    program.mark_and_sweep("r1");
    let left: BTreeSet<u64> = pulsar.ledgers().into_keys().collect();
    assert_eq!(&all - &left, BTreeSet::from([list[0]]));
    let shows = "denied nodes, nodes and a layout that cannot be understood, another cluster, no ZooKeeper, one that goes in the middle, one that \
                 serves reads only, clocks that differ: one sentence, nothing marked, nothing deleted; mended, all goes on";
    tell(
        bench,
        began,
        shows,
        "9 corners, exit codes 77, 65, 78, 69 and 1",
    );
}

/// What a scan has found is neither marked nor deleted with another clock than ZooKeeper's, or while ZooKeeper takes no
/// writes.
fn not_acted_on(pulsar: &Pulsar, program: &Program<'_>) {
    let library = faketime_library();
    let acted = |what: &str, time: Option<&str>, words: &[&str], code: i32| {
        let mut command = program.command(words);
        if let Some(time) = time {
            command
                .env("LD_PRELOAD", &library)
                .env("FAKETIME", time)
                .env("FAKETIME_DISABLE_SHM", "1")
                .env("DONT_FAKE_MONOTONIC", "1")
                .env("NO_FAKE_STAT", "1");
        }
        let done = ended(command, COMMAND_LIMIT);
        let sentence = sentence(&done.errors);
        println!("    {what}, {}: {code} {sentence}", words[0]);
        assert_eq!(done.code, Some(code), "{what}: {done:#?}");
        assert!(!sentence.is_empty(), "{what}: {done:#?}");
        assert_eq!(program.marks(), BTreeSet::new(), "{what}");
    };
    let (mark, sweep) = (["mark", "--execute"], ["sweep", "--execute"]);
    for time in ["+5m", "-5m"] {
        let what = format!("a clock {time}");
        acted(&what, Some(time), &["scan"], 1);
        acted(&what, Some(time), &mark, 1);
        acted(&what, Some(time), &sweep, 1);
    }
    pulsar.with_reads_only(|| {
        let what = "a ZooKeeper that serves reads only";
        acted(what, None, &["scan"], 69);
        acted(what, None, &mark, 69);
        acted(what, None, &sweep, 69);
    });
}

/// The library that lies about the time.
fn faketime_library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut found = folders.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    found
        .find(|path| path.exists())
        .expect("Debian's package libfaketime is installed")
}
