//! Marks on ledgers that are to be deleted, the archive of those that were, and the audit: a line of JSON for each
//! mark, deletion, drop and undo, with its evidence. A mark holds all that it takes to make the ledger's node again.

use redb::{ReadableTable, TableDefinition, TableError, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::{State, StateError};
use crate::reclaim::plan::class::Class;
use crate::reclaim::plan::{DAY, LedgerId, Millis};

const MARKS: TableDefinition<LedgerId, &[u8]> = TableDefinition::new("marks");
const ARCHIVE: TableDefinition<LedgerId, &[u8]> = TableDefinition::new("archive");
/// By a number that rises by one. It has no bound: it is the proof of what was done, and a million deletions are some
/// hundred megabytes.
const AUDIT: TableDefinition<u64, &str> = TableDefinition::new("audit");

/// How long what was deleted stays in the archive. Bookies forget the entries within minutes; what stays is
/// what the ledger was.
pub const ARCHIVE_AGE: Millis = 30 * DAY;

/// A ledger that is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The ledger.
    pub id: LedgerId,
    /// Why it may go.
    #[serde(with = "class_by_name")]
    pub class: Class,
    /// Whose it was.
    pub owner: OwnerOf,
    /// What was seen.
    pub evidence: Evidence,
    /// Its node.
    pub node: NodeOf,
    /// The first scan that found it named by nobody.
    pub first: Millis,
    /// The last one before the mark.
    pub last: Millis,
    /// How many did.
    pub scans: u32,
    /// When it was marked.
    pub marked_at: Millis,
    /// When it may be deleted.
    pub deletable_at: Millis,
    /// How far it is.
    pub phase: Phase,
    /// Deletions that were begun.
    pub attempts: u32,
    /// What was in the way at the last try.
    pub obstacle: Option<String>,
}

/// The owner of a marked ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerOf {
    /// The number of the Pulsar cluster; none if it was never seen there.
    pub cluster: Option<u16>,
    /// What people call that cluster.
    pub name: String,
    /// Its node, from `/managed-ledgers` or `/schemas` on; without evidence, below one of them by the ledger's own word.
    pub path: String,
    /// The transaction that made that node.
    pub created: Option<i64>,
}

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Evidence {
    /// The owner named it in one version and did not in a later one.
    LetGo {
        /// The version that named it.
        from: i32,
        /// The version that did not.
        to: i32,
        /// The scan that saw it.
        at: Millis,
    },
    /// The owner named it and is gone.
    OwnerGone {
        /// The first scan without the owner.
        since: Millis,
        /// The last one.
        until: Millis,
        /// How many.
        scans: u32,
    },
    /// The owner says that it was moved to other storage and deleted.
    Moved,
    /// Nothing but that nobody names it.
    Absence,
}

/// The node of a marked ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOf {
    /// Where, with the ledgers root.
    pub path: String,
    /// The transaction that made it.
    pub created: i64,
    /// Its version.
    pub version: i32,
    /// Its data.
    pub bytes: Vec<u8>,
}

/// How far a deletion is. What is deleted has no mark any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Nothing was done.
    Marked,
    /// The transaction may have been sent.
    Deleting,
}

/// A ledger that was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archived {
    /// The mark as it was.
    pub mark: Mark,
    /// When it was deleted, or seen to be.
    pub deleted_at: Millis,
    /// When it was made again. Such a one is not marked again.
    pub undone_at: Option<Millis>,
}

/// A line of the audit.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    at: Millis,
    what: What,
    ledger: LedgerId,
    class: &'a str,
    cluster: &'a str,
    owner: &'a str,
    owner_created: Option<i64>,
    evidence: Evidence,
    created: i64,
    version: i32,
    first: Millis,
    last: Millis,
    scans: u32,
    marked_at: Millis,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

/// What a line of the audit tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// A mark was made.
    Mark,
    /// A mark was taken back, and nothing deleted.
    Drop,
    /// A mark was taken back, and something is wrong.
    Alarm,
    /// A ledger was deleted.
    Delete,
    /// A ledger was made again.
    Undo,
}

mod class_by_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Class;

    pub(super) fn serialize<S: Serializer>(class: &Class, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(class.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Class, D::Error> {
        let name = String::deserialize(from)?;
        Class::named(&name).ok_or_else(|| D::Error::custom("no class"))
    }
}

impl State {
    /// Writes marks that are new, with their lines.
    ///
    /// # Errors
    /// The file cannot be used; then none is written.
    pub fn put_marks(&self, marks: &[Mark]) -> Result<(), StateError> {
        self.write(|transaction| {
            for mark in marks {
                store(transaction, mark)?;
                tell(transaction, What::Mark, mark, mark.marked_at, None)?;
            }
            Ok(())
        })
    }

    /// Writes how far a deletion is.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn update_mark(&self, mark: &Mark) -> Result<(), StateError> {
        self.write(|transaction| store(transaction, mark))
    }

    /// Takes a mark back. One whose deletion may have been sent stays in the archive.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn drop_mark(
        &self,
        mark: &Mark,
        what: What,
        why: &str,
        at: Millis,
    ) -> Result<(), StateError> {
        self.write(|transaction| {
            transaction.open_table(MARKS)?.remove(mark.id)?;
            if mark.phase == Phase::Deleting {
                archive(transaction, mark, at, None)?;
            }
            tell(transaction, what, mark, at, Some(why))
        })
    }

    /// A ledger is deleted: mark, archive and audit in one.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn deleted(&self, mark: &Mark, why: Option<&str>, at: Millis) -> Result<(), StateError> {
        self.write(|transaction| {
            transaction.open_table(MARKS)?.remove(mark.id)?;
            archive(transaction, mark, at, None)?;
            tell(transaction, What::Delete, mark, at, why)
        })
    }

    /// A ledger was made again.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn undone(&self, archived: &Archived, why: &str, at: Millis) -> Result<(), StateError> {
        self.write(|transaction| {
            archive(transaction, &archived.mark, archived.deleted_at, Some(at))?;
            tell(transaction, What::Undo, &archived.mark, at, Some(why))
        })
    }

    /// The mark of a ledger.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn mark(&self, id: LedgerId) -> Result<Option<Mark>, StateError> {
        self.value(MARKS, id)
    }

    /// What was deleted under that number.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn archived(&self, id: LedgerId) -> Result<Option<Archived>, StateError> {
        self.value(ARCHIVE, id)
    }

    /// Every mark, by ascending numbers.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn for_each_mark(&self, told: impl FnMut(Mark)) -> Result<(), StateError> {
        self.each(MARKS, told)
    }

    /// Everything in the archive, by ascending numbers.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn for_each_archived(&self, told: impl FnMut(Archived)) -> Result<(), StateError> {
        self.each(ARCHIVE, told)
    }

    /// Every line of the audit with its number, in their order.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn for_each_audit(&self, mut told: impl FnMut(u64, &str)) -> Result<(), StateError> {
        self.read(|transaction| {
            let table = match transaction.open_table(AUDIT) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(()),
                table => table?,
            };
            for entry in table.iter()? {
                let (number, line) = entry?;
                told(number.value(), line.value());
            }
            Ok(())
        })
    }

    /// Takes out of the archive what was deleted too long ago. What was undone stays: it is not to be marked again.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn forget_archived(&self, now: Millis) -> Result<(), StateError> {
        let mut old = Vec::new();
        self.for_each_archived(|archived| {
            if archived.undone_at.is_none() && ARCHIVE_AGE < now - archived.deleted_at {
                old.push(archived.mark.id);
            }
        })?;
        if old.is_empty() {
            return Ok(());
        }
        self.write(|transaction| {
            let mut table = transaction.open_table(ARCHIVE)?;
            for id in old {
                table.remove(id)?;
            }
            Ok(())
        })
    }

    fn value<T: for<'de> Deserialize<'de>>(
        &self,
        table: TableDefinition<LedgerId, &[u8]>,
        id: LedgerId,
    ) -> Result<Option<T>, StateError> {
        let bytes = self.read(|transaction| match transaction.open_table(table) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            table => Ok(table?.get(id)?.map(|value| value.value().to_vec())),
        })?;
        let decode = |bytes: Vec<u8>| self.understood(id, &bytes);
        bytes.map(decode).transpose()
    }

    fn each<T: for<'de> Deserialize<'de>>(
        &self,
        table: TableDefinition<LedgerId, &[u8]>,
        mut told: impl FnMut(T),
    ) -> Result<(), StateError> {
        let damaged = self.read(|transaction| {
            let table = match transaction.open_table(table) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table?,
            };
            for entry in table.iter()? {
                let (id, bytes) = entry?;
                match self.understood(id.value(), bytes.value()) {
                    Ok(value) => told(value),
                    Err(error) => return Ok(Some(error)),
                }
            }
            Ok(None)
        })?;
        damaged.map_or(Ok(()), Err)
    }

    fn understood<T: for<'de> Deserialize<'de>>(
        &self,
        id: LedgerId,
        bytes: &[u8],
    ) -> Result<T, StateError> {
        postcard::from_bytes(bytes).map_err(|_| self.damaged(format!("a mark of ledger {id}")))
    }
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("numbers, strings and bytes can always be written")
}

fn store(transaction: &WriteTransaction, mark: &Mark) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(MARKS)?;
    table.insert(mark.id, encode(mark).as_slice())?;
    Ok(())
}

fn archive(
    transaction: &WriteTransaction,
    mark: &Mark,
    deleted_at: Millis,
    undone_at: Option<Millis>,
) -> Result<(), redb::Error> {
    let archived = Archived {
        mark: mark.clone(),
        deleted_at,
        undone_at,
    };
    let mut table = transaction.open_table(ARCHIVE)?;
    table.insert(mark.id, encode(&archived).as_slice())?;
    Ok(())
}

fn tell(
    transaction: &WriteTransaction,
    what: What,
    mark: &Mark,
    at: Millis,
    why: Option<&str>,
) -> Result<(), redb::Error> {
    let line = Line {
        at,
        what,
        ledger: mark.id,
        class: mark.class.name(),
        cluster: &mark.owner.name,
        owner: &mark.owner.path,
        owner_created: mark.owner.created,
        evidence: mark.evidence,
        created: mark.node.created,
        version: mark.node.version,
        first: mark.first,
        last: mark.last,
        scans: mark.scans,
        marked_at: mark.marked_at,
        why,
    };
    let line = serde_json::to_string(&line).expect("strings and numbers are always JSON");
    let mut table = transaction.open_table(AUDIT)?;
    let next = table.last()?.map_or(0, |(number, _)| number.value() + 1);
    table.insert(next, line.as_str())?;
    Ok(())
}
