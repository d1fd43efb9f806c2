//! What is written inside ledgers, for the references that stand nowhere else: the compacted ledger of a loaded topic
//! is named by the last entry of a cursor's ledger, old versions of a schema by entries of the newer ones. Reads only: no
//! ledger is fenced by it, and a writer does not notice.

use std::future::Future;
use std::pin::Pin;

use thiserror::Error;

use super::plan::LedgerId;
use crate::cluster::bookie::Held;
use crate::cluster::ledger::LedgerMetadata;

/// What a question about entries comes to. Dropping it takes nothing back: nothing is changed by it.
pub type Told<'a, T> = Pin<Box<dyn Future<Output = Result<T, InsideError>> + Send + 'a>>;

/// Entries that a look at the end of an open ledger reads at most: a cursor's ledger has one unconfirmed entry or
/// none, and nobody writes more than some thousands at once. More are an error.
pub const MOST_AT_THE_END: u64 = 10_000;

/// Why it is not known what is inside a ledger. Never a proof that something is not there.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InsideError {
    /// No bookie gave a good answer, and at least one of them may have the entry.
    #[error("entry {entry} of ledger {ledger} cannot be read: {why}")]
    Entry {
        /// Of which ledger.
        ledger: LedgerId,
        /// Which entry.
        entry: u64,
        /// What the bookies said, in words.
        why: String,
    },
    /// So many bookies are silent that they may know of a later entry than all others.
    #[error("it is not known where ledger {ledger} ends now: {why}")]
    End {
        /// Which ledger.
        ledger: LedgerId,
        /// What the bookies said, in words.
        why: String,
    },
    /// The bookie does not say which entries it has.
    #[error("it is not known which entries of ledger {ledger} are on {bookie}: {why}")]
    Held {
        /// Which ledger.
        ledger: LedgerId,
        /// Which bookie.
        bookie: String,
        /// What it said, in words.
        why: String,
    },
    /// Its entries cannot be checked.
    #[error("the metadata of ledger {ledger} does not say how its entries are checked")]
    NoDigest {
        /// Which ledger.
        ledger: LedgerId,
    },
    /// Too far from the last confirmed entry to the last one.
    #[error(
        "ledger {ledger} has {count} entries that are not confirmed, more than {MOST_AT_THE_END}"
    )]
    TooMany {
        /// Which ledger.
        ledger: LedgerId,
        /// How many.
        count: u64,
    },
}

/// Reads inside ledgers. Every method may be asked at any time by many; each waits for bookies, with a
/// deadline of its own.
pub trait Entries: Send + Sync {
    /// The last entry that there is; none if there is none. Of a closed ledger it is what the metadata says, and
    /// nobody is asked. Of any other it is the last one that any bookie of its newest ensemble has: a recovery keeps it
    /// or throws it away, so what it says may hold or not, see [`Entries::end`].
    fn last_entry<'a>(
        &'a self,
        ledger: LedgerId,
        metadata: &'a LedgerMetadata,
    ) -> Told<'a, Option<u64>>;

    /// What the owner wrote as that entry, checked by its digest. None only if every bookie that may have it says
    /// that it has not; a silent one makes it an error.
    fn read<'a>(
        &'a self,
        ledger: LedgerId,
        metadata: &'a LedgerMetadata,
        entry: u64,
    ) -> Told<'a, Option<Vec<u8>>>;

    /// The newest entry that is known to be confirmed; -1 if none is. It moves at the latest with the next entry but
    /// one. An error if so many bookies are silent that one of them may know of a later one.
    fn last_add_confirmed<'a>(
        &'a self,
        ledger: LedgerId,
        metadata: &'a LedgerMetadata,
    ) -> Told<'a, i64>;

    /// Which entries of a ledger a bookie still has, whatever the metadata says. Empty if it does not know the ledger.
    fn entries_held<'a>(&'a self, bookie: &'a str, ledger: LedgerId) -> Told<'a, Held>;

    /// Every entry that may be the last one once somebody recovers the ledger, oldest first: of a closed ledger one, of any
    /// other all from the last confirmed one on. Whoever looks for references must take those of all of them. Empty if the
    /// ledger is.
    fn end<'a>(&'a self, ledger: LedgerId, metadata: &'a LedgerMetadata) -> Told<'a, Vec<Vec<u8>>> {
        Box::pin(async move {
            // Confirmed first: what is added meanwhile is then read too.
            let confirmed = self.last_add_confirmed(ledger, metadata).await?;
            let Some(last) = self.last_entry(ledger, metadata).await? else {
                return Ok(Vec::new());
            };
            let first = u64::try_from(confirmed).unwrap_or(0).min(last);
            let count = last - first;
            if MOST_AT_THE_END < count {
                return Err(InsideError::TooMany { ledger, count });
            }
            let mut entries = Vec::new();
            for entry in first..=last {
                match self.read(ledger, metadata, entry).await? {
                    Some(bytes) => entries.push(bytes),
                    // What was confirmed must be there. After it, what no bookie has was never acknowledged.
                    None if i64::try_from(entry).is_ok_and(|entry| entry <= confirmed) => {
                        let why = "every bookie says that it has no such entry".to_owned();
                        return Err(InsideError::Entry { ledger, entry, why });
                    }
                    None => {}
                }
            }
            Ok(entries)
        })
    }
}
