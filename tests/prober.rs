//! The prober as the agent runs it: the real binary as a child, real directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dirkeeper::clock::Clock;
use dirkeeper::health::dir::DirId;
use dirkeeper::health::observation::{Look, Observation, Operation};
use dirkeeper::probe::{LookKind, Prober, ProberOptions, Report, WatchedDir};
use tokio::sync::mpsc;

const PROBE: LookKind = LookKind::Full { probe: true };

/// A running prober and what it says.
struct Watch {
    prober: Prober,
    reports: mpsc::Receiver<Report>,
}

fn watched(path: &Path) -> WatchedDir {
    WatchedDir {
        path: path.to_owned(),
        await_cookie: false,
        require_mount: false,
        pinned: None,
    }
}

impl Watch {
    fn of(dirs: &[&Path]) -> Watch {
        let numbered = (0..).map(DirId).zip(dirs.iter().map(|path| watched(path)));
        Watch::with(numbered.collect())
    }

    fn with(dirs: Vec<(DirId, WatchedDir)>) -> Watch {
        let (sender, reports) = mpsc::channel(64);
        let options = ProberOptions {
            program: PathBuf::from(env!("CARGO_BIN_EXE_dirkeeper")),
            args: Vec::new(),
            dirs,
            lock_memory: false,
        };
        Watch {
            prober: Prober::start(options, Clock::start(), sender),
            reports,
        }
    }

    /// Waits for the report that is wanted; the others are passed over.
    async fn until<T>(&mut self, what: &str, wanted: impl Fn(Report) -> Option<T>) -> T {
        self.within(Duration::from_secs(30), what, wanted).await
    }

    async fn within<T>(
        &mut self,
        limit: Duration,
        what: &str,
        wanted: impl Fn(Report) -> Option<T>,
    ) -> T {
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

    async fn alive(&mut self) -> u64 {
        let wanted = |report| match report {
            Report::Alive { child } => Some(child),
            _ => None,
        };
        self.until("greeting", wanted).await
    }

    async fn looked(&mut self, dir: u32) -> Look {
        let wanted = |report| match report {
            Report::Observed {
                dir: found,
                observation: Observation::Looked(look),
            } if found == DirId(dir) => Some(look),
            _ => None,
        };
        self.until("answer to a look", wanted).await
    }

    async fn look(&mut self, dir: u32, kind: LookKind) -> Look {
        self.prober.look(DirId(dir), kind);
        self.looked(dir).await
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(test);
}

#[test]
fn looks_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut watch = Watch::of(&[dir.path(), Path::new("/nowhere/at/all")]);
        assert_eq!(watch.alive().await, 1);
        let space = watch.look(0, LookKind::Space).await;
        assert_eq!(space.failure, None);
        assert!(0 < space.space.unwrap().size);
        assert!(!space.probed);
        let full = watch.look(0, PROBE).await;
        assert_eq!(full.failure, None);
        assert!(full.probed);
        let steps: Vec<Operation> = full.durations.keys().copied().collect();
        assert_eq!(steps, Operation::ALL[1..11]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let gone = watch.look(1, PROBE).await.failure.unwrap();
        assert_eq!((gone.operation, gone.errno), (Operation::Open, Some(2)));
    });
}
