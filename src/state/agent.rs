//! What the agent knows of its writer, and what it has for it: shared by the handles and the task
//! that talks to the child. Locked for moments only, never while anything is awaited.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot, watch};

use super::queue::Queue;
use super::wire::{Answer, Contents, EventPage, Hello, Numbered, Ready, Request, VERSION, Write};
use super::{Appended, Opened, StoreError, StoreHealth, StoreOptions, StoredEvent, WRITE_LIMIT};
use crate::clock::Clock;
use crate::health::moment::Elapsed;

/// Reads that wait for an answer at the same time: more than the HTTP server lets in.
const READS_LIMIT: usize = 16;

/// Notes kept for [`Opened::problems`]: one for each time that the store was started afresh.
const NOTES_LIMIT: usize = 8;

#[derive(Debug)]
pub(super) struct Shared {
    core: Mutex<Core>,
    clock: Clock,
    /// There is something to send, or to stop.
    work: Notify,
    /// The writer said something about the file.
    news: watch::Sender<()>,
}

impl Shared {
    pub(super) fn new(clock: Clock) -> Shared {
        Shared {
            core: Mutex::default(),
            clock,
            work: Notify::new(),
            news: watch::Sender::new(()),
        }
    }

    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this holds, or the store is stopped.
    pub(super) async fn wait_for(&self, holds: fn(&Core) -> bool) {
        let mut news = self.news.subscribe();
        loop {
            {
                let core = self.core();
                if holds(&core) || core.stopped {
                    return;
                }
            }
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    /// Resolves when there may be something to send, or to stop.
    pub(super) async fn work(&self) {
        self.work.notified().await;
    }

    /// Queues a write and gives what resolves when it is durable; `None` when that is not to be
    /// expected in time.
    pub(super) fn submit_and_wait(
        &self,
        write: Write,
    ) -> Option<(u64, oneshot::Receiver<Appended>)> {
        let submitted = self.core().submit(write);
        self.work.notify_one();
        submitted
    }

    /// Queues a write of a pin.
    pub(super) fn submit_pin(&self, key: &[u8], write: Write) {
        {
            let mut core = self.core();
            core.queue.forget_pin(key);
            core.submit(write);
        }
        self.work.notify_one();
    }

    /// Queues an acknowledgement, unless the event itself was not sent yet.
    pub(super) fn acknowledge(&self, listener: &str, seq: u64) {
        {
            let mut core = self.core();
            if core.queue.cancel_delivery(listener, seq) {
                return;
            }
            core.submit(Write::Acknowledge {
                listener: listener.into(),
                seq,
            });
        }
        self.work.notify_one();
    }

    /// Asks for a page of events.
    ///
    /// # Errors
    /// The store is not open, or too many are asking.
    pub(super) fn read(&self, since: u64, limit: usize) -> Result<(u64, PageReceiver), StoreError> {
        let asked = self.core().ask(since, limit);
        self.work.notify_one();
        asked
    }

    pub(super) fn stop(&self) {
        {
            let mut core = self.core();
            core.stopped = true;
            core.queue.release_waiters();
            core.reads.clear();
        }
        self.work.notify_one();
        self.news.send_replace(());
    }

    /// Takes in what the writer says.
    pub(super) fn take(&self, answer: Answer) {
        let tells = matches!(
            answer,
            Answer::ContentsEnd { .. } | Answer::Ready(_) | Answer::Trouble(_)
        );
        self.core().take(answer, self.clock.elapsed());
        if tells {
            self.news.send_replace(());
        }
    }

    /// The writer is not there any more, or not yet.
    pub(super) fn writer_is_gone(&self, why: String) {
        self.core().change(Writer::Gone(why), self.clock.elapsed());
    }

    /// The writer should have said something.
    pub(super) fn writer_is_silent(&self) {
        self.core().silence(self.clock.elapsed());
    }

    pub(super) fn health(&self) -> StoreHealth {
        self.core().health(self.clock.elapsed())
    }
}

/// What a page of events arrives at.
pub(super) type PageReceiver = oneshot::Receiver<Result<EventPage, StoreError>>;

/// The writer as the agent sees it.
#[derive(Debug, Default, PartialEq)]
enum Writer {
    #[default]
    Starting,
    Opening,
    Open {
        session: u32,
    },
    Closed(StoreError),
    Gone(String),
}

#[derive(Debug, Default)]
pub(super) struct Core {
    queue: Queue,
    reads: BTreeMap<u64, oneshot::Sender<Result<EventPage, StoreError>>>,
    last_read: u64,
    unsent_reads: VecDeque<Request>,
    pub(super) stopped: bool,
    writer: Writer,
    /// When `writer` became what it is, or fell silent.
    since: Elapsed,
    silent: bool,
    /// Not in order until this write is durable.
    late: Option<u64>,
    short: Option<String>,
    pub(super) restarts: u64,
    pub(super) abandoned: u64,
    last_seq: u64,
    /// Events that are too long, or whose number is taken.
    refused: u64,
    dropped_pending: u64,
    /// Parts of the contents that arrived.
    gathering: Contents,
    /// Contents that nobody took yet.
    contents: Option<Contents>,
    contents_known: bool,
    was_open: bool,
    pins_lost: bool,
    notes: VecDeque<String>,
}

impl Core {
    /// It is known whether the file can be opened.
    pub(super) fn has_verdict(&self) -> bool {
        matches!(self.writer, Writer::Open { .. } | Writer::Closed(_))
    }

    /// The file was opened at least once.
    pub(super) fn was_open(&self) -> bool {
        self.was_open
    }

    /// What is known of the contents and was not said before.
    pub(super) fn opened(&mut self) -> Opened {
        let contents = self.contents.take().unwrap_or_default();
        let failure = match &self.writer {
            Writer::Open { .. } => None,
            Writer::Closed(error) => Some(error.clone()),
            Writer::Starting | Writer::Opening => Some(StoreError::NoAnswer),
            Writer::Gone(why) => Some(StoreError::Failed(why.clone())),
        };
        let mut problems: Vec<String> = self.notes.drain(..).collect();
        problems.extend(failure.as_ref().map(StoreError::to_string));
        Opened {
            last_seq: self.last_seq,
            pending: pending(contents.events, contents.pending),
            pins: contents.pins,
            problems,
            pins_lost: self.pins_lost,
            complete: self.was_open,
            failure,
        }
    }

    pub(super) fn hello(&self, options: &StoreOptions) -> Request {
        let age = options.retention_age.as_millis();
        Request::Hello(Hello {
            version: VERSION,
            agent: std::process::id(),
            wants_contents: !self.contents_known,
            last_seq: self.last_seq,
            retention_bytes: options.retention_bytes,
            retention_age_millis: u64::try_from(age).unwrap_or(u64::MAX),
        })
    }

    /// The next message to the writer.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        let Writer::Open { session } = self.writer else {
            return None;
        };
        if let Some((ticket, write)) = self.queue.next_unsent() {
            let write = write.clone();
            return Some(Request::Write(Numbered {
                session,
                ticket,
                write,
            }));
        }
        self.unsent_reads.pop_front()
    }

    fn submit(&mut self, write: Write) -> Option<(u64, oneshot::Receiver<Appended>)> {
        if self.stopped {
            return None;
        }
        if WRITE_LIMIT < write.size() {
            self.refused += 1;
            return None;
        }
        let in_trouble =
            self.silent || self.late.is_some() || matches!(self.writer, Writer::Closed(_));
        if in_trouble {
            let ticket = self.queue.push(write, None);
            self.is_late(ticket);
            return None;
        }
        let (waiter, outcome) = oneshot::channel();
        Some((self.queue.push(write, Some(waiter)), outcome))
    }

    /// This write was not durable in time.
    pub(super) fn is_late(&mut self, ticket: u64) {
        if self.queue.oldest().is_some_and(|oldest| oldest <= ticket) {
            self.late = self.late.max(Some(ticket));
        }
    }

    fn ask(&mut self, since: u64, limit: usize) -> Result<(u64, PageReceiver), StoreError> {
        match &self.writer {
            Writer::Open { .. } if self.silent || self.stopped => return Err(StoreError::NoAnswer),
            Writer::Open { .. } => {}
            Writer::Closed(error) => return Err(error.clone()),
            Writer::Starting | Writer::Opening | Writer::Gone(_) => {
                return Err(StoreError::NoAnswer);
            }
        }
        if self.reads.len() == READS_LIMIT {
            return Err(StoreError::Failed("too many are reading it".to_owned()));
        }
        self.last_read += 1;
        let id = self.last_read;
        let (reader, page) = oneshot::channel();
        self.reads.insert(id, reader);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        self.unsent_reads
            .push_back(Request::Events { id, since, limit });
        Ok((id, page))
    }

    pub(super) fn forget_read(&mut self, id: u64) {
        self.reads.remove(&id);
        let other =
            |request: &Request| !matches!(request, Request::Events { id: of, .. } if *of == id);
        self.unsent_reads.retain(other);
    }

    fn change(&mut self, writer: Writer, now: Elapsed) {
        if self.writer == writer {
            return;
        }
        self.since = now;
        self.silent = false;
        self.short = None;
        self.queue.forget_sent();
        self.gathering = Contents::default();
        if !matches!(writer, Writer::Open { .. }) {
            self.reads.clear();
            self.unsent_reads.clear();
        }
        self.writer = writer;
        if matches!(self.writer, Writer::Closed(_)) {
            self.give_up_waiting();
        }
    }

    fn silence(&mut self, now: Elapsed) {
        if !self.silent {
            self.silent = true;
            self.since = now;
            self.give_up_waiting();
        }
    }

    fn give_up_waiting(&mut self) {
        self.queue.release_waiters();
        if let Some(newest) = self.queue.newest() {
            self.is_late(newest);
        }
    }

    fn take(&mut self, answer: Answer, now: Elapsed) {
        self.silent = false;
        match answer {
            Answer::Greeting { .. } => self.change(Writer::Opening, now),
            Answer::Contents(part) => {
                self.gathering.pins.extend(part.pins);
                self.gathering.events.extend(part.events);
                self.gathering.pending.extend(part.pending);
            }
            Answer::ContentsEnd { last_seq, notes } => {
                self.contents = Some(std::mem::take(&mut self.gathering));
                self.contents_known = true;
                self.last_seq = self.last_seq.max(last_seq);
                self.note(notes);
            }
            Answer::Ready(ready) => self.ready(ready, now),
            Answer::Trouble(error) => self.change(Writer::Closed(error), now),
            Answer::Durable { ticket, last_seq } => {
                self.last_seq = last_seq;
                self.queue.durable(ticket);
                let oldest = self.queue.oldest();
                if self
                    .late
                    .is_some_and(|late| oldest.is_none_or(|oldest| late < oldest))
                {
                    self.late = None;
                }
            }
            Answer::NumberTaken { ticket } => {
                self.refused += 1;
                self.queue.refused(ticket);
            }
            Answer::Room { short } => self.short = short,
            Answer::DroppedPending { events } => self.dropped_pending += events,
            Answer::Events { id, page } => {
                if let Some(reader) = self.reads.remove(&id) {
                    // Whoever asked may have given up.
                    let _ = reader.send(page);
                }
            }
            Answer::Alive => {}
        }
    }

    fn ready(&mut self, ready: Ready, now: Elapsed) {
        self.change(
            Writer::Open {
                session: ready.session,
            },
            now,
        );
        self.last_seq = ready.last_seq;
        self.was_open = true;
        self.note(ready.notes);
        if ready.lost {
            // What was read without a thorough check is not to be trusted.
            self.contents = None;
            self.pins_lost = true;
        }
    }

    fn note(&mut self, notes: Vec<String>) {
        self.notes.extend(notes);
        let excess = self.notes.len().saturating_sub(NOTES_LIMIT);
        self.notes.drain(..excess);
    }

    fn health(&self, now: Elapsed) -> StoreHealth {
        let waiting = self.queue.events() as u64;
        let lost = self.queue.lost() + self.refused;
        let trouble = self.trouble(now);
        let mut problem = trouble.clone().unwrap_or_default();
        let mut add = |text: String| {
            if !problem.is_empty() {
                problem.push_str("; ");
            }
            problem.push_str(&text);
        };
        if trouble.is_some() && 0 < waiting {
            add(format!("{waiting} events are kept in memory only"));
        }
        if 0 < lost {
            add(format!("{lost} events will be missing in the event log"));
        }
        if 0 < self.dropped_pending {
            let dropped = self.dropped_pending;
            add(format!(
                "{dropped} events were dropped by the retention before every listener took them"
            ));
        }
        StoreHealth {
            ok: trouble.is_none(),
            problem: Some(problem).filter(|text| !text.is_empty()),
            restarts: self.restarts,
            abandoned: self.abandoned,
            last_seq: self.last_seq,
            waiting,
            lost,
            dropped_pending: self.dropped_pending,
            failure: match &self.writer {
                Writer::Closed(error) => Some(error.clone()),
                _ => None,
            },
        }
    }

    fn trouble(&self, now: Elapsed) -> Option<String> {
        let seconds = now.saturating_sub(self.since).as_secs();
        match &self.writer {
            _ if self.stopped => Some("the state store is stopped".to_owned()),
            Writer::Closed(error) => Some(error.to_string()),
            Writer::Gone(why) => Some(format!("the writer of the state store {why}")),
            _ if self.silent => Some(format!(
                "the writer of the state store has not answered for {seconds} s: the state \
                 directory may hang"
            )),
            Writer::Starting => Some("the writer of the state store is being started".to_owned()),
            Writer::Opening => Some("the state store is being opened".to_owned()),
            Writer::Open { .. } if self.late.is_some() => {
                Some("the state store does not keep up".to_owned())
            }
            Writer::Open { .. } => {
                let full = |left| format!("the state directory is full ({left})");
                self.short.as_ref().map(full)
            }
        }
    }
}

/// Who has not acknowledged what, oldest first.
fn pending(
    events: Vec<super::wire::Event>,
    outbox: Vec<(u64, String)>,
) -> BTreeMap<String, Vec<StoredEvent>> {
    let events: BTreeMap<u64, Arc<str>> = events
        .into_iter()
        .map(|event| (event.seq, event.json.into()))
        .collect();
    let mut pending: BTreeMap<String, Vec<StoredEvent>> = BTreeMap::new();
    for (seq, listener) in outbox {
        if let Some(json) = events.get(&seq) {
            let json = Arc::clone(json);
            let event = StoredEvent { seq, json };
            pending.entry(listener).or_default().push(event);
        }
    }
    for events in pending.values_mut() {
        events.sort_unstable_by_key(|event| event.seq);
    }
    pending
}
