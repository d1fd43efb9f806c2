//! What the workers of a job say: while they live in one node, and what they have done in another, which stays. How often
//! they say it is theirs to choose.

use super::document::{self, Moved, Worker};
use super::jobs::{JobError, Jobs, MOVED, WORKERS, failed, understood};
use crate::cluster::store::{Kind, Link, MetaStore, StoreError, children_if_any, get_all};

impl Jobs {
    /// Says it in a node that goes with the session. A name is that of one run of one worker, so that a node of an
    /// earlier session is its own, and is replaced.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn say(&self, id: &str, name: &str, worker: &Worker) -> Result<(), JobError> {
        let path = format!("{}/{WORKERS}/{name}", self.path(id));
        let said = self.said(&path, &document::write(worker)).await;
        said.map_err(|source| failed(&path, source))
    }

    async fn said(&self, path: &str, data: &[u8]) -> Result<(), StoreError> {
        let store = &*self.store;
        let Link::Connected(ours) = *store.link().borrow() else {
            return Err(StoreError::Lost);
        };
        match store.stat(path).await? {
            Some(stat) if stat.owner == Some(ours) => {
                return store.set(path, data, None).await.map(drop);
            }
            Some(stat) => match store.delete(path, Some(stat.version)).await {
                Ok(()) | Err(StoreError::NoNode) => {}
                Err(error) => return Err(error),
            },
            None => {}
        }
        store.create(path, data, Kind::Ephemeral).await.map(drop)
    }

    /// Writes down what that run of a worker has done in all.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn add_up(&self, id: &str, name: &str, moved: &Moved) -> Result<(), JobError> {
        let path = format!("{}/{MOVED}/{name}", self.path(id));
        let (store, data) = (&*self.store, document::write(moved));
        let written = match store.set(&path, &data, None).await {
            Err(StoreError::NoNode) => store.create(&path, &data, Kind::Persistent).await,
            other => other,
        };
        written.map(drop).map_err(|source| failed(&path, source))
    }

    /// The workers that live, by name.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn workers(&self, id: &str) -> Result<Vec<(String, Worker)>, JobError> {
        self.below(id, WORKERS).await
    }

    /// What all workers of the job have done.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn moved(&self, id: &str) -> Result<Moved, JobError> {
        let mut sum = Moved::default();
        for (_, moved) in self.below::<Moved>(id, MOVED).await? {
            sum.ledgers += moved.ledgers;
            sum.fragments += moved.fragments;
            sum.bytes += moved.bytes;
            sum.entries += moved.entries;
        }
        Ok(sum)
    }

    async fn below<T: serde::de::DeserializeOwned>(
        &self,
        id: &str,
        what: &str,
    ) -> Result<Vec<(String, T)>, JobError> {
        let top = format!("{}/{what}", self.path(id));
        let store: &dyn MetaStore = &*self.store;
        let wrong = |source| failed(&top, source);
        let mut names = children_if_any(store, &top).await.map_err(wrong)?;
        names.sort();
        let paths: Vec<_> = names.iter().map(|name| format!("{top}/{name}")).collect();
        let found = get_all(store, &paths).await.map_err(wrong)?;
        let mut all = Vec::new();
        for ((name, path), found) in names.into_iter().zip(&paths).zip(found) {
            if let Some((bytes, _)) = found {
                all.push((name, understood(path, &bytes)?));
            }
        }
        Ok(all)
    }
}
