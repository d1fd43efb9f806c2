//! Six bookies whose disks fill in the same second: as many as the floor asks for stay writable.

use std::time::Duration;

use crate::harness::agent::Agent;
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::run::{try_for, wait_for};
use crate::stand::fill::fill;
use crate::stand::lab::{Lab, Mode, Setup, disk};

const BOOKIES: usize = 6;
const FLOOR: usize = 3;

/// Six agents one after the other under one lock, on a busy machine.
const DECIDED: Duration = Duration::from_secs(90);

/// Many turns of six agents.
const NEVER: Duration = Duration::from_secs(30);

pub(crate) fn six_at_once(bench: &Bench) {
    let disks: Vec<Disk> = (1..=BOOKIES)
        .map(|bookie| disk(bench, bookie, "ledger1", 128))
        .collect();
    let lab = Setup::new(bench).bookies(BOOKIES).up();
    let agents: Vec<Agent> = (1..=BOOKIES)
        .map(|bookie| agent(bench, &lab, bookie))
        .collect();
    for disk in &disks {
        fill(disk.path(), 64 << 20, 0.7);
    }
    wait_for("three bookies are read-only", DECIDED, || {
        (writable(&lab) == FLOOR).then_some(())
    });
    let below = try_for(NEVER, || (writable(&lab) < FLOOR).then(|| writable(&lab)));
    assert_eq!(below, None, "the floor was broken");
    assert_eq!(writable(&lab), FLOOR);
    let told = (1..=BOOKIES).map(|bookie| lab.bookie(bookie).logged("to ReadOnly mode"));
    assert_eq!(told.sum::<usize>(), FLOOR, "one was told and taken back");
    let held = agents.iter().filter(|agent| is_held(agent)).count();
    assert_eq!(held, FLOOR, "those that stay writable say why");
}

fn agent(bench: &Bench, lab: &Lab, bookie: usize) -> Agent {
    let lines = format!(
        "control = \"enforce\"\nmin_writable_bookies = {FLOOR}\nread_only_on_any_full = true"
    );
    lab.agent(bench, bookie, &lines)
        .toml("\n[thresholds.ledger]\nwarn = 0.5\nfull = 0.6\nlow_watermark = 0.5\n")
        .start()
}

fn writable(lab: &Lab) -> usize {
    let modes = (1..=BOOKIES).map(|bookie| lab.bookie(bookie).mode());
    modes.filter(|mode| *mode == Mode::Writable).count()
}

fn is_held(agent: &Agent) -> bool {
    agent
        .status()
        .is_some_and(|status| status["mode"]["held"].is_string())
}
