//! Reads what ledgers there are, and only then who names them: a ledger that was named at any time after it was
//! found, and still is, is seen to be. Whatever cannot be read or understood ends the scan with one sentence, and
//! a scan that ended so proves nothing. What is read is kept on the disk, so that a scan that was killed goes on, and
//! a million ledgers need no memory. Blocks for as long as the store takes: a million at 200 reads a second are an hour and
//! a half.

mod clusters;
mod error;
mod inside;
mod ledgers;
mod owners;
mod part;
mod reach;
mod time;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::inside::Entries;
use super::judge::Judge;
use super::plan::class::{Class, Maker, Rules};
use super::plan::evidence::{Seen, Vanished};
use super::plan::{HOUR, LedgerId, Millis};
use super::state::State;
use super::state::scan::{Batch, Folder, Running, Tree};
use crate::clock::Clock;
use crate::cluster::ledger::LedgerState;
use crate::cluster::store::MetaStore;
pub use clusters::{KnownClusters, PulsarId, identity};
pub(super) use clusters::{is_gone, number};
pub use error::ScanError;
pub(super) use inside::Inside;
pub(super) use owners::{ANY_NAMESPACE, COMPACTION, reading};
pub use part::Part;
use reach::Reach;
pub use time::Shows;
use time::Times;

/// Nodes read in one go: some seconds of work at the usual pace, and little to lose.
const BATCH: usize = 512;

/// Rows that wait for the disk at most, so that a fast store does not fill the memory between two commits: some 20 MB.
const MOST_WAITING: usize = 100_000;

/// Between two commits: losing ten seconds' work costs ten seconds, and nothing is asked while a commit is synced, which would
/// cost more of the pace if it were often.
const COMMIT_EVERY: Duration = Duration::from_secs(10);

/// An interrupted scan that began longer ago is not gone on with: its ledgers were read too long before its owners
/// to be worth it, and a new one takes no longer than what was lost.
const RESUMABLE_FOR: Millis = 6 * HOUR;

/// How long a store may be out of reach: an election or a rolling restart of its servers is over by then.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Where the ledgers are.
#[derive(Clone)]
pub struct Ledgers {
    /// The store.
    pub store: Arc<dyn MetaStore>,
    /// The ledgers root, e.g. `/ledgers`.
    pub root: String,
}

/// The metadata of a Pulsar cluster.
#[derive(Clone)]
pub struct Pulsar {
    /// What people call it: where it is.
    pub name: String,
    /// The store, which may be another than that of the ledgers.
    pub store: Arc<dyn MetaStore>,
    /// What is before `/managed-ledgers`; often nothing.
    pub root: String,
}

/// Everything that a scan reads.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// Where the ledgers are.
    pub ledgers: &'a Ledgers,
    /// Every Pulsar cluster that was declared.
    pub pulsars: &'a [Pulsar],
    /// Who reads inside ledgers. Without it, what is named only there stays undeterminable, and is kept.
    pub entries: Option<&'a dyn Entries>,
}

/// How a scan is made.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How much evidence it takes.
    pub rules: Rules,
    /// Every Pulsar cluster on these bookies was declared.
    pub all_clusters: bool,
    /// Pulsar clusters, by name, that earlier scans read and that are no more: what is remembered of them is forgotten.
    pub gone: Vec<String>,
    /// Judge the ledgers of this part only. Everything is read all the same, for whoever names a ledger may be anywhere; what is
    /// remembered of the rest stays as it is.
    pub part: Option<Part>,
    /// The store is a file that shows the cluster as it was then. One that is not newer than the last scan adds nothing, and is
    /// refused.
    pub snapshot_of: Option<Shows>,
    /// Where a node is made and taken away, to see that the clock of the store and ours agree, as `/dirkeeper`. Without it no
    /// clock is looked at.
    pub clock_root: Option<String>,
    /// How long the store may be out of reach; [`PATIENCE`] if none is given.
    pub patience: Option<Duration>,
}

/// An owner: which cluster, which node, and the transaction that made the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerKey {
    /// The cluster's place among those that were declared.
    pub cluster: u16,
    /// The node, from `/managed-ledgers` or `/schemas` on.
    pub path: String,
    /// The transaction that made it.
    pub created: i64,
}

/// A ledger that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
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
    /// How many copies of each entry there are.
    pub copies: u32,
    /// Whether it is still written.
    pub state: LedgerState,
    /// Who made it.
    pub maker: Maker,
    /// The owner by its own word, as a path below `/managed-ledgers`, or `/schemas` for a schema.
    pub owner: String,
}

/// What a scan read of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// The ledgers that it needs.
    pub seen: Seen,
    /// Ledgers that it says are moved to other storage and deleted, ascending.
    pub moved: Vec<LedgerId>,
    /// Ledgers that positions of it name, ascending.
    pub positions: Vec<LedgerId>,
    /// What it names beside that, inside a ledger.
    pub hidden: Option<Hidden>,
}

/// References that stand inside ledgers only, and were not read there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    /// The compacted ledger in use: in the last entry of this ledger of the cursor `__compaction`.
    Compacted(LedgerId),
    /// Older versions of a schema: named by this entry, the oldest one known.
    Schema {
        /// Its ledger.
        ledger: LedgerId,
        /// Which entry; the first if the locator says none.
        entry: u64,
    },
}

/// How far a scan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// What it does.
    pub step: Step,
    /// Things read in this step.
    pub done: u64,
    /// Things to read, where that is known.
    pub all: Option<u64>,
}

/// The parts of a scan, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Step {
    /// Which ledgers there are.
    #[default]
    List,
    /// What each of them says of itself.
    Metadata,
    /// Who names them.
    Owners,
    /// What is named inside ledgers only.
    Inside,
    /// What follows.
    Judge,
}

/// A completed scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanInfo {
    /// When it began; an interrupted one, when it began first.
    pub began: Millis,
    /// When everything had been read.
    pub ended: Millis,
    /// The cluster's id.
    pub instance: String,
    /// Calls of the stores; none of a snapshot file.
    pub requests: u64,
    /// Ledgers that there are.
    pub ledgers: u64,
    /// Nodes that name ledgers.
    pub owners: u64,
    /// Every Pulsar cluster on these bookies was declared.
    pub all_clusters: bool,
    /// The clusters that were read, by their names, in the order of [`OwnerKey::cluster`].
    pub clusters: Vec<String>,
    /// Only ledgers of this part were judged.
    pub part: Option<Part>,
    /// It was read from a file that showed the cluster so.
    pub is_snapshot: bool,
    /// Owners that are gone and have left ledgers.
    pub vanished: Vanished,
    /// The newest transaction of the ledgers' store when everything had been read, if that is known: what was made by a
    /// later one was made later, whatever its date says.
    pub transaction: Option<i64>,
    /// Judged ledgers of each class, in the order of [`Class::ALL`].
    pub classes: [u64; Class::ALL.len()],
}

/// What a call of [`scan_with`] came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// The scan.
    pub info: ScanInfo,
    /// It went on with an interrupted one.
    pub resumed: bool,
}

/// Scans a cluster, and remembers what it found and what follows. Goes on with an interrupted scan of the same cluster.
///
/// # Errors
/// Anything could not be read or understood. Nothing that is remembered is changed then.
pub async fn scan_with(
    state: &State,
    sources: Sources<'_>,
    options: &Options,
    clock: &Clock,
    progress: &watch::Sender<Progress>,
) -> Result<Scanned, ScanError> {
    let reach = Reach::new(clock, options.patience.unwrap_or(PATIENCE));
    let mut scan = Scan::begin(state, sources, options, &reach, progress).await?;
    let done = scan.all().await;
    match done {
        Ok(info) => Ok(Scanned {
            info,
            resumed: scan.resumed,
        }),
        Err(error) => {
            if !error.is_resumable() {
                state.abandon_scan()?;
            }
            Err(error)
        }
    }
}

/// A scan under way.
struct Scan<'a> {
    state: &'a State,
    sources: Sources<'a>,
    options: &'a Options,
    reach: &'a Reach<'a>,
    progress: &'a watch::Sender<Progress>,
    layout: crate::cluster::ledger::Layout,
    /// Who the clusters are.
    clusters: Vec<PulsarId>,
    running: Running,
    times: Times<'a>,
    /// The newest one, when all had been read.
    transaction: Option<i64>,
    /// Calls of those who ran before it was interrupted.
    requests_before: u64,
    resumed: bool,
    waiting: Batch,
    committed: Duration,
    /// Folders that were found in the tree that is walked, to be walked next without being fetched from the disk.
    found: Vec<Folder>,
    /// Others of that tree are on the disk only.
    more: bool,
}

impl<'a> Scan<'a> {
    async fn begin(
        state: &'a State,
        sources: Sources<'a>,
        options: &'a Options,
        reach: &'a Reach<'a>,
        progress: &'a watch::Sender<Progress>,
    ) -> Result<Scan<'a>, ScanError> {
        let layout = ledgers::layout(sources.ledgers, reach).await?;
        let instance = ledgers::instance(sources.ledgers, reach).await?;
        let clusters = clusters::identified(sources.pulsars, reach).await?;
        if let Some(remembered) = state.instance()?
            && remembered != instance
        {
            return Err(ScanError::OtherCluster {
                remembered,
                found: instance,
            });
        }
        let now = reach.clock.now().wall.0;
        let last = state.last_scan()?;
        let times = Times {
            ledgers: sources.ledgers,
            options,
            clock: reach.clock,
        };
        let began = times.began(last.as_ref(), &instance).await?;
        let known = state.clusters()?;
        known.are_live(&clusters, sources.pulsars, reach).await?;
        if options.all_clusters {
            known.are_all_in(&clusters, &options.gone)?;
        }
        let fresh = Running {
            began,
            instance,
            sources: described(sources, &clusters, options),
            ..Running::default()
        };
        let (running, resumed) = running(state, fresh, sources.pulsars, now)?;
        Ok(Scan {
            state,
            sources,
            options,
            reach,
            progress,
            layout,
            clusters,
            times,
            transaction: None,
            requests_before: running.requests,
            running,
            resumed,
            waiting: Batch::default(),
            committed: reach.clock.elapsed(),
            found: Vec::new(),
            more: false,
        })
    }

    async fn all(&mut self) -> Result<ScanInfo, ScanError> {
        if self.running.step == Step::List {
            self.list().await?;
            self.step(Step::Metadata)?;
        }
        if self.running.step == Step::Metadata {
            self.metadata().await?;
            self.step(Step::Owners)?;
        }
        if self.running.step == Step::Owners {
            self.settle().await?;
            self.owners().await?;
            self.step(Step::Inside)?;
        }
        if self.running.step == Step::Inside {
            self.inside().await?;
            let (began, instance) = (self.running.began, &self.running.instance);
            let (ended, transaction) = self.times.ended(began, instance).await?;
            self.running.ended = ended;
            self.transaction = transaction;
            self.step(Step::Judge)?;
        }
        self.told(None);
        let info = ScanInfo {
            began: self.running.began,
            ended: self.running.ended,
            instance: self.running.instance.clone(),
            requests: self.running.requests,
            ledgers: self.running.ledgers,
            owners: self.running.owners,
            all_clusters: self.options.all_clusters,
            clusters: self
                .sources
                .pulsars
                .iter()
                .map(|one| one.name.clone())
                .collect(),
            part: self.options.part.clone(),
            is_snapshot: self.options.snapshot_of.is_some(),
            vanished: Vanished::default(),
            transaction: self.transaction,
            classes: [0; Class::ALL.len()],
        };
        let (sources, layout, reach) = (self.sources, self.layout, self.reach);
        let inside = sources.entries.map(|entries| Inside {
            sources,
            layout,
            reach,
            entries,
        });
        let judge = Judge {
            state: self.state,
            inside,
            rules: &self.options.rules,
            info,
            progress: self.progress,
            asked: 0,
            clusters: &self.clusters,
            gone: &self.options.gone,
            known: KnownClusters::default(),
            before: None,
        };
        judge.all().await
    }

    /// No owner is read from a server that knows less than the one that listed the ledgers.
    async fn settle(&self) -> Result<(), ScanError> {
        if self.options.snapshot_of.is_some() {
            return Ok(());
        }
        for pulsar in self.sources.pulsars {
            let top = format!("{}{}", pulsar.root, Tree::Topics.path());
            self.reach.settle(&*pulsar.store, &top).await?;
        }
        Ok(())
    }

    /// What was read is on the disk, and the next step begins.
    fn step(&mut self, step: Step) -> Result<(), ScanError> {
        self.running.step = step;
        self.commit()
    }

    /// Commits if it is time to.
    fn committed(&mut self) -> Result<(), ScanError> {
        let waited = self.reach.clock.elapsed().saturating_sub(self.committed);
        let is_time = COMMIT_EVERY <= waited || MOST_WAITING <= self.waiting.len();
        if is_time { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<(), ScanError> {
        let calls = self.requests_before + self.reach.calls();
        self.running.requests = if self.options.snapshot_of.is_some() {
            0
        } else {
            calls
        };
        self.state.advance_scan(&self.running, &self.waiting)?;
        self.waiting = Batch::default();
        self.committed = self.reach.clock.elapsed();
        // They may have become many: from the disk they come in batches.
        self.more |= !self.found.is_empty();
        self.found.clear();
        Ok(())
    }

    /// The first folders of a tree that are not done.
    fn first(
        &mut self,
        tree: Tree,
        cluster: u16,
        limit: usize,
    ) -> Result<Vec<(Folder, String)>, ScanError> {
        self.found.clear();
        let folders = self.state.folders(tree, cluster, limit)?;
        self.more = folders.len() == limit;
        Ok(folders)
    }

    /// Folders that are next: those that were found since, or some from the disk.
    fn next(
        &mut self,
        tree: Tree,
        cluster: u16,
        limit: usize,
    ) -> Result<Vec<(Folder, String)>, ScanError> {
        if self.found.is_empty() && self.more {
            self.commit()?;
            return self.first(tree, cluster, limit);
        }
        let found = self.found.drain(..);
        Ok(found.map(|folder| (folder, String::new())).collect())
    }

    fn told(&self, all: Option<u64>) {
        let done = match self.running.step {
            Step::List => self.running.listed,
            Step::Metadata => self.running.read,
            Step::Owners => self.running.nodes,
            Step::Inside | Step::Judge => 0,
        };
        self.progress.send_replace(Progress {
            step: self.running.step,
            done,
            all,
        });
    }
}

/// The scan that was interrupted, if it is to be gone on with, or a fresh one; and which it is.
fn running(
    state: &State,
    fresh: Running,
    pulsars: &[Pulsar],
    now: Millis,
) -> Result<(Running, bool), ScanError> {
    let interrupted = state.running_scan()?.filter(|running| {
        let age = now - running.started;
        running.is_of(&fresh) && (0..=RESUMABLE_FOR).contains(&age)
    });
    if let Some(interrupted) = interrupted {
        return Ok((interrupted, true));
    }
    let fresh = Running {
        started: now,
        ..fresh
    };
    state.begin_scan(&fresh, &owners::tops(pulsars))?;
    Ok((fresh, false))
}

/// What a scan that goes on has to have in common with the one that was interrupted.
fn described(sources: Sources<'_>, clusters: &[PulsarId], options: &Options) -> Vec<String> {
    let mut all = vec![sources.ledgers.root.clone()];
    all.extend(options.snapshot_of.map(|at| format!("{at:?}")));
    for (pulsar, id) in sources.pulsars.iter().zip(clusters) {
        all.push(id.key.clone());
        all.push(pulsar.root.clone());
    }
    all
}
