//! One pass of the full-scan trim (pulsar #18128): brokers delete what is beyond retention only of topics that they have
//! loaded. This finds the others in the metadata, lets a broker trim each, and unloads what it loaded. The broker
//! decides what goes. The leader alone does it, slowly, and slower when the cluster answers slower.

mod gate;
#[cfg(test)]
mod tests;
mod visit;
mod walk;
#[cfg(test)]
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;

use super::plan::trim::Gain;
use super::plan::{HOUR, Millis};
use super::scan::{Ledgers, Pulsar, identity};
use super::state::visits::Visits;
use super::state::{State, StateError};
use crate::clock::Clock;
use crate::cluster::broker::{BrokerError, Brokers, TopicName};
use crate::cluster::leader::Leader;
use crate::cluster::ledger::{Layout, LayoutError};
use crate::cluster::store::{MetaStore, StoreError};
use gate::Gate;
use walk::Candidate;

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
        }
    }
}

/// What is trimmed.
#[derive(Clone)]
pub struct TrimCluster {
    /// Where the ledgers are.
    pub ledgers: Ledgers,
    /// The metadata of the Pulsar cluster whose brokers are asked.
    pub pulsar: Pulsar,
    /// Its store without a pace: one read before each visit says how fast it answers.
    pub bare: Arc<dyn MetaStore>,
}

/// How far a pass is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrimProgress {
    /// Topics seen in the metadata.
    pub topics: u64,
    /// All were seen: the candidates are what there is to do.
    pub walked: bool,
    /// Those that seem worth a visit.
    pub candidates: u64,
    /// Those that are dealt with.
    pub done: u64,
    /// Bytes of one copy given back.
    pub gained: u64,
    /// Why it goes slower than it was told to, if it does.
    pub slowed: Option<String>,
}

/// What was done with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It would be visited: a dry run.
    Found,
    /// Nothing, and why: it turned out when it was its turn.
    Left(&'static str),
    /// The broker refused to trim it, and did not load it. The obstacle says why.
    Refused,
    /// It was visited.
    Visited(After),
    /// It was still loaded because of a visit before that was cut off.
    CaughtUp(After),
}

/// How a topic was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Unloaded again.
    Unloaded,
    /// Loaded: somebody uses it by now.
    InUse,
    /// Not there any more.
    Gone,
    /// Perhaps still loaded, see the obstacle. The next pass unloads it. A broker with
    /// `brokerDeleteInactiveTopicsEnabled` deletes it meanwhile if it has no subscriptions.
    StillLoaded,
}

impl Done {
    /// For people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Done::Found => "would be visited",
            Done::Left(why) => why,
            Done::Refused => "refused by its broker",
            Done::Visited(After::Unloaded) => "trimmed and unloaded",
            Done::Visited(After::InUse) => "trimmed, and in use by now",
            Done::Visited(After::Gone) => "gone meanwhile",
            Done::Visited(After::StillLoaded) => "visited, and not unloaded",
            Done::CaughtUp(After::Unloaded) => "unloaded, after a pass that was cut off",
            Done::CaughtUp(After::InUse) => "in use, after a pass that was cut off",
            Done::CaughtUp(After::Gone) => "gone, after a pass that was cut off",
            Done::CaughtUp(After::StillLoaded) => "not unloaded, after a pass that was cut off",
        }
    }
}

/// What a pass came to for one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTrim {
    /// Which.
    pub topic: TopicName,
    /// What a visit seemed worth; none for one that was left loaded before.
    pub found: Option<Gain>,
    /// What was done.
    pub done: Done,
    /// Bytes of one copy that its list has less.
    pub gained: u64,
    /// Ledgers that its list has less.
    pub ledgers: u64,
    /// What was in the way, in one sentence.
    pub obstacle: Option<String>,
}

/// What a pass came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrimPass {
    /// When it began.
    pub began: Millis,
    /// And ended.
    pub ended: Millis,
    /// Topics seen in the metadata.
    pub topics: u64,
    /// Topics that need no visit, by the reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Topics whose node cannot be understood.
    pub unreadable: Vec<String>,
    /// Candidates beyond the most that are kept, which a later pass finds again.
    pub left_out: u64,
    /// Candidates, the largest first, after those that were left loaded before.
    pub results: Vec<TopicTrim>,
    /// Why it ended before all candidates were dealt with, if it did.
    pub stopped: Option<String>,
}

impl TrimPass {
    /// Bytes of one copy that were given back.
    #[must_use]
    pub fn gained(&self) -> u64 {
        self.results.iter().map(|topic| topic.gained).sum()
    }
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
    cluster: &'a TrimCluster,
    layout: Layout,
    brokers: &'a Brokers,
    leader: Option<&'a Leader>,
    clock: &'a Clock,
    options: &'a TrimOptions,
    progress: &'a watch::Sender<TrimProgress>,
    gate: Gate,
    queue: Mutex<VecDeque<Candidate>>,
    results: Mutex<Vec<TopicTrim>>,
}

/// Makes one pass. Without a leader it is a dry run: it says what it would do, and asks the brokers only what loads
/// nothing.
///
/// # Errors
/// Candidates cannot be found, or it is not known which topics are loaded. What was begun is remembered.
pub async fn trim(
    state: &State,
    cluster: &TrimCluster,
    brokers: &Brokers,
    leader: Option<&Leader>,
    clock: &Clock,
    options: &TrimOptions,
    progress: &watch::Sender<TrimProgress>,
) -> Result<TrimPass, TrimError> {
    let began = clock.now().wall.0;
    let path = format!("{}/LAYOUT", cluster.ledgers.root);
    let (layout, _) = at(&path, cluster.ledgers.store.get(&path).await)?;
    let loaded = brokers.loaded().await;
    let loaded = loaded.map_err(|error| TrimError::Loaded(Box::new(error)))?;
    let path = format!("{}/managed-ledgers", cluster.pulsar.root);
    let id = at(&path, identity(&cluster.pulsar).await)?;
    let key = id.map_or(cluster.pulsar.name.clone(), |id| id.key);
    let pass = Pass {
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
    };
    pass.run(began).await
}

impl Pass<'_> {
    async fn run(self, began: Millis) -> Result<TrimPass, TrimError> {
        self.catch_up().await?;
        let (candidates, mut found) = self.walk().await?;
        lock(&self.queue).extend(candidates);
        let lane = || -> Pin<Box<dyn Future<Output = ()> + Send + '_>> { Box::pin(self.lane()) };
        all((0..self.options.concurrency.max(1))
            .map(|_| lane())
            .collect())
        .await;
        found.began = began;
        found.ended = self.clock.now().wall.0;
        found.stopped = self.gate.stopped();
        found.results = std::mem::take(&mut *lock(&self.results));
        if self.leader.is_some() {
            self.state.forget_visits(found.ended)?;
        }
        Ok(found)
    }

    /// Takes one candidate after the other.
    async fn lane(&self) {
        while self.gate.stopped().is_none() {
            let Some(candidate) = lock(&self.queue).pop_front() else {
                return;
            };
            let result = self.deal_with(&candidate).await;
            self.progress.send_modify(|progress| {
                progress.done += 1;
                progress.gained = progress.gained.saturating_add(result.gained);
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
