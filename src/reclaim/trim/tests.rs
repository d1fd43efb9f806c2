//! Passes over a small cluster, and what they leave after each way to end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::super::plan::HOUR;
use super::super::state::visits::Visit;
use super::world::{SIZE, World};
use super::*;
use crate::cluster::broker::BrokerOptions;
use crate::cluster::broker::stub::{Stub, said};
use crate::cluster::leader::campaign;
use crate::cluster::memory::MemorySession;
use crate::report;

/// For what should be reached within milliseconds.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

pub(super) struct Agent {
    world: Arc<World>,
    dir: tempfile::TempDir,
    pub(super) session: Arc<MemorySession>,
    pub(super) options: TrimOptions,
    pub(super) entries: Option<Box<dyn Entries>>,
}

impl Agent {
    pub(super) fn of(world: &Arc<World>) -> Agent {
        Agent {
            world: Arc::clone(world),
            dir: tempfile::tempdir().unwrap(),
            session: Arc::new(world.server.connect()),
            options: TrimOptions {
                min_gain: 1,
                interval: Duration::ZERO,
                patience: Duration::ZERO,
                concurrency: 1,
                ..TrimOptions::default()
            },
            entries: None,
        }
    }

    fn cluster(&self) -> TrimCluster<'_> {
        let store: Arc<dyn MetaStore> = self.session.clone();
        TrimCluster {
            ledgers: Ledgers {
                store: Arc::clone(&store),
                root: "/ledgers".to_owned(),
            },
            pulsar: self.pulsar(),
            bare: store,
            entries: self.entries.as_deref(),
        }
    }

    pub(super) fn pulsar(&self) -> Pulsar {
        Pulsar {
            name: "here".to_owned(),
            store: self.session.clone(),
            root: String::new(),
        }
    }

    fn brokers(&self) -> Brokers {
        let first = lock(&self.world.inner).brokers[0].url();
        let brokers = Brokers::new(BrokerOptions {
            urls: vec![first],
            cluster: None,
            token: None,
            authorities: None,
        });
        brokers.unwrap()
    }

    async fn leader(&self) -> Leader {
        let leads = watch::Sender::new(None);
        let store: Arc<dyn MetaStore> = self.session.clone();
        campaign(store, "/leader", "here", &leads).await.unwrap()
    }

    /// What a command does that a signal has ended.
    pub(super) async fn unload(&self) {
        let leader = self.leader().await;
        let (cluster, brokers) = (self.cluster(), self.brokers());
        let state = self.state();
        let unloaded = unload(
            &state,
            &cluster,
            &brokers,
            &leader,
            &self.world.clock,
            &self.options,
        );
        unloaded.await.unwrap();
        leader.resign().await;
    }

    pub(super) async fn try_pass(&self, execute: bool) -> Result<TrimPass, TrimError> {
        let (cluster, brokers) = (self.cluster(), self.brokers());
        let leader = match execute {
            true => Some(self.leader().await),
            false => None,
        };
        let progress = watch::Sender::new(TrimProgress::default());
        let pass = trim(
            &self.state(),
            &cluster,
            &brokers,
            leader.as_ref(),
            &self.world.clock,
            &self.options,
            &progress,
        )
        .await;
        if let Some(leader) = leader {
            leader.resign().await;
        }
        pass
    }

    pub(super) async fn pass(&self) -> String {
        told(&self.try_pass(true).await.unwrap())
    }

    /// A pass that is dropped when the broker holds an answer back.
    pub(super) async fn killed_pass(&self) {
        let reached = tokio::time::timeout(LIMIT, self.world.reached.notified());
        tokio::select! {
            pass = self.try_pass(true) => panic!("the pass was not held: {pass:?}"),
            reached = reached => reached.expect("the broker was not asked for it in time"),
        }
    }

    pub(super) fn state(&self) -> State {
        State::open(self.dir.path()).unwrap()
    }

    pub(super) fn loaded_by_us(&self) -> Vec<String> {
        let all = self.state().all_visits().unwrap();
        let name = |node: &String| node.rsplit_once('/').unwrap().1.to_owned();
        let ours = all.iter().filter(|(.., visit)| visit.loaded_by_us);
        ours.map(|(_, node, _)| name(node)).collect()
    }

    fn visit(&self, node: &str) -> Option<Visit> {
        let all = self.state().all_visits().unwrap();
        let found = all.into_iter().find(|(_, other, _)| other == node);
        found.map(|(.., visit)| visit)
    }
}

/// Without the addresses of brokers, which are others each time.
fn nameless(text: &str) -> String {
    let parts = text
        .split("http://")
        .map(|part| match part.split_once('/') {
            Some((address, rest)) if address.starts_with("127.0.0.1") => rest,
            _ => part,
        });
    parts.collect()
}

pub(super) fn told(pass: &TrimPass) -> String {
    let mut lines = Vec::new();
    for topic in &pass.results {
        let name = topic.topic.as_str().rsplit_once('/').unwrap().1;
        let found = topic.found.map_or("nothing".to_owned(), |gain| {
            let later = gain
                .later
                .map_or(String::new(), |later| format!(" and {later} later"));
            format!("{}{later} ({})", gain.bytes, gain.why.as_str())
        });
        let obstacle = topic.obstacle.as_deref();
        let obstacle = obstacle.map_or(String::new(), |why| format!(" [{}]", nameless(why)));
        let done = topic.done.as_str();
        lines.push(format!(
            "{name}: {found}: {done}, {} gained{obstacle}",
            topic.gained
        ));
    }
    for (why, count) in &pass.skipped {
        lines.push(format!("{count} not: {why}"));
    }
    let stopped = pass.stopped.as_deref();
    lines.extend(stopped.map(|why| format!("stopped: {}", nameless(why))));
    lines.join("\n")
}

#[tokio::test]
async fn two_visits_one_retention_apart_empty_topics_that_nobody_loads() {
    let world = World::start(2).await;
    world.topic("e1", 3, 0, &[("s", 3, 9)]);
    world.topic("e2", 3, 1, &[]);
    world.topic("e3", 3, 1, &[("s", 1, 3)]);
    world.topic("e4", 3, 0, &[]);
    lock(&world.inner).topics.get_mut("e4").unwrap().loaded = true;
    world.pass(75);
    let agent = Agent::of(&world);
    insta::assert_snapshot!(agent.pass().await, @"
    e1: 3000 and 1000 later (older than retention): trimmed and unloaded, 3000 gained
    e2: 3000 and 1000 later (older than retention): trimmed and unloaded, 3000 gained
    e3: 1000 (older than retention): trimmed and unloaded, 1000 gained
    1 not: it is loaded, and its broker trims it
    ");
    insta::assert_snapshot!(world.told(), @"
    e1: 4 empty
    e2: 8 empty
    e3: 10 11 12 empty
    e4*: 13 14 15 16
    ");
    insta::assert_snapshot!(lock(&world.inner).log.join("\n"), @"
    POST e1/trim
    GET e1/stats
    PUT e1/unload
    POST e2/trim
    GET e2/stats
    PUT e2/unload
    POST e3/trim
    GET e3/stats
    PUT e3/unload
    ");
    // The time of the last ledger began with the visit.
    world.pass(30);
    insta::assert_snapshot!(agent.pass().await, @"
    1 not: a subscription has not acknowledged it
    1 not: it is loaded, and its broker trims it
    2 not: nothing in it is beyond retention
    ");
    world.pass(45);
    insta::assert_snapshot!(agent.pass().await, @"
    e1: 1000 (older than retention): trimmed and unloaded, 1000 gained
    e2: 1000 (older than retention): trimmed and unloaded, 1000 gained
    1 not: a subscription has not acknowledged it
    1 not: it is loaded, and its broker trims it
    ");
    world.pass(75);
    insta::assert_snapshot!(agent.pass().await, @"
    1 not: a subscription has not acknowledged it
    1 not: it is loaded, and its broker trims it
    2 not: there is nothing in it
    ");
    insta::assert_snapshot!(world.told(), @"
    e1: empty
    e2: empty
    e3: 10 11 12 empty
    e4*: 13 14 15 16
    ");
    assert!(agent.loaded_by_us().is_empty());
    let visit = agent.visit("/managed-ledgers/public/default/persistent/e1");
    let visit = visit.unwrap();
    assert_eq!((visit.visits, visit.gained), (2, 4 * SIZE.unsigned_abs()));
}

#[tokio::test]
async fn messages_whose_time_is_over_are_expired_first() {
    let world = World::start(1).await;
    world.topic("t", 3, 0, &[("s", 1, 3)]);
    world.keep(1, -1, 60);
    world.pass(3 * 60);
    let agent = Agent::of(&world);
    insta::assert_snapshot!(agent.pass().await, @"t: 3000 and 1000 later (older than retention): trimmed and unloaded, 3000 gained");
    insta::assert_snapshot!(world.told(), @"t: 4 empty");
    insta::assert_snapshot!(lock(&world.inner).log.join("\n"), @"
    POST t/all_subscription/expireMessages/60
    POST t/trim
    GET t/stats
    PUT t/unload
    ");
}

#[tokio::test]
async fn a_dry_run_asks_only_what_loads_nothing() {
    let world = World::start(2).await;
    world.topic("a", 2, 1, &[]);
    world.topic("b", 2, 0, &[("s", 0, 1)]);
    world.pass(75);
    let agent = Agent::of(&world);
    let before = world.told();
    insta::assert_snapshot!(told(&agent.try_pass(false).await.unwrap()), @"
    a: 2000 and 1000 later (older than retention): would be visited, 0 gained
    1 not: a subscription has not acknowledged it
    ");
    assert_eq!(world.told(), before);
    assert!(lock(&world.inner).log.is_empty());
    assert_eq!(
        agent.visit("/managed-ledgers/public/default/persistent/a"),
        None
    );
    // The namespace lets it pass, and the topic's own policies do not.
    lock(&world.inner).policy = (600, -1, 0);
    insta::assert_snapshot!(told(&agent.try_pass(false).await.unwrap()), @"
    a: 2000 and 1000 later (older than retention): the topic's own policies keep it, 0 gained
    1 not: a subscription has not acknowledged it
    ");
}

#[tokio::test]
async fn only_what_was_asked_for() {
    let world = World::start(1).await;
    world.topic("a", 1, 0, &[]);
    world.topic("b", 1, 0, &[]);
    world.pass(75);
    let mut agent = Agent::of(&world);
    agent.options.namespaces = vec!["public/other".to_owned()];
    insta::assert_snapshot!(told(&agent.try_pass(false).await.unwrap()), @"");
    agent.options.namespaces = vec!["public/default".to_owned()];
    agent.options.topics = vec!["persistent://public/default/b".to_owned()];
    insta::assert_snapshot!(told(&agent.try_pass(false).await.unwrap()), @"
    b: 1000 and 1000 later (older than retention): would be visited, 0 gained
    1 not: it was not asked for
    ");
}

#[tokio::test]
async fn whoever_begins_to_use_a_topic_keeps_it() {
    let world = World::start(1).await;
    world.topic("t", 1, 0, &[]);
    world.pass(75);
    lock(&world.inner).on_trim = Some(Box::new(|inner| {
        inner.topics.get_mut("t").unwrap().producers = 1;
    }));
    let agent = Agent::of(&world);
    insta::assert_snapshot!(agent.pass().await, @"t: 1000 and 1000 later (older than retention): trimmed, and in use by now, 1000 gained");
    insta::assert_snapshot!(world.told(), @"t*: 2 empty");
    assert!(agent.loaded_by_us().is_empty());
}

#[tokio::test]
async fn what_is_loaded_is_asked_again_while_a_pass_goes_on() {
    let world = World::start(1).await;
    for name in ["a", "b", "c"] {
        world.topic(name, 1, 0, &[]);
    }
    world.pass(75);
    let clock = world.clock.clone();
    lock(&world.inner).on_trim = Some(Box::new(move |inner| {
        clock.advance(Duration::from_secs(61));
        inner.topics.get_mut("b").unwrap().loaded = true;
    }));
    let agent = Agent::of(&world);
    insta::assert_snapshot!(agent.pass().await, @"
    a: 1000 and 1000 later (older than retention): trimmed and unloaded, 1000 gained
    b: 1000 and 1000 later (older than retention): it was loaded meanwhile, 0 gained
    c: 1000 and 1000 later (older than retention): trimmed and unloaded, 1000 gained
    ");
    // Unknown is no reason to go on.
    world.topic("d", 1, 0, &[]);
    world.topic("e", 1, 0, &[]);
    lock(&world.inner).instead.clear();
    let clock = world.clock.clone();
    lock(&world.inner).on_trim = Some(Box::new(move |inner| {
        clock.advance(Duration::from_secs(61));
        inner.instead.insert("/metrics/", said(503, "busy"));
    }));
    insta::assert_snapshot!(agent.pass().await, @"
    a: 1000 (older than retention): trimmed and unloaded, 1000 gained
    c: 1000 (older than retention): the pass ended before its turn, 0 gained
    1 not: it is loaded, and its broker trims it
    stopped: it is not known any more which topics are loaded: metrics/ answered 503: busy
    ");
    assert_eq!(world.loaded().into_iter().collect::<Vec<_>>(), ["b"]);
}

/// A pass is killed while it waits for an answer, before or after the broker did what it was asked for.
#[tokio::test]
async fn after_any_end_the_next_pass_leaves_nothing_loaded() {
    let at = [
        "internal-info",
        "expireMessages/60",
        "trim",
        "stats",
        "unload",
    ];
    for (end, done) in at.into_iter().flat_map(|end| [(end, false), (end, true)]) {
        let world = World::start(2).await;
        world.keep(1, -1, 60);
        world.topic("t", 3, 1, &[("s", 1, 3)]);
        world.pass(3 * 60);
        let agent = Agent::of(&world);
        lock(&world.inner).held = Some((end, done));
        agent.killed_pass().await;
        let loaded: Vec<_> = world.loaded().into_iter().collect();
        let known = agent.loaded_by_us();
        let all_known = loaded.iter().all(|name| known.contains(name));
        assert!(
            all_known,
            "{end} {done}: {loaded:?} are loaded, and {known:?} known"
        );
        lock(&world.inner).held = None;
        agent.pass().await;
        let left = (world.loaded(), agent.loaded_by_us());
        assert_eq!(
            left,
            ([].into(), Vec::new()),
            "left loaded after {end} {done}"
        );
        // A visit that was cut off counts as one: the next comes a day later, and the second of the pair after that.
        for _ in 0..2 {
            world.pass(24 * 3600);
            agent.pass().await;
        }
        let told = (world.told(), world.loaded(), agent.loaded_by_us());
        let nothing = ("t: empty".to_owned(), [].into(), Vec::new());
        assert_eq!(told, nothing, "after {end} {done}");
    }
}

#[tokio::test]
async fn who_leads_no_more_begins_nothing_and_unloads_what_it_loaded() {
    let world = World::start(1).await;
    for name in ["a", "b", "c"] {
        world.topic(name, 1, 0, &[]);
    }
    world.pass(75);
    let agent = Agent::of(&world);
    let session = Arc::downgrade(&agent.session);
    lock(&world.inner).on_trim = Some(Box::new(move |_| {
        if let Some(session) = session.upgrade() {
            session.expire();
            session.reconnect();
        }
    }));
    insta::assert_snapshot!(agent.pass().await, @"
    a: 1000 and 1000 later (older than retention): trimmed and unloaded, 1000 gained
    b: 1000 and 1000 later (older than retention): the pass ended before its turn, 0 gained
    stopped: it leads no more
    ");
    insta::assert_snapshot!(lock(&world.inner).log.join("\n"), @"
    POST a/trim
    GET a/stats
    PUT a/unload
    ");
    assert!(world.loaded().is_empty() && agent.loaded_by_us().is_empty());
}

#[tokio::test]
async fn obstacles_are_told_and_what_stays_loaded_is_unloaded_later() {
    let world = World::start(1).await;
    world.topic("t", 1, 0, &[]);
    world.pass(75);
    let agent = Agent::of(&world);
    let instead = |end, answer| lock(&world.inner).instead.insert(end, answer);
    instead("/trim", said(403, r#"{"reason":"no"}"#));
    insta::assert_snapshot!(agent.pass().await, @"t: 1000 and 1000 later (older than retention): refused by its broker, 0 gained [admin/v2/persistent/public/default/t/trim does not allow this to the role of our token (403): trim and unload take a tenant's admin, and metrics may need one too]");
    assert!(agent.loaded_by_us().is_empty());
    lock(&world.inner).instead.clear();
    world.pass(3 * 24 * 3600);
    instead("/unload", said(500, "<html>"));
    insta::assert_snapshot!(agent.pass().await, @"t: 1000 and 1000 later (older than retention): visited, and not unloaded, 1000 gained [admin/v2/persistent/public/default/t/unload answered 500]");
    assert_eq!(agent.loaded_by_us(), ["t"]);
    lock(&world.inner).instead.clear();
    insta::assert_snapshot!(agent.pass().await, @"
    t: nothing: unloaded, after a pass that was cut off, 0 gained
    1 not: it is loaded, and its broker trims it
    ");
    assert!(world.loaded().is_empty() && agent.loaded_by_us().is_empty());
    instead("/metrics/", said(401, ""));
    let error = agent.try_pass(true).await.unwrap_err();
    let error = report::text(&error);
    assert!(
        error.starts_with("it is not known which topics are loaded, so that none is visited: http"),
        "{error}"
    );
}

#[tokio::test]
async fn a_topic_that_gives_nothing_back_is_left_alone_longer_and_longer() {
    let world = World::start(1).await;
    world.topic("t", 2, 0, &[("s", 0, 1)]);
    // Where its subscription stands is in a ledger.
    let cursor = [8, 99, 16, 1, 24, 1];
    let path = "/managed-ledgers/public/default/persistent/t/s";
    world.pass(75);
    let agent = Agent::of(&world);
    let mut visited = Vec::new();
    for hours in 0..100 {
        agent.session.set(path, &cursor, None).await.unwrap();
        let pass = agent.try_pass(true).await.unwrap();
        if !pass.results.is_empty() {
            visited.push(hours);
        }
        world
            .clock
            .advance(Duration::from_millis(HOUR.unsigned_abs()));
    }
    // The first one began the time of its last ledger.
    assert_eq!(visited, [0, 1, 49]);
}

#[tokio::test]
async fn broken_brokers_end_the_pass_before_anything_is_done() {
    let world = World::start(1).await;
    let stub = Stub::start(|_| Some(said(200, "<html>"))).await;
    lock(&world.inner).brokers.insert(0, stub);
    let error = Agent::of(&world).try_pass(true).await.unwrap_err();
    assert!(matches!(error, TrimError::Loaded(_)), "{error}");
}
