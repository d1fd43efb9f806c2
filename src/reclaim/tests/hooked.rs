//! A store that does something at a call: stands still for ever, as before kill -9, fails, or changes what is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};

use crate::cluster::memory::MemorySession;
use crate::cluster::store::{Answer, Changed, Kind, Link, MetaStore, Op, Stat, StoreError};

/// What becomes of a call.
pub(super) enum Then {
    Go,
    Stall,
    Fail(StoreError),
}

/// Asked before each read, with its number and path.
type Hook = Box<dyn Fn(usize, &str) -> Then + Send + Sync>;

pub(super) struct Hooked {
    store: Arc<MemorySession>,
    hook: Hook,
    pub(super) calls: AtomicUsize,
    pub(super) stalled: Notify,
}

impl Hooked {
    pub(super) fn new(
        store: &Arc<MemorySession>,
        hook: impl Fn(usize, &str) -> Then + Send + Sync + 'static,
    ) -> Arc<Hooked> {
        Arc::new(Hooked {
            store: Arc::clone(store),
            hook: Box::new(hook),
            calls: AtomicUsize::new(0),
            stalled: Notify::new(),
        })
    }

    async fn read<T>(&self, path: &str, call: Answer<'_, T>) -> Result<T, StoreError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        match (self.hook)(number, path) {
            Then::Go => call.await,
            Then::Fail(error) => Err(error),
            Then::Stall => {
                self.stalled.notify_one();
                std::future::pending().await
            }
        }
    }
}

impl MetaStore for Hooked {
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        Box::pin(self.read(path, self.store.get(path)))
    }
    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Stat>> {
        Box::pin(self.read(path, self.store.stat(path)))
    }
    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(self.read(path, self.store.children(path)))
    }
    fn create<'a>(&'a self, path: &'a str, data: &'a [u8], kind: Kind) -> Answer<'a, Stat> {
        self.store.create(path, data, kind)
    }
    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], version: Option<i32>) -> Answer<'a, Stat> {
        self.store.set(path, data, version)
    }
    fn delete<'a>(&'a self, path: &'a str, version: Option<i32>) -> Answer<'a, ()> {
        self.store.delete(path, version)
    }
    fn multi<'a>(&'a self, ops: &'a [Op]) -> Answer<'a, ()> {
        self.store.multi(ops)
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
