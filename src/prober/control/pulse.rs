//! Twice a second: that the prober lives, which operations are overdue, and which devices hold
//! requests and complete none.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::clock::Clock;
use crate::health::dir::DirId;
use crate::health::observation::Device;
use crate::probe::wire::{self, Answer, KernelSource};

use super::super::diskstats::Diskstats;
use super::super::lane::{LaneKey, Running};
use super::super::pressure;
use super::{Control, MAX_GAP, REPORTED_AGE};

/// The counters of a host with hundreds of devices take a millisecond to write: then they are read
/// less often, so that no more than one part in so many of a core goes into it ...
const SHARE_OF_A_CORE: u32 = 1000;

/// ... but often enough to see within a second that a stall became one.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);

/// The counters of devices, and when they are read.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    stats: Diskstats,
    /// Attended time since the last reading, and how long it has to be.
    unread: Duration,
    wait: Duration,
}

/// An operation that is overdue.
#[derive(Clone, Copy)]
struct Overdue {
    running: Running,
    age: Duration,
    device_writes: bool,
    stalled: Option<Duration>,
}

impl Pulse {
    pub(super) fn follow(&mut self, devices: impl Iterator<Item = Device>) {
        self.stats.follow(devices);
    }

    /// Reads the counters if it is time; false when it is not.
    fn read(&mut self, clock: &Clock, gap: Duration) -> Option<io::Result<()>> {
        self.unread += gap;
        if self.stats.is_idle() || self.unread < self.wait {
            return None;
        }
        let before = clock.elapsed();
        let read = self.stats.read(std::mem::take(&mut self.unread));
        let cost = clock.elapsed().saturating_sub(before);
        self.wait = (cost * SHARE_OF_A_CORE).min(LONGEST_INTERVAL);
        Some(read)
    }
}

impl Control {
    pub(super) fn heartbeat(&mut self, now: Duration) -> io::Result<()> {
        let gap = now.saturating_sub(self.last_heartbeat).min(MAX_GAP);
        self.last_heartbeat = now;
        self.time.attend(gap);
        // Whatever was said since the last one says as well that we are here.
        if !std::mem::take(&mut self.has_spoken) {
            self.say(&Answer::Heartbeat)?;
        }
        if let Some(read) = self.pulse.read(&self.time.clock, gap) {
            self.counters_read(read)?;
        }
        let overdue = self.overdue(gap);
        let pressure = if overdue.is_empty() {
            None
        } else {
            pressure::read().ok()
        };
        let mut waiting = Vec::new();
        for (dir, watched) in &self.dirs {
            if let Some(look) = watched.look
                && let Some(overdue) = overdue.get(&look.lane)
            {
                let running = overdue.running;
                waiting.push(Answer::InFlight {
                    dir: dir.0,
                    operation: wire::operation_code(running.operation),
                    age: overdue.age,
                    device_writes: overdue.device_writes,
                    stalled: overdue.stalled,
                    pressure: pressure.map(wire::pressure_code),
                    behind: (running.dir != *dir).then_some(running.dir.0),
                });
            }
        }
        waiting.iter().try_for_each(|answer| self.say(answer))
    }

    fn overdue(&mut self, gap: Duration) -> BTreeMap<LaneKey, Overdue> {
        let mut all = BTreeMap::new();
        for (key, lane) in &mut self.lanes {
            let Some((running, age)) = lane.in_flight(gap).filter(|(_, age)| REPORTED_AGE <= *age)
            else {
                continue;
            };
            let stats = &self.pulse.stats;
            let written = stats.written(&lane.stack.own);
            let chain = lane.stack.chain.iter();
            let stalled = chain.filter_map(|device| stats.stalled(*device)).max();
            let overdue = Overdue {
                running,
                age,
                device_writes: lane.writes.go_on(running.sequence, written),
                stalled,
            };
            all.insert(*key, overdue);
        }
        all
    }

    /// Says for which directories a stall began or ended, and for which there are no counters.
    fn counters_read(&mut self, read: io::Result<()>) -> io::Result<()> {
        let dirs = self.dirs.iter();
        let dirs = dirs.filter(|(_, each)| !each.stack.all.is_empty());
        let dirs: Vec<DirId> = dirs.map(|(dir, _)| *dir).collect();
        for dir in dirs {
            let Some(watched) = self.dirs.get_mut(&dir) else {
                continue;
            };
            let stats = &self.pulse.stats;
            let refused = refusal(stats, &watched.stack.own, &read);
            let is_news = watched.source(KernelSource::Diskstats, refused);
            let stall = stall(stats, &watched.stack.own, &watched.stack.all);
            let (was_stalled, is_stalled) = (watched.stalled, stall.is_some());
            watched.stalled = is_stalled;
            if is_news {
                self.say_sources(dir)?;
            }
            // Each says so when it begins and when it ends.
            if was_stalled != is_stalled {
                self.say(&Answer::Stalled {
                    dir: dir.0,
                    what: stall.clone(),
                })?;
                if let Some(what) = stall {
                    self.signal(dir, &what)?;
                }
            }
        }
        Ok(())
    }
}

/// Why a directory has no counters; none when it has.
fn refusal(stats: &Diskstats, own: &[Device], read: &io::Result<()>) -> Option<String> {
    if let Err(error) = read {
        return Some(format!("/proc/diskstats cannot be read: {error}"));
    }
    let unknown = own.iter().find(|device| !stats.is_known(**device))?;
    let Device { major, minor } = unknown;
    Some(format!("the kernel counts no requests of {major}:{minor}"))
}

/// The first device of a stack that is stalled, in words.
fn stall(stats: &Diskstats, own: &[Device], all: &[Device]) -> Option<String> {
    let device = all
        .iter()
        .find(|device| stats.stalled(**device).is_some())?;
    let over = own.first().filter(|_| !own.contains(device));
    stats.stall(*device, over.copied())
}
