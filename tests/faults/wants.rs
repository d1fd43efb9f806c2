//! F36: what the agent itself lacks (descriptors, memory, permission) is no fault of a disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::Duration;

use nix::libc::{RLIM_INFINITY, rlim_t};
use nix::unistd::Pid;

use crate::harness::agent::{Agent, PATIENCE, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::run::{tool, wait_for};

/// Rounds of probes with a fault of this kind come so often here.
const INTERVAL: &str = "2s";
/// The user as whom the agent runs, where that matters.
const NOBODY: u32 = 65534;
/// A bookie's user.
const BOOKIE: u32 = 1234;

fn limit(pid: Pid, what: &str, soft: rlim_t) {
    let (pid, limit) = (pid.to_string(), format!("--{what}={soft}:"));
    tool("prlimit", ["--pid", &pid, &limit]);
}

fn assert_never_failed(agent: &Agent) {
    let events = agent.events();
    let failed = ["diskFailed", "diskHung", "diskReadOnly", "diskFull"];
    let found = events
        .iter()
        .find(|event| failed.contains(&event.name.as_str()));
    assert!(
        found.is_none(),
        "our own want is no fault of a disk: {found:?}"
    );
}

/// The prober runs out of descriptors. Nothing is known then, and nothing has failed.
pub(crate) fn without_descriptors(bench: &Bench) {
    let disk = Disk::block(bench, "watched", 64);
    let plan = Plan::new(bench).set("interval", INTERVAL);
    let mut agent = plan.dir(disk.path()).start();
    let prober = agent.child("prober").unwrap();
    let from = bench.now();
    limit(prober, "nofile", 3);
    let event = agent.event("diskUnknown", disk.path());
    bench.told(&event, from, Duration::ZERO, Duration::from_secs(10));
    assert_eq!(event.cause(), "prober");
    assert_eq!(agent.dir(disk.path())["status"], "unknown");
    wait_for("a problem is reported", PATIENCE, || {
        let problems = agent.problems()?;
        let said = |text: &String| text.contains("Too many open files");
        problems.iter().any(said).then_some(())
    });
    limit(prober, "nofile", 4096);
    agent.wait_status(disk.path(), "writable");
    assert_never_failed(&agent);
    agent.finish_after_events(bench);
}

/// The prober runs out of address space: it can start no thread for another file system, or dies
/// of it and is replaced. Nothing has failed either way.
pub(crate) fn without_memory(bench: &Bench) {
    let disk = Disk::block(bench, "watched", 64);
    let other = Disk::tmpfs(bench, "other", "size=16m");
    let plan = Plan::new(bench).set("interval", INTERVAL);
    let mut agent = plan.dir(disk.path()).start();
    let restarts = || agent.metric("dirkeeper_child_restarts_total", &["child=\"prober\""]);
    let before = restarts().unwrap();
    let prober = agent.child("prober").unwrap();
    let from = bench.now();
    limit(prober, "as", 0);
    agent.add_dir(bench, other.path());
    wait_for("the want is felt", PATIENCE, || {
        let dir = agent.known_dir(other.path())?;
        let felt = dir["status"] == "unknown" && dir["cause"]["kind"] == "prober";
        (felt || restarts()? > before).then_some(())
    });
    bench.within("felt", from, bench.now(), Duration::from_secs(10));
    // A prober that took the place of a dead one has no such limit.
    if agent.child("prober") == Some(prober) {
        limit(prober, "as", RLIM_INFINITY);
    }
    for dir in [disk.path(), other.path()] {
        agent.wait_status(dir, "writable");
    }
    assert_never_failed(&agent);
    agent.finish_after_events(bench);
}

/// The directory is closed to the user as whom the agent runs, and open to its owner, the bookie.
pub(crate) fn only_the_agent_is_refused(bench: &Bench) {
    let disk = Disk::block(bench, "refused", 64);
    let state = bench.dir("state-of-nobody");
    let [(journal, _), (index, _)] = bench.healthy();
    let own = [&state, &journal, &index].map(|path| (path.as_path(), NOBODY));
    for (path, user) in own.into_iter().chain([(disk.path(), BOOKIE)]) {
        chown(path, Some(user), Some(user)).unwrap();
    }
    let mode = |mode: u32| fs::set_permissions(disk.path(), Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    let agent = Plan::new(bench)
        .set("interval", INTERVAL)
        .copied_to(bench.folder())
        .by_user(NOBODY)
        .state_dir(&state)
        .dir(disk.path())
        .start();
    let from = bench.now();
    mode(0o755);
    let event = agent.event("diskUnknown", disk.path());
    bench.told(&event, from, Duration::ZERO, Duration::from_secs(10));
    wait_for("a problem is reported", PATIENCE, || {
        (!agent.problems()?.is_empty()).then_some(())
    });
    assert_eq!(agent.names(disk.path()), ["diskUnknown"]);
    mode(0o777);
    agent.wait_status(disk.path(), "writable");
    agent.finish(bench);
}
