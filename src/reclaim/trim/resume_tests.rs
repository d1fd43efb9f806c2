//! Passes that are cut off, and where the next one goes on.

use std::sync::Arc;
use std::time::Duration;

use super::super::plan::HOUR;
use super::tests::{Agent, told};
use super::world::World;
use super::*;

/// Three topics, each of which is remembered by itself.
async fn cluster() -> (Arc<World>, Agent) {
    let world = World::start(1).await;
    for name in ["a", "b", "c"] {
        world.topic(name, 1, 0, &[]);
    }
    world.pass(75);
    let mut agent = Agent::of(&world);
    agent.options.slice = 1;
    (world, agent)
}

fn seen(pass: &TrimPass) -> String {
    let counts = &pass.counts;
    format!(
        "resumed {}: {} before, {} of {:?} topics, {} candidates, {} visited, {} ledgers\n{}",
        pass.resumed,
        counts.before,
        counts.topics,
        counts.all,
        counts.candidates,
        counts.visited,
        counts.ledgers,
        told(pass)
    )
}

fn is_due_in(agent: &Agent, world: &World, hours: Millis) -> bool {
    let pulsar = agent.pulsar();
    let now = world.clock.now().wall.0 + hours * HOUR;
    is_due(&agent.state(), &pulsar, &agent.options, 6 * HOUR, now).unwrap()
}

#[tokio::test]
async fn a_killed_pass_is_gone_on_with_behind_what_was_dealt_with() {
    let (world, agent) = cluster().await;
    assert!(is_due_in(&agent, &world, 0), "there was never one");
    lock(&world.inner).held = Some(("b/trim", true));
    agent.killed_pass().await;
    lock(&world.inner).held = None;
    assert!(is_due_in(&agent, &world, 0), "it was cut off");
    insta::assert_snapshot!(seen(&agent.try_pass(true).await.unwrap()), @"
    resumed true: 1 before, 3 of Some(3) topics, 1 candidates, 1 visited, 1 ledgers
    b: nothing: unloaded, after a pass that was cut off, 0 gained
    c: 1000 and 1000 later (older than retention): trimmed and unloaded, 1000 gained
    1 not: it is loaded, and its broker trims it
    ");
    // All were seen: the next one begins anew, an interval after the first did.
    assert!(!is_due_in(&agent, &world, 5));
    assert!(is_due_in(&agent, &world, 6));
    world.pass(75);
    insta::assert_snapshot!(seen(&agent.try_pass(true).await.unwrap()), @"
    resumed false: 0 before, 3 of Some(3) topics, 2 candidates, 2 visited, 2 ledgers
    a: 1000 (older than retention): trimmed and unloaded, 1000 gained
    c: 1000 (older than retention): trimmed and unloaded, 1000 gained
    1 not: it was visited not long ago
    ");
    assert!(world.loaded().is_empty());
}

#[tokio::test]
async fn who_leads_again_goes_on_and_visits_nobody_twice() {
    let (world, agent) = cluster().await;
    let session = Arc::downgrade(&agent.session);
    lock(&world.inner).on_trim = Some(Box::new(move |inner| {
        let is_second = inner.log.iter().any(|line| line.starts_with("POST b"));
        if is_second && let Some(session) = session.upgrade() {
            session.expire();
            session.reconnect();
        }
    }));
    insta::assert_snapshot!(seen(&agent.try_pass(true).await.unwrap()), @"
    resumed false: 0 before, 2 of Some(3) topics, 2 candidates, 2 visited, 2 ledgers
    a: 1000 and 1000 later (older than retention): trimmed and unloaded, 1000 gained
    b: 1000 and 1000 later (older than retention): trimmed and unloaded, 1000 gained
    stopped: it leads no more
    ");
    lock(&world.inner).on_trim = None;
    assert!(is_due_in(&agent, &world, 0), "it ended early");
    insta::assert_snapshot!(seen(&agent.try_pass(true).await.unwrap()), @"
    resumed true: 2 before, 3 of Some(3) topics, 1 candidates, 1 visited, 1 ledgers
    c: 1000 and 1000 later (older than retention): trimmed and unloaded, 1000 gained
    ");
    let trims = lock(&world.inner).log.clone();
    let trims = trims.iter().filter(|line| line.ends_with("/trim"));
    assert_eq!(
        trims.collect::<Vec<_>>(),
        ["POST a/trim", "POST b/trim", "POST c/trim"]
    );
}

#[tokio::test]
async fn a_position_is_of_one_cluster_and_part_and_grows_old() {
    let (world, mut agent) = cluster().await;
    lock(&world.inner).held = Some(("b/trim", false));
    agent.killed_pass().await;
    lock(&world.inner).held = None;
    // Another part, and a dry run, see everything.
    assert!(!agent.try_pass(false).await.unwrap().resumed);
    agent.options.namespaces = vec!["public/default".to_owned()];
    let part = agent.try_pass(true).await.unwrap();
    assert!(!part.resumed);
    assert_eq!(part.counts.topics, 3);
    agent.options.namespaces.clear();
    let day = Duration::from_millis(agent.options.resumable_for.unsigned_abs());
    world.clock.advance(day);
    assert_eq!(agent.try_pass(true).await.unwrap().counts.before, 1);
    // That pass was over all.
    assert!(!agent.try_pass(true).await.unwrap().resumed);
    lock(&world.inner).held = Some(("/unload", false));
    world.topic("d", 1, 0, &[]);
    world.pass(75);
    agent.killed_pass().await;
    lock(&world.inner).held = None;
    world.clock.advance(day + Duration::from_millis(1));
    assert!(!agent.try_pass(true).await.unwrap().resumed);
}

#[tokio::test]
async fn a_folder_that_went_or_came_meanwhile_loses_no_topic() {
    let (world, agent) = cluster().await;
    let of = agent.options.of(&agent.pulsar());
    let behind = |folder: &str, topic: Option<&str>| {
        let position = TrimPosition {
            began: 0,
            at: world.clock.now().wall.0,
            behind: Some(super::super::state::position::Behind {
                folder: folder.to_owned(),
                topic: topic.map(str::to_owned),
            }),
            topics: 1,
        };
        agent.state().put_trim_position(&of, &position).unwrap();
    };
    let mut seen = Vec::new();
    for (folder, topic) in [
        ("public/before/persistent", Some("z")),
        ("public/default/persistent", Some("a")),
        ("public/default/persistent", Some("aa")),
        ("public/default/persistent", None),
        ("public/later/persistent", Some("a")),
    ] {
        behind(folder, topic);
        let pass = agent.try_pass(true).await.unwrap();
        assert!(pass.resumed && pass.stopped.is_none());
        seen.push(pass.counts.topics - pass.counts.before);
    }
    assert_eq!(seen, [3, 2, 2, 0, 0]);
}

#[tokio::test]
async fn what_a_signal_leaves_loaded_is_unloaded_at_once() {
    let (world, agent) = cluster().await;
    lock(&world.inner).held = Some(("b/trim", true));
    agent.killed_pass().await;
    lock(&world.inner).held = None;
    assert_eq!(agent.loaded_by_us(), ["b"]);
    agent.unload().await;
    assert!(world.loaded().is_empty() && agent.loaded_by_us().is_empty());
    // It is no pass: the next one goes on as ever.
    assert!(is_due_in(&agent, &world, 0));
    let before = lock(&world.inner).log.len();
    agent.unload().await;
    assert_eq!(
        lock(&world.inner).log.len(),
        before,
        "nothing was to be done"
    );
}
