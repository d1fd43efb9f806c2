//! How far a scan is, on standard error: one line that changes on a terminal, a line of the log now and then
//! elsewhere. A signal that asks for an end ends the work between two steps.

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::interval;

use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::span;
use crate::clock::Clock;
use crate::reclaim::scan::{Progress, Step};
use crate::shutdown::{Request, Signals};

/// A person sees that it moves.
const ON_TERMINAL: Duration = Duration::from_millis(500);

/// In a log: enough to see that it moves, few enough to be read.
const IN_LOG: Duration = Duration::from_secs(30);

/// Where progress is shown, and what asks for the end.
pub(super) struct Watcher {
    pub(super) signals: Signals,
    /// A signal has ended what was followed.
    pub(super) is_stopped: bool,
    clock: Clock,
    is_terminal: bool,
}

/// The state of one step.
struct Pace {
    step: Step,
    began: Duration,
    done: u64,
    requests: u64,
}

impl Watcher {
    /// Takes the signals over: from now on nothing ends the process but its own end.
    pub(super) fn new(clock: Clock) -> Result<Watcher, Failure> {
        let signals = Signals::take();
        Ok(Watcher {
            signals: signals.map_err(|error| Failure::io("cannot take signals over", error))?,
            is_stopped: false,
            clock,
            is_terminal: std::io::stderr().is_terminal(),
        })
    }

    /// Does the work, shows how far it is, and drops it when a signal asks for the end.
    pub(super) async fn follow<T>(
        &mut self,
        work: impl Future<Output = T>,
        progress: &watch::Receiver<Progress>,
        requests: impl Fn() -> u64,
    ) -> Result<T, Failure> {
        let mut ticks = interval(if self.is_terminal {
            ON_TERMINAL
        } else {
            IN_LOG
        });
        ticks.tick().await;
        let mut pace = Pace {
            step: Step::default(),
            began: self.clock.elapsed(),
            done: 0,
            requests: requests(),
        };
        tokio::pin!(work);
        loop {
            tokio::select! {
                result = &mut work => {
                    self.clear();
                    return Ok(result);
                }
                request = self.signals.next() => if request == Request::Stop {
                    self.is_stopped = true;
                    self.clear();
                    let error = anyhow::anyhow!("stopped by a signal");
                    let remedy = "the next one goes on where this one was";
                    return Err(Failure::new(Exit::FAILED, error).remedy(remedy));
                },
                _ = ticks.tick() => {
                    let now = *progress.borrow();
                    self.show(&pace.line(now, self.clock.elapsed(), requests()));
                }
            }
        }
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

impl Pace {
    fn line(&mut self, progress: Progress, now: Duration, requests: u64) -> String {
        if progress.step != self.step {
            *self = Pace {
                step: progress.step,
                began: now,
                done: progress.done,
                requests,
            };
        }
        let spent = now.saturating_sub(self.began).as_secs_f64().max(0.001);
        let per_second = |count: u64| {
            // Counts are far below 2^53.
            #[allow(clippy::cast_precision_loss)]
            let count = count as f64;
            count / spent
        };
        let done = progress.done;
        let mut line = format!("{}: {done}", words(progress.step));
        if let Some(all) = progress.all.filter(|all| 0 < *all) {
            line.push_str(&format!(" of {all} ({} %)", done * 100 / all));
        }
        let rate = per_second(requests.saturating_sub(self.requests));
        if 0.0 < rate {
            line.push_str(&format!(", {rate:.0} requests/s"));
        }
        let things = per_second(done.saturating_sub(self.done));
        if let (Some(all), true) = (progress.all, 0.0 < things) {
            #[allow(clippy::cast_precision_loss)]
            let left = Duration::from_secs_f64(all.saturating_sub(done) as f64 / things);
            line.push_str(&format!(", {} left", span(left.as_secs())));
        }
        line
    }
}

fn words(step: Step) -> &'static str {
    match step {
        Step::List => "listing ledgers",
        Step::Metadata => "reading what ledgers say of themselves",
        Step::Owners => "reading who names them",
        Step::Inside => "reading inside ledgers",
        Step::Judge => "judging",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rate_part_and_time_left() {
        let mut pace = Pace {
            step: Step::List,
            began: Duration::ZERO,
            done: 0,
            requests: 0,
        };
        let progress = |step, done, all| Progress { step, done, all };
        let second = Duration::from_secs;
        let lines = [
            pace.line(progress(Step::List, 1000, None), second(10), 10),
            pace.line(progress(Step::Metadata, 100, Some(10_000)), second(20), 100),
            pace.line(
                progress(Step::Metadata, 2_100, Some(10_000)),
                second(30),
                2_100,
            ),
            pace.line(progress(Step::Owners, 7, None), second(40), 9_000),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r"
        listing ledgers: 1000, 1 requests/s
        reading what ledgers say of themselves: 100 of 10000 (1 %)
        reading what ledgers say of themselves: 2100 of 10000 (21 %), 200 requests/s, 39 s left
        reading who names them: 7
        ");
    }
}
