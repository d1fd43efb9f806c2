//! Identity pins between the monitor loop and the state store. Pins of an earlier run may become
//! known only after the start, when the store opens late; until then none is written, because one
//! made meanwhile may be of the root disk under a mount that is missing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::health::dir::Dir;
use crate::health::identity::Pin;
use crate::health::observation::Cookie;
use crate::state::{Store, pins};

/// The newest pin of each directory, as the store has it or shall have it.
#[derive(Clone)]
pub(super) struct Pins {
    store: Store,
    state: Arc<Mutex<State>>,
}

struct State {
    known: HashMap<Vec<u8>, Vec<u8>>,
    /// Everything that the store held is in `known`.
    complete: bool,
}

impl Pins {
    pub(super) fn new(store: Store, stored: Vec<(Vec<u8>, Vec<u8>)>, complete: bool) -> Pins {
        let state = State {
            known: stored.into_iter().collect(),
            complete,
        };
        Pins {
            store,
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(super) fn get(&self, dir: &Dir) -> Option<Pin> {
        let key = pins::key(dir.role, &dir.path);
        pins::decode(self.state().known.get(&key)?)
    }

    /// The cluster that the cookie of one of the directories named in an earlier run.
    pub(super) fn instance(&self, dirs: &[Dir]) -> Option<String> {
        let of = |dir| match self.get(dir)?.identity.cookie {
            Cookie::Present { instance_id, .. } if !instance_id.is_empty() => Some(instance_id),
            _ => None,
        };
        dirs.iter().find_map(of)
    }

    pub(super) fn keep(&self, dir: &Dir, pin: &Pin) {
        let (key, value) = (pins::key(dir.role, &dir.path), pins::encode(pin));
        let mut state = self.state();
        if state.complete {
            self.store.put_pin(&key, &value);
        }
        state.known.insert(key, value);
    }

    /// The store is open and held these: they stand above those made meanwhile.
    pub(super) fn complete(&self, stored: Vec<(Vec<u8>, Vec<u8>)>) {
        let mut state = self.state();
        state.known.extend(stored);
        state.complete = true;
        drop(state);
        self.put_all();
    }

    /// Writes all of them again, for a store that was started afresh.
    pub(super) fn put_all(&self) {
        for (key, value) in &self.state().known {
            self.store.put_pin(key, value);
        }
    }

    /// Held for copying only.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
