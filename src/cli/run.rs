//! `run`: the agent, composed by `app`.

use std::io::IsTerminal;

use super::args::RunArguments;
use super::block_on;
use super::exit::{Exit, Failure};
use super::greeting::{GreetingFacts, greeting};
use crate::app::{self, Started};
use crate::child;

/// Runs the agent until it is told to stop.
///
/// # Errors
/// The configuration is not valid, or the agent cannot start.
pub fn run(arguments: RunArguments) -> Result<Exit, Failure> {
    child::close_inherited(&[]).map_err(|error| Failure::io("cannot list descriptors", error))?;
    block_on(app::run(arguments.into(), greet))?;
    Ok(Exit::Ok)
}

/// On a terminal, says what was started.
fn greet(started: &Started) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let facts = GreetingFacts {
        dirs: started.dirs.clone(),
        sources: ["statvfs", "probe", "mountinfo"]
            .map(str::to_owned)
            .to_vec(),
        inactive: Vec::new(),
        address: started.address,
        state_dir: started.state_dir.clone(),
        hooks: started.hooks.clone(),
    };
    eprintln!("{}", greeting(&facts));
}
