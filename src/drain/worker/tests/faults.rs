//! Bookies that fail, lie, are full of work, or lose what they had.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::world::{PASSWORD, Shape, World};
use crate::cluster::bookie::Digest;
use crate::cluster::bookie::fake::{Asked, Fake, Reply};
use crate::cluster::ledger::DigestType;
use crate::drain::failpoint::{Failpoint, Failpoints};
use crate::drain::job::Status;
use crate::drain::worker::Outcome;

const IO: i32 = 501;
const UNAUTHORIZED: i32 = 502;
const FENCED: i32 = 504;
const READ_ONLY: i32 = 505;
const BUSY: i32 = 506;
const UNKNOWN_STATE: i32 = 507;

/// Bookie 0 is emptied; ledger 1 is on 0, 2 and 3; the targets are 1 and 4.
async fn world() -> Arc<World> {
    World::with(5, 1, &[Shape::simple(1, &[50; 12])]).await
}

/// The bookie that is chosen while all have as much room, and the other one.
fn targets(world: &World) -> (&Fake, &Fake) {
    let (one, other) = (&*world.bookies[1], &*world.bookies[4]);
    if one.id() < other.id() {
        (one, other)
    } else {
        (other, one)
    }
}

fn members(world: &World) -> Vec<String> {
    world.metadata(1).unwrap().segments[0].members.clone()
}

/// What reads of bookie 0 come to.
fn reads(world: &World, mut reply: impl FnMut(i64) -> Option<Reply> + Send + 'static) {
    world.bookies[0].instead(move |asked| match asked {
        Asked::Read { entry, .. } => reply(entry),
        _ => None,
    });
}

fn reported(outcome: &Outcome, bookie: &Fake, why: &str) {
    let found = outcome.reports.iter();
    let found = found.filter(|one| one.bookie == bookie.id() && one.why.contains(why));
    assert!(0 < found.count(), "{why}: {:?}", outcome.reports);
}

#[tokio::test]
async fn another_replica_stands_in_for_one_that_is_bad() {
    let damaged = |entry: u64| {
        let mut raw = Digest::new(DigestType::Crc32c, PASSWORD).seal(1, entry, -1, &[7; 50]);
        raw[40] ^= 1;
        raw
    };
    let other = Digest::new(DigestType::Crc32c, PASSWORD).seal(2, 3, -1, &[7; 50]);
    let bad = [
        (Reply::Status(IO), "EIO"),
        (Reply::Status(UNKNOWN_STATE), "EUNKNOWNLEDGERSTATE"),
        (Reply::Body(damaged(3)), "digest is wrong"),
        (Reply::Body(other), "it is entry 3 of ledger 2"),
        (Reply::Body(Vec::new()), "too few"),
        (Reply::Close, "ended"),
    ];
    for (reply, why) in bad {
        let world = world().await;
        reads(&world, move |entry| (entry == 3).then(|| reply.clone()));
        let outcome = world.finish().await;
        // Whoever said the wrong thing still has the right one.
        world.judge_end(why, &[]);
        reported(&outcome, &world.bookies[0], why);
        assert_eq!(outcome.failed, []);
    }
}

#[tokio::test]
async fn a_replica_that_is_absent_from_the_source_alone_is_taken_from_another() {
    let world = world().await;
    world.bookies[0].lose(1, 3);
    world.bookies[0].lose(1, 5);
    let outcome = world.finish().await;
    world.judge_end("lost on the source", &[]);
    assert_eq!((outcome.failed, outcome.reports), (vec![], vec![]));
    // It is no silent hole: the target has it.
    let target = members(&world)[0].clone();
    let target = world.bookies.iter().find(|one| one.id() == target).unwrap();
    assert_eq!(target.entries(1)[&3], world.raw(1, 3));
}

#[tokio::test]
async fn entries_that_nobody_has_fail_the_ledger_and_nothing_is_changed() {
    let world = world().await;
    for bookie in &world.bookies {
        bookie.lose(1, 3);
        bookie.lose(1, 6);
    }
    let before = world.metadata(1);
    let outcome = world.finish().await;
    assert_eq!(world.metadata(1), before);
    let task = world.tasks().get(1).await.unwrap().unwrap().task;
    assert_eq!(task.status, Status::Failed);
    let why = task.reason.unwrap();
    assert!(
        why.starts_with("no bookie has 2 entries intact: 3, 6 ("),
        "{why}"
    );
    assert_eq!(outcome.failed, [(1, why)]);
    assert_eq!(world.locks(), Vec::<String>::new());
}

#[tokio::test]
async fn what_may_be_there_another_time_is_never_taken_for_lost() {
    let world = world().await;
    // Three replicas are silent about an entry, in the first pass only.
    let left = Arc::new(AtomicUsize::new(2));
    for bookie in [&world.bookies[0], &world.bookies[2], &world.bookies[3]] {
        let left = Arc::clone(&left);
        bookie.instead(move |asked| match asked {
            Asked::Read { entry: 3, .. } => {
                let once = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                });
                once.is_ok().then_some(Reply::Status(IO))
            }
            _ => None,
        });
    }
    let outcome = world.finish().await;
    assert_eq!(outcome.failed, []);
    world.judge_end("later", &[]);
}

#[tokio::test]
async fn a_target_that_refuses_is_replaced_by_another() {
    for (reply, name) in [
        (Reply::Status(READ_ONLY), "EREADONLY"),
        (Reply::Status(FENCED), "EFENCED"),
        (Reply::Status(IO), "EIO"),
        (Reply::Status(UNAUTHORIZED), "EUA"),
        (Reply::Close, "ended"),
        (Reply::Silence, "no answer"),
        (Reply::DoneInSilence, "no answer"),
    ] {
        let world = world().await;
        let (target, other) = targets(&world);
        target.instead(move |asked| match asked {
            // Not at once.
            Asked::Add { entry, .. } if 4 < entry => Some(reply.clone()),
            _ => None,
        });
        let outcome = world.finish().await;
        world.judge_end(name, &[]);
        reported(&outcome, target, name);
        assert_eq!(members(&world)[0], other.id(), "{name}");
    }
}

#[tokio::test]
async fn a_target_that_gives_back_something_else_is_replaced() {
    let world = world().await;
    let (target, other) = targets(&world);
    target.instead(|asked| match asked {
        Asked::Read { entry: 6, .. } => Some(Reply::Body(vec![0; 90])),
        _ => None,
    });
    let outcome = world.finish().await;
    world.judge_end("liar", &[]);
    reported(&outcome, target, "something else");
    assert_eq!(members(&world)[0], other.id());
}

#[tokio::test]
async fn bookies_with_too_much_to_do_are_waited_for() {
    let world = world().await;
    for bookie in &world.bookies {
        // Longer than the client itself asks again.
        let mut left = 30;
        bookie.instead(move |asked| {
            let is_busy = 0 < left && !matches!(asked, Asked::Held { .. });
            left -= u32::from(is_busy);
            is_busy.then_some(Reply::Status(BUSY))
        });
    }
    let outcome = world.finish().await;
    world.judge_end("busy", &[]);
    assert_eq!((outcome.failed, outcome.reports), (vec![], vec![]));
}

#[tokio::test]
async fn bookies_without_lists_of_entries_are_read() {
    let world = world().await;
    world.bookies.iter().for_each(|one| one.has_no_lists());
    world.finish().await;
    world.judge_end("no lists", &[]);
}

#[tokio::test]
async fn a_target_that_is_gone_before_the_change_is_replaced() {
    let world = world().await;
    let mut worker = world.worker(Arc::new(world.server.connect()));
    let (first, other) = targets(&world);
    let at = world
        .bookies
        .iter()
        .position(|one| one.id() == first.id())
        .unwrap();
    let dying = Arc::clone(&world.bookies[at]);
    worker.failpoints = Failpoints::new(move |point| {
        if point == Failpoint::PartCopied {
            dying.instead(|_| Some(Reply::Close));
        }
        false
    });
    world.run(worker).await;
    world.judge_end("gone before", &[]);
    assert_eq!(members(&world)[0], other.id());
}

#[tokio::test]
async fn what_a_target_lost_around_the_change_is_copied_again() {
    for at in [
        Failpoint::Copied,
        Failpoint::Verified,
        Failpoint::AfterChange,
    ] {
        let world = world().await;
        let mut worker = world.worker(Arc::new(world.server.connect()));
        let (target, _) = targets(&world);
        let place = world
            .bookies
            .iter()
            .position(|one| one.id() == target.id())
            .unwrap();
        let forgetful = Arc::clone(&world.bookies[place]);
        let once = AtomicUsize::new(0);
        worker.failpoints = Failpoints::new(move |point| {
            if point == at && once.fetch_add(1, Ordering::Relaxed) == 0 {
                forgetful.forget(1);
            }
            false
        });
        world.run(worker).await;
        world.judge_end(at.name(), &[]);
    }
}

#[tokio::test]
async fn a_target_that_dies_after_the_change_is_no_reason_to_wait() {
    let world = world().await;
    let mut worker = world.worker(Arc::new(world.server.connect()));
    let (target, _) = targets(&world);
    let place = world
        .bookies
        .iter()
        .position(|one| one.id() == target.id())
        .unwrap();
    let dying = Arc::clone(&world.bookies[place]);
    worker.failpoints = Failpoints::new(move |point| {
        if point == Failpoint::AfterChange {
            dying.instead(|_| Some(Reply::Close));
        }
        false
    });
    world.run(worker).await;
    world.judge_end("dead after", &[]);
}

#[tokio::test]
async fn a_ledger_without_a_target_is_put_off_and_says_why() {
    let world = World::with(4, 2, &[Shape::simple(1, &[50; 4])]).await;
    let worker = world.worker(Arc::new(world.server.connect()));
    let progress = tokio::sync::watch::Sender::new(Default::default());
    let mut seen = progress.subscribe();
    let put_off = async {
        seen.wait_for(|one: &crate::drain::worker::Progress| 0 < one.later)
            .await
            .map(drop)
    };
    let stop = async { drop(put_off.await) };
    let job = world.job.as_ref().unwrap();
    let ran = crate::drain::worker::run(job, worker, stop, &progress);
    let ran = tokio::time::timeout(super::world::STUCK, ran).await;
    ran.expect("it is not told").unwrap();
    let task = world.tasks().get(1).await.unwrap().unwrap().task;
    let why = task.reason.unwrap();
    assert!(why.contains("no bookie can take the replica"), "{why}");
    assert_eq!((task.status, task.tries), (Status::Todo, 1));
}
