//! A FUSE file system in memory that does what a test asks: hold, delay, fail or corrupt operations,
//! and report any size. Watched itself it is a strange file system; with one big file under a loop
//! device it is a disk that dies on demand (`dying_disk`).

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use dirkeeper::clock::Clock;
use fuser::{
    BackgroundSession, FileAttr, FileType, Filesystem, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, Request, Session, SessionACL,
    TimeOrNow,
};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::bench::Bench;
use super::run::{pass, try_for};
use super::sweep::{connection, mounts_below};

/// Number of the root directory in FUSE.
const ROOT: u64 = 1;
/// Bytes that are kept or not kept together.
const PAGE: usize = 4096;
/// How long the kernel may keep an answer of ours.
const KEEP: Duration = Duration::from_secs(1);

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Effect {
    Works,
    /// No answer until [`MemoryFs::release`].
    Hold,
    /// The answer comes later.
    Delay(Duration),
    /// This error.
    Fail(Errno),
    /// Writes other bytes than it was given.
    Corrupt,
}

/// Operations that can be told how to behave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Operation {
    Read,
    Write,
    Fsync,
    Statfs,
}

/// What statfs answers, in blocks of 4 KiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) blocks: u64,
    pub(crate) free: u64,
}

/// What is done once an operation may go on; with the error it is to end with.
type Job = Box<dyn FnOnce(&mut Store, Option<Errno>) + Send>;

struct Behaviour {
    effects: [(Operation, Effect); 4],
    numbers: Numbers,
    held: Vec<Job>,
    first_held: Option<i64>,
    store: Store,
}

impl Behaviour {
    fn effect(&self, operation: Operation) -> Effect {
        let found = self.effects.iter().find(|(known, _)| *known == operation);
        found.map_or(Effect::Works, |(_, effect)| *effect)
    }
}

#[derive(Default)]
struct Store {
    files: BTreeMap<u64, Stored>,
    last: u64,
}

#[derive(Default)]
struct Stored {
    name: OsString,
    length: u64,
    pages: HashMap<u64, Box<[u8; PAGE]>>,
}

/// A mounted file system of this kind; released and unmounted when dropped.
pub(crate) struct MemoryFs {
    path: PathBuf,
    shared: Arc<Mutex<Behaviour>>,
    _session: BackgroundSession,
}

fn locked(shared: &Mutex<Behaviour>) -> MutexGuard<'_, Behaviour> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryFs {
    /// An empty one of 1 GiB that works.
    pub(crate) fn new(bench: &Bench, name: &str) -> MemoryFs {
        let numbers = Numbers {
            blocks: 1 << 18,
            free: 1 << 18,
        };
        let effects = [
            Operation::Read,
            Operation::Write,
            Operation::Fsync,
            Operation::Statfs,
        ];
        let shared = Arc::new(Mutex::new(Behaviour {
            effects: effects.map(|operation| (operation, Effect::Works)),
            numbers,
            held: Vec::new(),
            first_held: None,
            store: Store {
                files: BTreeMap::new(),
                last: ROOT,
            },
        }));
        let path = bench.dir(name);
        let device = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .expect("FUSE is there");
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(
            Some(name),
            &path,
            Some("fuse"),
            flags,
            Some(options.as_str()),
        )
        .expect("root may mount");
        let server = Server {
            shared: shared.clone(),
            clock: Clock::start(),
            later: delays(&shared),
        };
        let session = Session::from_fd(server, device.into(), SessionACL::All);
        let session = session.spawn().expect("a thread can be started");
        MemoryFs {
            path,
            shared,
            _session: session,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// From now on this happens to such operations.
    pub(crate) fn set(&self, operation: Operation, effect: Effect) {
        let mut shared = locked(&self.shared);
        for (known, set) in &mut shared.effects {
            if *known == operation {
                *set = effect;
            }
        }
    }

    /// From now on this happens to reads, writes and syncs.
    pub(crate) fn set_all(&self, effect: Effect) {
        for operation in [Operation::Read, Operation::Write, Operation::Fsync] {
            self.set(operation, effect);
        }
    }

    pub(crate) fn report(&self, numbers: Numbers) {
        locked(&self.shared).numbers = numbers;
    }

    /// When the first operation was held, if one was.
    pub(crate) fn first_held(&self) -> Option<i64> {
        locked(&self.shared).first_held
    }

    /// Everything works again, and what was held goes on.
    pub(crate) fn release(&self) {
        let mut shared = locked(&self.shared);
        for (_, effect) in &mut shared.effects {
            *effect = Effect::Works;
        }
        for job in std::mem::take(&mut shared.held) {
            job(&mut shared.store, None);
        }
    }

    /// The daemon is gone: every operation gets ENOTCONN.
    pub(crate) fn disconnect(&self) {
        for mount in mounts_below(&self.path) {
            let _ = std::fs::write(connection(&mount.minor).join("abort"), "1");
        }
    }

    /// Adds a file of zeros.
    pub(crate) fn add(&self, name: &str, length: u64) {
        let mut shared = locked(&self.shared);
        let ino = shared.store.add(OsStr::new(name));
        shared.store.files.entry(ino).or_default().length = length;
    }
}

impl Drop for MemoryFs {
    fn drop(&mut self) {
        self.release();
        // The loop device on it lets go a moment after its own unmount.
        let unmounted = || umount2(&self.path, MntFlags::empty()).is_ok().then_some(());
        if try_for(Duration::from_secs(5), unmounted).is_none() {
            self.disconnect();
            let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        }
    }
}

/// A thread that does jobs after a delay; all delays are alike, so the order is that of arrival.
fn delays(shared: &Arc<Mutex<Behaviour>>) -> Sender<(Duration, Job)> {
    let (sender, jobs) = channel::<(Duration, Job)>();
    let shared = Arc::downgrade(shared);
    let clock = Clock::start();
    std::thread::spawn(move || {
        while let Ok((due, job)) = jobs.recv() {
            pass(due.saturating_sub(clock.elapsed()));
            let Some(shared) = shared.upgrade() else {
                return;
            };
            job(&mut locked(&shared).store, None);
        }
    });
    sender
}

impl Store {
    fn add(&mut self, name: &OsStr) -> u64 {
        self.last += 1;
        self.files.insert(
            self.last,
            Stored {
                name: name.to_owned(),
                ..Stored::default()
            },
        );
        self.last
    }

    fn find(&self, name: &OsStr) -> Option<u64> {
        self.files
            .iter()
            .find(|(_, file)| file.name == name)
            .map(|(ino, _)| *ino)
    }

    fn attributes(&self, ino: u64) -> Option<FileAttr> {
        let (kind, perm, size) = match self.files.get(&ino) {
            Some(file) => (FileType::RegularFile, 0o644, file.length),
            None if ino == ROOT => (FileType::Directory, 0o755, 0),
            None => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn read(&self, ino: u64, offset: u64, size: usize) -> Option<Vec<u8>> {
        let file = self.files.get(&ino)?;
        let end = (offset + size as u64).min(file.length);
        let mut bytes = Vec::with_capacity(size);
        let mut at = offset;
        while at < end {
            let (page, within) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let length = (PAGE - within).min(usize::try_from(end - at).unwrap_or(PAGE));
            match file.pages.get(&page) {
                Some(page) => bytes.extend_from_slice(&page[within..within + length]),
                None => bytes.resize(bytes.len() + length, 0),
            }
            at += length as u64;
        }
        Some(bytes)
    }

    fn write(&mut self, ino: u64, offset: u64, bytes: &[u8]) -> Option<()> {
        let file = self.files.get_mut(&ino)?;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, within) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let length = (PAGE - within).min(bytes.len() - done);
            let page = file
                .pages
                .entry(page)
                .or_insert_with(|| Box::new([0; PAGE]));
            page[within..within + length].copy_from_slice(&bytes[done..done + length]);
            done += length;
        }
        file.length = file.length.max(offset + bytes.len() as u64);
        Some(())
    }
}

struct Server {
    shared: Arc<Mutex<Behaviour>>,
    clock: Clock,
    later: Sender<(Duration, Job)>,
}

impl Server {
    /// Does the job now, later, never or wrongly.
    fn act(&self, operation: Operation, job: Job) {
        let mut shared = locked(&self.shared);
        match shared.effect(operation) {
            Effect::Works | Effect::Corrupt => job(&mut shared.store, None),
            Effect::Fail(errno) => job(&mut shared.store, Some(errno)),
            Effect::Hold => {
                shared
                    .first_held
                    .get_or_insert_with(|| self.clock.now().wall.0);
                shared.held.push(job);
            }
            Effect::Delay(time) => {
                // The other end lives as long as this server.
                let _ = self.later.send((self.clock.elapsed() + time, job));
            }
        }
    }
}

/// Answers with the value, or with the error that the test wants, or with "no such file".
macro_rules! answer {
    ($reply:ident, $errno:expr, $value:expr, $good:expr) => {
        match ($errno, $value) {
            (Some(errno), _) => $reply.error(errno as i32),
            (None, None) => $reply.error(Errno::ENOENT as i32),
            (None, Some(value)) => $good($reply, value),
        }
    };
}

impl Filesystem for Server {
    fn lookup(&mut self, _: &Request<'_>, _: u64, name: &OsStr, reply: ReplyEntry) {
        let store = &locked(&self.shared).store;
        let found = store.find(name).and_then(|ino| store.attributes(ino));
        answer!(reply, None::<Errno>, found, |reply: ReplyEntry, found| {
            reply.entry(&KEEP, &found, 0)
        });
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        let found = locked(&self.shared).store.attributes(ino);
        answer!(reply, None::<Errno>, found, |reply: ReplyAttr, found| reply
            .attr(&KEEP, &found));
    }

    fn setattr(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<u64>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<u32>,
        reply: ReplyAttr,
    ) {
        let store = &mut locked(&self.shared).store;
        if let (Some(file), Some(size)) = (store.files.get_mut(&ino), size) {
            file.length = size;
            file.pages.retain(|page, _| page * (PAGE as u64) < size);
        }
        let found = store.attributes(ino);
        answer!(reply, None::<Errno>, found, |reply: ReplyAttr, found| reply
            .attr(&KEEP, &found));
    }

    fn create(
        &mut self,
        _: &Request<'_>,
        _: u64,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let store = &mut locked(&self.shared).store;
        let ino = store.find(name).unwrap_or_else(|| store.add(name));
        let found = store.attributes(ino);
        answer!(reply, None::<Errno>, found, |reply: ReplyCreate, found| {
            reply.created(&KEEP, &found, 0, 0, 0);
        });
    }

    fn unlink(&mut self, _: &Request<'_>, _: u64, name: &OsStr, reply: ReplyEmpty) {
        let store = &mut locked(&self.shared).store;
        let found = store.find(name).and_then(|ino| store.files.remove(&ino));
        answer!(reply, None::<Errno>, found, |reply: ReplyEmpty, _| reply
            .ok());
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        offset: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        let offset = offset.unsigned_abs();
        self.act(
            Operation::Read,
            Box::new(move |store, errno| {
                let bytes = store.read(ino, offset, size as usize);
                answer!(reply, errno, bytes, |reply: ReplyData, bytes: Vec<u8>| {
                    reply.data(&bytes)
                });
            }),
        );
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        offset: i64,
        data: &[u8],
        _: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyWrite,
    ) {
        let mut bytes = data.to_owned();
        if locked(&self.shared).effect(Operation::Write) == Effect::Corrupt {
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
        let offset = offset.unsigned_abs();
        self.act(
            Operation::Write,
            Box::new(move |store, errno| {
                let written = errno
                    .is_none()
                    .then(|| store.write(ino, offset, &bytes))
                    .flatten();
                let length = u32::try_from(bytes.len()).unwrap_or_default();
                answer!(reply, errno, written, |reply: ReplyWrite, ()| reply
                    .written(length));
            }),
        );
    }

    fn fsync(&mut self, _: &Request<'_>, _: u64, _: u64, _: bool, reply: ReplyEmpty) {
        self.act(
            Operation::Fsync,
            Box::new(move |_, errno| {
                answer!(reply, errno, Some(()), |reply: ReplyEmpty, ()| reply.ok())
            }),
        );
    }

    fn flush(&mut self, _: &Request<'_>, _: u64, _: u64, _: u64, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&mut self, _: &Request<'_>, _: u64, _: u64, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn access(&mut self, _: &Request<'_>, _: u64, _: i32, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&mut self, _: &Request<'_>, _: u64, reply: ReplyStatfs) {
        let Numbers { blocks, free } = locked(&self.shared).numbers;
        self.act(
            Operation::Statfs,
            Box::new(move |_, errno| {
                answer!(reply, errno, Some(()), |reply: ReplyStatfs, ()| {
                    reply.statfs(blocks, free, free, 1 << 20, 1 << 20, 4096, 255, 4096);
                });
            }),
        );
    }

    fn readdir(&mut self, _: &Request<'_>, _: u64, _: u64, offset: i64, mut reply: ReplyDirectory) {
        let store = &locked(&self.shared).store;
        let own = [
            (ROOT, FileType::Directory, OsStr::new(".")),
            (ROOT, FileType::Directory, OsStr::new("..")),
        ];
        let files = store.files.iter();
        let files = files.map(|(ino, file)| (*ino, FileType::RegularFile, file.name.as_os_str()));
        let entries = own.into_iter().chain(files).zip(1..);
        for ((ino, kind, name), number) in entries.filter(|(_, number)| *number > offset) {
            if reply.add(ino, number, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
