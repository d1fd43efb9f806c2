//! What Pulsar writes into ledgers, as far as it names other ledgers: the state of a cursor, and a version of a schema.

use prost::Message;

use super::{COMPACTED_LEDGER, PulsarError, RawIndex, RawLong, SchemaLocator, positive, read};

/// `PositionInfo`, an entry of a cursor's ledger. Its position has to be there, lest anything else be taken for one.
#[derive(Clone, PartialEq, Message)]
struct RawState {
    #[prost(int64, optional, tag = "1")]
    ledger_id: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    entry_id: Option<i64>,
    #[prost(message, repeated, tag = "4")]
    properties: Vec<RawLong>,
}

/// A version of a schema. The schema itself is not looked at.
#[derive(Clone, PartialEq, Message)]
struct RawSchema {
    #[prost(message, repeated, tag = "5")]
    index: Vec<RawIndex>,
}

/// The compacted ledger that an entry of the ledger of a cursor `__compaction` names.
///
/// # Errors
/// It is no entry of such a ledger.
pub fn compacted_ledger(entry: &[u8]) -> Result<Option<u64>, PulsarError> {
    let state: RawState = read(entry)?;
    state
        .ledger_id
        .ok_or(PulsarError::Missing("the ledger of a position"))?;
    state
        .entry_id
        .ok_or(PulsarError::Missing("the entry of a position"))?;
    let mut properties = state.properties.into_iter();
    let named = properties.find(|property| property.name.as_deref() == Some(COMPACTED_LEDGER));
    let id = named.map(|property| positive("the compacted ledger", property.value));
    id.transpose()
}

/// The older versions that a version of a schema names; whole if they go back to the first, or if it is the first, which names
/// none.
///
/// # Errors
/// It is no version of a schema.
pub fn older_versions(entry: &[u8]) -> Result<SchemaLocator, PulsarError> {
    let schema: RawSchema = read(entry)?;
    let is_first = schema.index.is_empty();
    let all = super::versions(schema.index.into_iter())?;
    Ok(SchemaLocator {
        is_whole: all.is_whole || is_first,
        ..all
    })
}
