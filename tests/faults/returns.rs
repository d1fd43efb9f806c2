//! What comes back after F17 and F18: the same disk, under its old number or another one, recovers by
//! itself; another disk recovers when an operator accepts it; a bind mount that goes is noticed although its device
//! stays.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::agent::{Agent, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::{Disk, make_image};
use crate::harness::run::{outcome, pass, text, tool, wait_for};
use crate::harness::sweep::MARK;

const SECOND: Duration = Duration::from_secs(1);
/// Of an agent here, and as all tests configure it.
const INTERVAL: Duration = Duration::from_secs(2);
const DWELL: Duration = Duration::from_secs(2);
/// A command that asks an agent ends by itself, at the latest with its own time-outs.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// A look may be running this very moment; shortly after there is none.
fn unmount(disk: &Disk) {
    wait_for("unmounted", SECOND, || disk.unmount().ok());
}

fn vanishes_and_recovers(agent: &Agent, dir: &Path, go: impl FnOnce(), come: impl FnOnce()) {
    let seq = agent.last_seq();
    go();
    agent.event_after(seq, "diskVanished", dir);
    come();
    let back = agent.event_after(seq, "diskRecovered", dir);
    agent.wait_status(dir, "writable");
    let events = agent.events().into_iter();
    let between = events.filter(|event| event.dir.as_deref() == Some(dir) && seq < event.seq);
    let names: Vec<String> = between.map(|event| event.name).collect();
    assert_eq!(names, ["diskVanished", "diskRecovered"], "{}", back.json);
}

/// F17, and mounted again: first as it was, then on another loop device.
pub(crate) fn mounted_again(bench: &Bench) {
    let image = bench.folder().join("again.image");
    make_image(&image, bench.kind(), 64, &[]);
    let attach = || {
        let find = ["--find", "--show", text(&image)];
        tool("losetup", find).trim().to_owned()
    };
    let point = bench.dir("again");
    let mount = |node: &str| drop(tool("mount", [node, text(&point)]));
    let first = attach();
    mount(&first);
    let disk = Disk::mounted_at(point.clone(), true);
    let plan = Plan::new(bench).set("interval", "2s");
    let agent = plan.dir(&point).start();
    let again = || mount(&first);
    vanishes_and_recovers(&agent, &point, || unmount(&disk), again);
    let seq = agent.last_seq();
    let elsewhere = || {
        let second = attach();
        tool("losetup", ["--detach", &first]);
        mount(&second);
        // Busy now: it goes away with the mount.
        tool("losetup", ["--detach", &second]);
    };
    if bench.kind() == "xfs" && !Path::new("/dev/disk/by-uuid").exists() {
        // What statvfs calls its number is that of the device, so nothing tells that it is the same.
        unmount(&disk);
        elsewhere();
        agent.event_after(seq, "diskReplaced", &point);
    } else {
        vanishes_and_recovers(&agent, &point, || unmount(&disk), elsewhere);
    }
    agent.finish(bench);
}

/// A bind mount of a directory of the disk on which its mount point lies: device and path stay.
pub(crate) fn bind_unmounted(bench: &Bench) {
    let disk = Disk::tmpfs(bench, "whole", "size=64m");
    let (part, point) = (disk.dir("part"), disk.dir("point"));
    let bind = || drop(tool("mount", ["--bind", text(&part), text(&point)]));
    bind();
    let agent = Plan::new(bench).set("interval", "2s").dir(&point).start();
    let bound = Disk::mounted_at(point.clone(), false);
    vanishes_and_recovers(&agent, &point, || unmount(&bound), bind);
    unmount(&bound);
    agent.finish(bench);
}

fn token_file(bench: &Bench, token: &str) -> PathBuf {
    let file = bench.folder().join(format!("{token}.token"));
    fs::write(&file, token).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    file
}

/// Runs `accept`: its exit code, and what it said.
fn accept(bench: &Bench, url: &str, token: &Path, dir: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(bench.program());
    command.arg("accept").arg(dir).args(["--url", url]);
    command.arg("--token-file").arg(token);
    command.env(MARK, bench.folder());
    let (status, output, errors) = outcome(command, COMMAND_LIMIT).unwrap();
    (status.code(), output + &errors)
}

/// F18, and an operator accepts the other disk: with the right token, while it counts as replaced,
/// and for good.
pub(crate) fn accepted(bench: &Bench) {
    let disk = Disk::block(bench, "covered", 64);
    let dir = disk.path();
    let [right, wrong] = ["right", "wrong"].map(|token| token_file(bench, token));
    let key = format!("control_token_file = {:?}\n", text(&right));
    let plan = || Plan::new(bench).set("interval", "2s").top(&key).dir(dir);
    let mut agent = plan().start();
    let try_it = |agent: &Agent, token: &Path, expected: i32, words: &str| {
        let (code, said) = accept(bench, &agent.url(), token, dir);
        assert_eq!(code, Some(expected), "{said}");
        assert!(said.contains(words), "{words} is not in: {said}");
    };
    try_it(&agent, &right, 1, "is writable, not replaced");
    let image = bench.folder().join("another.image");
    make_image(&image, bench.kind(), 64, &[]);
    let _over = Disk::mount_image(bench, "covered", &image, "loop");
    agent.event("diskReplaced", dir);
    try_it(&agent, &wrong, 77, "token");
    assert_eq!(agent.dir(dir)["status"], "replaced");
    let from = bench.now();
    try_it(&agent, &right, 0, "taken as the right disk");
    let event = agent.event("diskRecovered", dir);
    // A look at once, and more good ones until the dwell time is over.
    bench.told(&event, from, Duration::ZERO, INTERVAL + DWELL + SECOND);
    agent.wait_status(dir, "writable");
    try_it(&agent, &right, 1, "is writable, not replaced");
    agent.finish_after_events(bench);
    try_it(&agent, &right, 69, "");
    let agent = plan().start();
    // The next run knows it: several rounds find nothing wrong.
    pass(INTERVAL * 2);
    assert_eq!(agent.dir(dir)["status"], "writable");
    assert_eq!(agent.names(dir), ["diskReplaced", "diskRecovered"]);
    agent.finish(bench);
}
