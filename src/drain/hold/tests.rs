//! Bookies that are told to be read-only, by a job that claims them first.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use insta::assert_snapshot;

use super::*;
use crate::bookie::stub::{Reply, Stub};
use crate::cluster::memory::{Memory, MemorySession};
use crate::cluster::store::{Kind, create_with_parents};
use crate::report;

const BOOKIE: &str = "bk1:3181";
const AVAILABLE: &str = "/ledgers/available/bk1:3181";
const READ_ONLY: &str = "/ledgers/available/readonly/bk1:3181";
const CLAIM: &str = "/dirkeeper/i/claims/bk1:3181/d-1";

/// A cluster with a bookie whose admin server is a stub.
struct Scene {
    clock: Clock,
    store: Arc<MemorySession>,
    place: Place,
    admins: Admins,
    stub: Stub,
}

/// What a call to the store in memory comes to, which never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("the store in memory waits"),
    }
}

async fn make(store: &MemorySession, path: &str, data: &[u8]) {
    let made = create_with_parents(store, path, data, Kind::Persistent).await;
    made.unwrap();
}

/// Registers the bookie as one of BookKeeper does when it is told to.
fn follow(store: &MemorySession, asked: &str) {
    let (from, to) = match asked.ends_with(r#"{"readOnly":true}"#) {
        true => (AVAILABLE, READ_ONLY),
        false => (READ_ONLY, AVAILABLE),
    };
    now(create_with_parents(store, to, b"", Kind::Persistent)).unwrap();
    now(store.delete(from, None)).unwrap();
}

impl Scene {
    async fn new(obeys: bool) -> Scene {
        let clock = Clock::manual();
        let store = Arc::new(Memory::new(clock.clone()).connect());
        make(&store, AVAILABLE, b"").await;
        let bookie = Arc::clone(&store);
        let stub = Stub::start(None, move |asked| {
            if !asked.starts_with("PUT") {
                return Reply::json(r#"{"running":true,"readOnly":true,"shuttingDown":false}"#);
            }
            if !obeys {
                return Reply::Body(400, "Bookie is disabled ReadOnly mode".to_owned());
            }
            let is_claimed = now(bookie.stat(CLAIM)).unwrap().is_some();
            follow(&bookie, asked);
            // Nobody is read-only without an owner.
            match asked.contains("true") {
                true if !is_claimed => Reply::Body(500, "no claim".to_owned()),
                is_read_only => Reply::json(&format!(r#"{{"readOnly":{is_read_only}}}"#)),
            }
        });
        let stub = stub.await;
        let url = format!("http://127.0.0.1:{}", stub.port);
        Scene {
            clock,
            store,
            place: Place {
                ledgers_root: "/ledgers".to_owned(),
                root: "/dirkeeper".to_owned(),
                instance: "i".to_owned(),
            },
            admins: Admins::from([(BOOKIE.to_owned(), url)]),
            stub,
        }
    }

    fn hold(&self) -> Hold<'_> {
        Hold {
            store: &*self.store,
            place: &self.place,
            job: "d-1",
            admins: &self.admins,
            clock: &self.clock,
        }
    }

    async fn is_there(&self, path: &str) -> bool {
        self.store.stat(path).await.unwrap().is_some()
    }
}

fn words<T: std::fmt::Debug>(result: Result<T, HoldError>) -> String {
    report::text(&result.unwrap_err())
}

#[tokio::test]
async fn a_bookie_is_claimed_and_made_read_only_once_and_again_when_it_forgot() {
    let scene = Scene::new(true).await;
    let hold = scene.hold();
    assert!(hold.enter(BOOKIE).await.unwrap());
    assert!(scene.is_there(CLAIM).await);
    assert!(!hold.enter(BOOKIE).await.unwrap(), "told twice");
    assert_eq!(hold.registered(BOOKIE).await.unwrap(), Registered::ReadOnly);
    // It restarted.
    follow(&scene.store, "");
    assert!(hold.enter(BOOKIE).await.unwrap());
    assert!(hold.leave(BOOKIE).await.unwrap());
    assert!(!scene.is_there(CLAIM).await);
    assert_snapshot!(scene.stub.asked().join("\n"), @r#"
    PUT /api/v1/bookie/state/readonly {"readOnly":true}
    PUT /api/v1/bookie/state/readonly {"readOnly":true}
    PUT /api/v1/bookie/state/readonly {"readOnly":false}
    "#);
}

#[tokio::test]
async fn one_that_others_claim_stays_read_only_when_the_job_is_given_up() {
    let scene = Scene::new(true).await;
    let hold = scene.hold();
    hold.enter(BOOKIE).await.unwrap();
    make(&scene.store, "/dirkeeper/i/claims/bk1:3181/d-2", b"{}").await;
    let asked = scene.stub.asked();
    assert!(!hold.leave(BOOKIE).await.unwrap());
    assert_eq!(scene.stub.asked(), asked);
    assert!(scene.is_there(READ_ONLY).await);
}

#[tokio::test]
async fn what_is_in_the_way_is_said_and_the_claim_stands() {
    let scene = Scene::new(false).await;
    let nobody = Admins::new();
    let unknown = Hold {
        admins: &nobody,
        ..scene.hold()
    };
    let mut told = vec![words(unknown.enter(BOOKIE).await)];
    assert!(scene.is_there(CLAIM).await);
    assert!(!scene.stub.asked().iter().any(|asked| asked.contains("PUT")));
    told.push(words(scene.hold().enter("bk2:3181").await));
    let port = scene.stub.port.to_string();
    told.push(words(scene.hold().enter(BOOKIE).await).replace(&port, "PORT"));
    assert_snapshot!(told.join("\n"), @"
    bk1:3181 has registered no admin server, so nothing can order it to be read-only: set httpServerEnabled=true there, or name the server with --admin bk1:3181=URL
    bk2:3181 is not registered: it does not run, or ZooKeeper has lost it; what it holds is copied from other replicas by BookKeeper's own recovery
    bk1:3181 did not take the order: http://127.0.0.1:PORT/api/v1/bookie/state/readonly answered 400: `Bookie is disabled ReadOnly mode`
    ");
}
