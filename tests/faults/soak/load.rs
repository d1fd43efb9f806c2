//! Load: fio writes at full speed on each file system, stress-ng keeps every core four times busy.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Place;
use crate::harness::bench::Bench;
use crate::harness::run::{wait_exit, wait_for};
use crate::harness::sweep::{self, MARK};

/// Busy loops for each core.
const LOOPS: usize = 4;

/// MiB of the file that is written over and over in large pieces. Two such and what btrfs keeps of old
/// copies stay below the warning threshold of the smallest file system.
const BULK_MIB: u64 = 128;

/// MiB of the file that is written as a journal: small pieces, each synced.
const JOURNAL_MIB: u64 = 32;

/// The programs that make the load; ended when dropped.
#[derive(Debug)]
pub(super) struct Load {
    fio: Child,
    stress: Child,
    log: PathBuf,
    loops: usize,
}

impl Load {
    /// Starts it and waits until it writes; it would end by itself some time after `time`.
    pub(super) fn start(bench: &Bench, places: &[Place], time: Duration) -> Load {
        // Crossings and their dwell times go on for longer than asked.
        let seconds = (time.as_secs() + 600).to_string();
        let jobs = bench.folder().join("jobs.fio");
        fs::write(&jobs, job_file(places, &seconds)).expect("the folder is ours");
        let log = bench.folder().join("load.log");
        let spawn = |program: &str, arguments: &[&str]| {
            let out = File::options().create(true).append(true).open(&log);
            let out = out.expect("the folder is ours");
            let errors = out.try_clone().expect("a file can be opened twice");
            Command::new(program)
                .args(arguments)
                .current_dir(bench.folder())
                .env(MARK, bench.folder())
                .stdin(Stdio::null())
                .stdout(out)
                .stderr(errors)
                .spawn()
                .unwrap_or_else(|error| {
                    panic!("{program}, which scripts/test installs, cannot be started: {error}")
                })
        };
        let jobs = jobs.to_str().expect("paths of the tests are UTF-8");
        let fio = spawn("fio", &["--thread", "--eta=never", jobs]);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let loops = LOOPS * cores;
        let mut load = Load {
            stress: spawn(
                "stress-ng",
                &["--cpu", &loops.to_string(), "--timeout", &seconds],
            ),
            fio,
            log,
            loops,
        };
        wait_for("fio writes", Duration::from_secs(60), || {
            load.assert_running();
            (load.written() > 10_000_000).then_some(())
        });
        load
    }

    /// Busy loops on all cores.
    pub(super) fn loops(&self) -> usize {
        self.loops
    }

    /// Bytes that fio has written.
    pub(super) fn written(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/io", self.fio.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
        line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    }

    /// Load that ended too soon would make any verdict worthless.
    pub(super) fn assert_running(&mut self) {
        for child in [&mut self.fio, &mut self.stress] {
            let ended = child.try_wait().expect("it is ours");
            assert!(
                ended.is_none(),
                "the load ended: {}",
                fs::read_to_string(&self.log).unwrap_or_default()
            );
        }
    }

    /// Ends it.
    pub(super) fn stop(&mut self) {
        for child in [&mut self.fio, &mut self.stress] {
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("process numbers are small"));
            if !matches!(child.try_wait(), Ok(None)) {
                continue;
            }
            let below = sweep::descendants(pid);
            let _ = kill(pid, Signal::SIGTERM);
            if wait_exit(child, Duration::from_secs(20)).is_none() {
                for pid in below.into_iter().chain([pid]) {
                    let _ = kill(pid, Signal::SIGKILL);
                }
                let _ = wait_exit(child, Duration::from_secs(20));
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

/// For each file system one writer of large pieces; on disks one more that syncs each small piece.
fn job_file(places: &[Place], seconds: &str) -> String {
    let mut text = format!(
        "[global]\nioengine=psync\nrw=write\ntime_based\nruntime={seconds}\nallow_file_create=1\n"
    );
    for place in places {
        let path = place.disk.path();
        let path = path.to_str().expect("paths of the tests are UTF-8");
        text.push_str(&format!(
            "\n[bulk]\nfilename={path}/bulk\nsize={BULK_MIB}m\nbs=1m\nfsync=64\n"
        ));
        if place.kind != "tmpfs" {
            text.push_str(&format!(
                "\n[journal]\nfilename={path}/synced\nsize={JOURNAL_MIB}m\nbs=4k\nfdatasync=1\n"
            ));
        }
    }
    text
}
