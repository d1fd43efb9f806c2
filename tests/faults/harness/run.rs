//! Other programs and the waiting for conditions. Every wait has a limit and a name; a program that
//! does not end in time is left behind, because a frozen disk may hold it in the kernel.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dirkeeper::clock::Clock;

/// Between two looks at a condition: short beside the smallest limit that is measured (100 ms).
const STEP: Duration = Duration::from_millis(10);

/// The longest a tool of the system may take: `mkfs` on a busy machine.
const TOOL_LIMIT: Duration = Duration::from_secs(60);

/// Lets time pass, where time is what the fault is made of.
pub(crate) fn pass(time: Duration) {
    let clock = Clock::start();
    while let Some(rest) = time
        .checked_sub(clock.elapsed())
        .filter(|rest| !rest.is_zero())
    {
        std::thread::park_timeout(rest);
    }
}

/// The value that `look` finds, or a panic with `what` when it finds none in time.
pub(crate) fn wait_for<T>(what: &str, limit: Duration, look: impl FnMut() -> Option<T>) -> T {
    try_for(limit, look).unwrap_or_else(|| panic!("{what}: not within {limit:?}"))
}

/// The value that `look` finds in time, if it does.
pub(crate) fn try_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let clock = Clock::start();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if clock.elapsed() >= limit {
            return None;
        }
        pass(STEP);
    }
}

/// Runs a tool and returns what it printed; panics when it fails.
pub(crate) fn tool<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    try_command(command, TOOL_LIMIT).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Puts a program or script where it is started from. Another process writes it: one that another
/// thread forks meanwhile would hold our open file, and nobody can start what is open for writing.
pub(crate) fn install(from: &Path, to: &Path) {
    tool("install", ["--mode=755", text(from), text(to)]);
}

/// Runs a command and returns what it printed, or what went wrong in words.
pub(crate) fn try_command(command: Command, limit: Duration) -> Result<String, String> {
    let shown = format!("{command:?}");
    let (status, output, errors) = outcome(command, limit)?;
    if status.success() {
        return Ok(output);
    }
    Err(format!(
        "{shown}: {status}: {}{}",
        output.trim(),
        errors.trim()
    ))
}

/// Runs a command to its end: how it ended, and what it printed on both outputs.
pub(crate) fn outcome(
    mut command: Command,
    limit: Duration,
) -> Result<(ExitStatus, String, String), String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    // Read while it runs: a pipe holds 64 KiB, and who prints more would wait for ever.
    let output = read_beside(child.stdout.take());
    let errors = read_beside(child.stderr.take());
    let Some(status) = wait_exit(&mut child, limit) else {
        let _ = child.kill();
        return Err(format!("{command:?}: not ended after {limit:?}"));
    };
    let text = |reader: JoinHandle<String>| reader.join().unwrap_or_default();
    Ok((status, text(output), text(errors)))
}

fn read_beside(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8(bytes).unwrap_or_default()
    })
}

/// How a child ended, if it ends in time.
pub(crate) fn wait_exit(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    try_for(limit, || {
        child
            .try_wait()
            .expect("a child that is ours can be waited for")
    })
}

/// The text of a path; those of the tests are all UTF-8.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("paths of the tests are UTF-8")
}
