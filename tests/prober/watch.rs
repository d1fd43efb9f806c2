//! A running prober for tests: the real binary as a child, and what it says.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dirkeeper::clock::Clock;
use dirkeeper::health::ballast::Order;
use dirkeeper::health::dir::{DirId, Role};
use dirkeeper::health::observation::{InFlight, Look, Mount, Observation};
use dirkeeper::probe::{LookKind, Prober, ProberOptions, Report, WatchedDir};
use tokio::sync::mpsc;

pub(crate) const PROBE: LookKind = LookKind::Full {
    probe: true,
    ballast: Order::None,
};

/// A running prober and what it says.
pub(crate) struct Watch {
    pub(crate) prober: Prober,
    reports: mpsc::Receiver<Report>,
    /// An argument by which its processes are told from those of other tests.
    mark: String,
}

pub(crate) fn watched(path: &Path) -> WatchedDir {
    WatchedDir {
        path: path.to_owned(),
        role: Role::Ledger,
        await_cookie: false,
        require_mount: false,
        pinned: None,
    }
}

pub(crate) fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_dirkeeper"))
}

impl Watch {
    pub(crate) fn of(dirs: &[&Path]) -> Watch {
        let numbered = (0..).map(DirId).zip(dirs.iter().map(|path| watched(path)));
        Watch::with(binary(), numbered.collect())
    }

    pub(crate) fn with(program: PathBuf, dirs: Vec<(DirId, WatchedDir)>) -> Watch {
        Watch::start(program, dirs, false)
    }

    pub(crate) fn start(
        program: PathBuf,
        dirs: Vec<(DirId, WatchedDir)>,
        lock_memory: bool,
    ) -> Watch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("mark-{}-{number}", std::process::id());
        let (sender, reports) = mpsc::channel(64);
        let options = ProberOptions {
            program,
            args: vec![OsString::from(&mark)],
            dirs,
            lock_memory,
        };
        Watch {
            prober: Prober::start(options, Clock::start(), sender),
            reports,
            mark,
        }
    }

    /// Waits for the report that is wanted; the others are passed over.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(Report) -> Option<T>,
    ) -> T {
        let limit = Duration::from_secs(30);
        let search = async {
            loop {
                let report = self.reports.recv().await.expect("the prober goes on");
                if let Some(found) = wanted(report) {
                    return found;
                }
            }
        };
        let found = tokio::time::timeout(limit, search).await;
        found.unwrap_or_else(|_| panic!("no {what} within {limit:?}"))
    }

    /// Reads nothing until the queue of reports is full, so that answers have to wait elsewhere.
    pub(crate) async fn until_nothing_fits(&mut self) {
        let begin = Point::now();
        while self.reports.len() < self.reports.max_capacity() {
            assert!(begin.elapsed() < Duration::from_secs(20), "the queue fills");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn alive(&mut self) -> u64 {
        let wanted = |report| match report {
            Report::Alive { child } => Some(child),
            _ => None,
        };
        self.until("greeting", wanted).await
    }

    pub(crate) async fn lost(&mut self) -> (String, u64, u64) {
        let wanted = |report| match report {
            Report::Lost {
                reason, restarts, ..
            } => Some((reason, restarts)),
            _ => None,
        };
        let (reason, restarts) = self.until("loss", wanted).await;
        (reason, restarts, self.prober.abandoned())
    }

    pub(crate) async fn looked(&mut self, dir: u32) -> Look {
        let wanted = |observation| match observation {
            Observation::Looked(look) => Some(look),
            _ => None,
        };
        self.observed(dir, "answer to a look", wanted).await
    }

    pub(crate) async fn in_flight(&mut self, dir: u32, over: Duration) -> InFlight {
        let wanted = |observation| match observation {
            Observation::InFlight(in_flight) if over <= in_flight.age => Some(in_flight),
            _ => None,
        };
        self.observed(dir, "operation in flight", wanted).await
    }

    pub(crate) async fn mounted(&mut self, dir: u32) -> Mount {
        let wanted = |observation| match observation {
            Observation::Mounted(mount) => Some(mount),
            _ => None,
        };
        self.observed(dir, "mount", wanted).await
    }

    async fn observed<T>(
        &mut self,
        dir: u32,
        what: &str,
        wanted: impl Fn(Observation) -> Option<T>,
    ) -> T {
        let wanted = |report| match report {
            Report::Observed {
                dir: found,
                observation,
            } if found == DirId(dir) => wanted(observation),
            _ => None,
        };
        self.until(what, wanted).await
    }

    pub(crate) async fn look(&mut self, dir: u32, kind: LookKind) -> Look {
        self.prober.look(DirId(dir), kind);
        self.looked(dir).await
    }

    /// Process numbers of its children that have a command line, so have not ended.
    pub(crate) fn children(&self) -> Vec<i32> {
        let numbers = std::fs::read_dir("/proc").expect("a process table");
        let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let ours = |pid: &i32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            line.is_ok_and(|line| line.split('\0').any(|word| word == self.mark))
        };
        numbers.filter(ours).collect()
    }

    /// Sends a signal to its only child; the one before it may take a moment to end.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let begin = Point::now();
        let child = loop {
            let children = self.children();
            if let [child] = children[..] {
                break child;
            }
            let waited = begin.elapsed();
            assert!(waited < Duration::from_secs(20), "one and not {children:?}");
            std::thread::park_timeout(Duration::from_millis(5));
        };
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), signal).expect("it is ours");
    }
}

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(test);
}

/// A point in time, for the delays that are the subject of these tests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point(Duration);

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::start);

impl Point {
    pub(crate) fn now() -> Point {
        Point(CLOCK.elapsed())
    }

    pub(crate) fn elapsed(self) -> Duration {
        CLOCK.elapsed() - self.0
    }
}
