//! The agent's side of ZooKeeper against a real one: the contract of the store, a server that stands still,
//! users and their rights, and a cluster of real bookies.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dirkeeper::clock::Clock;
use dirkeeper::cluster::store::{self, Kind, Link, MetaStore, StoreError};
use dirkeeper::cluster::{Cluster, ClusterError, ClusterOptions, Servers, ZooKeeper, endpoints};
use dirkeeper::cluster::{floor, watch};
use dirkeeper::health::beside::{AgentStatus, Heard, Session};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::watch as channel;

use crate::harness::bench::Bench;
use crate::harness::run::{pass, try_command, try_for, wait_for};
use crate::stand::gate::Gate;
use crate::stand::lab::{Lab, Setup};

#[path = "../../../src/cluster/contract.rs"]
mod contract;
mod tls;

pub(crate) use tls::zookeeper_by_tls;

/// A session of 10 s ends within twice of that, and a new one is there soon after.
const LIMIT: Duration = Duration::from_secs(40);

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(work)
}

fn servers(servers: &[String], digest: Option<&str>) -> Servers {
    Servers {
        servers: servers.to_vec(),
        digest: digest.map(str::to_owned),
        tls: None,
    }
}

async fn connected(store: &dyn MetaStore) {
    let mut link = store.link();
    let there = link.wait_for(|link| matches!(link, Link::Connected(_)));
    let there = tokio::time::timeout(LIMIT, there).await;
    assert!(there.is_ok(), "no session within {LIMIT:?}");
}

async fn connect(server: String, digest: Option<&str>) -> ZooKeeper {
    let store = ZooKeeper::start(servers(&[server], digest), Clock::start());
    connected(&store).await;
    store
}

/// The same words as for the store in memory, and users with their rights.
pub(crate) fn zookeeper_keeps_the_contract(bench: &Bench) {
    let lab = Setup::new(bench).bookies(0).up();
    let gate = Gate::before(lab.zookeeper());
    run(async {
        let one = connect(gate.address(), None).await;
        let two = connect(lab.zookeeper(), None).await;
        contract::nodes(&one).await;
        contract::transactions(&one).await;
        contract::watches(&one, &two).await;
        let moment = async || pass(Duration::from_millis(5));
        contract::ages(&one, &two, moment).await;
        contract::many_children(&one).await;
        rights(&lab).await;
    });
    // A real end: the server hears nothing until it gives the session up.
    thread::scope(|scope| {
        let end = || {
            gate.shut();
            scope.spawn(|| {
                wait_for("the server ends the session", LIMIT, || {
                    let nodes = lab.ephemerals()?;
                    (!nodes.iter().any(|node| node.starts_with("/contract"))).then_some(())
                });
                gate.open();
            });
        };
        run(async {
            let one = connect(gate.address(), None).await;
            let two = connect(lab.zookeeper(), None).await;
            contract::sessions(&one, &two, end).await;
        });
    });
}

/// What one user makes, no other may read or change.
async fn rights(lab: &Lab) {
    let owner = connect(lab.zookeeper(), Some("agent:secret")).await;
    let again = connect(lab.zookeeper(), Some("agent:secret")).await;
    let other = connect(lab.zookeeper(), Some("agent:guess")).await;
    let nobody = connect(lab.zookeeper(), None).await;
    let made = owner.create("/own", b"x", Kind::Persistent).await;
    assert!(made.is_ok(), "{made:?}");
    assert_eq!(
        again.get("/own").await.map(|(data, _)| data),
        Ok(b"x".to_vec())
    );
    for store in [&other, &nobody] {
        let refused = Err(StoreError::NoAuth);
        assert_eq!(store.get("/own").await.map(drop), refused);
        assert_eq!(store.set("/own", b"y", None).await.map(drop), refused);
        assert_eq!(
            store
                .create("/own/a", b"", Kind::Persistent)
                .await
                .map(drop),
            refused
        );
        let below = store::create_with_parents(store, "/own/a/b", b"", Kind::Persistent).await;
        assert_eq!(below.map(drop), refused);
    }
}

fn options(servers: Servers, bookie: &str) -> ClusterOptions {
    ClusterOptions {
        zookeeper: servers,
        ledgers_root: "/ledgers".to_owned(),
        root: "/dirkeeper".to_owned(),
        bookie: bookie.to_owned(),
        host: "here".to_owned(),
        instance: None,
        clock: Clock::start(),
    }
}

/// Waits for what the watch must say.
fn hear(heard: &mpsc::Receiver<Heard>, what: &str, wanted: impl Fn(&Heard) -> bool) {
    let mut last = None;
    let found = try_for(LIMIT, || {
        let next = heard.try_iter().inspect(|next| last = Some(next.clone()));
        next.into_iter().any(|next| wanted(&next)).then_some(())
    });
    assert!(
        found.is_some(),
        "{what} was not heard within {LIMIT:?}, the last was {last:?}"
    );
}

/// A runtime that goes on while the test waits, as the agent's does.
fn beside<T>(test: impl FnOnce(&tokio::runtime::Handle) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let handle = runtime.handle().clone();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || runtime.block_on(ended));
        let result = test(&handle);
        drop(end);
        result
    })
}

/// A signal to a process reaches its threads one after the other.
fn stands_still(process: Pid) -> Option<()> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let mut states = threads.flatten().map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    });
    states.all(|stopped| stopped).then_some(())
}

/// ZooKeeper does nothing for 8 s: every call ends in time, and afterwards all is as before.
pub(crate) fn zookeeper_stands_still(bench: &Bench) {
    let lab = Setup::new(bench).bookies(0).up();
    run(async {
        let hand = connect(lab.zookeeper(), None).await;
        let path = "/ledgers/INSTANCEID";
        let made = store::create_with_parents(&hand, path, b"i", Kind::Persistent).await;
        assert!(made.is_ok(), "{made:?}");
    });
    beside(|runtime| {
        let _entered = runtime.enter();
        // The first of the servers is not there.
        let list = ["127.0.0.1:1".to_owned(), lab.zookeeper()];
        let cluster = Cluster::start(options(servers(&list, None), "a:1"));
        let (sender, heard) = mpsc::channel();
        let (_status, statuses) = channel::channel(Some(AgentStatus::default()));
        let tell = move |what| drop(sender.send(what));
        let _watch = watch::start(&cluster, tell, statuses);
        hear(&heard, "the session", |heard| {
            *heard == Heard::Session(Session::Connected)
        });
        let node = "/dirkeeper/i/agents/a:1".to_owned();
        let published = || {
            lab.ephemerals()
                .filter(|nodes| nodes.contains(&node))
                .map(drop)
        };
        wait_for("the status is published", LIMIT, published);
        let lock = runtime
            .block_on(cluster.lock_mode(LIMIT))
            .expect("nobody holds it");
        assert!(lock.is_held());

        let zookeeper = Pid::from_raw(lab.zookeeper_pid());
        kill(zookeeper, Signal::SIGSTOP).expect("it runs");
        wait_for("all its threads stand still", LIMIT, || {
            stands_still(zookeeper)
        });
        let clock = Clock::start();
        let (mut lost, mut calls) = (false, 0);
        while clock.elapsed() < Duration::from_secs(8) {
            let before = clock.elapsed();
            let answer = runtime.block_on(cluster.confirm());
            let took = clock.elapsed() - before;
            assert!(
                matches!(
                    answer,
                    Err(ClusterError::TimedOut | ClusterError::NotConnected)
                ),
                "{answer:?}"
            );
            assert!(took < Duration::from_secs(4), "a call took {took:?}");
            calls += 1;
            lost |= matches!(cluster.session(), Session::Lost(_)) && !lock.is_held();
            pass(Duration::from_millis(100));
        }
        kill(zookeeper, Signal::SIGCONT).expect("it runs");
        assert!(
            lost && 3 < calls,
            "the loss was not noticed in {calls} calls"
        );
        wait_for("the session is back", LIMIT, || {
            (cluster.session() == Session::Connected).then_some(())
        });
        drop(lock);
        let lock = runtime
            .block_on(cluster.lock_mode(LIMIT))
            .expect("it was given back");
        assert!(lock.is_held());
        runtime.block_on(lock.release());
        wait_for("the status is published again", LIMIT, published);
        let left = lab.ephemerals().expect("it answers");
        assert_eq!(left, [node], "nothing else is left");
    });
}

/// Two bookies: who is registered how, where their admin servers are, and what their ledgers need.
pub(crate) fn a_cluster_of_bookies(bench: &Bench) {
    let lab = Setup::new(bench).bookies(2).up();
    let ledgers = "--ledgers 3 --entries 5 --size 100 --ensemble 2 --write 1 --ack 1";
    let words: Vec<&str> = ledgers.split(' ').collect();
    try_command(lab.command("load", &words), LIMIT).expect("ledgers can be written");
    let (one, two) = (lab.bookie(1), lab.bookie(2));
    beside(|runtime| {
        let _entered = runtime.enter();
        let cluster = Cluster::start(options(servers(&[lab.zookeeper()], None), &one.id()));
        let (sender, heard) = mpsc::channel();
        let (_status, statuses) = channel::channel(Some(AgentStatus::default()));
        let tell = move |what| drop(sender.send(what));
        let _watch = watch::start(&cluster, tell, statuses);
        let registration = |writable, read_only| {
            move |heard: &Heard| match heard {
                Heard::Registration(Ok(found)) => {
                    (found.writable, found.read_only) == (writable, read_only)
                }
                _ => false,
            }
        };
        hear(&heard, "the registration", registration(true, false));

        // The walk reads what the bookies' own client wrote.
        let found = runtime.block_on(cluster.find_largest_ensemble(1000));
        assert_eq!(found, Ok(()));
        let view = runtime.block_on(cluster.view()).expect("it is read");
        assert_eq!(cluster.problems(), [""; 0]);
        assert_eq!(view.largest_ensemble, Some(2));
        let ids: Vec<&str> = view
            .members
            .iter()
            .map(|member| member.id.as_str())
            .collect();
        assert_eq!(ids, [one.id(), two.id()]);
        assert!(
            view.members
                .iter()
                .all(|member| member.registration.writable)
        );
        let stopping = BTreeMap::new();
        let why = floor::may_go(&view, &stopping, &one.id(), None, false);
        let expected = "1 other bookies are writable and 3 must stay so";
        assert!(
            why.as_ref().is_err_and(|why| why.starts_with(expected)),
            "{why:?}"
        );
        assert_eq!(
            floor::may_go(&view, &stopping, &one.id(), Some(1), false),
            Ok(())
        );

        let hand = runtime.block_on(connect(lab.zookeeper(), None));
        let node = format!("/ledgers/available/{}", one.id());
        let (data, _) = runtime.block_on(hand.get(&node)).expect("it is registered");
        let services = endpoints(&data).expect("it is understood");
        let admin = services.iter().find(|service| service.id == "httpserver");
        assert_eq!(
            admin.map(|admin| admin.port),
            Some(one.admin_port()),
            "{services:?}"
        );

        // A change is heard of at once, not with the next look.
        assert_eq!(one.put_read_only(true).ok(), Some(200));
        hear(&heard, "read-only", registration(false, true));
        two.stop("TERM");
        let one_is_away = |heard: &Heard| match heard {
            Heard::Cluster(Ok(view)) => view
                .members
                .iter()
                .all(|member| !member.registration.writable),
            _ => false,
        };
        hear(&heard, "that no bookie is writable", one_is_away);
    });
}
