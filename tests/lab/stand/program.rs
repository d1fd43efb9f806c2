//! The built program as its user has it: a command run to its end, or beside the test.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::bench::Bench;
use crate::harness::run::{outcome, wait_exit};

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) errors: String,
}

/// Runs a command to its end.
pub(crate) fn ended(command: Command, limit: Duration) -> Done {
    let (status, out, errors) =
        outcome(command, limit).unwrap_or_else(|problem| panic!("{problem}"));
    Done {
        code: status.code(),
        out,
        errors,
    }
}

/// The program beside the test; ended when dropped.
pub(crate) struct Beside {
    process: Child,
    out: PathBuf,
    log: PathBuf,
}

impl Beside {
    /// Starts it; its outputs are `NAME.out` and `NAME.log` in the folder of the test.
    pub(crate) fn start(bench: &Bench, name: &str, mut command: Command) -> Beside {
        let path = |end: &str| bench.folder().join(format!("{name}.{end}"));
        let file = |end: &str| fs::File::create(path(end)).expect("the folder is ours");
        let process = command
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("log"))
            .spawn()
            .expect("the program can be started");
        Beside {
            process,
            out: path("out"),
            log: path("log"),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it logged by now.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// It has not ended yet.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// How it ended, if it does in time.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait_exit(&mut self.process, limit)
    }

    /// How it ended by itself.
    pub(crate) fn wait_end(mut self, limit: Duration) -> Done {
        let status = self.wait(limit);
        let status = status.unwrap_or_else(|| panic!("it does not end: {}", self.log()));
        Done {
            code: status.code(),
            out: fs::read_to_string(&self.out).unwrap_or_default(),
            errors: self.log(),
        }
    }

    /// SIGTERM, and how it ended.
    pub(crate) fn stop(self, limit: Duration) -> Done {
        let pid = i32::try_from(self.pid()).expect("process numbers are small");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it runs");
        self.wait_end(limit)
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.kill();
    }
}
