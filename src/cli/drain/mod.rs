//! `drain`: moves everything off running bookies. The commands around the room `drain`: they open the cluster, show what is
//! found and done, and decide nothing.

pub mod args;
mod cluster;
mod end;
mod hand;
pub(super) mod help;
mod plan;
mod run;
mod start;
mod status;

use std::io::IsTerminal;

use args::DrainCommand;

use super::exit::{Exit, Failure};
use crate::app::{self, Log};
use crate::config::LogLevel;

/// Runs the command.
///
/// # Errors
/// What its exit code says.
pub fn run(command: &DrainCommand) -> Result<Exit, Failure> {
    match command {
        DrainCommand::Plan(arguments) => plan::plan(arguments),
        DrainCommand::Start(arguments) => start::start(arguments),
        DrainCommand::Run(arguments) => run::run(arguments),
        DrainCommand::Status(arguments) => status::status(arguments),
        DrainCommand::Set(arguments) => status::set(arguments),
        DrainCommand::Cancel(arguments) => end::cancel(arguments),
        DrainCommand::Finish(arguments) => end::finish(arguments),
    }
}

/// Says what is in the way; on a terminal nothing else, for a line of progress is there.
fn log() -> Log {
    app::start_log(match std::io::stderr().is_terminal() {
        true => LogLevel::Warn,
        false => LogLevel::Info,
    })
}
