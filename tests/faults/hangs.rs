//! Disks that do not answer: F12, F13, F28, F29, F31, F33.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::agent::{Agent, PATIENCE, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::dying_disk::DyingDisk;
use crate::harness::run::{pass, text, try_for, wait_exit, wait_for};
use crate::harness::sweep::{MARK, children};

const SECOND: Duration = Duration::from_secs(1);
/// As all tests configure them.
const DWELL: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(10);
/// The next probe, and more of them until the dwell time is over.
const RECOVERED: Duration = Duration::from_secs(10 + 2 + 1);
const DEADLINE: Duration = Duration::from_secs(5);
/// From SIGTERM to the end, whatever hangs.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// F12, then F33: a device holds all requests, and lets go.
pub(crate) fn device_holds_requests(bench: &Bench) {
    let dying = DyingDisk::new(bench, "held", 64);
    let dir = dying.disk.path();
    let agent = Plan::new(bench).dir(dir).start();
    dying.hold();
    let held = wait_for("a request is held", PATIENCE, || dying.device.first_held());
    let suspect = wait_for("suspect", PATIENCE, || {
        let verdict = agent.dir(dir);
        assert_ne!(verdict["status"], "hung", "hung before it was suspect");
        (verdict["suspect"] == true).then(|| bench.now())
    });
    bench.between("suspect", held, suspect, SECOND * 2, SECOND * 3);
    let event = agent.event("diskHung", dir);
    bench.noticed_between(&event, held, DEADLINE, DEADLINE + SECOND);
    assert_eq!(event.cause(), "timeout");
    let released = bench.now();
    dying.device.release();
    let event = agent.event("diskRecovered", dir);
    bench.told(&event, released, DWELL, RECOVERED);
    assert_eq!(event.cause(), "timeout", "the cause is what has ended");
    assert_eq!(agent.names(dir), ["diskHung", "diskRecovered"]);
    agent.finish(bench);
}

/// Writes a block and waits until it is on the disk: until that is released, at the latest with the
/// test.
fn writes_one_block(bench: &Bench, to: &Path) -> Child {
    Command::new("dd")
        .args([
            "if=/dev/zero",
            "bs=4k",
            "count=1",
            "conv=fsync",
            "status=none",
        ])
        .arg(format!("of={}", text(to)))
        .env(MARK, bench.folder())
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// F12: the device under a partition holds a request for another partition. Ours has none in flight
/// before the next probe; the evidence names the disk, and what of it is ours.
pub(crate) fn device_under_a_partition(bench: &Bench) {
    let (dying, other) = DyingDisk::partitioned(bench, "parted", 64);
    let dir = dying.disk.path();
    let agent = Plan::new(bench).dir(dir).start();
    let source = agent.dir(dir)["mount"]["source"].clone();
    let part = source.as_str().unwrap().trim_start_matches("/dev/");
    let whole = part.strip_suffix("p1").unwrap();
    dying.hold();
    let mut writer = writes_one_block(bench, &other);
    let held = wait_for("a request is held", PATIENCE, || dying.device.first_held());
    let named = format!("({whole}), under {part}: ");
    let mut evidence = String::new();
    let seen = try_for(PATIENCE, || {
        evidence = agent.dir(dir)["evidence"].to_string();
        evidence.contains(&named).then(|| bench.now())
    });
    let seen = seen.unwrap_or_else(|| panic!("no {named:?} in {evidence}"));
    bench.between("evidence", held, seen, SECOND * 2, SECOND * 3);
    let event = agent.event("diskHung", dir);
    assert_eq!(event.cause(), "timeout");
    dying.device.release();
    agent.event("diskRecovered", dir);
    assert!(wait_exit(&mut writer, PATIENCE).is_some(), "dd ends");
    assert_eq!(agent.names(dir), ["diskHung", "diskRecovered"]);
    agent.finish(bench);
}

/// F12: the first request that a device holds is somebody else's, right after a probe of the agent:
/// the next one would come too late.
pub(crate) fn device_holds_a_request_of_another(bench: &Bench) {
    let dying = DyingDisk::new(bench, "held", 64);
    let dir = dying.disk.path();
    let agent = Plan::new(bench).dir(dir).start();
    let last = || agent.dir(dir)["probe"]["lastSuccess"].clone();
    let first = last();
    wait_for("a second probe", PATIENCE, || {
        (last() != first).then_some(())
    });
    dying.hold();
    let mut writer = writes_one_block(bench, &dir.join("another"));
    let held = wait_for("a request is held", PATIENCE, || dying.device.first_held());
    let suspect = wait_for("suspect", PATIENCE, || {
        (agent.dir(dir)["suspect"] == true).then(|| bench.now())
    });
    bench.between("suspect", held, suspect, SECOND * 2, SECOND * 3);
    let evidence = agent.dir(dir)["evidence"].to_string();
    assert!(
        evidence.contains("in flight and none completed for"),
        "{evidence}"
    );
    let event = agent.event("diskHung", dir);
    bench.between("diskHung", held, event.time, DEADLINE, DEADLINE + SECOND);
    assert_eq!(event.cause(), "timeout");
    dying.device.release();
    agent.event("diskRecovered", dir);
    assert!(wait_exit(&mut writer, PATIENCE).is_some(), "dd ends");
    assert_eq!(agent.names(dir), ["diskHung", "diskRecovered"]);
    assert_eq!(agent.dir(dir)["suspect"], false);
    agent.finish(bench);
}

/// Reads a file again and again, past the page cache, until told to end.
fn read_on(path: &Path, stop: &AtomicBool) -> u64 {
    const LENGTH: usize = 64 << 10;
    let mut buffer = vec![0; LENGTH + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    let mut reads = 0;
    while !stop.load(Ordering::SeqCst) {
        let file = File::options()
            .read(true)
            .custom_flags(OFlag::O_DIRECT.bits())
            .open(path);
        reads += u64::from(
            file.unwrap()
                .read(&mut buffer[start..start + LENGTH])
                .unwrap()
                == LENGTH,
        );
        pass(Duration::from_millis(20));
    }
    reads
}

/// F13: frozen with a reader on the same device, then thawed. Completed reads prove nothing.
pub(crate) fn frozen_and_thawed(bench: &Bench) {
    let disk = Disk::block(bench, "frozen", 64);
    let data = disk.path().join("data");
    fs::write(&data, vec![7; 1 << 20]).unwrap();
    let agent = Plan::new(bench).dir(disk.path()).start();
    let frozen = disk.freeze();
    let from = bench.now();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_on(&data, &stop));
        let event = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            agent.event("diskHung", disk.path())
        }));
        stop.store(true, Ordering::SeqCst);
        assert!(reader.join().unwrap() > 100, "reads went on while frozen");
        let event = event.unwrap();
        bench.noticed(&event, from, INTERVAL + DEADLINE + SECOND);
        assert_eq!(event.cause(), "timeout");
    });
    let thawed = bench.now();
    drop(frozen);
    let event = agent.event("diskRecovered", disk.path());
    bench.told(&event, thawed, DWELL, RECOVERED);
    assert_eq!(agent.names(disk.path()), ["diskHung", "diskRecovered"]);
    agent.finish(bench);
}

/// F28: SIGTERM while a watched directory is frozen.
pub(crate) fn stop_beside_frozen_dir(bench: &Bench) {
    let disk = Disk::block(bench, "frozen", 64);
    let plan = Plan::new(bench)
        .set("interval", "2s")
        .set("space_interval", "200ms")
        .dir(disk.path());
    let agent = plan.start();
    let _frozen = disk.freeze();
    wait_for("an operation of the agent is held", PATIENCE, || {
        (agent.dir(disk.path())["suspect"] == true).then_some(())
    });
    agent.finish(bench);
}

/// F28: SIGTERM while the device of a watched directory holds all requests.
pub(crate) fn stop_beside_held_device(bench: &Bench) {
    let dying = DyingDisk::new(bench, "held", 64);
    let dir = dying.disk.path();
    let agent = Plan::new(bench).set("interval", "2s").dir(dir).start();
    dying.hold();
    wait_for("an operation of the agent is held", PATIENCE, || {
        (agent.dir(dir)["suspect"] == true).then_some(())
    });
    agent.finish(bench);
}

/// F28: SIGTERM while the state directory is frozen and an event waits to be stored.
pub(crate) fn stop_with_frozen_state(bench: &Bench) {
    let state = Disk::block(bench, "frozen", 64);
    let filling = Disk::tmpfs(bench, "filling", "size=64m");
    let agent = Plan::new(bench)
        .state_dir(&state.path().join("state"))
        .dir(filling.path())
        .start();
    let _frozen = state.freeze();
    filling.set_usage(0.97);
    agent.event("diskFull", filling.path());
    agent.finish(bench);
}

/// Starts `check` of a directory in a shell's `$(…)`, which returns when nobody holds the pipe any
/// more. The shell prints its exit code.
fn check_in_shell(bench: &Bench, dir: &Path, timeout: &str) -> Child {
    let script = "text=$(\"$0\" check --dir \"ledger=$1\" --timeout \"$2\"); echo \"$?\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, text(bench.program()), text(dir), timeout]);
    shell
        .env(MARK, bench.folder())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    shell.spawn().unwrap()
}

fn exit_code_shown(shell: &mut Child, limit: Duration) -> i32 {
    assert!(
        wait_exit(shell, limit).is_some(),
        "the shell still waits for `check` or for its pipe"
    );
    let mut shown = String::new();
    shell
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut shown)
        .unwrap();
    shown.trim().parse().unwrap()
}

/// F28: `check` of a frozen directory in a shell.
pub(crate) fn check_in_a_shell(bench: &Bench) {
    let disk = Disk::block(bench, "frozen", 64);
    let _frozen = disk.freeze();
    checks_end(bench, disk.path());
}

/// F28: the same of a directory whose device holds all requests.
pub(crate) fn check_of_held_device(bench: &Bench) {
    let dying = DyingDisk::new(bench, "held", 64);
    dying.hold();
    checks_end(bench, dying.disk.path());
}

/// `check` returns by its own limit, with a verdict, and by SIGTERM, with what a shell makes of a
/// signal: there is no verdict then.
fn checks_end(bench: &Bench, dir: &Path) {
    const ENDED_BY_SIGTERM: i32 = 128 + 15;
    let from = bench.now();
    let mut shell = check_in_shell(bench, dir, "3s");
    let code = exit_code_shown(&mut shell, PATIENCE);
    bench.within("check", from, bench.now(), SECOND * 3 + STOP_LIMIT);
    assert!(code == 2 || code == 3, "critical or unknown, not {code}");
    let mut shell = check_in_shell(bench, dir, "60s");
    let pid = Pid::from_raw(i32::try_from(shell.id()).unwrap());
    let check = wait_for("check runs", SECOND * 10, || {
        let check = children(pid).first().copied()?;
        (!children(check).is_empty()).then_some(check)
    });
    let from = bench.now();
    kill(check, Signal::SIGTERM).unwrap();
    let code = exit_code_shown(&mut shell, PATIENCE);
    assert_eq!(code, ENDED_BY_SIGTERM);
    bench.within("check after SIGTERM", from, bench.now(), STOP_LIMIT);
}

/// F29: an agent is started while a directory is frozen.
pub(crate) fn started_while_frozen(bench: &Bench) {
    let frozen = Disk::block(bench, "frozen", 64);
    let good = Disk::block(bench, "good", 64);
    let _frozen = frozen.freeze();
    let from = bench.now();
    let plan = Plan::new(bench).dir(frozen.path()).dir(good.path());
    let agent = plan.with_broken_dirs().start();
    agent.wait_status(good.path(), "writable");
    assert_ne!(agent.dir(frozen.path())["status"], "writable");
    let event = agent.event("diskHung", frozen.path());
    // The first round comes within a second of the start.
    bench.noticed(&event, from, SECOND + DEADLINE + SECOND);
    assert_eq!(agent.names(frozen.path()), ["diskHung"]);
    agent.assert_quiet(&[good.path()]);
    agent.finish(bench);
}

/// Wall-clock times in milliseconds at which a directory was looked at and probed with success.
#[derive(Debug, Default, Clone)]
struct Seen {
    looked: BTreeSet<i64>,
    probed: BTreeSet<i64>,
}

impl Seen {
    /// The longest time without one, the time before the first and after the last one included.
    fn longest_gap(times: &BTreeSet<i64>, span: &Range<i64>) -> i64 {
        let ends = [span.start, span.end];
        let mut within: BTreeSet<i64> = times.range(span.clone()).copied().collect();
        within.extend(ends);
        let times: Vec<i64> = within.into_iter().collect();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap_or_default()
    }
}

/// Notes the newest look and probe of each directory below the folder of this name.
fn note(agent: &Agent, name: &str, seen: &mut BTreeMap<String, Seen>) {
    let status = agent.status().unwrap();
    for dir in status["dirs"].as_array().unwrap() {
        let path = dir["path"].as_str().unwrap();
        let last = dir["probe"]["lastSuccess"].as_str();
        if let Some(last) = last.filter(|_| path.contains(name)) {
            let last = humantime::parse_rfc3339(last).unwrap();
            let last = last.duration_since(UNIX_EPOCH).unwrap().as_millis();
            let seen = seen.entry(path.to_owned()).or_default();
            seen.probed.insert(i64::try_from(last).unwrap());
        }
    }
    let looks = agent.metrics("dirkeeper_dir_last_observation_timestamp_seconds");
    for (labels, seconds) in looks.iter().filter(|(labels, _)| labels.contains(name)) {
        let found = seen
            .iter_mut()
            .find(|(path, _)| labels.contains(&format!("{path:?}")));
        #[allow(clippy::cast_possible_truncation)] // times are of this age
        found.unwrap().1.looked.insert((seconds * 1000.0) as i64);
    }
}

/// F31: 500 directories on 40 file systems, three of which hang with one directory each.
pub(crate) fn many_directories(bench: &Bench) {
    const SHARED: usize = 37;
    const DIRS: usize = 497;
    const ROUNDS: u32 = 3;
    // Each directory has its instant in the interval, and a probe counts when it ended: two are an
    // interval apart, and by as much more as the second one waited and took longer. One that could
    // not begin within a tenth of the interval would be left out for a whole one.
    const PROBE: Duration = SECOND;
    let shared: Vec<Disk> = (0..SHARED)
        .map(|number| Disk::tmpfs(bench, &format!("shared-{number}"), "size=16m"))
        .collect();
    let single = ["single-0", "single-1", "single-2"].map(|name| Disk::block(bench, name, 32));
    let many: Vec<_> = (0..DIRS)
        .map(|number| shared[number % SHARED].dir(&format!("dir-{number}")))
        .collect();
    let mut plan = Plan::new(bench);
    for dir in many
        .iter()
        .map(|dir| dir.as_path())
        .chain(single.iter().map(Disk::path))
    {
        plan = plan.dir(dir);
    }
    let agent = plan.start();
    let _frozen = single.each_ref().map(Disk::freeze);
    let from = bench.now();
    for disk in &single {
        let event = agent.event("diskHung", disk.path());
        bench.noticed(&event, from, INTERVAL + DEADLINE + SECOND);
    }
    let mut seen = BTreeMap::new();
    let start = bench.now();
    while bench.since(start) < INTERVAL * ROUNDS {
        note(&agent, "/shared-", &mut seen);
        pass(SECOND / 4);
    }
    let span = start..bench.now();
    assert_eq!(seen.len(), DIRS);
    let longest = |times: fn(&Seen) -> &BTreeSet<i64>| {
        let gaps = seen
            .values()
            .map(|seen| Seen::longest_gap(times(seen), &span));
        gaps.max().unwrap_or_default()
    };
    bench.within(
        "longest without a look",
        0,
        longest(|seen| &seen.looked),
        INTERVAL,
    );
    let longest = longest(|seen| &seen.probed);
    bench.within("longest without a probe", 0, longest, INTERVAL + PROBE);
    let noisy = agent.events().into_iter().filter_map(|event| event.dir);
    let noisy: Vec<_> = noisy.filter(|dir| text(dir).contains("/shared-")).collect();
    assert!(noisy.is_empty(), "healthy beside the hung ones: {noisy:?}");
    agent.finish(bench);
}
