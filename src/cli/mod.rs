//! The subcommands. Parses the command line, runs one command, says how it ended. The result goes to
//! standard output and nothing else does; errors go to standard error. Composition of the agent is
//! `app`'s.
#![allow(clippy::print_stdout, clippy::print_stderr)]

pub mod args;
pub mod exit;
mod help;
pub mod simulate;

use std::ffi::OsString;

use clap::Parser;
use clap::error::ErrorKind;

pub use args::{Arguments, Command};
pub use exit::{Exit, Failure};

/// Runs the command that `arguments` name, the program's own name first, and says how it ended.
/// What went wrong was already printed.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> Exit {
    let parsed = match Arguments::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error),
    };
    match run(parsed.command) {
        Ok(exit) => exit,
        Err(failure) => {
            crate::report::print(failure.error.as_ref(), failure.remedy.as_deref());
            failure.exit
        }
    }
}

/// Prints what the parser says: help and version are results, everything else is a bad command line.
fn refuse(error: &clap::Error) -> Exit {
    // Nobody reading is no reason to fail once more.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Ok,
        _ => Exit::Usage,
    }
}

fn run(command: Command) -> Result<Exit, Failure> {
    let _ = command;
    Ok(Exit::Ok)
}
