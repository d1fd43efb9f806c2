//! A client that writes ledgers while something happens to the bookies, and what it lost.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::lab::Lab;
use crate::harness::bench::Bench;
use crate::harness::run::{wait_exit, wait_for};

/// From the start of its JVM to its first ledger.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running client of a cluster; ended when dropped.
pub(crate) struct Load {
    process: Child,
    told: PathBuf,
}

impl Load {
    /// Starts `bk-lab load` with these words.
    pub(crate) fn start(bench: &Bench, lab: &Lab, words: &[&str]) -> Load {
        let [told, complained] = ["written", "load.log"].map(|name| bench.folder().join(name));
        let file = |path| File::create(path).expect("the folder is ours");
        let process = lab
            .command("load", words)
            .stdin(Stdio::null())
            .stdout(file(&told))
            .stderr(file(&complained))
            .spawn()
            .expect("bk-lab can be started");
        Load { process, told }
    }

    /// Waits until so many ledgers are open and written.
    pub(crate) fn wait_ledgers(&self, count: usize) {
        wait_for("the first ledgers are written", START_LIMIT, || {
            let told = fs::read_to_string(&self.told).unwrap_or_default();
            (told.lines().count() >= count).then_some(())
        });
    }

    /// Ledgers that could not be written on.
    pub(crate) fn lost(&self) -> usize {
        let told = fs::read_to_string(&self.told).unwrap_or_default();
        let lines = told
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        lines.filter(|line: &Value| line["state"] == "lost").count()
    }

    /// File with what it wrote, for `verify`.
    pub(crate) fn written(&self) -> &PathBuf {
        &self.told
    }

    /// Its end, which comes by itself.
    pub(crate) fn wait_end(&mut self, limit: Duration) {
        let status = wait_exit(&mut self.process, limit);
        assert!(status.is_some(), "the writer does not end within {limit:?}");
    }

    /// Ends it as a crash would; what it wrote last is not told.
    pub(crate) fn end(&mut self) {
        let ended = self.process.try_wait().is_ok_and(|status| status.is_some());
        if !ended {
            let pid = i32::try_from(self.process.id()).expect("process numbers are small");
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            let _ = wait_exit(&mut self.process, Duration::from_secs(5));
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}
