//! References that stand inside ledgers only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::*;
use crate::cluster::bookie::Held;
use crate::cluster::ledger::LedgerMetadata;
use crate::reclaim::inside::{InsideError, Told};
use crate::reclaim::plan::LedgerId;

/// Entries by ledger; one without is out of reach.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<BTreeMap<LedgerId, Vec<Vec<u8>>>>>);

impl Fake {
    fn of(&self, ledger: LedgerId) -> Result<Vec<Vec<u8>>, InsideError> {
        let why = "no bookie answers".to_owned();
        let all = self.0.lock().unwrap();
        all.get(&ledger)
            .cloned()
            .ok_or(InsideError::End { ledger, why })
    }
}

impl Entries for Fake {
    fn last_entry<'a>(&'a self, id: LedgerId, _: &'a LedgerMetadata) -> Told<'a, Option<u64>> {
        Box::pin(async move { Ok((self.of(id)?.len() as u64).checked_sub(1)) })
    }
    fn read<'a>(
        &'a self,
        id: LedgerId,
        _: &'a LedgerMetadata,
        entry: u64,
    ) -> Told<'a, Option<Vec<u8>>> {
        Box::pin(async move { Ok(self.of(id)?.get(usize::try_from(entry).unwrap()).cloned()) })
    }
    fn last_add_confirmed<'a>(&'a self, id: LedgerId, _: &'a LedgerMetadata) -> Told<'a, i64> {
        Box::pin(async move { Ok(i64::try_from(self.of(id)?.len()).unwrap() - 1) })
    }
    fn confirmed_and_length<'a>(
        &'a self,
        id: LedgerId,
        _: &'a LedgerMetadata,
    ) -> Told<'a, (i64, Option<u64>)> {
        Box::pin(async move {
            let all = self.of(id)?;
            let length = all.iter().map(|entry| entry.len() as u64).sum();
            Ok((i64::try_from(all.len()).unwrap() - 1, Some(length)))
        })
    }
    fn entries_held<'a>(&'a self, bookie: &'a str, ledger: LedgerId) -> Told<'a, Held> {
        let bookie = bookie.to_owned();
        let why = "it is a fake".to_owned();
        Box::pin(async move {
            Err(InsideError::Held {
                ledger,
                bookie,
                why,
            })
        })
    }
}

/// From hexadecimal digits with blanks.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|digit| *digit != ' ').collect();
    let pair = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

#[tokio::test]
async fn the_compacted_ledger_of_a_loaded_topic_is_in_its_cursor() {
    let mut stage = Stage::new().await;
    let fake = Fake::default();
    let compacted = |id| {
        let owner = ("pulsar/compactedTopic", "persistent://public/default/t");
        let stage = &stage;
        async move {
            let kind = ("component", "compacted-ledger");
            stage
                .ledger(id, &[("application", "pulsar"), kind, owner])
                .await;
        }
    };
    compacted(31).await;
    compacted(32).await;
    stage.ledger_of(33, TOPIC).await;
    // Bytes of a real cluster: the cursor's ledger is 33, and its last entry names 32.
    let cursor = bytes("0821101b18ffffffffffffffffff01308ffdaecfa234");
    let last = bytes("081e100922180a14436f6d706163746564546f7069634c65646765721020");
    stage.list(TOPIC, &[30]).await;
    stage.make(&format!("{TOPIC}/__compaction"), &cursor).await;
    stage.pass(24 * 8);
    insta::assert_snapshot!(stage.scan().await, @"
    31 r6: its topic is loaded, and says only in a ledger which one is in use
    32 r6: its topic is loaded, and says only in a ledger which one is in use
    ");
    stage.entries = Some(Box::new(fake.clone()));
    assert!(
        stage.scan().await.contains("32 r6"),
        "out of reach it is not known"
    );
    fake.0.lock().unwrap().insert(33, vec![last.clone()]);
    insta::assert_snapshot!(stage.scan().await, @"31 r3: it takes more scans over a longer time");
    // No entry of a cursor: nothing follows.
    fake.0.lock().unwrap().insert(33, vec![b"\xff".to_vec()]);
    assert!(stage.scan().await.contains("32 r6"));
}

#[tokio::test]
async fn older_versions_of_a_schema_are_named_by_newer_ones() {
    let mut stage = Stage::new().await;
    let fake = Fake::default();
    let schema = ("pulsar/schemaId", "public/default/s");
    for id in [24, 25, 26, 27] {
        stage
            .ledger(
                id,
                &[("application", "pulsar"), ("component", "schema"), schema],
            )
            .await;
    }
    // Version 2 in 26; its entry names version 1 in 25, whose entry names version 0 in 24.
    let index = |version: i64, ledger: u8| {
        let mut one = vec![
            0x08,
            u8::try_from(version).unwrap(),
            0x12,
            4,
            0x08,
            ledger,
            0x10,
            0,
        ];
        one.extend([0x1a, 0]);
        one
    };
    let field = |tag: u8, body: Vec<u8>| {
        let mut all = vec![tag, u8::try_from(body.len()).unwrap()];
        all.extend(body);
        all
    };
    // A version has the schema itself, and names older ones.
    let version = |older: Vec<u8>| [field(0x12, b"{}".to_vec()), field(0x2a, older)].concat();
    stage
        .make("/schemas/public/default/s", &field(0x0a, index(2, 26)))
        .await;
    stage.pass(24 * 8);
    let told = stage.scan().await;
    assert!(told.contains("24 r7") && told.contains("27 r7"), "{told}");
    stage.entries = Some(Box::new(fake.clone()));
    fake.0
        .lock()
        .unwrap()
        .insert(26, vec![version(index(1, 25))]);
    assert!(stage.scan().await.contains("24 r7"), "the chain is cut");
    fake.0
        .lock()
        .unwrap()
        .insert(25, vec![version(index(0, 24))]);
    insta::assert_snapshot!(stage.scan().await, @"27 r3: it takes more scans over a longer time");
}

#[tokio::test]
async fn an_open_ledger_that_does_not_grow_is_not_written() {
    let mut stage = Stage::new().await;
    let fake = Fake::default();
    stage.entries = Some(Box::new(fake.clone()));
    stage.list(TOPIC, &[]).await;
    stage.list(TOPIC, &[7]).await;
    stage.open_ledger_of(1, TOPIC).await;
    stage.pass(24 * 8);
    insta::assert_snapshot!(stage.scan().await, @"1 r3: somebody may be writing it");
    for _ in 0..3 {
        stage.pass(24);
        assert_eq!(stage.scan().await, "1 r3: somebody may be writing it");
    }
    // Now bookies answer: it is watched from here on.
    fake.0.lock().unwrap().insert(1, vec![Vec::new()]);
    insta::assert_snapshot!(stage.scan().await, @"1 r3: somebody may be writing it");
    stage.pass(24);
    insta::assert_snapshot!(stage.scan().await, @"1 r3: it takes more scans over a longer time");
    stage.pass(24);
    insta::assert_snapshot!(stage.scan().await, @"1 r3: deletable");
    fake.0
        .lock()
        .unwrap()
        .insert(1, vec![Vec::new(), Vec::new()]);
    insta::assert_snapshot!(stage.scan().await, @"1 r3: somebody may be writing it");
}

#[tokio::test]
async fn bytes_of_an_open_ledger_are_known_where_a_bookie_told_them() {
    let mut stage = Stage::new().await;
    let fake = Fake::default();
    stage.entries = Some(Box::new(fake.clone()));
    stage.list(TOPIC, &[7]).await;
    stage.open_ledger_of(1, TOPIC).await;
    stage.open_ledger_of(2, TOPIC).await;
    stage.open_ledger_of(7, TOPIC).await;
    stage.ledger_of(3, TOPIC).await;
    fake.0
        .lock()
        .unwrap()
        .insert(1, vec![vec![0; 5], vec![0; 3]]);
    fake.0.lock().unwrap().insert(7, vec![vec![0; 9]]);
    let told = async |stage: &Stage| {
        stage.scan().await;
        let mut told = Vec::new();
        let judged = stage
            .state
            .for_each_judged(|row| told.push((row.id, row.told)));
        judged.unwrap();
        told
    };
    // Of 2 no bookie answers, 3 is closed, and about 7, which is named, nobody is asked.
    let expected = [(1, Some(8)), (2, None), (3, None), (7, None)];
    assert_eq!(told(&stage).await, expected);
    // Another scan, another answer; none leaves none.
    fake.0.lock().unwrap().insert(1, vec![vec![0; 9]]);
    assert_eq!(told(&stage).await[0], (1, Some(9)));
    fake.0.lock().unwrap().remove(&1);
    assert_eq!(told(&stage).await[0], (1, None));
}
