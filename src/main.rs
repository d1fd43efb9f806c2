//! The `dirkeeper` program. Does the steps in order and nothing else.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    dirkeeper::cli::main(arguments).into()
}
