//! What the running agent costs, against the design's budgets: memory (PSS of all its processes),
//! CPU when nothing happens, cost and latency of a scrape, time to the first verdict, with 12 and
//! with 500 directories. Starts the built program as users run it. Prints one JSON line a figure;
//! `scripts/bench` writes them to docs/benchmarks.md.

#![allow(clippy::print_stdout)]

mod common;

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Agent, pause, port, program, wait_for};
use dirkeeper::clock::Clock;

/// Time in which nothing happens but the watch itself, from which CPU is taken.
const IDLE: Duration = Duration::from_secs(60);

/// Scrapes from which percentiles are taken.
const SCRAPES: usize = 300;

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    for dirs in [12, 500] {
        run(dirs, if quick { Duration::from_secs(5) } else { IDLE });
    }
    for semantics in ["dirkeeper", "bookkeeper"] {
        simulate(semantics);
    }
    let size = fs::metadata(program()).map_or(0, |facts| facts.len());
    say(0, "binary", size as f64 / 1e6, "MB");
}

fn run(dirs: usize, idle: Duration) {
    let folder = std::env::temp_dir().join(format!("dirkeeper-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let port = port();
    let clock = Clock::start();
    let agent = start(&folder, dirs, port);
    let ready = wait_for(&clock, port, "/readyz");
    say(
        dirs,
        "first verdict of every directory",
        ready.as_secs_f64() * 1e3,
        "ms",
    );
    // The first rounds are over and pages that were only needed to start are cold.
    pause(Duration::from_secs(15));
    say(
        dirs,
        "memory, PSS of all processes",
        agent.pss() / 1e6,
        "MB",
    );
    let before = agent.cpu();
    pause(idle);
    let used = agent.cpu() - before;
    let share = used / idle.as_secs_f64() * 100.0;
    say(dirs, "CPU when idle", share, "% of one core");
    scrapes(&clock, &agent, dirs, port);
    say(dirs, "memory after scrapes, PSS", agent.pss() / 1e6, "MB");
    drop(agent);
    fs::remove_dir_all(&folder).expect("the folder is ours");
}

/// A million steps through `simulate`: speed, and the most memory it ever had.
fn simulate(semantics: &str) {
    const STEPS: u32 = 1_000_000;
    let header = r#"{"dirs": [{"path": "/d1", "role": "ledger"}, {"path": "/d2", "role": "ledger"}], "settings": {"readOnlyModeOnAnyDiskFullEnabled": true}}"#;
    let mut process = Command::new(program())
        .args(["simulate", "--semantics", semantics, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = BufWriter::new(process.stdin.take().expect("piped"));
    let output = BufReader::new(process.stdout.take().expect("piped"));
    let reader = std::thread::spawn(move || output.lines().count());
    let clock = Clock::start();
    writeln!(input, "{header}").expect("it reads");
    for step in 0..STEPS {
        let (one, other) = (step % 1000, step * 7 % 1000);
        writeln!(
            input,
            r#"{{"observe": {{"/d1": {{"total": 1000, "usable": {one}}}, "/d2": {{"total": 1000, "usable": {other}}}}}}}"#
        )
        .expect("it reads");
    }
    input.flush().expect("it reads");
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).expect("it runs");
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap_or_default();
    let peak: f64 = peak
        .split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0.0);
    drop(input);
    let lines = reader.join().expect("it counts");
    assert_eq!(lines, STEPS as usize, "a line for each step");
    assert!(process.wait().expect("ours").success(), "simulate failed");
    let rate = f64::from(STEPS) / clock.elapsed().as_secs_f64();
    say(
        2,
        &format!("simulate {semantics}, peak memory after a million steps"),
        peak / 1e3,
        "MB",
    );
    say(
        2,
        &format!("simulate {semantics}, thousand steps a second"),
        rate / 1e3,
        "k/s",
    );
}

/// The agent's own CPU for a scrape, and how long a client waits for it.
fn scrapes(clock: &Clock, agent: &Agent, dirs: usize, port: u16) {
    let idle_before = agent.cpu();
    let idle_start = clock.elapsed();
    pause(Duration::from_secs(5));
    let idle_rate = (agent.cpu() - idle_before) / (clock.elapsed() - idle_start).as_secs_f64();
    // As Prometheus does: one connection for all scrapes.
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the agent serves");
    let mut connection = BufReader::new(stream);
    let (before, start) = (agent.cpu(), clock.elapsed());
    let mut times: Vec<Duration> = (0..SCRAPES)
        .map(|_| {
            let begin = clock.elapsed();
            let body = scrape(&mut connection);
            assert!(
                body.contains("dirkeeper_build_info"),
                "this is no exposition"
            );
            clock.elapsed() - begin
        })
        .collect();
    let took = (clock.elapsed() - start).as_secs_f64();
    let own = (agent.cpu() - before - idle_rate * took).max(0.0);
    times.sort();
    say(dirs, "CPU of a scrape", own / SCRAPES as f64 * 1e3, "ms");
    say(
        dirs,
        "scrape, median",
        times[SCRAPES / 2].as_secs_f64() * 1e3,
        "ms",
    );
    say(
        dirs,
        "scrape, p99",
        times[SCRAPES * 99 / 100].as_secs_f64() * 1e3,
        "ms",
    );
}

/// One scrape over a connection that stays open.
fn scrape(connection: &mut BufReader<TcpStream>) -> String {
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    connection
        .get_mut()
        .write_all(request.as_bytes())
        .expect("the agent reads");
    let mut length = 0;
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).expect("the agent answers");
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).expect("the agent answers");
    String::from_utf8(body).expect("the exposition is UTF-8")
}

/// An agent that watches so many folders.
fn start(folder: &Path, dirs: usize, port: u16) -> Agent {
    let mut arguments: Vec<OsString> = ["--listen", &format!("127.0.0.1:{port}"), "--state-dir"]
        .map(OsString::from)
        .into();
    arguments.push(folder.join("state").into());
    for number in 0..dirs {
        let dir = folder.join(format!("dir{number}"));
        fs::create_dir_all(&dir).expect("a folder of ours");
        let mut option = OsString::from("ledger=");
        option.push(dir);
        arguments.extend(["--dir".into(), option]);
    }
    Agent::start(&arguments)
}

impl Agent {
    /// The agent and its children.
    fn pids(&self) -> Vec<u32> {
        let own = self.process.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        let mut pids = vec![own];
        let threads = fs::read_dir(format!("/proc/{own}/task")).expect("the agent runs");
        for thread in threads.flatten() {
            let file = thread.path().join("children");
            let text = fs::read_to_string(file).unwrap_or_default();
            pids.extend(
                text.split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        assert!(
            children.is_ok(),
            "the kernel lists children (CONFIG_PROC_CHILDREN)"
        );
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Bytes of memory, shared pages counted by their part.
    fn pss(&self) -> f64 {
        let of = |pid: u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let line = text
                .lines()
                .find(|line| line.starts_with("Pss:"))
                .unwrap_or_default();
            let kib = line
                .split_whitespace()
                .nth(1)
                .and_then(|kib| kib.parse::<f64>().ok());
            kib.unwrap_or(0.0) * 1024.0
        };
        self.pids().into_iter().map(of).sum()
    }

    /// Seconds of CPU used so far.
    fn cpu(&self) -> f64 {
        let of = |pid: u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
            let of_main = first_number(&text);
            let threads = fs::read_dir(format!("/proc/{pid}/task"));
            let nanos: f64 = threads.map_or(of_main, |threads| {
                let of_thread = |thread: fs::DirEntry| {
                    let text = fs::read_to_string(thread.path().join("schedstat"));
                    first_number(&text.unwrap_or_default())
                };
                threads.flatten().map(of_thread).sum()
            });
            nanos / 1e9
        };
        self.pids().into_iter().map(of).sum()
    }
}

fn first_number(text: &str) -> f64 {
    text.split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0.0)
}

fn say(dirs: usize, what: &str, value: f64, unit: &str) {
    println!(
        "{{\"bench\":\"agent\",\"dirs\":{dirs},\"what\":\"{what}\",\"value\":{value:.3},\"unit\":\"{unit}\"}}"
    );
}
