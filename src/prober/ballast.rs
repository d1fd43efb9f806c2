//! The ballast file: made in pieces that really occupy blocks, measured by its blocks, removed whole.
//! Every step is relative to a directory that is already open and checked. Whatever else has
//! the name is left alone. Want of space while it is made says nothing about the directory.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::errno::Errno;
use nix::fcntl::{
    AtFlags, FallocateFlags, OFlag, PosixFadviseAdvice, fallocate, openat, posix_fadvise,
};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, ftruncate, geteuid, unlinkat};

use crate::health::ballast::{FILE_NAME, Order};
use crate::health::observation::Operation;

use super::place::{errno_of, format_of};

/// A look adds so much at the most. With a look each second that is the most a disk is asked for:
/// a tenth of what the slowest rotating disk writes, and two minutes for 2 GiB.
const PIECE: u64 = 16 << 20;

/// So much is written and synced at a time where blocks have to be written: the lane asks after each
/// whether it has been busy long enough, and the bookie's syncs wait for no more than this.
const CHUNK: u64 = 2 << 20;

/// Blocks are counted in these units whatever the file system's own are.
const BLOCK: u64 = 512;

/// File systems on which allocated blocks are kept for the file without being written. On others they may
/// be promised and not kept: copies on write, compression, a server's own rules.
const KEEP_ALLOCATED: [&str; 3] = ["ext4", "xfs", "tmpfs"];

/// What went wrong, and with which step: a failed sync proves more than the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) operation: Operation,
    pub(super) errno: Errno,
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault {
            operation: Operation::Ballast,
            errno,
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::from(errno_of(&error))
    }
}

/// Does what was ordered and says how many bytes the file really occupies; none when something else
/// has its name, or it may not be changed. `enough` says that the look has taken long enough.
///
/// # Errors
/// What the file system says, but for want of space and for what is the matter of this file alone.
pub(super) fn obey(
    order: Order,
    dir: BorrowedFd<'_>,
    fs_type: Option<&str>,
    enough: impl Fn() -> bool,
) -> Result<Option<u64>, Fault> {
    let found = find(dir)?;
    let obeyed = match (order, found) {
        (_, Found::Obstruction) => return Ok(None),
        (Order::Fill(wanted), Found::Nothing) => fill(wanted, None, dir, fs_type, enough),
        (Order::Fill(wanted), Found::Ours(file)) => fill(wanted, Some(file), dir, fs_type, enough),
        (_, Found::Nothing) => return Ok(Some(0)),
        (Order::Release, Found::Ours(file)) => remove(&file, dir).map(|()| Some(0)),
        (Order::None | Order::Measure, Found::Ours(file)) => Ok(Some(measure(&file)?.1)),
    };
    match obeyed {
        Err(fault) if is_of_the_file(fault.errno) => Ok(None),
        obeyed => obeyed,
    }
}

/// What has the name.
enum Found {
    Nothing,
    /// Not ours to change, or not to be changed.
    Obstruction,
    Ours(File),
}

/// Opened for writing whatever is ordered: what cannot be opened could not be given back, and that has
/// to be known before it is needed. Nothing else is ever opened: that alone may do something.
fn find(dir: BorrowedFd<'_>) -> Result<Found, Errno> {
    match fstatat(dir, FILE_NAME, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => return Ok(Found::Nothing),
        Err(errno) => return Err(errno),
        Ok(stat) if is_ours(&stat) => {}
        Ok(_) => return Ok(Found::Obstruction),
    }
    let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(dir, FILE_NAME, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        // Between the first look and this one somebody removed it.
        Err(Errno::ENOENT) => return Ok(Found::Nothing),
        Err(errno) if is_of_the_file(errno) => return Ok(Found::Obstruction),
        Err(errno) => return Err(errno),
    };
    Ok(match is_still_ours(&file, dir)? {
        true => Found::Ours(file),
        false => Found::Obstruction,
    })
}

/// Says nothing about the directory, in which a probe makes and removes a file of its own: taken away
/// rights, `chattr +i` and `+a`, a file that runs or is swapped to, another thing than a moment ago.
fn is_of_the_file(errno: Errno) -> bool {
    use Errno::{EACCES, EISDIR, ELOOP, EPERM, ETXTBSY};
    matches!(errno, EACCES | EPERM | ETXTBSY | ELOOP | EISDIR)
}

/// A regular file of our user with no other name. More would be somebody else's intention.
fn is_ours(stat: &FileStat) -> bool {
    format_of(stat) == SFlag::S_IFREG && stat.st_uid == geteuid().as_raw() && stat.st_nlink == 1
}

/// The open file is ours, and the one that has the name: both may have passed to something else.
fn is_still_ours(file: &File, dir: BorrowedFd<'_>) -> Result<bool, Errno> {
    let open = fstat(file)?;
    let named = match fstatat(dir, FILE_NAME, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => return Ok(false),
        named => named?,
    };
    Ok(is_ours(&open) && (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino))
}

/// Holes do not count, nor what was allocated beyond the end.
fn occupied(length: u64, blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK).min(length)
}

/// Want of space, or of permission for a file so large: then it is not made larger, and that is all.
fn is_want(errno: Errno) -> bool {
    matches!(errno, Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)
}

/// Lets it grow by a piece, or cuts it; makes it if it is not there.
fn fill(
    wanted: u64,
    found: Option<File>,
    dir: BorrowedFd<'_>,
    fs_type: Option<&str>,
    enough: impl Fn() -> bool,
) -> Result<Option<u64>, Fault> {
    let file = match found {
        Some(file) => file,
        None => match create(dir)? {
            Some(file) => file,
            None => return Ok(Some(0)),
        },
    };
    // A file system without locks: two agents would then make it together.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Ok(Some(measure(&file)?.1));
    }
    // Until it was locked another agent may have removed it.
    if !is_still_ours(&file, dir)? {
        return Ok(None);
    }
    let kept = fs_type.is_some_and(|name| KEEP_ALLOCATED.contains(&name));
    Ballast { file, kept }.make(wanted, enough)
}

/// None when there is no room for it, or somebody else just made it.
fn create(dir: BorrowedFd<'_>) -> Result<Option<File>, Errno> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    match openat(dir, FILE_NAME, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(fd) => Ok(Some(File::from(fd))),
        Err(Errno::EEXIST) => Ok(None),
        Err(errno) if is_want(errno) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Cut first: that gives the blocks back at once, also where files without a name are taken apart
/// later (XFS), where removing a name needs room (btrfs), and while somebody else has it open.
fn remove(file: &File, dir: BorrowedFd<'_>) -> Result<(), Fault> {
    ftruncate(file, 0)?;
    match unlinkat(dir, FILE_NAME, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::ENOENT) => Ok(()),
        // The bytes are given back; that names cannot be removed here is for a probe to find.
        Err(errno) if is_of_the_file(errno) => Ok(()),
        removed => Ok(removed?),
    }
}

/// Length, and bytes that occupy blocks.
fn measure(file: &File) -> Result<(u64, u64), Fault> {
    let metadata = file.metadata()?;
    let length = metadata.len();
    Ok((length, occupied(length, metadata.blocks())))
}

/// The open file.
struct Ballast {
    file: File,
    kept: bool,
}

impl Ballast {
    /// Cuts it at once, or lets it grow by a piece.
    fn make(&self, wanted: u64, enough: impl Fn() -> bool) -> Result<Option<u64>, Fault> {
        let (length, occupied) = measure(&self.file)?;
        if wanted < length {
            self.cut(wanted)?;
            return Ok(Some(measure(&self.file)?.1));
        }
        // What does not occupy blocks at the end, or was lost to a hole, is made again. While it
        // grows that is not asked: some file systems count blocks seconds later.
        let from = if length < wanted { length } else { occupied };
        let end = wanted.min(from + PIECE);
        if from < end && end <= size_limit() {
            self.cut(from)?;
            self.grow(from, end, enough)?;
        }
        Ok(Some(measure(&self.file)?.1))
    }

    fn cut(&self, length: u64) -> Result<(), Fault> {
        Ok(self.file.set_len(length)?)
    }

    /// Makes it larger; leaves it as it was when there is no room.
    fn grow(&self, from: u64, end: u64, enough: impl Fn() -> bool) -> Result<(), Fault> {
        let grown = self
            .allocate(from, end)
            .unwrap_or_else(|| self.write(from, end, enough));
        match grown {
            Err(fault) if is_want(fault.errno) => self.cut(from),
            grown => grown,
        }
    }

    /// Nothing is written; none when this file system cannot do it.
    fn allocate(&self, from: u64, end: u64) -> Option<Result<(), Fault>> {
        if !self.kept {
            return None;
        }
        let (start, count) = (i64::try_from(from).ok()?, i64::try_from(end - from).ok()?);
        match fallocate(&self.file, FallocateFlags::empty(), start, count) {
            Ok(()) => Some(self.sync()),
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => None,
            Err(errno) => Some(Err(errno.into())),
        }
    }

    /// Random bytes: no compression and no deduplication makes them smaller.
    fn write(&self, from: u64, end: u64, enough: impl Fn() -> bool) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        let mut at = from;
        while at < end && (at == from || !enough()) {
            let next = end.min(at + CHUNK);
            bytes.resize(usize::try_from(next - at).unwrap_or_default(), 0);
            fastrand::fill(&mut bytes);
            self.file.write_all_at(&bytes, at)?;
            self.sync()?;
            at = next;
        }
        // Nobody will read it: the page cache is for the bookie.
        let _ = posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        Ok(())
    }

    fn sync(&self) -> Result<(), Fault> {
        // As of a probe's file: what was accepted is lost, and one is proof. The next look would not
        // repeat it, because nothing grows in a directory that is suspect.
        self.file.sync_data().map_err(|error| Fault {
            operation: Operation::Sync,
            ..Fault::from(error)
        })
    }
}

/// The largest file that this process may have: one byte more, and the kernel ends it.
fn size_limit() -> u64 {
    getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    const MIB: u64 = 1 << 20;
    const ORDERS: [Order; 3] = [Order::Measure, Order::Fill(MIB), Order::Release];

    fn obeyed(path: &Path, order: Order, fs_type: &str) -> Option<u64> {
        let dir = File::open(path).unwrap();
        obey(order, dir.as_fd(), Some(fs_type), || false).unwrap()
    }

    #[test]
    fn it_grows_by_pieces_is_cut_at_once_and_goes_whole() {
        for fs_type in ["ext4", "btrfs"] {
            let dir = tempfile::tempdir().unwrap();
            let told = |order| obeyed(dir.path(), order, fs_type);
            assert_eq!(told(Order::Measure), Some(0));
            assert_eq!(told(Order::Release), Some(0));
            assert_eq!(told(Order::Fill(20 * MIB)), Some(16 * MIB));
            assert_eq!(told(Order::Fill(20 * MIB)), Some(20 * MIB));
            assert_eq!(told(Order::Fill(20 * MIB)), Some(20 * MIB));
            let file = fs::metadata(dir.path().join(FILE_NAME)).unwrap();
            assert_eq!(file.mode() & 0o777, 0o600);
            assert_eq!(told(Order::Fill(3 * MIB)), Some(3 * MIB));
            assert_eq!(told(Order::Measure), Some(3 * MIB));
            assert_eq!(told(Order::Release), Some(0));
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_hole_is_no_ballast_and_is_filled() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join(FILE_NAME)).unwrap();
        file.set_len(8 * MIB).unwrap();
        assert_eq!(obeyed(dir.path(), Order::Measure, "btrfs"), Some(0));
        let told = obeyed(dir.path(), Order::Fill(8 * MIB), "btrfs");
        assert_eq!(told, Some(8 * MIB));
    }

    #[test]
    fn a_look_that_took_long_enough_goes_on_in_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let fd = File::open(dir.path()).unwrap();
        let step = || obey(Order::Fill(3 * CHUNK), fd.as_fd(), None, || true).unwrap();
        assert_eq!(step(), Some(CHUNK));
        assert_eq!(step(), Some(2 * CHUNK));
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let makers: [fn(&Path); 3] = [
            |path| fs::create_dir(path).unwrap(),
            |path| symlink("elsewhere", path).unwrap(),
            |path| {
                fs::write(path, "x").unwrap();
                fs::hard_link(path, path.with_file_name("second")).unwrap();
            },
        ];
        for make in makers {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(FILE_NAME);
            make(&path);
            for order in ORDERS {
                assert_eq!(obeyed(dir.path(), order, "ext4"), None);
            }
            assert!(path.symlink_metadata().is_ok());
            assert!(!dir.path().join("elsewhere").exists());
        }
    }

    /// Neither a fault of the directory nor a file that could be given back.
    #[test]
    fn what_may_not_be_changed_is_an_obstruction() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        // By another process: one that another test forks meanwhile would hold our open file, and
        // nobody can start what is open for writing.
        let copied = Command::new("cp").arg("/bin/sleep").arg(&path).status();
        assert!(copied.unwrap().success(), "a copy of sleep");
        let length = fs::metadata(&path).unwrap().len();
        let mut running = Command::new(&path).arg("60").spawn().unwrap();
        let told = ORDERS.map(|order| obeyed(dir.path(), order, "ext4"));
        running.kill().unwrap();
        running.wait().unwrap();
        assert_eq!(told, [None; 3], "a file that runs");
        assert_eq!(fs::metadata(&path).unwrap().len(), length);

        let changes: [(&str, [&str; 2]); 3] = [
            ("chmod", ["0400", "0600"]),
            ("chattr", ["+i", "-i"]),
            ("chattr", ["+a", "-a"]),
        ];
        for (program, [bar, free]) in changes {
            let change = |how| {
                let ran = Command::new(program).arg(how).arg(&path).output();
                ran.is_ok_and(|ran| ran.status.success())
            };
            // Root may write what nobody may; not every file system has such marks.
            if !change(bar) || OpenOptions::new().write(true).open(&path).is_ok() {
                continue;
            }
            let told = ORDERS.map(|order| obeyed(dir.path(), order, "ext4"));
            assert!(change(free));
            assert_eq!(told, [None; 3], "{program} {bar}");
            assert_eq!(fs::metadata(&path).unwrap().len(), length);
        }
        assert_eq!(obeyed(dir.path(), Order::Release, "ext4"), Some(0));
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_lost_the_name_or_shares_it_is_not_ours_any_more() {
        let changes: [fn(&Path, &Path); 4] = [
            |path, _| fs::remove_file(path).unwrap(),
            |path, other| fs::rename(path, other).unwrap(),
            |path, other| fs::hard_link(path, other).unwrap(),
            |path, other| {
                fs::rename(path, other).unwrap();
                fs::write(path, "x").unwrap();
            },
        ];
        for change in changes {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(FILE_NAME);
            let fd = File::open(dir.path()).unwrap();
            obeyed(dir.path(), Order::Fill(MIB), "ext4");
            let Found::Ours(file) = find(fd.as_fd()).unwrap() else {
                panic!("it was just made");
            };
            change(&path, &dir.path().join("other"));
            let found = Some(file.try_clone().unwrap());
            let told = fill(9 * MIB, found, fd.as_fd(), Some("ext4"), || false);
            assert_eq!(told, Ok(None));
            assert_eq!(
                file.metadata().unwrap().len(),
                MIB,
                "neither cut nor filled"
            );
        }
    }

    #[test]
    fn a_failed_sync_is_called_one() {
        let (_reader, writer) = io::pipe().unwrap();
        let file = File::from(OwnedFd::from(writer));
        let fault = Ballast { file, kept: false }.sync().unwrap_err();
        assert_eq!(fault.operation, Operation::Sync);
    }

    #[test]
    fn a_file_at_which_another_process_works_is_only_measured() {
        let dir = tempfile::tempdir().unwrap();
        obeyed(dir.path(), Order::Fill(MIB), "ext4");
        let other = File::open(dir.path().join(FILE_NAME)).unwrap();
        other.lock().unwrap();
        assert_eq!(obeyed(dir.path(), Order::Fill(9 * MIB), "ext4"), Some(MIB));
    }
}
