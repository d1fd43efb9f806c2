//! The pins of all directories: taken over from an earlier run, asked for, and given away when they changed.
//! What a pin is and what it is compared with is in `identity`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::dir::{Dir, DirId};
use super::identity::Pin;
use super::moment::Moment;
use super::track::Track;
use super::tracker::Tracker;

impl Tracker {
    /// Takes over pins of an earlier run that became known only now. Each stands above the one that
    /// was made meanwhile: that may be of the root disk, if a mount was missing at the start.
    pub fn recall(&mut self, now: Moment, mut pin: impl FnMut(&Dir) -> Option<Pin>) {
        for place in 0..self.tracks.len() {
            let track = &mut self.tracks[place];
            if let Some(pin) = pin(&track.dir) {
                track.recall(now, pin);
                self.ballasts.follow(&mut self.tracks, place);
            }
        }
    }

    /// Where the directory's path led when it was pinned.
    #[must_use]
    pub fn pinned_path(&self, id: DirId) -> Option<PathBuf> {
        let track = &self.tracks[self.place(id)?];
        let pin = track.pin.as_ref()?;
        Some(pin.identity.canonical.clone())
    }

    /// Directories that lead to the place of an earlier one, with that one: one disk is then judged,
    /// and its space counted, twice.
    #[must_use]
    pub fn duplicates(&self) -> Vec<(&Dir, &Dir)> {
        let canonical = |track: &'_ Track| {
            let pin = track.pin.as_ref();
            pin.map(|pin| (pin.identity.canonical.clone(), pin.identity.device))
        };
        let mut seen: BTreeMap<_, &Dir> = BTreeMap::new();
        let mut duplicates = Vec::new();
        for track in self.tracks.iter() {
            let Some(place) = canonical(track) else {
                continue;
            };
            match seen.get(&place) {
                Some(earlier) if earlier.path != track.dir.path => {
                    duplicates.push((&track.dir, *earlier));
                }
                Some(_) => {}
                None => drop(seen.insert(place, &track.dir)),
            }
        }
        duplicates
    }

    /// Pins that changed since the last call.
    pub fn take_changed_pins(&mut self) -> Vec<(Dir, Pin)> {
        self.tracks
            .iter_mut()
            .filter_map(|track| {
                let changed = std::mem::take(&mut track.pin_changed);
                let pin = track.pin.as_ref().filter(|_| changed)?;
                Some((track.dir.clone(), pin.clone()))
            })
            .collect()
    }
}
