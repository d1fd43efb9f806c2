//! What BookKeeper writes down about a ledger, in its three formats, and where (`path`). Pure. What cannot
//! be understood whole is an error: whoever deletes ledgers must not guess what one of them says.

mod path;
mod secret;
mod text;

use std::collections::BTreeMap;

use prost::Message;
use thiserror::Error;

pub use path::{Layout, LayoutError};
pub use secret::Secret;

/// What each node of a ledger begins with (BookKeeper's `LedgerMetadataSerDe`).
const PREFIX: &[u8] = b"BookieMetadataFormatVersion\t";

/// Digits of the version that BookKeeper reads.
const VERSION_DIGITS: usize = 10;

/// Whether a ledger is still written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LedgerState {
    /// Somebody may add entries. Its owner may as well be long gone.
    Open,
    /// Somebody is finding out where it ends.
    InRecovery,
    /// It ends at its last entry.
    Closed,
}

/// How entries are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestType {
    /// 8 bytes.
    Crc32,
    /// SHA-1 with the password, 20 bytes.
    Hmac,
    /// 4 bytes.
    Crc32c,
    /// None.
    Dummy,
}

/// From an entry on, these bookies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The first entry that went there.
    pub first_entry: u64,
    /// Ids of the bookies, in the order that decides which of them gets which entry.
    pub members: Vec<String>,
}

/// What a ledger's node says. The password is left out (`Secret` has it): what is not kept
/// cannot be logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerMetadata {
    /// The format's number, from 1 to 3.
    pub format: u32,
    /// Bookies of an ensemble.
    pub ensemble_size: u32,
    /// Bookies that get each entry.
    pub write_quorum: u32,
    /// Bookies that have to acknowledge it.
    pub ack_quorum: u32,
    /// Bytes of all entries; 0 while it is not closed.
    pub length: u64,
    /// The last entry of a closed ledger; none while it is not closed, or if it is empty.
    pub last_entry: Option<u64>,
    /// Whether it is still written.
    pub state: LedgerState,
    /// From the first entry to the last, ascending.
    pub segments: Vec<Segment>,
    /// Known from format 2 on, and if the ledger has a password (be it empty).
    pub digest: Option<DigestType>,
    /// Milliseconds since 1970. Pulsar does not write it: the age is then that of the node.
    pub created_at: Option<i64>,
    /// What the owner wrote about itself.
    pub custom: BTreeMap<String, Vec<u8>>,
}

/// Why a node is no ledger that we understand.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// Something else lies there.
    #[error("it does not begin as the metadata of a ledger does")]
    Prefix,
    /// Of a later BookKeeper.
    #[error("it is written in format {0}, and only formats 1 to 3 are known")]
    Format(u64),
    /// Cut off or damaged.
    #[error("format {format} is damaged: {why}")]
    Damaged {
        /// The format's number.
        format: u32,
        /// In words.
        why: String,
    },
}

impl LedgerMetadata {
    /// Reads a node's data.
    ///
    /// # Errors
    /// It is not understood whole.
    pub fn decode(bytes: &[u8]) -> Result<LedgerMetadata, MetadataError> {
        let rest = bytes.strip_prefix(PREFIX).ok_or(MetadataError::Prefix)?;
        let end = rest
            .iter()
            .take(VERSION_DIGITS + 1)
            .position(|byte| *byte == b'\n')
            .ok_or(MetadataError::Prefix)?;
        let version = std::str::from_utf8(&rest[..end])
            .ok()
            .and_then(|digits| digits.parse::<u64>().ok())
            .ok_or(MetadataError::Prefix)?;
        let body = &rest[end + 1..];
        let (format, read) = match version {
            1 => (1, text::first(body)),
            2 => (2, text::second(body)),
            3 => (3, delimited(body)),
            other => return Err(MetadataError::Format(other)),
        };
        read.and_then(|raw| raw.checked(format))
            .map_err(|why| MetadataError::Damaged { format, why })
    }

    /// A value of the owner's as text; none if it is absent or no text.
    #[must_use]
    pub fn custom_text(&self, key: &str) -> Option<&str> {
        self.custom
            .get(key)
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The bookies that an entry was sent to, in the order in which readers ask them; none if no segment holds it.
    #[must_use]
    pub fn write_set(&self, entry: u64) -> Vec<&str> {
        let mut segments = self.segments.iter().rev();
        let Some(segment) = segments.find(|segment| segment.first_entry <= entry) else {
            return Vec::new();
        };
        let members = segment.members.len() as u64;
        let places =
            (0..u64::from(self.write_quorum)).map(|copy| (entry % members + copy) % members);
        let named = places.filter_map(|place| segment.members.get(usize::try_from(place).ok()?));
        named.map(String::as_str).collect()
    }

    /// Every bookie that an entry of the ledger may be on, each once.
    #[must_use]
    pub fn bookies(&self) -> std::collections::BTreeSet<&str> {
        let members = self.segments.iter().flat_map(|segment| &segment.members);
        members.map(String::as_str).collect()
    }
}

/// Format 3: a varint with the length, then the message.
fn delimited(mut body: &[u8]) -> Result<Raw, String> {
    let length = prost::decode_length_delimiter(&mut body).map_err(|error| error.to_string())?;
    if length != body.len() {
        return Err(format!(
            "{length} bytes are announced and {} are there",
            body.len()
        ));
    }
    Raw::decode(body).map_err(|error| error.to_string())
}

/// `LedgerMetadataFormat`. All fields are optional here, so that a missing one is seen.
#[derive(Clone, PartialEq, Message)]
struct Raw {
    #[prost(int32, optional, tag = "1")]
    quorum_size: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    ensemble_size: Option<i32>,
    #[prost(int64, optional, tag = "3")]
    length: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    last_entry_id: Option<i64>,
    #[prost(int32, optional, tag = "5")]
    state: Option<i32>,
    #[prost(message, repeated, tag = "6")]
    segment: Vec<RawSegment>,
    #[prost(int32, optional, tag = "7")]
    digest_type: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "8")]
    password: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "9")]
    ack_quorum_size: Option<i32>,
    #[prost(int64, optional, tag = "10")]
    ctime: Option<i64>,
    #[prost(message, repeated, tag = "11")]
    custom_metadata: Vec<RawCustom>,
    #[prost(int64, optional, tag = "12")]
    c_token: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct RawSegment {
    #[prost(string, repeated, tag = "1")]
    ensemble_member: Vec<String>,
    #[prost(int64, optional, tag = "2")]
    first_entry_id: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct RawCustom {
    #[prost(string, optional, tag = "1")]
    key: Option<String>,
    #[prost(bytes = "vec", optional, tag = "2")]
    value: Option<Vec<u8>>,
}

impl Raw {
    fn checked(self, format: u32) -> Result<LedgerMetadata, String> {
        let ensemble_size = size(self.ensemble_size, "ensemble size")?;
        let write_quorum = size(self.quorum_size, "write quorum")?;
        let ack_quorum = match self.ack_quorum_size {
            Some(_) => size(self.ack_quorum_size, "ack quorum")?,
            None => write_quorum,
        };
        if ensemble_size < write_quorum || write_quorum < ack_quorum {
            return Err(format!(
                "ensemble size {ensemble_size}, write quorum {write_quorum} and ack quorum {ack_quorum} cannot be"
            ));
        }
        let state = match self.state {
            Some(1) => LedgerState::Open,
            Some(2) => LedgerState::InRecovery,
            Some(3) => LedgerState::Closed,
            other => return Err(format!("{other:?} is no state")),
        };
        Ok(LedgerMetadata {
            format,
            ensemble_size,
            write_quorum,
            ack_quorum,
            length: positive(self.length, "length")?,
            last_entry: last_entry(state, self.last_entry_id)?,
            state,
            segments: segments(self.segment, ensemble_size)?,
            // The field has a default that says nothing where there is no password.
            digest: match (&self.password, self.digest_type) {
                (Some(_), Some(number)) => Some(digest(number)?),
                _ => None,
            },
            created_at: self.ctime,
            custom: custom(self.custom_metadata)?,
        })
    }
}

fn size(value: Option<i32>, what: &str) -> Result<u32, String> {
    let value = value.ok_or_else(|| format!("the {what} is missing"))?;
    u32::try_from(value).map_err(|_| format!("the {what} is {value}"))
}

fn positive(value: Option<i64>, what: &str) -> Result<u64, String> {
    let value = value.ok_or_else(|| format!("the {what} is missing"))?;
    u64::try_from(value).map_err(|_| format!("the {what} is {value}"))
}

fn last_entry(state: LedgerState, value: Option<i64>) -> Result<Option<u64>, String> {
    match (state, value) {
        (LedgerState::Closed, None) => Err("it is closed and has no last entry".to_owned()),
        (LedgerState::Closed, Some(-1)) => Ok(None),
        (LedgerState::Closed, value) => positive(value, "last entry").map(Some),
        // -1 while it is written.
        _ => Ok(None),
    }
}

fn segments(raw: Vec<RawSegment>, ensemble_size: u32) -> Result<Vec<Segment>, String> {
    let mut segments = Vec::<Segment>::with_capacity(raw.len());
    for segment in raw {
        let first_entry = positive(segment.first_entry_id, "first entry of a segment")?;
        let members = segment.ensemble_member;
        if u32::try_from(members.len()) != Ok(ensemble_size) {
            return Err(format!(
                "the segment from entry {first_entry} has {} bookies of {ensemble_size}",
                members.len()
            ));
        }
        if segments
            .last()
            .is_some_and(|last| first_entry <= last.first_entry)
        {
            return Err(format!(
                "the segment from entry {first_entry} is not in order"
            ));
        }
        segments.push(Segment {
            first_entry,
            members,
        });
    }
    Ok(segments)
}

fn digest(number: i32) -> Result<DigestType, String> {
    match number {
        1 => Ok(DigestType::Crc32),
        2 => Ok(DigestType::Hmac),
        3 => Ok(DigestType::Crc32c),
        4 => Ok(DigestType::Dummy),
        other => Err(format!("{other} is no digest")),
    }
}

fn custom(raw: Vec<RawCustom>) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut custom = BTreeMap::new();
    for entry in raw {
        let (Some(key), Some(value)) = (entry.key, entry.value) else {
            return Err("an entry of the custom metadata has no key or no value".to_owned());
        };
        custom.insert(key, value);
    }
    Ok(custom)
}

#[cfg(test)]
pub(in crate::cluster) mod tests;
