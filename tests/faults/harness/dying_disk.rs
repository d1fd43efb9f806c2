//! A disk that dies on demand: a file system on a loop device, on the one big file of a
//! [`MemoryFs`], which holds, delays, fails or corrupts what the loop device asks.

use super::bench::Bench;
use super::disk::{Disk, mkfs_options, smallest};
use super::memory_fs::{Effect, MemoryFs};
use super::run::{text, tool};

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

    fn made(bench: &Bench, name: &str, mebibytes: u64, for_ext4: &[&str]) -> DyingDisk {
        let kind = bench.kind();
        let device = MemoryFs::new(bench, &format!("{name}-device"));
        device.add("disk", mebibytes.max(smallest(kind)) << 20);
        let file = device.path().join("disk");
        let find = ["--find", "--show", "--direct-io=on", text(&file)];
        let node = tool("losetup", find);
        let node = node.trim();
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
        // Busy now: it goes away with the mount.
        tool("losetup", ["--detach", node]);
        let disk = Disk::mounted_at(path, true);
        DyingDisk { disk, device }
    }

    /// Holds all requests, and none but those that are made from now on.
    pub(crate) fn hold(&self) {
        tool("sync", ["--file-system", text(self.disk.path())]);
        self.device.set_all(Effect::Hold);
    }
}

impl Drop for DyingDisk {
    fn drop(&mut self) {
        // Before the unmount, which writes.
        self.device.release();
    }
}
