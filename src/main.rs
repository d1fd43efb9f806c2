//! The `dirkeeper` program. Does the steps in order and nothing else.

use std::ffi::OsString;
use std::process::ExitCode;

use dirkeeper::{child, cli, prober, state};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // Before anything else: a child must hold nothing but its pipes.
    if arguments
        .get(1)
        .is_some_and(|first| first == child::CHILD_ARGUMENT)
    {
        return become_child(&arguments[2..]);
    }
    cli::main(&arguments).into()
}

fn become_child(arguments: &[OsString]) -> ExitCode {
    match arguments.split_first() {
        Some((kind, _)) if kind == prober::KIND => prober::main(),
        Some((kind, _)) if kind == state::KIND => state::writer::main(),
        _ => ExitCode::FAILURE,
    }
}
