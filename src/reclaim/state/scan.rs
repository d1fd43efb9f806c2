//! What a scan has read so far, so that one that was killed goes on. Every batch is one transaction, with the place
//! where it was; none of it is remembered by anybody until the scan is complete, see `history`.

use redb::{ReadableTable, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::rows::{self, OwnerRow};
use super::{State, StateError};
use crate::reclaim::plan::{LedgerId, Millis};
use crate::reclaim::scan::{Ledger, OwnerKey, Reading, Step};

/// A name, and what it is.
const RUNNING: TableDefinition<&str, &[u8]> = TableDefinition::new("scan");
const NOW: &str = "now";

/// Folders that are not done: tree, cluster, path; how deep it is, and the child after which to go on.
type FolderKey = (u8, u16, &'static str);
const FOLDERS: TableDefinition<FolderKey, (u8, &str)> = TableDefinition::new("scan folders");

/// Ledgers; empty while only listed.
pub(super) const LEDGERS: TableDefinition<u64, &[u8]> = TableDefinition::new("scan ledgers");

/// Owners: cluster, path, transaction.
pub(super) type OwnerId = (u16, &'static str, i64);
pub(super) const OWNERS: TableDefinition<OwnerId, &[u8]> = TableDefinition::new("scan owners");

/// Namespaces with policies.
const NAMESPACES: TableDefinition<&str, ()> = TableDefinition::new("scan namespaces");

/// A scan under way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(in crate::reclaim) struct Running {
    /// When it began; of a snapshot file, what time it shows.
    pub(in crate::reclaim) began: Millis,
    /// When it began by our clock.
    pub(in crate::reclaim) started: Millis,
    /// When everything had been read.
    pub(in crate::reclaim) ended: Millis,
    pub(in crate::reclaim) instance: String,
    /// What it reads, in words that are compared only.
    pub(in crate::reclaim) sources: Vec<String>,
    #[serde(with = "rows::step")]
    pub(in crate::reclaim) step: Step,
    /// The ledger that was read last.
    pub(in crate::reclaim) after: Option<LedgerId>,
    /// Ledgers that were listed, asked for, and there.
    pub(in crate::reclaim) listed: u64,
    pub(in crate::reclaim) read: u64,
    pub(in crate::reclaim) ledgers: u64,
    /// Nodes of Pulsar's that were read, and owners among them.
    pub(in crate::reclaim) nodes: u64,
    pub(in crate::reclaim) owners: u64,
    pub(in crate::reclaim) requests: u64,
}

impl Running {
    /// The same cluster is read in the same way.
    pub(in crate::reclaim) fn is_of(&self, other: &Running) -> bool {
        self.instance == other.instance && self.sources == other.sources
    }
}

/// The trees that are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reclaim) enum Tree {
    Ledgers,
    Topics,
    Schemas,
    Policies,
}

impl Tree {
    /// Its top, below the root of its cluster.
    pub(in crate::reclaim) fn path(self) -> &'static str {
        match self {
            Tree::Ledgers => "",
            Tree::Topics => "/managed-ledgers",
            Tree::Schemas => "/schemas",
            Tree::Policies => "/admin/policies",
        }
    }
}

/// A node whose children are to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reclaim) struct Folder {
    pub(in crate::reclaim) tree: Tree,
    pub(in crate::reclaim) cluster: u16,
    /// Below the root of its cluster, or of the ledgers.
    pub(in crate::reclaim) path: String,
    pub(in crate::reclaim) depth: u8,
}

/// What was read and is not on the disk yet.
#[derive(Debug, Default)]
pub(in crate::reclaim) struct Batch {
    pub(in crate::reclaim) ids: Vec<LedgerId>,
    pub(in crate::reclaim) ledgers: Vec<Ledger>,
    /// Listed, and gone when they were read.
    pub(in crate::reclaim) vanished: Vec<LedgerId>,
    pub(in crate::reclaim) owners: Vec<(OwnerKey, Reading)>,
    pub(in crate::reclaim) namespaces: Vec<String>,
    pub(in crate::reclaim) folders: Vec<Folder>,
    /// Folders with the child that was read last.
    pub(in crate::reclaim) after: Vec<(Folder, String)>,
    pub(in crate::reclaim) done: Vec<Folder>,
}

impl Batch {
    pub(in crate::reclaim) fn len(&self) -> usize {
        self.ids.len() + self.ledgers.len() + self.owners.len() + self.folders.len()
    }
}

impl State {
    /// The scan that was interrupted.
    pub(in crate::reclaim) fn running_scan(&self) -> Result<Option<Running>, StateError> {
        let row = self.read(|transaction| match rows::table(transaction, RUNNING)? {
            Some(table) => Ok(table.get(NOW)?.map(|row| row.value().to_vec())),
            None => Ok(None),
        })?;
        row.map(|row| self.decoded("a scan", &row)).transpose()
    }

    /// Forgets what an interrupted scan read, and begins another one.
    pub(in crate::reclaim) fn begin_scan(
        &self,
        running: &Running,
        tops: &[Folder],
    ) -> Result<(), StateError> {
        let now = rows::encoded(running);
        self.write(|transaction| {
            forget(transaction)?;
            super::history::forget(transaction)?;
            transaction
                .open_table(RUNNING)?
                .insert(NOW, now.as_slice())?;
            let mut folders = transaction.open_table(FOLDERS)?;
            for top in tops {
                folders.insert(folder_key(top), (top.depth, ""))?;
            }
            Ok(())
        })
    }

    /// Forgets what an interrupted scan read.
    pub(in crate::reclaim) fn abandon_scan(&self) -> Result<(), StateError> {
        self.write(|transaction| {
            forget(transaction)?;
            super::history::forget(transaction)
        })
    }

    /// Stores what was read, and how far the scan is.
    pub(in crate::reclaim) fn advance_scan(
        &self,
        running: &Running,
        batch: &Batch,
    ) -> Result<(), StateError> {
        let now = rows::encoded(running);
        self.write(|transaction| {
            transaction
                .open_table(RUNNING)?
                .insert(NOW, now.as_slice())?;
            ledgers(transaction, batch)?;
            let mut owners = transaction.open_table(OWNERS)?;
            for (key, reading) in &batch.owners {
                let row = rows::encoded(&OwnerRow::of(reading, None));
                owners.insert(owner_id(key), row.as_slice())?;
            }
            let mut namespaces = transaction.open_table(NAMESPACES)?;
            for name in &batch.namespaces {
                namespaces.insert(name.as_str(), ())?;
            }
            folders(transaction, batch)
        })
    }

    /// Folders of a tree of a cluster that are not done, with the child after which to go on.
    pub(in crate::reclaim) fn folders(
        &self,
        tree: Tree,
        cluster: u16,
        limit: usize,
    ) -> Result<Vec<(Folder, String)>, StateError> {
        let number = tree as u8;
        self.read(|transaction| {
            let Some(table) = rows::table(transaction, FOLDERS)? else {
                return Ok(Vec::new());
            };
            let range = table.range((number, cluster, "")..)?;
            let mut some = Vec::new();
            for row in range.take(limit) {
                let (key, value) = row?;
                let (depth, after) = value.value();
                let (other, of, path) = key.value();
                if (other, of) != (number, cluster) {
                    break;
                }
                let folder = Folder {
                    tree,
                    cluster,
                    path: path.to_owned(),
                    depth,
                };
                some.push((folder, after.to_owned()));
            }
            Ok(some)
        })
    }

    /// Ids of ledgers after this one, ascending.
    pub(in crate::reclaim) fn listed_after(
        &self,
        after: Option<LedgerId>,
        limit: usize,
    ) -> Result<Vec<LedgerId>, StateError> {
        self.read(|transaction| {
            let Some(table) = rows::table(transaction, LEDGERS)? else {
                return Ok(Vec::new());
            };
            let range = table.range(rows::after(after))?;
            range.take(limit).map(|row| Ok(row?.0.value())).collect()
        })
    }

    /// Ledgers after this one, ascending.
    pub(in crate::reclaim) fn ledgers_after(
        &self,
        after: Option<LedgerId>,
        limit: usize,
    ) -> Result<Vec<Ledger>, StateError> {
        let rows: Vec<_> = self.read(|transaction| {
            let Some(table) = rows::table(transaction, LEDGERS)? else {
                return Ok(Vec::new());
            };
            let mut some = Vec::new();
            for row in table.range(rows::after(after))?.take(limit) {
                let (id, row) = row?;
                some.push((id.value(), row.value().to_vec()));
            }
            Ok::<_, redb::Error>(some)
        })?;
        let ledgers = rows.iter().map(|(id, row)| self.ledger(*id, row));
        ledgers.collect()
    }

    /// Owners after this one, in their order.
    pub(in crate::reclaim) fn owners_after(
        &self,
        after: Option<&OwnerKey>,
        limit: usize,
    ) -> Result<Vec<(OwnerKey, Reading)>, StateError> {
        let rows = self.owner_rows(OWNERS, after, limit)?;
        let owners = rows.into_iter().map(|(key, row)| {
            let reading = row.reading(key.created);
            (key, reading)
        });
        Ok(owners.collect())
    }

    /// What was read of these owners.
    pub(in crate::reclaim) fn owners(
        &self,
        keys: &[&OwnerKey],
    ) -> Result<Vec<Option<Reading>>, StateError> {
        let rows: Vec<_> = self.read(|transaction| {
            let Some(table) = rows::table(transaction, OWNERS)? else {
                return Ok(vec![None; keys.len()]);
            };
            let rows = keys.iter().map(|key| {
                let row = table.get(owner_id(key))?;
                Ok(row.map(|row| row.value().to_vec()))
            });
            rows.collect::<Result<_, redb::Error>>()
        })?;
        let owners = rows.into_iter().zip(keys).map(|(row, key)| match row {
            Some(row) => {
                let row: OwnerRow = self.decoded("an owner", &row)?;
                Ok(Some(row.reading(key.created)))
            }
            None => Ok(None),
        });
        owners.collect()
    }

    /// What was read at this path, in each of so many clusters.
    pub(in crate::reclaim) fn at_path(
        &self,
        clusters: u16,
        path: &str,
    ) -> Result<Vec<Reading>, StateError> {
        let mut found = Vec::new();
        for cluster in 0..clusters {
            let top = OwnerKey {
                cluster,
                path: path.to_owned(),
                created: i64::MIN,
            };
            // One node of a name, or two if it was made anew while it was read.
            let some = self.owners_after(Some(&top), 2)?.into_iter();
            let same = some.filter(|(key, _)| key.cluster == cluster && key.path == path);
            found.extend(same.map(|(_, reading)| reading));
        }
        Ok(found)
    }

    /// Whether the namespace has policies.
    pub(in crate::reclaim) fn is_namespace(&self, name: &str) -> Result<bool, StateError> {
        self.read(|transaction| match rows::table(transaction, NAMESPACES)? {
            Some(table) => Ok(table.get(name)?.is_some()),
            None => Ok(false),
        })
    }

    /// Whether a namespace of version 1 has policies, whose schemas are where those of this one are: without its cluster.
    pub(in crate::reclaim) fn is_namespace_of_old(&self, name: &str) -> Result<bool, StateError> {
        let Some((tenant, _)) = name.split_once('/') else {
            return Ok(false);
        };
        let first = format!("{tenant}/");
        self.read(|transaction| {
            let Some(table) = rows::table(transaction, NAMESPACES)? else {
                return Ok(false);
            };
            for row in table.range(first.as_str()..)? {
                let row = row?;
                let other = row.0.value();
                if !other.starts_with(&first) {
                    break;
                }
                if other.matches('/').count() == 2
                    && crate::reclaim::name::schema_namespace(other) == name
                {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    pub(super) fn owner_rows(
        &self,
        table: TableDefinition<OwnerId, &[u8]>,
        after: Option<&OwnerKey>,
        limit: usize,
    ) -> Result<Vec<(OwnerKey, OwnerRow)>, StateError> {
        let rows: Vec<_> = self.read(|transaction| {
            let Some(table) = rows::table(transaction, table)? else {
                return Ok(Vec::new());
            };
            let mut some = Vec::new();
            for row in table.range(rows::after(after.map(owner_id)))?.take(limit) {
                let (key, row) = row?;
                let (cluster, path, created) = key.value();
                let key = OwnerKey {
                    cluster,
                    path: path.to_owned(),
                    created,
                };
                some.push((key, row.value().to_vec()));
            }
            Ok::<_, redb::Error>(some)
        })?;
        let rows = rows.into_iter().map(|(key, row)| {
            let row = self.decoded("an owner", &row)?;
            Ok((key, row))
        });
        rows.collect()
    }
}

pub(super) fn owner_id(key: &OwnerKey) -> (u16, &str, i64) {
    (key.cluster, key.path.as_str(), key.created)
}

fn folder_key(folder: &Folder) -> (u8, u16, &str) {
    (folder.tree as u8, folder.cluster, folder.path.as_str())
}

fn ledgers(transaction: &WriteTransaction, batch: &Batch) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(LEDGERS)?;
    for id in &batch.ids {
        table.insert(id, [].as_slice())?;
    }
    for ledger in &batch.ledgers {
        let row = rows::encoded(&rows::LedgerRow::of(ledger));
        table.insert(ledger.id, row.as_slice())?;
    }
    for id in &batch.vanished {
        table.remove(id)?;
    }
    Ok(())
}

fn folders(transaction: &WriteTransaction, batch: &Batch) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(FOLDERS)?;
    for folder in &batch.folders {
        // One that was begun is not begun anew.
        if table.get(folder_key(folder))?.is_none() {
            table.insert(folder_key(folder), (folder.depth, ""))?;
        }
    }
    for (folder, after) in &batch.after {
        table.insert(folder_key(folder), (folder.depth, after.as_str()))?;
    }
    for folder in &batch.done {
        table.remove(folder_key(folder))?;
    }
    Ok(())
}

/// Takes away all tables of a scan under way.
pub(super) fn forget(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    transaction.delete_table(RUNNING)?;
    transaction.delete_table(FOLDERS)?;
    transaction.delete_table(LEDGERS)?;
    transaction.delete_table(OWNERS)?;
    transaction.delete_table(NAMESPACES)?;
    Ok(())
}
