//! Faults of the agent's own parts and surroundings: F23 to F26, F32, F34, F35, and one state directory for
//! two agents.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::crashes::swing;
use crate::harness::agent::{PATIENCE, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::dying_disk::DyingDisk;
use crate::harness::memory_fs::Effect;
use crate::harness::run::{install, pass, text, try_command, try_for, wait_for};
use crate::harness::sweep::{MARK, parent};

const SECOND: Duration = Duration::from_secs(1);

/// F23: agent, prober and writer are stopped for 20 s, as a suspended machine does.
pub(crate) fn paused(bench: &Bench) {
    let disk = Disk::block(bench, "watched", 64);
    let agent = Plan::new(bench)
        .set("interval", "2s")
        .dir(disk.path())
        .start();
    let children = ["prober", "writer"].map(|kind| agent.child(kind).unwrap());
    let all = [agent.pid(), children[0], children[1]];
    for pid in all {
        kill(pid, Signal::SIGSTOP).unwrap();
    }
    pass(Duration::from_secs(20));
    for pid in all {
        kill(pid, Signal::SIGCONT).unwrap();
    }
    pass(Duration::from_secs(8));
    assert_eq!(agent.names(disk.path()), [""; 0]);
    let verdict = agent.dir(disk.path());
    bench.says("no event", &verdict, false);
    assert_eq!(verdict["status"], "writable");
    agent.finish(bench);
}

/// The library that lies about the time.
fn faketime_library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut found = folders.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    found
        .find(|path| path.exists())
        .expect("Debian's package libfaketime is installed")
}

/// F24: the wall clock is stepped by an hour, both ways, for this agent alone.
pub(crate) fn wall_clock_stepped(bench: &Bench) {
    let disk = Disk::block(bench, "watched", 64);
    let offset = bench.folder().join("offset");
    let step_to = |seconds: &str| {
        let next = bench.folder().join("offset.next");
        fs::write(&next, seconds).unwrap();
        fs::rename(&next, &offset).unwrap();
    };
    step_to("+0");
    let agent = Plan::new(bench)
        .env("LD_PRELOAD", text(&faketime_library()))
        .env("FAKETIME_TIMESTAMP_FILE", text(&offset))
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DISABLE_SHM", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
        .env("NO_FAKE_STAT", "1")
        .set("interval", "2s")
        .dir(disk.path())
        .start();
    for (text, expected) in [("+3600", 3600), ("-3600", -3600), ("+0", 0)] {
        step_to(text);
        let skew = || {
            let time = agent.status()?["time"]
                .as_str()
                .map(humantime::parse_rfc3339)?
                .ok()?;
            let time = time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
            let skew = i64::try_from(time).ok()? - bench.now() / 1000;
            ((skew - expected).abs() < 60).then_some(())
        };
        wait_for(
            "the agent sees the stepped clock",
            Duration::from_secs(10),
            skew,
        );
        pass(Duration::from_secs(6));
        assert_eq!(agent.names(disk.path()), [""; 0]);
        let verdict = agent.dir(disk.path());
        bench.says("no event", &verdict, false);
        assert_eq!(verdict["status"], "writable");
    }
    agent.finish(bench);
}

/// F25: the prober is killed ten times; it is back when another one has looked at the directory.
pub(crate) fn prober_killed(bench: &Bench) {
    let disk = Disk::block(bench, "watched", 64);
    let agent = Plan::new(bench).dir(disk.path()).start();
    let count = || agent.metric("dirkeeper_child_restarts_total", &["child=\"prober\""]);
    let before = count().expect("every series exists from the first scrape");
    for number in 1..=10 {
        let prober = agent.child("prober").unwrap();
        kill(prober, Signal::SIGKILL).unwrap();
        let killed = bench.now();
        let answered = wait_for("an answer of another prober", PATIENCE, || {
            let at = agent.last_observation(disk.path())?;
            let other = agent.child("prober").is_some_and(|next| next != prober);
            (other && killed < at).then_some(at)
        });
        bench.within(&format!("back {number}"), killed, answered, SECOND);
    }
    let last = agent.dir(disk.path())["probe"]["lastSuccess"].clone();
    wait_for("it probes again", PATIENCE, || {
        (agent.dir(disk.path())["probe"]["lastSuccess"] != last).then_some(())
    });
    assert_eq!(count().unwrap() - before, 10.0);
    assert_eq!(agent.names(disk.path()), [""; 0]);
    agent.finish(bench);
}

/// F26: the prober alone is stopped. Nothing is known then, and nothing has failed.
pub(crate) fn prober_stopped(bench: &Bench) {
    let disk = Disk::block(bench, "watched", 64);
    let mut agent = Plan::new(bench).dir(disk.path()).start();
    let prober = agent.child("prober").unwrap();
    kill(prober, Signal::SIGSTOP).unwrap();
    let stopped = bench.now();
    let event = agent.event("diskUnknown", disk.path());
    // Its last sign of life may be a second old when it is stopped.
    bench.told(&event, stopped, SECOND * 4, SECOND * 6);
    assert_eq!(event.cause(), "prober");
    agent.wait_status(disk.path(), "writable");
    bench.within("back", event.time, bench.now(), SECOND);
    assert!(agent.child("prober").is_some_and(|next| next != prober));
    let events = agent.events();
    let failed = events
        .iter()
        .find(|event| event.name == "diskFailed" || event.name == "diskHung");
    assert!(
        failed.is_none(),
        "a stopped prober is no fault of a disk: {failed:?}"
    );
    agent.finish_after_events(bench);
}

/// What a process runs is in memory and locked there: its program and its libraries, as the kernel
/// lists them.
fn assert_locked(pid: Pid, name: &str) {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let field = |part: &str, name: &str| {
        let line = part.lines().find(|line| line.starts_with(name));
        line.map_or_else(String::new, |line| line[name.len()..].trim().to_owned())
    };
    let mut parts = 0;
    // Each part begins with the line of its mapping and ends with its flags.
    for part in maps
        .split_inclusive("VmFlags:")
        .collect::<Vec<_>>()
        .windows(2)
    {
        let flags = part[1].lines().next().unwrap_or_default();
        let part = part[0];
        let head = part
            .lines()
            .find(|line| line.contains(" r-xp ") && line.contains('/'));
        if head.is_none() {
            continue;
        }
        parts += 1;
        assert!(
            flags.split(' ').any(|flag| flag == "lo")
                && field(part, "Rss:") == field(part, "Size:"),
            "the {name} does not lock {}",
            head.unwrap_or_default()
        );
    }
    assert!(parts > 0, "the {name} runs no file:\n{maps}");
}

/// F34: the disk with the agent's program and its hook hangs, and nothing of it is in memory but what
/// the agent locked.
pub(crate) fn own_disk_hangs(bench: &Bench) {
    let own = DyingDisk::new(bench, "own", 256);
    let filling = Disk::tmpfs(bench, "filling", "size=64m");
    let hook = own.disk.path().join("hook");
    let script = bench.folder().join("script");
    fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
    install(&script, &hook);
    let hook = format!(
        "\n[[hook]]\nname = \"stuck\"\ncommand = [{:?}]\ntimeout = \"2s\"\n",
        text(&hook)
    );
    let agent = Plan::new(bench)
        .copied_to(own.disk.path())
        .top("lock_memory = true\n")
        .toml(&hook)
        .dir(filling.path())
        .start();
    assert_locked(agent.pid(), "agent");
    for kind in ["prober", "writer"] {
        assert_locked(agent.child(kind).unwrap(), kind);
    }
    own.hold();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    let mut seq = 0;
    for (usage, name) in [(0.92, "diskAlmostFull"), (0.97, "diskFull")] {
        let filled = bench.now();
        filling.set_usage(usage);
        let event = agent.event_after(seq, name, filling.path());
        bench.told(&event, filled, Duration::ZERO, SECOND);
        let asked = bench.now();
        assert!(
            agent
                .get("/metrics")
                .is_some_and(|text| text.contains("dirkeeper_dir_status"))
        );
        bench.within("scrape", asked, bench.now(), SECOND / 2);
        seq = event.seq;
    }
    let waiting = || {
        let status = agent.status()?;
        let listeners = status["listeners"].as_array()?;
        let stuck = listeners
            .iter()
            .find(|listener| listener["name"] == "stuck")?;
        (stuck["pending"].as_u64()? > 0 && stuck["delivered"] == 0).then_some(())
    };
    wait_for("the hook is shown as waiting", PATIENCE, waiting);
    wait_for("it is said that the hook cannot start", PATIENCE, || {
        let problems = agent.problems()?;
        let said = |text: &String| text.contains("stuck") && text.contains("no start within");
        problems.iter().any(said).then_some(())
    });
    agent.finish(bench);
}

/// Names in a directory but what file systems put there.
fn names_in(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    names.filter(|path| !path.ends_with("lost+found")).collect()
}

/// F32: what a dead agent's probe left is removed by the next one; a directory of that name
/// disturbs nobody.
pub(crate) fn left_over_files(bench: &Bench) {
    let dying = DyingDisk::new(bench, "left-over", 64);
    let dir = dying.disk.path();
    let mut agent = Plan::new(bench).set("interval", "2s").dir(dir).start();
    dying.device.set_all(Effect::Hold);
    wait_for("a probe hangs", PATIENCE, || {
        (agent.dir(dir)["suspect"] == true).then_some(())
    });
    let prober = agent.child("prober").unwrap();
    agent.crash();
    kill(prober, Signal::SIGKILL).unwrap();
    dying.device.release();
    let left = wait_for("the killed prober leaves its file", PATIENCE, || {
        names_in(dir).pop()
    });
    let again = |name: &str| {
        Plan::new(bench)
            .named(name)
            .set("interval", "2s")
            .dir(dir)
            .start()
    };
    let agent = again("second");
    wait_for("the file is removed", PATIENCE, || {
        (!left.exists()).then_some(())
    });
    agent.finish(bench);
    fs::create_dir(&left).unwrap();
    let agent = again("third");
    pass(Duration::from_secs(5));
    assert_eq!(agent.dir(dir)["status"], "writable");
    assert_eq!(agent.names(dir), [""; 0]);
    agent.finish(bench);
}

/// F32: a killed prober makes its file when the disk thaws; the prober that took its place removes that
/// in a later round of the same agent.
pub(crate) fn left_at_thaw(bench: &Bench) {
    let disk = Disk::block(bench, "frozen", 64);
    let dir = disk.path();
    let agent = Plan::new(bench).set("interval", "2s").dir(dir).start();
    let frozen = disk.freeze();
    wait_for("a probe hangs", PATIENCE, || {
        (agent.dir(dir)["suspect"] == true).then_some(())
    });
    let killed = agent.child("prober").unwrap();
    kill(killed, Signal::SIGKILL).unwrap();
    // Nobody takes its place before the file was seen.
    kill(agent.pid(), Signal::SIGSTOP).unwrap();
    drop(frozen);
    wait_for("the killed prober ends", PATIENCE, || {
        parent(killed)
            .is_none_or(|(_, zombie)| zombie)
            .then_some(())
    });
    let left = names_in(dir);
    assert_eq!(left.len(), 1, "the killed prober made its file: {left:?}");
    kill(agent.pid(), Signal::SIGCONT).unwrap();
    wait_for("the file is removed", PATIENCE, || {
        (!left[0].exists()).then_some(())
    });
    agent.wait_status(dir, "writable");
    agent.finish(bench);
}

/// F32: two agents and several runs of `check` on one directory disturb neither each other nor it.
pub(crate) fn two_agents_and_checks(bench: &Bench) {
    let disk = Disk::tmpfs(bench, "shared", "size=64m");
    let agents = ["first", "second"].map(|name| {
        Plan::new(bench)
            .named(name)
            .set("interval", "1s")
            .dir(disk.path())
            .start()
    });
    for _ in 0..10 {
        let mut check = Command::new(bench.program());
        check
            .arg("check")
            .arg("--dir")
            .arg(format!("ledger={}", text(disk.path())));
        check.env(MARK, bench.folder());
        let output = try_command(check, Duration::from_secs(20));
        assert!(output.is_ok(), "check of a good directory: {output:?}");
    }
    for agent in agents {
        assert_eq!(agent.names(disk.path()), [""; 0]);
        assert_eq!(agent.dir(disk.path())["status"], "writable");
        agent.finish(bench);
    }
    let left = names_in(disk.path());
    assert!(left.is_empty(), "left over: {left:?}");
}

/// A pipe that is full to the last byte, and its reading end.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = nix::unistd::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut file = File::from(writer);
    for piece in [4096, 1] {
        while file.write(&vec![b'x'; piece]).is_ok() {}
    }
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, file.into())
}

/// F35: nobody reads standard error, which is full.
pub(crate) fn standard_error_full(bench: &Bench) {
    let (_reader, writer) = full_pipe();
    let disk = Disk::tmpfs(bench, "filling", "size=64m");
    // Enough lines to fill the queue before the pipe within a minute.
    let noisy = [0, 1, 2, 3, 4, 5, 6, 7];
    let noisy = noisy.map(|number| Disk::tmpfs(bench, &format!("noisy-{number}"), "size=16m"));
    let plan = Plan::new(bench)
        .stderr(Stdio::from(writer))
        .set("dwell", "0s")
        .set("space_interval", "50ms")
        .dir(disk.path());
    let agent = noisy
        .iter()
        .fold(plan, |plan, disk| plan.dir(disk.path()))
        .start();
    let dropped = || {
        agent
            .metric("dirkeeper_log_lines_dropped_total", &[])
            .unwrap_or_default()
    };
    assert_eq!(dropped(), 0.0);
    let stop = AtomicBool::new(false);
    let counted = std::thread::scope(|scope| {
        scope.spawn(|| swing(&noisy, &stop));
        let counted = try_for(Duration::from_secs(90), || (dropped() > 0.0).then_some(()));
        stop.store(true, Ordering::SeqCst);
        counted
    });
    assert!(counted.is_some(), "dropped lines are not counted");
    let filled = bench.now();
    disk.set_usage(0.97);
    let event = agent.event("diskFull", disk.path());
    bench.told(&event, filled, Duration::ZERO, SECOND);
    agent.finish(bench);
}

/// A state directory has one owner; the error names it.
pub(crate) fn state_locked(bench: &Bench) {
    let state = bench.dir("one-state");
    let agent = Plan::new(bench).state_dir(&state).start();
    let mut second = Plan::new(bench).named("second").state_dir(&state).spawn();
    let status = second.wait_end();
    assert!(!status.success(), "the second agent ended with {status}");
    let log = fs::read_to_string(bench.folder().join("second.log")).unwrap();
    let pid = agent.pid().to_string();
    assert!(
        log.contains(&pid),
        "the owner, process {pid}, is not named in:\n{log}"
    );
    agent.finish(bench);
}
