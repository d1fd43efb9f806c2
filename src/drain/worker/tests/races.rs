//! Others who work on the same ledgers: a second worker, BookKeeper's own replicator, writers who change or close a ledger,
//! somebody who deletes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::shapes;
use super::world::{Shape, World, now, path_of};
use crate::cluster::store::{Kind, MetaStore, Op};
use crate::drain::failpoint::{Failpoint, Failpoints};
use crate::drain::plan::patch;

fn many(count: u64) -> Vec<Shape> {
    (1..=count).map(|id| Shape::simple(id, &[40; 9])).collect()
}

#[tokio::test]
async fn two_workers_on_one_job_do_each_ledger_once() {
    let world = World::with(6, 1, &many(40)).await;
    let judged = |world: &Arc<World>| {
        let mut worker = world.worker(Arc::new(world.server.connect()));
        let judge = Arc::clone(world);
        worker.failpoints = Failpoints::new(move |point| {
            if point == Failpoint::AfterChange {
                judge.judge("two workers");
            }
            false
        });
        worker
    };
    let (one, two) = tokio::join!(world.run(judged(&world)), world.run(judged(&world)));
    world.judge_end("at the end", &[]);
    let fragments = [one, two].map(|outcome| outcome.progress.moved.fragments);
    assert_eq!(fragments.iter().sum::<u64>(), 40, "{fragments:?}");
}

/// As BookKeeper's worker: it takes the lock, copies, replaces a bookie unless somebody changed the ledger, and gives the
/// lock back.
async fn replicate(world: &World, ledger: u64, store: &dyn MetaStore) -> bool {
    let lock = format!("/ledgers/underreplication/locks/urL{ledger:010}");
    if store
        .create(&lock, b"bookieId: \"java\"\n", Kind::Ephemeral)
        .await
        .is_err()
    {
        return false;
    }
    let path = path_of(ledger);
    let (bytes, stat) = store.get(&path).await.unwrap();
    let metadata = world.metadata(ledger).unwrap();
    let mut made = false;
    let segment = &metadata.segments[0];
    let index = (ledger % 3) as usize;
    let old = segment.members[index].clone();
    let others = world.bookies.iter().skip(1);
    let new = others
        .map(|one| one.id())
        .find(|id| segment.members.iter().all(|one| one != id));
    if let Some(new) = new {
        let target = world.bookies.iter().find(|one| one.id() == new).unwrap();
        for entry in 0..9 {
            if metadata.write_set(entry).contains(&old.as_str()) {
                target.put(ledger, entry, world.raw(ledger, entry));
                tokio::task::yield_now().await;
            }
        }
        let changed = patch::replace(&bytes, 0, &[(index, &old, new)]).unwrap();
        made = store.set(&path, &changed, Some(stat.version)).await.is_ok();
    }
    store.delete(&lock, None).await.unwrap();
    made
}

#[tokio::test]
async fn bookkeepers_own_worker_and_ours_lose_nothing() {
    let world = World::with(7, 1, &many(30)).await;
    // Both folders are there where replication ever ran.
    let folder = "/ledgers/underreplication/locks/x";
    crate::cluster::store::create_with_parents(&*world.admin, folder, b"", Kind::Persistent)
        .await
        .unwrap();
    world.admin.delete(folder, None).await.unwrap();
    let mut worker = world.worker(Arc::new(world.server.connect()));
    let judge = Arc::clone(&world);
    worker.failpoints = Failpoints::new(move |point| {
        if point == Failpoint::AfterChange {
            judge.judge("beside Java");
        }
        false
    });
    let java = async {
        let store = world.server.connect();
        let mut made = 0;
        for round in 0..4 {
            for ledger in 1..=30 {
                if (ledger + round) % 2 == 0 {
                    made += u32::from(replicate(&world, ledger, &store).await);
                    world.judge("after Java");
                }
                tokio::task::yield_now().await;
            }
        }
        made
    };
    let (_, made) = tokio::join!(world.run(worker), java);
    assert!(0 < made, "it never had its turn");
    world.judge("at the end");
    for ledger in 1..=30 {
        let metadata = world.metadata(ledger).unwrap();
        assert!(
            !metadata.bookies().contains(world.bookies[0].id()),
            "{ledger}"
        );
    }
    assert_eq!(now(world.tasks().count()).unwrap(), 0);
}

#[tokio::test]
async fn a_lock_of_somebody_else_is_waited_for() {
    let world = World::with(5, 1, &[Shape::simple(1, &[40; 6])]).await;
    let java = world.server.connect();
    let lock = "/ledgers/underreplication/locks/urL0000000001";
    crate::cluster::store::create_with_parents(&java, lock, b"", Kind::Ephemeral)
        .await
        .ok();
    crate::cluster::store::create_with_parents(
        &java,
        &lock.replace("0001", "0009"),
        b"",
        Kind::Persistent,
    )
    .await
    .unwrap();
    java.delete(&lock.replace("0001", "0009"), None)
        .await
        .unwrap();
    if java.stat(lock).await.unwrap().is_none() {
        java.create(lock, b"", Kind::Ephemeral).await.unwrap();
    }
    let before = world.metadata(1);
    let progress = tokio::sync::watch::Sender::new(crate::drain::worker::Progress::default());
    let mut seen = progress.subscribe();
    let worker = world.worker(Arc::new(world.server.connect()));
    let job = world.job.as_ref().unwrap();
    let ran = crate::drain::worker::run(job, worker, std::future::pending(), &progress);
    let release = async {
        seen.wait_for(|one| 0 < one.busy).await.unwrap();
        assert_eq!(world.metadata(1), before);
        java.delete(lock, None).await.unwrap();
    };
    let both = async { tokio::join!(ran, release) };
    let (ran, ()) = tokio::time::timeout(super::world::STUCK, both)
        .await
        .expect("stuck");
    ran.unwrap();
    world.judge_end("at the end", &[]);
}

#[tokio::test]
async fn nothing_is_changed_under_the_lock_of_another_of_us() {
    let world = World::with(5, 1, &[Shape::simple(1, &[40; 6])]).await;
    let session = Arc::new(world.server.connect());
    let other = Arc::new(world.server.connect());
    let mut worker = world.worker(session.clone());
    let (there, theirs) = (Arc::clone(&world), other.clone());
    let once = AtomicUsize::new(0);
    worker.failpoints = Failpoints::new(move |point| {
        if point == Failpoint::BeforeChange && once.fetch_add(1, Ordering::Relaxed) == 0 {
            session.expire();
            // As another worker takes a ledger: the lock in version 1, and its choice.
            let path = "/ledgers/underreplication/locks/urL0000000001".to_owned();
            let tasks = there
                .jobs(theirs.clone())
                .tasks(&there.job.as_ref().unwrap().id);
            let stored = now(tasks.get(1)).unwrap().unwrap();
            let (data, kind) = (Vec::new(), Kind::Ephemeral);
            let ops = [
                Op::Create {
                    path: path.clone(),
                    data: data.clone(),
                    kind,
                },
                Op::Set {
                    path,
                    data,
                    version: Some(0),
                },
                tasks.save_step(&stored),
            ];
            now(theirs.multi(&ops)).unwrap();
            session.reconnect();
        }
        false
    });
    let before = world.metadata(1);
    let progress = tokio::sync::watch::Sender::new(crate::drain::worker::Progress::default());
    let mut seen = progress.subscribe();
    let job = world.job.as_ref().unwrap();
    let ran = crate::drain::worker::run(job, worker, std::future::pending(), &progress);
    let release = async {
        seen.wait_for(|one| 0 < one.busy || 0 < one.moved.ledgers)
            .await
            .unwrap();
        assert_eq!(world.metadata(1), before);
        other.expire();
    };
    let both = async { tokio::join!(ran, release) };
    let (ran, ()) = tokio::time::timeout(super::world::STUCK, both)
        .await
        .expect("stuck");
    ran.unwrap();
    world.judge_end("at the end", &[]);
}

/// Does something to the ledger, once, when a worker reaches that step.
async fn meanwhile(
    at: Failpoint,
    shape: Shape,
    what: impl Fn(&World) + Send + Sync + 'static,
) -> Arc<World> {
    let world = World::with(7, 2, &[shape]).await;
    let mut worker = world.worker(Arc::new(world.server.connect()));
    let (there, once) = (Arc::clone(&world), AtomicUsize::new(0));
    worker.failpoints = Failpoints::new(move |point| {
        if point == at && once.fetch_add(1, Ordering::Relaxed) == 0 {
            what(&there);
        }
        false
    });
    world.run(worker).await;
    world
}

const STEPS: [Failpoint; 6] = [
    Failpoint::Chosen,
    Failpoint::LockHeld,
    Failpoint::PartCopied,
    Failpoint::Verified,
    Failpoint::BeforeChange,
    Failpoint::AfterChange,
];

#[tokio::test]
async fn a_ledger_that_is_deleted_meanwhile_is_done() {
    for at in STEPS {
        let world = meanwhile(at, Shape::simple(1, &[40; 6]), |world| {
            now(world.admin.delete(&path_of(1), None)).unwrap();
        })
        .await;
        world.judge_end(at.name(), &[]);
        assert_eq!(world.metadata(1), None);
    }
}

#[tokio::test]
async fn a_writer_that_changes_its_ensemble_meanwhile_keeps_its_change() {
    for at in STEPS {
        let shape = shapes().into_iter().find(|shape| shape.id == 257).unwrap();
        let world = meanwhile(at, shape, |world| {
            // The open end leaves bookie 1.
            let path = path_of(257);
            let (bytes, stat) = now(world.admin.get(&path)).unwrap();
            let (old, new) = (world.bookies[1].id(), world.bookies[6].id());
            for entry in 4..6 {
                world.bookies[6].put(257, entry, world.raw(257, entry));
            }
            let bytes = patch::replace(&bytes, 4, &[(1, old, new)]).unwrap();
            now(world.admin.set(&path, &bytes, Some(stat.version))).unwrap();
        })
        .await;
        world.judge_end(at.name(), &[]);
        let metadata = world.metadata(257).unwrap();
        assert_eq!(metadata.segments[1].members[1], world.bookies[6].id());
    }
}

#[tokio::test]
async fn limits_of_a_job_bind_ledgers_at_a_time() {
    let world = World::with(5, 1, &many(6)).await;
    world.limits.send_replace(super::world::limits(2_000, 2));
    let worker = world.worker(Arc::new(world.server.connect()));
    let most = async {
        let mut most = 0;
        while now(world.tasks().count()).unwrap() != 0 {
            most = most.max(world.locks().len());
            if most == 2 {
                world.limits.send_replace(super::world::limits(0, 2));
            }
            sleep(Duration::from_millis(1)).await;
        }
        most
    };
    let (_, most) = tokio::join!(world.run(worker), most);
    assert_eq!(most, 2);
    world.judge_end("at the end", &[]);
}
