//! A cluster for tests: bookies' metadata and one or two Pulsar clusters in one store in memory, with brokers that
//! make ledgers first and name them later, let them go first and delete them later, and die in between. It
//! knows at every moment who needs which ledger, also where that stands in no node.

mod clocks;
pub(super) use crate::cluster::hooked;
pub(super) mod reclaimer;
mod steps;
pub(super) mod tally;
pub(super) mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::plan::{LedgerId, Millis};
use crate::clock::Clock;
use crate::cluster::ledger::Layout;
use crate::cluster::memory::{Memory, MemorySession};
use crate::cluster::store::{Kind, MetaStore, create_with_parents};
use tally::Tally;

/// Where the Pulsar clusters are. Their topics have the same names.
pub(super) const ROOTS: [&str; 2] = ["", "/b"];

/// Names of cursors; the second one is that of compactions.
pub(super) const CURSORS: [&str; 2] = ["s", "__compaction"];

/// Runs what never waits; none if it does, which is what dying looks like here.
pub(super) fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// As [`now`], of what lets others have their turn now and then.
pub(super) fn soon<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut polls = std::iter::repeat_with(|| now(future.as_mut())).take(100);
    polls.find_map(|done| done)
}

/// What a ledger was made for, by a broker that lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    List,
    Cursor(&'static str),
    Schema,
    Compaction,
    Bucket,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Cursor {
    pub(super) ledger: Option<LedgerId>,
    /// In the node if there is no ledger, else inside that.
    pub(super) compacted: Option<LedgerId>,
    pub(super) buckets: Vec<LedgerId>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Topic {
    pub(super) list: Vec<LedgerId>,
    pub(super) moved: Vec<LedgerId>,
    pub(super) cursors: BTreeMap<&'static str, Cursor>,
}

/// A topic by its cluster and its number.
pub(super) type Name = (usize, u8);

pub(super) struct World {
    pub(super) clock: Clock,
    pub(super) store: Arc<MemorySession>,
    /// That of the second cluster: the same, or one of its own.
    pub(super) other: Arc<MemorySession>,
    server: Memory,
    /// What somebody has begun to copy, and a copy with the time of its newest change.
    begun: Option<Memory>,
    pub(super) copied: Option<(Arc<MemorySession>, Millis)>,
    pub(super) tally: Tally,
    hands: Vec<clocks::Hands>,
    pub(super) next: LedgerId,
    pub(super) topics: BTreeMap<Name, Topic>,
    pub(super) schemas: BTreeMap<Name, Vec<LedgerId>>,
    /// Topics that name the ledgers of others.
    pub(super) shadows: BTreeMap<Name, Vec<LedgerId>>,
    /// Made and not yet named.
    pub(super) unnamed: Vec<(Name, For, LedgerId, Millis)>,
    /// Let go and not yet deleted, by which cluster.
    pub(super) undeleted: Vec<(usize, LedgerId)>,
    pub(super) foreign: BTreeSet<LedgerId>,
    pub(super) made: Vec<LedgerId>,
    /// Whom those of brokers were made for.
    pub(super) made_for: BTreeMap<LedgerId, (Name, For)>,
    /// Not closed, and what they were made for.
    pub(super) open: BTreeMap<LedgerId, (Name, For)>,
    /// Lists as they once were.
    pub(super) backups: Vec<(Name, Topic)>,
}

pub(super) const LAYOUT: &[u8] =
    b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1";

/// The node of a ledger.
pub(super) fn path_of(id: LedgerId) -> String {
    format!("/ledgers/{}", Layout::Hierarchical.path(id).unwrap())
}

impl World {
    pub(super) fn new() -> World {
        World::with(false)
    }

    /// The second cluster may be in a store of its own.
    pub(super) fn with(second_store: bool) -> World {
        let clock = Clock::manual();
        // Not 1970: ages are differences.
        clock.advance(Duration::from_secs(1_000_000));
        let server = Memory::new(clock.clone());
        let store = Arc::new(server.connect());
        let other = match second_store {
            true => Arc::new(Memory::new(clock.clone()).connect()),
            false => Arc::clone(&store),
        };
        let world = World {
            store,
            other,
            server,
            begun: None,
            copied: None,
            tally: Tally::default(),
            hands: Vec::new(),
            clock,
            next: 0,
            topics: BTreeMap::new(),
            schemas: BTreeMap::new(),
            shadows: BTreeMap::new(),
            unnamed: Vec::new(),
            undeleted: Vec::new(),
            foreign: BTreeSet::new(),
            made: Vec::new(),
            made_for: BTreeMap::new(),
            open: BTreeMap::new(),
            backups: Vec::new(),
        };
        world.put("/ledgers/LAYOUT", LAYOUT);
        world.put("/ledgers/INSTANCEID", b"an-id");
        world.put("/ledgers/available/readonly", b"");
        for root in ROOTS {
            world.put(&format!("{root}/managed-ledgers"), b"");
            world.put(&format!("{root}/admin/policies/pulsar/system"), b"{}");
        }
        world
    }

    pub(super) fn now(&self) -> Millis {
        self.clock.now().wall.0
    }

    pub(super) fn is_apart(&self) -> bool {
        !Arc::ptr_eq(&self.store, &self.other)
    }

    /// The store of a node.
    fn store_of(&self, path: &str) -> &MemorySession {
        let is_second = path.starts_with("/b/");
        if is_second { &self.other } else { &self.store }
    }

    /// Makes or replaces a node.
    pub(super) fn put(&self, path: &str, data: &[u8]) {
        let store = self.store_of(path);
        if now(store.set(path, data, None)).unwrap().is_err() {
            let made = create_with_parents(store, path, data, Kind::Persistent);
            now(made).unwrap().unwrap();
        }
    }

    pub(super) fn take(&self, path: &str) {
        let _ = now(self.store_of(path).delete(path, None)).unwrap();
    }

    /// The transaction that made a node, if it is there.
    pub(super) fn created(&self, path: &str) -> Option<i64> {
        let stat = now(self.store_of(path).stat(path)).unwrap().unwrap();
        stat.map(|stat| stat.created)
    }

    pub(super) fn is_there(&self, id: LedgerId) -> bool {
        now(self.store.stat(&path_of(id)))
            .unwrap()
            .unwrap()
            .is_some()
    }

    /// Every ledger that there is.
    pub(super) fn ledgers(&self) -> Vec<LedgerId> {
        let made = self.made.iter().copied();
        made.filter(|id| self.is_there(*id)).collect()
    }

    /// The topic's node, without the root of its cluster.
    pub(super) fn topic_path(name: Name) -> String {
        format!("/managed-ledgers/public/default/persistent/t{}", name.1)
    }

    pub(super) fn schema_path(name: Name) -> String {
        format!("{}/schemas/public/default/t{}", ROOTS[name.0], name.1)
    }

    /// Makes a ledger, which nobody names yet.
    pub(super) fn make(&mut self, name: Name, purpose: For) -> LedgerId {
        self.next += 1;
        let id = self.next;
        self.made.push(id);
        self.made_for.insert(id, (name, purpose));
        self.write_ledger(id, name, purpose);
        id
    }

    /// Makes the node of a ledger, or says that it is closed now.
    fn write_ledger(&self, id: LedgerId, name: Name, purpose: For) {
        let is_open = self.open.contains_key(&id);
        let owner = format!("public/default/persistent/t{}", name.1);
        let schema = format!("public/default/t{}", name.1);
        let full = format!("persistent://public/default/t{}", name.1);
        let pulsar = ("application", "pulsar");
        let bytes = match purpose {
            For::List => wire::written(
                is_open,
                &[
                    pulsar,
                    ("component", "managed-ledger"),
                    ("pulsar/managed-ledger", &owner),
                ],
            ),
            For::Cursor(cursor) => wire::written(
                is_open,
                &[
                    pulsar,
                    ("component", "managed-ledger"),
                    ("pulsar/managed-ledger", &owner),
                    ("pulsar/cursor", cursor),
                ],
            ),
            For::Schema => wire::written(
                is_open,
                &[
                    pulsar,
                    ("component", "schema"),
                    ("pulsar/schemaId", &schema),
                ],
            ),
            For::Compaction => wire::written(
                is_open,
                &[
                    pulsar,
                    ("component", "compacted-ledger"),
                    ("pulsar/compactedTopic", &full),
                ],
            ),
            For::Bucket => wire::written(
                is_open,
                &[
                    pulsar,
                    ("component", "delayed-index-bucket"),
                    ("pulsar/delayedIndexTopic", &full),
                ],
            ),
        };
        self.put(&path_of(id), &bytes);
    }

    pub(super) fn make_foreign(&mut self) {
        self.next += 1;
        self.put(&path_of(self.next), &wire::ledger(&[]));
        self.made.push(self.next);
        self.foreign.insert(self.next);
    }

    /// Writes what the model says of a topic's list.
    pub(super) fn write_list(&self, name: Name) {
        let path = format!("{}{}", ROOTS[name.0], World::topic_path(name));
        let topic = &self.topics[&name];
        self.put(&path, &wire::topic(&topic.list, &topic.moved));
    }

    pub(super) fn write_cursor(&self, name: Name, which: &str) {
        let path = format!("{}{}/{which}", ROOTS[name.0], World::topic_path(name));
        let cursor = &self.topics[&name].cursors[which];
        let compacted = cursor.compacted.filter(|_| cursor.ledger.is_none());
        self.put(
            &path,
            &wire::cursor(cursor.ledger, compacted, &cursor.buckets),
        );
    }

    /// Who needs a ledger, in words.
    pub(super) fn user(&self, id: LedgerId) -> Option<String> {
        for (name, topic) in &self.topics {
            if topic.list.contains(&id) && !topic.moved.contains(&id) {
                return Some(format!("the list of {name:?}"));
            }
            for (which, cursor) in &topic.cursors {
                let mut all = cursor.ledger.iter().chain(&cursor.compacted);
                if all.any(|other| *other == id) || cursor.buckets.contains(&id) {
                    return Some(format!("cursor {which} of {name:?}"));
                }
            }
        }
        let named = |lists: &BTreeMap<Name, Vec<LedgerId>>| {
            let found = lists.iter().find(|(_, list)| list.contains(&id));
            found.map(|(name, _)| *name)
        };
        if let Some(name) = named(&self.schemas) {
            return Some(format!("the schema of {name:?}"));
        }
        if let Some(name) = named(&self.shadows) {
            return Some(format!("the shadow {name:?}"));
        }
        if self.foreign.contains(&id) {
            return Some("another application".to_owned());
        }
        let maker = self.unnamed.iter().find(|(.., other, _)| *other == id);
        maker.map(|(name, purpose, ..)| format!("{name:?}, which made it for {purpose:?}"))
    }
}
