//! `drain plan`: what would move, how long it takes, and what is in the way. `start` looks at the same before it begins.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tokio::sync::watch;

use super::args::{Form, Gate, PlanArguments, WhatArguments};
use super::cluster::{Cluster, of_job};
use super::hand::Hand;
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::{print, span};
use crate::drain::around::Around;
use crate::drain::job::{Limits, Phase, Progress, ReaderGate, survey};
use crate::drain::plan::blockers::{Blocker, Preflight, blockers};
use crate::drain::plan::survey::Survey;
use crate::health::words::bytes_text;

/// Targets that are shown.
const SHOWN: usize = 20;

/// `drain plan`: 1 if something is in the way.
pub(super) fn plan(arguments: &PlanArguments) -> Result<Exit, Failure> {
    let _log = super::log();
    block_on::<_, Failure>(async {
        let cluster = Cluster::open(&arguments.cluster).await?;
        let mut hand = Hand::new()?;
        let plan = look(&cluster, &arguments.what, &mut hand).await?;
        print(&match arguments.output {
            Form::Human => plan.human(),
            Form::Json => plan.json().to_string() + "\n",
        })?;
        Ok(plan.exit())
    })
}

/// What was found.
pub(super) struct Plan {
    pub(super) bookies: BTreeSet<String>,
    pub(super) gate: ReaderGate,
    pub(super) limits: Limits,
    pub(super) survey: Survey,
    pub(super) blockers: Vec<Blocker>,
    around: Around,
}

/// Looks at everything. Writes nothing.
pub(super) async fn look(
    cluster: &Cluster,
    what: &WhatArguments,
    hand: &mut Hand,
) -> Result<Plan, Failure> {
    let bookies: BTreeSet<String> = what.bookies.iter().cloned().collect();
    let gate = match what.reader_gate {
        Some(Gate::PerLedger) => ReaderGate::PerLedger,
        Some(Gate::Refuse) => ReaderGate::Refuse,
        None if cluster.config.is_per_ledger => ReaderGate::PerLedger,
        None => ReaderGate::Refuse,
    };
    let around = cluster.look().await?;
    let mut jobs = BTreeMap::new();
    for job in cluster.jobs.list().await.map_err(of_job)? {
        // A start that was interrupted is gone on with.
        let is_this = job.phase == Phase::Starting && job.bookies == bookies;
        if !job.phase.is_over() && !is_this {
            jobs.insert(job.id, job.bookies);
        }
    }
    let alive = around.members.alive();
    let (progress, seen) = watch::channel(Progress::default());
    let root = &cluster.place.ledgers_root;
    let work = survey(&*cluster.store, root, &bookies, &alive, &progress);
    let survey = hand.follow(work, || scan_line(*seen.borrow())).await?;
    let survey = survey.map_err(of_job)?;
    let limits = Limits {
        max_bytes_per_second: (what.max_bytes_per_second)
            .unwrap_or(cluster.config.max_bytes_per_second),
        max_requests_per_second: cluster.config.requests_per_second,
        workers: cluster.config.workers,
    };
    let targets = around.targets(&bookies);
    let found = blockers(&Preflight {
        drained: &bookies,
        known: &around.members.known,
        targets: &targets,
        racks: around.racks.as_ref().map_err(String::as_str),
        survey: &survey,
        jobs: &jobs,
        readers_are_safe: what.readers_refresh || gate == ReaderGate::PerLedger,
        keeps_ledgers: gate == ReaderGate::PerLedger,
        alive: &alive,
        sasl: &around.sasl,
    });
    Ok(Plan {
        bookies,
        gate,
        limits,
        survey,
        blockers: found,
        around,
    })
}

/// How far a pass over all ledgers is.
pub(super) fn scan_line(progress: Progress) -> String {
    format!(
        "reading the metadata of ledgers: {}, of which {} name the bookies",
        progress.seen, progress.named
    )
}

impl Plan {
    pub(super) fn exit(&self) -> Exit {
        match self.blockers.is_empty() {
            true => Exit::Ok,
            false => Exit::FAILED,
        }
    }

    /// How long it takes at the limit: of the source with the most, or of all that takes it together.
    fn seconds(&self) -> Option<u64> {
        let limit = self.limits.max_bytes_per_second;
        let targets = self.around.targets(&self.bookies);
        let count = targets.iter().filter(|one| one.is_writable).count() as u64;
        let taking = self.survey.bytes().checked_div(limit.saturating_mul(count));
        let giving = self.survey.time_at(limit)?.as_secs();
        Some(giving.max(taking.unwrap_or_default()))
    }

    pub(super) fn human(&self) -> String {
        let survey = &self.survey;
        let mut text = format!(
            "{} of {} ledgers are on {}: {} fragments, {} entries, {}\n",
            survey.ledgers,
            survey.seen,
            words(&self.bookies),
            survey.fragments(),
            survey.entries,
            bytes_text(survey.bytes()),
        );
        for (bookie, source) in &survey.sources {
            let bytes = bytes_text(source.bytes);
            text.push_str(&format!(
                "  {bookie}: {} fragments, {bytes}\n",
                source.fragments
            ));
        }
        let targets = self.around.targets(&self.bookies);
        let targets: Vec<_> = targets.iter().filter(|one| one.is_writable).collect();
        text.push_str(&format!("{} bookies can take them\n", targets.len()));
        for target in targets.iter().take(SHOWN) {
            text.push_str(&format!(
                "  {}: {} of {} free{}\n",
                target.id,
                bytes_text(target.free),
                bytes_text(target.total),
                match target.warn {
                    true => ", over the warn threshold of its agent, so that it is not chosen",
                    false => "",
                }
            ));
        }
        if SHOWN < targets.len() {
            text.push_str(&format!("  and {} more\n", targets.len() - SHOWN));
        }
        if survey.open.count + survey.in_recovery.count != 0 {
            text.push_str(&format!(
                "{} of the ledgers are open and {} in recovery: their last fragments wait, and their size is not known\n",
                survey.open.count, survey.in_recovery.count
            ));
        }
        let limit = self.limits.max_bytes_per_second;
        match self.seconds() {
            Some(seconds) => text.push_str(&format!(
                "at {} a second from and to each bookie that takes {}\n",
                bytes_text(limit),
                span(seconds)
            )),
            None => text.push_str("bytes a second are not limited\n"),
        }
        for (bookie, why) in &self.around.silent {
            text.push_str(&format!(
                "{bookie} was asked for its space and gave none: {why}\n"
            ));
        }
        match self.blockers.len() {
            0 => text.push_str("nothing is in the way\n"),
            count => text.push_str(&format!("in the way ({count}):\n")),
        }
        for blocker in &self.blockers {
            text.push_str(&format!("  {blocker}\n"));
        }
        text
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let survey = &self.survey;
        let sources = survey.sources.iter();
        let sources = sources.map(|(bookie, source)| {
            json!({ "bookie": bookie, "fragments": source.fragments, "bytes": source.bytes })
        });
        let targets = self.around.targets(&self.bookies);
        let targets = targets.iter().filter(|one| one.is_writable).map(|one| {
            json!({ "bookie": one.id, "rack": one.rack, "group": one.group, "freeBytes": one.free,
                    "totalBytes": one.total, "overWarn": one.warn })
        });
        json!({
            "bookies": self.bookies,
            "ledgersSeen": survey.seen,
            "ledgers": survey.ledgers,
            "fragments": survey.fragments(),
            "emptyFragments": survey.empty,
            "entries": survey.entries,
            "bytes": survey.bytes(),
            "unmeasuredFragments": survey.unmeasured,
            "openLedgers": survey.open.count,
            "ledgersInRecovery": survey.in_recovery.count,
            "maxBytesPerSecond": self.limits.max_bytes_per_second,
            "seconds": self.seconds(),
            "sources": sources.collect::<Vec<_>>(),
            "targets": targets.collect::<Vec<_>>(),
            "silent": self.around.silent,
            "blockers": self.blockers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }
}

/// Names in a sentence.
pub(super) fn words(names: &BTreeSet<String>) -> String {
    names.iter().cloned().collect::<Vec<_>>().join(", ")
}
