//! One visit: what applies to the topic is asked for, and what it has is read once more; then it is written down that it will
//! be loaded because of us, it is trimmed, and unloaded unless somebody uses it by then. Nothing is begun by one who
//! leads no more; only what was loaded is unloaded all the same, for a broker may delete what is left loaded.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::sleep;

use super::super::plan::strain::Source;
use super::super::plan::trim::{Gain, NEEDED, Policy, Verdict};
use super::super::state::StateError;
use super::super::state::visits::Visit;
use super::cursors::Ask;
use super::gate::NoTurn;
use super::walk::{Candidate, Topic};
use super::{After, Done, Pass, TopicTrim, TrimError, at, lock};
use crate::cluster::broker::{BrokerError, InfoLedger, TopicName};
use crate::cluster::pulsar::Node;
use crate::cluster::store::StoreError;
use crate::report;

/// Between two looks at a list that is to become shorter.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a topic without subscriptions is kept loaded for that: brokers delete such topics, by default after a minute
/// without a producer, and look for them each minute.
const PATIENCE_ALONE: Duration = Duration::from_secs(5);

const CHANGED: &str = "there is nothing to be gained any more";
const KEPT: &str = "the topic's own policies keep it";
const LOADED: &str = "it was loaded meanwhile";
const ENDED: &str = "the pass ended before its turn";
pub(super) const NO_LEADER: &str = "it leads no more";
const NOT_READ: &str = "what applies to it cannot be read";

const NOT_TOLD: &str =
    "its broker does not tell what it keeps of the topic, and its namespace does not say it";

/// None where the broker knows no such thing.
fn told<T>(answer: Result<T, BrokerError>) -> Result<Option<T>, BrokerError> {
    match answer {
        Ok(told) => Ok(Some(told)),
        Err(
            BrokerError::NotFound { .. }
            | BrokerError::NotAllowed { .. }
            | BrokerError::Garbage { .. },
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What came of the order to trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// It was done.
    Done,
    /// It was not, and nothing was loaded.
    Refused,
    /// The topic may be loaded.
    Unknown,
}

impl Pass<'_> {
    /// Unloads what a pass before left loaded.
    pub(super) async fn catch_up(&self) -> Result<(), TrimError> {
        for (node, mut visit) in self.state.loaded_by_us()? {
            let Some(name) = self.name(&node) else {
                // Of another cluster.
                continue;
            };
            if !self.is_leader() {
                return Ok(());
            }
            let (after, obstacle) = match self.gate.is_loaded(&name) {
                true => self.leave(&name).await,
                false => (After::Unloaded, None),
            };
            visit.loaded_by_us = after == After::StillLoaded;
            self.state.put_visit(&node, &visit)?;
            lock(&self.results).push(TopicTrim {
                topic: name,
                found: None,
                done: Done::CaughtUp(after),
                gained: 0,
                ledgers: 0,
                obstacle,
            });
        }
        Ok(())
    }

    pub(super) async fn deal_with(&self, candidate: &Candidate) -> TopicTrim {
        let mut result = TopicTrim {
            topic: candidate.name.clone(),
            found: Some(candidate.gain),
            done: Done::Found,
            gained: 0,
            ledgers: 0,
            obstacle: None,
        };
        self.question().await;
        let (topic, gain) = match self.look_again(candidate).await {
            Ok(Ok(found)) => found,
            Ok(Err(why)) => {
                result.done = Done::Left(why);
                return result;
            }
            Err(why) => {
                result.done = Done::Left(NOT_READ);
                result.obstacle = Some(why);
                return result;
            }
        };
        result.found = Some(gain);
        if self.leader.is_none() {
            return result;
        }
        match self.turn(&candidate.name).await {
            Ok(()) => {}
            Err(NoTurn::Loaded) => {
                result.done = Done::Left(LOADED);
                return result;
            }
            Err(NoTurn::Stopped) => {
                result.done = Done::Left(ENDED);
                return result;
            }
        }
        if let Err(error) = self.visit(candidate, &topic, &gain, &mut result).await {
            self.gate.stop(report::text(&TrimError::State(error)));
        }
        result
    }

    /// What applies to the topic, by its broker, and what it has now.
    async fn look_again(
        &self,
        candidate: &Candidate,
    ) -> Result<Result<(Topic, Gain), &'static str>, String> {
        let applied = self.applied(candidate).await;
        let policy = match applied.map_err(|error| report::text(&error))? {
            Ok(policy) => policy,
            Err(why) => return Ok(Err(why)),
        };
        let store = &*self.cluster.pulsar.store;
        let (bytes, stat) = match store.get(&candidate.node).await {
            Err(StoreError::NoNode) => return Ok(Err(CHANGED)),
            other => at(&candidate.node, other).map_err(|error| report::text(&error))?,
        };
        let Ok(Node::Topic(list)) = Node::decode(&bytes) else {
            return Ok(Err(CHANGED));
        };
        let topic = Topic { list, stat };
        let weighed = self
            .weigh(&candidate.node, &topic, policy, Ask::Bookies)
            .await;
        match weighed.map_err(|error| report::text(&error))? {
            Verdict::Visit(gain) => Ok(Ok((topic, gain))),
            Verdict::Leave(why @ NEEDED) => Ok(Err(why)),
            Verdict::Leave(_) if policy == candidate.namespace.policy => Ok(Err(CHANGED)),
            Verdict::Leave(_) => Ok(Err(KEPT)),
        }
    }

    /// What applies to the topic, its own policies first. A broker that does not tell is one that knows no policies of topics, or
    /// no such question: then what the namespace says itself holds for what is kept, which the broker looks at once more when
    /// it trims. It does not hold for the time to live: to have messages expired is our order, and who does not know
    /// that the topic has no longer one does not give it.
    async fn applied(
        &self,
        candidate: &Candidate,
    ) -> Result<Result<Policy, &'static str>, BrokerError> {
        let Candidate {
            name, namespace, ..
        } = candidate;
        if name.is_of_old() {
            return Ok(Ok(namespace.policy));
        }
        let kept = told(self.brokers.retention(name).await)?;
        let ttl = told(self.brokers.ttl(name).await)?.flatten();
        let policy = match kept {
            Some(Some(kept)) => Policy::of(kept.minutes, kept.megabytes, ttl),
            Some(None) => Policy::of(0, 0, ttl),
            None if namespace.is_said => Policy {
                ttl: Policy::of(0, 0, ttl).ttl,
                ..namespace.policy
            },
            None => return Ok(Err(NOT_TOLD)),
        };
        Ok(Ok(policy))
    }

    async fn visit(
        &self,
        candidate: &Candidate,
        topic: &Topic,
        gain: &Gain,
        result: &mut TopicTrim,
    ) -> Result<(), StateError> {
        let Candidate { name, node, .. } = candidate;
        let before = match self.ledgers(name).await {
            Ok(before) => before,
            Err(why) => {
                result.done = Done::Left(NOT_READ);
                result.obstacle = Some(why);
                return Ok(());
            }
        };
        let now = self.now();
        let mut visit = self.state.visit(node)?.unwrap_or(Visit {
            first: now,
            ..Visit::default()
        });
        visit.last = now;
        visit.visits += 1;
        visit.loaded_by_us = true;
        self.state.put_visit(node, &visit)?;
        let order = self.trim(name, gain, result).await;
        if order == Order::Refused {
            result.done = match self.is_leader() {
                true => Done::Refused,
                false => Done::Left(ENDED),
            };
            visit.loaded_by_us = false;
            visit.fruitless = visit.fruitless.saturating_add(1);
            return self.state.put_visit(node, &visit);
        }
        let trimmed = order == Order::Done;
        if trimmed {
            let alone = topic.stat.children == 0;
            let gone = self.gone(name, &before, gain, alone).await;
            result.ledgers = gone.len() as u64;
            result.gained = gone.iter().map(|ledger| ledger.size).sum();
        }
        let (after, obstacle) = self.leave(name).await;
        result.done = Done::Visited(after);
        result.obstacle = result.obstacle.take().or(obstacle);
        visit.loaded_by_us = after == After::StillLoaded;
        visit.started = trimmed && gain.starts;
        visit.gained = visit.gained.saturating_add(result.gained);
        visit.fruitless = match result.ledgers == 0 && !visit.started {
            true => visit.fruitless.saturating_add(1),
            false => 0,
        };
        self.state.put_visit(node, &visit)
    }

    /// Gives the orders, as long as they are ours to give.
    async fn trim(&self, name: &TopicName, gain: &Gain, result: &mut TopicTrim) -> Order {
        let mut loaded = false;
        if let Some(seconds) = gain.expire
            && self.is_leader()
        {
            loaded = true;
            if let Err(error) = self.brokers.expire(name, seconds).await {
                result.obstacle = Some(report::text(&error));
            }
        }
        if !self.is_leader() {
            self.gate.stop(NO_LEADER.to_owned());
            result.obstacle = Some(NO_LEADER.to_owned());
            return if loaded {
                Order::Unknown
            } else {
                Order::Refused
            };
        }
        let Err(error) = self.brokers.trim(name).await else {
            return Order::Done;
        };
        result.obstacle = Some(report::text(&error));
        if matches!(error, BrokerError::Unauthorized { .. }) {
            self.gate
                .stop("the brokers do not know our token".to_owned());
        }
        // What they say before they load anything.
        let refused = matches!(
            error,
            BrokerError::Unauthorized { .. }
                | BrokerError::Forbidden { .. }
                | BrokerError::NotAllowed { .. }
                | BrokerError::NotFound { .. }
                | BrokerError::Stranger { .. }
        );
        match refused && !loaded {
            true => Order::Refused,
            false => Order::Unknown,
        }
    }

    /// The ledgers in a topic's list; also says how fast brokers answer.
    async fn ledgers(&self, name: &TopicName) -> Result<Vec<InfoLedger>, String> {
        let asked = self.clock.elapsed();
        let answer = self.brokers.ledgers(name).await;
        let took = self.clock.elapsed().saturating_sub(asked);
        self.gate.answered(Source::Broker, took);
        answer.map_err(|error| report::text(&error))
    }

    /// What the list has less. The empty ledger at its end is another one after each visit and counts for nothing.
    async fn gone(
        &self,
        name: &TopicName,
        before: &[InfoLedger],
        gain: &Gain,
        alone: bool,
    ) -> Vec<InfoLedger> {
        let patience = match (gain.ledgers, alone) {
            (0, _) => Duration::ZERO,
            (_, true) => self.options.patience.min(PATIENCE_ALONE),
            (_, false) => self.options.patience,
        };
        let mut waited = Duration::ZERO;
        loop {
            let after = self.ledgers(name).await.unwrap_or_else(|_| before.to_vec());
            let kept: HashSet<_> = after.iter().map(|ledger| ledger.ledger_id).collect();
            let is_gone =
                |ledger: &&InfoLedger| 0 < ledger.entries && !kept.contains(&ledger.ledger_id);
            let gone: Vec<_> = before.iter().filter(is_gone).copied().collect();
            if !gone.is_empty() || patience <= waited || !self.is_leader() {
                return gone;
            }
            sleep(LOOK_EVERY).await;
            waited += LOOK_EVERY;
        }
    }

    /// Unloads a topic that we loaded, unless somebody uses it.
    async fn leave(&self, name: &TopicName) -> (After, Option<String>) {
        let failed = |error: BrokerError| match error {
            BrokerError::NotFound { .. } => (After::Gone, None),
            error => (After::StillLoaded, Some(report::text(&error))),
        };
        match self.brokers.usage(name).await {
            Ok(usage) if !usage.is_none() => (After::InUse, None),
            Ok(_) => match self.brokers.unload(name).await {
                Ok(()) => (After::Unloaded, None),
                Err(error) => failed(error),
            },
            Err(error) => failed(error),
        }
    }
}
