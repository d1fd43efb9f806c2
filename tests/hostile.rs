//! The built program among enemies that need no privilege: its children killed and stopped in any
//! order, its own file replaced, its state store late. Whatever they do, healthy directories get no
//! event, and everything is back by itself.

#![allow(clippy::unwrap_used)] // a test may

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dirkeeper::clock::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until there is something.
fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::start();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(clock.elapsed() < PATIENCE, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// A running agent with two directories; ended when dropped.
struct Agent {
    process: Child,
    port: u16,
}

impl Agent {
    fn start(program: &Path, folder: &Path) -> Agent {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut toml = format!("listen = \"127.0.0.1:{port}\"\nstate_dir = \"state\"\n");
        toml = toml.replace("\"state\"", &format!("{:?}", folder.join("state")));
        toml.push_str("[probe]\ninterval = \"1s\"\n");
        for name in ["one", "two"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).unwrap();
            // However full the machine of the test is.
            toml.push_str(&format!(
                "[[dir]]\npath = {path:?}\nrole = \"ledger\"\nwarn = 0.9998\nfull = 0.9999\n"
            ));
        }
        let file = folder.join("dirkeeper.toml");
        fs::write(&file, toml).unwrap();
        let process = Command::new(program)
            .args(["run", "--config"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Agent { process, port }
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
    }

    fn json(&self, path: &str) -> Option<Value> {
        serde_json::from_str(&self.get(path)?).ok()
    }

    /// Both directories are writable and were probed with success since that time; the newest such
    /// time is returned.
    fn well_since(&self, since: &str) -> Option<String> {
        let status = self.json("/api/v1/status")?;
        let dirs = status["dirs"].as_array()?.clone();
        let good = |dir: &Value| {
            let probed = dir["probe"]["lastSuccess"].as_str().map(str::to_owned)?;
            (dir["status"] == "writable" && since < probed.as_str()).then_some(probed)
        };
        let probed: Option<Vec<String>> = dirs.iter().map(good).collect();
        probed?.into_iter().max()
    }

    fn well(&self) -> String {
        wait_for("both directories well", || self.well_since(""))
    }

    /// Well again, by a probe made after the last one that is known now.
    fn well_again(&self) {
        let since = self.well();
        wait_for("both directories well again", || self.well_since(&since));
    }

    fn events(&self) -> Vec<Value> {
        // A store that is busy for a moment has no events to tell, and says so.
        let page = wait_for("events", || {
            let page = self.json("/api/v1/events?since=0&limit=1000")?;
            page["problem"].is_null().then_some(page)
        });
        page["events"].as_array().unwrap().clone()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }

    /// Its child of this kind.
    fn child(&self, kind: &str) -> Option<Pid> {
        let pid = self.process.id();
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let children: String = tasks
            .filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok())
            .collect();
        let children = children.split_whitespace().filter_map(|id| id.parse().ok());
        { children }.find_map(|id: i32| {
            let line = fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
            let is_kind = line.split('\0').any(|word| word == kind);
            is_kind.then(|| Pid::from_raw(id))
        })
    }

    fn wait_child(&self, kind: &str) -> Pid {
        wait_for("the child", || self.child(kind))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        for kind in ["prober", "writer"] {
            if let Some(pid) = self.child(kind) {
                let _ = kill(pid, Signal::SIGCONT);
            }
        }
        let _ = kill(self.pid(), Signal::SIGCONT);
        let _ = kill(self.pid(), Signal::SIGTERM);
        let _ = self.process.wait();
    }
}

fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_dirkeeper").into()
}

/// Forty signals, in an order that a fixed seed makes; the agent itself is stopped now and then.
#[test]
fn children_killed_and_stopped_in_any_order_are_no_news_of_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&program(), folder.path());
    agent.well();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..40 {
        let kind = random.choice(["prober", "writer"]).unwrap();
        let signals = [Signal::SIGKILL, Signal::SIGSTOP, Signal::SIGCONT];
        let signal = random.choice(signals).unwrap();
        if let Some(pid) = agent.child(kind) {
            let _ = kill(pid, signal);
        }
        if random.u8(..) < 32 {
            kill(agent.pid(), Signal::SIGSTOP).unwrap();
            std::thread::park_timeout(Duration::from_millis(random.u64(0..700)));
            kill(agent.pid(), Signal::SIGCONT).unwrap();
        }
        std::thread::park_timeout(Duration::from_millis(random.u64(0..150)));
    }
    for kind in ["prober", "writer"] {
        let _ = kill(agent.wait_child(kind), Signal::SIGKILL);
    }
    agent.well_again();
    let events = agent.events();
    let bad = |event: &&Value| {
        let name = event["event"].as_str().unwrap_or_default();
        // A prober that was stopped for five seconds may be missed: nothing is known then.
        !["diskUnknown", "diskRecovered", "fillForecast"].contains(&name)
    };
    let bad: Vec<&Value> = events.iter().filter(bad).collect();
    assert!(bad.is_empty(), "{bad:?}");
}

/// What an upgrade does beside a running agent: its file is gone, another one is in its place.
#[test]
fn children_are_started_from_the_file_that_runs_and_not_from_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    // By another process: one that another thread forks meanwhile would hold our open file, and
    // nobody can start what is open for writing.
    let copied = Command::new("cp").arg(program()).arg(&copy).status();
    assert!(copied.unwrap().success(), "a copy of the program");
    let agent = Agent::start(&copy, folder.path());
    agent.well();
    fs::remove_file(&copy).unwrap();
    fs::write(&copy, "#!/bin/false\n").unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    for kind in ["prober", "writer"] {
        let old = agent.wait_child(kind);
        kill(old, Signal::SIGKILL).unwrap();
        let new = wait_for("another child", || {
            agent.child(kind).filter(|new| *new != old)
        });
        wait_for("the child has its own name", || {
            let name = fs::read_to_string(format!("/proc/{new}/comm")).ok()?;
            (name.trim() == "copy").then_some(())
        });
    }
    agent.well_again();
    assert_eq!(agent.events(), [Value::Null; 0]);
}

/// The state store opens only seconds after the start, and the directory leads elsewhere since the
/// last run: the pin, though it is heard late, is what counts, and nothing of this run replaces it.
#[test]
fn a_pin_of_a_store_that_opens_late_still_counts() {
    let folder = tempfile::tempdir().unwrap();
    let one = folder.path().join("one");
    let disks = ["right", "wrong"].map(|name| folder.path().join(name));
    for disk in &disks {
        fs::create_dir(disk).unwrap();
    }
    std::os::unix::fs::symlink(&disks[0], &one).unwrap();
    let status = |agent: &Agent| {
        let status = agent.json("/api/v1/status")?;
        Some(status["dirs"][0]["status"].as_str()?.to_owned())
    };
    let lead_to = |disk: &Path| {
        fs::remove_file(&one).unwrap();
        std::os::unix::fs::symlink(disk, &one).unwrap();
    };
    let agent = Agent::start(&program(), folder.path());
    agent.well();
    drop(agent);
    lead_to(&disks[1]);
    for late in [true, false] {
        let agent = Agent::start(&program(), folder.path());
        if late {
            let writer = agent.wait_child("writer");
            kill(writer, Signal::SIGSTOP).unwrap();
            let opened = |agent: &Agent| {
                let status = agent.json("/api/v1/status")?;
                (!status["problems"].as_array()?.is_empty()).then_some(())
            };
            wait_for("the late store is a problem", || opened(&agent));
            wait_for("a verdict without it", || status(&agent));
            kill(writer, Signal::SIGCONT).unwrap();
        }
        wait_for("replaced", || (status(&agent)? == "replaced").then_some(()));
        wait_for("the store has recovered", || {
            let problems = agent.json("/api/v1/status")?["problems"].clone();
            problems.as_array()?.is_empty().then_some(())
        });
    }
}

/// Events of a start wait for a store that is late: no number is given twice, and none is missing.
#[test]
fn numbers_go_on_above_those_of_a_store_that_opens_late() {
    let folder = tempfile::tempdir().unwrap();
    let one = folder.path().join("one");
    let mut seen = Vec::new();
    for _ in 0..3 {
        let agent = Agent::start(&program(), folder.path());
        let writer = agent.wait_child("writer");
        kill(writer, Signal::SIGSTOP).unwrap();
        // A verdict that is an event, made while the store is silent.
        fs::remove_dir(&one).unwrap();
        wait_for("vanished", || {
            let status = agent.json("/api/v1/status")?;
            (status["dirs"][0]["status"] == "vanished").then_some(())
        });
        kill(writer, Signal::SIGCONT).unwrap();
        let events = wait_for("events", || {
            let events = agent.events();
            (events.len() > seen.len()).then_some(events)
        });
        assert_eq!(events[..seen.len()], seen[..], "what was said stays");
        seen = events;
        let numbers: Vec<u64> = seen
            .iter()
            .filter_map(|event| event["seq"].as_u64())
            .collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        drop(agent);
    }
}
