//! Who can take what is moved, as lists, agents, racks and the bookies themselves say.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::clock::Clock;
use crate::cluster::bookie::fake::Fake;
use crate::cluster::bookie::{Bookies, Limits};
use crate::cluster::memory::Memory;
use crate::cluster::store::{Kind, create_with_parents};
use crate::cluster::{Cluster, ClusterOptions, Servers};
use crate::drain::plan::place::targets;
use crate::drain::worker::targets::{Around, AroundError};

#[tokio::test]
async fn what_is_seen_of_the_bookies() {
    let clock = Clock::manual();
    let store = Arc::new(Memory::new(clock.clone()).connect());
    let mut bookies = Vec::new();
    for _ in 0..4 {
        bookies.push(Fake::start().await);
    }
    let id = |at: usize| bookies[at].id();
    bookies[1].has_space(1000, 300);
    // It does not say how much it has.
    bookies[2].fail(404);
    let agent = r#"{"overWarn":true,"full":false,"enforces":true,"at":1}"#;
    let racks = format!(r#"{{"group":{{"{}":{{"rack":"/r1"}}}}}}"#, id(1));
    let nodes = [
        ("/ledgers/INSTANCEID".to_owned(), "an-id"),
        ("/bookies".to_owned(), &racks),
        (format!("/ledgers/available/{}", id(0)), ""),
        (format!("/ledgers/available/{}", id(1)), ""),
        (format!("/ledgers/available/{}", id(2)), ""),
        (format!("/ledgers/available/readonly/{}", id(3)), ""),
        (format!("/dirkeeper/an-id/agents/{}", id(1)), agent),
    ];
    for (path, data) in nodes {
        create_with_parents(&*store, &path, data.as_bytes(), Kind::Persistent)
            .await
            .unwrap();
    }
    let options = ClusterOptions {
        zookeeper: Servers::default(),
        ledgers_root: "/ledgers".to_owned(),
        root: "/dirkeeper".to_owned(),
        bookie: String::new(),
        host: "here".to_owned(),
        instance: None,
        clock: clock.clone(),
    };
    let cluster = Cluster::on(store.clone(), options);
    let client = Bookies::new(store.clone(), "/ledgers", clock, Limits::default());
    let around = Around {
        store: &*store,
        ledgers_root: "/ledgers",
        cluster: &cluster,
        bookies: &client,
    };
    let (racks, seen) = around.look().await.unwrap();
    let drained = BTreeSet::from([id(0).to_owned()]);
    let all = targets(&racks, &seen, &drained);
    let of = |at: usize| all.iter().find(|one| one.id == id(at));
    assert!(!of(0).unwrap().is_writable, "it is to be emptied");
    let one = of(1).unwrap();
    assert_eq!((one.free, one.total), (300, 1000));
    assert_eq!(
        (one.rack.as_deref(), one.group.as_deref()),
        (Some("/r1"), Some("group"))
    );
    assert!(one.is_writable && one.warn);
    assert_eq!(of(2).unwrap().total, 0);
    assert_eq!(of(3), None, "it is read-only");
    // Without the racks nobody is a target.
    let path = "/bookies";
    crate::cluster::store::MetaStore::set(&*store, path, b"[]", None)
        .await
        .unwrap();
    assert!(matches!(around.look().await, Err(AroundError::Map { .. })));
}
