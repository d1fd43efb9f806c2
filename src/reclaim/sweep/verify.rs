//! Reads everything around one marked ledger once more: its owner by its own word in every cluster, the owner that was
//! seen with it, their cursors, and for R4 the namespace. What comes of it is either what speaks against the deletion, or
//! the versions at which nothing did. Where an owner is absent there is no version that a transaction could check: there
//! the age of the ledger and two scans carry it, and a last look right before.

use std::collections::BTreeSet;

use super::names::Names;
use crate::cluster::ledger::{LedgerMetadata, LedgerState};
use crate::cluster::store::{Op, Stat, StoreError, get_all};
use crate::reclaim::acting::{Acting, Candidate, LastScan, Stop, at};
use crate::reclaim::name;
use crate::reclaim::plan::class::{Class, Facts, Maker, Named, Owner, Verdict, classify};
use crate::reclaim::scan::Pulsar;
use crate::reclaim::state::marks::{Evidence, Mark};

/// Nodes whose versions one transaction checks: with the longest names that Pulsar allows they stay below the megabyte
/// that ZooKeeper takes.
const MOST_CHECKS: usize = 1000;

/// What the second look came to.
#[derive(Debug)]
pub(super) enum Look {
    /// Nothing speaks against it.
    Clear(Clear),
    /// The mark is wrong.
    Against(String),
    /// Not now.
    NotNow(String),
}

/// The state of the cluster in which a ledger may be deleted.
#[derive(Debug, Default)]
pub(super) struct Clear {
    /// That the nodes that were read have not changed.
    pub(super) checks: Vec<Op>,
    /// Nodes that were not there: the number of the cluster, and the path with its root.
    absent: Vec<(usize, String)>,
    /// Children that nodes had.
    children: Vec<(usize, String, BTreeSet<String>)>,
}

/// Gathers what is read.
struct Looking<'a> {
    acting: &'a Acting<'a>,
    mark: &'a Mark,
    allow_unchecked: bool,
    clear: Clear,
    names: Names,
    /// Nodes of owners that are there, and of those the ones that say something: one without data may be a topic that
    /// lists nothing, or a folder.
    there: (usize, usize),
}

/// Looks. The ledger's own node was read before.
pub(super) async fn look(
    acting: &Acting<'_>,
    last: &LastScan,
    mark: &Mark,
    candidate: &Candidate,
    node: (&[u8], &Stat),
    allow_unchecked: bool,
) -> Result<Look, Stop> {
    let mut looking = Looking {
        acting,
        mark,
        allow_unchecked,
        clear: Clear::default(),
        names: Names::default(),
        there: (0, 0),
    };
    if let Some(answer) = looking.unchecked(candidate) {
        return Ok(answer);
    }
    // The store of the ledgers was settled right before.
    let elsewhere = |pulsar: &&Pulsar| !acting.is_beside_ledgers(pulsar);
    for pulsar in acting.pulsars.iter().filter(elsewhere) {
        let top = format!("{}/managed-ledgers", pulsar.root);
        acting.settle(&*pulsar.store, &top).await?;
    }
    let tree = match candidate.maker {
        Maker::Schema => "/schemas",
        _ => "/managed-ledgers",
    };
    let own_path = format!("{tree}/{}", candidate.owner);
    let mut namespace = false;
    for (number, pulsar) in acting.pulsars.iter().enumerate() {
        if let Some(answer) = looking.owner(number, pulsar, &own_path).await? {
            return Ok(answer);
        }
        if mark.class == Class::NoOwner {
            for name in name::namespaces(&candidate.owner) {
                let path = format!("{}/admin/policies/{name}", pulsar.root);
                namespace |= at(&path, pulsar.store.stat(&path).await)?.is_some();
            }
        }
    }
    let own = looking.there;
    if let Some((key, _)) = &candidate.witness
        && key.path != own_path
    {
        let number = usize::from(key.cluster);
        let Some(pulsar) = acting.pulsars.get(number) else {
            let why = "its owner's cluster is not declared any more";
            return Ok(Look::NotNow(why.to_owned()));
        };
        if let Some(answer) = looking.owner(number, pulsar, &key.path).await? {
            return Ok(answer);
        }
    }
    let looked = looking.judge(last, candidate, node, own, namespace)?;
    Ok(match written(acting, mark, candidate, node.0).await {
        Some(why) if matches!(looked, Look::Clear(_)) => Look::NotNow(why),
        _ => looked,
    })
}

/// Why one that is not closed, and was never seen to be named, may be in use: a broker that runs names it at its next chance.
async fn written(
    acting: &Acting<'_>,
    mark: &Mark,
    candidate: &Candidate,
    bytes: &[u8],
) -> Option<String> {
    let metadata = LedgerMetadata::decode(bytes).ok()?;
    let is_unseen = matches!(mark.class, Class::NeverListed | Class::NoOwner);
    if !is_unseen || metadata.state == LedgerState::Closed {
        return None;
    }
    let Some(entries) = acting.entries else {
        let why = "it is not closed, and nobody asks the bookies whether it is written";
        return Some(why.to_owned());
    };
    match entries.last_add_confirmed(mark.id, &metadata).await {
        Ok(now) if candidate.lac == Some(now) => None,
        Ok(_) => Some("entries were added to it since it was suspected first".to_owned()),
        Err(error) => Some(format!(
            "it is not closed, and whether it is written is not known: {error}"
        )),
    }
}

impl Looking<'_> {
    /// Why nothing may be said where no transaction can check it.
    fn unchecked(&self, candidate: &Candidate) -> Option<Look> {
        let is_elsewhere = |pulsar: &Pulsar| !self.acting.is_beside_ledgers(pulsar);
        let refused = match &candidate.witness {
            Some((key, _)) => self
                .acting
                .pulsars
                .get(usize::from(key.cluster))
                .is_none_or(is_elsewhere),
            None => self.acting.pulsars.iter().any(is_elsewhere),
        };
        (refused && !self.allow_unchecked).then(not_checkable)
    }

    /// One owner and its children.
    async fn owner(
        &mut self,
        number: usize,
        pulsar: &Pulsar,
        path: &str,
    ) -> Result<Option<Look>, Stop> {
        let full = format!("{}{path}", pulsar.root);
        let (bytes, stat) = match pulsar.store.get(&full).await {
            Ok(found) => found,
            Err(StoreError::NoNode) => {
                self.clear.absent.push((number, full));
                return Ok(None);
            }
            Err(source) => return at(&full, Err(source)),
        };
        self.there.0 += 1;
        self.there.1 += usize::from(!bytes.is_empty());
        if let Some(answer) = self.node(pulsar, path, &bytes, &stat) {
            return Ok(Some(answer));
        }
        let children = match pulsar.store.children(&full).await {
            Err(StoreError::NoNode) => Vec::new(),
            other => at(&full, other)?,
        };
        if MOST_CHECKS < children.len() + self.clear.checks.len() {
            let why = format!(
                "{path} has {} children, more than one transaction can check",
                children.len()
            );
            return Ok(Some(Look::NotNow(why)));
        }
        let paths: Vec<_> = children
            .iter()
            .map(|name| format!("{full}/{name}"))
            .collect();
        let read = at(&full, get_all(&*pulsar.store, &paths).await)?;
        for (name, node) in children.iter().zip(read) {
            // A cursor that went meanwhile names nothing; the list of children will be another one.
            if let Some((bytes, stat)) = node
                && let Some(answer) = self.node(pulsar, &format!("{path}/{name}"), &bytes, &stat)
            {
                return Ok(Some(answer));
            }
        }
        let children = children.into_iter().collect();
        self.clear.children.push((number, full, children));
        Ok(None)
    }

    fn node(&mut self, pulsar: &Pulsar, path: &str, bytes: &[u8], stat: &Stat) -> Option<Look> {
        let named = match Names::of(path, bytes) {
            Ok(named) => named,
            Err(error) => return Some(Look::NotNow(format!("{path}: {error}"))),
        };
        if named.hard.contains(&self.mark.id) {
            return Some(Look::Against(format!("{path} names it")));
        }
        self.names.moved.extend(named.moved);
        self.names.positions.extend(named.positions);
        self.names.more |= named.more;
        let is_witness =
            path == self.mark.owner.path && Some(stat.created) == self.mark.owner.created;
        if let Evidence::LetGo { to, .. } = self.mark.evidence
            && is_witness
            && stat.version < to
        {
            let why = format!("{path} is older than it was: was the store set back?");
            return Some(Look::Against(why));
        }
        if self.acting.is_beside_ledgers(pulsar) {
            self.clear.checks.push(Op::Check {
                path: format!("{}{path}", pulsar.root),
                version: stat.version,
            });
            None
        } else if self.allow_unchecked {
            None
        } else {
            Some(not_checkable())
        }
    }

    /// Once more what a ledger is to whom, by what is there now.
    fn judge(
        self,
        last: &LastScan,
        candidate: &Candidate,
        (bytes, stat): (&[u8], &Stat),
        (there, telling): (usize, usize),
        namespace: bool,
    ) -> Result<Look, Stop> {
        if let Err(error) = LedgerMetadata::decode(bytes) {
            return Ok(Look::Against(error.to_string()));
        }
        let names = &self.names;
        let named = if names.moved.contains(&self.mark.id) {
            Named::AsMoved
        } else if names.positions.contains(&self.mark.id) {
            Named::ByPosition
        } else {
            Named::Not
        };
        let facts = |owner| Facts {
            maker: candidate.maker,
            named,
            owner,
            all_read: !names.more,
            all_clusters: last.all_clusters,
            namespace,
            // The scan has looked into it; whether it is so still is asked afterwards.
            is_written: false,
            witness: candidate.witness.as_ref().map(|(_, witness)| *witness),
            made: stat.created_at,
            suspected: Some((candidate.first, candidate.scans)),
            now: self.acting.now(),
        };
        let judged = |owner| classify(&facts(owner), self.acting.rules);
        let judged = match (there, telling) {
            (0, _) => judged(Owner::Absent),
            // It may be either, and the scan had to take it for one of them.
            (_, 0) if judged(Owner::Absent).0 == self.mark.class => judged(Owner::Absent),
            _ => judged(Owner::Present),
        };
        Ok(match judged {
            (class, Verdict::Deletable) if class == self.mark.class => Look::Clear(self.clear),
            (class, Verdict::Deletable) => {
                let was = self.mark.class;
                Look::Against(format!(
                    "its class is {class}, by a look right now, and was {was}"
                ))
            }
            (Class::Compacted | Class::Schema, Verdict::Keep(why)) => Look::NotNow(why.to_owned()),
            (_, Verdict::Keep(why)) => Look::Against(why.to_owned()),
            (_, Verdict::Wait(why)) => Look::NotNow(why.to_owned()),
        })
    }
}

fn not_checkable() -> Look {
    let why = "its owner is in another store, where no transaction can check it: --allow-unchecked";
    Look::NotNow(why.to_owned())
}

impl Clear {
    /// A last look at what no version says: that what was absent still is, and that no child came or went. Says what
    /// changed.
    pub(super) async fn changed(&self, acting: &Acting<'_>) -> Result<Option<String>, Stop> {
        let absent = self.absent.iter().map(|(number, _)| number);
        let present = self.children.iter().map(|(number, ..)| number);
        for number in absent.chain(present).collect::<BTreeSet<_>>() {
            if let Some(pulsar) = acting.pulsars.get(*number) {
                let top = format!("{}/managed-ledgers", pulsar.root);
                acting.settle(&*pulsar.store, &top).await?;
            }
        }
        for (number, path, before) in &self.children {
            let Some(pulsar) = acting.pulsars.get(*number) else {
                continue;
            };
            let now = match pulsar.store.children(path).await {
                Err(StoreError::NoNode) => Vec::new(),
                other => at(path, other)?,
            };
            if *before != now.into_iter().collect() {
                return Ok(Some(format!("{path} has other children than a moment ago")));
            }
        }
        for (number, path) in &self.absent {
            let Some(pulsar) = acting.pulsars.get(*number) else {
                continue;
            };
            if at(path, pulsar.store.stat(path).await)?.is_some() {
                return Ok(Some(format!("{path} was made a moment ago")));
            }
        }
        Ok(None)
    }
}
