//! The stages of the test process. The first one looks for privilege and moves into a mount name space
//! of its own. There a keeper starts the worker, which runs the tests, and waits: when the worker
//! ends in whatever way, or a signal asks for the end, the keeper releases and removes all that is left. When the
//! keeper itself is killed, the worker does so.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, geteuid, getpid};

use super::run::{try_command, try_for};
use super::sweep;

/// Says which stage a process is; the first one has none.
pub(crate) const STAGE: &str = "DIRKEEPER_FAULT_STAGE";
/// The folder below which everything happens.
const ROOT: &str = "DIRKEEPER_FAULT_ROOT";

static ENDING: AtomicBool = AtomicBool::new(false);

/// What a process of this program is.
pub(crate) enum Stage {
    /// Privilege is missing, for this reason.
    Unprivileged(String),
    /// Runs the tests, everything below this folder.
    Worker(PathBuf),
}

/// Finds out which stage this is. The first stage and the keeper do not return, but for a reason.
/// The tests get these name spaces, as options of `unshare`.
pub(crate) fn enter(spaces: &[&str]) -> Stage {
    match std::env::var(STAGE).as_deref() {
        Ok("worker") => {
            let root = std::env::var_os(ROOT).expect("the keeper names the folder");
            let root = PathBuf::from(root);
            SigSet::all()
                .thread_unblock()
                .expect("signals can be unblocked");
            outlive_the_keeper(root.clone());
            Stage::Worker(root)
        }
        Ok("keeper") => keep(),
        _ => Stage::Unprivileged(move_to_own(spaces)),
    }
}

/// When the keeper is killed, the worker cleans in its place.
fn outlive_the_keeper(root: PathBuf) {
    let killed = SigSet::from_iter([Signal::SIGUSR1]);
    killed.thread_block().expect("signals can be blocked");
    let _ = prctl::set_pdeathsig(Signal::SIGUSR1);
    std::thread::spawn(move || {
        killed.wait().expect("signals can be waited for");
        ENDING.store(true, Ordering::SeqCst);
        // The tests' own threads wait for their children.
        clean(&root, || {});
        end(101);
    });
}

/// No further test is to be started.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::SeqCst)
}

fn end(code: i32) -> ! {
    #[allow(clippy::disallowed_methods)] // a program of its own, not part of the agent
    std::process::exit(code)
}

/// Becomes the keeper, in name spaces of its own; returns why it cannot.
fn move_to_own(spaces: &[&str]) -> String {
    if !geteuid().is_root() {
        return "needs root".to_owned();
    }
    let unshare = |program: &OsString| {
        let mut command = Command::new("unshare");
        command
            .args(spaces)
            .args(["--propagation", "private", "--"])
            .arg(program);
        command
    };
    if let Err(problem) = try_command(unshare(&"true".into()), Duration::from_secs(10)) {
        return format!("needs root with its own {spaces:?}: {problem}");
    }
    let own = std::env::current_exe().expect("a running program has a path");
    let mut keeper = unshare(&own.into_os_string());
    keeper
        .args(std::env::args_os().skip(1))
        .env(STAGE, "keeper");
    format!("cannot start unshare: {}", keeper.exec())
}

fn keep() -> ! {
    let signals = SigSet::from_iter([
        Signal::SIGCHLD,
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
    ]);
    signals.thread_block().expect("signals can be blocked");
    // Orphans of the worker become children of the keeper, so that none is lost from sight.
    prctl::set_child_subreaper(true).expect("a process may be a reaper");
    let root = make_root();
    let mut worker = Command::new(std::env::current_exe().expect("a running program has a path"));
    worker
        .args(std::env::args_os().skip(1))
        .env(STAGE, "worker")
        .env(ROOT, &root);
    #[allow(clippy::zombie_processes)] // `reap` waits for it, and for what it leaves
    let worker = worker.spawn().expect("this program can be started again");
    let worker = Pid::from_raw(i32::try_from(worker.id()).expect("process numbers are small"));
    let code = loop {
        match signals.wait().expect("signals can be waited for") {
            Signal::SIGCHLD => {
                if let Some(code) = reap(worker) {
                    break code;
                }
            }
            signal => {
                eprintln!("{signal}: releasing disks and ending processes");
                break 128 + signal as i32;
            }
        }
    };
    let left = clean(&root, || {
        reap(getpid());
    });
    let word = if code > 128 { "removed" } else { "left behind" };
    for what in &left {
        eprintln!("{word}: {what}");
    }
    end(if code == 0 && !left.is_empty() {
        1
    } else {
        code
    })
}

/// A tmpfs for images, mount points and state directories: fast, and gone with the name space.
fn make_root() -> PathBuf {
    let root = std::env::temp_dir().join(format!("dirkeeper-faults-{}", getpid()));
    fs::create_dir(&root).expect("the temporary folder can be written");
    let size = Some("size=16g,mode=755");
    mount(Some("faults"), &root, Some("tmpfs"), MsFlags::empty(), size).expect("tmpfs is there");
    // An agent in mounts of its own sees what the tests unmount, and holds none of their disks.
    let none = None::<&str>;
    mount(none, &root, none, MsFlags::MS_SHARED, none).expect("it is mounted");
    // Programs run as another user need to pass.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("it is ours");
    root
}

/// Takes in children that ended; the worker's exit code if it is among them.
fn reap(worker: Pid) -> Option<i32> {
    let mut code = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, status)) if pid == worker => code = Some(status),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == worker => {
                code = Some(128 + signal as i32);
            }
            Ok(WaitStatus::StillAlive) | Err(_) => return code,
            Ok(_) => {}
        }
    }
}

/// Ends every process that the tests started, takes away what they made, and says what there was.
fn clean(root: &Path, reap: impl Fn()) -> Vec<String> {
    let mut left = Vec::new();
    let gone = || {
        reap();
        sweep::descendants(getpid()).is_empty().then_some(())
    };
    // Children of stopped agents may be on their way out.
    if try_for(Duration::from_secs(2), gone).is_none() {
        for pid in sweep::descendants(getpid()) {
            left.push(format!("process {pid}"));
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
    let below: Vec<_> = fs::read_dir(root).into_iter().flatten().flatten().collect();
    for entry in below {
        left.extend(sweep::sweep(&entry.path()));
    }
    if try_for(Duration::from_secs(5), gone).is_none() {
        left.push(format!(
            "processes {:?} do not end",
            sweep::descendants(getpid())
        ));
    }
    if umount2(root, MntFlags::empty()).is_err() {
        left.push("something is still open".to_owned());
        let _ = umount2(root, MntFlags::MNT_DETACH);
    }
    let _ = fs::remove_dir(root);
    left
}
