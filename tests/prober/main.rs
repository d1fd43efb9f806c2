//! The prober as the agent runs it: the real binary as a child, real directories. What needs mounts
//! of its own is in `mounts`.

mod ballast;
mod kernel;
mod mounts;
mod remounts;
mod watch;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;

use dirkeeper::health::dir::{DirId, Role};
use dirkeeper::health::observation::{Cookie, Finding, JournalFile, Mark, Observation, Operation};
use dirkeeper::probe::{LookKind, Report};
use nix::sys::signal::Signal;

use watch::{PROBE, Point, Watch, binary, run, watched};

/// Delays are what some of these tests are about. A busy machine is allowed three times as much;
/// the fault suite measures the true limits.
const SLACK: u32 = 3;

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a directory");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    };
    entries.map(name).collect()
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
        assert_eq!(names(dir.path()), [""; 0]);
        let identity = full.identity.unwrap();
        let number = fs::metadata(dir.path()).unwrap().dev();
        let device = identity.device.unwrap();
        assert_eq!(
            nix::sys::stat::makedev(device.major.into(), device.minor.into()),
            number
        );
        assert_eq!(identity.cookie, Cookie::Absent);
        let gone = watch.look(1, PROBE).await.failure.unwrap();
        assert_eq!((gone.operation, gone.errno), (Operation::Open, Some(2)));
        assert!(!Path::new("/nowhere").exists(), "never created");
    });
}

#[test]
fn nothing_is_written_before_the_cookie_exists() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut settings = watched(dir.path());
        settings.await_cookie = true;
        let mut watch = Watch::with(binary(), vec![(DirId(0), settings)]);
        watch.alive().await;
        let look = watch.look(0, PROBE).await;
        assert_eq!((look.probed, look.failure), (false, None));
        fs::create_dir(dir.path().join("current")).unwrap();
        let cookie = "4\nbookieHost: \"b:3181\"\ninstanceId: \"i\"\n";
        fs::write(dir.path().join("current/VERSION"), cookie).unwrap();
        let look = watch.look(0, PROBE).await;
        assert_eq!((look.probed, look.failure), (true, None));
        let expected = Cookie::Present {
            instance_id: "i".to_owned(),
            bookie_host: "b:3181".to_owned(),
        };
        assert_eq!(look.identity.unwrap().cookie, expected);
    });
}

/// `watched` are ledger directories; the second one here is a journal's.
#[test]
fn full_looks_bring_the_bookies_own_files() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["ledger", "journal"].map(|name| dir.path().join(name));
    for path in &paths {
        fs::create_dir_all(path.join("current")).unwrap();
    }
    let mark = [&7_u64.to_be_bytes()[..], &512_u64.to_be_bytes()].concat();
    fs::write(paths[0].join("current/lastMark"), mark).unwrap();
    fs::write(paths[1].join("current/7.txn"), [0; 700]).unwrap();
    run(async {
        let mut settings = paths.each_ref().map(|path| watched(path));
        settings[1].role = Role::Journal;
        let settings = settings.into_iter().zip(0..);
        let settings = settings.map(|(one, id)| (DirId(id), one)).collect();
        let mut watch = Watch::with(binary(), settings);
        watch.alive().await;
        assert_eq!(watch.look(0, PROBE).await.bookie_files, None, "no cookie");
        for path in &paths {
            let cookie = "4\nbookieHost: \"b:3181\"\n";
            fs::write(path.join("current/VERSION"), cookie).unwrap();
        }
        assert_eq!(watch.look(0, LookKind::Space).await.bookie_files, None);
        let ledger = watch.look(0, PROBE).await;
        assert!(ledger.durations.contains_key(&Operation::BookieFiles));
        let mark = Mark {
            journal: None,
            file: 7,
            offset: 512,
        };
        assert_eq!(ledger.bookie_files.unwrap().marks, [mark]);
        let journal = watch.look(1, PROBE).await.bookie_files.unwrap();
        assert_eq!(journal.journals, [JournalFile { id: 7, bytes: 700 }]);
    });
}

#[test]
fn nothing_is_written_where_a_mount_is_required_and_missing() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut settings = watched(dir.path());
        settings.require_mount = true;
        let mut watch = Watch::with(binary(), vec![(DirId(0), settings)]);
        watch.alive().await;
        let look = watch.look(0, PROBE).await;
        assert_eq!((look.probed, look.failure), (false, None));
    });
}

#[test]
fn a_configured_link_is_resolved_once_and_then_pinned() {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    fs::create_dir(root.join("a")).unwrap();
    fs::create_dir(root.join("b")).unwrap();
    let link = root.join("link");
    symlink("a", &link).unwrap();
    run(async {
        let mut watch = Watch::of(&[&link]);
        watch.alive().await;
        let look = watch.look(0, PROBE).await;
        assert_eq!(look.identity.unwrap().canonical, root.join("a"));
        fs::remove_file(&link).unwrap();
        symlink("b", &link).unwrap();
        let failure = watch.look(0, PROBE).await.failure.unwrap();
        assert_eq!(failure.finding, Finding::LeadsElsewhere);
        // Also for the next child, which has not seen the first place.
        watch.signal(Signal::SIGKILL);
        assert_eq!(watch.alive().await, 2);
        let failure = watch.look(0, PROBE).await.failure.unwrap();
        assert_eq!(failure.finding, Finding::LeadsElsewhere);
        watch.prober.resolve_again(DirId(0));
        let look = watch.look(0, PROBE).await;
        assert_eq!(look.identity.unwrap().canonical, root.join("b"));
    });
}

#[test]
fn a_reload_adds_and_removes_directories() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    run(async {
        let mut watch = Watch::of(&[dirs[0].path()]);
        watch.alive().await;
        assert_eq!(watch.look(0, PROBE).await.failure, None);
        watch
            .prober
            .configure(vec![(DirId(7), watched(dirs[1].path()))]);
        watch.prober.look(DirId(0), PROBE);
        let look = watch.look(7, PROBE).await;
        assert_eq!(
            look.identity.unwrap().canonical,
            fs::canonicalize(dirs[1].path()).unwrap()
        );
    });
}

#[test]
fn a_prober_that_is_killed_is_back_in_a_second_ten_times_in_a_row() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut watch = Watch::of(&[dir.path()]);
        watch.alive().await;
        for restart in 1..=10 {
            assert_eq!(watch.look(0, PROBE).await.failure, None);
            let killed = Point::now();
            watch.signal(Signal::SIGKILL);
            let (reason, restarts, abandoned) = watch.lost().await;
            assert_eq!((restarts, abandoned), (restart, 0), "{reason}");
            assert!(reason.contains("signal: 9"), "{reason}");
            assert_eq!(watch.alive().await, restart + 1);
            let back = killed.elapsed();
            assert!(
                back <= SLACK * Duration::from_secs(1),
                "back after {back:?}"
            );
        }
    });
}

#[test]
fn a_prober_that_says_nothing_is_lost_after_five_seconds_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut watch = Watch::of(&[dir.path()]);
        watch.alive().await;
        assert_eq!(watch.look(0, PROBE).await.failure, None);
        let stopped = Point::now();
        watch.signal(Signal::SIGSTOP);
        watch.prober.look(DirId(0), PROBE);
        let (reason, _, abandoned) = watch.lost().await;
        let after = stopped.elapsed();
        let range = Duration::from_millis(4500)..SLACK * Duration::from_secs(6);
        assert!(range.contains(&after), "{reason} after {after:?}");
        assert_eq!(abandoned, 0, "a stopped process can be killed");
        watch.alive().await;
        assert_eq!(watch.look(0, PROBE).await.failure, None);
    });
}

#[test]
fn no_descriptor_stays_open_on_a_directory_and_stopping_ends_the_child() {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    run(async {
        let mut watch = Watch::of(&[dir.path()]);
        watch.alive().await;
        assert!(watch.look(0, PROBE).await.probed);
        let child = watch.children()[0];
        let open = fs::read_dir(format!("/proc/{child}/fd")).unwrap();
        let targets = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        let targets: Vec<_> = targets.collect();
        assert!(
            targets.iter().all(|target| !target.starts_with(&root)),
            "{targets:?}"
        );
        assert!(
            targets.len() <= 10,
            "0 to 2, pipes, two bells, mount table, errors, diskstats: {targets:?}"
        );
        let cwd = fs::read_link(format!("/proc/{child}/cwd")).unwrap();
        assert_eq!(cwd, Path::new("/"));
        watch.prober.stop();
        let begin = Point::now();
        while !watch.children().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(10), "the child ends");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn a_shortage_of_descriptors_is_the_probers_own_trouble() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut watch = Watch::of(&[dir.path()]);
        watch.alive().await;
        assert_eq!(watch.look(0, PROBE).await.failure, None);
        let pid = watch.children()[0].to_string();
        let limit = |files: &str| {
            let mut command = std::process::Command::new("prlimit");
            let status = command.args(["--pid", &pid, files]).status();
            status.expect("util-linux is there").success()
        };
        assert!(limit("--nofile=3:1024"));
        let failure = watch.look(0, PROBE).await.failure.unwrap();
        assert_eq!(
            (failure.finding, failure.errno),
            (Finding::ProberTrouble, Some(24))
        );
        assert!(limit("--nofile=1024:1024"));
        assert_eq!(watch.look(0, PROBE).await.failure, None);
    });
}

#[test]
fn a_program_that_is_no_prober_is_reported() {
    run(async {
        let mut watch = Watch::with("/nowhere/dirkeeper".into(), Vec::new());
        let (reason, ..) = watch.lost().await;
        assert!(
            reason.contains("/nowhere/dirkeeper cannot be started"),
            "{reason}"
        );
        let mut watch = Watch::with("/bin/true".into(), Vec::new());
        let (reason, ..) = watch.lost().await;
        assert_eq!(reason, "the prober ended (exit status: 0)");
    });
}

/// Leftovers of a killed prober go with the next full look, and two probers in one directory do
/// not disturb each other.
#[test]
fn several_probers_share_a_directory_and_clean_up_after_the_dead() {
    let dir = tempfile::tempdir().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let leftover = dir
        .path()
        .join(format!(".dirkeeper-probe.{}.1.0", &boot[..8]));
    run(async {
        let mut watches = [Watch::of(&[dir.path()]), Watch::of(&[dir.path()])];
        for watch in &mut watches {
            watch.alive().await;
        }
        for _ in 0..50 {
            fs::write(&leftover, "x").unwrap();
            for watch in &watches {
                watch.prober.look(DirId(0), PROBE);
            }
            for watch in &mut watches {
                let look = watch.looked(0).await;
                assert_eq!((look.probed, look.failure), (true, None));
            }
            assert_eq!(names(dir.path()), [""; 0]);
        }
    });
}

#[test]
fn what_can_be_observed_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut watch = Watch::of(&[dir.path()]);
        watch.alive().await;
        let names = kernel::sources(&mut watch).await.active;
        assert_eq!(names[0], "statvfs");
        assert!(names[1].starts_with("probe"));
        assert_eq!(names[2], "mountinfo");
        watch.prober.look(DirId(0), PROBE);
        let next = |report| match report {
            Report::Observed {
                observation: Observation::Looked(_),
                ..
            } => Some(true),
            Report::Sources { .. } => Some(false),
            _ => None,
        };
        assert!(watch.until("look", next).await);
    });
}

/// An agent that reads nothing for a while finds all answers when it reads again.
#[test]
fn answers_that_nobody_reads_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let paths = [dir.path(); 1000];
        let mut watch = Watch::of(&paths);
        watch.alive().await;
        (0..1000).for_each(|dir| watch.prober.look(DirId(dir), LookKind::Space));
        watch.until_nothing_fits().await;
        let mut answers = 0;
        let all = |report| {
            assert!(!matches!(report, Report::Lost { .. }), "{report:?}");
            answers += u32::from(matches!(
                report,
                Report::Observed {
                    observation: Observation::Looked(_),
                    ..
                }
            ));
            (answers == 1000).then_some(())
        };
        watch.until("all answers", all).await;
    });
}

/// The stack of a lane is small; the longest possible path must not be too long for it.
#[test]
fn the_longest_path_fits() {
    let dir = tempfile::tempdir().unwrap();
    let mut path = fs::canonicalize(dir.path()).unwrap();
    while path.as_os_str().len() < 4096 - 120 {
        path.push("p".repeat(99));
    }
    fs::create_dir_all(&path).unwrap();
    run(async {
        let mut watch = Watch::of(&[&path]);
        watch.alive().await;
        let look = watch.look(0, PROBE).await;
        assert_eq!((look.probed, look.failure), (true, None));
    });
}

#[test]
fn a_prober_locks_its_memory_when_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let dirs = vec![(DirId(0), watched(dir.path()))];
        let mut watch = Watch::start(binary(), dirs, true);
        watch.alive().await;
        assert_eq!(watch.look(0, PROBE).await.failure, None);
        if nix::unistd::geteuid().is_root() {
            let child = watch.children()[0];
            let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap();
            let locked = status.lines().find(|line| line.starts_with("VmLck:"));
            assert_ne!(locked, Some("VmLck:\t       0 kB"));
        }
    });
}
