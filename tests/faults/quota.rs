//! F21 with a real quota: btrfs refuses by the limit of a group of subvolumes while space is free.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use nix::errno::Errno;

use crate::harness::agent::Plan;
use crate::harness::bench::Bench;
use crate::harness::disk::{Disk, make_image};
use crate::harness::run::{text, tool};

const INTERVAL: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
/// Bytes that the limited subvolume may hold.
const LIMIT: &str = "16m";

pub(crate) fn qgroup_limit(bench: &Bench) {
    let image = bench.folder().join("limited.image");
    make_image(&image, "btrfs", 256, &[]);
    let disk = Disk::mount_image(bench, "whole", &image, "loop");
    let dir = disk.path().join("limited");
    tool("btrfs", ["quota", "enable", text(disk.path())]);
    tool("btrfs", ["subvolume", "create", text(&dir)]);
    tool("btrfs", ["qgroup", "limit", LIMIT, text(&dir)]);
    let agent = Plan::new(bench).dir(&dir).start();
    let from = bench.now();
    let mut file = File::create(dir.join("filler")).unwrap();
    // Written and synced piece by piece: what is refused is refused now.
    let piece = vec![0x5a; 256 << 10];
    let error = loop {
        if let Err(error) = file.write_all(&piece).and_then(|()| file.sync_data()) {
            break error;
        }
    };
    assert_eq!(error.raw_os_error(), Some(Errno::EDQUOT as i32));
    let event = agent.event("diskFull", &dir);
    bench.noticed(&event, from, INTERVAL + SECOND * 3);
    assert_eq!(event.cause(), "quota");
    assert_eq!(agent.names(&dir), ["diskFull"]);
    agent.finish(bench);
}
