//! The agent's side of the state store: event log, outbox, pins and claims that survive a restart. The file
//! itself is written by the writer child only, so that a full, read-only or hung state directory
//! takes away durability and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::health::dir::shown;

mod agent;
mod overlay;
pub mod pins;
mod place;
mod process;
mod queue;
mod shared;
mod tables;
mod text;
mod wire;
pub mod writer;

use shared::Shared;
use wire::{Event, WRITE_LIMIT, Write};

/// The kind of child that writes, after `child::CHILD_ARGUMENT` on the command line.
pub const KIND: &str = "writer";

/// How long anybody waits for the store. Half a second is promised; the rest of it is for the
/// scheduler.
const PATIENCE: Duration = Duration::from_millis(450);

/// Most events that one call reads: about 2 MB of JSON at once.
const EVENTS_LIMIT: usize = 1000;

/// How to start the store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Folder of the store's file; created by the writer when it is missing.
    pub state_dir: PathBuf,
    /// Program that becomes the writer child.
    pub program: PathBuf,
    /// The event log is cut to this many bytes, oldest first. The file may be twice as large.
    pub retention_bytes: u64,
    /// Events older than this are dropped.
    pub retention_age: Duration,
    /// The writer locks its pages in memory, as the agent does.
    pub lock_memory: bool,
}

/// An event as it is stored: its number and its JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Number of the event.
    pub seq: u64,
    /// The event's JSON, one line.
    pub json: Arc<str>,
}

/// What the store held when it was opened. Unless it is `complete`, more comes from
/// [`Store::opened`] later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// Number of the newest stored event; 0 when there is none.
    pub last_seq: u64,
    /// Identity pins by key.
    pub pins: Vec<(Vec<u8>, Vec<u8>)>,
    /// The claims on the server's mode as they were put last; none when there were none ever.
    pub claims: Option<Vec<u8>>,
    /// Events that a listener has not acknowledged, oldest first, by listener.
    pub pending: BTreeMap<String, Vec<StoredEvent>>,
    /// What was wrong with it, in words: a corrupted file that was kept aside, and the like.
    pub problems: Vec<String>,
    /// The store was damaged or removed and started afresh: pins have to be learnt again, and
    /// claims are known elsewhere or not at all.
    pub pins_lost: bool,
    /// The store is open and the fields above are final. Otherwise they are what could be read so
    /// far; [`Store::opened`] waits for the rest.
    pub complete: bool,
    /// Why it is not open.
    pub failure: Option<StoreError>,
}

/// Why the store cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StoreError {
    /// Another agent uses the state directory.
    #[error("the state directory is in use by {}", agent_text(*pid))]
    Locked {
        /// Its process id, unless it did not say.
        pid: Option<u32>,
    },
    /// The store was written by a newer version; it was not touched.
    #[error("the state store has version {found}, and this program knows {known} at most")]
    NewerVersion {
        /// Version of the file.
        found: u64,
        /// The newest version known here.
        known: u64,
    },
    /// A writer whose agent ended still has the file.
    #[error("a writer that was left behind still has the state store open")]
    Busy,
    /// No space, or a quota is used up.
    #[error("the state directory is full ({0})")]
    Full(String),
    /// The file system is read-only.
    #[error("the state directory is read-only ({0})")]
    ReadOnly(String),
    /// A permission is missing.
    #[error(
        "the state directory cannot be written by this user ({0}): events and pinned disks are lost \
         at a restart; name another with --state-dir"
    )]
    NotPermitted(String),
    /// The file is damaged.
    #[error("the state store is damaged ({0})")]
    Damaged(String),
    /// The writer does not answer.
    #[error("the state store does not answer")]
    NoAnswer,
    /// Anything else.
    #[error("the state store cannot be used ({0})")]
    Failed(String),
}

fn agent_text(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("the agent with process id {pid}"),
        None => "another agent".to_owned(),
    }
}

impl StoreError {
    /// Waiting will not help and going on in memory would be wrong: `run` should end.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(
            self,
            StoreError::Locked { .. } | StoreError::NewerVersion { .. }
        )
    }
}

/// Whether an event is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// On disk.
    Durable,
    /// In memory only: the store did not answer in time or refused.
    NotDurable,
}

/// How the store is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Writes are taken and acknowledged in time.
    pub ok: bool,
    /// What is wrong, in words. Also there while `ok`, for what was lost before.
    pub problem: Option<String>,
    /// Restarts of the writer so far.
    pub restarts: u64,
    /// Writers that are stuck and were left behind.
    pub abandoned: u64,
    /// Number of the newest stored event. When the store opened late it may be above numbers that
    /// were given in memory meanwhile: go on above it.
    pub last_seq: u64,
    /// Events that wait in memory for the store.
    pub waiting: u64,
    /// Events that the store will never have: they did not fit into the memory queue, were too
    /// long, or had a number that was taken.
    pub lost: u64,
    /// Events that the retention dropped before every listener acknowledged them.
    pub dropped_pending: u64,
    /// How often a damaged or removed store was started afresh: pins and claims have to be put
    /// again.
    pub fresh_starts: u64,
    /// What keeps the file from being open.
    pub failure: Option<StoreError>,
}

/// Handle of the store; clones share it, and the writer ends with the last one. No method waits
/// for a disk.
#[derive(Debug, Clone)]
pub struct Store {
    owner: Arc<Owner>,
}

/// Stops the writer when the last handle is gone.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Store {
    /// Starts the writer child and returns at once. Needs a tokio runtime.
    #[must_use]
    pub fn start(mut options: StoreOptions, clock: Clock) -> Store {
        // The child works in `/`. Without a current directory the path stays what it is, and the
        // writer says what is wrong with it.
        if let Ok(absolute) = std::path::absolute(&options.state_dir) {
            options.state_dir = absolute;
        }
        let shared = Arc::new(Shared::new(clock));
        tokio::spawn(process::supervise(Arc::clone(&shared), options));
        Store {
            owner: Arc::new(Owner { shared }),
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// What the store holds, as far as it is known within 500 ms. What cannot be written may still
    /// be read: then everything is there but `complete`.
    ///
    /// Pins, claims and pending events are handed out once, by this or by [`Store::opened`].
    pub async fn open(&self) -> Opened {
        let _ = timeout(PATIENCE, self.shared().wait_for(agent::Core::has_verdict)).await;
        self.shared().core().opened()
    }

    /// Waits until the store is open, however long that takes, and says what [`Store::open`] did
    /// not say. Also returns when the store is stopped.
    pub async fn opened(&self) -> Opened {
        self.shared().wait_for(agent::Core::was_open).await;
        self.shared().core().opened()
    }

    /// Appends an event for these listeners. It is queued by this call, in order; the result
    /// resolves within 500 ms, and at once while the store is known to be in trouble.
    ///
    /// An event whose number is not above [`StoreHealth::last_seq`] never replaces a stored one:
    /// the same text under the same number is durable already, anything else is not stored,
    /// counted as lost, and `NotDurable`.
    pub fn append(
        &self,
        event: StoredEvent,
        listeners: &[String],
    ) -> impl Future<Output = Appended> + Send + use<> {
        let write = Write::Append {
            event: Event {
                seq: event.seq,
                json: event.json.as_ref().into(),
            },
            listeners: listeners.iter().map(|name| name.as_str().into()).collect(),
        };
        let waits = self.shared().submit_and_wait(write);
        let shared = Arc::clone(self.shared());
        async move { settle(&shared, waits).await }
    }

    /// The listener took this event; it will not be delivered to it again. If this gets lost, it
    /// will be.
    pub fn acknowledge(&self, listener: &str, seq: u64) {
        self.shared().acknowledge(listener, seq);
    }

    /// Remembers a pin. Key and value together have to stay below 256 KiB.
    pub fn put_pin(&self, key: &[u8], value: &[u8]) {
        self.shared().submit_pin(
            key,
            Write::PutPin {
                key: key.into(),
                value: value.into(),
            },
        );
    }

    /// Forgets a pin.
    pub fn remove_pin(&self, key: &[u8]) {
        self.shared()
            .submit_pin(key, Write::RemovePin { key: key.into() });
    }

    /// Remembers the claims on the server's mode, in place of those before. Queued and answered as
    /// an event is ([`Store::append`]): true when they are on disk. Otherwise they may get there
    /// later, unless newer ones come first or they are over 256 KiB. Put none before it is known
    /// what the store holds: they would replace it.
    pub fn put_claims(&self, claims: Vec<u8>) -> impl Future<Output = bool> + Send + use<> {
        let waits = self.shared().submit_claims(claims);
        let shared = Arc::clone(self.shared());
        async move { settle(&shared, waits).await == Appended::Durable }
    }

    /// Puts this text as `dirkeeper.prom` into that directory, in place of the one before. The writer
    /// does so beside the store; neither waits for the other. The file goes with the writer.
    pub fn put_textfile(&self, directory: &Path, text: &str) {
        self.shared()
            .submit_text(|core, now| core.text.put(directory, text, now));
    }

    /// Removes that file again.
    pub fn remove_textfile(&self) {
        self.shared().submit_text(|core, now| core.text.remove(now));
    }

    /// What is wrong with that file, in words. Never blocks.
    #[must_use]
    pub fn textfile_problem(&self) -> Option<String> {
        self.shared().text_problem()
    }

    /// Stored events after number `since`, oldest first, at most `limit` and at most 1000. Those
    /// that wait in memory are not among them.
    ///
    /// # Errors
    /// The store does not answer in time or cannot be read; the text says why.
    pub async fn events(&self, since: u64, limit: usize) -> Result<Vec<StoredEvent>, String> {
        let limit = limit.min(EVENTS_LIMIT);
        let mut events: Vec<StoredEvent> = Vec::new();
        while events.len() < limit {
            let since = events.last().map_or(since, |last| last.seq);
            let (id, page) = self
                .shared()
                .read(since, limit - events.len())
                .map_err(|error| error.to_string())?;
            let page = match timeout(PATIENCE, page).await {
                Ok(Ok(page)) => page,
                _ => Err(StoreError::NoAnswer),
            };
            self.shared().core().forget_read(id);
            let page = page.map_err(|error| error.to_string())?;
            events.extend(page.events.into_iter().map(StoredEvent::from));
            if !page.more {
                break;
            }
        }
        Ok(events)
    }

    /// Waits until everything given so far is durable, at most 500 ms. For the end, before
    /// [`Store::stop`].
    pub async fn flush(&self) -> Appended {
        let waits = self.shared().submit_and_wait(Write::Barrier);
        settle(self.shared(), waits).await
    }

    /// How the store is doing. Never blocks.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.shared().health()
    }

    /// Ends the writer; returns at once and leaves a stuck one behind. What was not acknowledged
    /// may or may not be stored.
    pub fn stop(&self) {
        self.shared().stop();
    }
}

/// What becomes of a write, known within [`PATIENCE`].
async fn settle(shared: &Shared, waits: Option<(u64, oneshot::Receiver<Appended>)>) -> Appended {
    let Some((ticket, outcome)) = waits else {
        return Appended::NotDurable;
    };
    match timeout(PATIENCE, outcome).await {
        Ok(Ok(appended)) => appended,
        Ok(Err(_)) => Appended::NotDurable,
        Err(_) => {
            shared.core().is_late(ticket);
            Appended::NotDurable
        }
    }
}

/// Stored events after number `since`, oldest first, at most `limit`, from the state directory of
/// an agent that is not running. Changes nothing there. May block on the disk: for commands.
///
/// # Errors
/// An agent has the directory ([`StoreError::Locked`]: ask it instead), or the store cannot be
/// read.
pub fn read_events(
    state_dir: &Path,
    since: u64,
    limit: usize,
) -> Result<Vec<StoredEvent>, StoreError> {
    let place = place::Place::new(state_dir);
    let _lock = place.lock_to_read()?;
    let Some(file) = place.store(false)? else {
        let text = format!("there is none in {}", shown(state_dir));
        return Err(StoreError::Failed(text));
    };
    let tables = tables::Tables::look(&file, true).map_err(tables::OpenError::into_store)?;
    let mut events: Vec<StoredEvent> = Vec::new();
    while events.len() < limit {
        let since = events.last().map_or(since, |last| last.seq);
        let page = tables.events(since, limit - events.len())?;
        events.extend(page.events.into_iter().map(StoredEvent::from));
        if !page.more {
            break;
        }
    }
    Ok(events)
}

impl From<Event> for StoredEvent {
    fn from(event: Event) -> StoredEvent {
        StoredEvent {
            seq: event.seq,
            json: event.json.into(),
        }
    }
}
