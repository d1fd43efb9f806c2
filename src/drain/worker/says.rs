//! What a worker says of itself in the store while it works, and how much of the job's limit is its own: the limit is one
//! for all workers of a job, and each takes its part.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{interval, timeout};

use super::{Progress, Shared, Worker};
use crate::clock::Clock;
use crate::drain::job::{Job, Jobs, Limits, Moved, Worker as Said};
use crate::drain::lock::ANSWER;

/// Between two words: what people who watch take for at once, and nothing for the store.
const BEAT: Duration = Duration::from_secs(2);

pub(super) struct Says<'a> {
    jobs: Jobs,
    job: String,
    name: String,
    clock: Clock,
    limits: watch::Receiver<Limits>,
    pace: Box<dyn Fn(u32) + Send + Sync>,
    shared: Arc<Shared>,
    progress: &'a watch::Sender<Progress>,
    said: Said,
    /// The bytes at the beat before, and when that was.
    before: (u64, Duration),
    written: Moved,
    /// Workers of the job, this one among them; none before that is known, and before the others know of this one.
    workers: Option<u64>,
    /// It said that it works, a beat ago.
    is_known: bool,
}

impl<'a> Says<'a> {
    pub(super) fn new(
        job: &Job,
        worker: Worker,
        shared: &Arc<Shared>,
        progress: &'a watch::Sender<Progress>,
    ) -> Says<'a> {
        let now = worker.clock.now();
        Says {
            jobs: worker.jobs,
            job: job.id.clone(),
            name: worker.name,
            clock: worker.clock,
            limits: worker.limits,
            pace: worker.pace,
            shared: Arc::clone(shared),
            progress,
            said: Said {
                host: worker.host,
                pid: std::process::id(),
                since: now.wall.0,
                ..Said::default()
            },
            before: (0, now.elapsed),
            written: Moved::default(),
            workers: None,
            is_known: false,
        }
    }

    /// Says that it works, looks who else does, and takes its part of the limit.
    pub(super) async fn share(&mut self, share: &watch::Sender<u64>) {
        let (job, name) = (&self.job, &self.name);
        let said = timeout(ANSWER, self.jobs.say(job, name, &self.said)).await;
        if !matches!(said, Ok(Ok(()))) {
            tracing::debug!("a worker cannot say that it works: {said:?}");
        }
        // Who cannot look keeps the part it had.
        if let Ok(Ok(workers)) = timeout(ANSWER, self.jobs.workers(job)).await {
            let count = workers.len() as u64;
            let is_alone = workers.iter().all(|(other, _)| other == name);
            // The others take less from their next look on.
            if is_alone || self.is_known {
                self.workers = Some(count.max(1));
            }
        }
        self.is_known = matches!(said, Ok(Ok(())));
        self.take_part(share);
    }

    fn take_part(&self, share: &watch::Sender<u64>) {
        let limits = *self.limits.borrow();
        (self.pace)(limits.max_requests_per_second);
        let part = match limits.max_bytes_per_second {
            0 => 0,
            limit => self.workers.map_or(1, |workers| (limit / workers).max(1)),
        };
        share.send_if_modified(|share| std::mem::replace(share, part) != part);
    }

    /// Goes on for ever.
    pub(super) async fn go_on(&mut self, share: &watch::Sender<u64>) {
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The first is at once, and was.
        beats.tick().await;
        let mut limits = self.limits.clone();
        let mut are_followed = true;
        loop {
            tokio::select! {
                _ = beats.tick() => {
                    self.count();
                    self.share(share).await;
                    self.write().await;
                }
                changed = limits.changed(), if are_followed => {
                    are_followed = changed.is_ok();
                    self.take_part(share);
                }
            }
        }
    }

    /// The last word.
    pub(super) async fn last(&mut self) {
        self.count();
        self.write().await;
    }

    fn count(&mut self) {
        let counts = &self.shared.counts;
        let bytes = counts.bytes.load(Ordering::Relaxed);
        let now = self.clock.elapsed();
        let passed = now.saturating_sub(self.before.1).as_millis();
        let more = u128::from(bytes - self.before.0) * 1000;
        let rate = more.checked_div(passed).unwrap_or_default();
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.before = (bytes, now);
        let moved = Moved {
            ledgers: self.shared.ledgers.load(Ordering::Relaxed),
            fragments: self.shared.fragments.load(Ordering::Relaxed),
            bytes,
            entries: counts.entries.load(Ordering::Relaxed),
        };
        let bad_replicas = self.shared.reports.count();
        let mut working = 0;
        self.progress.send_modify(|progress| {
            (progress.moved, progress.rate) = (moved, rate);
            progress.bad_replicas = bad_replicas;
            working = progress.working;
        });
        (self.said.ledgers, self.said.bytes) = (moved.ledgers, moved.bytes);
        self.said.rate = rate;
        self.said.now = match working {
            1 => "works on 1 ledger".to_owned(),
            working => format!("works on {working} ledgers"),
        };
    }

    async fn write(&mut self) {
        let moved = self.progress.borrow().moved;
        if moved == self.written {
            return;
        }
        let added = self.jobs.add_up(&self.job, &self.name, &moved);
        if matches!(timeout(ANSWER, added).await, Ok(Ok(()))) {
            self.written = moved;
        }
    }
}
