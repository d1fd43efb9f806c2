//! Whether the bookie may end now. Who gets a yes has it reserved for some minutes: asked one after the other, two
//! bookies are not both allowed where only one may go.

use std::time::Duration;

use super::{NO_ZOOKEEPER, Task};
use crate::cluster::{Cluster, ClusterError, ModeLock, floor};
use crate::document::timestamp_text;
use crate::health::moment::Timestamp;
use crate::report;

/// How long a person who asks waits for the lock; the question itself is answered within 4 s or not at all.
const MAY_STOP_WAIT: Duration = Duration::from_secs(1);

impl Task {
    /// Floor, lock and under-replication allow one bookie to go now.
    pub(super) async fn may_stop(&mut self, reserve: bool) -> Result<String, String> {
        let Some(cluster) = self.parts.cluster.clone() else {
            return Err(format!(
                "{NO_ZOOKEEPER}: nobody knows how many bookies are left"
            ));
        };
        let lock = cluster.lock_mode(MAY_STOP_WAIT).await.map_err(text)?;
        let result = self.may_stop_locked(&cluster, &lock, reserve).await;
        lock.release().await;
        result
    }

    async fn may_stop_locked(
        &self,
        cluster: &Cluster,
        lock: &ModeLock,
        reserve: bool,
    ) -> Result<String, String> {
        let view = cluster.view().await.map_err(text)?;
        let stopping = cluster.stopping(lock).await.map_err(text)?;
        let least = *self.parts.min_writable.borrow();
        floor::may_go(&view, &stopping, &self.parts.bookie_id, least, false)?;
        if cluster.under_replicated().await.map_err(text)? {
            return Err("ledgers are under-replicated: wait until they are not".to_owned());
        }
        const MAY: &str = "floor, lock and under-replication allow this bookie to go now";
        if !reserve {
            return Ok(format!("{MAY}; nothing is reserved for it"));
        }
        // Whoever had the lock since has counted without this one.
        if !lock.is_held() {
            return Err("the lock of the cluster may be another's by now".to_owned());
        }
        let stays = cluster.reserve_stop(lock).await.map_err(text)?;
        let end = self.parts.clock.now().wall.0 + millis(stays);
        Ok(format!(
            "{MAY}; that is reserved for it for {} s, until {}: meanwhile all others count it as gone",
            stays.as_secs(),
            timestamp_text(Timestamp(end))
        ))
    }
}

fn text(error: ClusterError) -> String {
    report::text(&error)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
