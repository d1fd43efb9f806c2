//! The control thread: takes requests from the agent, hands looks to lanes, and says twice a second
//! that it lives and how old the operations in flight are. It owns all state of the prober and
//! never touches a watched path itself.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::mman::{MlockAllFlags, mlockall};

use crate::child::{Pipes, frame};
use crate::health::ballast::Order;
use crate::health::dir::{DirId, Role, path_text};
use crate::health::observation::{Mount, Operation};
use crate::probe::wire::{
    self, Answer, Kind, MAX_FRAME, Place, Request, VERSION, WirePath, device_of, role_of,
};

use super::kernel::{self, News};
use super::lane::{Done, Job, Lane, LaneKey, Running, Time};
use super::look::{Guard, KnownUuid, Outcome, Task, Tools, trouble};
use super::mount::Table;

/// Time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// The most that one gap between heartbeats ages an operation: twice the usual gap. Whatever goes
/// beyond was a pause of this process (stopped, suspended, starved), not of a disk.
const MAX_GAP: Duration = Duration::from_secs(1);

/// An operation in flight is reported from this age on.
const REPORTED_AGE: Duration = Duration::from_secs(1);

/// How long the greeting waits for the first mount table. That takes a millisecond, unless a file
/// system has to ask a dead disk for its part of it; then we begin without.
const TABLE_WAIT: Duration = Duration::from_secs(1);

/// How long a probe in flight may take to remove its file when the agent goes away.
const GRACE: Duration = Duration::from_millis(200);

/// What wakes the control thread from inside.
#[allow(clippy::large_enum_variant)] // nearly all messages are of the large one
enum Message {
    Done(Done),
    News(News),
}

/// A directory as the control thread knows it.
struct Watched {
    path: PathBuf,
    settings: Settings,
    pinned: Option<PathBuf>,
    /// As it was last reported.
    mount: Option<Mount>,
    uuid: Option<KnownUuid>,
    /// The kernel reports errors of its file system.
    errors_watched: bool,
    /// The last look had the read-only flag.
    read_only: bool,
    look: Option<Outstanding>,
}

/// What the agent says of a directory once.
#[derive(Clone, Copy)]
struct Settings {
    /// Which of the bookie's files are in it.
    role: Option<Role>,
    await_cookie: bool,
    require_mount: bool,
}

/// What the agent asks in a look.
#[derive(Clone, Copy)]
struct Question {
    kind: Kind,
    expected: Option<Place>,
    ballast: Order,
}

/// A look that the agent waits for.
#[derive(Clone, Copy)]
struct Outstanding {
    token: u64,
    asked: Question,
    lane: LaneKey,
}

/// Everything.
pub(super) struct Control {
    requests: File,
    answers: File,
    decoder: frame::Decoder,
    /// Answers of this turn, written at its end.
    out: Vec<u8>,
    time: Time,
    tools: Arc<Tools>,
    messages: Receiver<Message>,
    sender: Sender<Message>,
    wake: Arc<EventFd>,
    table: Option<Table>,
    dirs: BTreeMap<DirId, Watched>,
    lanes: BTreeMap<LaneKey, Lane>,
    last_heartbeat: Duration,
    /// Something was said since then.
    has_spoken: bool,
    last_token: u64,
}

impl Control {
    /// Ready to run, with the mount table being watched.
    ///
    /// # Errors
    /// The system refuses us descriptors or a thread.
    pub(super) fn start(pipes: Pipes, tools: Tools) -> io::Result<Control> {
        let (sender, messages) = mpsc::channel();
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_flags(flags)?);
        let time = Time::start();
        let (tell, bell) = (sender.clone(), Arc::clone(&wake));
        kernel::watch(time.clock.clone(), tools.errors.clone(), move |news| {
            let listened = tell.send(Message::News(news)).is_ok();
            let _ = bell.write(1);
            listened
        })?;
        let file = |fd: OwnedFd| File::from(fd);
        Ok(Control {
            requests: file(pipes.requests),
            answers: file(pipes.answers),
            decoder: frame::Decoder::default(),
            out: Vec::new(),
            time,
            tools: Arc::new(tools),
            messages,
            sender,
            wake,
            table: None,
            dirs: BTreeMap::new(),
            lanes: BTreeMap::new(),
            last_heartbeat: Duration::ZERO,
            has_spoken: false,
            last_token: 0,
        })
    }

    /// Serves until the agent closes its end. Blocks only while the agent reads nothing.
    ///
    /// # Errors
    /// The pipes are broken, or the agent speaks another version.
    pub(super) fn run(mut self) -> io::Result<()> {
        // With the table known, the first looks already go to the right lanes and may write.
        if let Ok(message) = self.messages.recv_timeout(TABLE_WAIT) {
            self.take(message)?;
        }
        self.say(&Answer::Greeting { version: VERSION })?;
        loop {
            for lane in self.lanes.values_mut() {
                lane.hand_over();
            }
            self.write_answers()?;
            let now = self.time.clock.elapsed();
            if self.last_heartbeat + HEARTBEAT <= now {
                self.read_messages()?;
                self.heartbeat(now)?;
                continue;
            }
            let asked = self.wait(self.last_heartbeat + HEARTBEAT - now)?;
            if asked && !self.read_requests()? {
                self.let_probes_end();
                return Ok(());
            }
            self.read_messages()?;
        }
    }

    /// Waits for a request, a message or the time; true when there is something to read from the
    /// agent.
    fn wait(&self, limit: Duration) -> io::Result<bool> {
        // Rounded up, so that the last fraction of a millisecond is not spent turning.
        let limit = limit + Duration::from_millis(1);
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut polled = [
            PollFd::new(self.requests.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut polled, limit) {
            Ok(_) => Ok(polled[0].any().unwrap_or(true)),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes in what the agent wrote; false when it closed its end.
    fn read_requests(&mut self) -> io::Result<bool> {
        let mut piece = [0; 4096];
        let count = self.requests.read(&mut piece)?;
        self.decoder.push(&piece[..count]);
        while let Some(body) = self.decoder.next_frame(MAX_FRAME)? {
            self.serve(wire::decode(&body)?)?;
        }
        Ok(0 < count)
    }

    fn read_messages(&mut self) -> io::Result<()> {
        let _ = self.wake.read();
        while let Ok(message) = self.messages.try_recv() {
            self.take(message)?;
        }
        Ok(())
    }

    fn take(&mut self, message: Message) -> io::Result<()> {
        match message {
            Message::Done(done) => self.done(done),
            Message::News(News::Mounts(table)) => {
                self.table = Some(table);
                self.mounts_changed()
            }
            Message::News(News::FileSystemError) => self.file_system_error(),
        }
    }

    fn serve(&mut self, request: Request) -> io::Result<()> {
        match request {
            Request::Greeting {
                version,
                lock_memory,
            } => {
                if version != VERSION {
                    return Err(io::Error::other("the agent speaks another version"));
                }
                if lock_memory {
                    // The agent does the same, and reports what keeps both from it.
                    let _ = mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE);
                }
                Ok(())
            }
            Request::Watch {
                dir,
                path,
                role,
                await_cookie,
                require_mount,
                pinned,
            } => {
                let settings = Settings {
                    role: role_of(role),
                    await_cookie,
                    require_mount,
                };
                self.watch(DirId(dir), path, settings, pinned)
            }
            Request::Unwatch { dir } => {
                self.dirs.remove(&DirId(dir));
                self.drop_idle_lanes();
                Ok(())
            }
            Request::Resolve { dir } => {
                if let Some(watched) = self.dirs.get_mut(&DirId(dir)) {
                    watched.pinned = None;
                }
                Ok(())
            }
            Request::Look {
                dir,
                kind,
                expected,
                ballast,
            } => {
                let asked = Question {
                    kind,
                    expected,
                    ballast: ballast.into(),
                };
                self.look(DirId(dir), asked)
            }
        }
    }

    fn watch(
        &mut self,
        dir: DirId,
        path: WirePath,
        settings: Settings,
        pinned: Option<WirePath>,
    ) -> io::Result<()> {
        let path = PathBuf::from(path);
        match self.dirs.get_mut(&dir) {
            Some(watched) if watched.path == path => watched.settings = settings,
            _ => {
                let watched = Watched {
                    path,
                    settings,
                    pinned: pinned.map(PathBuf::from),
                    mount: None,
                    uuid: None,
                    errors_watched: false,
                    read_only: false,
                    look: None,
                };
                self.dirs.insert(dir, watched);
            }
        }
        self.report_mount(dir)
    }

    /// A second request for a directory that is being looked at counts if it asks for more; then
    /// it takes the place of the first.
    fn look(&mut self, dir: DirId, asked: Question) -> io::Result<()> {
        match self.dirs.get(&dir) {
            Some(watched) if watched.look.is_none_or(|look| look.asked.kind < asked.kind) => {
                self.hand_out(dir, asked)
            }
            _ => Ok(()),
        }
    }

    /// Gives a look to the lane that the directory belongs to now.
    fn hand_out(&mut self, dir: DirId, asked: Question) -> io::Result<()> {
        let Some(watched) = self.dirs.get_mut(&dir) else {
            return Ok(());
        };
        self.last_token += 1;
        let token = self.last_token;
        let lane = watched.lane(dir);
        watched.look = Some(Outstanding { token, asked, lane });
        let task = watched.task(asked);
        match self.lane(lane) {
            Ok(lane) => {
                lane.give(Job { token, dir, task });
                Ok(())
            }
            Err(error) => {
                let detail = format!("no thread for {}: {error}", path_text(&task.path));
                let outcome = trouble(&detail, error.raw_os_error());
                self.looked(dir, outcome)
            }
        }
    }

    fn lane(&mut self, key: LaneKey) -> io::Result<&mut Lane> {
        match self.lanes.entry(key) {
            Entry::Occupied(lane) => Ok(lane.into_mut()),
            Entry::Vacant(vacant) => {
                let (tell, bell) = (self.sender.clone(), Arc::clone(&self.wake));
                let lane = Lane::start(key, &self.time, &self.tools, move |done, at_once| {
                    let _ = tell.send(Message::Done(done));
                    if at_once {
                        let _ = bell.write(1);
                    }
                })?;
                Ok(vacant.insert(lane))
            }
        }
    }

    fn done(&mut self, done: Done) -> io::Result<()> {
        if let Some(lane) = self.lanes.get_mut(&done.lane) {
            lane.pending = lane.pending.saturating_sub(1);
        }
        let watched = self.dirs.get_mut(&done.dir);
        let look = watched.as_ref().and_then(|watched| watched.look);
        let current = look.filter(|look| look.token == done.token);
        if let (Some(watched), Some(look)) = (watched, current) {
            match done.outcome {
                Outcome::Resolved(canonical) => {
                    watched.pinned = Some(canonical);
                    self.report_mount(done.dir)?;
                    self.hand_out(done.dir, look.asked)?;
                }
                outcome => self.looked(done.dir, outcome)?,
            }
        }
        let now = self.dirs.get(&done.dir).map(|each| each.lane(done.dir));
        if now != Some(done.lane) {
            self.drop_idle_lanes();
        }
        Ok(())
    }

    fn looked(&mut self, dir: DirId, outcome: Outcome) -> io::Result<()> {
        let Some(watched) = self.dirs.get_mut(&dir) else {
            return Ok(());
        };
        let Outcome::Looked(found) = outcome else {
            return Ok(());
        };
        watched.look = None;
        watched.uuid = found.uuid.or(watched.uuid.take());
        watched.errors_watched = found.errors_watched.unwrap_or(watched.errors_watched);
        let table = watched.mount.as_ref().is_some_and(|mount| mount.read_only);
        let news = found.read_only && !watched.read_only && !table;
        watched.read_only = found.read_only;
        self.say(&Answer::Looked {
            dir: dir.0,
            look: found.look.into(),
            reading: found.reading,
            errors_watched: found.errors_watched,
        })?;
        if news {
            self.signal(dir, "statvfs says that the file system is read-only")?;
        }
        Ok(())
    }

    /// Reports the new mount of each directory whose mount changed. A look that is under way on
    /// the file system that was there before may never end: it is made again where the directory
    /// is now.
    fn mounts_changed(&mut self) -> io::Result<()> {
        let ids: Vec<DirId> = self.dirs.keys().copied().collect();
        for dir in ids {
            self.report_mount(dir)?;
            let Some(watched) = self.dirs.get(&dir) else {
                continue;
            };
            if let Some(look) = watched.look
                && let (LaneKey::FileSystem(_), now) = (look.lane, watched.lane(dir))
                && look.lane != now
            {
                self.hand_out(dir, look.asked)?;
            }
        }
        self.drop_idle_lanes();
        Ok(())
    }

    /// The kernel does not say here which file system it was.
    fn file_system_error(&mut self) -> io::Result<()> {
        let dirs = self.dirs.iter().filter(|(_, each)| each.errors_watched);
        let dirs: Vec<DirId> = dirs.map(|(dir, _)| *dir).collect();
        let what = "the kernel reports an error of a watched file system";
        dirs.into_iter().try_for_each(|dir| self.signal(dir, what))
    }

    /// Says what the mount table has for a directory, if that is news; a change is a reason for
    /// the agent to look at once.
    fn report_mount(&mut self, dir: DirId) -> io::Result<()> {
        let Some((table, watched)) = self.table.as_ref().zip(self.dirs.get_mut(&dir)) else {
            return Ok(());
        };
        let path = watched.pinned.as_ref().unwrap_or(&watched.path);
        let Some(entry) = table.covering(path) else {
            return Ok(());
        };
        // Asked before the facts about the device are, which cost more: other mounts than ours
        // may come and go all the time.
        if watched.mount.as_ref().is_some_and(|mount| entry.is(mount)) {
            return Ok(());
        }
        let mount = entry.to_mount(self.tools.facts.medium(entry));
        let before = watched.mount.replace(mount.clone());
        self.say(&Answer::Mounted {
            dir: dir.0,
            mount: (&mount).into(),
        })?;
        match before {
            Some(before) => self.signal(dir, &what_changed(&before, &mount)),
            None => Ok(()),
        }
    }

    fn drop_idle_lanes(&mut self) {
        let used: Vec<LaneKey> = self
            .dirs
            .iter()
            .map(|(dir, each)| each.lane(*dir))
            .collect();
        self.lanes
            .retain(|key, lane| 0 < lane.pending || used.contains(key));
    }

    /// Says that the prober lives, and which looks wait for an operation that is overdue.
    fn heartbeat(&mut self, now: Duration) -> io::Result<()> {
        let gap = now.saturating_sub(self.last_heartbeat).min(MAX_GAP);
        self.last_heartbeat = now;
        self.time.attend(gap);
        // Whatever was said since the last one says as well that we are here.
        if !std::mem::take(&mut self.has_spoken) {
            self.say(&Answer::Heartbeat)?;
        }
        let mut overdue: BTreeMap<LaneKey, (Running, Duration)> = BTreeMap::new();
        for (key, lane) in &mut self.lanes {
            if let Some((running, age)) = lane.in_flight(gap)
                && REPORTED_AGE <= age
            {
                overdue.insert(*key, (running, age));
            }
        }
        let mut waiting = Vec::new();
        for (dir, watched) in &self.dirs {
            if let Some(look) = watched.look
                && let Some((running, age)) = overdue.get(&look.lane)
            {
                waiting.push(Answer::InFlight {
                    dir: dir.0,
                    operation: wire::operation_code(running.operation),
                    age: *age,
                    device_writes: false,
                    behind: (running.dir != *dir).then_some(running.dir.0),
                });
            }
        }
        waiting.iter().try_for_each(|answer| self.say(answer))
    }

    fn signal(&mut self, dir: DirId, what: &str) -> io::Result<()> {
        self.say(&Answer::Signal {
            dir: dir.0,
            what: what.to_owned(),
        })
    }

    fn say(&mut self, answer: &Answer) -> io::Result<()> {
        wire::encode(answer, &mut self.out)
    }

    fn write_answers(&mut self) -> io::Result<()> {
        self.has_spoken |= !self.out.is_empty();
        self.answers.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Gives probes in flight a moment to remove their files.
    fn let_probes_end(&mut self) {
        let end = self.time.clock.elapsed() + GRACE;
        let probing = |lane: &mut Lane| {
            let running = lane.in_flight(Duration::ZERO);
            running.is_some_and(|(running, _)| {
                (Operation::Create..=Operation::Unlink).contains(&running.operation)
            })
        };
        while self.lanes.values_mut().any(probing) {
            let left = end.saturating_sub(self.time.clock.elapsed());
            if left.is_zero() || self.messages.recv_timeout(left).is_err() {
                return;
            }
        }
    }
}

impl Watched {
    fn lane(&self, dir: DirId) -> LaneKey {
        match (&self.pinned, &self.mount) {
            (Some(_), Some(mount)) => LaneKey::FileSystem(mount.device),
            _ => LaneKey::Unresolved(dir),
        }
    }

    fn task(&self, asked: Question) -> Task {
        let mount = self.mount.as_ref();
        let is_mount_point = mount.is_some_and(|mount| Some(&mount.point) == self.pinned.as_ref());
        Task {
            path: self.path.clone(),
            pinned: self.pinned.clone(),
            kind: asked.kind,
            role: self.settings.role,
            ballast: asked.ballast,
            await_cookie: self.settings.await_cookie,
            guard: Guard {
                expected: asked
                    .expected
                    .map(|place| (device_of(place.device), place.mount_id)),
                mount_id: mount.map(|mount| mount.id),
                mount_missing: self.settings.require_mount && !is_mount_point,
            },
            uuid: self.uuid.clone(),
            source: mount.map(|mount| mount.source.clone()),
            fs_type: mount.map(|mount| mount.fs_type.clone()),
        }
    }
}

fn what_changed(before: &Mount, now: &Mount) -> String {
    if before.id != now.id || before.device != now.device || before.point != now.point {
        format!(
            "{} ({}) is mounted at {} instead of {} at {}",
            now.source,
            now.fs_type,
            path_text(&now.point),
            before.source,
            path_text(&before.point)
        )
    } else {
        format!("mount options became {}", now.options)
    }
}
