//! Input that is wrong: one sentence that names the node, and nothing that is remembered is changed.

use std::sync::atomic::{AtomicBool, Ordering};

use super::hooked::{Hooked, Then};
use super::*;
use crate::cluster::store::StoreError;

#[tokio::test]
async fn what_cannot_be_read_ends_the_scan() {
    let broken = async |path: &str, data: &[u8]| {
        let stage = Stage::new().await;
        stage.ledger_of(1, TOPIC).await;
        stage.list(TOPIC, &[1]).await;
        stage.scan().await;
        match stage.store.stat(path).await.unwrap() {
            None => stage.make(path, data).await,
            Some(_) => drop(stage.store.set(path, data, None).await.unwrap()),
        }
        stage.refused().await
    };
    insta::assert_snapshot!(broken("/ledgers/00/0000/L0001", b"<html>").await, @"ledger 1 at /ledgers/00/0000/L0001 cannot be understood: it does not begin as the metadata of a ledger does");
    insta::assert_snapshot!(broken("/ledgers/00/0000/L0002", b"BookieMetadataFormatVersion\t4\nx").await, @"ledger 2 at /ledgers/00/0000/L0002 cannot be understood: it is written in format 4, and only formats 1 to 3 are known");
    insta::assert_snapshot!(broken("/ledgers/LAYOUT", b"2\nx.MSLedgerManagerFactory:1").await, @"cannot tell where ledgers are below /ledgers: LAYOUT names MSLedgerManagerFactory, version 1, which keeps its ledgers in a way that is not known");
    insta::assert_snapshot!(broken("/ledgers/INSTANCEID", b"").await, @"/ledgers/INSTANCEID is not there or no text");
    insta::assert_snapshot!(broken(TOPIC, b"ledgerInfo { ledgerId: 1 }").await, @"/managed-ledgers/public/default/persistent/t of here cannot be understood, so it is not known which ledgers it names: it cannot be understood: failed to decode Protobuf message: unexpected end group tag");
    insta::assert_snapshot!(broken(&format!("{TOPIC}/s"), b"\x08").await, @"/managed-ledgers/public/default/persistent/t/s of here cannot be understood, so it is not known which ledgers it names: it cannot be understood: failed to decode Protobuf message: RawCursor.cursors_ledger_id: invalid varint");
    insta::assert_snapshot!(broken("/schemas/public/default/t", b"\xff").await, @"/schemas/public/default/t of here cannot be understood, so it is not known which ledgers it names: it cannot be understood: failed to decode Protobuf message: invalid varint");
}

/// A small cluster that was scanned before, read through this hook.
async fn hooked(hook: impl Fn(usize, &str) -> Then + Send + Sync + 'static) -> Stage {
    let mut stage = Stage::new().await;
    for id in 1..=3 {
        stage.ledger_of(id, TOPIC).await;
    }
    stage.list(TOPIC, &[1, 2]).await;
    stage.scan().await;
    stage.through = Some(Hooked::new(&stage.store, hook));
    stage
}

fn failing(at: &'static str, error: StoreError) -> impl Fn(usize, &str) -> Then + Send + Sync {
    move |_, path| match path == at {
        true => Then::Fail(error.clone()),
        false => Then::Go,
    }
}

#[tokio::test]
async fn another_cluster_is_named_with_both_ids() {
    let stage = hooked(|_, _| Then::Go).await;
    stage
        .store
        .set("/ledgers/INSTANCEID", b"b", None)
        .await
        .unwrap();
    insta::assert_snapshot!(stage.refused().await, @"this is cluster b, and what is remembered is of cluster an-id: name another --state-dir");
}

#[tokio::test]
async fn what_is_missing_is_named() {
    for (path, told) in [
        (
            "/ledgers/LAYOUT",
            "/ledgers/LAYOUT says where ledgers are, and is not there: is /ledgers the ledgers root?",
        ),
        (
            "/ledgers/INSTANCEID",
            "/ledgers/INSTANCEID is not there or no text",
        ),
        (
            "/managed-ledgers",
            "here has no /managed-ledgers below \"\": is it the metadata of a Pulsar cluster?",
        ),
    ] {
        let stage = hooked(failing(path, StoreError::NoNode)).await;
        assert_eq!(stage.refused().await, told);
    }
}

#[tokio::test]
async fn one_corner_that_may_not_be_read_ends_it() {
    let stage = hooked(failing(TOPIC, StoreError::NoAuth)).await;
    insta::assert_snapshot!(stage.refused().await, @"cannot read /managed-ledgers/public/default/persistent/t: the server does not allow it (ACL)");
    let stage = hooked(failing("/ledgers/00/0000", StoreError::NoAuth)).await;
    insta::assert_snapshot!(stage.refused().await, @"cannot read /ledgers/00/0000: the server does not allow it (ACL)");
}

#[tokio::test]
async fn a_node_that_ends_the_connection_each_time_is_named() {
    let stage = hooked(failing(TOPIC, StoreError::Lost)).await;
    insta::assert_snapshot!(stage.refused().await, @"6 times in a row there was no answer for /managed-ledgers/public/default/persistent/t: if it, or the list of its children, is larger than jute.maxbuffer (1 MiB unless set), raise that: there is no connection");
    // A list of children that is too long.
    let stage = hooked(failing("/ledgers/00/0000", StoreError::Expired)).await;
    let told = stage.refused().await;
    assert!(
        told.contains("no answer for /ledgers/00/0000: if it, or the list"),
        "{told}"
    );
}

#[tokio::test]
async fn a_session_that_ends_in_the_middle_is_outlived() {
    let stage = hooked(|_, _| Then::Go).await;
    let whole = stage.scan().await;
    for at in 0..20 {
        let mut stage = hooked(|_, _| Then::Go).await;
        let (store, done) = (stage.store.clone(), AtomicBool::new(false));
        stage.through = Some(Hooked::new(&stage.store, move |number, _| {
            if number < at || done.swap(true, Ordering::SeqCst) {
                return Then::Go;
            }
            store.expire();
            store.reconnect();
            Then::Fail(StoreError::Expired)
        }));
        assert_eq!(stage.scan().await, whole, "at call {at}");
    }
}

#[tokio::test]
async fn a_store_out_of_reach_is_waited_for_and_then_named() {
    let mut stage = hooked(|_, _| Then::Go).await;
    let store = stage.store.clone();
    stage.through = Some(Hooked::new(&stage.store, move |_, path| {
        if path == TOPIC {
            store.disconnect();
        }
        Then::Go
    }));
    insta::assert_snapshot!(stage.refused().await, @"no server was reached for 0 s to read /managed-ledgers/public/default/persistent/t; the next scan goes on from here: there is no connection");
    stage.store.reconnect();
    stage.through = None;
    assert!(stage.scanned().await.unwrap().resumed);
}

#[tokio::test]
async fn what_could_not_be_understood_is_not_gone_on_with() {
    let stage = hooked(|_, _| Then::Go).await;
    let (data, _) = stage.store.get(TOPIC).await.unwrap();
    stage.store.set(TOPIC, b"\xff", None).await.unwrap();
    stage.refused().await;
    stage.store.set(TOPIC, &data, None).await.unwrap();
    assert!(!stage.scanned().await.unwrap().resumed);
}

#[tokio::test]
async fn a_ledger_that_goes_before_it_is_read_is_no_ledger() {
    let mut stage = hooked(|_, _| Then::Go).await;
    const GONE: &str = "/ledgers/00/0000/L0003";
    stage.through = Some(Hooked::new(&stage.store, failing(GONE, StoreError::NoNode)));
    assert_eq!(stage.scan().await, "");
    assert_eq!(stage.state.last_scan().unwrap().unwrap().ledgers, 2);
}

#[tokio::test]
async fn a_snapshot_that_is_not_newer_is_refused() {
    let mut stage = hooked(|_, _| Then::Go).await;
    stage.options.snapshot_of = Some(Shows::at(0));
    insta::assert_snapshot!(stage.refused().await, @"the snapshot is not newer than the last scan, so that nothing new follows from it");
    stage.options.snapshot_of = Some(Shows::at(1));
    assert_eq!(stage.scanned().await.unwrap().info.requests, 0);
}
