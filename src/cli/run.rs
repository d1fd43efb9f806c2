//! `run`: the agent, composed by `app`.

use super::args::RunArguments;
use super::block_on;
use super::exit::{Exit, Failure};
use crate::app;

/// Runs the agent until it is told to stop.
///
/// # Errors
/// The configuration is not valid, or the agent cannot start.
pub fn run(arguments: RunArguments) -> Result<Exit, Failure> {
    block_on(app::run(arguments.into()))?;
    Ok(Exit::Ok)
}
