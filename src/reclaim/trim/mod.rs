//! One pass of the full-scan trim (pulsar #18128): brokers delete what is beyond retention only of topics that they have
//! loaded. This finds the others in the metadata, lets a broker trim each, and unloads what it loaded. The broker
//! decides what goes. The leader alone does it, slowly, and slower when the cluster answers slower.

mod cursors;
#[cfg(test)]
mod decide_tests;
mod folders;
mod gate;
mod outcome;
#[cfg(test)]
mod resume_tests;
#[cfg(test)]
mod tests;
mod visit;
mod walk;
#[cfg(test)]
mod world;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;

use super::inside::Entries;
use super::plan::{HOUR, Millis};
use super::scan::{Ledgers, Pulsar, identity};
use super::state::position::TrimPosition;
use super::state::visits::Visits;
use super::state::{State, StateError};
use crate::clock::Clock;
use crate::cluster::broker::{BrokerError, Brokers};
use crate::cluster::leader::Leader;
use crate::cluster::ledger::{Layout, LayoutError};
use crate::cluster::store::{MetaStore, StoreError};
use crate::report::text;
use folders::Rest;
use gate::Gate;
pub use outcome::{After, Done, TopicTrim, TrimPass, TrimProgress};
use walk::{Candidate, all_of};

/// Below this a topic's visit, which makes and deletes a ledger, costs more than it gives.
const MIN_GAIN: u64 = 1 << 20;

/// Between two topics. 30,000 topics that became due at once made publishing wait for 15 s (pulsar #20649); at one a
/// second they take a night.
const INTERVAL: Duration = Duration::from_secs(1);

/// Topics under way at a time: a broker takes a second or two to load one.
const CONCURRENCY: usize = 4;

/// A topic is left alone for so long after a visit.
const REST: Millis = 24 * HOUR;

/// How long a list is given to become shorter. It is when the broker answers, unless messages had to be expired.
const PATIENCE: Duration = Duration::from_secs(60);

/// Candidates that are visited before the next ones are looked for, and before it is remembered that they were: some minutes of
/// visits, of which those that were made are not made again in any case.
const SLICE: usize = 256;

/// A pass that was cut off longer ago is not gone on with, unless trims are further apart.
const RESUMABLE_FOR: Millis = 24 * HOUR;

/// Results that are kept to be told: a day of visits at the usual pace. The largest stay, all are counted.
const MOST_RESULTS: usize = 100_000;

/// How a pass goes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrimOptions {
    /// Only these namespaces, as `tenant/namespace`; all if empty.
    pub namespaces: Vec<String>,
    /// Only these topics, as `persistent://tenant/namespace/topic`; all if empty.
    pub topics: Vec<String>,
    /// Bytes of one copy that a visit has to give back at least.
    pub min_gain: u64,
    /// Between the visits of two topics.
    pub interval: Duration,
    /// Topics under way at a time.
    pub concurrency: usize,
    /// How long a topic is left alone after a visit; longer after visits that gave nothing back.
    pub rest: Millis,
    /// How long a list is given to become shorter.
    pub patience: Duration,
    /// Candidates that are dealt with between two looks for more.
    pub slice: usize,
    /// A pass that was cut off no longer ago is gone on with.
    pub resumable_for: Millis,
}

impl Default for TrimOptions {
    fn default() -> TrimOptions {
        TrimOptions {
            namespaces: Vec::new(),
            topics: Vec::new(),
            min_gain: MIN_GAIN,
            interval: INTERVAL,
            concurrency: CONCURRENCY,
            rest: REST,
            patience: PATIENCE,
            slice: SLICE,
            resumable_for: RESUMABLE_FOR,
        }
    }
}

impl TrimOptions {
    /// What a position belongs to: this cluster, or this part of it.
    fn of(&self, cluster: &Pulsar) -> String {
        let mut all = vec![cluster.name.clone()];
        all.extend(self.namespaces.iter().cloned());
        all.extend(self.topics.iter().cloned());
        all[1..].sort_unstable();
        all.join(" ")
    }
}

/// What is trimmed.
#[derive(Clone)]
pub struct TrimCluster<'a> {
    /// Where the ledgers are.
    pub ledgers: Ledgers,
    /// The metadata of the Pulsar cluster whose brokers are asked.
    pub pulsar: Pulsar,
    /// Its store without a pace: one read before each visit says how fast it answers.
    pub bare: Arc<dyn MetaStore>,
    /// Who reads inside ledgers, where cursors may stand. Without it those may stand anywhere.
    pub entries: Option<&'a dyn Entries>,
}

/// Why a pass ended without a result.
#[derive(Debug, Error)]
pub enum TrimError {
    /// The store.
    #[error("cannot read {path}")]
    Store {
        /// Of which node.
        path: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The layout.
    #[error("cannot tell where ledgers are")]
    Layout(#[from] LayoutError),
    /// More than can be.
    #[error("{path} lies too deep")]
    TooDeep {
        /// Which node.
        path: String,
    },
    /// The brokers.
    #[error("it is not known which topics are loaded, so that none is visited")]
    Loaded(#[source] Box<BrokerError>),
    /// Our own file.
    #[error("cannot remember what is done")]
    State(#[from] StateError),
}

fn at<T>(path: &str, result: Result<T, StoreError>) -> Result<T, TrimError> {
    result.map_err(|source| TrimError::Store {
        path: path.to_owned(),
        source,
    })
}

/// One pass and all that it needs.
pub(super) struct Pass<'a> {
    state: Visits<'a>,
    cluster: &'a TrimCluster<'a>,
    layout: Layout,
    brokers: &'a Brokers,
    leader: Option<&'a Leader>,
    clock: &'a Clock,
    options: &'a TrimOptions,
    progress: &'a watch::Sender<TrimProgress>,
    gate: Gate,
    queue: Mutex<VecDeque<Candidate>>,
    results: Mutex<Vec<TopicTrim>>,
    /// Cursors in a row about which bookies said nothing.
    silent: AtomicU32,
}

/// Whether it is time for a trim: the last one that saw every topic began an interval ago, or is not over.
///
/// # Errors
/// Our own file cannot be read.
pub fn is_due(
    state: &State,
    cluster: &Pulsar,
    options: &TrimOptions,
    interval: Millis,
    now: Millis,
) -> Result<bool, StateError> {
    let position = state.trim_position(&options.of(cluster))?;
    Ok(position.is_none_or(|position| {
        let since = now.saturating_sub(position.began);
        position.behind.is_some() || interval <= since
    }))
}

/// Makes one pass. Without a leader it is a dry run: it says what it would do, and asks the brokers only what loads
/// nothing.
///
/// # Errors
/// Candidates cannot be found, or it is not known which topics are loaded. What was begun is remembered.
pub async fn trim(
    state: &State,
    cluster: &TrimCluster<'_>,
    brokers: &Brokers,
    leader: Option<&Leader>,
    clock: &Clock,
    options: &TrimOptions,
    progress: &watch::Sender<TrimProgress>,
) -> Result<TrimPass, TrimError> {
    let began = clock.now().wall.0;
    let pass = Pass::new(state, cluster, brokers, leader, clock, options, progress).await?;
    pass.run(began).await
}

/// Unloads what a pass left loaded that was cut off just now.
///
/// # Errors
/// It is not known which topics are loaded, or our own file cannot be used.
pub async fn unload(
    state: &State,
    cluster: &TrimCluster<'_>,
    brokers: &Brokers,
    leader: &Leader,
    clock: &Clock,
    options: &TrimOptions,
) -> Result<(), TrimError> {
    if !state
        .all_visits()?
        .iter()
        .any(|(.., visit)| visit.loaded_by_us)
    {
        return Ok(());
    }
    let progress = watch::Sender::new(TrimProgress::default());
    let leader = Some(leader);
    let pass = Pass::new(state, cluster, brokers, leader, clock, options, &progress).await?;
    pass.catch_up().await
}

impl<'a> Pass<'a> {
    async fn new(
        state: &'a State,
        cluster: &'a TrimCluster<'a>,
        brokers: &'a Brokers,
        leader: Option<&'a Leader>,
        clock: &'a Clock,
        options: &'a TrimOptions,
        progress: &'a watch::Sender<TrimProgress>,
    ) -> Result<Pass<'a>, TrimError> {
        let path = format!("{}/LAYOUT", cluster.ledgers.root);
        let (layout, _) = at(&path, cluster.ledgers.store.get(&path).await)?;
        let loaded = brokers.loaded().await;
        let loaded = loaded.map_err(|error| TrimError::Loaded(Box::new(error)))?;
        let path = format!("{}/managed-ledgers", cluster.pulsar.root);
        let id = at(&path, identity(&cluster.pulsar).await)?;
        let key = id.map_or(cluster.pulsar.name.clone(), |id| id.key);
        Ok(Pass {
            state: state.visits_of(&key),
            cluster,
            layout: Layout::parse(&layout)?,
            brokers,
            leader,
            clock,
            options,
            progress,
            gate: Gate::new(loaded, clock.elapsed()),
            queue: Mutex::default(),
            results: Mutex::default(),
            silent: AtomicU32::new(0),
        })
    }
}

impl Pass<'_> {
    async fn run(self, began: Millis) -> Result<TrimPass, TrimError> {
        self.catch_up().await?;
        let before = self.position(began)?;
        let mut rest = self.rest(before.as_ref()).await?;
        let mut found = TrimPass {
            resumed: before.is_some(),
            ..TrimPass::default()
        };
        let since = before.map_or(began, |before| before.began);
        while !rest.is_done && self.gate.stopped().is_none() {
            match self.slice(&mut rest, &mut found).await {
                Ok(candidates) => lock(&self.queue).extend(candidates),
                // What was done is to be told.
                Err(error) if !lock(&self.results).is_empty() => self.gate.stop(text(&error)),
                Err(error) => return Err(error),
            }
            self.lanes().await;
            if self.gate.stopped().is_none() {
                self.remember(since, &rest)?;
            }
            found.left_out += self.keep_largest();
        }
        found.began = began;
        found.ended = self.now();
        found.stopped = self.gate.stopped();
        found.slowed = self.gate.slowed();
        found.counts = self.progress.borrow().clone();
        found.results = std::mem::take(&mut *lock(&self.results));
        if self.leader.is_some() {
            self.state.forget_visits(found.ended)?;
        }
        Ok(found)
    }

    /// Where a pass was cut off that is to be gone on with. A dry run sees everything.
    fn position(&self, now: Millis) -> Result<Option<TrimPosition>, TrimError> {
        if self.leader.is_none() {
            return Ok(None);
        }
        let of = self.options.of(&self.cluster.pulsar);
        let position = self.state.trim_position(&of)?.filter(|position| {
            let age = now.saturating_sub(position.at);
            position.behind.is_some() && (0..=self.options.resumable_for).contains(&age)
        });
        Ok(position)
    }

    /// Everything up to here is dealt with.
    fn remember(&self, began: Millis, rest: &Rest) -> Result<(), TrimError> {
        if self.leader.is_none() {
            return Ok(());
        }
        let position = TrimPosition {
            began,
            at: self.now(),
            behind: rest.behind.clone().filter(|_| !rest.is_done),
            topics: self.progress.borrow().topics,
        };
        let of = self.options.of(&self.cluster.pulsar);
        Ok(self.state.put_trim_position(&of, &position)?)
    }

    /// Deals with all in the queue.
    async fn lanes(&self) {
        let lane = || -> Pin<Box<dyn Future<Output = ()> + Send + '_>> { Box::pin(self.lane()) };
        let count = self.options.concurrency.max(1);
        all((0..count).map(|_| lane()).collect()).await;
    }

    /// Sorts the results as they are told: what was left loaded before, then the largest; forgets the smallest of too
    /// many, and says how many.
    fn keep_largest(&self) -> u64 {
        let mut results = lock(&self.results);
        results.sort_by_key(|one| Reverse(one.found.map_or(u64::MAX, |gain| all_of(&gain))));
        let more = results.len().saturating_sub(MOST_RESULTS);
        results.truncate(MOST_RESULTS);
        more as u64
    }

    /// Takes one candidate after the other.
    async fn lane(&self) {
        while self.gate.stopped().is_none() {
            let Some(candidate) = lock(&self.queue).pop_front() else {
                return;
            };
            let result = self.deal_with(&candidate).await;
            self.progress.send_modify(|progress| {
                progress.add(&result);
            });
            lock(&self.results).push(result);
        }
    }

    /// None: a dry run, in which nothing is done that needs one.
    fn is_leader(&self) -> bool {
        self.leader.is_some_and(Leader::is_leader)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a few at once.
async fn all(lanes: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>>) {
    let mut lanes: Vec<_> = lanes.into_iter().map(Some).collect();
    poll_fn(|context| {
        for lane in &mut lanes {
            if let Some(running) = lane
                && running.as_mut().poll(context).is_ready()
            {
                *lane = None;
            }
        }
        match lanes.iter().all(Option::is_none) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}
