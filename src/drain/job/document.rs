//! The documents of a job, as JSON.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The form in which all of them are written.
const VERSION: u32 = 1;

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Its name: `d-` and eight hexadecimal digits.
    pub id: String,
    /// The bookies that it empties.
    pub bookies: BTreeSet<String>,
    /// What it does about ledgers that are still written.
    pub open_ledgers: OpenLedgers,
    /// What it does about readers.
    pub reader_gate: ReaderGate,
    /// Tasks are shown below `offline_ledgers` too.
    pub mirror: bool,
    /// When it began, in milliseconds since 1970.
    pub began: i64,
    /// How far it is.
    pub phase: Phase,
    /// Who began it, in words.
    pub who: String,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Its bookies are being made read-only, or its tasks are being written.
    Starting,
    /// Workers take its tasks.
    Running,
    /// It was given up. What was moved stays moved.
    Cancelled,
    /// Nothing names its bookies any more.
    Finished,
}

impl Phase {
    /// As it is shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Running => "running",
            Phase::Cancelled => "cancelled",
            Phase::Finished => "finished",
        }
    }

    /// Nothing more is done in it.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Phase::Cancelled | Phase::Finished)
    }
}

/// What a job does about ledgers that are still written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OpenLedgers {
    /// Waits for their writers.
    #[default]
    Wait,
    /// Has the topics unloaded that own them.
    Unload,
}

/// What a job does about readers that keep a ledger's old bookies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReaderGate {
    /// It is not begun where they could fail.
    #[default]
    Refuse,
    /// The bookies keep each ledger, by its lock, until it is said that no reader asks them any more.
    PerLedger,
}

/// How fast a job may be. A change takes effect at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// From each source, and to each target; 0 for no limit.
    pub max_bytes_per_second: u64,
    /// To the metadata store, by each worker; 0 for no limit.
    pub max_requests_per_second: u32,
    /// Ledgers that a worker copies at a time.
    pub workers: u32,
}

/// What is to be done with one ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Which.
    pub ledger: u64,
    /// How far it is.
    pub status: Status,
    /// Replicas that are to move. What the ledger's metadata says now counts, and not this: it keeps the choice of targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<Fragment>,
    /// Why it is not done yet, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often it failed.
    #[serde(default)]
    pub tries: u32,
    /// Who owns the ledger, by its own word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Bytes to be copied, as estimated.
    #[serde(default)]
    pub bytes: u64,
}

/// How far a task is. One that is done is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// Nobody has begun.
    Todo,
    /// Entries are on their way.
    Copying,
    /// The ledger's last segment may grow.
    WaitingOpen,
    /// Somebody finds out where the ledger ends.
    WaitingRecovery,
    /// Nothing names the bookies any more, and the ledger stays locked for readers that still ask them.
    Held,
    /// It cannot be done, as the reason says.
    Failed,
}

impl Status {
    /// All of them, in the order of what is left to do.
    pub const ALL: [Status; 6] = [
        Status::Todo,
        Status::Copying,
        Status::WaitingOpen,
        Status::WaitingRecovery,
        Status::Held,
        Status::Failed,
    ];

    /// As it is shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Status::Todo => "todo",
            Status::Copying => "copying",
            Status::Held => "held",
            Status::WaitingOpen => "waitingOpen",
            Status::WaitingRecovery => "waitingRecovery",
            Status::Failed => "failed",
        }
    }
}

/// A replica of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fragment {
    /// The first entry of the segment.
    pub first: u64,
    /// The place in the ensemble.
    pub index: usize,
    /// The bookie that is there.
    pub old: String,
    /// The one that is to be there; it is chosen before the first entry is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

/// What a worker says of itself while it lives.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    /// Where it runs.
    pub host: String,
    /// As which process.
    pub pid: u32,
    /// Since when, in milliseconds since 1970.
    pub since: i64,
    /// Ledgers that it has done.
    pub ledgers: u64,
    /// Bytes that it has copied.
    pub bytes: u64,
    /// Bytes a second, now.
    pub rate: u64,
    /// What it does now, in words.
    pub now: String,
}

/// What a worker has done, which outlives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// Ledgers done.
    pub ledgers: u64,
    /// Replicas of segments that were given another name.
    pub fragments: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Entries copied.
    pub entries: u64,
}

#[derive(Serialize)]
struct Written<'a, T> {
    version: u32,
    #[serde(flatten)]
    document: &'a T,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// A document as bytes.
pub(super) fn write<T: Serialize>(document: &T) -> Vec<u8> {
    let written = Written {
        version: VERSION,
        document,
    };
    serde_json::to_vec(&written).expect("words, numbers and lists are always JSON")
}

/// A document from bytes.
///
/// # Errors
/// It is none, or one of another release, in words.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let words = |error: serde_json::Error| error.to_string();
    let Version { version } = serde_json::from_slice(bytes).map_err(words)?;
    if version != VERSION {
        return Err(format!(
            "it is written in version {version} and only version {VERSION} is known: take the release that wrote it"
        ));
    }
    serde_json::from_slice(bytes).map_err(words)
}
