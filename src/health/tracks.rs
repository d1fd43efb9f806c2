//! All directories of a node. One is reached by its place; whoever wants them all asks for the list, and in
//! tests that is counted: what happens to one directory must not cost more the more there are.

use std::ops::{Deref, DerefMut, Index, IndexMut};

use super::track::Track;

/// Directories in configured order.
#[derive(Debug, Clone, Default)]
pub(super) struct Tracks {
    all: Vec<Track>,
    #[cfg(test)]
    walks: std::cell::Cell<u32>,
}

impl Tracks {
    /// Adds one at the end.
    pub(super) fn push(&mut self, track: Track) {
        self.all.push(track);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The one at this place.
    pub(super) fn get(&self, place: usize) -> Option<&Track> {
        self.all.get(place)
    }

    /// Gives them away.
    pub(super) fn into_vec(self) -> Vec<Track> {
        self.all
    }

    /// How often somebody has asked for the list.
    #[cfg(test)]
    pub(super) fn walks(&self) -> u32 {
        self.walks.get()
    }

    fn count_walk(&self) {
        #[cfg(test)]
        self.walks.set(self.walks.get() + 1);
    }
}

impl Index<usize> for Tracks {
    type Output = Track;

    fn index(&self, place: usize) -> &Track {
        &self.all[place]
    }
}

impl IndexMut<usize> for Tracks {
    fn index_mut(&mut self, place: usize) -> &mut Track {
        &mut self.all[place]
    }
}

impl Deref for Tracks {
    type Target = [Track];

    fn deref(&self) -> &[Track] {
        self.count_walk();
        &self.all
    }
}

impl DerefMut for Tracks {
    fn deref_mut(&mut self) -> &mut [Track] {
        self.count_walk();
        &mut self.all
    }
}

#[cfg(test)]
mod tests {
    use super::super::dir::{Dir, DirId, ProbePolicy, Role, Thresholds};
    use super::super::moment::Moment;
    use super::super::observation::{
        Device, Identity, InFlight, Look, Medium, Mount, Observation, Operation, Space,
    };
    use super::super::policy::Policy;
    use super::super::tracker::Tracker;
    use std::time::Duration;

    /// Two directories on each of six devices; each holds ballast where `ballast` is not 0.
    fn tracker(ballast: u64) -> (Tracker, Vec<DirId>) {
        let dir = |number| Dir {
            path: format!("/mnt/{number}").into(),
            role: Role::Ledger,
            thresholds: Thresholds::default(),
            probe: ProbePolicy::default(),
            require_mount: false,
            root_ok: false,
            await_cookie: false,
            ballast,
        };
        let mut tracker = Tracker::new(Policy::default());
        let dirs = (0..12).map(dir).collect();
        tracker.configure(Moment::default(), dirs, Policy::default(), |_| None);
        let ids: Vec<DirId> = tracker.dirs().map(|(id, _)| id).collect();
        for id in &ids {
            let mount = Observation::Mounted(mount(id.0));
            tracker.observe(Moment::default(), *id, mount);
            let mut first = look(id.0);
            first.ballast = Some(ballast);
            first.durations.insert(Operation::Ballast, Duration::ZERO);
            tracker.observe(Moment::default(), *id, Observation::Looked(first));
        }
        (tracker, ids)
    }

    fn device(number: u32) -> Device {
        Device {
            major: 8,
            minor: number / 2,
        }
    }

    fn mount(number: u32) -> Mount {
        Mount {
            id: 1,
            device: device(number),
            root: "/".into(),
            point: format!("/mnt/{number}").into(),
            source: String::new(),
            fs_type: "ext4".to_owned(),
            options: String::new(),
            read_only: false,
            emergency: None,
            medium: Medium::SolidState,
        }
    }

    fn look(number: u32) -> Look {
        Look {
            space: Some(Space {
                size: 1 << 40,
                available: 1 << 39,
                inodes: 0,
                inodes_free: 0,
            }),
            identity: Some(Identity {
                device: Some(device(number)),
                mount_id: Some(1),
                fsid: 7,
                canonical: format!("/mnt/{number}").into(),
                ..Identity::default()
            }),
            ..Look::default()
        }
    }

    /// What comes each second for each directory, and it may be 500 of them.
    #[test]
    fn an_observation_that_changes_nothing_asks_for_no_other_directory() {
        for ballast in [0, 1 << 30] {
            let (mut tracker, ids) = tracker(ballast);
            let walks = tracker.tracks.walks();
            for second in 1..5 {
                let now = Moment {
                    elapsed: Duration::from_secs(second),
                    ..Moment::default()
                };
                for id in &ids {
                    tracker.observe(now, *id, Observation::Looked(look(id.0)));
                    let running = InFlight::new(Operation::Sync, Duration::from_secs(1));
                    tracker.observe(now, *id, Observation::InFlight(running));
                    assert!(!tracker.is_suspect(*id));
                }
            }
            assert_eq!(tracker.tracks.walks(), walks, "{ballast} bytes of ballast");
        }
    }

    #[test]
    fn ballast_beside_is_that_of_the_others_on_the_device() {
        let (mut tracker, ids) = tracker(100);
        let beside = |tracker: &Tracker, place: usize| {
            let beside = tracker.ballasts.beside(&tracker.tracks[place]);
            beside.held
        };
        assert_eq!(beside(&tracker, 0), 100);
        // The other one's file system comes back as the next device.
        let now = Moment::default();
        let moved = Mount {
            device: device(2),
            ..mount(1)
        };
        tracker.observe(now, ids[1], Observation::Mounted(moved));
        assert_eq!(
            [0, 1, 2].map(|place| beside(&tracker, place)),
            [0, 200, 200]
        );
        // Another one is mounted where the neighbour was: its own ballast is somewhere else.
        let other = Mount {
            device: device(12),
            ..mount(2)
        };
        tracker.observe(now, ids[3], Observation::Mounted(other));
        assert_eq!(
            [0, 1, 2].map(|place| beside(&tracker, place)),
            [0, 100, 100]
        );
        // And is not watched any more.
        let dirs = tracker.dirs().map(|(_, dir)| dir.clone());
        let dirs: Vec<Dir> = dirs.filter(|dir| !dir.path.ends_with("1")).collect();
        tracker.configure(now, dirs, Policy::default(), |_| None);
        assert_eq!([0, 1].map(|place| beside(&tracker, place)), [0, 0]);
    }
}
