//! The `dirkeeper` program. Does the steps in order and nothing else.

use std::process::ExitCode;

use dirkeeper::{child, prober};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == child::CHILD_ARGUMENT)
        && arguments.next().is_some_and(|kind| kind == prober::KIND)
    {
        return prober::main();
    }
    ExitCode::SUCCESS
}
