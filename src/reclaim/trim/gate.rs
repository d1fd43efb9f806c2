//! One topic after the other: the pace of a pass, held back when the cluster answers slower than when it began; which topics
//! are loaded, asked for again while it goes on; and the end of it when it is no business of ours any more.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use super::super::plan::strain::{Source, Strain};
use super::visit::NO_LEADER;
use super::{Pass, lock};
use crate::cluster::broker::{Loaded, TopicName};
use crate::report;

/// What is known of loaded topics is not trusted for longer. Whoever loads one meanwhile is seen before it is unloaded.
const LOADED_FOR: Duration = Duration::from_secs(60);

/// Between two topics about whose policies brokers are asked: two questions each, none of which loads anything.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(40);

/// Turns are given by one at a time; what others look at is beside.
pub(super) struct Gate {
    turns: tokio::sync::Mutex<Turns>,
    shared: Mutex<Shared>,
}

struct Turns {
    next: Duration,
    next_question: Duration,
    loaded_at: Duration,
}

struct Shared {
    loaded: Loaded,
    strain: Strain,
    /// At worst, and for how many topics it was slower at all.
    slowed: Option<(u32, String, u64)>,
    stopped: Option<String>,
}

/// Whose turn it is not.
pub(super) enum NoTurn {
    /// The pass has ended.
    Stopped,
    /// Somebody has loaded the topic meanwhile.
    Loaded,
}

impl Gate {
    pub(super) fn new(loaded: Loaded, now: Duration) -> Gate {
        Gate {
            turns: tokio::sync::Mutex::new(Turns {
                next: now,
                next_question: now,
                loaded_at: now,
            }),
            shared: Mutex::new(Shared {
                loaded,
                strain: Strain::default(),
                slowed: None,
                stopped: None,
            }),
        }
    }

    pub(super) fn is_loaded(&self, topic: &TopicName) -> bool {
        lock(&self.shared).loaded.contains(topic.as_str())
    }

    /// Why no topic is begun any more, if so.
    pub(super) fn stopped(&self) -> Option<String> {
        lock(&self.shared).stopped.clone()
    }

    /// The first reason stays.
    pub(super) fn stop(&self, why: String) {
        lock(&self.shared).stopped.get_or_insert(why);
    }

    /// How many times slower the next topic comes, and why if it is because of how the cluster answers.
    fn slower(&self) -> (u32, Option<String>) {
        let mut shared = lock(&self.shared);
        let (times, why) = shared.strain.look();
        if 1 < times {
            let (worst, reason, turns) = shared.slowed.take().unwrap_or_default();
            let reason = match &why {
                Some(why) if worst < times => why.clone(),
                _ => reason,
            };
            shared.slowed = Some((worst.max(times), reason, turns + 1));
        }
        (times, why)
    }

    /// At worst, if it was slower than it was told to be.
    pub(super) fn slowed(&self) -> Option<String> {
        let shared = lock(&self.shared);
        let (_, reason, turns) = shared.slowed.as_ref()?;
        Some(format!("{reason}; {turns} topics had to wait longer"))
    }

    pub(super) fn answered(&self, source: Source, took: Duration) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.strain.add(source, took);
    }
}

impl Pass<'_> {
    /// Waits until a broker may be asked about one more topic.
    pub(super) async fn question(&self) {
        let mut turns = self.gate.turns.lock().await;
        let now = self.clock.elapsed();
        let turn = turns.next_question.max(now);
        turns.next_question = turn + BETWEEN_QUESTIONS;
        drop(turns);
        sleep(turn - now).await;
    }

    /// Waits until one more topic may be loaded.
    pub(super) async fn turn(&self, topic: &TopicName) -> Result<(), NoTurn> {
        let mut turns = self.gate.turns.lock().await;
        let (times, why) = self.gate.slower();
        // Until it is at its pace again.
        let why = why.or_else(|| {
            (1 < times).then(|| format!("answers are as fast again: still {times} times slower"))
        });
        self.progress.send_if_modified(|progress| {
            let changed = progress.slowed != why;
            progress.slowed = why;
            changed
        });
        // A pause that began before counts from its beginning, however long the pass is to wait now.
        let last = turns.next;
        let turn = last + self.options.interval * (times - 1);
        let wait = turn.saturating_sub(self.clock.elapsed());
        if let Some(leader) = self.leader {
            tokio::select! {
                () = leader.lost() => {}
                () = sleep(wait) => {}
            }
        }
        turns.next = self.clock.elapsed() + self.options.interval;
        self.look_at_store().await;
        if turns.loaded_at + LOADED_FOR <= self.clock.elapsed() {
            match self.brokers.loaded().await {
                Ok(loaded) => lock(&self.gate.shared).loaded = loaded,
                Err(error) => self.gate.stop(format!(
                    "it is not known any more which topics are loaded: {}",
                    report::text(&error)
                )),
            }
            turns.loaded_at = self.clock.elapsed();
        }
        if !self.is_leader() {
            self.gate.stop(NO_LEADER.to_owned());
        }
        match self.gate.stopped() {
            Some(_) => Err(NoTurn::Stopped),
            None if self.gate.is_loaded(topic) => Err(NoTurn::Loaded),
            None => Ok(()),
        }
    }

    /// How fast the store answers now. That it does not is for those to say who need the answer.
    async fn look_at_store(&self) {
        let asked = self.clock.elapsed();
        let path = self.path("");
        let answer = self.cluster.bare.stat(&path);
        let _ = tokio::time::timeout(crate::cluster::DEADLINE, answer).await;
        let took = self.clock.elapsed().saturating_sub(asked);
        self.gate.answered(Source::Store, took);
    }
}
