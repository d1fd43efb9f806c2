//! More than five hundred ledgers of real clients, some leaked on purpose: exactly these go, and nothing else changes by
//! a byte.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::{EVERY, Program, tell};
use crate::harness::bench::Bench;
use crate::harness::run::{text, wait_for};
use crate::stand::pulsar::{Pulsar, Setup};

/// Topics with a half-read subscription each, and ledgers of each.
const TOPICS: usize = 24;
const LEDGERS: usize = 12;

/// Who has the ledgers that nobody may touch: another application's, some that say nothing, long numbers, every digest.
const OTHERS: &[&str] = &[
    "60:closed:CRC32:auto:3:application=warehouse,component=table",
    "20:open:CRC32C:auto:2:application=warehouse",
    "40:open:MAC:auto:2:",
    "40:closed:MAC:5000000000:3:application=warehouse",
    "30:closed:DUMMY:6000000000:2:",
];

/// Ledgers that say they are a topic's, which never listed them.
const NEVER_LISTED: &[&str] = &[
    "5:closed:CRC32C:auto:4:application=pulsar,component=managed-ledger,pulsar/managed-ledger=public/default/persistent/t%d",
    "4:closed:MAC:7000000000:2:application=pulsar,component=managed-ledger,pulsar/managed-ledger=public/default/persistent/t%d",
    "3:open:CRC32:auto:2:application=pulsar,component=managed-ledger,pulsar/managed-ledger=public/default/persistent/t%d",
];

/// Ledgers of topics of a namespace that is not there, nor ever was.
const NO_OWNER: &str = "3:closed:CRC32C:auto:2:application=pulsar,component=managed-ledger,pulsar/managed-ledger=gone/away/persistent/t%d";

/// What must not change: all of the brokers' metadata, and the ledgers'. Who is there and which number comes next
/// changes by itself.
const WATCHED: &[&str] = &["/ledgers", "/managed-ledgers", "/schemas", "/admin"];

/// A bookie's collection, asked for.
const COLLECTION: Duration = Duration::from_secs(60);

pub(super) fn watched(pulsar: &Pulsar) -> BTreeMap<String, String> {
    let mut nodes = pulsar.dump(WATCHED);
    nodes.retain(|path, _| {
        !["/ledgers/available", "/ledgers/idgen"]
            .iter()
            .any(|moving| path.starts_with(moving))
    });
    without_empty_folders(&mut nodes);
    for rest in nodes.values_mut() {
        // The number of children of a folder says nothing that its children do not.
        let fields: Vec<&str> = rest.split('\t').collect();
        *rest = [&fields[..5], &fields[6..]].concat().join("\t");
    }
    nodes
}

/// ZooKeeper takes the folders that brokers make away some time after they became empty (container nodes).
fn without_empty_folders(nodes: &mut BTreeMap<String, String>) {
    let mut above = BTreeSet::new();
    for (path, _) in nodes.iter().filter(|(_, rest)| !data(rest).is_empty()) {
        above.extend(
            path.match_indices('/')
                .map(|(end, _)| path[..end].to_owned()),
        );
        above.insert(path.clone());
    }
    nodes.retain(|path, _| above.contains(path));
}

fn topic(number: usize) -> String {
    format!("public/default/persistent/t{number}")
}

/// Takes ledgers out of a topic's list, behind the broker's back.
fn forget(pulsar: &Pulsar, topic: &str, ids: &[u64]) {
    let path = format!("/managed-ledgers/{topic}");
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    let words: Vec<&str> = ["forget", &path]
        .into_iter()
        .chain(ids.iter().map(String::as_str))
        .collect();
    pulsar.tool(&words);
}

/// Number and content of ledgers that `make` printed.
fn made(told: &str) -> BTreeMap<u64, String> {
    let lines = told.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let id = words[0].parse().expect("a ledger has a number");
        (id, format!("{id} read {} {}", words[3], words[4]))
    });
    lines.collect()
}

/// The whole way, and back again.
pub(crate) fn exactly_the_leaked(bench: &Bench) {
    let began = bench.now();
    let pulsar = Setup::new(bench).collection(Duration::from_secs(600)).up();
    pulsar.retention("public/default", 600);
    pulsar.tool(&[
        "fill",
        "public/default",
        &TOPICS.to_string(),
        &LEDGERS.to_string(),
    ]);
    pulsar.tool(&["produce", "persistent://public/default/big", "60", "300000"]);
    pulsar.order("PUT", "/admin/v2/namespaces/public/default/unload", None);
    let make = |plans: &[&str]| made(&pulsar.tool(&[&["make"], plans].concat()));
    make(OTHERS);
    let never_listed = make(NEVER_LISTED);
    let no_owner: BTreeSet<u64> = make(&[NO_OWNER]).into_keys().collect();
    let [big, one, two, three, four] = [topic_named("big"), topic(1), topic(2), topic(3), topic(4)]
        .map(|topic| {
            let list = pulsar.list(&topic);
            (topic, list)
        });
    // Nobody writes from here on but the test and the program.
    pulsar.stop("broker1");
    // Before the first scan: nobody ever saw them named.
    let mut absent: BTreeSet<u64> = never_listed.keys().copied().collect();
    for (topic, list) in [&one, &two] {
        forget(&pulsar, topic, &list[2..4]);
        absent.extend(&list[2..4]);
    }

    let program = Program::new(bench, "reclaim", &pulsar, &[(&pulsar.zookeeper(), "")], "");
    program.scan();
    // Between two scans: the first saw them named. The oldest go first, as in a trim.
    let mut witnessed = BTreeSet::new();
    for (topic, list) in [&three, &four] {
        forget(&pulsar, topic, &list[..3]);
        witnessed.extend(&list[..3]);
    }
    forget(&pulsar, &big.0, &big.1[..4]);
    witnessed.extend(&big.1[..4]);
    program.scan_until_ripe();

    let all = pulsar.ledgers();
    assert!(500 <= all.len(), "only {} ledgers were made", all.len());
    assert_eq!(
        program.report().keys().copied().collect::<BTreeSet<_>>(),
        all.keys().copied().collect()
    );
    assert_eq!(program.of_class(&["r1"]), witnessed);
    assert_eq!(program.of_class(&["r3"]), absent);
    assert_eq!(program.of_class(&["r4"]), no_owner);
    from_a_snapshot(bench, &pulsar, &program, &witnessed);
    let before = watched(&pulsar);

    // Nothing is done without the order to, and nothing before its time.
    program.must(&["mark", "--class", EVERY]);
    assert_eq!(program.marks(), BTreeSet::new());
    program.must(&["mark", "--namespace", "public/other", "--execute"]);
    assert_eq!(program.marks(), BTreeSet::new());
    program.must(&["mark", "--execute"]);
    assert_eq!(
        program.marks(),
        witnessed,
        "classes without a witness were not asked for"
    );
    program.must(&["sweep", "--execute"]);
    assert_eq!(watched(&pulsar), before, "swept before the grace was over");
    program.ripen();
    program.must(&["sweep"]);
    assert_eq!(watched(&pulsar), before, "a dry run changed something");
    program.must(&["sweep", "--execute"]);
    only_these_are_gone(&before, &watched(&pulsar), &pulsar, &all, &witnessed);

    // Back at once: the bookies still have it.
    let undone = three.1[0];
    let told = program.run(&["undo", &undone.to_string(), "--execute"]);
    assert_eq!(told.code, Some(0), "{told:#?}");
    let read = pulsar.tool(&["read", "CRC32C", &undone.to_string()]);
    assert!(read.starts_with(&format!("{undone} read 10 ")), "{read}");
    let now = watched(&pulsar);
    let node = node(&now, undone);
    assert_eq!(
        data(&now[&node]),
        data(&before[&node]),
        "it came back as it was"
    );

    program.scan();
    program.mark_and_sweep(EVERY);
    let mut gone: BTreeSet<u64> = &(&witnessed | &absent) | &no_owner;
    // Whom somebody wanted back is not deleted a second time.
    gone.remove(&undone);
    only_these_are_gone(&before, &watched(&pulsar), &pulsar, &all, &gone);

    // The bookies forget them.
    let bytes = pulsar.entry_logs();
    pulsar.collect();
    let freed = wait_for("the bookies free the space", COLLECTION, || {
        bytes
            .checked_sub(pulsar.entry_logs())
            .filter(|freed| 8_000_000 < *freed)
    });
    let lost = four.1[1];
    let told = program.run(&["undo", &lost.to_string(), "--execute"]);
    assert_eq!(told.code, Some(1), "{told:#?}");
    println!(
        "    after the collection: {}",
        (told.out + &told.errors).trim()
    );
    // What is referenced is still whole.
    let kept: Vec<String> = pulsar.list(&topic(0)).iter().map(u64::to_string).collect();
    let words: Vec<&str> = ["read", "CRC32C"]
        .into_iter()
        .chain(kept.iter().map(String::as_str))
        .collect();
    let read = pulsar.tool(&words);
    assert!(!read.contains("failed"), "{read}");
    let result = format!(
        "{} ledgers, {} of them leaked: exactly those gone, every other node the same to the byte; the bookies freed {} MB of {}",
        all.len(),
        witnessed.len() + absent.len() + no_owner.len(),
        freed / 1_000_000,
        bytes / 1_000_000
    );
    let shows = "leaked ledgers of R1, R3 and R4 go after mark, grace, a second scan and sweep; topics', other applications', open and \
                 long-numbered ones stay; undo brings one back, and after a collection says that all is lost (exit 1); a scan of ZooKeeper's \
                 snapshot file finds the same classes with no request";
    tell(bench, began, shows, result);
}

/// A scan of ZooKeeper's newest snapshot finds what the scan of the live one found, and asks nobody. What it finds can be
/// marked by one who asks.
fn from_a_snapshot(bench: &Bench, pulsar: &Pulsar, live: &Program<'_>, witnessed: &BTreeSet<u64>) {
    // A snapshot that is older than the last scan is refused.
    pulsar.tool(&["set", "/lab-changed", "00"]);
    let file = bench.folder().join("snapshot");
    pulsar.snapshot(&file);
    let program = live.copy("snapshot");
    let told = program.must(&["scan", "--snapshot", text(&file), "--output", "json"]);
    let document: Value = serde_json::from_str(&told).expect("it is JSON");
    assert_eq!(document["requests"], 0, "{told}");
    assert_eq!(document["snapshot"], true, "{told}");
    let classes = |program: &Program<'_>| -> BTreeMap<u64, String> {
        let judged = program.report().into_iter();
        judged.map(|(id, judged)| (id, judged.class)).collect()
    };
    let (live, snapshot) = (classes(live), classes(&program));
    println!("    {} ledgers of the snapshot file", snapshot.len());
    assert_eq!(snapshot, live);
    program.must(&["mark", "--execute"]);
    assert_eq!(&program.marks(), witnessed);
}

fn topic_named(name: &str) -> String {
    format!("public/default/persistent/{name}")
}

/// Version and data, which are the owner's; times and transactions are ZooKeeper's.
fn data(rest: &str) -> &str {
    rest.rsplit('\t').next().unwrap_or_default()
}

/// The node of a ledger.
fn node(nodes: &BTreeMap<String, String>, id: u64) -> String {
    let is_it = |path: &&String| {
        let digits: String = path.chars().filter(char::is_ascii_digit).collect();
        path.starts_with("/ledgers/") && path.contains("/L") && digits.parse() == Ok(id)
    };
    nodes.keys().find(is_it).expect("it is there").clone()
}

pub(super) fn only_these_are_gone(
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    pulsar: &Pulsar,
    all: &BTreeMap<u64, crate::stand::pulsar::ToolLedger>,
    gone: &BTreeSet<u64>,
) {
    let left: BTreeSet<u64> = pulsar.ledgers().into_keys().collect();
    let missing: BTreeSet<u64> = all
        .keys()
        .filter(|id| !left.contains(id))
        .copied()
        .collect();
    assert_eq!(&missing, gone);
    let nodes: BTreeSet<String> = gone.iter().map(|id| node(before, *id)).collect();
    // A folder may go with its last ledger.
    let may_go = |path: &String| {
        nodes
            .iter()
            .any(|node| node == path || node.starts_with(&format!("{path}/")))
    };
    for (path, rest) in before {
        match now.get(path) {
            Some(other) => assert_eq!(data(other), data(rest), "{path} has changed"),
            None => assert!(may_go(path), "{path} is gone"),
        }
    }
    for path in now.keys() {
        assert!(before.contains_key(path), "{path} is new");
    }
}
