//! What a bookie says instead of an answer, and why there is none.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use super::held::HeldError;
use crate::cluster::store::StoreError;

/// A status of BookKeeper's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Done.
    Ok,
    /// The bookie has nothing of the ledger.
    NoLedger,
    /// It has no such entry of it.
    NoEntry,
    /// It does not understand the request.
    BadRequest,
    /// Its disk failed.
    Io,
    /// The ledger has another key, or whoever asks must say first who it is.
    Unauthorized,
    /// It speaks another version of the protocol.
    BadVersion,
    /// Somebody fenced the ledger.
    Fenced,
    /// It is read-only.
    ReadOnly,
    /// It has too much to do.
    TooManyRequests,
    /// It lost its index, and cannot tell what it had.
    UnknownLedgerState,
    /// Of a later version.
    Unknown(i32),
}

/// Each code, its number and its name.
const CODES: [(Code, i32, &str); 11] = [
    (Code::Ok, 0, "EOK"),
    (Code::NoLedger, 402, "ENOLEDGER"),
    (Code::NoEntry, 403, "ENOENTRY"),
    (Code::BadRequest, 404, "EBADREQ"),
    (Code::Io, 501, "EIO"),
    (Code::Unauthorized, 502, "EUA"),
    (Code::BadVersion, 503, "EBADVERSION"),
    (Code::Fenced, 504, "EFENCED"),
    (Code::ReadOnly, 505, "EREADONLY"),
    (Code::TooManyRequests, 506, "ETOOMANYREQUESTS"),
    (Code::UnknownLedgerState, 507, "EUNKNOWNLEDGERSTATE"),
];

impl Code {
    /// The code with that number.
    #[must_use]
    pub fn from_number(number: i32) -> Code {
        let known = CODES.iter().find(|(_, other, _)| *other == number);
        known.map_or(Code::Unknown(number), |(code, _, _)| *code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CODES.iter().find(|(code, _, _)| code == self) {
            Some((_, _, name)) => f.write_str(name),
            None => match self {
                Code::Unknown(number) => write!(f, "status {number}"),
                other => write!(f, "{other:?}"),
            },
        }
    }
}

/// Why a bookie gave no answer, or none that can be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BookieError {
    /// Its address is not known.
    #[error("it is not registered, and its id is no host and port")]
    NoAddress,
    /// No node can be called so.
    #[error("it cannot be a bookie's id: {0}")]
    Id(String),
    /// Its registration cannot be read.
    #[error("its registration cannot be read")]
    Registration(#[source] StoreError),
    /// What it registered is nothing of the kind.
    #[error("its registration cannot be understood: {0}")]
    Endpoints(String),
    /// Nobody answers there.
    #[error("{address} cannot be reached: {why}")]
    Unreachable {
        /// Where.
        address: String,
        /// Why.
        why: String,
    },
    /// The connection ended before the answer came.
    #[error("the connection ended: {0}")]
    Ended(String),
    /// TLS is wanted, and it has none.
    #[error("TLS is wanted, and it answered {0} to START_TLS")]
    NoTls(Code),
    /// The handshake failed.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// No answer in time.
    #[error("there was no answer within {0:?}")]
    TimedOut(Duration),
    /// It says why not.
    #[error("it answered {0}")]
    Status(Code),
    /// The answer lacks something.
    #[error("its answer lacks {0}")]
    Lacks(&'static str),
    /// The answer is about something else.
    #[error("it was asked about {asked} and answered about {answered}")]
    Other {
        /// Ledger and entry.
        asked: String,
        /// Ledger and entry.
        answered: String,
    },
    /// Its list of entries is none.
    #[error("its list of entries cannot be understood")]
    Held(#[from] HeldError),
    /// A number beyond those of the protocol.
    #[error("{0} is more than a ledger or an entry can be called")]
    TooLarge(u64),
}

impl BookieError {
    /// It proves that this bookie does not have what was asked for. Everything else proves nothing.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, BookieError::Status(Code::NoLedger | Code::NoEntry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names_and_later_ones_a_number() {
        for (code, number, name) in CODES {
            assert_eq!(Code::from_number(number), code);
            assert_eq!(code.to_string(), name);
        }
        assert_eq!(Code::from_number(508), Code::Unknown(508));
        insta::assert_snapshot!(BookieError::Status(Code::Unknown(508)), @"it answered status 508");
    }

    #[test]
    fn only_two_of_them_prove_that_nothing_is_there() {
        let absent = |code| BookieError::Status(code).is_absent();
        let proofs = CODES.into_iter().filter(|(code, _, _)| absent(*code));
        let proofs: Vec<_> = proofs.map(|(_, _, name)| name).collect();
        assert_eq!(proofs, ["ENOLEDGER", "ENOENTRY"]);
    }
}
