//! Who works with the file, for people who have to wait: its lock says only that somebody does. What stands here is words, and
//! decides nothing.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Whoever has the file open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// Since when.
    pub since: SystemTime,
}

impl Holder {
    /// Of the file at this path; none where it does not say.
    pub(super) fn of(path: &Path) -> Option<Holder> {
        let sign = beside(path);
        let pid = fs::read_to_string(&sign).ok()?.trim().parse().ok()?;
        let since = fs::metadata(&sign).ok()?.modified().ok()?;
        Some(Holder { pid, since })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = humantime::format_rfc3339_seconds(self.since);
        write!(formatter, "process {}, since {since}", self.pid)
    }
}

/// The name of who has the file, as long as that is so. One that was killed leaves its own, until the next one comes.
#[derive(Debug)]
pub(super) struct Sign(PathBuf);

impl Sign {
    /// To be called by who has the lock.
    pub(super) fn put(path: &Path) -> Option<Sign> {
        let sign = beside(path);
        // Made anew: its time is when that was. Who cannot write it works without.
        let _ = fs::remove_file(&sign);
        fs::write(&sign, format!("{}\n", std::process::id())).ok()?;
        Some(Sign(sign))
    }
}

impl Drop for Sign {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("holder")
}
