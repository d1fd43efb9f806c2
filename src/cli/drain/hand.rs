//! Long work on standard error: one line that changes on a terminal, a line of the log now and then elsewhere. A signal
//! that asks for an end ends the work between two steps.

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use tokio::time::interval;

use crate::cli::exit::{Exit, Failure};
use crate::shutdown::{Request, Signals};

/// A person sees that it moves.
const ON_TERMINAL: Duration = Duration::from_millis(500);

/// In a log: enough to see that it moves, few enough to be read.
const IN_LOG: Duration = Duration::from_secs(30);

/// Where progress is shown, and what asks for the end.
pub(super) struct Hand {
    signals: Signals,
    is_terminal: bool,
}

impl Hand {
    /// Takes the signals over: from now on nothing ends the process but its own end.
    pub(super) fn new() -> Result<Hand, Failure> {
        let signals = Signals::take();
        Ok(Hand {
            signals: signals.map_err(|error| Failure::io("cannot take signals over", error))?,
            is_terminal: std::io::stderr().is_terminal(),
        })
    }

    /// Does the work and shows how far it is.
    pub(super) async fn follow<T>(
        &mut self,
        work: impl Future<Output = T>,
        line: impl FnMut() -> String,
    ) -> Result<T, Failure> {
        match self.shown(work, line).await {
            Some(done) => Ok(done),
            None => {
                let error = anyhow::anyhow!("stopped by a signal");
                let remedy = "give the same command again: what was done stays done";
                Err(Failure::new(Exit::FAILED, error).remedy(remedy))
            }
        }
    }

    /// The same; nothing if a signal ended it.
    pub(super) async fn shown<T>(
        &mut self,
        work: impl Future<Output = T>,
        mut line: impl FnMut() -> String,
    ) -> Option<T> {
        let mut ticks = interval(match self.is_terminal {
            true => ON_TERMINAL,
            false => IN_LOG,
        });
        ticks.tick().await;
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => {
                    self.clear();
                    return Some(done);
                }
                request = self.signals.next() => if request == Request::Stop {
                    self.clear();
                    return None;
                },
                _ = ticks.tick() => self.show(&line()),
            }
        }
    }

    /// Ends when a signal asks for it.
    pub(super) async fn stop(&mut self) {
        while self.signals.next().await != Request::Stop {}
    }

    fn show(&self, line: &str) {
        if !self.is_terminal {
            tracing::info!("{line}");
            return;
        }
        let mut stderr = std::io::stderr().lock();
        // Who has no terminal any more misses nothing.
        let _ = write!(stderr, "\r\u{1b}[K{line}").and_then(|()| stderr.flush());
    }

    fn clear(&self) {
        if self.is_terminal {
            self.show("");
        }
    }
}
