//! The metadata store in memory, for tests: a server that all its sessions share. A session can be cut
//! off, can end, and comes back when it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};

use super::store::{Answer, Changed, Kind, Link, MetaStore, Op, Stat, StoreError};
use crate::clock::Clock;

/// The server.
#[derive(Debug, Clone)]
pub struct Memory {
    tree: Arc<Mutex<Tree>>,
    clock: Clock,
}

/// One client of the server.
#[derive(Debug)]
pub struct MemorySession {
    tree: Arc<Mutex<Tree>>,
    clock: Clock,
    link: watch::Sender<Link>,
    /// The session to come back to; none after its end.
    id: Mutex<Option<i64>>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    data: Vec<u8>,
    stat: Stat,
    children: BTreeSet<String>,
}

#[derive(Debug)]
struct Tree {
    nodes: BTreeMap<String, Node>,
    watchers: Vec<Watcher>,
    /// The newest transaction.
    transaction: i64,
    /// The newest session.
    session: i64,
    clock: Clock,
}

#[derive(Debug)]
struct Watcher {
    path: String,
    children: bool,
    session: i64,
    /// Dropped or used: both end the wait.
    _wake: oneshot::Sender<()>,
}

impl Memory {
    /// An empty server. What is lost is lost since this clock's time.
    #[must_use]
    pub fn new(clock: Clock) -> Memory {
        let root = BTreeMap::from([("/".to_owned(), Node::default())]);
        let tree = Tree {
            nodes: root,
            watchers: Vec::new(),
            transaction: 0,
            session: 0,
            clock: clock.clone(),
        };
        Memory {
            tree: Arc::new(Mutex::new(tree)),
            clock,
        }
    }

    /// A new client, connected.
    #[must_use]
    pub fn connect(&self) -> MemorySession {
        let id = lock(&self.tree).next_session();
        MemorySession {
            tree: Arc::clone(&self.tree),
            clock: self.clock.clone(),
            link: watch::Sender::new(Link::Connected(id)),
            id: Mutex::new(Some(id)),
        }
    }

    /// A server of its own with the nodes of this moment.
    #[cfg(test)]
    pub(crate) fn copy(&self) -> Memory {
        let copy = Memory::new(self.clock.clone());
        lock(&copy.tree).nodes.clone_from(&lock(&self.tree).nodes);
        copy
    }

    /// As a file that is written while nodes change: each node as it is here, or as it is later.
    #[cfg(test)]
    pub(crate) fn or(&self, later: &Memory, mut is_later: impl FnMut() -> bool) -> Memory {
        let mixed = Memory::new(self.clock.clone());
        let (here, later) = (lock(&self.tree), lock(&later.tree));
        let mut tree = lock(&mixed.tree);
        // A node comes after the one above it.
        let paths: BTreeSet<&String> = here.nodes.keys().chain(later.nodes.keys()).collect();
        for path in paths {
            let from = if is_later() { &later } else { &here };
            if let (Some(node), Ok((above, name))) = (from.nodes.get(path), split(path))
                && let Some(parent) = tree.nodes.get_mut(above)
            {
                parent.children.insert(name.to_owned());
                let children = BTreeSet::new();
                let node = Node {
                    children,
                    ..node.clone()
                };
                tree.nodes.insert(path.clone(), node);
            }
        }
        drop(tree);
        mixed
    }
}

impl MemorySession {
    /// The server is out of reach; the session lives on, and its nodes.
    pub fn disconnect(&self) {
        let since = self.clock.elapsed();
        self.link.send_if_modified(|link| {
            let was = matches!(link, Link::Connected(_));
            if was {
                *link = Link::Lost { since };
            }
            was
        });
    }

    /// The server ends the session, with its nodes and watches. Out of reach until [`Self::reconnect`].
    pub fn expire(&self) {
        if let Some(id) = lock(&self.id).take() {
            lock(&self.tree).end(id);
        }
        self.disconnect();
    }

    /// The server is there again: in the same session, or in a new one after its end.
    pub fn reconnect(&self) {
        let mut id = lock(&self.id);
        let now = *id.get_or_insert_with(|| lock(&self.tree).next_session());
        self.link.send_if_modified(|link| {
            let was = *link;
            *link = Link::Connected(now);
            was != *link
        });
    }

    fn run<T>(
        &self,
        work: impl FnOnce(&mut Tree, i64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match *self.link.borrow() {
            Link::Connected(id) => work(&mut lock(&self.tree), id),
            Link::Lost { .. } => Err(StoreError::Lost),
        }
    }
}

impl Drop for MemorySession {
    /// As a client that closes its session.
    fn drop(&mut self) {
        self.expire();
    }
}

impl MetaStore for MemorySession {
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        Box::pin(async move {
            self.run(|tree, _| tree.node(path).map(|node| (node.data.clone(), node.stat())))
        })
    }

    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Stat>> {
        Box::pin(async move { self.run(|tree, _| Ok(tree.nodes.get(path).map(Node::stat))) })
    }

    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(async move { self.run(|tree, _| tree.node(path).map(Node::names)) })
    }

    fn create<'a>(&'a self, path: &'a str, data: &'a [u8], kind: Kind) -> Answer<'a, Stat> {
        Box::pin(async move {
            self.run(|tree, session| {
                tree.transaction += 1;
                tree.create(path, data, kind, session)?;
                tree.wake_all(path);
                tree.node(path).map(Node::stat)
            })
        })
    }

    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], version: Option<i32>) -> Answer<'a, Stat> {
        Box::pin(async move {
            self.run(|tree, _| {
                tree.set(path, data, version)?;
                tree.wake(path, false);
                tree.node(path).map(Node::stat)
            })
        })
    }

    fn delete<'a>(&'a self, path: &'a str, version: Option<i32>) -> Answer<'a, ()> {
        Box::pin(async move {
            self.run(|tree, _| {
                tree.delete(path, version)?;
                tree.wake_all(path);
                Ok(())
            })
        })
    }

    fn multi<'a>(&'a self, ops: &'a [Op]) -> Answer<'a, ()> {
        Box::pin(async move { self.run(|tree, session| tree.multi(ops, session)) })
    }

    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<Stat>, Changed)> {
        Box::pin(async move {
            self.run(|tree, session| {
                let changed = tree.watch(path, false, session);
                Ok((tree.nodes.get(path).map(Node::stat), changed))
            })
        })
    }

    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Changed)> {
        Box::pin(async move {
            self.run(|tree, session| {
                let names = tree.node(path).map(Node::names)?;
                Ok((names, tree.watch(path, true, session)))
            })
        })
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }
}

impl Node {
    fn stat(&self) -> Stat {
        Stat {
            children: u32::try_from(self.children.len()).unwrap_or(u32::MAX),
            ..self.stat
        }
    }

    fn names(&self) -> Vec<String> {
        self.children.iter().cloned().collect()
    }
}

impl Tree {
    fn next_session(&mut self) -> i64 {
        self.session += 1;
        self.session
    }

    fn node(&self, path: &str) -> Result<&Node, StoreError> {
        self.nodes.get(path).ok_or(StoreError::NoNode)
    }

    fn in_version(&mut self, path: &str, version: Option<i32>) -> Result<&mut Node, StoreError> {
        let node = self.nodes.get_mut(path).ok_or(StoreError::NoNode)?;
        if version.is_some_and(|version| version != node.stat.version) {
            return Err(StoreError::BadVersion);
        }
        Ok(node)
    }

    fn create(
        &mut self,
        path: &str,
        data: &[u8],
        kind: Kind,
        session: i64,
    ) -> Result<(), StoreError> {
        let (above, name) = split(path)?;
        if self.nodes.contains_key(path) {
            return Err(StoreError::NodeExists);
        }
        let modified = self.clock.now().wall.0;
        let parent = self.nodes.get_mut(above).ok_or(StoreError::NoNode)?;
        if parent.stat.owner.is_some() {
            return Err(StoreError::EphemeralParent);
        }
        parent.children.insert(name.to_owned());
        let stat = Stat {
            created: self.transaction,
            created_at: modified,
            owner: (kind == Kind::Ephemeral).then_some(session),
            modified,
            ..Stat::default()
        };
        let node = Node {
            data: data.to_vec(),
            stat,
            children: BTreeSet::new(),
        };
        self.nodes.insert(path.to_owned(), node);
        Ok(())
    }

    fn set(&mut self, path: &str, data: &[u8], version: Option<i32>) -> Result<(), StoreError> {
        let modified = self.clock.now().wall.0;
        let node = self.in_version(path, version)?;
        node.data = data.to_vec();
        node.stat.version += 1;
        node.stat.modified = modified;
        Ok(())
    }

    fn delete(&mut self, path: &str, version: Option<i32>) -> Result<(), StoreError> {
        if !self.in_version(path, version)?.children.is_empty() {
            return Err(StoreError::NotEmpty);
        }
        let (above, name) = split(path)?;
        self.nodes.remove(path);
        if let Some(parent) = self.nodes.get_mut(above) {
            parent.children.remove(name);
        }
        Ok(())
    }

    fn multi(&mut self, ops: &[Op], session: i64) -> Result<(), StoreError> {
        // What each step is about to change, as it was: the node and the one above it.
        let mut before = Vec::new();
        self.transaction += 1;
        for (at, op) in ops.iter().enumerate() {
            if let Op::Create { path, .. } | Op::Set { path, .. } | Op::Delete { path, .. } = op {
                let above = split(path).map_or("/", |(above, _)| above);
                for path in [path, above] {
                    before.push((path.to_owned(), self.nodes.get(path).cloned()));
                }
            }
            let done = match op {
                Op::Check { path, version } => self.in_version(path, Some(*version)).map(drop),
                Op::Create { path, data, kind } => self.create(path, data, *kind, session),
                Op::Set {
                    path,
                    data,
                    version,
                } => self.set(path, data, *version),
                Op::Delete { path, version } => self.delete(path, *version),
            };
            if let Err(error) = done {
                for (path, node) in before.into_iter().rev() {
                    match node {
                        Some(node) => self.nodes.insert(path, node),
                        None => self.nodes.remove(&path),
                    };
                }
                return Err(StoreError::Step {
                    at,
                    source: Box::new(error),
                });
            }
        }
        for op in ops {
            match op {
                Op::Check { .. } => {}
                Op::Set { path, .. } => self.wake(path, false),
                Op::Create { path, .. } | Op::Delete { path, .. } => self.wake_all(path),
            }
        }
        Ok(())
    }

    fn watch(&mut self, path: &str, children: bool, session: i64) -> Changed {
        let (wake, woken) = oneshot::channel();
        self.watchers.push(Watcher {
            path: path.to_owned(),
            children,
            session,
            _wake: wake,
        });
        Box::pin(async move {
            // The other side is dropped to say so.
            let _ = woken.await;
        })
    }

    fn wake(&mut self, path: &str, children: bool) {
        self.watchers
            .retain(|watcher| watcher.path != path || watcher.children != children);
    }

    /// A node came or went: whoever watches it, its children or its parent's children.
    fn wake_all(&mut self, path: &str) {
        self.wake(path, false);
        self.wake(path, true);
        if let Ok((above, _)) = split(path) {
            self.wake(above, true);
        }
    }

    fn end(&mut self, session: i64) {
        self.transaction += 1;
        let gone: Vec<String> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.stat.owner == Some(session))
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone {
            if self.delete(&path, None).is_ok() {
                self.wake_all(&path);
            }
        }
        self.watchers.retain(|watcher| watcher.session != session);
    }
}

/// The parent and the name.
fn split(path: &str) -> Result<(&str, &str), StoreError> {
    match path.rsplit_once('/') {
        Some(("", name)) if !name.is_empty() => Ok(("/", name)),
        Some((above, name)) if above.starts_with('/') && !name.is_empty() => Ok((above, name)),
        _ => Err(StoreError::Other(format!("{path} is not a path"))),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::contract;
    use super::*;

    #[tokio::test]
    async fn it_keeps_the_contract() {
        let clock = Clock::manual();
        let server = Memory::new(clock.clone());
        let (one, two) = (server.connect(), server.connect());
        contract::nodes(&one).await;
        let pass = async || clock.advance(std::time::Duration::from_millis(1));
        contract::ages(&one, &two, pass).await;
        contract::transactions(&one).await;
        contract::watches(&one, &two).await;
        contract::many_children(&one).await;
        contract::sessions(&one, &two, || {
            one.expire();
            one.reconnect();
        })
        .await;
    }

    #[tokio::test]
    async fn out_of_reach_is_no_end() {
        let server = Memory::new(Clock::manual());
        let (one, two) = (server.connect(), server.connect());
        one.create("/here", b"", Kind::Ephemeral).await.unwrap();
        one.disconnect();
        assert_eq!(one.get("/here").await, Err(StoreError::Lost));
        assert!(two.stat("/here").await.unwrap().is_some());
        one.reconnect();
        assert!(one.stat("/here").await.unwrap().is_some());
        drop(one);
        assert_eq!(two.stat("/here").await, Ok(None));
    }
}
