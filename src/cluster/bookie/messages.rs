//! The messages of BookKeeper's protocol, version 3 (`BookkeeperProtocol.proto`), as far as they are spoken here, and
//! the frame around each. Pure. Fields of later versions are stepped over; what is required there is
//! checked by those who need it.

use prost::Message;

use super::error::Code;

/// `VERSION_THREE`.
pub(super) const VERSION: i32 = 3;

/// Instead of an entry's id: the last one that the bookie has.
pub(super) const LAST: i64 = -1;

/// `TOTAL_DISK_CAPACITY` and `FREE_DISK_SPACE`.
const SPACE: i64 = 3;

/// `RECOVERY_ADD`: the ledger may be fenced.
const RECOVERY_ADD: i32 = 1;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question<'a> {
    /// An entry, or the last one.
    Entry { ledger: i64, entry: i64 },
    /// What is known to be confirmed, and the entry after this one if it is.
    After { ledger: i64, entry: i64 },
    /// The confirmed entry that the writer told by itself, and the last one.
    Confirmed { ledger: i64 },
    /// Which entries there are.
    Held { ledger: i64 },
    /// Space.
    Space,
    /// To take an entry of a ledger with that key, also if the ledger is fenced.
    Add {
        ledger: i64,
        entry: i64,
        key: &'a [u8; 20],
        raw: &'a [u8],
    },
    /// To have everything of a ledger on its disk.
    Force { ledger: i64 },
    /// To go on in TLS.
    StartTls,
}

/// `OperationType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Read = 1,
    Add = 2,
    ReadLac = 7,
    Info = 8,
    StartTls = 9,
    Force = 10,
    ListEntries = 11,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(int32, optional, tag = "1")]
    pub(super) version: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(super) operation: Option<i32>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) txn: Option<u64>,
    /// More than 0 makes even a full bookie do it, and is never sent.
    #[prost(uint32, optional, tag = "4")]
    pub(super) priority: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, optional, tag = "100")]
    pub(super) read: Option<ReadRequest>,
    #[prost(message, optional, tag = "101")]
    pub(super) add: Option<AddRequest>,
    #[prost(message, optional, tag = "104")]
    pub(super) read_lac: Option<LedgerRequest>,
    #[prost(message, optional, tag = "105")]
    pub(super) info: Option<InfoRequest>,
    #[prost(message, optional, tag = "106")]
    pub(super) start_tls: Option<Nothing>,
    #[prost(message, optional, tag = "107")]
    pub(super) force: Option<LedgerRequest>,
    #[prost(message, optional, tag = "108")]
    pub(super) list_entries: Option<LedgerRequest>,
}

/// Without the key that would let it fence.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReadRequest {
    #[prost(int64, optional, tag = "1")]
    pub(super) ledger: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    pub(super) entry: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    pub(super) previous_lac: Option<i64>,
    /// 2 for the entry after `previous_lac`.
    #[prost(int32, optional, tag = "100")]
    pub(super) flag: Option<i32>,
}

/// Without flags: the bookie answers when the entry is on its disk.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AddRequest {
    #[prost(int64, optional, tag = "1")]
    pub(super) ledger: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    pub(super) entry: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(super) key: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(super) raw: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "100")]
    pub(super) flag: Option<i32>,
}

/// A message without fields.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Nothing {}

/// `ReadLacRequest`, `ForceLedgerRequest` and `GetListOfEntriesOfLedgerRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LedgerRequest {
    #[prost(int64, optional, tag = "1")]
    pub(super) ledger: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InfoRequest {
    #[prost(int64, optional, tag = "1")]
    pub(super) requested: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Response {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(int32, optional, tag = "2")]
    pub(super) status: Option<i32>,
    #[prost(message, optional, tag = "100")]
    pub(super) read: Option<ReadResponse>,
    #[prost(message, optional, tag = "101")]
    pub(super) add: Option<AddResponse>,
    #[prost(message, optional, tag = "104")]
    pub(super) read_lac: Option<LacResponse>,
    #[prost(message, optional, tag = "105")]
    pub(super) info: Option<InfoResponse>,
    #[prost(message, optional, tag = "107")]
    pub(super) force: Option<LedgerResponse>,
    #[prost(message, optional, tag = "108")]
    pub(super) list_entries: Option<ListResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReadResponse {
    #[prost(int32, optional, tag = "1")]
    pub(super) status: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub(super) ledger: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub(super) entry: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(super) body: Option<Vec<u8>>,
    #[prost(int64, optional, tag = "5")]
    pub(super) max_lac: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AddResponse {
    #[prost(int32, optional, tag = "1")]
    pub(super) status: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub(super) ledger: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub(super) entry: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LedgerResponse {
    #[prost(int32, optional, tag = "1")]
    pub(super) status: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub(super) ledger: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LacResponse {
    #[prost(int32, optional, tag = "1")]
    pub(super) status: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub(super) ledger: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(super) lac: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(super) last_entry: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InfoResponse {
    #[prost(int32, optional, tag = "1")]
    pub(super) status: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub(super) total: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub(super) free: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListResponse {
    #[prost(int32, optional, tag = "1")]
    pub(super) status: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub(super) ledger: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(super) entries: Option<Vec<u8>>,
}

impl Question<'_> {
    fn operation(self) -> Operation {
        match self {
            Question::Entry { .. } | Question::After { .. } => Operation::Read,
            Question::Confirmed { .. } => Operation::ReadLac,
            Question::Held { .. } => Operation::ListEntries,
            Question::Space => Operation::Info,
            Question::Add { .. } => Operation::Add,
            Question::Force { .. } => Operation::Force,
            Question::StartTls => Operation::StartTls,
        }
    }

    /// The request with that number.
    pub(super) fn request(self, txn: u64) -> Request {
        let mut request = Request {
            header: Some(Header {
                version: Some(VERSION),
                operation: Some(self.operation() as i32),
                txn: Some(txn),
                priority: None,
            }),
            ..Request::default()
        };
        let of = |ledger| {
            Some(LedgerRequest {
                ledger: Some(ledger),
            })
        };
        match self {
            Question::Entry { ledger, entry } => {
                request.read = Some(ReadRequest {
                    ledger: Some(ledger),
                    entry: Some(entry),
                    ..ReadRequest::default()
                });
            }
            Question::After { ledger, entry } => {
                request.read = Some(ReadRequest {
                    ledger: Some(ledger),
                    entry: Some(LAST),
                    previous_lac: Some(entry),
                    flag: Some(2),
                });
            }
            Question::Confirmed { ledger } => request.read_lac = of(ledger),
            Question::Held { ledger } => request.list_entries = of(ledger),
            Question::Add {
                ledger,
                entry,
                key,
                raw,
            } => {
                request.add = Some(AddRequest {
                    ledger: Some(ledger),
                    entry: Some(entry),
                    key: Some(key.to_vec()),
                    raw: Some(raw.to_vec()),
                    flag: Some(RECOVERY_ADD),
                });
            }
            Question::Force { ledger } => request.force = of(ledger),
            Question::StartTls => request.start_tls = Some(Nothing {}),
            Question::Space => {
                request.info = Some(InfoRequest {
                    requested: Some(SPACE),
                });
            }
        }
        request
    }
}

/// The message with its length before it, as it is sent.
pub(super) fn framed(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(4 + length);
    frame.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    message.encode_raw(&mut frame);
    frame
}

/// What both statuses of an answer come to: that within says more, but the outer one alone may be there.
pub(super) fn status(outer: Option<i32>, inner: Option<i32>) -> Code {
    let inner = inner.map_or(Code::Ok, Code::from_number);
    match inner {
        Code::Ok => outer.map_or(Code::Unknown(-1), Code::from_number),
        inner => inner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(question: Question<'_>) -> String {
        let frame = framed(&question.request(300));
        frame.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn requests_as_they_are_sent() {
        let ledger = 7;
        insta::assert_snapshot!(hex(Question::Entry { ledger, entry: 9 }), @"000000100a070803100118ac02a2060408071009");
        insta::assert_snapshot!(hex(Question::After { ledger, entry: 9 }), @"0000001e0a070803100118ac02a20612080710ffffffffffffffffff012009a00602");
        insta::assert_snapshot!(hex(Question::Confirmed { ledger }), @"0000000e0a070803100718ac02c206020807");
        insta::assert_snapshot!(hex(Question::Held { ledger }), @"0000000e0a070803100b18ac02e206020807");
        insta::assert_snapshot!(hex(Question::Space), @"0000000e0a070803100818ac02ca06020803");
        let (key, raw) = (&[0xaa; 20], &b"raw"[..]);
        let add = Question::Add {
            ledger,
            entry: 9,
            key,
            raw,
        };
        insta::assert_snapshot!(hex(add), @"0000002e0a070803100218ac02aa0622080710091a14aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2203726177a00601");
        insta::assert_snapshot!(hex(Question::Force { ledger }), @"0000000e0a070803100a18ac02da06020807");
        insta::assert_snapshot!(hex(Question::StartTls), @"0000000c0a070803100918ac02d20600");
    }

    #[test]
    fn both_statuses_count() {
        assert_eq!(status(Some(0), Some(0)), Code::Ok);
        assert_eq!(status(Some(0), Some(402)), Code::NoLedger);
        assert_eq!(status(Some(404), Some(0)), Code::BadRequest);
        assert_eq!(status(Some(404), None), Code::BadRequest);
        assert_eq!(status(Some(501), Some(403)), Code::NoEntry);
        assert_eq!(status(None, Some(0)), Code::Unknown(-1));
    }
}
