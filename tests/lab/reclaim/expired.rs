//! Topics whose messages expired while nobody had them loaded: brokers leave them as they are. The full-scan trim
//! visits them, and leaves nothing loaded, nothing deleted and nobody disturbed.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use super::interrupted::{self, Topics};
use super::{Program, tell};
use crate::harness::bench::Bench;
use crate::harness::run::{pass, text};
use crate::stand::pulsar::{Pulsar, Setup};

/// Retention is a minute; what is older may go.
const EXPIRED: Duration = Duration::from_secs(70);

const TRAFFIC_END: Duration = Duration::from_secs(200);

/// Three ledgers of ten messages and one of five, each of which is worth a visit.
const MESSAGES: &str = "35";
const BYTES: &str = "300000";

/// As shipped, but quick: a topic without a subscription that is left loaded is deleted after a minute. What is acknowledged
/// is on bookies at once, before the brokers die.
const BROKER: &[&str] = &[
    "managedLedgerDefaultMarkDeleteRateLimit=1000",
    "brokerDeleteInactiveTopicsEnabled=true",
    "brokerDeleteInactiveTopicsFrequencySeconds=5",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds=60",
];

fn name(topic: &str) -> String {
    format!("public/default/{topic}")
}

fn topics() -> [String; 4] {
    ["e1", "e2", "e3", "e4"].map(name)
}

/// Each with its messages: e1 is acknowledged, e2 has no subscription, e3 is stuck in its second ledger, e4 is like e1, but
/// loaded when the brokers die. e2 comes last: it must not be seen without a subscription for long.
fn fill(pulsar: &Pulsar, others: &[String]) {
    let fill = |topics: &[(String, Option<usize>)]| pulsar.fill(1, MESSAGES, BYTES, topics);
    let unload = |topic: &str| {
        let path = format!("/admin/v2/persistent/{topic}/unload");
        pulsar.order("PUT", &path, None);
    };
    let acknowledged = |topic: &String| (topic.clone(), Some(35));
    fill(&others.iter().map(acknowledged).collect::<Vec<_>>());
    for namespace in interrupted::NAMESPACES {
        let path = format!("/admin/v2/namespaces/{namespace}/unload");
        pulsar.order("PUT", &path, None);
    }
    let [e1, e2, e3, e4] = topics();
    fill(&[
        (e1.clone(), Some(35)),
        (e3.clone(), Some(15)),
        (e4, Some(35)),
    ]);
    unload(&e1);
    unload(&e3);
    fill(&[(e2.clone(), None)]);
    unload(&e2);
}

/// What one pass over the first namespace did, by topic.
fn trim(program: &Program<'_>, pulsar: &Pulsar, words: &[&str]) -> Vec<Value> {
    let broker = pulsar.broker_url(1);
    let part = ["--namespace", "public/default"];
    let words = [
        &["trim", "--broker-url", &broker, "--output", "json"],
        &part[..],
        words,
    ]
    .concat();
    rows(&program.must(&words))
}

/// What a pass tells, by topic.
pub(super) fn rows(told: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(told).expect("it is JSON");
    let rows = document["rows"].as_array().expect("it has rows");
    for row in rows {
        println!("    {row}");
    }
    rows.clone()
}

/// What was done with each of e1 to e4; nothing is done with any other topic.
fn visited(rows: &[Value]) -> Vec<(String, u64)> {
    let mut visited: Vec<_> = rows
        .iter()
        .filter(|row| row["ledgers"] != 0 || row["done"] == "visited")
        .map(|row| {
            let topic = row["topic"].as_str().expect("a topic has a name");
            (
                topic.to_owned(),
                row["ledgers"].as_u64().expect("it is a number"),
            )
        })
        .collect();
    visited.sort();
    visited
}

/// Four topics that nobody loads, while others are used; while the last of them age, the one who trims is killed and another
/// goes on, and the broker that has a topic, which leads the brokers, is killed in a visit.
pub(crate) fn expired_topics(bench: &Bench) {
    let began = bench.now();
    let setup = Setup::new(bench).brokers(2);
    let pulsar = BROKER
        .iter()
        .fold(setup, |setup, line| setup.conf(line))
        .up();
    for namespace in interrupted::NAMESPACES {
        let path = format!("/admin/v2/namespaces/{namespace}");
        pulsar.order("PUT", &path, None);
        pulsar.retention(namespace, 1);
    }
    pulsar.retention("public/default", 1);
    let stop = bench.folder().join("stop");
    let mut traffic = pulsar.begin(
        "traffic",
        &["traffic", "public/default", "2", "200", text(&stop)],
    );
    traffic.wait_line("running");
    let others = Topics::chosen(&pulsar);
    fill(&pulsar, &others.all());
    for broker in ["broker1", "broker2"] {
        pulsar.kill(broker);
    }
    pass(EXPIRED);
    for broker in ["broker1", "broker2"] {
        pulsar.start(broker);
    }
    // Whichever broker is asked first, it does not have one of these.
    pulsar.hand_over(&name("e1"), 2);
    pulsar.hand_over(&name("e3"), 1);
    let zookeeper = pulsar.zookeeper();
    let program = Program::new(bench, "trim", &pulsar, &[(&zookeeper, "")], "");
    let before = pulsar.lists(&topics());
    for list in &before {
        assert_eq!(list.len(), 4, "{before:?}");
    }
    trim(&program, &pulsar, &[]);
    assert_eq!(
        pulsar.lists(&topics()),
        before,
        "a dry run changed something"
    );
    first_visit(&pulsar, &program, &before);
    let visited = bench.now();
    let (sent_on, followed) = pulsar.redirected_trims();
    println!("    {sent_on} orders were sent on to the topic's broker");
    assert_ne!(sent_on, 0, "no broker sent us on to another");
    assert_eq!(
        sent_on, followed,
        "an order that was sent on was not carried out"
    );

    interrupted::leader_killed(bench, &pulsar, &others);
    interrupted::broker_killed(bench, &pulsar, &others);
    pass(EXPIRED.saturating_sub(bench.since(visited)));
    second_visit(&pulsar, &program, &before);

    // As long as it takes to delete what was left loaded without a subscription.
    pass(EXPIRED);
    let all = [&topics()[..], &others.all()].concat();
    for (topic, list) in all.iter().zip(pulsar.lists(&all)) {
        assert!(!list.is_empty(), "{topic} was deleted");
    }
    fs::write(&stop, "").expect("the folder is ours");
    let told = traffic.wait_end(TRAFFIC_END);
    let last = told.lines().last().unwrap_or_default();
    println!("    traffic: {last}");
    assert!(last.ends_with(" missing 0"), "{told}");
    let shows = "four expired topics that nobody loads are trimmed in two visits and unloaded again, by two brokers of which one sends us to the \
                 other; topics in use left alone, none deleted although inactive topics are; the one who trims is killed, and another goes \
                 on; the broker that has the topic and leads the brokers is killed in a visit, and the next pass takes that up";
    let result = format!("10 and 3 ledgers trimmed, {sent_on} redirects followed; traffic: {last}");
    tell(bench, began, shows, result);
}

/// What was full goes, the last one begins to age.
fn first_visit(pulsar: &Pulsar, program: &Program<'_>, before: &[Vec<u64>]) {
    let rows = trim(program, pulsar, &["--execute"]);
    let full = |topic: &str, ledgers| (format!("persistent://{}", name(topic)), ledgers);
    assert_eq!(
        visited(&rows),
        [full("e1", 3), full("e2", 3), full("e3", 1), full("e4", 3)]
    );
    unloaded(pulsar, &topics(), &[1, 2]);
    let lists = pulsar.lists(&topics());
    for ((topic, old), now) in topics().iter().zip(before).zip(lists) {
        let kept = if topic.ends_with("e3") {
            &old[1..]
        } else {
            &old[3..]
        };
        assert!(
            now.starts_with(kept) || now.contains(&kept[0]),
            "{topic}: {old:?} became {now:?}"
        );
    }
}

/// A retention later it takes the last; what is needed stays.
fn second_visit(pulsar: &Pulsar, program: &Program<'_>, before: &[Vec<u64>]) {
    let rows = trim(program, pulsar, &["--execute"]);
    let last = |topic: &str| (format!("persistent://{}", name(topic)), 1);
    assert_eq!(visited(&rows), [last("e1"), last("e2"), last("e4")]);
    unloaded(pulsar, &topics(), &[1, 2]);
    let lists = pulsar.lists(&topics());
    for ((topic, old), now) in topics().iter().zip(before).zip(lists) {
        match topic.ends_with("e3") {
            true => assert!(now.contains(&old[1]), "{topic}: {old:?} became {now:?}"),
            false => assert!(
                !old.iter().any(|id| now.contains(id)),
                "{topic}: {old:?} became {now:?}"
            ),
        }
    }
    let rows = trim(program, pulsar, &["--execute"]);
    assert_eq!(visited(&rows), [], "there was nothing to be gained");
}

/// None of these is loaded by any of these brokers, by their live pages.
pub(super) fn unloaded(pulsar: &Pulsar, topics: &[String], brokers: &[u16]) {
    for broker in brokers {
        let page = pulsar.metrics(*broker);
        for topic in topics {
            assert!(
                !is_on(&page, topic),
                "{topic} is still loaded by broker {broker}"
            );
        }
    }
}

/// A topic is on the page of metrics of the broker that has it loaded.
pub(super) fn is_on(page: &str, topic: &str) -> bool {
    page.contains(&format!("topic=\"persistent://{topic}\""))
}
