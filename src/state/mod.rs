//! The agent's side of the state store: event log, outbox and pins that survive a restart. The file
//! itself is written by the writer child only, so that a full, read-only or hung state directory
//! takes away durability and nothing else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;

/// How to start the store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Folder of the store's file; created by the writer when it is missing.
    pub state_dir: PathBuf,
    /// Program that becomes the writer child.
    pub program: PathBuf,
    /// The event log is cut to this many bytes, oldest first.
    pub retention_bytes: u64,
    /// Events older than this are dropped.
    pub retention_age: Duration,
}

/// An event as it is stored: its number and its JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Number of the event.
    pub seq: u64,
    /// The event's JSON, one line.
    pub json: Arc<str>,
}

/// What the store held when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// Number of the newest stored event; 0 when there is none.
    pub last_seq: u64,
    /// Identity pins by key.
    pub pins: Vec<(Vec<u8>, Vec<u8>)>,
    /// Events that a listener has not acknowledged, oldest first, by listener.
    pub pending: BTreeMap<String, Vec<StoredEvent>>,
    /// What was wrong with it, in words: a corrupted file that was kept aside, and the like.
    pub problems: Vec<String>,
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
    /// What is wrong, in words.
    pub problem: Option<String>,
    /// Restarts of the writer so far.
    pub restarts: u64,
}

/// Handle of the store; clones share it. No method waits for a disk.
#[derive(Debug, Clone)]
pub struct Store {}

impl Store {
    /// Starts the writer child and returns at once. Needs a tokio runtime.
    #[must_use]
    pub fn start(_options: StoreOptions, _clock: Clock) -> Store {
        Store {}
    }

    /// What the store holds; empty, with a problem, when it does not answer within 500 ms.
    pub async fn open(&self) -> Opened {
        std::future::ready(Opened::default()).await
    }

    /// Appends an event for these listeners. Resolves within 500 ms.
    pub async fn append(&self, _event: StoredEvent, _listeners: &[String]) -> Appended {
        std::future::ready(Appended::NotDurable).await
    }

    /// The listener took this event; it will not be delivered to it again.
    pub fn acknowledge(&self, _listener: &str, _seq: u64) {}

    /// Remembers a pin.
    pub fn put_pin(&self, _key: &[u8], _value: &[u8]) {}

    /// Forgets a pin.
    pub fn remove_pin(&self, _key: &[u8]) {}

    /// Stored events after number `since`, oldest first, at most `limit`.
    ///
    /// # Errors
    /// The store does not answer in time or cannot be read; the text says why.
    pub async fn events(&self, _since: u64, _limit: usize) -> Result<Vec<StoredEvent>, String> {
        std::future::ready(Ok(Vec::new())).await
    }

    /// How the store is doing. Never blocks.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        StoreHealth::default()
    }

    /// Ends the writer; returns at once and leaves a stuck one behind.
    pub fn stop(&self) {}
}

/// Being written.
#[derive(Debug, thiserror::Error)]
#[error("being written")]
pub struct ReadError;

/// Being written.
///
/// # Errors
/// Always.
pub fn read_events(_: &std::path::Path, _: u64, _: usize) -> Result<Vec<StoredEvent>, ReadError> {
    Err(ReadError)
}
