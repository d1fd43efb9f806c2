//! Who names ledgers: every node of Pulsar's trees, whatever its depth.

use super::ledgers::limited;
use super::{BATCH, Hidden, MOST_WAITING, OwnerKey, Pulsar, Reading, Scan, ScanError, Seen};
use crate::cluster::pulsar::{ManagedCursor, ManagedLedger, Node, PulsarError, SchemaLocator};
use crate::cluster::store::{READS_AT_ONCE, Stat};
use crate::reclaim::plan::LedgerId;
use crate::reclaim::state::scan::{Folder, Tree};

/// Folders below a root: a tenant, a namespace, a domain, a topic and a cursor, and one more for old names.
const DEEPEST: u8 = 12;

/// The cursor of a compaction.
pub(in crate::reclaim) const COMPACTION: &str = "__compaction";

/// Stands for every namespace. Pulsar has some from its first day on, but keeps them in its configuration store, which may be
/// another one than that of its topics: where none is seen it is not known which there are.
pub(in crate::reclaim) const ANY_NAMESPACE: &str = "";

/// Where every walk begins.
pub(super) fn tops(pulsars: &[Pulsar]) -> Vec<Folder> {
    let of_ledgers = Folder {
        tree: Tree::Ledgers,
        cluster: 0,
        path: String::new(),
        depth: 0,
    };
    let clusters = (0..).zip(pulsars).flat_map(|(cluster, _)| {
        [Tree::Topics, Tree::Schemas, Tree::Policies].map(|tree| Folder {
            tree,
            cluster,
            path: tree.path().to_owned(),
            depth: 0,
        })
    });
    std::iter::once(of_ledgers).chain(clusters).collect()
}

/// What the data of a node of a tree says, if it names ledgers.
///
/// # Errors
/// It cannot be understood.
pub(in crate::reclaim) fn reading(
    tree: Tree,
    path: &str,
    bytes: &[u8],
) -> Result<Option<Reading>, PulsarError> {
    let mut reading = match tree {
        // A folder has no data.
        Tree::Schemas if bytes.is_empty() => return Ok(None),
        Tree::Schemas => schema(&SchemaLocator::decode(bytes)?),
        Tree::Topics => match Node::decode(bytes)? {
            Node::Empty => return Ok(None),
            Node::Topic(one) => topic(&one),
            Node::Cursor(one) => cursor(path, &one),
        },
        Tree::Ledgers | Tree::Policies => return Ok(None),
    };
    for ids in [
        &mut reading.seen.ledgers,
        &mut reading.moved,
        &mut reading.positions,
    ] {
        ids.sort_unstable();
        ids.dedup();
    }
    Ok(Some(reading))
}

fn schema(locator: &SchemaLocator) -> Reading {
    let hidden = locator
        .oldest
        .filter(|_| !locator.is_whole)
        .map(|at| Hidden::Schema {
            ledger: at.ledger,
            entry: at.entry.unwrap_or(0),
        });
    reading_of(
        locator.positions.iter().map(|at| at.ledger).collect(),
        hidden,
    )
}

fn topic(topic: &ManagedLedger) -> Reading {
    let of = |moved: bool| {
        let some = topic
            .ledgers
            .iter()
            .filter(move |one| one.gone_to_storage == moved);
        some.map(|one| one.id).collect()
    };
    Reading {
        moved: of(true),
        positions: topic.terminated_at.iter().map(|at| at.ledger).collect(),
        ..reading_of(of(false), None)
    }
}

fn cursor(path: &str, cursor: &ManagedCursor) -> Reading {
    let is_compaction = path
        .rsplit_once('/')
        .is_some_and(|(_, name)| name == COMPACTION);
    let mut ledgers = cursor.buckets.clone();
    ledgers.extend(cursor.ledger);
    ledgers.extend(cursor.compacted_ledger);
    Reading {
        positions: cursor.mark_delete.iter().map(|at| at.ledger).collect(),
        ..reading_of(
            ledgers,
            cursor
                .ledger
                .filter(|_| is_compaction)
                .map(Hidden::Compacted),
        )
    }
}

fn reading_of(ledgers: Vec<LedgerId>, hidden: Option<Hidden>) -> Reading {
    Reading {
        seen: Seen {
            ledgers,
            ..Seen::default()
        },
        hidden,
        ..Reading::default()
    }
}

impl Scan<'_> {
    /// Every node of every tree.
    pub(super) async fn owners(&mut self) -> Result<(), ScanError> {
        for tree in [Tree::Topics, Tree::Schemas, Tree::Policies] {
            // One store after the other.
            for (cluster, pulsar) in (0..).zip(self.sources.pulsars) {
                if tree == Tree::Policies {
                    let path = format!("{}{}", pulsar.root, tree.path());
                    let tenants = self.reach.children(&*pulsar.store, &path).await?;
                    let unknown = tenants.is_empty().then(|| ANY_NAMESPACE.to_owned());
                    self.waiting.namespaces.extend(unknown);
                }
                let mut folders = self.first(tree, cluster, BATCH)?;
                while !folders.is_empty() {
                    self.some(pulsar, &folders).await?;
                    folders = self.next(tree, cluster, BATCH)?;
                }
            }
        }
        Ok(())
    }

    /// The children of some of these folders, from where each of them was left.
    async fn some(
        &mut self,
        pulsar: &Pulsar,
        mut folders: &[(Folder, String)],
    ) -> Result<(), ScanError> {
        let mut children = Vec::new();
        let mut listed = 0;
        for some in folders.chunks(READS_AT_ONCE) {
            self.names(pulsar, some, listed, &mut children).await?;
            listed += some.len();
            if MOST_WAITING <= children.len() {
                break;
            }
        }
        self.more |= listed < folders.len();
        folders = &folders[..listed];
        let mut done = 0;
        for some in children.chunks(BATCH) {
            let paths: Vec<_> = some
                .iter()
                .map(|(number, name)| format!("{}{}/{name}", pulsar.root, folders[*number].0.path))
                .collect();
            let read = self.reach.get_all(&*pulsar.store, &paths).await?;
            for ((number, name), node) in some.iter().zip(read) {
                if let Some((bytes, stat)) = node {
                    self.node(pulsar, &folders[*number].0, name, &bytes, &stat)?;
                }
            }
            self.running.nodes += some.len() as u64;
            self.told(None);
            // All folders before the last one of the batch are done, and that one up to here.
            if let Some((number, name)) = some.last() {
                let ready = folders[done..*number].iter();
                self.waiting
                    .done
                    .extend(ready.map(|(folder, _)| folder.clone()));
                done = *number;
                self.waiting
                    .after
                    .push((folders[done].0.clone(), name.clone()));
            }
            self.committed()?;
        }
        let rest = folders[done..].iter();
        self.waiting
            .done
            .extend(rest.map(|(folder, _)| folder.clone()));
        Ok(())
    }

    /// The names of all children that were not read yet, with the number of their folder.
    async fn names(
        &self,
        pulsar: &Pulsar,
        folders: &[(Folder, String)],
        first: usize,
        children: &mut Vec<(usize, String)>,
    ) -> Result<(), ScanError> {
        let paths = folders
            .iter()
            .map(|(folder, _)| format!("{}{}", pulsar.root, folder.path));
        let paths: Vec<_> = paths.collect();
        let lists = self.reach.children_all(&*pulsar.store, &paths).await?;
        for (((number, (folder, after)), path), names) in
            (first..).zip(folders).zip(paths).zip(lists)
        {
            limited(&path, &names)?;
            if DEEPEST < folder.depth && !names.is_empty() {
                return Err(ScanError::TooDeep { path });
            }
            let rest = names.into_iter().filter(|name| after < name);
            children.extend(rest.map(|name| (number, name)));
        }
        Ok(())
    }

    fn node(
        &mut self,
        pulsar: &Pulsar,
        folder: &Folder,
        name: &str,
        bytes: &[u8],
        stat: &Stat,
    ) -> Result<(), ScanError> {
        let path = format!("{}/{name}", folder.path);
        if 0 < stat.children {
            let below = Folder {
                path: path.clone(),
                depth: folder.depth + 1,
                ..folder.clone()
            };
            self.found.push(below.clone());
            self.waiting.folders.push(below);
        }
        if folder.tree == Tree::Policies {
            let below = path[folder.tree.path().len()..].trim_start_matches('/');
            if below.contains('/') {
                self.waiting.namespaces.push(below.to_owned());
            }
            return Ok(());
        }
        let reading = reading(folder.tree, &path, bytes);
        let reading = reading.map_err(|source| ScanError::Owner {
            cluster: pulsar.name.clone(),
            path: path.clone(),
            source,
        })?;
        if let Some(mut reading) = reading {
            reading.seen.created = stat.created;
            reading.seen.version = stat.version;
            let key = OwnerKey {
                cluster: folder.cluster,
                path,
                created: stat.created,
            };
            self.running.owners += 1;
            self.waiting.owners.push((key, reading));
        }
        Ok(())
    }
}
