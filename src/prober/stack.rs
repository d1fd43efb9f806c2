//! Which block devices are under a mount: those of the file system itself, and what they are made of
//! (partitions of a disk, mapped devices, RAID, bcache, a loop device on a file of another file
//! system). Reads sysfs and the mount table, never a device. The paths of an NVMe disk are hidden
//! devices: they have no number, and their counters are in sysfs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::health::observation::Device;

use super::device::{Facts, MAX_STACK};
use super::mount::{Entry, Table};

/// More devices than this are not followed for one mount: a wide RAID of whole shelves.
const MAX_DEVICES: usize = 64;

/// The devices under a mount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Stack {
    /// Those that the file system itself is on: one, or several of a btrfs.
    pub(super) own: Vec<Device>,
    /// Devices through which every request must go: the own one and what is under it, down to
    /// where there are several.
    pub(super) chain: Vec<Device>,
    /// All, the own ones first.
    pub(super) all: Vec<Device>,
    /// The kernel's folders of those whose requests others count too, see [`others`].
    pub(super) heads: Vec<(Device, PathBuf)>,
    /// Those that are made of no others: whole disks.
    pub(super) disks: Vec<Device>,
}

impl Facts {
    /// The devices under a mount.
    ///
    /// # Errors
    /// There are none that the kernel counts requests for; in words.
    pub(super) fn stack(&self, mount: &Entry, table: &Table) -> Result<Stack, String> {
        let mut own = self.members(mount);
        if own.is_empty() {
            own.extend(self.block(mount.device, &mount.source));
        }
        let mut stack = Stack::default();
        let mut level: Vec<PathBuf> = own;
        let mut single = true;
        for depth in 0..=MAX_STACK {
            let devices: Vec<Device> = level.iter().filter_map(|block| number(block)).collect();
            single &= devices.len() == 1;
            if single {
                stack.chain.extend(&devices);
            }
            if depth == 0 {
                stack.own.clone_from(&devices);
            }
            let new = devices
                .into_iter()
                .filter(|device| !stack.all.contains(device));
            let room = MAX_DEVICES.saturating_sub(stack.all.len());
            let new: Vec<Device> = new.take(room).collect();
            stack.all.extend(new);
            let heads = level.iter().filter(|block| !others(block).is_empty());
            let heads = heads.filter_map(|block| Some((number(block)?, block.clone())));
            stack.heads.extend(heads);
            let mut below = Vec::new();
            for block in &level {
                let under = self.under(block, table);
                if under.is_empty() {
                    stack.disks.extend(number(block));
                }
                below.extend(under);
            }
            level = below;
            level.sort();
            level.dedup();
        }
        stack.disks.sort();
        stack.disks.dedup();
        stack.disks.truncate(MAX_DEVICES);
        match stack.own.is_empty() {
            true => Err(format!("{} has no block device", mount.fs_type)),
            false => Ok(stack),
        }
    }

    /// All devices of a btrfs.
    fn members(&self, mount: &Entry) -> Vec<PathBuf> {
        let Some(folder) = self.btrfs(mount) else {
            return Vec::new();
        };
        let entries = fs::read_dir(folder.join("devices"));
        let entries = entries.into_iter().flatten().flatten();
        let blocks = entries.filter_map(|entry| fs::canonicalize(entry.path()).ok());
        let mut blocks: Vec<PathBuf> = blocks.collect();
        blocks.sort();
        blocks
    }

    /// The kernel's folder of a btrfs, found by a device of it.
    pub(super) fn btrfs(&self, mount: &Entry) -> Option<PathBuf> {
        if mount.fs_type != "btrfs" {
            return None;
        }
        let block = self.block(mount.device, &mount.source)?;
        let name = block.file_name()?;
        let entries = fs::read_dir(self.sys.join("fs/btrfs")).ok()?;
        let mut folders = entries.flatten().map(|entry| entry.path());
        folders.find(|folder| fs::symlink_metadata(folder.join("devices").join(name)).is_ok())
    }

    fn under(&self, block: &Path, table: &Table) -> Vec<PathBuf> {
        // A partition's disk is the folder above.
        if block.join("partition").exists() {
            return block.parent().map(Path::to_owned).into_iter().collect();
        }
        if let Ok(file) = fs::read(block.join("loop/backing_file")) {
            let file = file.strip_suffix(b"\n").unwrap_or(&file);
            let file: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(file);
            let entry = table.covering(Path::new(file));
            let below = entry.and_then(|entry| self.block(entry.device, &entry.source));
            return below.into_iter().collect();
        }
        let slaves = fs::read_dir(block.join("slaves")).into_iter().flatten();
        let slaves = slaves.flatten();
        slaves
            .filter_map(|each| fs::canonicalize(each.path()).ok())
            .collect()
    }
}

/// The counters of others who count the requests of a disk: its partitions, because newer kernels (6.18
/// is one) do not add their requests in flight to its own, and its hidden paths.
pub(super) fn others(disk: &Path) -> Vec<PathBuf> {
    let mut all = paths(disk);
    let name = disk.file_name().unwrap_or_default().as_encoded_bytes();
    let entries = fs::read_dir(disk).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(name));
    let parts = named
        .map(|entry| entry.path())
        .filter(|part| part.join("partition").exists());
    all.extend(parts.map(|part| part.join("stat")));
    all
}

/// The counters of the hidden paths on which an NVMe disk is reached: up to Linux 6.2 the disk itself
/// counts nothing. They come and go with the connections.
fn paths(head: &Path) -> Vec<PathBuf> {
    let Some((subsystem, space)) = head.file_name().and_then(OsStr::to_str).and_then(nvme) else {
        return Vec::new();
    };
    let is_path = |name: &str| {
        let rest = name
            .strip_prefix(subsystem)
            .and_then(|rest| rest.strip_prefix('c'));
        rest.is_some_and(|rest| {
            rest.trim_start_matches(|each: char| each.is_ascii_digit()) == space
        })
    };
    // Since Linux 6.15 the disk names them; before, only their names tell, in the folder of all.
    let named = head.join("multipath");
    let all = match named.is_dir() {
        true => named,
        false => head.join("subsystem"),
    };
    let entries = fs::read_dir(all).into_iter().flatten().flatten();
    let hidden = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_path));
    let mut paths: Vec<PathBuf> = hidden.map(|entry| entry.path().join("stat")).collect();
    paths.sort();
    paths
}

/// `nvme0n1` is `nvme0` and `n1`.
fn nvme(name: &str) -> Option<(&str, &str)> {
    let digits = name.strip_prefix("nvme")?;
    let space = name.len()
        - digits
            .trim_start_matches(|each: char| each.is_ascii_digit())
            .len();
    let (subsystem, space) = name.split_at(space);
    let number = space.strip_prefix('n')?;
    number
        .bytes()
        .all(|each| each.is_ascii_digit())
        .then_some((subsystem, space))
}

fn number(block: &Path) -> Option<Device> {
    let text = fs::read_to_string(block.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(Device {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A machine: `sda` with a partition, `sdb`; `dm-0` on that partition; `md0` of `dm-0` and
    /// `sdb`; `loop0` on a file of the file system on `md0`; a btrfs of `sdc` and `sdd`.
    struct Machine {
        dir: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Machine {
            let machine = Machine {
                dir: tempfile::tempdir().unwrap(),
            };
            for (name, number, under) in [
                ("sda", "8:0", ""),
                ("sda/sda1", "8:1", ""),
                ("sdb", "8:16", ""),
                ("sdc", "8:32", ""),
                ("sdd", "8:48", ""),
                ("dm-0", "253:0", "sda/sda1"),
                ("md0", "9:0", "dm-0 sdb"),
                ("loop0", "7:0", ""),
            ] {
                machine.add(name, number, under);
            }
            let block = machine.sys().join("devices");
            fs::write(block.join("sda/sda1/partition"), "1\n").unwrap();
            fs::create_dir(block.join("loop0/loop")).unwrap();
            fs::write(
                block.join("loop0/loop/backing_file"),
                "/raid/disk (deleted)\n",
            )
            .unwrap();
            let devices = machine.sys().join("fs/btrfs/3c0f/devices");
            fs::create_dir_all(&devices).unwrap();
            for name in ["sdc", "sdd"] {
                symlink(block.join(name), devices.join(name)).unwrap();
            }
            machine
        }

        fn sys(&self) -> PathBuf {
            self.dir.path().join("sys")
        }

        fn add(&self, name: &str, number: &str, under: &str) {
            let block = self.sys().join("devices").join(name);
            fs::create_dir_all(block.join("slaves")).unwrap();
            fs::write(block.join("dev"), format!("{number}\n")).unwrap();
            let name = block.file_name().unwrap().to_str().unwrap();
            for (class, link) in [("class/block", name), ("dev/block", number)] {
                fs::create_dir_all(self.sys().join(class)).unwrap();
                symlink(&block, self.sys().join(class).join(link)).unwrap();
            }
            for each in under.split_whitespace() {
                let slave = self.sys().join("devices").join(each);
                symlink(&slave, block.join("slaves").join(each.replace('/', "-"))).unwrap();
            }
        }

        fn stack(&self, device: &str, fs_type: &str, source: &str) -> Result<Stack, String> {
            let facts = Facts {
                sys: self.sys(),
                by_uuid: self.dir.path().join("by-uuid"),
            };
            let text = format!(
                "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 9:0 / /raid rw - xfs /dev/md0 rw\n\
                 3 1 {device} / /m rw - {fs_type} {source} rw\n"
            );
            let table = Table::parse(text.as_bytes());
            facts.stack(table.covering(Path::new("/m")).unwrap(), &table)
        }

        fn check(&self, device: &str, source: &str, own: &[u32], chain: &[u32], all: &[u32]) {
            let fs_type = if device.starts_with("0:") {
                "btrfs"
            } else {
                "ext4"
            };
            let stack = self.stack(device, fs_type, source).unwrap();
            let short = |devices: &[Device]| -> Vec<u32> {
                let short = |device: &Device| device.major * 100 + device.minor;
                devices.iter().map(short).collect()
            };
            let found = [short(&stack.own), short(&stack.chain), short(&stack.all)];
            assert_eq!(found, [own, chain, all], "{device}");
        }
    }

    #[test]
    fn a_stack_is_followed_down_to_its_disks() {
        let machine = Machine::new();
        machine.check("8:16", "/dev/sdb", &[816], &[816], &[816]);
        machine.check("8:1", "/dev/sda1", &[801], &[801, 800], &[801, 800]);
        let mapped = [25300, 801, 800];
        machine.check("253:0", "/dev/mapper/a", &[25300], &mapped, &mapped);
        let raid = [900, 25300, 816, 801, 800];
        machine.check("9:0", "/dev/md0", &[900], &[900], &raid);
        let file = [700, 900, 25300, 816, 801, 800];
        machine.check("7:0", "/dev/loop0", &[700], &[700, 900], &file);
        machine.check("0:44", "/dev/sdd", &[832, 848], &[], &[832, 848]);
    }

    /// Two subsystems: the first with two paths to its first disk and one to its second.
    #[test]
    fn an_nvme_disk_has_the_counters_of_its_hidden_paths() {
        let machine = Machine::new();
        let devices = machine.sys().join("devices");
        for (name, number) in [("nvme0n1", "259:0"), ("nvme0n2", "259:2")] {
            machine.add(name, number, "");
            let class = machine.sys().join("class/block");
            symlink(class, devices.join(name).join("subsystem")).unwrap();
        }
        let hidden = ["nvme0c0n1", "nvme0c1n1", "nvme0c0n12", "nvme1c0n1"];
        for name in hidden {
            fs::create_dir(devices.join(name)).unwrap();
            symlink(
                devices.join(name),
                machine.sys().join("class/block").join(name),
            )
            .unwrap();
        }
        let stack = machine.stack("259:0", "ext4", "/dev/nvme0n1").unwrap();
        assert_eq!(stack.all, stack.own, "the paths have no number");
        let [(head, folder)] = &stack.heads[..] else {
            panic!("{:?}", stack.heads);
        };
        let names = |folder: &Path| -> Vec<String> {
            let name = |path: &PathBuf| path.parent()?.file_name()?.to_str().map(str::to_owned);
            paths(folder).iter().filter_map(name).collect()
        };
        assert_eq!(
            (*head, names(folder)),
            (
                stack.own[0],
                hidden[..2].iter().map(|name| (*name).to_owned()).collect()
            )
        );
        fs::create_dir(folder.join("multipath")).unwrap();
        symlink(
            devices.join(hidden[1]),
            folder.join("multipath").join(hidden[1]),
        )
        .unwrap();
        assert_eq!(names(folder), hidden[1..2], "a newer kernel names them");
        let sda1 = devices.join("sda/sda1/stat");
        assert_eq!(others(&devices.join("sda")), [sda1], "its partition");
        let alone = machine.stack("259:2", "ext4", "/dev/nvme0n2").unwrap();
        assert!(alone.heads.is_empty());
        assert!(
            machine
                .stack("8:16", "ext4", "/dev/sdb")
                .unwrap()
                .heads
                .is_empty()
        );
    }

    #[test]
    fn two_partitions_are_on_one_disk_and_a_raid_is_on_several() {
        let machine = Machine::new();
        let disks = |device, source| {
            let stack = machine.stack(device, "ext4", source).unwrap();
            let minors = stack.disks.iter().map(|disk| (disk.major, disk.minor));
            minors.collect::<Vec<_>>()
        };
        assert_eq!(disks("8:1", "/dev/sda1"), [(8, 0)]);
        assert_eq!(disks("253:0", "/dev/mapper/a"), [(8, 0)]);
        assert_eq!(disks("7:0", "/dev/loop0"), [(8, 0), (8, 16)]);
    }

    #[test]
    fn what_has_no_device_says_so() {
        let machine = Machine::new();
        let refused = machine.stack("0:46", "tmpfs", "tmpfs").unwrap_err();
        assert_eq!(refused, "tmpfs has no block device");
        assert!(machine.stack("8:99", "ext4", "/dev/none").is_err());
    }

    /// Slaves that run in circles, which no kernel makes.
    #[test]
    fn a_circle_ends() {
        let machine = Machine::new();
        machine.add("dm-1", "253:1", "dm-2");
        machine.add("dm-2", "253:2", "dm-1");
        let stack = machine.stack("253:1", "ext4", "/dev/dm-1").unwrap();
        assert_eq!(stack.all.len(), 2);
    }
}
