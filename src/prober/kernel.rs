//! What the kernel tells by itself: changes of the mount table, and errors of file systems as they
//! happen and as they are counted. Watched from a thread of its own that may be lost, because the
//! table's text is made by the file systems, and one of them (btrfs, which looks up the name of its
//! subvolume) may have to ask its disk.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};

use crate::clock::Clock;

use super::errors::{Counted, Counter, Counts};
use super::mount::Table;

/// The kernel wakes us for mounts, unmounts and remounts. When a file system gives itself up
/// (`emergency_ro`) it says so only where [`ErrorWatch`] is permitted: elsewhere the table is read
/// this often, because that must be noticed within a second.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(800);

/// A host with thousands of mounts takes milliseconds to write its table: then it is read less
/// often, so that no more than one part in so many of a core goes into it ...
const SHARE_OF_A_CORE: u32 = 1000;

/// ... but at least as often as directories are probed.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);

/// A file system that reports errors all the time is heard once in this time.
const QUIET: Duration = Duration::from_secs(1);

/// A file system reports its error before its options show the consequence: after a report the
/// table is read every few milliseconds for a moment, which keeps the budget of 100 ms.
const ALARM: Duration = Duration::from_millis(200);
const ALARMED_INTERVAL: Duration = Duration::from_millis(30);

/// Errors that a file system counts are read this often: enough for a person, and none of them is
/// alone in telling what happened.
const COUNTED_EACH: Duration = Duration::from_secs(2);

/// Needs little: the text is on the heap.
const STACK: usize = 64 * 1024;

/// Types of file systems that report their errors (`fsnotify_sb_error` in the kernel).
const REPORTING_TYPES: [&str; 1] = ["ext4"];

/// News of the kernel.
#[derive(Debug)]
pub(super) enum News {
    /// The mount table, now and after each change.
    Mounts(Table),
    /// A file system for which errors are watched had one.
    FileSystemError,
    /// File systems have counted errors.
    Counted(Vec<Counted>),
}

/// Watches file systems for errors (FAN_FS_ERROR). Needs Linux 5.16 and CAP_SYS_ADMIN.
#[derive(Debug)]
pub(super) struct ErrorWatch(Fanotify);

impl ErrorWatch {
    /// None where the kernel does not have it. Privilege is needed only to add file systems.
    pub(super) fn new() -> Option<ErrorWatch> {
        // FAN_REPORT_FID, which nix has no name for and which errors are reported with.
        let report_fid = InitFlags::from_bits_retain(0x200);
        let flags = InitFlags::FAN_CLASS_NOTIF
            | InitFlags::FAN_CLOEXEC
            | InitFlags::FAN_NONBLOCK
            | report_fid;
        let files = EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC;
        Fanotify::init(flags, files).ok().map(ErrorWatch)
    }

    /// Watches the file system of an open directory. Ends with the file system and does not keep it
    /// from being unmounted. Call it again for one that may have been mounted anew. The kernel asks
    /// the file system for its id: call it from a lane.
    ///
    /// # Errors
    /// That is not possible; in words.
    pub(super) fn add(&self, dir: impl AsFd, fs_type: &str) -> Result<(), String> {
        if !REPORTING_TYPES.contains(&fs_type) {
            return Err(format!("{fs_type} reports no errors"));
        }
        let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        let added = self.0.mark(flags, MaskFlags::FAN_FS_ERROR, dir, Some("."));
        added.map_err(|errno| match errno {
            Errno::EPERM => "not permitted (needs CAP_SYS_ADMIN)".to_owned(),
            Errno::EINVAL => "needs Linux 5.16".to_owned(),
            other => other.desc().to_owned(),
        })
    }
}

/// The counters of errors that the thread is to read.
#[derive(Debug)]
pub(super) struct Wanted {
    counters: Mutex<Vec<Counter>>,
    bell: EventFd,
}

impl Wanted {
    /// None so far.
    ///
    /// # Errors
    /// The system gives us no descriptor.
    fn new() -> io::Result<Wanted> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Wanted {
            counters: Mutex::default(),
            bell: EventFd::from_flags(flags)?,
        })
    }

    fn counters(&self) -> MutexGuard<'_, Vec<Counter>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these are read and no others. Never blocks.
    pub(super) fn count(&self, counters: Vec<Counter>) {
        let mut wanted = self.counters();
        if *wanted != counters {
            *wanted = counters;
            let _ = self.bell.write(1);
        }
    }
}

/// Hands news to `tell` until that says that nobody listens.
///
/// # Errors
/// There is no mount table, or the system gives us no thread.
pub(super) fn watch(
    clock: Clock,
    errors: Option<Arc<ErrorWatch>>,
    tell: impl Fn(News) -> bool + Send + 'static,
) -> io::Result<Arc<Wanted>> {
    let wanted = Arc::new(Wanted::new()?);
    let mut watcher = Watcher {
        clock,
        mounts: File::open("/proc/self/mountinfo")?,
        last: Vec::new(),
        text: Vec::new(),
        errors,
        alarm: None,
        wanted: Arc::clone(&wanted),
        counts: Counts::default(),
        counted: None,
    };
    let thread = thread::Builder::new()
        .name("kernel".into())
        .stack_size(STACK);
    thread
        .spawn(move || while watcher.turn(&tell).is_ok() {})
        .map(|_| wanted)
}

struct Watcher {
    clock: Clock,
    mounts: File,
    /// The table as it was last told.
    last: Vec<u8>,
    text: Vec<u8>,
    errors: Option<Arc<ErrorWatch>>,
    /// When a file system last reported an error.
    alarm: Option<Duration>,
    wanted: Arc<Wanted>,
    counts: Counts,
    /// When the counters were last read; none: read them now.
    counted: Option<Duration>,
}

impl Watcher {
    fn turn(&mut self, tell: &impl Fn(News) -> bool) -> io::Result<()> {
        let before = self.clock.elapsed();
        self.text.clear();
        let read = self.mounts.rewind();
        let read = read.and_then(|()| self.mounts.read_to_end(&mut self.text));
        let now = self.clock.elapsed();
        let cost = now.saturating_sub(before);
        // A table that cannot be read (the kernel lacks memory for its text) is read again later:
        // without it every unmount would go unseen.
        if read.is_ok() && self.text != self.last {
            std::mem::swap(&mut self.text, &mut self.last);
            listened(tell(News::Mounts(Table::parse(&self.last))))?;
        }
        if self
            .counted
            .is_none_or(|at| COUNTED_EACH <= now.saturating_sub(at))
        {
            self.counted = Some(now);
            let counters = self.wanted.counters().clone();
            let counted = self.counts.read(&counters);
            if !counted.is_empty() {
                listened(tell(News::Counted(counted)))?;
            }
        }
        let since = self.alarm.map(|at| now.saturating_sub(at));
        let wait = match since {
            Some(since) if since < ALARM => ALARMED_INTERVAL,
            _ => (cost * SHARE_OF_A_CORE).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL),
        };
        if self.wait(wait, since.is_none_or(|since| QUIET <= since))? {
            self.alarm = Some(self.clock.elapsed());
            self.counted = None;
            listened(tell(News::FileSystemError))?;
        }
        Ok(())
    }

    /// Waits for the kernel; true when a file system reported an error, if that is listened for.
    fn wait(&mut self, limit: Duration, listen: bool) -> io::Result<bool> {
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let change = PollFlags::POLLPRI | PollFlags::POLLERR;
        let mut polled = vec![
            PollFd::new(self.mounts.as_fd(), change),
            PollFd::new(self.wanted.bell.as_fd(), PollFlags::POLLIN),
        ];
        let heard = self.errors.as_ref().filter(|_| listen);
        if let Some(errors) = heard {
            polled.push(PollFd::new(errors.0.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut polled, limit) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if self.wanted.bell.read().is_ok() {
            self.counted = None;
        }
        Ok(heard.is_some_and(|errors| {
            let events = errors.0.read_events();
            events.is_ok_and(|events| !events.is_empty())
        }))
    }
}

fn listened(listened: bool) -> io::Result<()> {
    if listened {
        Ok(())
    } else {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}
