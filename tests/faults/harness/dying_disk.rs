//! A disk that dies on demand: a file system on a loop device, on the one big file of a
//! [`MemoryFs`], which holds, delays, fails or corrupts what the loop device asks.

use std::path::PathBuf;

use super::bench::Bench;
use super::disk::{Disk, mkfs_options, smallest};
use super::memory_fs::{Effect, MemoryFs};
use super::run::{text, tool};

/// Sectors of a MiB.
const SECTORS: u64 = (1 << 20) / 512;

/// A file system of the kind of the test, on such a disk.
pub(crate) struct DyingDisk {
    pub(crate) disk: Disk,
    pub(crate) device: MemoryFs,
}

impl DyingDisk {
    pub(crate) fn new(bench: &Bench, name: &str, mebibytes: u64) -> DyingDisk {
        DyingDisk::made(bench, name, mebibytes, &[])
    }

    /// Without a journal, where the kind can be without: its abort is another fault and may come first.
    pub(crate) fn without_journal(bench: &Bench, name: &str, mebibytes: u64) -> DyingDisk {
        DyingDisk::made(bench, name, mebibytes, &["-O", "^has_journal"])
    }

    /// On the first partition of a disk; the second one is nobody's, of this many MiB, and its node
    /// comes too. A kernel that reads no partition tables is told of both.
    pub(crate) fn partitioned(bench: &Bench, name: &str, mebibytes: u64) -> (DyingDisk, PathBuf) {
        const NOBODYS: u64 = 1;
        let size = mebibytes.max(smallest(bench.kind()));
        let (device, node) = attached(bench, name, 1 + size + NOBODYS, &["--partscan"]);
        let parts = [("1", 1, size), ("2", 1 + size, NOBODYS)];
        for (number, start, length) in parts {
            let [start, length] = [start, length].map(|each| (each * SECTORS).to_string());
            tool("addpart", [&node, number, &start, &length]);
        }
        let [first, second] = ["p1", "p2"].map(|part| format!("{node}{part}"));
        let dying = DyingDisk::on(bench, name, device, &first, &[]);
        tool("losetup", ["--detach", &node]);
        (dying, second.into())
    }

    fn made(bench: &Bench, name: &str, mebibytes: u64, for_ext4: &[&str]) -> DyingDisk {
        let size = mebibytes.max(smallest(bench.kind()));
        let (device, node) = attached(bench, name, size, &[]);
        let dying = DyingDisk::on(bench, name, device, &node, for_ext4);
        // Busy now: it goes away with the mount.
        tool("losetup", ["--detach", &node]);
        dying
    }

    fn on(bench: &Bench, name: &str, device: MemoryFs, node: &str, for_ext4: &[&str]) -> DyingDisk {
        let kind = bench.kind();
        // Nothing is left for the kernel to write later.
        let eager = ["-E", "lazy_itable_init=0,lazy_journal_init=0"];
        let own = if kind == "ext4" {
            [&eager[..], for_ext4].concat()
        } else {
            Vec::new()
        };
        let options = mkfs_options(kind).iter().copied().chain(own);
        tool(&format!("mkfs.{kind}"), options.chain([node]));
        let path = bench.dir(name);
        let options = if kind == "ext4" {
            "errors=continue"
        } else {
            "defaults"
        };
        tool("mount", ["-o", options, node, text(&path)]);
        let disk = Disk::mounted_at(path, true);
        DyingDisk { disk, device }
    }

    /// Holds all requests, and none but those that are made from now on.
    pub(crate) fn hold(&self) {
        tool("sync", ["--file-system", text(self.disk.path())]);
        self.device.set_all(Effect::Hold);
    }
}

/// A loop device on the one file of a file system in memory.
fn attached(bench: &Bench, name: &str, mebibytes: u64, more: &[&str]) -> (MemoryFs, String) {
    let device = MemoryFs::new(bench, &format!("{name}-device"));
    device.add("disk", mebibytes << 20);
    let file = device.path().join("disk");
    let find = ["--find", "--show", "--direct-io=on", text(&file)];
    let node = tool("losetup", more.iter().copied().chain(find));
    (device, node.trim().to_owned())
}

impl Drop for DyingDisk {
    fn drop(&mut self) {
        // Before the unmount, which writes.
        self.device.release();
    }
}
