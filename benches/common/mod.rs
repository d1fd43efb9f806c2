//! What the benchmarks of the built program share: starting it as users run it, waiting for it and
//! ending it.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use dirkeeper::clock::Clock;

/// The program that is measured.
pub(crate) fn program() -> PathBuf {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_dirkeeper"));
    std::env::var_os("DIRKEEPER_BIN").map_or_else(built, PathBuf::from)
}

/// A port below the ephemeral ones; benchmarks run one after the other.
pub(crate) fn port() -> u16 {
    20_000 + u16::try_from(std::process::id() % 10_000).expect("below 10,000")
}

/// A running agent, stopped when dropped.
pub(crate) struct Agent {
    pub(crate) process: Child,
}

impl Agent {
    /// `dirkeeper run` with these arguments.
    pub(crate) fn start(arguments: &[OsString]) -> Agent {
        let process = Command::new(program())
            .arg("run")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        Agent { process }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // TERM, as an operator would; the agent stops by itself within two seconds.
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.process.id()).unwrap_or(0));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.process.wait();
    }
}

/// How long it took until the agent answered.
pub(crate) fn wait_for(clock: &Clock, port: u16, path: &str) -> Duration {
    let start = clock.elapsed();
    while clock.elapsed() - start < Duration::from_secs(60) {
        if get(port, path).is_some() {
            return clock.elapsed() - start;
        }
        pause(Duration::from_millis(2));
    }
    panic!("{path} was not there within a minute");
}

fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

/// Waits; what is measured here is time itself.
pub(crate) fn pause(time: Duration) {
    let (_open, never) = mpsc::channel::<()>();
    let _ = never.recv_timeout(time);
}
