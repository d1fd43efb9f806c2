//! The contents of the store's file: event log, outbox, identity pins, claims. Runs in the writer child, or
//! in a command that reads the file of an agent that is not running. Knows nothing of pipes,
//! sessions and locks.

use std::fs::File;
use std::ops::RangeFrom;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use redb::backends::FileBackend;
use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, StorageError, Table, TableDefinition, TableError, WriteTransaction,
};

use super::StoreError;
use super::overlay::Overlay;
use super::wire::{Contents, Event, EventPage, Numbered, PAGE_BYTES, Write};
use crate::health::moment::Timestamp;

/// Version of the tables below. A store with a newer one is not touched. A table that older
/// programs do not know, and leave as it is, raises no version.
const SCHEMA: u64 = 1;

/// Numbers by name.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
/// Number of the event: time of storing in milliseconds since 1970, JSON.
const EVENTS: TableDefinition<u64, (i64, &str)> = TableDefinition::new("events");
/// Events that a listener has not acknowledged.
const OUTBOX: TableDefinition<(u64, &str), ()> = TableDefinition::new("outbox");
/// Identity pins.
const PINS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("pins");
/// Claims on the server's mode: one value. Missing in stores of older programs.
const CLAIMS: TableDefinition<&str, &[u8]> = TableDefinition::new("claims");
/// The key of that value.
const CLAIMS_KEY: &str = "claims";

const META_SCHEMA: &str = "schema";
const META_LAST_SEQ: &str = "last_seq";
/// Sum of the sizes of all events, as [`row_bytes`] counts them.
const META_BYTES: &str = "event_bytes";

/// The database's own cache. All three processes together may have 10 MB; the file is written at
/// its end and read in sequence, so that a larger cache would not be hit more often.
const CACHE_BYTES: usize = 256 * 1024;

/// Most events that one transaction drops: keeps it within milliseconds when the retention was
/// lowered; the rest follows with the next ones.
const DROP_LIMIT: usize = 512;

/// Most events handed out as pending at start, newest first, and their most bytes: what a listener
/// that has been failing for days would get at once. Older ones stay in the event log only.
const PENDING_EVENTS: usize = 1000;
const PENDING_BYTES: usize = 1024 * 1024;

/// The largest number that JSON readers keep exact. A larger one in a file that proves corrupted is
/// not believed.
pub(super) const SEQ_LIMIT: u64 = 1 << 53;

/// A file format further ahead than this is taken for damage: it is one unprotected byte, and the
/// database has had three formats in as many years.
const FORMATS_AHEAD: u64 = 12;

/// What is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retention {
    pub(super) bytes: u64,
    pub(super) age: Duration,
}

/// What a transaction did beside storing.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Tickets of events whose number is taken.
    pub(super) number_taken: Vec<u64>,
    /// Dropped events that somebody had not acknowledged.
    pub(super) dropped_pending: u64,
    /// Whether more is to be dropped.
    pub(super) more_to_drop: bool,
}

/// Why the file cannot be used.
#[derive(Debug)]
pub(super) enum OpenError {
    /// Its contents are damaged, or are no store.
    Corrupted(String),
    /// It may be whole.
    Store(StoreError),
}

/// The open file.
#[derive(Debug)]
pub(super) struct Tables {
    database: Database,
    last_seq: u64,
}

impl Tables {
    /// Makes a new store in an empty file, whose events come after `last_seq`.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn create(file: File, last_seq: u64) -> Result<Tables, OpenError> {
        guarded(|| {
            let database = builder().create_with_backend(FileBackend::new(file)?)?;
            let transaction = begin(&database)?;
            {
                let mut meta = transaction.open_table(META)?;
                meta.insert(META_SCHEMA, SCHEMA)?;
                meta.insert(META_LAST_SEQ, last_seq)?;
                meta.insert(META_BYTES, 0)?;
                transaction.open_table(EVENTS)?;
                transaction.open_table(OUTBOX)?;
                transaction.open_table(PINS)?;
                transaction.open_table(CLAIMS)?;
            }
            transaction.commit()?;
            Tables::check(database)
        })
    }

    /// Opens a store and checks every page of it, which reads the whole file: the database trusts a
    /// page when it meets it later.
    ///
    /// # Errors
    /// It is damaged, cannot be written, or is somebody else's at the moment.
    pub(super) fn open(file: File) -> Result<Tables, OpenError> {
        guarded(|| {
            let mut builder = builder();
            builder.set_check_integrity_on_open(true);
            Tables::check(builder.create_with_backend(FileBackend::new(file)?)?)
        })
    }

    /// Opens a store to read it, and leaves the file as it is. Without `thorough` this takes
    /// milliseconds, and damage may go unnoticed.
    ///
    /// # Errors
    /// It is damaged, cannot be read, or is being written.
    pub(super) fn look(file: &File, thorough: bool) -> Result<Tables, OpenError> {
        let looked = guarded(|| {
            let file = file.try_clone().map_err(StorageError::Io)?;
            if file.metadata().map_err(StorageError::Io)?.len() == 0 {
                return Err(OpenError::Corrupted("it is empty".to_owned()));
            }
            let mut builder = builder();
            builder.set_check_integrity_on_open(thorough);
            let overlay = Overlay::new(file).map_err(StorageError::Io)?;
            Tables::check(builder.create_with_backend(overlay)?)
        });
        match looked {
            // A version ends an agent: it must not be a flipped bit.
            Err(OpenError::Store(StoreError::NewerVersion { .. })) if !thorough => {
                Tables::look(file, true)
            }
            looked => looked,
        }
    }

    fn check(database: Database) -> Result<Tables, OpenError> {
        let transaction = database.begin_read().map_err(redb::Error::from)?;
        let meta = match transaction.open_table(META) {
            Err(TableError::Storage(error)) => return Err(redb::Error::from(error).into()),
            Err(error) => return Err(OpenError::Corrupted(format!("it is no store: {error}"))),
            Ok(meta) => meta,
        };
        let number = |name| -> Result<u64, OpenError> {
            let value = meta.get_owned(name).map_err(redb::Error::from)?;
            let missing = || OpenError::Corrupted(format!("it is no store: {name} is missing"));
            value.map(|value| value.value()).ok_or_else(missing)
        };
        let found = number(META_SCHEMA)?;
        if SCHEMA < found {
            let known = SCHEMA;
            return Err(OpenError::Store(StoreError::NewerVersion { found, known }));
        }
        let last_seq = number(META_LAST_SEQ)?;
        drop(meta);
        drop(transaction);
        Ok(Tables { database, last_seq })
    }

    /// Number of the newest event ever stored, 0 when there was none.
    pub(super) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Makes these writes durable, all or none, and drops what is older than the retention.
    ///
    /// An event whose number is not above the last stored one never replaces anything: the same
    /// text under the same number counts as stored before, everything else is reported.
    ///
    /// # Errors
    /// Nothing was stored; the file has to be opened again.
    pub(super) fn write(
        &mut self,
        writes: &[Numbered],
        retention: Retention,
        now: Timestamp,
    ) -> Result<Written, StoreError> {
        self.write_and_drop(writes, retention, now)
            .map_err(|error| explain(&error))
    }

    fn write_and_drop(
        &mut self,
        writes: &[Numbered],
        retention: Retention,
        now: Timestamp,
    ) -> Result<Written, redb::Error> {
        let transaction = begin(&self.database)?;
        let mut written = Written::default();
        let last_seq = {
            let mut open = Open::new(&transaction, self.last_seq)?;
            for Numbered { ticket, write, .. } in writes {
                if !open.write(write, now)? {
                    written.number_taken.push(*ticket);
                }
            }
            open.drop_old(retention, now, &mut written)?;
            open.finish()?
        };
        transaction.commit()?;
        self.last_seq = last_seq;
        Ok(written)
    }

    /// Whether there is more than the retention allows.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn has_excess(
        &self,
        retention: Retention,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let ask = || -> Result<bool, redb::Error> {
            let transaction = self.database.begin_read()?;
            let meta = transaction.open_table(META)?;
            let bytes = meta.get_owned(META_BYTES)?.map_or(0, |bytes| bytes.value());
            let events = transaction.open_table(EVENTS)?;
            let Some((_, row)) = events.first()? else {
                return Ok(false);
            };
            Ok(retention.bytes < bytes || row.value().0 < oldest_kept(retention, now))
        };
        ask().map_err(|error| explain(&error))
    }

    /// Events after `since`, oldest first; at most `limit`, and a bounded number of bytes.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn events(&self, since: u64, limit: usize) -> Result<EventPage, StoreError> {
        let read = || -> Result<EventPage, redb::Error> {
            let events = self.database.begin_read()?.open_table(EVENTS)?;
            let mut page = EventPage::default();
            let mut bytes = 0;
            for row in events.range_owned(after(since))? {
                let (seq, row) = row?;
                let (_, json) = row.value();
                bytes += json.len();
                if page.events.len() == limit || (PAGE_BYTES < bytes && !page.events.is_empty()) {
                    page.more = true;
                    break;
                }
                let json = json.into();
                page.events.push(Event {
                    seq: seq.value(),
                    json,
                });
            }
            Ok(page)
        };
        guarded(|| Ok(read()?)).map_err(OpenError::into_store)
    }

    /// Hands out pins, claims, pending events and who has not acknowledged them, in parts of a bounded
    /// size; says how many deliveries are too old to be handed out.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn contents(&self, mut give: impl FnMut(Contents)) -> Result<u64, OpenError> {
        guarded(|| {
            let transaction = self.database.begin_read().map_err(redb::Error::from)?;
            let mut part = Part::default();
            let claims = claims(&transaction)?;
            let size = claims.as_ref().map_or(0, Vec::len);
            part.contents.claims = claims;
            part.added(size, &mut give);
            let pins = transaction.open_table(PINS)?;
            for row in pins.iter()? {
                let (key, value) = row?;
                let (key, value) = (key.value().to_vec(), value.value().to_vec());
                let size = key.len() + value.len();
                part.contents.pins.push((key, value));
                part.added(size, &mut give);
            }
            let events = transaction.open_table(EVENTS)?;
            let outbox = transaction.open_table(OUTBOX)?;
            let mut left = outbox.len()?;
            let (mut newest, mut count, mut bytes) = (None, 0, 0);
            for row in outbox.iter()?.rev() {
                let key = row?.0;
                let (seq, listener) = key.value();
                if newest != Some(seq) {
                    let Some(row) = events.get_owned(seq)? else {
                        left -= 1;
                        continue;
                    };
                    let json: Box<str> = row.value().1.into();
                    bytes += json.len();
                    count += 1;
                    if PENDING_EVENTS < count || PENDING_BYTES < bytes {
                        break;
                    }
                    newest = Some(seq);
                    let size = json.len();
                    part.contents.events.push(Event { seq, json });
                    part.added(size, &mut give);
                }
                left -= 1;
                part.contents.pending.push((seq, listener.to_owned()));
                part.added(listener.len(), &mut give);
            }
            give(part.contents);
            Ok(left)
        })
    }
}

fn claims(transaction: &ReadTransaction) -> Result<Option<Vec<u8>>, OpenError> {
    let table = match transaction.open_table(CLAIMS) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        table => table?,
    };
    let value = table.get_owned(CLAIMS_KEY)?;
    Ok(value.map(|value| value.value().to_vec()))
}

/// A part of the contents that grows until it is handed out.
#[derive(Default)]
struct Part {
    contents: Contents,
    bytes: usize,
}

impl Part {
    fn added(&mut self, bytes: usize, give: &mut impl FnMut(Contents)) {
        self.bytes += bytes + 16;
        if PAGE_BYTES <= self.bytes {
            give(std::mem::take(self).contents);
        }
    }
}

/// The tables within a transaction.
struct Open<'t> {
    meta: Table<'t, &'static str, u64>,
    events: Table<'t, u64, (i64, &'static str)>,
    outbox: Table<'t, (u64, &'static str), ()>,
    pins: Table<'t, &'static [u8], &'static [u8]>,
    claims: Table<'t, &'static str, &'static [u8]>,
    last_seq: u64,
    bytes: u64,
}

impl<'t> Open<'t> {
    fn new(transaction: &'t WriteTransaction, last_seq: u64) -> Result<Open<'t>, redb::Error> {
        let meta = transaction.open_table(META)?;
        let bytes = meta.get(META_BYTES)?.map_or(0, |bytes| bytes.value());
        Ok(Open {
            meta,
            events: transaction.open_table(EVENTS)?,
            outbox: transaction.open_table(OUTBOX)?,
            pins: transaction.open_table(PINS)?,
            claims: transaction.open_table(CLAIMS)?,
            last_seq,
            bytes,
        })
    }

    /// False when the number of the event is taken.
    fn write(&mut self, write: &Write, now: Timestamp) -> Result<bool, redb::Error> {
        match write {
            Write::Append { event, listeners } => return self.append(event, listeners, now),
            Write::Acknowledge { listener, seq } => {
                self.outbox.remove((*seq, &**listener))?;
            }
            Write::PutPin { key, value } => {
                self.pins.insert(&**key, &**value)?;
            }
            Write::RemovePin { key } => {
                self.pins.remove(&**key)?;
            }
            Write::PutClaims { value } => {
                self.claims.insert(CLAIMS_KEY, &**value)?;
            }
            Write::Barrier => {}
        }
        Ok(true)
    }

    fn append(
        &mut self,
        event: &Event,
        listeners: &[Box<str>],
        now: Timestamp,
    ) -> Result<bool, redb::Error> {
        if event.seq <= self.last_seq {
            let stored = self.events.get(event.seq)?;
            return Ok(stored.is_some_and(|row| row.value().1 == &*event.json));
        }
        self.events.insert(event.seq, (now.0, &*event.json))?;
        for listener in listeners {
            self.outbox.insert((event.seq, &**listener), ())?;
        }
        self.last_seq = event.seq;
        self.bytes += row_bytes(&event.json);
        Ok(true)
    }

    fn drop_old(
        &mut self,
        retention: Retention,
        now: Timestamp,
        written: &mut Written,
    ) -> Result<(), redb::Error> {
        let oldest_kept = oldest_kept(retention, now);
        for _ in 0..DROP_LIMIT {
            let Some((seq, size)) = self.first_to_drop(retention.bytes, oldest_kept)? else {
                return Ok(());
            };
            self.events.remove(seq)?;
            self.bytes = self.bytes.saturating_sub(size);
            let mut pending = false;
            while let Some(key) = self.first_pending(seq)? {
                self.outbox.remove((seq, key.as_str()))?;
                pending = true;
            }
            written.dropped_pending += u64::from(pending);
        }
        written.more_to_drop = true;
        Ok(())
    }

    fn first_to_drop(
        &self,
        limit: u64,
        oldest_kept: i64,
    ) -> Result<Option<(u64, u64)>, redb::Error> {
        let Some((seq, row)) = self.events.first()? else {
            return Ok(None);
        };
        let (time, json) = row.value();
        let drop = limit < self.bytes || time < oldest_kept;
        Ok(drop.then(|| (seq.value(), row_bytes(json))))
    }

    fn first_pending(&self, seq: u64) -> Result<Option<String>, redb::Error> {
        let Some(row) = self.outbox.range((seq, "")..)?.next() else {
            return Ok(None);
        };
        let key = row?.0;
        let (found, listener) = key.value();
        Ok((found == seq).then(|| listener.to_owned()))
    }

    fn finish(mut self) -> Result<u64, redb::Error> {
        self.meta.insert(META_LAST_SEQ, self.last_seq)?;
        self.meta.insert(META_BYTES, self.bytes)?;
        Ok(self.last_seq)
    }
}

/// What an event counts against the retention: its text and its place in the table.
fn row_bytes(json: &str) -> u64 {
    json.len() as u64 + 32
}

fn oldest_kept(retention: Retention, now: Timestamp) -> i64 {
    let age = i64::try_from(retention.age.as_millis()).unwrap_or(i64::MAX);
    now.0.saturating_sub(age)
}

/// Numbers above this one.
fn after(since: u64) -> RangeFrom<u64> {
    since.saturating_add(1)..
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn begin(database: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    // Two syncs instead of one; in return the file is readable within milliseconds after a crash,
    // also on a file system that takes no writes any more.
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// The database panics on some damaged files instead of returning an error.
fn guarded<T>(work: impl FnOnce() -> Result<T, OpenError>) -> Result<T, OpenError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let text = "the database found its file inconsistent";
        Err(OpenError::Corrupted(text.to_owned()))
    })
}

impl OpenError {
    /// For whoever can do nothing about damage.
    pub(super) fn into_store(self) -> StoreError {
        match self {
            OpenError::Corrupted(text) => StoreError::Damaged(text),
            OpenError::Store(error) => error,
        }
    }
}

impl From<redb::Error> for OpenError {
    fn from(error: redb::Error) -> OpenError {
        use std::io::ErrorKind::{InvalidData, UnexpectedEof};
        match &error {
            redb::Error::Corrupted(text) => match newer_format(text) {
                Some((found, known)) => OpenError::Store(StoreError::NewerVersion { found, known }),
                None => OpenError::Corrupted(text.clone()),
            },
            redb::Error::Io(io) if matches!(io.kind(), InvalidData | UnexpectedEof) => {
                OpenError::Corrupted(io.to_string())
            }
            redb::Error::UpgradeRequired(_)
            | redb::Error::RepairAborted
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TypeDefinitionChanged { .. } => OpenError::Corrupted(error.to_string()),
            _ => OpenError::Store(explain(&error)),
        }
    }
}

impl From<DatabaseError> for OpenError {
    fn from(error: DatabaseError) -> OpenError {
        redb::Error::from(error).into()
    }
}

impl From<StorageError> for OpenError {
    fn from(error: StorageError) -> OpenError {
        redb::Error::from(error).into()
    }
}

impl From<TableError> for OpenError {
    fn from(error: TableError) -> OpenError {
        redb::Error::from(error).into()
    }
}

impl From<redb::CommitError> for OpenError {
    fn from(error: redb::CommitError) -> OpenError {
        redb::Error::from(error).into()
    }
}

/// The database has no error of its own for a file format from the future.
fn newer_format(text: &str) -> Option<(u64, u64)> {
    let rest = text.strip_prefix("Expected file format version <= ")?;
    let (known, found) = rest.split_once(", found ")?;
    let (found, known) = (found.parse().ok()?, known.parse().ok()?);
    (found <= known + FORMATS_AHEAD).then_some((found, known))
}

fn explain(error: &redb::Error) -> StoreError {
    match error {
        redb::Error::Io(io) => StoreError::of_io("writing the state store", io),
        redb::Error::DatabaseAlreadyOpen => StoreError::Busy,
        redb::Error::Corrupted(text) => StoreError::Damaged(text.clone()),
        _ => StoreError::Failed(error.to_string()),
    }
}
