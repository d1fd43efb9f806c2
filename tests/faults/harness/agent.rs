//! An agent under test, as a user starts it: a configuration file, `dirkeeper run`, questions over
//! HTTP, an end by SIGTERM. Its events are compared by time, directory and name.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use dirkeeper::clock::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::bench::Bench;
use super::http;
use super::run::{install, pass, text, try_for, wait_exit, wait_for};
use super::sweep::{self, MARK};

/// From the start to the first verdict of each directory, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The longest that any fault may take to be seen: three times an interval, a deadline and a second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(50);

/// From SIGTERM to the end of the process (design 5).
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// How long the event log may be busy before that is a fault of its own: each answer has half a second,
/// and other tests fill the machine's disk meanwhile.
const STORE_LIMIT: Duration = Duration::from_secs(40);

/// Events in one answer: the store of a busy machine has to give them within half a second.
const PAGE: usize = 100;

/// How to start an agent.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    bench: &'a Bench,
    name: String,
    dirs: Vec<(PathBuf, String)>,
    settings: Vec<(&'static str, String)>,
    top: String,
    rest: String,
    state_dir: PathBuf,
    wrapper: Vec<String>,
    environment: Vec<(String, String)>,
    stderr: Option<Stdio>,
    program: PathBuf,
    wait_for_probes: bool,
    healthy: Vec<PathBuf>,
}

impl<'a> Plan<'a> {
    /// An agent that watches two healthy directories, one of each other role; [`Agent::finish`]
    /// asserts that they had no event.
    pub(crate) fn new(bench: &'a Bench) -> Plan<'a> {
        let healthy = bench.healthy();
        let keys = |role: &str| format!("role = {role:?}");
        Plan {
            bench,
            name: "agent".to_owned(),
            dirs: healthy
                .iter()
                .map(|(path, role)| (path.clone(), keys(role)))
                .collect(),
            settings: [
                ("dwell", "2s"),
                ("interval", "10s"),
                ("space_interval", "1s"),
                ("deadline", "5s"),
            ]
            .map(|(key, value)| (key, value.to_owned()))
            .into(),
            top: String::new(),
            rest: String::new(),
            state_dir: bench.folder().join("state"),
            wrapper: Vec::new(),
            environment: Vec::new(),
            stderr: None,
            program: bench.program().to_owned(),
            wait_for_probes: true,
            healthy: healthy.map(|(path, _)| path).into(),
        }
    }

    /// An agent as most people run it: every setting is the default, and it watches what the test
    /// names and nothing else.
    pub(crate) fn with_defaults(bench: &'a Bench) -> Plan<'a> {
        let mut plan = Plan::new(bench);
        plan.settings.clear();
        plan.dirs.clear();
        plan.healthy.clear();
        plan
    }

    /// For a second agent in one test.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self.state_dir = self.bench.folder().join(format!("{name}-state"));
        self
    }

    /// Watches this directory as one of ledgers.
    pub(crate) fn dir(self, path: impl AsRef<Path>) -> Self {
        self.dir_with(path, "")
    }

    /// Watches this directory with more keys in its table.
    pub(crate) fn dir_with(mut self, path: impl AsRef<Path>, keys: &str) -> Self {
        self.dirs.push((path.as_ref().to_owned(), keys.to_owned()));
        self
    }

    /// Another value for `dwell`, `interval`, `space_interval` or `deadline`.
    pub(crate) fn set(mut self, key: &'static str, value: &str) -> Self {
        self.settings.retain(|(known, _)| *known != key);
        self.settings.push((key, value.to_owned()));
        self
    }

    /// Keys before the tables of the configuration file.
    pub(crate) fn top(mut self, text: &str) -> Self {
        self.top.push_str(text);
        self
    }

    /// More tables of the configuration file.
    pub(crate) fn toml(mut self, text: &str) -> Self {
        self.rest.push_str(text);
        self
    }

    pub(crate) fn state_dir(mut self, path: &Path) -> Self {
        self.state_dir = path.to_owned();
        self
    }

    /// Starts it by another program, which becomes it, like `unshare`.
    pub(crate) fn wrapper(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Runs it as this user, without any privilege.
    pub(crate) fn by_user(self, user: u32) -> Self {
        let [user, group] = ["reuid", "regid"].map(|what| format!("--{what}={user}"));
        self.wrapper(&["setpriv", &user, &group, "--clear-groups", "--"])
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts a copy of the program that lies in this folder.
    pub(crate) fn copied_to(mut self, folder: &Path) -> Self {
        let copy = folder.join("dirkeeper");
        install(&self.program, &copy);
        self.program = copy;
        self
    }

    pub(crate) fn stderr(mut self, stderr: Stdio) -> Self {
        self.stderr = Some(stderr);
        self
    }

    /// Does not wait until each directory was probed with success: one of them cannot be.
    pub(crate) fn with_broken_dirs(mut self) -> Self {
        self.wait_for_probes = false;
        self
    }

    /// The configuration file.
    fn write_file(&self, port: u16) -> PathBuf {
        let value = |key: &str| {
            let found = self.settings.iter().find(|(known, _)| *known == key);
            found.map_or_else(String::new, |(_, value)| format!("{key} = {value:?}\n"))
        };
        let mut toml = format!(
            "{}listen = \"127.0.0.1:{port}\"\nstate_dir = {:?}\n",
            self.top,
            text(&self.state_dir)
        );
        toml.push_str(&format!("\n[thresholds]\n{}", value("dwell")));
        toml.push_str("\n[probe]\n");
        toml.extend(["interval", "space_interval", "deadline"].map(value));
        for (path, keys) in &self.dirs {
            let role = if keys.contains("role") {
                ""
            } else {
                "role = \"ledger\"\n"
            };
            toml.push_str(&dir_table(path, &format!("{role}{keys}")));
        }
        toml.push_str(&self.rest);
        let file = self.bench.folder().join(format!("{}.toml", self.name));
        fs::write(&file, toml).expect("the folder is ours");
        file
    }

    /// Starts the program and returns at once.
    pub(crate) fn spawn(mut self) -> Agent {
        let port = http::free_port();
        let file = self.write_file(port);
        let program = text(&self.program).to_owned();
        let words: Vec<String> = self.wrapper.iter().cloned().chain([program]).collect();
        let log = self.bench.folder().join(format!("{}.log", self.name));
        let log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("the folder is ours");
        let stderr = self.stderr.take().unwrap_or_else(|| log.into());
        let process = Command::new(&words[0])
            .args(&words[1..])
            .args(["run", "--config", text(&file)])
            .env(MARK, self.bench.folder())
            .env_remove("RUST_LOG")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            // Its own group: a Ctrl-C is for the keeper, which ends the agents by number.
            .process_group(0)
            .spawn()
            .expect("the program can be started");
        Agent {
            process,
            port,
            ended: None,
            healthy: self.healthy,
            seen: Mutex::default(),
        }
    }

    /// Starts the agent and waits until it knows all its directories.
    pub(crate) fn start(self) -> Agent {
        let (bench, wait_for_probes) = (self.bench, self.wait_for_probes);
        let mut agent = self.spawn();
        agent.wait_ready();
        if wait_for_probes {
            let probed = |dir: &Value| dir["probe"]["lastSuccess"].is_string();
            wait_for("every directory probed", START_LIMIT, || {
                let status = agent.status()?;
                status["dirs"].as_array()?.iter().all(probed).then_some(())
            });
            bench.all_is_well();
        }
        agent
    }
}

fn dir_table(path: &Path, keys: &str) -> String {
    format!("\n[[dir]]\npath = {:?}\n{keys}\n", text(path))
}

/// An event as the API tells it.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) seq: u64,
    /// Wall-clock time in milliseconds.
    pub(crate) time: i64,
    pub(crate) name: String,
    pub(crate) dir: Option<PathBuf>,
    /// The whole document.
    pub(crate) json: Value,
}

impl Event {
    pub(crate) fn parse(json: &Value) -> Event {
        let text = |key: &str| json[key].as_str();
        let time = text("time").and_then(|text| humantime::parse_rfc3339(text).ok());
        let time = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let time = time
            .unwrap_or_else(|| panic!("no time in {json}"))
            .as_millis();
        Event {
            seq: json["seq"]
                .as_u64()
                .unwrap_or_else(|| panic!("no number in {json}")),
            time: i64::try_from(time).expect("times are of this age"),
            name: text("event")
                .unwrap_or_else(|| panic!("no name in {json}"))
                .to_owned(),
            dir: text("dir").map(PathBuf::from),
            json: json.clone(),
        }
    }

    /// The closed cause.
    pub(crate) fn cause(&self) -> &str {
        self.json["cause"]["kind"].as_str().unwrap_or_default()
    }

    fn is_of(&self, dir: &Path) -> bool {
        self.dir.as_deref() == Some(dir)
    }
}

/// A running agent; ended when dropped.
#[derive(Debug)]
pub(crate) struct Agent {
    process: Child,
    port: u16,
    ended: Option<ExitStatus>,
    healthy: Vec<PathBuf>,
    /// Events that were read already.
    seen: Mutex<Vec<Event>>,
}

impl Agent {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).expect("process numbers are small"))
    }

    /// Where it listens, as commands are told.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What the status reports beside the directories.
    pub(crate) fn problems(&self) -> Option<Vec<String>> {
        let status = self.status()?;
        let problems = status["problems"].as_array()?.iter();
        problems
            .map(|problem| problem.as_str().map(str::to_owned))
            .collect()
    }

    fn wait_ready(&mut self) {
        wait_for("the agent is ready", START_LIMIT, || {
            let ended = self.process.try_wait().expect("it is ours");
            assert!(ended.is_none(), "the agent ended at its start: {ended:?}");
            http::get(self.port, "/readyz")
                .ok()
                .filter(|(status, _)| *status == 200)
        });
    }

    /// Body of an answer with status 200.
    pub(crate) fn get(&self, path: &str) -> Option<String> {
        let (status, body) = http::get(self.port, path).ok()?;
        (status == 200).then_some(body)
    }

    pub(crate) fn status(&self) -> Option<Value> {
        serde_json::from_str(&self.get("/api/v1/status")?).ok()
    }

    /// What the status says of a directory, if it is there.
    pub(crate) fn known_dir(&self, path: &Path) -> Option<Value> {
        let status = self.status().expect("the agent answers");
        let dirs = status["dirs"]
            .as_array()
            .expect("the status has directories");
        let mut dirs = dirs.iter();
        let found = dirs.find(|dir| dir["path"].as_str() == path.to_str());
        found.cloned()
    }

    /// What the status says of a directory.
    pub(crate) fn dir(&self, path: &Path) -> Value {
        let found = self.known_dir(path);
        found.unwrap_or_else(|| panic!("{} is not in the status", path.display()))
    }

    /// Enters another directory of ledgers in its file and has that read again.
    pub(crate) fn add_dir(&self, bench: &Bench, path: &Path) {
        let file = bench.folder().join("agent.toml");
        let mut file = File::options()
            .append(true)
            .open(file)
            .expect("it was written at the start");
        let table = dir_table(path, "role = \"ledger\"");
        file.write_all(table.as_bytes())
            .expect("the folder is ours");
        kill(self.pid(), Signal::SIGHUP).expect("it is ours");
    }

    /// Waits until the one-word status of a directory is this.
    pub(crate) fn wait_status(&self, path: &Path, status: &str) {
        let mut last = Value::Null;
        let found = try_for(PATIENCE, || {
            last = self.dir(path);
            (last["status"] == status).then_some(())
        });
        assert!(
            found.is_some(),
            "{} is not {status}: {last}",
            path.display()
        );
    }

    /// All events so far, oldest first.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = Clock::start();
        loop {
            let since = seen.last().map_or(0, |event| event.seq);
            let body = self.get(&format!("/api/v1/events?since={since}&limit={PAGE}"));
            let body = body.expect("the agent answers");
            let page: Value = serde_json::from_str(&body).expect("the answer is JSON");
            let events = page["events"].as_array().expect("a page has events");
            if page["problem"].is_string() {
                // The store may be busy for a moment; what it holds is asked for again.
                assert!(clock.elapsed() < STORE_LIMIT, "{}", page["problem"]);
                pass(Duration::from_millis(100));
                continue;
            }
            if events.is_empty() {
                return seen.clone();
            }
            seen.extend(events.iter().map(Event::parse));
        }
    }

    /// Number of the newest event; later ones are waited for with [`Agent::event_after`].
    pub(crate) fn last_seq(&self) -> u64 {
        self.events().last().map_or(0, |event| event.seq)
    }

    /// The first event of that name for the directory; waits for it.
    pub(crate) fn event(&self, name: &str, dir: &Path) -> Event {
        self.event_after(0, name, dir)
    }

    /// The same, of a higher number than `seq`.
    pub(crate) fn event_after(&self, seq: u64, name: &str, dir: &Path) -> Event {
        let mut events = Vec::new();
        let found = try_for(PATIENCE, || {
            events = self.events();
            let mut matching = events
                .iter()
                .filter(|event| event.seq > seq && event.is_of(dir));
            matching.find(|event| event.name == name).cloned()
        });
        found.unwrap_or_else(|| {
            let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
            let verdict = self.dir(dir);
            panic!(
                "no {name} for {} in {names:?}; it is {verdict}",
                dir.display()
            )
        })
    }

    /// Names of the events of a directory so far, but forecasts and reminders: they are about time,
    /// and no fault is without them if it only lasts.
    pub(crate) fn names(&self, dir: &Path) -> Vec<String> {
        let mut names = self.all_names(dir);
        names.retain(|name| name != "fillForecast" && name != "reminder");
        names
    }

    fn all_names(&self, dir: &Path) -> Vec<String> {
        let events = self.events().into_iter();
        events
            .filter(|event| event.is_of(dir))
            .map(|event| event.name)
            .collect()
    }

    /// Asserts that these directories had no event at all.
    pub(crate) fn assert_quiet(&self, dirs: &[&Path]) {
        for dir in dirs {
            let names = self.all_names(dir);
            assert!(
                names.is_empty(),
                "{} is healthy and had {names:?}",
                dir.display()
            );
        }
    }

    /// Labels and values of all series with this name.
    pub(crate) fn metrics(&self, name: &str) -> Vec<(String, f64)> {
        let text = self.get("/metrics").unwrap_or_default();
        let series = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            let whole = labels.is_empty() || labels.starts_with('{');
            whole.then_some((labels.to_owned(), value.parse().ok()?))
        });
        series.collect()
    }

    /// Value of the first series with this name whose labels contain all these texts.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let mut series = self.metrics(name).into_iter();
        let found = series.find(|(own, _)| labels.iter().all(|label| own.contains(label)));
        found.map(|(_, value)| value)
    }

    /// When a directory was last looked at, well or not: wall-clock time in milliseconds.
    pub(crate) fn last_observation(&self, path: &Path) -> Option<i64> {
        let label = format!("dir={:?}", text(path));
        let name = "dirkeeper_dir_last_observation_timestamp_seconds";
        let seconds = self.metric(name, &[&label])?;
        #[allow(clippy::cast_possible_truncation)] // times are of this age
        Some((seconds * 1000.0).round() as i64)
    }

    /// Its living child of that kind, `prober` or `writer`.
    pub(crate) fn child(&self, kind: &str) -> Option<Pid> {
        let is_kind = |pid: &Pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words
                .split(|byte| *byte == 0)
                .any(|word| word == kind.as_bytes())
        };
        sweep::children(self.pid()).into_iter().find(is_kind)
    }

    /// Asks it to end and says how long that took and how it ended.
    pub(crate) fn stop(&mut self, bench: &Bench) -> (i64, ExitStatus) {
        let asked = bench.now();
        kill(self.pid(), Signal::SIGTERM).expect("it is ours");
        let status = wait_exit(&mut self.process, Duration::from_secs(20));
        let status = status.unwrap_or_else(|| panic!("no end after SIGTERM"));
        self.ended = Some(status);
        (bench.now() - asked, status)
    }

    /// The end of a test: the healthy directories had no event, and the agent ends in time.
    pub(crate) fn finish(mut self, bench: &Bench) {
        let healthy: Vec<&Path> = self.healthy.iter().map(PathBuf::as_path).collect();
        self.assert_quiet(&healthy);
        self.finish_after_events(bench);
    }

    /// The same for a fault of the agent itself, which all directories feel.
    pub(crate) fn finish_after_events(&mut self, bench: &Bench) {
        let (millis, status) = self.stop(bench);
        bench.within("stop", 0, millis, STOP_LIMIT);
        assert_eq!(status.code(), Some(0), "the agent ended with {status}");
    }

    /// Ends it as a crash would.
    pub(crate) fn crash(&mut self) {
        kill(self.pid(), Signal::SIGKILL).expect("it is ours");
        let status = wait_exit(&mut self.process, Duration::from_secs(20));
        self.ended = status;
        assert!(
            status.is_some_and(|status| status.signal() == Some(9)),
            "it ended by itself: {status:?}"
        );
    }

    /// Waits for an end that comes by itself.
    pub(crate) fn wait_end(&mut self) -> ExitStatus {
        let status = wait_exit(&mut self.process, START_LIMIT).expect("the agent ends by itself");
        self.ended = Some(status);
        status
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let _ = kill(self.pid(), Signal::SIGCONT);
        let _ = kill(self.pid(), Signal::SIGTERM);
        if wait_exit(&mut self.process, Duration::from_secs(5)).is_none() {
            let _ = kill(self.pid(), Signal::SIGKILL);
            let _ = wait_exit(&mut self.process, Duration::from_secs(5));
        }
    }
}
