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
use super::super::stack::Stack;
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
    pub(super) fn follow<'a>(&mut self, stacks: impl Iterator<Item = &'a Stack> + Clone) {
        let devices = stacks.clone().flat_map(|each| &each.all);
        let heads = stacks.flat_map(|each| &each.heads);
        self.stats.follow(devices.copied(), heads.cloned());
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

    /// Writes that these devices have completed, if that is known of all.
    pub(super) fn written(&self, devices: &[Device]) -> Option<u64> {
        self.stats.written(devices)
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
        self.release_unexplained(now)?;
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
            let written = self.pulse.written(&lane.stack.own);
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
            let refused = refusal(stats, &watched.stack.own, &read)
                .or_else(|| watched.unmoved.refusal(&watched.stack.own));
            let is_news = watched.source(KernelSource::Diskstats, refused);
            let stalled = lowest_stalled(stats, &watched.stack.all);
            let what = stalled.and_then(|device| stall(stats, &watched.stack.own, device));
            let before = std::mem::replace(&mut watched.stalled, stalled);
            if is_news {
                self.say_sources(dir)?;
            }
            // Each says so when it begins and when it ends.
            if before != stalled {
                self.say(&Answer::Stalled {
                    dir: dir.0,
                    what: what.clone(),
                })?;
            }
            if let Some(what) = what.filter(|_| before.is_none()) {
                self.signal(dir, &what)?;
            }
        }
        Ok(())
    }
}

/// So many probes in a row, each with a sync, may leave the counters as they were: they are read up
/// to two seconds and a half late, and probes may be a second apart.
const MAX_UNMOVED: u32 = 4;

/// Whether our own writes are among those that are counted.
#[derive(Debug, Default)]
pub(super) struct Unmoved {
    written: Option<u64>,
    probes: u32,
}

impl Unmoved {
    /// A probe has written, and this many writes are counted.
    pub(super) fn probed(&mut self, written: u64) {
        let moved = self.written.replace(written) != Some(written);
        self.probes = if moved {
            0
        } else {
            self.probes.saturating_add(1)
        };
    }

    /// Why these devices' counters are none.
    fn refusal(&self, own: &[Device]) -> Option<String> {
        let Device { major, minor } = own.first()?;
        let text = format!("the kernel does not count our writes to {major}:{minor}");
        (MAX_UNMOVED <= self.probes).then_some(text)
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

/// The lowest device of a stack that is stalled: those above it wait for it.
fn lowest_stalled(stats: &Diskstats, all: &[Device]) -> Option<Device> {
    let mut upwards = all.iter().rev().copied();
    upwards.find(|device| stats.stalled(*device).is_some())
}

/// What a device of a stack is stalled with, in words.
fn stall(stats: &Diskstats, own: &[Device], device: Device) -> Option<String> {
    let over = own.first().filter(|_| !own.contains(&device));
    stats.stall(device, over.copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_our_writes_never_move_are_no_source() {
        let own = [Device {
            major: 259,
            minor: 0,
        }];
        let mut unmoved = Unmoved::default();
        let mut refused = |written| {
            unmoved.probed(written);
            unmoved.refusal(&own).is_some()
        };
        let probes = [0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 8, 8];
        let refused: Vec<bool> = probes.into_iter().map(&mut refused).collect();
        let expected = [&[false; 4][..], &[true; 2], &[false; 6]].concat();
        assert_eq!(refused, expected);
    }
}
