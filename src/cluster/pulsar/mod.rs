//! What Pulsar writes down about its topics, as far as it names ledgers: lists of ledgers, cursors and schemas
//! (`MLDataFormats.proto`, `SchemaStorageFormat.proto`). Pure. Fields of later versions are stepped over;
//! what cannot be read at all is an error, for an owner that was not read is no owner of nothing.

mod compressed;
mod entry;

use std::collections::BTreeMap;

use prost::Message;
use thiserror::Error;

pub use entry::{CursorEntry, SchemaEntry};

/// Names of a cursor's properties that hold the ledger of a bucket of delayed messages.
const BUCKET_PREFIX: &str = "#pulsar.internal.delayed.bucket";

/// The property of the cursor `__compaction` that holds the compacted ledger.
const COMPACTED_LEDGER: &str = "CompactedTopicLedger";

/// An entry of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The ledger.
    pub ledger: u64,
    /// The entry; none before the first one.
    pub entry: Option<u64>,
}

/// A ledger in a topic's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedLedger {
    /// Its id.
    pub id: u64,
    /// Entries; 0 of the one that is written now.
    pub entries: u64,
    /// Bytes; 0 of the one that is written now.
    pub size: u64,
    /// Milliseconds since 1970; none of the one that was written when the topic was loaded last.
    pub closed_at: Option<i64>,
    /// It was copied to other storage, completely, and its entries were deleted from the bookies (or should have been).
    pub gone_to_storage: bool,
}

/// A topic: the list of its ledgers, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManagedLedger {
    /// Oldest first.
    pub ledgers: Vec<ListedLedger>,
    /// Where a terminated topic ends. It may name a ledger that is gone.
    pub terminated_at: Option<Position>,
}

/// A subscription, or another reader of Pulsar's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManagedCursor {
    /// The ledger that holds its newest position while the topic is loaded, or was when its broker died.
    pub ledger: Option<u64>,
    /// What was acknowledged without a gap when this was written. It may name a ledger that is gone.
    pub mark_delete: Option<Position>,
    /// The ledger of the compacted topic. While `ledger` is there the newest one is in that ledger's last entry instead.
    pub compacted_ledger: Option<u64>,
    /// Ledgers of delayed messages.
    pub buckets: Vec<u64>,
}

/// What a node below `/managed-ledgers` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Nothing: a folder, or a topic that was just made.
    Empty,
    /// A topic.
    Topic(ManagedLedger),
    /// A cursor of the topic above.
    Cursor(ManagedCursor),
}

/// Versions of a schema that its locator names. Older ones may be named by entries of those ledgers only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchemaLocator {
    /// Where the newest version is, and those that the index holds; each position once.
    pub positions: Vec<Position>,
    /// The index goes back to the first version, so that nothing older is named elsewhere.
    pub is_whole: bool,
    /// The oldest of them: its entry names those that are older still.
    pub oldest: Option<Position>,
}

/// Why a node is not understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PulsarError {
    /// No message of the kind, or damaged.
    #[error("it cannot be understood: {0}")]
    Damaged(String),
    /// Its compression is unknown, or what was compressed is damaged.
    #[error("it is compressed and cannot be unpacked: {0}")]
    Compressed(String),
    /// A number that must not be negative is.
    #[error("{what} is {value}")]
    Negative {
        /// Which.
        what: &'static str,
        /// Its value.
        value: i64,
    },
    /// A required number is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A bucket's property is no ledger's id.
    #[error("property {name} of a cursor is {value:?}, and no ledger's id")]
    Bucket {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
}

impl Node {
    /// Reads the data of a node below `/managed-ledgers`. A topic begins with a message, a cursor with a number: each is
    /// no valid beginning of the other.
    ///
    /// # Errors
    /// It is neither.
    pub fn decode(bytes: &[u8]) -> Result<Node, PulsarError> {
        let plain = compressed::plain(bytes)?;
        match plain.first() {
            None => Ok(Node::Empty),
            // Field 1 as a number.
            Some(0x08) => read(&plain).and_then(RawCursor::checked).map(Node::Cursor),
            Some(_) => read(&plain).and_then(RawTopic::checked).map(Node::Topic),
        }
    }
}

impl SchemaLocator {
    /// Reads the data of a node below `/schemas`.
    ///
    /// # Errors
    /// It is no locator.
    pub fn decode(bytes: &[u8]) -> Result<SchemaLocator, PulsarError> {
        let raw: RawLocator = read(bytes)?;
        let info = raw.info.ok_or(PulsarError::Missing("the newest version"))?;
        let versions = versions(std::iter::once(info).chain(raw.index))?;
        let oldest = versions.first().copied();
        Ok(SchemaLocator {
            positions: places(&versions),
            is_whole: oldest.is_some_and(|(version, _)| version == 0),
            oldest: oldest.map(|(_, position)| position),
        })
    }
}

/// Versions and where they are, ascending.
fn versions(
    index: impl IntoIterator<Item = RawIndex>,
) -> Result<Vec<(u64, Position)>, PulsarError> {
    let one = |entry: RawIndex| {
        let position = entry.position.ok_or(PulsarError::Missing("a position"))?;
        Ok((positive("a version", entry.version)?, position.checked()?))
    };
    let mut all: Vec<_> = index.into_iter().map(one).collect::<Result<_, _>>()?;
    all.sort_unstable();
    Ok(all)
}

/// Where they are, ascending, each place once.
fn places(versions: &[(u64, Position)]) -> Vec<Position> {
    let mut all: Vec<_> = versions.iter().map(|(_, position)| *position).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn read<T: Message + Default>(bytes: &[u8]) -> Result<T, PulsarError> {
    T::decode(bytes).map_err(|error| PulsarError::Damaged(error.to_string()))
}

fn positive(what: &'static str, value: Option<i64>) -> Result<u64, PulsarError> {
    let value = value.ok_or(PulsarError::Missing(what))?;
    u64::try_from(value).map_err(|_| PulsarError::Negative { what, value })
}

#[derive(Clone, PartialEq, Message)]
struct RawTopic {
    #[prost(message, repeated, tag = "1")]
    ledger_info: Vec<RawLedger>,
    #[prost(message, optional, tag = "2")]
    terminated_position: Option<RawPosition>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    properties: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct RawLedger {
    #[prost(int64, optional, tag = "1")]
    ledger_id: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    entries: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    size: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    timestamp: Option<i64>,
    #[prost(message, optional, tag = "5")]
    offload_context: Option<RawOffload>,
}

#[derive(Clone, PartialEq, Message)]
struct RawOffload {
    #[prost(bool, optional, tag = "3")]
    complete: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    bookkeeper_deleted: Option<bool>,
}

/// `NestedPositionInfo`, `PositionInfo` and the schema's: the first two fields are the same.
#[derive(Clone, PartialEq, Message)]
struct RawPosition {
    #[prost(int64, optional, tag = "1")]
    ledger_id: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    entry_id: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct RawCursor {
    #[prost(int64, optional, tag = "1")]
    cursors_ledger_id: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    mark_delete_ledger_id: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    mark_delete_entry_id: Option<i64>,
    #[prost(message, repeated, tag = "5")]
    properties: Vec<RawLong>,
    #[prost(message, repeated, tag = "8")]
    cursor_properties: Vec<RawString>,
}

#[derive(Clone, PartialEq, Message)]
struct RawLong {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(int64, optional, tag = "2")]
    value: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct RawString {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct RawLocator {
    #[prost(message, optional, tag = "1")]
    info: Option<RawIndex>,
    #[prost(message, repeated, tag = "2")]
    index: Vec<RawIndex>,
}

#[derive(Clone, PartialEq, Message)]
struct RawIndex {
    #[prost(int64, optional, tag = "1")]
    version: Option<i64>,
    #[prost(message, optional, tag = "2")]
    position: Option<RawPosition>,
}

impl RawTopic {
    fn checked(self) -> Result<ManagedLedger, PulsarError> {
        // A list of another form is no list of nothing.
        if self == RawTopic::default() {
            return Err(PulsarError::Damaged("nothing in it is known".to_owned()));
        }
        let ledgers = self.ledger_info.into_iter().map(RawLedger::checked);
        Ok(ManagedLedger {
            ledgers: ledgers.collect::<Result<_, _>>()?,
            terminated_at: self
                .terminated_position
                .map(RawPosition::checked)
                .transpose()?,
        })
    }
}

impl RawLedger {
    fn checked(self) -> Result<ListedLedger, PulsarError> {
        let offload = self.offload_context.unwrap_or_default();
        let is = |flag: Option<bool>| flag.unwrap_or(false);
        Ok(ListedLedger {
            id: positive("a ledger's id", self.ledger_id)?,
            entries: positive("the number of a ledger's entries", self.entries.or(Some(0)))?,
            size: positive("a ledger's size", self.size.or(Some(0)))?,
            closed_at: self.timestamp.filter(|at| 0 < *at),
            gone_to_storage: is(offload.complete) && is(offload.bookkeeper_deleted),
        })
    }
}

impl RawPosition {
    fn checked(self) -> Result<Position, PulsarError> {
        Ok(Position {
            ledger: positive("the ledger of a position", self.ledger_id)?,
            entry: self.entry_id.and_then(|entry| u64::try_from(entry).ok()),
        })
    }
}

impl RawCursor {
    fn checked(self) -> Result<ManagedCursor, PulsarError> {
        let mark_delete = RawPosition {
            ledger_id: self.mark_delete_ledger_id,
            entry_id: self.mark_delete_entry_id,
        };
        Ok(ManagedCursor {
            ledger: match self.cursors_ledger_id {
                Some(-1) => None,
                id => Some(positive("a cursor's ledger", id)?),
            },
            mark_delete: match mark_delete.ledger_id {
                None | Some(-1) => None,
                Some(_) => Some(mark_delete.checked()?),
            },
            compacted_ledger: compacted(&self.properties)?,
            buckets: buckets(self.cursor_properties)?,
        })
    }
}

/// The ledger of a compacted topic, where one is named.
fn compacted(properties: &[RawLong]) -> Result<Option<u64>, PulsarError> {
    let mut named = properties.iter();
    let named = named.find(|property| property.name.as_deref() == Some(COMPACTED_LEDGER));
    named
        .map(|property| positive("the compacted ledger", property.value))
        .transpose()
}

fn buckets(properties: Vec<RawString>) -> Result<Vec<u64>, PulsarError> {
    let named = properties.into_iter().filter_map(|property| {
        let name = property.name?;
        name.starts_with(BUCKET_PREFIX)
            .then(|| (name, property.value.unwrap_or_default()))
    });
    named
        .map(|(name, value)| match value.parse() {
            Ok(id) => Ok(id),
            Err(_) => Err(PulsarError::Bucket { name, value }),
        })
        .collect()
}

/// Who made a ledger, as its custom metadata says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component<'a> {
    /// Messages of a topic.
    Topic(&'a str),
    /// The state of a cursor.
    Cursor {
        /// Of which topic.
        topic: &'a str,
        /// Its name.
        cursor: &'a str,
    },
    /// A version of a schema.
    Schema(&'a str),
    /// A compacted topic, named as `persistent://tenant/namespace/topic`.
    Compacted(&'a str),
    /// A bucket of delayed messages of a topic, named likewise.
    Bucket(&'a str),
    /// Of Pulsar, and no more is understood.
    Unknown,
    /// Of another application.
    Foreign,
}

impl<'a> Component<'a> {
    /// Reads the custom metadata of a ledger. A ledger is Pulsar's only if it says so itself.
    #[must_use]
    pub fn of(custom: &'a BTreeMap<String, Vec<u8>>) -> Component<'a> {
        let text = |key: &str| std::str::from_utf8(custom.get(key)?).ok();
        if text("application") != Some("pulsar") {
            return Component::Foreign;
        }
        let named = || match text("component")? {
            "managed-ledger" => {
                let topic = text("pulsar/managed-ledger")?;
                Some(match custom.contains_key("pulsar/cursor") {
                    true => Component::Cursor {
                        topic,
                        cursor: text("pulsar/cursor")?,
                    },
                    false => Component::Topic(topic),
                })
            }
            "schema" => text("pulsar/schemaId").map(Component::Schema),
            "compacted-ledger" => text("pulsar/compactedTopic").map(Component::Compacted),
            "delayed-index-bucket" => text("pulsar/delayedIndexTopic").map(Component::Bucket),
            _ => None,
        };
        named().unwrap_or(Component::Unknown)
    }
}

#[cfg(test)]
mod tests;
