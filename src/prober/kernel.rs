//! What the kernel tells by itself: changes of the mount table, and errors of file systems as they
//! happen and as they are counted. Watched from a thread of its own that may be lost, because the
//! table's text is made by the file systems, and one of them (btrfs, which looks up the name of its
//! subvolume) may have to ask its disk.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// A file system that reports errors all the time is told of once in this time, and raises no alarm
/// until it has been quiet for so long.
const QUIET: Duration = Duration::from_secs(1);

/// After reports none are taken in for so long, so that they cannot keep us busy; short enough to
/// hear another file system within the budget of [`ALARM`].
const DEAF: Duration = Duration::from_millis(50);

/// A file system reports its error, and refuses to be written, before its options show why: after
/// that the table is read every few milliseconds for a moment, which keeps the budget of 100 ms.
const ALARM: Duration = Duration::from_millis(200);
const ALARMED_INTERVAL: Duration = Duration::from_millis(30);

/// A remount makes the file system read-only first and the mount after it. In between, the table looks as if nobody had
/// asked for it: that has to stand for so long, a few readings, before it is told. The rest of the budget of [`ALARM`].
const SETTLED: Duration = Duration::from_millis(50);
const SETTLING_INTERVAL: Duration = Duration::from_millis(20);

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
    /// These file systems, for which errors are watched, had some; none: nobody knows which.
    FileSystemErrors(BTreeSet<Option<FsId>>),
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

    /// The file systems that have reported errors since the last call. Never blocks. With
    /// FAN_REPORT_FID an event brings no descriptor that would have to be closed.
    fn reports(&self) -> BTreeSet<Option<FsId>> {
        // Room for forty: the kernel holds one report of each file system.
        let mut events = [0; 4096];
        let read = nix::unistd::read(self.0.as_fd(), &mut events).unwrap_or(0);
        file_systems(&events[..read])
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

/// Id of a file system, as far as both the kernel's reports and `statvfs` have it: some C libraries
/// keep the lower half only, which tells file systems apart well enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FsId(u32);

impl FsId {
    /// That of `f_fsid`.
    pub(super) fn of(fsid: u64) -> FsId {
        let [a, b, c, d, ..] = fsid.to_le_bytes();
        FsId(u32::from_le_bytes([a, b, c, d]))
    }
}

/// The file systems in a buffer of events, as fanotify(7) lays them out: a length, what the event
/// is, and records of which one has the id. An event without that is of nobody knows which.
fn file_systems(mut events: &[u8]) -> BTreeSet<Option<FsId>> {
    /// Length of the fixed part of an event, and of the head of a record.
    const EVENT: usize = 24;
    const RECORD: usize = 4;
    /// FAN_EVENT_INFO_TYPE_FID.
    const WITH_ID: u8 = 1;
    let mut found = BTreeSet::new();
    while let Some(length) = events.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
        && let Ok(length) = usize::try_from(length)
        && let Some((event, rest)) = events.split_at_checked(length.max(EVENT))
    {
        events = rest;
        let mut id = None;
        let mut records = &event[EVENT..];
        while let Some([kind, _, low, high]) = records.first_chunk()
            && let length = usize::from(u16::from_ne_bytes([*low, *high])).max(RECORD)
            && let Some((record, rest)) = records.split_at_checked(length)
        {
            records = rest;
            if *kind == WITH_ID {
                let bytes = record[RECORD..].first_chunk();
                id = id.or(bytes.map(|bytes| FsId(u32::from_ne_bytes(*bytes))));
            }
        }
        found.insert(id);
    }
    found
}

/// Who reported errors lately: when it was heard last, and when that was told.
#[derive(Debug, Default)]
struct Heard {
    each: BTreeMap<Option<FsId>, (Duration, Duration)>,
    last: Option<Duration>,
}

impl Heard {
    /// How long nothing is taken in yet.
    fn left(&self, deaf: Duration, now: Duration) -> Option<Duration> {
        let left = (self.last? + deaf).saturating_sub(now);
        (!left.is_zero()).then_some(left)
    }

    /// Those to be told of, and whether one of them had been quiet.
    fn take(
        &mut self,
        reports: BTreeSet<Option<FsId>>,
        now: Duration,
    ) -> (BTreeSet<Option<FsId>>, bool) {
        self.last = Some(now);
        self.each
            .retain(|_, (heard, _)| now.saturating_sub(*heard) < QUIET);
        let mut is_alarm = false;
        let is_told = |id: &Option<FsId>| match self.each.entry(*id) {
            Entry::Vacant(quiet) => {
                quiet.insert((now, now));
                is_alarm = true;
                true
            }
            Entry::Occupied(noisy) => {
                let (heard, told) = noisy.into_mut();
                *heard = now;
                let is_told = QUIET <= now.saturating_sub(*told);
                if is_told {
                    *told = now;
                }
                is_told
            }
        };
        let told = reports.into_iter().filter(is_told).collect();
        (told, is_alarm)
    }
}

/// What the thread is to read.
#[derive(Debug)]
pub(super) struct Wanted {
    counters: Mutex<Vec<Counter>>,
    /// The table is in doubt.
    doubted: AtomicBool,
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
            doubted: AtomicBool::new(false),
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

    /// A file system refuses what the table allows: it is read now, and again for a moment. Never
    /// blocks.
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Ordering::Release);
        let _ = self.bell.write(1);
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
        settling: Settling::default(),
        errors,
        alarm: None,
        heard: Heard::default(),
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

/// What was concluded from the tables that were told, and since when there is more of it than that.
#[derive(Debug, Default)]
struct Settling {
    told: Option<BTreeSet<u64>>,
    since: Option<Duration>,
}

impl Settling {
    /// Whether a table with these conclusions may be told. The first one may: whatever made it so is over.
    fn is_settled(&mut self, concluded: BTreeSet<u64>, now: Duration) -> bool {
        let is_new = |told: &BTreeSet<u64>| !concluded.is_subset(told);
        if self.told.as_ref().is_some_and(is_new) {
            let since = *self.since.get_or_insert(now);
            if now.saturating_sub(since) < SETTLED {
                return false;
            }
        }
        self.since = None;
        self.told = Some(concluded);
        true
    }
}

struct Watcher {
    clock: Clock,
    mounts: File,
    /// The table as it was last told.
    last: Vec<u8>,
    text: Vec<u8>,
    settling: Settling,
    errors: Option<Arc<ErrorWatch>>,
    /// When a file system that had been quiet reported an error, or the table was last in doubt.
    alarm: Option<Duration>,
    heard: Heard,
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
            let table = Table::parse(&self.text);
            if self.settling.is_settled(table.concluded(), now) {
                std::mem::swap(&mut self.text, &mut self.last);
                listened(tell(News::Mounts(table)))?;
            }
        } else {
            self.settling.since = None;
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
            _ if self.settling.since.is_some() => SETTLING_INTERVAL,
            Some(since) if since < ALARM => ALARMED_INTERVAL,
            _ => (cost * SHARE_OF_A_CORE).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL),
        };
        // A long table is not read more often than that because somebody reports errors.
        let deaf = (cost * SHARE_OF_A_CORE).clamp(DEAF, QUIET);
        let left = self.heard.left(deaf, now);
        let reports = self.wait(left.map_or(wait, |left| wait.min(left)), left.is_none())?;
        if !reports.is_empty() {
            let now = self.clock.elapsed();
            let (told, is_alarm) = self.heard.take(reports, now);
            if is_alarm {
                self.alarm = Some(now);
                self.counted = None;
            }
            if !told.is_empty() {
                listened(tell(News::FileSystemErrors(told)))?;
            }
        }
        Ok(())
    }

    /// Waits for the kernel; the file systems that reported an error, if that is listened for.
    fn wait(&mut self, limit: Duration, listen: bool) -> io::Result<BTreeSet<Option<FsId>>> {
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
        if self.wanted.doubted.swap(false, Ordering::Acquire) {
            self.alarm = Some(self.clock.elapsed());
        }
        Ok(heard.map(|errors| errors.reports()).unwrap_or_default())
    }
}

fn listened(listened: bool) -> io::Result<()> {
    if listened {
        Ok(())
    } else {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A remount is seen in its middle: what is concluded then is told only if it stands.
    #[test]
    fn what_is_concluded_from_a_table_has_to_stand() {
        let ms = Duration::from_millis;
        let mut settling = Settling::default();
        let of = |ids: &[u64]| ids.iter().copied().collect::<BTreeSet<_>>();
        assert!(settling.is_settled(of(&[1]), ms(0)), "the first table");
        assert!(settling.is_settled(of(&[1]), ms(10)), "nothing new");
        assert!(!settling.is_settled(of(&[1, 2]), ms(20)));
        assert!(!settling.is_settled(of(&[1, 2]), ms(60)));
        assert!(settling.is_settled(of(&[1, 2]), ms(70)), "it stands");
        assert!(!settling.is_settled(of(&[3]), ms(100)));
        assert!(settling.is_settled(of(&[]), ms(110)), "it was a remount");
        assert!(!settling.is_settled(of(&[3]), ms(200)), "and counts anew");
    }

    /// An event with these records of (kind, content).
    fn event(records: &[(u8, &[u8])]) -> Vec<u8> {
        let mut event = vec![0; 24];
        for (kind, content) in records {
            let length = u16::try_from(4 + content.len()).unwrap();
            event.extend([*kind, 0]);
            event.extend(length.to_ne_bytes());
            event.extend(*content);
        }
        let length = u32::try_from(event.len()).unwrap();
        event[..4].copy_from_slice(&length.to_ne_bytes());
        event
    }

    #[test]
    fn an_event_says_which_file_system_it_is_of() {
        let id = 0x0102_0304_0506_0708_u64;
        let mut fid = id.to_ne_bytes().to_vec();
        fid.extend([9; 12]);
        let of = |events: &[Vec<u8>]| file_systems(&events.concat());
        let known = Some(FsId::of(id));
        let error = event(&[(5, &[1; 8]), (1, &fid)]);
        assert_eq!(of(&[]), BTreeSet::new());
        assert_eq!(of(std::slice::from_ref(&error)), BTreeSet::from([known]));
        assert_eq!(of(&[event(&[])]), BTreeSet::from([None]), "lost events");
        assert_eq!(
            of(&[event(&[(5, &[1; 8])]), error.clone()]),
            BTreeSet::from([None, known])
        );
        assert_eq!(of(&[error[..20].to_vec()]), BTreeSet::new(), "cut off");
    }

    #[test]
    fn who_goes_on_with_errors_is_told_of_once_a_second_and_alarms_once() {
        let [one, other] = [Some(FsId(1)), Some(FsId(2))];
        let mut heard = Heard::default();
        assert_eq!(heard.left(DEAF, Duration::ZERO), None);
        let (mut told, mut alarms) = (0, 0);
        let mut now = Duration::ZERO;
        for turn in 1..=200 {
            now = DEAF * turn;
            let (news, is_alarm) = heard.take(BTreeSet::from([one]), now);
            told += news.len();
            alarms += u32::from(is_alarm);
        }
        assert_eq!((told, alarms), (10, 1), "in ten seconds");
        assert_eq!(heard.left(DEAF, now), Some(DEAF));
        let both = heard.take(BTreeSet::from([one, other]), now + DEAF);
        assert!(
            both.0.contains(&other) && both.1,
            "the first of another one"
        );
        let later = heard.take(BTreeSet::from([one]), now + DEAF + QUIET);
        assert!(later.0.contains(&one) && later.1, "after a quiet time");
        assert_eq!(heard.each.len(), 1);
    }

    proptest! {
        #[test]
        fn no_events_make_it_panic(bytes: Vec<u8>, length: u8, record: u8) {
            let _ = file_systems(&bytes);
            let mut event = event(&[(1, &bytes[..bytes.len().min(64)])]);
            event[0] = length;
            event[26] = record;
            let _ = file_systems(&event);
        }
    }
}
