//! A cluster whose ledgers, and whose tasks in a job, are computed from their paths and a byte or two each, so that what is
//! measured is the drain's own memory. Everything else lies in the store in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dirkeeper::clock::Clock;
use dirkeeper::cluster::ledger::Layout;
use dirkeeper::cluster::memory::{Memory, MemorySession};
use dirkeeper::cluster::store::{Answer, Changed, Kind, Link, MetaStore, Op, Stat, StoreError};
use prost::Message;
use tokio::sync::watch;

/// Ledgers of a folder.
const FOLDER: u64 = 10_000;

/// What all ledgers look like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) ledgers: u64,
    /// One ledger of so many has entries, the others are empty.
    pub(crate) one_of: u64,
    pub(crate) entries: u64,
    pub(crate) size: u64,
}

pub(crate) struct Generated {
    shape: Shape,
    ids: Vec<String>,
    rest: MemorySession,
    state: std::sync::Mutex<State>,
}

struct State {
    /// Which bookie is in the first place of a ledger's ensemble.
    first: Vec<u8>,
    /// Whether a ledger has a task.
    has_task: Vec<bool>,
    /// Tasks that are not as they were made, with their versions.
    tasks: HashMap<u64, (Vec<u8>, i32)>,
}

/// A node that is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Ledger(u64),
    Task(u64),
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    quorum: i32,
    #[prost(int32, tag = "2")]
    ensemble: i32,
    #[prost(int64, optional, tag = "3")]
    length: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    last_entry: Option<i64>,
    #[prost(int32, tag = "5")]
    state: i32,
    #[prost(message, repeated, tag = "6")]
    segments: Vec<Segment>,
    #[prost(int32, tag = "7")]
    digest: i32,
    #[prost(bytes = "vec", optional, tag = "8")]
    password: Option<Vec<u8>>,
    #[prost(int32, tag = "9")]
    ack: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Segment {
    #[prost(string, repeated, tag = "1")]
    members: Vec<String>,
    #[prost(int64, optional, tag = "2")]
    first: Option<i64>,
}

/// What a call comes to that never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("the store in memory never waits"),
    }
}

impl Generated {
    /// The first bookie is in each ledger, with the second.
    pub(crate) fn new(shape: Shape, ids: Vec<String>, clock: Clock) -> Arc<Generated> {
        let count = usize::try_from(shape.ledgers).expect("it fits");
        let rest = Memory::new(clock).connect();
        let layout = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1";
        let create = |path, data: &[u8]| now(rest.create(path, data, Kind::Persistent));
        for path in [
            "/ledgers",
            "/ledgers/underreplication",
            "/ledgers/underreplication/locks",
        ] {
            create(path, b"").expect("it is made");
        }
        create("/ledgers/LAYOUT", layout).expect("it is made");
        Arc::new(Generated {
            shape,
            ids,
            rest,
            state: std::sync::Mutex::new(State {
                first: vec![0; count],
                has_task: vec![false; count],
                tasks: HashMap::new(),
            }),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panicked")
    }

    fn has_entries(&self, id: u64) -> bool {
        id.is_multiple_of(self.shape.one_of)
    }

    fn ledger(&self, id: u64, first: u8) -> Vec<u8> {
        let count = if self.has_entries(id) {
            self.shape.entries
        } else {
            0
        };
        let number = |number: u64| i64::try_from(number).expect("it fits");
        let metadata = Metadata {
            quorum: 2,
            ensemble: 2,
            length: Some(number(count * self.shape.size)),
            last_entry: Some(number(count) - 1),
            state: 3,
            segments: vec![Segment {
                members: vec![self.ids[usize::from(first)].clone(), self.ids[1].clone()],
                first: Some(0),
            }],
            digest: 4,
            password: Some(Vec::new()),
            ack: 2,
        };
        let mut bytes = b"BookieMetadataFormatVersion\t3\n".to_vec();
        metadata
            .encode_length_delimited(&mut bytes)
            .expect("a vector grows");
        bytes
    }

    fn task(&self, id: u64) -> Vec<u8> {
        let old = &self.ids[0];
        let text = format!(
            r#"{{"version":1,"ledger":{id},"status":"todo","fragments":[{{"first":0,"index":0,"old":"{old}"}}],"tries":0,"bytes":0}}"#
        );
        text.into_bytes()
    }

    fn place(&self, path: &str) -> Option<Place> {
        if let Some((_, task)) = path.split_once("/tasks/") {
            let (_, id) = task.split_once('/')?;
            return Some(Place::Task(id.parse().ok()?));
        }
        let id = Layout::Hierarchical.id(path.strip_prefix("/ledgers/")?)?;
        Some(Place::Ledger(id))
    }

    /// Data and version.
    fn found(&self, state: &State, place: Place) -> Result<(Vec<u8>, i32), StoreError> {
        let at = |id: u64| usize::try_from(id).map_err(|_| StoreError::NoNode);
        match place {
            Place::Ledger(id) => {
                let first = *state.first.get(at(id)?).ok_or(StoreError::NoNode)?;
                Ok((self.ledger(id, first), i32::from(first != 0)))
            }
            Place::Task(id) => match state.has_task.get(at(id)?) {
                Some(true) => {
                    let changed = state.tasks.get(&id).cloned();
                    Ok(changed.unwrap_or_else(|| (self.task(id), 0)))
                }
                _ => Err(StoreError::NoNode),
            },
        }
    }

    /// Whether a step can be made.
    fn fits(&self, state: &State, op: &Op, place: Place) -> Result<(), StoreError> {
        let found = self.found(state, place);
        let version = match op {
            Op::Create { .. } => {
                return found.map_or(Ok(()), |_| Err(StoreError::NodeExists));
            }
            Op::Check { version, .. } => Some(*version),
            Op::Set { version, .. } | Op::Delete { version, .. } => *version,
        };
        let (_, now) = found?;
        match version.is_none_or(|version| version == now) {
            true => Ok(()),
            false => Err(StoreError::BadVersion),
        }
    }

    fn apply(&self, state: &mut State, op: &Op, place: Place) {
        match (op, place) {
            (Op::Create { .. }, Place::Task(id)) => set(&mut state.has_task, id, true),
            (Op::Delete { .. }, Place::Task(id)) => {
                set(&mut state.has_task, id, false);
                state.tasks.remove(&id);
            }
            (Op::Set { data, .. }, Place::Task(id)) => {
                let version = state.tasks.get(&id).map_or(0, |(_, version)| *version);
                state.tasks.insert(id, (data.clone(), version + 1));
            }
            (Op::Set { data, .. }, Place::Ledger(id)) => {
                let is_there = |bookie: &String| {
                    let bookie = bookie.as_bytes();
                    data.windows(bookie.len()).any(|bytes| bytes == bookie)
                };
                let first = (2..self.ids.len()).find(|at| is_there(&self.ids[*at]));
                let first = first.and_then(|at| u8::try_from(at).ok());
                set(
                    &mut state.first,
                    id,
                    first.expect("one of the targets is named"),
                );
            }
            (Op::Check { .. }, _) => {}
            other => unreachable!("{other:?}"),
        }
    }

    fn change(&self, ops: &[Op]) -> Result<(), StoreError> {
        let mut state = self.state();
        let places: Vec<_> = ops.iter().map(|op| self.place(path(op))).collect();
        let (mut rest, mut numbers) = (Vec::new(), Vec::new());
        for (at, (op, place)) in ops.iter().zip(&places).enumerate() {
            match place {
                None => {
                    rest.push(op.clone());
                    numbers.push(at);
                }
                Some(place) => {
                    let fits = self.fits(&state, op, *place);
                    fits.map_err(|source| StoreError::Step {
                        at,
                        source: Box::new(source),
                    })?;
                }
            }
        }
        now(self.rest.multi(&rest)).map_err(|error| match error {
            StoreError::Step { at, source } => {
                let at = numbers[at];
                StoreError::Step { at, source }
            }
            error => error,
        })?;
        for (op, place) in ops.iter().zip(places) {
            if let Some(place) = place {
                self.apply(&mut state, op, place);
            }
        }
        Ok(())
    }

    fn names(&self, path: &str) -> Result<Vec<String>, StoreError> {
        let folders = self.shape.ledgers.div_ceil(FOLDER);
        let four = |number: u64| format!("{number:04}");
        match path {
            "/ledgers" => {
                let mut names = now(self.rest.children(path))?;
                names.push("00".to_owned());
                Ok(names)
            }
            "/ledgers/00" => Ok((0..folders).map(four).collect()),
            _ => {
                if let Some(folder) = path.strip_prefix("/ledgers/00/") {
                    let folder: u64 = folder.parse().map_err(|_| StoreError::NoNode)?;
                    let last = (self.shape.ledgers - folder * FOLDER).min(FOLDER);
                    return Ok((0..last).map(|id| format!("L{id:04}")).collect());
                }
                let shard = path.split_once("/tasks/").map(|(_, shard)| shard);
                let Some(shard) = shard.and_then(|shard| u64::from_str_radix(shard, 16).ok())
                else {
                    return now(self.rest.children(path));
                };
                let state = self.state();
                let ids = (shard..self.shape.ledgers).step_by(256);
                let has_task = |id: &u64| usize::try_from(*id).is_ok_and(|at| state.has_task[at]);
                Ok(ids.filter(has_task).map(|id| format!("{id:019}")).collect())
            }
        }
    }
}

fn set<T>(all: &mut [T], id: u64, value: T) {
    if let Some(one) = usize::try_from(id).ok().and_then(|at| all.get_mut(at)) {
        *one = value;
    }
}

fn path(op: &Op) -> &str {
    match op {
        Op::Check { path, .. }
        | Op::Create { path, .. }
        | Op::Set { path, .. }
        | Op::Delete { path, .. } => path,
    }
}

impl MetaStore for Generated {
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        let Some(place) = self.place(path) else {
            return self.rest.get(path);
        };
        Box::pin(async move {
            let (data, version) = self.found(&self.state(), place)?;
            let stat = Stat {
                version,
                ..Stat::default()
            };
            Ok((data, stat))
        })
    }
    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Stat>> {
        if path.contains("/tasks/") {
            return Box::pin(async move {
                if let Some(place) = self.place(path) {
                    return Ok(self
                        .found(&self.state(), place)
                        .ok()
                        .map(|_| Stat::default()));
                }
                let children = u32::try_from(self.names(path)?.len()).unwrap_or(u32::MAX);
                Ok(Some(Stat {
                    children,
                    ..Stat::default()
                }))
            });
        }
        self.rest.stat(path)
    }
    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(async move { self.names(path) })
    }
    fn create<'a>(&'a self, path: &'a str, data: &'a [u8], kind: Kind) -> Answer<'a, Stat> {
        self.rest.create(path, data, kind)
    }
    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], version: Option<i32>) -> Answer<'a, Stat> {
        self.rest.set(path, data, version)
    }
    fn delete<'a>(&'a self, path: &'a str, version: Option<i32>) -> Answer<'a, ()> {
        self.rest.delete(path, version)
    }
    fn multi<'a>(&'a self, ops: &'a [Op]) -> Answer<'a, ()> {
        Box::pin(async move { self.change(ops) })
    }
    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<Stat>, Changed)> {
        self.rest.watch(path)
    }
    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Changed)> {
        self.rest.watch_children(path)
    }
    fn link(&self) -> watch::Receiver<Link> {
        self.rest.link()
    }
}
