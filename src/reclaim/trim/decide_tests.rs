//! What decides about a visit beside the metadata: policies of the topic, cursors that stand in ledgers, and how fast the
//! cluster answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::super::inside::{Entries, InsideError, Told};
use super::super::plan::LedgerId;
use super::tests::{Agent, told};
use super::world::World;
use super::*;
use crate::cluster::bookie::Held;
use crate::cluster::broker::stub::said;
use crate::cluster::ledger::LedgerMetadata;

/// The end of a cursor's ledger, in a cluster that has only one; none is out of reach.
#[derive(Default)]
struct Cursor {
    last: Option<Vec<Vec<u8>>>,
    asked: Arc<AtomicUsize>,
}

impl Entries for Cursor {
    fn last_entry<'a>(&'a self, ledger: LedgerId, _: &'a LedgerMetadata) -> Told<'a, Option<u64>> {
        let why = "no bookie answers".to_owned();
        let count = self.last.as_ref().map(Vec::len);
        let count = count.ok_or(InsideError::End { ledger, why });
        Box::pin(async move { Ok((count? as u64).checked_sub(1)) })
    }
    fn read<'a>(
        &'a self,
        _: LedgerId,
        _: &'a LedgerMetadata,
        entry: u64,
    ) -> Told<'a, Option<Vec<u8>>> {
        let all = self.last.as_ref().unwrap();
        let entry = all.get(usize::try_from(entry).unwrap()).cloned();
        Box::pin(async move { Ok(entry) })
    }
    fn last_add_confirmed<'a>(&'a self, _: LedgerId, _: &'a LedgerMetadata) -> Told<'a, i64> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(-1) })
    }
    fn entries_held<'a>(&'a self, _: &'a str, _: LedgerId) -> Told<'a, Held> {
        unreachable!("nobody asks for it")
    }
}

/// An entry of a cursor's ledger, with a position.
fn position(ledger: u8, entry: u8) -> Vec<u8> {
    vec![8, ledger, 16, entry]
}

/// A cursor that stands in ledger 99.
const IN_LEDGER: [u8; 6] = [8, 99, 16, 1, 24, 1];

#[tokio::test]
async fn a_cursor_stands_where_the_end_of_its_ledger_says() {
    let world = World::start(1).await;
    world.topic("t", 3, 0, &[("s", 0, 1)]);
    world.ledger(99, 1);
    world.pass(75);
    let mut agent = Agent::of(&world);
    let node = "/managed-ledgers/public/default/persistent/t/s";
    agent.session.set(node, &IN_LEDGER, None).await.unwrap();
    let mut lines = Vec::new();
    for (what, last) in [
        ("no answer", None),
        ("in the first ledger", Some(vec![position(1, 3)])),
        ("behind the third", Some(vec![position(3, 9)])),
        ("unsure", Some(vec![position(3, 9), position(1, 3)])),
        ("nothing in it", Some(Vec::new())),
        ("damaged", Some(vec![vec![0xff]])),
    ] {
        agent.entries = Some(Box::new(Cursor {
            last,
            ..Cursor::default()
        }));
        lines.push(format!(
            "{what}: {}",
            told(&agent.try_pass(false).await.unwrap())
        ));
    }
    agent.entries = None;
    lines.push(format!(
        "nobody to ask: {}",
        told(&agent.try_pass(false).await.unwrap())
    ));
    insta::assert_snapshot!(lines.join("\n"), @"
    no answer: t: 3000 and 1000 later (older than retention, if no subscription needs it): would be visited, 0 gained
    in the first ledger: t: 3000 and 1000 later (older than retention, if no subscription needs it): a subscription has not acknowledged it, 0 gained
    behind the third: t: 3000 (older than retention): would be visited, 0 gained
    unsure: t: 3000 and 1000 later (older than retention, if no subscription needs it): a subscription has not acknowledged it, 0 gained
    nothing in it: t: 3000 and 1000 later (older than retention, if no subscription needs it): would be visited, 0 gained
    damaged: t: 3000 and 1000 later (older than retention, if no subscription needs it): would be visited, 0 gained
    nobody to ask: t: 3000 and 1000 later (older than retention, if no subscription needs it): would be visited, 0 gained
    ");
}

#[tokio::test]
async fn bookies_that_say_nothing_are_not_asked_for_ever() {
    let world = World::start(1).await;
    world.ledger(99, 1);
    let mut agent = Agent::of(&world);
    for number in 0..20 {
        let name = format!("t{number}");
        world.topic(&name, 1, 0, &[("s", 0, 1)]);
        let node = format!("/managed-ledgers/public/default/persistent/{name}/s");
        agent.session.set(&node, &IN_LEDGER, None).await.unwrap();
    }
    world.pass(75);
    let asked = Arc::new(AtomicUsize::new(0));
    agent.entries = Some(Box::new(Cursor {
        last: None,
        asked: Arc::clone(&asked),
    }));
    assert_eq!(agent.try_pass(false).await.unwrap().counts.done, 20);
    assert_eq!(asked.load(Ordering::Relaxed), 8);
}

/// What a broker answers about the policies of a topic, and what is done then.
#[tokio::test]
async fn the_topics_own_policies_decide_and_the_namespace_where_no_broker_tells() {
    let world = World::start(1).await;
    // Its first ledger is needed, unless its messages are expired.
    world.topic("t", 3, 0, &[("s", 0, 1)]);
    world.keep(1, -1, 60);
    world.pass(3 * 60);
    let agent = Agent::of(&world);
    let html = || "<html>HTTP ERROR</html>";
    let mut lines = Vec::new();
    let mut ask = async |what: &str, retention: Option<String>, ttl: Option<String>| {
        let mut instead = std::collections::BTreeMap::new();
        instead.extend(retention.map(|answer| ("t/retention?applied=true", answer)));
        instead.extend(ttl.map(|answer| ("t/messageTTL?applied=true", answer)));
        lock(&world.inner).instead = instead;
        lines.push(format!(
            "{what}: {}",
            told(&agent.try_pass(false).await.unwrap())
        ));
    };
    ask("told", None, None).await;
    ask("no time to live", None, Some(said(204, ""))).await;
    ask("a longer one", None, Some(said(200, "86400"))).await;
    // Who does not know it gives no order to expire.
    ask("405", None, Some(said(405, r#"{"reason":"disabled"}"#))).await;
    ask("404", Some(said(404, html())), None).await;
    ask("a page", Some(said(200, html())), Some(said(200, html()))).await;
    ask("500", Some(said(500, html())), None).await;
    // What the namespace does not say is not known.
    let path = "/admin/policies/public/default";
    let data = br#"{"message_ttl_in_seconds":60}"#;
    agent.session.set(path, data, None).await.unwrap();
    ask("not said", Some(said(405, "")), None).await;
    ask("not said and told", None, None).await;
    insta::assert_snapshot!(lines.join("\n"), @"
    told: t: 3000 and 1000 later (older than retention and the time of life of its messages): would be visited, 0 gained
    no time to live: t: 3000 and 1000 later (older than retention and the time of life of its messages): a subscription has not acknowledged it, 0 gained
    a longer one: t: 3000 and 1000 later (older than retention and the time of life of its messages): a subscription has not acknowledged it, 0 gained
    405: t: 3000 and 1000 later (older than retention and the time of life of its messages): a subscription has not acknowledged it, 0 gained
    404: t: 3000 and 1000 later (older than retention and the time of life of its messages): would be visited, 0 gained
    a page: t: 3000 and 1000 later (older than retention and the time of life of its messages): a subscription has not acknowledged it, 0 gained
    500: t: 3000 and 1000 later (older than retention and the time of life of its messages): what applies to it cannot be read, 0 gained [admin/v2/persistent/public/default/t/retention?applied=true answered 500]
    not said: t: 4000 (older than retention and the time of life of its messages): its broker does not tell what it keeps of the topic, and its namespace does not say it, 0 gained
    not said and told: t: 3000 and 1000 later (older than retention and the time of life of its messages): would be visited, 0 gained
    ");
    assert!(lock(&world.inner).log.is_empty());
}

#[tokio::test]
async fn a_pass_that_is_slowed_says_so() {
    let world = World::start(1).await;
    for number in 0..14 {
        world.topic(&format!("t{number:02}"), 1, 0, &[]);
    }
    world.pass(75);
    lock(&world.inner).on_trim = Some(Box::new(|inner| {
        let trims = inner.log.iter().filter(|line| line.ends_with("/trim"));
        if 5 < trims.count() {
            inner.slow = Duration::from_millis(400);
        }
    }));
    let agent = Agent::of(&world);
    let pass = agent.try_pass(true).await.unwrap();
    assert_eq!(pass.counts.visited, 14);
    insta::assert_snapshot!(pass.slowed.unwrap(), @"brokers answer in 400 ms instead of 0 ms: 32 times slower; 7 topics had to wait longer");
    let told = pass.counts.slowed.expect("the progress tells it too");
    assert!(told.starts_with("brokers answer in 400 ms"), "{told}");
}
