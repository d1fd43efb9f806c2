//! Finds the bookie's process in /proc: its id, when it started, its version. Reads `stat`, `cmdline`
//! and the texts of the links in `fd`, never `exe`, `cwd` or `root`, follows no link, and asks for no
//! disk. A command line lies in the memory of its process, and one that is stuck on a dead disk may
//! keep a reader waiting: so it is read by a thread of its own, which may be lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc as blocking;
use std::thread;
use std::time::Duration;

use sysinfo::{
    Pid, Process, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System, UpdateKind,
};
use tokio::sync::mpsc;

use super::command_line;
use crate::backoff::Backoff;
use crate::health::beside::BookieProcess;
use crate::health::dir::shown;
use crate::health::moment::{Elapsed, Timestamp};

/// Between two looks at all processes; each of them costs 40 µs. Once the bookie is found only its
/// own entry is read. While it is not, the wait doubles, and is the first one again after a hint. A
/// little below the 10 s between two questions, so that none of them comes just too early.
const WHOLE_INTERVAL: Duration = Duration::from_secs(9);
const LONGEST_INTERVAL: Duration = Duration::from_secs(72);

/// After this a look counts as stuck.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// Looks at a new process in which its version is sought among its open files: its jars are open
/// a second after its start.
const VERSION_LOOKS: u32 = 3;

/// Most open files that are looked at; a bookie's connections are among them.
const OPEN_FILES: usize = 65_536;

/// Most processes that are named when there are too many.
const NAMED: usize = 5;

/// What a look finds.
pub(super) type Found = Result<Option<BookieProcess>, String>;

/// The agent's side of the thread that looks.
#[derive(Debug)]
pub(super) struct ProcessWatch {
    /// One look at a time. The thread ends with this.
    asks: blocking::SyncSender<Ask>,
    found: mpsc::Receiver<Found>,
    asked: Option<Elapsed>,
    told_stuck: bool,
}

impl ProcessWatch {
    /// Starts the thread. Without a file the only bookie of the machine is meant.
    pub(super) fn start(conf: Option<PathBuf>) -> std::io::Result<ProcessWatch> {
        let (asks, asked) = blocking::sync_channel(1);
        let (answers, found) = mpsc::channel(1);
        let run = move || {
            let mut finder = Finder::new(conf);
            while let Ok(ask) = asked.recv() {
                if answers.blocking_send(finder.look(ask)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("bookie-process".to_owned());
        thread.spawn(run)?;
        Ok(ProcessWatch {
            asks,
            found,
            asked: None,
            told_stuck: false,
        })
    }

    /// Asks for a look, unless one goes on. What [`ProcessWatch::found`] will not say is said here:
    /// that the look before does not end.
    pub(super) fn ask(&mut self, now: Elapsed, hint: bool) -> Option<Found> {
        if let Some(asked) = self.asked {
            let is_stuck = LOOK_LIMIT <= now.saturating_sub(asked) && !self.told_stuck;
            self.told_stuck |= is_stuck;
            let limit = LOOK_LIMIT;
            return is_stuck.then(|| {
                Err(format!(
                    "looking for the bookie's process takes over {limit:?}: a process does not let its command line be read"
                ))
            });
        }
        if self.asks.try_send(Ask { now, hint }).is_ok() {
            self.asked = Some(now);
        }
        None
    }

    /// What the look has found, once it ends.
    pub(super) async fn found(&mut self) -> Found {
        match self.found.recv().await {
            Some(found) => {
                self.asked = None;
                self.told_stuck = false;
                found
            }
            // The thread ends only with us.
            None => std::future::pending().await,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Ask {
    now: Elapsed,
    /// The bookie has most likely started or ended.
    hint: bool,
}

/// Looks; remembers whom it found.
struct Finder {
    conf: Option<PathBuf>,
    known: Option<Known>,
    backoff: Backoff,
    /// Until the next look at all; shorter when there was a hint.
    wait: Duration,
    /// When all processes were last looked at, and what came of it.
    whole: Option<(Elapsed, Found)>,
}

/// The bookie, and what is needed to see whether it is still the same.
struct Known {
    /// Holds that one process.
    system: System,
    pid: Pid,
    process: BookieProcess,
    version_looks: u32,
}

impl Finder {
    fn new(conf: Option<PathBuf>) -> Finder {
        Finder {
            conf,
            known: None,
            backoff: Backoff::new(WHOLE_INTERVAL, LONGEST_INTERVAL),
            wait: WHOLE_INTERVAL,
            whole: None,
        }
    }

    fn look(&mut self, Ask { now, hint }: Ask) -> Found {
        if let Some(known) = &mut self.known
            && known.is_there()
        {
            known.seek_version();
            return Ok(Some(known.process.clone()));
        }
        let was_known = self.known.take().is_some();
        if was_known || hint {
            self.backoff.reset();
            self.wait = WHOLE_INTERVAL;
        }
        if let Some((at, found)) = &self.whole
            && now.saturating_sub(*at) < self.wait
        {
            return if was_known { Ok(None) } else { found.clone() };
        }
        self.wait = self.backoff.next_wait(fastrand::f64());
        let found = self.look_at_all();
        let unless_found = match &found {
            Ok(Some(_)) => Ok(None),
            other => other.clone(),
        };
        self.whole = Some((now, unless_found));
        found
    }

    fn look_at_all(&mut self) -> Found {
        let mut system = system()?;
        system.refresh_processes_specifics(ProcessesToUpdate::All, true, command_lines());
        let Some(pid) = choose(&system, self.conf.as_deref())? else {
            return Ok(None);
        };
        // The command lines of all others are not kept.
        drop(system);
        self.known = Known::new(pid)?;
        Ok(self.known.as_mut().map(|known| {
            known.seek_version();
            known.process.clone()
        }))
    }
}

impl Known {
    /// None when it has ended meanwhile.
    fn new(pid: Pid) -> Result<Option<Known>, String> {
        let mut system = system()?;
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, command_lines());
        let Some(process) = system.process(pid).filter(|process| is_bookie(process)) else {
            return Ok(None);
        };
        let process = BookieProcess {
            pid: pid.as_u32(),
            started: started(process),
            version: command_line::version(process.cmd()),
        };
        Ok(Some(Known {
            system,
            pid,
            process,
            version_looks: VERSION_LOOKS,
        }))
    }

    /// By the names of its open files, where the command line does not say it.
    fn seek_version(&mut self) {
        if self.process.version.is_none() && 0 < self.version_looks {
            self.version_looks -= 1;
            self.process.version = version_by_open_files(self.process.pid);
        }
    }

    fn is_there(&mut self) -> bool {
        let only = ProcessesToUpdate::Some(&[self.pid]);
        // A number that is given to another process brings that one's start.
        let nothing = ProcessRefreshKind::nothing().without_tasks();
        self.system.refresh_processes_specifics(only, true, nothing);
        let process = self.system.process(self.pid);
        process.is_some_and(|process| {
            let has_ended = matches!(
                process.status(),
                ProcessStatus::Zombie | ProcessStatus::Dead
            );
            !has_ended && started(process) == self.process.started
        })
    }
}

fn system() -> Result<System, String> {
    System::new().map_err(|error| format!("the machine's processes cannot be read: {error}"))
}

fn command_lines() -> ProcessRefreshKind {
    ProcessRefreshKind::nothing()
        .without_tasks()
        .with_cmd(UpdateKind::OnlyIfNotSet)
}

fn started(process: &Process) -> Timestamp {
    let seconds = i64::try_from(process.start_time()).unwrap_or(i64::MAX);
    Timestamp(seconds.saturating_mul(1000))
}

/// The kernel writes the texts of these links from memory, for the process's own user.
fn version_by_open_files(pid: u32) -> Option<String> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let files = links.take(OPEN_FILES).flatten();
    let mut names = files.filter_map(|link| fs::read_link(link.path()).ok());
    names.find_map(|name| command_line::version_of_jar(&name))
}

fn is_bookie(process: &Process) -> bool {
    command_line::is_bookie(process.cmd())
}

/// The bookie's process among all.
fn choose(system: &System, conf: Option<&Path>) -> Result<Option<Pid>, String> {
    let all = system.processes().values().filter(|p| is_bookie(p));
    let all: Vec<&Process> = all.collect();
    // What starts it and waits for it, such as sudo, has the same words on its own command line.
    let starts_another = |one: &Process| all.iter().any(|p| p.parent() == Some(one.pid()));
    let is_ours = |process: &Process| {
        conf.is_none_or(|conf| command_line::is_started_with(process.cmd(), conf))
    };
    let bookies = all
        .iter()
        .copied()
        .filter(|process| !starts_another(process));
    let (ours, others): (Vec<_>, Vec<_>) = bookies.partition(|process| is_ours(process));
    match &ours[..] {
        [bookie] => Ok(Some(bookie.pid())),
        [] if others.is_empty() => Ok(None),
        [] => Err(format!(
            "{} bookies run here, and none was started with the file that bookie.conf names: {}",
            others.len(),
            names(&others)
        )),
        several => Err(format!(
            "{} processes look like this bookie: {}",
            several.len(),
            names(several)
        )),
    }
}

fn names(processes: &[&Process]) -> String {
    let mut named: Vec<(u32, String)> = processes
        .iter()
        .map(|process| {
            let pid = process.pid().as_u32();
            let conf = command_line::conf(process.cmd());
            let conf = conf.map_or_else(|| "no file".into(), |conf| shown(Path::new(conf)));
            (pid, format!("process {pid} with {conf}"))
        })
        .collect();
    named.sort();
    named.truncate(NAMED);
    let named: Vec<String> = named.into_iter().map(|(_, name)| name).collect();
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Child, Command, Stdio};

    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    use tempfile::TempDir;

    use super::*;

    /// A process with a bookie's command line, which waits for its standard input to end.
    struct Bookie(Child);

    impl Bookie {
        fn start(conf: &Path, jar: &str) -> Bookie {
            Bookie::with_open(conf, jar, Stdio::null())
        }

        fn with_open(conf: &Path, jar: &str, open: Stdio) -> Bookie {
            let child = Command::new("/bin/sh")
                .args(["-c", "read line; :", "-cp", jar])
                .args(["org.apache.bookkeeper.server.Main", "--conf"])
                .arg(conf)
                .stdin(Stdio::piped())
                .stdout(open)
                .spawn();
            Bookie(child.unwrap())
        }

        fn end(mut self) {
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    impl Drop for Bookie {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn after(now: Elapsed) -> Ask {
        Ask { now, hint: false }
    }

    #[test]
    fn the_bookie_with_that_file_is_found_and_followed() {
        let folder = TempDir::new().unwrap();
        let (ours, other) = (folder.path().join("1.conf"), folder.path().join("2.conf"));
        let beside = Bookie::start(&other, "/lib/bookkeeper-server-4.16.6.jar");
        let mut finder = Finder::new(Some(ours.clone()));
        let missing = finder.look(after(Elapsed::ZERO)).unwrap_err();
        assert!(missing.contains("none was started with"), "{missing}");

        let bookie = Bookie::start(&ours, "/lib/a.jar:/lib/bookkeeper-server-4.17.3.jar");
        // Too soon for another look at all.
        assert!(finder.look(after(WHOLE_INTERVAL / 2)).is_err());
        let found = finder.look(after(WHOLE_INTERVAL)).unwrap().unwrap();
        assert_eq!(found.pid, bookie.0.id());
        assert_eq!(found.version.as_deref(), Some("4.17.3"));
        assert!(0 < found.started.0);
        assert_eq!(finder.look(after(WHOLE_INTERVAL)), Ok(Some(found)));

        // Its end is seen at once, and its successor with the next look at all.
        bookie.end();
        assert_eq!(finder.look(after(WHOLE_INTERVAL)), Ok(None));
        let jar = File::create(folder.path().join("bookkeeper-server-4.18.0.jar")).unwrap();
        let successor = Bookie::with_open(&ours, "/lib/*", jar.into());
        let found = finder.look(after(2 * WHOLE_INTERVAL)).unwrap().unwrap();
        assert_eq!(found.pid, successor.0.id());
        assert_eq!(found.version.as_deref(), Some("4.18.0"));

        // Two with one file.
        let twin = Bookie::start(&ours, "/lib/*");
        let both = Finder::new(Some(ours))
            .look(after(Elapsed::ZERO))
            .unwrap_err();
        assert!(both.contains("2 processes"), "{both}");
        for bookie in [beside, successor, twin] {
            bookie.end();
        }
    }

    #[test]
    fn who_is_not_there_is_sought_less_and_less_until_a_hint() {
        let mut finder = Finder::new(Some("/no/such/bk_server.conf".into()));
        for (seconds, hint, looked) in [
            (0, false, 0),
            (9, false, 9),
            (18, false, 9),
            (27, false, 27),
            (36, false, 27),
            (36, true, 36),
            (40, true, 36),
            (45, false, 45),
        ] {
            let now = Duration::from_secs(seconds);
            let _ = finder.look(Ask { now, hint });
            let (at, _) = finder.whole.as_ref().unwrap();
            assert_eq!(at.as_secs(), looked, "at {seconds} s, hint: {hint}");
        }
    }

    /// Nobody has reaped it yet.
    #[test]
    fn a_bookie_that_has_ended_is_not_there() {
        let folder = TempDir::new().unwrap();
        let conf = folder.path().join("bk_server.conf");
        let mut bookie = Bookie::start(&conf, "x.jar");
        let mut finder = Finder::new(Some(conf));
        assert!(finder.look(after(Elapsed::ZERO)).unwrap().is_some());
        bookie.0.kill().unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(bookie.0.id()).unwrap());
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        assert_eq!(finder.look(after(Elapsed::ZERO)), Ok(None));
    }
}
