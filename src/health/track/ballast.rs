//! What the directory's ballast has to know about it, and what follows from a look at it.

use super::super::ballast::{BallastView, Circumstances};
use super::super::forecast::HORIZON_SOON;
use super::super::moment::Moment;
use super::super::observation::{Cookie, Look, Operation};
use super::super::status::{AccessStatus, SpaceStatus};
use super::Track;

impl Track {
    pub(super) fn circumstances(&self) -> Circumstances {
        let access = self.access.status();
        let fills_soon = self
            .forecast_view
            .is_some_and(|view| view.expected <= HORIZON_SOON);
        let good = access == AccessStatus::Ok
            && self.access.suspicion().is_none()
            && !self.access.is_on_probation()
            && self.space.status() == SpaceStatus::Ok;
        let limits = self.dir.thresholds;
        Circumstances {
            wanted: self.dir.ballast,
            role: self.dir.role,
            journal_step: self.journal_step,
            space: self.last_space,
            limits,
            fill_rate: self.forecast.fill_rate(),
            full: self
                .last_space
                .is_some_and(|space| self.space.wants_bytes(&space, &limits)),
            usable: self.at_home && matches!(access, AccessStatus::Ok | AccessStatus::Unknown),
            well: good && !fills_soon && !self.awaits_cookie(),
            before_bookie: self.dir.await_cookie && self.cookie == Cookie::Absent,
        }
    }

    /// A look at the right disk: what it did with the ballast.
    pub(super) fn take_ballast(&mut self, now: Moment, look: &Look) {
        if look.durations.contains_key(&Operation::Ballast) {
            let wanted = self.dir.ballast;
            let given = self.ballast.found(now.elapsed, look.ballast, wanted);
            self.ballast_given = self.ballast_given.or(given);
        }
    }

    /// Bytes of ballast that were given back for want of space since the last call.
    pub fn take_ballast_given(&mut self) -> Option<u64> {
        self.ballast_given.take()
    }

    pub(in super::super) fn ballast_view(&self, now: Moment) -> Option<BallastView> {
        self.ballast.view(now.elapsed, &self.circumstances())
    }
}
