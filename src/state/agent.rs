//! What the agent knows of its writer, and what it has for it. Everything here is a function of
//! what was said so far; nothing waits, wakes or reads a clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::queue::Queue;
use super::wire::{Answer, Contents, EventPage, Hello, Numbered, Ready, Request, VERSION, Write};
use super::{Appended, Opened, StoreError, StoreHealth, StoreOptions, StoredEvent, WRITE_LIMIT};
use crate::health::moment::Elapsed;

/// Reads that wait for an answer at the same time: more than the HTTP server lets in.
const READS_LIMIT: usize = 16;

/// What a page of events arrives at.
pub(super) type PageReceiver = oneshot::Receiver<Result<EventPage, StoreError>>;

/// The writer as the agent sees it.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Writer {
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
    pub(super) queue: Queue,
    pub(super) reads: BTreeMap<u64, oneshot::Sender<Result<EventPage, StoreError>>>,
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
    /// How often the store was started afresh, and why the last time.
    fresh_starts: u64,
    started_afresh: Option<String>,
    /// Deliveries from before the start that are too many.
    left_out: u64,
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
        let mut problems: Vec<String> = self.notes().collect();
        problems.extend(failure.as_ref().map(StoreError::to_string));
        Opened {
            last_seq: self.last_seq,
            pending: pending(contents.events, contents.pending),
            pins: contents.pins,
            claims: contents.claims,
            problems,
            pins_lost: 0 < self.fresh_starts,
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
            lock_memory: options.lock_memory,
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

    pub(super) fn submit(&mut self, write: Write) -> Option<(u64, oneshot::Receiver<Appended>)> {
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

    pub(super) fn ask(
        &mut self,
        since: u64,
        limit: usize,
    ) -> Result<(u64, PageReceiver), StoreError> {
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

    pub(super) fn change(&mut self, writer: Writer, now: Elapsed) {
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

    pub(super) fn silence(&mut self, now: Elapsed) {
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

    pub(super) fn take(&mut self, answer: Answer, now: Elapsed) {
        self.silent = false;
        match answer {
            Answer::Greeting { .. } => self.change(Writer::Opening, now),
            Answer::Contents(part) => {
                self.gathering.pins.extend(part.pins);
                self.gathering.claims = part.claims.or(self.gathering.claims.take());
                self.gathering.events.extend(part.events);
                self.gathering.pending.extend(part.pending);
            }
            Answer::ContentsEnd { last_seq, left_out } => {
                self.contents = Some(std::mem::take(&mut self.gathering));
                self.contents_known = true;
                self.last_seq = self.last_seq.max(last_seq);
                self.left_out = left_out;
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
        if ready.started_afresh.is_some() {
            // What was read without a thorough check is not to be trusted.
            self.contents = None;
            self.left_out = 0;
            self.fresh_starts += 1;
            self.started_afresh = ready.started_afresh;
        }
    }

    /// What is wrong for good.
    fn notes(&self) -> impl Iterator<Item = String> {
        let afresh = |why| format!("{why}; a new one was started, and pins are learnt again");
        let counted = |count: u64, what: &str| (0 < count).then(|| format!("{count} {what}"));
        [
            self.started_afresh.as_ref().map(afresh),
            counted(
                self.left_out,
                "deliveries from before the start are too many to be repeated",
            ),
            counted(
                self.queue.lost() + self.refused,
                "events will be missing in the event log",
            ),
            counted(
                self.dropped_pending,
                "events were dropped by the retention before every listener took them",
            ),
        ]
        .into_iter()
        .flatten()
    }

    pub(super) fn health(&self, now: Elapsed) -> StoreHealth {
        let waiting = self.queue.events() as u64;
        let trouble = self.trouble(now);
        let ok = trouble.is_none();
        let memory = || format!("{waiting} events are kept in memory only");
        let problem: Vec<String> = trouble
            .into_iter()
            .chain((!ok && 0 < waiting).then(memory))
            .chain(self.notes())
            .collect();
        StoreHealth {
            ok,
            problem: (!problem.is_empty()).then(|| problem.join("; ")),
            restarts: self.restarts,
            abandoned: self.abandoned,
            last_seq: self.last_seq,
            waiting,
            lost: self.queue.lost() + self.refused,
            dropped_pending: self.dropped_pending,
            fresh_starts: self.fresh_starts,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::wire::Event;
    use super::*;

    fn append(core: &mut Core, seq: u64) -> Option<oneshot::Receiver<Appended>> {
        let json = format!("{{\"seq\":{seq}}}").into();
        let event = Event { seq, json };
        let listeners = Vec::new();
        Some(core.submit(Write::Append { event, listeners })?.1)
    }

    fn ready(session: u32) -> Answer {
        Answer::Ready(Ready {
            session,
            last_seq: 0,
            started_afresh: None,
        })
    }

    fn sent(core: &mut Core) -> Vec<(u32, u64)> {
        std::iter::from_fn(|| match core.next_request()? {
            Request::Write(Numbered {
                session, ticket, ..
            }) => Some((session, ticket)),
            other => panic!("{other:?}"),
        })
        .collect()
    }

    /// From the start of a writer to its death, as health tells it.
    #[test]
    fn health_says_what_is_wrong_until_it_has_caught_up() {
        let mut core = Core::default();
        let mut seconds = 0;
        let mut said = Vec::new();
        let mut step = |core: &mut Core, answer: Option<Answer>| {
            seconds += 1;
            let now = Duration::from_secs(seconds);
            match answer {
                Some(answer) => core.take(answer, now),
                None => core.silence(now),
            }
            let health = core.health(now + Duration::from_secs(3));
            let problem = health.problem.unwrap_or_default();
            said.push(format!("{} {problem}", if health.ok { "ok" } else { "!!" }));
        };
        step(&mut core, Some(Answer::Greeting { version: VERSION }));
        step(&mut core, Some(ready(1)));
        step(&mut core, None);
        assert!(append(&mut core, 1).is_none());
        step(&mut core, Some(Answer::Alive));
        let durable = |ticket| Answer::Durable {
            ticket,
            last_seq: ticket,
        };
        step(&mut core, Some(durable(1)));
        let short = Some("7 bytes left".to_owned());
        step(&mut core, Some(Answer::Room { short }));
        step(&mut core, Some(Answer::Room { short: None }));
        let mut waits = append(&mut core, 2).unwrap();
        step(
            &mut core,
            Some(Answer::Trouble(StoreError::Full("commit".to_owned()))),
        );
        assert_eq!(waits.try_recv(), Ok(Appended::NotDurable));
        step(&mut core, Some(ready(2)));
        step(&mut core, Some(Answer::NumberTaken { ticket: 2 }));
        step(&mut core, Some(durable(2)));
        step(&mut core, Some(Answer::DroppedPending { events: 5 }));
        let expected = [
            "!! the state store is being opened",
            "ok ",
            "!! the writer of the state store has not answered for 3 s: the state directory may hang",
            "!! the state store does not keep up; 1 events are kept in memory only",
            "ok ",
            "!! the state directory is full (7 bytes left)",
            "ok ",
            "!! the state directory is full (commit); 1 events are kept in memory only",
            "!! the state store does not keep up; 1 events are kept in memory only",
            "!! the state store does not keep up; 1 events will be missing in the event log",
            "ok 1 events will be missing in the event log",
            "ok 1 events will be missing in the event log; 5 events were dropped by the retention \
             before every listener took them",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn what_a_writer_did_not_acknowledge_is_sent_to_the_next_one() {
        let mut core = Core::default();
        let first = append(&mut core, 1);
        assert_eq!(sent(&mut core), []);
        core.take(ready(1), Duration::ZERO);
        let second = append(&mut core, 2);
        assert_eq!(sent(&mut core), [(1, 1), (1, 2)]);
        core.change(Writer::Gone("ended".to_owned()), Duration::ZERO);
        core.take(ready(7), Duration::ZERO);
        assert_eq!(sent(&mut core), [(7, 1), (7, 2)]);
        let last = Answer::Durable {
            ticket: 2,
            last_seq: 2,
        };
        core.take(last, Duration::ZERO);
        for mut waits in [first.unwrap(), second.unwrap()] {
            assert_eq!(waits.try_recv(), Ok(Appended::Durable));
        }
    }

    #[test]
    fn contents_are_void_when_the_store_proves_damaged() {
        let mut core = Core::default();
        let json: Box<str> = "{}".into();
        let part = Contents {
            pins: vec![(b"key".to_vec(), b"value".to_vec())],
            claims: Some(b"claims".to_vec()),
            events: vec![Event { seq: 4, json }],
            pending: vec![(4, "page".to_owned()), (3, "page".to_owned())],
        };
        let end = Answer::ContentsEnd {
            last_seq: 4,
            left_out: 0,
        };
        core.take(Answer::Contents(part.clone()), Duration::ZERO);
        core.take(end.clone(), Duration::ZERO);
        let opened = core.opened();
        assert_eq!((opened.pins.len(), opened.pending["page"].len()), (1, 1));
        assert!(opened.claims.is_some() && !opened.complete);

        let mut core = Core::default();
        core.take(Answer::Contents(part), Duration::ZERO);
        core.take(end, Duration::ZERO);
        let Answer::Ready(mut ready) = ready(1) else {
            unreachable!()
        };
        ready.started_afresh = Some("the state store was damaged".to_owned());
        ready.last_seq = 4;
        core.take(Answer::Ready(ready), Duration::ZERO);
        let opened = core.opened();
        assert!(opened.pins_lost && opened.pins.is_empty() && opened.pending.is_empty());
        assert_eq!(opened.claims, None);
        assert_eq!((opened.last_seq, opened.complete), (4, true));
    }
}
