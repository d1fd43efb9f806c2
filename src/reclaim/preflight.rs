//! Looked at before anything is acted on: that it is the cluster of the last time, that its layout is known, that its clock
//! and ours agree, and that it takes writes at all.

use thiserror::Error;

use super::plan::Millis;
use super::scan::Ledgers;
use super::state::{State, StateError};
use crate::clock::Clock;
use crate::cluster::ledger::{Layout, LayoutError};
use crate::cluster::store::{Kind, Stat, StoreError, create_with_parents};

/// Between our clock and that of the store: ages and times of grace are hours and days.
pub(super) const MOST_SKEW: Millis = 60_000;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// The cluster's id.
    pub instance: String,
    /// Where it keeps ledgers.
    pub layout: Layout,
}

/// Why nothing is done.
#[derive(Debug, Error)]
pub enum PreflightError {
    /// The store.
    #[error("cannot read {path}")]
    Store {
        /// Which node.
        path: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The layout.
    #[error("cannot tell where ledgers are")]
    Layout(#[from] LayoutError),
    /// No cluster.
    #[error("{path} is not there or no text: is that the ledgers root?")]
    NoInstance {
        /// Which node.
        path: String,
    },
    /// The wrong cluster.
    #[error(
        "this is cluster {now}, and what is remembered is of cluster {before}: take another --state-dir for another cluster"
    )]
    OtherCluster {
        /// As remembered.
        before: String,
        /// As read.
        now: String,
    },
    /// The clocks.
    #[error(
        "our clock and that of the metadata store are {seconds} s apart, and ages are judged by both: set the clocks first"
    )]
    Clocks {
        /// How far.
        seconds: i64,
    },
    /// No right to write.
    #[error("may not write {path} (ACL), so nothing can be done here")]
    NoAuth {
        /// Which node.
        path: String,
    },
    /// No writes.
    #[error(
        "the metadata store takes no writes, as in read-only mode, so nothing can be done here"
    )]
    NoWrites {
        /// Why.
        #[source]
        source: StoreError,
    },
    /// What is remembered.
    #[error("cannot use what is remembered")]
    State(#[from] StateError),
}

/// Looks, and remembers the cluster at the first time. `root` is ours, as `/dirkeeper`.
///
/// # Errors
/// Nothing may be acted on.
pub async fn preflight(
    state: &State,
    ledgers: &Ledgers,
    root: &str,
    clock: &Clock,
) -> Result<Ready, PreflightError> {
    let instance = text(ledgers, "INSTANCEID").await?;
    let (path, layout) = read(ledgers, "LAYOUT").await?;
    if layout.is_empty() {
        return Err(PreflightError::NoInstance { path });
    }
    let layout = Layout::parse(&layout)?;
    match state.instance()? {
        Some(before) if before != instance => {
            let now = instance;
            return Err(PreflightError::OtherCluster { before, now });
        }
        _ => {}
    }
    clocks(ledgers, root, &instance, clock).await?;
    if state.instance()?.is_none() {
        state.remember_instance(&instance)?;
    }
    Ok(Ready { instance, layout })
}

async fn read(ledgers: &Ledgers, name: &str) -> Result<(String, Vec<u8>), PreflightError> {
    let path = format!("{}/{name}", ledgers.root);
    match ledgers.store.get(&path).await {
        Ok((bytes, _)) => Ok((path, bytes)),
        Err(StoreError::NoNode) => Ok((path, Vec::new())),
        Err(source) => Err(PreflightError::Store { path, source }),
    }
}

async fn text(ledgers: &Ledgers, name: &str) -> Result<String, PreflightError> {
    let (path, bytes) = read(ledgers, name).await?;
    match std::str::from_utf8(&bytes).map(str::trim) {
        Ok(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(PreflightError::NoInstance { path }),
    }
}

/// Makes a node and takes it away again: it says whether writes are taken, and at what time.
pub(super) async fn clocks(
    ledgers: &Ledgers,
    root: &str,
    instance: &str,
    clock: &Clock,
) -> Result<Stat, PreflightError> {
    let path = format!("{root}/{instance}/reclaim/clock-{:016x}", fastrand::u64(..));
    let store = &*ledgers.store;
    let before = clock.now().wall.0;
    // It goes with the session if it cannot be taken away.
    let stat = match create_with_parents(store, &path, &[], Kind::Ephemeral).await {
        Ok(stat) => stat,
        Err(StoreError::NoAuth) => return Err(PreflightError::NoAuth { path }),
        Err(source @ StoreError::Other(_)) => return Err(PreflightError::NoWrites { source }),
        Err(source) => return Err(PreflightError::Store { path, source }),
    };
    let after = clock.now().wall.0;
    let _ = store.delete(&path, None).await;
    let apart = (before - stat.created_at).max(stat.created_at - after);
    if MOST_SKEW < apart {
        let seconds = apart / 1000;
        return Err(PreflightError::Clocks { seconds });
    }
    Ok(stat)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::cluster::store::MetaStore;
    use crate::reclaim::stage::hooked::{Call, Fate, Hook, Hooked};
    use crate::reclaim::stage::{World, now};

    fn ledgers(store: Arc<dyn MetaStore>) -> Ledgers {
        Ledgers {
            store,
            root: "/ledgers".to_owned(),
        }
    }

    fn told(state: &State, ledgers: &Ledgers, clock: &Clock) -> String {
        match now(preflight(state, ledgers, "/dirkeeper", clock)).unwrap() {
            Ok(ready) => format!("{} {:?}", ready.instance, ready.layout),
            Err(error) => crate::report::text(&error),
        }
    }

    #[test]
    fn what_is_looked_at_first() {
        let (world, state) = (World::new(), State::in_memory());
        let ledgers = ledgers(world.store.clone());
        let here = || told(&state, &ledgers, &world.clock);
        insta::assert_snapshot!(here(), @"an-id Hierarchical");
        let left = now(world.store.children("/dirkeeper/an-id/reclaim"));
        assert_eq!(left.unwrap().unwrap(), [] as [String; 0]);
        world.put("/ledgers/INSTANCEID", b"another");
        insta::assert_snapshot!(here(), @"this is cluster another, and what is remembered is of cluster an-id: take another --state-dir for another cluster");
        world.put("/ledgers/INSTANCEID", b"an-id");
        world.put("/ledgers/LAYOUT", b"2\nx.MSLedgerManagerFactory:1");
        insta::assert_snapshot!(here(), @"cannot tell where ledgers are: LAYOUT names MSLedgerManagerFactory, version 1, which keeps its ledgers in a way that is not known");
        world.put("/ledgers/LAYOUT", crate::reclaim::stage::LAYOUT);
        let other = Clock::manual();
        other.advance(Duration::from_secs(1_000_061));
        insta::assert_snapshot!(told(&state, &ledgers, &other), @"our clock and that of the metadata store are 61 s apart, and ages are judged by both: set the clocks first");
        insta::assert_snapshot!(here(), @"an-id Hierarchical");
    }

    struct ReadOnly(StoreError);

    impl Hook for ReadOnly {
        fn before(&self, call: &Call<'_>) -> Fate {
            match call {
                Call::Write(_) => Fate::Fails(self.0.clone()),
                _ => Fate::Answered,
            }
        }
    }

    #[test]
    fn where_nothing_can_be_written() {
        let (world, state) = (World::new(), State::in_memory());
        let refusing = |error| {
            ledgers(Arc::new(Hooked {
                store: world.store.clone(),
                hook: ReadOnly(error),
            }))
        };
        let denied = told(&state, &refusing(StoreError::NoAuth), &world.clock);
        let (before, after) = denied.split_once("clock-").unwrap();
        insta::assert_snapshot!(before, @"may not write /dirkeeper/an-id/reclaim/");
        insta::assert_snapshot!(&after[16..], @" (ACL), so nothing can be done here");
        let error = StoreError::Other("not readonly".to_owned());
        insta::assert_snapshot!(told(&state, &refusing(error), &world.clock), @"the metadata store takes no writes, as in read-only mode, so nothing can be done here: not readonly");
        // A cluster that nothing can be done to is not remembered.
        assert_eq!(state.instance().unwrap(), None);
    }
}
