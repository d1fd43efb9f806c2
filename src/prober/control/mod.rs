//! The control thread: takes requests from the agent, hands looks to lanes, and says twice a second
//! that it lives and how old the operations in flight are. It owns all state of the prober and
//! never touches a watched path itself.

mod held;
mod news;
mod pulse;
mod requests;
mod watched;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::child::{Pipes, frame};
use crate::health::dir::DirId;
use crate::health::observation::Operation;
use crate::probe::wire::{self, Answer, KernelSource, MAX_FRAME, VERSION};

use super::errors::Counter;
use super::kernel::{self, FsId, News, Wanted};
use super::lane::{Done, Lane, LaneKey, Time};
use super::look::{Found, Outcome, Tools};
use super::mount::Table;
use super::pressure;

use self::news::Below;
use self::pulse::Pulse;
use self::watched::Watched;

/// Time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// The most that one gap between heartbeats ages an operation: twice the usual gap. Whatever goes
/// beyond was a pause of this process (stopped, suspended, starved), not of a disk.
const MAX_GAP: Duration = Duration::from_secs(1);

/// An operation in flight is reported from this age on.
const REPORTED_AGE: Duration = Duration::from_secs(1);

/// A look that took so long is told with the pressure: below it none is slow, if it is not set lower
/// (`health::outlier`), and the file costs a fraction of a millisecond.
const PRESSURE_FROM: Duration = Duration::from_millis(10);

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
    /// What is under the mounts of the table, by their ids, as far as somebody has asked.
    below: BTreeMap<u64, Below>,
    dirs: BTreeMap<DirId, Watched>,
    lanes: BTreeMap<LaneKey, Lane>,
    kernel: Arc<Wanted>,
    /// What file systems have counted, in words.
    recorded: BTreeMap<Counter, String>,
    pulse: Pulse,
    /// What is under the directories has changed since it was last followed.
    below_changed: bool,
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
        let kernel = kernel::watch(time.clock.clone(), tools.errors.clone(), move |news| {
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
            below: BTreeMap::new(),
            dirs: BTreeMap::new(),
            lanes: BTreeMap::new(),
            kernel,
            recorded: BTreeMap::new(),
            pulse: Pulse::default(),
            below_changed: false,
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
            // Once a turn and not for each directory: hundreds come at once, and each costs them all.
            if std::mem::take(&mut self.below_changed) {
                self.follow();
            }
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
                self.below.clear();
                self.mounts_changed()
            }
            Message::News(News::FileSystemErrors(of)) => self.file_system_errors(&of),
            Message::News(News::Counted(news)) => self.counted(news),
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
                Outcome::Looked(found) => self.looked(done.dir, found)?,
            }
        }
        let now = self.dirs.get(&done.dir).map(|each| each.lane(done.dir));
        if now != Some(done.lane) {
            self.drop_idle_lanes();
        }
        Ok(())
    }

    fn say_look(&mut self, dir: DirId, mut found: Found) -> io::Result<()> {
        let Some(watched) = self.dirs.get_mut(&dir) else {
            return Ok(());
        };
        if PRESSURE_FROM <= found.look.durations.values().sum::<Duration>() {
            found.look.pressure = pressure::read().ok();
        }
        if found.look.probed && found.look.failure.is_none() {
            watched.unexplained = false;
            if let Some(written) = self.pulse.written(&watched.stack.own) {
                watched.unmoved.probed(written);
            }
        }
        watched.look = None;
        watched.uuid = found.uuid.or(watched.uuid.take());
        let sources = match found.errors_watched {
            Some(result) => {
                let identity = found.look.identity.as_ref().filter(|_| result.is_ok());
                watched.fsid = identity.map(|seen| FsId::of(seen.fsid));
                watched.source(KernelSource::Fanotify, result.err())
            }
            None => false,
        };
        let table = watched.mount.as_ref().is_some_and(|mount| mount.read_only);
        let news = found.read_only && !watched.read_only && !table;
        watched.read_only = found.read_only;
        self.say(&Answer::Looked {
            dir: dir.0,
            look: found.look.into(),
            reading: found.reading,
        })?;
        if sources {
            self.say_sources(dir)?;
        }
        if news {
            self.signal(dir, "statvfs says that the file system is read-only")?;
        }
        Ok(())
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
