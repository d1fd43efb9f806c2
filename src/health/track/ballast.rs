//! What the directory's ballast has to know about it, and what follows from a look at it.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::ballast::{BallastView, Circumstances};
use super::super::forecast::HORIZON_SOON;
use super::super::moment::{Elapsed, Moment};
use super::super::observation::{Cookie, Look, Operation};
use super::super::status::{AccessStatus, SpaceStatus};
use super::Track;

/// Ballast of other directories on the file system of one: what we take there is no filling either.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Beside {
    pub(super) held: u64,
    grew_at: Option<Elapsed>,
}

impl Beside {
    /// Beside the directory at `place`. Directories at one path share one file.
    pub(in super::super) fn of(tracks: &[Track], place: usize) -> Beside {
        let track = &tracks[place];
        let device = |track: &Track| track.mount.as_ref().map(|mount| mount.device);
        let Some(here) = device(track) else {
            return Beside::default();
        };
        let mut files: BTreeMap<&Path, u64> = BTreeMap::new();
        let mut grew_at = None;
        for other in tracks {
            if device(other) == Some(here) && !other.is_elsewhere() {
                let pin = other.pin.as_ref();
                let path = pin.map_or(&other.dir.path, |pin| &pin.identity.canonical);
                let held = files.entry(path).or_default();
                *held = other.ballast.held().max(*held);
                grew_at = other.ballast.grew_at().max(grew_at);
            }
        }
        let all: u64 = files.into_values().fold(0, u64::saturating_add);
        Beside {
            held: all.saturating_sub(track.ballast.held()),
            grew_at,
        }
    }
}

impl Track {
    pub(super) fn circumstances(&self) -> Circumstances {
        let access = self.access.status();
        let fills_soon = self
            .forecast_view
            .is_some_and(|view| view.expected <= HORIZON_SOON);
        // Nor while something is late or the device stalls: it has enough to do.
        let good = access == AccessStatus::Ok
            && !self.access.is_suspect()
            && self.space.status() == SpaceStatus::Ok;
        let limits = self.dir.thresholds;
        Circumstances {
            wanted: self.dir.ballast,
            role: self.dir.role,
            journal_step: self.journal_step,
            space: self.last_space,
            limits,
            fill_rate: self.forecast.fill_rate(),
            grew_beside: self.beside.grew_at,
            full: self
                .last_space
                .is_some_and(|space| self.space.wants_bytes(&space, &limits)),
            usable: self.at_home && matches!(access, AccessStatus::Ok | AccessStatus::Unknown),
            well: good && !fills_soon && !self.awaits_cookie(),
            before_bookie: self.dir.await_cookie && self.cookie == Cookie::Absent,
        }
    }

    /// Moves the journal's emergency: into it at once, out of it after the dwell time, as with full.
    pub(super) fn judge_emergency(&mut self, now: Elapsed) {
        let facts = self.circumstances();
        match self.ballast.journal_emergency(now, &facts) {
            Some(true) => {
                self.emergency = true;
                self.emergency_over = None;
            }
            Some(false) if self.emergency => {
                let since = *self.emergency_over.get_or_insert(now);
                if self.dir.thresholds.dwell <= now.saturating_sub(since) {
                    self.emergency = false;
                }
            }
            Some(false) | None => {}
        }
    }

    /// Ballast on the file system: the forecast counts it as available, so that it sees others' writes
    /// only, and marks lie higher by as much.
    pub(in super::super) fn ballast_around(&self) -> u64 {
        self.ballast.held().saturating_add(self.beside.held)
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
