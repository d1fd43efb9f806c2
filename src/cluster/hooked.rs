//! A store in front of another: somebody looks at each call before it is made, and at each transaction after it was
//! applied, and says what becomes of it.

use std::sync::Arc;

use tokio::sync::watch;

use super::store::{Answer, Changed, Kind, Link, MetaStore, Op, Stat, StoreError};

/// A call.
#[derive(Debug)]
pub(crate) enum Call<'a> {
    Read(&'a str),
    Write(&'a str),
    Multi(&'a [Op]),
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is made and answered.
    Answered,
    /// It is not made, and nobody knows.
    Lost,
    /// It is made, and nobody knows.
    MadeAndLost,
    /// Whoever makes it dies before.
    Dies,
    /// Whoever makes it dies afterwards.
    MadeAndDies,
    /// It is refused.
    Fails(StoreError),
}

/// Looks at calls.
pub(crate) trait Hook: Send + Sync + 'static {
    fn before(&self, call: &Call<'_>) -> Fate;
    /// A transaction was applied.
    fn applied(&self, _ops: &[Op]) {}
}

pub(crate) struct Hooked<H> {
    pub(crate) store: Arc<dyn MetaStore>,
    pub(crate) hook: H,
}

impl<H: Hook> Hooked<H> {
    fn through<'a, T: Send + 'a>(&'a self, call: Call<'a>, inner: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            match self.hook.before(&call) {
                Fate::Answered => inner.await,
                Fate::Lost => Err(StoreError::Lost),
                Fate::Fails(error) => Err(error),
                Fate::Dies => std::future::pending().await,
                Fate::MadeAndLost => {
                    let _ = inner.await;
                    Err(StoreError::Lost)
                }
                Fate::MadeAndDies => {
                    let _ = inner.await;
                    std::future::pending().await
                }
            }
        })
    }
}

impl<H: Hook> MetaStore for Hooked<H> {
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        self.through(Call::Read(path), self.store.get(path))
    }
    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Stat>> {
        self.through(Call::Read(path), self.store.stat(path))
    }
    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        self.through(Call::Read(path), self.store.children(path))
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
        let inner = Box::pin(async move {
            let answer = self.store.multi(ops).await;
            if answer.is_ok() {
                self.hook.applied(ops);
            }
            answer
        });
        self.through(Call::Multi(ops), inner)
    }
    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<Stat>, Changed)> {
        self.store.watch(path)
    }
    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Changed)> {
        self.store.watch_children(path)
    }
    fn link(&self) -> watch::Receiver<Link> {
        self.store.link()
    }
}
