//! What a drain needs in memory at its peak: a job of a million ledgers from its plan to its end, and a worker that moves
//! entries of 5 MB. Prints one JSON line a figure, and ends with an error where one is beyond its limit.

#![allow(clippy::print_stdout)]

#[path = "drain/bookie.rs"]
mod bookie;
#[path = "drain/cluster.rs"]
mod cluster;
#[path = "common/usage.rs"]
mod usage;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use bookie::Bookies;
use cluster::{Generated, Shape};
use dirkeeper::clock::Clock;
use dirkeeper::cluster::bookie::{self as protocol, Limits as BookieLimits};
use dirkeeper::cluster::ledger::Layout;
use dirkeeper::cluster::store::MetaStore;
use dirkeeper::drain::around::Place;
use dirkeeper::drain::end::left;
use dirkeeper::drain::job::{Job, Jobs, Limits, New, Progress, fill, survey};
use dirkeeper::drain::plan::place::Target;
use dirkeeper::drain::worker::{self, MEMORY, Worker};
use tokio::sync::watch;

/// Megabytes at the peak (the budget of a drain).
const MOST_MEMORY: f64 = 256.0;

/// Bookies: the one that is emptied, one with the other replicas, and those that take what is moved.
const BOOKIES: usize = 6;

const LIMITS: Limits = Limits {
    max_bytes_per_second: 0,
    max_requests_per_second: 0,
    workers: 8,
};

const CASES: [(&str, Shape); 2] = [
    (
        "a million ledgers",
        Shape {
            ledgers: 1_000_000,
            one_of: 50,
            entries: 4,
            size: 1000,
        },
    ),
    (
        "entries of 5 MB",
        Shape {
            ledgers: 60,
            one_of: 1,
            entries: 16,
            size: 5_000_000,
        },
    ),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let [_, "--case", "bookies", count, size, ..] = words[..] {
        let number = |text: &str| text.parse().expect("a number");
        return bookie::serve(number(count), number(size));
    }
    if let [_, "--case", case, ..] = words[..] {
        let (name, shape) = CASES
            .iter()
            .find(|(name, _)| *name == case)
            .expect("a case");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        return runtime.expect("a runtime").block_on(one(name, *shape));
    }
    // Each in a process of its own, which has a peak of its own.
    for (case, _) in CASES {
        let program = std::env::current_exe().expect("our own path");
        let status = Command::new(program).args(["--case", case]).status();
        assert!(status.expect("the case starts").success(), "{case} failed");
    }
}

async fn one(case: &str, shape: Shape) {
    let clock = Clock::start();
    let bookies = Bookies::start(BOOKIES, usize::try_from(shape.size).expect("it fits"));
    let store = Generated::new(shape, bookies.ids.clone(), clock.clone());
    let store: Arc<dyn MetaStore> = store;
    let say = |what: &str, value: f64, unit: &str| {
        println!(
            "{{\"bench\":\"drain\",\"dirs\":0,\"what\":\"{case}, {what}\",\"value\":{value:.1},\"unit\":\"{unit}\"}}"
        );
    };
    let drained = BTreeSet::from([bookies.ids[0].clone()]);
    let jobs = Jobs::open(Arc::clone(&store), "/dirkeeper", "an-id");
    let progress = watch::Sender::new(Progress::default());
    let alive = bookies.ids.iter().cloned().collect();
    let plan = survey(&*store, "/ledgers", &drained, &alive, &progress).await;
    assert_eq!(plan.expect("the plan").ledgers, shape.ledgers);
    say("peak after plan", usage::peak(), "MB");
    let new = New {
        bookies: drained.clone(),
        ..New::default()
    };
    let job = jobs.create(&new, &LIMITS).await.expect("the job");
    let filled = fill(
        &jobs.tasks(&job.id),
        &*store,
        "/ledgers",
        &drained,
        &progress,
    )
    .await;
    assert_eq!(filled.expect("the tasks").added, shape.ledgers);
    jobs.started(&job.id).await.expect("the job begins");
    let job = jobs.get(&job.id).await.expect("the job");
    say("peak after start", usage::peak(), "MB");
    work(&store, &jobs, &job, &bookies.ids, &clock).await;
    say("peak after run", usage::peak(), "MB");
    let place = Place {
        ledgers_root: "/ledgers".to_owned(),
        root: "/dirkeeper".to_owned(),
        instance: "an-id".to_owned(),
    };
    let left = left(&*store, &place, &jobs, &job, true, &progress).await;
    assert!(left.expect("the end").is_nothing(), "something is left");
    let memory = usage::peak();
    say("peak memory", memory, "MB");
    say("CPU", usage::cpu(), "s");
    say("time", clock.elapsed().as_secs_f64(), "s");
    assert!(memory < MOST_MEMORY, "{case} took {memory} MB");
}

async fn work(store: &Arc<dyn MetaStore>, jobs: &Jobs, job: &Job, ids: &[String], clock: &Clock) {
    let limits = BookieLimits {
        in_flight: 512,
        ..BookieLimits::default()
    };
    let bookies = protocol::Bookies::new(Arc::clone(store), "/ledgers", clock.clone(), limits);
    let target = |id: &String| Target {
        id: id.clone(),
        free: 1 << 40,
        total: 1 << 41,
        is_writable: !job.bookies.contains(id),
        ..Target::default()
    };
    let (_targets, targets) = watch::channel(Arc::new(ids.iter().map(target).collect()));
    let (_limits, limits) = watch::channel(LIMITS);
    let worker = Worker {
        store: Arc::clone(store),
        ledgers_root: "/ledgers".to_owned(),
        layout: Layout::Hierarchical,
        jobs: jobs.clone(),
        bookies: Arc::new(bookies),
        clock: clock.clone(),
        targets,
        limits,
        secret: None,
        verify_all: true,
        until_waiting: true,
        memory: MEMORY,
        name: "bench".to_owned(),
        host: "here".to_owned(),
        pace: Box::new(|_| {}),
        failpoints: Default::default(),
    };
    let progress = watch::Sender::new(worker::Progress::default());
    let outcome = worker::run(job, worker, std::future::pending(), &progress).await;
    let outcome = outcome.expect("the worker comes to its end");
    assert_eq!(outcome.failed, [], "every ledger can be moved");
}
