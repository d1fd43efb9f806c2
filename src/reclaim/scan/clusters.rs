//! Which Pulsar clusters a scan reads, against those that are known: what is remembered of owners goes by the number of their
//! cluster, and that is its place among those that were declared then. A cluster is known by what it holds: words for it
//! come and go, and the same words may one day lead to another one.

use super::reach::Reach;
use super::{Pulsar, ScanError};
use crate::cluster::store::{MetaStore, Stat, StoreError, children_if_any};
use crate::reclaim::state::scan::Tree;

/// A Pulsar cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulsarId {
    /// The transaction that made its `/managed-ledgers`, and when that was: each cluster makes it once in its life.
    pub key: String,
    /// What it was called last.
    pub name: String,
}

/// Every cluster that any complete scan has read, and that was not said to be no more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownClusters {
    /// Those of the last scan, in the order of their numbers.
    pub read: Vec<PulsarId>,
    /// Those that it did not read: of them nothing new is known since.
    pub left_out: Vec<PulsarId>,
}

impl PulsarId {
    fn of(name: &str, stat: &Stat) -> PulsarId {
        PulsarId {
            key: format!("{:x}-{:x}", stat.created, stat.created_at),
            name: name.to_owned(),
        }
    }

    /// One of a file that did not remember more than names.
    pub(in crate::reclaim) fn named(name: &str) -> PulsarId {
        PulsarId {
            key: name.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Whether it is the one that is read as `now`.
    #[must_use]
    pub fn is(&self, now: &PulsarId) -> bool {
        let only_name = self.key == self.name;
        self.key == now.key || (only_name && is_same(&self.name, &now.name))
    }

    /// It holds the same, and no server is the same by name.
    fn is_moved_to(&self, now: &PulsarId) -> bool {
        self.key == now.key && !self.is_called(&now.name)
    }

    /// Whether what is there now lives, if it is there by another name than before: what was copied holds the same.
    ///
    /// # Errors
    /// As of the store.
    pub async fn is_live_as(&self, now: &PulsarId, pulsar: &Pulsar) -> Result<bool, StoreError> {
        if !self.is_moved_to(now) {
            return Ok(true);
        }
        let brokers = children_if_any(&*pulsar.store, &brokers(pulsar)).await?;
        Ok(!brokers.is_empty())
    }

    /// Whether people call it so.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        is_same(&self.name, name)
    }
}

impl KnownClusters {
    /// None of these may be a copy that was left behind when its cluster moved.
    pub(super) async fn are_live(
        &self,
        now: &[PulsarId],
        pulsars: &[Pulsar],
        reach: &Reach<'_>,
    ) -> Result<(), ScanError> {
        for (now, pulsar) in now.iter().zip(pulsars) {
            let mut all = self.read.iter().chain(&self.left_out);
            let Some(then) = all.find(|one| one.is_moved_to(now)) else {
                continue;
            };
            let brokers = reach.children(&*pulsar.store, &brokers(pulsar)).await?;
            if brokers.is_empty() {
                return Err(ScanError::Copy {
                    cluster: now.name.clone(),
                    before: then.name.clone(),
                });
            }
        }
        Ok(())
    }

    /// What follows from a scan of these, when some are said to be no more.
    pub(in crate::reclaim) fn after(self, now: &[PulsarId], gone: &[String]) -> KnownClusters {
        let all = self.read.into_iter().chain(self.left_out);
        let left_out = all.filter(|one| number(one, now).is_none() && !is_gone(one, gone));
        KnownClusters {
            left_out: left_out.collect(),
            read: now.to_vec(),
        }
    }

    /// All that is known is read, as a complete list has it. A cluster that is left out would be gone with all its
    /// topics, and its ledgers would look as if nobody named them.
    pub(super) fn are_all_in(&self, now: &[PulsarId], gone: &[String]) -> Result<(), ScanError> {
        let mut all = self.read.iter().chain(&self.left_out);
        let missing = all.find(|one| number(one, now).is_none() && !is_gone(one, gone));
        let Some(one) = missing else { return Ok(()) };
        let cluster = one.name.clone();
        match now.iter().any(|other| one.is_called(&other.name)) {
            true => Err(ScanError::Rebuilt { cluster }),
            false => Err(ScanError::NotNamed { cluster }),
        }
    }
}

/// Whether it is said to be no more.
pub(in crate::reclaim) fn is_gone(one: &PulsarId, gone: &[String]) -> bool {
    gone.iter().any(|name| one.is_called(name))
}

/// The number that a cluster has now; none of one that is not read.
pub(in crate::reclaim) fn number(one: &PulsarId, now: &[PulsarId]) -> Option<u16> {
    let at = now.iter().position(|other| one.is(other))?;
    u16::try_from(at).ok()
}

/// Names are `zk://SERVERS=ROOT`. The same cluster has one server at least in both: servers come and go.
fn is_same(one: &str, other: &str) -> bool {
    let parts = |name| str::split_once(name, '=');
    let (Some((servers, root)), Some((others, other_root))) = (parts(one), parts(other)) else {
        return one == other;
    };
    let list = |servers| str::trim_start_matches(servers, "zk://").split(',');
    let is_shared = |server| list(others).any(|other| other == server);
    root == other_root && list(servers).any(is_shared)
}

/// Who these are, each once.
pub(super) async fn identified(
    pulsars: &[Pulsar],
    reach: &Reach<'_>,
) -> Result<Vec<PulsarId>, ScanError> {
    let mut all: Vec<PulsarId> = Vec::new();
    for pulsar in pulsars {
        let top = top(pulsar);
        let Some((_, stat)) = reach.get(&*pulsar.store, &top).await? else {
            return Err(ScanError::NoPulsar {
                cluster: pulsar.name.clone(),
                root: pulsar.root.clone(),
            });
        };
        let one = PulsarId::of(&pulsar.name, &stat);
        if let Some(other) = all.iter().find(|other| other.key == one.key) {
            return Err(ScanError::Twice {
                one: other.name.clone(),
                other: one.name,
            });
        }
        all.push(one);
    }
    Ok(all)
}

/// Who this is; none where there is no Pulsar cluster.
///
/// # Errors
/// As of the store.
pub async fn identity(pulsar: &Pulsar) -> Result<Option<PulsarId>, StoreError> {
    let store: &dyn MetaStore = &*pulsar.store;
    let stat = store.stat(&top(pulsar)).await?;
    Ok(stat.map(|stat| PulsarId::of(&pulsar.name, &stat)))
}

/// Where each broker that lives is registered.
fn brokers(pulsar: &Pulsar) -> String {
    format!("{}/loadbalance/brokers", pulsar.root)
}

fn top(pulsar: &Pulsar) -> String {
    format!("{}{}", pulsar.root, Tree::Topics.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(words: &[&str]) -> Vec<PulsarId> {
        let one = |word: &&str| match word.split_once(' ') {
            Some((key, name)) => PulsarId {
                key: key.to_owned(),
                name: name.to_owned(),
            },
            None => PulsarId::named(word),
        };
        words.iter().map(one).collect()
    }

    #[test]
    fn clusters_are_known_by_what_they_hold() {
        let now = ids(&["1-1 zk://x:1=", "2-2 zk://b:1=/x", "3-3 zk://e:1="]);
        let before = ids(&[
            "3-3 zk://a:1=",
            "9-9 zk://x:1=",
            "zk://d:1,b:1=/x",
            "zk://b:1=",
        ]);
        let numbers: Vec<_> = before.iter().map(|one| number(one, &now)).collect();
        // By another name, another one by the same name, and where only names are remembered.
        assert_eq!(numbers, [Some(2), None, Some(1), None]);
    }

    #[test]
    fn what_is_left_out_stays_known_until_it_is_no_more() {
        let [a, b] = [&ids(&["1-1 zk://a:1="]), &ids(&["2-2 zk://b:1="])];
        let both = [a.as_slice(), b].concat();
        let known = KnownClusters::default().after(&both, &[]).after(a, &[]);
        assert_eq!(
            (known.read.as_slice(), known.left_out.as_slice()),
            (&a[..], &b[..])
        );
        let told = |now: &[PulsarId], gone: &[String]| match known.are_all_in(now, gone) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        let gone = ["zk://b:1,c:1=".to_owned()];
        assert_eq!([told(&both, &[]), told(a, &gone)], ["", ""]);
        assert!(
            told(a, &[]).starts_with("zk://b:1= was read"),
            "{}",
            told(a, &[])
        );
        let rebuilt = ids(&["1-1 zk://a:1=", "8-8 zk://b:1="]);
        assert!(
            told(&rebuilt, &[]).contains("made anew"),
            "{}",
            told(&rebuilt, &[])
        );
        assert_eq!(known.clone().after(a, &gone).left_out, []);
        assert_eq!(known.after(b, &[]).left_out, *a);
    }
}
