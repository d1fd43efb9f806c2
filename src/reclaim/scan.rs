//! Reads what ledgers there are, and only then who names them: a ledger that was named at any time after it was
//! found, and still is, is seen to be. Whatever cannot be read or understood ends the scan with one sentence, and
//! a scan that ended so proves nothing. Blocks for as long as the store takes; a million ledgers at 200 reads a second are
//! an hour and a half.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::watch;

use super::name;
use super::plan::class::Maker;
use super::plan::evidence::Seen;
use super::plan::{LedgerId, Millis};
use crate::cluster::ledger::{Layout, LayoutError, LedgerMetadata, LedgerState, MetadataError};
use crate::cluster::pulsar::{Component, Node, PulsarError, SchemaLocator};
use crate::cluster::store::{MetaStore, Stat, StoreError, children_if_any, get_all};

/// Nodes read in one go: some seconds of work at the usual pace, and little to lose.
const BATCH: usize = 512;

/// Children of a node that are believed. A folder of ledgers has 10,000, a namespace of Pulsar seldom more; ZooKeeper
/// itself refuses to list more than fit into a megabyte.
const MOST_CHILDREN: usize = 1_000_000;

/// Folders below a root: a tenant, a namespace, a domain, a topic and a cursor, and one more for old names.
const DEEPEST: usize = 12;

/// Where the ledgers are.
#[derive(Clone)]
pub struct Ledgers {
    /// The store.
    pub store: Arc<dyn MetaStore>,
    /// The ledgers root, e.g. `/ledgers`.
    pub root: String,
}

/// The metadata of a Pulsar cluster.
#[derive(Clone)]
pub struct Pulsar {
    /// What people call it: where it is.
    pub name: String,
    /// The store, which may be another than that of the ledgers.
    pub store: Arc<dyn MetaStore>,
    /// What is before `/managed-ledgers`; often nothing.
    pub root: String,
}

/// An owner: which cluster, which node, and the transaction that made the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerKey {
    /// The cluster's place among those that were declared.
    pub cluster: u16,
    /// The node, from `/managed-ledgers` or `/schemas` on.
    pub path: String,
    /// The transaction that made it.
    pub created: i64,
}

/// A ledger that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// Its number.
    pub id: LedgerId,
    /// The transaction that made its node.
    pub created: i64,
    /// The version of its node.
    pub version: i32,
    /// When its node was made.
    pub made: Millis,
    /// Bytes of all entries, of one copy; 0 while it is not closed.
    pub length: u64,
    /// How many copies of each entry there are.
    pub copies: u32,
    /// Whether it is still written.
    pub state: LedgerState,
    /// Who made it.
    pub maker: Maker,
    /// The owner by its own word, as a path below `/managed-ledgers` or `/schemas`. Shared by all of an owner's.
    pub owner: Arc<str>,
}

/// What a scan found.
#[derive(Debug, Default)]
pub struct Found {
    /// When it began.
    pub began: Millis,
    /// The cluster's id.
    pub instance: String,
    /// Ascending.
    pub ledgers: Vec<Ledger>,
    /// Everybody who names ledgers.
    pub owners: BTreeMap<OwnerKey, Seen>,
    /// Ledgers that positions name.
    pub positions: HashSet<LedgerId>,
    /// Ledgers that lists name as moved to other storage and deleted.
    pub moved: HashSet<LedgerId>,
    /// Topics whose cursor `__compaction` has its newest position in a ledger.
    pub compaction_unknown: HashSet<String>,
    /// Schemas whose older versions are named in ledgers only.
    pub schema_unknown: HashSet<String>,
    /// Every path below `/managed-ledgers` and `/schemas` that is there, of any cluster.
    pub paths: HashSet<String>,
    /// Namespaces that have policies.
    pub namespaces: HashSet<String>,
}

/// How far a scan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// What it does.
    pub step: Step,
    /// Things read in this step.
    pub done: u64,
    /// Things to read, where that is known.
    pub all: Option<u64>,
}

/// The parts of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Step {
    /// Which ledgers there are.
    #[default]
    List,
    /// What each of them says of itself.
    Metadata,
    /// Who names them.
    Owners,
}

/// Why a scan ended without a result.
#[derive(Debug, Error)]
pub enum ScanError {
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
    #[error("{path}/LAYOUT says where ledgers are, and is not there: is {path} the ledgers root?")]
    NoLayout {
        /// The root.
        path: String,
    },
    /// The layout.
    #[error("cannot tell where ledgers are")]
    Layout(#[from] LayoutError),
    /// The cluster's id.
    #[error("{path}/INSTANCEID is not there or no text")]
    NoInstance {
        /// The root.
        path: String,
    },
    /// A ledger.
    #[error("ledger {id} cannot be understood")]
    Ledger {
        /// Which.
        id: LedgerId,
        /// Why.
        #[source]
        source: MetadataError,
    },
    /// An owner.
    #[error("{path} of {cluster} cannot be understood, so it is not known which ledgers it names")]
    Owner {
        /// Which cluster.
        cluster: String,
        /// Which node.
        path: String,
        /// Why.
        #[source]
        source: PulsarError,
    },
    /// Nothing of Pulsar's is there.
    #[error(
        "{cluster} has no /managed-ledgers below {root:?}: is it the metadata of a Pulsar cluster?"
    )]
    NoPulsar {
        /// Which cluster.
        cluster: String,
        /// Its root.
        root: String,
    },
    /// More than can be.
    #[error("{path} has {count} children, more than {MOST_CHILDREN}, or lies too deep")]
    TooMany {
        /// Which node.
        path: String,
        /// How many.
        count: usize,
    },
}

/// Scans a cluster. `began` is now by our clock.
///
/// # Errors
/// Anything could not be read or understood.
pub async fn scan(
    ledgers: &Ledgers,
    pulsars: &[Pulsar],
    began: Millis,
    progress: &watch::Sender<Progress>,
) -> Result<Found, ScanError> {
    let layout = layout(ledgers).await?;
    let mut found = Found {
        began,
        instance: instance(ledgers).await?,
        ..Found::default()
    };
    let ids = list(ledgers, layout, progress).await?;
    found.ledgers = metadata(ledgers, layout, &ids, progress).await?;
    drop(ids);
    let mut reader = Reader {
        found: &mut found,
        progress,
        done: 0,
    };
    for (number, pulsar) in (0..).zip(pulsars) {
        reader.cluster(number, pulsar).await?;
    }
    Ok(found)
}

fn at<T>(path: &str, result: Result<T, StoreError>) -> Result<T, ScanError> {
    result.map_err(|source| ScanError::Store {
        path: path.to_owned(),
        source,
    })
}

async fn layout(ledgers: &Ledgers) -> Result<Layout, ScanError> {
    let path = format!("{}/LAYOUT", ledgers.root);
    match ledgers.store.get(&path).await {
        Ok((bytes, _)) => Ok(Layout::parse(&bytes)?),
        Err(StoreError::NoNode) => Err(ScanError::NoLayout {
            path: ledgers.root.clone(),
        }),
        Err(error) => at(&path, Err(error)),
    }
}

async fn instance(ledgers: &Ledgers) -> Result<String, ScanError> {
    let path = format!("{}/INSTANCEID", ledgers.root);
    let bytes = match ledgers.store.get(&path).await {
        Err(StoreError::NoNode) => Vec::new(),
        other => at(&path, other)?.0,
    };
    match String::from_utf8(bytes) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        _ => Err(ScanError::NoInstance {
            path: ledgers.root.clone(),
        }),
    }
}

/// The ids of all ledgers, ascending.
async fn list(
    ledgers: &Ledgers,
    layout: Layout,
    progress: &watch::Sender<Progress>,
) -> Result<Vec<LedgerId>, ScanError> {
    let mut ids = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = match folder.as_str() {
            "" => ledgers.root.clone(),
            folder => format!("{}/{folder}", ledgers.root),
        };
        // A folder goes with its last ledger.
        let names = at(&path, children_if_any(&*ledgers.store, &path).await)?;
        for name in limited(&path, names)? {
            let child = match folder.as_str() {
                "" => name,
                folder => format!("{folder}/{name}"),
            };
            match layout.id(&child) {
                Some(id) => ids.push(id),
                None if layout.is_above(&child) => folders.push(child),
                None => {}
            }
        }
        progress.send_replace(Progress {
            step: Step::List,
            done: ids.len() as u64,
            all: None,
        });
    }
    ids.sort_unstable();
    Ok(ids)
}

fn limited(path: &str, names: Vec<String>) -> Result<Vec<String>, ScanError> {
    if names.len() <= MOST_CHILDREN {
        return Ok(names);
    }
    Err(ScanError::TooMany {
        path: path.to_owned(),
        count: names.len(),
    })
}

/// What each ledger says of itself; those that went meanwhile are left out.
async fn metadata(
    ledgers: &Ledgers,
    layout: Layout,
    ids: &[LedgerId],
    progress: &watch::Sender<Progress>,
) -> Result<Vec<Ledger>, ScanError> {
    let mut names = HashMap::<String, Arc<str>>::new();
    let mut all = Vec::with_capacity(ids.len());
    for some in ids.chunks(BATCH) {
        let paths = some.iter().filter_map(|id| layout.path(*id));
        let paths: Vec<_> = paths
            .map(|path| format!("{}/{path}", ledgers.root))
            .collect();
        let read = at(&ledgers.root, get_all(&*ledgers.store, &paths).await)?;
        for (id, node) in some.iter().zip(read) {
            if let Some((bytes, stat)) = node {
                all.push(ledger(*id, &bytes, &stat, &mut names)?);
            }
        }
        progress.send_modify(|progress| {
            *progress = Progress {
                step: Step::Metadata,
                done: all.len() as u64,
                all: Some(ids.len() as u64),
            };
        });
    }
    Ok(all)
}

fn ledger(
    id: LedgerId,
    bytes: &[u8],
    stat: &Stat,
    names: &mut HashMap<String, Arc<str>>,
) -> Result<Ledger, ScanError> {
    let metadata =
        LedgerMetadata::decode(bytes).map_err(|source| ScanError::Ledger { id, source })?;
    let (maker, owner) = name::owner(Component::of(&metadata.custom));
    let owner = match names.get(&owner) {
        Some(known) => Arc::clone(known),
        None => Arc::clone(names.entry(owner.clone()).or_insert_with(|| owner.into())),
    };
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

/// Reads who names ledgers.
struct Reader<'a> {
    found: &'a mut Found,
    progress: &'a watch::Sender<Progress>,
    done: u64,
}

/// The trees of a Pulsar cluster.
#[derive(Clone, Copy, PartialEq)]
enum Tree {
    Topics,
    Schemas,
    Policies,
}

impl Tree {
    fn path(self) -> &'static str {
        match self {
            Tree::Topics => "/managed-ledgers",
            Tree::Schemas => "/schemas",
            Tree::Policies => "/admin/policies",
        }
    }
}

impl Reader<'_> {
    async fn cluster(&mut self, number: u16, pulsar: &Pulsar) -> Result<(), ScanError> {
        let top = format!("{}{}", pulsar.root, Tree::Topics.path());
        if at(&top, pulsar.store.stat(&top).await)?.is_none() {
            return Err(ScanError::NoPulsar {
                cluster: pulsar.name.clone(),
                root: pulsar.root.clone(),
            });
        }
        for tree in [Tree::Topics, Tree::Schemas, Tree::Policies] {
            self.tree(number, pulsar, tree).await?;
        }
        Ok(())
    }

    /// Every node of a tree, whatever its depth.
    async fn tree(&mut self, number: u16, pulsar: &Pulsar, tree: Tree) -> Result<(), ScanError> {
        let mut folders = vec![(tree.path().to_owned(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            let path = format!("{}{folder}", pulsar.root);
            let names = at(&path, children_if_any(&*pulsar.store, &path).await)?;
            if DEEPEST < depth {
                let count = names.len();
                return Err(ScanError::TooMany { path, count });
            }
            for some in limited(&path, names)?.chunks(BATCH) {
                let paths: Vec<_> = some.iter().map(|name| format!("{path}/{name}")).collect();
                let read = at(&path, get_all(&*pulsar.store, &paths).await)?;
                for (name, node) in some.iter().zip(read) {
                    let Some((bytes, stat)) = node else { continue };
                    let child = format!("{folder}/{name}");
                    self.node(number, pulsar, tree, &child, &bytes, stat)?;
                    if 0 < stat.children {
                        folders.push((child, depth + 1));
                    }
                }
                self.done += some.len() as u64;
                self.progress.send_replace(Progress {
                    step: Step::Owners,
                    done: self.done,
                    all: None,
                });
            }
        }
        Ok(())
    }

    fn node(
        &mut self,
        number: u16,
        pulsar: &Pulsar,
        tree: Tree,
        path: &str,
        bytes: &[u8],
        stat: Stat,
    ) -> Result<(), ScanError> {
        let failed = |source| ScanError::Owner {
            cluster: pulsar.name.clone(),
            path: path.to_owned(),
            source,
        };
        let below = path.strip_prefix(tree.path()).unwrap_or(path);
        let below = below.trim_start_matches('/');
        let ledgers = match tree {
            Tree::Policies => {
                if below.contains('/') {
                    self.found.namespaces.insert(below.to_owned());
                }
                return Ok(());
            }
            // A folder has no data.
            Tree::Schemas if bytes.is_empty() => return Ok(()),
            Tree::Schemas => {
                let locator = SchemaLocator::decode(bytes).map_err(failed)?;
                if !locator.is_whole {
                    self.found.schema_unknown.insert(below.to_owned());
                }
                locator.positions.iter().map(|at| at.ledger).collect()
            }
            Tree::Topics => match Node::decode(bytes).map_err(failed)? {
                Node::Empty => return Ok(()),
                Node::Topic(topic) => self.topic(&topic),
                Node::Cursor(cursor) => self.cursor(below, &cursor),
            },
        };
        let seen = Seen {
            created: stat.created,
            version: stat.version,
            ledgers: ascending(ledgers),
        };
        let key = OwnerKey {
            cluster: number,
            path: path.to_owned(),
            created: stat.created,
        };
        self.found.paths.insert(path.to_owned());
        self.found.owners.insert(key, seen);
        Ok(())
    }

    fn topic(&mut self, topic: &crate::cluster::pulsar::ManagedLedger) -> Vec<LedgerId> {
        self.found
            .positions
            .extend(topic.terminated_at.map(|at| at.ledger));
        let moved = topic.ledgers.iter().filter(|ledger| ledger.gone_to_storage);
        self.found.moved.extend(moved.map(|ledger| ledger.id));
        let kept = topic
            .ledgers
            .iter()
            .filter(|ledger| !ledger.gone_to_storage);
        kept.map(|ledger| ledger.id).collect()
    }

    fn cursor(
        &mut self,
        below: &str,
        cursor: &crate::cluster::pulsar::ManagedCursor,
    ) -> Vec<LedgerId> {
        self.found
            .positions
            .extend(cursor.mark_delete.map(|at| at.ledger));
        if let Some((topic, COMPACTION)) = below.rsplit_once('/')
            && cursor.ledger.is_some()
        {
            self.found.compaction_unknown.insert(topic.to_owned());
        }
        let mut ledgers = cursor.buckets.clone();
        ledgers.extend(cursor.ledger);
        ledgers.extend(cursor.compacted_ledger);
        ledgers
    }
}

/// The cursor of a compaction.
const COMPACTION: &str = "__compaction";

fn ascending(mut ledgers: Vec<LedgerId>) -> Vec<LedgerId> {
    ledgers.sort_unstable();
    ledgers.dedup();
    ledgers
}
