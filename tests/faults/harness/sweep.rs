//! Finds what a test left behind (mounts, loop devices, processes) and takes it away: held requests
//! are released and frozen file systems thawed first, because nothing on them can end before that.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::run::{try_command, try_for};

/// Set in each process that a test starts, to the test's own folder; its children inherit it.
pub(crate) const MARK: &str = "DIRKEEPER_FAULT_FOLDER";

/// How long a released process may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// How long a thaw may take; it waits for nobody but a broken disk.
const THAW_LIMIT: Duration = Duration::from_secs(2);

/// A line of the mount table.
#[derive(Debug, Clone)]
pub(crate) struct MountLine {
    pub(crate) minor: String,
    pub(crate) point: PathBuf,
    pub(crate) kind: String,
    pub(crate) super_options: String,
}

/// Mounts at or below a folder, in the order of mounting.
pub(crate) fn mounts_below(folder: &Path) -> Vec<MountLine> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut mounts: Vec<MountLine> = table.lines().filter_map(mount_line).collect();
    mounts.retain(|mount| mount.point.starts_with(folder));
    mounts
}

fn mount_line(line: &str) -> Option<MountLine> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let (_, minor) = left.next()?.split_once(':')?;
    let point = left.nth(1)?;
    let mut right = right.split(' ');
    let kind = right.next()?.to_owned();
    let super_options = right.nth(1)?.to_owned();
    let (minor, point) = (minor.to_owned(), PathBuf::from(point));
    Some(MountLine {
        minor,
        point,
        kind,
        super_options,
    })
}

/// Loop devices whose file is below a folder.
pub(crate) fn loops_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
        if backing.is_ok_and(|file| Path::new(file.trim()).starts_with(folder)) {
            found.push(Path::new("/dev").join(entry.file_name()));
        }
    }
    found
}

/// Processes that carry the mark of a folder, or of one below it. A zombie carries none.
pub(crate) fn processes_of(folder: &Path) -> Vec<Pid> {
    let mark = [MARK.as_bytes(), b"=", folder.as_os_str().as_encoded_bytes()].concat();
    let marked = |environment: Vec<u8>| {
        environment.split(|byte| *byte == 0).any(|variable| {
            variable
                .strip_prefix(&mark[..])
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    };
    processes()
        .into_iter()
        .filter(|pid| fs::read(format!("/proc/{pid}/environ")).is_ok_and(marked))
        .collect()
}

fn processes() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .collect()
}

/// Parent of a process, and whether it is a zombie.
pub(crate) fn parent(pid: Pid) -> Option<(Pid, bool)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, a parenthesis too.
    let mut fields = stat[stat.rfind(')')? + 2..].split(' ');
    let zombie = fields.next()? == "Z";
    Some((Pid::from_raw(fields.next()?.parse().ok()?), zombie))
}

/// Living children of a process.
pub(crate) fn children(of: Pid) -> Vec<Pid> {
    let is_child = |pid: &Pid| parent(*pid) == Some((of, false));
    processes().into_iter().filter(is_child).collect()
}

/// Living children of a process, and theirs.
pub(crate) fn descendants(of: Pid) -> Vec<Pid> {
    let mut found = children(of);
    let mut at = 0;
    while let Some(pid) = found.get(at) {
        found.extend(children(*pid));
        at += 1;
    }
    found
}

/// Takes away everything below a folder and says what there was to take away.
pub(crate) fn sweep(folder: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let mounts = mounts_below(folder);
    for mount in &mounts {
        left.push(format!("mount {} ({})", mount.point.display(), mount.kind));
        release(mount);
    }
    for mount in mounts.iter().rev() {
        let _ = umount2(&mount.point, MntFlags::MNT_DETACH);
    }
    let ended = || processes_of(folder).is_empty().then_some(());
    if try_for(GRACE, ended).is_none() {
        for pid in processes_of(folder) {
            let name = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            left.push(format!("process {pid}: {}", name.replace('\0', " ")));
            let _ = kill(pid, Signal::SIGKILL);
        }
        let _ = try_for(GRACE, ended);
    }
    let released = || loops_below(folder).is_empty().then_some(());
    if try_for(GRACE, released).is_none() {
        for device in loops_below(folder) {
            left.push(format!("loop device {}", device.display()));
            let mut detach = Command::new("losetup");
            detach.arg("--detach").arg(&device);
            let _ = try_command(detach, THAW_LIMIT);
        }
    }
    left
}

/// Lets everything that waits on this mount go on.
fn release(mount: &MountLine) {
    if mount.kind.starts_with("fuse") {
        let _ = fs::write(connection(&mount.minor).join("abort"), "1");
    } else if mount.kind != "tmpfs" {
        let mut thaw = Command::new("fsfreeze");
        thaw.arg("--unfreeze").arg(&mount.point);
        // An error says that it was not frozen.
        let _ = try_command(thaw, THAW_LIMIT);
    }
}

/// The kernel's control folder of a FUSE mount; its control file system is mounted where it misses.
pub(crate) fn connection(minor: &str) -> PathBuf {
    let control = Path::new("/sys/fs/fuse/connections");
    let path = control.join(minor);
    if !path.exists() {
        let flags = nix::mount::MsFlags::empty();
        let _ = nix::mount::mount(
            Some("fusectl"),
            control,
            Some("fusectl"),
            flags,
            None::<&str>,
        );
    }
    path
}
