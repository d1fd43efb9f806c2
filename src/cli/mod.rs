//! The subcommands. Parses the command line, runs one command, says how it ended. The result goes to
//! standard output and nothing else does; errors go to standard error. Composition of the agent is
//! `app`'s.
#![allow(clippy::print_stderr)] // remarks beside the result

pub mod accept;
pub mod args;
pub mod check;
pub mod drain;
pub mod events;
pub mod exit;
pub mod explain;
pub mod greeting;
mod help;
pub mod hook;
pub mod manual;
pub mod mode;
pub mod nagios;
pub mod reclaim;
pub mod remote;
pub mod run;
pub mod settings;
pub mod simulate;
pub mod simulation;
pub mod status;
pub mod table;
pub mod terminal;
mod textfile;
mod watch;

use std::ffi::OsString;
use std::future::Future;

use clap::Parser;
use clap::error::ErrorKind;

use crate::document::Host;

pub use args::{Arguments, Command};
pub use exit::{Exit, Failure};

/// Runs the command that `arguments` name, the program's own name first, and says how it ended.
/// What went wrong was already printed.
#[must_use]
pub fn main(arguments: &[OsString]) -> Exit {
    let parsed = match Arguments::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error, arguments),
    };
    match run(parsed.command) {
        Ok(exit) => exit,
        Err(failure) => {
            if failure.exit != Exit::Ok {
                crate::report::print(failure.error.as_ref(), failure.remedy.as_deref());
            }
            failure.exit
        }
    }
}

/// Prints what the parser says: help and version are results, everything else is a bad command line.
fn refuse(error: &clap::Error, arguments: &[OsString]) -> Exit {
    let is_result = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if !is_result && is_nagios(arguments) {
        let text = error.render().to_string();
        let sentence = text.lines().next().unwrap_or_default();
        let sentence = sentence.strip_prefix("error: ").unwrap_or(sentence);
        let _ = terminal::print(&nagios::failure(&format!("bad command line: {sentence}")));
        return Exit::Unknown;
    }
    // Nobody reading is no reason to fail once more.
    let _ = error.print();
    if is_result { Exit::Ok } else { Exit::Usage }
}

/// Whether a command line that cannot be parsed meant `check --output nagios`: then even this error
/// has the form that its caller reads.
fn is_nagios(arguments: &[OsString]) -> bool {
    let is = |argument: &OsString, text: &str| argument == text;
    let form = arguments
        .windows(2)
        .any(|pair| is(&pair[0], "--output") && is(&pair[1], "nagios"))
        || arguments.iter().any(|one| is(one, "--output=nagios"));
    form && arguments.get(1).is_some_and(|one| is(one, "check"))
}

fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(arguments) => run::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Events(arguments) => events::run(&arguments),
        Command::Mode(command) => mode::run(command),
        Command::Accept(arguments) => accept::run(arguments),
        Command::Config(command) => settings::run(command),
        Command::Hook(command) => hook::run(command),
        Command::Simulate(arguments) => simulation::run(&arguments),
        Command::Reclaim(command) => reclaim::run(&command),
        Command::Drain(command) => drain::run(&command),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man => manual::man(),
    }
}

/// Where this command runs; no bookie is asked.
fn here() -> Host {
    Host {
        host: crate::app::host_name(),
        bookie_id: None,
    }
}

/// Runs a future on a runtime of this thread alone.
fn block_on<T, E: Into<Failure>>(future: impl Future<Output = Result<T, E>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start a runtime", error))?;
    let result = runtime.block_on(future);
    // A name that is being looked up may wait for a dead disk; nobody waits for it.
    runtime.shutdown_background();
    result.map_err(Into::into)
}
