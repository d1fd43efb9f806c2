//! `drain start`: makes a job. What was done of it when it was interrupted is done: the same command goes on.

use serde_json::json;
use tokio::sync::watch;

use super::args::{Form, Open, StartArguments};
use super::cluster::{Cluster, of_job};
use super::hand::Hand;
use super::plan::{Plan, look, scan_line, words};
use crate::app;
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::print;
use crate::drain::hold::{Admins, Hold, HoldError};
use crate::drain::job::{
    Filled, Job, JobError, New, OpenLedgers, Phase, Progress, ReaderGate, fill,
};

/// `drain start`: 1 if something is in the way.
pub(super) fn start(arguments: &StartArguments) -> Result<Exit, Failure> {
    let _log = super::log();
    block_on::<_, Failure>(async {
        let cluster = Cluster::open(&arguments.cluster).await?;
        let mut hand = Hand::new()?;
        let plan = look(&cluster, &arguments.what, &mut hand).await?;
        if !plan.blockers.is_empty() || !arguments.execute {
            print(&match arguments.output {
                Form::Human => plan.human() + &intention(&plan),
                Form::Json => plan.json().to_string() + "\n",
            })?;
            return Ok(plan.exit());
        }
        let job = begin(&cluster, arguments, &plan).await?;
        let admins: Admins = arguments.admins.iter().cloned().collect();
        let work = hold(&cluster, &job, &admins);
        hand.follow(work, || "making the bookies read-only".to_owned())
            .await?
            .map_err(|error| of_hold(error, &job))?;
        let filled = tasks(&cluster, &job, &mut hand).await?;
        cluster.jobs.started(&job.id).await.map_err(of_job)?;
        print(&told(arguments.output, &job, &filled))?;
        Ok(Exit::Ok)
    })
}

fn intention(plan: &Plan) -> String {
    match plan.blockers.is_empty() {
        true => format!(
            "would make {} read-only and begin; with --execute\n",
            words(&plan.bookies)
        ),
        false => String::new(),
    }
}

/// The job, new or as an interrupted start left it.
async fn begin(cluster: &Cluster, arguments: &StartArguments, plan: &Plan) -> Result<Job, Failure> {
    let all = cluster.jobs.list().await.map_err(of_job)?;
    let left = |job: &Job| job.phase == Phase::Starting && job.bookies == plan.bookies;
    if let Some(job) = all.into_iter().find(left) {
        eprintln!(
            "dirkeeper: goes on with job {}, whose start was interrupted",
            job.id
        );
        return Ok(job);
    }
    let new = New {
        bookies: plan.bookies.clone(),
        open_ledgers: match arguments.open_ledgers {
            Open::Wait => OpenLedgers::Wait,
            Open::Unload => OpenLedgers::Unload,
        },
        reader_gate: plan.gate,
        mirror: arguments.mirror_offline_ledgers,
        began: cluster.clock.now().wall.0,
        who: app::host_name(),
    };
    cluster
        .jobs
        .create(&new, &plan.limits)
        .await
        .map_err(of_job)
}

/// Makes all of them read-only. Those that are already stay so when one refuses: the claims say why.
async fn hold(cluster: &Cluster, job: &Job, admins: &Admins) -> Result<(), HoldError> {
    let hold = Hold {
        store: &*cluster.store,
        place: &cluster.place,
        jobs: &cluster.jobs,
        job: &job.id,
        admins,
        clock: &cluster.clock,
    };
    for bookie in &job.bookies {
        if hold.enter(bookie).await? {
            tracing::info!("{bookie} is read-only now");
        }
    }
    Ok(())
}

fn of_hold(error: HoldError, job: &Job) -> Failure {
    let exit = match &error {
        HoldError::Store { source, .. } | HoldError::Job(JobError::Store { source, .. }) => {
            super::cluster::exit_of(source)
        }
        HoldError::Admin { .. } | HoldError::Unchanged { .. } => Exit::Unavailable,
        _ => Exit::FAILED,
    };
    let id = &job.id;
    Failure::new(exit, error).remedy(format!(
        "mend it and start again with the same bookies, or 'dirkeeper drain cancel --job {id} --execute'"
    ))
}

async fn tasks(cluster: &Cluster, job: &Job, hand: &mut Hand) -> Result<Filled, Failure> {
    let root = &cluster.place.ledgers_root;
    let tasks = cluster.jobs.tasks_of(job, root);
    let (progress, seen) = watch::channel(Progress::default());
    let work = fill(&tasks, &*cluster.store, root, &job.bookies, &progress);
    let filled = hand.follow(work, || scan_line(*seen.borrow())).await?;
    filled.map_err(of_job)
}

fn told(form: Form, job: &Job, filled: &Filled) -> String {
    let named = filled.progress.named;
    match form {
        Form::Json => {
            json!({ "job": job.id, "bookies": job.bookies, "ledgers": named, "phase": "running" })
                .to_string()
                + "\n"
        }
        Form::Human => {
            let mut text = format!("{}\n", job.id);
            text.push_str(&format!(
                "{named} ledgers are to be moved; work on them with 'dirkeeper drain run --job {} --execute', here or on other machines\n",
                job.id
            ));
            if job.reader_gate == ReaderGate::PerLedger {
                text.push_str(
                    "'drain run' has to go on until 'drain finish --readers-safe': it keeps what readers may still need\n",
                );
            }
            text
        }
    }
}
