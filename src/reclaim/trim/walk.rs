//! Finds the topics that seem worth a visit, with as few reads as it takes: policies of a namespace first, then the list,
//! and cursors and the last ledger only where the answer depends on them.

use std::cmp::Reverse;
use std::time::Duration;

use serde::Deserialize;

use super::super::plan::Millis;
use super::super::plan::trim::{
    EMPTY, FOR_EVER, Facts, Gain, Last, Policy, Slowest, Verdict, is_due, judge,
};
use super::super::state::position::Behind;
use super::cursors::Ask;
use super::folders::Rest;
use super::visit::NO_LEADER;
use super::{Pass, TrimError, TrimPass, at};
use crate::cluster::broker::TopicName;
use crate::cluster::ledger::{LedgerMetadata, LedgerState};
use crate::cluster::pulsar::Node;
use crate::cluster::store::{Stat, StoreError, children_if_any, get_all};

/// Nodes read in one go: some seconds of work at the usual pace.
pub(super) const BATCH: usize = 512;

/// After so long the candidates so far are visited, and it is remembered that they were: what is lost by a kill is a
/// minute of reading.
const SLICE_TIME: Duration = Duration::from_secs(60);

/// Unreadable nodes that are named; more say nothing new.
const MOST_UNREADABLE: usize = 100;

pub(super) const TOPICS: &str = "/managed-ledgers";

const LOADED: &str = "it is loaded, and its broker trims it";
const SYSTEM: &str = "it is Pulsar's own";
const NO_POLICIES: &str = "its namespace has no policies";
const DELETED: &str = "its namespace is being deleted";
const DAMAGED: &str = "the policies of its namespace cannot be understood";
const RESTS: &str = "it was visited not long ago";
const NO_NAME: &str = "its name is none that a broker can be asked by";
const NOT_WANTED: &str = "it was not asked for";

/// A topic that seems worth a visit.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) name: TopicName,
    /// The path of its node.
    pub(super) node: String,
    pub(super) namespace: Namespace,
    pub(super) gain: Gain,
}

/// What a namespace says is kept of its topics.
#[derive(Debug, Clone, Copy)]
pub(super) struct Namespace {
    pub(super) policy: Policy,
    /// It says so itself. What the broker assumes otherwise is not written anywhere.
    pub(super) is_said: bool,
}

/// A topic's node, read.
pub(super) struct Topic {
    pub(super) list: crate::cluster::pulsar::ManagedLedger,
    pub(super) stat: Stat,
}

/// `/admin/policies/<tenant>/<namespace>`, as far as it matters.
#[derive(Deserialize)]
struct Policies {
    #[serde(default)]
    retention_policies: Option<Kept>,
    #[serde(default)]
    message_ttl_in_seconds: Option<i64>,
    #[serde(default)]
    deleted: bool,
}

#[derive(Deserialize)]
struct Kept {
    #[serde(rename = "retentionTimeInMinutes")]
    minutes: i64,
    #[serde(rename = "retentionSizeInMB")]
    megabytes: i64,
}

impl Pass<'_> {
    /// The next candidates, the largest first: of so many topics as are remembered to be dealt with at a time.
    pub(super) async fn slice(
        &self,
        rest: &mut Rest,
        found: &mut TrimPass,
    ) -> Result<Vec<Candidate>, TrimError> {
        let began = self.clock.elapsed();
        let mut candidates = Vec::new();
        let is_enough = |candidates: &Vec<Candidate>| {
            self.options.slice.max(1) <= candidates.len()
                || SLICE_TIME <= self.clock.elapsed() - began
        };
        while !is_enough(&candidates) {
            if self.leader.is_some() && !self.is_leader() {
                self.gate.stop(NO_LEADER.to_owned());
                break;
            }
            if rest.names.is_empty() && !self.next_folder(rest, found).await? {
                rest.is_done = true;
                break;
            }
            self.some(rest, found, &mut candidates).await?;
        }
        candidates.sort_by_key(|candidate| Reverse(all_of(&candidate.gain)));
        Ok(candidates)
    }

    /// Opens the next folder in which there may be candidates; none is left if it says no.
    async fn next_folder(&self, rest: &mut Rest, found: &mut TrimPass) -> Result<bool, TrimError> {
        rest.current = None;
        let Some(folder) = rest.folders.pop_front() else {
            return Ok(false);
        };
        let skip = rest.skip.take();
        rest.behind = Some(Behind {
            folder: folder.below.clone(),
            topic: skip.clone(),
        });
        // Its name has a domain: it is a folder of topics.
        let namespace = folder.below.rsplit_once('/').map_or("", |(above, _)| above);
        match self.namespace(namespace).await? {
            Err(why) => {
                let count = u64::from(folder.children);
                *found.skipped.entry(why).or_default() += count;
                self.progress
                    .send_modify(|progress| progress.topics += count);
                rest.behind = Some(Behind {
                    folder: folder.below,
                    topic: None,
                });
            }
            Ok(namespace) => {
                let path = self.path(&folder.below);
                let store = &*self.cluster.pulsar.store;
                let mut names = at(&path, children_if_any(store, &path).await)?;
                names.retain(|name| skip.as_ref().is_none_or(|skip| skip < name));
                names.sort_unstable();
                rest.names = names.into();
                rest.current = Some((folder.below, namespace));
            }
        }
        Ok(true)
    }

    /// Reads a few topics of the folder.
    async fn some(
        &self,
        rest: &mut Rest,
        found: &mut TrimPass,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), TrimError> {
        let Some((folder, namespace)) = &rest.current else {
            return Ok(());
        };
        let store = &*self.cluster.pulsar.store;
        let count = BATCH.min(self.options.slice.max(1)).min(rest.names.len());
        let some: Vec<_> = rest.names.drain(..count).collect();
        let below: Vec<_> = some.iter().map(|name| format!("{folder}/{name}")).collect();
        let paths: Vec<_> = below.iter().map(|below| self.path(below)).collect();
        let read = at(&self.path(folder), get_all(store, &paths).await)?;
        for (below, node) in below.iter().zip(read) {
            let Some((bytes, stat)) = node else { continue };
            let judged = match TopicName::of_node(below) {
                Some(name) => self.topic(&name, &bytes, stat, *namespace, found).await?,
                None => Err(NO_NAME),
            };
            self.progress.send_modify(|progress| {
                progress.topics += 1;
                progress.candidates += u64::from(judged.is_ok());
            });
            match judged {
                Ok(candidate) => candidates.push(candidate),
                Err(why) => *found.skipped.entry(why).or_default() += 1,
            }
        }
        if let Some(last) = some.into_iter().next_back() {
            rest.behind = Some(Behind {
                folder: folder.clone(),
                topic: Some(last),
            });
        }
        Ok(())
    }

    /// The topic of a node's path.
    pub(super) fn name(&self, node: &str) -> Option<TopicName> {
        let below = node.strip_prefix(&self.path(""))?.strip_prefix('/')?;
        TopicName::of_node(below)
    }

    /// What a namespace says is kept, or why none of its topics is a candidate. What it does not say is assumed to be as
    /// little as can be: the broker is asked before a visit.
    async fn namespace(
        &self,
        namespace: &str,
    ) -> Result<Result<Namespace, &'static str>, TrimError> {
        let path = format!("{}/admin/policies/{namespace}", self.cluster.pulsar.root);
        let bytes = match self.cluster.pulsar.store.get(&path).await {
            Err(StoreError::NoNode) => return Ok(Err(NO_POLICIES)),
            other => at(&path, other)?.0,
        };
        let Ok(policies) = serde_json::from_slice::<Policies>(&bytes) else {
            return Ok(Err(DAMAGED));
        };
        if policies.deleted {
            return Ok(Err(DELETED));
        }
        let kept = policies.retention_policies;
        let (minutes, megabytes) = kept
            .as_ref()
            .map_or((0, 0), |kept| (kept.minutes, kept.megabytes));
        let ttl = policies.message_ttl_in_seconds;
        let ttl = ttl.and_then(|ttl| u64::try_from(ttl).ok());
        let policy = Policy::of(minutes, megabytes, ttl.filter(|ttl| 0 < *ttl));
        Ok(match policy.time.is_none() && policy.size.is_none() {
            true => Err(FOR_EVER),
            false => Ok(Namespace {
                policy,
                is_said: kept.is_some(),
            }),
        })
    }

    async fn topic(
        &self,
        name: &TopicName,
        bytes: &[u8],
        stat: Stat,
        namespace: Namespace,
        found: &mut TrimPass,
    ) -> Result<Result<Candidate, &'static str>, TrimError> {
        let topics = &self.options.topics;
        if !topics.is_empty() && !topics.iter().any(|topic| topic == name.as_str()) {
            return Ok(Err(NOT_WANTED));
        }
        if name.is_of_system() {
            return Ok(Err(SYSTEM));
        }
        if self.gate.is_loaded(name) {
            return Ok(Err(LOADED));
        }
        let list = match Node::decode(bytes) {
            Ok(Node::Topic(list)) => list,
            Ok(Node::Empty) => return Ok(Err(EMPTY)),
            Ok(Node::Cursor(_)) | Err(_) => {
                if found.unreadable.len() < MOST_UNREADABLE {
                    found.unreadable.push(name.to_string());
                }
                return Ok(Err("its node cannot be understood"));
            }
        };
        let node = self.path(&name.node());
        let topic = Topic { list, stat };
        let gain = match self
            .weigh(&node, &topic, namespace.policy, Ask::Store)
            .await?
        {
            Verdict::Leave(why) => return Ok(Err(why)),
            Verdict::Visit(gain) => gain,
        };
        let past = self.state.visit(&node)?.map(|visit| visit.past());
        if !is_due(past, &gain, self.now(), self.options.rest) {
            return Ok(Err(RESTS));
        }
        Ok(Ok(Candidate {
            name: name.clone(),
            node,
            namespace,
            gain,
        }))
    }

    pub(super) fn now(&self) -> Millis {
        self.clock.now().wall.0
    }

    /// What a visit would give back. Reads cursors and the last ledger only if there is a gain as far as is known
    /// without them.
    pub(super) async fn weigh(
        &self,
        node: &str,
        topic: &Topic,
        policy: Policy,
        ask: Ask,
    ) -> Result<Verdict, TrimError> {
        let mut facts = Facts {
            list: &topic.list.ledgers,
            last: Last::Unknown,
            slowest: match topic.stat.children {
                0 => Slowest::None,
                _ => Slowest::Unknown,
            },
            policy,
            now: self.now(),
        };
        let min_gain = self.options.min_gain;
        if let leave @ Verdict::Leave(_) = judge(&facts, min_gain) {
            return Ok(leave);
        }
        if let Some(last) = topic.list.ledgers.last() {
            facts.last = self.last(last.id, topic.stat.modified).await?;
        }
        if facts.slowest == Slowest::None {
            return Ok(judge(&facts, min_gain));
        }
        if let leave @ Verdict::Leave(_) = judge(&facts, min_gain) {
            return Ok(leave);
        }
        facts.slowest = self.slowest(node, ask).await?;
        Ok(judge(&facts, min_gain))
    }

    async fn last(&self, id: u64, changed: Millis) -> Result<Last, TrimError> {
        let ledgers = &self.cluster.ledgers;
        let Some(path) = self.layout.path(id) else {
            return Ok(Last::Unknown);
        };
        let path = format!("{}/{path}", ledgers.root);
        let (bytes, stat) = match ledgers.store.get(&path).await {
            Err(StoreError::NoNode) => return Ok(Last::Unknown),
            other => at(&path, other)?,
        };
        let since = stat.modified.max(changed);
        Ok(match LedgerMetadata::decode(&bytes) {
            Err(_) => Last::Open { since },
            Ok(metadata) if metadata.state != LedgerState::Closed => Last::Open { since },
            Ok(metadata) => Last::Closed {
                entries: metadata.last_entry.map_or(0, |last| last.saturating_add(1)),
                length: metadata.length,
                since: stat.modified,
            },
        })
    }
}

/// What both visits of a pair give back.
pub(super) fn all_of(gain: &Gain) -> u64 {
    gain.bytes.saturating_add(gain.later.unwrap_or(0))
}
