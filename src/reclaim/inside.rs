//! What is written inside ledgers, for the references that stand nowhere else: the compacted ledger of a loaded topic
//! is named by the last entry of a cursor's ledger, old versions of a schema by entries of the newer ones. Reads only: no
//! ledger is fenced by it, and a writer does not notice.

use std::future::Future;
use std::pin::Pin;

use thiserror::Error;
use tokio::task::JoinSet;

use super::plan::LedgerId;
use crate::cluster::bookie::{Bookie, Bookies, Digest, Held};
use crate::cluster::ledger::{LedgerMetadata, LedgerState};
use crate::report;

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

    /// As [`Entries::last_add_confirmed`], with the bytes of one copy of all entries up to the last one; none if those are not
    /// known. While somebody writes it is more by the next moment.
    fn confirmed_and_length<'a>(
        &'a self,
        ledger: LedgerId,
        metadata: &'a LedgerMetadata,
    ) -> Told<'a, (i64, Option<u64>)> {
        Box::pin(async move { Ok((self.last_add_confirmed(ledger, metadata).await?, None)) })
    }

    /// Which entries of a ledger a bookie still has, whatever the metadata says. Empty if it does not know the ledger.
    /// Bookies with `DbLedgerStorage`, as Pulsar's have, cannot tell: an error after the deadline of an answer.
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

/// Asks the bookies of a cluster. Entries are checked with an empty password, which is Pulsar's: those of
/// a ledger that has another one and a digest made with it are not readable.
#[derive(Debug)]
pub struct Inside {
    bookies: Bookies,
}

/// Where a ledger that is not closed ends now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tail {
    /// The last entry that anybody has.
    last: Option<u64>,
    /// The newest that is known to be confirmed, or -1.
    confirmed: i64,
    /// Bytes of all entries up to the last one that was read.
    length: u64,
}

impl Tail {
    /// Of nothing.
    const EMPTY: Tail = Tail {
        last: None,
        confirmed: -1,
        length: 0,
    };

    fn and(self, other: Tail) -> Tail {
        let confirmed = self.confirmed.max(other.confirmed);
        Tail {
            // What is confirmed is there, whoever has it.
            last: self.last.max(other.last).max(u64::try_from(confirmed).ok()),
            confirmed,
            length: self.length.max(other.length),
        }
    }

    /// None where entries are known to be there of which none was read.
    fn length(self) -> Option<u64> {
        (0 < self.length || self.last.is_none()).then_some(self.length)
    }
}

impl Inside {
    /// Of this cluster.
    #[must_use]
    pub fn new(bookies: Bookies) -> Inside {
        Inside { bookies }
    }

    /// Whether a bookie has an entry: it is read, for storages that cannot list what they have.
    ///
    /// # Errors
    /// There is no answer, or one that says neither.
    pub async fn has_entry(
        &self,
        bookie: &str,
        ledger: LedgerId,
        entry: u64,
    ) -> Result<bool, InsideError> {
        match self.bookies.get(bookie).read_entry(ledger, entry).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_absent() => Ok(false),
            Err(error) => Err(InsideError::Held {
                ledger,
                bookie: bookie.to_owned(),
                why: report::text(&error),
            }),
        }
    }

    /// Asks every bookie of the newest ensemble at once.
    async fn tail(&self, ledger: LedgerId, metadata: &LedgerMetadata) -> Result<Tail, InsideError> {
        let digest = digest(ledger, metadata)?;
        let unknown = |why: String| InsideError::End { ledger, why };
        let segment = metadata.segments.last();
        let segment = segment.ok_or_else(|| unknown("it has no bookies".to_owned()))?;
        let mut asked = JoinSet::new();
        for (place, member) in segment.members.iter().enumerate() {
            let (bookie, digest) = (self.bookies.get(member), digest.clone());
            asked.spawn(async move { (place, tail_on(&bookie, &digest, ledger).await) });
        }
        // An ensemble changes when everything before is confirmed.
        let before = segment.first_entry.checked_sub(1);
        let mut tail = Tail::EMPTY.and(Tail {
            last: before,
            confirmed: before.and_then(|id| i64::try_from(id).ok()).unwrap_or(-1),
            length: 0,
        });
        let mut answered = vec![false; segment.members.len()];
        let mut problems = Vec::new();
        while let Some(one) = asked.join_next().await {
            match one {
                Ok((place, Ok(found))) => {
                    answered[place] = true;
                    tail = tail.and(found);
                }
                Ok((place, Err(why))) => {
                    problems.push((place, format!("{}: {why}", segment.members[place])));
                }
                Err(stopped) => problems.push((usize::MAX, stopped.to_string())),
            }
        }
        if covers(&answered, metadata) {
            Ok(tail)
        } else {
            problems.sort();
            let told: Vec<_> = problems.into_iter().map(|(_, why)| why).collect();
            Err(unknown(told.join("; ")))
        }
    }
}

/// Any entry that was acknowledged is known to one of those who answered: the silent ones of each write set
/// are fewer than had to acknowledge.
fn covers(answered: &[bool], metadata: &LedgerMetadata) -> bool {
    let (write, ack) = (metadata.write_quorum as usize, metadata.ack_quorum as usize);
    (0..answered.len()).all(|first| {
        let set = answered.iter().cycle().skip(first).take(write);
        set.filter(|answered| !**answered).count() < ack
    })
}

/// What one bookie knows about it.
async fn tail_on(bookie: &Bookie, digest: &Digest, ledger: LedgerId) -> Result<Tail, String> {
    let opened = |raw: &[u8]| {
        let entry = digest.open(ledger, None, raw);
        entry.map(|entry| Tail {
            last: Some(entry.id),
            confirmed: entry.confirmed,
            length: u64::try_from(entry.length).unwrap_or(0),
        })
    };
    let last = match bookie.read_last(ledger).await {
        // Whoever has no entry has nothing to tell about them.
        Err(error) if error.is_absent() => return Ok(Tail::EMPTY),
        last => last.map_err(|error| report::text(&error))?,
    };
    let mut tail = opened(&last).map_err(|error| error.to_string())?;
    let told = match bookie.read_confirmed(ledger).await {
        // Old versions say so where nothing was told between entries.
        Err(error) if error.is_absent() => return Ok(tail),
        told => told.map_err(|error| report::text(&error))?,
    };
    if let Some(last) = &told.last {
        tail = tail.and(opened(last).map_err(|error| error.to_string())?);
    }
    if let Some(told) = &told.told {
        let confirmed = digest.open_confirmed(ledger, told);
        tail = tail.and(Tail {
            confirmed: confirmed.map_err(|error| error.to_string())?,
            ..Tail::EMPTY
        });
    }
    Ok(tail)
}

fn digest(ledger: LedgerId, metadata: &LedgerMetadata) -> Result<Digest, InsideError> {
    let kind = metadata.digest.ok_or(InsideError::NoDigest { ledger })?;
    Ok(Digest::new(kind, b""))
}

impl Entries for Inside {
    fn last_entry<'a>(
        &'a self,
        ledger: LedgerId,
        metadata: &'a LedgerMetadata,
    ) -> Told<'a, Option<u64>> {
        Box::pin(async move {
            match metadata.state {
                LedgerState::Closed => Ok(metadata.last_entry),
                _ => Ok(self.tail(ledger, metadata).await?.last),
            }
        })
    }

    fn read<'a>(
        &'a self,
        ledger: LedgerId,
        metadata: &'a LedgerMetadata,
        entry: u64,
    ) -> Told<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let digest = digest(ledger, metadata)?;
            let mut problems = Vec::new();
            let set = metadata.write_set(entry);
            for member in &set {
                let why = match self.bookies.get(member).read_entry(ledger, entry).await {
                    Err(error) if error.is_absent() => continue,
                    Err(error) => report::text(&error),
                    Ok(raw) => match digest.open(ledger, Some(entry), &raw) {
                        Ok(opened) => return Ok(Some(opened.payload.to_vec())),
                        Err(error) => error.to_string(),
                    },
                };
                problems.push(format!("{member}: {why}"));
            }
            if set.is_empty() {
                problems.push("no bookie is named for it".to_owned());
            }
            match problems.is_empty() {
                true => Ok(None),
                false => Err(InsideError::Entry {
                    ledger,
                    entry,
                    why: problems.join("; "),
                }),
            }
        })
    }

    fn last_add_confirmed<'a>(
        &'a self,
        ledger: LedgerId,
        metadata: &'a LedgerMetadata,
    ) -> Told<'a, i64> {
        Box::pin(async move {
            let last = metadata
                .last_entry
                .and_then(|last| i64::try_from(last).ok());
            match metadata.state {
                LedgerState::Closed => Ok(last.unwrap_or(-1)),
                _ => Ok(self.tail(ledger, metadata).await?.confirmed),
            }
        })
    }

    fn confirmed_and_length<'a>(
        &'a self,
        ledger: LedgerId,
        metadata: &'a LedgerMetadata,
    ) -> Told<'a, (i64, Option<u64>)> {
        Box::pin(async move {
            match metadata.state {
                LedgerState::Closed => {
                    let confirmed = self.last_add_confirmed(ledger, metadata).await?;
                    Ok((confirmed, Some(metadata.length)))
                }
                _ => {
                    let tail = self.tail(ledger, metadata).await?;
                    Ok((tail.confirmed, tail.length()))
                }
            }
        })
    }

    fn entries_held<'a>(&'a self, bookie: &'a str, ledger: LedgerId) -> Told<'a, Held> {
        Box::pin(async move {
            match self.bookies.get(bookie).entries_held(ledger).await {
                Ok(held) => Ok(held),
                Err(error) if error.is_absent() => Ok(Held::default()),
                Err(error) => Err(InsideError::Held {
                    ledger,
                    bookie: bookie.to_owned(),
                    why: report::text(&error),
                }),
            }
        })
    }
}

#[cfg(test)]
mod tests;
