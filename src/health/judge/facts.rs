//! Between tracker and judge: what the disks say goes there, what is told comes back as events.

use super::super::claim::Claim;
use super::super::event::{Event, EventKind};
use super::super::moment::Moment;
use super::super::observation::Operation;
use super::super::status::{Cause, Reason};
use super::super::tracker::Tracker;
use super::{DirNow, NodeFacts, Told};

impl Tracker {
    /// How the disks stand, for the judge.
    #[must_use]
    pub fn node_facts<'a>(&'a self, claims: &'a [Claim]) -> NodeFacts<'a> {
        let node = self.node();
        let dirs = self.tracks.iter().map(|track| DirNow {
            path: &track.dir.path,
            role: track.dir.role,
            device: track.mount.as_ref().map(|mount| mount.device),
            space: track.present_space().copied(),
            space_status: track.space.status(),
            access: track.access.status(),
        });
        NodeFacts {
            dirs: dirs.collect(),
            wanted: node.wanted(),
            wanted_reason: node.wanted_reason(),
            high_priority_writes: node.high_priority_writes(),
            claims,
            undoable: false,
        }
    }

    /// The event of what the judge tells.
    pub fn told_event(&mut self, now: Moment, told: Told) -> Event {
        let cause = match told.kind {
            EventKind::ClusterOverWarn
            | EventKind::ClusterHeadroomLow
            | EventKind::ClaimOrphaned => Cause::Cluster,
            _ => Cause::Bookie,
        };
        let mut event = self.event(now, told.kind);
        event.from = told.change.map(|(from, _)| from);
        event.to = told.change.map(|(_, to)| to);
        event.reason = Some(Reason {
            cause,
            operation: Operation::Bookie,
            errno: None,
            message: told.message,
        });
        event
    }
}
