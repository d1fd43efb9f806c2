//! The errors that a file system counts itself, in sysfs: ext4 in its super block, so also those of
//! earlier mounts, and btrfs for each device. xfs (as of Linux 6.18) keeps no such counter there:
//! `error/` configures what it does about errors, `stats/` counts work. Reading them touches no disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::document::timestamp_text;
use crate::health::moment::Timestamp;

use super::device::Facts;
use super::mount::Entry;

/// Where the counters of a mounted file system are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counter {
    Ext4(PathBuf),
    Btrfs(PathBuf),
}

/// Counters that are told by name, of a file system on many devices: more than one line holds tell
/// a person nothing, and the frame in which they are told is bounded.
const MAX_NAMED: usize = 8;

/// What a file system has counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Count {
    total: u64,
    /// The newest error, in words.
    newest: String,
    /// All of them, in words.
    text: String,
}

/// News of a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) counter: Counter,
    /// All errors, in words; none when there are none any more.
    pub(super) text: Option<String>,
    /// The newest one, when there are more than at the reading before.
    pub(super) newest: Option<String>,
}

/// The counters that are read, as last read.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<Counter, u64>);

impl Facts {
    /// The counter of a mounted file system.
    ///
    /// # Errors
    /// It has none; in words.
    pub(super) fn counter(&self, mount: &Entry) -> Result<Counter, String> {
        let counter = match mount.fs_type.as_str() {
            "ext4" => {
                let block = self.block(mount.device, &mount.source);
                let name = block.as_deref().and_then(Path::file_name);
                name.map(|name| Counter::Ext4(self.sys.join("fs/ext4").join(name)))
            }
            "btrfs" => self.btrfs(mount).map(Counter::Btrfs),
            other => return Err(format!("{other} keeps no counter")),
        };
        let counter = counter.filter(|counter| counter.read().is_some());
        counter.ok_or_else(|| format!("the counter of {} cannot be read", mount.source))
    }
}

impl Counts {
    /// Reads these and forgets all others; says what is new: errors at the first reading, and each
    /// change. A counter that cannot be read is not there: its next reading is a first one.
    pub(super) fn read(&mut self, counters: &[Counter]) -> Vec<Counted> {
        let mut news = Vec::new();
        let mut before = std::mem::take(&mut self.0);
        for counter in counters {
            let known = before.remove(counter);
            let count = counter.read();
            if let Some(count) = &count {
                self.0.insert(counter.clone(), count.total);
            }
            let count = count.unwrap_or_default();
            if known.unwrap_or(0) != count.total {
                let has_risen = known.is_some_and(|known| known < count.total);
                news.push(Counted {
                    counter: counter.clone(),
                    text: (0 < count.total).then_some(count.text),
                    newest: has_risen.then_some(count.newest),
                });
            }
        }
        news
    }
}

impl Counter {
    fn read(&self) -> Option<Count> {
        match self {
            Counter::Ext4(folder) => ext4(folder),
            Counter::Btrfs(folder) => btrfs(folder),
        }
    }
}

fn ext4(folder: &Path) -> Option<Count> {
    let text = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let number = |name: &str| text(name)?.parse::<i64>().ok();
    let total = text("errors_count")?.parse().ok()?;
    if total == 0 {
        return Some(Count::default());
    }
    let place = |which: &str| {
        let function = text(&format!("{which}_error_func"));
        let function = function.unwrap_or_else(|| "a function not named".to_owned());
        let line = number(&format!("{which}_error_line")).unwrap_or(0);
        let code = number(&format!("{which}_error_errcode")).unwrap_or(0);
        format!("{function}, line {line}{}", error_name(code))
    };
    let time = |which: &str| {
        let seconds = number(&format!("{which}_error_time")).unwrap_or(0);
        timestamp_text(Timestamp(seconds.saturating_mul(1000)))
    };
    let errors = if total == 1 { "error" } else { "errors" };
    Some(Count {
        total,
        newest: format!("ext4 recorded an error in {}", place("last")),
        text: format!(
            "the file system has recorded {total} {errors}, the first at {} in {}, the last at {} in {}: run e2fsck",
            time("first"),
            place("first"),
            time("last"),
            place("last")
        ),
    })
}

/// ext4 numbers errors in its super block in its own way (`EXT4_ERR_*`).
fn error_name(code: i64) -> &'static str {
    match code {
        2 => " (EIO)",
        3 => " (ENOMEM)",
        4 => " (EFSBADCRC)",
        5 => " (EFSCORRUPTED)",
        6 => " (ENOSPC)",
        8 => " (EROFS)",
        16 => " (ESHUTDOWN)",
        _ => "",
    }
}

fn btrfs(folder: &Path) -> Option<Count> {
    let mut total: u64 = 0;
    let mut named = Vec::new();
    let mut unnamed = 0_usize;
    let mut is_read = false;
    for device in fs::read_dir(folder.join("devinfo")).ok()?.flatten() {
        // Says `invalid` until the device's numbers are read from the disk.
        let Ok(text) = fs::read_to_string(device.path().join("error_stats")) else {
            continue;
        };
        for line in text.lines() {
            let Some((kind, Ok(count))) = line.split_once(' ').map(|(a, b)| (a, b.parse::<u64>()))
            else {
                continue;
            };
            is_read = true;
            total = total.saturating_add(count);
            if 0 < count && named.len() < MAX_NAMED {
                let id = device.file_name();
                let id = id.to_string_lossy();
                named.push(format!("{kind} {count} on device {id}"));
            } else if 0 < count {
                unnamed += 1;
            }
        }
    }
    if 0 < unnamed {
        named.push(format!("{unnamed} more"));
    }
    let kinds = named.join(", ");
    is_read.then(|| Count {
        total,
        newest: format!("btrfs counted an error: {kinds}"),
        text: format!("the file system has counted errors: {kinds}: see btrfs device stats"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn errors_of_ext4_are_told_at_first_and_when_they_rise() {
        let dir = tempfile::tempdir().unwrap();
        let counters = [Counter::Ext4(dir.path().to_owned())];
        let mut counts = Counts::default();
        assert_eq!(counts.read(&counters), [], "not mounted");
        write(
            dir.path(),
            &[
                ("errors_count", "2\n"),
                ("first_error_func", "ext4_find_entry\n"),
                ("first_error_line", "1234\n"),
                ("first_error_errcode", "2\n"),
                ("first_error_time", "1796023089\n"),
                ("last_error_func", "ext4_journal_check_start\n"),
                ("last_error_line", "83\n"),
                ("last_error_errcode", "99\n"),
                ("last_error_time", "1796023090\n"),
            ],
        );
        let told = counts.read(&counters);
        assert_eq!(told[0].newest, None, "from the past");
        insta::assert_snapshot!(
            told[0].text.as_ref().unwrap(),
            @"the file system has recorded 2 errors, the first at 2026-11-30T07:18:09.000Z in ext4_find_entry, line 1234 (EIO), the last at 2026-11-30T07:18:10.000Z in ext4_journal_check_start, line 83: run e2fsck"
        );
        assert_eq!(counts.read(&counters), []);
        write(dir.path(), &[("errors_count", "3\n")]);
        let told = counts.read(&counters);
        insta::assert_snapshot!(
            told[0].newest.as_ref().unwrap(),
            @"ext4 recorded an error in ext4_journal_check_start, line 83"
        );
        write(dir.path(), &[("errors_count", "0\n")]);
        let none = |counters: &[Counter]| Counted {
            counter: counters[0].clone(),
            text: None,
            newest: None,
        };
        let told = counts.read(&counters);
        assert_eq!(told, [none(&counters)], "repaired and mounted again");
        assert_eq!(counts.read(&counters), []);
        write(dir.path(), &[("errors_count", "1\n")]);
        assert!(counts.read(&counters)[0].newest.is_some());
        fs::remove_file(dir.path().join("errors_count")).unwrap();
        assert_eq!(counts.read(&counters), [none(&counters)], "unmounted");
        assert_eq!(counts.read(&counters), []);
    }

    #[test]
    fn errors_of_btrfs_are_those_of_all_its_devices() {
        let dir = tempfile::tempdir().unwrap();
        let counters = [Counter::Btrfs(dir.path().to_owned())];
        let mut counts = Counts::default();
        write(
            dir.path(),
            &[
                (
                    "devinfo/1/error_stats",
                    "write_errs 0\nread_errs 0\nflush_errs 0\n",
                ),
                ("devinfo/2/error_stats", "invalid\n"),
            ],
        );
        assert_eq!(counts.read(&counters), []);
        write(
            dir.path(),
            &[("devinfo/1/error_stats", "write_errs 2\ncorruption_errs 1\n")],
        );
        let told = counts.read(&counters);
        assert_eq!(
            told[0].newest.as_deref(),
            Some("btrfs counted an error: write_errs 2 on device 1, corruption_errs 1 on device 1")
        );
        // What `btrfs device stats -z` sets back is not there any more.
        for (stats, text) in [
            (
                "write_errs 1\n",
                Some("the file system has counted errors: write_errs 1 on device 1: see btrfs device stats".to_owned()),
            ),
            ("write_errs 0\n", None),
        ] {
            write(dir.path(), &[("devinfo/1/error_stats", stats)]);
            let told = counts.read(&counters);
            assert_eq!(told[0].text, text);
            assert_eq!(told[0].newest, None, "fewer are no new error");
        }
    }

    #[test]
    fn errors_on_any_number_of_devices_are_one_line() {
        let dir = tempfile::tempdir().unwrap();
        for device in 0..500 {
            let name = format!("devinfo/{device}/error_stats");
            let stats = format!("write_errs {0}\nread_errs {0}\n", u64::MAX / 1000);
            write(dir.path(), &[(&*name, &*stats)]);
        }
        let count = btrfs(dir.path()).unwrap();
        assert!(count.text.contains(", 992 more:"), "{}", count.text);
        assert!(count.text.len() < 1000, "{}", count.text);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(bytes: Vec<u8>, line in "[a-z_]{0,9} [0-9]{0,22}\n") {
            let dir = tempfile::tempdir().unwrap();
            for text in [bytes.as_slice(), line.as_bytes()] {
                for name in ["errors_count", "last_error_time", "devinfo/1/error_stats"] {
                    let path = dir.path().join(name);
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, text).unwrap();
                }
                let _ = (ext4(dir.path()), btrfs(dir.path()));
            }
        }
    }
}
