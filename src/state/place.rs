//! The state directory: its creation, its lock, its files, and whether it still takes writes. Runs
//! in the writer child, or in a command that reads the store of an agent that is not running.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::statvfs::statvfs;

use super::StoreError;
use crate::health::dir::shown;
use crate::health::moment::Timestamp;

const STORE: &str = "state.redb";
/// A store is made under this name and gets its own when it is complete: an empty file under the
/// real name is then damage for certain.
const NEW_STORE: &str = "state.redb.new";
const CORRUPT: &str = "state.redb.corrupt-";
const LOCK: &str = "state.lock";
/// Never exists: removing it changes nothing and still asks whether the file system takes writes.
const NOTHING: &str = "state.nothing";

/// Damaged files that are kept, newest first: enough to compare, and a disk that damages every file
/// does not fill the directory.
const KEPT_CORRUPT: usize = 3;

/// Less than this left counts as full: a transaction with one event writes up to a dozen pages.
const SHORT_BYTES: u64 = 64 * 1024;

/// Length of the lock file: room for its line, and always the same, so that writing it needs no
/// space on a full disk.
const LOCK_LINE: usize = 128;

/// A process, told apart from later ones with its number and from those of other containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pid: u32,
    started: u64,
    namespace: String,
}

impl Identity {
    /// That of a process seen from here; `None` when there is none.
    pub(super) fn of(pid: u32) -> Option<Identity> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may contain anything; the start time is the 20th word after it.
        let (_, after) = stat.rsplit_once(')')?;
        let started = after.split_whitespace().nth(19)?.parse().ok()?;
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
        Some(Identity {
            pid,
            started,
            namespace: namespace.to_string_lossy().into_owned(),
        })
    }

    fn line(&self) -> String {
        let Identity {
            pid,
            started,
            namespace,
        } = self;
        format!("agent {pid} started {started} in {namespace}")
    }

    fn parse(line: &str) -> Option<Identity> {
        let mut words = line.split_whitespace();
        let mut word = |label| words.next().filter(|word| *word == label).and(words.next());
        Some(Identity {
            pid: word("agent")?.parse().ok()?,
            started: word("started")?.parse().ok()?,
            namespace: word("in")?.to_owned(),
        })
    }

    /// Certainly not running any more.
    fn is_gone(&self) -> bool {
        let same = |seen: &Identity| seen.started == self.started;
        let here = fs::read_link("/proc/self/ns/pid");
        here.is_ok_and(|here| here.as_os_str() == self.namespace.as_str())
            && !Identity::of(self.pid).as_ref().is_some_and(same)
    }
}

/// Held while an agent uses the directory.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Lets go at once, whatever another thread is doing with it.
    pub(super) fn release(&self) {
        let _ = self.file.unlock();
    }

    /// Says whose it is. May block on a frozen file system; a failure only makes the error of
    /// another agent less clear.
    pub(super) fn sign(&self, agent: &Identity) {
        let line = format!("{:<1$}\n", agent.line(), LOCK_LINE - 1);
        let mut present = [0; LOCK_LINE];
        let same = self.file.read_exact_at(&mut present, 0).is_ok();
        if !same || present != *line.as_bytes() {
            let _ = self.file.write_all_at(line.as_bytes(), 0);
        }
    }
}

/// Tells one file from another of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

/// The state directory.
#[derive(Debug, Clone)]
pub(super) struct Place {
    dir: PathBuf,
}

impl Place {
    pub(super) fn new(dir: &Path) -> Place {
        Place {
            dir: dir.to_owned(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn explain(&self, step: &str, name: &str, error: &io::Error) -> StoreError {
        let path = self.path(name);
        StoreError::of_io(&format!("{step} {}", shown(&path)), error)
    }

    /// Creates the directory, for its owner only, unless it is there.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn prepare(&self) -> Result<(), StoreError> {
        // Asked first: on a frozen file system even the creation of what exists blocks.
        if self.dir.is_dir() {
            return Ok(());
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(|error| self.explain("creating", "", &error))?;
        if let Some(parent) = self.dir.parent() {
            // Without it a power failure may take the directory away; then it is made again.
            let _ = File::open(parent).and_then(|parent| parent.sync_all());
        }
        Ok(())
    }

    /// Takes the directory for this agent. `None` when there is no lock file and none can be made
    /// because the file system is read-only: then nobody writes there.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another agent has it, [`StoreError::Busy`] when only a writer
    /// of an agent that ended, or an earlier writer of this one, still holds it.
    pub(super) fn lock(&self, agent: Option<&Identity>) -> Result<Option<Lock>, StoreError> {
        let opened = self.open(LOCK, true).or_else(|error| match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => self.open(LOCK, false),
            io::ErrorKind::NotFound => self.create(LOCK, false),
            _ => Err(error),
        });
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotFound => Ok(None),
                    _ => Err(self.explain("opening", LOCK, &error)),
                };
            }
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { file })),
            Err(TryLockError::WouldBlock) => Err(holder(&file, agent)),
            Err(TryLockError::Error(error)) => Err(self.explain("locking", LOCK, &error)),
        }
    }

    /// Makes sure that no agent has the directory, until the result is dropped.
    ///
    /// # Errors
    /// An agent has it, or its lock file cannot be read.
    pub(super) fn lock_to_read(&self) -> Result<Option<Lock>, StoreError> {
        let file = match self.open(LOCK, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.explain("opening", LOCK, &error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Lock { file })),
            Err(TryLockError::WouldBlock) => Err(holder(&file, None)),
            Err(TryLockError::Error(error)) => Err(self.explain("locking", LOCK, &error)),
        }
    }

    /// The store's file; `None` when there is none.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn store(&self, write: bool) -> Result<Option<File>, StoreError> {
        match self.open(STORE, write) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.explain("opening", STORE, &error)),
        }
    }

    /// Which file has the store's name now.
    pub(super) fn store_id(&self) -> Option<FileId> {
        let metadata = fs::symlink_metadata(self.path(STORE)).ok()?;
        Some(FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    /// An empty file to make a store in.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn new_store(&self) -> Result<File, StoreError> {
        self.create(NEW_STORE, true)
            .map_err(|error| self.explain("creating", NEW_STORE, &error))
    }

    /// Gives the new store its name.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub(super) fn install(&self) -> Result<(), StoreError> {
        fs::rename(self.path(NEW_STORE), self.path(STORE))
            .and_then(|()| self.sync())
            .map_err(|error| self.explain("renaming", NEW_STORE, &error))
    }

    /// Puts the damaged store aside and says under which name.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub(super) fn keep_aside(&self, now: Timestamp) -> Result<PathBuf, StoreError> {
        let millis = u64::try_from(now.0).unwrap_or_default();
        let time = UNIX_EPOCH + Duration::from_millis(millis);
        let kept = self.path(&format!(
            "{CORRUPT}{}",
            humantime::format_rfc3339_millis(time)
        ));
        fs::rename(self.path(STORE), &kept)
            .and_then(|()| self.sync())
            .map_err(|error| self.explain("renaming", STORE, &error))?;
        self.remove_old_corrupt();
        Ok(kept)
    }

    fn remove_old_corrupt(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return;
        };
        let mut names: Vec<_> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with(CORRUPT))
            .collect();
        names.sort_unstable();
        names.reverse();
        for name in names.iter().skip(KEPT_CORRUPT) {
            let _ = fs::remove_file(self.path(name));
        }
    }

    /// Whether the directory takes writes, without writing: blocks on a frozen file system, and
    /// says how much is left when it is short.
    ///
    /// # Errors
    /// It is read-only, gone, or cannot be asked.
    pub(super) fn check(&self) -> Result<Option<String>, StoreError> {
        match fs::remove_file(self.path(NOTHING)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.explain("writing to", "", &error));
            }
            _ => {}
        }
        let space = statvfs(&self.dir)
            .map_err(|errno| self.explain("asking for the space of", "", &errno.into()))?;
        let blocks = if nix::unistd::geteuid().is_root() {
            space.blocks_free()
        } else {
            space.blocks_available()
        };
        let left = blocks.saturating_mul(space.fragment_size());
        Ok((left < SHORT_BYTES).then(|| format!("{left} bytes left in {}", shown(&self.dir))))
    }

    fn open(&self, name: &str, write: bool) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).bits())
            .open(self.path(name))
    }

    fn create(&self, name: &str, empty: bool) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(empty)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).bits())
            .open(self.path(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

/// Who holds the lock, as far as its file tells.
fn holder(file: &File, agent: Option<&Identity>) -> StoreError {
    let mut line = [0; LOCK_LINE];
    let read = file.read_at(&mut line, 0).unwrap_or(0);
    let holder = Identity::parse(&String::from_utf8_lossy(&line[..read]));
    match holder {
        // A writer lets go when its agent ends, unless it was killed while stuck in the kernel.
        Some(holder) if Some(&holder) == agent || holder.is_gone() => StoreError::Busy,
        holder => StoreError::Locked {
            pid: holder.map(|holder| holder.pid),
        },
    }
}

impl StoreError {
    /// What an I/O error means for the store.
    pub(super) fn of_io(step: &str, error: &io::Error) -> StoreError {
        let text = format!("{step}: {error}");
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOSPC | Errno::EDQUOT) => StoreError::Full(text),
            Some(Errno::EROFS) => StoreError::ReadOnly(text),
            Some(Errno::EACCES | Errno::EPERM) => StoreError::NotPermitted(text),
            _ => StoreError::Failed(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn directory_and_files_are_for_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(&folder.path().join("deep/state"));
        place.prepare().unwrap();
        place.lock(None).unwrap().unwrap();
        place.new_store().unwrap();
        place.install().unwrap();
        assert_eq!(mode(&place.dir), 0o700);
        assert_eq!(mode(&place.path(LOCK)), 0o600);
        assert_eq!(mode(&place.path(STORE)), 0o600);
        assert_eq!(place.check(), Ok(None));
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path());
        let target = folder.path().join("target");
        fs::write(&target, "theirs").unwrap();
        for name in [STORE, NEW_STORE, LOCK] {
            std::os::unix::fs::symlink(&target, place.path(name)).unwrap();
        }
        assert!(place.store(true).is_err());
        assert!(place.new_store().is_err());
        assert!(place.lock(None).is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
    }

    #[test]
    fn the_lock_names_its_holder_and_tells_a_dead_one() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path());
        let me = Identity::of(std::process::id()).unwrap();
        assert_eq!(Identity::parse(&me.line()), Some(me.clone()));

        let held = place.lock(None).unwrap().unwrap();
        held.sign(&me);
        let pid = Some(me.pid);
        assert_eq!(place.lock(None).unwrap_err(), StoreError::Locked { pid });
        assert_eq!(
            place.lock_to_read().unwrap_err(),
            StoreError::Locked { pid }
        );
        // An earlier writer of the same agent, and one whose agent's number was used again.
        assert_eq!(place.lock(Some(&me)).unwrap_err(), StoreError::Busy);
        let mut dead = me.clone();
        dead.started += 1;
        held.sign(&dead);
        assert_eq!(place.lock(None).unwrap_err(), StoreError::Busy);
        // One of another container cannot be judged.
        dead.namespace = "pid:[1]".to_owned();
        held.sign(&dead);
        assert_eq!(place.lock(None).unwrap_err(), StoreError::Locked { pid });
        drop(held);
        assert!(place.lock_to_read().unwrap().is_some());
        assert!(place.lock(None).unwrap().is_some());
    }

    #[test]
    fn only_the_newest_damaged_files_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path());
        for second in 0..5 {
            fs::write(place.path(STORE), "damaged").unwrap();
            place.keep_aside(Timestamp(second * 1000)).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let times = ["02.000Z", "03.000Z", "04.000Z"];
        let expected = times.map(|time| format!("{CORRUPT}1970-01-01T00:00:{time}"));
        assert_eq!(names, expected);
    }
}
