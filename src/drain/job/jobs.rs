//! The jobs of a cluster: made, looked at, given up, ended and forgotten. No bookie is in two of them that are not over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;

use super::document::{self, Job, Limits, OpenLedgers, Phase, ReaderGate};
use super::tasks::{self, Tasks};
use crate::cluster::ledgers::WalkError;
use crate::cluster::store::{
    Changed, Kind, MetaStore, Op, StoreError, children_if_any, create_with_parents,
};

/// How often something is tried again because somebody else changed it meanwhile: that is rare, and each try sees what
/// the other did.
pub(super) const TRIES: usize = 10;

/// Between two looks at limits while the store is out of reach: a look that nobody answers costs nothing.
const RETRY: Duration = Duration::from_millis(200);

/// Nodes that are deleted in one transaction: some 10 kB.
const DELETED_AT_ONCE: usize = 100;

/// What lies below a job.
pub(super) const LIMITS: &str = "limits";
pub(super) const TASKS: &str = "tasks";
pub(super) const WORKERS: &str = "workers";
pub(super) const MOVED: &str = "moved";
pub(super) const ORDERS: &str = "orders";

/// Why something about a job is not known, or not done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JobError {
    /// The store.
    #[error("cannot read or write {path}")]
    Store {
        /// Which node.
        path: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// What stands there.
    #[error("{path} is not understood: {why}")]
    Document {
        /// Which node.
        path: String,
        /// In words.
        why: String,
    },
    /// The name.
    #[error("there is no job {id}")]
    NoJob {
        /// Which.
        id: String,
    },
    /// Bookies that are in a job already.
    #[error("{} in job {job} already, which is not over", names(.bookies))]
    Overlap {
        /// The other job.
        job: String,
        /// Which of the bookies.
        bookies: Vec<String>,
    },
    /// Its phase.
    #[error("job {id} is {}, so this cannot be done", .phase.name())]
    Phase {
        /// Which.
        id: String,
        /// What it is.
        phase: Phase,
    },
    /// It has tasks.
    #[error("job {id} has {count} ledgers left")]
    Left {
        /// Which.
        id: String,
        /// How many.
        count: u64,
    },
    /// Others were faster each time.
    #[error("{path} was changed by others each time it was to be changed")]
    Contended {
        /// Which node.
        path: String,
    },
    /// Another worker has it.
    #[error("the task of ledger {ledger} was changed or ended by another worker")]
    Changed {
        /// Which.
        ledger: u64,
    },
    /// The ledgers.
    #[error("cannot go through the ledgers")]
    Walk(#[from] WalkError),
}

fn names(bookies: &[String]) -> String {
    let verb = if bookies.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", bookies.join(", "))
}

/// A job that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct New {
    /// The bookies that it empties.
    pub bookies: BTreeSet<String>,
    /// What it does about ledgers that are still written.
    pub open_ledgers: OpenLedgers,
    /// What it does about readers.
    pub reader_gate: ReaderGate,
    /// Tasks are shown below `offline_ledgers` too.
    pub mirror: bool,
    /// When it begins, in milliseconds since 1970.
    pub began: i64,
    /// Who begins it, in words.
    pub who: String,
}

/// All jobs of a cluster.
#[derive(Clone)]
pub struct Jobs {
    pub(super) store: Arc<dyn MetaStore>,
    top: String,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the jobs in {}", self.top)
    }
}

impl Jobs {
    /// Those of the cluster with that id; `root` is ours, as `/dirkeeper`. Nothing is read yet.
    #[must_use]
    pub fn open(store: Arc<dyn MetaStore>, root: &str, instance: &str) -> Jobs {
        let root = root.trim_end_matches('/');
        Jobs {
            store,
            top: format!("{root}/{instance}/drain/jobs"),
        }
    }

    /// Where a job is.
    pub(super) fn path(&self, id: &str) -> String {
        format!("{}/{id}", self.top)
    }

    /// Makes a job with no tasks yet.
    ///
    /// # Errors
    /// [`JobError::Overlap`] where one of its bookies is in another that is not over.
    pub async fn create(&self, new: &New, limits: &Limits) -> Result<Job, JobError> {
        match create_with_parents(&*self.store, &self.top, &[], Kind::Persistent).await {
            Ok(_) | Err(StoreError::NodeExists) => {}
            Err(source) => return Err(failed(&self.top, source)),
        }
        for _ in 0..TRIES {
            let stat = self.store.stat(&self.top).await;
            let stat = stat.and_then(|stat| stat.ok_or(StoreError::NoNode));
            let version = stat.map_err(|source| failed(&self.top, source))?.version;
            for job in self.list().await? {
                let shared: Vec<_> = job.bookies.intersection(&new.bookies).cloned().collect();
                if !job.phase.is_over() && !shared.is_empty() {
                    let (job, bookies) = (job.id, shared);
                    return Err(JobError::Overlap { job, bookies });
                }
            }
            let job = job(new);
            match self.store.multi(&self.nodes(&job, limits, version)).await {
                Ok(()) => return Ok(job),
                Err(error) if was_changed(&error) => {}
                Err(source) => return Err(failed(&self.path(&job.id), source)),
            }
        }
        let path = self.top.clone();
        Err(JobError::Contended { path })
    }

    /// A job's nodes; whoever makes another one meanwhile makes the list of jobs another version.
    fn nodes(&self, job: &Job, limits: &Limits, version: i32) -> Vec<Op> {
        let top = self.path(&job.id);
        let made = |path: String, data| Op::Create {
            path,
            data,
            kind: Kind::Persistent,
        };
        let mut ops = vec![
            Op::Set {
                path: self.top.clone(),
                data: Vec::new(),
                version: Some(version),
            },
            made(top.clone(), document::write(job)),
            made(format!("{top}/{LIMITS}"), document::write(limits)),
        ];
        for below in [TASKS, WORKERS, MOVED, ORDERS] {
            ops.push(made(format!("{top}/{below}"), Vec::new()));
        }
        for shard in 0..=u8::MAX {
            ops.push(made(tasks::shard_path(&top, shard), Vec::new()));
        }
        ops
    }

    /// Every job, by name.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub async fn list(&self) -> Result<Vec<Job>, JobError> {
        let names = children_if_any(&*self.store, &self.top).await;
        let mut names = names.map_err(|source| failed(&self.top, source))?;
        names.sort();
        let mut jobs = Vec::new();
        for name in names {
            match self.versioned(&name).await {
                Ok((job, _)) => jobs.push(job),
                // It was forgotten meanwhile.
                Err(JobError::NoJob { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(jobs)
    }

    /// One job.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub async fn get(&self, id: &str) -> Result<Job, JobError> {
        Ok(self.versioned(id).await?.0)
    }

    /// A job, and the version of its node.
    pub(super) async fn versioned(&self, id: &str) -> Result<(Job, i32), JobError> {
        let path = self.path(id);
        let no_job = || JobError::NoJob { id: id.to_owned() };
        let (bytes, stat) = match self.store.get(&path).await {
            Ok(found) => found,
            Err(StoreError::NoNode) => return Err(no_job()),
            Err(source) => return Err(failed(&path, source)),
        };
        let job: Job = understood(&path, &bytes)?;
        Ok((job, stat.version))
    }

    /// One job, and when its phase changes or its session ends.
    ///
    /// # Errors
    /// As [`Jobs::get`].
    pub async fn watch(&self, id: &str) -> Result<(Job, Changed), JobError> {
        let path = self.path(id);
        let watched = self.store.watch(&path).await;
        let (_, changed) = watched.map_err(|source| failed(&path, source))?;
        Ok((self.get(id).await?, changed))
    }

    /// Its tasks.
    #[must_use]
    pub fn tasks(&self, id: &str) -> Tasks {
        Tasks::of(self.clone(), id)
    }

    /// Its limits.
    ///
    /// # Errors
    /// There is no such job, or they cannot be read.
    pub async fn limits(&self, id: &str) -> Result<Limits, JobError> {
        let path = self.limits_path(id);
        match self.store.get(&path).await {
            Ok((bytes, _)) => understood(&path, &bytes),
            Err(StoreError::NoNode) => Err(JobError::NoJob { id: id.to_owned() }),
            Err(source) => Err(failed(&path, source)),
        }
    }

    fn limits_path(&self, id: &str) -> String {
        format!("{}/{LIMITS}", self.path(id))
    }

    /// Changes its limits. Workers hear of it at once.
    ///
    /// # Errors
    /// There is no such job, or they cannot be written.
    pub async fn set_limits(&self, id: &str, limits: &Limits) -> Result<(), JobError> {
        let path = self.limits_path(id);
        match self.store.set(&path, &document::write(limits), None).await {
            Ok(_) => Ok(()),
            Err(StoreError::NoNode) => Err(JobError::NoJob { id: id.to_owned() }),
            Err(source) => Err(failed(&path, source)),
        }
    }

    /// Its limits now, and when they change or the session ends.
    ///
    /// # Errors
    /// As [`Jobs::limits`].
    pub async fn watch_limits(&self, id: &str) -> Result<(Limits, Changed), JobError> {
        let path = self.limits_path(id);
        let watched = self.store.watch(&path).await;
        let (_, changed) = watched.map_err(|source| failed(&path, source))?;
        Ok((self.limits(id).await?, changed))
    }

    /// Hands its limits on whenever they change, until nobody listens or there are none. A store that is out of reach is waited
    /// for, and the last limits stand meanwhile.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn follow_limits(
        &self,
        id: &str,
        into: &watch::Sender<Limits>,
    ) -> Result<(), JobError> {
        loop {
            match self.watch_limits(id).await {
                Ok((limits, changed)) => {
                    into.send_replace(limits);
                    tokio::select! {
                        () = changed => {}
                        () = into.closed() => return Ok(()),
                    }
                }
                Err(JobError::Store { source, .. }) if source.is_open() => {
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        () = into.closed() => return Ok(()),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// All its tasks are written, and workers may take them.
    ///
    /// # Errors
    /// It is over, or it could not be written.
    pub async fn started(&self, id: &str) -> Result<(), JobError> {
        self.turn(id, &[Phase::Starting], Phase::Running).await
    }

    /// The tasks of a job, shown below `offline_ledgers` too where it wants that.
    #[must_use]
    pub fn tasks_of(&self, job: &Job, ledgers_root: &str) -> Tasks {
        let tasks = self.tasks(&job.id);
        match job.mirror {
            true => tasks.mirrored(ledgers_root),
            false => tasks,
        }
    }

    /// Gives it up: no task of it is given out any more, nor can be changed.
    ///
    /// # Errors
    /// It is finished, or it could not be written.
    pub async fn cancel(&self, id: &str) -> Result<(), JobError> {
        let from = [Phase::Starting, Phase::Running];
        self.turn(id, &from, Phase::Cancelled).await
    }

    /// Nothing names its bookies any more: whoever says so has looked at all metadata.
    ///
    /// # Errors
    /// [`JobError::Left`] where tasks are left; it is not running, or it could not be written.
    pub async fn finished(&self, id: &str) -> Result<(), JobError> {
        let count = self.tasks(id).count().await?;
        if count != 0 {
            let id = id.to_owned();
            return Err(JobError::Left { id, count });
        }
        self.turn(id, &[Phase::Running], Phase::Finished).await
    }

    async fn turn(&self, id: &str, from: &[Phase], to: Phase) -> Result<(), JobError> {
        let path = self.path(id);
        for _ in 0..TRIES {
            let (mut job, version) = self.versioned(id).await?;
            let phase = job.phase;
            if phase == to {
                return Ok(());
            }
            if !from.contains(&phase) {
                let id = id.to_owned();
                return Err(JobError::Phase { id, phase });
            }
            job.phase = to;
            match self
                .store
                .set(&path, &document::write(&job), Some(version))
                .await
            {
                Ok(_) => return Ok(()),
                Err(StoreError::BadVersion) => {}
                Err(source) => return Err(failed(&path, source)),
            }
        }
        Err(JobError::Contended { path })
    }

    /// Takes all its nodes away. Can be repeated where it was interrupted.
    ///
    /// # Errors
    /// It is not over, or something could not be deleted.
    pub async fn forget(&self, id: &str) -> Result<(), JobError> {
        let job = match self.get(id).await {
            Err(JobError::NoJob { .. }) => return Ok(()),
            found => found?,
        };
        if !job.phase.is_over() {
            let (id, phase) = (job.id, job.phase);
            return Err(JobError::Phase { id, phase });
        }
        let top = self.path(id);
        for shard in 0..=u8::MAX {
            self.delete_below(&tasks::shard_path(&top, shard)).await?;
        }
        for below in [TASKS, WORKERS, MOVED, ORDERS] {
            self.delete_below(&format!("{top}/{below}")).await?;
        }
        // The job itself goes last, so that what is left is found again.
        self.delete_below(&top).await?;
        self.deleted(&[top]).await
    }

    async fn delete_below(&self, path: &str) -> Result<(), JobError> {
        let names = children_if_any(&*self.store, path).await;
        let names = names.map_err(|source| failed(path, source))?;
        let paths = names.iter().map(|name| format!("{path}/{name}"));
        let paths: Vec<_> = paths.collect();
        for some in paths.chunks(DELETED_AT_ONCE) {
            self.deleted(some).await?;
        }
        Ok(())
    }

    async fn deleted(&self, paths: &[String]) -> Result<(), JobError> {
        let delete = |path: &String| Op::Delete {
            path: path.clone(),
            version: None,
        };
        let ops: Vec<_> = paths.iter().map(delete).collect();
        match self.store.multi(&ops).await {
            Ok(()) => return Ok(()),
            Err(StoreError::Step { .. }) => {}
            Err(source) => return Err(failed(&paths[0], source)),
        }
        // One of them went by itself, as those of a worker do.
        for path in paths {
            match self.store.delete(path, None).await {
                Ok(()) | Err(StoreError::NoNode) => {}
                Err(source) => return Err(failed(path, source)),
            }
        }
        Ok(())
    }
}

fn job(new: &New) -> Job {
    Job {
        id: format!("d-{:08x}", fastrand::u32(..)),
        bookies: new.bookies.clone(),
        open_ledgers: new.open_ledgers,
        reader_gate: new.reader_gate,
        mirror: new.mirror,
        began: new.began,
        phase: Phase::Starting,
        who: new.who.clone(),
    }
}

/// A transaction was not applied because something it stands on is another by now.
fn was_changed(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Step { source, .. }
            if matches!(**source, StoreError::BadVersion | StoreError::NodeExists)
    )
}

pub(super) fn failed(path: &str, source: StoreError) -> JobError {
    JobError::Store {
        path: path.to_owned(),
        source,
    }
}

pub(super) fn understood<T: serde::de::DeserializeOwned>(
    path: &str,
    bytes: &[u8],
) -> Result<T, JobError> {
    document::read(bytes).map_err(|why| JobError::Document {
        path: path.to_owned(),
        why,
    })
}
