//! Jobs on the metadata store in memory: several at once, interrupted at each call, and in the words of other releases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use super::*;
use crate::clock::Clock;
use crate::cluster::hooked::{Call, Fate, Hook, Hooked};
use crate::cluster::memory::{Memory, MemorySession};
use crate::cluster::store::{Kind, MetaStore, Op, Stat, StoreError, create_with_parents};

const TOP: &str = "/dirkeeper/i/drain/jobs";

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const LIMITS: Limits = Limits {
    max_bytes_per_second: 100,
    max_requests_per_second: 200,
    workers: 8,
};

fn new(bookies: &[&str]) -> New {
    New {
        bookies: set(bookies),
        began: 5,
        who: "somebody".to_owned(),
        ..New::default()
    }
}

fn task(ledger: u64) -> Task {
    Task {
        ledger,
        status: Status::Todo,
        fragments: Vec::new(),
        reason: None,
        tries: 0,
        owner: None,
        bytes: 0,
    }
}

struct Scene {
    server: Memory,
    store: Arc<MemorySession>,
    jobs: Jobs,
}

fn jobs(store: Arc<dyn MetaStore>) -> Jobs {
    Jobs::open(store, "/dirkeeper/", "i")
}

fn scene() -> Scene {
    let server = Memory::new(Clock::manual());
    let store = Arc::new(server.connect());
    let jobs = jobs(store.clone());
    Scene {
        server,
        store,
        jobs,
    }
}

/// A job with tasks that workers may take.
async fn running(jobs: &Jobs, ledgers: &[u64]) -> (String, Tasks) {
    let id = jobs.create(&new(&["a"]), &LIMITS).await.unwrap().id;
    let tasks = jobs.tasks(&id);
    let all: Vec<_> = ledgers.iter().map(|ledger| task(*ledger)).collect();
    assert_eq!(tasks.add_missing(&all).await, Ok(ledgers.len()));
    jobs.started(&id).await.unwrap();
    (id, tasks)
}

fn told<T: std::fmt::Debug>(result: Result<T, JobError>) -> String {
    crate::report::text(&result.unwrap_err())
}

/// Every node below a path, with what it holds.
async fn tree(store: &dyn MetaStore, top: &str) -> BTreeMap<String, (Vec<u8>, Stat)> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        for name in store.children(&path).await.unwrap() {
            waiting.push(format!("{path}/{name}"));
        }
        let (data, stat) = store.get(&path).await.unwrap();
        all.insert(path, (data, stat));
    }
    all
}

#[tokio::test]
async fn what_stands_in_the_store() {
    let Scene { store, jobs, .. } = scene();
    let job = jobs.create(&new(&["b:1", "a:1"]), &LIMITS).await.unwrap();
    let mut with = task(70_001);
    with.fragments = vec![Fragment {
        first: 0,
        index: 1,
        old: "a:1".to_owned(),
        new: None,
        copied_to: None,
    }];
    let tasks = jobs.tasks(&job.id);
    tasks.add_missing(&[with]).await.unwrap();
    let mut stored = tasks.get(70_001).await.unwrap().unwrap();
    stored.task.status = Status::Copying;
    stored.task.fragments[0].new = Some("c:1".to_owned());
    stored.task.fragments[0].copied_to = Some(63);
    stored.task.tries = 1;
    tasks.save(&mut stored).await.unwrap();
    let worker = Worker {
        host: "h".to_owned(),
        pid: 1,
        ..Worker::default()
    };
    jobs.say(&job.id, "h-1", &worker).await.unwrap();
    jobs.add_up(&job.id, "h-1", &Moved::default())
        .await
        .unwrap();
    let mut lines = Vec::new();
    for (path, (data, stat)) in tree(&*store, TOP).await {
        let path = path.replace(&job.id, "ID").replace(TOP, "");
        let data = String::from_utf8(data).unwrap().replace(&job.id, "ID");
        let is_empty_shard = path.starts_with("/ID/tasks/") && data.is_empty();
        if !is_empty_shard || stat.children != 0 {
            let kind = if stat.owner.is_some() {
                "ephemeral "
            } else {
                ""
            };
            lines.push(format!("{path} {kind}{data}").trim_end().to_owned());
        }
    }
    insta::assert_snapshot!(lines.join("\n"), @r#"

    /ID {"version":1,"id":"ID","bookies":["a:1","b:1"],"openLedgers":"wait","readerGate":"refuse","mirror":false,"began":5,"phase":"starting","who":"somebody"}
    /ID/limits {"version":1,"maxBytesPerSecond":100,"maxRequestsPerSecond":200,"workers":8}
    /ID/moved
    /ID/moved/h-1 {"version":1,"ledgers":0,"fragments":0,"bytes":0,"entries":0}
    /ID/orders
    /ID/tasks
    /ID/tasks/71
    /ID/tasks/71/0000000000000070001 {"version":1,"ledger":70001,"status":"copying","fragments":[{"first":0,"index":1,"old":"a:1","new":"c:1","copiedTo":63}],"tries":1,"bytes":0}
    /ID/workers
    /ID/workers/h-1 ephemeral {"version":1,"host":"h","pid":1,"since":0,"ledgers":0,"bytes":0,"rate":0,"now":""}
    "#);
    assert_eq!(
        store
            .children(&format!("{TOP}/{}/tasks", job.id))
            .await
            .unwrap()
            .len(),
        256
    );
    assert!(job.id.len() == 10 && job.id.starts_with("d-"), "{}", job.id);
}

#[tokio::test]
async fn no_bookie_is_in_two_jobs() {
    let Scene { jobs, .. } = scene();
    let first = jobs.create(&new(&["a", "b"]), &LIMITS).await.unwrap();
    let again = told(jobs.create(&new(&["c", "b"]), &LIMITS).await);
    assert_eq!(
        again,
        format!("b is in job {} already, which is not over", first.id)
    );
    jobs.create(&new(&["c"]), &LIMITS).await.unwrap();
    jobs.cancel(&first.id).await.unwrap();
    jobs.create(&new(&["b"]), &LIMITS).await.unwrap();
    let phases: Vec<_> = jobs
        .list()
        .await
        .unwrap()
        .iter()
        .map(|job| job.phase)
        .collect();
    assert_eq!(phases.len(), 3);
    assert_eq!(
        phases
            .iter()
            .filter(|phase| **phase == Phase::Cancelled)
            .count(),
        1
    );
}

/// Somebody else makes a job between the look at the others and the transaction.
struct Rival {
    jobs: Jobs,
    transactions: AtomicUsize,
}

impl Hook for Rival {
    fn before(&self, call: &Call<'_>) -> Fate {
        if let Call::Multi(_) = call
            && self.transactions.fetch_add(1, Ordering::SeqCst) == 0
        {
            let made = std::thread::scope(|scope| {
                let run = scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .build()
                        .unwrap();
                    runtime.block_on(self.jobs.create(&new(&["a"]), &LIMITS))
                });
                run.join().unwrap()
            });
            made.unwrap();
        }
        Fate::Answered
    }
}

#[tokio::test]
async fn of_two_that_are_made_at_once_one_is() {
    let Scene {
        store, jobs: ours, ..
    } = scene();
    let hook = Rival {
        jobs: ours.clone(),
        transactions: AtomicUsize::new(0),
    };
    let other = jobs(Arc::new(Hooked { store, hook }));
    let lost = told(other.create(&new(&["a", "b"]), &LIMITS).await);
    assert!(lost.starts_with("a is in job d-"), "{lost}");
    // Jobs of other bookies are tried again.
    let server = scene();
    let hook = Rival {
        jobs: server.jobs.clone(),
        transactions: AtomicUsize::new(0),
    };
    let other = jobs(Arc::new(Hooked {
        store: server.store.clone(),
        hook,
    }));
    other.create(&new(&["b"]), &LIMITS).await.unwrap();
    assert_eq!(server.jobs.list().await.unwrap().len(), 2);
}

#[tokio::test]
async fn phases_go_forward_only() {
    let Scene { jobs, .. } = scene();
    let id = jobs.create(&new(&["a"]), &LIMITS).await.unwrap().id;
    let tell = |text: String| text.replace(&id, "ID");
    insta::assert_snapshot!(tell(told(jobs.finished(&id).await)), @"job ID is starting, so this cannot be done");
    insta::assert_snapshot!(tell(told(jobs.forget(&id).await)), @"job ID is starting, so this cannot be done");
    jobs.tasks(&id).add_missing(&[task(1)]).await.unwrap();
    jobs.started(&id).await.unwrap();
    jobs.started(&id).await.unwrap();
    insta::assert_snapshot!(tell(told(jobs.finished(&id).await)), @"job ID has 1 ledgers left");
    let stored = jobs.tasks(&id).get(1).await.unwrap().unwrap();
    jobs.tasks(&id).done(&stored).await.unwrap();
    jobs.finished(&id).await.unwrap();
    jobs.finished(&id).await.unwrap();
    insta::assert_snapshot!(tell(told(jobs.cancel(&id).await)), @"job ID is finished, so this cannot be done");
    insta::assert_snapshot!(told(jobs.get("d-none").await), @"there is no job d-none");
    insta::assert_snapshot!(told(jobs.set_limits("d-none", &LIMITS).await), @"there is no job d-none");
}

#[tokio::test]
async fn a_job_that_is_forgotten_leaves_nothing() {
    let Scene { store, jobs, .. } = scene();
    let ledgers: Vec<_> = (0..600).map(|id| id * 7).collect();
    let (id, tasks) = running(&jobs, &ledgers).await;
    assert_eq!(tasks.count().await, Ok(600));
    jobs.say(&id, "w", &Worker::default()).await.unwrap();
    jobs.add_up(&id, "w", &Moved::default()).await.unwrap();
    jobs.cancel(&id).await.unwrap();
    jobs.forget(&id).await.unwrap();
    jobs.forget(&id).await.unwrap();
    assert_eq!(store.children(TOP).await.unwrap(), [] as [String; 0]);
    assert_eq!(tasks.count().await, Ok(0));
}

#[tokio::test]
async fn documents_of_other_releases_are_refused() {
    let Scene { store, jobs, .. } = scene();
    let (id, tasks) = running(&jobs, &[1]).await;
    let at = format!("{TOP}/{id}");
    let tell = |text: String| text.replace(&id, "ID");
    let put = async |below: &str, text: &str| {
        store
            .set(&format!("{at}{below}"), text.as_bytes(), None)
            .await
            .unwrap();
    };
    put(
        "/tasks/01/0000000000000000001",
        r#"{"version":2,"ledger":1,"status":"todo"}"#,
    )
    .await;
    insta::assert_snapshot!(tell(told(tasks.get(1).await)), @"/dirkeeper/i/drain/jobs/ID/tasks/01/0000000000000000001 is not understood: it is written in version 2 and only version 1 is known: take the release that wrote it");
    put(
        "/tasks/01/0000000000000000001",
        r#"{"version":1,"ledger":1,"status":"resting"}"#,
    )
    .await;
    insta::assert_snapshot!(tell(told(tasks.for_each(drop).await)), @"/dirkeeper/i/drain/jobs/ID/tasks/01/0000000000000000001 is not understood: unknown variant `resting`, expected one of `todo`, `copying`, `waitingOpen`, `waitingRecovery`, `held`, `failed` at line 1 column 42");
    put("/limits", "{}").await;
    insta::assert_snapshot!(tell(told(jobs.limits(&id).await)), @"/dirkeeper/i/drain/jobs/ID/limits is not understood: missing field `version` at line 1 column 2");
    put("", "garbage").await;
    insta::assert_snapshot!(tell(told(jobs.get(&id).await)), @"/dirkeeper/i/drain/jobs/ID is not understood: expected value at line 1 column 1");
    assert_eq!(told(jobs.list().await), told(jobs.get(&id).await));
    // Nobody knows what another release meant: nothing is given out, and no job is made beside it.
    let mut shard = tasks.shard(1).await.unwrap();
    assert_eq!(
        told(tasks.next_of_shard(&mut shard).await),
        told(jobs.get(&id).await)
    );
    assert_eq!(
        told(jobs.create(&new(&["z"]), &LIMITS).await),
        told(jobs.get(&id).await)
    );
    // What is added within a version is no matter.
    put(
        "/limits",
        r#"{"version":1,"maxBytesPerSecond":1,"maxRequestsPerSecond":2,"workers":3,"more":4}"#,
    )
    .await;
    assert_eq!(jobs.limits(&id).await.unwrap().workers, 3);
}

#[tokio::test]
async fn a_task_is_taken_once() {
    let Scene {
        server, jobs: one, ..
    } = scene();
    let ledgers: Vec<_> = (0..20).map(|nth| nth * 256 + 3).collect();
    let (id, tasks) = running(&one, &ledgers).await;
    let two = jobs(Arc::new(server.connect())).tasks(&id);
    let mut taken = BTreeMap::<u64, usize>::new();
    let (mut ours, mut theirs) = (tasks.shard(3).await.unwrap(), two.shard(3).await.unwrap());
    assert_eq!(ours.len(), 20);
    while let Some(mut mine) = tasks.next_of_shard(&mut ours).await.unwrap() {
        let mut other = two.next_of_shard(&mut theirs).await.unwrap().unwrap();
        assert_eq!(mine, other, "both read the same");
        mine.task.status = Status::Copying;
        other.task.status = Status::Copying;
        let ledger = mine.task.ledger;
        let saves = match ledger % 512 < 256 {
            true => [tasks.save(&mut mine).await, two.save(&mut other).await],
            false => [two.save(&mut other).await, tasks.save(&mut mine).await],
        };
        assert_eq!(saves, [Ok(()), Err(JobError::Changed { ledger })]);
        *taken.entry(ledger).or_default() += 1;
        let winner = if mine.version == 1 { &mine } else { &other };
        let loser = if mine.version == 1 { &other } else { &mine };
        assert_eq!(two.done(loser).await, Err(JobError::Changed { ledger }));
        assert_eq!(tasks.done(winner).await, Ok(()));
        assert_eq!(tasks.done(winner).await, Err(JobError::Changed { ledger }));
    }
    assert!(taken.keys().copied().eq(ledgers) && taken.values().all(|times| *times == 1));
    assert_eq!(
        (tasks.count().await, two.next_of_shard(&mut theirs).await),
        (Ok(0), Ok(None))
    );
}

#[tokio::test]
async fn a_cancelled_job_gives_nothing_more() {
    let Scene {
        server, jobs: ours, ..
    } = scene();
    let (id, _) = running(&ours, &[256, 512, 768]).await;
    // A worker that knows nothing of it yet.
    let tasks = jobs(Arc::new(server.connect())).tasks(&id);
    let mut shard = tasks.shard(0).await.unwrap();
    let mut stored = tasks.next_of_shard(&mut shard).await.unwrap().unwrap();
    stored.task.status = Status::Copying;
    tasks.save(&mut stored).await.unwrap();
    ours.cancel(&id).await.unwrap();
    let over = Err(JobError::Phase {
        id: id.clone(),
        phase: Phase::Cancelled,
    });
    assert_eq!(tasks.save(&mut stored).await, over);
    assert_eq!(tasks.done(&stored).await, over);
    assert_eq!(tasks.next_of_shard(&mut shard).await.map(drop), over);
    assert_eq!(tasks.add_missing(&[task(9)]).await.map(drop), over);
    assert_eq!(ours.started(&id).await, over);
    assert_eq!(tasks.count().await, Ok(3));
}

#[tokio::test]
async fn a_job_that_is_not_started_gives_nothing_yet() {
    let Scene { jobs, .. } = scene();
    let id = jobs.create(&new(&["a"]), &LIMITS).await.unwrap().id;
    let tasks = jobs.tasks(&id);
    tasks.add_missing(&[task(0)]).await.unwrap();
    let mut shard = tasks.shard(0).await.unwrap();
    let early = told(tasks.next_of_shard(&mut shard).await);
    assert_eq!(
        early,
        format!("job {id} is starting, so this cannot be done")
    );
    assert_eq!(shard.len(), 1, "and it is still there");
    jobs.started(&id).await.unwrap();
    assert!(tasks.next_of_shard(&mut shard).await.unwrap().is_some());
}

#[tokio::test]
async fn limits_change_while_a_job_runs() {
    let Scene { store, jobs, .. } = scene();
    let id = jobs.create(&new(&["a"]), &LIMITS).await.unwrap().id;
    let (into, mut limits) = watch::channel(LIMITS);
    let (follower, name) = (jobs.clone(), id.clone());
    let following = tokio::spawn(async move { follower.follow_limits(&name, &into).await });
    let mut is = async |bytes| {
        let seen = limits.wait_for(|limits| limits.max_bytes_per_second == bytes);
        let seen = tokio::time::timeout(std::time::Duration::from_secs(10), seen).await;
        assert!(seen.is_ok(), "no limit of {bytes} came within 10 s");
    };
    let with = |bytes| Limits {
        max_bytes_per_second: bytes,
        ..LIMITS
    };
    jobs.set_limits(&id, &with(7)).await.unwrap();
    is(7).await;
    // The last limits stand while nobody answers, and in the next session.
    store.expire();
    is(7).await;
    store.reconnect();
    jobs.set_limits(&id, &with(8)).await.unwrap();
    is(8).await;
    jobs.cancel(&id).await.unwrap();
    jobs.forget(&id).await.unwrap();
    let end = tokio::time::timeout(std::time::Duration::from_secs(10), following).await;
    assert_eq!(
        end.expect("it ends with the job").unwrap(),
        Err(JobError::NoJob { id })
    );
}

#[tokio::test]
async fn what_workers_say_goes_with_them_and_what_they_did_stays() {
    let Scene {
        server, jobs: ours, ..
    } = scene();
    let id = ours.create(&new(&["a"]), &LIMITS).await.unwrap().id;
    let session = Arc::new(server.connect());
    let worker = jobs(session.clone());
    let mut says = Worker {
        host: "h".to_owned(),
        pid: 5,
        ..Worker::default()
    };
    let moved = |ledgers| Moved {
        ledgers,
        fragments: 2,
        bytes: 30,
        entries: 4,
    };
    worker.say(&id, "h-5", &says).await.unwrap();
    worker.add_up(&id, "h-5", &moved(1)).await.unwrap();
    ours.add_up(&id, "other", &moved(10)).await.unwrap();
    says.ledgers = 2;
    worker.say(&id, "h-5", &says).await.unwrap();
    worker.add_up(&id, "h-5", &moved(2)).await.unwrap();
    assert_eq!(
        ours.workers(&id).await.unwrap(),
        [("h-5".to_owned(), says.clone())]
    );
    // The session ends and its node stays for a moment: the next one takes it over.
    let next = jobs(Arc::new(server.connect()));
    says.now = "next".to_owned();
    next.say(&id, "h-5", &says).await.unwrap();
    session.expire();
    assert_eq!(ours.workers(&id).await.unwrap(), [("h-5".to_owned(), says)]);
    drop(next);
    assert_eq!(ours.workers(&id).await.unwrap(), []);
    let sum = Moved {
        ledgers: 12,
        fragments: 4,
        bytes: 60,
        entries: 8,
    };
    assert_eq!(ours.moved(&id).await, Ok(sum));
}

#[tokio::test]
async fn tasks_are_shown_where_the_proposal_has_them() {
    let Scene { store, jobs, .. } = scene();
    let made = create_with_parents(&*store, "/ledgers", b"", Kind::Persistent).await;
    made.unwrap();
    let id = jobs.create(&new(&["a"]), &LIMITS).await.unwrap().id;
    let tasks = jobs.tasks(&id).mirrored("/ledgers/");
    let shown = async || {
        let names = store.children("/ledgers/offline_ledgers").await;
        names.unwrap().join(" ")
    };
    // One was shown before whoever did it was killed.
    tasks.add_missing(&[task(7)]).await.unwrap();
    let again = [task(7), task(8), task(9)];
    assert_eq!(tasks.add_missing(&again).await, Ok(2));
    assert_eq!(shown().await, "7 8 9");
    let stored = tasks.get(8).await.unwrap().unwrap();
    tasks.done(&stored).await.unwrap();
    assert_eq!(shown().await, "7 9");
    jobs.cancel(&id).await.unwrap();
    tasks.hide().await.unwrap();
    tasks.hide().await.unwrap();
    assert_eq!(shown().await, "");
    assert!(tasks.add_missing(&[task(5)]).await.is_err());
    assert_eq!(shown().await, "");
}

mod enumeration;
