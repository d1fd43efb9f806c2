//! The lock under which modes change: one node that goes with its owner's session. Whoever finds it taken
//! waits until it goes and tries again. An attempt whose end is not known is taken back in the background,
//! as long as its session lives, so that nobody holds the lock without knowing.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::store::{Kind, Link, MetaStore, StoreError, create_with_parents};
use super::{ClusterError, DEADLINE};
use crate::health::dir::printable;

/// Between two tries to take an attempt back.
const RETRY: Duration = Duration::from_millis(500);

/// What stands in the node: who to ask, and which attempt it was.
#[derive(Serialize, Deserialize)]
struct Holder {
    bookie: String,
    attempt: u64,
}

/// The lock is held until this is released or dropped, or the session ends.
#[derive(Debug)]
pub struct ModeLock {
    attempt: Attempt,
    /// When it was taken, by the store's clock.
    taken: i64,
}

impl ModeLock {
    /// Still held for certain: the session in which it was taken is connected. Otherwise another may hold
    /// it by now, or soon.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.attempt.lives()
    }

    /// When it was taken, by the store's clock: nodes that others wrote are as old as theirs is behind it.
    pub(super) fn taken(&self) -> i64 {
        self.taken
    }

    /// Gives it back, and waits for the answer at most as long as for any other.
    pub async fn release(mut self) {
        let taken_back = timeout(DEADLINE, self.attempt.take_back()).await;
        self.attempt.open = !matches!(taken_back, Ok(Ok(())));
    }
}

/// A node that may be ours, taken back when dropped.
struct Attempt {
    store: Arc<dyn MetaStore>,
    path: String,
    data: Vec<u8>,
    session: i64,
    /// The node may be there.
    open: bool,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in session {}", self.path, self.session)
    }
}

impl Attempt {
    fn lives(&self) -> bool {
        *self.store.link().borrow() == Link::Connected(self.session)
    }

    /// Deletes the node if it is of this attempt.
    async fn take_back(&self) -> Result<(), StoreError> {
        match self.store.get(&self.path).await {
            Ok((data, stat)) if data == self.data && stat.owner == Some(self.session) => {}
            Ok(_) | Err(StoreError::NoNode) => return Ok(()),
            Err(error) => return Err(error),
        }
        match self.store.delete(&self.path, None).await {
            Err(StoreError::NoNode) => Ok(()),
            other => other,
        }
    }

    /// Until it is answered, or the session has ended and the node with it.
    async fn take_back_at_last(self) {
        let mut link = self.store.link();
        loop {
            let now = *link.borrow_and_update();
            match now {
                Link::Connected(id) if id != self.session => return,
                Link::Connected(_) => {
                    let answer = timeout(DEADLINE, self.take_back()).await;
                    if matches!(answer, Ok(Ok(()))) {
                        return;
                    }
                    sleep(RETRY).await;
                }
                Link::Lost { .. } => {
                    if link.changed().await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let last = Attempt {
            store: Arc::clone(&self.store),
            path: std::mem::take(&mut self.path),
            data: std::mem::take(&mut self.data),
            session: self.session,
            open: false,
        };
        // Without a runtime the agent ends, and the session with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(last.take_back_at_last());
        }
    }
}

/// Takes the lock, waiting for it at most that long.
pub(super) async fn take(
    store: Arc<dyn MetaStore>,
    path: String,
    bookie: &str,
    wait: Duration,
) -> Result<ModeLock, ClusterError> {
    let holder = Holder {
        bookie: bookie.to_owned(),
        attempt: fastrand::u64(..),
    };
    let data = serde_json::to_vec(&holder).expect("a string and a number are always JSON");
    let session = match *store.link().borrow() {
        Link::Connected(id) => id,
        Link::Lost { .. } => return Err(ClusterError::NotConnected),
    };
    let mut attempt = Attempt {
        store,
        path,
        data,
        session,
        open: true,
    };
    let mut held_by = String::new();
    match timeout(wait, attempt.make(&mut held_by)).await {
        Ok(Ok(taken)) if attempt.lives() => Ok(ModeLock { attempt, taken }),
        Ok(Ok(_)) => Err(ClusterError::NotConnected),
        Ok(Err(error)) => {
            attempt.open = error.is_open();
            Err(ClusterError::of("the mode lock", error))
        }
        // Not even that was answered.
        Err(_) if held_by.is_empty() => Err(ClusterError::TimedOut),
        Err(_) => Err(ClusterError::Locked {
            holder: held_by,
            wait,
        }),
    }
}

impl Attempt {
    /// Gives the time of it, by the store's clock.
    async fn make(&self, held_by: &mut String) -> Result<i64, StoreError> {
        let store = &*self.store;
        let in_time = |answer: Result<Result<_, _>, _>| answer.unwrap_or(Err(StoreError::TimedOut));
        loop {
            let create = create_with_parents(store, &self.path, &self.data, Kind::Ephemeral);
            match in_time(timeout(DEADLINE, create).await) {
                Ok(stat) if stat.owner.is_none_or(|owner| owner == self.session) => {
                    return Ok(stat.modified);
                }
                // A new session came between: nobody would take this node back but its end.
                Ok(_) => {
                    let _ = store.delete(&self.path, None).await;
                    return Err(StoreError::Expired);
                }
                Err(StoreError::NodeExists) => {}
                Err(error) => return Err(error),
            }
            match store.get(&self.path).await {
                // The answer to our own attempt was lost.
                Ok((data, stat)) if data == self.data => return Ok(stat.modified),
                Ok((_, stat)) if stat.owner.is_none() => {
                    *held_by = format!(
                        "a node that no agent made and that goes with no session (delete {})",
                        self.path
                    );
                }
                Ok((data, _)) => *held_by = holder(&data),
                Err(StoreError::NoNode) => continue,
                Err(error) => return Err(error),
            }
            let (there, gone) = store.watch(&self.path).await?;
            if there.is_some() {
                gone.await;
            }
        }
    }
}

fn holder(data: &[u8]) -> String {
    match serde_json::from_slice::<Holder>(data) {
        Ok(holder) => printable(&holder.bookie),
        Err(_) => "somebody".to_owned(),
    }
}
