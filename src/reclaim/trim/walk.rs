//! Finds the topics that seem worth a visit, with as few reads as it takes: policies of a namespace first, then the list,
//! and cursors and the last ledger only where the answer depends on them.

use super::super::plan::Millis;
use super::super::plan::trim::{
    EMPTY, FOR_EVER, Facts, Gain, Last, Policy, Slowest, Verdict, is_due, judge,
};
use super::{Pass, TrimError, TrimPass, at};
use crate::cluster::broker::TopicName;
use crate::cluster::ledger::{LedgerMetadata, LedgerState};
use crate::cluster::pulsar::{ManagedCursor, Node, Position};
use crate::cluster::store::{Stat, StoreError, children_if_any, get_all};
use serde::Deserialize;

/// Nodes read in one go: some seconds of work at the usual pace.
const BATCH: usize = 512;

/// Folders above a topic: tenant, namespace, domain, and one more for names of old and for what is unknown.
const DEEPEST: usize = 5;

/// Candidates that are kept: a day of visits at the usual pace. The largest stay.
const MOST_CANDIDATES: usize = 100_000;

/// Unreadable nodes that are named; more say nothing new.
const MOST_UNREADABLE: usize = 100;

const TOPICS: &str = "/managed-ledgers";

const LOADED: &str = "it is loaded, and its broker trims it";
const SYSTEM: &str = "it is Pulsar's own";
const NO_POLICIES: &str = "its namespace has no policies";
const DELETED: &str = "its namespace is being deleted";
const DAMAGED: &str = "the policies of its namespace cannot be understood";
const RESTS: &str = "it was visited not long ago";
const NOT_WANTED: &str = "it was not asked for";

/// A topic that seems worth a visit.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) name: TopicName,
    /// The path of its node.
    pub(super) node: String,
    /// By the namespace.
    pub(super) policy: Policy,
    pub(super) gain: Gain,
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

/// A folder to be read, its depth and how many there are in it.
struct Folder {
    below: String,
    depth: usize,
    children: u32,
}

impl Pass<'_> {
    /// The candidates, the largest first, and what else was seen.
    pub(super) async fn walk(&self) -> Result<(Vec<Candidate>, TrimPass), TrimError> {
        let mut found = TrimPass::default();
        let mut candidates = Vec::new();
        let mut folders = vec![Folder {
            below: String::new(),
            depth: 0,
            children: 0,
        }];
        while let Some(folder) = folders.pop() {
            let path = self.path(&folder.below);
            if DEEPEST < folder.depth {
                return Err(TrimError::TooDeep { path });
            }
            let policy = match folder.below.strip_suffix("/persistent") {
                None => None,
                Some(namespace) => match self.policy(namespace).await? {
                    Ok(policy) => Some(policy),
                    Err(why) => {
                        *found.skipped.entry(why).or_default() += u64::from(folder.children);
                        found.topics += u64::from(folder.children);
                        continue;
                    }
                },
            };
            let store = &*self.cluster.pulsar.store;
            let names = at(&path, children_if_any(store, &path).await)?;
            for some in names.chunks(BATCH) {
                let below = |name: &String| match folder.below.as_str() {
                    "" => name.clone(),
                    above => format!("{above}/{name}"),
                };
                let below: Vec<_> = some.iter().map(below).collect();
                let paths: Vec<_> = below.iter().map(|below| self.path(below)).collect();
                let read = at(&path, get_all(store, &paths).await)?;
                for (below, node) in below.into_iter().zip(read) {
                    let Some((bytes, stat)) = node else { continue };
                    if let (Some(policy), Some(name)) = (policy, TopicName::of_node(&below)) {
                        found.topics += 1;
                        match self.topic(&name, &bytes, stat, policy, &mut found).await? {
                            Ok(candidate) => candidates.push(candidate),
                            Err(why) => *found.skipped.entry(why).or_default() += 1,
                        }
                    } else if bytes.is_empty() && 0 < stat.children && self.is_wanted(&below) {
                        folders.push(Folder {
                            below,
                            depth: folder.depth + 1,
                            children: stat.children,
                        });
                    }
                }
                found.left_out += keep_largest(&mut candidates);
                self.tell(&found, candidates.len());
            }
        }
        candidates.sort_by_key(|candidate| std::cmp::Reverse(all_of(&candidate.gain)));
        self.progress.send_modify(|progress| progress.walked = true);
        Ok((candidates, found))
    }

    fn tell(&self, found: &TrimPass, candidates: usize) {
        self.progress.send_modify(|progress| {
            progress.topics = found.topics;
            progress.candidates = candidates as u64;
        });
    }

    pub(super) fn path(&self, below: &str) -> String {
        let root = &self.cluster.pulsar.root;
        match below {
            "" => format!("{root}{TOPICS}"),
            below => format!("{root}{TOPICS}/{below}"),
        }
    }

    /// The topic of a node's path.
    pub(super) fn name(&self, node: &str) -> Option<TopicName> {
        let below = node.strip_prefix(&self.path(""))?.strip_prefix('/')?;
        TopicName::of_node(below)
    }

    /// A folder that something is in which was asked for.
    fn is_wanted(&self, below: &str) -> bool {
        // Topics of Pulsar's own, among them one for each broker.
        if below == "pulsar" {
            return false;
        }
        let leads = |wanted: &str| {
            let longer = |long: &str, short: &str| {
                let rest = long.strip_prefix(short);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            longer(wanted, below) || longer(below, wanted)
        };
        let topics = || {
            self.options
                .topics
                .iter()
                .filter_map(|topic| namespace(topic))
        };
        let namespaces = &self.options.namespaces;
        (namespaces.is_empty() || namespaces.iter().any(|one| leads(one)))
            && (self.options.topics.is_empty() || topics().any(leads))
    }

    /// What a namespace says is kept, or why none of its topics is a candidate. What it does not say is assumed to be as
    /// little as can be: the broker is asked before a visit.
    async fn policy(&self, namespace: &str) -> Result<Result<Policy, &'static str>, TrimError> {
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
        let (minutes, megabytes) = kept.map_or((0, 0), |kept| (kept.minutes, kept.megabytes));
        let ttl = policies.message_ttl_in_seconds;
        let ttl = ttl.and_then(|ttl| u64::try_from(ttl).ok());
        let policy = Policy::of(minutes, megabytes, ttl.filter(|ttl| 0 < *ttl));
        Ok(match policy.time.is_none() && policy.size.is_none() {
            true => Err(FOR_EVER),
            false => Ok(policy),
        })
    }

    async fn topic(
        &self,
        name: &TopicName,
        bytes: &[u8],
        stat: Stat,
        policy: Policy,
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
        let gain = match self.weigh(&node, &topic, policy).await? {
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
            policy,
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
        facts.slowest = self.slowest(node).await?;
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

    /// The slowest of a topic's cursors.
    async fn slowest(&self, node: &str) -> Result<Slowest, TrimError> {
        let store = &*self.cluster.pulsar.store;
        let names = at(node, children_if_any(store, node).await)?;
        let paths: Vec<_> = names.iter().map(|name| format!("{node}/{name}")).collect();
        let mut slowest = None;
        for cursor in at(node, get_all(store, &paths).await)?
            .into_iter()
            .flatten()
        {
            match Node::decode(&cursor.0) {
                Ok(Node::Cursor(ManagedCursor {
                    ledger: None,
                    mark_delete: Some(at),
                    ..
                })) => slowest = Some(slowest.map_or(at, |other: Position| other.min(at))),
                // Its position is in a ledger, or nowhere.
                _ => return Ok(Slowest::Unknown),
            }
        }
        Ok(slowest.map_or(Slowest::None, Slowest::At))
    }
}

/// The first two words of a topic's name: tenant and namespace, or of names of old tenant and cluster.
fn namespace(topic: &str) -> Option<&str> {
    let name = topic.split_once("://")?.1;
    let end = name.match_indices('/').nth(1)?.0;
    Some(&name[..end])
}

/// What both visits of a pair give back.
fn all_of(gain: &Gain) -> u64 {
    gain.bytes.saturating_add(gain.later.unwrap_or(0))
}

/// Forgets the smallest of too many, and says how many.
fn keep_largest(candidates: &mut Vec<Candidate>) -> u64 {
    // Half again, so that it is seldom sorted.
    if candidates.len() < MOST_CANDIDATES + MOST_CANDIDATES / 2 {
        return 0;
    }
    candidates.sort_by_key(|candidate| std::cmp::Reverse(all_of(&candidate.gain)));
    let more = candidates.len() - MOST_CANDIDATES;
    candidates.truncate(MOST_CANDIDATES);
    more as u64
}
