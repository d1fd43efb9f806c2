//! Tests of the worker, against bookies that speak the real protocol: what moves, what it costs, and within which bounds.

mod bounds;
mod deaths;
mod faults;
mod hooked;
mod races;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::cluster::Paced;
use crate::cluster::ledger::LedgerState;
use crate::drain::job::Status;
use hooked::{Fate, hooked, paths};
use world::{Shape, World, limits};

/// Ledgers of every kind that a worker meets: several segments, striped or not, with empty ends, empty, open, in recovery.
fn shapes() -> Vec<Shape> {
    let sizes = |count: usize| (0..count).map(|at| at * 37 % 200).collect::<Vec<_>>();
    let shape = |id, state, quorums, segments: &[(u64, &[usize])], sizes| Shape {
        id,
        state,
        quorums,
        segments: segments
            .iter()
            .map(|(first, places)| (*first, places.to_vec()))
            .collect(),
        sizes,
    };
    use LedgerState::{Closed, Open};
    vec![
        // Both that are to be emptied in one segment, and striping.
        shape(
            1,
            Closed,
            (3, 2, 2),
            &[(0, &[0, 1, 2]), (7, &[3, 1, 2])],
            sizes(13),
        ),
        // Every entry on every bookie.
        shape(
            2,
            Closed,
            (2, 2, 1),
            &[(0, &[4, 0]), (3, &[2, 3])],
            sizes(5),
        ),
        // An end without an entry, and one without any for the bookie.
        shape(
            3,
            Closed,
            (4, 1, 1),
            &[(0, &[2, 3, 4, 5]), (2, &[2, 3, 0, 1])],
            sizes(3),
        ),
        shape(4, Closed, (3, 3, 2), &[(0, &[1, 2, 3])], Vec::new()),
        // The last segment is still written.
        shape(
            257,
            Open,
            (3, 2, 2),
            &[(0, &[0, 2, 3]), (4, &[2, 1, 4])],
            sizes(6),
        ),
        shape(
            258,
            Open,
            (3, 2, 2),
            &[(0, &[1, 0, 3]), (5, &[2, 3, 4])],
            sizes(6),
        ),
        // Nothing of it is theirs.
        shape(5, Closed, (3, 2, 2), &[(0, &[2, 3, 4])], sizes(3)),
    ]
}

#[tokio::test]
async fn everything_moves_byte_for_byte_and_only_names_change() {
    let world = World::with(7, 2, &shapes()).await;
    let outcome = world.finish().await;
    world.judge_end("at the end", &[257]);
    assert_eq!((outcome.failed, outcome.reports), (vec![], vec![]));
    let waits = world.tasks().get(257).await.unwrap().unwrap().task;
    assert_eq!(waits.status, Status::WaitingOpen);
    let moved = outcome.progress.moved;
    assert_eq!((moved.ledgers, moved.fragments), (5, 10));
    // A second worker finds nothing to do, and changes nothing.
    let before = world.metadata(257);
    world.finish().await;
    assert_eq!(world.metadata(257), before);
    world.pass();
    world.judge_end("after the bookies forgot", &[257]);
}

#[tokio::test]
async fn large_entries_need_no_more_room_than_there_is() {
    let sizes: Vec<_> = (0..24)
        .map(|at| [0, 5 << 20, 1 << 20, 17][at % 4])
        .collect();
    let world = World::with(5, 1, &[Shape::simple(1, &sizes), Shape::simple(2, &sizes)]).await;
    let mut worker = world.worker(Arc::new(world.server.connect()));
    // One large entry and a few small ones.
    worker.memory = 6 << 20;
    let outcome = world.run(worker).await;
    world.judge_end("at the end", &[]);
    assert_eq!(outcome.progress.moved.ledgers, 2);
}

#[tokio::test]
async fn a_ledger_costs_six_requests_to_the_store() {
    let shapes: Vec<_> = (1..=50).map(|id| Shape::simple(id, &[10; 8])).collect();
    let world = World::with(5, 1, &shapes).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let store = hooked(Arc::new(world.server.connect()), move |call| {
        let paths = paths(call);
        // Not the lists of tasks, nor what it says of itself.
        let is_own = |path: &String| path.contains("/tasks/") || path.starts_with("/ledgers/");
        let is_list = matches!(&paths[..], [one] if one[..one.len() - 2].ends_with("/tasks/"));
        let counts = !is_list && paths.iter().any(is_own);
        counted.fetch_add(usize::from(counts), Ordering::Relaxed);
        Fate::Answered
    });
    world.run(world.worker(store)).await;
    world.judge_end("at the end", &[]);
    // The task and the ledger; lock and choice; the change; the ledger; the end.
    let calls = calls.load(Ordering::Relaxed);
    assert!(
        (300..320).contains(&calls),
        "{calls}: some more for the first lock's folder"
    );
}

#[tokio::test]
async fn bytes_stay_within_the_limit_and_a_new_one_counts_at_once() {
    let shapes: Vec<_> = (1..=4).map(|id| Shape::simple(id, &[10_000; 30])).collect();
    let world = World::with(5, 1, &shapes).await;
    // What is read from the one source takes some 8 s.
    world.limits.send_replace(limits(100_000, 4));
    let added = Arc::new(std::sync::Mutex::new(Vec::new()));
    for bookie in &world.bookies[1..] {
        let (added, clock) = (Arc::clone(&added), world.clock.clone());
        bookie.instead(move |asked| {
            if let crate::cluster::bookie::fake::Asked::Add { .. } = asked {
                added.lock().unwrap().push(clock.elapsed());
            }
            None
        });
    }
    let began = world.clock.elapsed();
    let worker = world.worker(Arc::new(world.server.connect()));
    let later = async {
        while added.lock().unwrap().len() < 20 {
            tokio::task::yield_now().await;
            sleep(Duration::from_millis(10)).await;
        }
        world.limits.send_replace(limits(0, 4));
    };
    let (outcome, ()) = tokio::join!(world.run(worker), later);
    world.judge_end("at the end", &[]);
    assert_eq!(outcome.progress.moved.entries, 80);
    let times: Vec<_> = added.lock().unwrap().clone();
    let in_second = |from: Duration| {
        let second = from..from + Duration::from_secs(1);
        times
            .iter()
            .take(20)
            .filter(|at| second.contains(*at))
            .count()
    };
    let most = times
        .iter()
        .take(20)
        .map(|at| in_second(*at))
        .max()
        .unwrap();
    // Ten entries, and the one that goes first.
    assert!(most <= 11, "{most} entries of 10 kB in a second");
    assert!(Duration::from_millis(1500) < times[19] - began, "{times:?}");
}

#[tokio::test]
async fn the_store_is_asked_at_the_pace_of_the_job() {
    let world = World::with(5, 1, &[Shape::simple(1, &[10; 4])]).await;
    let asked = |requests| Limits {
        max_requests_per_second: requests,
        ..limits(0, 4)
    };
    world.limits.send_replace(asked(100));
    let paced = Arc::new(Paced::new(world.server.connect(), 1, world.clock.clone()));
    let mut worker = world.worker(paced.clone());
    let told = Arc::clone(&paced);
    worker.pace = Box::new(move |limit| {
        told.set_limit(if limit == 0 { u32::MAX } else { limit });
    });
    let began = world.clock.elapsed();
    let later = async {
        // Each shard is listed, so that there are more than 256 calls.
        while paced.calls() < 150 {
            sleep(Duration::from_millis(10)).await;
        }
        world.limits.send_replace(asked(0));
        world.clock.elapsed() - began
    };
    let (_, took) = tokio::join!(world.run(worker), later);
    assert!(Duration::from_millis(1300) < took, "150 calls in {took:?}");
    world.judge_end("at the end", &[]);
}

#[tokio::test]
async fn what_a_worker_has_done_is_in_the_store() {
    let world = World::with(5, 1, &[Shape::simple(1, &[100; 9])]).await;
    let outcome = world.finish().await;
    let jobs = world.jobs(world.admin.clone());
    let moved = jobs.moved(&world.job.as_ref().unwrap().id).await.unwrap();
    assert_eq!(moved, outcome.progress.moved);
    assert_eq!((moved.ledgers, moved.fragments, moved.entries), (1, 1, 6));
    assert_eq!(moved.bytes, 6 * (100 + 36));
}

#[tokio::test]
async fn a_worker_that_is_told_to_stop_leaves_no_lock() {
    let world = World::with(5, 1, &[Shape::simple(1, &[100; 9])]).await;
    world.limits.send_replace(limits(1, 4));
    let progress = watch::Sender::new(Progress::default());
    let worker = world.worker(Arc::new(world.server.connect()));
    let stop = async {
        while world.locks().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let ran = run(world.job.as_ref().unwrap(), worker, stop, &progress);
    let outcome = timeout(world::STUCK, ran)
        .await
        .expect("it does not stop")
        .unwrap();
    assert!(outcome.is_stopped);
    timeout(world::STUCK, async {
        while !world.locks().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the lock is left");
    world.judge("stopped");
}

#[tokio::test]
async fn nobody_works_on_a_job_that_was_given_up() {
    let world = World::with(5, 1, &[Shape::simple(1, &[100; 9])]).await;
    let job = world.job.as_ref().unwrap();
    world
        .jobs(world.admin.clone())
        .cancel(&job.id)
        .await
        .unwrap();
    let progress = watch::Sender::new(Progress::default());
    let worker = world.worker(Arc::new(world.server.connect()));
    let ran = run(job, worker, std::future::pending(), &progress).await;
    assert!(
        matches!(ran, Err(WorkError::Job(JobError::Phase { .. }))),
        "{ran:?}"
    );
    assert_eq!(world.locks(), Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_that_only_waits_hears_that_its_job_was_given_up() {
    let open = shapes().into_iter().filter(|shape| shape.id == 257);
    let world = World::with(7, 2, &open.collect::<Vec<_>>()).await;
    let progress = watch::Sender::new(Progress::default());
    let mut seen = progress.subscribe();
    let mut worker = world.worker(Arc::new(world.server.connect()));
    worker.until_waiting = false;
    let job = world.job.as_ref().unwrap();
    let cancel = async {
        // Nothing of it can be moved any more.
        let waits = |one: &Progress| 0 < one.waiting && one.working == 0;
        seen.wait_for(waits).await.unwrap();
        let jobs = world.jobs(world.admin.clone());
        jobs.cancel(&job.id).await.unwrap();
    };
    let ran = run(job, worker, std::future::pending(), &progress);
    let both = async { tokio::join!(ran, cancel) };
    let (ran, ()) = timeout(world::STUCK, both).await.expect("it goes on");
    let is_over = matches!(ran, Err(WorkError::Job(JobError::Phase { .. })));
    assert!(is_over, "{ran:?}");
    assert_eq!(world.locks(), Vec::<String>::new());
}
