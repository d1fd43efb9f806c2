//! How far a scan or a trim is, on standard error: one line that changes on a terminal, a line of the log now and then
//! elsewhere. A signal that asks for an end ends the work between two steps.

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use tokio::time::interval;

use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::span;
use crate::clock::Clock;
use crate::health::words::bytes_text;
use crate::reclaim::scan::{Progress, Step};
use crate::reclaim::trim::TrimProgress;
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
pub(super) struct Pace {
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
        mut line: impl FnMut(Duration) -> String,
    ) -> Result<T, Failure> {
        let mut ticks = interval(if self.is_terminal {
            ON_TERMINAL
        } else {
            IN_LOG
        });
        ticks.tick().await;
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
                _ = ticks.tick() => self.show(&line(self.clock.elapsed())),
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
    /// Nothing is done yet.
    pub(super) fn new(now: Duration, requests: u64) -> Pace {
        Pace {
            step: Step::default(),
            began: now,
            done: 0,
            requests,
        }
    }

    pub(super) fn line(&mut self, progress: Progress, now: Duration, requests: u64) -> String {
        if progress.step != self.step {
            *self = Pace {
                step: progress.step,
                began: now,
                done: progress.done,
                requests,
            };
        }
        let per_second = |count: u64| rate(count, now.saturating_sub(self.began));
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
        if let Some(all) = progress.all {
            line.push_str(&left(all.saturating_sub(done), things));
        }
        line
    }
}

/// Of a trim: from the first topic that this process saw.
pub(super) fn trim_line(progress: &TrimProgress, spent: Duration) -> String {
    let TrimProgress {
        topics,
        before,
        candidates,
        visited,
        ledgers,
        gained,
        ..
    } = progress;
    let mut line = format!("trimming: {topics}");
    if let Some(all) = progress.all.filter(|all| 0 < *all) {
        line.push_str(&format!(
            " of {all} topics ({} %)",
            (topics * 100 / all).min(100)
        ));
    }
    let gained = bytes_text(*gained);
    line.push_str(&format!(
        ", {candidates} candidates, {visited} visited, {ledgers} ledgers less ({gained})"
    ));
    let things = rate(topics.saturating_sub(*before), spent);
    if 0.0 < things {
        line.push_str(&format!(", {things:.1} topics/s"));
    }
    if let Some(all) = progress.all {
        line.push_str(&left(all.saturating_sub(*topics), things));
    }
    if let Some(why) = &progress.slowed {
        line.push_str(&format!("; slower: {why}"));
    }
    line
}

fn rate(count: u64, spent: Duration) -> f64 {
    // Counts are far below 2^53.
    #[allow(clippy::cast_precision_loss)]
    let count = count as f64;
    count / spent.as_secs_f64().max(0.001)
}

/// Nothing where nothing is done yet.
fn left(count: u64, per_second: f64) -> String {
    if per_second <= 0.0 {
        return String::new();
    }
    #[allow(clippy::cast_precision_loss)]
    let left = Duration::from_secs_f64(count as f64 / per_second);
    format!(", {} left", span(left.as_secs()))
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
    fn a_trim_tells_what_it_saw_and_did_and_why_it_is_slow() {
        let second = Duration::from_secs;
        let begun = TrimProgress::default();
        let resumed = TrimProgress {
            topics: 12_000,
            before: 10_000,
            all: Some(20_000),
            candidates: 40,
            done: 35,
            visited: 30,
            ledgers: 71,
            gained: 5 << 30,
            slowed: Some("ZooKeeper answers in 400 ms instead of 10 ms: 4 times slower".to_owned()),
        };
        let lines = [
            trim_line(&begun, second(0)),
            trim_line(&resumed, second(1000)),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r"
        trimming: 0, 0 candidates, 0 visited, 0 ledgers less (0 B)
        trimming: 12000 of 20000 topics (60 %), 40 candidates, 30 visited, 71 ledgers less (5.0 GiB), 2.0 topics/s, 1 h 6 m left; slower: ZooKeeper answers in 400 ms instead of 10 ms: 4 times slower
        ");
    }

    #[test]
    fn a_line_has_rate_part_and_time_left() {
        let mut pace = Pace::new(Duration::ZERO, 0);
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
