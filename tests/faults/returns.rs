//! What comes back after F17 and F18: the same disk, under its old number or another one, recovers by
//! itself; a bind mount that goes is noticed although its device stays.

use std::path::Path;
use std::time::Duration;

use crate::harness::agent::{Agent, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::{Disk, make_image};
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
