//! The public face of the prober in the agent: what can be asked of it and what it reports. The
//! work is done by a task, `supervisor`; no call here blocks or waits.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::health::ballast::Order;
use crate::health::dir::{DirId, Role};
use crate::health::observation::Observation;
use crate::health::snapshot::Sources;

use super::children::Children;
use super::known::KnownDirs;
use super::supervisor::Supervisor;

/// Requests that may wait for the supervisor: each directory has one look outstanding, and there
/// may be 500; a reload or two on top.
const MAX_COMMANDS: usize = 2048;

/// How to run probers, and for what.
#[derive(Debug, Clone)]
pub struct ProberOptions {
    /// The program: this binary.
    pub program: PathBuf,
    /// More arguments after the hidden subcommand.
    pub args: Vec<OsString>,
    /// Directories to watch.
    pub dirs: Vec<(DirId, WatchedDir)>,
    /// The child locks its pages in memory.
    pub lock_memory: bool,
}

/// A directory to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedDir {
    /// Absolute path as configured.
    pub path: PathBuf,
    /// Which of the bookie's files are in it.
    pub role: Role,
    /// Write no probe file before `current/VERSION` exists.
    pub await_cookie: bool,
    /// Write nothing unless it is a mount point.
    pub require_mount: bool,
    /// Where the path led in an earlier run of the agent; none: resolve it at the first look.
    pub pinned: Option<PathBuf>,
}

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookKind {
    /// Open the directory and ask for its space.
    Space,
    /// Also its cookie and UUID, and remove what dead probes left.
    Full {
        /// And write, sync, read back and compare. By asking for it the caller says that the place
        /// which the last look showed is the right one: the prober writes there and nowhere else,
        /// and a look that finds another place has `probed` false. Before the first look there is
        /// no such place and the caller vouches for the path alone: where an earlier run pinned an
        /// identity, look without a probe first.
        probe: bool,
        /// What to do with the ballast file; done only where a probe might write.
        ballast: Order,
    },
}

/// What the caller hears.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // nearly all reports are of the large one
pub enum Report {
    /// Something was learnt about a directory. `Looked` ends its outstanding look, `InFlight` and
    /// `Mounted` do not.
    Observed {
        /// Which directory.
        dir: DirId,
        /// What.
        observation: Observation,
    },
    /// These sources of observation work for the directory, and these do not; said when that
    /// changes.
    Sources {
        /// Which directory.
        dir: DirId,
        /// As the snapshot has them.
        sources: Sources,
    },
    /// A new child is ready. Looks asked of an earlier one are void: ask again.
    Alive {
        /// Number of the child, from 1.
        child: u64,
    },
    /// The child died or said nothing for five seconds, or none can be started. The next one is
    /// on its way; no look is answered before it says [`Report::Alive`].
    Lost {
        /// What happened.
        reason: String,
        /// It has been silent for five seconds; otherwise it ended or none could be started just
        /// now.
        silent: bool,
        /// Restarts since the start of the agent, this one included.
        restarts: u64,
    },
    /// Something suspicious: the caller should make a full look at once.
    Signal {
        /// Which directory.
        dir: DirId,
        /// What.
        what: String,
    },
}

/// The agent's handle of its prober. Dropping it is [`Prober::stop`].
#[derive(Debug)]
pub struct Prober {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
    task: AbortHandle,
}

/// What the supervisor is told.
#[derive(Debug)]
pub(super) enum Command {
    Look(DirId, LookKind),
    Configure(Vec<(DirId, WatchedDir)>),
    Resolve(DirId),
}

/// What the handle and the supervisor both need.
#[derive(Debug, Default)]
pub(super) struct Shared {
    children: Mutex<Children>,
    pub(super) restarts: AtomicU64,
    /// The child was heard lately.
    pub(super) listens: AtomicBool,
    /// Commands were lost, so some directory waits for an answer that will never come.
    pub(super) overflow: AtomicBool,
}

impl Shared {
    /// Locked only for calls that do not wait.
    pub(super) fn children(&self) -> MutexGuard<'_, Children> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Prober {
    /// Starts a prober and keeps one running until [`Prober::stop`]. Returns at once; the first
    /// thing to come is [`Report::Alive`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(options: ProberOptions, clock: Clock, reports: mpsc::Sender<Report>) -> Prober {
        let (sender, commands) = mpsc::channel(MAX_COMMANDS);
        let shared = Arc::new(Shared::default());
        let mut dirs = KnownDirs::default();
        dirs.adopt(options.dirs.clone());
        let supervisor = Supervisor {
            dirs,
            options,
            clock,
            reports,
            commands,
            shared: Arc::clone(&shared),
        };
        let task = tokio::spawn(supervisor.run());
        Prober {
            commands: sender,
            shared,
            task: task.abort_handle(),
        }
    }

    /// Asks for a look; it ends with [`Observation::Looked`]. Never blocks. The caller asks for
    /// one at a time per directory; for one that is not watched nothing happens.
    pub fn look(&self, dir: DirId, kind: LookKind) {
        self.command(Command::Look(dir, kind));
    }

    /// From now on these directories are watched and no others. Never blocks. What is known about
    /// those that stay is kept.
    pub fn configure(&self, dirs: Vec<(DirId, WatchedDir)>) {
        self.command(Command::Configure(dirs));
    }

    /// Forgets where the directory's path led and what was found there: the next look resolves the
    /// path anew. For a disk that an operator accepted. Never blocks.
    pub fn resolve_again(&self, dir: DirId) {
        self.command(Command::Resolve(dir));
    }

    /// Restarts since the start.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.shared.restarts.load(Ordering::Relaxed)
    }

    /// Children that were killed and have not been able to end so far.
    #[must_use]
    pub fn abandoned(&self) -> u64 {
        self.shared.children().abandoned() as u64
    }

    /// Ends everything and returns at once. A child that is stuck is left behind.
    pub fn stop(&self) {
        self.task.abort();
        let listens = self.shared.listens.load(Ordering::Relaxed);
        self.shared.children().let_go(listens);
    }

    fn command(&self, command: Command) {
        if self.commands.try_send(command).is_err() {
            self.shared.overflow.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop();
    }
}
