//! The prober's processes: the one that serves, and those that were killed and cannot end because a
//! disk holds them in the kernel. Nothing here waits for a process.

use std::collections::BTreeSet;
use std::process::{Child, ExitStatus};
use std::{fs, io, thread};

use tokio::sync::oneshot;

use crate::child::{self, Spawned};
use crate::health::dir::DirId;
use crate::prober;

use super::process::ProberOptions;

/// From so many stuck children on, what got them stuck is not asked again. Each costs the memory
/// of a process and a thread in the kernel; three are enough to tell bad luck from a dead disk.
pub(super) const MAX_ABANDONED: usize = 3;

/// All processes that were started and have not been seen to end.
#[derive(Debug, Default)]
pub(super) struct Children {
    serving: Option<Child>,
    abandoned: Vec<Abandoned>,
}

#[derive(Debug)]
struct Abandoned {
    process: Child,
    /// Directories whose looks it could not finish.
    stuck: BTreeSet<DirId>,
}

/// What became of the child that serves.
#[derive(Debug)]
pub(super) enum Ended {
    NoChild,
    Not,
    With(ExitStatus),
}

impl Children {
    /// This one serves now.
    pub(super) fn serve(&mut self, process: Child) {
        self.serving = Some(process);
    }

    /// Kills the one that serves. It has not ended yet when this returns: see [`Children::ended`].
    pub(super) fn kill(&mut self) {
        if let Some(process) = &mut self.serving {
            let _ = process.kill();
        }
    }

    /// Whether the one that serves has ended; if so it is forgotten.
    pub(super) fn ended(&mut self) -> Ended {
        let Some(process) = &mut self.serving else {
            return Ended::NoChild;
        };
        match process.try_wait() {
            Ok(Some(status)) => {
                self.serving = None;
                Ended::With(status)
            }
            _ => Ended::Not,
        }
    }

    /// Leaves the one that serves behind.
    pub(super) fn abandon(&mut self, stuck: BTreeSet<DirId>) {
        if let Some(process) = self.serving.take() {
            self.abandoned.push(Abandoned { process, stuck });
        }
    }

    /// Forgets abandoned ones that have ended after all.
    pub(super) fn reap(&mut self) {
        self.abandoned
            .retain_mut(|child| !matches!(child.process.try_wait(), Ok(Some(_))));
    }

    pub(super) fn abandoned(&self) -> usize {
        self.abandoned.len()
    }

    /// This directory got a child stuck, and there are too many of those.
    pub(super) fn holds(&self, dir: DirId) -> bool {
        MAX_ABANDONED <= self.abandoned.len()
            && self
                .abandoned
                .iter()
                .any(|child| child.stuck.contains(&dir))
    }

    /// The main thread of the one that serves is gone while another thread keeps the process, and
    /// with it our pipes, from ending.
    pub(super) fn is_headless(&self) -> bool {
        let Some(process) = &self.serving else {
            return false;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", process.id())) else {
            return false;
        };
        // The name before the state is in parentheses and may hold anything.
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        state.starts_with(['Z', 'X'])
    }

    /// Lets everything go, at once. The one that serves ends by itself when its pipe is closed; one
    /// that does not listen is killed.
    pub(super) fn let_go(&mut self, listens: bool) {
        if !listens {
            self.kill();
        }
        let serving = self.serving.take();
        let abandoned = self.abandoned.drain(..).map(|child| child.process);
        let rest: Vec<Child> = serving.into_iter().chain(abandoned).collect();
        if rest.is_empty() {
            return;
        }
        // Collects what ends while this process goes on. Never waited for.
        let _ = thread::Builder::new().name("reaper".into()).spawn(move || {
            for mut process in rest {
                let _ = process.wait();
            }
        });
    }
}

/// Starts a child from a thread of its own, because a dead disk under the program may keep that
/// thread for ever. The receiver fails when the system gives us no thread.
pub(super) fn start(options: &ProberOptions) -> oneshot::Receiver<io::Result<Spawned>> {
    let (sender, receiver) = oneshot::channel();
    let (program, arguments) = (options.program.clone(), options.args.clone());
    let _ = thread::Builder::new().name("spawn".into()).spawn(move || {
        let spawned = child::spawn(&program, prober::KIND, &arguments);
        // Nobody waits for it any more: the agent was stopped.
        if let Err(Ok(mut unwanted)) = sender.send(spawned) {
            let _ = unwanted.process.kill();
            let _ = unwanted.process.wait();
        }
    });
    receiver
}
