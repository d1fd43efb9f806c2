//! Workers that die at each of their steps, or lose their session or an answer, and others that go on after them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::hooked::{Call, Fate, hooked};
use super::shapes;
use super::world::{STUCK, Shape, World};
use crate::cluster::memory::MemorySession;
use crate::cluster::store::{Kind, MetaStore, create_with_parents};
use crate::drain::failpoint::{Failpoint, Failpoints};
use crate::drain::job::{ReaderGate, Status};
use crate::drain::worker::{Progress, WorkError, Worker, run};

/// Has a worker die when it reaches that step once more after so many times; whether it did. Everything is judged at
/// each step of it.
async fn die(world: &Arc<World>, at: Failpoint, after: usize, is_ended: bool) -> bool {
    let (reached, died) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let (judge, dead) = (Arc::clone(world), Arc::clone(&died));
    let session = Arc::new(world.server.connect());
    let mut worker = world.worker(session.clone());
    worker.failpoints = Failpoints::new(move |point| {
        judge.judge(point.name());
        let dies = point == at && reached.fetch_add(1, Ordering::Relaxed) == after;
        if dies {
            dead.notify_one();
        }
        dies
    });
    let progress = watch::Sender::new(Progress::default());
    let ran = run(
        world.job.as_ref().unwrap(),
        worker,
        std::future::pending(),
        &progress,
    );
    let has_died = timeout(STUCK, async {
        tokio::select! {
            ran = ran => { ran.expect("it gave up"); false }
            () = died.notified() => true,
        }
    });
    let has_died = has_died.await.expect("neither dead nor done");
    if is_ended {
        session.expire();
    }
    has_died
}

#[tokio::test]
async fn death_at_every_step_ends_the_same() {
    for point in Failpoint::ALL {
        for after in [0, 1, 3] {
            let what = format!("{point:?} {after}");
            let world = World::with(7, 2, &shapes()).await;
            assert!(
                die(&world, point, after, true).await,
                "{what} is not reached"
            );
            world.judge(&what);
            // What has no lock any more may be gone from targets that no metadata names.
            world.pass();
            world.judge(&what);
            world.finish().await;
            world.judge_end(&what, &[257]);
        }
    }
}

#[tokio::test]
async fn one_death_after_the_other_and_one_that_is_dropped_gives_its_lock_back() {
    let world = World::with(7, 2, &shapes()).await;
    for point in Failpoint::ALL {
        die(&world, point, 0, false).await;
        world.judge(point.name());
    }
    world.finish().await;
    world.judge_end("at the end", &[257]);
}

/// The session ends at a step, once; the worker lives.
async fn expire_at(at: Failpoint) {
    let world = World::with(7, 2, &shapes()).await;
    let session = Arc::new(world.server.connect());
    let mut worker = world.worker(session.clone());
    let (once, judge) = (AtomicBool::new(false), Arc::clone(&world));
    worker.failpoints = Failpoints::new(move |point| {
        judge.judge(point.name());
        if point == at && !once.swap(true, Ordering::Relaxed) {
            session.expire();
            session.reconnect();
            // The worst that can happen without the lock.
            judge.pass();
        }
        false
    });
    world.run(worker).await;
    world.judge_end(at.name(), &[257]);
}

#[tokio::test]
async fn a_session_that_ends_at_any_step_costs_no_entry() {
    for point in Failpoint::ALL {
        expire_at(point).await;
    }
}

#[tokio::test]
async fn lost_answers_to_every_transaction() {
    for fate in [Fate::Lost, Fate::MadeAndLost] {
        for which in 0..6 {
            let world = World::with(7, 2, &shapes()).await;
            let (number, chosen) = (AtomicUsize::new(0), fate.clone());
            let store = hooked(Arc::new(world.server.connect()), move |call| {
                let is_one = matches!(call, Call::Multi(_));
                if is_one && number.fetch_add(1, Ordering::Relaxed) == which {
                    chosen.clone()
                } else {
                    Fate::Answered
                }
            });
            world.run(world.worker(store)).await;
            let locks = async {
                while !world.locks().is_empty() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            timeout(STUCK, locks).await.expect("a lock is left");
            world.judge_end(&format!("{fate:?} {which}"), &[257]);
        }
    }
}

#[tokio::test]
async fn a_store_that_is_away_for_a_while_is_waited_for() {
    let world = World::with(5, 1, &[Shape::simple(1, &[10; 12])]).await;
    let session = Arc::new(world.server.connect());
    let mut worker = world.worker(session.clone());
    let once = AtomicBool::new(false);
    let away = Arc::new(Notify::new());
    let (cut, gone) = (session.clone(), Arc::clone(&away));
    worker.failpoints = Failpoints::new(move |point| {
        if point == Failpoint::BeforeChange && !once.swap(true, Ordering::Relaxed) {
            cut.disconnect();
            gone.notify_one();
        }
        false
    });
    let back = async {
        away.notified().await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        session.reconnect();
    };
    tokio::join!(world.run(worker), back);
    world.judge_end("at the end", &[]);
}

#[tokio::test]
async fn what_is_moved_stays_locked_for_readers_until_the_end_of_the_job() {
    let shapes = [Shape::simple(1, &[10; 12]), Shape::simple(2, &[10; 3])];
    let world = World::with(5, 1, &shapes).await;
    let mut job = world.job.clone().unwrap();
    job.reader_gate = ReaderGate::PerLedger;
    let progress = watch::Sender::new(Progress::default());
    let hasty = world.worker(Arc::new(world.server.connect()));
    let refused = run(&job, hasty, std::future::pending(), &progress).await;
    assert_eq!(refused, Err(WorkError::Keeps));

    let all_held = async |what: &str| {
        let is_held = timeout(STUCK, async {
            while world.locks().len() < 2 || statuses(&world).await != [Status::Held; 2] {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        is_held.await.unwrap_or_else(|_| panic!("not held {what}"));
        world.pass();
        for ledger in [1, 2] {
            let old = world.bookies[0].entries(ledger);
            assert!(!old.is_empty(), "{what}: a source forgot {ledger}");
        }
    };
    // The first worker loses its session, and then it dies.
    let session = Arc::new(world.server.connect());
    let worker = patient(&world, session.clone());
    let first = run(&job, worker, std::future::pending(), &progress);
    let seen = async {
        all_held("at first").await;
        session.expire();
        session.reconnect();
        all_held("after the session").await;
    };
    tokio::select! {
        ended = first => panic!("{ended:?}"),
        () = seen => {}
    }
    session.expire();
    assert_eq!(world.locks(), [""; 0]);
    let second = patient(&world, Arc::new(world.server.connect()));
    let second = run(&job, second, std::future::pending(), &progress);
    let told = async {
        all_held("after a death").await;
        assert_eq!(world.tasks().let_go().await, Ok(2));
        world.jobs(world.admin.clone()).finished(&job.id).await
    };
    let (ended, told) = tokio::join!(timeout(STUCK, second), told);
    assert_eq!(told, Ok(()));
    assert!(!ended.expect("stuck").unwrap().is_stopped);
    world.judge_end("at the end", &[]);
    world.pass();
    assert!(world.bookies[0].entries(1).is_empty(), "held for nobody");
}

#[tokio::test]
async fn a_ledger_that_lacks_replicas_is_left_to_bookkeeper_also_when_it_is_kept() {
    let shapes = [Shape::simple(1, &[10; 12]), Shape::simple(2, &[10; 3])];
    let world = World::with(5, 1, &shapes).await;
    let mut job = world.job.clone().unwrap();
    job.reader_gate = ReaderGate::PerLedger;
    let lacking = "/ledgers/underreplication/ledgers/0000/0000/0000/0001/urL0000000001";
    let locked = async |expected: &[&str]| {
        let seen = timeout(STUCK, async {
            while world.locks() != expected || statuses(&world).await != [Status::Held; 2] {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        seen.await.unwrap_or_else(|_| panic!("not {expected:?}"));
    };
    let progress = watch::Sender::new(Progress::default());
    let worker = patient(&world, Arc::new(world.server.connect()));
    let ran = run(&job, worker, std::future::pending(), &progress);
    let seen = async {
        locked(&["urL0000000001", "urL0000000002"]).await;
        let made = create_with_parents(&*world.admin, lacking, b"", Kind::Persistent);
        made.await.unwrap();
        locked(&["urL0000000002"]).await;
        world.admin.delete(lacking, None).await.unwrap();
        locked(&["urL0000000001", "urL0000000002"]).await;
    };
    tokio::select! {
        ended = ran => panic!("{ended:?}"),
        () = seen => {}
    }
}

/// A worker that waits for others.
fn patient(world: &World, session: Arc<MemorySession>) -> Worker {
    Worker {
        until_waiting: false,
        ..world.worker(session)
    }
}

async fn statuses(world: &World) -> Vec<Status> {
    let mut all = Vec::new();
    let tasks = world.tasks();
    let seen = tasks.for_each(|stored| all.push(stored.task.status));
    seen.await.expect("they can be read");
    all
}
