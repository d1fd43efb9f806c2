//! BookKeeper's own lock of a ledger, `underreplication/locks/urL<id>`: while it is there, no replication worker touches
//! the ledger, and no bookie deletes replicas of it that its metadata does not name. We write to it once, which nobody
//! else does: in version 1 it is ours, and a change of the ledger is made in one transaction with a look at that.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::cluster::store::{Kind, Link, MetaStore, Op, StoreError, create_with_parents};

/// How long an answer of the store is waited for: longer than a session without one lives (10 s), with room for
/// a turn at the pace that the store is asked at.
pub(super) const ANSWER: Duration = Duration::from_secs(20);

/// The version in which a lock is one of ours.
const OURS: i32 = 1;

/// Between two tries to take a lock back whose end is not known.
const RETRY: Duration = Duration::from_millis(500);

/// A lock that is held, or may be: it is taken back when dropped.
pub(super) struct LedgerLock {
    store: Arc<dyn MetaStore>,
    path: String,
    data: Vec<u8>,
    session: i64,
    open: bool,
}

/// Why it is not held.
#[derive(Debug)]
pub(super) enum NotHeld {
    /// Somebody else has it.
    Busy,
    /// Another step of the transaction failed, counted without those of the lock.
    Step(usize),
    /// The store says so, or nothing.
    Store(StoreError),
}

/// Waits for an answer, but not for ever.
pub(super) async fn answered<T>(
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let answer = timeout(ANSWER, call).await;
    answer.unwrap_or(Err(StoreError::TimedOut))
}

impl LedgerLock {
    /// Takes it for `who`, and does the rest in the same transaction.
    pub(super) async fn take(
        store: &Arc<dyn MetaStore>,
        ledgers_root: &str,
        ledger: u64,
        who: &str,
        rest: &[Op],
    ) -> Result<LedgerLock, NotHeld> {
        let Link::Connected(session) = *store.link().borrow() else {
            return Err(NotHeld::Store(StoreError::Lost));
        };
        let mut lock = LedgerLock {
            store: Arc::clone(store),
            path: format!("{ledgers_root}/underreplication/locks/urL{ledger:010}"),
            // `LockDataFormat`. The number tells one attempt from another.
            data: format!("bookieId: {:?}\n", format!("{who} {:x}", fastrand::u64(..))).into(),
            session,
            open: true,
        };
        lock.make(rest).await?;
        if lock.is_held() {
            Ok(lock)
        } else {
            Err(NotHeld::Store(StoreError::Expired))
        }
    }

    /// Held for certain: the session in which it was taken is connected.
    pub(super) fn is_held(&self) -> bool {
        *self.store.link().borrow() == Link::Connected(self.session)
    }

    /// The session in which it was taken has ended, and the lock with it.
    pub(super) fn is_over(&self) -> bool {
        matches!(*self.store.link().borrow(), Link::Connected(id) if id != self.session)
    }

    /// The step of a transaction that fails where it is not ours.
    pub(super) fn check(&self) -> Op {
        Op::Check {
            path: self.path.clone(),
            version: OURS,
        }
    }

    /// Gives it back in one transaction with other steps, all or none. Where the answer is no, it is given back all the
    /// same, in the background. One whose session ended is gone, and what is in its place is somebody else's: then it is as if the
    /// last step had failed.
    pub(super) async fn release_with(mut self, mut ops: Vec<Op>) -> Result<(), StoreError> {
        if !self.is_held() {
            let (at, source) = (ops.len(), Box::new(StoreError::BadVersion));
            return Err(StoreError::Step { at, source });
        }
        ops.push(Op::Delete {
            path: self.path.clone(),
            version: Some(OURS),
        });
        let store = Arc::clone(&self.store);
        let done = answered(store.multi(&ops)).await;
        self.open = done.is_err();
        done
    }

    async fn make(&mut self, rest: &[Op]) -> Result<(), NotHeld> {
        let create = Op::Create {
            path: self.path.clone(),
            data: self.data.clone(),
            kind: Kind::Ephemeral,
        };
        let set = Op::Set {
            path: self.path.clone(),
            data: self.data.clone(),
            version: Some(0),
        };
        let own = [create, set];
        let ops = [&own[..], rest].concat();
        let store = Arc::clone(&self.store);
        let mut done = answered(store.multi(&ops)).await;
        if let Err(StoreError::Step { at: 0, source }) = &done
            && **source == StoreError::NoNode
        {
            self.make_folder().await.map_err(NotHeld::Store)?;
            done = answered(store.multi(&ops)).await;
        }
        let error = match done {
            Ok(()) => return Ok(()),
            Err(StoreError::Step { at, source }) => {
                self.open = false;
                return Err(match at.checked_sub(own.len()) {
                    Some(at) => NotHeld::Step(at),
                    None if *source == StoreError::NodeExists => NotHeld::Busy,
                    None => NotHeld::Store(*source),
                });
            }
            Err(error) => error,
        };
        // Whether it was made is not known: what is there tells, as the transaction is made whole or not at all.
        self.open = error.is_open();
        match answered(store.get(&self.path)).await {
            Ok((data, stat)) if data == self.data && stat.version == OURS => Ok(()),
            _ => Err(NotHeld::Store(error)),
        }
    }

    /// Where no replication ever ran, there is no folder for locks yet.
    async fn make_folder(&self) -> Result<(), StoreError> {
        let folder = self.path.rsplit_once('/').map_or("/", |(above, _)| above);
        let made = create_with_parents(&*self.store, folder, &[], Kind::Persistent);
        match answered(made).await {
            Ok(_) | Err(StoreError::NodeExists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn take_back(&mut self) -> impl Future<Output = ()> + Send + 'static {
        let (store, path) = (Arc::clone(&self.store), self.path.clone());
        let data = std::mem::take(&mut self.data);
        async move {
            let mut link = store.link();
            loop {
                let now = *link.borrow_and_update();
                match now {
                    // Also in another session: it may have begun between the look at the link and the transaction.
                    Link::Connected(_) => match answered(store.get(&path)).await {
                        Ok((found, stat)) if found == data => {
                            let version = Some(stat.version);
                            if answered(store.delete(&path, version)).await.is_ok() {
                                return;
                            }
                        }
                        Ok(_) | Err(StoreError::NoNode) => return,
                        Err(_) => {}
                    },
                    Link::Lost { .. } => {}
                }
                tokio::select! {
                    () = tokio::time::sleep(RETRY) => {}
                    changed = link.changed() => if changed.is_err() {
                        return;
                    },
                }
            }
        }
    }
}

impl Drop for LedgerLock {
    fn drop(&mut self) {
        // Without a runtime the process is about to end, and the session with it.
        if self.open
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(self.take_back());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::clock::Clock;
    use crate::cluster::hooked::{Call, Fate, Hook, Hooked};
    use crate::cluster::memory::{Memory, MemorySession};

    const PATH: &str = "/ledgers/underreplication/locks/urL0000000007";

    async fn take(store: &Arc<MemorySession>, rest: &[Op]) -> Result<LedgerLock, NotHeld> {
        let store: Arc<dyn MetaStore> = store.clone();
        LedgerLock::take(&store, "/ledgers", 7, "me", rest).await
    }

    fn two() -> (Arc<MemorySession>, Arc<MemorySession>) {
        let server = Memory::new(Clock::manual());
        (Arc::new(server.connect()), Arc::new(server.connect()))
    }

    async fn gone(store: &MemorySession) {
        let wait = async {
            while let (Some(_), changed) = store.watch(PATH).await.unwrap() {
                changed.await;
            }
        };
        timeout(ANSWER, wait)
            .await
            .expect("the lock is still there");
    }

    #[tokio::test]
    async fn one_holds_it_in_version_1_and_gives_it_back() {
        let (one, two) = two();
        let lock = take(&one, &[]).await.ok().unwrap();
        let (data, stat) = two.get(PATH).await.unwrap();
        assert_eq!(stat.version, 1);
        assert!(data.starts_with(b"bookieId: \"me "));
        assert!(matches!(take(&two, &[]).await, Err(NotHeld::Busy)));
        assert_eq!(two.multi(&[lock.check()]).await, Ok(()));
        lock.release_with(Vec::new()).await.unwrap();
        assert_eq!(two.stat(PATH).await, Ok(None));
        // One that is dropped goes too.
        drop(take(&two, &[]).await.ok().unwrap());
        gone(&one).await;
    }

    #[tokio::test]
    async fn what_comes_with_it_comes_whole_or_not_at_all() {
        let (one, _) = two();
        let op = Op::Check {
            path: "/not-there".to_owned(),
            version: 0,
        };
        let told = take(&one, &[op]).await;
        assert!(matches!(told, Err(NotHeld::Step(0))));
        assert_eq!(one.stat(PATH).await, Ok(None));
    }

    /// The session ends, and another one begins, right before the first transaction.
    struct Ends(Arc<MemorySession>, AtomicUsize);

    impl Hook for Ends {
        fn before(&self, call: &Call<'_>) -> Fate {
            if matches!(call, Call::Multi(_)) && self.1.fetch_add(1, Ordering::Relaxed) == 0 {
                self.0.expire();
                self.0.reconnect();
            }
            Fate::Answered
        }
    }

    #[tokio::test]
    async fn one_that_was_made_in_a_later_session_is_not_left_behind() {
        let (one, two) = two();
        take(&two, &[]).await.ok().unwrap();
        gone(&two).await;
        let hook = Ends(one.clone(), AtomicUsize::new(0));
        let store: Arc<dyn MetaStore> = Arc::new(Hooked { store: one, hook });
        let taken = LedgerLock::take(&store, "/ledgers", 7, "me", &[]).await;
        assert!(matches!(taken, Err(NotHeld::Store(StoreError::Expired))));
        gone(&two).await;
    }

    #[tokio::test]
    async fn whoever_of_us_took_it_after_the_session_ended_keeps_it() {
        let (one, two) = two();
        let lock = take(&one, &[]).await.ok().unwrap();
        one.expire();
        let other = take(&two, &[]).await.ok().unwrap();
        one.reconnect();
        let step = |at| {
            let source = Box::new(StoreError::BadVersion);
            Err(StoreError::Step { at, source })
        };
        assert_eq!(lock.release_with(Vec::new()).await, step(0));
        tokio::task::yield_now().await;
        assert_eq!(two.multi(&[other.check()]).await, Ok(()));
    }

    #[tokio::test]
    async fn whoever_took_it_after_the_session_ended_is_not_taken_for_us() {
        let (one, two) = two();
        let lock = take(&one, &[]).await.ok().unwrap();
        one.expire();
        assert!(!lock.is_held());
        one.reconnect();
        assert!(!lock.is_held());
        // BookKeeper's worker never writes to it.
        two.create(PATH, b"bookieId: \"java\"", Kind::Ephemeral)
            .await
            .unwrap();
        assert!(one.multi(&[lock.check()]).await.is_err());
        let released = lock.release_with(Vec::new()).await;
        assert!(released.is_err());
        // It is left to its owner.
        tokio::task::yield_now().await;
        assert!(two.stat(PATH).await.unwrap().is_some());
    }
}
