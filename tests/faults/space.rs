//! Space faults: F01 to F06, F30, F37.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dirkeeper::clock::Clock;
use nix::sys::statvfs::statvfs;

use crate::harness::agent::{Agent, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::{Disk, Filler, make_image};
use crate::harness::run::{install, pass, try_command, wait_for};
use crate::harness::sweep::MARK;

const SECOND: Duration = Duration::from_secs(1);
/// As all tests configure it.
const DWELL: Duration = Duration::from_secs(2);
/// Adaptive or not, by then every directory was looked at several times.
const SEVERAL_LOOKS: Duration = Duration::from_secs(4);

/// Name of the hidden mode in which this program fills a file system as another user.
pub(crate) const FILL: &str = "__fill";

/// Fills at so many bytes a second until the usage is over `ratio`; when that was.
fn fill_over(bench: &Bench, disk: &Disk, bytes_per_second: i64, ratio: f64) -> i64 {
    const STEP: Duration = Duration::from_millis(10);
    let mut filler = Filler::new(disk.path());
    let clock = Clock::start();
    for step in 1.. {
        filler.grow(bytes_per_second / 100).unwrap();
        if disk.usage() > ratio {
            return bench.now();
        }
        pass((STEP * step).saturating_sub(clock.elapsed()));
    }
    unreachable!("a full file system refuses")
}

/// The directory had these events, and perhaps an earlier one that a slow look may have missed.
fn assert_names(agent: &Agent, dir: &Path, perhaps: &str, names: &[&str]) {
    let mut found = agent.names(dir);
    if found.first().is_some_and(|first| first == perhaps) {
        found.remove(0);
    }
    assert_eq!(found, names);
}

/// F01: a tmpfs is filled at 100 MB/s over warn, then over full.
pub(crate) fn filled(bench: &Bench) {
    let disk = Disk::tmpfs(bench, "filling", "size=512m");
    disk.set_usage(0.85);
    let agent = Plan::new(bench).dir(disk.path()).start();
    for (name, ratio) in [("diskAlmostFull", 0.90), ("diskFull", 0.95)] {
        let over = fill_over(bench, &disk, 100_000_000, ratio);
        let event = agent.event(name, disk.path());
        bench.noticed(&event, over, SECOND);
        assert_eq!(event.cause(), "bytes");
    }
    assert_eq!(agent.names(disk.path()), ["diskAlmostFull", "diskFull"]);
    agent.finish(bench);
}

/// F02: a disk is filled at 1 GB/s by a user without privilege, who must not be refused first.
pub(crate) fn filled_fast(bench: &Bench) {
    // From full to refused is a twentieth of the size, and must be three-fold where the limit is.
    let mebibytes = if bench.is_strict() { 4096 } else { 3 * 4096 };
    let image = bench.folder().join("filling.image");
    make_image(&image, bench.kind(), mebibytes, &[]);
    // The kernel writes nothing of its own meanwhile.
    let options = match bench.kind() {
        "ext4" => "loop,noinit_itable",
        _ => "loop",
    };
    let disk = Disk::mount_image(bench, "filling", &image, options);
    disk.set_usage(0.50);
    fs::set_permissions(disk.path(), Permissions::from_mode(0o777)).unwrap();
    let agent = Plan::new(bench).dir(disk.path()).start();
    let program = bench.folder().join("fill");
    install(&std::env::current_exe().unwrap(), &program);
    let mut writer = Command::new(&program);
    writer
        .arg(FILL)
        .arg(disk.path())
        .arg("0.95")
        .uid(65534)
        .gid(65534);
    writer.env(MARK, bench.folder());
    let output = try_command(writer, Duration::from_secs(60)).unwrap();
    let times: Vec<i64> = output
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let [over, refused] = times[..] else {
        panic!("not two times: {output}")
    };
    let event = agent.event("diskFull", disk.path());
    if bench.kind() == "btrfs" {
        // Its statvfs knows nothing of what is allocated until the transaction is committed, which
        // it is when no space is left: nobody can be warned before.
        bench.noticed(&event, refused, SECOND);
    } else {
        bench.noticed(&event, over, Duration::from_millis(200));
        let late = event.time - refused;
        assert!(late < 0, "diskFull {late} ms after ENOSPC");
    }
    assert_names(&agent, disk.path(), "diskAlmostFull", &["diskFull"]);
    agent.finish(bench);
}

/// The writer of F02. Prints when usage went over the ratio and when space was refused.
pub(crate) fn fill_as_another_user(mut arguments: impl Iterator<Item = String>) {
    const STEP_BYTES: i64 = 10_000_000;
    const STEP: Duration = Duration::from_millis(10);
    let folder = PathBuf::from(arguments.next().unwrap()).join("by-another-user");
    fs::create_dir(&folder).unwrap();
    let ratio: f64 = arguments.next().unwrap().parse().unwrap();
    let mut filler = Filler::new(&folder);
    let clock = Clock::start();
    let mut over = None;
    let mut step = 0;
    while filler.grow(STEP_BYTES).is_ok() {
        if over.is_none() && usage(&folder) > ratio {
            over = Some(clock.now().wall.0);
        }
        step += 1;
        pass((STEP * step).saturating_sub(clock.elapsed()));
    }
    println!("{} {}", over.unwrap(), clock.now().wall.0);
}

#[allow(clippy::cast_precision_loss)] // far below 2^52 blocks
fn usage(folder: &Path) -> f64 {
    let now = statvfs(folder).unwrap();
    1.0 - now.blocks_available() as f64 / now.blocks() as f64
}

/// F03: inodes are used up while bytes are free.
pub(crate) fn inodes_used_up(bench: &Bench) {
    let image = bench.folder().join("many.image");
    let few: &[&str] = match bench.kind() {
        "ext4" => &["-N", "2000"],
        _ => &["-i", "maxpct=1"],
    };
    make_image(&image, bench.kind(), 64, few);
    let disk = Disk::mount_image(bench, "many", &image, "loop");
    let agent = Plan::new(bench).dir(disk.path()).start();
    let folder = disk.dir("files");
    let mut over = None;
    for number in 0.. {
        File::create(folder.join(number.to_string())).unwrap();
        let now = statvfs(disk.path()).unwrap();
        if over.is_none() && now.files_free() < now.files() * 5 / 100 {
            over = Some(bench.now());
        }
        if now.files_free() < now.files() * 4 / 100 {
            break;
        }
    }
    let event = agent.event("diskFull", disk.path());
    bench.noticed(&event, over.unwrap(), SECOND);
    assert_eq!(event.cause(), "inodes");
    assert_names(&agent, disk.path(), "diskAlmostFull", &["diskFull"]);
    agent.finish(bench);
}

/// F04: freed to between low watermark and full, then below the low watermark; once below warn and
/// once above it.
pub(crate) fn freed_in_steps(bench: &Bench) {
    let disks = ["to-ok", "to-warn"].map(|name| Disk::tmpfs(bench, name, "size=64m"));
    let [ok, warn] = disks.each_ref().map(Disk::path);
    let agent = Plan::new(bench)
        .dir(ok)
        .dir_with(warn, "warn = 0.80")
        .start();
    disks.iter().for_each(|disk| disk.set_usage(0.97));
    let full = [ok, warn].map(|dir| agent.event("diskFull", dir).seq);
    disks.iter().for_each(|disk| disk.set_usage(0.92));
    pass(DWELL + SEVERAL_LOOKS);
    for (dir, full) in [ok, warn].into_iter().zip(full) {
        assert_eq!(agent.dir(dir)["status"], "full");
        let later = agent
            .events()
            .into_iter()
            .find(|event| event.seq > full && event.dir.as_deref() == Some(dir));
        assert!(later.is_none(), "above the low watermark: {later:?}");
    }
    let freed = bench.now();
    disks[0].set_usage(0.50);
    disks[1].set_usage(0.85);
    for (dir, name) in [(ok, "diskWritable"), (warn, "diskJustWritable")] {
        let event = agent.event(name, dir);
        bench.told(&event, freed, DWELL, DWELL + SECOND);
        assert_names(&agent, dir, "diskAlmostFull", &["diskFull", name]);
    }
    agent.finish(bench);
}

/// Swings the usage around a threshold for a minute.
fn swing(disk: &Disk, around: f64) {
    let clock = Clock::start();
    while clock.elapsed() < Duration::from_secs(60) {
        for ratio in [around - 0.01, around + 0.01] {
            disk.set_usage(ratio);
            // Neither a divisor nor a multiple of the interval of looks, so that both ends are seen.
            pass(Duration::from_millis(700));
        }
    }
}

/// F05: usage swings around full.
pub(crate) fn swing_around_full(bench: &Bench) {
    let disk = Disk::tmpfs(bench, "swinging", "size=64m");
    let agent = Plan::new(bench).dir(disk.path()).start();
    disk.set_usage(0.96);
    agent.event("diskFull", disk.path());
    swing(&disk, 0.95);
    let verdict = agent.dir(disk.path());
    bench.says("one diskFull in a minute", &verdict, true);
    assert_eq!(verdict["status"], "full");
    assert_names(&agent, disk.path(), "diskAlmostFull", &["diskFull"]);
    agent.finish(bench);
}

/// F37: usage swings around warn.
pub(crate) fn swing_around_warn(bench: &Bench) {
    let disk = Disk::tmpfs(bench, "swinging", "size=64m");
    let agent = Plan::new(bench).dir(disk.path()).start();
    disk.set_usage(0.91);
    agent.event("diskAlmostFull", disk.path());
    swing(&disk, 0.90);
    bench.says(
        "one diskAlmostFull in a minute",
        &agent.dir(disk.path()),
        true,
    );
    assert_eq!(agent.names(disk.path()), ["diskAlmostFull"]);
    agent.finish(bench);
}

/// F06: over warn and freed below it without ever having been full.
pub(crate) fn freed_below_warn(bench: &Bench) {
    let disk = Disk::tmpfs(bench, "freed", "size=64m");
    let agent = Plan::new(bench).dir(disk.path()).start();
    disk.set_usage(0.92);
    agent.event("diskAlmostFull", disk.path());
    let freed = bench.now();
    disk.set_usage(0.50);
    let event = agent.event("diskBelowWarn", disk.path());
    bench.noticed(&event, freed, SECOND);
    assert_eq!(
        agent.names(disk.path()),
        ["diskAlmostFull", "diskBelowWarn"]
    );
    assert_eq!(agent.dir(disk.path())["status"], "writable");
    agent.finish(bench);
}

/// F30: two directories and a bind mount of one disk.
pub(crate) fn three_dirs_of_one_disk(bench: &Bench) {
    let disk = Disk::block(bench, "one", 64);
    let [first, second, third] = ["first", "second", "third"].map(|name| disk.dir(name));
    let bound = Disk::bind(bench, "bound", &third);
    let dirs = [first.as_path(), second.as_path(), bound.path()];
    let agent = dirs
        .iter()
        .fold(Plan::new(bench), |plan, dir| plan.dir(dir))
        .start();
    let size = agent.dir(&first)["space"]["sizeBytes"].as_u64().unwrap();
    wait_for("the bytes of the disk, counted once", SEVERAL_LOOKS, || {
        let status = agent.status()?;
        (status["totals"]["ledger"]["sizeBytes"].as_u64()? == size).then_some(())
    });
    let filled = bench.now();
    disk.set_usage(0.97);
    let events = dirs.map(|dir| agent.event("diskFull", dir));
    for event in &events {
        bench.noticed(event, filled, SECOND);
    }
    let times = events.map(|event| event.time);
    let spread = times.iter().max().unwrap() - times.iter().min().unwrap();
    bench.within("spread", 0, spread, SECOND);
    for dir in dirs {
        assert_names(&agent, dir, "diskAlmostFull", &["diskFull"]);
    }
    agent.finish(bench);
}
