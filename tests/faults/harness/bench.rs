//! The place of one test: its folder, its clock, what it measured and the limits for that.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dirkeeper::clock::Clock;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::json;

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
    strict: bool,
    /// File for measured times, one JSON object a line.
    results: Option<PathBuf>,
    /// The program under test.
    program: PathBuf,
}

impl Settings {
    pub(crate) fn from_environment() -> Settings {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let program = std::env::var_os("DIRKEEPER_BIN");
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_dirkeeper").into());
        Settings {
            runs: number("FAULT_RUNS").unwrap_or(1),
            jobs: number("FAULT_JOBS").unwrap_or(JOBS),
            strict: std::env::var("FAULT_STRICT").as_deref() == Ok("1"),
            results: std::env::var_os("FAULT_RESULTS").map(PathBuf::from),
            program: fs::canonicalize(&program).unwrap_or_else(|_| program.into()),
        }
    }
}

/// The place of one test.
#[derive(Debug)]
pub(crate) struct Bench {
    name: &'static str,
    run: usize,
    folder: PathBuf,
    settings: Settings,
    clock: Clock,
    measured: Mutex<Vec<Measured>>,
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
    pub(crate) fn new(root: &Path, name: &'static str, run: usize, settings: &Settings) -> Bench {
        let folder = root.join(format!("{name}-{run}"));
        fs::create_dir(&folder).expect("the root is ours");
        Bench {
            name,
            run,
            folder,
            settings: settings.clone(),
            clock: Clock::start(),
            measured: Mutex::default(),
        }
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

    /// A limit with the allowance that holds here.
    pub(crate) fn allowed(&self, limit: Duration) -> Duration {
        if self.settings.strict {
            limit
        } else {
            limit * ALLOWANCE
        }
    }

    /// Notes how long it took from `from` to `to`, and fails the test at its end when that is over
    /// the limit.
    pub(crate) fn within(&self, what: &str, from: i64, to: i64, limit: Duration) {
        self.between(what, from, to, Duration::ZERO, limit);
    }

    /// The same with a lower limit, which no allowance widens.
    pub(crate) fn between(&self, what: &str, from: i64, to: i64, least: Duration, most: Duration) {
        // Both times are rounded down, and the agent may see a fault before its maker looks.
        const ROUNDING: i64 = 20;
        let measured = Measured {
            what: what.to_owned(),
            millis: to - from,
            least: millis(least) - ROUNDING,
            most: millis(self.allowed(most)),
        };
        self.record(&measured, millis(most));
        self.measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(measured);
    }

    fn record(&self, measured: &Measured, limit: i64) {
        let Some(path) = &self.settings.results else {
            return;
        };
        let line = json!({
            "fault": self.name, "case": measured.what, "run": self.run,
            "milliseconds": measured.millis, "limit": limit, "good": measured.millis <= limit,
        });
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

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
