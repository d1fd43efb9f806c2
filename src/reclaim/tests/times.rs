//! What time a scan may be said to have been made at, and what it may not have missed.

use std::sync::atomic::{AtomicBool, Ordering};

use super::hooked::{Hooked, Then};
use super::*;
use crate::cluster::store::StoreError;
use crate::reclaim::history::made;
use crate::reclaim::plan::class::Maker;
use crate::reclaim::plan::{HOUR, Millis};
use crate::reclaim::scan::Ledger;
use crate::reclaim::stage::hooked as eyes;

/// A topic that was seen with ledger 1, and looks at clocks.
async fn dated() -> Stage {
    let mut stage = Stage::new().await;
    stage.options.clock_root = Some("/dirkeeper".to_owned());
    stage.ledger_of(1, TOPIC).await;
    stage.list(TOPIC, &[1]).await;
    stage.scan().await;
    stage
}

fn after(hours: u64) -> Clock {
    let clock = Clock::manual();
    clock.advance(Duration::from_secs(hours * 3600));
    clock
}

#[tokio::test]
async fn a_clock_that_is_ahead_makes_no_absence_longer() {
    let mut stage = dated().await;
    stage.clock = after(24);
    insta::assert_snapshot!(stage.refused().await, @"our clock and that of the metadata store are 86400 s apart, and ages are judged by both: set the clocks first");
    let left = stage.store.children("/dirkeeper/an-id/reclaim").await;
    assert_eq!(left.unwrap(), [] as [String; 0]);
}

#[tokio::test]
async fn nor_does_one_that_jumps_while_it_is_read() {
    let mut stage = dated().await;
    // The store goes by the clock of before.
    stage.clock = after(0);
    let clock = stage.clock.clone();
    let jump = move |_: usize, path: &str| {
        if path == TOPIC {
            clock.advance(Duration::from_secs(7200));
        }
        Then::Go
    };
    stage.through = Some(Hooked::new(&stage.store, jump));
    insta::assert_snapshot!(stage.refused().await, @"our clock and that of the metadata store are 7200 s apart, and ages are judged by both: set the clocks first");
}

#[tokio::test]
async fn nor_one_that_was_set_back() {
    let mut stage = dated().await;
    stage.pass(1);
    stage.scan().await;
    // Both clocks were an hour ahead.
    let before = Stage::new().await;
    stage.store = before.store.clone();
    stage.clock = before.clock.clone();
    insta::assert_snapshot!(stage.refused().await, @"by our clock the last scan ended 3600000 ms from now, so it was wrong then or is now: set it, or take another --state-dir if it was wrong then");
    // The store is one that was restored from a copy of long ago.
    stage.pass(2);
    insta::assert_snapshot!(stage.refused().await, @"the metadata store was set back to a time before the last scan, so what is remembered does not hold: take another --state-dir");
}

#[tokio::test]
async fn who_may_not_write_is_told() {
    let mut stage = dated().await;
    struct ReadOnly;
    impl eyes::Hook for ReadOnly {
        fn before(&self, call: &eyes::Call<'_>) -> eyes::Fate {
            match call {
                eyes::Call::Write(_) => eyes::Fate::Fails(StoreError::NoAuth),
                _ => eyes::Fate::Answered,
            }
        }
    }
    stage.through = Some(Arc::new(eyes::Hooked {
        store: stage.store.clone(),
        hook: ReadOnly,
    }));
    let told = stage.refused().await;
    assert!(
        told.starts_with("may not write /dirkeeper/an-id/"),
        "{told}"
    );
}

#[test]
fn a_ledger_is_no_older_than_the_scan_that_did_not_know_it() {
    let ledger = Ledger {
        id: 1,
        created: 70,
        version: 0,
        made: 5,
        length: 0,
        copies: 1,
        state: crate::cluster::ledger::LedgerState::Closed,
        maker: Maker::Topic,
        owner: String::new(),
    };
    assert_eq!(made(&ledger, None), 5);
    assert_eq!(made(&ledger, Some((70, 1000))), 5);
    assert_eq!(made(&ledger, Some((69, 1000))), 1000);
    assert_eq!(made(&ledger, Some((69, 3))), 5);
}

/// A follower that is behind shows ledgers, and not yet who names them, until it is told to catch up.
#[tokio::test]
async fn a_server_that_lags_hides_no_owner() {
    let mut stage = Stage::new().await;
    stage.ledger_of(1, TOPIC).await;
    stage.list(TOPIC, &[1]).await;
    struct Lags(AtomicBool);
    impl eyes::Hook for Lags {
        fn before(&self, call: &eyes::Call<'_>) -> eyes::Fate {
            match call {
                eyes::Call::Multi(_) => self.0.store(false, Ordering::SeqCst),
                // Listing a ledger has it fall behind again.
                eyes::Call::Read(path) if path.starts_with("/ledgers/00") => {
                    self.0.store(true, Ordering::SeqCst);
                }
                eyes::Call::Read(path) if *path == TOPIC && self.0.load(Ordering::SeqCst) => {
                    return eyes::Fate::Fails(StoreError::NoNode);
                }
                _ => {}
            }
            eyes::Fate::Answered
        }
    }
    stage.through = Some(Arc::new(eyes::Hooked {
        store: stage.store.clone(),
        hook: Lags(AtomicBool::new(true)),
    }));
    assert_eq!(stage.scan().await, "");
}

#[tokio::test]
async fn a_snapshot_file_proves_from_when_it_was_written_until_its_newest_change() {
    let mut stage = Stage::new().await;
    stage.ledger_of(1, TOPIC).await;
    stage.list(TOPIC, &[1]).await;
    stage.scan().await;
    stage.store.delete(TOPIC, None).await.unwrap();
    let hours = |newest: Millis, written: Millis| {
        Some(Shows {
            newest: newest * HOUR,
            written: written * HOUR,
        })
    };
    stage.pass(7);
    stage.options.snapshot_of = hours(2, 1);
    insta::assert_snapshot!(stage.refused().await, @"the dates of the snapshot file are 3600 s apart (a node in it is newer than the file, or the file newer than our clock), so it is not known what time it shows");
    stage.options.snapshot_of = hours(2, 9);
    insta::assert_snapshot!(stage.refused().await, @"the dates of the snapshot file are 7200 s apart (a node in it is newer than the file, or the file newer than our clock), so it is not known what time it shows");
    // Copied at 6, of a cluster in which nothing was changed since 1: the topic may have been there until 6.
    stage.options.snapshot_of = hours(1, 6);
    let wait = "1 r2: its owner has to be absent in more scans, further apart";
    assert_eq!(stage.scan().await, wait);
    let info = stage.state.last_scan().unwrap().unwrap();
    assert_eq!((info.began, info.ended), (HOUR, 6 * HOUR));
    // Nothing new.
    stage.options.snapshot_of = hours(5, 7);
    insta::assert_snapshot!(stage.refused().await, @"the snapshot is not newer than the last scan, so that nothing new follows from it");
    stage.options.snapshot_of = Some(Shows {
        newest: 6 * HOUR + 1,
        written: 7 * HOUR,
    });
    assert_eq!(stage.scan().await, wait);
    stage.options.snapshot_of = None;
    assert_eq!(stage.scan().await, "1 r2: deletable");
}
