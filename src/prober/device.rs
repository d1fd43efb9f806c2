//! What the system knows about a block device without asking the device: rotating or not, and the
//! UUID of the file system on it. Reads sysfs and the links of `/dev/disk`, which live in memory;
//! never the device itself.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use crate::health::observation::{Device, Medium};

use super::mount::Entry;

/// Where the facts are; another place in tests.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) sys: PathBuf,
    pub(super) by_uuid: PathBuf,
}

/// A stack of mapped devices is followed so deep: LVM on encryption on RAID on a disk is three.
pub(super) const MAX_STACK: u32 = 4;

/// File systems behind which there is a network or a process.
const NETWORK_TYPES: [&str; 12] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "ceph",
    "9p",
    "lustre",
    "gpfs",
    "beegfs",
    "afs",
    "glusterfs",
];

/// File systems that live in memory.
const MEMORY_TYPES: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];

impl Facts {
    /// Those of this machine.
    pub(super) fn of_the_machine() -> Facts {
        Facts {
            sys: PathBuf::from("/sys"),
            by_uuid: PathBuf::from("/dev/disk/by-uuid"),
        }
    }

    /// What the storage under a mount is.
    pub(super) fn medium(&self, mount: &Entry) -> Medium {
        let fs_type = mount.fs_type.as_str();
        if NETWORK_TYPES.contains(&fs_type) || fs_type == "fuse" || fs_type.starts_with("fuse.") {
            return Medium::Network;
        }
        if MEMORY_TYPES.contains(&fs_type) {
            return Medium::Memory;
        }
        let block = self.block(mount.device, &mount.source);
        block.map_or(Medium::Unknown, |block| medium_of(&block, MAX_STACK))
    }

    /// The UUID of the file system on a device, where there is such a link. `source` helps where
    /// the file system has a device number of its own (btrfs).
    pub(super) fn uuid(&self, device: Device, source: Option<&str>) -> Option<String> {
        let block = self.block(device, source.unwrap_or_default())?;
        let name = block.file_name()?;
        fs::read_dir(&self.by_uuid)
            .ok()?
            .flatten()
            .find_map(|link| {
                let target = fs::read_link(link.path()).ok()?;
                (target.file_name() == Some(name)).then(|| link.file_name().into_string().ok())?
            })
    }

    /// The kernel's folder of a block device.
    pub(super) fn block(&self, device: Device, source: &str) -> Option<PathBuf> {
        let link = if device.major == 0 {
            self.sys.join("class/block").join(kernel_name(source)?)
        } else {
            let Device { major, minor } = device;
            self.sys.join(format!("dev/block/{major}:{minor}"))
        };
        fs::canonicalize(link).ok()
    }
}

/// `/dev/sda1` is `sda1`; `/dev/mapper/x` is a link to what the kernel calls it.
fn kernel_name(source: &str) -> Option<OsString> {
    let path = Path::new(source);
    if !path.starts_with("/dev") {
        return None;
    }
    let target = fs::read_link(path).unwrap_or_else(|_| path.to_owned());
    target.file_name().map(OsStr::to_owned)
}

fn medium_of(block: &Path, depth: u32) -> Medium {
    // A partition has no queue of its own, its disk is the folder above.
    let disk = if block.join("partition").exists() {
        block.parent().unwrap_or(block)
    } else {
        block
    };
    let name = disk.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    // What a hypervisor or a file says about rotation is about nothing.
    if is(&["loop", "vd", "xvd"]) {
        return Medium::Unknown;
    }
    if is(&["nbd", "rbd", "drbd"]) {
        return Medium::Network;
    }
    if is(&["ram", "zram", "pmem"]) {
        return Medium::Memory;
    }
    let below = fs::read_dir(disk.join("slaves")).into_iter().flatten();
    let below = below
        .flatten()
        .filter_map(|each| fs::canonicalize(each.path()).ok());
    let below: Vec<PathBuf> = below.collect();
    if !below.is_empty() {
        if depth == 0 {
            return Medium::Unknown;
        }
        // The slowest class decides, because any request may land there.
        let media = below.iter().map(|each| medium_of(each, depth - 1));
        return media
            .max_by_key(|medium| medium.deadline())
            .unwrap_or(Medium::Unknown);
    }
    match fs::read_to_string(disk.join("queue/rotational")).as_deref() {
        Ok("0\n") => Medium::SolidState,
        Ok("1\n") => Medium::Rotating,
        _ => Medium::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::mount::Table;
    use super::*;

    /// A machine with a disk `sda` (partition `sda1`), a mapped device on it, a loop device and a
    /// UUID of the partition.
    fn machine() -> (tempfile::TempDir, Facts) {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path().join("sys");
        for (name, number, rotational) in [
            ("sda", "8:0", "1\n"),
            ("sda/sda1", "8:1", ""),
            ("nvme0n1", "259:0", "0\n"),
            ("loop0", "7:0", "0\n"),
            ("dm-0", "253:0", "0\n"),
        ] {
            let block = sys.join("devices").join(name);
            if rotational.is_empty() {
                fs::create_dir_all(&block).unwrap();
                fs::write(block.join("partition"), "1\n").unwrap();
            } else {
                fs::create_dir_all(block.join("queue")).unwrap();
                fs::write(block.join("queue/rotational"), rotational).unwrap();
            }
            for (class, link) in [
                ("class/block", block.file_name().unwrap().to_str().unwrap()),
                ("dev/block", number),
            ] {
                fs::create_dir_all(sys.join(class)).unwrap();
                symlink(&block, sys.join(class).join(link)).unwrap();
            }
        }
        fs::create_dir(sys.join("devices/dm-0/slaves")).unwrap();
        symlink(
            sys.join("devices/sda/sda1"),
            sys.join("devices/dm-0/slaves/sda1"),
        )
        .unwrap();
        let by_uuid = dir.path().join("by-uuid");
        fs::create_dir(&by_uuid).unwrap();
        symlink("../../sda1", by_uuid.join("3c0f-11")).unwrap();
        (dir, Facts { sys, by_uuid })
    }

    fn medium(facts: &Facts, device: &str, fs_type: &str, source: &str) -> Medium {
        let line = format!("1 0 {device} / / rw - {fs_type} {source} rw\n");
        let table = Table::parse(line.as_bytes());
        facts.medium(table.covering(Path::new("/")).unwrap())
    }

    #[test]
    fn the_medium_follows_from_type_and_device() {
        let (_dir, facts) = machine();
        for (device, fs_type, source, expected) in [
            ("8:0", "xfs", "/dev/sda", Medium::Rotating),
            ("8:1", "ext4", "/dev/sda1", Medium::Rotating),
            ("253:0", "ext4", "/dev/mapper/a", Medium::Rotating),
            ("259:0", "ext4", "/dev/nvme0n1", Medium::SolidState),
            ("0:44", "btrfs", "/dev/nvme0n1", Medium::SolidState),
            ("7:0", "ext4", "/dev/loop0", Medium::Unknown),
            ("8:99", "ext4", "/dev/none", Medium::Unknown),
            ("0:45", "overlay", "overlay", Medium::Unknown),
            ("0:46", "tmpfs", "tmpfs", Medium::Memory),
            ("0:47", "nfs4", "host:/x", Medium::Network),
            ("0:48", "fuse.sshfs", "host:/x", Medium::Network),
        ] {
            let found = medium(&facts, device, fs_type, source);
            assert_eq!(found, expected, "{device} {fs_type} {source}");
        }
    }

    #[test]
    fn a_uuid_is_found_by_the_name_of_the_device() {
        let (_dir, facts) = machine();
        let device = |major, minor| Device { major, minor };
        assert_eq!(facts.uuid(device(8, 1), None).as_deref(), Some("3c0f-11"));
        assert_eq!(facts.uuid(device(8, 0), None), None);
        let btrfs = facts.uuid(device(0, 44), Some("/dev/sda1"));
        assert_eq!(btrfs.as_deref(), Some("3c0f-11"));
    }
}
