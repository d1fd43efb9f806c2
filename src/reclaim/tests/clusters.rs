//! Scans of two Pulsar clusters that are named in one way and then in another.

use super::*;
use crate::reclaim::scan::identity;

const ROOTS: [&str; 2] = ["/a", "/b"];

/// Each cluster has a topic of the same name, with a ledger of its own and one that it lets go.
async fn two_clusters() -> Stage {
    let stage = Stage::new().await;
    for (root, id) in ROOTS.iter().zip([1, 2]) {
        stage
            .make(&format!("{root}/admin/policies/t/n"), b"{}")
            .await;
        stage.ledger_of(id, TOPIC).await;
        stage.ledger_of(id + 2, TOPIC).await;
        let ids = [id as i64, id as i64 + 2];
        stage.list(&format!("{root}{TOPIC}"), &ids).await;
    }
    stage
}

/// What a scan names.
#[derive(Clone, Copy, Default)]
struct Named<'a> {
    roots: &'a [&'a str],
    host: &'a str,
    is_all: bool,
    gone: &'a [String],
}

impl<'a> Named<'a> {
    fn all(roots: &'a [&'a str]) -> Named<'a> {
        Named {
            roots,
            host: "zk1:2181",
            is_all: true,
            gone: &[],
        }
    }
}

async fn scan_of(stage: &Stage, named: Named<'_>) -> Result<String, String> {
    let store: Arc<dyn MetaStore> = stage.store.clone();
    let ledgers = Ledgers {
        store: Arc::clone(&store),
        root: "/ledgers".to_owned(),
    };
    let pulsars = named.roots.iter().map(|root| Pulsar {
        name: format!("zk://{}={root}", named.host),
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
        all_clusters: named.is_all,
        gone: named.gone.to_vec(),
        ..stage.options.clone()
    };
    let progress = watch::Sender::new(Progress::default());
    stage.pass(26);
    match scan_with(&stage.state, sources, &options, &stage.clock, &progress).await {
        Ok(_) => Ok(stage.told()),
        Err(error) => Err(crate::report::text(&error)),
    }
}

fn gone(stage: &Stage) -> usize {
    let gone = stage.state.known_after(true, None, usize::MAX);
    gone.unwrap().len()
}

/// Its topics would be gone, and all of its ledgers deletable two scans later.
#[tokio::test]
async fn one_that_is_not_named_any_more_is_missed() {
    let stage = two_clusters().await;
    scan_of(&stage, Named::all(&ROOTS)).await.unwrap();
    let only_b = Named::all(&["/b"]);
    let told = scan_of(&stage, only_b).await.unwrap_err();
    insta::assert_snapshot!(told, @"zk://zk1:2181=/a was read by an earlier scan and is not named now, so that all of its ledgers would look as if nobody named them: name it too, or say with --pulsar-gone that it is no more");
    // Nothing follows for its owners where it is not said that all are named, and it is missed as before.
    let look = Named {
        is_all: false,
        ..only_b
    };
    for _ in 0..3 {
        let told = scan_of(&stage, look).await.unwrap();
        assert!(!told.contains("deletable"), "{told}");
        assert!(
            scan_of(&stage, only_b)
                .await
                .unwrap_err()
                .contains("=/a was read")
        );
    }
    // Until it is said, and then nobody names them, in scans that have all there is.
    let gone = ["zk://zk1:2181,zk2:2181=/a".to_owned()];
    let said = Named {
        gone: &gone,
        ..only_b
    };
    scan_of(&stage, said).await.unwrap();
    assert_eq!(stage.state.clusters().unwrap().left_out, []);
    scan_of(&stage, only_b).await.unwrap();
}

/// Every order of what is named in three scans, said to be all or not; what is let go, or made and not yet named, in between. In no
/// moment anything that is needed may be deleted, nobody is gone, and in the end all that was let go is known to be.
#[tokio::test]
async fn every_order_of_names() {
    let named = [
        (&["/a"][..], true),
        (&["/a"], false),
        (&["/b"], true),
        (&["/b"], false),
        (&ROOTS, true),
    ];
    let named = named.map(|(roots, is_all)| Named {
        is_all,
        ..Named::all(roots)
    });
    let (mut orders, mut refused) = (0, 0);
    for first in &named {
        for second in &named {
            for third in &named {
                // Before each of them in turn.
                refused += order(&[*first, *second, *third], orders % 3 + 1).await;
                orders += 1;
            }
        }
    }
    assert_eq!(orders, 125);
    assert!(60 < refused, "{refused}");
}

/// One of them; how many scans were refused.
async fn order(scans: &[Named<'_>], let_go_before: usize) -> usize {
    let stage = two_clusters().await;
    scan_of(&stage, Named::all(&ROOTS)).await.unwrap();
    let words = || {
        let words = scans
            .iter()
            .map(|named| format!("{:?} {}", named.roots, named.is_all));
        words.collect::<Vec<_>>().join(", ")
    };
    let mut refused = 0;
    for (number, named) in (1..).zip(scans) {
        if number == let_go_before {
            for (root, id) in ROOTS.iter().zip([1, 2]) {
                let topic = format!("{root}{TOPIC}");
                let list = List {
                    ledgers: vec![Entry { id: Some(id + 2) }],
                };
                let data = list.encode_to_vec();
                stage.store.set(&topic, &data, None).await.unwrap();
            }
        }
        match scan_of(&stage, *named).await {
            Ok(told) => {
                let is_open = |line: &&str| line.contains("deletable") && !line.contains("r1");
                assert_eq!(told.lines().find(is_open), None, "{}", words());
            }
            Err(why) => {
                assert!(named.is_all && why.contains("was read by"), "{why}");
                refused += 1;
            }
        }
        assert_eq!(gone(&stage), 0, "{}", words());
    }
    // Whatever was looked at, that was seen before and is not now.
    let told = scan_of(&stage, Named::all(&ROOTS)).await.unwrap();
    assert_eq!(told, "1 r1: deletable\n2 r1: deletable", "{}", words());
    refused
}

/// A ledger of a broker that has not named it yet has been looked for only where somebody looked.
#[tokio::test]
async fn absence_counts_over_scans_that_read_as_much() {
    let stage = two_clusters().await;
    stage.pass(24 * 8);
    stage.ledger_of(9, TOPIC).await;
    stage.pass(24 * 8);
    let stage = &stage;
    let scans = |named| async move {
        let told = scan_of(stage, named).await.unwrap();
        let mut lines = told.lines();
        lines
            .find(|line| line.starts_with("9 "))
            .unwrap()
            .to_owned()
    };
    for _ in 0..5 {
        scans(Named::all(&["/a"])).await;
    }
    assert_eq!(scans(Named::all(&["/a"])).await, "9 r3: deletable");
    let waits = "9 r3: it takes more scans over a longer time";
    for expected in [waits, waits, "9 r3: deletable"] {
        assert_eq!(scans(Named::all(&ROOTS)).await, expected);
    }
    // A look at a part of them counts for nothing.
    let look = Named {
        is_all: false,
        ..Named::all(&["/a"])
    };
    scans(look).await;
    for expected in [waits, waits, "9 r3: deletable"] {
        assert_eq!(scans(Named::all(&ROOTS)).await, expected);
    }
}

/// The topic is gone in scans with a look away between them: absent since when, nobody knows.
#[tokio::test]
async fn who_was_not_looked_for_is_not_absent() {
    let stage = two_clusters().await;
    scan_of(&stage, Named::all(&ROOTS)).await.unwrap();
    stage
        .store
        .delete(&format!("/b{TOPIC}"), None)
        .await
        .unwrap();
    let both = || scan_of(&stage, Named::all(&ROOTS));
    let waits = "2 r2: its owner has to be absent in more scans, further apart\n4 r2: its owner has to be absent in more scans, further apart";
    assert_eq!(both().await.unwrap(), waits);
    let look = Named {
        is_all: false,
        ..Named::all(&["/a"])
    };
    let told = scan_of(&stage, look).await.unwrap();
    assert!(
        !told.contains("r2") && !told.contains("deletable"),
        "{told}"
    );
    assert_eq!((gone(&stage), both().await.unwrap().as_str()), (0, waits));
    let deletable = "2 r2: deletable\n4 r2: deletable";
    assert_eq!(both().await.unwrap(), deletable);
}

#[tokio::test]
async fn the_order_of_their_names_is_no_matter() {
    let stage = two_clusters().await;
    scan_of(&stage, Named::all(&ROOTS)).await.unwrap();
    // Named the other way round, and by another host's name, nobody is gone, and what is let go is seen.
    let other = Named {
        host: "127.0.0.1:2181",
        ..Named::all(&["/b", "/a"])
    };
    // It may have moved, and the old place be named.
    let told = scan_of(&stage, other).await.unwrap_err();
    insta::assert_snapshot!(told, @"zk://127.0.0.1:2181=/b holds what zk://zk1:2181=/b held, and no broker is registered there: it may be a copy that was left behind, so name one of the old servers too, or scan while a broker runs");
    for root in ROOTS {
        stage
            .make(&format!("{root}/loadbalance/brokers/b:1"), b"")
            .await;
    }
    assert_eq!(scan_of(&stage, other).await.unwrap(), "");
    assert_eq!(gone(&stage), 0);
    stage.list(&format!("/a{TOPIC}"), &[3]).await;
    let told = scan_of(&stage, Named::all(&ROOTS)).await.unwrap();
    insta::assert_snapshot!(told, @"1 r1: deletable");
}

/// A ZooKeeper that was made anew under its old name.
#[tokio::test]
async fn another_cluster_by_the_same_name_is_another() {
    let mut stage = two_clusters().await;
    scan_of(&stage, Named::all(&ROOTS)).await.unwrap();
    let memory = std::mem::replace(&mut stage, two_clusters().await);
    stage.state = memory.state;
    stage.make("/unlike", b"").await;
    let old = format!("/b{}", "/managed-ledgers");
    for path in [format!("/b{TOPIC}"), old.clone()] {
        take(&stage, &path).await;
    }
    stage.list(&format!("/b{TOPIC}"), &[2, 4]).await;
    let told = scan_of(&stage, Named::all(&ROOTS)).await.unwrap_err();
    insta::assert_snapshot!(told, @"what is at zk://zk1:2181=/b was made anew since an earlier scan read it, so that what is remembered is of another Pulsar cluster: say with --pulsar-gone that it is no more");
    let gone = ["zk://zk1:2181=/b".to_owned()];
    let said = Named {
        gone: &gone,
        ..Named::all(&ROOTS)
    };
    assert_eq!(scan_of(&stage, said).await.unwrap(), "");
    assert_eq!(scan_of(&stage, Named::all(&ROOTS)).await.unwrap(), "");
}

/// With everything below it.
async fn take(stage: &Stage, path: &str) {
    let names = stage.store.children(path).await.unwrap();
    for name in names {
        Box::pin(take(stage, &format!("{path}/{name}"))).await;
    }
    stage.store.delete(path, None).await.unwrap();
}

#[tokio::test]
async fn one_cluster_by_two_names_is_refused() {
    let stage = two_clusters().await;
    let told = scan_of(&stage, Named::all(&["/a", "/a"]))
        .await
        .unwrap_err();
    insta::assert_snapshot!(told, @"zk://zk1:2181=/a and zk://zk1:2181=/a are the same Pulsar cluster: name it once");
    let nobody = Pulsar {
        name: String::new(),
        store: stage.store.clone(),
        root: "/c".to_owned(),
    };
    assert_eq!(identity(&nobody).await, Ok(None));
}
