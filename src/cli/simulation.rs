//! The command `simulate`: opens the input, and says what its end means for the exit code.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use super::args::SimulateArguments;
use super::exit::{Exit, Failure};
use super::simulate::{self, SimulateError};
use crate::document::shown;

/// Runs the command.
///
/// # Errors
/// The input cannot be read or makes no sense, or the answers cannot be written.
pub fn run(arguments: &SimulateArguments) -> Result<Exit, Failure> {
    let semantics = arguments.semantics;
    let output = io::stdout().lock();
    let result = if arguments.file == Path::new("-") {
        simulate::run(semantics, io::stdin().lock(), output)
    } else {
        let file = File::open(&arguments.file).map_err(|error| {
            let path = shown(&arguments.file);
            Failure::io(format!("cannot read {path}"), error)
        })?;
        simulate::run(semantics, BufReader::new(file), output)
    };
    match result {
        Ok(()) => Ok(Exit::Ok),
        Err(error) if error.is_broken_pipe() => Ok(Exit::Ok),
        Err(error @ SimulateError::Data { .. }) => Err(Failure::new(Exit::Data, error)),
        Err(error @ SimulateError::Read(_)) => {
            let error = anyhow::Error::new(error);
            let name = shown(&arguments.file);
            Err(Failure::new(Exit::Io, error.context(name)))
        }
        Err(error) => Err(Failure::new(Exit::Io, error)),
    }
}
