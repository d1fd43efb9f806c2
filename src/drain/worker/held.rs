//! Ledgers that are moved and stay locked, in a job that spares readers: as long as BookKeeper's own lock of a ledger is
//! there, its old bookies do not forget what they have of it (`ScanAndCompareGarbageCollector`), so that handles that were
//! opened before still find it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::drain::lock::LedgerLock;

/// The locks.
#[derive(Default)]
pub(super) struct HeldLocks {
    locks: Mutex<BTreeMap<u64, LedgerLock>>,
    /// Ledgers that BookKeeper waits to replicate, and does not while they are locked.
    yielded: Mutex<BTreeSet<u64>>,
}

impl HeldLocks {
    fn locks(&self) -> MutexGuard<'_, BTreeMap<u64, LedgerLock>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn yielded(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.yielded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody else is to have the lock of that ledger.
    pub(super) fn is_yielded(&self, ledger: u64) -> bool {
        self.yielded().contains(&ledger)
    }

    /// From now on somebody else is to have the locks of these, and of no others.
    pub(super) async fn yield_to(&self, ledgers: BTreeSet<u64>) {
        let kept = self.locks().keys().copied().collect::<BTreeSet<_>>();
        let kept = kept.difference(&ledgers).copied().collect();
        *self.yielded() = ledgers;
        self.keep_only(&kept).await;
    }

    pub(super) fn keep(&self, ledger: u64, lock: LedgerLock) {
        self.locks().insert(ledger, lock);
    }

    /// Whether it is locked by us still. A lock ends with its session.
    pub(super) fn has(&self, ledger: u64) -> bool {
        let mut locks = self.locks();
        match locks.get(&ledger) {
            Some(lock) if lock.is_over() => {
                locks.remove(&ledger);
                false
            }
            Some(_) => true,
            None => false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.locks().is_empty()
    }

    /// Gives all others back. What cannot be given back now is in the background, or goes with the session: where the store is out
    /// of reach, thousands are not waited for one after the other.
    pub(super) async fn keep_only(&self, ledgers: &BTreeSet<u64>) {
        let others = |ledger: &u64, _: &mut LedgerLock| !ledgers.contains(ledger);
        let others: BTreeMap<_, _> = self.locks().extract_if(.., others).collect();
        for lock in others.into_values() {
            let given_back = lock.release_with(Vec::new()).await;
            if given_back.is_err_and(|error| error.is_open()) {
                return;
            }
        }
    }
}
