//! Which bookies there are to take what is moved: read from the lists of the cluster, from what agents say, and from the
//! bookies themselves, again and again while a worker works.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::cluster::bookie::Bookies;
use crate::cluster::store::{MetaStore, StoreError, together};
use crate::cluster::{Cluster, ClusterError};
use crate::drain::plan::place::{Seen, Target, targets};
use crate::drain::plan::racks::Racks;

/// Between two looks: a bookie fills by some percent in an hour, and one that refuses is noticed at once anyway.
const LOOK: Duration = Duration::from_secs(30);

/// Where to look.
pub struct Around<'a> {
    /// The store.
    pub store: &'a dyn MetaStore,
    /// Where BookKeeper keeps everything; Pulsar's map of racks is beside it.
    pub ledgers_root: &'a str,
    /// The cluster in that store.
    pub cluster: &'a Cluster,
    /// Its bookies.
    pub bookies: &'a Bookies,
}

/// Why it is not known who can take anything.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AroundError {
    /// The lists.
    #[error("the bookies cannot be listed")]
    Cluster(#[from] ClusterError),
    /// The map of racks.
    #[error("{path} cannot be read")]
    Racks {
        /// Its node.
        path: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// What it says.
    #[error("{path} is no map of racks: {why}")]
    Map {
        /// Its node.
        path: String,
        /// In words.
        why: String,
    },
}

impl Around<'_> {
    /// The map of racks, and what is seen of each bookie.
    ///
    /// # Errors
    /// One of them is not known.
    pub async fn look(&self) -> Result<(Racks, Seen), AroundError> {
        let racks = self.racks().await?;
        let view = self.cluster.view().await?;
        let mut seen = Seen::default();
        for member in &view.members {
            if member.is_writable() {
                seen.writable.insert(member.id.clone());
            }
            let agent = member.agent.as_ref();
            if agent.is_some_and(|agent| agent.over_warn || agent.full) {
                seen.warn.insert(member.id.clone());
            }
        }
        seen.space = self.space(&seen.writable).await;
        Ok((racks, seen))
    }

    /// Free and total bytes of those that say so.
    async fn space(&self, ids: &BTreeSet<String>) -> BTreeMap<String, (u64, u64)> {
        let bookies: Vec<_> = ids.iter().map(|id| self.bookies.get(id)).collect();
        let asked = bookies.iter().map(|bookie| {
            let space: std::pin::Pin<Box<dyn Future<Output = _> + Send>> =
                Box::pin(async move { bookie.space().await.ok() });
            space
        });
        let told = together(asked.collect()).await;
        let told = ids.iter().zip(told);
        told.filter_map(|(id, space)| space.map(|space| (id.clone(), (space.free, space.total))))
            .collect()
    }

    async fn racks(&self) -> Result<Racks, AroundError> {
        let root = self.ledgers_root.trim_end_matches('/');
        let above = root.rsplit_once('/').map_or("", |(above, _)| above);
        let path = format!("{above}/bookies");
        match self.store.get(&path).await {
            Ok((bytes, _)) => Racks::parse(&bytes).map_err(|why| AroundError::Map { path, why }),
            Err(StoreError::NoNode) => Ok(Racks::default()),
            Err(source) => Err(AroundError::Racks { path, source }),
        }
    }

    /// Tells it again and again, until nobody listens. While it cannot be known, what was known stands.
    pub async fn follow(&self, drained: &BTreeSet<String>, into: &watch::Sender<Arc<Vec<Target>>>) {
        loop {
            match self.look().await {
                Ok((racks, seen)) => {
                    into.send_replace(Arc::new(targets(&racks, &seen, drained)));
                }
                Err(error) => tracing::warn!("{}", crate::report::text(&error)),
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                () = into.closed() => return,
            }
        }
    }
}
