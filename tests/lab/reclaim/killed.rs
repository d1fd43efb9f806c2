//! Leaks as they come about: a broker killed in a trim, an unsubscribe, a roll-over, a forced delete. Twenty topics go
//! on being written and read meanwhile, and lose nothing.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use super::{EVERY, Program, tell};
use crate::harness::bench::Bench;
use crate::harness::run::{pass, text, wait_for};
use crate::stand::pulsar::{Pulsar, Setup};

/// Topics with a writer and a reader.
const TRAFFIC: &str = "20";

/// Milliseconds from one round of messages to the next.
const PACE: &str = "100";

/// A topic that nobody uses comes to rest within a few trims.
const REST: Duration = Duration::from_secs(120);

/// The readers' end, a broker that comes up included.
const TRAFFIC_END: Duration = Duration::from_secs(200);

/// Tries to hit a roll-over: the window is some hundred milliseconds.
const TRIES: usize = 6;

/// Delayed messages in buckets of twenty, as in Pulsar's own tests, and a batch of metadata writes that takes so long
/// that a kill hits between two of them.
const BROKER: &[&str] = &[
    "delayedDeliveryTrackerFactoryClassName=org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory",
    "delayedDeliveryMinIndexCountPerBucket=20",
    "delayedDeliveryMaxTimeStepPerBucketSeconds=60",
    "delayedDeliveryMaxIndexesPerBucketSnapshotSegment=50",
    "metadataStoreBatchingMaxDelayMillis=100",
];

/// The namespace of the leaks, and where its topics are.
const LEAKS: &str = "public/leaks";

fn node(topic: &str) -> String {
    format!("/managed-ledgers/{LEAKS}/persistent/{topic}")
}

fn name(topic: &str) -> String {
    format!("{LEAKS}/{topic}")
}

fn admin(topic: &str) -> String {
    format!("/admin/v2/persistent/{LEAKS}/{topic}")
}

/// A compacted topic, one with three schemas, and one with buckets of delayed messages.
fn special(pulsar: &Pulsar) {
    pulsar.tool(&["produce", "persistent://public/default/c1", "40", "50", "5"]);
    let compaction = "/admin/v2/persistent/public/default/c1/compaction";
    pulsar.order("PUT", compaction, None);
    wait_for("the compaction ends", REST, || {
        let (_, body) = pulsar.rest("GET", compaction, None);
        body.contains("SUCCESS").then_some(())
    });
    pulsar.tool(&["schema", "persistent://public/default/sch", "3"]);
    pulsar.tool(&["delayed", "persistent://public/default/d1", "s1", "200"]);
    let kinds = [
        "compacted-ledger",
        "delayed-index-bucket",
        "component=schema",
    ];
    let ledgers = pulsar.ledgers();
    for kind in kinds {
        let count = ledgers
            .values()
            .filter(|ledger| ledger.custom.contains(kind))
            .count();
        assert_ne!(count, 0, "no ledger says {kind}");
    }
}

/// A loaded topic with a half-read subscription: the data it has, and the ledger of the subscription's cursor.
fn prepared(pulsar: &Pulsar, topic: &str, count: usize) -> (BTreeSet<u64>, u64) {
    pulsar.produce(&name(topic), count);
    pulsar.subscribe(&name(topic), "s1", 3);
    let list = pulsar.list(&format!("{LEAKS}/persistent/{topic}"));
    let cursor = pulsar.cursor_ledger(&format!("{}/s1", node(topic)));
    (list.into_iter().collect(), cursor)
}

fn in_a_trim(pulsar: &Pulsar) {
    pulsar.order(
        "DELETE",
        &format!("{}/subscription/s1", admin("trim")),
        None,
    );
    pulsar.kill_when(&pulsar.pid("broker1"), &node("trim"), "data", || {
        // Not before somebody watches: the broker trims by itself too.
        let path = format!("/admin/v2/namespaces/{LEAKS}/retention");
        let body = r#"{"retentionTimeInMinutes":0,"retentionSizeInMB":0}"#;
        pulsar.attempt("POST", &path, Some(body));
        pulsar.attempt("POST", &format!("{}/trim", admin("trim")), None);
    });
    pulsar.start("broker1");
    pulsar.retention(LEAKS, 600);
}

fn in_an_unsubscribe(pulsar: &Pulsar) {
    pulsar.kill_when(&pulsar.pid("broker1"), &node("cursor"), "children", || {
        pulsar.attempt(
            "DELETE",
            &format!("{}/subscription/s1", admin("cursor")),
            None,
        );
    });
    pulsar.start("broker1");
}

/// At the first change of the topic's children the cursor goes, at that of its own node the data.
fn in_a_delete(pulsar: &Pulsar, topic: &str, at: &str) {
    pulsar.kill_when(&pulsar.pid("broker1"), &node(topic), at, || {
        pulsar.attempt("DELETE", &format!("{}?force=true", admin(topic)), None);
    });
    pulsar.start("broker1");
}

/// Somebody deletes the topic once more, and now it is gone; what it has left behind is not.
fn deleted_for_good(pulsar: &Pulsar, topic: &str) {
    let path = format!("{}?force=true", admin(topic));
    wait_for("the topic is deleted", REST, || {
        pulsar.attempt("DELETE", &path, None);
        let lists = pulsar.lists(&[name(topic)]);
        lists[0].is_empty().then_some(())
    });
}

/// When a ledger is made, which the topic's list does not name yet.
fn in_a_roll_over(pulsar: &Pulsar, try_number: usize) {
    let topic = format!("persistent://{}{try_number}", name("roll"));
    let mut writer = None;
    pulsar.kill_when(
        &pulsar.pid("broker1"),
        "/ledgers/00/0000",
        "children",
        || {
            writer = Some(pulsar.begin("roll", &["produce", &topic, "5000"]));
        },
    );
    drop(writer);
    pulsar.start("broker1");
}

/// Ledgers that no reference names in three looks: those of topics in use are on their way to be deleted for a moment.
fn lasting_orphans(pulsar: &Pulsar) -> BTreeSet<u64> {
    let mut lasting = pulsar.orphans();
    for _ in 0..2 {
        pass(Duration::from_secs(3));
        lasting = &lasting & &pulsar.orphans();
    }
    lasting
}

/// Once nothing is written any more: ledgers that no reference names in two looks, one after the other: what is on its way to be deleted is gone by then.
fn settled_orphans(pulsar: &Pulsar) -> BTreeSet<u64> {
    wait_for("what is being trimmed is gone", REST, || {
        let one = pulsar.orphans();
        pass(Duration::from_secs(3));
        let two = pulsar.orphans();
        (one == two).then_some(two)
    })
}

/// The new ledgers that a broker made and never listed, whoever's they are.
fn rolled_over(pulsar: &Pulsar, known: &BTreeSet<u64>) -> BTreeSet<u64> {
    for number in 0..TRIES {
        in_a_roll_over(pulsar, number);
        let orphans = lasting_orphans(pulsar);
        let ledgers = pulsar.ledgers();
        let is_new = |id: &u64| {
            let state = ledgers.get(id).map(|ledger| ledger.state.as_str());
            state == Some("OPEN") && !known.contains(id)
        };
        let rolled: BTreeSet<u64> = orphans.into_iter().filter(is_new).collect();
        if !rolled.is_empty() {
            return rolled;
        }
    }
    panic!("no roll-over was hit in {TRIES} tries");
}

/// Each is found, is of the right class, and goes; nothing that is owed is lost.
pub(crate) fn broker_killed(bench: &Bench) {
    let began = bench.now();
    let setup = BROKER
        .iter()
        .fold(Setup::new(bench), |setup, line| setup.conf(line));
    let pulsar = setup.up();
    for namespace in ["public/traffic", LEAKS] {
        pulsar.order("PUT", &format!("/admin/v2/namespaces/{namespace}"), None);
    }
    for namespace in ["public/default", LEAKS] {
        pulsar.retention(namespace, 600);
    }
    special(&pulsar);
    let stop = bench.folder().join("stop");
    let words = ["traffic", "public/traffic", TRAFFIC, PACE, text(&stop)];
    let mut traffic = pulsar.begin("traffic", &words);
    traffic.wait_line("running");
    let zookeeper = pulsar.zookeeper();
    let program = Program::new(
        bench,
        "reclaim",
        &pulsar,
        &[(&zookeeper, "")],
        "max_deletes = 1000",
    );

    let (trimmed, _) = prepared(&pulsar, "trim", 200);
    program.scan();
    in_a_trim(&pulsar);
    let (_, unsubscribed) = prepared(&pulsar, "cursor", 5);
    program.scan();
    in_an_unsubscribe(&pulsar);
    let (_, dropped) = prepared(&pulsar, "del", 60);
    program.scan();
    in_a_delete(&pulsar, "del", "children");
    let (deleted, _) = prepared(&pulsar, "del2", 60);
    program.scan();
    in_a_delete(&pulsar, "del2", "data");
    deleted_for_good(&pulsar, "del2");
    let known = pulsar.ledgers().into_keys().collect();
    let rolled = rolled_over(&pulsar, &known);

    program.scan_until_ripe();
    let report = program.report();
    let orphans = lasting_orphans(&pulsar);
    let cursors = BTreeSet::from([unsubscribed, dropped]);
    let expected = [
        (trimmed, 15, &["r1"][..]),
        // The scan before saw the owner with them, and now it is gone.
        (deleted, 4, &["r2"]),
        (cursors, 2, &["r1", "r2"]),
        (rolled, 1, &["r3"]),
    ];
    for (made, least, classes) in expected {
        let left = &made & &orphans;
        println!("    left behind {left:?}, to be {classes:?}");
        assert!(
            least <= left.len(),
            "of {made:?} only {left:?} were left behind"
        );
        for id in left {
            let judged = report.get(&id).expect("it was scanned");
            assert!(classes.contains(&judged.class.as_str()), "{}", judged.row);
        }
    }

    let found = orphans.len();
    program.mark_and_sweep(EVERY);
    fs::write(&stop, "").expect("the folder is ours");
    let told = traffic.wait_end(TRAFFIC_END);
    let last = told.lines().last().unwrap_or_default();
    println!("    traffic: {last}");
    assert!(
        last.starts_with("owed ") && last.ends_with(" missing 0"),
        "{told}"
    );

    // What was left behind in the meantime goes the same way; the two walks see the same.
    let left = settled_orphans(&pulsar);
    program.scan_until_ripe();
    let unnamed = program.of_class(&["r1", "r2", "r3", "r4", "r5", "r6", "r7"]);
    assert_eq!(unnamed, left, "the scan and the lab's own walk differ");
    program.mark_and_sweep(EVERY);
    assert_eq!(settled_orphans(&pulsar), BTreeSet::new());
    still_whole(&pulsar);
    let shows = "a broker killed in a trim, an unsubscribe, two forced deletes (of which one is repeated) and a roll-over: what it leaves is found, \
                 of class R1, R2 or R3, and gone after its grace, while 20 topics are written and read; the scan and the lab's own walk agree";
    let result = format!("{found} ledgers left behind and gone; traffic: {last}");
    tell(bench, began, shows, result);
}

/// What the topics named is there, and can be read.
fn still_whole(pulsar: &Pulsar) {
    let told = pulsar.tool(&["orphans"]);
    assert!(!told.contains("dangling"), "{told}");
    let refs = pulsar.tool(&["refs"]);
    for kind in ["compacted", "bucket", "schema"] {
        let found = refs.lines().any(|line| line.contains(kind));
        assert!(found, "nothing names a ledger as {kind}:\n{refs}");
    }
    pulsar.subscribe("public/default/c1", "late", 40);
    pulsar.subscribe(&name("del"), "late", 60);
}
