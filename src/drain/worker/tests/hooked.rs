//! A store in front of another: somebody looks at each call before it is made and says what becomes of it.

use std::sync::Arc;

use tokio::sync::watch;

use crate::cluster::store::{Answer, Changed, Kind, Link, MetaStore, Op, Stat, StoreError};

/// A call.
#[derive(Debug)]
pub(super) enum Call<'a> {
    List(&'a str),
    Read(&'a str),
    Write(&'a str),
    Multi(&'a [Op]),
}

impl Call<'_> {
    /// It is of that node.
    pub(super) fn names(&self, part: &str) -> bool {
        match self {
            Call::List(path) | Call::Read(path) | Call::Write(path) => path.contains(part),
            Call::Multi(ops) => ops.iter().any(|op| match op {
                Op::Check { path, .. }
                | Op::Create { path, .. }
                | Op::Set { path, .. }
                | Op::Delete { path, .. } => path.contains(part),
            }),
        }
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self, Call::List(_))
    }

    /// The change of a ledger's metadata.
    pub(super) fn is_change(&self) -> bool {
        let is_ledger = |path: &str| path.starts_with("/ledgers/00/");
        match self {
            Call::Multi(ops) => ops
                .iter()
                .any(|op| matches!(op, Op::Set { path, .. } if is_ledger(path))),
            _ => false,
        }
    }
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is made and answered.
    Answered,
    /// It is not made, and nobody knows.
    Lost,
    /// It is made, and nobody knows.
    MadeAndLost,
}

type Hook = Box<dyn Fn(&Call<'_>) -> Fate + Send + Sync>;

pub(super) struct Hooked {
    store: Arc<dyn MetaStore>,
    hook: Hook,
}

impl Hooked {
    pub(super) fn new(
        store: Arc<dyn MetaStore>,
        hook: impl Fn(&Call<'_>) -> Fate + Send + Sync + 'static,
    ) -> Hooked {
        let hook = Box::new(hook);
        Hooked { store, hook }
    }

    fn through<'a, T: Send + 'a>(&'a self, call: Call<'a>, inner: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            match (self.hook)(&call) {
                Fate::Answered => inner.await,
                Fate::Lost => Err(StoreError::Lost),
                Fate::MadeAndLost => {
                    let _ = inner.await;
                    Err(StoreError::Lost)
                }
            }
        })
    }
}

impl MetaStore for Hooked {
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        self.through(Call::Read(path), self.store.get(path))
    }
    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Stat>> {
        self.through(Call::Read(path), self.store.stat(path))
    }
    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        self.through(Call::List(path), self.store.children(path))
    }
    fn create<'a>(&'a self, path: &'a str, data: &'a [u8], kind: Kind) -> Answer<'a, Stat> {
        self.through(Call::Write(path), self.store.create(path, data, kind))
    }
    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], version: Option<i32>) -> Answer<'a, Stat> {
        self.through(Call::Write(path), self.store.set(path, data, version))
    }
    fn delete<'a>(&'a self, path: &'a str, version: Option<i32>) -> Answer<'a, ()> {
        self.through(Call::Write(path), self.store.delete(path, version))
    }
    fn multi<'a>(&'a self, ops: &'a [Op]) -> Answer<'a, ()> {
        self.through(Call::Multi(ops), self.store.multi(ops))
    }
    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<Stat>, Changed)> {
        self.through(Call::Read(path), self.store.watch(path))
    }
    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Changed)> {
        self.through(Call::Read(path), self.store.watch_children(path))
    }
    fn link(&self) -> watch::Receiver<Link> {
        self.store.link()
    }
}
