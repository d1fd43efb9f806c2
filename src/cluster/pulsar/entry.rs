//! What Pulsar writes into entries of ledgers, as far as it names other ledgers: the position of a cursor
//! (`PositionInfo`), and a version of a schema. Pure. Fields of later versions are stepped over; what is another form
//! altogether is an error, for nothing is known about what that names.

use prost::Message;

use super::{Position, PulsarError, RawIndex, RawLong, RawPosition, compacted, compressed, read};

/// The newest entry of a cursor's ledger: the cursor as it is now, while its node says how it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorEntry {
    /// What was acknowledged without a gap. It may name a ledger that is gone.
    pub mark_delete: Position,
    /// The ledger of the compacted topic, if it is the cursor `__compaction`.
    pub compacted_ledger: Option<u64>,
}

/// A version of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaEntry {
    /// Where older versions are, ascending, each position once.
    pub positions: Vec<Position>,
    /// The oldest of them: where versions that are older still are named.
    pub oldest: Option<Position>,
    /// They go back to the first version, or there is none that is older: nothing else is named elsewhere.
    pub is_whole: bool,
}

#[derive(Clone, PartialEq, Message)]
struct RawCursorEntry {
    #[prost(int64, optional, tag = "1")]
    ledger_id: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    entry_id: Option<i64>,
    #[prost(message, repeated, tag = "4")]
    properties: Vec<RawLong>,
}

#[derive(Clone, PartialEq, Message)]
struct RawSchemaEntry {
    #[prost(bytes = "vec", optional, tag = "2")]
    schema_data: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "5")]
    index: Vec<RawIndex>,
}

impl CursorEntry {
    /// Reads an entry of a cursor's ledger.
    ///
    /// # Errors
    /// It is no position of a cursor.
    pub fn decode(bytes: &[u8]) -> Result<CursorEntry, PulsarError> {
        let raw: RawCursorEntry = read(&compressed::plain(bytes)?)?;
        // Both are required; without the second it is something else that begins alike.
        raw.entry_id
            .ok_or(PulsarError::Missing("the entry of a position"))?;
        let mark_delete = RawPosition {
            ledger_id: raw.ledger_id,
            entry_id: raw.entry_id,
        };
        Ok(CursorEntry {
            mark_delete: mark_delete.checked()?,
            compacted_ledger: compacted(&raw.properties)?,
        })
    }
}

impl SchemaEntry {
    /// Reads the entry to which a position of a schema points.
    ///
    /// # Errors
    /// It is no version of a schema.
    pub fn decode(bytes: &[u8]) -> Result<SchemaEntry, PulsarError> {
        let raw: RawSchemaEntry = read(bytes)?;
        raw.schema_data.ok_or(PulsarError::Missing("the schema"))?;
        let versions = super::versions(raw.index)?;
        let oldest = versions.first().copied();
        Ok(SchemaEntry {
            positions: super::places(&versions),
            oldest: oldest.map(|(_, position)| position),
            is_whole: oldest.is_none_or(|(version, _)| version == 0),
        })
    }
}
