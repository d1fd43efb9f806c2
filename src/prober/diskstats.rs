//! `/proc/diskstats`, and the same counters in sysfs of partitions and hidden devices: which devices complete
//! requests, and which hold some and complete none. Reading touches no disk. Pure but for [`Diskstats::read`]; time comes in as attended time, so that a
//! pause of the process stalls nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::health::observation::Device;

use super::stack;

/// A device that has held requests for so long and completed none is stalled: as an operation of
/// ours is suspect after it (`health::access`).
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// Requests that stay in flight for so long while others complete are none: some kernels forget to
/// count one down. The block layer itself gives a request up after 30 s.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// ... and only if for one part in so many of that time they alone looked like a stall: the queue of a
/// busy disk is never empty either, and taken for forgotten requests it would hide a hang.
const IDLE_PART: u32 = 2;

/// So many devices are read each for itself, from sysfs: four microseconds for each. The common file has
/// all devices of the machine, and takes the kernel three for each of those.
const FEW: usize = 16;

/// A line of counters has seventeen numbers of twenty digits at most.
const LINE: usize = 512;

/// What the kernel says of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    /// Reads, writes, discards and flushes.
    completed: u64,
    /// Writes and flushes.
    written: u64,
    in_flight: u64,
}

/// One device that is followed.
#[derive(Debug, Default)]
struct Disk {
    name: String,
    /// Its own counters in sysfs.
    own: Option<File>,
    /// Its folder in sysfs, if others count its requests too.
    head: Option<PathBuf>,
    reading: Option<Reading>,
    /// For how long it has held requests and completed none.
    held: Duration,
    /// So many of those in flight are forgotten ones.
    forgotten: u64,
    /// The fewest in flight, over this time, whether any was completed in it, and for how much of it
    /// just so many looked like a stall.
    fewest: u64,
    window: Duration,
    idle: Duration,
    /// For how long there have been just so many and none was completed.
    still: Duration,
    moved: bool,
    is_present: bool,
}

/// The devices that are followed.
#[derive(Debug, Default)]
pub(super) struct Diskstats {
    file: Option<File>,
    text: Vec<u8>,
    disks: BTreeMap<Device, Disk>,
}

impl Diskstats {
    /// Follows these devices and no others; with the folders of those whose requests others count too.
    pub(super) fn follow(
        &mut self,
        devices: impl Iterator<Item = Device>,
        heads: impl Iterator<Item = (Device, PathBuf)>,
    ) {
        let mut before = std::mem::take(&mut self.disks);
        let known = |device| (device, before.remove(&device).unwrap_or_default());
        self.disks = devices.map(known).collect();
        for (device, folder) in heads {
            self.disks.entry(device).or_default().head = Some(folder);
        }
    }

    /// Whether there is anything to read for.
    pub(super) fn is_idle(&self) -> bool {
        self.disks.is_empty()
    }

    /// Reads the counters, after this much attended time since the last reading.
    ///
    /// # Errors
    /// They cannot be read; then nothing is known of any device.
    pub(super) fn read(&mut self, since: Duration) -> io::Result<()> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let read = self.read_text(&mut text);
        if read.is_err() {
            text.clear();
        }
        self.take(&text, since);
        self.text = text;
        read
    }

    fn read_text(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        if self.disks.len() <= FEW && self.read_each(text).is_ok() {
            return Ok(());
        }
        text.clear();
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(File::open("/proc/diskstats")?),
        };
        file.rewind()?;
        file.read_to_end(text).map(drop)
    }

    /// The lines that the common file has of the devices that are followed.
    fn read_each(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        for (device, disk) in &mut self.disks {
            let Device { major, minor } = device;
            let file = match &mut disk.own {
                Some(file) => file,
                None => {
                    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))?;
                    let name = folder.file_name().unwrap_or_default();
                    disk.name = name.to_string_lossy().into_owned();
                    disk.own.insert(File::open(folder.join("stat"))?)
                }
            };
            write!(text, "{major} {minor} {} ", disk.name)?;
            let mut line = [0; LINE];
            match file.read_at(&mut line, 0) {
                Ok(count) => text.extend_from_slice(&line[..count]),
                Err(error) => {
                    // The device is gone, and its number may be another one's by now.
                    disk.own = None;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, text: &[u8], since: Duration) {
        for disk in self.disks.values_mut() {
            disk.is_present = false;
        }
        for line in text.split(|byte| *byte == b'\n') {
            let mut fields = Fields(line);
            if let Some(device) = device(&mut fields)
                && let Some(disk) = self.disks.get_mut(&device)
                && let Some(name) = fields.next()
                && let Some(reading) = reading(fields)
            {
                if disk.name.as_bytes() != name {
                    disk.name = String::from_utf8_lossy(name).into_owned();
                }
                disk.take(reading, since);
            }
        }
        for disk in self.disks.values_mut().filter(|disk| !disk.is_present) {
            let head = disk.head.take();
            *disk = Disk {
                head,
                ..Disk::default()
            };
        }
    }

    /// For how long it has held requests and completed none; none while it is not stalled.
    pub(super) fn stalled(&self, device: Device) -> Option<Duration> {
        let held = self.disks.get(&device)?.held;
        (STALLED_AFTER <= held).then_some(held)
    }

    /// What it is stalled with, in words; `over` is the device whose requests go through it.
    pub(super) fn stall(&self, device: Device, over: Option<Device>) -> Option<String> {
        self.stalled(device)?;
        let disk = self.disks.get(&device)?;
        let held = disk.reading?.in_flight.saturating_sub(disk.forgotten);
        let over = over.and_then(|over| self.disks.get(&over));
        let over = over.map_or(String::new(), |over| format!(", under {}", over.name));
        let (name, time) = (&disk.name, disk.held.as_secs_f64());
        let plural = if held == 1 { "" } else { "s" };
        let Device { major, minor } = device;
        Some(format!(
            "{major}:{minor} ({name}){over}: {held} request{plural} in flight and none completed for {time:.1} s"
        ))
    }

    /// Writes and flushes that these devices have completed; none unless all of them are counted: a
    /// part of the sum that comes or goes would look like progress.
    pub(super) fn written(&self, devices: &[Device]) -> Option<u64> {
        let each = devices
            .iter()
            .map(|device| Some(self.disks.get(device)?.reading?.written));
        let sum = each.reduce(|sum, written| Some(sum?.wrapping_add(written?)));
        sum.flatten()
    }

    /// The kernel counts its requests.
    pub(super) fn is_known(&self, device: Device) -> bool {
        self.disks.get(&device).is_some_and(|disk| disk.is_present)
    }
}

impl Disk {
    fn take(&mut self, mut reading: Reading, since: Duration) {
        self.is_present = true;
        if let Some(head) = &self.head {
            reading.add(&stack::others(head));
        }
        let Some(before) = self.reading.replace(reading) else {
            self.fewest = reading.in_flight;
            return;
        };
        let moved = before.completed != reading.completed;
        self.forgotten = self.forgotten.min(reading.in_flight);
        if reading.in_flight < self.fewest {
            (self.fewest, self.idle) = (reading.in_flight, Duration::ZERO);
        }
        let fewest = [before.in_flight, reading.in_flight] == [self.fewest; 2];
        self.still = match !moved && fewest {
            true => self.still + since,
            false => Duration::ZERO,
        };
        if STALLED_AFTER <= self.still {
            self.idle += since;
        }
        self.moved |= moved;
        self.window += since;
        if FORGOTTEN_AFTER <= self.window {
            if self.moved && self.window / IDLE_PART <= self.idle {
                self.forgotten = self.fewest;
            }
            (self.window, self.idle, self.moved) = (Duration::ZERO, Duration::ZERO, false);
            self.fewest = reading.in_flight;
        }
        let in_flight = before.in_flight.min(reading.in_flight);
        self.held = if moved || in_flight <= self.forgotten {
            Duration::ZERO
        } else {
            self.held + since
        };
    }
}

impl Reading {
    /// Adds what others count. Where a request is counted here and there the sums move twice as
    /// fast; as many are in flight as either says.
    fn add(&mut self, others: &[PathBuf]) {
        let mut in_flight = 0_u64;
        for path in others {
            // One that is gone was there a moment ago.
            let text = fs::read(path).unwrap_or_default();
            if let Some(path) = reading(Fields(text.trim_ascii())) {
                self.completed = self.completed.wrapping_add(path.completed);
                self.written = self.written.wrapping_add(path.written);
                in_flight = in_flight.saturating_add(path.in_flight);
            }
        }
        self.in_flight = self.in_flight.max(in_flight);
    }
}

/// The words of a line.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|byte| *byte != b' ')?;
        let rest = &self.0[start..];
        let end = rest.iter().position(|byte| *byte == b' ');
        let (word, rest) = rest.split_at(end.unwrap_or(rest.len()));
        self.0 = rest;
        Some(word)
    }
}

fn device(fields: &mut Fields<'_>) -> Option<Device> {
    let mut next = || u32::try_from(number(fields.next()?)?).ok();
    Some(Device {
        major: next()?,
        minor: next()?,
    })
}

/// The counters after the name: 11 of them up to Linux 4.17, then 15 (discards), 17 (flushes), and
/// whatever may come.
fn reading(fields: Fields<'_>) -> Option<Reading> {
    let mut counters = [0; 17];
    let mut count = 0;
    for (counter, field) in counters.iter_mut().zip(fields) {
        *counter = number(field)?;
        count += 1;
    }
    let [reads, .., discards, _, _, _, flushes, _] = counters;
    let writes = counters[4];
    (11 <= count).then(|| Reading {
        completed: reads
            .wrapping_add(writes)
            .wrapping_add(discards)
            .wrapping_add(flushes),
        written: writes.wrapping_add(flushes),
        in_flight: counters[8],
    })
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HALF: Duration = Duration::from_millis(500);
    const SDB: Device = Device {
        major: 8,
        minor: 16,
    };

    fn followed(text: &str) -> Diskstats {
        let mut stats = Diskstats::default();
        stats.follow([SDB].into_iter(), std::iter::empty());
        stats.take(text.as_bytes(), HALF);
        stats
    }

    /// A line with so many completed writes and requests in flight.
    fn line(writes: u64, in_flight: u64) -> String {
        format!("   8      16 sdb 9 0 72 4 {writes} 0 8 1 {in_flight} 5 5 0 0 0 0 0 0\n")
    }

    /// Feeds (writes, in flight) twice a second; the time held after each, in half seconds.
    fn held(readings: impl IntoIterator<Item = (u64, u64)>) -> Vec<u128> {
        let mut stats = followed("");
        let mut held = Vec::new();
        for (writes, in_flight) in readings {
            stats.take(line(writes, in_flight).as_bytes(), HALF);
            held.push(stats.disks[&SDB].held.as_millis() / HALF.as_millis());
        }
        held
    }

    #[test]
    fn lines_of_all_kernels_are_understood() {
        for (counters, completed, written, in_flight) in [
            ("1 2 3 4 5 6 7 8 9 10 11", 6, 5, 9),
            ("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", 18, 5, 9),
            ("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17", 34, 21, 9),
            (
                "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
                34,
                21,
                9,
            ),
        ] {
            let text = format!(" 254       0 vda 1 1 1\n   8      16 sdb {counters}\n\n");
            let stats = followed(&text);
            let expected = Reading {
                completed,
                written,
                in_flight,
            };
            assert_eq!(stats.disks[&SDB].reading, Some(expected), "{counters}");
            assert!(stats.is_known(SDB));
        }
        let short = followed("8 16 sdb 1 2 3 4 5 6 7 8 9 10\n");
        assert!(!short.is_known(SDB) && short.written(&[SDB]).is_none());
    }

    #[test]
    fn a_stall_is_requests_in_flight_and_none_completed() {
        assert_eq!(held([(1, 0), (1, 2), (1, 2), (1, 3)]), [0, 0, 1, 2]);
        assert_eq!(held([(1, 2), (2, 2), (2, 2), (3, 2)]), [0, 0, 1, 0]);
        assert_eq!(held([(1, 2), (1, 2), (1, 0), (1, 2)]), [0, 1, 0, 0]);
        let mut stats = followed(&line(1, 3));
        for _ in 0..3 {
            stats.take(line(1, 3).as_bytes(), HALF);
            assert_eq!(stats.stalled(SDB), None);
        }
        stats.take(line(1, 3).as_bytes(), HALF);
        let text = "8:16 (sdb): 3 requests in flight and none completed for 2.0 s";
        assert_eq!(stats.stall(SDB, None).as_deref(), Some(text));
        stats.take(b"", HALF);
        assert_eq!(stats.stall(SDB, None), None, "the device is gone");
    }

    #[test]
    fn writes_are_known_only_if_those_of_all_devices_are() {
        const SDC: Device = Device {
            major: 8,
            minor: 32,
        };
        let mut stats = Diskstats::default();
        stats.follow([SDB, SDC].into_iter(), std::iter::empty());
        assert_eq!(stats.written(&[SDB, SDC]), None, "not read yet");
        let both = line(3, 0) + &line(4, 0).replace("16 sdb", "32 sdc");
        for (text, expected) in [
            (&*both, Some(7)),
            (&line(3, 0), None),
            (&both, Some(7)),
            ("", None),
        ] {
            stats.take(text.as_bytes(), HALF);
            assert_eq!(stats.written(&[SDB, SDC]), expected, "{text}");
        }
        assert_eq!(stats.written(&[]), None, "nobody knows what is below");
    }

    /// The two sources of the kernel say the same, of devices that rest meanwhile.
    #[test]
    fn each_device_for_itself_is_read_as_from_the_common_file() {
        let common = || fs::read_to_string("/proc/diskstats").unwrap();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        let before = common();
        for line in before.lines() {
            let Some(device) = device(&mut Fields(line.as_bytes())) else {
                panic!("{line}");
            };
            let mut stats = Diskstats::default();
            stats.follow([device].into_iter(), std::iter::empty());
            let mut text = Vec::new();
            // One that is gone by now cannot be read any more.
            if stats.read_each(&mut text).is_ok() && common().lines().any(|now| now == line) {
                let of_all: Vec<String> = words(line);
                let own: Vec<String> = words(str::from_utf8(&text).unwrap());
                assert_eq!(own, of_all);
            }
        }
        let mut stats = Diskstats::default();
        let none = Device { major: 0, minor: 0 };
        stats.follow([none].into_iter(), std::iter::empty());
        assert!(stats.read_each(&mut Vec::new()).is_err(), "no such device");
        assert!(stats.read(HALF).is_ok() && !stats.is_known(none));
    }

    /// One request that the kernel forgot to count down, on a disk that works now and then.
    #[test]
    fn a_forgotten_request_is_no_stall_in_the_long_run() {
        let readings = (0..600).map(|half| (half / 20, 1));
        let held = held(readings);
        assert_eq!(held[..120].iter().max(), Some(&19));
        assert_eq!(held[140..].iter().max(), Some(&0));
    }

    /// The disk counts nothing; its one path does.
    #[test]
    fn a_stall_of_hidden_paths_is_one_of_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let head = dir.path().join("nvme0n1");
        let path = head.join("multipath/nvme0c0n1");
        fs::create_dir_all(&path).unwrap();
        let mut stats = Diskstats::default();
        stats.follow([SDB].into_iter(), [(SDB, head)].into_iter());
        let mut take = |text: &str| {
            fs::write(path.join("stat"), text).unwrap();
            stats.take(b"8 16 nvme0n1 0 0 0 0 0 0 0 0 0 0 0\n", HALF);
            (stats.written(&[SDB]), stats.stalled(SDB))
        };
        assert_eq!(take("  9  0 72  4  7  0  8  1  2  5  5\n"), (Some(7), None));
        assert_eq!(take("  9  0 72  4  8  0  8  1  2  5  5\n"), (Some(8), None));
        for _ in 0..3 {
            assert_eq!(take("  9  0 72  4  8  0  8  1  2  5  5\n").1, None);
        }
        let stalled = take("  9  0 72  4  8  0  8  1  2  5  5\n").1;
        assert_eq!(stalled, Some(Duration::from_secs(2)));
        assert_eq!(take("  9  0 72  4  9  0  8  1  1  5  5\n").1, None);
    }

    /// Nothing completes for ten minutes: however long it lasts, that is a stall.
    #[test]
    fn a_stall_is_never_taken_for_a_forgotten_request() {
        let held = held((0..1200).map(|_| (7, 1)));
        assert_eq!(held.last(), Some(&1199));
    }

    /// Of a busy disk requests are always in flight: when it hangs with fewer of them, or with as
    /// many, that is a stall.
    #[test]
    fn a_queue_that_is_never_empty_hides_no_hang() {
        type Reading = fn(u64) -> (u64, u64);
        let busy: [(&str, Reading); 4] = [
            ("as deep all the time", |half| (half, 8)),
            ("deeper and shallower", |half| (half, 5 + half % 7)),
            ("slow", |half| (half / 3, 32)),
            ("pauses of two seconds", |half| {
                (half - (half % 20).saturating_sub(15), 8)
            }),
        ];
        for (name, busy) in busy {
            for left in [1, 5, 8] {
                let readings = (0..600).map(busy).chain((0..20).map(|_| (600, left)));
                let held = held(readings);
                assert!(18 <= *held.last().unwrap(), "{name}, {left} left: {held:?}");
            }
        }
    }

    /// What was forgotten once stays so while the disk is busy.
    #[test]
    fn a_busy_time_does_not_bring_a_forgotten_request_back() {
        let idle = (0..200).map(|half| (half / 20, 1));
        let busy = (200..600).map(|half| (half, 3));
        let again = (600..800).map(|half| (600 + half / 20, 1));
        let held = held(idle.chain(busy).chain(again));
        assert_eq!(held[140..].iter().max(), Some(&0));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(texts: Vec<Vec<u8>>) {
            let mut stats = followed("");
            for text in texts {
                stats.take(&text, HALF);
                let _ = stats.stall(SDB, None);
            }
        }

        #[test]
        fn no_line_makes_the_parser_panic(lines in prop::collection::vec(" *8 +16 [a-z]{0,3}( [0-9]{0,21}){0,20}", 0..4)) {
            let mut stats = followed("");
            for line in lines {
                stats.take(line.as_bytes(), Duration::from_secs(30));
                let _ = (stats.stall(SDB, None), stats.written(&[SDB]));
            }
        }
    }
}
