//! What a worker takes at a time: memory, and its share of the limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::world::{Shape, World, limits};
use crate::cluster::bookie::fake::{Asked, Reply};
use crate::cluster::ledger::LedgerState;
use crate::cluster::store::MetaStore;
use crate::drain::throttle::Throttle;
use crate::drain::worker::{Progress, Shared, says};

const BUSY: i32 = 506;

#[tokio::test]
async fn entries_of_unknown_size_are_not_all_read_at_once() {
    // Nothing says how long a ledger is that is still written.
    let mut shape = Shape::simple(1, &[1 << 20; 40]);
    shape.state = LedgerState::Open;
    shape.segments.push((40, vec![2, 3, 4]));
    let world = World::with(5, 1, &[shape]).await;
    let (ahead, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (reads, seen) = (Arc::clone(&ahead), Arc::clone(&most));
    world.bookies[0].instead(move |_| {
        seen.fetch_max(reads.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        None
    });
    for target in [1, 4] {
        let ahead = Arc::clone(&ahead);
        world.bookies[target].instead(move |asked| {
            if let Asked::Add { .. } = asked {
                ahead.fetch_sub(1, Ordering::Relaxed);
            }
            None
        });
    }
    world.finish().await;
    world.judge_end("at the end", &[]);
    // As many as there is room for once it is known how large they are.
    let most = most.load(Ordering::Relaxed);
    assert!(most <= 9, "{most} entries of 1 MiB were read ahead");
}

#[tokio::test]
async fn an_entry_that_is_sent_again_counts_again() {
    let world = World::with(4, 1, &[Shape::simple(1, &[100_000])]).await;
    world.limits.send_replace(limits(50_000, 1));
    let times = Arc::<Mutex<Vec<Duration>>>::default();
    let (asked_at, clock) = (Arc::clone(&times), world.clock.clone());
    world.bookies[1].instead(move |asked| {
        let Asked::Add { .. } = asked else {
            return None;
        };
        let mut times = asked_at.lock().unwrap();
        times.push(clock.elapsed());
        (times.len() < 3).then_some(Reply::Status(BUSY))
    });
    world.finish().await;
    world.judge_end("at the end", &[]);
    // Each of them is two seconds of the limit.
    let times = times.lock().unwrap();
    let took = times[2] - times[0];
    assert!(Duration::from_millis(3900) < took, "{times:?}");
}

#[tokio::test]
async fn a_worker_takes_no_bytes_before_it_knows_its_share() {
    let world = World::with(4, 1, &[]).await;
    let job = world.job.as_ref().unwrap();
    world.limits.send_replace(limits(100, 1));
    let share_of = async |store: Arc<dyn MetaStore>, beats: usize| {
        let (share, limit) = watch::channel(1);
        let worker = world.worker(store);
        let throttle = Throttle::new(world.clock.clone(), limit);
        let shared = Arc::new(Shared::new(job, &worker, throttle));
        let progress = watch::Sender::new(Progress::default());
        let mut says = says::Says::new(job, worker, &shared, &progress);
        for _ in 0..beats {
            says.share(&share).await;
        }
        *share.borrow()
    };
    let lost = Arc::new(world.server.connect());
    lost.disconnect();
    assert_eq!(share_of(lost, 3).await, 1);
    assert_eq!(share_of(Arc::new(world.server.connect()), 1).await, 100);
    let jobs = world.jobs(world.admin.clone());
    jobs.say(&job.id, "another", &Default::default())
        .await
        .unwrap();
    // The other one does not know of it yet.
    assert_eq!(share_of(Arc::new(world.server.connect()), 1).await, 1);
    assert_eq!(share_of(Arc::new(world.server.connect()), 2).await, 50);
}
