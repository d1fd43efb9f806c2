//! `config check` beside a bookie's file: one look at the space of each journal directory, by a prober
//! of its own that writes nothing, and whether the files that the bookie may keep fit there.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;

use crate::child;
use crate::clock::Clock;
use crate::config::{Config, JournalRoom};
use crate::health::dir::{Dir, DirId, Role};
use crate::health::observation::Observation;
use crate::health::tracker::Tracker;
use crate::monitor::ACTION_QUEUE;
use crate::probe::{LookKind, Prober, Report, WatchedDir};

/// A disk that answers does so within milliseconds, and somebody waits for `config check`.
const LIMIT: Duration = Duration::from_secs(3);

/// Asks the file system of each journal once. Nothing is asked without a bookie's file or without a
/// journal. Leaves a stuck child behind.
///
/// # Errors
/// This program's own file cannot be found.
pub async fn journal_room(config: &Config) -> Result<JournalRoom, anyhow::Error> {
    let journals = config.dirs.iter().filter(|dir| dir.role == Role::Journal);
    let journals: Vec<Dir> = journals.cloned().collect();
    if config.policy.bookie.is_none() || journals.is_empty() {
        return Ok(JournalRoom::default());
    }
    let program = child::own_program().context("cannot find this program's own file")?;
    let clock = Clock::start();
    let (sender, mut reports) = mpsc::channel(ACTION_QUEUE);
    let mut tracker = Tracker::new(config.policy);
    tracker.configure(clock.now(), journals, config.policy, |_| None);
    let options = super::prober_options(config, program);
    let prober = Prober::start(options, clock.clone(), sender);
    let dirs = tracker.dirs().map(|(id, dir)| (id, watched(dir)));
    prober.configure(dirs.collect());
    let mut silent = BTreeMap::new();
    for (id, _) in tracker.dirs() {
        silent.insert(id, format!("no answer within {} s", LIMIT.as_secs()));
    }
    let mut asking = Asking {
        tracker,
        waiting: silent.keys().copied().collect(),
        reasons: silent,
    };
    let rounds = async {
        while let Some(report) = reports.recv().await {
            if asking.take(&prober, &clock, report) {
                return;
            }
        }
    };
    // Over, or some are silent: what is known by then counts.
    drop(tokio::time::timeout(LIMIT, rounds).await);
    prober.stop();
    Ok(asking.result(&clock))
}

/// The one round.
struct Asking {
    tracker: Tracker,
    waiting: Vec<DirId>,
    /// Why the space is not known, if it is not.
    reasons: BTreeMap<DirId, String>,
}

impl Asking {
    /// True when all have answered, or none will.
    fn take(&mut self, prober: &Prober, clock: &Clock, report: Report) -> bool {
        match report {
            Report::Alive { .. } => {
                for id in &self.waiting {
                    prober.look(*id, LookKind::Space);
                }
            }
            Report::Observed { dir, observation } => {
                if let Observation::Looked(look) = &observation {
                    let failure = look.failure.as_ref();
                    let reason = failure.map(|failure| failure.detail.clone());
                    self.reasons.insert(dir, reason.unwrap_or_default());
                    self.waiting.retain(|waiting| *waiting != dir);
                }
                self.tracker.observe(clock.now(), dir, observation);
            }
            Report::Lost { reason, .. } => {
                for waiting in self.waiting.drain(..) {
                    self.reasons.insert(waiting, reason.clone());
                }
            }
            Report::Signal { .. } | Report::Sources { .. } => {}
        }
        self.waiting.is_empty()
    }

    fn result(mut self, clock: &Clock) -> JournalRoom {
        let mut unknown = Vec::new();
        for (id, dir) in self.tracker.dirs() {
            let view = self.tracker.view(clock.now(), id);
            if view.is_none_or(|view| view.space.is_none()) {
                let seen = self.reasons.remove(&id);
                unknown.push((dir.path.clone(), seen.unwrap_or_default()));
            }
        }
        JournalRoom {
            too_large: self.tracker.oversized_journals(),
            unknown,
        }
    }
}

fn watched(dir: &Dir) -> WatchedDir {
    WatchedDir {
        path: dir.path.clone(),
        role: dir.role,
        await_cookie: dir.await_cookie,
        require_mount: dir.require_mount,
        pinned: None,
    }
}
