//! What the handles and the task that talks to the child share: the agent's view of the writer behind
//! a lock that is held for moments only, never while anything is awaited, and the two wake-ups.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot, watch};

use super::agent::{Core, PageReceiver, Writer};
use super::wire::{Answer, Write};
use super::{Appended, StoreError, StoreHealth};
use crate::clock::Clock;

#[derive(Debug)]
pub(super) struct Shared {
    core: Mutex<Core>,
    clock: Clock,
    /// There is something to send, or to stop.
    work: Notify,
    /// The writer said something about the file.
    news: watch::Sender<()>,
}

impl Shared {
    pub(super) fn new(clock: Clock) -> Shared {
        Shared {
            core: Mutex::default(),
            clock,
            work: Notify::new(),
            news: watch::Sender::new(()),
        }
    }

    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this holds, or the store is stopped.
    pub(super) async fn wait_for(&self, holds: fn(&Core) -> bool) {
        let mut news = self.news.subscribe();
        loop {
            {
                let core = self.core();
                if holds(&core) || core.stopped {
                    return;
                }
            }
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    /// Resolves when there may be something to send, or to stop.
    pub(super) async fn work(&self) {
        self.work.notified().await;
    }

    /// Queues a write and gives what resolves when it is durable; `None` when that is not to be
    /// expected in time.
    pub(super) fn submit_and_wait(
        &self,
        write: Write,
    ) -> Option<(u64, oneshot::Receiver<Appended>)> {
        let submitted = self.core().submit(write);
        self.work.notify_one();
        submitted
    }

    /// Queues a write of a pin.
    pub(super) fn submit_pin(&self, key: &[u8], write: Write) {
        {
            let mut core = self.core();
            core.queue.forget_pin(key);
            core.submit(write);
        }
        self.work.notify_one();
    }

    /// Queues a write of the claims, as [`Shared::submit_and_wait`] does.
    pub(super) fn submit_claims(
        &self,
        value: Vec<u8>,
    ) -> Option<(u64, oneshot::Receiver<Appended>)> {
        let submitted = {
            let mut core = self.core();
            core.queue.forget_claims();
            core.submit(Write::PutClaims {
                value: value.into(),
            })
        };
        self.work.notify_one();
        submitted
    }

    /// Queues an acknowledgement, unless the event itself was not sent yet.
    pub(super) fn acknowledge(&self, listener: &str, seq: u64) {
        {
            let mut core = self.core();
            if core.queue.cancel_delivery(listener, seq) {
                return;
            }
            core.submit(Write::Acknowledge {
                listener: listener.into(),
                seq,
            });
        }
        self.work.notify_one();
    }

    /// Asks for a page of events.
    ///
    /// # Errors
    /// The store is not open, or too many are asking.
    pub(super) fn read(&self, since: u64, limit: usize) -> Result<(u64, PageReceiver), StoreError> {
        let asked = self.core().ask(since, limit);
        self.work.notify_one();
        asked
    }

    pub(super) fn stop(&self) {
        {
            let mut core = self.core();
            core.stopped = true;
            core.queue.release_waiters();
            core.reads.clear();
        }
        self.work.notify_one();
        self.news.send_replace(());
    }

    /// Takes in what the writer says.
    pub(super) fn take(&self, answer: Answer) {
        let tells = matches!(
            answer,
            Answer::ContentsEnd { .. } | Answer::Ready(_) | Answer::Trouble(_)
        );
        self.core().take(answer, self.clock.elapsed());
        if tells {
            self.news.send_replace(());
        }
    }

    /// The writer is not there any more, or not yet.
    pub(super) fn writer_is_gone(&self, why: String) {
        self.core().change(Writer::Gone(why), self.clock.elapsed());
    }

    /// The writer should have said something.
    pub(super) fn writer_is_silent(&self) {
        self.core().silence(self.clock.elapsed());
    }

    pub(super) fn health(&self) -> StoreHealth {
        self.core().health(self.clock.elapsed())
    }
}
