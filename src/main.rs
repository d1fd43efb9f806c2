//! The `dirkeeper` program. Does the steps in order and nothing else.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use dirkeeper::child::CHILD_ARGUMENT;
use dirkeeper::cli::{self, Exit};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // Before anything else: a child must not have opened or started anything.
    if arguments
        .get(1)
        .is_some_and(|first| first == CHILD_ARGUMENT)
    {
        return child(arguments.get(2).map(OsString::as_os_str));
    }
    cli::main(&arguments).into()
}

/// Becomes the child of that kind. Only an agent starts one, so that nobody is told what is wrong.
fn child(kind: Option<&OsStr>) -> ExitCode {
    match kind.and_then(OsStr::to_str) {
        // "prober" and "writer" are added by the rooms that have them.
        _ => Exit::Usage.into(),
    }
}
