//! One ledger, from its lock to the end of its task: read, choose, lock, copy, verify, change its metadata on condition that
//! the lock is ours and nobody changed it, look at what came of it. Whatever is found otherwise than it was is a reason
//! to begin again from what there is now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::check::{self, Lists, Missing};
use super::choice::{Choice, choose};
use super::copy::{Copied, Copier, Transfer};
use super::{Shared, WorkError};
use crate::cluster::bookie::Digest;
use crate::cluster::ledger::{LedgerMetadata, Secret};
use crate::cluster::store::{Op, StoreError};
use crate::drain::failpoint::Failpoint;
use crate::drain::job::{JobError, Status, Stored};
use crate::drain::lock::{LedgerLock, NotHeld, answered};
use crate::drain::plan::fragment::{Move, Wait, work};
use crate::drain::plan::patch;

/// How often one ledger is begun again at a time: whoever changes it does so once or twice, and there are few targets.
const TURNS: usize = 12;

/// How often a task is put off for a reason that may pass, before it counts as failed.
const TRIES: u32 = 10;

/// Why a task stands that is done.
const HELD: &str = "it is moved, and its old bookies keep it for readers";

/// What became of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing of it is left on the bookies, and its task is gone.
    Done,
    /// Somebody else works on it.
    Busy,
    /// A part of it cannot be moved yet.
    Waits(Wait),
    /// It is moved, and stays locked for readers.
    Held {
        /// Just now.
        is_new: bool,
    },
    /// It cannot be done, and its task says why.
    Failed(String),
    /// It can be tried again, for this reason.
    Later(String),
}

/// A ledger that is worked on.
struct Work<'a> {
    shared: &'a Arc<Shared>,
    ledger: u64,
    path: String,
    lock: Option<LedgerLock>,
    /// Bookies that did not take it.
    rejected: BTreeSet<String>,
    /// What is on its target, by segment, place and bookie there.
    copied: BTreeMap<(u64, usize, String), Transfer>,
    /// What the metadata names already.
    changed: Vec<Transfer>,
}

/// A ledger as it was read.
struct Read {
    stored: Stored,
    bytes: Vec<u8>,
    version: i32,
    metadata: LedgerMetadata,
}

/// Either an end, or something to go on with.
enum Next<T> {
    Go(T),
    Again,
    End(End),
}

/// Goes on with a value, or ends this turn.
macro_rules! go {
    ($next:expr) => {
        match $next {
            Next::Go(value) => value,
            Next::Again => return Ok(Next::Again),
            Next::End(end) => return Ok(Next::End(end)),
        }
    };
}

/// Does what can be done with that ledger now.
pub(super) async fn work_on(shared: &Arc<Shared>, ledger: u64) -> Result<End, WorkError> {
    let Some(path) = shared.layout.path(ledger) else {
        let why = "the cluster's layout has no place for such a number".to_owned();
        return Ok(End::Failed(why));
    };
    let mut work = Work {
        shared,
        ledger,
        path: format!("{}/{path}", shared.ledgers_root),
        lock: None,
        rejected: BTreeSet::new(),
        copied: BTreeMap::new(),
        changed: Vec::new(),
    };
    for _ in 0..TURNS {
        // What was known of targets is not known any more without the lock.
        if work.lock.as_ref().is_some_and(|lock| !lock.is_held()) {
            work.lock = None;
        }
        if work.lock.is_none() {
            work.copied.clear();
        }
        match work.turn().await {
            Ok(Next::End(end)) => return Ok(end),
            Ok(Next::Go(()) | Next::Again) => {}
            Err(WorkError::Store(error)) if error.is_open() => {
                if !shared.in_reach().await {
                    return Err(WorkError::Store(error));
                }
            }
            Err(error) => return Err(error),
        }
    }
    let why = "it was changed by others each time".to_owned();
    Ok(End::Later(why))
}

impl Work<'_> {
    async fn turn(&mut self) -> Result<Next<()>, WorkError> {
        let read = go!(self.read().await?);
        let todo = work(&read.metadata, &self.shared.drained);
        if todo.moves.is_empty() {
            return self.finish(read, todo.waits).await;
        }
        let secret = Secret::decode(&read.bytes).ok().flatten();
        let Some(secret) = secret.or_else(|| self.shared.secret.clone()) else {
            let why = "its metadata has no password, as in format 1, and none is given";
            return self.fail(read, why.to_owned()).await;
        };
        let (mut stored, transfers) = match self.choose(&read, &todo.moves) {
            Ok(chosen) => chosen,
            Err(why) => return self.put_off(read, why).await,
        };
        self.shared.failpoints.reach(Failpoint::Chosen).await;
        go!(self.take(&read, &mut stored).await?);
        self.shared.failpoints.reach(Failpoint::LockHeld).await;
        let read = Read { stored, ..read };
        let copier = self.copier(&read.metadata, &secret);
        let left = transfers.iter().filter(|one| !self.is_copied(one));
        let left: Vec<_> = left.cloned().collect();
        match copier.copy(&left).await {
            Copied::Whole => {}
            Copied::Refused(bookies) => {
                for one in left {
                    if !bookies.contains(&one.target) {
                        self.is_there(one);
                    }
                }
                self.rejected.extend(bookies);
                return Ok(Next::Again);
            }
            Copied::Lost(lost) => return self.fail(read, lost.to_string()).await,
            Copied::Later(why) => return self.put_off(read, why).await,
        }
        for one in left {
            self.is_there(one);
        }
        self.shared.failpoints.reach(Failpoint::Copied).await;
        if !self.verify(&copier, &transfers).await {
            return Ok(Next::Again);
        }
        self.shared.failpoints.reach(Failpoint::Verified).await;
        let bytes = match patched(&read, &transfers) {
            Ok(bytes) => bytes,
            Err(why) => return self.fail(read, why.to_string()).await,
        };
        go!(self.change(&read, bytes.clone(), &transfers).await?);
        self.shared.failpoints.reach(Failpoint::AfterChange).await;
        self.settle(read, &bytes, &copier, transfers).await
    }

    /// The task and the ledger, as they are now.
    async fn read(&mut self) -> Result<Next<Read>, WorkError> {
        let store = &*self.shared.store;
        let (stored, node) = tokio::join!(
            answered_job(self.shared.tasks.get(self.ledger)),
            answered(store.get(&self.path))
        );
        let Some(stored) = stored? else {
            if let Some(lock) = self.lock.take() {
                let _ = lock.release_with(Vec::new()).await;
            }
            return Ok(Next::End(End::Done));
        };
        let (bytes, stat) = match node {
            Ok(node) => node,
            Err(StoreError::NoNode) => {
                self.end(vec![self.shared.tasks.done_step(&stored)]).await?;
                self.hide().await;
                return Ok(Next::End(End::Done));
            }
            Err(error) => return Err(WorkError::Store(error)),
        };
        match LedgerMetadata::decode(&bytes) {
            Ok(metadata) => Ok(Next::Go(Read {
                stored,
                bytes,
                version: stat.version,
                metadata,
            })),
            Err(why) => {
                let why = format!("its metadata is not understood: {why}");
                Ok(Next::End(self.failed(stored, why).await?))
            }
        }
    }

    /// Who takes what, as the task says already where that still can be.
    fn choose(&self, read: &Read, moves: &[Move]) -> Result<(Stored, Vec<Transfer>), String> {
        let mut rejected = self.shared.replicas.resting();
        rejected.extend(self.rejected.iter().cloned());
        let targets = Arc::clone(&self.shared.targets.borrow());
        let choice = Choice {
            metadata: &read.metadata,
            targets: &targets,
            rejected: &rejected,
            fragments: &read.stored.task.fragments,
        };
        let mut load = self.shared.load();
        let (transfers, fragments) = choose(&choice, moves, &mut load)?;
        let mut stored = read.stored.clone();
        stored.task.fragments = fragments;
        stored.task.status = Status::Copying;
        stored.task.reason = None;
        Ok((stored, transfers))
    }

    /// The lock, and the choice in the store, both or none. Nothing is written where both are there.
    async fn take(&mut self, read: &Read, stored: &mut Stored) -> Result<Next<()>, WorkError> {
        let tasks = &self.shared.tasks;
        let going_on = answered_job(tasks.check()).await?;
        let save = tasks.save_step(stored);
        let unchanged = Op::Check {
            path: self.path.clone(),
            version: read.version,
        };
        let failed = if let Some(lock) = &self.lock {
            if stored.task == read.stored.task {
                return Ok(Next::Go(()));
            }
            let ops = [lock.check(), going_on, save];
            match answered(self.shared.store.multi(&ops)).await {
                Ok(()) => None,
                Err(StoreError::Step { at: 0, .. }) => {
                    self.lock = None;
                    return Ok(Next::Again);
                }
                Err(StoreError::Step { at, .. }) => Some(at - 1),
                Err(error) => return Err(WorkError::Store(error)),
            }
        } else {
            let Shared {
                store,
                ledgers_root,
                name,
                ..
            } = &**self.shared;
            let rest = [going_on, save, unchanged];
            match LedgerLock::take(store, ledgers_root, self.ledger, name, &rest).await {
                Ok(lock) => {
                    self.lock = Some(lock);
                    None
                }
                Err(NotHeld::Busy) => return Ok(Next::End(End::Busy)),
                Err(NotHeld::Step(at)) => Some(at),
                Err(NotHeld::Store(error)) => return Err(WorkError::Store(error)),
            }
        };
        match failed {
            None => {
                stored.version += 1;
                Ok(Next::Go(()))
            }
            Some(at) => {
                if at == 0 {
                    tasks.forget_phase();
                }
                // The job, the task or the ledger changed: they are read again.
                Ok(Next::Again)
            }
        }
    }

    fn copier(&self, metadata: &LedgerMetadata, secret: &Secret) -> Arc<Copier> {
        let shared = self.shared;
        Arc::new(Copier {
            replicas: Arc::clone(&shared.replicas),
            ledger: self.ledger,
            digest: Digest::new(secret.digest, secret.password()),
            key: secret.master_key(),
            room: shared.room.clone(),
            own_room: Copier::own_room(),
            largest: Copier::average(metadata).into(),
            metadata: metadata.clone(),
            verify_all: shared.verify_all,
            seed: self.ledger.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            counts: Arc::clone(&shared.counts),
            reports: Arc::clone(&shared.reports),
            failpoints: shared.failpoints.clone(),
        })
    }

    fn key(one: &Transfer) -> (u64, usize, String) {
        (one.what.first, one.what.index, one.what.old.clone())
    }

    fn is_copied(&self, one: &Transfer) -> bool {
        self.copied.get(&Self::key(one)) == Some(one)
    }

    fn is_there(&mut self, one: Transfer) {
        self.copied.insert(Self::key(&one), one);
    }

    /// Each target says that it has all entries, or gives some of them where it has no list. One that does not, or that is
    /// silent by now, is not named: another one is given them.
    async fn verify(&mut self, copier: &Copier, transfers: &[Transfer]) -> bool {
        let lists = Lists::of(copier, transfers).await;
        let mut is_whole = true;
        for one in transfers {
            let missing = check::kept(&lists, copier, one).await;
            if missing != Missing::Nothing {
                self.copied.remove(&Self::key(one));
                self.rejected.insert(one.target.clone());
                is_whole = false;
            }
            if missing == Missing::Unknown {
                self.shared.replicas.rest(&one.target);
            }
        }
        is_whole
    }

    /// The metadata names the targets, if nobody changed it and the lock is ours.
    async fn change(
        &mut self,
        read: &Read,
        bytes: Vec<u8>,
        transfers: &[Transfer],
    ) -> Result<Next<()>, WorkError> {
        let Some(lock) = self.lock.as_ref().filter(|lock| lock.is_held()) else {
            return Ok(Next::Again);
        };
        self.shared.failpoints.reach(Failpoint::BeforeChange).await;
        let set = Op::Set {
            path: self.path.clone(),
            data: bytes,
            version: Some(read.version),
        };
        // A lock of another of us is in the same version, and its owner has saved the task.
        let ours = [lock.check(), self.shared.tasks.unchanged_step(&read.stored)];
        let ops = [&ours[..], &[set]].concat();
        let made = answered(self.shared.store.multi(&ops)).await;
        match made {
            Ok(()) => {}
            Err(StoreError::Step { at, .. }) if at < ours.len() => {
                self.lock = None;
                return Ok(Next::Again);
            }
            // Somebody changed or deleted it.
            Err(StoreError::Step { .. }) => return Ok(Next::Again),
            Err(error) => {
                // It may have been made: then nothing is left to do when it is read again but to look at the targets.
                self.changed.extend_from_slice(transfers);
                return Err(WorkError::Store(error));
            }
        }
        self.shared.moved(transfers.len());
        Ok(Next::Go(()))
    }

    /// After the change: what stands there is what was meant, and the targets still have what they were given. A target
    /// that lost it (its bookie cleaned up while we had lost the lock) is given it again at once, while the sources
    /// have it.
    async fn settle(
        &mut self,
        read: Read,
        meant: &[u8],
        copier: &Arc<Copier>,
        transfers: Vec<Transfer>,
    ) -> Result<Next<()>, WorkError> {
        let (bytes, _) = match answered(self.shared.store.get(&self.path)).await {
            Ok(node) => node,
            Err(StoreError::NoNode) => return Ok(Next::Again),
            Err(error) => {
                self.changed = transfers;
                return Err(WorkError::Store(error));
            }
        };
        self.restore(copier, &transfers).await;
        let metadata = match LedgerMetadata::decode(&bytes) {
            Ok(metadata) if bytes == meant || names(&metadata, &transfers) => metadata,
            // Somebody changed it again: it is looked at anew.
            _ => return Ok(Next::Again),
        };
        self.shared.failpoints.reach(Failpoint::Checked).await;
        let todo = work(&metadata, &self.shared.drained);
        if !todo.moves.is_empty() {
            return Ok(Next::Again);
        }
        self.finish(read, todo.waits).await
    }

    async fn restore(&self, copier: &Arc<Copier>, transfers: &[Transfer]) {
        let lists = Lists::of(copier, transfers).await;
        for one in transfers {
            if let Missing::Entry(entry) = check::kept(&lists, copier, one).await {
                let why = format!("entry {entry} is gone again from {}", one.target);
                tracing::warn!("ledger {}: {why}; it is copied once more", self.ledger);
                let again = copier.copy(std::slice::from_ref(one)).await;
                if again != Copied::Whole {
                    // The metadata says so, and BookKeeper's own auditor finds it; people should know before.
                    self.shared
                        .alarm(self.ledger, &one.target, &format!("{again:?}"));
                }
            }
        }
    }

    /// Nothing can be moved any more, for now or for good.
    async fn finish(&mut self, mut read: Read, waits: Option<Wait>) -> Result<Next<()>, WorkError> {
        let unchecked = std::mem::take(&mut self.changed);
        if !unchecked.is_empty() && names(&read.metadata, &unchecked) {
            self.shared.moved(unchecked.len());
            if let Ok(Some(secret)) = Secret::decode(&read.bytes) {
                let copier = self.copier(&read.metadata, &secret);
                // Sources that are not named any more are asked all the same.
                self.restore(&copier, &unchecked).await;
            }
        }
        let Some(wait) = waits else {
            if self.shared.spares_readers {
                return self.hold(read).await;
            }
            let done = self.shared.tasks.done_step(&read.stored);
            self.end(vec![done]).await?;
            self.hide().await;
            self.shared.failpoints.reach(Failpoint::Done).await;
            return Ok(Next::End(End::Done));
        };
        let (status, why) = match wait {
            Wait::OpenTail => (Status::WaitingOpen, "its last fragment is still written"),
            Wait::InRecovery => (Status::WaitingRecovery, "it is in recovery"),
        };
        let task = &mut read.stored.task;
        if task.status != status || !task.fragments.is_empty() {
            (task.status, task.reason) = (status, Some(why.to_owned()));
            task.fragments.clear();
            let save = self.shared.tasks.save_step(&read.stored);
            self.end(vec![save]).await?;
        } else if self.lock.is_some() {
            self.end(Vec::new()).await?;
        }
        self.shared.failpoints.reach(Failpoint::Done).await;
        Ok(Next::End(End::Waits(wait)))
    }

    /// It is moved, and stays locked until the job is finished.
    async fn hold(&mut self, mut read: Read) -> Result<Next<()>, WorkError> {
        let shared = self.shared;
        let is_new = read.stored.task.status != Status::Held;
        if !is_new && shared.held.is_yielded(self.ledger) {
            return Ok(Next::End(End::Held { is_new }));
        }
        let lock = match self.lock.take() {
            Some(lock) => lock,
            None => {
                let (store, root, name) = (&shared.store, &shared.ledgers_root, &shared.name);
                match LedgerLock::take(store, root, self.ledger, name, &[]).await {
                    Ok(lock) => lock,
                    Err(NotHeld::Store(error)) => return Err(WorkError::Store(error)),
                    Err(_) if is_new => return Ok(Next::End(End::Busy)),
                    // Another worker's, whose place is taken when it ends.
                    Err(_) => return Ok(Next::End(End::Held { is_new })),
                }
            }
        };
        if is_new {
            let task = &mut read.stored.task;
            (task.status, task.reason) = (Status::Held, Some(HELD.to_owned()));
            task.fragments.clear();
            let ops = [lock.check(), shared.tasks.save_step(&read.stored)];
            match answered(shared.store.multi(&ops)).await {
                Ok(()) => self.hide().await,
                // The lock is gone, or the task is another one by now.
                Err(StoreError::Step { .. }) => return Ok(Next::Again),
                Err(error) => return Err(WorkError::Store(error)),
            }
        }
        shared.failpoints.reach(Failpoint::Done).await;
        shared.held.keep(self.ledger, lock);
        Ok(Next::End(End::Held { is_new }))
    }

    async fn fail(&mut self, read: Read, why: String) -> Result<Next<()>, WorkError> {
        Ok(Next::End(self.failed(read.stored, why).await?))
    }

    async fn failed(&mut self, mut stored: Stored, why: String) -> Result<End, WorkError> {
        let task = &mut stored.task;
        task.tries = task.tries.saturating_add(1);
        (task.status, task.reason) = (Status::Failed, Some(why.clone()));
        let save = self.shared.tasks.save_step(&stored);
        self.end(vec![save]).await?;
        Ok(End::Failed(why))
    }

    /// It may be better another time; not for ever.
    async fn put_off(&mut self, mut read: Read, why: String) -> Result<Next<()>, WorkError> {
        let task = &mut read.stored.task;
        if TRIES <= task.tries + 1 {
            return self.fail(read, why).await;
        }
        task.tries += 1;
        (task.status, task.reason) = (Status::Todo, Some(why.clone()));
        let save = self.shared.tasks.save_step(&read.stored);
        self.end(vec![save]).await?;
        Ok(Next::End(End::Later(why)))
    }

    /// People are shown the ledger no more. Nothing depends on it.
    async fn hide(&self) {
        if let Err(error) = answered_job(self.shared.tasks.hide_one(self.ledger)).await {
            tracing::warn!(
                "ledger {} is done: {}",
                self.ledger,
                crate::report::text(&error)
            );
        }
    }

    /// The last steps, with the lock given back in the same transaction. That the task was changed or taken away by others
    /// is no error.
    async fn end(&mut self, ops: Vec<Op>) -> Result<(), WorkError> {
        let store = &self.shared.store;
        let done = match self.lock.take() {
            Some(lock) => match lock.release_with(ops.clone()).await {
                // The lock went before: the rest holds without it, because tasks have versions.
                Err(StoreError::Step { at, .. }) if at == ops.len() && !ops.is_empty() => {
                    answered(store.multi(&ops)).await
                }
                done => done,
            },
            None if ops.is_empty() => Ok(()),
            None => answered(store.multi(&ops)).await,
        };
        match done {
            Ok(()) | Err(StoreError::Step { .. }) => Ok(()),
            Err(error) => Err(WorkError::Store(error)),
        }
    }
}

/// The metadata with the targets in it.
fn patched(read: &Read, transfers: &[Transfer]) -> Result<Vec<u8>, patch::PatchError> {
    let mut by_segment = BTreeMap::<u64, Vec<(usize, &str, &str)>>::new();
    for Transfer { what, target } in transfers {
        let changes = by_segment.entry(what.first).or_default();
        changes.push((what.index, &what.old, target));
    }
    let mut bytes = read.bytes.clone();
    for (first, changes) in by_segment {
        bytes = patch::replace(&bytes, first, &changes)?;
    }
    Ok(bytes)
}

/// The metadata names the targets in their places.
fn names(metadata: &LedgerMetadata, transfers: &[Transfer]) -> bool {
    transfers.iter().all(|Transfer { what, target }| {
        let mut segments = metadata.segments.iter();
        let segment = segments.find(|segment| segment.first_entry == what.first);
        segment.and_then(|segment| segment.members.get(what.index)) == Some(target)
    })
}

/// Waits for what is asked about a job, but not for ever.
async fn answered_job<T>(call: impl Future<Output = Result<T, JobError>>) -> Result<T, WorkError> {
    let answer = tokio::time::timeout(crate::drain::lock::ANSWER, call).await;
    answer.map_or(Err(WorkError::Store(StoreError::TimedOut)), |told| {
        told.map_err(WorkError::from)
    })
}
