//! The prober: the child process that makes every system call which touches a watched directory.
//! It finds facts and judges nothing. Any of its lanes may be stuck in the kernel for ever; then
//! the agent leaves the whole process behind (`probe::process`), so it holds nothing of the agent's.
//!
//! In reading order: `control` takes requests and hands them to a `lane`, in which `look` makes one
//! round of operations on one directory: `place` opens it, `cookie` and `bookie_files` understand
//! what the bookie keeps in it, `probe_file` and `ballast` are what is written. `kernel` hears what the kernel
//! tells, `mount` understands the mount table, `device` and `stack` know what is below,
//! `diskstats`, `errors` and `pressure` read counters.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use crate::child::Pipes;

mod ballast;
mod bookie_files;
mod control;
mod cookie;
mod device;
mod diskstats;
mod errors;
mod kernel;
mod lane;
mod look;
mod mount;
mod place;
mod pressure;
mod probe_file;
mod stack;

/// The kind of child that this is, after `child::CHILD_ARGUMENT` on the command line.
pub const KIND: &str = "prober";

/// Becomes the prober and serves the agent until it closes the pipe. Call it first in the process.
///
/// Returns while lanes may still be stuck; the caller must end the process without waiting.
#[must_use]
pub fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        // There is nobody to tell: the agent sees that its prober ended.
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve() -> io::Result<()> {
    let pipes = Pipes::take()?;
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let boot_id = boot_id.trim().to_owned();
    let tools = look::Tools {
        facts: device::Facts::of_the_machine(),
        maker: probe_file::Maker::new(&boot_id, std::process::id()),
        errors: kernel::ErrorWatch::new().map(Arc::new),
        boot_id,
    };
    control::Control::start(pipes, tools)?.run()
}
