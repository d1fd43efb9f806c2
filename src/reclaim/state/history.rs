//! What complete scans added up to, and the last one with what followed for each ledger. It is prepared beside,
//! and takes its place in one transaction when the scan is complete.

use redb::{TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::aside::{self, AsideKey, AsideWitness};
use super::rows::{self, OwnerRow, SuspectRow, WitnessRow};
use super::scan::{self, OwnerId, owner_id};
use super::{State, StateError};
use crate::cluster::ledger::LedgerState;
use crate::reclaim::history::{Ruling, Suspect};
use crate::reclaim::plan::class::{Class, Maker};
use crate::reclaim::plan::evidence::{Known, Vanished, Witness};
use crate::reclaim::plan::{LedgerId, Millis};
use crate::reclaim::scan::{KnownClusters, OwnerKey, Part, Reading, ScanInfo};

/// A name, and what it is.
const LAST: TableDefinition<&str, &[u8]> = TableDefinition::new("last scan");
const INFO: &str = "info";
/// Beside it, since files were written without.
const MORE: &str = "more";

/// Owners as they were seen last, those that are not there any more, and ledgers that nobody names.
const OWNERS: TableDefinition<OwnerId, &[u8]> = TableDefinition::new("owners");
const GONE: TableDefinition<OwnerId, &[u8]> = TableDefinition::new("owners gone");
const SUSPECTS: TableDefinition<u64, &[u8]> = TableDefinition::new("suspects");

/// The ledgers of the last scan, and what followed for those that are not simply referenced.
const LEDGERS: TableDefinition<u64, &[u8]> = TableDefinition::new("ledgers");
const JUDGED: TableDefinition<u64, &[u8]> = TableDefinition::new("judged");

/// Lengths of ledgers that are not closed, as bookies told them.
const LENGTHS: TableDefinition<u64, &[u8]> = TableDefinition::new("lengths");

/// What is to take their place, and who let which ledger go.
const NEW_OWNERS: TableDefinition<OwnerId, &[u8]> = TableDefinition::new("new owners");
const NEW_GONE: TableDefinition<OwnerId, &[u8]> = TableDefinition::new("new owners gone");
const NEW_SUSPECTS: TableDefinition<u64, &[u8]> = TableDefinition::new("new suspects");
const NEW_JUDGED: TableDefinition<u64, &[u8]> = TableDefinition::new("new judged");
const NEW_LENGTHS: TableDefinition<u64, &[u8]> = TableDefinition::new("new lengths");
const WITNESSED: TableDefinition<u64, &[u8]> = TableDefinition::new("new witnessed");

/// Rows that are read at a time.
const CHUNK: usize = 4096;

/// A ledger of the last scan, and what followed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its number.
    pub id: LedgerId,
    /// The transaction that made its node.
    pub created: i64,
    /// The version of its node.
    pub version: i32,
    /// When its node was made.
    pub made: Millis,
    /// Bytes of all entries, of one copy; 0 while it is not closed.
    pub length: u64,
    /// The same of one that is not closed, as a bookie told the scan: it has at least so many.
    pub told: Option<u64>,
    /// How many copies of each entry there are.
    pub copies: u32,
    /// Whether it is still written.
    pub state: LedgerState,
    /// Who made it.
    pub maker: Maker,
    /// The owner by its own word, as a path below `/managed-ledgers`, or `/schemas` for a schema.
    pub owner: String,
    /// What is known about who references it.
    pub class: Class,
    /// What may be done.
    pub ruling: Ruling,
    /// Why not, in words; empty if it may be deleted.
    pub why: String,
    /// Since when nobody names it, and how its owner let it go.
    pub suspect: Option<Suspect>,
}

/// What follows from a few owners or ledgers.
#[derive(Debug, Default)]
pub(in crate::reclaim) struct Outcome {
    pub(in crate::reclaim) read: Vec<(OwnerKey, Reading)>,
    pub(in crate::reclaim) known: Vec<(OwnerKey, Known)>,
    pub(in crate::reclaim) gone: Vec<(OwnerKey, Known)>,
    pub(in crate::reclaim) witnessed: Vec<(LedgerId, OwnerKey, Witness)>,
    pub(in crate::reclaim) suspects: Vec<(LedgerId, Suspect)>,
    pub(in crate::reclaim) lengths: Vec<(LedgerId, u64)>,
    pub(in crate::reclaim) judged: Vec<(LedgerId, Class, Ruling, &'static str)>,
    /// Of clusters that were not read.
    pub(in crate::reclaim) aside: Vec<(AsideKey, Known)>,
    pub(in crate::reclaim) witnesses_aside: Vec<(LedgerId, AsideWitness)>,
}

impl Outcome {
    fn is_empty(&self) -> bool {
        let owners = self.read.len() + self.known.len() + self.gone.len() + self.aside.len();
        let ledgers = self.suspects.len() + self.lengths.len() + self.judged.len();
        owners + ledgers + self.witnessed.len() + self.witnesses_aside.len() == 0
    }
}

#[derive(Serialize, Deserialize)]
struct JudgedRow {
    class: u8,
    ruling: u8,
    why: String,
}

#[derive(Serialize, Deserialize)]
struct InfoRow {
    began: Millis,
    ended: Millis,
    instance: String,
    requests: u64,
    ledgers: u64,
    owners: u64,
    all_clusters: bool,
    clusters: Vec<String>,
    namespaces: Option<Vec<String>>,
    topics: Vec<String>,
    is_snapshot: bool,
    classes: Vec<u64>,
}

#[derive(Serialize, Deserialize, Default)]
struct MoreRow {
    gone: u64,
    there: u64,
    transaction: Option<i64>,
}

const RULINGS: [Ruling; 3] = [Ruling::Keep, Ruling::Wait, Ruling::Deletable];

impl State {
    /// The last scan that was complete.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn last_scan(&self) -> Result<Option<ScanInfo>, StateError> {
        let rows = self.read(|transaction| {
            let Some(table) = rows::table(transaction, LAST)? else {
                return Ok((None, None));
            };
            let row = |name| Ok::<_, redb::Error>(table.get(name)?.map(|row| row.value().to_vec()));
            Ok((row(INFO)?, row(MORE)?))
        })?;
        let (Some(row), more) = rows else {
            return Ok(None);
        };
        let row: InfoRow = self.decoded("the last scan", &row)?;
        let more = more.map(|more| self.decoded("the last scan", &more));
        let more: MoreRow = more.transpose()?.unwrap_or_default();
        let classes = <[u64; Class::ALL.len()]>::try_from(row.classes);
        Ok(Some(ScanInfo {
            began: row.began,
            ended: row.ended,
            instance: row.instance,
            requests: row.requests,
            ledgers: row.ledgers,
            owners: row.owners,
            all_clusters: row.all_clusters,
            clusters: row.clusters,
            part: row.namespaces.map(|some| Part::new(some, row.topics)),
            is_snapshot: row.is_snapshot,
            vanished: Vanished {
                gone: more.gone,
                there: more.there,
            },
            transaction: more.transaction,
            classes: classes.map_err(|_| self.damaged("the last scan"))?,
        }))
    }

    /// Every ledger that the last scan judged, ascending, with what follows for it. Of a scan of a part only the
    /// ledgers of that part.
    ///
    /// # Errors
    /// The file cannot be read. What was given before is good.
    pub fn for_each_judged(&self, mut give: impl FnMut(&Stored)) -> Result<(), StateError> {
        let part = self.last_scan()?.and_then(|info| info.part);
        let mut after = None;
        loop {
            let rows: Vec<_> = self.read(|transaction| {
                let Some(ledgers) = rows::table(transaction, LEDGERS)? else {
                    return Ok(Vec::new());
                };
                let judged = rows::table(transaction, JUDGED)?;
                let suspects = rows::table(transaction, SUSPECTS)?;
                let lengths = rows::table(transaction, LENGTHS)?;
                let mut some = Vec::new();
                for row in ledgers.range(rows::after(after))?.take(CHUNK) {
                    let (id, row) = row?;
                    let id = id.value();
                    let more = [of(&judged, id)?, of(&suspects, id)?, of(&lengths, id)?];
                    some.push((id, row.value().to_vec(), more));
                }
                Ok::<_, redb::Error>(some)
            })?;
            let Some((last, ..)) = rows.last() else {
                return Ok(());
            };
            after = Some(*last);
            for (id, ledger, more) in rows {
                let stored = self.stored(id, &ledger, &more)?;
                if part
                    .as_ref()
                    .is_none_or(|part| part.has(stored.maker, &stored.owner))
                {
                    give(&stored);
                }
            }
        }
    }

    fn stored(
        &self,
        id: LedgerId,
        ledger: &[u8],
        [judged, suspect, told]: &[Option<Vec<u8>>; 3],
    ) -> Result<Stored, StateError> {
        let ledger = self.ledger(id, ledger)?;
        let (class, ruling, why) = match judged {
            None => (
                Class::Referenced,
                Ruling::Keep,
                crate::reclaim::history::REFERENCED.to_owned(),
            ),
            Some(row) => {
                let row: JudgedRow = self.decoded("a verdict", row)?;
                let class = Class::ALL.get(usize::from(row.class));
                let ruling = RULINGS.get(usize::from(row.ruling));
                let (class, ruling) = class.zip(ruling).ok_or_else(|| self.damaged("a verdict"))?;
                (*class, *ruling, row.why)
            }
        };
        let suspect: Option<SuspectRow> = suspect
            .as_ref()
            .map(|row| self.decoded("a suspect", row))
            .transpose()?;
        let told = told.as_ref().map(|row| self.decoded("a length", row));
        Ok(Stored {
            id,
            created: ledger.created,
            version: ledger.version,
            made: ledger.made,
            length: ledger.length,
            told: told.transpose()?,
            copies: ledger.copies,
            state: ledger.state,
            maker: ledger.maker,
            owner: ledger.owner,
            class,
            ruling,
            why,
            suspect: suspect.map(SuspectRow::suspect),
        })
    }

    /// Every owner that was there at the last scan, in their order; of a scan of a part, as they are remembered.
    ///
    /// # Errors
    /// The file cannot be read. What was given before is good.
    pub fn for_each_owner(&self, mut give: impl FnMut(&OwnerKey)) -> Result<(), StateError> {
        let mut after = None;
        loop {
            let some = self.owner_rows(OWNERS, after.as_ref(), CHUNK)?;
            let Some((last, _)) = some.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            some.iter().for_each(|(key, _)| give(key));
        }
    }

    /// Owners that are remembered, after this one: those that were there, or those that were not.
    pub(in crate::reclaim) fn known_after(
        &self,
        are_gone: bool,
        after: Option<&OwnerKey>,
        limit: usize,
    ) -> Result<Vec<(OwnerKey, Known)>, StateError> {
        let table = if are_gone { GONE } else { OWNERS };
        let rows = self.owner_rows(table, after, limit)?;
        let known = rows.into_iter().map(|(key, row)| {
            let known = row.known(key.created);
            (key, known)
        });
        Ok(known.collect())
    }

    /// What was known of these ledgers, and how the scan that is judged saw them let go.
    #[allow(clippy::type_complexity)]
    pub(in crate::reclaim) fn suspects(
        &self,
        ids: &[LedgerId],
    ) -> Result<Vec<(Option<Suspect>, Option<(OwnerKey, Witness)>)>, StateError> {
        let rows: Vec<_> = self.read(|transaction| {
            let suspects = rows::table(transaction, SUSPECTS)?;
            let witnessed = rows::table(transaction, WITNESSED)?;
            let rows = ids
                .iter()
                .map(|id| Ok((of(&suspects, *id)?, of(&witnessed, *id)?)));
            rows.collect::<Result<_, redb::Error>>()
        })?;
        let all = rows.into_iter().map(|(suspect, witness)| {
            let suspect = suspect.map(|row| self.decoded::<SuspectRow>("a suspect", &row));
            let witness = witness.map(|row| self.decoded::<WitnessRow>("a witness", &row));
            let suspect = suspect.transpose()?.map(SuspectRow::suspect);
            Ok((suspect, witness.transpose()?.map(WitnessRow::witness)))
        });
        all.collect()
    }

    /// Which of the ledgers are there, and none of them made again since the last scan: what was known of an owner then is
    /// about the ledger of then.
    pub(in crate::reclaim) fn are_the_same(
        &self,
        ids: &[LedgerId],
    ) -> Result<Vec<bool>, StateError> {
        let rows: Vec<_> = self.read(|transaction| {
            let tables = (
                rows::table(transaction, scan::LEDGERS)?,
                rows::table(transaction, LEDGERS)?,
            );
            let rows = ids
                .iter()
                .map(|id| Ok((of(&tables.0, *id)?, of(&tables.1, *id)?)));
            rows.collect::<Result<_, redb::Error>>()
        })?;
        let created = |id: &LedgerId, row: Option<Vec<u8>>| {
            let ledger = row.map(|row| self.ledger(*id, &row)).transpose()?;
            Ok::<_, StateError>(ledger.map(|ledger| ledger.created))
        };
        let all = ids.iter().zip(rows).map(|(id, (now, before))| {
            let (now, before) = (created(id, now)?, created(id, before)?);
            Ok(now.is_some() && before.is_none_or(|before| now == Some(before)))
        });
        all.collect()
    }

    /// Nothing follows yet from the scan that is judged.
    pub(in crate::reclaim) fn begin_judging(&self) -> Result<(), StateError> {
        self.write(forget)
    }

    /// Prepares what follows.
    pub(in crate::reclaim) fn prepare(&self, outcome: &Outcome) -> Result<(), StateError> {
        if outcome.is_empty() {
            return Ok(());
        }
        self.write(|transaction| {
            let mut owners = transaction.open_table(NEW_OWNERS)?;
            for (key, reading) in &outcome.read {
                let row = rows::encoded(&OwnerRow::of(reading, None));
                owners.insert(owner_id(key), row.as_slice())?;
            }
            for (key, known) in &outcome.known {
                let row = rows::encoded(&OwnerRow::of_known(known));
                owners.insert(owner_id(key), row.as_slice())?;
            }
            let mut gone = transaction.open_table(NEW_GONE)?;
            for (key, known) in &outcome.gone {
                owners.remove(owner_id(key))?;
                let row = rows::encoded(&OwnerRow::of_known(known));
                gone.insert(owner_id(key), row.as_slice())?;
            }
            let mut witnessed = transaction.open_table(WITNESSED)?;
            for (id, key, witness) in &outcome.witnessed {
                let row = rows::encoded(&WitnessRow::of(key, *witness));
                witnessed.insert(id, row.as_slice())?;
            }
            let mut suspects = transaction.open_table(NEW_SUSPECTS)?;
            for (id, suspect) in &outcome.suspects {
                let row = rows::encoded(&SuspectRow::of(suspect));
                suspects.insert(id, row.as_slice())?;
            }
            let mut lengths = transaction.open_table(NEW_LENGTHS)?;
            for (id, length) in &outcome.lengths {
                let row = rows::encoded(length);
                lengths.insert(id, row.as_slice())?;
            }
            let mut judged = transaction.open_table(NEW_JUDGED)?;
            for (id, class, ruling, why) in &outcome.judged {
                let row = rows::encoded(&JudgedRow {
                    class: rows::number(&Class::ALL, class),
                    ruling: rows::number(&RULINGS, ruling),
                    why: (*why).to_owned(),
                });
                judged.insert(id, row.as_slice())?;
            }
            aside::prepare(transaction, outcome)
        })
    }

    /// What was prepared takes the place of what was remembered, all at once.
    pub(in crate::reclaim) fn complete(
        &self,
        info: &ScanInfo,
        clusters: &KnownClusters,
    ) -> Result<(), StateError> {
        let (namespaces, topics) = match &info.part {
            Some(part) => (Some(part.namespaces().to_vec()), part.topics().to_vec()),
            None => (None, Vec::new()),
        };
        let row = rows::encoded(&InfoRow {
            began: info.began,
            ended: info.ended,
            instance: info.instance.clone(),
            requests: info.requests,
            ledgers: info.ledgers,
            owners: info.owners,
            all_clusters: info.all_clusters,
            clusters: info.clusters.clone(),
            namespaces,
            topics,
            is_snapshot: info.is_snapshot,
            classes: info.classes.to_vec(),
        });
        let more = rows::encoded(&MoreRow {
            gone: info.vanished.gone,
            there: info.vanished.there,
            transaction: info.transaction,
        });
        self.write(|transaction| {
            // Of a scan of all, what was read is what is remembered of the owners that are there.
            let owners = if info.part.is_some() {
                NEW_OWNERS
            } else {
                scan::OWNERS
            };
            replace(transaction, owners, OWNERS)?;
            replace(transaction, NEW_GONE, GONE)?;
            replace(transaction, NEW_SUSPECTS, SUSPECTS)?;
            replace(transaction, scan::LEDGERS, LEDGERS)?;
            replace(transaction, NEW_JUDGED, JUDGED)?;
            replace(transaction, NEW_LENGTHS, LENGTHS)?;
            aside::complete(transaction, clusters)?;
            let mut last = transaction.open_table(LAST)?;
            last.insert(INFO, row.as_slice())?;
            last.insert(MORE, more.as_slice())?;
            super::cluster::set(transaction, &info.instance)?;
            scan::forget(transaction)?;
            forget(transaction)
        })
    }
}

/// The row of a ledger, where there is one.
pub(super) fn of(
    table: &Option<redb::ReadOnlyTable<u64, &'static [u8]>>,
    id: LedgerId,
) -> Result<Option<Vec<u8>>, redb::Error> {
    let Some(table) = table else { return Ok(None) };
    Ok(table.get(id)?.map(|row| row.value().to_vec()))
}

pub(super) fn replace<K: redb::Key + 'static>(
    transaction: &WriteTransaction,
    by: TableDefinition<K, &'static [u8]>,
    old: TableDefinition<K, &'static [u8]>,
) -> Result<(), redb::Error> {
    // Made where nothing was ever written to it.
    drop(transaction.open_table(by)?);
    transaction.delete_table(old)?;
    transaction.rename_table(by, old)?;
    Ok(())
}

/// Takes away what was prepared.
pub(super) fn forget(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    transaction.delete_table(NEW_OWNERS)?;
    transaction.delete_table(NEW_GONE)?;
    transaction.delete_table(NEW_SUSPECTS)?;
    transaction.delete_table(NEW_JUDGED)?;
    transaction.delete_table(NEW_LENGTHS)?;
    transaction.delete_table(WITNESSED)?;
    aside::forget(transaction)
}
