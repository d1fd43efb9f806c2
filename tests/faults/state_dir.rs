//! F27: a state directory that cannot be written costs durability and nothing else, and that is said.

use std::fs;
use std::time::Duration;

use crate::harness::agent::{Agent, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::{Disk, Filler, make_image};
use crate::harness::run::{text, tool, wait_for};

const SECOND: Duration = Duration::from_secs(1);

/// Durability counts as lost, and a problem says why.
fn tells_the_loss(agent: &Agent) -> bool {
    let lost = agent.metric("dirkeeper_state_store_ok", &[]) == Some(0.0);
    lost && agent
        .problems()
        .is_some_and(|problems| !problems.is_empty())
}

/// Nothing is in the way of its store, but that the machine may be busy at the start.
fn stores(bench: &Bench, agent: &Agent) {
    wait_for("the store is used", bench.allowed(SECOND) * 5, || {
        (!tells_the_loss(agent)).then_some(())
    });
}

/// Durability is lost since `from`: it is said within a second, and stays said.
fn is_told(bench: &Bench, agent: &Agent, from: i64) {
    wait_for(
        "lost durability is reported",
        bench.allowed(SECOND) + SECOND,
        || tells_the_loss(agent).then_some(()),
    );
    bench.within("durability lost", from, bench.now(), SECOND);
}

/// The watch goes on while nothing can be stored; when that event was.
fn goes_on(bench: &Bench, agent: &Agent, filling: &Disk) -> i64 {
    let filled = bench.now();
    filling.set_usage(0.97);
    let event = agent.event("diskFull", filling.path());
    bench.told(&event, filled, Duration::ZERO, SECOND);
    event.time
}

/// An agent that was started without a state directory to write says so from its first answer on.
fn starts_without(bench: &Bench, agent: Agent, filling: &Disk) {
    assert!(tells_the_loss(&agent), "lost durability is not reported");
    goes_on(bench, &agent, filling);
    assert!(tells_the_loss(&agent), "lost durability is not reported");
    agent.finish(bench);
}

fn filling(bench: &Bench) -> Disk {
    Disk::tmpfs(bench, "filling", "size=64m")
}

fn fill_up(disk: &Disk) {
    let mut filler = Filler::new(disk.path());
    while filler.grow(4096).is_ok() {}
}

/// The state directory's file system is full at the start.
pub(crate) fn full(bench: &Bench) {
    let state = Disk::tmpfs(bench, "full", "size=2m");
    fill_up(&state);
    let filling = filling(bench);
    let plan = Plan::new(bench).state_dir(state.path());
    let agent = plan.dir(filling.path()).start();
    starts_without(bench, agent, &filling);
}

/// It becomes full under the running agent.
pub(crate) fn becomes_full(bench: &Bench) {
    let state = Disk::tmpfs(bench, "full", "size=8m");
    let filling = filling(bench);
    let plan = Plan::new(bench).state_dir(state.path());
    let agent = plan.dir(filling.path()).start();
    stores(bench, &agent);
    fill_up(&state);
    is_told(bench, &agent, bench.now());
    goes_on(bench, &agent, &filling);
    assert!(tells_the_loss(&agent), "lost durability is not reported");
    agent.finish(bench);
}

/// The state directory's file system is read-only at the start.
pub(crate) fn read_only(bench: &Bench) {
    let state = Disk::block(bench, "read-only", 64);
    state.remount(true);
    let filling = filling(bench);
    let plan = Plan::new(bench).state_dir(state.path());
    let agent = plan.dir(filling.path()).start();
    starts_without(bench, agent, &filling);
}

/// The kernel gives it up under the running agent: `mount -o remount,ro` is refused while the store is
/// open. A file system that nobody writes to shows nothing of it, so it is known with the first event
/// that cannot be stored.
pub(crate) fn becomes_read_only(bench: &Bench) {
    let image = bench.folder().join("state.image");
    make_image(&image, "ext4", 64, &[]);
    let state = Disk::mount_image(bench, "read-only", &image, "loop,errors=remount-ro");
    let filling = filling(bench);
    let plan = Plan::new(bench).state_dir(state.path());
    let agent = plan.dir(filling.path()).start();
    stores(bench, &agent);
    let device = tool("findmnt", ["-n", "-o", "SOURCE", text(state.path())]);
    let device = device.trim().trim_start_matches("/dev/");
    fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "test").unwrap();
    let stored_nowhere = goes_on(bench, &agent, &filling);
    is_told(bench, &agent, stored_nowhere);
    agent.finish(bench);
}

/// It is frozen under the running agent.
pub(crate) fn frozen(bench: &Bench) {
    let state = Disk::block(bench, "frozen", 64);
    let filling = filling(bench);
    let plan = Plan::new(bench).state_dir(&state.path().join("state"));
    let agent = plan.dir(filling.path()).start();
    stores(bench, &agent);
    let _frozen = state.freeze();
    is_told(bench, &agent, bench.now());
    goes_on(bench, &agent, &filling);
    assert!(tells_the_loss(&agent), "lost durability is not reported");
    agent.finish(bench);
}
