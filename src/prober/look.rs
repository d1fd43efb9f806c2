//! One look at one directory: the steps in their order, each announced before it begins and timed.
//! Runs in a lane, because any step may never return. Finds facts, judges nothing, and writes only
//! where device and mount were just compared with what the agent expects.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, PosixFadviseAdvice, fcntl, openat, posix_fadvise};
use nix::sys::stat::Mode;
use nix::sys::statvfs::{FsFlags, Statvfs, fstatvfs};

use crate::health::ballast::{FILE_NAME, Order};
use crate::health::dir::{Role, path_text};
use crate::health::observation::{
    Cookie, Device, Failure, Finding, Identity, Look, Operation, Space,
};
use crate::probe::wire::{Kind, Reading};

use super::ballast;
use super::bookie_files;
use super::cookie;
use super::device::Facts;
use super::kernel::ErrorWatch;
use super::lane::Slot;
use super::place::{self, Place, errno_of, failure};
use super::probe_file::{Maker, ProbeFile};

/// Bytes that a probe writes: two blocks of 4 KiB, so that a block at the wrong place is found too.
const PROBE_BYTES: usize = 8192;

/// Direct reads want memory and length in multiples of the device's block, which is at most this.
const ALIGNMENT: usize = 4096;

/// A cookie is a few hundred bytes; what is longer than this is something else.
const MAX_COOKIE: u64 = 64 * 1024;

/// Making ballast stops after so long until the next look: others wait for the lane.
const BALLAST_TIME: Duration = Duration::from_millis(200);

/// What all looks of this process share.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) facts: Facts,
    pub(super) maker: Maker,
    pub(super) errors: Option<Arc<ErrorWatch>>,
    pub(super) boot_id: String,
}

/// What one look needs to know.
#[derive(Debug, Clone)]
pub(super) struct Task {
    /// Configured path.
    pub(super) path: PathBuf,
    /// Where it was resolved to; none: resolve it, and do nothing else.
    pub(super) pinned: Option<PathBuf>,
    pub(super) kind: Kind,
    /// Which of the bookie's files are in it.
    pub(super) role: Option<Role>,
    /// What to do with the ballast file.
    pub(super) ballast: Order,
    pub(super) await_cookie: bool,
    pub(super) guard: Guard,
    /// The UUID that an earlier look found, and where it found it.
    pub(super) uuid: Option<KnownUuid>,
    /// Source of the covering mount, which helps to find the UUID.
    pub(super) source: Option<String>,
    /// Type of the file system by the mount table.
    pub(super) fs_type: Option<String>,
}

/// What must hold before anything is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Guard {
    /// The place that the agent has seen and did not object to; none before the first look.
    pub(super) expected: Option<(Device, Option<u64>)>,
    /// Id of the mount that covers the path by the mount table.
    pub(super) mount_id: Option<u64>,
    /// The directory has to be a mount point, and is none.
    pub(super) mount_missing: bool,
}

/// A UUID, or that there is none, with the device and mount for which it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownUuid {
    place: (Device, Option<u64>),
    uuid: Option<String>,
}

/// What a lane gives back.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // a path is resolved once, then all are looks
pub(super) enum Outcome {
    /// The configured path leads here.
    Resolved(PathBuf),
    /// The look ended.
    Looked(Found),
}

/// What a look found, beyond what [`Look`] has room for.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) look: Look,
    /// How the probe file was read back.
    pub(super) reading: Option<Reading>,
    pub(super) uuid: Option<KnownUuid>,
    /// Whether the kernel reports errors of the file system, or why not; if the look came that far.
    pub(super) errors_watched: Option<Result<(), String>>,
    /// `statvfs` has the read-only flag.
    pub(super) read_only: bool,
}

impl Found {
    fn nothing() -> Found {
        Found {
            look: Look::default(),
            reading: None,
            uuid: None,
            errors_watched: None,
            read_only: false,
        }
    }
}

/// A look that the prober itself could not make.
pub(super) fn trouble(detail: &str, errno: Option<i32>) -> Found {
    let mut found = Found::nothing();
    found.look.failure = Some(Failure {
        errno,
        ..place::found(Operation::Prober, Finding::ProberTrouble, detail.to_owned())
    });
    found
}

/// Does what the task says.
pub(super) fn run(task: &Task, slot: &Slot, tools: &Tools) -> Outcome {
    let mut round = Round {
        task,
        slot,
        tools,
        found: Found::nothing(),
    };
    let ended = match &task.pinned {
        Some(canonical) => round.all(canonical),
        None => match round.step(Operation::Open, || place::resolve(&task.path)) {
            Ok(canonical) => return Outcome::Resolved(canonical),
            Err(failure) => Err(failure),
        },
    };
    round.found.look.failure = ended.err();
    Outcome::Looked(round.found)
}

/// A look in the making.
struct Round<'a> {
    task: &'a Task,
    slot: &'a Slot,
    tools: &'a Tools,
    found: Found,
}

impl Round<'_> {
    /// Announces an operation, makes it, and notes how long it took if it ended well.
    fn step<T>(
        &mut self,
        operation: Operation,
        act: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.slot.begin(operation);
        let result = act();
        let took = self.slot.end();
        if result.is_ok() {
            self.found.look.durations.insert(operation, took);
        }
        result
    }

    fn all(&mut self, canonical: &Path) -> Result<(), Failure> {
        let task = self.task;
        let full = task.kind != Kind::Space;
        let place = self.step(Operation::Open, || {
            let place = place::open(canonical)?;
            if full {
                place::check_leads_to(&task.path, canonical)?;
            }
            Ok(place)
        })?;
        let stat = self.step(Operation::Statvfs, || {
            fstatvfs(&place).map_err(|errno| place.failure(Operation::Statvfs, errno, canonical))
        })?;
        self.found.look.space = Some(space(&stat));
        self.found.read_only = stat.flags().contains(FsFlags::ST_RDONLY);
        let uuid = self.uuid(&place, full);
        self.found.look.identity = Some(Identity {
            device: Some(place.device),
            mount_id: place.mount_id,
            fsid: stat.filesystem_id(),
            uuid,
            cookie: Cookie::NotRead,
            canonical: canonical.to_owned(),
            boot_id: self.tools.boot_id.clone(),
        });
        if !full {
            return Ok(());
        }
        let cookie = self.step(Operation::Cookie, || read_cookie(&place, canonical))?;
        let initialised = cookie != Cookie::Absent;
        let awaited = task.await_cookie && !initialised;
        if let Some(identity) = &mut self.found.look.identity {
            identity.cookie = cookie;
        }
        if initialised && matches!(task.role, Some(Role::Ledger | Role::Journal)) {
            self.found.look.bookie_files = Some(self.step(Operation::BookieFiles, || {
                bookie_files::read(place.as_fd(), task.role, canonical)
            })?);
        }
        if !task.guard.allows(&place) {
            return Ok(());
        }
        self.watch_errors(&place);
        let grows = matches!(task.ballast, Order::Fill(_));
        if !grows {
            // First of all: a directory that is full has no room for a probe either.
            self.ballast(&place, canonical)?;
        }
        self.step(Operation::Clean, || {
            let cleaned = self.tools.maker.clean(place.as_fd());
            cleaned.map_err(|errno| place.failure(Operation::Clean, errno, canonical))
        })?;
        if task.kind == Kind::Probe && !awaited {
            self.found.look.probed = true;
            self.probe(&place, canonical)?;
            if grows {
                self.ballast(&place, canonical)?;
            }
        }
        Ok(())
    }

    /// Only in a place that the agent has seen before.
    fn ballast(&mut self, place: &Place, path: &Path) -> Result<(), Failure> {
        let task = self.task;
        if task.ballast == Order::None || task.guard.expected.is_none() {
            return Ok(());
        }
        let slot = self.slot;
        let enough = || BALLAST_TIME <= slot.age();
        let fs_type = task.fs_type.as_deref();
        self.found.look.ballast = self.step(Operation::Ballast, || {
            ballast::obey(task.ballast, place.as_fd(), fs_type, enough)
                .map_err(|fault| failure(fault.operation, fault.errno, &path.join(FILE_NAME)))
        })?;
        Ok(())
    }

    fn watch_errors(&mut self, place: &Place) {
        let Some(fs_type) = &self.task.fs_type else {
            return;
        };
        self.slot.begin(Operation::Statvfs);
        self.found.errors_watched = Some(match &self.tools.errors {
            Some(errors) => errors.add(place, fs_type),
            None => Err("needs Linux 5.16".to_owned()),
        });
        self.slot.end();
    }

    /// The UUID is looked for anew in full looks and whenever the place is another one: the link
    /// may be made later than the mount.
    fn uuid(&mut self, place: &Place, full: bool) -> Option<String> {
        let here = (place.device, place.mount_id);
        let known = self.task.uuid.as_ref().filter(|known| known.place == here);
        let uuid = match known {
            Some(known) if !full => known.uuid.clone(),
            _ => {
                let source = self.task.source.as_deref();
                self.tools.facts.uuid(place.device, source)
            }
        };
        self.found.uuid = Some(KnownUuid {
            place: here,
            uuid: uuid.clone(),
        });
        uuid
    }

    /// Create, write, sync, read back, compare, unlink. Whatever fails, the file is removed again
    /// if that is possible.
    fn probe(&mut self, place: &Place, path: &Path) -> Result<(), Failure> {
        let made = self.step(Operation::Create, || {
            let made = self.tools.maker.create(place.as_fd());
            made.map_err(|errno| place.failure(Operation::Create, errno, path))
        })?;
        let written = self.write_and_read(&made, path);
        if written.is_err() {
            // Announced as well: on a disk that just failed it may take its time.
            self.slot.begin(Operation::Unlink);
            let _ = made.remove(place.as_fd());
            drop(made);
            self.slot.end();
            return written;
        }
        self.step(Operation::Unlink, || {
            let removed = made.remove(place.as_fd());
            // Closing frees the blocks of the file, which is a part of removing it.
            let name = path.join(made.name());
            drop(made);
            removed.map_err(|errno| failure(Operation::Unlink, errno, &name))
        })
    }

    fn write_and_read(&mut self, made: &ProbeFile, path: &Path) -> Result<(), Failure> {
        let file = &made.file;
        let name = path.join(made.name());
        let fail = |operation, error: io::Error| failure(operation, errno_of(&error), &name);
        let mut written = vec![0; PROBE_BYTES];
        fastrand::fill(&mut written);
        self.step(Operation::Write, || {
            let result = file.write_all_at(&written, 0);
            result.map_err(|error| fail(Operation::Write, error))
        })?;
        self.step(Operation::Sync, || {
            file.sync_data()
                .map_err(|error| fail(Operation::Sync, error))
        })?;
        let mut memory = vec![0; PROBE_BYTES + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let back = &mut memory[start..start + PROBE_BYTES];
        let (count, reading) = self.step(Operation::Read, || {
            read_back(file, back).map_err(|error| fail(Operation::Read, error))
        })?;
        self.found.reading = Some(reading);
        self.step(Operation::Compare, || {
            match difference(&written, &back[..count]) {
                None => Ok(()),
                Some(what) => {
                    let detail = format!("{}: {what}", path_text(&name));
                    Err(place::found(
                        Operation::Compare,
                        Finding::WrongBytes,
                        detail,
                    ))
                }
            }
        })
    }
}

impl Guard {
    /// The open place is the one that is expected, by the agent and by the mount table.
    fn allows(&self, place: &Place) -> bool {
        let expected = self
            .expected
            .is_none_or(|expected| expected == (place.device, place.mount_id));
        let table = match (self.mount_id, place.mount_id) {
            (Some(table), Some(open)) => table == open,
            _ => true,
        };
        expected && table && !self.mount_missing
    }
}

fn space(stat: &Statvfs) -> Space {
    // POSIX counts blocks in fragments.
    let bytes = |blocks| bytes(blocks, stat.fragment_size());
    Space {
        size: bytes(stat.blocks()),
        available: bytes(stat.blocks_available()),
        inodes: stat.files(),
        inodes_free: stat.files_available(),
    }
}

/// Wide, because a large count times a large block overflows.
fn bytes(blocks: u64, block: u64) -> u64 {
    let bytes = u128::from(blocks) * u128::from(block);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The cookie, as far as it can be read: one that cannot is a fact about the cookie, not a failure
/// of the directory.
fn read_cookie(place: &Place, path: &Path) -> Result<Cookie, Failure> {
    let refused = |errno: Errno| {
        let failure = failure(Operation::Cookie, errno, &path.join("current/VERSION"));
        match (failure.finding, errno) {
            (Finding::ProberTrouble, _) => Err(failure),
            (_, Errno::ENOENT | Errno::ENOTDIR) => Ok(Cookie::Absent),
            _ => Ok(Cookie::Unreadable(failure.detail)),
        }
    };
    // Not blocking, because a pipe of that name would be waited for.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(place, "current/VERSION", flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(errno) => return refused(errno),
    };
    let mut bytes = Vec::new();
    match (&file).take(MAX_COOKIE + 1).read_to_end(&mut bytes) {
        Ok(count) if MAX_COOKIE < count as u64 => {
            Ok(Cookie::Unreadable(format!("over {MAX_COOKIE} bytes")))
        }
        Ok(_) => Ok(cookie::parse(&bytes)),
        Err(error) => refused(errno_of(&error)),
    }
}

/// Reads the file from the device, or from wherever the kernel likes where it refuses to do that.
fn read_back(file: &File, buffer: &mut [u8]) -> io::Result<(usize, Reading)> {
    match set_direct(file.as_fd(), true).and_then(|()| read_all(file, buffer)) {
        Ok(count) => Ok((count, Reading::Direct)),
        Err(error) if errno_of(&error) == Errno::EINVAL => {
            set_direct(file.as_fd(), false)?;
            // Asks the page cache to forget the file; a hint only.
            let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
            Ok((read_all(file, buffer)?, Reading::Buffered))
        }
        Err(error) => Err(error),
    }
}

fn set_direct(file: BorrowedFd<'_>, direct: bool) -> io::Result<()> {
    let mut flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
    flags.set(OFlag::O_DIRECT, direct);
    fcntl(file, FcntlArg::F_SETFL(flags))?;
    Ok(())
}

fn read_all(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// How the bytes that came back differ from those that were written.
fn difference(written: &[u8], back: &[u8]) -> Option<String> {
    if back.len() != written.len() {
        let (got, wanted) = (back.len(), written.len());
        return Some(format!("{got} bytes came back of {wanted}"));
    }
    let wrong = |(one, other): (&u8, &u8)| one != other;
    let first = written.iter().zip(back).position(wrong)?;
    let count = written.iter().zip(back).filter(|pair| wrong(*pair)).count();
    Some(format!("{count} bytes differ, the first at {first}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_differ_are_counted_and_placed() {
        assert_eq!(difference(b"abcd", b"abcd"), None);
        let text = difference(b"abcd", b"aXcX");
        assert_eq!(text.as_deref(), Some("2 bytes differ, the first at 1"));
        let text = difference(b"abcd", b"ab");
        assert_eq!(text.as_deref(), Some("2 bytes came back of 4"));
    }

    #[test]
    fn absurd_sizes_do_not_overflow() {
        assert_eq!(bytes(3, 4096), 12288);
        assert_eq!(bytes(u64::MAX, 4096), u64::MAX);
    }

    /// Nothing is written unless the agent, the mount table and the open directory agree.
    #[test]
    fn the_guard_wants_the_expected_place() {
        let place = place::open(Path::new("/proc")).unwrap();
        let here = (place.device, place.mount_id);
        let other = Device {
            major: 8,
            minor: 99,
        };
        let guard = Guard {
            expected: Some(here),
            mount_id: place.mount_id,
            mount_missing: false,
        };
        assert!(guard.allows(&place));
        let first = Guard {
            expected: None,
            mount_id: None,
            ..guard
        };
        assert!(first.allows(&place));
        for refused in [
            Guard {
                expected: Some((other, place.mount_id)),
                ..guard
            },
            Guard {
                expected: Some((place.device, Some(u64::MAX))),
                ..guard
            },
            Guard {
                mount_id: Some(u64::MAX),
                ..guard
            },
            Guard {
                mount_missing: true,
                ..guard
            },
        ] {
            assert!(!refused.allows(&place), "{refused:?}");
        }
    }
}
