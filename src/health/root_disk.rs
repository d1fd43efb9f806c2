//! The root-disk guard: a directory on the root file system, while others have mounts of their own,
//! may be the empty mount point of a disk that is not there. MinIO refuses such a drive; here it is
//! told, and before a bookie was initialised in it it is not believed either.

use super::dir::{Dir, path_text};
use super::observation::Mount;
use super::track::Track;
use super::tracker::Tracker;

/// Where a directory is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) dir: &'a Dir,
    pub(super) mount: Option<&'a Mount>,
}

impl Placed<'_> {
    fn is_on_root(&self) -> bool {
        self.mount
            .is_some_and(|mount| mount.point.as_os_str() == "/")
    }
}

/// The places, in `dirs`, of those that may be mount points without their mounts.
pub(super) fn doubtful(dirs: &[Placed<'_>]) -> Vec<usize> {
    let has_own_mount = |placed: &Placed<'_>| placed.mount.is_some() && !placed.is_on_root();
    if !dirs.iter().any(has_own_mount) {
        return Vec::new();
    }
    let doubtful = |(place, placed): (usize, &Placed<'_>)| {
        // Where a mount is required, its absence is a status already.
        let said = placed.dir.root_ok || placed.dir.require_mount;
        (placed.is_on_root() && !said).then_some(place)
    };
    dirs.iter().enumerate().filter_map(doubtful).collect()
}

/// What is told about it; begins with its key word.
pub(super) fn text(dir: &Dir) -> String {
    format!(
        "onRootDisk: the {} directory {} is on the root file system while others have mounts of \
         their own: mount its disk; if it belongs there, set require_mount = false for it",
        dir.role.name(),
        path_text(&dir.path)
    )
}

impl Tracker {
    /// Finds the directories that may be mount points without their mounts.
    pub(super) fn doubt(&mut self) {
        let placed: Vec<Placed<'_>> = self.tracks.iter().map(placed).collect();
        let doubtful = doubtful(&placed);
        for (place, track) in self.tracks.iter_mut().enumerate() {
            track.doubtful = doubtful.contains(&place);
        }
    }

    /// Directories that may be mount points without their mounts, in words.
    #[must_use]
    pub fn root_disk_advice(&self) -> Vec<String> {
        let doubtful = self.tracks.iter().filter(|track| track.doubtful);
        doubtful.map(|track| text(&track.dir)).collect()
    }
}

fn placed(track: &Track) -> Placed<'_> {
    Placed {
        dir: &track.dir,
        mount: track.mount.as_ref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::dir::{DirId, ProbePolicy, Role, Thresholds};
    use crate::health::moment::Moment;
    use crate::health::observation::{Cookie, Device, Identity, Look, Medium, Observation, Space};
    use crate::health::policy::Policy;
    use crate::health::status::AccessStatus;

    fn dir(require_mount: bool, root_ok: bool) -> Dir {
        Dir {
            path: "/mnt/l1".into(),
            role: Role::Ledger,
            thresholds: Thresholds::default(),
            probe: ProbePolicy::default(),
            require_mount,
            root_ok,
            await_cookie: true,
            ballast: 0,
        }
    }

    fn mount(point: &str) -> Mount {
        Mount {
            id: 1,
            device: Device { major: 8, minor: 1 },
            root: "/".into(),
            point: point.into(),
            source: "/dev/sda1".to_owned(),
            fs_type: "ext4".to_owned(),
            options: "rw".to_owned(),
            read_only: false,
            emergency: None,
            medium: Medium::Unknown,
        }
    }

    #[test]
    fn only_beside_others_with_mounts_and_only_when_nobody_said_that_it_is_right() {
        let (root, own) = (mount("/"), mount("/mnt/l2"));
        let (plain, required, allowed) = (dir(false, false), dir(true, false), dir(false, true));
        let places = |dirs: &[(&Dir, Option<&Mount>)]| {
            let placed: Vec<Placed<'_>> = dirs
                .iter()
                .map(|(dir, mount)| Placed { dir, mount: *mount })
                .collect();
            doubtful(&placed)
        };
        assert_eq!(places(&[(&plain, Some(&root)), (&plain, Some(&own))]), [0]);
        assert!(places(&[(&plain, Some(&root)), (&plain, Some(&root))]).is_empty());
        assert!(places(&[(&plain, Some(&root)), (&plain, None)]).is_empty());
        assert!(places(&[(&required, Some(&root)), (&plain, Some(&own))]).is_empty());
        assert!(places(&[(&allowed, Some(&root)), (&plain, Some(&own))]).is_empty());
    }

    /// The whole way: nothing is believed of the empty mount point of a new bookie, and once its disk
    /// is there it is pinned without anybody's help.
    #[test]
    fn an_empty_mount_point_is_not_known_until_its_disk_is_there() {
        let mut tracker = Tracker::new(Policy::default());
        let dirs = vec![dir(false, false), dir(false, false)];
        let now = Moment::default();
        tracker.configure(now, dirs, Policy::default(), |_| None);
        let ids: Vec<DirId> = tracker.dirs().map(|(id, _)| id).collect();
        let look = |cookie: Cookie| Look {
            space: Some(Space {
                size: 1000,
                available: 900,
                ..Space::default()
            }),
            identity: Some(Identity {
                device: Some(Device { major: 8, minor: 1 }),
                mount_id: Some(1),
                cookie,
                canonical: "/mnt/l1".into(),
                boot_id: "boot".to_owned(),
                ..Identity::default()
            }),
            ..Look::default()
        };
        let mut see = |observation| drop(tracker.observe(now, ids[0], observation));
        see(Observation::Mounted(mount("/")));
        tracker.observe(now, ids[1], Observation::Mounted(mount("/mnt/l2")));
        let mut see = |observation| {
            tracker.observe(now, ids[0], observation);
            let track = &tracker.tracks[0];
            (track.access.status(), track.pin.is_some())
        };
        let unknown = (AccessStatus::Unknown, false);
        assert_eq!(see(Observation::Looked(look(Cookie::Absent))), unknown);
        see(Observation::Mounted(mount("/mnt/l1")));
        let known = (AccessStatus::Ok, true);
        assert_eq!(see(Observation::Looked(look(Cookie::Absent))), known);
        assert!(tracker.root_disk_advice().is_empty());
    }
}
