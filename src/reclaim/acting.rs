//! What marking and sweeping share: what they work with, what the last complete scan said, and why they stop. A scan
//! proves something about a mark only if it is of this cluster, read everything, and began after the mark was made.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use super::failpoint::Failpoints;
use super::history::Ruling;
use super::inside::Entries;
use super::plan::class::{Class, Maker, Rules};
use super::plan::evidence::{Vanished, Witness};
use super::plan::{DAY, HOUR, LedgerId, Millis};
use super::preflight::MOST_SKEW;
use super::scan::{Ledgers, OwnerKey, Pulsar};
use super::state::history::Stored;
use super::state::marks::Mark;
use super::state::{State, StateError};
use crate::clock::Clock;
use crate::cluster::ledger::{Layout, LayoutError};
use crate::cluster::store::{MetaStore, StoreError};

/// A scan that began longer ago speaks for no deletion: who is not the owner of a ledger, and begins to name it, is seen by
/// scans only.
const MOST_AGE: Millis = DAY;

/// What every command that acts works with.
pub struct Acting<'a> {
    /// What is remembered.
    pub state: &'a State,
    /// The ledgers.
    pub ledgers: &'a Ledgers,
    /// The Pulsar clusters, numbered as for the scans. One is in the store of the ledgers if it has the very same handle.
    pub pulsars: &'a [Pulsar],
    /// The time.
    pub clock: &'a Clock,
    /// How much evidence it takes.
    pub rules: &'a Rules,
    /// Whether we still hold the lock: asked before each deletion.
    pub is_leader: &'a (dyn Fn() -> bool + Send + Sync),
    /// Who asks bookies whether an open ledger is written. Without it no open ledger is deleted that was never named.
    pub entries: Option<&'a dyn Entries>,
    /// For tests.
    pub failpoints: &'a Failpoints,
}

/// The last complete scan, as far as it is about ledgers that nobody needs.
#[derive(Debug, Default)]
pub struct LastScan {
    /// When it began.
    pub began: Millis,
    /// The cluster's id.
    pub instance: String,
    /// Every Pulsar cluster on these bookies was declared.
    pub all_clusters: bool,
    /// How many ledgers there were.
    pub ledgers: u64,
    /// Owners that are gone and have left ledgers.
    pub vanished: Vanished,
    /// Only a part of the ledgers was judged.
    pub is_part: bool,
    /// All that are not referenced.
    pub suspects: BTreeMap<LedgerId, Candidate>,
    /// Everybody who names ledgers.
    pub owners: Vec<OwnerKey>,
}

/// A ledger that is not referenced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The transaction that made its node.
    pub created: i64,
    /// The version of its node.
    pub version: i32,
    /// Bytes of one copy, and how many copies there are.
    pub size: (u64, u32),
    /// Who made it.
    pub maker: Maker,
    /// Its owner by its own word.
    pub owner: Arc<str>,
    /// What is known about who references it.
    pub class: Class,
    /// What may be done.
    pub ruling: Ruling,
    /// Why not, in words.
    pub why: String,
    /// The first scan that found it so.
    pub first: Millis,
    /// How many did.
    pub scans: u32,
    /// The newest entry that was confirmed all that time, of one that is not closed.
    pub lac: Option<i64>,
    /// How its owner let it go, and who that was.
    pub witness: Option<(OwnerKey, Witness)>,
}

impl LastScan {
    /// From what is remembered; nothing before the first complete scan.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn read(state: &State) -> Result<LastScan, StateError> {
        let Some(info) = state.last_scan()? else {
            return Ok(LastScan::default());
        };
        let mut suspects = BTreeMap::new();
        state.for_each_judged(|stored| {
            suspects.extend(Candidate::of(stored).map(|candidate| (stored.id, candidate)));
        })?;
        let mut owners = Vec::new();
        state.for_each_owner(|key| owners.push(key.clone()))?;
        Ok(LastScan {
            began: info.began,
            instance: info.instance,
            all_clusters: info.all_clusters,
            ledgers: info.ledgers,
            vanished: info.vanished,
            is_part: info.part.is_some(),
            suspects,
            owners,
        })
    }

    /// Whether it still speaks for the deletion of a marked ledger, or why not.
    #[must_use]
    pub fn confirms(&self, mark: &Mark) -> Confirmed<'_> {
        // Nor the very scan by which it was marked, whatever a clock said that was set back meanwhile.
        if self.began <= mark.marked_at.max(mark.last) {
            let why = "it takes a complete scan that began after the mark";
            return Confirmed::NotYet(why.to_owned());
        }
        let Some(candidate) = self.suspects.get(&mark.id) else {
            if self.is_part {
                let why = "the last scan judged a part of the ledgers, and not this one";
                return Confirmed::NotYet(why.to_owned());
            }
            return Confirmed::Not("the last scan found it referenced, or not at all".to_owned());
        };
        if candidate.created != mark.node.created {
            return Confirmed::Not("it is another ledger of that number".to_owned());
        }
        if candidate.version != mark.node.version {
            return Confirmed::Not("its metadata was changed".to_owned());
        }
        match candidate.ruling {
            Ruling::Deletable if candidate.class == mark.class => Confirmed::Yes(candidate),
            Ruling::Deletable => {
                let (now, was) = (candidate.class, mark.class);
                Confirmed::Not(format!(
                    "its class is {now}, by the last scan, and was {was}"
                ))
            }
            Ruling::Keep => Confirmed::Not(candidate.why.clone()),
            Ruling::Wait => Confirmed::NotYet(candidate.why.clone()),
        }
    }
}

impl Candidate {
    /// None for one that somebody needs.
    fn of(stored: &Stored) -> Option<Candidate> {
        let suspect = stored.suspect.as_ref()?;
        Some(Candidate {
            created: stored.created,
            version: stored.version,
            size: (stored.length, stored.copies),
            maker: stored.maker,
            owner: stored.owner.as_str().into(),
            class: stored.class,
            ruling: stored.ruling,
            why: stored.why.clone(),
            first: suspect.first,
            scans: suspect.scans,
            lac: suspect.lac,
            witness: suspect.witness.clone(),
        })
    }
}

/// What a scan says about a mark.
#[derive(Debug, PartialEq, Eq)]
pub enum Confirmed<'a> {
    /// Nothing has changed.
    Yes(&'a Candidate),
    /// Nothing can be said yet.
    NotYet(String),
    /// The mark is wrong by now.
    Not(String),
}

/// Why marking or sweeping ended before all was done. What was done is told beside it.
#[derive(Debug, Error)]
pub enum Stop {
    /// What is remembered.
    #[error("cannot remember what is done")]
    State(#[from] StateError),
    /// The store.
    #[error("cannot read or change {path}")]
    Store {
        /// Which node.
        path: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The layout.
    #[error("cannot tell where ledgers are")]
    Layout(#[from] LayoutError),
    /// Of another cluster.
    #[error("the last scan is of cluster {scan}, and this is {now}: scan again")]
    Instance {
        /// The scan's.
        scan: String,
        /// The one that is there.
        now: String,
    },
    /// A clock.
    #[error(
        "the last scan began {seconds} s from now by our clock, which was wrong then or is now: set it, and scan again"
    )]
    Future {
        /// How far.
        seconds: i64,
    },
    /// An old scan.
    #[error(
        "the last scan began {hours} h ago, and nothing is deleted by what is older than a day: scan again"
    )]
    Old {
        /// How old it is.
        hours: i64,
    },
    /// Owners that are gone.
    #[error(
        "{gone} of {all} owners of ledgers are gone, which looks like metadata that was lost, half restored, or read at the \
         wrong place, so nothing of r2, r3 and r4 is touched: see that /managed-ledgers is whole, and say --allow-vanished if \
         all of them were deleted on purpose"
    )]
    Vanished {
        /// So many, which have left ledgers behind.
        gone: u64,
        /// Of those that are known, or that were looked at.
        all: u64,
    },
    /// The lock.
    #[error("the lock of reclaim is not held any more: another dirkeeper may be at work")]
    NotLeader,
    /// Enough.
    #[error(
        "{done} ledgers are deleted, the most of one pass, and {left} more may be: look at the result, then run it again, with \
         --max-deletes for another number"
    )]
    Enough {
        /// Deleted in this pass.
        done: u64,
        /// Not looked at.
        left: u64,
    },
    /// A transaction whose end is not known.
    #[error(
        "the answer to the deletion of ledger {id} was lost: the next run finds out what came of it"
    )]
    Unanswered {
        /// Which ledger.
        id: LedgerId,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// Data is lost.
    #[error(
        "{owner} names ledger {id}, which does not exist: somebody deletes ledgers that are in use, so nothing is deleted until \
         that is understood, or --allow-missing says why it may be"
    )]
    Missing {
        /// The owner's node.
        owner: String,
        /// The ledger.
        id: LedgerId,
    },
    /// We have deleted what is in use.
    #[error(
        "{owner} names ledger {id}, which was deleted here: bring it back with 'dirkeeper reclaim undo {id}', and find out why \
         before anything more is deleted"
    )]
    Ours {
        /// The owner's node.
        owner: String,
        /// The ledger.
        id: LedgerId,
    },
    /// It cannot be.
    #[error("ledger {id} is still there after its deletion was answered")]
    StillThere {
        /// Which ledger.
        id: LedgerId,
    },
}

impl Stop {
    /// So many owners are gone that nothing that rests on absence is believed.
    pub(super) fn mass(vanished: Vanished) -> Option<Stop> {
        let Vanished { gone, there } = vanished;
        let all = gone.saturating_add(there);
        vanished.is_mass().then_some(Stop::Vanished { gone, all })
    }
}

/// The result of a call, with the node it was about.
pub(super) fn at<T>(path: &str, result: Result<T, StoreError>) -> Result<T, Stop> {
    result.map_err(|source| Stop::Store {
        path: path.to_owned(),
        source,
    })
}

impl Acting<'_> {
    pub(super) fn now(&self) -> Millis {
        self.clock.now().wall.0
    }

    /// The layout, read now, of the cluster that was scanned.
    pub(super) async fn layout(&self, last: &LastScan) -> Result<Layout, Stop> {
        let ahead = last.began - self.now();
        if MOST_SKEW < ahead {
            let seconds = ahead / 1000;
            return Err(Stop::Future { seconds });
        }
        let path = format!("{}/INSTANCEID", self.ledgers.root);
        let (bytes, _) = at(&path, self.ledgers.store.get(&path).await)?;
        let now = String::from_utf8_lossy(&bytes).trim().to_owned();
        if now != last.instance {
            let scan = last.instance.clone();
            return Err(Stop::Instance { scan, now });
        }
        let path = format!("{}/LAYOUT", self.ledgers.root);
        let (bytes, _) = at(&path, self.ledgers.store.get(&path).await)?;
        Ok(Layout::parse(&bytes)?)
    }

    /// Whether the scan may still be gone by.
    pub(super) fn is_recent(&self, last: &LastScan) -> Result<(), Stop> {
        let age = self.now() - last.began;
        if age <= MOST_AGE {
            return Ok(());
        }
        let hours = age / HOUR;
        Err(Stop::Old { hours })
    }

    pub(super) fn is_beside_ledgers(&self, pulsar: &Pulsar) -> bool {
        Arc::ptr_eq(&self.ledgers.store, &pulsar.store)
    }

    /// Has our server know all that was written before: a transaction, even one that fails, goes through the
    /// leader, and no answer that follows in this session is older.
    pub(super) async fn settle(&self, store: &dyn MetaStore, path: &str) -> Result<(), Stop> {
        use crate::cluster::store::Op;
        let check = Op::Check {
            path: path.to_owned(),
            version: 0,
        };
        match store.multi(&[check]).await {
            Ok(()) | Err(StoreError::Step { .. }) => Ok(()),
            Err(source) => at(path, Err(source)),
        }
    }
}
