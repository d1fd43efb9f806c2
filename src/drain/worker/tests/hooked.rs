//! What a test makes of calls to the store.

use std::sync::Arc;

pub(super) use crate::cluster::hooked::{Call, Fate};
use crate::cluster::hooked::{Hook, Hooked};
use crate::cluster::store::{MetaStore, Op};

struct By<F>(F);

impl<F: Fn(&Call<'_>) -> Fate + Send + Sync + 'static> Hook for By<F> {
    fn before(&self, call: &Call<'_>) -> Fate {
        (self.0)(call)
    }
}

/// A store in front of that one, whose calls come to what is said.
pub(super) fn hooked(
    store: Arc<dyn MetaStore>,
    fate: impl Fn(&Call<'_>) -> Fate + Send + Sync + 'static,
) -> Arc<dyn MetaStore> {
    let hook = By(fate);
    Arc::new(Hooked { store, hook })
}

/// The nodes that a call is about.
pub(super) fn paths(call: &Call<'_>) -> Vec<String> {
    match call {
        Call::Read(path) | Call::Write(path) => vec![(*path).to_owned()],
        Call::Multi(ops) => {
            let path = |op: &Op| match op {
                Op::Check { path, .. }
                | Op::Create { path, .. }
                | Op::Set { path, .. }
                | Op::Delete { path, .. } => path.clone(),
            };
            ops.iter().map(path).collect()
        }
    }
}
