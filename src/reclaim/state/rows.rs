//! How the values of the tables are written: postcard, with ids as differences, so that an owner's list takes two or
//! three bytes a ledger.

use std::ops::Bound;

use redb::{Key, ReadOnlyTable, ReadTransaction, TableDefinition, TableError, Value};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{State, StateError};
use crate::cluster::ledger::LedgerState;
use crate::reclaim::history::Suspect;
use crate::reclaim::plan::class::Maker;
use crate::reclaim::plan::evidence::{Absence, Known, Seen, Witness};
use crate::reclaim::plan::{LedgerId, Millis};
use crate::reclaim::scan::{Hidden, Ledger, OwnerKey, Reading, Step};

/// The table, where it was ever written to.
pub(super) fn table<K: Key + 'static, V: Value + 'static>(
    transaction: &ReadTransaction,
    definition: TableDefinition<K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, redb::Error> {
    match transaction.open_table(definition) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Everything behind this key.
pub(super) fn after<T>(key: Option<T>) -> (Bound<T>, Bound<T>) {
    let from = key.map_or(Bound::Unbounded, Bound::Excluded);
    (from, Bound::Unbounded)
}

pub(super) fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain values always encode")
}

impl State {
    pub(super) fn decoded<T: DeserializeOwned>(
        &self,
        what: &str,
        bytes: &[u8],
    ) -> Result<T, StateError> {
        postcard::from_bytes(bytes).map_err(|_| self.damaged(what))
    }

    pub(super) fn ledger(&self, id: LedgerId, bytes: &[u8]) -> Result<Ledger, StateError> {
        let row: LedgerRow = self.decoded("a ledger", bytes)?;
        row.ledger(id).ok_or_else(|| self.damaged("a ledger"))
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct LedgerRow {
    created: i64,
    version: i32,
    made: i64,
    length: u64,
    copies: u32,
    state: u8,
    maker: u8,
    owner: String,
}

const STATES: [LedgerState; 3] = [
    LedgerState::Open,
    LedgerState::InRecovery,
    LedgerState::Closed,
];

const MAKERS: [Maker; 4] = [
    Maker::Topic,
    Maker::Compaction,
    Maker::Schema,
    Maker::Foreign,
];

/// The place in a list of all.
pub(super) fn number<T: PartialEq>(all: &[T], one: &T) -> u8 {
    let at = all
        .iter()
        .position(|other| other == one)
        .unwrap_or(all.len());
    u8::try_from(at).unwrap_or(u8::MAX)
}

impl LedgerRow {
    pub(super) fn of(ledger: &Ledger) -> LedgerRow {
        LedgerRow {
            created: ledger.created,
            version: ledger.version,
            made: ledger.made,
            length: ledger.length,
            copies: ledger.copies,
            state: number(&STATES, &ledger.state),
            maker: number(&MAKERS, &ledger.maker),
            owner: ledger.owner.clone(),
        }
    }

    fn ledger(self, id: LedgerId) -> Option<Ledger> {
        Some(Ledger {
            id,
            created: self.created,
            version: self.version,
            made: self.made,
            length: self.length,
            copies: self.copies,
            state: *STATES.get(usize::from(self.state))?,
            maker: *MAKERS.get(usize::from(self.maker))?,
            owner: self.owner,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct OwnerRow {
    version: i32,
    ledgers: Vec<u64>,
    moved: Vec<u64>,
    positions: Vec<u64>,
    hidden: Option<HiddenRow>,
    absence: Option<AbsenceRow>,
}

#[derive(Serialize, Deserialize)]
enum HiddenRow {
    Compacted(u64),
    Schema(u64, u64),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct AbsenceRow(Millis, Millis, u32);

impl OwnerRow {
    pub(super) fn of(reading: &Reading, absence: Option<Absence>) -> OwnerRow {
        OwnerRow {
            version: reading.seen.version,
            ledgers: differences(&reading.seen.ledgers),
            moved: differences(&reading.moved),
            positions: differences(&reading.positions),
            hidden: reading.hidden.map(|hidden| match hidden {
                Hidden::Compacted(ledger) => HiddenRow::Compacted(ledger),
                Hidden::Schema { ledger, entry } => HiddenRow::Schema(ledger, entry),
            }),
            absence: absence.map(AbsenceRow::of),
        }
    }

    pub(super) fn of_known(known: &Known) -> OwnerRow {
        let reading = Reading {
            seen: known.seen.clone(),
            ..Reading::default()
        };
        OwnerRow::of(&reading, known.absence)
    }

    pub(super) fn reading(self, created: i64) -> Reading {
        Reading {
            seen: Seen {
                created,
                version: self.version,
                ledgers: sums(self.ledgers),
            },
            moved: sums(self.moved),
            positions: sums(self.positions),
            hidden: self.hidden.map(|hidden| match hidden {
                HiddenRow::Compacted(ledger) => Hidden::Compacted(ledger),
                HiddenRow::Schema(ledger, entry) => Hidden::Schema { ledger, entry },
            }),
        }
    }

    pub(super) fn known(self, created: i64) -> Known {
        Known {
            absence: self.absence.map(AbsenceRow::absence),
            seen: self.reading(created).seen,
        }
    }
}

impl AbsenceRow {
    fn of(absence: Absence) -> AbsenceRow {
        AbsenceRow(absence.since, absence.until, absence.scans)
    }

    fn absence(self) -> Absence {
        let AbsenceRow(since, until, scans) = self;
        Absence {
            since,
            until,
            scans,
        }
    }
}

/// From one to the next; they ascend.
fn differences(ids: &[LedgerId]) -> Vec<u64> {
    let before = std::iter::once(0).chain(ids.iter().copied());
    ids.iter()
        .zip(before)
        .map(|(id, before)| id.wrapping_sub(before))
        .collect()
}

fn sums(mut ids: Vec<u64>) -> Vec<LedgerId> {
    let mut sum = 0_u64;
    for id in &mut ids {
        sum = sum.wrapping_add(*id);
        *id = sum;
    }
    ids
}

#[derive(Serialize, Deserialize)]
pub(super) struct WitnessRow {
    cluster: u16,
    path: String,
    created: i64,
    how: HowRow,
}

#[derive(Serialize, Deserialize)]
enum HowRow {
    Trimmed { from: i32, to: i32, at: Millis },
    Gone(AbsenceRow),
}

impl WitnessRow {
    pub(super) fn of(key: &OwnerKey, witness: Witness) -> WitnessRow {
        let how = match witness {
            Witness::Trimmed { from, to, at, .. } => HowRow::Trimmed { from, to, at },
            Witness::Gone { absence, .. } => HowRow::Gone(AbsenceRow::of(absence)),
        };
        WitnessRow {
            cluster: key.cluster,
            path: key.path.clone(),
            created: key.created,
            how,
        }
    }

    pub(super) fn witness(self) -> (OwnerKey, Witness) {
        let created = self.created;
        let witness = match self.how {
            HowRow::Trimmed { from, to, at } => Witness::Trimmed {
                created,
                from,
                to,
                at,
            },
            HowRow::Gone(absence) => Witness::Gone {
                created,
                absence: absence.absence(),
            },
        };
        let key = OwnerKey {
            cluster: self.cluster,
            path: self.path,
            created,
        };
        (key, witness)
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct SuspectRow {
    created: i64,
    first: Millis,
    scans: u32,
    confirmed: Option<i64>,
    witness: Option<WitnessRow>,
}

impl SuspectRow {
    pub(super) fn of(suspect: &Suspect) -> SuspectRow {
        let witness = suspect.witness.as_ref();
        SuspectRow {
            created: suspect.created,
            first: suspect.first,
            scans: suspect.scans,
            confirmed: suspect.lac,
            witness: witness.map(|(key, witness)| WitnessRow::of(key, *witness)),
        }
    }

    pub(super) fn suspect(self) -> Suspect {
        Suspect {
            created: self.created,
            first: self.first,
            scans: self.scans,
            lac: self.confirmed,
            witness: self.witness.map(WitnessRow::witness),
        }
    }
}

/// Steps by their number.
pub(super) mod step {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use super::Step;

    const STEPS: [Step; 5] = [
        Step::List,
        Step::Metadata,
        Step::Owners,
        Step::Inside,
        Step::Judge,
    ];

    pub(in super::super) fn serialize<S: Serializer>(
        step: &Step,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        super::number(&STEPS, step).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Step, D::Error> {
        let number = u8::deserialize(deserializer)?;
        let step = STEPS.get(usize::from(number)).copied();
        step.ok_or_else(|| D::Error::custom("no step has that number"))
    }
}
