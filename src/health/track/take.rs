//! How a directory takes in what was observed: whether it is the right disk first, then what each
//! axis makes of it.

use super::super::access::{self, Meaning};
use super::super::bookie_files::SeenFiles;
use super::super::dir::path_text;
use super::super::identity::{self, Verdict};
use super::super::moment::Moment;
use super::super::observation::{
    Cookie, Failure, Identity, InFlight, Look, Mount, Operation, Space,
};
use super::super::root_disk;
use super::super::space;
use super::super::status::{AccessStatus, Cause, Reason};
use super::{STALE_LOOKS, Track, full_wait};

impl Track {
    pub(super) fn in_flight(&mut self, in_flight: InFlight) {
        let deadline = self.deadline();
        let dir = path_text(&self.dir.path);
        self.access.in_flight(in_flight, deadline, &dir);
    }

    pub(super) fn mounted(&mut self, now: Moment, mount: Mount) {
        self.schedule.hurry(now.elapsed, true);
        let elsewhere = self
            .pin
            .as_ref()
            .and_then(|pin| identity::compare_mount(pin, &self.boot_id, &mount));
        let moved = self
            .mount
            .as_ref()
            .is_some_and(|known| known.id != mount.id);
        self.at_home &= !moved;
        if moved {
            // Said of the file system that was there before.
            self.recorded = None;
            self.access.set_stalled(None);
        }
        self.mount = Some(mount);
        match elsewhere {
            Some((status, reason)) => self.access.set(status, reason),
            None => {
                self.judge_mount();
            }
        }
    }

    /// What the mount's own options say about writing.
    fn judge_mount(&mut self) -> bool {
        let Some(mount) = &self.mount else {
            return true;
        };
        let point = path_text(&mount.point);
        let (cause, message) = if let Some(option) = &mount.emergency {
            let text = format!("the kernel gave up the file system at {point}: {option}");
            (Cause::KernelError, text)
        } else if mount.read_only {
            let text = format!("{} at {point} is mounted read-only", mount.source);
            (Cause::ReadOnlyMount, text)
        } else {
            return true;
        };
        let operation = Operation::Mountinfo;
        self.access.set(
            AccessStatus::ReadOnly,
            Reason {
                cause,
                operation,
                errno: None,
                message,
            },
        );
        false
    }

    pub(in super::super) fn looked(&mut self, now: Moment, look: &Look) {
        self.last_looked = Some(now);
        let was_elsewhere = self.is_elsewhere();
        let had_pin = self.pin.is_some() && self.boot_known();
        let identified = match &look.identity {
            Some(seen) => self.identify(seen, look.failure.is_none()),
            None => None,
        };
        self.at_home = identified == Some(true) && self.pin.is_some();
        match (identified, &look.failure) {
            (Some(true), _) => self.take_in(now, look),
            (None, Some(failure)) => self.failed(now, failure),
            (Some(false), _) | (None, None) => self.access.answered(),
        }
        if self.is_doubted() {
            self.access.lost(Reason {
                cause: Cause::Missing,
                operation: Operation::Mountinfo,
                errno: None,
                message: root_disk::text(&self.dir),
            });
        }
        if self.at_home {
            self.judge_emergency(now.elapsed);
        }
        let space = self.space_wait();
        let facts = self.circumstances();
        let release = self.ballast.observe(now.elapsed, &facts) && self.at_home;
        let filling = || self.ballast.is_filling(now.elapsed, &facts);
        let full = || full_wait(&self.dir, &self.access, filling);
        self.schedule.ended(now.elapsed, full, space);
        if release {
            // One that did not come to pass is ordered again, in a second.
            let urgent = !self.ballast.was_releasing();
            self.schedule.hurry(now.elapsed, urgent);
        }
        let back = was_elsewhere && identified == Some(true) && !look.probed;
        let newly_pinned = identified == Some(true) && !had_pin;
        if newly_pinned || identified.is_none() && look.failure.is_none() {
            self.schedule.hurry(now.elapsed, newly_pinned);
        } else if back || self.wants_another_probe(look) {
            self.schedule.hurry(now.elapsed, false);
        }
    }

    /// Perhaps an empty mount point: nothing is pinned, judged or written before its disk is there,
    /// a bookie was initialised in it, or somebody says that it is right.
    fn is_doubted(&self) -> bool {
        self.doubtful && self.pin.is_none() && self.awaits_cookie()
    }

    /// A refused write keeps a directory full; ask again as soon as the numbers look better. An
    /// error is asked about again whatever the kind of look that found it.
    fn wants_another_probe(&self, look: &Look) -> bool {
        let freed = self.space.is_refused()
            && !look.probed
            && look.space.is_some_and(|space| {
                space::usage_ratio(&space)
                    .is_some_and(|usage| usage < self.dir.thresholds.low_watermark)
            });
        // The prober wrote nothing because the mount is another than at its look before.
        let held_back = self.probe_asked && !look.probed && look.failure.is_none();
        freed || held_back || (self.access.suspicion().is_some() && !look.probed)
    }

    /// Compares with the pin: `Some(true)` the same, `Some(false)` another one, `None` cannot be
    /// said yet.
    fn identify(&mut self, seen: &Identity, may_pin: bool) -> Option<bool> {
        let mount = self.mount.as_ref()?;
        let stale = seen.mount_id.is_some_and(|id| id != mount.id);
        if stale && self.stale_looks < STALE_LOOKS {
            self.stale_looks += 1;
            return None;
        }
        self.stale_looks = 0;
        if self.boot_id != seen.boot_id {
            self.boot_id.clone_from(&seen.boot_id);
        }
        if seen.cookie != Cookie::NotRead {
            self.cookie = seen.cookie.clone();
        }
        if self.dir.require_mount
            && let Some(reason) = identity::not_mounted(&seen.canonical, mount)
        {
            self.access.set(AccessStatus::Vanished, reason);
            return Some(false);
        }
        if self.is_doubted() {
            return Some(false);
        }
        let Some(pin) = &self.pin else {
            if may_pin {
                self.pin = Some(identity::pin(seen, mount));
                self.pin_changed = true;
            }
            return Some(true);
        };
        match identity::compare(pin, seen, mount) {
            Verdict::Same(learnt) => {
                if let Some(learnt) = learnt {
                    self.pin = Some(*learnt);
                    self.pin_changed = true;
                }
                self.access.identified();
                Some(true)
            }
            Verdict::Differs(status, reason) => {
                self.access.set(status, reason);
                Some(false)
            }
        }
    }

    /// A look at the right disk.
    fn take_in(&mut self, now: Moment, look: &Look) {
        if look.probed && look.failure.is_none() {
            self.space.accepted_write();
        }
        if let Some(files) = &look.bookie_files {
            let before = self.bookie_files.take();
            self.bookie_files = Some(SeenFiles::after(before, now.elapsed, files));
        }
        if let Some(space) = &look.space {
            self.last_space = Some(*space);
            let available = space.available.saturating_add(self.ballast_around());
            self.forecast.observe(now.elapsed, space.size, available);
        }
        self.take_ballast(now, look);
        match &look.failure {
            Some(failure) => self.failed(now, failure),
            None => self.succeeded(now, look),
        }
        if let Some(space) = &look.space {
            let owed = self.ballast_owed();
            let limits = &self.dir.thresholds;
            self.space.observe(now.elapsed, space, limits, owed);
        }
    }

    fn succeeded(&mut self, now: Moment, look: &Look) {
        let full = look
            .identity
            .as_ref()
            .is_some_and(|seen| seen.cookie != Cookie::NotRead);
        let complete = look.probed || (full && self.awaits_cookie());
        if !complete || !self.judge_mount() {
            self.access.answered();
            return;
        }
        self.access
            .good_round(now.elapsed, self.dir.thresholds.dwell);
        if look.probed {
            self.last_probe_success = Some(now);
            self.durations.clone_from(&look.durations);
            self.pressure = look.pressure;
            let (slow, medium) = (self.dir.probe.slow, self.medium());
            let dwell = self.dir.thresholds.dwell;
            self.latency
                .observe(now.elapsed, &look.durations, slow, medium, dwell);
        }
    }

    fn failed(&mut self, now: Moment, failure: &Failure) {
        let meaning = access::meaning(failure);
        let reason = self.explain(meaning, failure);
        *self.failures.entry(reason.cause).or_default() += 1;
        if let Meaning::Full(_) = meaning {
            let dwell = self.dir.thresholds.dwell;
            self.access.refused_round(now.elapsed, dwell);
            self.space.refuse(reason);
        } else {
            self.access.failed_look(meaning, reason);
        }
    }

    fn explain(&self, meaning: Meaning, failure: &Failure) -> Reason {
        let cause = match meaning {
            Meaning::Full(Cause::Bytes) => {
                let out_of_inodes = |space: Space| {
                    space.inodes > 0 && space.inodes_free == 0 && space.available > 0
                };
                match self.last_space {
                    Some(space) if out_of_inodes(space) => Cause::Inodes,
                    _ => Cause::Bytes,
                }
            }
            Meaning::ReadOnly(_) if self.mount.as_ref().is_some_and(|mount| mount.read_only) => {
                Cause::ReadOnlyMount
            }
            Meaning::Full(cause)
            | Meaning::ReadOnly(cause)
            | Meaning::FailedAtOnce(cause)
            | Meaning::FailedIfRepeated(cause) => cause,
            Meaning::Vanished => Cause::Missing,
            Meaning::Replaced => Cause::WrongDevice,
            Meaning::NotTheDisk => Cause::Prober,
        };
        Reason {
            cause,
            operation: failure.operation,
            errno: failure.errno,
            message: format!("{}: {}", failure.operation.name(), failure.detail),
        }
    }
}
