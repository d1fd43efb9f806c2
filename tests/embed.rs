//! The library in a server of its own: whatever the server's listeners and switches do, and wherever
//! it calls from, the monitor goes on, says what is wrong, and ends when it is told to.

#![allow(clippy::unwrap_used)] // a test may

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use dirkeeper::clock::Clock;
use dirkeeper::embed::{Builder, LedgerDirsListener, Monitor};
use dirkeeper::health::dir::{ProbePolicy, Role, Thresholds};
use dirkeeper::health::event::Event;
use dirkeeper::health::policy::Mode;
use dirkeeper::mode::switch::{Observed, SwitchError};
use dirkeeper::mode::{MemorySwitch, ModeSwitch};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !holds() {
        assert!(clock.elapsed() < PATIENCE, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A monitor of this directory, which is full by these thresholds if `full`.
fn builder(dir: &Path, full: bool) -> Builder {
    let full_available = if full { u64::MAX / 4 } else { 0 };
    Monitor::builder()
        .child_program(env!("CARGO_BIN_EXE_dirkeeper"))
        .thresholds(Thresholds {
            warn: 0.999_998,
            full: 0.999_999,
            full_available,
            dwell: Duration::ZERO,
            ..Thresholds::default()
        })
        .probe(ProbePolicy {
            interval: Duration::from_secs(1),
            ..ProbePolicy::default()
        })
        .dir(Role::Ledger, dir)
}

/// True once the monitor has ended: nobody publishes pictures any more.
fn has_ended(monitor: &tokio::sync::watch::Receiver<impl Sized>) -> bool {
    monitor.has_changed().is_err()
}

#[test]
fn dropping_the_handle_ends_the_watch() {
    let dir = tempfile::tempdir().unwrap();
    for switch in [false, true] {
        let mut builder = builder(dir.path(), false);
        if switch {
            builder = builder.mode_switch(MemorySwitch::new());
        }
        let monitor = builder.start().unwrap();
        let snapshots = monitor.snapshots();
        wait_until("ready", || snapshots.borrow().ready);
        drop(monitor);
        wait_until("the end of the watch", || has_ended(&snapshots));
    }
}

#[test]
fn a_server_may_call_from_its_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let monitor = builder(dir.path(), false).start().unwrap();
        let snapshots = monitor.snapshots();
        monitor.probe_now();
        assert!(monitor.accept(dir.path()));
        monitor.stop();
        assert!(has_ended(&snapshots));
    });
}

/// Panics at the first event and blocks at the second until it is let go.
struct Wild {
    heard: u32,
    gate: mpsc::Receiver<()>,
}

impl LedgerDirsListener for Wild {
    fn event(&mut self, _: &Event) {
        self.heard += 1;
        assert!(self.heard > 1, "a listener of the test panics");
        let _ = self.gate.recv();
    }
}

#[test]
fn a_listener_that_panics_or_blocks_delays_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (open, gate) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    struct Good(mpsc::Sender<&'static str>);
    impl LedgerDirsListener for Good {
        fn event(&mut self, event: &Event) {
            let _ = self.0.send(event.kind.name());
        }
    }
    let mode = MemorySwitch::new();
    let monitor = builder(dir.path(), true)
        .listener(Wild { heard: 0, gate })
        .listener(Good(tell))
        .mode_switch(mode.clone())
        .start()
        .unwrap();
    assert_eq!(told.recv_timeout(PATIENCE), Ok("diskFull"));
    wait_until("read-only", || mode.now().mode == Mode::ReadOnly);
    let seen = monitor.snapshot().elapsed;
    wait_until("the loop goes on", || {
        seen + Duration::from_secs(2) < monitor.snapshot().elapsed
    });
    let clock = Clock::start();
    monitor.stop();
    assert!(clock.elapsed() < Duration::from_secs(5), "stop waits");
    drop(open);
}

/// A switch that panics at first, and then never answers.
struct Dead {
    asked: bool,
    gate: mpsc::Receiver<()>,
}

impl ModeSwitch for Dead {
    fn observe(&mut self) -> Result<Observed, SwitchError> {
        let asked = std::mem::replace(&mut self.asked, true);
        assert!(asked, "a switch of the test panics");
        let _ = self.gate.recv();
        let what = "let go".to_owned();
        Err(SwitchError { what })
    }

    fn set_mode(&mut self, _: Mode, _: &str) -> Result<(), SwitchError> {
        Ok(())
    }

    fn set_high_priority_writes(&mut self, _: bool) -> Result<(), SwitchError> {
        Ok(())
    }
}

#[test]
fn a_switch_that_panics_or_never_answers_is_a_problem() {
    let dir = tempfile::tempdir().unwrap();
    let (open, gate) = mpsc::channel();
    let asked = false;
    let monitor = builder(dir.path(), false)
        .mode_switch(Dead { asked, gate })
        .start()
        .unwrap();
    for text in ["the mode switch panicked", "has not answered for"] {
        wait_until(text, || {
            let snapshot = monitor.snapshot();
            snapshot
                .problems
                .iter()
                .any(|problem| problem.contains(text))
        });
    }
    let clock = Clock::start();
    monitor.stop();
    assert!(clock.elapsed() < Duration::from_secs(5), "stop waits");
    drop(open);
}
