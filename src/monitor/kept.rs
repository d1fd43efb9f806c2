//! Who holds the mode: what the keeper says becomes events and the picture's claims. Told as a level, so what
//! changed is found here.

use std::time::Duration;

use crate::health::claim::{Claim, Kept, Owner};
use crate::health::event::EventKind;
use crate::health::moment::{Elapsed, Moment, Timestamp};
use crate::health::policy::Mode;

use super::Monitor;

/// What is in the way of a change for so short a time is no event: a lock of another agent is free again
/// within a second.
const HELD_GRACE: Duration = Duration::from_secs(3);

/// What the keeper said last, and what follows from it.
#[derive(Debug, Default)]
pub(super) struct Holding {
    pub(super) kept: Kept,
    blocked_since: Option<Elapsed>,
    told: bool,
    /// Since when the server has been read-only without a claim.
    by_itself: Option<Timestamp>,
}

impl Holding {
    /// Claims for the picture. A read-only that nobody claims is the bookie's own, or somebody told it without
    /// `mode set`: from outside the two look alike.
    pub(super) fn shown(&self, because: Option<&str>) -> Vec<Claim> {
        let by_itself = self.by_itself.map(|since| Claim {
            owner: Owner::Bookie,
            mode: Mode::ReadOnly,
            reason: because.map_or_else(
                || "by itself, or told so without `dirkeeper mode set`".to_owned(),
                |because| format!("by itself: {because}"),
            ),
            since,
            pending: false,
            below_floor: false,
        });
        self.kept.claims.iter().cloned().chain(by_itself).collect()
    }

    /// When it has to be looked at again.
    pub(super) fn due(&self) -> Option<Elapsed> {
        self.blocked_since
            .filter(|_| !self.told)
            .map(|since| since + HELD_GRACE)
    }
}

impl Monitor {
    pub(super) fn kept(&mut self, now: Moment, kept: Kept) {
        let before = std::mem::replace(&mut self.holding.kept, kept);
        let after = self.holding.kept.clone();
        let same = |a: &Claim, b: &Claim| a.owner == b.owner && a.mode == b.mode;
        for claim in &after.claims {
            if !before.claims.iter().any(|old| same(old, claim)) {
                self.tell_claim(now, EventKind::ModeClaimed, claim);
            }
        }
        for claim in &before.claims {
            if !after.claims.iter().any(|new| new.owner == claim.owner) {
                self.tell_claim(now, EventKind::ModeReleased, claim);
            }
        }
        if after.blocked {
            self.holding.blocked_since.get_or_insert(now.elapsed);
        } else {
            (self.holding.blocked_since, self.holding.told) = (None, false);
        }
        match after.problem {
            Some(problem) => {
                self.problems.insert("claims", problem);
            }
            None => {
                self.problems.remove("claims");
            }
        }
        self.events_waiting = true;
    }

    fn tell_claim(&mut self, now: Moment, kind: EventKind, claim: &Claim) {
        let (owner, mode, reason) = (claim.owner.name(), claim.mode.name(), &claim.reason);
        let message = match kind {
            EventKind::ModeReleased => {
                format!("{owner} does not hold it {mode} any more: {reason}")
            }
            _ => format!("{owner} holds it {mode}: {reason}"),
        };
        let event = self.tracker.node_event(now, kind, None, message);
        self.tell(vec![event]);
    }

    /// What follows from time and from the observed mode.
    pub(super) fn check_held(&mut self, now: Moment) {
        let claimed = |claim: &Claim| claim.mode == Mode::ReadOnly;
        let unclaimed = self.observed_mode == Some(Mode::ReadOnly)
            && !self.holding.kept.claims.iter().any(claimed);
        if unclaimed {
            self.holding.by_itself.get_or_insert(now.wall);
        } else {
            self.holding.by_itself = None;
        }
        if self.holding.due().is_none_or(|due| now.elapsed < due) {
            return;
        }
        self.holding.told = true;
        let held = self.holding.kept.held.clone().unwrap_or_default();
        let event = self
            .tracker
            .node_event(now, EventKind::ModeHeld, None, held);
        self.tell(vec![event]);
    }
}
