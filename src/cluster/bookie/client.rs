//! What bookies can be asked. There is one connection to each, made when it is needed and made again after it
//! ended; what it does not answer in time is an error of that question alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::address;
use super::connection::Connection;
use super::error::{BookieError, Code};
use super::held::Held;
use super::messages::{LAST, Question, ReadResponse, Response, status};
use super::secured::Secured;
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::cluster::Tls;
use crate::cluster::store::MetaStore;
use crate::health::moment::Elapsed;

/// How often a bookie that has too much to do is asked: with the usual waits between, for about a second and a half.
const TRIES: usize = 4;

/// What is asked of a bookie at most, and how long it is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For one answer. A bookie that serves takes milliseconds, one whose disk is busy takes seconds; its
    /// clients wait 5 s by default.
    pub answer: Duration,
    /// For a connection, its address looked up included.
    pub connect: Duration,
    /// For how long a bookie that could not be reached, or was silent, is not tried again.
    pub rest: Duration,
    /// The first wait before a bookie that has too much to do is asked again, and the longest.
    pub waits: (Duration, Duration),
    /// Questions under way at a time: enough to hide the way to a bookie, few enough beside the work of its clients.
    pub in_flight: usize,
    /// Bytes of an answer. Bookies take 5 MiB at most, and those of Pulsar 10 KiB more (`nettyMaxFrameSizeBytes`).
    pub frame: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            answer: Duration::from_secs(10),
            connect: Duration::from_secs(5),
            rest: Duration::from_secs(5),
            waits: (Duration::from_millis(200), Duration::from_secs(1)),
            in_flight: 32,
            frame: (5 << 20) + (64 << 10),
        }
    }
}

/// The bookies of a cluster.
pub struct Bookies {
    shared: Arc<Shared>,
    /// Those that were asked for: as many as ensembles name.
    known: Mutex<BTreeMap<String, Arc<Bookie>>>,
}

struct Shared {
    store: Arc<dyn MetaStore>,
    ledgers_root: String,
    clock: Clock,
    limits: Limits,
    tls: Option<Secured>,
}

/// One of them. Its answers are as it gave them: whether an entry is what its writer wrote is for
/// [`Digest`](super::Digest) to tell.
pub struct Bookie {
    id: String,
    shared: Arc<Shared>,
    turns: Semaphore,
    line: tokio::sync::Mutex<Line>,
}

#[derive(Default)]
struct Line {
    connection: Option<Arc<Connection>>,
    /// When it could not be reached the last time, or was silent, and why.
    failed: Option<(Elapsed, BookieError)>,
}

/// What comes after an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// The newest entry of which the bookie knows that it is confirmed; -1 if it knows of none.
    pub confirmed: i64,
    /// The next entry, raw; none if it is not confirmed yet, or on other bookies.
    pub entry: Option<Vec<u8>>,
}

/// What a bookie knows about the end of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Confirmed {
    /// What the writer told between entries, raw: few writers do.
    pub told: Option<Vec<u8>>,
    /// The last entry that the bookie has, raw. Old versions leave it out where nothing was told.
    pub last: Option<Vec<u8>>,
}

/// A bookie's space, of all its ledger directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes.
    pub total: u64,
    /// Bytes that are free.
    pub free: u64,
}

impl std::fmt::Debug for Bookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the bookies of {}", self.shared.ledgers_root)
    }
}

impl std::fmt::Debug for Bookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bookie {}", self.id)
    }
}

impl Bookies {
    /// Those that are registered below this root. Connects to none. Needs a runtime once it is asked.
    #[must_use]
    pub fn new(
        store: Arc<dyn MetaStore>,
        ledgers_root: &str,
        clock: Clock,
        limits: Limits,
    ) -> Bookies {
        Bookies {
            shared: Arc::new(Shared {
                store,
                ledgers_root: ledgers_root.to_owned(),
                clock,
                limits,
                tls: None,
            }),
            known: Mutex::default(),
        }
    }

    /// The same, and each connection goes on in TLS (`START_TLS`) before anything is asked. A bookie without it, or whose
    /// certificate is not one for its host, is not asked.
    ///
    /// # Errors
    /// The certificates or the key are none, in words.
    pub fn with_tls(self, tls: &Tls) -> Result<Bookies, String> {
        let Shared {
            store,
            ledgers_root,
            clock,
            limits,
            ..
        } = &*self.shared;
        let shared = Shared {
            store: Arc::clone(store),
            ledgers_root: ledgers_root.clone(),
            clock: clock.clone(),
            limits: *limits,
            tls: Some(Secured::new(tls)?),
        };
        Ok(Bookies {
            shared: Arc::new(shared),
            known: Mutex::default(),
        })
    }

    /// The bookie that an ensemble calls so. It need not exist.
    #[must_use]
    pub fn get(&self, id: &str) -> Arc<Bookie> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bookie) = known.get(id) {
            return Arc::clone(bookie);
        }
        let bookie = Arc::new(Bookie {
            id: id.to_owned(),
            shared: Arc::clone(&self.shared),
            turns: Semaphore::new(self.shared.limits.in_flight),
            line: tokio::sync::Mutex::default(),
        });
        known.insert(id.to_owned(), Arc::clone(&bookie));
        bookie
    }
}

impl Bookie {
    /// What ensembles call it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// An entry, raw.
    ///
    /// # Errors
    /// There is no answer, or none with the entry.
    pub async fn read_entry(&self, ledger: u64, entry: u64) -> Result<Vec<u8>, BookieError> {
        let (ledger, entry) = (number(ledger)?, number(entry)?);
        let read = self.read(Question::Entry { ledger, entry }, ledger).await?;
        if read.entry != Some(entry) {
            return Err(other((ledger, Some(entry)), (read.ledger, read.entry)));
        }
        read.body.ok_or(BookieError::Lacks("the entry"))
    }

    /// The last entry of a ledger that this bookie has, raw, whether it is confirmed or not.
    ///
    /// # Errors
    /// There is no answer, or none with an entry.
    pub async fn read_last(&self, ledger: u64) -> Result<Vec<u8>, BookieError> {
        let (ledger, entry) = (number(ledger)?, LAST);
        let read = self.read(Question::Entry { ledger, entry }, ledger).await?;
        read.body.ok_or(BookieError::Lacks("the entry"))
    }

    /// What is confirmed, and the entry after this one (-1: the first) if it is: one question instead of two for
    /// who follows a ledger.
    ///
    /// # Errors
    /// There is no answer, or one that says why not.
    pub async fn read_after(&self, ledger: u64, entry: i64) -> Result<After, BookieError> {
        let ledger = number(ledger)?;
        let read = self.read(Question::After { ledger, entry }, ledger).await?;
        let next = entry.saturating_add(1);
        if read.body.is_some() && read.entry != Some(next) {
            return Err(other((ledger, Some(next)), (read.ledger, read.entry)));
        }
        Ok(After {
            confirmed: read
                .max_lac
                .ok_or(BookieError::Lacks("what is confirmed"))?,
            entry: read.body,
        })
    }

    /// What it knows about the end of a ledger, without fencing it.
    ///
    /// # Errors
    /// There is no answer, or one that says why not.
    pub async fn read_confirmed(&self, ledger: u64) -> Result<Confirmed, BookieError> {
        let ledger = number(ledger)?;
        let response = self.ask(Question::Confirmed { ledger }).await?;
        let answer = response.read_lac;
        checked(
            response.status,
            answer.as_ref().and_then(|answer| answer.status),
        )?;
        let answer = answer.ok_or(BookieError::Lacks("its body"))?;
        about(ledger, answer.ledger)?;
        Ok(Confirmed {
            told: answer.lac,
            last: answer.last_entry,
        })
    }

    /// Which entries of a ledger it has; [`Code::NoLedger`] if none. A bookie with `DbLedgerStorage`, as Pulsar's
    /// have, never answers (measured with 4.17.3): entries have to be read there.
    ///
    /// # Errors
    /// There is no answer, or one that says why not.
    pub async fn entries_held(&self, ledger: u64) -> Result<Held, BookieError> {
        let ledger = number(ledger)?;
        let response = self.ask(Question::Held { ledger }).await?;
        let answer = response.list_entries;
        checked(
            response.status,
            answer.as_ref().and_then(|answer| answer.status),
        )?;
        let answer = answer.ok_or(BookieError::Lacks("its body"))?;
        about(ledger, answer.ledger)?;
        let entries = answer.entries.ok_or(BookieError::Lacks("the entries"))?;
        Ok(Held::decode(&entries)?)
    }

    /// Gives it an entry, raw, of a ledger with that key (`ledger::Secret::master_key`), and waits until it is on its disk. It
    /// takes it also if the ledger is fenced (`RECOVERY_ADD`), and never if it is itself read-only: the request has no
    /// priority. A bookie checks no digest; the same entry again does no harm. Where it has too much to do it is not asked again here:
    /// each try is the whole entry, which only the caller knows to be within its share.
    ///
    /// # Errors
    /// There is no answer, and it may have the entry or may yet take it; or it says why not.
    pub async fn add_entry(
        &self,
        ledger: u64,
        entry: u64,
        key: &[u8; 20],
        raw: &[u8],
    ) -> Result<(), BookieError> {
        let (ledger, entry) = (number(ledger)?, number(entry)?);
        let add = Question::Add {
            ledger,
            entry,
            key,
            raw,
        };
        let response = self.ask(add).await?;
        let answer = response.add;
        checked(
            response.status,
            answer.as_ref().and_then(|answer| answer.status),
        )?;
        let answer = answer.ok_or(BookieError::Lacks("its body"))?;
        about(ledger, answer.ledger)?;
        if answer.entry != Some(entry) {
            return Err(other((ledger, Some(entry)), (answer.ledger, answer.entry)));
        }
        Ok(())
    }

    /// Waits until everything that it has of a ledger is on its disk: what was added without flags is already.
    ///
    /// # Errors
    /// There is no answer, or one that says why not.
    pub async fn force_ledger(&self, ledger: u64) -> Result<(), BookieError> {
        let ledger = number(ledger)?;
        let response = self.ask(Question::Force { ledger }).await?;
        let answer = response.force;
        checked(
            response.status,
            answer.as_ref().and_then(|answer| answer.status),
        )?;
        let answer = answer.ok_or(BookieError::Lacks("its body"))?;
        about(ledger, answer.ledger)
    }

    /// Its space.
    ///
    /// # Errors
    /// There is no answer, or one that says why not.
    pub async fn space(&self) -> Result<Space, BookieError> {
        let response = self.ask(Question::Space).await?;
        let answer = response.info;
        checked(
            response.status,
            answer.as_ref().and_then(|answer| answer.status),
        )?;
        let answer = answer.ok_or(BookieError::Lacks("its body"))?;
        let bytes = |value: Option<i64>| value.and_then(|bytes| u64::try_from(bytes).ok());
        Ok(Space {
            total: bytes(answer.total).ok_or(BookieError::Lacks("its capacity"))?,
            free: bytes(answer.free).ok_or(BookieError::Lacks("its free space"))?,
        })
    }

    async fn read(&self, question: Question<'_>, ledger: i64) -> Result<ReadResponse, BookieError> {
        let response = self.ask(question).await?;
        let answer = response.read;
        checked(
            response.status,
            answer.as_ref().and_then(|answer| answer.status),
        )?;
        let answer = answer.ok_or(BookieError::Lacks("its body"))?;
        about(ledger, answer.ledger)?;
        Ok(answer)
    }

    /// Asks when it is this question's turn, and again if the bookie has too much to do.
    async fn ask(&self, question: Question<'_>) -> Result<Response, BookieError> {
        let _turn = self.turns.acquire().await;
        let (first, longest) = self.shared.limits.waits;
        let mut waits = Backoff::new(first, longest);
        for _ in 1..TRIES {
            let response = self.ask_once(question).await?;
            if response.status != Some(BUSY) || matches!(question, Question::Add { .. }) {
                return Ok(response);
            }
            sleep(waits.next_wait(fastrand::f64())).await;
        }
        self.ask_once(question).await
    }

    /// A connection that stood idle may be dead already, which is no reason to fail: nothing that is asked here
    /// does harm twice.
    async fn ask_once(&self, question: Question<'_>) -> Result<Response, BookieError> {
        let (connection, is_new) = self.connection().await?;
        match self.ask_over(&connection, question).await {
            Err(BookieError::Ended(_)) if !is_new => {
                let (connection, _) = self.connection().await?;
                self.ask_over(&connection, question).await
            }
            told => told,
        }
    }

    async fn ask_over(
        &self,
        connection: &Connection,
        question: Question<'_>,
    ) -> Result<Response, BookieError> {
        let heard = connection.heard();
        let limit = self.shared.limits.answer;
        match timeout(limit, connection.ask(question)).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = BookieError::TimedOut(limit);
                // Pulsar's storage has no list of entries, and a bookie with it says nothing at all.
                let may_be_silent = matches!(question, Question::Held { .. });
                if !may_be_silent && connection.end_if_silent(heard) {
                    let now = self.shared.clock.elapsed();
                    self.line.lock().await.failed = Some((now, why.clone()));
                }
                Err(why)
            }
        }
    }

    /// A live connection, and whether it was made just now.
    async fn connection(&self) -> Result<(Arc<Connection>, bool), BookieError> {
        let mut line = self.line.lock().await;
        if let Some(connection) = line.connection.as_ref().filter(|one| one.is_live()) {
            return Ok((Arc::clone(connection), false));
        }
        line.connection = None;
        let Shared { clock, limits, .. } = &*self.shared;
        if let Some((at, why)) = &line.failed
            && clock.elapsed().saturating_sub(*at) < limits.rest
        {
            return Err(why.clone());
        }
        let connected = timeout(limits.connect, self.connect()).await;
        match connected.unwrap_or(Err(BookieError::TimedOut(limits.connect))) {
            Ok(connection) => {
                let connection = Arc::new(connection);
                line.failed = None;
                line.connection = Some(Arc::clone(&connection));
                Ok((connection, true))
            }
            Err(why) => {
                line.failed = Some((clock.elapsed(), why.clone()));
                Err(why)
            }
        }
    }

    async fn connect(&self) -> Result<Connection, BookieError> {
        let Shared {
            store,
            ledgers_root,
            limits,
            tls,
            ..
        } = &*self.shared;
        let address = address::of(&**store, ledgers_root, &self.id).await?;
        let failed = |why: std::io::Error| BookieError::Unreachable {
            address: address.to_string(),
            why: why.to_string(),
        };
        let stream = TcpStream::connect((address.host.as_str(), address.port));
        let stream = stream.await.map_err(failed)?;
        // A request is one small packet, and nothing follows that it could wait for.
        stream.set_nodelay(true).map_err(failed)?;
        Ok(match tls {
            None => Connection::over(stream, limits.frame),
            Some(tls) => Connection::over(tls.secure(stream, &address.host).await?, limits.frame),
        })
    }
}

/// `ETOOMANYREQUESTS`.
const BUSY: i32 = 506;

fn number(id: u64) -> Result<i64, BookieError> {
    i64::try_from(id).map_err(|_| BookieError::TooLarge(id))
}

fn checked(outer: Option<i32>, inner: Option<i32>) -> Result<(), BookieError> {
    match status(outer, inner) {
        Code::Ok => Ok(()),
        code => Err(BookieError::Status(code)),
    }
}

fn about(ledger: i64, answered: Option<i64>) -> Result<(), BookieError> {
    if answered == Some(ledger) {
        return Ok(());
    }
    Err(other((ledger, None), (answered, None)))
}

fn other(asked: (i64, Option<i64>), answered: (Option<i64>, Option<i64>)) -> BookieError {
    let named = |ledger: Option<i64>, entry: Option<i64>| {
        let ledger = ledger.map_or("no ledger".to_owned(), |id| format!("ledger {id}"));
        entry.map_or(ledger.clone(), |entry| format!("entry {entry} of {ledger}"))
    };
    BookieError::Other {
        asked: named(Some(asked.0), asked.1),
        answered: named(answered.0, answered.1),
    }
}
