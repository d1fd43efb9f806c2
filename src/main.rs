//! The `dirkeeper` program. Does the steps in order and nothing else.

use std::process::ExitCode;

use dirkeeper::child::CHILD_ARGUMENT;
use dirkeeper::state;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let is_child = arguments
        .next()
        .is_some_and(|first| first == CHILD_ARGUMENT);
    if is_child && arguments.next().is_some_and(|kind| kind == "writer") {
        return state::writer::main();
    }
    ExitCode::SUCCESS
}
