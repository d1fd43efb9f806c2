//! Which ledgers there are, and what each of them says of itself.

use super::reach::Reach;
use super::{BATCH, Ledger, Ledgers, Scan, ScanError};
use crate::cluster::ledger::{Layout, LedgerMetadata};
use crate::cluster::pulsar::Component;
use crate::cluster::store::{READS_AT_ONCE, Stat};
use crate::reclaim::name;
use crate::reclaim::plan::LedgerId;
use crate::reclaim::state::scan::{Folder, Tree};

/// Children of a node that are believed. A folder of ledgers has 10,000, a namespace of Pulsar seldom more; ZooKeeper
/// itself refuses to list more than fit into a megabyte.
const MOST_CHILDREN: usize = 1_000_000;

pub(super) async fn layout(ledgers: &Ledgers, reach: &Reach<'_>) -> Result<Layout, ScanError> {
    let path = ledgers.root.clone();
    match reach
        .get(&*ledgers.store, &format!("{path}/LAYOUT"))
        .await?
    {
        Some((bytes, _)) => {
            Layout::parse(&bytes).map_err(|source| ScanError::Layout { path, source })
        }
        None => Err(ScanError::NoLayout { path }),
    }
}

pub(super) async fn instance(ledgers: &Ledgers, reach: &Reach<'_>) -> Result<String, ScanError> {
    let path = format!("{}/INSTANCEID", ledgers.root);
    let bytes = reach.get(&*ledgers.store, &path).await?;
    let bytes = bytes.map(|(bytes, _)| bytes).unwrap_or_default();
    match String::from_utf8(bytes) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        _ => Err(ScanError::NoInstance {
            path: ledgers.root.clone(),
        }),
    }
}

pub(super) fn limited(path: &str, names: &[String]) -> Result<(), ScanError> {
    if names.len() <= MOST_CHILDREN {
        return Ok(());
    }
    Err(ScanError::TooMany {
        path: path.to_owned(),
        count: names.len(),
        most: MOST_CHILDREN,
    })
}

/// What a ledger's node says of it.
pub(in crate::reclaim) fn ledger(
    id: LedgerId,
    path: &str,
    bytes: &[u8],
    stat: &Stat,
) -> Result<Ledger, ScanError> {
    let metadata = decoded(id, path, bytes)?;
    let (maker, owner) = name::owner(Component::of(&metadata.custom));
    Ok(Ledger {
        id,
        created: stat.created,
        version: stat.version,
        made: stat.created_at,
        length: metadata.length,
        copies: metadata.write_quorum,
        state: metadata.state,
        maker,
        owner,
    })
}

pub(in crate::reclaim) fn decoded(
    id: LedgerId,
    path: &str,
    bytes: &[u8],
) -> Result<LedgerMetadata, ScanError> {
    LedgerMetadata::decode(bytes).map_err(|source| ScanError::Ledger {
        id,
        path: path.to_owned(),
        source,
    })
}

/// Where a ledger's node is.
pub(in crate::reclaim) fn path(ledgers: &Ledgers, layout: Layout, id: LedgerId) -> Option<String> {
    let path = layout.path(id)?;
    Some(format!("{}/{path}", ledgers.root))
}

impl Scan<'_> {
    /// The ids of all ledgers.
    pub(super) async fn list(&mut self) -> Result<(), ScanError> {
        let mut folders = self.first(Tree::Ledgers, 0, READS_AT_ONCE)?;
        while !folders.is_empty() {
            let root = &self.sources.ledgers.root;
            let paths: Vec<_> = folders
                .iter()
                .map(|(folder, _)| format!("{root}{}", folder.path))
                .collect();
            // A folder goes with its last ledger.
            let lists = self
                .reach
                .children_all(&*self.sources.ledgers.store, &paths)
                .await?;
            for (((folder, _), path), names) in folders.into_iter().zip(&paths).zip(lists) {
                limited(path, &names)?;
                for name in names {
                    self.child(&folder, &name);
                }
                self.waiting.done.push(folder);
            }
            self.told(None);
            self.committed()?;
            folders = self.next(Tree::Ledgers, 0, READS_AT_ONCE)?;
        }
        Ok(())
    }

    fn child(&mut self, folder: &Folder, name: &str) {
        let child = format!("{}/{name}", folder.path);
        let below = &child[1..];
        if let Some(id) = self.layout.id(below) {
            self.waiting.ids.push(id);
            self.running.listed += 1;
        } else if self.layout.is_above(below) {
            let below = Folder {
                path: child,
                ..folder.clone()
            };
            self.found.push(below.clone());
            self.waiting.folders.push(below);
        }
    }

    /// What each ledger says of itself; those that went meanwhile are left out.
    pub(super) async fn metadata(&mut self) -> Result<(), ScanError> {
        let ledgers = self.sources.ledgers;
        loop {
            let ids = self.state.listed_after(self.running.after, BATCH)?;
            let Some(last) = ids.last() else {
                return Ok(());
            };
            let layout = self.layout;
            let paths = ids.iter().filter_map(|id| path(ledgers, layout, *id));
            let paths: Vec<_> = paths.collect();
            let read = self.reach.get_all(&*ledgers.store, &paths).await?;
            for ((id, path), node) in ids.iter().zip(&paths).zip(read) {
                match node {
                    Some((bytes, stat)) => {
                        self.waiting.ledgers.push(ledger(*id, path, &bytes, &stat)?);
                        self.running.ledgers += 1;
                    }
                    None => self.waiting.vanished.push(*id),
                }
            }
            self.running.after = Some(*last);
            self.running.read += ids.len() as u64;
            self.told(Some(self.running.listed));
            self.committed()?;
        }
    }
}
