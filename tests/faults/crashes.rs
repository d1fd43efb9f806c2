//! Crashes of the whole agent at random moments: every event is kept once, in order, and delivered at
//! least once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::harness::agent::{Agent, Event, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::run::{pass, text, wait_for};

/// So many events are made, at least.
const EVENTS: u64 = 1000;
/// Between two crashes, at most; long enough for a start and some events.
const LIFE: std::ops::Range<u64> = 300..2500;

/// Fills and frees disks, each at its own pace, until told to end.
pub(crate) fn swing(disks: &[Disk], stop: &AtomicBool) {
    std::thread::scope(|scope| {
        for (number, disk) in disks.iter().enumerate() {
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    for usage in [0.97, 0.92, 0.50] {
                        disk.set_usage(usage);
                        pass(Duration::from_millis(90 + 10 * number as u64));
                    }
                }
            });
        }
    });
}

fn plan<'a>(bench: &'a Bench, disks: &[Disk], hook: &Path) -> Plan<'a> {
    let hook = format!(
        "\n[[hook]]\nname = \"keep\"\ncommand = [\"/bin/sh\", {:?}]\n",
        text(hook)
    );
    let plan = Plan::new(bench)
        .set("dwell", "0s")
        .set("space_interval", "50ms")
        .toml(&hook);
    disks.iter().fold(plan, |plan, disk| plan.dir(disk.path()))
}

/// A hook that appends its event to a file with one write. One that was started and then lost its
/// agent before it was told the event has nothing to keep.
fn make_hook(bench: &Bench, file: &Path) -> PathBuf {
    let hook = bench.folder().join("keep");
    fs::write(
        &hook,
        format!(
            "event=$(cat)\n[ -z \"$event\" ] || echo \"$event\" >>'{}'\n",
            text(file)
        ),
    )
    .unwrap();
    hook
}

pub(crate) fn no_event_is_lost(bench: &Bench) {
    let disks =
        [0, 1, 2, 3].map(|number| Disk::tmpfs(bench, &format!("swinging-{number}"), "size=16m"));
    let file = bench.folder().join("delivered");
    let hook = make_hook(bench, &file);
    let stop = AtomicBool::new(false);
    let (agent, crashes) = std::thread::scope(|scope| {
        scope.spawn(|| swing(&disks, &stop));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            crash_until_enough(bench, &disks, &hook)
        }));
        stop.store(true, Ordering::SeqCst);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    wait_for("everything is delivered", Duration::from_secs(60), || {
        let status = agent.status()?;
        let listeners = status["listeners"].as_array()?;
        listeners
            .iter()
            .all(|listener| listener["pending"] == 0)
            .then_some(())
    });
    let log = agent.events();
    let numbers: Vec<u64> = log.iter().map(|event| event.seq).collect();
    let expected: Vec<u64> = (1..=log.len() as u64).collect();
    assert_eq!(numbers, expected, "every number once, none left out");
    let text = fs::read_to_string(&file).unwrap();
    let delivered: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    check_deliveries(&log, &delivered);
    println!(
        "{} events, {} deliveries, {crashes} crashes",
        log.len(),
        delivered.len()
    );
    agent.finish(bench);
}

/// Starts and crashes the agent until it made enough events; the last one goes on.
fn crash_until_enough(bench: &Bench, disks: &[Disk], hook: &Path) -> (Agent, usize) {
    for crashes in 0.. {
        let mut agent = plan(bench, disks, hook).with_broken_dirs().start();
        if agent.last_seq() >= EVENTS {
            return (agent, crashes);
        }
        pass(Duration::from_millis(fastrand::u64(LIFE)));
        agent.crash();
    }
    unreachable!("each life makes events")
}

/// Each event of the log, or a later one that says how many before it were left out, was delivered;
/// first deliveries of a directory are in order.
fn check_deliveries(log: &[Event], delivered: &[Value]) {
    let mut of_dir: BTreeMap<Option<PathBuf>, Vec<u64>> = BTreeMap::new();
    for event in log {
        of_dir.entry(event.dir.clone()).or_default().push(event.seq);
    }
    let mut covered: BTreeMap<Option<PathBuf>, BTreeSet<u64>> = BTreeMap::new();
    for json in delivered {
        let event = Event::parse(json);
        let sequence = &of_dir[&event.dir];
        let at = sequence
            .binary_search(&event.seq)
            .expect("only events of the log are delivered");
        let coalesced = usize::try_from(json["coalesced"].as_u64().unwrap()).unwrap();
        let covered = covered.entry(event.dir.clone()).or_default();
        let newest = covered.last().copied();
        let first_time = covered.insert(event.seq);
        covered.extend(&sequence[at.saturating_sub(coalesced)..at]);
        if first_time && let Some(newest) = newest {
            assert!(
                newest < event.seq,
                "{} of {:?} after {newest}",
                event.seq,
                event.dir
            );
        }
    }
    for (dir, sequence) in of_dir {
        let covered = covered.remove(&dir).unwrap_or_default();
        let missing: Vec<u64> = sequence
            .into_iter()
            .filter(|seq| !covered.contains(seq))
            .collect();
        assert!(
            missing.is_empty(),
            "of {dir:?} neither delivered nor coalesced: {missing:?}"
        );
    }
}
