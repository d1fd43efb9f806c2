//! Whether two ways to a ZooKeeper lead to the same one, by what is there: names of hosts say nothing, and a copy holds the same
//! nodes.

use crate::cluster::store::{
    Kind, MetaStore, Op, Stat, StoreError, children_if_any, create_with_parents,
};

/// Bookies that are compared: one is enough, and the first may just have gone.
const MOST_COMPARED: usize = 8;

/// The same node, by the transaction that made it, when that was, and the session it goes with.
fn is_node(one: &Stat, other: &Stat) -> bool {
    (one.created, one.created_at, one.owner) == (other.created, other.created_at, other.owner)
}

/// They seem to be the same: the cluster's id is the same node in both, and so is a bookie's registration, which lives no longer in
/// a copy than its session. Writes nothing.
///
/// # Errors
/// As of the stores.
pub(super) async fn seem_same(
    one: &dyn MetaStore,
    other: &dyn MetaStore,
    ledgers_root: &str,
) -> Result<bool, StoreError> {
    let is_in_both = async |path: &str, must_go: bool| {
        let (here, there) = (one.stat(path).await?, other.stat(path).await?);
        Ok::<_, StoreError>(here.zip(there).is_some_and(|(here, there)| {
            is_node(&here, &there) && (!must_go || here.owner.is_some())
        }))
    };
    if !is_in_both(&format!("{ledgers_root}/INSTANCEID"), false).await? {
        return Ok(false);
    }
    let available = format!("{ledgers_root}/available");
    let bookies = children_if_any(one, &available).await?;
    for bookie in bookies.iter().take(MOST_COMPARED) {
        if is_in_both(&format!("{available}/{bookie}"), true).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// They are the same: what is written here is seen there. `root` is ours, as `/dirkeeper`.
///
/// # Errors
/// As of the stores.
pub(super) async fn are_same(
    one: &dyn MetaStore,
    other: &dyn MetaStore,
    ledgers_root: &str,
    root: &str,
) -> Result<bool, StoreError> {
    // Nothing is written where it cannot be.
    if !seem_same(one, other, ledgers_root).await? {
        return Ok(false);
    }
    let (instance, _) = one.get(&format!("{ledgers_root}/INSTANCEID")).await?;
    let instance = String::from_utf8_lossy(&instance);
    let instance = instance.trim();
    let path = format!("{root}/{instance}/reclaim/same-{:016x}", fastrand::u64(..));
    // It goes with the session if it cannot be taken away.
    create_with_parents(one, &path, &[], Kind::Ephemeral).await?;
    let check = Op::Check {
        path: path.clone(),
        version: 0,
    };
    // A transaction goes through the leader, and so it is seen by whichever server is asked.
    let seen = other.multi(&[check]).await;
    let _ = one.delete(&path, None).await;
    match seen {
        Ok(()) => Ok(true),
        Err(StoreError::Step { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::cluster::memory::{Memory, MemorySession};

    const BOOKIE: &str = "/ledgers/available/b:1";

    /// A ZooKeeper with a bookie, whose session is given too.
    async fn ensemble(clock: &Clock) -> (Memory, MemorySession) {
        let memory = Memory::new(clock.clone());
        let bookie = memory.connect();
        for (path, kind) in [
            ("/ledgers/INSTANCEID", Kind::Persistent),
            ("/ledgers/available/readonly", Kind::Persistent),
            (BOOKIE, Kind::Ephemeral),
        ] {
            create_with_parents(&bookie, path, b"an-id", kind)
                .await
                .unwrap();
        }
        (memory, bookie)
    }

    async fn told(one: &MemorySession, other: &MemorySession) -> [bool; 2] {
        let seem = seem_same(one, other, "/ledgers").await;
        let are = are_same(one, other, "/ledgers", "/dirkeeper").await;
        [seem.unwrap(), are.unwrap()]
    }

    #[tokio::test]
    async fn two_names_of_one_are_one() {
        let (memory, bookie) = ensemble(&Clock::manual()).await;
        let (one, other) = (memory.connect(), memory.connect());
        assert_eq!(told(&one, &other).await, [true, true]);
        let left = one.children("/dirkeeper/an-id/reclaim").await;
        assert_eq!(left.unwrap(), [] as [String; 0]);
        // Where no bookie is, nothing is known.
        bookie.expire();
        assert_eq!(told(&one, &other).await, [false, false]);
    }

    #[tokio::test]
    async fn a_copy_is_another() {
        let clock = Clock::manual();
        let (one, _first) = ensemble(&clock).await;
        let (other, second) = ensemble(&clock).await;
        // Every node is the same, as if the copy had just been made: only what is written tells.
        assert_eq!(told(&one.connect(), &other.connect()).await, [true, false]);
        second.delete(BOOKIE, None).await.unwrap();
        let data = b"an-id";
        second.create(BOOKIE, data, Kind::Ephemeral).await.unwrap();
        assert_eq!(told(&one.connect(), &other.connect()).await, [false, false]);
    }
}
