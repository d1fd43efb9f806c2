//! The side writer: once a second it makes the steps of a probe in a file of its own, on the file system
//! but outside the watched directories, and notes how long they took. What the agent says of
//! slowness is held against that.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dirkeeper::clock::Clock;
use nix::fcntl::OFlag;
use serde_json::{Value, json};

use super::Place;
use crate::harness::bench::Bench;
use crate::harness::run::pass;

/// Between two samples.
const PERIOD: Duration = Duration::from_secs(1);

/// As much as a probe writes.
const BYTES: usize = 8192;

/// Steps by the names that events have for them, in their order.
const STEPS: [&str; 5] = ["create", "write", "sync", "read", "unlink"];

/// What one round of steps took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Wall-clock time of its start in milliseconds, as events carry it.
    pub(super) at: i64,
    steps: [Duration; STEPS.len()],
}

impl Sample {
    /// One of which this step took so long and the others nothing.
    pub(super) fn of(at: i64, step: &str, took: Duration) -> Sample {
        let steps = STEPS.map(|known| if known == step { took } else { Duration::ZERO });
        Sample { at, steps }
    }

    pub(super) fn end(&self) -> i64 {
        let total: Duration = self.steps.iter().sum();
        self.at + i64::try_from(total.as_millis()).unwrap_or(i64::MAX)
    }

    pub(super) fn longest(&self) -> Duration {
        self.steps.into_iter().max().unwrap_or_default()
    }

    /// What the step of this name took; none has another name.
    pub(super) fn step(&self, name: &str) -> Option<Duration> {
        let place = STEPS.iter().position(|known| *known == name)?;
        Some(self.steps[place])
    }
}

/// What was measured on one file system.
#[derive(Debug)]
pub(super) struct Beside<'a> {
    kind: &'static str,
    pub(super) root: &'a Path,
    pub(super) samples: Vec<Sample>,
}

impl<'a> Beside<'a> {
    pub(super) fn new(place: &'a Place) -> Beside<'a> {
        Beside::with(place.kind, place.disk.path(), Vec::new())
    }

    pub(super) fn with(kind: &'static str, root: &'a Path, samples: Vec<Sample>) -> Beside<'a> {
        Beside {
            kind,
            root,
            samples,
        }
    }

    /// A disk that the agent compares with others: memory is none.
    pub(super) fn is_disk(&self) -> bool {
        self.kind != "tmpfs"
    }

    /// The rounds that fell into the time before `end`.
    pub(super) fn recent(&self, end: i64, window: i64) -> impl Iterator<Item = &Sample> {
        let samples = self.samples.iter();
        samples.filter(move |sample| sample.at <= end && sample.end() >= end - window)
    }

    /// The middle of what a step took in that time.
    pub(super) fn median(&self, step: &str, end: i64, window: i64) -> Option<Duration> {
        let recent = self.recent(end, window);
        middle(recent.filter_map(|sample| sample.step(step)).collect())
    }

    /// Measures until told to stop.
    pub(super) fn run(mut self, bench: &Bench, stop: &AtomicBool) -> Beside<'a> {
        let folder = self.root.join("beside");
        fs::create_dir(&folder).expect("the file system is writable");
        let file = folder.join("sample");
        let clock = Clock::start();
        let bytes = [0x5a; BYTES];
        let mut direct = Direct::new();
        while !stop.load(Ordering::SeqCst) {
            let (at, start) = (bench.now(), clock.elapsed());
            let mut last = start;
            let mut step = || {
                let now = clock.elapsed();
                now - std::mem::replace(&mut last, now)
            };
            let mut open = File::create_new(&file).expect("there is room");
            let create = step();
            open.write_all(&bytes).expect("there is room");
            let write = step();
            open.sync_data().expect("the disk is well");
            let sync = step();
            drop(open);
            direct.read(&file);
            let read = step();
            fs::remove_file(&file).expect("it is there");
            let steps = [create, write, sync, read, step()];
            self.samples.push(Sample { at, steps });
            pass(PERIOD.saturating_sub(clock.elapsed() - start));
        }
        self
    }

    /// What it came to.
    pub(super) fn summary(&self) -> Value {
        let samples = self.samples.iter();
        let mut sync: Vec<Duration> = samples.filter_map(|sample| sample.step("sync")).collect();
        sync.sort_unstable();
        let millis = |time: Option<&Duration>| time.map(|time| time.as_micros() as f64 / 1e3);
        let longest = self.samples.iter().map(Sample::longest).max();
        json!({
            "name": self.root.file_name().and_then(|name| name.to_str()), "kind": self.kind,
            "samples": sync.len(), "medianSyncMs": millis(sync.get(sync.len() / 2)),
            "maxSyncMs": millis(sync.last()), "maxStepMs": millis(longest.as_ref()),
        })
    }
}

/// The middle, of an even number the lower one, as the agent has it.
pub(super) fn middle(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len().checked_sub(1)? / 2).copied()
}

/// Memory that a read past the page cache can go to.
struct Direct(Vec<u8>);

impl Direct {
    /// Enough for every disk.
    const ALIGNMENT: usize = 4096;

    fn new() -> Direct {
        Direct(vec![0; BYTES + Direct::ALIGNMENT])
    }

    /// Reads the file from the disk itself, where the file system can.
    fn read(&mut self, file: &Path) {
        let flags = OFlag::O_DIRECT.bits();
        if let Ok(mut open) = File::options().read(true).custom_flags(flags).open(file) {
            let start = self.0.as_ptr().align_offset(Direct::ALIGNMENT);
            open.read_exact(&mut self.0[start..start + BYTES])
                .expect("what was synced can be read");
        }
    }
}
