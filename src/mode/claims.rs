//! The book of claims as a JSON document: one in the state store, one in ZooKeeper under
//! `<root>/<instance id>/claims/<bookie id>`, byte for byte the same.

use serde::{Deserialize, Serialize};

use super::plan::book::Book;
use crate::health::claim::{Claim, Owner};
use crate::health::moment::Timestamp;
use crate::health::policy::Mode;

/// Written into each document. A reader refuses what is newer than it.
const VERSION: u32 = 1;

/// Why a document is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    /// It is no such document.
    #[error("the claims are not a document of this program ({0})")]
    Garbage(String),
    /// It was written by a newer version.
    #[error("the claims were written by a newer version ({found}, this program knows {VERSION})")]
    Newer {
        /// Its version.
        found: u32,
    },
}

// The field names are a promise: agents of other versions and drain jobs read them.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    version: u32,
    revision: u64,
    /// The bookie went although too few stayed: the next one waits for it.
    #[serde(default)]
    below_floor: bool,
    #[serde(default)]
    releasing: bool,
    #[serde(default)]
    agent: Option<Entry>,
    #[serde(default)]
    operator: Option<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    mode: String,
    reason: String,
    /// Milliseconds since the epoch.
    since: i64,
    #[serde(default)]
    pending: bool,
}

/// The document of a book.
#[must_use]
pub fn to_json(book: &Book) -> Vec<u8> {
    let below_floor = book.agent.as_ref().is_some_and(|claim| claim.below_floor);
    let document = Document {
        version: VERSION,
        revision: book.revision,
        below_floor,
        releasing: book.releasing,
        agent: book.agent.as_ref().map(entry),
        operator: book.operator.as_ref().map(entry),
    };
    // Numbers and texts only: there is nothing in it that could fail.
    serde_json::to_vec(&document).unwrap_or_default()
}

fn entry(claim: &Claim) -> Entry {
    Entry {
        mode: claim.mode.name().to_owned(),
        reason: claim.reason.clone(),
        since: claim.since.0,
        pending: claim.pending,
    }
}

/// The book of a document.
///
/// # Errors
/// It is not one, or was written by a newer version. Then nothing may be claimed or ended: what it says
/// is not known.
pub fn from_json(bytes: &[u8]) -> Result<Book, ClaimsError> {
    let garbage = |error: serde_json::Error| ClaimsError::Garbage(error.to_string());
    let document: Document = serde_json::from_slice(bytes).map_err(garbage)?;
    if VERSION < document.version {
        let found = document.version;
        return Err(ClaimsError::Newer { found });
    }
    let claim = |owner: Owner, entry: Entry, below_floor: bool| {
        let modes = [Mode::ReadOnly, Mode::Writable];
        let mode = modes.into_iter().find(|mode| mode.name() == entry.mode);
        let unknown = || ClaimsError::Garbage(format!("unknown mode {:?}", entry.mode));
        Ok(Claim {
            owner,
            mode: mode.ok_or_else(unknown)?,
            reason: entry.reason,
            since: Timestamp(entry.since),
            pending: entry.pending,
            below_floor,
        })
    };
    let below = document.below_floor;
    let agent = document.agent;
    let operator = document.operator;
    Ok(Book {
        revision: document.revision,
        agent: agent
            .map(|entry| claim(Owner::Agent, entry, below))
            .transpose()?,
        operator: operator
            .map(|entry| claim(Owner::Operator, entry, false))
            .transpose()?,
        releasing: document.releasing,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::edited;

    fn book() -> Book {
        let claim = |owner, mode, below_floor| Claim {
            owner,
            mode,
            reason: "journal /j is \"full\"\n".to_owned(),
            since: Timestamp(1_796_000_000_000),
            pending: true,
            below_floor,
        };
        Book {
            revision: 7,
            agent: Some(claim(Owner::Agent, Mode::ReadOnly, true)),
            operator: Some(claim(Owner::Operator, Mode::Writable, false)),
            releasing: true,
        }
    }

    #[test]
    fn a_book_survives_its_document() {
        // `cluster::claims` reads of it whether there is a claim.
        assert_eq!(
            String::from_utf8_lossy(&to_json(&Book::default())),
            r#"{"version":1,"revision":0,"belowFloor":false,"releasing":false,"agent":null,"operator":null}"#
        );
        for book in [Book::default(), book()] {
            assert_eq!(from_json(&to_json(&book)), Ok(book));
        }
    }

    /// Agents beside other bookies read it so (`cluster::claims`): one in which nothing stands holds nothing.
    #[test]
    fn a_book_without_claims_in_words() {
        let book = Book {
            revision: 3,
            ..Book::default()
        };
        assert_eq!(
            String::from_utf8_lossy(&to_json(&book)),
            r#"{"version":1,"revision":3,"belowFloor":false,"releasing":false,"agent":null,"operator":null}"#
        );
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let refused = |text: &str| from_json(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            refused(r#"{"version":2,"revision":1}"#),
            "the claims were written by a newer version (2, this program knows 1)"
        );
        let wrong = r#"{"version":1,"revision":1,"agent":{"mode":"half","reason":"","since":1}}"#;
        assert!(refused(wrong).contains("unknown mode \"half\""));
        assert!(refused("").contains("not a document"));
        assert!(refused("[]").contains("not a document"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_book_or_an_error(bytes in edited(to_json(&book()))) {
            let _ = from_json(&bytes);
        }
    }
}
