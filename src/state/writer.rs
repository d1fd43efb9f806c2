//! The writer child: owns the store's file and does what the agent asks, in order, on its main
//! thread. That thread may hang on a dead disk for ever; a second one reads the pipe and, when the
//! agent is gone, gives the state directory free for the next one. Nothing here may wait for the
//! agent, which may be killed at any moment.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use super::StoreError;
use super::place::{FileId, Identity, Lock, Place};
use super::tables::{OpenError, Retention, SEQ_LIMIT, Tables};
use super::wire::{self, Answer, FRAME_LIMIT, Hello, Numbered, Ready, Request, VERSION};
use crate::child::{self, Pipes, frame};
use crate::clock::Clock;
use crate::health::dir::shown;
use crate::health::moment::Elapsed;

/// The writer says that it is not stuck at least so often. The agent takes silence of twice that
/// and a bit for a hang: durability lost has to be known within a second.
pub(super) const BEAT: Duration = Duration::from_millis(400);

/// Between two tries to open the file. A try costs little, and an operator who freed the disk
/// should not wait.
const RETRY: Duration = Duration::from_secs(2);

/// How long a lock that is held is tried again before it is an answer: a killed agent's writer
/// needs a moment to finish what it has read.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);
const LOCK_TURN: Duration = Duration::from_millis(20);

/// How often old events are looked for; each write does it as well.
const RETENTION_TURN: Duration = Duration::from_secs(60);

/// Requests that were read and not begun. More wait in the pipe and in the agent.
const READ_AHEAD: usize = 64;

/// Most writes in one transaction: what can arrive while the transaction before it is synced.
const BATCH: usize = 256;

mod textfile;

use textfile::Textfile;

/// The pipe to the agent, shared by those who say something.
struct Answers(Mutex<File>);

impl Answers {
    /// An agent that is gone hears nothing; what it asked for is done all the same.
    fn say(&self, answer: &Answer) {
        if let Ok(framed) = wire::encode(answer) {
            let mut pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = pipe.write_all(&framed);
        }
    }
}

/// The lock of the state directory, shared with the thread that lets go of it.
#[derive(Debug, Default)]
struct LockSlot(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    lock: Option<Arc<Lock>>,
    agent_is_gone: bool,
}

impl LockSlot {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> Option<Arc<Lock>> {
        self.held().lock.clone()
    }

    fn keep(&self, lock: Option<Lock>) {
        let mut held = self.held();
        if !held.agent_is_gone {
            held.lock = lock.map(Arc::new);
        }
    }

    fn agent_is_gone(&self) {
        let mut held = self.held();
        held.agent_is_gone = true;
        if let Some(lock) = held.lock.take() {
            // The main thread may be stuck with it.
            lock.release();
        }
    }
}

/// Becomes the writer: `dirkeeper __child writer STATE_DIR`. Returns when the agent is gone and
/// everything that it sent is done.
#[must_use]
pub fn main() -> ExitCode {
    let ended = match std::env::args_os().nth(3) {
        Some(state_dir) => serve(Path::new(&state_dir)),
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    if ended.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn serve(state_dir: &Path) -> io::Result<()> {
    let pipes = Pipes::take()?;
    // A terminal's or a supervisor's signals mean the agent, which still has things to write.
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .collect();
    signals.thread_block()?;
    let mut requests = File::from(pipes.requests);
    let answers = Arc::new(Answers(Mutex::new(File::from(pipes.answers))));
    let mut writer = Writer {
        place: Place::new(state_dir),
        clock: Clock::start(),
        answers: Arc::clone(&answers),
        agent: None,
        lock: Arc::default(),
        wants_contents: false,
        retention: Retention {
            bytes: 0,
            age: Duration::ZERO,
        },
        open: None,
        session: 0,
        last_seq: 0,
        had_store: false,
        store_id: None,
        short: None,
        beat_at: Duration::ZERO,
        retry_at: Duration::ZERO,
        retention_at: Duration::ZERO,
    };
    writer.say(&Answer::Greeting { version: VERSION });
    let Some(greeting) = frame::read(&mut requests, FRAME_LIMIT)? else {
        return Ok(());
    };
    match wire::decode(&greeting)? {
        Request::Hello(hello) if hello.version == VERSION => writer.meet(&hello),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    }
    let (sender, receiver) = mpsc::sync_channel(READ_AHEAD);
    let lock = Arc::clone(&writer.lock);
    let textfile = Textfile::start(answers)?;
    let (ending, ended) = mpsc::channel::<()>();
    // The reader needs no more stack than a frame's header and the decoder.
    thread::Builder::new()
        .name("requests".to_owned())
        .stack_size(128 * 1024)
        .spawn(move || {
            read_requests(requests, sender, &lock, textfile);
            drop(ending);
        })?;
    writer.run(&receiver);
    // The store is closed before anything else may take time.
    drop(writer);
    let _ = ended.recv();
    Ok(())
}

/// Reads until the agent closes its end, and then gives the directory free, also when the main
/// thread is stuck. A textfile goes its own way.
fn read_requests(
    mut requests: File,
    sender: SyncSender<Request>,
    lock: &LockSlot,
    mut textfile: Textfile,
) {
    while let Ok(Some(body)) = frame::read(&mut requests, FRAME_LIMIT) {
        match wire::decode(&body) {
            Ok(Request::Text(part)) => textfile.take(part),
            Ok(request) => {
                if sender.send(request).is_err() {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    lock.agent_is_gone();
    // The main thread ends with what it has read.
    drop(sender);
    textfile.end();
}

struct Writer {
    place: Place,
    clock: Clock,
    answers: Arc<Answers>,
    agent: Option<Identity>,
    lock: Arc<LockSlot>,
    wants_contents: bool,
    retention: Retention,
    open: Option<Tables>,
    /// Rises with each opening.
    session: u32,
    /// The highest number seen in a store.
    last_seq: u64,
    had_store: bool,
    /// Which file is open.
    store_id: Option<FileId>,
    short: Option<String>,
    beat_at: Elapsed,
    retry_at: Elapsed,
    retention_at: Elapsed,
}

impl Writer {
    fn meet(&mut self, hello: &Hello) {
        if hello.lock_memory {
            // The agent does the same, and reports what keeps both from it.
            let _ = child::lock_memory();
        }
        self.agent = Identity::of(hello.agent);
        self.last_seq = hello.last_seq;
        self.had_store = 0 < hello.last_seq;
        self.wants_contents = hello.wants_contents;
        self.retention = Retention {
            bytes: hello.retention_bytes,
            age: Duration::from_millis(hello.retention_age_millis),
        };
    }

    fn say(&self, answer: &Answer) {
        self.answers.say(answer);
    }

    fn run(&mut self, requests: &Receiver<Request>) {
        loop {
            if self.open.is_none() && self.retry_at <= self.clock.elapsed() {
                self.try_to_open();
            }
            let wait = self.beat_at.saturating_sub(self.clock.elapsed());
            match requests.recv_timeout(wait) {
                Ok(first) => self.take(first, requests),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.beat_at <= self.clock.elapsed() {
                self.beat();
                self.beat_at = self.clock.elapsed() + BEAT;
            }
        }
    }

    fn try_to_open(&mut self) {
        match self.open() {
            Ok(ready) => self.say(&Answer::Ready(ready)),
            Err(error) => self.fail(error),
        }
    }

    /// Gives the file up until it can be opened again, which also deals with damage.
    fn fail(&mut self, error: StoreError) {
        self.open = None;
        self.short = None;
        self.retry_at = self.clock.elapsed() + RETRY;
        self.say(&Answer::Trouble(error));
    }

    fn open(&mut self) -> Result<Ready, StoreError> {
        self.place.prepare()?;
        self.take_lock()?;
        // What can be read is told before anything is written, which a full, read-only or frozen
        // file system may refuse.
        let damage = self.look()?;
        if let (Some(lock), Some(agent)) = (self.lock.lock(), &self.agent) {
            lock.sign(agent);
        }
        let mut started_afresh = None;
        let tables = match self.place.store(true)? {
            Some(file) => match damage.map_or_else(|| Tables::open(file), Err) {
                Ok(tables) => tables,
                Err(OpenError::Store(error)) => return Err(error),
                Err(OpenError::Corrupted(text)) => {
                    let kept = self.place.keep_aside(self.clock.now().wall)?;
                    started_afresh = Some(format!(
                        "the state store was damaged ({text}) and is kept as {}",
                        shown(&kept)
                    ));
                    self.create()?
                }
            },
            None if self.had_store => {
                started_afresh = Some("the state store was removed".to_owned());
                self.create()?
            }
            None => self.create()?,
        };
        self.had_store = true;
        self.last_seq = tables.last_seq();
        if self.wants_contents {
            self.tell_contents(&tables).map_err(OpenError::into_store)?;
        }
        self.open = Some(tables);
        self.store_id = self.place.store_id();
        self.session += 1;
        Ok(Ready {
            session: self.session,
            last_seq: self.last_seq,
            started_afresh,
        })
    }

    fn take_lock(&mut self) -> Result<(), StoreError> {
        let started = self.clock.elapsed();
        while self.lock.lock().is_none() {
            match self.place.lock(self.agent.as_ref()) {
                Ok(lock) => {
                    self.lock.keep(lock);
                    break;
                }
                Err(error @ (StoreError::Locked { .. } | StoreError::Busy)) => {
                    if started + LOCK_PATIENCE < self.clock.elapsed() {
                        return Err(error);
                    }
                    thread::park_timeout(LOCK_TURN);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the store without writing to it, and says what is wrong with it.
    fn look(&mut self) -> Result<Option<OpenError>, StoreError> {
        let Some(file) = self.place.store(false)? else {
            return Ok(None);
        };
        let tables = match Tables::look(&file, false) {
            Ok(tables) => tables,
            Err(damage @ OpenError::Corrupted(_)) => return Ok(Some(damage)),
            Err(OpenError::Store(error)) => return Err(error),
        };
        self.had_store = true;
        if tables.last_seq() < SEQ_LIMIT {
            self.last_seq = self.last_seq.max(tables.last_seq());
        }
        if self.wants_contents {
            // Damage that is met here is met by the thorough opening as well.
            let _ = self.tell_contents(&tables);
        }
        Ok(None)
    }

    fn tell_contents(&mut self, tables: &Tables) -> Result<(), OpenError> {
        let left_out = tables.contents(|part| self.say(&Answer::Contents(part)))?;
        let last_seq = tables.last_seq();
        self.say(&Answer::ContentsEnd { last_seq, left_out });
        self.wants_contents = false;
        Ok(())
    }

    fn create(&mut self) -> Result<Tables, StoreError> {
        let file = self.place.new_store()?;
        // Numbers go on from the store before, if there was one.
        let tables = Tables::create(file, self.last_seq).map_err(OpenError::into_store)?;
        self.place.install()?;
        Ok(tables)
    }

    /// Serves this request and those that wait behind it.
    fn take(&mut self, first: Request, requests: &Receiver<Request>) {
        let mut writes = Vec::new();
        let mut reads = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(request) = next.take() {
            match request {
                // Void ones are repeated by the agent after the opening that it has been told of.
                Request::Write(numbered) if numbered.session == self.session => {
                    bytes += numbered.write.size();
                    writes.push(numbered);
                }
                Request::Events { id, since, limit } => reads.push((id, since, limit)),
                Request::Write(_) | Request::Hello(_) | Request::Text(_) => {}
            }
            if writes.len() < BATCH && bytes < FRAME_LIMIT {
                next = requests.try_recv().ok();
            }
        }
        if !writes.is_empty() {
            self.write(&writes);
        }
        for (id, since, limit) in reads {
            let page = match &self.open {
                Some(tables) => tables.events(since, limit as usize),
                None => Err(StoreError::Failed("it is not open".to_owned())),
            };
            self.say(&Answer::Events { id, page });
        }
    }

    fn write(&mut self, writes: &[Numbered]) {
        let now = self.clock.now();
        let Some(tables) = &mut self.open else {
            return;
        };
        match tables.write(writes, self.retention, now.wall) {
            Ok(written) => {
                self.last_seq = tables.last_seq();
                let last_seq = self.last_seq;
                for ticket in written.number_taken {
                    self.say(&Answer::NumberTaken { ticket });
                }
                if let Some(last) = writes.last() {
                    let ticket = last.ticket;
                    self.say(&Answer::Durable { ticket, last_seq });
                }
                if 0 < written.dropped_pending {
                    let events = written.dropped_pending;
                    self.say(&Answer::DroppedPending { events });
                }
                if written.more_to_drop {
                    self.retention_at = now.elapsed;
                }
            }
            Err(error) => self.fail(error),
        }
    }

    /// Asks whether writing is still possible, drops what is too old, and says that this is alive.
    fn beat(&mut self) {
        if let Some(tables) = &self.open {
            if self.place.store_id() != self.store_id {
                let text = "the state store was removed or replaced".to_owned();
                return self.fail(StoreError::Failed(text));
            }
            match self.place.check() {
                Ok(short) if short == self.short => {}
                Ok(short) => {
                    self.short.clone_from(&short);
                    self.say(&Answer::Room { short });
                }
                Err(error) => return self.fail(error),
            }
            let now = self.clock.now();
            if self.retention_at <= now.elapsed {
                self.retention_at = now.elapsed + RETENTION_TURN;
                match tables.has_excess(self.retention, now.wall) {
                    Ok(true) => self.write(&[]),
                    Ok(false) => {}
                    Err(error) => return self.fail(error),
                }
            }
        }
        self.say(&Answer::Alive);
    }
}
