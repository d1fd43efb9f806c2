//! Scans of two Pulsar clusters that are named in one way and then in another.

use super::*;

const ROOTS: [&str; 2] = ["/a", "/b"];

async fn two_clusters() -> Stage {
    let stage = Stage::new().await;
    for (root, id) in ROOTS.iter().zip([1, 2]) {
        stage
            .make(&format!("{root}/admin/policies/t/n"), b"{}")
            .await;
        stage.ledger_of(id, TOPIC).await;
        stage.list(&format!("{root}{TOPIC}"), &[id as i64]).await;
    }
    stage
}

async fn scan_of(stage: &Stage, roots: &[&str], all_clusters: bool) -> Result<String, String> {
    let store: Arc<dyn MetaStore> = stage.store.clone();
    let ledgers = Ledgers {
        store: Arc::clone(&store),
        root: "/ledgers".to_owned(),
    };
    let pulsars = roots.iter().map(|root| Pulsar {
        name: format!("zk://zk1:2181={root}"),
        store: Arc::clone(&store),
        root: (*root).to_owned(),
    });
    let pulsars: Vec<_> = pulsars.collect();
    let sources = Sources {
        ledgers: &ledgers,
        pulsars: &pulsars,
        entries: None,
    };
    let options = Options {
        all_clusters,
        ..stage.options.clone()
    };
    let progress = watch::Sender::new(Progress::default());
    stage.pass(2);
    match scan_with(&stage.state, sources, &options, &stage.clock, &progress).await {
        Ok(_) => Ok(stage.told()),
        Err(error) => Err(crate::report::text(&error)),
    }
}

/// Its topics would be gone, and all of its ledgers deletable two scans later.
#[tokio::test]
async fn one_that_is_not_named_any_more_is_missed() {
    let stage = two_clusters().await;
    assert_eq!(scan_of(&stage, &ROOTS, true).await.unwrap(), "");
    insta::assert_snapshot!(scan_of(&stage, &["/b"], true).await.unwrap_err(), @"zk://zk1:2181=/a was read by the last scan and is not named now, so that all of its ledgers would look as if nobody named them: name it too, or another --state-dir if it is no more");
    // Nothing follows for its owners where it is not said that all are named, and nothing later.
    for all_clusters in [false, true, true, true] {
        let told = scan_of(&stage, &["/b"], all_clusters).await.unwrap();
        assert!(told.starts_with("1 r3: "), "{told}");
    }
}

#[tokio::test]
async fn the_order_of_their_names_is_no_matter() {
    let stage = two_clusters().await;
    scan_of(&stage, &ROOTS, true).await.unwrap();
    // Named the other way round, nobody is gone, and what is let go is seen.
    assert_eq!(scan_of(&stage, &["/b", "/a"], true).await.unwrap(), "");
    let gone = stage.state.known_after(true, None, usize::MAX).unwrap();
    assert_eq!(gone, []);
    stage.list(&format!("/a{TOPIC}"), &[3]).await;
    let told = scan_of(&stage, &ROOTS, true).await.unwrap();
    insta::assert_snapshot!(told, @"1 r1: deletable");
}
