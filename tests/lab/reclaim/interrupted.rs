//! A full-scan trim that is cut off in a visit: the process that trims is killed, and the broker that has the topic.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::Program;
use super::expired::{is_on, rows, unloaded};
use crate::harness::bench::Bench;
use crate::harness::run::wait_for;
use crate::stand::pulsar::Pulsar;

/// A pass over all of them, a second from one to the next; a lock or a broker's session that ends first.
const PASS: Duration = Duration::from_secs(120);

/// What is told of a topic that a pass before left loaded.
const CAUGHT_UP: &str = "unloaded, after a pass that was cut off";

/// Whose topics these are.
pub(super) const NAMESPACES: [&str; 2] = ["public/late", "public/lost"];

/// Topics that are left for the one who trims and is killed.
const LATE: usize = 6;

/// Topics that are left for the broker that is killed.
const LOST: usize = 3;

/// All of them.
pub(super) struct Topics {
    late: Vec<String>,
    lost: Vec<String>,
}

impl Topics {
    /// With names that no broker loads by itself: the first question about a namespace's policies has the broker read the topic in
    /// which they are, and load whatever else is in the bundle of that topic.
    pub(super) fn chosen(pulsar: &Pulsar) -> Topics {
        let [late, lost] = [(0, LATE), (1, LOST)].map(|(namespace, count)| {
            let namespace = NAMESPACES[namespace];
            let policies = pulsar.bundle(&format!("{namespace}/__change_events"));
            let names = (0..).map(|number| format!("{namespace}/x{number}"));
            let apart = names.filter(|name| pulsar.bundle(name) != policies);
            apart.take(count).collect()
        });
        Topics { late, lost }
    }

    pub(super) fn all(&self) -> Vec<String> {
        [&self.late[..], &self.lost].concat()
    }
}

/// Where the list of a topic is.
fn node(topic: &str) -> String {
    let (namespace, topic) = topic.rsplit_once('/').expect("it has a namespace");
    format!("/managed-ledgers/{namespace}/persistent/{topic}")
}

/// What was done with a topic.
fn done(rows: &[Value], topic: &str) -> Option<String> {
    let topic = format!("persistent://{topic}");
    let row = rows.iter().find(|row| row["topic"] == *topic)?;
    row["done"].as_str().map(str::to_owned)
}

/// How many of the topics have lost their first ledger.
fn trimmed(pulsar: &Pulsar, topics: &[String], before: &[Vec<u64>]) -> usize {
    let now = pulsar.lists(topics);
    let shorter = before
        .iter()
        .zip(now)
        .filter(|(old, now)| !now.contains(&old[0]));
    shorter.count()
}

/// Of two that trim one leads. It is killed in a visit; the other does the rest.
pub(super) fn leader_killed(bench: &Bench, pulsar: &Pulsar, topics: &Topics) {
    let zookeeper = pulsar.zookeeper();
    let broker = pulsar.broker_url(2);
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
    let topics = &topics.late;
    let before = pulsar.lists(topics);
    let mut first = one.begin("one", &words);
    let pid = Pid::from_raw(i32::try_from(first.pid()).expect("process numbers are small"));
    // Until somebody watches what it does.
    kill(pid, Signal::SIGSTOP).expect("it runs");
    let mut second = None;
    pulsar.kill_when(&pid.to_string(), &node(&topics[0]), "data", || {
        kill(pid, Signal::SIGCONT).expect("it runs");
        wait_for("the first one leads", PASS, || {
            let log = first.log();
            log.contains("this process reclaims now").then_some(())
        });
        second = Some(two.begin("two", &words));
    });
    first.kill();
    wait_for("the other does the rest", PASS, || {
        (trimmed(pulsar, topics, &before) == LATE).then_some(())
    });
    // It knows nothing of what the first one had loaded; whoever was killed unloads that when it is back.
    wait_for("what it visited is unloaded", PASS, || {
        let page = [1, 2].map(|broker| pulsar.metrics(broker)).concat();
        let rest = &topics[1..];
        (!rest.iter().any(|topic| is_on(&page, topic))).then_some(())
    });
    let told = second.expect("it was begun").stop(PASS);
    assert_eq!(told.code, Some(0), "{told:#?}");
    let words = [
        "trim",
        "--broker-url",
        &broker,
        "--namespace",
        "public/late",
        "--execute",
        "--output",
        "json",
    ];
    let rows = rows(&one.must(&words));
    assert_eq!(done(&rows, &topics[0]).as_deref(), Some(CAUGHT_UP));
    unloaded(pulsar, topics, &[1, 2]);
}

/// The broker that has a topic, and leads the brokers, is killed when it loads the topic for a visit. The pass tells of it, none of the
/// topics is left loaded, the next pass takes up what was cut off, and all can be trimmed.
pub(super) fn broker_killed(bench: &Bench, pulsar: &Pulsar, topics: &Topics) {
    let zookeeper = pulsar.zookeeper();
    let program = |name| Program::new(bench, name, pulsar, &[(&zookeeper, "")], "");
    let topics = &topics.lost;
    let before = pulsar.lists(topics);
    let leader = pulsar.leading_broker();
    let other = 3 - leader;
    pulsar.hand_over(&topics[0], leader);
    let url = pulsar.broker_url(other);
    let words = [
        "trim",
        "--broker-url",
        &url,
        "--namespace",
        "public/lost",
        "--execute",
        "--output",
        "json",
    ];
    let first = program("lost");
    let mut pass = None;
    let name = format!("broker{leader}");
    pulsar.kill_when(&pulsar.pid(&name), &node(&topics[0]), "data", || {
        pass = Some(first.begin("lost", &words));
    });
    let told = pass.expect("it was begun").wait_end(PASS);
    println!("    the broker was killed: {told:?}");
    let cut_off = done(&rows(&told.out), &topics[0]);
    assert_eq!(cut_off.as_deref(), Some("visited, and not unloaded"));

    // The list of brokers has the dead one until its session has ended.
    let taken_up = wait_for("the next pass takes it up", PASS, || {
        let told = first.run(&words);
        if told.code == Some(0) {
            return done(&rows(&told.out), &topics[0]);
        }
        assert_eq!(told.code, Some(69), "{told:#?}");
        println!("    {}", told.errors.lines().last().unwrap_or_default());
        None
    });
    assert_eq!(taken_up, CAUGHT_UP);
    unloaded(pulsar, topics, &[other]);
    program("found").must(&words);
    assert_eq!(trimmed(pulsar, topics, &before), LOST);
    unloaded(pulsar, topics, &[other]);
    pulsar.start(&name);
}
