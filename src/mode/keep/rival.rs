//! Two agents that were told to look after one bookie, as by a copied configuration: the one that said so first does,
//! and the other one looks and says so, until the first one's session has ended.

use std::time::Duration;

use super::Task;
use crate::cluster::{Cluster, ClusterError};
use crate::mode::plan::keeper::Held;
use crate::report;

/// The node of an agent that crashed goes with its session, which ends after 10 s: until then the one that follows
/// it waits, and nothing is wrong.
const GRACE: Duration = Duration::from_secs(20);

impl Task {
    /// Asked each time before something is done, and now and then.
    pub(super) async fn look_for_rival(&mut self, cluster: &Cluster) {
        match cluster.is_alone().await {
            Ok(()) => self.rival = None,
            Err(error @ ClusterError::Rival { .. }) => {
                let now = self.parts.clock.elapsed();
                let since = self.rival.as_ref().map_or(now, |(since, _)| *since);
                self.rival = Some((since, report::text(&error)));
            }
            // What was known of it still holds.
            Err(_) => {}
        }
    }

    /// Why nothing is done.
    pub(super) fn rival(&self) -> Option<Held> {
        let (_, text) = self.rival.as_ref()?;
        Some(Held {
            text: text.clone(),
            blocked: self.rival_problem().is_some(),
        })
    }

    /// It is no predecessor of this agent.
    pub(super) fn rival_problem(&self) -> Option<String> {
        let (since, text) = self.rival.as_ref()?;
        let age = self.parts.clock.elapsed().saturating_sub(*since);
        (GRACE <= age).then(|| text.clone())
    }
}
