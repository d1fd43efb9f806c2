//! `reclaim`: gives back the space of ledgers that nothing references. The commands around the room `reclaim`:
//! they open the cluster, show what is found and done, and decide nothing.

pub mod args;
mod cluster;
mod form;
pub(super) mod help;
mod known;
mod mark;
mod office;
mod passes;
mod progress;
mod report;
mod run;
mod same;
mod scan;
mod trim;
mod undo;

use std::io::IsTerminal;

use args::ReclaimCommand;

use super::exit::{Exit, Failure};
use crate::app::{self, Log};
use crate::config::LogLevel;

/// Runs the command.
///
/// # Errors
/// What its exit code says.
pub fn run(command: &ReclaimCommand) -> Result<Exit, Failure> {
    match command {
        ReclaimCommand::Scan(arguments) => scan::scan(arguments),
        ReclaimCommand::Report(arguments) => known::report(arguments),
        ReclaimCommand::Mark(arguments) => mark::mark(arguments),
        ReclaimCommand::Sweep(arguments) => mark::sweep(arguments),
        ReclaimCommand::Undo(arguments) => undo::run(arguments),
        ReclaimCommand::Trim(arguments) => trim::run(arguments),
        ReclaimCommand::Run(arguments) => run::run(arguments),
    }
}

/// Says what is in the way; on a terminal nothing else, for a line of progress is there.
fn log() -> Log {
    app::start_log(match std::io::stderr().is_terminal() {
        true => LogLevel::Warn,
        false => LogLevel::Info,
    })
}
