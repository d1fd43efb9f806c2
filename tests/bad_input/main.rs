//! Bad input, as a user meets it: what is refused is refused with one error that names place, value
//! and remedy and with its exit code; what shows only at run time is in the status of an agent that
//! goes on. Nothing panics, hangs, or is silently something else.
#![allow(clippy::unwrap_used)] // all of it is tests

mod bookie_files;
mod config;
mod doors;
mod exposed;
mod files;
mod http;
mod names;
mod running;
mod state;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dirkeeper::clock::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dirkeeper");

/// A test that waits for longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// `nobody`, in the cases where a privilege would hide what is wrong.
const NOBODY: u32 = 65534;

fn try_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let clock = Clock::start();
    while clock.elapsed() < PATIENCE {
        if let Some(found) = look() {
            return Some(found);
        }
        thread::park_timeout(Duration::from_millis(5));
    }
    None
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let found = try_for(|| holds().then_some(()));
    assert!(found.is_some(), "never: {what}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The end of a process, which must come by itself.
fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let pipes = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (give, take) = mpsc::channel();
    thread::spawn(move || {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (mut out, mut err) = pipes;
        let errors = thread::spawn(move || {
            let _ = err.read_to_end(&mut stderr);
            stderr
        });
        let _ = out.read_to_end(&mut stdout);
        let _ = give.send(Output {
            status: child.wait().unwrap(),
            stdout,
            stderr: errors.join().unwrap(),
        });
    });
    take.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let _ = kill(pid, Signal::SIGKILL);
        panic!("{command:?} does not end")
    })
}

/// A folder for one test.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Bench {
        let bench = Bench(tempfile::tempdir().unwrap());
        // Also for a program that runs as somebody else.
        bench.set_mode("", 0o755);
        bench
    }

    fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.0.path().join(Path::new(name.as_ref()))
    }

    /// The same as text.
    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn dir(&self, name: &str) -> String {
        fs::create_dir(self.path(name)).unwrap();
        self.name(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).unwrap();
        self.name(name)
    }

    fn fifo(&self, name: &str) -> String {
        nix::unistd::mkfifo(&self.path(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
        self.name(name)
    }

    fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }

    /// The program, working in this folder.
    fn program(&self) -> Command {
        let mut command = Command::new(PROGRAM);
        self.prepare(&mut command);
        command
    }

    /// The program without privileges, whoever runs this.
    fn unprivileged(&self) -> Command {
        if !nix::unistd::geteuid().is_root() {
            return self.program();
        }
        let copy = self.path("program");
        if !copy.exists() {
            // By another process: one that another thread forks meanwhile would hold our open file,
            // and nobody can start what is open for writing.
            let copied = Command::new("cp").arg(PROGRAM).arg(&copy).status();
            assert!(
                copied.expect("coreutils").success(),
                "a copy of the program"
            );
            self.set_mode("program", 0o755);
        }
        let mut command = Command::new(copy);
        self.prepare(&mut command);
        command.uid(NOBODY).gid(NOBODY);
        command
    }

    fn prepare(&self, command: &mut Command) {
        command.current_dir(self.0.path());
        command.env("XDG_STATE_HOME", self.path("home"));
        command.env("NO_COLOR", "1").env_remove("RUST_LOG");
    }

    fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        let mut command = self.program();
        command.args(arguments);
        output(command)
    }

    /// Arguments, both outputs and exit code, without the path of this folder.
    fn transcript<S: AsRef<OsStr>>(&self, arguments: &[S], output: &Output) -> String {
        let mut line = "$ dirkeeper".to_owned();
        for argument in arguments {
            write!(line, " {}", argument.as_ref().to_string_lossy()).unwrap();
        }
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(!stderr.contains("panicked"), "{stderr}");
        let code = output.status.code().unwrap();
        self.shorten(&format!("{line}\n{stdout}{stderr}[exit code {code}]\n\n"))
    }

    /// A run that is refused: nothing on standard output, and this code.
    fn refused<S: AsRef<OsStr>>(&self, arguments: &[S], code: i32) -> String {
        let output = self.run(arguments);
        let transcript = self.transcript(arguments, &output);
        assert!(output.stdout.is_empty(), "{transcript}");
        assert_eq!(output.status.code(), Some(code), "{transcript}");
        transcript
    }

    fn shorten(&self, text: &str) -> String {
        text.replace(self.0.path().to_str().unwrap(), "DIR")
    }

    /// Starts an agent on a free port; arguments as for `run`.
    fn agent<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Agent<'_> {
        let mut command = self.program();
        command.arg("run").args(arguments);
        self.spawn(command)
    }

    fn spawn(&self, command: Command) -> Agent<'_> {
        let mut agent = self.start(command);
        agent.wait_ready();
        agent
    }

    fn start(&self, mut command: Command) -> Agent<'_> {
        let errors = File::create(self.path("log")).unwrap();
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .unwrap();
        Agent {
            bench: self,
            process,
            port: 0,
            ended: false,
        }
    }
}

/// A running agent; ended when dropped.
struct Agent<'a> {
    bench: &'a Bench,
    process: Child,
    port: u16,
    ended: bool,
}

impl Agent<'_> {
    fn wait_ready(&mut self) {
        self.wait_listening();
        wait_until("ready", || self.get("/readyz").0 == 200);
    }

    fn wait_listening(&mut self) {
        let port = try_for(|| {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "it ended at its start: {}", self.log());
            let log = self.log();
            let (_, rest) = log.split_once("listening on 127.0.0.1:")?;
            rest.split_once(',')?.0.parse().ok()
        });
        self.port = port.expect("the agent says where it listens");
    }

    fn log(&self) -> String {
        text(&fs::read(self.bench.path("log")).unwrap())
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap());
        kill(pid, signal).unwrap();
    }

    /// What it answers to these bytes, to the end of the connection.
    fn answer(&self, request: impl AsRef<[u8]>) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may have refused already, and have closed.
        let _ = stream.write_all(request.as_ref());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        text(&answer)
    }

    fn get(&self, path: &str) -> (u16, String) {
        let answer = self.answer(format!("GET {path} HTTP/1.0\r\nHost: a\r\n\r\n"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.unwrap_or_default(), body.to_owned())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.get("/api/v1/status").1).unwrap()
    }

    fn problems(&self) -> Vec<String> {
        let status = self.status();
        let problems = status["problems"].as_array().unwrap().iter();
        problems
            .map(|problem| self.bench.shorten(problem.as_str().unwrap()))
            .collect()
    }

    /// Path, status and first evidence of each directory.
    fn dirs(&self) -> String {
        let mut lines = String::new();
        for dir in self.status()["dirs"].as_array().unwrap() {
            let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let (path, status) = (word(&dir["path"]), word(&dir["status"]));
            let (cause, why) = (word(&dir["cause"]["kind"]), word(&dir["cause"]["message"]));
            let role = word(&dir["role"]);
            writeln!(lines, "{role} {path:?}: {status}, {cause}, {why:?}").unwrap();
        }
        self.bench.shorten(&lines)
    }

    fn wait_problem(&self, part: &str) -> String {
        let mut last = Vec::new();
        let found = try_for(|| {
            last = self.problems();
            last.iter().find(|problem| problem.contains(part)).cloned()
        });
        found.unwrap_or_else(|| panic!("no problem says {part:?}: {last:?}\n{}", self.log()))
    }

    fn wait_no_problem(&self, part: &str) {
        let is_there = || self.problems().iter().any(|problem| problem.contains(part));
        wait_until(&format!("no problem says {part:?}"), || !is_there());
    }

    fn metric(&self, line: &str) -> bool {
        self.get("/metrics").1.lines().any(|found| found == line)
    }

    fn end(&mut self) -> Option<ExitStatus> {
        self.ended = true;
        self.signal(Signal::SIGTERM);
        try_for(|| self.process.try_wait().unwrap())
    }

    /// Ends it and gives its log without times.
    fn finish(mut self) -> String {
        let status = self.end();
        let log = self.log();
        assert_eq!(status.and_then(|it| it.code()), Some(0), "{log}");
        assert!(!log.contains("panicked"), "{log}");
        let lines = log.lines().map(|line| match line.split_once("Z ") {
            Some((time, rest)) if time.starts_with("20") => rest.trim_start(),
            _ => line,
        });
        let lines: Vec<&str> = lines.collect();
        self.bench.shorten(&(lines.join("\n") + "\n"))
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        if !self.ended && self.end().is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
