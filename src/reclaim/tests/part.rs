//! Scans of a part: they judge and remember that part, and leave the rest as it was.

use super::*;
use crate::reclaim::scan::Part;

const OTHER: &str = "/managed-ledgers/tenant/other/persistent/o";

async fn two_namespaces() -> Stage {
    let stage = Stage::new().await;
    for id in 1..=3 {
        stage.ledger_of(id, TOPIC).await;
    }
    for id in 11..=13 {
        stage.ledger_of(id, OTHER).await;
    }
    stage.list(TOPIC, &[1, 2, 3]).await;
    stage.list(OTHER, &[11, 12, 13]).await;
    stage.scan().await;
    stage
}

fn of(namespace: &str) -> Option<Part> {
    Some(Part::new(vec![namespace.to_owned()], Vec::new()))
}

#[tokio::test]
async fn only_the_part_is_judged_and_nothing_of_the_rest_forgotten() {
    let mut stage = two_namespaces().await;
    stage.list(TOPIC, &[3]).await;
    stage.list(OTHER, &[13]).await;
    stage.options.part = of("public/default");
    insta::assert_snapshot!(stage.scan().await, @"
    1 r1: deletable
    2 r1: deletable
    ");
    let mut ids = Vec::new();
    stage
        .state
        .for_each_judged(|stored| ids.push(stored.id))
        .unwrap();
    assert_eq!(ids, [1, 2, 3]);
    // What the other namespace let go is still seen.
    stage.options.part = None;
    insta::assert_snapshot!(stage.scan().await, @"
    1 r1: deletable
    2 r1: deletable
    11 r1: deletable
    12 r1: deletable
    ");
    // And is not forgotten by a scan of the first one.
    stage.options.part = of("public/default");
    stage.scan().await;
    stage.options.part = None;
    assert!(stage.scan().await.contains("11 r1: deletable"));
}

#[tokio::test]
async fn whoever_names_a_ledger_may_be_outside() {
    let mut stage = two_namespaces().await;
    // A shadow of the topic, in the other namespace.
    stage.list(OTHER, &[1, 11, 12, 13]).await;
    stage.list(TOPIC, &[3]).await;
    stage.options.part = of("public/default");
    insta::assert_snapshot!(stage.scan().await, @"2 r1: deletable");
    // The shadow lets it go: that is seen by a scan of all only, and not lost by one of the shadow's part.
    stage.options.part = None;
    stage.scan().await;
    stage.list(OTHER, &[11, 12, 13]).await;
    stage.options.part = of("tenant/other");
    insta::assert_snapshot!(stage.scan().await, @"");
    stage.options.part = None;
    insta::assert_snapshot!(stage.scan().await, @"
    1 r1: deletable
    2 r1: deletable
    ");
}

#[tokio::test]
async fn a_part_alone_gathers_evidence_of_its_own() {
    let mut stage = Stage::new().await;
    stage.ledger_of(1, TOPIC).await;
    stage.ledger_of(2, TOPIC).await;
    stage.list(TOPIC, &[1, 2]).await;
    stage.options.part = of("public/default");
    assert_eq!(stage.scan().await, "");
    stage.list(TOPIC, &[2]).await;
    assert_eq!(stage.scan().await, "1 r1: deletable");
    assert_eq!(stage.scan().await, "1 r1: deletable");
}
