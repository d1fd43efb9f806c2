//! Listeners: who is told about events, and how. The monitor loop hands each event to the
//! [`Dispatcher`] and goes on; each listener has its own bounded backlog and its own thread, so that
//! none can delay the loop or another listener. Reading order: `backlog` (pure), `dispatcher`,
//! `callback`, `log`, `courier` with `hook` and `webhook`. Beside them `alertmanager`, which follows the snapshot and
//! takes no events.

pub mod alertmanager;
mod backlog;
mod callback;
mod courier;
mod dispatcher;
pub mod hook;
mod log;
mod outbox;
#[cfg(test)]
mod tests;
pub mod webhook;

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::health::event::{Event, EventKind};

pub use alertmanager::{Alertmanager, AlertmanagerOptions};
pub use courier::Verdict;
pub use dispatcher::Dispatcher;
pub use hook::HookOptions;
pub use webhook::{Webhook, WebhookOptions};

/// A function of the program that embeds the library.
pub type Callback = Box<dyn FnMut(&Event) + Send>;

/// A receiver of events, to be started by the [`Dispatcher`].
pub enum Listener {
    /// One line in the agent's log for each event. Named `log`.
    Log,
    /// An operator's executable. Durable: what it has not taken is delivered after a restart.
    Hook(HookOptions),
    /// A server that is sent them. Durable too.
    Webhook(Webhook),
    /// A function, called on a thread of its own. It may block or panic: its own events wait, and
    /// beyond the bound those of one directory are merged into the newest, with a count.
    Callback {
        /// Name in views and metrics.
        name: String,
        /// Which events it wants; empty for all.
        events: Vec<EventKind>,
        /// The function.
        call: Callback,
    },
}

/// True when a list of wanted events, empty for all, has this one.
fn wants(events: &[EventKind], kind: EventKind) -> bool {
    events.is_empty() || events.contains(&kind)
}

/// Locks, also after a panic elsewhere: the values under our locks are changed in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod testing {
    //! What the tests of this room share.

    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use crate::clock::Clock;
    use crate::health::dir::Role;
    use crate::health::event::{Event, EventKind, NodeSummary};
    use crate::health::moment::Timestamp;
    use crate::health::observation::{Operation, Space};
    use crate::health::policy::Mode;
    use crate::health::status::{Axis, Cause, Reason};

    /// `diskFull` of this directory.
    pub(crate) fn full(seq: u64, dir: impl AsRef<Path>) -> Event {
        let dir = dir.as_ref().to_owned();
        Event {
            seq,
            time: Timestamp(1_796_000_523_456),
            kind: EventKind::DiskFull,
            severity: EventKind::DiskFull.severity(),
            dir: Some(dir.clone()),
            role: Some(Role::Ledger),
            axis: Some(Axis::Space),
            from: Some("almostFull"),
            to: Some("full"),
            coalesced: 0,
            reason: Some(Reason {
                cause: Cause::Bytes,
                operation: Operation::Statvfs,
                errno: None,
                message: "usage 0.951 is over full 0.950".to_owned(),
            }),
            space: Some(Space {
                size: 1000 << 30,
                available: 49 << 30,
                inodes: 0,
                inodes_free: 0,
            }),
            node: NodeSummary {
                writable: vec![PathBuf::from("/mnt/l2")],
                full: vec![dir],
                wanted_mode: Some(Mode::ReadOnly),
                high_priority_writes: true,
                ..NodeSummary::default()
            },
        }
    }

    /// `allDisksFull` of the node.
    pub(crate) fn all_full(seq: u64) -> Event {
        Event {
            kind: EventKind::AllDisksFull,
            dir: None,
            role: None,
            axis: None,
            from: None,
            to: None,
            reason: None,
            space: None,
            ..full(seq, "/mnt/l1")
        }
    }

    /// Waits until it holds; fails with the text after 20 s.
    pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
        let clock = Clock::start();
        while !holds() {
            assert!(clock.elapsed() < Duration::from_secs(20), "never: {what}");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}
