//! Outliers among siblings: the one disk of many of a kind that takes much longer than the others.
//! Load makes all of them slow together, a dying disk is slow alone. Statistics only; the latency
//! axis decides how long it must last.
//!
//! Told apart by medium, because one solid-state disk among rotating ones makes the others look
//! slow (HDFS-17936), and counted by device, because directories that share a disk show the same.

use std::collections::BTreeMap;
use std::time::Duration;

use super::latency::history::middle;
use super::observation::{Device, Medium};

/// So many devices of a medium, itself included, are needed to say what is usual (as HDFS has it):
/// of four, two that share a bad cable would be half of the evidence.
const MIN_DEVICES: usize = 5;

/// A device is compared when it has so many samples: the middle of fewer is moved by one of them.
pub const MIN_SAMPLES: usize = 5;

/// Probes of a directory that are looked at, the newest: a minute and a half at the default
/// interval. Five of nine must be late to move the middle, so a burst of four changes nothing.
pub const NEWEST: usize = 9;

/// An outlier takes more than so many times what is usual, however alike the others are.
const TIMES: u64 = 3;

/// And it is so many deviations away, so that disks that differ a lot are not all outliers. The
/// deviation is the median absolute one, scaled to the standard deviation of normal noise (1.4826);
/// three of them are in thousandths here, so that no rounding depends on the unit.
const DEVIATIONS: u64 = 4448;
const THOUSAND: u64 = 1000;

/// The newest probes of one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// What it is on.
    pub device: Device,
    /// Kind of storage.
    pub medium: Medium,
    /// Microseconds that the compared step took in the newest probes.
    pub micros: Vec<u32>,
}

/// A device beside its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// What the device takes, in the middle.
    pub own: u32,
    /// What is usual in its group, in the middle.
    pub usual: u32,
    /// Devices that it is compared with.
    pub siblings: usize,
    /// Kind of storage of them all.
    pub medium: Medium,
    /// Thousandths of a microsecond above which it is an outlier.
    limit: u64,
}

impl Comparison {
    /// It stands out.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.limit < u64::from(self.own) * THOUSAND
    }

    /// It is at two thirds of the limit or below, so it does not stand out by any measure: leaving
    /// has a mark of its own, or one that swings around the limit would be told again and again.
    #[must_use]
    pub fn is_back(&self) -> bool {
        u64::from(self.own) * THOUSAND * 3 <= self.limit * 2
    }

    /// The same when the device takes this now, and nothing newer is known of its siblings.
    #[must_use]
    pub fn at(self, own: u32) -> Comparison {
        Comparison { own, ..self }
    }

    /// In words, after the name of the step.
    #[must_use]
    pub fn text(&self) -> String {
        let (own, usual) = (millis(self.own), millis(self.usual));
        let (siblings, medium) = (self.siblings, noun(self.medium));
        format!("takes {own} in the median, siblings {usual} ({siblings} {medium}): an outlier")
    }
}

/// Below this nobody is an outlier: it costs no bookie a write that anybody waits for. By medium,
/// because a floor must be above what a good one of the kind does under load, and of use: HDFS has
/// 20 ms for all.
const fn floor(medium: Medium) -> Duration {
    match medium {
        // A good one syncs in 0.1 to 5 ms, a journal that groups its writes hides ten.
        Medium::SolidState | Medium::Memory => Duration::from_millis(10),
        // A sync with its journal is two or three seeks and turns, 25 to 40 ms.
        Medium::Rotating => Duration::from_millis(50),
        // A round trip or two to a server, or to a daemon that has to be scheduled.
        Medium::Network => Duration::from_millis(50),
        Medium::Unknown => Duration::from_millis(20),
    }
}

/// Compares each directory's device with those of the same medium; in the order of the samples.
/// None where too little is known, and for memory, which is no disk.
#[must_use]
pub fn compare(samples: &[Sample]) -> Vec<Option<Comparison>> {
    let mut devices: BTreeMap<Device, (Medium, Vec<u32>)> = BTreeMap::new();
    for sample in samples {
        let known = devices.entry(sample.device);
        let (_, micros) = known.or_insert((sample.medium, Vec::new()));
        micros.extend(&sample.micros);
    }
    let mut middles: BTreeMap<Device, (Medium, u32)> = BTreeMap::new();
    for (device, (medium, mut micros)) in devices {
        micros.sort_unstable();
        if MIN_SAMPLES <= micros.len()
            && let Some(middle) = middle(&micros)
        {
            middles.insert(device, (medium, middle));
        }
    }
    let groups = [
        Medium::SolidState,
        Medium::Rotating,
        Medium::Network,
        Medium::Unknown,
    ]
    .map(|medium| Group::new(medium, middles.values()));
    let of = |sample: &Sample| {
        let (medium, own) = *middles.get(&sample.device)?;
        let group = groups
            .iter()
            .flatten()
            .find(|group| group.medium == medium)?;
        Some(Comparison {
            own,
            usual: group.usual,
            siblings: group.devices - 1,
            medium,
            limit: group.limit,
        })
    };
    samples.iter().map(of).collect()
}

/// What is usual among the devices of a medium.
struct Group {
    medium: Medium,
    devices: usize,
    usual: u32,
    limit: u64,
}

impl Group {
    fn new<'a>(medium: Medium, all: impl Iterator<Item = &'a (Medium, u32)>) -> Option<Group> {
        let of_medium = all.filter(|(of, _)| *of == medium);
        let mut middles: Vec<u32> = of_medium.map(|(_, middle)| *middle).collect();
        if middles.len() < MIN_DEVICES {
            return None;
        }
        middles.sort_unstable();
        let usual = middle(&middles)?;
        let mut deviations: Vec<u32> = middles.iter().map(|own| own.abs_diff(usual)).collect();
        deviations.sort_unstable();
        let deviation = u64::from(middle(&deviations)?);
        let floor = u64::try_from(floor(medium).as_micros()).unwrap_or(u64::MAX / THOUSAND);
        let usual_thousandths = u64::from(usual) * THOUSAND;
        let limit = (floor * THOUSAND)
            .max(usual_thousandths * TIMES)
            .max(usual_thousandths + deviation * DEVIATIONS);
        Some(Group {
            medium,
            devices: middles.len(),
            usual,
            limit,
        })
    }
}

fn millis(micros: u32) -> String {
    match micros {
        0..10_000 => format!("{:.1} ms", f64::from(micros) / 1000.0),
        _ => format!("{} ms", micros / 1000),
    }
}

const fn noun(medium: Medium) -> &'static str {
    match medium {
        Medium::SolidState => "solid-state disks",
        Medium::Rotating => "rotating disks",
        Medium::Network => "network file systems",
        Medium::Memory => "memory file systems",
        Medium::Unknown => "disks of unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(minor: u32, medium: Medium, micros: u32) -> Sample {
        Sample {
            device: Device { major: 8, minor },
            medium,
            micros: vec![micros; NEWEST],
        }
    }

    fn disks(medium: Medium, micros: &[u32]) -> Vec<Sample> {
        let numbered = (0..).zip(micros);
        numbered
            .map(|(minor, micros)| disk(minor, medium, *micros))
            .collect()
    }

    /// Which are outliers: `x` is, `.` is not, `?` cannot be said.
    fn word(samples: &[Sample]) -> String {
        let sign = |comparison: Option<Comparison>| match comparison {
            None => '?',
            Some(comparison) if comparison.is_over() => 'x',
            Some(_) => '.',
        };
        compare(samples).into_iter().map(sign).collect()
    }

    const SOLID: Medium = Medium::SolidState;

    #[test]
    fn the_one_that_takes_much_longer_stands_out() {
        let mut all = disks(SOLID, &[6000; 23]);
        all.push(disk(99, SOLID, 48_000));
        assert_eq!(word(&all), format!("{}x", ".".repeat(23)));
        let last = compare(&all).pop().flatten().unwrap();
        assert_eq!(
            last.text(),
            "takes 48 ms in the median, siblings 6.0 ms (23 solid-state disks): an outlier"
        );
    }

    #[test]
    fn four_are_too_few_to_say() {
        assert_eq!(word(&disks(SOLID, &[1000, 1000, 1000, 900_000])), "????");
        assert_eq!(
            word(&disks(SOLID, &[1000, 1000, 1000, 1000, 900_000])),
            "....x"
        );
    }

    #[test]
    fn load_makes_all_slow_and_nobody_an_outlier() {
        assert_eq!(
            word(&disks(
                SOLID,
                &[600_000, 700_000, 900_000, 650_000, 990_000]
            )),
            "....."
        );
    }

    #[test]
    fn disks_that_differ_a_lot_are_not_outliers_of_each_other() {
        let rotating = [20_000, 40_000, 90_000, 30_000, 160_000, 10_000, 110_000];
        assert_eq!(word(&disks(Medium::Rotating, &rotating)), ".......");
    }

    #[test]
    fn nobody_stands_out_below_the_floor() {
        assert_eq!(word(&disks(SOLID, &[100, 100, 100, 100, 10_000])), ".....");
        assert_eq!(word(&disks(SOLID, &[100, 100, 100, 100, 10_001])), "....x");
        assert_eq!(word(&disks(SOLID, &[0; 6])), "......");
    }

    #[test]
    fn media_are_compared_each_for_itself_and_memory_never() {
        let mut all = disks(Medium::Rotating, &[90_000; 6]);
        all.push(disk(50, SOLID, 100));
        all.extend((60..66).map(|minor| disk(minor, Medium::Memory, minor * minor * 1000)));
        assert_eq!(word(&all), "......???????");
    }

    #[test]
    fn directories_that_share_a_disk_count_once() {
        // Four devices, however many directories.
        let mut all = disks(SOLID, &[1000, 1000, 1000, 90_000]);
        all.extend(disks(SOLID, &[1000, 1000, 1000, 90_000]));
        assert_eq!(word(&all), "????????");
        all.push(disk(9, SOLID, 1000));
        assert_eq!(
            word(&all),
            "...x...x.",
            "both of the bad disk, with a fifth device"
        );
        // Ten directories of the bad disk do not make it the usual one.
        all.extend(std::iter::repeat_n(disk(3, SOLID, 90_000), 10));
        assert_eq!(word(&all), "...x...x.xxxxxxxxxx");
    }

    #[test]
    fn a_device_with_few_samples_is_neither_judged_nor_counted() {
        let mut all = disks(SOLID, &[1000, 1000, 1000, 1000, 90_000]);
        all[0].micros.truncate(MIN_SAMPLES - 1);
        assert_eq!(word(&all), "?????");
        all.push(disk(9, SOLID, 1000));
        assert_eq!(word(&all), "?...x.");
    }

    #[test]
    fn a_burst_of_four_probes_does_not_move_the_middle() {
        let mut all = disks(SOLID, &[1000; 6]);
        all[0].micros[..4].fill(900_000);
        assert_eq!(word(&all), "......");
        all[0].micros[4] = 900_000;
        assert_eq!(word(&all), "x.....");
    }

    #[test]
    fn leaving_is_lower_than_entering() {
        let of = |own| {
            let mut all = disks(SOLID, &[10_000; 6]);
            all.push(disk(9, SOLID, own));
            let last = compare(&all).pop().flatten().unwrap();
            (last.is_over(), last.is_back())
        };
        assert_eq!(of(30_001), (true, false));
        assert_eq!(of(30_000), (false, false));
        assert_eq!(of(20_001), (false, false));
        assert_eq!(of(20_000), (false, true));
    }
}
