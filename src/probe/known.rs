//! What is known about each directory whichever child found it, so that the next child can go on
//! where the last one was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::health::dir::DirId;
use crate::health::observation::{InFlight, Look, Operation};
use crate::health::snapshot::Sources;

use super::process::{LookKind, WatchedDir};
use super::wire::{KernelSource, Place, Reading, Request, role_code};

/// A look that takes longer than this when its child dies may be what keeps the child from ending.
const STUCK_AGE: Duration = Duration::from_millis(250);

/// All watched directories.
#[derive(Debug, Default)]
pub(super) struct KnownDirs(pub(super) BTreeMap<DirId, Known>);

/// One of them.
#[derive(Debug)]
pub(super) struct Known {
    /// Its settings; `pinned` is kept up to date.
    pub(super) watched: WatchedDir,
    /// Where the last look was.
    pub(super) seen: Option<Place>,
    /// When the look that is outstanding was asked for.
    pub(super) asked: Option<Duration>,
    /// What the outstanding look waits for, if that is old enough to be reported.
    pub(super) in_flight: Option<InFlight>,
    /// A look that no child is asked for, because an abandoned one is stuck with it.
    pub(super) held: Option<LookKind>,
    mounted: bool,
    spaced: bool,
    reading: Option<Reading>,
    kernel: Vec<(KernelSource, Option<String>)>,
}

impl KnownDirs {
    /// Takes over a set of directories and says which of them are new, changed or gone.
    pub(super) fn adopt(&mut self, dirs: Vec<(DirId, WatchedDir)>) -> Vec<DirId> {
        let wanted: BTreeSet<DirId> = dirs.iter().map(|(dir, _)| *dir).collect();
        let gone = self.0.keys().filter(|dir| !wanted.contains(dir));
        let mut changed: Vec<DirId> = gone.copied().collect();
        self.0.retain(|dir, _| wanted.contains(dir));
        for (dir, mut watched) in dirs {
            match self.0.get_mut(&dir) {
                Some(known) if known.watched.path == watched.path => {
                    // What was learnt since is newer than what the configuration remembers.
                    watched.pinned = known.watched.pinned.take().or(watched.pinned);
                    known.watched = watched;
                }
                _ => drop(self.0.insert(dir, Known::new(watched))),
            }
            changed.push(dir);
        }
        changed
    }

    /// Forgets where a directory is; false when there is no such directory.
    pub(super) fn forget_place(&mut self, dir: DirId) -> bool {
        let Some(known) = self.0.get_mut(&dir) else {
            return false;
        };
        known.watched.pinned = None;
        known.seen = None;
        true
    }

    /// Directories that may be what keeps a killed child from ending.
    pub(super) fn stuck(&self, now: Duration) -> BTreeSet<DirId> {
        let stuck = |known: &Known| {
            let asked = known.asked.map(|at| now.saturating_sub(at));
            known.in_flight.is_some() || asked.is_some_and(|since| STUCK_AGE <= since)
        };
        let stuck = self.0.iter().filter(|(_, known)| stuck(known));
        stuck.map(|(dir, _)| *dir).collect()
    }

    /// Directories whose looks are held back.
    pub(super) fn held(&self) -> Vec<(DirId, LookKind)> {
        let held = |(dir, known): (&DirId, &Known)| Some((*dir, known.held?));
        self.0.iter().filter_map(held).collect()
    }
}

impl Known {
    fn new(watched: WatchedDir) -> Known {
        Known {
            watched,
            seen: None,
            asked: None,
            in_flight: None,
            held: None,
            mounted: false,
            spaced: false,
            reading: None,
            kernel: Vec::new(),
        }
    }

    /// A new child knows nothing of what its predecessor was asked.
    pub(super) fn void_look(&mut self) {
        self.asked = None;
        self.held = None;
    }

    /// Learns from a look that ended.
    pub(super) fn looked(&mut self, look: &Look, reading: Option<Reading>) {
        self.asked = None;
        self.in_flight = None;
        self.spaced |= look.space.is_some();
        self.reading = reading.or(self.reading);
        if let Some(identity) = &look.identity
            && let Some(device) = identity.device
        {
            self.watched.pinned = Some(identity.canonical.clone());
            self.seen = Some(Place {
                device: (device.major, device.minor),
                mount_id: identity.mount_id,
            });
        }
    }

    /// What the held look waits for, older by that much.
    pub(super) fn age(&mut self, by: Duration) -> InFlight {
        let in_flight = self
            .in_flight
            .get_or_insert(InFlight::new(Operation::Open, Duration::ZERO));
        // Of the devices and of those who wait nobody says anything now.
        *in_flight = InFlight {
            behind: in_flight.behind.take(),
            ..InFlight::new(in_flight.operation, in_flight.age + by)
        };
        in_flight.clone()
    }

    /// Learns that the mount table covers it.
    pub(super) fn mounted(&mut self) {
        self.mounted = true;
    }

    /// The request that makes a child watch it.
    pub(super) fn watch(&self, dir: DirId) -> Request {
        Request::Watch {
            dir: dir.0,
            path: self.watched.path.as_path().into(),
            role: role_code(self.watched.role),
            await_cookie: self.watched.await_cookie,
            require_mount: self.watched.require_mount,
            pinned: self.watched.pinned.as_deref().map(Into::into),
        }
    }

    /// Learns which sources of the kernel work.
    pub(super) fn kernel(&mut self, sources: Vec<(KernelSource, Option<String>)>) {
        self.kernel = sources;
    }

    /// The sources of observation that have worked, and those that do not.
    pub(super) fn sources(&self) -> Sources {
        let probe = self.reading.map(|reading| match reading {
            Reading::Direct => "probe",
            Reading::Buffered => "probe-cached-read",
        });
        let mut sources = Sources::default();
        sources.active.extend(self.spaced.then_some("statvfs"));
        sources.active.extend(probe);
        sources.active.extend(self.mounted.then_some("mountinfo"));
        for (source, refused) in &self.kernel {
            match refused {
                None => sources.active.push(source.name()),
                Some(reason) => sources.missing.push((source.name(), reason.clone())),
            }
        }
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::dir::Role;
    use crate::health::observation::Pressure;

    fn watched(path: &str) -> WatchedDir {
        WatchedDir {
            path: path.into(),
            role: Role::Ledger,
            await_cookie: false,
            require_mount: false,
            pinned: None,
        }
    }

    #[test]
    fn a_reload_keeps_what_was_learnt_about_those_that_stay() {
        let mut dirs = KnownDirs::default();
        dirs.adopt(vec![(DirId(1), watched("/a")), (DirId(2), watched("/b"))]);
        let known = dirs.0.get_mut(&DirId(2)).unwrap();
        known.watched.pinned = Some("/real/b".into());
        let changed = dirs.adopt(vec![(DirId(2), watched("/b")), (DirId(3), watched("/c"))]);
        assert_eq!(changed, [DirId(1), DirId(2), DirId(3)]);
        assert!(!dirs.0.contains_key(&DirId(1)));
        let pinned = dirs.0[&DirId(2)].watched.pinned.clone();
        assert_eq!(pinned, Some("/real/b".into()));
        assert!(dirs.forget_place(DirId(2)) && !dirs.forget_place(DirId(1)));
        assert_eq!(dirs.0[&DirId(2)].watched.pinned, None);
    }

    #[test]
    fn a_held_look_shows_nothing_that_only_a_child_could_have_seen() {
        let mut known = Known::new(watched("/a"));
        known.in_flight = Some(InFlight {
            operation: Operation::Sync,
            age: Duration::from_secs(3),
            device_writes: true,
            stalled: Some(Duration::from_secs(2)),
            pressure: Some(Pressure { some: 91, full: 87 }),
            behind: Some("/b".into()),
        });
        let aged = InFlight {
            behind: Some("/b".into()),
            ..InFlight::new(Operation::Sync, Duration::from_secs(4))
        };
        assert_eq!(known.age(Duration::from_secs(1)), aged);
        assert_eq!(known.in_flight, Some(aged));
    }

    #[test]
    fn only_looks_that_take_long_may_have_got_a_child_stuck() {
        let mut dirs = KnownDirs::default();
        dirs.adopt((0..4).map(|id| (DirId(id), watched("/a"))).collect());
        let now = Duration::from_secs(10);
        dirs.0.get_mut(&DirId(1)).unwrap().asked = Some(now - STUCK_AGE / 2);
        dirs.0.get_mut(&DirId(2)).unwrap().asked = Some(now - STUCK_AGE);
        dirs.0.get_mut(&DirId(3)).unwrap().in_flight =
            Some(InFlight::new(Operation::Sync, Duration::from_secs(1)));
        assert_eq!(dirs.stuck(now), BTreeSet::from([DirId(2), DirId(3)]));
    }
}
