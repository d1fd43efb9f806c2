//! Reading inside ledgers of bookies that run in this process, some of which are dead, lag behind or lie.

use std::sync::Arc;

use super::*;
use crate::clock::Clock;
use crate::cluster::bookie::Limits;
use crate::cluster::bookie::fake::{Asked, Fake, Reply};
use crate::cluster::ledger::{DigestType, Segment};
use crate::cluster::memory::Memory;

const LEDGER: LedgerId = 7;

/// Bookies, and a ledger of three of them with two copies of each entry.
struct Stage {
    bookies: Vec<Fake>,
    inside: Inside,
    metadata: LedgerMetadata,
}

async fn stage() -> Stage {
    let mut bookies = Vec::new();
    for _ in 0..3 {
        bookies.push(Fake::start().await);
    }
    let clock = Clock::manual();
    let store = Arc::new(Memory::new(clock.clone()).connect());
    let inside = Inside::new(Bookies::new(store, "/ledgers", clock, Limits::default()));
    let members = bookies.iter().map(|bookie| bookie.id().to_owned());
    let metadata = LedgerMetadata {
        format: 3,
        ensemble_size: 3,
        write_quorum: 2,
        ack_quorum: 2,
        length: 0,
        last_entry: None,
        state: LedgerState::Open,
        segments: vec![Segment {
            first_entry: 0,
            members: members.collect(),
        }],
        digest: Some(DigestType::Crc32c),
        created_at: None,
        custom: std::collections::BTreeMap::new(),
    };
    Stage {
        bookies,
        inside,
        metadata,
    }
}

fn payload(entry: u64) -> Vec<u8> {
    format!("entry {entry}").into_bytes()
}

/// As its writer sends it while one entry is under way.
fn sealed(entry: u64) -> Vec<u8> {
    let confirmed = i64::try_from(entry).unwrap() - 1;
    Digest::new(DigestType::Crc32c, b"").seal(LEDGER, entry, confirmed, &payload(entry))
}

impl Stage {
    /// Gives entries to those bookies that have to have them.
    fn write(&self, entries: std::ops::Range<u64>) {
        for entry in entries {
            for member in self.metadata.write_set(entry) {
                let mut bookies = self.bookies.iter();
                let bookie = bookies.find(|bookie| bookie.id() == member).unwrap();
                bookie.put(LEDGER, entry, sealed(entry));
            }
        }
    }

    async fn last(&self) -> Result<Option<u64>, InsideError> {
        self.inside.last_entry(LEDGER, &self.metadata).await
    }

    async fn confirmed(&self) -> Result<i64, InsideError> {
        self.inside.last_add_confirmed(LEDGER, &self.metadata).await
    }

    async fn length(&self) -> Result<(i64, Option<u64>), InsideError> {
        self.inside
            .confirmed_and_length(LEDGER, &self.metadata)
            .await
    }

    async fn read(&self, entry: u64) -> Result<Option<Vec<u8>>, InsideError> {
        self.inside.read(LEDGER, &self.metadata, entry).await
    }

    async fn end(&self) -> Result<Vec<Vec<u8>>, InsideError> {
        self.inside.end(LEDGER, &self.metadata).await
    }

    /// An error without ports.
    fn told<T: std::fmt::Debug>(&self, result: Result<T, InsideError>) -> String {
        let error = result.unwrap_err().to_string();
        let ids = self.metadata.segments[0]
            .members
            .iter()
            .zip(["a", "b", "c"]);
        ids.fold(error, |text, (id, name)| text.replace(id, name))
    }
}

#[tokio::test]
async fn a_closed_ledger_ends_where_its_metadata_says_and_nobody_is_asked() {
    let mut stage = stage().await;
    stage.metadata.state = LedgerState::Closed;
    assert_eq!(
        (stage.last().await, stage.confirmed().await),
        (Ok(None), Ok(-1))
    );
    stage.metadata.last_entry = Some(4);
    assert_eq!(
        (stage.last().await, stage.confirmed().await),
        (Ok(Some(4)), Ok(4))
    );
    assert!(stage.bookies.iter().all(|bookie| bookie.asked() == 0));
    stage.write(0..5);
    assert_eq!(stage.end().await, Ok(vec![payload(4)]));
}

#[tokio::test]
async fn an_entry_is_read_from_any_bookie_of_its_write_set() {
    let stage = stage().await;
    stage.write(0..4);
    for entry in 0..4 {
        assert_eq!(stage.read(entry).await, Ok(Some(payload(entry))));
    }
    assert_eq!(stage.read(4).await, Ok(None));
    // Entry 3 is on a and b again: a alone is asked as long as it answers.
    let asked = |n: usize| stage.bookies[n].asked();
    let before = (asked(1), asked(2));
    stage.read(3).await.unwrap();
    assert_eq!((asked(1), asked(2)), before);
    stage.bookies[0].fail(501);
    assert_eq!(stage.read(3).await, Ok(Some(payload(3))));
}

#[tokio::test]
async fn a_damaged_entry_is_read_elsewhere_and_an_unsure_one_is_not_called_absent() {
    let stage = stage().await;
    stage.write(0..1);
    let mut damaged = sealed(0);
    *damaged.last_mut().unwrap() ^= 1;
    stage.bookies[0].put(LEDGER, 0, damaged);
    assert_eq!(stage.read(0).await, Ok(Some(payload(0))));
    stage.bookies[1].put(LEDGER, 0, sealed(1));
    insta::assert_snapshot!(stage.told(stage.read(0).await), @"entry 0 of ledger 7 cannot be read: a: its CRC32C digest is wrong; b: it is entry 1 of ledger 7");
    stage.bookies[2].fail(507);
    // Entry 1 is on b and c; b has none.
    insta::assert_snapshot!(stage.told(stage.read(1).await), @"entry 1 of ledger 7 cannot be read: c: it answered EUNKNOWNLEDGERSTATE");
}

#[tokio::test]
async fn a_bookie_that_lost_an_entry_or_makes_it_up_is_not_believed() {
    let stage = stage().await;
    stage.write(0..1);
    stage.bookies[0].lose(LEDGER, 0);
    assert_eq!(stage.read(0).await, Ok(Some(payload(0))));
    stage.bookies[1].instead(|asked| {
        let is_read = matches!(asked, Asked::Read { .. });
        is_read.then(|| Reply::Body(b"something".to_vec()))
    });
    insta::assert_snapshot!(stage.told(stage.read(0).await), @"entry 0 of ledger 7 cannot be read: b: it has 9 bytes, too few for an entry");
    stage.bookies[1].lose(LEDGER, 0);
    stage.bookies[1].instead(|_| None);
    assert_eq!(stage.read(0).await, Ok(None));
}

#[tokio::test]
async fn an_open_ledger_ends_where_the_last_of_its_bookies_says() {
    let stage = stage().await;
    assert_eq!(
        (stage.last().await, stage.confirmed().await),
        (Ok(None), Ok(-1))
    );
    assert_eq!(stage.end().await, Ok(Vec::new()));
    assert_eq!(stage.length().await, Ok((-1, Some(0))));
    stage.write(0..1);
    assert_eq!(
        (stage.last().await, stage.confirmed().await),
        (Ok(Some(0)), Ok(-1))
    );
    assert_eq!(stage.end().await, Ok(vec![payload(0)]));
    stage.write(1..6);
    assert_eq!(
        (stage.last().await, stage.confirmed().await),
        (Ok(Some(5)), Ok(4))
    );
    // What the header of the last entry says.
    let length = payload(5).len() as u64;
    assert_eq!(stage.length().await, Ok((4, Some(length))));
    // Either may be the last one after a recovery.
    assert_eq!(stage.end().await, Ok(vec![payload(4), payload(5)]));
    let told = Digest::new(DigestType::Crc32c, b"").seal_confirmed(LEDGER, 5);
    stage.bookies[1].tell(LEDGER, told);
    assert_eq!(
        (stage.last().await, stage.confirmed().await),
        (Ok(Some(5)), Ok(5))
    );
    assert_eq!(stage.end().await, Ok(vec![payload(5)]));
}

#[tokio::test]
async fn so_many_may_be_silent_as_cannot_know_more_than_the_others() {
    let mut stage = stage().await;
    stage.write(0..4);
    stage.bookies[2].fail(501);
    assert_eq!(
        (stage.last().await, stage.confirmed().await),
        (Ok(Some(3)), Ok(2))
    );
    stage.bookies[1].fail(502);
    insta::assert_snapshot!(stage.told(stage.last().await), @"it is not known where ledger 7 ends now: b: it answered EUA; c: it answered EIO");
    assert_eq!(stage.confirmed().await, stage.last().await.map(|_| 0));
    // With one acknowledgement, each alone may have the last one.
    stage.metadata.ack_quorum = 1;
    let others = [0, 1, 2].map(|silent| {
        let answered: Vec<_> = (0..3).map(|place| place != silent).collect();
        covers(&answered, &stage.metadata)
    });
    assert_eq!(others, [false; 3]);
    assert!(covers(&[true; 3], &stage.metadata));
}

#[tokio::test]
async fn a_new_ensemble_without_entries_begins_behind_what_is_confirmed() {
    let mut stage = stage().await;
    stage.write(0..3);
    let fresh = [
        Fake::start().await,
        Fake::start().await,
        Fake::start().await,
    ];
    stage.metadata.segments.push(Segment {
        first_entry: 3,
        members: fresh.iter().map(|bookie| bookie.id().to_owned()).collect(),
    });
    assert_eq!(
        (stage.last().await, stage.confirmed().await),
        (Ok(Some(2)), Ok(2))
    );
    assert_eq!(stage.end().await, Ok(vec![payload(2)]));
}

#[tokio::test]
async fn a_confirmed_entry_that_nobody_has_is_no_empty_end() {
    let mut stage = stage().await;
    stage.metadata.state = LedgerState::Closed;
    stage.metadata.last_entry = Some(4);
    insta::assert_snapshot!(stage.told(stage.end().await), @"entry 4 of ledger 7 cannot be read: every bookie says that it has no such entry");
    stage.metadata.digest = None;
    insta::assert_snapshot!(stage.told(stage.end().await), @"the metadata of ledger 7 does not say how its entries are checked");
}

#[tokio::test]
async fn what_a_bookie_still_has() {
    let stage = stage().await;
    stage.write(0..3);
    let held = |n: usize| stage.inside.entries_held(stage.bookies[n].id(), LEDGER);
    let first = held(0).await.unwrap();
    assert_eq!(
        [0, 1, 2].map(|entry| first.contains(entry)),
        [true, false, true]
    );
    let other = stage.inside.entries_held(stage.bookies[0].id(), 8).await;
    assert!(other.unwrap().is_empty());
    stage.bookies[1].fail(501);
    insta::assert_snapshot!(stage.told(held(1).await), @"it is not known which entries of ledger 7 are on b: it answered EIO");
}

#[tokio::test]
async fn the_length_is_unknown_where_entries_are_and_none_was_read() {
    let mut stage = stage().await;
    // Of a segment that nobody has written to yet, the entries before it are elsewhere.
    stage.metadata.segments[0].first_entry = 8;
    assert_eq!(stage.length().await, Ok((7, None)));
    stage.write(8..10);
    let length = payload(9).len() as u64;
    assert_eq!(stage.length().await, Ok((8, Some(length))));
    stage.bookies.iter().for_each(|bookie| bookie.fail(101));
    assert!(stage.length().await.is_err(), "nobody answered");
}
