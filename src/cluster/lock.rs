//! The lock under which modes change: one node that goes with its owner's session. Whoever finds it taken
//! waits until it goes and tries again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::attempt::Attempt;
use super::store::{Link, MetaStore};
use super::{ClusterError, DEADLINE};

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

/// Takes the lock, waiting for it at most that long.
pub(super) async fn take(
    store: Arc<dyn MetaStore>,
    path: String,
    bookie: &str,
    wait: Duration,
) -> Result<ModeLock, ClusterError> {
    let session = match *store.link().borrow() {
        Link::Connected(id) => id,
        Link::Lost { .. } => return Err(ClusterError::NotConnected),
    };
    let mut attempt = Attempt::new(store, path, ("bookie", bookie), session);
    let mut held_by = String::new();
    let mut told = |who| held_by = who;
    match timeout(wait, attempt.make(&mut told)).await {
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
