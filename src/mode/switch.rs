//! The boundary to a server whose mode can be turned: what it can be asked and told.

use std::sync::{Arc, Mutex, PoisonError};

use crate::health::policy::Mode;

/// How a server stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// Its mode.
    pub mode: Mode,
    /// It takes recovery (high-priority) writes although it is read-only.
    pub high_priority_writes: bool,
}

/// A server could not be asked or told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct SwitchError {
    /// What was tried and what came of it.
    pub what: String,
}

/// A server that can be made read-only. Called from a thread of its own, so it may block; a call
/// that never returns delays nothing but itself.
pub trait ModeSwitch: Send {
    /// How the server stands now.
    ///
    /// # Errors
    /// It cannot be asked.
    fn observe(&mut self) -> Result<Observed, SwitchError>;

    /// Makes it read-only or writable. Read back with [`ModeSwitch::observe`] afterwards: an
    /// answer of success is not believed (BookKeeper #3881).
    ///
    /// # Errors
    /// It refused or cannot be told.
    fn set_mode(&mut self, mode: Mode, reason: &str) -> Result<(), SwitchError>;

    /// Allows or forbids recovery writes while read-only.
    ///
    /// # Errors
    /// It refused or cannot be told.
    fn set_high_priority_writes(&mut self, allowed: bool) -> Result<(), SwitchError>;
}

/// A switch in memory: the flags that a Rust server consults before it takes a write. Clones share
/// them.
#[derive(Debug, Clone)]
pub struct MemorySwitch {
    state: Arc<Mutex<(Observed, String)>>,
}

impl Default for MemorySwitch {
    fn default() -> Self {
        // No write is a recovery write before the first verdict: nothing is known (W35).
        let observed = Observed {
            mode: Mode::Writable,
            high_priority_writes: false,
        };
        MemorySwitch {
            state: Arc::new(Mutex::new((observed, String::new()))),
        }
    }
}

impl MemorySwitch {
    /// A writable server.
    #[must_use]
    pub fn new() -> MemorySwitch {
        MemorySwitch::default()
    }

    /// How it stands.
    #[must_use]
    pub fn now(&self) -> Observed {
        self.lock().0
    }

    /// Why it is read-only; empty when it never was.
    #[must_use]
    pub fn reason(&self) -> String {
        self.lock().1.clone()
    }

    /// An operator's order: turns the mode without the monitor.
    pub fn turn(&self, mode: Mode) {
        self.lock().0.mode = mode;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Observed, String)> {
        // Two plain values: nothing is half-written when a holder panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModeSwitch for MemorySwitch {
    fn observe(&mut self) -> Result<Observed, SwitchError> {
        Ok(self.now())
    }

    fn set_mode(&mut self, mode: Mode, reason: &str) -> Result<(), SwitchError> {
        let mut state = self.lock();
        state.0.mode = mode;
        reason.clone_into(&mut state.1);
        Ok(())
    }

    fn set_high_priority_writes(&mut self, allowed: bool) -> Result<(), SwitchError> {
        self.lock().0.high_priority_writes = allowed;
        Ok(())
    }
}
