//! Topics whose messages expired while nobody had them loaded: brokers leave them as they are. The full-scan trim
//! visits them, and leaves nothing loaded, nothing deleted and nobody disturbed.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{Program, tell};
use crate::harness::bench::Bench;
use crate::harness::run::{pass, text, wait_for};
use crate::stand::pulsar::{Pulsar, Setup};

/// Retention is a minute; what is older may go.
const EXPIRED: Duration = Duration::from_secs(70);

/// A pass over all of them, a second from one to the next.
const PASS: Duration = Duration::from_secs(120);

const TRAFFIC_END: Duration = Duration::from_secs(200);

/// Three ledgers of ten messages and one of five, each of which is worth a visit.
const MESSAGES: &str = "35";
const BYTES: &str = "300000";

/// As shipped, but quick: a topic without a subscription that is left loaded is deleted after a minute.
const BROKER: &[&str] = &[
    "brokerDeleteInactiveTopicsEnabled=true",
    "brokerDeleteInactiveTopicsFrequencySeconds=5",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds=60",
];

/// Topics that are left for the leader who is killed.
const LATE: usize = 6;

fn produce(pulsar: &Pulsar, topic: &str) {
    pulsar.tool(&["produce", &format!("persistent://{topic}"), MESSAGES, BYTES]);
}

fn unload(pulsar: &Pulsar, topic: &str) {
    pulsar.order("PUT", &format!("/admin/v2/persistent/{topic}/unload"), None);
}

/// A topic of the first namespace.
fn name(topic: &str) -> String {
    format!("public/default/{topic}")
}

fn late(number: usize) -> String {
    format!("public/late/late{number}")
}

/// Ledgers of a topic's list.
fn list(pulsar: &Pulsar, topic: &str) -> Vec<u64> {
    let (namespace, topic) = topic.rsplit_once('/').expect("it has a namespace");
    pulsar.list(&format!("{namespace}/persistent/{topic}"))
}

/// Each with its messages: e1 is acknowledged, e2 has no subscription, e3 is stuck in its second ledger, e4 is like e1, but
/// loaded when the brokers die. e2 comes last: it must not be seen without a subscription for long.
fn fill(pulsar: &Pulsar) {
    for number in 0..LATE {
        produce(pulsar, &late(number));
        pulsar.subscribe(&late(number), "s1", 35);
        unload(pulsar, &late(number));
    }
    for (topic, acknowledged) in [("e1", 35), ("e3", 15), ("e4", 35)] {
        produce(pulsar, &name(topic));
        pulsar.subscribe(&name(topic), "s1", acknowledged);
    }
    unload(pulsar, &name("e1"));
    unload(pulsar, &name("e3"));
    produce(pulsar, &name("e2"));
    unload(pulsar, &name("e2"));
}

/// What one pass did, by topic.
fn trim(program: &Program<'_>, pulsar: &Pulsar, words: &[&str]) -> Vec<Value> {
    let broker = format!("http://127.0.0.1:{}", pulsar.broker_port(1));
    let words = [
        &["trim", "--broker-url", &broker, "--output", "json"],
        words,
    ]
    .concat();
    let told = program.must(&words);
    let document: Value = serde_json::from_str(&told).expect("it is JSON");
    for row in document["rows"].as_array().expect("it has rows") {
        println!("    {row}");
    }
    document["rows"].as_array().expect("it has rows").clone()
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

/// Four topics that nobody loads, while others are used; then the one who trims is killed, and another goes on.
pub(crate) fn expired_topics(bench: &Bench) {
    let began = bench.now();
    let setup = Setup::new(bench).brokers(2);
    let pulsar = BROKER
        .iter()
        .fold(setup, |setup, line| setup.conf(line))
        .up();
    pulsar.order("PUT", "/admin/v2/namespaces/public/late", None);
    for namespace in ["public/default", "public/late"] {
        pulsar.retention(namespace, 1);
    }
    let stop = bench.folder().join("stop");
    let mut traffic = pulsar.begin(
        "traffic",
        &["traffic", "public/default", "2", "200", text(&stop)],
    );
    traffic.wait_line("running");
    fill(&pulsar);
    for broker in ["broker1", "broker2"] {
        pulsar.kill(broker);
    }
    pass(EXPIRED);
    for broker in ["broker1", "broker2"] {
        pulsar.start(broker);
    }
    let topics = ["e1", "e2", "e3", "e4"].map(name);
    let before: Vec<_> = topics.iter().map(|topic| list(&pulsar, topic)).collect();
    for list in &before {
        assert_eq!(list.len(), 4, "{before:?}");
    }

    let zookeeper = pulsar.zookeeper();
    let program = Program::new(bench, "trim", &pulsar, &[(&zookeeper, "")], "");
    let part = ["--namespace", "public/default"];
    trim(&program, &pulsar, &part);
    let now: Vec<_> = topics.iter().map(|topic| list(&pulsar, topic)).collect();
    assert_eq!(now, before, "a dry run changed something");

    // The first visit: what was full goes, the last one begins to age.
    let execute = [&part[..], &["--execute"]].concat();
    let rows = trim(&program, &pulsar, &execute);
    let full = |topic: &str, ledgers| (format!("persistent://{}", name(topic)), ledgers);
    assert_eq!(
        visited(&rows),
        [full("e1", 3), full("e2", 3), full("e3", 1), full("e4", 3)]
    );
    unloaded(&pulsar, &topics);
    for (topic, old) in topics.iter().zip(&before) {
        let now = list(&pulsar, topic);
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

    // The second one, a retention later, takes the last; what is needed stays.
    pass(EXPIRED);
    let rows = trim(&program, &pulsar, &execute);
    assert_eq!(
        visited(&rows),
        [full("e1", 1), full("e2", 1), full("e4", 1)]
    );
    unloaded(&pulsar, &topics);
    for (topic, old) in topics.iter().zip(&before) {
        let now = list(&pulsar, topic);
        match topic.ends_with("e3") {
            true => assert!(now.contains(&old[1]), "{topic}: {old:?} became {now:?}"),
            false => assert!(
                !old.iter().any(|id| now.contains(id)),
                "{topic}: {old:?} became {now:?}"
            ),
        }
    }
    let rows = trim(&program, &pulsar, &execute);
    assert_eq!(visited(&rows), [], "there was nothing to be gained");

    leader_killed(bench, &pulsar);
    // As long as it takes to delete what was left loaded without a subscription.
    pass(EXPIRED);
    for topic in topics.iter().cloned().chain((0..LATE).map(late)) {
        assert!(!list(&pulsar, &topic).is_empty(), "{topic} was deleted");
    }
    fs::write(&stop, "").expect("the folder is ours");
    let told = traffic.wait_end(TRAFFIC_END);
    let last = told.lines().last().unwrap_or_default();
    println!("    traffic: {last}");
    assert!(last.ends_with(" missing 0"), "{told}");
    let shows = "four expired topics that nobody loads are trimmed in two visits and unloaded again; two brokers with redirects, topics in use \
                 left alone, none deleted although inactive topics are; the one who trims is killed, another goes on";
    tell(
        bench,
        began,
        shows,
        format!("10 and 3 ledgers trimmed; traffic: {last}"),
    );
}

/// Of two that trim one leads. It is killed in a visit; the other does the rest.
fn leader_killed(bench: &Bench, pulsar: &Pulsar) {
    let zookeeper = pulsar.zookeeper();
    let broker = format!("http://127.0.0.1:{}", pulsar.broker_port(2));
    let words = [
        "run",
        "--interval",
        "2s",
        "--trim-interval",
        "2s",
        "--broker-url",
        &broker,
        "--namespace",
        "public/late",
        "--execute",
    ];
    let [one, two] =
        ["one", "two"].map(|name| Program::new(bench, name, pulsar, &[(&zookeeper, "")], ""));
    let before: Vec<_> = (0..LATE)
        .map(|number| list(pulsar, &late(number)))
        .collect();
    let trimmed = || {
        let shorter = |number: &usize| {
            let now = list(pulsar, &late(*number));
            !now.contains(&before[*number][0])
        };
        (0..LATE).filter(shorter).count()
    };
    let mut first = one.begin("one", &words);
    let pid = Pid::from_raw(i32::try_from(first.pid()).expect("process numbers are small"));
    // Until somebody watches what it does.
    kill(pid, Signal::SIGSTOP).expect("it runs");
    let mut second = None;
    let path = "/managed-ledgers/public/late/persistent/late0";
    pulsar.kill_when(&pid.to_string(), path, "data", || {
        second = Some(two.begin("two", &words));
        kill(pid, Signal::SIGCONT).expect("it runs");
    });
    first.kill();
    wait_for("the other does the rest", PASS, || {
        (trimmed() == LATE).then_some(())
    });
    drop(second);
}

/// None of these is loaded by any broker, by its live page.
fn unloaded(pulsar: &Pulsar, topics: &[String]) {
    for broker in [1, 2] {
        let page = pulsar.metrics(broker);
        for topic in topics {
            let loaded = page.contains(&format!("topic=\"persistent://{topic}\""));
            assert!(!loaded, "{topic} is still loaded by broker {broker}");
        }
    }
}
