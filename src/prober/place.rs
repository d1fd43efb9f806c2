//! Where a directory is: resolving its path, opening it without following links, and what tells
//! that place from another (device, mount). Opens only; reads and writes nothing in the directory.

use std::fs;
use std::io;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, major, minor, stat};
use nix::unistd::{AccessFlags, faccessat, geteuid};

use crate::health::dir::path_text;
use crate::health::observation::{Device, Failure, Finding, Operation};

/// A directory that is open for the length of one look. The descriptor is `O_PATH`: it reads
/// nothing, needs no permission on the directory itself, and later steps are relative to it.
#[derive(Debug)]
pub(super) struct Place {
    fd: OwnedFd,
    pub(super) device: Device,
    pub(super) mount_id: Option<u64>,
    owner: u32,
    mode: u32,
}

const OPEN: OFlag = OFlag::O_PATH
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

/// Where a configured path leads, links followed. Done once for each directory, then pinned.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, Failure> {
    fs::canonicalize(path).map_err(|error| {
        if errno_of(&error) == Errno::ELOOP {
            let detail = format!("{} is a loop of symbolic links", path_text(path));
            return found(Operation::Open, Finding::NotADirectory, detail);
        }
        refused(path, &error)
    })
}

/// Opens the place that a path was resolved to, with no link in any part of it.
pub(super) fn open(canonical: &Path) -> Result<Place, Failure> {
    let fd = open_without_links(canonical).map_err(|errno| not_opened(canonical, errno))?;
    let stat = fstat(&fd).map_err(|errno| failure(Operation::Open, errno, canonical))?;
    Ok(Place {
        device: device_of(&stat),
        mount_id: mount_id(fd.as_fd()),
        owner: stat.st_uid,
        mode: stat.st_mode,
        fd,
    })
}

/// A configured path that is or has a link must still lead to the place that was pinned.
pub(super) fn check_leads_to(path: &Path, canonical: &Path) -> Result<(), Failure> {
    if path == canonical {
        return Ok(());
    }
    let now = resolve(path)?;
    if now == canonical {
        return Ok(());
    }
    let detail = format!(
        "{} leads to {} now, not to {}",
        path_text(path),
        path_text(&now),
        path_text(canonical)
    );
    Err(found(Operation::Open, Finding::LeadsElsewhere, detail))
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Place {
    /// A failure of an operation in this directory. When the directory belongs to somebody else
    /// and that owner would be allowed in, only our own uid is refused.
    pub(super) fn failure(&self, operation: Operation, errno: Errno, path: &Path) -> Failure {
        let mut failure = failure(operation, errno, path);
        if errno == Errno::EACCES {
            refine(&mut failure, path, self.owner, self.mode, 0o300);
        }
        failure
    }
}

/// A failure by errno. Our own shortage of descriptors, memory or file names is not the disk's.
pub(super) fn failure(operation: Operation, errno: Errno, path: &Path) -> Failure {
    let ours = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EEXIST];
    Failure {
        operation,
        errno: Some(errno as i32),
        detail: format!("{}: {}", path_text(path), errno.desc()),
        finding: if ours.contains(&errno) {
            Finding::ProberTrouble
        } else {
            Finding::Errno
        },
    }
}

/// A failure that no errno describes.
pub(super) fn found(operation: Operation, finding: Finding, detail: String) -> Failure {
    Failure {
        operation,
        errno: None,
        detail,
        finding,
    }
}

/// The errno of an error; those of the standard library's own are EIO.
pub(super) fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

fn open_without_links(canonical: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OPEN)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(AT_FDCWD, canonical, how) {
        // Before Linux 5.6, and under container filters that do not know the call.
        Err(Errno::ENOSYS | Errno::EPERM) => open_step_by_step(canonical),
        opened => opened,
    }
}

fn open_step_by_step(canonical: &Path) -> Result<OwnedFd, Errno> {
    let flags = OPEN | OFlag::O_NOFOLLOW;
    let mut fd = openat(AT_FDCWD, "/", flags, Mode::empty())?;
    for name in canonical.components().skip(1) {
        fd = openat(&fd, name.as_os_str(), flags, Mode::empty())?;
    }
    Ok(fd)
}

/// Why a place could not be opened: a link in the way, a file in the way, or what errno says.
fn not_opened(canonical: &Path, errno: Errno) -> Failure {
    if ![Errno::ELOOP, Errno::ENOTDIR].contains(&errno) {
        return refused(canonical, &errno.into());
    }
    for part in ancestors_from_the_root(canonical) {
        let Ok(stat) = fstatat(AT_FDCWD, part, AtFlags::AT_SYMLINK_NOFOLLOW) else {
            break;
        };
        let (finding, what) = match format_of(&stat) {
            SFlag::S_IFDIR => continue,
            SFlag::S_IFLNK => (Finding::LeadsElsewhere, "has become a symbolic link"),
            _ => (Finding::NotADirectory, "is not a directory"),
        };
        let detail = format!("{} {what}", path_text(part));
        return found(Operation::Open, finding, detail);
    }
    failure(Operation::Open, errno, canonical)
}

/// What kind of file it is.
pub(super) fn format_of(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// A path that could not be walked. With EACCES it is asked which part of it refused us, and
/// whether its owner would have been let through.
fn refused(path: &Path, error: &io::Error) -> Failure {
    let errno = errno_of(error);
    let mut failure = failure(Operation::Open, errno, path);
    if errno == Errno::EACCES {
        let closed = ancestors_from_the_root(path).find(|part| {
            faccessat(AT_FDCWD, *part, AccessFlags::X_OK, AtFlags::AT_EACCESS) == Err(Errno::EACCES)
        });
        if let Some((part, stat)) = closed.and_then(|part| Some((part, stat(part).ok()?))) {
            refine(&mut failure, part, stat.st_uid, stat.st_mode, 0o100);
        }
    }
    failure
}

fn refine(failure: &mut Failure, part: &Path, owner: u32, mode: u32, needed: u32) {
    let us = geteuid().as_raw();
    failure.detail.push_str(&format!(
        " ({} belongs to uid {owner} with mode {:04o}, we are uid {us})",
        path_text(part),
        mode & 0o7777
    ));
    if owner != us && mode & needed == needed {
        failure.finding = Finding::OnlyUsRefused;
    }
}

fn ancestors_from_the_root(path: &Path) -> impl Iterator<Item = &Path> {
    let ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.into_iter().rev()
}

fn device_of(stat: &FileStat) -> Device {
    // Linux' numbers have 12 and 20 bits; the wide type is glibc's.
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Device {
        major: narrow(major(stat.st_dev)),
        minor: narrow(minor(stat.st_dev)),
    }
}

/// The mount on which a descriptor was opened. `statx` would say it too, but needs a newer kernel.
fn mount_id(fd: BorrowedFd<'_>) -> Option<u64> {
    // The text is three or four short lines, of which one read gets all.
    let mut bytes = [0; 256];
    let mut file = fs::File::open(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let count = file.read(&mut bytes).ok()?;
    let text = std::str::from_utf8(&bytes[..count]).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn opened(path: &Path) -> String {
        match open(path) {
            Ok(_) => "open".to_owned(),
            Err(failure) => format!("{:?} {:?}", failure.finding, failure.errno),
        }
    }

    #[test]
    fn what_stands_in_the_way_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("real/deep")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        symlink(root.join("real"), root.join("link")).unwrap();
        assert_eq!(opened(&root.join("real/deep")), "open");
        assert_eq!(opened(&root.join("gone")), "Errno Some(2)");
        assert_eq!(opened(&root.join("file")), "NotADirectory None");
        assert_eq!(opened(&root.join("file/deep")), "NotADirectory None");
        assert_eq!(opened(&root.join("link")), "LeadsElsewhere None");
        assert_eq!(opened(&root.join("link/deep")), "LeadsElsewhere None");
    }

    #[test]
    fn opening_step_by_step_finds_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("real/deep")).unwrap();
        symlink(root.join("real"), root.join("link")).unwrap();
        assert!(open_step_by_step(&root.join("real/deep")).is_ok());
        let link = open_step_by_step(&root.join("link/deep"));
        assert_eq!(link.unwrap_err(), Errno::ENOTDIR);
        let gone = open_step_by_step(&root.join("gone"));
        assert_eq!(gone.unwrap_err(), Errno::ENOENT);
    }

    #[test]
    fn a_configured_link_that_leads_elsewhere_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("a")).unwrap();
        fs::create_dir_all(root.join("b")).unwrap();
        let link = root.join("link");
        symlink("a", &link).unwrap();
        let pinned = resolve(&link).unwrap();
        assert_eq!(check_leads_to(&link, &pinned), Ok(()));
        fs::remove_file(&link).unwrap();
        symlink("b", &link).unwrap();
        let failure = check_leads_to(&link, &pinned).unwrap_err();
        assert_eq!(failure.finding, Finding::LeadsElsewhere);
    }

    #[test]
    fn a_place_knows_its_device_and_mount() {
        let place = open(Path::new("/proc")).unwrap();
        let text = fs::read("/proc/self/mountinfo").unwrap();
        let table = super::super::mount::Table::parse(&text);
        let entry = table.covering(Path::new("/proc")).unwrap();
        assert_eq!(place.device, entry.device);
        assert_eq!(place.mount_id, Some(entry.id));
    }

    #[test]
    fn our_own_shortage_is_not_the_disks() {
        let finding = |errno| failure(Operation::Open, errno, Path::new("/x")).finding;
        assert_eq!(finding(Errno::EMFILE), Finding::ProberTrouble);
        assert_eq!(finding(Errno::EIO), Finding::Errno);
    }

    #[test]
    fn only_a_refusal_that_the_owner_would_not_meet_is_ours() {
        let us = geteuid().as_raw();
        for (owner, mode, expected) in [
            (us + 1, 0o40755, Finding::OnlyUsRefused),
            (us + 1, 0o40555, Finding::Errno),
            (us, 0o40755, Finding::Errno),
        ] {
            let mut failure = failure(Operation::Create, Errno::EACCES, Path::new("/x"));
            refine(&mut failure, Path::new("/x"), owner, mode, 0o300);
            assert_eq!(failure.finding, expected, "{owner} {mode:o}");
        }
    }
}
