//! The harness under test itself: whatever a test leaves behind, stuck in the kernel or not, is swept
//! away; also when the run is interrupted, or one of its processes is killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::agent::Plan;
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::dying_disk::DyingDisk;
use crate::harness::memory_fs::Effect;
use crate::harness::run::{pass, text, wait_exit, wait_for};
use crate::harness::stage::STAGE;
use crate::harness::sweep::{self, MARK, sweep};

/// Starts a process that writes and syncs a file on a disk that does not answer, and waits until the
/// kernel holds it.
fn stuck_writer(bench: &Bench, folder: &Path) {
    let file = folder.join("file");
    let script = "echo text >\"$0\"; sync \"$0\"";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script, text(&file)])
        .env(MARK, bench.folder())
        .stdin(Stdio::null());
    #[allow(clippy::zombie_processes)]
    // its end comes with the sweep, and then that of this program
    let shell = shell.stderr(Stdio::null()).spawn().unwrap();
    wait_for("the kernel holds it", Duration::from_secs(10), || {
        let of_shell = |pid: u32| fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let child = of_shell(shell.id()).unwrap_or_default();
        let pids = [shell.id().to_string(), child.trim().to_owned()];
        let held = |pid: &String| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.contains(") D ")
        };
        pids.iter().any(held).then_some(())
    });
}

pub(crate) fn sweeps_what_is_left(bench: &Bench) {
    let disk = Disk::block(bench, "frozen", 32);
    std::mem::forget(disk.freeze());
    let dying = DyingDisk::new(bench, "held", 32);
    dying.device.set_all(Effect::Hold);
    stuck_writer(bench, disk.path());
    stuck_writer(bench, dying.disk.path());
    std::mem::forget(dying);
    std::mem::forget(disk);
    let left = sweep(bench.folder()).join("\n");
    for what in ["frozen (", "held (ext", "held-device (fuse"] {
        assert!(left.contains(what), "{what} is not in:\n{left}");
    }
    let again = sweep(bench.folder());
    assert!(again.is_empty(), "still there: {again:?}");
}

/// Set for a run that is started to be killed.
const VICTIM: &str = "DIRKEEPER_FAULT_VICTIM";
/// What it says once everything is broken that it breaks.
const READY: &str = "everything is stuck";

pub(crate) fn is_victim() -> bool {
    std::env::var_os(VICTIM).is_some()
}

/// Breaks disks under an agent and writers, and waits to be killed.
pub(crate) fn waits_for_its_end(bench: &Bench) {
    let disk = Disk::block(bench, "frozen", 32);
    let dying = DyingDisk::new(bench, "held", 32);
    let plan = Plan::new(bench).dir(disk.path()).dir(dying.disk.path());
    let _agent = plan.start();
    let _frozen = disk.freeze();
    dying.device.set_all(Effect::Hold);
    stuck_writer(bench, disk.path());
    stuck_writer(bench, dying.disk.path());
    println!("{READY}");
    pass(Duration::from_secs(60));
}

/// Ctrl-C, or the death of the keeper or the worker: nothing stays behind.
pub(crate) fn cleans_when_killed(bench: &Bench) {
    let ways = [
        (Signal::SIGINT, Whom::Keeper),
        (Signal::SIGKILL, Whom::Keeper),
        (Signal::SIGKILL, Whom::Worker),
    ];
    std::thread::scope(|scope| {
        let start = |(signal, whom)| scope.spawn(move || cleans_after(bench, signal, whom));
        for way in ways.map(start) {
            way.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

#[derive(Clone, Copy)]
enum Whom {
    Keeper,
    Worker,
}

fn cleans_after(bench: &Bench, signal: Signal, whom: Whom) {
    let mut run = Command::new(std::env::current_exe().unwrap())
        .env_remove(STAGE)
        .env_remove("FAULT_RESULTS")
        .env_remove("FAULT_PEERS")
        .env(VICTIM, "1")
        .env(MARK, bench.folder())
        .env("DIRKEEPER_BIN", bench.program())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let keeper = Pid::from_raw(i32::try_from(run.id()).unwrap());
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let ready = lines.any(|line| line.is_ok_and(|line| line.contains(READY)));
    assert!(ready, "the run ended by itself");
    let root = std::env::temp_dir().join(format!("dirkeeper-faults-{keeper}"));
    assert!(!sweep::loops_below(&root).is_empty());
    assert!(!sweep::processes_of(&root).is_empty());
    let pid = match whom {
        Whom::Keeper => keeper,
        Whom::Worker => sweep::children(keeper)[0],
    };
    kill(pid, signal).unwrap();
    let what = format!("all is gone after {signal}");
    wait_for(&what, Duration::from_secs(40), || {
        let _ = run.try_wait();
        let loops = sweep::loops_below(&root);
        let left = loops.is_empty() && sweep::processes_of(&root).is_empty();
        (left && !root.exists()).then_some(())
    });
    assert!(wait_exit(&mut run, Duration::from_secs(5)).is_some());
}
