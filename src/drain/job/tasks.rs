//! The tasks of a job, one for each ledger, in 256 folders so that no folder becomes too large to be listed. Whatever is
//! changed is changed on condition that the job still goes on and that nobody else changed the task.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::document::{self, Phase, Status, Task};
use super::jobs::{JobError, Jobs, TASKS, TRIES, failed, understood};
use super::mirror::Mirror;
use crate::cluster::store::{
    Kind, MetaStore, Op, READS_AT_ONCE, StoreError, children_if_any, get_all, together,
};

/// Tasks that are made in one transaction.
const MADE_AT_ONCE: usize = 100;

/// Bytes of one transaction: ZooKeeper takes a megabyte.
const BYTES_AT_ONCE: usize = 512 * 1024;

/// Replicas that are written down for a task: it must fit into a node. Beyond that a worker finds them in the ledger's
/// metadata, as it does anyway, and only forgets how far it was.
const MOST_FRAGMENTS: usize = 2000;

/// A task as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The task.
    pub task: Task,
    /// The version of its node.
    pub version: i32,
}

/// What is left of a shard for one worker: the ledgers that had a task when it was listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shard {
    ledgers: VecDeque<u64>,
}

impl Shard {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ledgers.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ledgers.is_empty()
    }

    /// The next one, for who reads its task by itself.
    pub(in crate::drain) fn next(&mut self) -> Option<u64> {
        self.ledgers.pop_front()
    }
}

/// The tasks of one job. Clones share what is known of the job.
#[derive(Debug, Clone)]
pub struct Tasks {
    jobs: Jobs,
    id: String,
    top: String,
    /// The version of the job's node and its phase, as read last.
    known: Arc<Mutex<Option<(i32, Phase)>>>,
    mirror: Option<Mirror>,
}

/// Where a shard is.
pub(super) fn shard_path(job: &str, shard: u8) -> String {
    format!("{job}/{TASKS}/{shard:02x}")
}

/// The shard of a ledger.
fn shard_of(ledger: u64) -> u8 {
    ledger.to_le_bytes()[0]
}

impl Tasks {
    pub(super) fn of(jobs: Jobs, id: &str) -> Tasks {
        Tasks {
            top: jobs.path(id),
            id: id.to_owned(),
            jobs,
            known: Arc::default(),
            mirror: None,
        }
    }

    /// They are shown below `offline_ledgers` of that root too, while they are there.
    #[must_use]
    pub fn mirrored(self, ledgers_root: &str) -> Tasks {
        Tasks {
            mirror: Some(Mirror::below(ledgers_root)),
            ..self
        }
    }

    fn store(&self) -> &dyn MetaStore {
        &*self.jobs.store
    }

    fn path(&self, ledger: u64) -> String {
        format!("{}/{ledger:019}", shard_path(&self.top, shard_of(ledger)))
    }

    /// Reads the job: its version, while it goes on.
    async fn going_on(&self) -> Result<(i32, Phase), JobError> {
        let (job, version) = self.jobs.versioned(&self.id).await?;
        let known = (version, job.phase);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        self.unless_over(known)
    }

    fn unless_over(&self, known: (i32, Phase)) -> Result<(i32, Phase), JobError> {
        if known.1.is_over() {
            let (id, phase) = (self.id.clone(), known.1);
            return Err(JobError::Phase { id, phase });
        }
        Ok(known)
    }

    /// Makes these steps, if the job still goes on: `ops` without the check of that, which becomes step 0.
    async fn fenced(&self, ops: &[Op]) -> Result<Result<(), StoreError>, JobError> {
        let path = &self.top;
        for _ in 0..TRIES {
            let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let (version, _) = match known {
                Some(known) => self.unless_over(known)?,
                None => self.going_on().await?,
            };
            let path = path.clone();
            let mut all = vec![Op::Check { path, version }];
            all.extend_from_slice(ops);
            match self.store().multi(&all).await {
                // The job is in another phase by now.
                Err(StoreError::Step { at: 0, .. }) => {
                    self.going_on().await?;
                }
                done => return Ok(done),
            }
        }
        let path = path.clone();
        Err(JobError::Contended { path })
    }

    /// Makes the tasks that are not there yet, and says how many that were. Where it was interrupted, it can be repeated.
    ///
    /// # Errors
    /// The job is over, or they could not be written.
    pub async fn add_missing(&self, tasks: &[Task]) -> Result<usize, JobError> {
        let made = |task: &Task| {
            let mut task = task.clone();
            if MOST_FRAGMENTS < task.fragments.len() {
                task.fragments = Vec::new();
            }
            (self.path(task.ledger), document::write(&task))
        };
        if let Some(mirror) = &self.mirror {
            self.going_on().await?;
            // First, so that a task that is there is shown, whenever this is interrupted.
            mirror.show(self.store(), tasks).await?;
        }
        let mut added = 0;
        let mut waiting = Vec::new();
        let mut bytes = 0;
        for (path, data) in tasks.iter().map(made) {
            let is_full = BYTES_AT_ONCE < bytes + data.len() || waiting.len() == MADE_AT_ONCE;
            if is_full && !waiting.is_empty() {
                added += self.make(std::mem::take(&mut waiting)).await?;
                bytes = 0;
            }
            bytes += data.len();
            waiting.push((path, data));
        }
        Ok(added + self.make(waiting).await?)
    }

    async fn make(&self, mut tasks: Vec<(String, Vec<u8>)>) -> Result<usize, JobError> {
        for _ in 0..TRIES {
            if tasks.is_empty() {
                return Ok(0);
            }
            let create = |(path, data): &(String, Vec<u8>)| Op::Create {
                path: path.clone(),
                data: data.clone(),
                kind: Kind::Persistent,
            };
            let ops: Vec<_> = tasks.iter().map(create).collect();
            match self.fenced(&ops).await? {
                Ok(()) => return Ok(tasks.len()),
                Err(StoreError::Step { source, .. }) if *source == StoreError::NodeExists => {
                    let missing = self.missing(&tasks).await?;
                    let mut missing = missing.into_iter();
                    tasks.retain(|_| missing.next().unwrap_or_default());
                }
                Err(source) => return Err(failed(&tasks[0].0, source)),
            }
        }
        let path = self.top.clone();
        Err(JobError::Contended { path })
    }

    /// Which of them are not there.
    async fn missing(&self, tasks: &[(String, Vec<u8>)]) -> Result<Vec<bool>, JobError> {
        let mut missing = Vec::with_capacity(tasks.len());
        for some in tasks.chunks(READS_AT_ONCE) {
            let looks = some.iter().map(|(path, _)| self.store().stat(path));
            for (look, (path, _)) in together(looks.collect()).await.into_iter().zip(some) {
                missing.push(look.map_err(|source| failed(path, source))?.is_none());
            }
        }
        Ok(missing)
    }

    /// The ledgers of a shard that have a task now, ascending.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn shard(&self, shard: u8) -> Result<Shard, JobError> {
        let path = shard_path(&self.top, shard);
        let names = children_if_any(self.store(), &path).await;
        let names = names.map_err(|source| failed(&path, source))?;
        let mut ledgers = Vec::with_capacity(names.len());
        for name in names {
            let Ok(ledger) = name.parse() else {
                let path = format!("{path}/{name}");
                let why = "its name is no ledger's".to_owned();
                return Err(JobError::Document { path, why });
            };
            ledgers.push(ledger);
        }
        ledgers.sort_unstable();
        let ledgers = ledgers.into();
        Ok(Shard { ledgers })
    }

    /// The next task of a shard that is still there; none at its end. Whoever wants to work on it saves it as
    /// [`super::Status::Copying`] first: of two that try, one is told [`JobError::Changed`].
    ///
    /// # Errors
    /// [`JobError::Phase`] unless the job is running.
    pub async fn next_of_shard(&self, shard: &mut Shard) -> Result<Option<Stored>, JobError> {
        if shard.is_empty() {
            return Ok(None);
        }
        let (_, phase) = self.going_on().await?;
        if phase != Phase::Running {
            let id = self.id.clone();
            return Err(JobError::Phase { id, phase });
        }
        while let Some(ledger) = shard.ledgers.pop_front() {
            if let Some(stored) = self.get(ledger).await? {
                return Ok(Some(stored));
            }
        }
        Ok(None)
    }

    /// One task; none where it is done, or there was none.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn get(&self, ledger: u64) -> Result<Option<Stored>, JobError> {
        let path = self.path(ledger);
        match self.store().get(&path).await {
            Ok((bytes, stat)) => {
                let (task, version) = (understood(&path, &bytes)?, stat.version);
                Ok(Some(Stored { task, version }))
            }
            Err(StoreError::NoNode) => Ok(None),
            Err(source) => Err(failed(&path, source)),
        }
    }

    /// Writes it, in place of the version that was read. After a [`JobError::Store`] that is open it may have been written:
    /// read it again.
    ///
    /// # Errors
    /// [`JobError::Changed`] where another version is there, or none; [`JobError::Phase`] where the job is over.
    pub async fn save(&self, stored: &mut Stored) -> Result<(), JobError> {
        let op = self.save_step(stored);
        self.changed(op, stored.task.ledger).await?;
        stored.version += 1;
        Ok(())
    }

    /// Takes it away, if it has that version: nothing is left to do.
    ///
    /// # Errors
    /// As [`Tasks::save`].
    pub async fn done(&self, stored: &Stored) -> Result<(), JobError> {
        let op = self.done_step(stored);
        let ledger = stored.task.ledger;
        self.changed(op, ledger).await?;
        self.hide_one(ledger).await
    }

    /// One that is done is shown no more.
    ///
    /// # Errors
    /// It cannot be hidden.
    pub(in crate::drain) async fn hide_one(&self, ledger: u64) -> Result<(), JobError> {
        match &self.mirror {
            Some(mirror) => mirror.hide(self.store(), ledger).await,
            None => Ok(()),
        }
    }

    /// The step of a transaction that fails where the job is not the one that was read last: whoever finds that out looks
    /// for its phase and makes the step anew.
    ///
    /// # Errors
    /// [`JobError::Phase`] unless the job is running.
    pub(in crate::drain) async fn check(&self) -> Result<Op, JobError> {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (version, phase) = match known {
            Some(known) => known,
            None => self.going_on().await?,
        };
        if phase != Phase::Running {
            let id = self.id.clone();
            return Err(JobError::Phase { id, phase });
        }
        let path = self.top.clone();
        Ok(Op::Check { path, version })
    }

    /// What was known of the job is no longer true.
    pub(in crate::drain) fn forget_phase(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The step of a transaction that writes a task in place of the version that was read.
    pub(in crate::drain) fn save_step(&self, stored: &Stored) -> Op {
        Op::Set {
            path: self.path(stored.task.ledger),
            data: document::write(&stored.task),
            version: Some(stored.version),
        }
    }

    /// The step of a transaction that fails where a task is not the one that was read.
    pub(in crate::drain) fn unchanged_step(&self, stored: &Stored) -> Op {
        Op::Check {
            path: self.path(stored.task.ledger),
            version: stored.version,
        }
    }

    /// The step of a transaction that takes a task away.
    pub(in crate::drain) fn done_step(&self, stored: &Stored) -> Op {
        Op::Delete {
            path: self.path(stored.task.ledger),
            version: Some(stored.version),
        }
    }

    /// Those that are left are shown below `offline_ledgers` no more, as when the job is cancelled.
    ///
    /// # Errors
    /// They cannot be read, or not be hidden.
    pub async fn hide(&self) -> Result<(), JobError> {
        let Some(mirror) = &self.mirror else {
            return Ok(());
        };
        for shard in 0..=u8::MAX {
            for ledger in self.shard(shard).await?.ledgers {
                mirror.hide(self.store(), ledger).await?;
            }
        }
        Ok(())
    }

    async fn changed(&self, op: Op, ledger: u64) -> Result<(), JobError> {
        match self.fenced(&[op]).await? {
            Ok(()) => Ok(()),
            Err(StoreError::Step { source, .. })
                if matches!(*source, StoreError::BadVersion | StoreError::NoNode) =>
            {
                Err(JobError::Changed { ledger })
            }
            Err(source) => Err(failed(&self.path(ledger), source)),
        }
    }

    /// Takes away those that are only held for readers, and says how many that were. Where it was interrupted, it can be
    /// repeated.
    ///
    /// # Errors
    /// The job is over, or they could not be read or taken away.
    pub async fn let_go(&self) -> Result<u64, JobError> {
        let mut count = 0;
        for shard in 0..=u8::MAX {
            let ledgers: Vec<_> = self.shard(shard).await?.ledgers.into();
            for ledger in ledgers {
                let held = self.get(ledger).await?;
                if let Some(held) = held.filter(|held| held.task.status == Status::Held) {
                    self.done(&held).await?;
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// How many there are.
    ///
    /// # Errors
    /// They cannot be counted, or there is no such job.
    pub async fn count(&self) -> Result<u64, JobError> {
        let paths: Vec<_> = (0..=u8::MAX)
            .map(|shard| shard_path(&self.top, shard))
            .collect();
        let mut count = 0;
        for some in paths.chunks(READS_AT_ONCE) {
            let looks = some.iter().map(|path| self.store().stat(path));
            for (look, path) in together(looks.collect()).await.into_iter().zip(some) {
                let stat = look.map_err(|source| failed(path, source))?;
                // A shard that is not there is that of a job that is being forgotten.
                count += u64::from(stat.map_or(0, |stat| stat.children));
            }
        }
        Ok(count)
    }

    /// Reads every task, a few at a time. Those that are done meanwhile are left out.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub async fn for_each(&self, mut each: impl FnMut(Stored)) -> Result<(), JobError> {
        for shard in 0..=u8::MAX {
            let ledgers: Vec<_> = self.shard(shard).await?.ledgers.into();
            for some in ledgers.chunks(READS_AT_ONCE) {
                let paths: Vec<_> = some.iter().map(|ledger| self.path(*ledger)).collect();
                let read = get_all(self.store(), &paths).await;
                let read = read.map_err(|source| failed(&paths[0], source))?;
                for (path, found) in paths.iter().zip(read) {
                    if let Some((bytes, stat)) = found {
                        let (task, version) = (understood(path, &bytes)?, stat.version);
                        each(Stored { task, version });
                    }
                }
            }
        }
        Ok(())
    }
}
