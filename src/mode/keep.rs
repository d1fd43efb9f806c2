//! The task around the [`Keeper`]: hands it what is seen, makes the calls that it asks for, and says what came of
//! them. Waits for the bookie, ZooKeeper and the state store, each with a limit; nobody waits for it.
//!
//! Order of an entering: claim into the state store and ZooKeeper; lock of the cluster; the floor, from lists
//! that are read now; PUT; state and registration read back; lock released.

mod put;
mod rival;
mod stop;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval};

use self::put::NO_READ_ONLY;
use super::claims;
use super::plan::book::Book;
use super::plan::keeper::{Control, Keeper, Outcome, Settings, Step, World};
use crate::bookie::AdminClient;
use crate::bookie::watch::NewestState;
use crate::clock::Clock;
use crate::cluster::{Cluster, ClusterError, ModeLock, floor};
use crate::health::beside::Session;
use crate::health::claim::{Claim, Kept, ModeOrder};
use crate::health::dir::{Role, path_text};
use crate::health::moment::Elapsed;
use crate::health::policy::Mode;
use crate::health::snapshot::Snapshot;
use crate::health::status::AccessStatus;
use crate::report;
use crate::state::Store;

/// Nothing happens unseen for longer: an answer that was lost heals at the next turn.
const TURN: Duration = Duration::from_secs(1);

/// What the bookie said so long ago is not what it says now: its state is asked each second, in one second.
const FRESH: Duration = Duration::from_secs(3);

/// How often the claims in ZooKeeper are read; before a read-only ends they are read once more.
const FOREIGN_INTERVAL: Duration = Duration::from_secs(5);

/// How long the lock of the cluster is waited for. Each holder needs a PUT and a registration, some 100 ms.
pub const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Steps in one turn: claim, PUT, and the end of a claim; more would be a circle.
const STEPS: usize = 4;

const CHANGED: &str = "what was seen has changed while the lock was waited for";

/// ZooKeeper ends no session of a bookie earlier: its least time-out is two ticks of 2 s.
const OUTAGE: Duration = Duration::from_secs(4);

/// After a longer one the bookie may have to register again, while its old node is there until its own session
/// time-out (`zkTimeout`, 10 s) is over. A change of its mode in the meantime gets no answer, and has ended
/// a bookie (measured with 4.17.3: exit code 4, the old node still existed).
const CALM: Duration = Duration::from_secs(15);

const NO_ZOOKEEPER: &str = "no ZooKeeper is configured";

/// An order, and whom to tell what came of it.
pub type Ordered = (ModeOrder, oneshot::Sender<Result<String, String>>);

/// What the task is made from.
pub struct Parts {
    /// Settings, and changes of them.
    pub settings: watch::Receiver<Settings>,
    /// The lowest number of writable bookies; by the cluster if none. Changes with the settings.
    pub min_writable: watch::Receiver<Option<u32>>,
    /// The bookie's id.
    pub bookie_id: String,
    /// Its admin HTTP server.
    pub admin: AdminClient,
    /// The newest state, as the poll saw it.
    pub state: watch::Receiver<NewestState>,
    /// ZooKeeper; without it no PUT is ever sent.
    pub cluster: Option<Cluster>,
    /// Where the book is kept beside.
    pub store: Store,
    /// The state store's copy.
    pub stored: Option<Vec<u8>>,
    /// What the disks show.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// Orders of people.
    pub orders: mpsc::Receiver<Ordered>,
    /// Told what stands; must not block. False when it was not heard: it is said again.
    pub report: Box<dyn Fn(Kept) -> bool + Send + Sync>,
    /// The clock.
    pub clock: Clock,
}

/// Keeps the bookie in its mode until nobody can give orders any more.
pub async fn keep(mut parts: Parts) {
    let settings = parts.settings.borrow_and_update().clone();
    let (book, problem) = match parts.stored.take().map(|bytes| claims::from_json(&bytes)) {
        None => (Book::default(), None),
        Some(Ok(book)) => (book, None),
        // ZooKeeper has another copy; this one is written anew with the next change.
        Some(Err(error)) => (Book::default(), Some(format!("the state store: {error}"))),
    };
    let task = Task {
        keeper: Keeper::new(settings, book),
        known: None,
        version: None,
        foreign: Vec::new(),
        foreign_at: None,
        rival: None,
        newest: None,
        lost_at: None,
        calm_at: None,
        said: None,
        logged: None,
        problem,
        parts,
    };
    task.run().await;
}

struct Task {
    parts: Parts,
    keeper: Keeper,
    /// The claims node of this session was read; an error says why not.
    known: Option<Result<(), String>>,
    /// Version of the claims node, for compare-and-set; none when there is no such node.
    version: Option<i32>,
    foreign: Vec<Claim>,
    foreign_at: Option<Elapsed>,
    /// Another agent of this bookie: since when, and in words.
    rival: Option<(Elapsed, String)>,
    /// What a look of ours saw after a PUT, newer than the poll's.
    newest: NewestState,
    /// ZooKeeper has been away since then.
    lost_at: Option<Elapsed>,
    /// No PUT before: see [`CALM`].
    calm_at: Option<Elapsed>,
    said: Option<Kept>,
    /// The last line about what was in the way.
    logged: Option<String>,
    problem: Option<String>,
}

impl Task {
    async fn run(mut self) {
        let mut beats = interval(TURN);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.learn().await;
            for _ in 0..STEPS {
                if !self.turn().await {
                    break;
                }
            }
            self.say();
            tokio::select! {
                order = self.parts.orders.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return,
                },
                changed = self.parts.snapshots.changed() => if changed.is_err() { return },
                Ok(()) = self.parts.state.changed() => {}
                Ok(()) = self.parts.settings.changed() => {
                    let settings = self.parts.settings.borrow_and_update().clone();
                    self.keeper.configure(settings);
                }
                _ = beats.tick() => {}
            }
        }
    }

    /// One turn; true when something was done.
    async fn turn(&mut self) -> bool {
        let world = self.world();
        let Some(step) = self.keeper.next(self.parts.clock.now(), &world) else {
            return false;
        };
        let outcome = match &step {
            Step::Keep(book) => self.write(book).await,
            Step::Enter => self.enter().await,
            Step::Leave => self.leave().await,
        };
        let went = outcome == Outcome::Done;
        self.log(&step, &outcome);
        self.keeper.done(self.parts.clock.now(), &step, outcome);
        went
    }

    /// What is in the way is logged once: it may stay there for hours, and is tried again each quarter of a minute.
    fn log(&mut self, step: &Step, outcome: &Outcome) {
        let (did, failed) = words(step);
        match outcome {
            Outcome::Done => {
                self.logged = None;
                tracing::info!("{did}");
            }
            Outcome::Held(why) | Outcome::Refused(why) => {
                let line = format!("{failed}: {why}");
                if self.logged.as_ref() != Some(&line) {
                    tracing::warn!("{line}");
                    self.logged = Some(line);
                }
            }
        }
    }

    fn world(&mut self) -> World {
        let snapshot = Arc::clone(&self.parts.snapshots.borrow_and_update());
        let now = self.parts.clock.elapsed();
        let fresh = |newest: &NewestState| {
            let (at, state) = newest.as_ref()?;
            let state = state.as_ref().ok().copied();
            (now.saturating_sub(*at) <= FRESH).then_some((*at, state))
        };
        let polled = fresh(&self.parts.state.borrow_and_update());
        let looked = fresh(&self.newest);
        // Of the poll's answer and our own the one that was asked for last.
        let newest = [polled, looked]
            .into_iter()
            .flatten()
            .max_by_key(|(at, _)| *at);
        World {
            wanted: snapshot.mode.wanted,
            reason: snapshot.mode.reason.clone(),
            hung: hung(&snapshot),
            bookie: newest.and_then(|(_, state)| state),
            store_lost: self.store_lost().or_else(|| self.restless()),
            rival: self.rival(),
            foreign: self.foreign.clone(),
        }
    }

    fn store_lost(&self) -> Option<String> {
        let session = self.parts.cluster.as_ref().map(Cluster::session);
        match session {
            Some(Session::Connected) => match &self.known {
                Some(Err(why)) => Some(why.clone()),
                _ => None,
            },
            Some(Session::Lost(_)) => Some("ZooKeeper is not connected".to_owned()),
            Some(Session::None) | None => Some(NO_ZOOKEEPER.to_owned()),
        }
    }

    /// ZooKeeper is back, and the bookie may not be yet.
    fn restless(&self) -> Option<String> {
        let calm = self.calm_at.filter(|at| self.parts.clock.elapsed() < *at);
        calm.map(|_| "ZooKeeper has only just come back, and the bookie registers again".to_owned())
    }

    /// Reads what ZooKeeper holds: our book and the claims of others, now and then and in each new session.
    async fn learn(&mut self) {
        let Some(cluster) = self.parts.cluster.clone() else {
            return;
        };
        let now = self.parts.clock.elapsed();
        if cluster.session() != Session::Connected {
            // Another may have written meanwhile.
            self.known = None;
            self.lost_at.get_or_insert(now);
            return;
        }
        if let Some(lost) = self.lost_at.take()
            && OUTAGE <= now.saturating_sub(lost)
        {
            self.calm_at = Some(now + CALM);
        }
        let due = |at: Elapsed| FOREIGN_INTERVAL <= now.saturating_sub(at);
        let due = self.foreign_at.is_none_or(due);
        // Ours too: somebody may have deleted it, or be a second agent of this bookie.
        if due || !matches!(self.known, Some(Ok(()))) {
            self.known = Some(self.read_book(&cluster).await);
        }
        if due {
            self.look_for_rival(&cluster).await;
            let _ = self.read_foreign(&cluster).await;
        }
    }

    async fn read_book(&mut self, cluster: &Cluster) -> Result<(), String> {
        let id = &self.parts.bookie_id;
        let found = cluster.own_claims(id).await;
        let found = found.map_err(|error| report::text(&error))?;
        let (book, version) = match found {
            None => (Book::default(), None),
            // A drain job has made the node, to put its own claim below it.
            Some((bytes, version)) if bytes.is_empty() => (Book::default(), Some(version)),
            Some((bytes, version)) => {
                let book = claims::from_json(&bytes).map_err(|error| {
                    format!(
                        "{error}: nothing is claimed or ended until it is removed from ZooKeeper"
                    )
                })?;
                (book, Some(version))
            }
        };
        self.version = version;
        self.keeper.found(self.parts.clock.now(), book);
        Ok(())
    }

    async fn read_foreign(&mut self, cluster: &Cluster) -> Result<(), ClusterError> {
        self.foreign = cluster.foreign_claims(&self.parts.bookie_id).await?;
        self.foreign_at = Some(self.parts.clock.elapsed());
        Ok(())
    }

    /// Makes a book durable: in ZooKeeper, whose copy counts, because without it no PUT may be sent anyway; then in
    /// the state store. One that is full or hung takes away the second copy and no more.
    async fn write(&mut self, book: &Book) -> Outcome {
        let Some(cluster) = self.parts.cluster.clone() else {
            return Outcome::Held(NO_ZOOKEEPER.to_owned());
        };
        let bytes = claims::to_json(book);
        let id = self.parts.bookie_id.clone();
        match cluster.put_own_claims(&id, &bytes, self.version).await {
            Ok(version) => self.version = Some(version),
            Err(error) => {
                // Whether it was written is not known, or another wrote: what is there is read again.
                let why = format!("the claims were not written: {}", report::text(&error));
                self.known = Some(self.read_book(&cluster).await);
                if self.keeper.book() != book || !self.keeper.is_durable() {
                    return Outcome::Held(why);
                }
            }
        }
        let stored = self.parts.store.put_claims(bytes).await;
        self.problem = (!stored).then(|| {
            "the state store did not take the claims: ZooKeeper has the only copy".to_owned()
        });
        Outcome::Done
    }

    async fn enter(&mut self) -> Outcome {
        let Some(cluster) = self.parts.cluster.clone() else {
            return Outcome::Held(NO_ZOOKEEPER.to_owned());
        };
        let lock = match cluster.lock_mode(LOCK_WAIT).await {
            Ok(lock) => lock,
            Err(error) => {
                return Outcome::Held(format!("the lock of the cluster: {}", report::text(&error)));
            }
        };
        let outcome = self.enter_locked(&cluster, &lock).await;
        lock.release().await;
        outcome
    }

    async fn enter_locked(&mut self, cluster: &Cluster, lock: &ModeLock) -> Outcome {
        // The lock may have taken seconds: what was in no way then may be by now.
        let now = self.parts.clock.now();
        let world = self.world();
        if self.keeper.next(now, &world) != Some(Step::Enter) {
            return Outcome::Held(CHANGED.to_owned());
        }
        let view = match cluster.view().await {
            Ok(view) => view,
            Err(error) => {
                let why = report::text(&error);
                return Outcome::Held(format!("the bookies cannot be counted: {why}"));
            }
        };
        let (id, least) = (
            self.parts.bookie_id.clone(),
            *self.parts.min_writable.borrow(),
        );
        let stopping = match cluster.stopping(lock).await {
            Ok(stopping) => stopping,
            Err(error) => return Outcome::Held(report::text(&error)),
        };
        let may_go = |emergency| floor::may_go(&view, &stopping, &id, least, emergency);
        let mut below_floor = false;
        if let Err(why) = may_go(false) {
            if !self.parts.snapshots.borrow().mode.journal_emergency {
                return Outcome::Held(why);
            }
            if let Err(why) = may_go(true) {
                return Outcome::Held(why);
            }
            below_floor = true;
        }
        if let Some(outcome) = self.check(cluster, false).await {
            return outcome;
        }
        let now = self.parts.clock.now();
        let before = self.keeper.book().clone();
        if let Some(book) = self.keeper.begin(now, &world, below_floor) {
            match self.write(&book).await {
                Outcome::Done => self.keeper.done(now, &Step::Keep(book), Outcome::Done),
                other => {
                    self.keeper.forget(before);
                    return other;
                }
            }
        }
        self.put_sure(cluster, true, Some(lock)).await
    }

    async fn leave(&mut self) -> Outcome {
        let Some(cluster) = self.parts.cluster.clone() else {
            return Outcome::Held(NO_ZOOKEEPER.to_owned());
        };
        // A drain may have claimed it meanwhile; the read also shows that ZooKeeper answers.
        if let Err(error) = self.read_foreign(&cluster).await {
            return Outcome::Held(format!(
                "ZooKeeper does not answer: {}",
                report::text(&error)
            ));
        }
        let ordered = self.keeper.book().order().is_some();
        if !ordered
            && let Some(claim) = self
                .foreign
                .iter()
                .find(|claim| claim.mode == Mode::ReadOnly)
        {
            return Outcome::Held(format!("it is held by a drain: {}", claim.reason));
        }
        match self.check(&cluster, true).await {
            Some(Outcome::Refused(why)) if why == NO_READ_ONLY => {}
            Some(outcome) => return outcome,
            None => {}
        }
        self.put_sure(&cluster, false, None).await
    }

    async fn obey(&mut self, (order, answer): Ordered) {
        if answer.is_closed() {
            // Whoever gave it was told that it was not taken: it waited too long behind a step.
            return;
        }
        let result = match order {
            ModeOrder::MayStop { reserve } => self.may_stop(reserve).await,
            ModeOrder::Set { mode, reason } => self
                .change(|keeper, now| {
                    keeper.order(now, mode, reason);
                    Ok(())
                })
                .await
                .map(|()| match mode {
                    Mode::ReadOnly => {
                        "the claim is kept, the bookie follows: see `dirkeeper mode show`".to_owned()
                    }
                    Mode::Writable => {
                        "the claim is kept, the bookie is told to be writable once: see `dirkeeper mode show`"
                            .to_owned()
                    }
                }),
            ModeOrder::Release => self
                .change(|keeper, _| {
                    let nothing = || "there is no claim of an operator to release".to_owned();
                    keeper.release().then_some(()).ok_or_else(nothing)
                })
                .await
                .map(|()| "the operator's claim ends: see `dirkeeper mode show` for others".to_owned()),
        };
        // One who has gone away is not told.
        let _ = answer.send(result);
    }

    /// An order is taken when it is durable: otherwise it could be forgotten and nobody would know.
    async fn change(
        &mut self,
        change: impl FnOnce(&mut Keeper, crate::health::moment::Moment) -> Result<(), String>,
    ) -> Result<(), String> {
        if let Some(lost) = self.store_lost() {
            return Err(format!(
                "{lost}: the order could not be kept, so it is not taken"
            ));
        }
        if !matches!(self.known, Some(Ok(()))) {
            return Err("the claims in ZooKeeper were not read yet: try again".to_owned());
        }
        if let Some(never) = self.keeper.never() {
            return Err(never.to_owned());
        }
        if let Some((_, rival)) = &self.rival {
            return Err(format!("{rival}: give the order there"));
        }
        let now = self.parts.clock.now();
        let before = self.keeper.book().clone();
        change(&mut self.keeper, now)?;
        let book = self.keeper.book().clone();
        match self.write(&book).await {
            Outcome::Done => {
                self.keeper.done(now, &Step::Keep(book), Outcome::Done);
                Ok(())
            }
            Outcome::Held(why) | Outcome::Refused(why) => {
                // What ZooKeeper holds now was read again, or will be: the order is not in it.
                self.keeper.forget(before);
                Err(why)
            }
        }
    }

    fn say(&mut self) {
        let claims = self.keeper.book().claims().chain(&self.foreign);
        let unknown = match (&self.known, &self.parts.cluster) {
            (Some(Err(why)), Some(_)) => Some(why.clone()),
            _ => None,
        };
        let kept = Kept {
            claims: claims.cloned().collect(),
            held: self.keeper.held().map(|held| held.text.clone()),
            blocked: self.keeper.held().is_some_and(|held| held.blocked),
            enforces: self.keeper.control() == Control::Enforce,
            problem: self
                .rival_problem()
                .or(unknown)
                .or_else(|| self.problem.clone()),
        };
        if self.said.as_ref() != Some(&kept) {
            let heard = (self.parts.report)(kept.clone());
            self.said = heard.then_some(kept);
        }
    }
}

/// A ledger directory that a write of the bookie could hang in.
fn hung(snapshot: &Snapshot) -> Option<String> {
    let ledger = |role| matches!(role, Role::Ledger | Role::Index);
    let dir = snapshot
        .dirs
        .iter()
        .filter(|dir| ledger(dir.role))
        .find(|dir| dir.access_status == AccessStatus::Hung || dir.suspect)?;
    let how = match dir.access_status {
        AccessStatus::Hung => "is hung",
        _ => "may be failing or hung",
    };
    Some(format!("{} {how}", path_text(&dir.path)))
}

/// What a step did, and what it did not.
fn words(step: &Step) -> (&'static str, &'static str) {
    match step {
        Step::Keep(_) => (
            "claims on the bookie's mode were written",
            "claims on the bookie's mode were not written",
        ),
        Step::Enter => (
            "the bookie was made read-only",
            "the bookie is not made read-only",
        ),
        Step::Leave => (
            "the bookie was made writable",
            "the bookie is not made writable",
        ),
    }
}
