//! What the directory's ballast has to know about it, and what follows from a look at it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::ballast::{BallastView, Circumstances};
use super::super::dir::Role;
use super::super::forecast::HORIZON_SOON;
use super::super::moment::{Elapsed, Moment};
use super::super::observation::{Cookie, Device, Look, Operation};
use super::super::status::{AccessStatus, SpaceStatus};
use super::super::tracks::Tracks;
use super::Track;

/// Ballast of other directories on the file system of one: what we take there is no filling either.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Beside {
    pub(in super::super) held: u64,
    grew_at: Option<Elapsed>,
}

/// The ballast of each file system that has some, so that a look at one directory asks no other.
/// Holds as long as [`Ballasts::follow`] is called after whatever changes a directory.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Ballasts(BTreeMap<Device, Beside>);

/// What a directory has of the ballast of its file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    device: Device,
    path: PathBuf,
    held: u64,
    grew_at: Option<Elapsed>,
}

impl Ballasts {
    /// Of these directories.
    pub(in super::super) fn of(tracks: &mut Tracks) -> Ballasts {
        let mut ballasts = Ballasts::default();
        for place in 0..tracks.len() {
            tracks[place].share = None;
            ballasts.follow(tracks, place);
        }
        ballasts
    }

    /// The directory at `place` may have changed. Asks the others only if its ballast has.
    pub(in super::super) fn follow(&mut self, tracks: &mut Tracks, place: usize) {
        let track = &mut tracks[place];
        if track.share.is_none() && !track.ballast.is_there() {
            return;
        }
        if track.is_same_share() {
            return;
        }
        let now = track.share_now();
        let before = std::mem::replace(&mut track.share, now.clone());
        for share in [before, now].into_iter().flatten() {
            self.sum_up(tracks, share.device);
        }
    }

    /// Directories at one path share one file.
    fn sum_up(&mut self, tracks: &Tracks, device: Device) {
        let mut files: BTreeMap<&Path, u64> = BTreeMap::new();
        let mut grew_at = None;
        let shares = tracks.iter().filter_map(|track| track.share.as_ref());
        for share in shares.filter(|share| share.device == device) {
            let held = files.entry(&share.path).or_default();
            *held = share.held.max(*held);
            grew_at = share.grew_at.max(grew_at);
        }
        if files.is_empty() {
            self.0.remove(&device);
            return;
        }
        let held = files.into_values().fold(0, u64::saturating_add);
        self.0.insert(device, Beside { held, grew_at });
    }

    /// Beside this directory.
    pub(in super::super) fn beside(&self, track: &Track) -> Beside {
        if self.0.is_empty() {
            return Beside::default();
        }
        let here = track.mount.as_ref().map(|mount| mount.device);
        let all = here.and_then(|here| self.0.get(&here));
        all.map_or(Beside::default(), |all| Beside {
            held: all.held.saturating_sub(track.ballast.held()),
            grew_at: all.grew_at,
        })
    }
}

impl Track {
    /// None where no ballast of ours is or was, which is nearly everywhere.
    fn share_parts(&self) -> Option<(Device, &Path, u64, Option<Elapsed>)> {
        let (held, grew_at) = (self.ballast.held(), self.ballast.grew_at());
        if !self.ballast.is_there() || self.is_elsewhere() {
            return None;
        }
        let path = match &self.pin {
            Some(pin) => &pin.identity.canonical,
            None => &self.dir.path,
        };
        Some((self.mount.as_ref()?.device, path, held, grew_at))
    }

    fn share_now(&self) -> Option<Share> {
        let (device, path, held, grew_at) = self.share_parts()?;
        let path = path.to_owned();
        Some(Share {
            device,
            path,
            held,
            grew_at,
        })
    }

    fn is_same_share(&self) -> bool {
        let told = self.share.as_ref();
        let told = told.map(|share| (share.device, &*share.path, share.held, share.grew_at));
        told == self.share_parts()
    }

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

    /// Bytes of its ballast that are to be held and are not.
    pub(super) fn ballast_owed(&self) -> u64 {
        match self.dir.ballast {
            0 => 0,
            _ => self.ballast.owed(&self.circumstances()),
        }
    }

    /// Moves the journal's emergency: into it at once, out of it after the dwell time, as with full.
    pub(super) fn judge_emergency(&mut self, now: Elapsed) {
        if self.dir.role != Role::Journal {
            return;
        }
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
