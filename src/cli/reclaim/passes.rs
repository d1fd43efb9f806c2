//! What `reclaim run` knows of its passes, for its metrics.

use std::time::Duration;

use super::args::RunArguments;
use super::cluster::{Cluster, of_state};
use super::known::by_class;
use super::report::Report;
use super::trim;
use crate::cli::exit::Failure;
use crate::cli::textfile::Textfile;
use crate::health::moment::Timestamp;
use crate::metrics::{ClassFacts, ReclaimFacts, ScanFacts, render_reclaim};
use crate::reclaim::plan::Millis;
use crate::reclaim::state::State;
use crate::reclaim::state::marks::Phase;

/// The steps, in their order.
const STEPS: [&str; 4] = ["scan", "mark", "sweep", "trim"];

/// Time between two trims, if any are wanted.
pub(super) fn trim_interval(cluster: &Cluster, arguments: &RunArguments) -> Option<Duration> {
    arguments.trim_interval.or(cluster.config.trim_interval)
}

/// Counts since the start of the process.
pub(super) struct Passes {
    facts: ReclaimFacts,
    textfile: Option<Textfile>,
    trimmed_at: Option<Duration>,
}

impl Passes {
    pub(super) fn new(arguments: &RunArguments) -> Passes {
        let textfile = arguments.textfile.as_deref();
        Passes {
            facts: ReclaimFacts {
                steps: STEPS.map(|step| (step, 0, None)).to_vec(),
                marks: vec![("marked", 0), ("deleting", 0)],
                ..ReclaimFacts::default()
            },
            textfile: textfile.map(|path| Textfile::new(path, arguments.once)),
            trimmed_at: None,
        }
    }

    /// Counts how a step ended.
    pub(super) fn step<T>(
        &mut self,
        name: &'static str,
        cluster: &Cluster,
        ended: Result<T, Failure>,
    ) -> Result<T, Failure> {
        let now = Timestamp(cluster.now()).seconds();
        for (step, errors, success) in &mut self.facts.steps {
            if *step == name {
                match &ended {
                    Ok(_) => *success = Some(now),
                    Err(_) => *errors += 1,
                }
            }
        }
        ended
    }

    pub(super) fn deleted(&mut self, count: usize) {
        self.facts.deleted += count as u64;
    }

    pub(super) fn trimmed(&mut self, count: u64) {
        self.facts.trimmed += count;
    }

    /// A trim is wanted, and the last one was long enough ago, or was cut off. What a dry run did is forgotten with it.
    pub(super) fn trim_is_due(
        &mut self,
        cluster: &Cluster,
        state: &State,
        arguments: &RunArguments,
    ) -> Result<bool, Failure> {
        let interval = trim_interval(cluster, arguments);
        let Some(interval) = interval.filter(|interval| !interval.is_zero()) else {
            return Ok(false);
        };
        if arguments.execute {
            return trim::is_due(cluster, state, arguments, interval);
        }
        let now = cluster.clock.elapsed();
        let due = self.trimmed_at.is_none_or(|last| last + interval <= now);
        if due {
            self.trimmed_at = Some(now);
        }
        Ok(due)
    }

    /// What the last scan found.
    pub(super) fn take_scan(&mut self, state: &State) -> Result<(), Failure> {
        let Some(info) = state.last_scan().map_err(of_state)? else {
            return Ok(());
        };
        let mut report = Report::new(by_class(None));
        state
            .for_each_judged(|row| report.add(row))
            .map_err(of_state)?;
        let seconds = |time: Millis| Timestamp(time).seconds();
        let classes = report
            .classes()
            .map(|(class, ledgers, bytes, deletable)| ClassFacts {
                class: class.name(),
                ledgers,
                bytes,
                deletable,
            });
        self.facts.scan = Some(ScanFacts {
            ended: seconds(info.ended),
            duration: seconds(info.ended - info.began),
            requests: info.requests,
            classes: classes.collect(),
        });
        Ok(())
    }

    /// Which marks stand.
    pub(super) fn take_marks(&mut self, state: &State) -> Result<(), Failure> {
        let (mut marked, mut deleting) = (0, 0);
        let told = state.for_each_mark(|mark| match mark.phase {
            Phase::Marked => marked += 1,
            Phase::Deleting => deleting += 1,
        });
        told.map_err(of_state)?;
        self.facts.marks = vec![("marked", marked), ("deleting", deleting)];
        Ok(())
    }

    /// Writes the file.
    pub(super) fn publish(&mut self, cluster: &Cluster, leader: bool) {
        self.facts.leader = leader;
        self.facts.requests = cluster.requests();
        if let Some(file) = &self.textfile {
            file.put(&render_reclaim(&self.facts));
        }
    }
}
