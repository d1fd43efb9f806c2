//! What was found wrong with bookies while copying, for people: the first of it whole, and all of it counted.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many are kept and logged: by then it is known which bookie it is.
const KEPT: usize = 100;

/// A replica that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Of which bookie.
    pub bookie: String,
    /// Of which ledger.
    pub ledger: u64,
    /// Which entry.
    pub entry: u64,
    /// What is wrong, in words.
    pub why: String,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report {
            bookie,
            ledger,
            entry,
            why,
        } = self;
        write!(f, "{bookie}, entry {entry} of ledger {ledger}: {why}")
    }
}

#[derive(Debug, Default)]
pub(super) struct Reports {
    kept: Mutex<(Vec<Report>, u64)>,
}

impl Reports {
    pub(super) fn add(&self, report: Report) {
        let mut kept = self.lock();
        kept.1 += 1;
        if kept.0.len() < KEPT {
            tracing::warn!("{report}");
            kept.0.push(report);
        }
    }

    /// The first ones.
    pub(super) fn first(&self) -> Vec<Report> {
        self.lock().0.clone()
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.lock().1
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Report>, u64)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
