//! The program killed at each of its steps, on a real ZooKeeper: run again, it comes to the same end.

use std::collections::BTreeSet;
use std::time::Duration;

use dirkeeper::reclaim::failpoint::Failpoint;

use super::{Done, Program, tell};
use crate::harness::bench::Bench;
use crate::harness::run::{pass, wait_for};
use crate::stand::pulsar::{Pulsar, Setup};

/// The lock of one who was killed goes with its session.
const SESSION: Duration = Duration::from_secs(60);

const TOPIC: &str = "public/default/persistent/t";

/// Runs it again until the lock of the one who died is gone.
fn again(program: &Program<'_>, words: &[&str]) -> Done {
    let mut last = None;
    let done = wait_for("the lock is free again", SESSION, || {
        let done = program.run(words);
        let held = done.code == Some(1) && done.errors.contains("is at work");
        if held {
            last = Some(done.errors);
            pass(Duration::from_millis(500));
            return None;
        }
        Some(done)
    });
    drop(last);
    done
}

/// What each step belongs to.
fn command(point: Failpoint) -> &'static str {
    match point {
        Failpoint::MarkRead | Failpoint::MarkDurable => "mark",
        Failpoint::UndoChecked | Failpoint::UndoCreated | Failpoint::UndoDurable => "undo",
        _ => "sweep",
    }
}

/// One ledger is let go for each step, and is gone in the end, or back.
pub(crate) fn killed_anywhere(bench: &Bench) {
    let began = bench.now();
    let pulsar = Setup::new(bench).collection(Duration::from_secs(600)).up();
    pulsar.retention("public/default", 600);
    pulsar.produce("public/default/t", 400);
    pulsar.order("PUT", "/admin/v2/namespaces/public/default/unload", None);
    let list = pulsar.list(TOPIC);
    let zookeeper = pulsar.zookeeper();
    let program = Program::new(
        bench,
        "reclaim",
        &pulsar,
        &[(&zookeeper, "")],
        "max_deletes = 1000",
    );
    program.scan();
    let mut ids = list.iter().skip(1);
    let mut steps = 0;
    for point in Failpoint::ALL {
        // A mark is dropped only if its ledger is named again, and a folder goes only with its last ledger.
        if matches!(point, Failpoint::MarkDropped | Failpoint::FolderRemoved) {
            continue;
        }
        let id = *ids.next().expect("there are enough ledgers");
        at_one(&pulsar, &program, point, id);
        steps += 1;
    }
    let shows = "the program ends at once at each of its steps of marking, sweeping and undoing; run again, it comes to the same end";
    tell(
        bench,
        began,
        shows,
        format!("{steps} steps, each with a ledger of its own"),
    );
}

fn at_one(pulsar: &Pulsar, program: &Program<'_>, point: Failpoint, id: u64) {
    let before: BTreeSet<u64> = pulsar.ledgers().into_keys().collect();
    pulsar.tool(&[
        "forget",
        &format!("/managed-ledgers/{TOPIC}"),
        &id.to_string(),
    ]);
    program.scan();
    let number = id.to_string();
    let mark = ["mark", "--execute"];
    let sweep = ["sweep", "--execute"];
    let undo = ["undo", &number, "--execute"];
    let step = |words: &[&str]| {
        if words[0] == command(point) {
            let killed = program.run_until(point.name(), words);
            assert_eq!(
                killed.code,
                None,
                "{}: it did not end at that step: {killed:#?}",
                point.name()
            );
        }
        let done = again(program, words);
        assert_eq!(
            done.code,
            Some(0),
            "{} after {}: {done:#?}",
            words[0],
            point.name()
        );
    };
    step(&mark);
    assert_eq!(program.marks(), BTreeSet::from([id]), "{}", point.name());
    program.ripen();
    step(&sweep);
    let left: BTreeSet<u64> = pulsar.ledgers().into_keys().collect();
    assert_eq!(&before - &left, BTreeSet::from([id]), "{}", point.name());
    assert_eq!(program.marks(), BTreeSet::new(), "{}", point.name());
    if command(point) == "undo" {
        step(&undo);
        let read = pulsar.tool(&["read", "CRC32C", &number]);
        assert!(
            read.starts_with(&format!("{id} read 10 ")),
            "{}: {read}",
            point.name()
        );
    }
    println!("    killed at {}: the same end", point.name());
}
