//! The cluster on the store in memory: what is read, what is refused, and what happens without a session.

use tokio::sync::{mpsc as unbounded, watch as channel};

use super::memory::{Memory, MemorySession};
use super::store::{Answer, Op, create_with_parents};
use super::*;
use crate::health::beside::{Heard, Member};
use crate::health::claim::Owner;

const INSTANCE: &str = "5f2c0c8e-0000-4000-8000-000000000001";

/// How long a test waits for what must come.
const SOON: Duration = Duration::from_secs(20);

fn options(bookie: &str) -> ClusterOptions {
    ClusterOptions {
        zookeeper: Servers::default(),
        ledgers_root: "/ledgers".to_owned(),
        root: "/dirkeeper".to_owned(),
        bookie: bookie.to_owned(),
        host: "here".to_owned(),
        instance: None,
        clock: Clock::manual(),
    }
}

async fn put(store: &MemorySession, path: &str, data: &[u8]) {
    create_with_parents(store, path, data, Kind::Persistent)
        .await
        .unwrap();
}

/// A server with a cluster on it, and a session to change it with.
async fn server() -> (Memory, MemorySession) {
    let server = Memory::new(Clock::manual());
    let hand = server.connect();
    put(&hand, "/ledgers/INSTANCEID", INSTANCE.as_bytes()).await;
    put(&hand, "/ledgers/available/readonly", b"").await;
    (server, hand)
}

/// The agent of a bookie in that cluster, with its session.
fn agent(server: &Memory, bookie: &str) -> (Cluster, Arc<MemorySession>) {
    let session = Arc::new(server.connect());
    let store: Arc<dyn MetaStore> = session.clone();
    (Cluster::on(store, options(bookie)), session)
}

fn own(path: &str) -> String {
    format!("/dirkeeper/{INSTANCE}/{path}")
}

fn shown(member: &Member) -> String {
    let list = match (member.registration.writable, member.registration.read_only) {
        (true, true) => "both",
        (true, false) => "writable",
        (false, true) => "readOnly",
        (false, false) => "away",
    };
    let or_none = |text: &Option<String>| text.clone().unwrap_or_default();
    let agent = match &member.agent {
        Some(status) if status.full => "full",
        Some(_) => "agent",
        None => "",
    };
    let claimed = if member.claimed { "claimed" } else { "" };
    let below = if member.below_floor { "below" } else { "" };
    let words = [
        member.id.as_str(),
        list,
        &or_none(&member.rack),
        &or_none(&member.group),
        agent,
        claimed,
        below,
    ];
    words
        .into_iter()
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[tokio::test]
async fn a_view_joins_all_lists_and_says_what_it_does_not_understand() {
    let (server, hand) = server().await;
    let (cluster, _session) = agent(&server, "a:1");
    // A cookie of layout 3, and one of today.
    put(&hand, "/ledgers/cookies/old:1", b"3\nold:1\n/j\n1\t/l\n").await;
    put(&hand, "/ledgers/cookies/a:1", b"5\nbookieHost: \"a:1\"\n").await;
    put(&hand, "/ledgers/available/a:1", b"").await;
    put(&hand, "/ledgers/available/b:1", b"").await;
    put(&hand, "/ledgers/available/readonly/b:1", b"").await;
    put(&hand, "/ledgers/available/readonly/c:1", b"").await;
    put(
        &hand,
        "/bookies",
        br#"{"g":{"a:1":{"rack":"/r1"},"x:1":{"rack":"/r2"}}}"#,
    )
    .await;
    let full = br#"{"overWarn":true,"full":true,"enforces":false,"at":1}"#;
    put(&hand, &own("agents/a:1"), full).await;
    put(&hand, &own("agents/c:1"), b"{\"full\":").await;
    put(
        &hand,
        &own("claims/a:1"),
        br#"{"version":1,"agent":{},"belowFloor":true}"#,
    )
    .await;
    put(&hand, &own("claims/c:1/j1"), b"{}").await;
    put(&hand, &own("ensemble"), br#"{"largest":5,"at":1}"#).await;
    let view = cluster.view().await.unwrap();
    let members: Vec<String> = view.members.iter().map(shown).collect();
    assert_eq!(
        members,
        [
            "a:1 writable /r1 g full claimed below",
            "b:1 both",
            "c:1 readOnly claimed",
            "old:1 away",
        ]
    );
    assert_eq!(view.largest_ensemble, Some(5));
    let problems = cluster.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("the status of the agent of c:1: "));

    hand.set("/bookies", b"rack: r1", None).await.unwrap();
    hand.set(&own("ensemble"), b"\xff", None).await.unwrap();
    let view = cluster.view().await.unwrap();
    assert_eq!(shown(&view.members[0]), "a:1 writable full claimed below");
    assert_eq!(view.largest_ensemble, None);
    let problems = cluster.problems().join("; ");
    assert!(
        problems.contains("the racks in /bookies cannot be understood"),
        "{problems}"
    );
    assert!(
        problems.contains("ensemble cannot be understood"),
        "{problems}"
    );
}

#[tokio::test]
async fn a_view_of_ten_thousand_bookies() {
    let (server, hand) = server().await;
    let (cluster, _session) = agent(&server, "a:1");
    put(&hand, "/ledgers/cookies", b"").await;
    let ops: Vec<Op> = (0..10_000)
        .map(|n| Op::Create {
            path: format!("/ledgers/cookies/b{n}:1"),
            data: Vec::new(),
            kind: Kind::Persistent,
        })
        .collect();
    hand.multi(&ops).await.unwrap();
    assert_eq!(cluster.view().await.unwrap().members.len(), 10_000);
}

#[tokio::test]
async fn another_cluster_is_said_and_not_followed() {
    let (server, hand) = server().await;
    let (cluster, _session) = agent(&server, "a:1");
    cluster.confirm().await.unwrap();
    let other = ClusterError::OtherInstance {
        expected: INSTANCE.to_owned(),
        now: "other".to_owned(),
    };
    hand.set("/ledgers/INSTANCEID", b"other", None)
        .await
        .unwrap();
    assert_eq!(cluster.confirm().await, Err(other.clone()));
    assert_eq!(cluster.view().await, Err(other.clone()));
    let store: Arc<dyn MetaStore> = Arc::new(server.connect());
    let expecting = ClusterOptions {
        instance: Some(INSTANCE.to_owned()),
        ..options("a:1")
    };
    let fresh = Cluster::on(store, expecting);
    assert_eq!(fresh.own_claims("a:1").await, Err(other));
    for bad in [&b""[..], b"a/b", b"..", b"\xff", &[b'x'; 101]] {
        hand.set("/ledgers/INSTANCEID", bad, None).await.unwrap();
        let error = cluster.confirm().await.unwrap_err();
        assert!(matches!(error, ClusterError::Instance { .. }), "{error}");
    }
    hand.delete("/ledgers/INSTANCEID", None).await.unwrap();
    let words = crate::report::text(&cluster.confirm().await.unwrap_err());
    assert!(words.contains("not initialised"), "{words}");
}

/// A bookie that is told to go where another session's node is waits for that session, and ends.
#[tokio::test]
async fn a_registration_by_two_sessions_is_told_apart_from_both_by_one() {
    let (server, hand) = server().await;
    let (cluster, _session) = agent(&server, "a:1");
    let (bookie, before) = (server.connect(), server.connect());
    let [writable, read_only] =
        ["available", "available/readonly"].map(|list| format!("/ledgers/{list}/a:1"));
    let ask = async || cluster.is_registered_by_two("a:1").await;
    assert_eq!(ask().await, Ok(false));
    bookie
        .create(&writable, b"", Kind::Ephemeral)
        .await
        .unwrap();
    assert_eq!(ask().await, Ok(false));
    before
        .create(&read_only, b"", Kind::Ephemeral)
        .await
        .unwrap();
    assert_eq!(ask().await, Ok(true));
    before.expire();
    bookie
        .create(&read_only, b"", Kind::Ephemeral)
        .await
        .unwrap();
    assert_eq!(ask().await, Ok(false), "W34: both are its own");
    bookie.delete(&read_only, None).await.unwrap();
    put(&hand, &read_only, b"").await;
    assert_eq!(ask().await, Ok(true), "of no session");
}

#[tokio::test]
async fn no_call_takes_an_id_that_would_lead_elsewhere() {
    let (server, _hand) = server().await;
    let (cluster, _session) = agent(&server, "a/b");
    for id in ["", "a/b", "..", "readonly", "a\u{0}"] {
        let error = cluster.registration(id).await.unwrap_err();
        assert!(
            matches!(error, ClusterError::Bookie { .. }),
            "{id:?}: {error}"
        );
    }
    let status = AgentStatus::default();
    let words = crate::report::text(&cluster.publish_status(&status).await.unwrap_err());
    assert!(
        words.starts_with("\"a/b\" is no bookie's id: it has a slash"),
        "{words}"
    );
}

#[tokio::test]
async fn claims_are_compared_and_set() {
    let (server, hand) = server().await;
    let (one, _one) = agent(&server, "a:1");
    let (two, _two) = agent(&server, "a:1");
    assert_eq!(one.own_claims("a:1").await, Ok(None));
    assert_eq!(one.put_own_claims("a:1", b"1", None).await, Ok(0));
    let conflict = Err(ClusterError::Conflict {
        bookie: "a:1".to_owned(),
    });
    assert_eq!(two.put_own_claims("a:1", b"x", None).await, conflict);
    assert_eq!(one.put_own_claims("a:1", b"2", Some(0)).await, Ok(1));
    assert_eq!(two.put_own_claims("a:1", b"x", Some(0)).await, conflict);
    assert_eq!(two.own_claims("a:1").await, Ok(Some((b"2".to_vec(), 1))));
    let none_to_replace = two.put_own_claims("b:1", b"x", Some(0)).await;
    assert!(matches!(
        none_to_replace,
        Err(ClusterError::Conflict { .. })
    ));

    // A drain job came first: its parent is there, and empty.
    let claim = br#"{"owner":"drain:j1","mode":"readOnly","reason":"out","since":5}"#;
    put(&hand, &own("claims/b:1/j1"), claim).await;
    put(&hand, &own("claims/b:1/j2"), b"garbage").await;
    assert_eq!(one.own_claims("b:1").await, Ok(Some((Vec::new(), 0))));
    assert_eq!(one.put_own_claims("b:1", b"mine", Some(0)).await, Ok(1));
    let owners: Vec<Owner> = one
        .foreign_claims("b:1")
        .await
        .unwrap()
        .into_iter()
        .map(|claim| claim.owner)
        .collect();
    let drain = |job: &str| Owner::Drain(job.to_owned());
    assert_eq!(owners, [drain("j1"), drain("j2")]);
    assert_eq!(one.foreign_claims("c:1").await, Ok(Vec::new()));
}

#[tokio::test]
async fn one_at_a_time_holds_the_lock() {
    let (server, hand) = server().await;
    let (one, _one) = agent(&server, "a:1");
    let (two, session) = agent(&server, "b:1");
    let held = one.lock_mode(SOON).await.unwrap();
    assert!(held.is_held());
    let wait = Duration::from_millis(20);
    assert_eq!(
        two.lock_mode(wait).await.unwrap_err(),
        ClusterError::Locked {
            holder: "a:1".to_owned(),
            wait,
        }
    );
    let (second, ()) = tokio::join!(two.lock_mode(SOON), held.release());
    let second = second.unwrap();
    assert!(second.is_held());

    // The lock goes with the session, and its holder knows.
    session.disconnect();
    assert!(!second.is_held());
    session.reconnect();
    assert!(second.is_held());
    session.expire();
    session.reconnect();
    assert!(!second.is_held());
    let third = one.lock_mode(SOON).await.unwrap();
    // What the second gives back is not the third's.
    second.release().await;
    assert!(third.is_held());
    assert!(hand.stat(&own("mode-lock")).await.unwrap().is_some());
    drop(third);
    two.lock_mode(SOON).await.unwrap().release().await;
    assert_eq!(hand.stat(&own("mode-lock")).await, Ok(None));
}

/// Who may stop counts as gone for five minutes by the store's clock, or until it is back, whatever stands in the node.
#[tokio::test]
async fn a_leave_to_stop_lasts_until_its_end_or_the_bookie_is_back() {
    let clock = Clock::manual();
    let server = Memory::new(clock.clone());
    let hand = server.connect();
    put(&hand, "/ledgers/INSTANCEID", INSTANCE.as_bytes()).await;
    put(&hand, "/ledgers/available/a:1", b"").await;
    let (one, session) = agent(&server, "a:1");
    let (two, _two) = agent(&server, "b:1");
    let stopping = async || {
        let lock = two.lock_mode(SOON).await.unwrap();
        let stopping = two.stopping(&lock).await.unwrap();
        lock.release().await;
        let of = |(id, left): (&String, &Duration)| format!("{id} {}", left.as_secs());
        stopping.iter().map(of).collect::<Vec<_>>().join(", ")
    };
    let reserve = async |cluster: &Cluster| {
        let lock = cluster.lock_mode(SOON).await.unwrap();
        let stays = cluster.reserve_stop(&lock).await.unwrap();
        assert_eq!(stays, stopping::STAYS);
        lock.release().await;
    };
    let pass = |seconds| clock.advance(Duration::from_secs(seconds));
    assert_eq!(stopping().await, "");
    reserve(&one).await;
    pass(100);
    assert_eq!(stopping().await, "a:1 200");
    // Asked again it is renewed, and it outlives the agent.
    reserve(&one).await;
    session.expire();
    session.reconnect();
    pass(299);
    assert_eq!(stopping().await, "a:1 1");
    pass(1);
    assert_eq!(stopping().await, "");
    assert_eq!(
        hand.stat(&own("stopping/a:1")).await,
        Ok(None),
        "left behind"
    );

    // It goes, and is back; so is one that was away already when it asked.
    reserve(&one).await;
    reserve(&two).await;
    hand.delete("/ledgers/available/a:1", None).await.unwrap();
    assert_eq!(stopping().await, "a:1 300, b:1 300");
    put(&hand, "/ledgers/available/readonly/a:1", b"").await;
    assert_eq!(stopping().await, "b:1 300");
    put(&hand, "/ledgers/available/b:1", b"").await;
    assert_eq!(stopping().await, "");

    // What cannot be understood may be a leave of another release.
    put(&hand, &own("stopping/c:1"), b"garbage").await;
    put(&hand, "/ledgers/available/c:1", b"").await;
    assert_eq!(stopping().await, "c:1 300");
}

/// Of two agents of one bookie the first counts until its session ends, whatever the second says.
#[tokio::test]
async fn a_second_agent_of_a_bookie_finds_the_first() {
    let (server, hand) = server().await;
    let (one, session) = agent(&server, "a:1");
    let copy = ClusterOptions {
        host: "there\u{1b}".to_owned(),
        ..options("a:1")
    };
    let second: Arc<dyn MetaStore> = Arc::new(server.connect());
    let two = Cluster::on(second, copy);
    let (other, _other) = agent(&server, "b:1");
    let status = AgentStatus::default();
    let rival = |host: &str| {
        Err(ClusterError::Rival {
            bookie: "a:1".to_owned(),
            host: host.to_owned(),
        })
    };
    assert_eq!(two.is_alone().await, Ok(()));
    assert_eq!(one.publish_status(&status).await, Ok(()));
    assert_eq!(other.publish_status(&status).await, Ok(()));
    assert_eq!(two.is_alone().await, rival("here"));
    assert_eq!(two.publish_status(&status).await, rival("here"));
    assert_eq!(
        (one.is_alone().await, other.is_alone().await),
        (Ok(()), Ok(()))
    );
    // Asked again, and out of reach, it still lives.
    assert_eq!(one.publish_status(&status).await, Ok(()));
    session.disconnect();
    assert_eq!(two.is_alone().await, rival("here"));
    session.expire();
    assert_eq!(two.is_alone().await, Ok(()));
    assert_eq!(two.publish_status(&status).await, Ok(()));
    session.reconnect();
    assert_eq!(one.publish_status(&status).await, rival("there\\x1b"));
    // A node that goes with no session is replaced. One of an earlier release does not say where it runs.
    hand.delete(&own("agents/a:1"), None).await.unwrap();
    put(&hand, &own("agents/a:1"), b"{}").await;
    assert_eq!(one.publish_status(&status).await, Ok(()));
    hand.delete(&own("agents/a:1"), None).await.unwrap();
    let old = br#"{"overWarn":true,"full":false,"enforces":true,"at":7}"#;
    hand.create(&own("agents/a:1"), old, Kind::Ephemeral)
        .await
        .unwrap();
    assert_eq!(one.is_alone().await, rival("a host that it does not name"));
}

/// A store that takes calls and answers none of those that make a node.
struct Deaf(Arc<MemorySession>);

impl MetaStore for Deaf {
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, store::Stat)> {
        self.0.get(path)
    }
    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<store::Stat>> {
        self.0.stat(path)
    }
    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        self.0.children(path)
    }
    fn create<'a>(&'a self, path: &'a str, data: &'a [u8], kind: Kind) -> Answer<'a, store::Stat> {
        Box::pin(async move {
            self.0.create(path, data, kind).await?;
            std::future::pending().await
        })
    }
    fn set<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        version: Option<i32>,
    ) -> Answer<'a, store::Stat> {
        self.0.set(path, data, version)
    }
    fn delete<'a>(&'a self, path: &'a str, version: Option<i32>) -> Answer<'a, ()> {
        self.0.delete(path, version)
    }
    fn multi<'a>(&'a self, ops: &'a [Op]) -> Answer<'a, ()> {
        self.0.multi(ops)
    }
    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<store::Stat>, Changed)> {
        self.0.watch(path)
    }
    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Changed)> {
        self.0.watch_children(path)
    }
    fn link(&self) -> channel::Receiver<Link> {
        self.0.link()
    }
}

#[tokio::test]
async fn a_call_without_an_answer_ends_and_leaves_no_lock_behind() {
    let (server, hand) = server().await;
    put(&hand, &own("claims"), b"").await;
    let store: Arc<dyn MetaStore> = Arc::new(Deaf(Arc::new(server.connect())));
    let cluster = Cluster::on(store, options("a:1"));
    let claims = cluster.put_own_claims("a:1", b"x", None).await;
    assert_eq!(claims, Err(ClusterError::TimedOut));
    // It took effect all the same, and can be seen.
    let found = cluster.own_claims("a:1").await;
    assert_eq!(found, Ok(Some((b"x".to_vec(), 0))));

    let lock = cluster.lock_mode(SOON).await.map(drop);
    assert_eq!(lock, Err(ClusterError::TimedOut));
    let (there, gone) = hand.watch(&own("mode-lock")).await.unwrap();
    if there.is_some() {
        timeout(SOON, gone)
            .await
            .expect("the attempt was not taken back");
    }
    assert_eq!(hand.stat(&own("mode-lock")).await, Ok(None));
}

#[tokio::test]
async fn without_a_session_every_call_says_so_at_once() {
    let (server, _hand) = server().await;
    let (cluster, session) = agent(&server, "a:1");
    session.disconnect();
    let lost = ClusterError::NotConnected;
    assert_eq!(cluster.session(), Session::Lost(Duration::ZERO));
    assert_eq!(cluster.confirm().await, Err(lost.clone()));
    assert_eq!(cluster.view().await, Err(lost.clone()));
    assert_eq!(cluster.registration("a:1").await, Err(lost.clone()));
    assert_eq!(
        cluster.put_own_claims("a:1", b"", None).await,
        Err(lost.clone())
    );
    assert_eq!(cluster.lock_mode(SOON).await.map(drop), Err(lost));
}

async fn hear(
    heard: &mut unbounded::UnboundedReceiver<Heard>,
    what: &str,
    wanted: impl Fn(&Heard) -> bool,
) {
    let found = async {
        while let Some(next) = heard.recv().await {
            if wanted(&next) {
                return;
            }
        }
        panic!("the watch ended");
    };
    timeout(SOON, found)
        .await
        .unwrap_or_else(|_| panic!("{what} was not heard"));
}

#[tokio::test]
async fn the_watch_tells_what_changed_and_says_its_status_in_each_session() {
    let (server, hand) = server().await;
    let (cluster, session) = agent(&server, "a:1");
    let (sender, mut heard) = unbounded::unbounded_channel();
    let (status, statuses) = channel::channel(None);
    let tell = move |what| {
        // The test may have ended.
        let _ = sender.send(what);
    };
    let _watch = watch::start(&cluster, tell, statuses);
    let node = own("agents/a:1");
    let (_, published) = hand.watch(&node).await.unwrap();
    status.send(Some(AgentStatus::default())).unwrap();
    timeout(SOON, published)
        .await
        .expect("the status was not published");

    let away = |heard: &Heard| matches!(heard, Heard::Registration(Ok(found)) if !found.writable);
    hear(&mut heard, "no registration", away).await;
    put(&hand, "/ledgers/available/a:1", b"").await;
    let there = |heard: &Heard| matches!(heard, Heard::Registration(Ok(found)) if found.writable);
    hear(&mut heard, "the registration", there).await;
    let view = |heard: &Heard| matches!(heard, Heard::Cluster(Ok(view)) if view.members.len() == 1);
    hear(&mut heard, "the view", view).await;

    let (_, gone) = hand.watch(&node).await.unwrap();
    session.expire();
    timeout(SOON, gone)
        .await
        .expect("the status outlived its session");
    let lost = |heard: &Heard| matches!(heard, Heard::Session(Session::Lost(_)));
    hear(&mut heard, "the loss", lost).await;
    let (_, back) = hand.watch(&node).await.unwrap();
    session.reconnect();
    let connected = |heard: &Heard| *heard == Heard::Session(Session::Connected);
    hear(&mut heard, "the new session", connected).await;
    timeout(SOON, back)
        .await
        .expect("the status was not published again");
    let view = cluster.view().await.unwrap();
    assert_eq!(shown(&view.members[0]), "a:1 writable agent");
}
