//! Signals that the agent obeys: SIGTERM and SIGINT stop it, SIGHUP reads the configuration again.
//! Besides `main` the only place that may end the process, and it does so only when an orderly stop
//! takes too long or a second signal asks for it.

use std::io;
use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// SIGTERM or SIGINT: stop.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// The signals of this process, as a stream of requests.
#[derive(Debug)]
pub struct Signals {
    terminate: Stream,
    interrupt: Stream,
    hangup: Stream,
}

impl Signals {
    /// Takes the signals over from the system's default, which would end the process at once. Call
    /// it within a runtime, before anything is started that must be stopped in order.
    ///
    /// # Errors
    /// The system refuses.
    pub fn take() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next request. May be dropped and called again: no signal is lost, though
    /// several of one kind may become one.
    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::Stop,
            _ = self.interrupt.recv() => Request::Stop,
            _ = self.hangup.recv() => Request::Reload,
        }
    }

    /// Makes sure that a stop which has begun ends: at a second request to stop, with exit code 1,
    /// and after `limit` with exit code 0, because a dead disk that keeps the agent from ending in
    /// order is no failure of the agent. Call it within the runtime when the stop begins.
    pub fn end_within(mut self, limit: Duration) {
        tokio::spawn(async move {
            while self.next().await != Request::Stop {}
            end(1);
        });
        // A thread, because the runtime itself may be what does not end. If none can be had, the
        // orderly stop has to do.
        let _ = thread::Builder::new()
            .name("last-resort".to_owned())
            .spawn(move || {
                let (_open, never) = mpsc::channel::<()>();
                let _ = never.recv_timeout(limit);
                end(0);
            });
    }
}

/// Ends a child that another program became (`embed`), whatever its threads are stuck in.
pub(crate) fn end_child(well: bool) -> ! {
    end(i32::from(!well))
}

#[allow(clippy::disallowed_methods)] // the one place beside main
fn end(code: i32) -> ! {
    process::exit(code)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use nix::sys::signal::{Signal, raise};

    use super::*;

    /// Set in the process that [`child`] starts.
    const ROLE: &str = "DIRKEEPER_TEST_SHUTDOWN";

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    /// Runs the test `as_child` in a process of its own and tells its exit code.
    fn child(role: &str) -> Option<i32> {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "shutdown::tests::as_child"])
            .env(ROLE, role)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .code()
    }

    /// Does nothing in an ordinary run; in the processes of the other tests it stops and hangs.
    #[test]
    fn as_child() {
        let Ok(role) = std::env::var(ROLE) else {
            return;
        };
        runtime().block_on(async {
            let mut signals = Signals::take().unwrap();
            raise(Signal::SIGHUP).unwrap();
            assert_eq!(signals.next().await, Request::Reload);
            raise(Signal::SIGTERM).unwrap();
            assert_eq!(signals.next().await, Request::Stop);
            if role == "second signal" {
                signals.end_within(Duration::from_secs(600));
                raise(Signal::SIGHUP).unwrap();
                raise(Signal::SIGINT).unwrap();
                return std::future::pending().await;
            }
            signals.end_within(Duration::from_millis(1));
            // The runtime's only thread never comes back.
            loop {
                thread::park();
            }
        });
    }

    #[test]
    fn a_second_signal_ends_at_once() {
        assert_eq!(child("second signal"), Some(1));
    }

    #[test]
    fn a_stop_that_hangs_ends_at_its_limit() {
        assert_eq!(child("limit"), Some(0));
    }
}
