//! Ballast: given back to the bookie when its directory is full, made again when there is room; whatever
//! ends the agent or its prober meanwhile.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use crate::harness::agent::{Agent, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::run::{pass, text, try_command, wait_for};

const SECOND: Duration = Duration::from_secs(1);
/// Three times what all tests configure.
const DWELLS: Duration = Duration::from_secs(6);
const MADE: Duration = Duration::from_secs(60);

const FILE: &str = ".dirkeeper-ballast";
const MIB: u64 = 1 << 20;
const JOURNAL: &str = "role = \"journal\"\nballast = \"64MiB\"";
const LEDGER: &str = "ballast = \"64MiB\"";

/// A disk of 256 MiB on which anybody may write.
fn disk(bench: &Bench, name: &str) -> Disk {
    let disk = Disk::block(bench, name, 256);
    fs::set_permissions(disk.path(), Permissions::from_mode(0o777)).unwrap();
    disk
}

/// Bytes that the file occupies, without the blocks that list its blocks.
fn occupied(dir: &Path) -> u64 {
    let file = fs::metadata(dir.join(FILE));
    file.map_or(0, |file| file.len().min(file.blocks() * 512))
}

fn wait_held(agent: &Agent, dir: &Path) {
    wait_for("the ballast is made", MADE, || {
        let ballast = agent.dir(dir)["ballast"].clone();
        (ballast["state"] == "held" && ballast["heldBytes"] == 64 * MIB).then_some(())
    });
    assert_eq!(occupied(dir), 64 * MIB);
}

fn wait_filling(dir: &Path) {
    wait_for("the ballast is begun", MADE, || {
        (0 < occupied(dir)).then_some(())
    });
    assert!(occupied(dir) < 64 * MIB, "it is made in one go");
}

/// As a bookie would that has to compact or to roll its logs: 16 MiB, synced, without privilege.
fn write_as_another_user(dir: &Path) -> Result<String, String> {
    let mut writer = Command::new("dd");
    let file = dir.join("compacted");
    writer.args(["if=/dev/zero", "bs=1M", "count=16", "conv=fsync"]);
    writer
        .arg(format!("of={}", text(&file)))
        .uid(65534)
        .gid(65534);
    try_command(writer, Duration::from_secs(20))
}

pub(crate) fn given_back_and_made_again(bench: &Bench) {
    for (name, keys) in [("ledger", LEDGER), ("journal", JOURNAL)] {
        let disk = disk(bench, name);
        let agent = Plan::new(bench)
            .named(name)
            .dir_with(disk.path(), keys)
            .start();
        wait_held(&agent, disk.path());
        assert_eq!(agent.names(disk.path()), [""; 0]);
        let filled = bench.now();
        disk.set_usage(0.99);
        let full = agent.event("diskFull", disk.path());
        bench.within("diskFull", filled, full.time, SECOND);
        let released = agent.event("ballastReleased", disk.path());
        bench.within("ballastReleased", filled, released.time, SECOND);
        assert!(!disk.path().join(FILE).exists());
        write_as_another_user(disk.path()).unwrap();
        // Three quarters are in use now, and it is full all the same until there is room for ballast.
        pass(DWELLS);
        assert_eq!(agent.dir(disk.path())["status"], "full");
        assert_eq!(occupied(disk.path()), 0, "made again while space is short");
        disk.set_usage(0.30);
        agent.event("diskWritable", disk.path());
        wait_held(&agent, disk.path());
        let mut names = agent.names(disk.path());
        names.retain(|name| name != "diskAlmostFull");
        assert_eq!(names, ["diskFull", "ballastReleased", "diskWritable"]);
        agent.finish(bench);
        assert_eq!(occupied(disk.path()), 64 * MIB, "it outlives the agent");
    }
}

/// Without ballast the writer of the test above is refused.
pub(crate) fn refused_without(bench: &Bench) {
    let disk = disk(bench, "bare");
    let agent = Plan::new(bench).dir(disk.path()).start();
    disk.set_usage(0.99);
    agent.event("diskFull", disk.path());
    let refused = write_as_another_user(disk.path()).unwrap_err();
    assert!(refused.contains("No space left"), "{refused}");
    agent.finish(bench);
}

pub(crate) fn killed_while_it_is_made(bench: &Bench) {
    let disk = disk(bench, "killed");
    let plan = || Plan::new(bench).dir_with(disk.path(), LEDGER);
    let mut agent = plan().start();
    wait_filling(disk.path());
    let prober = agent.child("prober").expect("it has one");
    kill(prober, Signal::SIGKILL).unwrap();
    wait_for("the prober is back", MADE, || {
        agent.child("prober").filter(|pid| *pid != prober)
    });
    assert!(occupied(disk.path()) < 64 * MIB, "too late for a crash");
    agent.crash();
    let agent = plan().start();
    wait_held(&agent, disk.path());
    assert_eq!(agent.names(disk.path()), [""; 0]);
    agent.finish(bench);
}

pub(crate) fn none_where_none_may_be(bench: &Bench) {
    let disk = disk(bench, "uninitialised");
    let agent = Plan::new(bench)
        .dir_with(disk.path(), LEDGER)
        .toml("\n[bookie]\nversion = \"4.17.3\"\n")
        .with_broken_dirs()
        .start();
    pass(DWELLS);
    assert!(!disk.path().join(FILE).exists(), "initbookie would refuse");
    let current = disk.path().join("current");
    fs::create_dir(&current).unwrap();
    fs::write(
        current.join("VERSION"),
        "4\nbookieHost: \"b:3181\"\ninstanceId: \"i\"\n",
    )
    .unwrap();
    wait_held(&agent, disk.path());
    disk.remount(true);
    agent.event("diskReadOnly", disk.path());
    pass(DWELLS);
    assert_eq!(occupied(disk.path()), 64 * MIB);
    disk.remount(false);
    agent.event("diskRecovered", disk.path());
    let program = Command::new(bench.program())
        .args(["check", "--dir"])
        .arg(format!("ledger={}", text(disk.path())))
        .output()
        .unwrap();
    assert!(program.status.code().is_some(), "{program:?}");
    assert_eq!(occupied(disk.path()), 64 * MIB, "check removes nothing");
    // The bookie is to be made anew.
    fs::remove_dir_all(&current).unwrap();
    wait_for("an empty directory", MADE, || {
        (!disk.path().join(FILE).exists()).then_some(())
    });
    assert_eq!(agent.names(disk.path()), ["diskReadOnly", "diskRecovered"]);
    agent.finish(bench);
}
