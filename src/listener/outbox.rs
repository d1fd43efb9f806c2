//! What listeners need of the state store: a place where an event is safe until each durable
//! listener took it. Written as a narrow trait because the store is another process and a disk.

use std::future::{Future, ready};
use std::pin::Pin;

use crate::state::{Appended, Store, StoredEvent};

/// The wait for an event to be safe; at most 500 ms.
pub(super) type Append = Pin<Box<dyn Future<Output = Appended> + Send>>;

/// Keeps events until they are acknowledged. Nothing here waits for a disk.
pub(super) trait Outbox: Send + Sync {
    /// Stores an event for these listeners. It is sent to the store at the first poll.
    fn append(&self, event: StoredEvent, listeners: Vec<String>) -> Append;

    /// That listener will not need that event again.
    fn acknowledge(&self, listener: &str, seq: u64);
}

/// Without a store, events live in memory.
impl Outbox for Option<Store> {
    fn append(&self, event: StoredEvent, listeners: Vec<String>) -> Append {
        match self.clone() {
            Some(store) => Box::pin(async move { store.append(event, &listeners).await }),
            None => Box::pin(ready(Appended::NotDurable)),
        }
    }

    fn acknowledge(&self, listener: &str, seq: u64) {
        if let Some(store) = self {
            store.acknowledge(listener, seq);
        }
    }
}
