//! Scans that are killed wherever they are, and go on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::hooked::{Hooked, Then};
use super::*;

const OTHER: &str = "/managed-ledgers/public/default/persistent/other";

/// More than one batch of ledgers, in two folders, with owners of all kinds; after a complete scan some of all that leaks
/// has leaked.
async fn leaked() -> Stage {
    let stage = Stage::new().await;
    for id in 9_700..10_300 {
        stage.ledger_of(id, TOPIC).await;
    }
    for id in 1..=4 {
        stage.ledger_of(id, OTHER).await;
    }
    let all: Vec<i64> = (9_700..10_290).collect();
    stage.list(TOPIC, &all).await;
    stage.list(OTHER, &[1, 2]).await;
    let cursor = Numbers {
        first: Some(3),
        second: Some(3),
        third: Some(1),
    };
    stage
        .make(&format!("{OTHER}/s"), &cursor.encode_to_vec())
        .await;
    for topic in 0..20 {
        stage.list(&format!("{OTHER}{topic}"), &[]).await;
        stage.list(&format!("{OTHER}{topic}-x"), &[4]).await;
    }
    stage.scan().await;
    stage.list(TOPIC, &all[7..]).await;
    stage
        .store
        .delete(&format!("{OTHER}/s"), None)
        .await
        .unwrap();
    stage.store.delete(OTHER, None).await.unwrap();
    stage.pass(2);
    stage
}

/// A scan through a store that stands still at this call, and is dropped there. False if it came to its end before.
async fn killed(stage: &mut Stage, at: usize) -> bool {
    let clock = stage.clock.clone();
    let hooked = Hooked::new(&stage.store, move |number, _| {
        // So that every batch is stored.
        clock.advance(Duration::from_secs(1));
        if number == at { Then::Stall } else { Then::Go }
    });
    stage.through = Some(hooked.clone());
    let killed = tokio::select! {
        done = stage.scanned() => { done.unwrap(); false }
        () = hooked.stalled.notified() => true,
    };
    stage.through = None;
    killed
}

#[tokio::test]
async fn killed_anywhere_it_comes_to_the_same() {
    let mut whole = leaked().await;
    assert!(!killed(&mut whole, usize::MAX).await);
    let expected = whole.remembered();
    assert!(
        expected.contains("9700 r1") && expected.contains("3 r2"),
        "{expected}"
    );
    let mut at = 0;
    let mut resumed = 0;
    loop {
        let mut stage = leaked().await;
        let before = stage.remembered();
        if !killed(&mut stage, at).await {
            break;
        }
        assert_eq!(
            stage.remembered(),
            before,
            "killed at call {at} it was remembered"
        );
        // A second time, later.
        if killed(&mut stage, 3 + at / 2).await {
            resumed += usize::from(stage.scanned().await.unwrap().resumed);
        }
        assert_eq!(stage.remembered(), expected, "killed at call {at}");
        // All of the small steps, and some of the many equal ones.
        at += if (20..600).contains(&at) { 193 } else { 11 };
    }
    assert!(4 < resumed, "it went on {resumed} times");
}

#[tokio::test]
async fn what_was_read_is_not_read_again() {
    let mut stage = leaked().await;
    assert!(killed(&mut stage, 620).await);
    let hooked = Hooked::new(&stage.store, |_, _| Then::Go);
    stage.through = Some(hooked.clone());
    let scanned = stage.scanned().await.unwrap();
    let calls = hooked.calls.load(Ordering::SeqCst);
    assert!(scanned.resumed && calls < 200, "{calls} calls");
    let requests = usize::try_from(scanned.info.requests).unwrap();
    assert!(
        600 < requests && requests < 620 + calls,
        "{requests} in both"
    );
}

#[tokio::test]
async fn an_old_one_or_one_of_others_is_begun_anew() {
    let mut stage = leaked().await;
    assert!(killed(&mut stage, 620).await);
    stage.pass(7);
    assert!(!stage.scanned().await.unwrap().resumed);
    assert!(killed(&mut stage, 620).await);
    stage.pass(1);
    stage.options.snapshot_of = Some(Shows::at(stage.clock.now().wall.0));
    assert!(!stage.scanned().await.unwrap().resumed);
}

#[tokio::test]
async fn an_absence_is_no_longer_than_it_was() {
    let mut stage = leaked().await;
    // Read for hours, and judged at their end: seen absent only then.
    assert!(killed(&mut stage, 630).await);
    stage.pass(5);
    stage.scan().await;
    stage.pass(0);
    let told = stage.scan().await;
    assert!(
        told.contains("3 r2: its owner has to be absent in more scans"),
        "{told}"
    );
    stage.pass(1);
    let told = stage.scan().await;
    assert!(told.contains("3 r2: deletable"), "{told}");
}

#[tokio::test]
async fn it_is_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Stage::new().await;
    stage.state = State::open(dir.path()).unwrap();
    stage.ledger_of(1, TOPIC).await;
    stage.list(TOPIC, &[1]).await;
    stage.scan().await;
    stage.list(TOPIC, &[]).await;
    stage.list(TOPIC, &[2]).await;
    let at = 10;
    assert!(killed(&mut stage, at).await);
    stage.state = State::in_memory();
    stage.state = State::open(dir.path()).unwrap();
    assert!(stage.scanned().await.unwrap().resumed);
    assert_eq!(stage.told(), "1 r1: deletable");
    stage.state = State::in_memory();
    stage.state = State::open(dir.path()).unwrap();
    assert_eq!(stage.told(), "1 r1: deletable");
}
