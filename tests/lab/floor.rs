//! The floor: of bookies whose disks fill in the same second, as many as it asks for stay writable. Only the
//! emergency of a journal goes below it, one bookie at a time.

use std::time::Duration;

use crate::harness::agent::Agent;
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::run::{try_for, wait_for};
use crate::stand::fill::fill;
use crate::stand::lab::{Lab, Mode, Setup, disk};
use crate::stand::told::Column;

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
    let held = agents.iter().filter_map(what_is_held).count();
    assert_eq!(held, FLOOR, "those that stay writable say why");
    let said = agents.iter().find_map(what_is_held).unwrap_or_default();
    let row = "the ledger disks of six bookies are filled in the same second";
    tell(bench, row, "three read-only, three writable", &said);
}

/// Two journals without room, and all three bookies must stay writable: one of the two is saved, the other says
/// why it is not.
pub(crate) fn journals_one_at_a_time(bench: &Bench) {
    let disks: Vec<Disk> = (1..=2)
        .map(|bookie| disk(bench, bookie, "journal", 128))
        .collect();
    let lab = Setup::new(bench).bookies(FLOOR).up();
    let agents: Vec<Agent> = (1..=2).map(|bookie| agent(bench, &lab, bookie)).collect();
    for disk in &disks {
        // Less than two pre-allocations of 4 MB are left.
        fill(disk.path(), 1 << 20, 0.96);
    }
    let read_only = || {
        let modes = (1..=2).map(|bookie| lab.bookie(bookie).mode());
        modes.filter(|mode| *mode == Mode::ReadOnly).count()
    };
    wait_for("one bookie is read-only", DECIDED, || {
        (read_only() == 1).then_some(())
    });
    let more = try_for(NEVER, || (read_only() != 1).then(&read_only));
    assert_eq!(more, None, "more than one went below the floor");
    let said = agents.iter().filter_map(what_is_held);
    let said: Vec<String> = said.filter(|held| held.contains("one at a time")).collect();
    assert_eq!(said.len(), 1, "the other does not say why");
    let row = "the journals of two bookies of three have no room";
    tell(bench, row, "one read-only, two writable", &said[0]);
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

/// Why an agent does not do what is wanted, if it does not.
fn what_is_held(agent: &Agent) -> Option<String> {
    agent.status()?["mode"]["held"].as_str().map(str::to_owned)
}

fn tell(bench: &Bench, row: &str, became: &str, said: &str) {
    let table = "The floor: three bookies must stay writable";
    for (name, value) in [
        ("became, and stayed so for 30 s", became),
        ("the others say", said),
    ] {
        let column = Column { bench, table, name };
        column.tell(row, value);
    }
}
