//! What comes back after F17 and F18: the same disk, under its old number or another one, recovers by
//! itself; a bind mount that goes is noticed although its device stays.

use std::path::Path;
use std::time::Duration;

use crate::harness::agent::{Agent, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::run::{text, tool, wait_for};

const SECOND: Duration = Duration::from_secs(1);

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
    let disk = Disk::block(bench, "again", 64);
    let image = bench.folder().join("again.image");
    let agent = Plan::new(bench)
        .set("interval", "2s")
        .dir(disk.path())
        .start();
    let dir = disk.path();
    let mount = || drop(tool("mount", ["-o", "loop", text(&image), text(dir)]));
    vanishes_and_recovers(&agent, dir, || unmount(&disk), mount);
    if bench.kind() == "xfs" && !Path::new("/dev/disk/by-uuid").exists() {
        // What statvfs calls its number is that of the device, so nothing tells that it is the same.
        let seq = agent.last_seq();
        unmount(&disk);
        let other = Disk::block(bench, "other", 8);
        mount();
        agent.event_after(seq, "diskReplaced", dir);
        drop(other);
        return agent.finish(bench);
    }
    // Another file system takes the number that has become free.
    let mut other = None;
    let mount_elsewhere = || {
        other = Some(Disk::block(bench, "other", 8));
        mount();
    };
    vanishes_and_recovers(&agent, dir, || unmount(&disk), mount_elsewhere);
    drop(other);
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
