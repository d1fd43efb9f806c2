//! A bookie that is ordered about, and jobs that are given up at the worst moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::bookie::stub::{Reply, Stub};
use crate::cluster::memory::{Memory, MemorySession};
use crate::cluster::store::{Kind, create_with_parents};
use crate::drain::job::{Job, Limits, New, Phase};

const BOOKIE: &str = "b.example.org:3181";
const CONFIG: &str = r#"{"bookiePort":"3181","advertisedAddress":"b.example.org"}"#;
const LISTS: [&str; 2] = ["/ledgers/available", "/ledgers/available/readonly"];

/// What a call to the store in memory comes to, which never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("the store in memory waits"),
    }
}

/// The bookie registers itself in one of the lists.
fn register(store: &MemorySession, read_only: bool) {
    let path = |list: &str| format!("{list}/{BOOKIE}");
    let (new, old) = match read_only {
        true => (LISTS[1], LISTS[0]),
        false => (LISTS[0], LISTS[1]),
    };
    let _ = now(create_with_parents(
        store,
        &path(new),
        b"",
        Kind::Persistent,
    ));
    let _ = now(store.delete(&path(old), None));
}

struct Scene {
    store: Arc<MemorySession>,
    jobs: Jobs,
    job: Job,
    admin: Stub,
    admins: Admins,
    place: Place,
    clock: Clock,
    /// The job is given up while the next order is on its way.
    gives_up: Arc<AtomicBool>,
}

async fn scene(config: &'static str) -> Scene {
    let clock = Clock::manual();
    let store = Arc::new(Memory::new(clock.clone()).connect());
    let jobs = Jobs::open(store.clone(), "/dirkeeper", "i");
    let new = New {
        bookies: [BOOKIE.to_owned()].into(),
        ..New::default()
    };
    let limits = Limits {
        max_bytes_per_second: 0,
        max_requests_per_second: 0,
        workers: 1,
    };
    let job = jobs.create(&new, &limits).await.unwrap();
    register(&store, false);
    let gives_up = Arc::new(AtomicBool::new(false));
    let (server, all, id, once) = (
        store.clone(),
        jobs.clone(),
        job.id.clone(),
        gives_up.clone(),
    );
    let admin = Stub::start(None, move |asked| {
        let Some(("PUT", rest)) = asked.split_once(' ') else {
            return Reply::json(config);
        };
        if once.swap(false, Ordering::Relaxed) {
            now(all.cancel(&id)).unwrap();
        }
        let body = &rest[rest.find('{').unwrap()..];
        register(&server, body.contains("true"));
        Reply::json(body)
    })
    .await;
    let url = format!("http://127.0.0.1:{}", admin.port);
    Scene {
        admins: [(BOOKIE.to_owned(), url)].into(),
        place: Place {
            ledgers_root: "/ledgers".to_owned(),
            root: "/dirkeeper".to_owned(),
            instance: "i".to_owned(),
        },
        store,
        jobs,
        job,
        admin,
        clock,
        gives_up,
    }
}

impl Scene {
    fn hold(&self) -> Hold<'_> {
        Hold {
            store: &*self.store,
            place: &self.place,
            jobs: &self.jobs,
            job: &self.job.id,
            admins: &self.admins,
            clock: &self.clock,
        }
    }

    fn claims(&self) -> Vec<String> {
        let claims = now(self
            .store
            .children(&format!("/dirkeeper/i/claims/{BOOKIE}")));
        claims.unwrap_or_default()
    }

    fn puts(&self) -> usize {
        let asked = self.admin.asked();
        asked
            .iter()
            .filter(|asked| asked.starts_with("PUT"))
            .count()
    }

    async fn registered(&self) -> Registered {
        self.hold().registered(BOOKIE).await.unwrap()
    }
}

#[tokio::test]
async fn a_job_claims_orders_orders_again_and_lets_go() {
    let scene = scene(CONFIG).await;
    assert!(scene.hold().enter(BOOKIE).await.unwrap());
    assert_eq!(scene.claims(), [scene.job.id.as_str()]);
    assert_eq!(scene.registered().await, Registered::ReadOnly);
    scene.jobs.started(&scene.job.id).await.unwrap();
    assert!(!scene.hold().enter(BOOKIE).await.unwrap());
    // It restarted.
    register(&scene.store, false);
    assert!(scene.hold().enter(BOOKIE).await.unwrap());
    assert_eq!(scene.puts(), 2);
    scene.jobs.cancel(&scene.job.id).await.unwrap();
    assert!(scene.hold().leave(BOOKIE).await.unwrap());
    assert_eq!(scene.registered().await, Registered::Writable);
    assert_eq!(scene.claims(), [] as [&str; 0]);
    // Again, by somebody who made it read-only since.
    register(&scene.store, true);
    assert!(!scene.hold().leave(BOOKIE).await.unwrap());
    assert_eq!(scene.puts(), 3);
}

#[tokio::test]
async fn what_was_read_only_before_is_left_so() {
    let scene = scene(CONFIG).await;
    register(&scene.store, true);
    assert!(!scene.hold().enter(BOOKIE).await.unwrap());
    scene.jobs.cancel(&scene.job.id).await.unwrap();
    assert!(!scene.hold().leave(BOOKIE).await.unwrap());
    assert_eq!(scene.registered().await, Registered::ReadOnly);
    assert_eq!((scene.puts(), scene.claims().len()), (0, 0));
}

#[tokio::test]
async fn a_job_that_is_over_claims_and_orders_nothing() {
    for is_cancelled in [true, false] {
        let scene = scene(CONFIG).await;
        scene.hold().enter(BOOKIE).await.unwrap();
        if is_cancelled {
            scene.jobs.cancel(&scene.job.id).await.unwrap();
            assert!(scene.hold().leave(BOOKIE).await.unwrap());
        } else {
            scene.jobs.started(&scene.job.id).await.unwrap();
            scene.jobs.finished(&scene.job.id).await.unwrap();
            register(&scene.store, false);
        }
        let (puts, claims) = (scene.puts(), scene.claims());
        let late = scene.hold().enter(BOOKIE).await;
        let over = matches!(late, Err(HoldError::Job(JobError::Phase { .. })));
        assert!(over, "{late:?}");
        assert_eq!((scene.puts(), scene.claims()), (puts, claims));
        assert_eq!(scene.registered().await, Registered::Writable);
    }
}

#[tokio::test]
async fn an_order_on_its_way_when_the_job_is_given_up_is_taken_back() {
    let scene = scene(CONFIG).await;
    scene.gives_up.store(true, Ordering::Relaxed);
    let late = scene.hold().enter(BOOKIE).await;
    let phase = Phase::Cancelled;
    let id = scene.job.id.clone();
    let over =
        matches!(&late, Err(HoldError::Job(error)) if *error == JobError::Phase { id, phase });
    assert!(over, "{late:?}");
    assert_eq!(scene.registered().await, Registered::Writable);
    assert_eq!(scene.claims(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_bookie_that_is_another_or_cannot_be_read_only_is_not_ordered() {
    let told = async |config| {
        let scene = scene(config).await;
        let refused = scene.hold().enter(BOOKIE).await.unwrap_err();
        assert_eq!((scene.puts(), scene.claims().len()), (0, 1));
        refused.to_string()
    };
    insta::assert_snapshot!(told(r#"{"bookiePort":"3182"}"#).await, @"the admin server that is said to be that of b.example.org:3181 is that of b.example.org:3182: look at --admin");
    insta::assert_snapshot!(told(r#"{"readOnlyModeEnabled":"false"}"#).await, @"b.example.org:3181 was started with readOnlyModeEnabled=false, so that it cannot be read-only: start it with true");
}

#[tokio::test]
async fn one_that_others_claim_stays_read_only_when_the_job_is_given_up() {
    let scene = scene(CONFIG).await;
    scene.hold().enter(BOOKIE).await.unwrap();
    let other = format!("/dirkeeper/i/claims/{BOOKIE}/d-2");
    let made = create_with_parents(&*scene.store, &other, b"{}", Kind::Persistent).await;
    made.unwrap();
    let puts = scene.puts();
    assert!(!scene.hold().leave(BOOKIE).await.unwrap());
    assert_eq!(scene.puts(), puts);
    assert_eq!(scene.registered().await, Registered::ReadOnly);
}

#[tokio::test]
async fn what_is_in_the_way_is_said_and_the_claim_stands() {
    let scene = scene("no JSON").await;
    let nobody = Admins::new();
    let unknown = Hold {
        admins: &nobody,
        ..scene.hold()
    };
    let words = |told: Result<bool, HoldError>| crate::report::text(&told.unwrap_err());
    let mut told = vec![words(unknown.enter(BOOKIE).await)];
    assert_eq!(scene.claims(), [scene.job.id.as_str()]);
    told.push(words(scene.hold().enter("other:3181").await));
    let port = scene.admin.port.to_string();
    told.push(words(scene.hold().enter(BOOKIE).await).replace(&port, "PORT"));
    assert_eq!(scene.puts(), 0);
    insta::assert_snapshot!(told.join("\n"), @"
    b.example.org:3181 has registered no admin server, so nothing can order it to be read-only: set httpServerEnabled=true there, or name the server with --admin b.example.org:3181=URL
    other:3181 is not registered: it does not run, or ZooKeeper has lost it; what it holds is copied from other replicas by BookKeeper's own recovery
    b.example.org:3181 did not take the order: the answer of http://127.0.0.1:PORT/api/v1/config/server_config is not a bookie's, it is no JSON (expected ident at line 1 column 2): `no JSON` (does another program listen there?)
    ");
}
