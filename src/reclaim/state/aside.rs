//! Which Pulsar clusters are known, and what was seen of those that the last scan did not read: it is laid aside by the
//! clusters' keys, until they are read again or said to be no more.

use redb::{TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::history::{Outcome, replace};
use super::rows::{self, OwnerRow, WitnessRow};
use super::{State, StateError};
use crate::reclaim::plan::LedgerId;
use crate::reclaim::plan::evidence::{Known, Witness};
use crate::reclaim::scan::{KnownClusters, OwnerKey, PulsarId};

const CLUSTERS: TableDefinition<&str, &[u8]> = TableDefinition::new("pulsar clusters");
const KNOWN: &str = "known";

/// Owners by their cluster's key, and how ledgers were seen let go by them.
type AsideId = (&'static str, &'static str, i64);
const OWNERS: TableDefinition<AsideId, &[u8]> = TableDefinition::new("owners aside");
const WITNESSES: TableDefinition<u64, &[u8]> = TableDefinition::new("witnesses aside");

/// What is to take their place.
const NEW_OWNERS: TableDefinition<AsideId, &[u8]> = TableDefinition::new("new owners aside");
const NEW_WITNESSES: TableDefinition<u64, &[u8]> = TableDefinition::new("new witnesses aside");

/// An owner of a cluster that was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reclaim) struct AsideKey {
    /// Of [`PulsarId::key`].
    pub(in crate::reclaim) cluster: String,
    pub(in crate::reclaim) path: String,
    pub(in crate::reclaim) created: i64,
}

/// How a ledger was seen let go by such an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reclaim) struct AsideWitness {
    /// The transaction that made the ledger.
    pub(in crate::reclaim) ledger: i64,
    pub(in crate::reclaim) owner: AsideKey,
    pub(in crate::reclaim) how: Witness,
}

#[derive(Serialize, Deserialize)]
struct WitnessAsideRow {
    ledger: i64,
    cluster: String,
    witness: WitnessRow,
}

#[derive(Serialize, Deserialize)]
struct KnownRow {
    read: Vec<(String, String)>,
    left_out: Vec<(String, String)>,
}

impl AsideKey {
    pub(in crate::reclaim) fn numbered(&self, cluster: u16) -> OwnerKey {
        OwnerKey {
            cluster,
            path: self.path.clone(),
            created: self.created,
        }
    }

    fn id(&self) -> (&str, &str, i64) {
        (&self.cluster, &self.path, self.created)
    }
}

impl State {
    /// The Pulsar clusters that are known.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn clusters(&self) -> Result<KnownClusters, StateError> {
        let row = self.read(|transaction| match rows::table(transaction, CLUSTERS)? {
            Some(table) => Ok(table.get(KNOWN)?.map(|row| row.value().to_vec())),
            None => Ok(None),
        })?;
        let Some(row) = row else {
            // Of a file that remembers only what the last scan called them.
            let names = self.last_scan()?.map(|info| info.clusters);
            let names = names.unwrap_or_default();
            return Ok(KnownClusters {
                read: names.iter().map(|name| PulsarId::named(name)).collect(),
                left_out: Vec::new(),
            });
        };
        let row: KnownRow = self.decoded("the Pulsar clusters", &row)?;
        let ids = |some: Vec<(String, String)>| {
            let ids = some.into_iter().map(|(key, name)| PulsarId { key, name });
            ids.collect()
        };
        Ok(KnownClusters {
            read: ids(row.read),
            left_out: ids(row.left_out),
        })
    }

    /// Owners that are laid aside, after this one.
    pub(in crate::reclaim) fn aside_after(
        &self,
        after: Option<&AsideKey>,
        limit: usize,
    ) -> Result<Vec<(AsideKey, Known)>, StateError> {
        let rows: Vec<_> = self.read(|transaction| {
            let Some(table) = rows::table(transaction, OWNERS)? else {
                return Ok(Vec::new());
            };
            let mut some = Vec::new();
            let range = rows::after(after.map(AsideKey::id));
            for row in table.range(range)?.take(limit) {
                let (key, row) = row?;
                let (cluster, path, created) = key.value();
                let key = AsideKey {
                    cluster: cluster.to_owned(),
                    path: path.to_owned(),
                    created,
                };
                some.push((key, row.value().to_vec()));
            }
            Ok::<_, redb::Error>(some)
        })?;
        let owners = rows.into_iter().map(|(key, row)| {
            let row: OwnerRow = self.decoded("an owner", &row)?;
            let known = row.known(key.created);
            Ok((key, known))
        });
        owners.collect()
    }

    /// How these ledgers were seen let go by owners that are laid aside.
    pub(in crate::reclaim) fn witnesses_aside(
        &self,
        ids: &[LedgerId],
    ) -> Result<Vec<Option<AsideWitness>>, StateError> {
        let rows: Vec<_> = self.read(|transaction| {
            let table = rows::table(transaction, WITNESSES)?;
            let rows = ids.iter().map(|id| super::history::of(&table, *id));
            rows.collect::<Result<_, redb::Error>>()
        })?;
        let witnesses = rows.into_iter().map(|row| {
            let Some(row) = row else { return Ok(None) };
            let row: WitnessAsideRow = self.decoded("a witness", &row)?;
            let (owner, how) = row.witness.witness();
            Ok(Some(AsideWitness {
                ledger: row.ledger,
                owner: AsideKey {
                    cluster: row.cluster,
                    path: owner.path,
                    created: owner.created,
                },
                how,
            }))
        });
        witnesses.collect()
    }
}

/// What is to be laid aside.
pub(super) fn prepare(
    transaction: &WriteTransaction,
    outcome: &Outcome,
) -> Result<(), redb::Error> {
    let mut owners = transaction.open_table(NEW_OWNERS)?;
    for (key, known) in &outcome.aside {
        let row = rows::encoded(&OwnerRow::of_known(known));
        owners.insert(key.id(), row.as_slice())?;
    }
    let mut witnesses = transaction.open_table(NEW_WITNESSES)?;
    for (id, witness) in &outcome.witnesses_aside {
        let row = rows::encoded(&WitnessAsideRow {
            ledger: witness.ledger,
            cluster: witness.owner.cluster.clone(),
            // The number is not looked at.
            witness: WitnessRow::of(&witness.owner.numbered(0), witness.how),
        });
        witnesses.insert(id, row.as_slice())?;
    }
    Ok(())
}

pub(super) fn complete(
    transaction: &WriteTransaction,
    known: &KnownClusters,
) -> Result<(), redb::Error> {
    replace(transaction, NEW_OWNERS, OWNERS)?;
    replace(transaction, NEW_WITNESSES, WITNESSES)?;
    let words = |ids: &[PulsarId]| {
        let words = ids.iter().map(|one| (one.key.clone(), one.name.clone()));
        words.collect()
    };
    let row = rows::encoded(&KnownRow {
        read: words(&known.read),
        left_out: words(&known.left_out),
    });
    transaction
        .open_table(CLUSTERS)?
        .insert(KNOWN, row.as_slice())?;
    Ok(())
}

/// Takes away what was prepared.
pub(super) fn forget(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    transaction.delete_table(NEW_OWNERS)?;
    transaction.delete_table(NEW_WITNESSES)?;
    Ok(())
}
