//! Works on a job: takes its tasks in an order of its own, some ledgers at a time, until none is left that can be done.
//! Any number of workers, on any machines, can work on one job; each ledger is locked while one does. Begin with [`run`];
//! `ledger` is what is done with one, `copy` moves its entries, `choice` says where to, `check` whether they are there.
//! `replica` is one bookie, behind its `gate`.

mod check;
mod choice;
mod copy;
mod gate;
mod held;
mod ledger;
mod replica;
mod report;
mod says;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub use report::Report;

use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::cluster::bookie::Bookies;
use crate::cluster::lacking;
use crate::cluster::ledger::{Layout, Secret};
use crate::cluster::store::{Link, MetaStore, StoreError};
use crate::drain::failpoint::Failpoints;
use crate::drain::job::{Job, JobError, Jobs, Limits, Moved, Phase, ReaderGate, Tasks};
use crate::drain::lock::answered;
use crate::drain::plan::place::{Load, Target};
use crate::drain::throttle::Throttle;
use copy::{Counts, Room};
use held::HeldLocks;
use ledger::{End, work_on};
use replica::Replicas;
use report::Reports;

/// Bytes of entries that are under way at a time, of all ledgers: read, and not yet known to be on their targets. What is
/// on its way through sockets comes on top, once or twice.
pub const MEMORY: usize = 64 << 20;

/// Ledgers at a time at most, whatever the limits say: each has bytes under way.
const MOST_LEDGERS: u32 = 256;

/// How long a store may be out of reach: an election or a rolling restart of its servers is over by then.
const PATIENCE: Duration = Duration::from_secs(300);

/// Ledgers that BookKeeper waits to replicate and that are made way for: as many as one job keeps.
const MOST_LACKING: usize = 10_000;

/// Between two passes over what has to wait: at first, and at last, when nothing changes.
const LOOKS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// What a worker needs.
pub struct Worker {
    /// The metadata store, best at a pace.
    pub store: Arc<dyn MetaStore>,
    /// Where BookKeeper keeps everything.
    pub ledgers_root: String,
    /// How ledgers become nodes.
    pub layout: Layout,
    /// All jobs, in that store.
    pub jobs: Jobs,
    /// The bookies, with room for many requests at a time (`Limits::in_flight`).
    pub bookies: Arc<Bookies>,
    /// The time.
    pub clock: Clock,
    /// The bookies that are known, with the space that they have, now and later.
    pub targets: watch::Receiver<Arc<Vec<Target>>>,
    /// The limits of the job, now and later (`Jobs::follow_limits`).
    pub limits: watch::Receiver<Limits>,
    /// For ledgers whose metadata has no password.
    pub secret: Option<Secret>,
    /// Every entry is read back, also of large ledgers.
    pub verify_all: bool,
    /// Returns when nothing is left but what has to wait for others.
    pub until_waiting: bool,
    /// Bytes under way: [`MEMORY`].
    pub memory: usize,
    /// Unique to this run, and what others see.
    pub name: String,
    /// Where it runs.
    pub host: String,
    /// Told how many requests a second the store may be asked, 0 for any number, now and when that changes
    /// (`Paced::set_limit`).
    pub pace: Box<dyn Fn(u32) + Send + Sync>,
    /// Where it dies in tests.
    pub failpoints: Failpoints,
}

/// How far a worker is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// What it has done.
    pub moved: Moved,
    /// Bytes a second, now.
    pub rate: u64,
    /// Ledgers that it works on.
    pub working: usize,
    /// What it met in the pass that goes on, or in the last one: that wait, that others work on, that are put off.
    pub waiting: u64,
    /// Moved, and locked for readers.
    pub held: u64,
    /// Others work on them.
    pub busy: u64,
    /// Put off.
    pub later: u64,
    /// Cannot be done.
    pub failed: u64,
    /// Replicas that were not as they should be.
    pub bad_replicas: u64,
}

/// How a worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its last progress.
    pub progress: Progress,
    /// Ledgers that cannot be done, each with the reason, up to some hundred.
    pub failed: Vec<(u64, String)>,
    /// Replicas that were not as they should be, up to some hundred.
    pub reports: Vec<Report>,
    /// It was told to stop.
    pub is_stopped: bool,
}

/// Why a worker cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WorkError {
    /// The store.
    #[error("the metadata store cannot be asked")]
    Store(#[source] StoreError),
    /// The job.
    #[error(transparent)]
    Job(JobError),
    /// It would end before its readers are safe.
    #[error(
        "the job keeps its ledgers locked for readers until it is finished, so that a worker cannot end before"
    )]
    Keeps,
}

impl From<JobError> for WorkError {
    fn from(error: JobError) -> WorkError {
        match error {
            JobError::Store { source, .. } if source.is_open() => WorkError::Store(source),
            other => WorkError::Job(other),
        }
    }
}

/// Failed ledgers that are named in the outcome; their tasks name all.
const NAMED: usize = 100;

/// What all ledgers of a worker share.
struct Shared {
    store: Arc<dyn MetaStore>,
    ledgers_root: String,
    layout: Layout,
    tasks: Tasks,
    drained: BTreeSet<String>,
    replicas: Arc<Replicas>,
    targets: watch::Receiver<Arc<Vec<Target>>>,
    /// What targets were given since their space was asked for, and for which list of them that holds.
    load: Mutex<(Arc<Vec<Target>>, Load)>,
    secret: Option<Secret>,
    verify_all: bool,
    room: Room,
    name: String,
    counts: Arc<Counts>,
    ledgers: AtomicU64,
    fragments: AtomicU64,
    reports: Arc<Reports>,
    /// What is moved stays locked until the job is finished.
    spares_readers: bool,
    held: HeldLocks,
    failpoints: Failpoints,
}

impl Shared {
    fn new(job: &Job, worker: &Worker, throttle: Throttle) -> Shared {
        let bookies = Arc::clone(&worker.bookies);
        Shared {
            store: Arc::clone(&worker.store),
            ledgers_root: worker.ledgers_root.trim_end_matches('/').to_owned(),
            layout: worker.layout,
            tasks: worker.jobs.tasks_of(job, &worker.ledgers_root),
            drained: job.bookies.clone(),
            replicas: Arc::new(Replicas::new(bookies, worker.clock.clone(), throttle)),
            targets: worker.targets.clone(),
            load: Mutex::default(),
            secret: worker.secret.clone(),
            verify_all: worker.verify_all,
            room: Room::new(worker.memory),
            name: worker.name.clone(),
            counts: Arc::default(),
            ledgers: AtomicU64::new(0),
            fragments: AtomicU64::new(0),
            reports: Arc::default(),
            spares_readers: job.reader_gate == ReaderGate::PerLedger,
            held: HeldLocks::default(),
            failpoints: worker.failpoints.clone(),
        }
    }

    /// What targets were given. A new list of them knows it already.
    fn load(&self) -> LoadGuard<'_> {
        let targets = Arc::clone(&self.targets.borrow());
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&load.0, &targets) {
            *load = (targets, Load::default());
        }
        LoadGuard(load)
    }

    fn moved(&self, fragments: usize) {
        let fragments = fragments as u64;
        self.fragments.fetch_add(fragments, Ordering::Relaxed);
    }

    /// What the metadata names is not there.
    fn alarm(&self, ledger: u64, target: &str, why: &str) {
        tracing::error!(
            "ledger {ledger}: {target} lost what it was given, and it could not be given again: {why}"
        );
        self.reports.add(Report {
            bookie: target.to_owned(),
            ledger,
            entry: 0,
            why: format!("it lost what it was given, and it could not be given again: {why}"),
        });
    }

    /// Gives those locks back that are in the way of BookKeeper's own replication: to have enough replicas comes before readers
    /// that still ask the old bookies.
    async fn yield_locks(&self) {
        if !self.spares_readers {
            return;
        }
        match answered(lacking(&*self.store, &self.ledgers_root, MOST_LACKING)).await {
            Ok(ledgers) => self.held.yield_to(ledgers.into_iter().collect()).await,
            Err(error) => tracing::debug!("it is not known what BookKeeper replicates: {error}"),
        }
    }

    /// Waits until the store can be asked; not for ever.
    async fn in_reach(&self) -> bool {
        let mut link = self.store.link();
        let back = link.wait_for(|link| matches!(link, Link::Connected(_)));
        matches!(timeout(PATIENCE, back).await, Ok(Ok(_)))
    }
}

struct LoadGuard<'a>(MutexGuard<'a, (Arc<Vec<Target>>, Load)>);

impl std::ops::Deref for LoadGuard<'_> {
    type Target = Load;

    fn deref(&self) -> &Load {
        &self.0.1
    }
}

impl std::ops::DerefMut for LoadGuard<'_> {
    fn deref_mut(&mut self) -> &mut Load {
        &mut self.0.1
    }
}

/// Works on the job until nothing is left of it that can be done, or `stop` ends. Locks that are held when it is dropped
/// are taken back in the background.
///
/// # Errors
/// The store is out of reach for too long, or the job is over.
pub async fn run(
    job: &Job,
    worker: Worker,
    stop: impl Future<Output = ()>,
    progress: &watch::Sender<Progress>,
) -> Result<Outcome, WorkError> {
    if job.reader_gate == ReaderGate::PerLedger && worker.until_waiting {
        return Err(WorkError::Keeps);
    }
    // Nothing is let through before it is known how many workers share the limit.
    let (share, limit) = watch::channel(1);
    let throttle = Throttle::new(worker.clock.clone(), limit);
    let shared = Arc::new(Shared::new(job, &worker, throttle));
    let passes = Passes {
        shared: Arc::clone(&shared),
        limits: worker.limits.clone(),
        until_waiting: worker.until_waiting,
        progress,
        failed: Failed::default(),
        held: BTreeSet::new(),
    };
    let mut says = says::Says::new(job, worker, &shared, progress);
    says.share(&share).await;
    let ended = tokio::select! {
        ended = passes.run() => Some(ended?),
        () = says.go_on(&share) => None,
        () = stop => None,
    };
    shared.held.keep_only(&BTreeSet::new()).await;
    says.last().await;
    let (reports, _) = shared.reports.all();
    Ok(Outcome {
        progress: progress.borrow().clone(),
        is_stopped: ended.is_none(),
        failed: ended.unwrap_or_default().named,
        reports,
    })
}

/// Pass after pass over what is left.
struct Passes<'a> {
    shared: Arc<Shared>,
    limits: watch::Receiver<Limits>,
    until_waiting: bool,
    progress: &'a watch::Sender<Progress>,
    failed: Failed,
    /// Ledgers that the pass found moved and locked, by whomever.
    held: BTreeSet<u64>,
}

/// Ledgers that cannot be done. They are not tried again by this worker.
#[derive(Default)]
struct Failed {
    ids: BTreeSet<u64>,
    /// The first of them, with the reasons.
    named: Vec<(u64, String)>,
}

/// A ledger, and what became of it.
type Worked = (u64, Result<End, WorkError>);

/// What a pass met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Met {
    done: u64,
    busy: u64,
    waiting: u64,
    later: u64,
    held: u64,
}

impl Passes<'_> {
    async fn run(mut self) -> Result<Failed, WorkError> {
        let mut waits = Backoff::new(LOOKS.0, LOOKS.1);
        loop {
            // What changes while the pass goes on counts too.
            let mut link = self.shared.store.link();
            link.mark_unchanged();
            let met = self.pass().await?;
            let rest = met.busy + met.later + met.held;
            let is_all = rest == 0 && (met.waiting == 0 || self.until_waiting);
            if is_all || self.is_finished().await? {
                return Ok(self.failed);
            }
            if 0 < met.done {
                waits.reset();
            }
            tokio::select! {
                () = sleep(waits.next_wait(fastrand::f64())) => {}
                // What is held goes with the session, and is to be locked again at once.
                _ = link.changed(), if !self.shared.held.is_empty() => {}
            }
        }
    }

    /// Nothing has to be held or waited for any more. A job that was given up is an error: what only waits asks for nothing by
    /// which that would be noticed.
    async fn is_finished(&self) -> Result<bool, WorkError> {
        self.shared.tasks.forget_phase();
        match self.shared.tasks.check().await {
            Ok(_) => Ok(false),
            // One that is forgotten was over.
            Err(
                JobError::Phase {
                    phase: Phase::Finished,
                    ..
                }
                | JobError::NoJob { .. },
            ) => Ok(true),
            Err(error) => match WorkError::from(error) {
                // Whoever reads the tasks next waits for the store.
                WorkError::Store(error) if error.is_open() => Ok(false),
                error => Err(error),
            },
        }
    }

    async fn pass(&mut self) -> Result<Met, WorkError> {
        let mut met = Met::default();
        self.held.clear();
        self.shared.yield_locks().await;
        let mut running = JoinSet::new();
        let mut shards: Vec<u8> = (0..=u8::MAX).collect();
        fastrand::shuffle(&mut shards);
        for shard in shards {
            let mut shard = self.patiently(shard).await?;
            while let Some(ledger) = shard.next() {
                if self.failed.ids.contains(&ledger) {
                    continue;
                }
                if self.shared.held.has(ledger) {
                    self.held.insert(ledger);
                    continue;
                }
                while self.at_a_time() <= running.len() {
                    self.ended(running.join_next().await, &mut met)?;
                }
                let shared = Arc::clone(&self.shared);
                running.spawn(async move { (ledger, work_on(&shared, ledger).await) });
                self.say(&met, running.len());
            }
        }
        while !running.is_empty() {
            self.ended(running.join_next().await, &mut met)?;
            self.say(&met, running.len());
        }
        met.held = self.held.len() as u64;
        self.say(&met, 0);
        self.shared.held.keep_only(&self.held).await;
        Ok(met)
    }

    fn at_a_time(&self) -> usize {
        self.limits.borrow().workers.clamp(1, MOST_LEDGERS) as usize
    }

    /// The ledgers of a shard that are left.
    async fn patiently(&self, shard: u8) -> Result<crate::drain::job::Shard, WorkError> {
        loop {
            match self
                .shared
                .tasks
                .shard(shard)
                .await
                .map_err(WorkError::from)
            {
                Err(WorkError::Store(error)) if error.is_open() => {
                    if !self.shared.in_reach().await {
                        return Err(WorkError::Store(error));
                    }
                }
                other => return other,
            }
        }
    }

    fn ended(
        &mut self,
        ended: Option<Result<Worked, tokio::task::JoinError>>,
        met: &mut Met,
    ) -> Result<(), WorkError> {
        let Some(ended) = ended else {
            return Ok(());
        };
        let (ledger, end) = match ended {
            Ok(ended) => ended,
            // Our mistake, in one ledger: its lock was taken back, and the others go on.
            Err(error) => {
                tracing::error!("a ledger was given up: {error}");
                met.later += 1;
                return Ok(());
            }
        };
        match end? {
            End::Done => {
                met.done += 1;
                self.shared.ledgers.fetch_add(1, Ordering::Relaxed);
            }
            End::Held { is_new } => {
                self.held.insert(ledger);
                if is_new {
                    met.done += 1;
                    self.shared.ledgers.fetch_add(1, Ordering::Relaxed);
                }
            }
            End::Busy => met.busy += 1,
            End::Waits(_) => met.waiting += 1,
            End::Later(why) => {
                tracing::info!("ledger {ledger} is put off: {why}");
                met.later += 1;
            }
            End::Failed(why) => {
                tracing::warn!("ledger {ledger} cannot be moved: {why}");
                self.failed.ids.insert(ledger);
                if self.failed.named.len() < NAMED {
                    self.failed.named.push((ledger, why));
                }
            }
        }
        Ok(())
    }

    fn say(&self, met: &Met, working: usize) {
        self.progress.send_modify(|progress| {
            progress.working = working;
            (progress.busy, progress.waiting) = (met.busy, met.waiting);
            progress.held = self.held.len() as u64;
            (progress.later, progress.failed) = (met.later, self.failed.ids.len() as u64);
        });
    }
}
