//! What brokers and bookies would write, for tests.

use prost::Message;

use crate::reclaim::plan::LedgerId;

#[derive(Clone, PartialEq, Message)]
struct Topic {
    #[prost(message, repeated, tag = "1")]
    ledgers: Vec<Listed>,
}

#[derive(Clone, PartialEq, Message)]
struct Listed {
    #[prost(uint64, optional, tag = "1")]
    id: Option<u64>,
    #[prost(message, optional, tag = "5")]
    offload: Option<Offload>,
}

#[derive(Clone, PartialEq, Message)]
struct Offload {
    #[prost(bool, optional, tag = "3")]
    complete: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    deleted: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct Cursor {
    #[prost(int64, optional, tag = "1")]
    ledger: Option<i64>,
    #[prost(message, repeated, tag = "5")]
    properties: Vec<Number>,
    #[prost(message, repeated, tag = "8")]
    cursor_properties: Vec<Text>,
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    value: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Locator {
    #[prost(message, optional, tag = "1")]
    info: Option<Version>,
    #[prost(message, repeated, tag = "2")]
    index: Vec<Version>,
}

#[derive(Clone, PartialEq, Message)]
struct Version {
    #[prost(int64, optional, tag = "1")]
    version: Option<i64>,
    #[prost(message, optional, tag = "2")]
    position: Option<Position>,
}

#[derive(Clone, PartialEq, Message)]
struct Position {
    #[prost(uint64, optional, tag = "1")]
    ledger: Option<u64>,
    #[prost(int64, optional, tag = "2")]
    entry: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Ledger {
    #[prost(int32, optional, tag = "1")]
    quorum: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    ensemble: Option<i32>,
    #[prost(int64, optional, tag = "3")]
    length: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    last: Option<i64>,
    #[prost(int32, optional, tag = "5")]
    state: Option<i32>,
    #[prost(message, repeated, tag = "6")]
    segments: Vec<Segment>,
    #[prost(message, repeated, tag = "11")]
    custom: Vec<Text>,
}

#[derive(Clone, PartialEq, Message)]
struct Segment {
    #[prost(string, repeated, tag = "1")]
    members: Vec<String>,
    #[prost(int64, optional, tag = "2")]
    first: Option<i64>,
}

/// A topic's list; some of it is moved to other storage.
pub(in crate::reclaim) fn topic(ledgers: &[LedgerId], moved: &[LedgerId]) -> Vec<u8> {
    let listed = ledgers.iter().map(|id| Listed {
        id: Some(*id),
        offload: moved.contains(id).then_some(Offload {
            complete: Some(true),
            deleted: Some(true),
        }),
    });
    let ledgers = listed.collect();
    Topic { ledgers }.encode_to_vec()
}

/// A cursor.
pub(in crate::reclaim) fn cursor(
    ledger: Option<LedgerId>,
    compacted: Option<LedgerId>,
    buckets: &[LedgerId],
) -> Vec<u8> {
    let bucket = |id: &LedgerId| Text {
        name: format!("#pulsar.internal.delayed.bucket_{id}"),
        value: id.to_string(),
    };
    let compacted = compacted.map(|value| Number {
        name: "CompactedTopicLedger".to_owned(),
        value,
    });
    Cursor {
        ledger: Some(ledger.map_or(-1, |id| i64::try_from(id).unwrap())),
        properties: compacted.into_iter().collect(),
        cursor_properties: buckets.iter().map(bucket).collect(),
    }
    .encode_to_vec()
}

/// A schema with all its versions.
pub(in crate::reclaim) fn locator(ledgers: &[LedgerId]) -> Vec<u8> {
    let version = |(version, id): (i64, &LedgerId)| Version {
        version: Some(version),
        position: Some(Position {
            ledger: Some(*id),
            entry: Some(0),
        }),
    };
    let index: Vec<_> = (0..).zip(ledgers).map(version).collect();
    Locator {
        info: index.last().cloned(),
        index,
    }
    .encode_to_vec()
}

/// A closed ledger of ten entries, which two of three bookies have each.
pub(in crate::reclaim) fn ledger(custom: &[(&str, &str)]) -> Vec<u8> {
    written(false, custom)
}

/// One that may be open.
pub(in crate::reclaim) fn written(is_open: bool, custom: &[(&str, &str)]) -> Vec<u8> {
    let text = |(name, value): &(&str, &str)| Text {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    let message = Ledger {
        quorum: Some(2),
        ensemble: Some(3),
        length: Some(if is_open { 0 } else { 1000 }),
        last: (!is_open).then_some(9),
        state: Some(if is_open { 1 } else { 3 }),
        segments: vec![Segment {
            members: ["b:1", "b:2", "b:3"].map(str::to_owned).into(),
            first: Some(0),
        }],
        custom: custom.iter().map(text).collect(),
    };
    let mut bytes = b"BookieMetadataFormatVersion\t3\n".to_vec();
    message.encode_length_delimited(&mut bytes).unwrap();
    bytes
}
