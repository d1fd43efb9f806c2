//! The library's face for Rust servers: a [`Monitor`] that watches the server's own directories and
//! tells a [`LedgerDirsListener`], with BookKeeper's names, and a [`ModeSwitch`], what they allow.
//!
//! ```no_run
//! use dirkeeper::embed::{Monitor, become_child_if_asked};
//! use dirkeeper::health::dir::Role;
//! use dirkeeper::mode::MemorySwitch;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // First of all: the monitor starts this very program again as the child that touches disks.
//! become_child_if_asked();
//! let mode = MemorySwitch::new();
//! let monitor = Monitor::builder()
//!     .dir(Role::Journal, "/data/journal")
//!     .dir(Role::Ledger, "/data/ledgers")
//!     .mode_switch(mode.clone())
//!     .start()?;
//! // … before taking a write:
//! let writable = mode.now().mode;
//! # let _ = writable;
//! monitor.stop();
//! # Ok(()) }
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc as channel};
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::document::{Host, shown};
use crate::health::dir::{Dir, ProbePolicy, Role, Thresholds};
use crate::health::event::{Event, EventKind};
use crate::health::moment::Elapsed;
use crate::health::policy::Policy;
use crate::health::snapshot::Snapshot;
use crate::listener::{Dispatcher, Listener};
use crate::mode::reconcile::{Outcome, Wanted};
use crate::mode::{ModeSwitch, Reconciler};
use crate::monitor::{self, ACTION_QUEUE, Action, MonitorOptions};
use crate::probe::{Prober, ProberOptions};

/// Listens to a [`Monitor`]. The first nine methods are those of BookKeeper's
/// `LedgerDirsListener`; `event` gets everything, these included. Each has an empty default.
///
/// Called on a thread of its own: it may block or panic without delaying the monitor. Events that
/// wait too long are merged into the newest of their directory.
#[allow(unused_variables)]
pub trait LedgerDirsListener: Send {
    /// The directory fails (also: it is read-only, hung, vanished or replaced; see `event`).
    fn disk_failed(&mut self, dir: &Path) {}
    /// It is over the warn threshold.
    fn disk_almost_full(&mut self, dir: &Path) {}
    /// It is over the full threshold.
    fn disk_full(&mut self, dir: &Path) {}
    /// A full directory can be written again and is below warn.
    fn disk_writable(&mut self, dir: &Path) {}
    /// A full directory can be written again but is over warn.
    fn disk_just_writable(&mut self, dir: &Path) {}
    /// No directory of a role is left that can be written.
    fn all_disks_full(&mut self, high_priority_writes_allowed: bool) {}
    /// No directory is full or unusable any more.
    fn all_disks_writable(&mut self) {}
    /// The first directory became full.
    fn any_disk_full(&mut self, high_priority_writes_allowed: bool) {}
    /// The monitor cannot do its work any more.
    fn fatal_error(&mut self) {}
    /// Every event, before the method of its name is called.
    fn event(&mut self, event: &Event) {}
}

/// Turns this process into a child of a [`Monitor`] when it was started as one, and returns only
/// when it was not. Call it first in `main`, before any thread is started or file opened.
pub fn become_child_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == crate::child::CHILD_ARGUMENT)
        && arguments
            .next()
            .is_some_and(|kind| kind == crate::prober::KIND)
    {
        let ended = crate::prober::main();
        crate::shutdown::end_child(ended == std::process::ExitCode::SUCCESS);
    }
}

/// Why a monitor was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is nothing to watch.
    #[error("no directory was given")]
    NoDirs,
    /// A path that depends on the working directory.
    #[error("{} is not an absolute path", shown(.0))]
    Relative(PathBuf),
    /// A directory was given twice.
    #[error("{} was given twice", shown(.0))]
    Twice(PathBuf),
    /// The threads or the runtime could not be started.
    #[error("cannot start the monitor's threads")]
    Threads(#[source] io::Error),
}

/// Collects what to watch and whom to tell.
#[derive(Default)]
pub struct Builder {
    dirs: Vec<Dir>,
    thresholds: Thresholds,
    probe: ProbePolicy,
    policy: Policy,
    listeners: Vec<Listener>,
    switch: Option<Box<dyn ModeSwitch>>,
    program: Option<PathBuf>,
}

impl Builder {
    /// Watches this directory with the present thresholds and probe limits.
    #[must_use]
    pub fn dir(mut self, role: Role, path: impl Into<PathBuf>) -> Builder {
        self.dirs.push(Dir {
            path: path.into(),
            role,
            thresholds: self.thresholds,
            probe: self.probe,
            require_mount: false,
            root_ok: false,
            await_cookie: false,
            ballast: 0,
        });
        self
    }

    /// Thresholds of the directories that are added from now on.
    #[must_use]
    pub fn thresholds(mut self, thresholds: Thresholds) -> Builder {
        self.thresholds = thresholds;
        self
    }

    /// Probe limits of the directories that are added from now on.
    #[must_use]
    pub fn probe(mut self, probe: ProbePolicy) -> Builder {
        self.probe = probe;
        self
    }

    /// How directories count for the mode.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Builder {
        self.policy = policy;
        self
    }

    /// Tells this listener; several may be given.
    #[must_use]
    pub fn listener(mut self, listener: impl LedgerDirsListener + 'static) -> Builder {
        let name = format!("listener-{}", self.listeners.len() + 1);
        self.listeners.push(Listener::Callback {
            name,
            events: Vec::new(),
            call: adapt(listener),
        });
        self
    }

    /// Keeps this switch in the mode that the disks allow.
    #[must_use]
    pub fn mode_switch(mut self, switch: impl ModeSwitch + 'static) -> Builder {
        self.switch = Some(Box::new(switch));
        self
    }

    /// The program to start as the prober: one that calls [`become_child_if_asked`]. This very
    /// program unless said otherwise.
    #[must_use]
    pub fn child_program(mut self, program: impl Into<PathBuf>) -> Builder {
        self.program = Some(program.into());
        self
    }

    /// Starts to watch, on threads of its own.
    ///
    /// # Errors
    /// Nothing to watch, a relative path, a path given twice, or no thread to be had.
    pub fn start(self) -> Result<Monitor, StartError> {
        if self.dirs.is_empty() {
            return Err(StartError::NoDirs);
        }
        for (place, dir) in self.dirs.iter().enumerate() {
            if !dir.path.is_absolute() {
                return Err(StartError::Relative(dir.path.clone()));
            }
            if self.dirs[..place]
                .iter()
                .any(|other| other.path == dir.path)
            {
                return Err(StartError::Twice(dir.path.clone()));
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let (ready, started) = channel::sync_channel(1);
        let (actions, action_queue) = mpsc::channel(ACTION_QUEUE);
        // Weak, so that the watch ends when the handle is dropped.
        let to_monitor = actions.downgrade();
        let thread = thread::Builder::new()
            .name("dirkeeper".to_owned())
            .spawn(move || {
                let run = run(self, to_monitor, action_queue, &ready);
                runtime.block_on(run);
                // A thread of the runtime that is stuck must not be waited for.
                runtime.shutdown_background();
            })
            .map_err(StartError::Threads)?;
        let snapshots = started
            .recv()
            .map_err(|_| StartError::Threads(io::Error::other("the monitor's thread ended")))?
            .map_err(StartError::Threads)?;
        Ok(Monitor {
            actions,
            snapshots,
            thread,
        })
    }
}

/// A running monitor. Dropping it ends the watch as well.
#[derive(Debug)]
pub struct Monitor {
    actions: mpsc::Sender<Action>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    thread: thread::JoinHandle<()>,
}

impl Monitor {
    /// What to watch and whom to tell.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The newest picture. Never blocks and never touches a disk.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshots.borrow())
    }

    /// The pictures as they come, for `async` programs.
    #[must_use]
    pub fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    /// Asks for a full look at every directory now.
    pub fn probe_now(&self) {
        // A full queue means that looks are under way anyway.
        let _ = self.actions.try_send(Action::Probe(None));
    }

    /// Takes the disk that is at this path now as the right one, after `diskReplaced`; does nothing
    /// for a directory that is not replaced. False when the monitor is too busy to hear it: ask
    /// again.
    pub fn accept(&self, path: impl Into<PathBuf>) -> bool {
        self.actions.try_send(Action::Accept(path.into())).is_ok()
    }

    /// Ends the watch; waits for the monitor's thread, which waits for no disk and for listeners
    /// at most a second.
    pub fn stop(self) {
        // The end of the queue ends the monitor, after what is in the queue.
        drop(self.actions);
        let _ = self.thread.join();
    }
}

/// The monitor's thread.
async fn run(
    builder: Builder,
    actions: mpsc::WeakSender<Action>,
    action_queue: mpsc::Receiver<Action>,
    ready: &channel::SyncSender<io::Result<watch::Receiver<Arc<Snapshot>>>>,
) {
    let clock = Clock::start();
    let program = match builder.program.map_or_else(crate::child::own_program, Ok) {
        Ok(program) => program,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let (reports, report_queue) = mpsc::channel(ACTION_QUEUE);
    let prober_options = ProberOptions {
        program,
        args: Vec::new(),
        dirs: Vec::new(),
        lock_memory: false,
    };
    let prober = Prober::start(prober_options, clock.clone(), reports);
    let host = Host {
        host: nix::unistd::gethostname().map_or_else(
            |_| "localhost".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
        bookie_id: None,
    };
    let pending = std::collections::BTreeMap::new();
    let dispatcher = Dispatcher::start(builder.listeners, None, pending, host, clock.clone());
    let publisher = dispatcher.clone();
    let options = MonitorOptions {
        dirs: builder.dirs,
        policy: builder.policy,
        pins: Box::new(|_| None),
        keep_pin: Box::new(|_, _| {}),
        publish: Box::new(move |event| publisher.dispatch(event)),
        last_seq: Some(0),
        look_only: false,
    };
    let (monitor, snapshots) = monitor::Monitor::new(options, prober, clock);
    if let Some(switch) = builder.switch
        && let Err(error) = reconcile(switch, actions, snapshots.clone())
    {
        return drop(ready.send(Err(error)));
    }
    if ready.send(Ok(snapshots)).is_ok() {
        monitor.run(action_queue, report_queue).await;
    }
    dispatcher.stop().await;
}

/// How often the wanted mode is said again when nothing changes: levels heal, edges do not. A switch
/// that is asked each second and is silent for so long is a problem.
const SAY_AGAIN: Duration = Duration::from_secs(5);

/// Keeps a switch in the wanted mode and tells the monitor what it shows.
pub(crate) fn reconcile(
    switch: Box<dyn ModeSwitch>,
    actions: mpsc::WeakSender<Action>,
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
) -> io::Result<()> {
    let to_monitor = actions.clone();
    let turns = Arc::new(AtomicU64::new(0));
    let turned = Arc::clone(&turns);
    let report = move |outcome: Outcome| {
        turned.fetch_add(1, Ordering::Relaxed);
        if let Some(actions) = to_monitor.upgrade() {
            // A full queue loses one of many equal reports; the next follows in a second.
            let _ = actions.try_send(Action::ModeObserved(outcome.observed));
            let _ = actions.try_send(Action::Problem("mode", outcome.problem));
        }
    };
    let reconciler = Reconciler::start(switch, report)?;
    tokio::spawn(async move {
        let mut said = Wanted::default();
        let mut silence = Silence::default();
        loop {
            let snapshot = Arc::clone(&snapshots.borrow_and_update());
            let wanted = wanted_now(&snapshot);
            let turns = turns.load(Ordering::Relaxed);
            if let Some(problem) = silence.after(snapshot.elapsed, turns)
                && let Some(actions) = actions.upgrade()
            {
                let _ = actions.try_send(Action::Problem("mode", Some(problem)));
            }
            if wanted != said && reconciler.want(wanted.clone()) {
                said = wanted;
            }
            let changed = snapshots.changed();
            match tokio::time::timeout(SAY_AGAIN, changed).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => said = Wanted::default(),
            }
        }
    });
    Ok(())
}

/// How long a switch has not ended a turn: it may block for ever, and that must not go unseen.
#[derive(Default)]
struct Silence {
    turns: u64,
    since: Option<Elapsed>,
}

impl Silence {
    fn after(&mut self, now: Elapsed, turns: u64) -> Option<String> {
        if turns != self.turns {
            (self.turns, self.since) = (turns, None);
        }
        let silent = now.saturating_sub(*self.since.get_or_insert(now));
        let seconds = silent.as_secs();
        (SAY_AGAIN <= silent).then(|| format!("the mode switch has not answered for {seconds} s"))
    }
}

fn wanted_now(snapshot: &Snapshot) -> Wanted {
    Wanted {
        mode: snapshot.mode.wanted,
        reason: snapshot.mode.reason.clone(),
        high_priority_writes: snapshot.mode.high_priority_writes,
    }
}

/// Calls the methods of BookKeeper's names.
fn adapt(mut listener: impl LedgerDirsListener + 'static) -> crate::listener::Callback {
    Box::new(move |event| {
        listener.event(event);
        let dir = event.dir.as_deref().unwrap_or(Path::new(""));
        let high_priority = event.node.high_priority_writes;
        match event.kind {
            EventKind::DiskFailed
            | EventKind::DiskReadOnly
            | EventKind::DiskHung
            | EventKind::DiskVanished
            | EventKind::DiskReplaced => listener.disk_failed(dir),
            EventKind::DiskAlmostFull => listener.disk_almost_full(dir),
            EventKind::DiskFull => listener.disk_full(dir),
            EventKind::DiskWritable => listener.disk_writable(dir),
            EventKind::DiskJustWritable => listener.disk_just_writable(dir),
            EventKind::AllDisksFull => listener.all_disks_full(high_priority),
            EventKind::AllDisksWritable => listener.all_disks_writable(),
            EventKind::AnyDiskFull => listener.any_disk_full(high_priority),
            EventKind::FatalError => listener.fatal_error(),
            _ => {}
        }
    })
}
