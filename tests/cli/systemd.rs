//! What a service manager is told, at a socket of the test's own.

use std::fs;
use std::os::unix::net::UnixDatagram;

use nix::sys::signal::Signal;

use super::listeners::{configuration, signal};
use super::*;

/// Reads messages until one of them has this line; gives all lines up to there.
fn heard(socket: &UnixDatagram, line: &str) -> Vec<String> {
    let clock = Clock::start();
    let mut lines: Vec<String> = Vec::new();
    while !lines.iter().any(|heard| heard == line) {
        assert!(clock.elapsed() < PATIENCE, "never {line}: {lines:?}");
        let mut message = [0; 4096];
        // Its time-out leads back to the deadline.
        if let Ok(count) = socket.recv(&mut message) {
            lines.extend(text(&message[..count]).lines().map(str::to_owned));
        }
    }
    lines
}

#[test]
fn the_service_manager_hears_of_readiness_turns_reloads_and_the_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let file = configuration(folder.path(), "");
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let agent = Command::new(PROGRAM)
        .args(["run", "--config", &file, "--listen", "127.0.0.1:0"])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "3000000")
        .env_remove("WATCHDOG_PID")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let mut agent = EndsWithTest(agent.unwrap());
    let first = heard(&socket, "READY=1");
    assert!(first.contains(&"WATCHDOG=1".to_owned()), "{first:?}");
    // Full or not: it is the disk of this machine.
    let status = |line: &&String| line.starts_with("STATUS=watching 1 directory: 1 ");
    assert_eq!(first.iter().filter(status).count(), 1, "{first:?}");
    for _ in 0..2 {
        heard(&socket, "WATCHDOG=1");
    }

    signal(&agent, Signal::SIGHUP);
    let lines = heard(&socket, "RELOADING=1");
    let with_time = lines.iter().any(|line| line.starts_with("MONOTONIC_USEC="));
    assert!(with_time, "{lines:?}");
    heard(&socket, "READY=1");

    signal(&agent, Signal::SIGTERM);
    heard(&socket, "STOPPING=1");
    assert!(agent.0.wait().unwrap().success());
}
