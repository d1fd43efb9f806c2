//! Crossings that really happen: a file system of which one file takes nearly all, and gives it back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Place;
use super::verdict::{Told, millis};
use crate::harness::bench::Bench;
use crate::harness::disk::Filler;

/// Usage between crossings: far from each threshold.
const LOW: f64 = 0.70;

/// The default: a bad condition must be over for so long.
const DWELL: Duration = Duration::from_secs(30);

/// The event of a crossing, and one that a look in between may add before it.
type Expected = (&'static str, &'static str);

/// A directory whose file system is filled over a threshold and emptied again.
#[derive(Debug)]
pub(super) struct Swing {
    dir: PathBuf,
    filler: Filler,
    high: f64,
    expected: [Expected; 2],
}

impl Swing {
    pub(super) fn new(place: &Place, high: f64, expected: [Expected; 2]) -> Swing {
        Swing {
            dir: place.dirs[0].0.clone(),
            filler: Filler::new(place.disk.path()),
            high,
            expected,
        }
    }

    pub(super) fn rise(&mut self, bench: &Bench) -> Told {
        self.cross(bench, self.high, self.expected[0], Duration::ZERO)
    }

    pub(super) fn fall(&mut self, bench: &Bench) -> Told {
        self.cross(bench, LOW, self.expected[1], DWELL)
    }

    fn cross(&mut self, bench: &Bench, ratio: f64, expected: Expected, dwell: Duration) -> Told {
        let began = bench.now();
        self.filler.set_usage(ratio);
        let dir: &Path = &self.dir;
        Told::new(
            dir,
            expected.0,
            expected.1,
            began,
            bench.now() + millis(dwell),
        )
    }
}
