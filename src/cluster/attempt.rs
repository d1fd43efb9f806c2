//! One attempt at a node that goes with its owner's session: made when its turn comes, and taken back in the
//! background if its end is not known, as long as its session lives, so that nobody holds a node without
//! knowing. The mode lock and the leadership are such nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::DEADLINE;
use super::store::{Kind, Link, MetaStore, StoreError, create_with_parents};
use crate::health::dir::printable;

/// Between two tries, to take an attempt back or to make one.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// What stands in the node beside who: which attempt it was.
const NUMBER: &str = "attempt";

/// A node that may be ours, taken back when dropped.
pub(super) struct Attempt {
    store: Arc<dyn MetaStore>,
    path: String,
    data: Vec<u8>,
    session: i64,
    /// The node may be there.
    pub(super) open: bool,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in session {}", self.path, self.session)
    }
}

impl Attempt {
    /// An attempt in this session, which has made nothing yet. `role` is what `who` is.
    pub(super) fn new(
        store: Arc<dyn MetaStore>,
        path: String,
        (role, who): (&str, &str),
        session: i64,
    ) -> Attempt {
        let data = serde_json::json!({ role: who, NUMBER: fastrand::u64(..) });
        Attempt {
            store,
            path,
            data: data.to_string().into_bytes(),
            session,
            open: true,
        }
    }

    /// The session in which it was made is connected.
    pub(super) fn lives(&self) -> bool {
        *self.store.link().borrow() == Link::Connected(self.session)
    }

    /// Deletes the node if it is of this attempt.
    pub(super) async fn take_back(&self) -> Result<(), StoreError> {
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

impl Attempt {
    /// Makes the node, once nobody else has it, and gives the time of that by the store's clock. Tells who has it.
    pub(super) async fn make(
        &self,
        held_by: &mut (dyn FnMut(String) + Send),
    ) -> Result<i64, StoreError> {
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
                    held_by(format!(
                        "a node that no agent made and that goes with no session (delete {})",
                        self.path
                    ));
                }
                Ok((data, _)) => held_by(holder(&data)),
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

/// Who it is by the node's own word.
fn holder(data: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(data).unwrap_or_default();
    let mut names = value.as_object().into_iter().flatten();
    let who = names.find_map(|(role, who)| (role != NUMBER).then(|| who.as_str())?);
    who.map_or_else(|| "somebody".to_owned(), printable)
}
