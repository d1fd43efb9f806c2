//! `drain run`: a worker, and beside it what keeps a job going: bookies that stay read-only, space that is asked for
//! again, and topics that are unloaded where the job says so.

use std::collections::BTreeMap;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::args::RunArguments;
use super::cluster::{Cluster, exit_of, file, of_job};
use super::hand::Hand;
use crate::app;
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::print;
use crate::cli::textfile::Textfile;
use crate::cluster::broker::{BrokerOptions, Brokers, TopicName};
use crate::cluster::store::Link;
use crate::drain::around::look;
use crate::drain::hold::{Admins, Hold, HoldError};
use crate::drain::job::{Job, JobError, Limits, OpenLedgers, Phase, ReaderGate, Status};
use crate::drain::plan::place::Target;
use crate::drain::worker::{self, MEMORY, Outcome, Progress, WorkError, Worker};
use crate::health::moment::Elapsed;
use crate::health::words::bytes_text;
use crate::http_client::Authorities;
use crate::metrics::{DrainFacts, render_drain};

/// Between two looks whether the bookies are still read-only: one that restarted takes writes until then.
const HOLD: Duration = Duration::from_secs(5);

/// Between two questions for space: what this and other workers give bookies is known meanwhile only as far as this one gave
/// it.
const SPACE: Duration = Duration::from_secs(60);

/// Between two files of metrics: more often than they are read.
const PUBLISH: Duration = Duration::from_secs(10);

/// Whether each bookie was read-only at the last look.
type Held = Mutex<BTreeMap<String, bool>>;

/// `drain run`: 0 when no task is left.
pub(super) fn run(arguments: &RunArguments) -> Result<Exit, Failure> {
    let _log = super::log();
    block_on::<_, Failure>(async {
        let cluster = Cluster::open(&arguments.cluster).await?;
        let job = cluster.job(arguments.job.as_deref()).await?;
        may_run(&job)?;
        if !arguments.execute {
            let tasks = cluster.jobs.tasks(&job.id).count().await.map_err(of_job)?;
            print(&format!(
                "would work on job {}, of which {tasks} tasks are left; with --execute\n",
                job.id
            ))?;
            return Ok(Exit::Ok);
        }
        if arguments.until_waiting && job.reader_gate == ReaderGate::PerLedger {
            let error = anyhow::anyhow!(
                "job {} keeps moved ledgers for readers, which ends with the last worker",
                job.id
            );
            return Err(Failure::new(Exit::Usage, error).remedy("leave out --until-waiting"));
        }
        let brokers = brokers(arguments, &job)?;
        let mut hand = Hand::new()?;
        let outcome = work(&cluster, &job, arguments, brokers.as_ref(), &mut hand).await?;
        told(&cluster, &job, &outcome).await
    })
}

fn may_run(job: &Job) -> Result<(), Failure> {
    let (id, phase) = (&job.id, job.phase.name());
    let remedy = match job.phase {
        Phase::Running => return Ok(()),
        Phase::Starting => "give the same 'dirkeeper drain start' again: it goes on",
        Phase::Cancelled | Phase::Finished => "begin another one with 'dirkeeper drain start'",
    };
    let error = anyhow::anyhow!("job {id} is {phase}");
    Err(Failure::new(Exit::FAILED, error).remedy(remedy))
}

/// Who unloads, if the job wants it.
fn brokers(arguments: &RunArguments, job: &Job) -> Result<Option<Brokers>, Failure> {
    if job.open_ledgers != OpenLedgers::Unload {
        return Ok(None);
    }
    let Some(url) = &arguments.broker_url else {
        let error = anyhow::anyhow!(
            "job {} unloads topics that keep a ledger open, and it is not said where a broker is",
            job.id
        );
        return Err(Failure::new(Exit::Usage, error).remedy("name one with --broker-url"));
    };
    let authorities = match url.scheme() {
        "https" => Some(Authorities::of_system()),
        _ => None,
    };
    let token = arguments.broker_token_file.as_deref().map(file);
    let brokers = Brokers::new(BrokerOptions {
        urls: vec![url.clone()],
        cluster: None,
        token: token.transpose()?.map(|token| token.trim().to_owned()),
        authorities: (authorities.transpose())
            .map_err(|error| Failure::new(Exit::Config, error))?,
    });
    let brokers = brokers.map_err(|error| Failure::new(Exit::Usage, error))?;
    Ok(Some(brokers))
}

/// Everything at once, until the worker ends.
async fn work(
    cluster: &Cluster,
    job: &Job,
    arguments: &RunArguments,
    brokers: Option<&Brokers>,
    hand: &mut Hand,
) -> Result<Outcome, Failure> {
    let around = cluster.look().await?;
    let (targets, known) = watch::channel(Arc::new(around.targets(&job.bookies)));
    let limits = cluster.jobs.limits(&job.id).await.map_err(of_job)?;
    let (of_job_limits, followed) = watch::channel(limits);
    let (ours, limits) = watch::channel(own(limits, arguments));
    let (progress, seen) = watch::channel(Progress::default());
    let worker = worker_of(cluster, arguments, known, limits);
    let admins: Admins = arguments.admins.iter().cloned().collect();
    let held = Mutex::new(BTreeMap::new());
    let (stop, stopped) = watch::channel(false);
    let asked = async {
        let mut stopped = stopped;
        // The sender lives as long as this function.
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let worker = worker::run(job, worker, asked, &progress);
    let beside = async {
        tokio::join!(
            hold(cluster, job, &admins, &held),
            ask_space(cluster, job, &targets),
            follow(cluster, job, &of_job_limits),
            hand_on(followed, &ours, arguments),
            unload(cluster, job, brokers),
            publish(cluster, job, arguments, &seen, &held),
        );
    };
    tokio::pin!(worker);
    let both = async {
        tokio::select! {
            ended = &mut worker => Some(ended),
            () = beside => None,
        }
    };
    let ended = hand.shown(both, || line(&seen.borrow())).await.flatten();
    let ended = match ended {
        Some(ended) => ended,
        None => {
            // A signal: what it holds is given back in order.
            stop.send_replace(true);
            worker.await
        }
    };
    ended.map_err(|error| {
        let exit = match &error {
            WorkError::Store(source) => exit_of(source),
            WorkError::Job(_) => Exit::FAILED,
            WorkError::Keeps => Exit::Usage,
        };
        Failure::new(exit, error).remedy("run it again: it goes on where this one was")
    })
}

fn worker_of(
    cluster: &Cluster,
    arguments: &RunArguments,
    targets: watch::Receiver<Arc<Vec<Target>>>,
    limits: watch::Receiver<Limits>,
) -> Worker {
    let host = app::host_name();
    let paced = Arc::clone(&cluster.paced);
    Worker {
        store: Arc::clone(&cluster.store),
        ledgers_root: cluster.place.ledgers_root.clone(),
        layout: cluster.layout,
        jobs: cluster.jobs.clone(),
        bookies: Arc::clone(&cluster.bookies),
        clock: cluster.clock.clone(),
        targets,
        limits,
        secret: None,
        verify_all: arguments.verify_all,
        until_waiting: arguments.until_waiting,
        memory: MEMORY,
        name: format!("{host}-{}-{:08x}", process::id(), fastrand::u32(..)),
        host,
        pace: Box::new(move |limit| paced.set_limit(if limit == 0 { u32::MAX } else { limit })),
        failpoints: Default::default(),
    }
}

/// The job's limits, as far as this worker was not told others.
fn own(limits: Limits, arguments: &RunArguments) -> Limits {
    let requests = arguments.cluster.max_requests_per_second;
    Limits {
        workers: arguments.workers.unwrap_or(limits.workers),
        max_requests_per_second: requests.unwrap_or(limits.max_requests_per_second),
        ..limits
    }
}

async fn follow(cluster: &Cluster, job: &Job, into: &watch::Sender<Limits>) {
    if let Err(error) = cluster.jobs.follow_limits(&job.id, into).await {
        tracing::warn!(
            "changes of the limits are not heard of: {}",
            crate::report::text(&error)
        );
    }
    std::future::pending::<()>().await;
}

async fn hand_on(
    mut from: watch::Receiver<Limits>,
    into: &watch::Sender<Limits>,
    arguments: &RunArguments,
) {
    while from.changed().await.is_ok() {
        into.send_replace(own(*from.borrow(), arguments));
    }
}

/// A bookie forgets the order when it restarts, and when one of its own disks was full and is not any more.
async fn hold(cluster: &Cluster, job: &Job, admins: &Admins, held: &Held) {
    let hold = Hold {
        store: &*cluster.store,
        place: &cluster.place,
        jobs: &cluster.jobs,
        job: &job.id,
        admins,
        clock: &cluster.clock,
    };
    let mut looks = interval(HOLD);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = BTreeMap::<&str, String>::new();
    loop {
        looks.tick().await;
        if !matches!(*cluster.store.link().borrow(), Link::Connected(_)) {
            continue;
        }
        for bookie in &job.bookies {
            let entered = hold.enter(bookie).await;
            lock(held).insert(bookie.clone(), entered.is_ok());
            match entered {
                Ok(was_needed) => {
                    if was_needed {
                        tracing::warn!("{bookie} was writable, and is read-only again");
                    }
                    before.remove(bookie.as_str());
                }
                // The worker finds it out by itself.
                Err(HoldError::Job(JobError::Phase { .. })) => {}
                // Said once, and again when it is another.
                Err(error) => {
                    let why = crate::report::text(&error);
                    if before.insert(bookie, why.clone()).as_ref() != Some(&why) {
                        tracing::warn!("{why}");
                    }
                }
            }
        }
    }
}

async fn ask_space(cluster: &Cluster, job: &Job, targets: &watch::Sender<Arc<Vec<Target>>>) {
    let mut asks = interval(SPACE);
    asks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    asks.tick().await;
    loop {
        asks.tick().await;
        match look(&*cluster.store, &cluster.place, &cluster.bookies).await {
            Ok(around) => drop(targets.send_replace(Arc::new(around.targets(&job.bookies)))),
            Err(error) => tracing::warn!("{}", crate::report::text(&error)),
        }
    }
}

/// Unloads topics whose ledgers stay open: their next owner begins a new ledger, and closes the one that waits.
async fn unload(cluster: &Cluster, job: &Job, brokers: Option<&Brokers>) {
    let Some(brokers) = brokers else { return };
    let after = cluster.config.unload_after;
    let mut since = BTreeMap::<String, Elapsed>::new();
    let tasks = cluster.jobs.tasks(&job.id);
    let mut looks = interval(after);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let mut owners = BTreeMap::new();
        let now = cluster.clock.elapsed();
        let seen = tasks.for_each(|stored| {
            if let (Status::WaitingOpen, Some(owner)) = (stored.task.status, stored.task.owner) {
                let first = since.get(&owner).copied().unwrap_or(now);
                owners.insert(owner, first);
            }
        });
        if let Err(error) = seen.await {
            tracing::warn!("{}", crate::report::text(&error));
            continue;
        }
        since = owners;
        for (owner, first) in &mut since {
            if now.saturating_sub(*first) < after {
                continue;
            }
            let Some(topic) = TopicName::of_node(owner) else {
                continue;
            };
            match brokers.unload(&topic).await {
                Ok(()) => tracing::info!("{topic} was unloaded, because its ledger stayed open"),
                Err(error) => {
                    tracing::warn!("{topic} was not unloaded: {}", crate::report::text(&error));
                }
            }
            // The next time after another such wait.
            *first = now;
        }
    }
}

/// Writes the metrics, where they are wanted.
async fn publish(
    cluster: &Cluster,
    job: &Job,
    arguments: &RunArguments,
    progress: &watch::Receiver<Progress>,
    held: &Held,
) {
    let Some(path) = &arguments.textfile else {
        return;
    };
    let file = Textfile::new(path, false);
    let mut beats = interval(PUBLISH);
    loop {
        beats.tick().await;
        let progress = progress.borrow().clone();
        file.put(&render_drain(&DrainFacts {
            job: job.id.clone(),
            bookies: lock(held).clone().into_iter().collect(),
            ledgers: progress.moved.ledgers,
            fragments: progress.moved.fragments,
            entries: progress.moved.entries,
            bytes: progress.moved.bytes,
            left: vec![
                ("waiting", progress.waiting),
                ("later", progress.later),
                ("others", progress.busy),
                ("held", progress.held),
                ("failed", progress.failed),
            ],
            bad_replicas: progress.bad_replicas,
            requests: cluster.paced.calls(),
        }));
    }
}

fn lock(held: &Held) -> MutexGuard<'_, BTreeMap<String, bool>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn line(progress: &Progress) -> String {
    format!(
        "moved {} ledgers, {}; {}/s, {} at work, {} wait, {} held for readers, {} with others, {} cannot be done",
        progress.moved.ledgers,
        bytes_text(progress.moved.bytes),
        bytes_text(progress.rate),
        progress.working,
        progress.waiting + progress.later,
        progress.held,
        progress.busy,
        progress.failed
    )
}

/// What it came to.
async fn told(cluster: &Cluster, job: &Job, outcome: &Outcome) -> Result<Exit, Failure> {
    let moved = outcome.progress.moved;
    let mut text = format!(
        "moved {} ledgers, {} fragments, {} entries, {}\n",
        moved.ledgers,
        moved.fragments,
        moved.entries,
        bytes_text(moved.bytes)
    );
    for report in &outcome.reports {
        text.push_str(&format!("{report}\n"));
    }
    for (ledger, why) in &outcome.failed {
        text.push_str(&format!("ledger {ledger} cannot be moved: {why}\n"));
    }
    let left = cluster.jobs.tasks(&job.id).count().await.map_err(of_job)?;
    let exit = match left {
        0 => Exit::Ok,
        _ => Exit::FAILED,
    };
    text.push_str(&match left {
        0 => format!(
            "no task is left; 'dirkeeper drain finish --job {}' says whether the bookies can be stopped\n",
            job.id
        ),
        left => format!(
            "{left} tasks are left; 'dirkeeper drain status --job {}' says why\n",
            job.id
        ),
    });
    if outcome.is_stopped {
        text.push_str("stopped by a signal; the next one goes on where this one was\n");
    }
    print(&text)?;
    Ok(exit)
}
