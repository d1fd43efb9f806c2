//! How a command ends: the exit codes, declared once, and the failure that carries one of them.
//! Help, manual and documentation take their table from here.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::app::{NotConfigured, StartError};
use crate::config;
use crate::state::StoreError;

/// The exit codes. Their numbers are part of the public contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Ok,
    /// A warning of `check`; any other command failed.
    Warning,
    /// Something is critical; only `check`.
    Critical,
    /// Nobody can say; only `check`.
    Unknown,
    /// The command line makes no sense.
    Usage,
    /// What was read makes no sense.
    Data,
    /// The agent does not answer.
    Unavailable,
    /// An input or output of our own failed.
    Io,
    /// Another process is at it: to be tried again.
    Busy,
    /// Somebody must allow it first.
    NotPermitted,
    /// The configuration makes no sense.
    Config,
}

impl Exit {
    /// All codes in rising order.
    pub const ALL: [Exit; 11] = [
        Exit::Ok,
        Exit::Warning,
        Exit::Critical,
        Exit::Unknown,
        Exit::Usage,
        Exit::Data,
        Exit::Unavailable,
        Exit::Io,
        Exit::Busy,
        Exit::NotPermitted,
        Exit::Config,
    ];

    /// Any command but `check` failed; the same number as a warning of `check`.
    pub const FAILED: Exit = Exit::Warning;

    /// The number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Warning => 1,
            Exit::Critical => 2,
            Exit::Unknown => 3,
            Exit::Usage => 64,
            Exit::Data => 65,
            Exit::Unavailable => 69,
            Exit::Io => 74,
            Exit::Busy => 75,
            Exit::NotPermitted => 77,
            Exit::Config => 78,
        }
    }

    /// What the number means, for the table in the help.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Exit::Ok => "ok; check: every directory is writable and below warn",
            Exit::Warning => "check: warning (almost full, slow); other commands: failed",
            Exit::Critical => "check: critical (full, read-only, failed, hung, vanished, replaced)",
            Exit::Unknown => "check: unknown, and with --output nagios every error of its own",
            Exit::Usage => "bad command line",
            Exit::Data => "bad input data",
            Exit::Unavailable => "service not reachable",
            Exit::Io => "I/O error of dirkeeper's own",
            Exit::Busy => "another process has the file: try again",
            Exit::NotPermitted => "not permitted",
            Exit::Config => "bad configuration",
        }
    }

    /// The code that an error gives whose place says nothing more: by what is in its chain.
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Exit {
        for layer in error.chain() {
            if layer.is::<config::Problems>() {
                return Exit::Config;
            }
            if layer.is::<NotConfigured>() {
                return Exit::Usage;
            }
            if let Some(error) = layer.downcast_ref() {
                return Exit::of_start(error);
            }
            if let Some(error) = layer.downcast_ref() {
                return Exit::of_io(error);
            }
        }
        Exit::FAILED
    }

    fn of_start(error: &StartError) -> Exit {
        match error {
            StartError::Token { .. } => Exit::Config,
            StartError::State {
                source: StoreError::NewerVersion { .. },
                ..
            } => Exit::Data,
            StartError::State { .. } => Exit::FAILED,
        }
    }

    /// The code that an error of the input or output of our own gives.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Exit {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Exit::NotPermitted,
            _ => Exit::Io,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// A command that could not do its work: the exit code, the error, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    /// How the process ends.
    pub exit: Exit,
    /// What went wrong.
    pub error: anyhow::Error,
    /// What the user can do, if we know.
    pub remedy: Option<String>,
}

impl Failure {
    /// A failure with that code.
    #[must_use]
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Failure {
        Failure {
            exit,
            error: error.into(),
            remedy: None,
        }
    }

    /// The same with advice.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = Some(remedy.into());
        self
    }

    /// An input or output of our own that failed while doing `what`.
    #[must_use]
    pub fn io(what: impl fmt::Display, error: io::Error) -> Failure {
        let exit = Exit::of_io(&error);
        Failure::new(exit, anyhow::Error::new(error).context(what.to_string()))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        let exit = Exit::of(&error);
        if error.chain().any(|layer| layer.is::<config::Problems>()) {
            return Failure::new(exit, error.context("the configuration cannot be used"));
        }
        let mut starts = error.chain().filter_map(|layer| layer.downcast_ref());
        let remedy = starts.next().map(StartError::remedy);
        let failure = Failure::new(exit, error);
        match remedy {
            Some(remedy) => failure.remedy(remedy),
            None => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_gives_the_code_of_what_is_in_it() {
        let check = |error: anyhow::Error, expected: Exit| {
            let failure = Failure::from(error.context("one layer").context("and one more"));
            assert_eq!(failure.exit, expected);
        };
        check(config::Problems::default().into(), Exit::Config);
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        check(denied.into(), Exit::NotPermitted);
        check(io::Error::other("broken").into(), Exit::Io);
        check(anyhow::anyhow!("something else"), Exit::FAILED);
    }

    #[test]
    fn codes_rise() {
        assert!(Exit::ALL.map(Exit::code).is_sorted());
    }
}
