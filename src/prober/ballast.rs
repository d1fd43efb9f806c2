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

/// Does what was ordered and says how many bytes the file really occupies; none when something else
/// has its name. `enough` says that the look has taken long enough.
///
/// # Errors
/// What the file system says, but for want of space.
pub(super) fn obey(
    order: Order,
    dir: BorrowedFd<'_>,
    fs_type: Option<&str>,
    enough: impl Fn() -> bool,
) -> Result<Option<u64>, Errno> {
    let found = match fstatat(dir, FILE_NAME, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => None,
        Err(errno) => return Err(errno),
        Ok(stat) if is_ours(&stat) => Some(occupied(
            stat.st_size.unsigned_abs(),
            stat.st_blocks.unsigned_abs(),
        )),
        Ok(_) => return Ok(None),
    };
    match (order, found) {
        (Order::Fill(wanted), _) => {
            let kept = fs_type.is_some_and(|name| KEEP_ALLOCATED.contains(&name));
            let Some(file) = open(dir, found.is_none())? else {
                return Ok(Some(found.unwrap_or_default()));
            };
            let ballast = Ballast { file, kept };
            ballast.make(wanted, enough)
        }
        (Order::Release, Some(_)) => {
            remove(dir)?;
            Ok(Some(0))
        }
        (Order::None | Order::Measure | Order::Release, _) => Ok(Some(found.unwrap_or_default())),
    }
}

/// A regular file of our user with no other name. More would be somebody else's intention.
fn is_ours(stat: &FileStat) -> bool {
    format_of(stat) == SFlag::S_IFREG && stat.st_uid == geteuid().as_raw() && stat.st_nlink == 1
}

/// Holes do not count, nor what was allocated beyond the end.
fn occupied(length: u64, blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK).min(length)
}

/// Want of space, or of permission for a file so large: then it is not made larger, and that is all.
fn is_want(errno: Errno) -> bool {
    matches!(errno, Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)
}

/// The file, made if it is not there; none when there is no room for it, or another process is at it.
fn open(dir: BorrowedFd<'_>, create: bool) -> Result<Option<File>, Errno> {
    let mut flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    if create {
        flags |= OFlag::O_CREAT | OFlag::O_EXCL;
    }
    let file = match openat(dir, FILE_NAME, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(fd) => File::from(fd),
        // Between the first look and this one somebody made or removed it.
        Err(Errno::EEXIST | Errno::ENOENT) => return Ok(None),
        Err(errno) if is_want(errno) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(None),
        // A file system without locks: two agents would then make it together.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(file)),
    }
}

/// Cut first: that gives the blocks back at once, also where files without a name are taken apart
/// later (XFS), where removing a name needs room (btrfs), and while somebody else has it open.
fn remove(dir: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(dir, FILE_NAME, flags, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(()),
        opened => opened?,
    };
    // The name may have passed to something else since it was looked at.
    if !is_ours(&fstat(&file)?) {
        return Ok(());
    }
    ftruncate(&file, 0)?;
    match unlinkat(dir, FILE_NAME, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::ENOENT) => Ok(()),
        removed => removed,
    }
}

/// The open file.
struct Ballast {
    file: File,
    kept: bool,
}

impl Ballast {
    /// Cuts it at once, or lets it grow by a piece.
    fn make(&self, wanted: u64, enough: impl Fn() -> bool) -> Result<Option<u64>, Errno> {
        let (length, occupied) = self.measure()?;
        if wanted < length {
            self.cut(wanted)?;
            return Ok(Some(self.measure()?.1));
        }
        // What does not occupy blocks at the end, or was lost to a hole, is made again. While it
        // grows that is not asked: some file systems count blocks seconds later.
        let from = if length < wanted { length } else { occupied };
        let end = wanted.min(from + PIECE);
        if from < end && end <= size_limit() {
            self.cut(from)?;
            self.grow(from, end, enough)?;
        }
        Ok(Some(self.measure()?.1))
    }

    /// Length, and bytes that occupy blocks.
    fn measure(&self) -> Result<(u64, u64), Errno> {
        let metadata = self.file.metadata().map_err(|error| errno_of(&error))?;
        let length = metadata.len();
        Ok((length, occupied(length, metadata.blocks())))
    }

    fn cut(&self, length: u64) -> Result<(), Errno> {
        self.file.set_len(length).map_err(|error| errno_of(&error))
    }

    /// Makes it larger; leaves it as it was when there is no room.
    fn grow(&self, from: u64, end: u64, enough: impl Fn() -> bool) -> Result<(), Errno> {
        let grown = self
            .allocate(from, end)
            .unwrap_or_else(|| self.write(from, end, enough));
        match grown {
            Err(errno) if is_want(errno) => self.cut(from),
            grown => grown,
        }
    }

    /// Nothing is written; none when this file system cannot do it.
    fn allocate(&self, from: u64, end: u64) -> Option<Result<(), Errno>> {
        if !self.kept {
            return None;
        }
        let (start, count) = (i64::try_from(from).ok()?, i64::try_from(end - from).ok()?);
        match fallocate(&self.file, FallocateFlags::empty(), start, count) {
            Ok(()) => Some(self.sync()),
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => None,
            Err(errno) => Some(Err(errno)),
        }
    }

    /// Random bytes: no compression and no deduplication makes them smaller.
    fn write(&self, from: u64, end: u64, enough: impl Fn() -> bool) -> Result<(), Errno> {
        let mut bytes = Vec::new();
        let mut at = from;
        while at < end && (at == from || !enough()) {
            let next = end.min(at + CHUNK);
            bytes.resize(usize::try_from(next - at).unwrap_or_default(), 0);
            fastrand::fill(&mut bytes);
            let written = self.file.write_all_at(&bytes, at);
            written.map_err(|error: io::Error| errno_of(&error))?;
            self.sync()?;
            at = next;
        }
        // Nobody will read it: the page cache is for the bookie.
        let _ = posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        self.file.sync_data().map_err(|error| errno_of(&error))
    }
}

/// The largest file that this process may have: one byte more, and the kernel ends it.
fn size_limit() -> u64 {
    getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    const MIB: u64 = 1 << 20;

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
            for order in [Order::Measure, Order::Fill(MIB), Order::Release] {
                assert_eq!(obeyed(dir.path(), order, "ext4"), None);
            }
            assert!(path.symlink_metadata().is_ok());
            assert!(!dir.path().join("elsewhere").exists());
        }
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
