//! The built program as its user has it: a command run to its end, or beside the test.

use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

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
}

impl Beside {
    /// Starts it; its outputs are `NAME.out` and `NAME.log` in the folder of the test.
    pub(crate) fn start(bench: &Bench, name: &str, mut command: Command) -> Beside {
        let file = |end: &str| {
            let path = bench.folder().join(format!("{name}.{end}"));
            fs::File::create(path).expect("the folder is ours")
        };
        let process = command
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("log"))
            .spawn()
            .expect("the program can be started");
        Beside { process }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How it ended, if it does in time.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait_exit(&mut self.process, limit)
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
