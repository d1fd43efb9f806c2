//! What is asked of one bookie, in its turn, within its share of bytes, and again where it has too much to do. Which
//! bookies have no list of entries, and which do not take entries at the moment, is remembered for all ledgers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::gate::Gate;
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::cluster::bookie::{Bookie, BookieError, Bookies, Code, Held};
use crate::drain::throttle::{Line, Throttle, Way};

/// How often a bookie is asked that says each time that it has too much to do; where it is read from, after the client's own tries.
const BUSY_TRIES: usize = 8;

/// The first wait between them, and the longest: half a minute in all.
const BUSY_WAITS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// How long the first list of entries of a bookie is waited for: most bookies of Pulsar's never answer, and those that
/// do answer from memory.
const FIRST_LIST: Duration = Duration::from_secs(1);

/// For how long a bookie that took no entry is no target for any ledger: a restart is over by then.
const REST: Duration = Duration::from_secs(60);

/// All bookies, as the worker sees them.
pub(super) struct Replicas {
    bookies: Arc<Bookies>,
    clock: Clock,
    throttle: Throttle,
    known: Mutex<BTreeMap<String, Arc<Replica>>>,
    rests: Mutex<BTreeMap<String, Duration>>,
}

/// One of them.
pub(super) struct Replica {
    bookie: Arc<Bookie>,
    clock: Clock,
    gate: Arc<Gate>,
    read: Arc<Line>,
    write: Arc<Line>,
    lists: Mutex<Lists>,
}

/// Whether a bookie has lists of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lists {
    Unknown,
    Answered,
    Silent,
}

impl Replicas {
    pub(super) fn new(bookies: Arc<Bookies>, clock: Clock, throttle: Throttle) -> Replicas {
        Replicas {
            bookies,
            clock,
            throttle,
            known: Mutex::default(),
            rests: Mutex::default(),
        }
    }

    /// The bookie of that id.
    pub(super) fn get(&self, id: &str) -> Arc<Replica> {
        let mut known = lock(&self.known);
        let made = known.entry(id.to_owned()).or_insert_with(|| {
            Arc::new(Replica {
                bookie: self.bookies.get(id),
                clock: self.clock.clone(),
                gate: Arc::default(),
                read: self.throttle.line(id, Way::Read),
                write: self.throttle.line(id, Way::Write),
                lists: Mutex::new(Lists::Unknown),
            })
        });
        Arc::clone(made)
    }

    /// It took no entry, for a reason that is not of one ledger.
    pub(super) fn rest(&self, id: &str) {
        let until = self.clock.elapsed() + REST;
        lock(&self.rests).insert(id.to_owned(), until);
    }

    /// Those that are no targets now.
    pub(super) fn resting(&self) -> BTreeSet<String> {
        let (now, mut rests) = (self.clock.elapsed(), lock(&self.rests));
        rests.retain(|_, until| now < *until);
        rests.keys().cloned().collect()
    }
}

impl Replica {
    /// An entry, raw, of about that many bytes.
    pub(super) async fn read(
        &self,
        ledger: u64,
        entry: u64,
        about: usize,
    ) -> Result<Vec<u8>, BookieError> {
        self.read.take(about).await;
        let told = self
            .asked(0, || self.bookie.read_entry(ledger, entry))
            .await;
        let bytes = told.as_ref().map_or(0, Vec::len);
        if about < bytes {
            self.read.add(bytes - about);
        } else {
            self.read.give_back(about - bytes);
        }
        told
    }

    /// Gives it an entry.
    pub(super) async fn add(
        &self,
        ledger: u64,
        entry: u64,
        key: &[u8; 20],
        raw: &[u8],
    ) -> Result<(), BookieError> {
        self.write.take(raw.len()).await;
        let add = || self.bookie.add_entry(ledger, entry, key, raw);
        self.asked(raw.len(), add).await
    }

    /// Which entries it has; none where it does not say.
    pub(super) async fn held(&self, ledger: u64) -> Option<Held> {
        let lists = *lock(&self.lists);
        let limit = match lists {
            Lists::Silent => return None,
            Lists::Unknown => FIRST_LIST,
            // The client has a limit of its own.
            Lists::Answered => Duration::MAX,
        };
        match timeout(limit, self.bookie.entries_held(ledger)).await {
            Ok(Ok(held)) => {
                *lock(&self.lists) = Lists::Answered;
                Some(held)
            }
            // It has nothing of the ledger.
            Ok(Err(error)) if error.is_absent() => {
                *lock(&self.lists) = Lists::Answered;
                Some(Held::default())
            }
            Ok(Err(_)) => None,
            Err(_) => {
                *lock(&self.lists) = Lists::Silent;
                None
            }
        }
    }

    /// Asks until it has time. What has so many bytes is sent to it each time.
    async fn asked<T, F>(&self, sent: usize, ask: impl Fn() -> F) -> Result<T, BookieError>
    where
        F: Future<Output = Result<T, BookieError>>,
    {
        let mut waits = Backoff::new(BUSY_WAITS.0, BUSY_WAITS.1);
        for last in 1..=BUSY_TRIES {
            let turn = self.gate.enter().await;
            let began = self.clock.elapsed();
            match ask().await {
                Err(BookieError::Status(Code::TooManyRequests)) if last < BUSY_TRIES => turn.busy(),
                told => {
                    turn.answered(self.clock.elapsed().saturating_sub(began));
                    return told;
                }
            }
            sleep(waits.next_wait(fastrand::f64())).await;
            if 0 < sent {
                self.write.take(sent).await;
            }
        }
        Err(BookieError::Status(Code::TooManyRequests))
    }
}

/// It has too much to do, which is no reason to go elsewhere.
pub(super) fn is_busy(error: &BookieError) -> bool {
    *error == BookieError::Status(Code::TooManyRequests)
}

/// Why it took no entry is about that ledger, and not about the bookie.
pub(super) fn is_of_ledger(error: &BookieError) -> bool {
    matches!(
        error,
        BookieError::Status(Code::Fenced | Code::Unauthorized | Code::BadRequest)
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
