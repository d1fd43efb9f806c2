//! The place of one test: its folder, its clock, what it measured and the limits for that.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dirkeeper::clock::Clock;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};

use super::agent::Event;
use super::peers::{Peers, View};

/// In CI the machine is not idle: limits are allowed three-fold there.
const ALLOWANCE: u32 = 3;

/// Tests at a time. Nearly all of their time is waiting; each has an agent with two children.
const JOBS: usize = 8;

/// Lines of an agent's log that are shown when a test fails.
const LOG_LINES: usize = 40;

/// How the tests are run.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How often each test runs.
    pub(crate) runs: usize,
    /// Tests at a time.
    pub(crate) jobs: usize,
    /// True limits.
    pub(crate) strict: bool,
    /// File for measured times, one JSON object a line.
    results: Option<PathBuf>,
    /// The program under test.
    program: PathBuf,
    /// Kinds of file systems for the tests that depend on it; the first one for all others.
    pub(crate) kinds: Vec<String>,
    /// Other monitors are asked what they say of each fault.
    pub(crate) peers: bool,
}

impl Settings {
    pub(crate) fn from_environment() -> Settings {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let program = std::env::var_os("DIRKEEPER_BIN");
        let kinds = std::env::var("FAULT_FS").unwrap_or_else(|_| "ext4".to_owned());
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_dirkeeper").into());
        Settings {
            runs: number("FAULT_RUNS").unwrap_or(1),
            jobs: number("FAULT_JOBS").unwrap_or(JOBS),
            strict: std::env::var("FAULT_STRICT").as_deref() == Ok("1"),
            results: std::env::var_os("FAULT_RESULTS").map(PathBuf::from),
            program: fs::canonicalize(&program).unwrap_or_else(|_| program.into()),
            kinds: kinds.split(',').map(str::to_owned).collect(),
            peers: std::env::var("FAULT_PEERS").as_deref() == Ok("1"),
        }
    }
}

/// Which test it is.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) fault: &'static str,
    /// Kind of the file systems on loop devices.
    pub(crate) kind: String,
    /// The kind matters.
    pub(crate) each_kind: bool,
    pub(crate) run: usize,
    /// Name of its folder.
    pub(crate) folder: String,
}

/// The place of one test.
#[derive(Debug)]
pub(crate) struct Bench {
    place: Place,
    folder: PathBuf,
    settings: Settings,
    clock: Clock,
    measured: Mutex<Vec<Measured>>,
    peers: Option<Arc<Peers>>,
    healthy_view: Mutex<Option<View>>,
}

/// One measured time, in milliseconds.
#[derive(Debug)]
struct Measured {
    what: String,
    millis: i64,
    least: i64,
    most: i64,
}

impl Measured {
    fn is_good(&self) -> bool {
        (self.least..=self.most).contains(&self.millis)
    }
}

impl Bench {
    pub(crate) fn new(
        root: &Path,
        place: Place,
        settings: &Settings,
        peers: Option<Arc<Peers>>,
    ) -> Bench {
        let folder = root.join(&place.folder);
        fs::create_dir(&folder).expect("the root is ours");
        Bench {
            place,
            folder,
            settings: settings.clone(),
            clock: Clock::start(),
            measured: Mutex::default(),
            peers,
            healthy_view: Mutex::default(),
        }
    }

    /// Kind of the file systems on loop devices: `ext4`, `xfs` or `btrfs`.
    pub(crate) fn kind(&self) -> &str {
        &self.place.kind
    }

    /// Two healthy directories, of the roles that no fault has, on file systems of their own: what
    /// other tests do to the shared one is not seen in them.
    pub(crate) fn healthy(&self) -> [(PathBuf, &'static str); 2] {
        ["journal", "index"].map(|role| {
            let path = self.folder.join(format!("healthy-{role}"));
            if !path.exists() {
                fs::create_dir(&path).expect("the folder is ours");
                let options = Some("size=16m");
                mount(
                    Some("healthy"),
                    &path,
                    Some("tmpfs"),
                    MsFlags::empty(),
                    options,
                )
                .expect("tmpfs is there");
            }
            (path, role)
        })
    }

    /// Takes the healthy directories away, if there are any.
    pub(crate) fn end(&self) {
        for role in ["journal", "index"] {
            let path = self.folder.join(format!("healthy-{role}"));
            let _ = umount2(&path, MntFlags::MNT_DETACH);
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn program(&self) -> &Path {
        &self.settings.program
    }

    /// The true limits count.
    pub(crate) fn is_strict(&self) -> bool {
        self.settings.strict
    }

    /// A plain directory on the file system that all tests share.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).expect("the folder is ours");
        path
    }

    /// Wall-clock time in milliseconds, as events carry it.
    pub(crate) fn now(&self) -> i64 {
        self.clock.now().wall.0
    }

    /// Time that passed since then.
    pub(crate) fn since(&self, then: i64) -> Duration {
        Duration::from_millis((self.now() - then).unsigned_abs())
    }

    /// A limit with the allowance that holds here.
    pub(crate) fn allowed(&self, limit: Duration) -> Duration {
        if self.settings.strict {
            limit
        } else {
            limit * ALLOWANCE
        }
    }

    /// All is well: keeps what other monitors say now, to compare with later.
    pub(crate) fn all_is_well(&self) {
        let mut view = self
            .healthy_view
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let (Some(peers), None) = (&self.peers, view.as_ref()) {
            *view = peers.view();
        }
    }

    /// Notes how long it took from `from` to `to`, and fails the test at its end when that is over
    /// the limit.
    pub(crate) fn within(&self, what: &str, from: i64, to: i64, limit: Duration) {
        self.between(what, from, to, Duration::ZERO, limit);
    }

    /// The same with a lower limit, which no allowance widens.
    pub(crate) fn between(&self, what: &str, from: i64, to: i64, least: Duration, most: Duration) {
        self.measure(json!({}), what, from..to, least..most);
    }

    /// A disk's fault was noticed by this event: notes how long that took, and what other monitors
    /// say of the same directory now.
    pub(crate) fn noticed(&self, event: &Event, from: i64, limit: Duration) {
        self.noticed_between(event, from, Duration::ZERO, limit);
    }

    /// The same with a lower limit.
    pub(crate) fn noticed_between(
        &self,
        event: &Event,
        from: i64,
        least: Duration,
        most: Duration,
    ) {
        let mut said = said(event);
        self.ask_peers(&mut said, event.dir.as_deref());
        self.measure(said, &event.name, from..event.time, least..most);
    }

    /// A fault of the agent itself, or an end of a fault, by this event: nothing to ask others about.
    pub(crate) fn told(&self, event: &Event, from: i64, least: Duration, most: Duration) {
        self.measure(said(event), &event.name, from..event.time, least..most);
    }

    /// What the agent says of a directory that has no event, and has none rightly.
    pub(crate) fn says(&self, case: &str, verdict: &Value, ask_peers: bool) {
        let cause = &verdict["cause"]["kind"];
        let mut said = json!({ "case": case, "status": verdict["status"], "cause": cause });
        let dir = verdict["path"].as_str().map(Path::new);
        if ask_peers {
            self.ask_peers(&mut said, dir);
        }
        self.record(said);
    }

    fn ask_peers(&self, said: &mut Value, dir: Option<&Path>) {
        let healthy = self
            .healthy_view
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let (Some(peers), Some(dir)) = (&self.peers, dir) {
            said["nodeExporter"] = peers.node_exporter(healthy.as_ref(), dir).into();
            said["diskChecker"] = peers.disk_checker(dir).into();
        }
    }

    fn measure(&self, mut said: Value, what: &str, span: Range<i64>, limits: Range<Duration>) {
        // Both times are rounded down, and the agent may see a fault before its maker looks.
        const ROUNDING: i64 = 20;
        let measured = Measured {
            what: what.to_owned(),
            millis: span.end - span.start,
            least: millis(limits.start) - ROUNDING,
            most: millis(self.allowed(limits.end)),
        };
        said["case"] = what.into();
        said["milliseconds"] = measured.millis.into();
        said["least"] = millis(limits.start).into();
        said["limit"] = millis(limits.end).into();
        self.record(said);
        self.measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(measured);
    }

    /// Appends a line to the file for results.
    pub(crate) fn record(&self, mut line: Value) {
        let Some(path) = &self.settings.results else {
            return;
        };
        line["fault"] = self.place.fault.into();
        line["run"] = self.place.run.into();
        if self.place.each_kind {
            line["fs"] = self.place.kind.as_str().into();
        }
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .expect("the file for results can be written");
    }

    /// What was not within its limits, in words.
    pub(crate) fn over_limit(&self) -> Vec<String> {
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let bad = measured.iter().filter(|measured| !measured.is_good());
        bad.map(
            |Measured {
                 what,
                 millis,
                 least,
                 most,
             }| { format!("{what}: {millis} ms, allowed {least} to {most} ms") },
        )
        .collect()
    }

    /// What was measured, for the line of the test.
    pub(crate) fn summary(&self) -> String {
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let texts = measured
            .iter()
            .map(|measured| format!(" {} {} ms;", measured.what, measured.millis));
        texts.collect()
    }

    /// The ends of the agents' logs.
    pub(crate) fn logs(&self) -> String {
        let mut text = String::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "log") {
                continue;
            }
            let log = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            text.push_str(&format!("{}:\n", path.display()));
            for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
                text.push_str(&format!("    {line}\n"));
            }
        }
        text
    }
}

/// The agent's words of an event.
fn said(event: &Event) -> Value {
    json!({ "status": event.json["to"], "cause": event.cause(), "event": event.name })
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
