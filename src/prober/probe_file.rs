//! The file that a probe writes: its name, its making, its removal, and the removal of those that
//! dead processes left behind. Every step is relative to a directory that is already open and
//! checked; files of other names are never touched.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::place::{errno_of, format_of};

const PREFIX: &str = ".dirkeeper-probe.";

/// Digits of the boot id in a name: enough that two boots of one machine never share them.
const BOOT_DIGITS: usize = 8;

/// So many names are tried. A name is taken only by a dead process of our number in this boot, or
/// by one in another PID name space; more than a few such at once means that something else is wrong.
const MAX_TRIES: u32 = 8;

/// So many entries of a directory are looked at for leftovers. A bookie's directory holds one
/// folder; an operator's mistake may hold anything, and must not cost a minute of reading.
const MAX_ENTRIES: usize = 4096;

/// Who makes probe files: unique to boot, process and number.
#[derive(Debug)]
pub(super) struct Maker {
    boot: String,
    pid: u32,
    next: AtomicU32,
}

/// A probe file of ours: open, locked, and in the directory under its name.
#[derive(Debug)]
pub(super) struct ProbeFile {
    pub(super) file: File,
    name: String,
}

impl Maker {
    /// For this process in this boot.
    pub(super) fn new(boot_id: &str, pid: u32) -> Maker {
        let hex = boot_id.chars().filter(char::is_ascii_hexdigit);
        Maker {
            boot: hex
                .take(BOOT_DIGITS)
                .collect::<String>()
                .to_ascii_lowercase(),
            pid,
            next: AtomicU32::new(0),
        }
    }

    /// Creates the next file and locks it. The lock tells other processes that it is alive.
    ///
    /// Between creation and lock another process may take the new file for a leftover, lock and
    /// remove it. So only a file that we could lock and that still has a name is ours; another
    /// is left to its finder, and the next name is tried. Once we hold the lock nobody removes it.
    ///
    /// # Errors
    /// What the file system says; `EEXIST` when all names that were tried are taken.
    pub(super) fn create(&self, dir: BorrowedFd<'_>) -> Result<ProbeFile, Errno> {
        let flags =
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for _ in 0..MAX_TRIES {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let name = format!("{PREFIX}{}.{}.{number}", self.boot, self.pid);
            let fd = match openat(dir, name.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR) {
                Ok(fd) => fd,
                Err(Errno::EEXIST) => continue,
                Err(errno) => return Err(errno),
            };
            let made = ProbeFile {
                file: File::from(fd),
                name,
            };
            let claimed = made.claim();
            if let Ok(true) = claimed {
                return Ok(made);
            }
            let _ = made.remove(dir);
            claimed.map_err(|error| errno_of(&error))?;
        }
        Err(Errno::EEXIST)
    }

    /// Removes the leftovers of dead processes: regular files of our name pattern whose lock
    /// nobody holds. What cannot be removed is left; the probe that follows says why.
    pub(super) fn clean(&self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut listing = match Dir::openat(dir, ".", flags, Mode::empty()) {
            Ok(listing) => listing,
            // A directory may be writable and not readable; then leftovers cannot be found.
            Err(Errno::EACCES) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let mut leftovers = Vec::new();
        for entry in listing.iter().take(MAX_ENTRIES) {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && boot_of(name).is_some()
            {
                leftovers.push(name.to_owned());
            }
        }
        drop(listing);
        for name in leftovers {
            let _ = self.remove_leftover(dir, &name);
        }
        Ok(())
    }

    fn remove_leftover(&self, dir: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        // Opening something that is no regular file can have effects of its own.
        let stat = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        if format_of(&stat) != SFlag::S_IFREG {
            return Ok(());
        }
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = File::from(openat(dir, name, flags, Mode::empty())?);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(()),
            // Without locks only what an earlier boot left is surely dead.
            Err(TryLockError::Error(_)) if boot_of(name) != Some(&self.boot) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The name may have passed to a new file while we looked at the old one.
        let now = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        let locked = file.metadata()?;
        if (now.st_dev, now.st_ino) == (locked.dev(), locked.ino()) {
            unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)?;
        }
        Ok(())
    }
}

impl ProbeFile {
    /// Locks the new file; false when somebody else holds the lock or has removed the name.
    fn claim(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(self.file.metadata()?.nlink() != 0),
            Err(TryLockError::WouldBlock) => Ok(false),
            // A file system without locks: nobody can lock it to remove it either.
            Err(TryLockError::Error(error)) => match errno_of(&error) {
                Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::ENOLCK | Errno::EINVAL => Ok(true),
                _ => Err(error),
            },
        }
    }

    /// Removes the file. One that is already gone was removed by somebody else: that is no fault
    /// of the disk.
    pub(super) fn remove(&self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        match unlinkat(dir, self.name.as_str(), UnlinkatFlags::NoRemoveDir) {
            Err(Errno::ENOENT) => Ok(()),
            removed => removed,
        }
    }

    /// Its name in the directory.
    pub(super) fn name(&self) -> &OsStr {
        OsStr::new(&self.name)
    }
}

/// The boot in which a file of our pattern was made; none for any other name.
fn boot_of(name: &str) -> Option<&str> {
    let mut parts = name.strip_prefix(PREFIX)?.split('.');
    let (boot, pid, number) = (parts.next()?, parts.next()?, parts.next()?);
    let is_number = |part: &str| {
        part.parse::<u32>()
            .is_ok_and(|value| value.to_string() == part)
    };
    let ours = parts.next().is_none()
        && boot.len() == BOOT_DIGITS
        && boot.bytes().all(|byte| byte.is_ascii_hexdigit())
        && is_number(pid)
        && is_number(number);
    ours.then_some(boot)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::path::Path;

    use super::*;

    const BOOT: &str = "3C0F-99aa-bb";

    fn open(path: &Path) -> File {
        File::open(path).unwrap()
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn names_say_boot_process_and_number() {
        let dir = tempfile::tempdir().unwrap();
        let fd = open(dir.path());
        let maker = Maker::new(BOOT, 42);
        let first = maker.create(fd.as_fd()).unwrap();
        assert_eq!(first.name, ".dirkeeper-probe.3c0f99aa.42.0");
        assert_eq!(boot_of(&first.name), Some("3c0f99aa"));
        let mode = first.file.metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        first.remove(fd.as_fd()).unwrap();
        first.remove(fd.as_fd()).unwrap();
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn only_our_pattern_is_ours() {
        for name in [
            ".dirkeeper-probe",
            ".dirkeeper-probe.",
            ".dirkeeper-probe.3c0f99aa.42",
            ".dirkeeper-probe.3c0f99aa.42.0.bak",
            ".dirkeeper-probe.3c0f99a.42.0",
            ".dirkeeper-probe.3c0f99ag.42.0",
            ".dirkeeper-probe.3c0f99aa.+42.0",
            ".dirkeeper-probe.3c0f99aa.042.0",
            ".dirkeeper-probe.3c0f99aa.42.",
            "dirkeeper-probe.3c0f99aa.42.0",
        ] {
            assert_eq!(boot_of(name), None, "{name}");
        }
    }

    #[test]
    fn leftovers_of_the_dead_go_and_everything_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let fd = open(path);
        let living = Maker::new(BOOT, 7).create(fd.as_fd()).unwrap();
        for name in [
            ".dirkeeper-probe.3c0f99aa.41.0",
            ".dirkeeper-probe.00000000.7.0",
            ".dirkeeper-probe.00000000.7.0.bak",
            "current",
        ] {
            fs::write(path.join(name), "x").unwrap();
        }
        fs::create_dir(path.join(".dirkeeper-probe.00000000.8.0")).unwrap();
        std::os::unix::fs::symlink("current", path.join(".dirkeeper-probe.00000000.9.0")).unwrap();
        Maker::new(BOOT, 42).clean(fd.as_fd()).unwrap();
        let expected = [
            ".dirkeeper-probe.00000000.7.0.bak",
            ".dirkeeper-probe.00000000.8.0",
            ".dirkeeper-probe.00000000.9.0",
            ".dirkeeper-probe.3c0f99aa.7.0",
            "current",
        ];
        assert_eq!(names(path), expected);
        drop(living);
        Maker::new(BOOT, 42).clean(fd.as_fd()).unwrap();
        assert!(!names(path).contains(&".dirkeeper-probe.3c0f99aa.7.0".to_owned()));
    }

    /// The window between creation and lock: a file that somebody else locked or removed there is
    /// given up, and the next name is used.
    #[test]
    fn a_file_that_somebody_took_for_a_leftover_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let fd = open(dir.path());
        let maker = Maker::new(BOOT, 42);
        let made = maker.create(fd.as_fd()).unwrap();
        made.remove(fd.as_fd()).unwrap();
        assert!(!made.claim().unwrap(), "no name any more");
        let path = dir.path().join("other");
        fs::write(&path, "").unwrap();
        let finder = open(&path);
        finder.lock().unwrap();
        let taken = ProbeFile {
            file: open(&path),
            name: "other".to_owned(),
        };
        assert!(!taken.claim().unwrap(), "locked by its finder");
    }

    #[test]
    fn a_name_that_is_taken_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let fd = open(dir.path());
        for number in 0..3 {
            fs::create_dir(dir.path().join(format!("{PREFIX}3c0f99aa.42.{number}"))).unwrap();
        }
        let made = Maker::new(BOOT, 42).create(fd.as_fd()).unwrap();
        assert_eq!(made.name, ".dirkeeper-probe.3c0f99aa.42.3");
    }

    /// Processes that probe and clean the same directory at the same time do not disturb each
    /// other, whatever the order of their steps.
    #[test]
    fn many_at_once_do_not_disturb_each_other() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for pid in 1..=4 {
                let path = dir.path();
                scope.spawn(move || {
                    let fd = open(path);
                    let maker = Maker::new(BOOT, pid);
                    for _ in 0..200 {
                        maker.clean(fd.as_fd()).unwrap();
                        let made = maker.create(fd.as_fd()).unwrap();
                        assert!(path.join(made.name()).exists());
                        made.remove(fd.as_fd()).unwrap();
                    }
                });
            }
        });
        assert!(names(dir.path()).is_empty());
    }
}
