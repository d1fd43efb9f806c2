//! What every metadata store does, as tests that run against the one in memory and, in the laboratory,
//! against a real ZooKeeper. It is compiled into both test programs, so it names `store` only.

use std::time::Duration;

use super::store::{Changed, Kind, Link, MetaStore, Op, StoreError, children_if_any};
use super::store::{create_with_parents, get_all};

/// A real server on a busy machine answers within this, or does not.
const SOON: Duration = Duration::from_secs(20);

/// A name of its own for each run, so that a server can be used again.
const TOP: &str = "/contract";

async fn soon(changed: Changed, what: &str) {
    let ended = tokio::time::timeout(SOON, changed).await;
    assert!(ended.is_ok(), "{what} was not heard of within {SOON:?}");
}

/// Nodes are made, read, changed and deleted, each with its version.
pub(crate) async fn nodes(store: &dyn MetaStore) {
    let top = format!("{TOP}/nodes");
    let path = format!("{top}/a");
    let made = create_with_parents(store, &path, b"one", Kind::Persistent)
        .await
        .unwrap();
    assert_eq!((made.version, made.owner, made.children), (0, None, 0));
    let again = store.create(&path, b"", Kind::Persistent).await;
    assert_eq!(again, Err(StoreError::NodeExists));
    let orphan = format!("{top}/none/b");
    assert_eq!(
        store.create(&orphan, b"", Kind::Persistent).await,
        Err(StoreError::NoNode)
    );
    assert_eq!(store.get(&orphan).await, Err(StoreError::NoNode));
    assert_eq!(store.stat(&orphan).await, Ok(None));
    assert_eq!(store.children(&orphan).await, Err(StoreError::NoNode));
    assert_eq!(children_if_any(store, &orphan).await, Ok(Vec::new()));

    assert_eq!(
        store.set(&path, b"x", Some(7)).await,
        Err(StoreError::BadVersion)
    );
    assert_eq!(store.set(&path, b"two", Some(0)).await.unwrap().version, 1);
    assert_eq!(store.set(&path, b"", None).await.unwrap().version, 2);
    let (data, stat) = store.get(&path).await.unwrap();
    assert_eq!((data.as_slice(), stat.version), (&b""[..], 2));
    assert_eq!(stat.created, made.created);

    // A name may hold what a bookie's id may.
    let odd = format!("{top}/[::1]:3181 ä%20.x");
    store.create(&odd, b"", Kind::Persistent).await.unwrap();
    let mut names = store.children(&top).await.unwrap();
    names.sort();
    assert_eq!(names, ["[::1]:3181 ä%20.x", "a"]);
    assert_eq!(store.stat(&top).await.unwrap().unwrap().children, 2);
    assert_eq!(store.delete(&top, None).await, Err(StoreError::NotEmpty));
    assert_eq!(
        store.delete(&path, Some(1)).await,
        Err(StoreError::BadVersion)
    );
    assert_eq!(store.delete(&path, Some(2)).await, Ok(()));
    assert_eq!(store.delete(&path, None).await, Err(StoreError::NoNode));
    let new = store.create(&path, b"", Kind::Persistent).await.unwrap();
    assert_eq!(new.version, 0);
    assert!(made.created < new.created, "another node of the same name");
}

/// The store's clock shows when a node's data was written last, whoever wrote it: the age of one node can be told
/// by a newer one. `pass` lets some time pass.
pub(crate) async fn ages(store: &dyn MetaStore, other: &dyn MetaStore, pass: impl AsyncFn()) {
    let top = format!("{TOP}/ages");
    let path = format!("{top}/a");
    let made = create_with_parents(store, &path, b"", Kind::Persistent)
        .await
        .unwrap();
    pass().await;
    let ephemeral = format!("{top}/e");
    let newer = other
        .create(&ephemeral, b"", Kind::Ephemeral)
        .await
        .unwrap();
    assert!(made.modified < newer.modified, "{made:?} {newer:?}");
    pass().await;
    let set = other.set(&path, b"x", None).await.unwrap();
    assert!(newer.modified < set.modified, "{newer:?} {set:?}");
    assert_eq!(store.stat(&path).await, Ok(Some(set)));
}

/// A transaction takes effect whole or not at all, and says which step it failed on.
pub(crate) async fn transactions(store: &dyn MetaStore) {
    let top = format!("{TOP}/multi");
    let guard = format!("{top}/guard");
    create_with_parents(store, &guard, b"", Kind::Persistent)
        .await
        .unwrap();
    let at = |name: &str| format!("{top}/{name}");
    let create = |name: &str| Op::Create {
        path: at(name),
        data: name.as_bytes().to_vec(),
        kind: Kind::Persistent,
    };
    let check = |version| Op::Check {
        path: guard.clone(),
        version,
    };
    let failed = store.multi(&[create("a"), check(1), create("b")]).await;
    let step = |at, source| {
        Err(StoreError::Step {
            at,
            source: Box::new(source),
        })
    };
    assert_eq!(failed, step(1, StoreError::BadVersion));
    assert_eq!(store.children(&top).await.unwrap(), ["guard"]);
    assert_eq!(store.multi(&[check(0), create("a")]).await, Ok(()));
    let set = Op::Set {
        path: at("a"),
        data: b"new".to_vec(),
        version: Some(0),
    };
    let delete = Op::Delete {
        path: guard.clone(),
        version: Some(0),
    };
    assert_eq!(store.multi(&[set, delete]).await, Ok(()));
    assert_eq!(store.get(&at("a")).await.unwrap().0, b"new");
    assert_eq!(store.stat(&guard).await, Ok(None));
    assert_eq!(store.multi(&[check(0)]).await, step(0, StoreError::NoNode));
}

/// A watch ends with the next change, whoever made it.
pub(crate) async fn watches(store: &dyn MetaStore, other: &dyn MetaStore) {
    let top = format!("{TOP}/watch");
    let path = format!("{top}/a");
    create_with_parents(store, &top, b"", Kind::Persistent)
        .await
        .unwrap();
    let (stat, changed) = store.watch(&path).await.unwrap();
    assert_eq!(stat, None);
    let (names, came) = store.watch_children(&top).await.unwrap();
    assert!(names.is_empty());
    other.create(&path, b"", Kind::Persistent).await.unwrap();
    soon(changed, "a node that is made").await;
    soon(came, "a child that comes").await;

    let (stat, changed) = store.watch(&path).await.unwrap();
    assert_eq!(stat.map(|stat| stat.version), Some(0));
    other.set(&path, b"x", None).await.unwrap();
    soon(changed, "other data").await;

    let (_, changed) = store.watch(&path).await.unwrap();
    let (names, went) = store.watch_children(&top).await.unwrap();
    assert_eq!(names, ["a"]);
    other.delete(&path, None).await.unwrap();
    soon(changed, "a node that is deleted").await;
    soon(went, "a child that goes").await;
    assert!(store.watch_children(&path).await.is_err());
}

/// A list of 10,000 names, and nodes that go between the list and the reading of them.
pub(crate) async fn many_children(store: &dyn MetaStore) {
    let top = format!("{TOP}/many");
    create_with_parents(store, &top, b"", Kind::Persistent)
        .await
        .unwrap();
    for thousand in 0..10 {
        let ops: Vec<Op> = (0..1000)
            .map(|n| Op::Create {
                path: format!("{top}/bookie-{thousand}-{n}.example.org:3181"),
                data: b"x".to_vec(),
                kind: Kind::Persistent,
            })
            .collect();
        store.multi(&ops).await.unwrap();
    }
    let names = store.children(&top).await.unwrap();
    assert_eq!(names.len(), 10_000);
    let paths: Vec<String> = names.iter().map(|name| format!("{top}/{name}")).collect();
    store.delete(&paths[17], None).await.unwrap();
    let found = get_all(store, &paths).await.unwrap();
    let there = found.iter().filter(|found| found.is_some()).count();
    assert_eq!((found.len(), there), (10_000, 9_999));
    assert_eq!(found[17], None);
}

/// The session's nodes go with it, and a new session comes. `end` ends the session of `store` for good.
pub(crate) async fn sessions(store: &dyn MetaStore, other: &dyn MetaStore, end: impl FnOnce()) {
    let top = format!("{TOP}/session");
    let path = format!("{top}/e");
    let mut link = store.link();
    let Link::Connected(first) = *link.borrow_and_update() else {
        panic!("not connected at the start");
    };
    let made = create_with_parents(store, &path, b"", Kind::Ephemeral)
        .await
        .unwrap();
    assert_eq!(made.owner, Some(first));
    let below = format!("{path}/x");
    assert_eq!(
        store.create(&below, b"", Kind::Persistent).await,
        Err(StoreError::EphemeralParent)
    );
    let seen = other.stat(&path).await.unwrap();
    assert_eq!(seen.and_then(|stat| stat.owner), Some(first));
    let (_, gone) = other.watch(&path).await.unwrap();
    let (_, ended) = store.watch(&path).await.unwrap();
    end();
    soon(gone, "a node that goes with its session").await;
    soon(ended, "the end of the own session").await;
    assert_eq!(other.stat(&path).await, Ok(None));
    let renewed = link.wait_for(|link| matches!(link, Link::Connected(id) if *id != first));
    let renewed = tokio::time::timeout(SOON, renewed).await;
    assert!(renewed.is_ok(), "no new session within {SOON:?}");
    assert_eq!(store.stat(&path).await, Ok(None));
    store.create(&path, b"", Kind::Ephemeral).await.unwrap();
}
