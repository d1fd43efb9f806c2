//! Hooks: operators' executables that are run for events. The contract is that of the interface's
//! page; what it leaves open is decided here and written in the documentation of the items below.
//! Reading order: this file, `environment` (what a hook is told), `process` (one run). When and
//! how often is decided by the `courier`.

mod environment;
mod process;

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use super::courier::Run;
use crate::clock::Clock;
use crate::document::Host;
use crate::health::event::{Event, EventKind};

pub use super::courier::Verdict;
pub(super) use environment::Notice;
pub(super) use process::{Patience, Threads};

/// Exit code by which a hook asks to be run again later (`EX_TEMPFAIL`).
const TEMPORARY_FAILURE: i32 = 75;

/// A hook, already validated.
///
/// The command is executed directly, in `/`, in a process group of its own, with the event as one
/// line of JSON on standard input and as variables `DIRKEEPER_…`; these are always set, and empty
/// where there is nothing to say. The rest of the environment is the agent's, without the variables
/// by which a service manager addresses the agent and without other `DIRKEEPER_` ones. Processes
/// that the command leaves behind may stay, but what they write half a second after it ended is not
/// read any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookOptions {
    /// Name in configuration, views, metrics and logs.
    pub name: String,
    /// Which events it wants; empty for all.
    pub events: Vec<EventKind>,
    /// Program and arguments. A program without a slash is looked for in the agent's `PATH`.
    pub command: Vec<OsString>,
    /// Time for one run, its start included.
    pub timeout: Duration,
}

impl HookOptions {
    /// The program, for messages.
    fn program(&self) -> String {
        let program = self.command.first().map(OsString::as_os_str);
        program.unwrap_or_default().display().to_string()
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// Its time was over: its process group was told to end, and then killed.
    TimedOut,
    /// It could not be started, or not be followed to its end.
    NotRun {
        /// Why.
        reason: String,
        /// Later it may be possible.
        temporary: bool,
    },
}

impl End {
    fn not_run(what: &str, error: &io::Error) -> End {
        // Short of something, being replaced just now, or on a disk that fails: this may pass. A
        // command that is missing, not executable or not a program stays so until somebody acts.
        let temporary = [
            Errno::EAGAIN,
            Errno::EMFILE,
            Errno::ENFILE,
            Errno::ENOMEM,
            Errno::ETXTBSY,
            Errno::EIO,
            Errno::ESTALE,
            Errno::ENOTCONN,
        ];
        let errno = error.raw_os_error().map(Errno::from_raw);
        End::NotRun {
            reason: format!("{what}: {error}"),
            temporary: errno.is_some_and(|errno| temporary.contains(&errno)),
        }
    }

    /// What follows from it.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self {
            End::Exited(0) => Verdict::Delivered,
            End::Exited(TEMPORARY_FAILURE) | End::TimedOut => Verdict::Again,
            End::NotRun { temporary, .. } if *temporary => Verdict::Again,
            End::Exited(_) | End::Signalled(_) | End::NotRun { .. } => Verdict::Failed,
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Exited(code) => write!(f, "exit code {code}"),
            End::Signalled(signal) => write!(f, "killed by signal {signal}"),
            End::TimedOut => f.write_str("timed out"),
            End::NotRun { reason, .. } => write!(f, "could not be run: {reason}"),
        }
    }
}

/// One run of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// From the start to the end.
    pub duration: Duration,
    /// Standard output and standard error as they came, at most 64 KiB; what is not UTF-8 is
    /// replaced.
    pub output: String,
    /// Bytes of output that were thrown away.
    pub output_dropped: u64,
}

/// Runs a hook for an event and waits for its end: at most its time-out and 6 s. For
/// `dirkeeper hook test`; nothing is stored, counted or tried again.
#[must_use]
pub fn run_once(options: &HookOptions, event: &Event, host: &Host) -> Outcome {
    let notice = Notice::new(event, host);
    let (patience, threads) = (Patience::default(), Arc::default());
    process::run(options, &notice, &patience, &threads, &Clock::start())
}

/// Runs a hook for an event as the courier wants it. Returns at the latest after its time-out and
/// the patience.
pub(super) fn run(
    options: &HookOptions,
    notice: &Notice,
    patience: &Patience,
    threads: &Threads,
    clock: &Clock,
) -> Run {
    let outcome = process::run(options, notice, patience, threads, clock);
    Run {
        verdict: outcome.end.verdict(),
        end: outcome.end.to_string(),
        wait: None,
        duration: outcome.duration,
        output: outcome.output,
        output_dropped: outcome.output_dropped,
    }
}
