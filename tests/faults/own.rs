//! The harness under test itself: whatever a test leaves behind, stuck in the kernel or not, is swept
//! away.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::dying_disk::DyingDisk;
use crate::harness::memory_fs::Effect;
use crate::harness::run::{text, wait_for};
use crate::harness::sweep::{MARK, sweep};

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
