//! Bookies that were allowed to stop. Whoever gets that answer counts as gone for some minutes, so that of two who ask
//! one after the other not both are allowed. A node that stays, because an agent may end together with its bookie.
//! Its age is told by the store's clock; it ends early when the bookie registers anew, so that a restart takes no
//! longer than it takes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::paths::Paths;
use super::store::{Kind, MetaStore, StoreError, children_if_any, create_with_parents, get_all};
use crate::health::moment::Timestamp;

/// From the answer until the bookie has left the list of writable ones: a stop flushes first, which takes a minute
/// or two on a busy disk. Who needs longer asks again.
pub(super) const STAYS: Duration = Duration::from_secs(300);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    /// When it was asked, milliseconds since the epoch by the agent's clock. For people.
    at: i64,
    /// The transaction that registered the bookie; none when it was not registered.
    #[serde(default)]
    registered: Option<i64>,
}

/// Says that the bookie stops now, or still does. Under the lock.
pub(super) async fn reserve(
    store: &dyn MetaStore,
    paths: &Paths,
    bookie: &str,
    at: Timestamp,
) -> Result<Duration, StoreError> {
    let document = Document {
        at: at.0,
        registered: registered(store, paths, bookie).await?,
    };
    let data = serde_json::to_vec(&document).expect("numbers are always JSON");
    let path = paths.stopping_of(bookie);
    match store.set(&path, &data, None).await {
        Err(StoreError::NoNode) => {
            create_with_parents(store, &path, &data, Kind::Persistent).await?;
        }
        other => drop(other?),
    }
    Ok(STAYS)
}

/// Who stops, and for how long that still counts. `now` is the store's time. What counts no more is taken away.
pub(super) async fn read(
    store: &dyn MetaStore,
    paths: &Paths,
    now: i64,
) -> Result<BTreeMap<String, Duration>, StoreError> {
    let names = children_if_any(store, &paths.stopping()).await?;
    let nodes: Vec<String> = names.iter().map(|name| paths.stopping_of(name)).collect();
    let found = get_all(store, &nodes).await?;
    let mut stopping = BTreeMap::new();
    for ((name, node), found) in names.into_iter().zip(&nodes).zip(found) {
        let Some((data, stat)) = found else { continue };
        let age = u64::try_from(now.saturating_sub(stat.modified)).unwrap_or(0);
        let left = STAYS.saturating_sub(Duration::from_millis(age));
        if left.is_zero() || is_back(store, paths, &name, &data).await? {
            // Not taken away it counts as little, and is looked at again.
            let _ = store.delete(node, Some(stat.version)).await;
            continue;
        }
        stopping.insert(name, left);
    }
    Ok(stopping)
}

/// It has registered since it asked. Of what cannot be understood nobody knows.
async fn is_back(
    store: &dyn MetaStore,
    paths: &Paths,
    bookie: &str,
    data: &[u8],
) -> Result<bool, StoreError> {
    let Ok(document) = serde_json::from_slice::<Document>(data) else {
        return Ok(false);
    };
    let now = registered(store, paths, bookie).await?;
    Ok(now.is_some() && now != document.registered)
}

/// The transaction that made the bookie writable, or the one that made it read-only.
async fn registered(
    store: &dyn MetaStore,
    paths: &Paths,
    bookie: &str,
) -> Result<Option<i64>, StoreError> {
    for list in [paths.available(), paths.read_only()] {
        if let Some(stat) = store.stat(&format!("{list}/{bookie}")).await? {
            return Ok(Some(stat.created));
        }
    }
    Ok(None)
}
