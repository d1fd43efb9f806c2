//! Scans of small clusters in memory, one after the other, with leaks between them.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::sync::watch;

use super::history::History;
use super::plan::class::{Rules, Verdict};
use super::scan::{Ledgers, Progress, Pulsar, scan};
use crate::clock::Clock;
use crate::cluster::ledger::Layout;
use crate::cluster::memory::{Memory, MemorySession};
use crate::cluster::store::{Kind, MetaStore, create_with_parents};

/// A list of ledgers, as the first field of each entry of the first field.
#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    ledgers: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(int64, optional, tag = "1")]
    id: Option<i64>,
}

/// A cursor, or a position: two numbers.
#[derive(Clone, PartialEq, Message)]
struct Numbers {
    #[prost(int64, optional, tag = "1")]
    first: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    second: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    third: Option<i64>,
}

struct Stage {
    clock: Clock,
    server: Memory,
    store: Arc<MemorySession>,
    history: History,
}

const TOPIC: &str = "/managed-ledgers/public/default/persistent/t";

impl Stage {
    async fn new() -> Stage {
        let clock = Clock::manual();
        let server = Memory::new(clock.clone());
        let stage = Stage {
            store: Arc::new(server.connect()),
            clock,
            server,
            history: History::default(),
        };
        let class = "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory";
        stage
            .make("/ledgers/LAYOUT", format!("2\n{class}:1").as_bytes())
            .await;
        stage.make("/ledgers/INSTANCEID", b"an-id").await;
        stage.make("/ledgers/available/readonly", b"").await;
        stage.make("/managed-ledgers", b"").await;
        stage.make("/admin/policies/public/default", b"{}").await;
        stage
    }

    async fn make(&self, path: &str, data: &[u8]) {
        create_with_parents(&*self.store, path, data, Kind::Persistent)
            .await
            .unwrap();
    }

    /// A closed ledger that says what made it.
    async fn ledger(&self, id: u64, custom: &[(&str, &str)]) {
        let custom: String = custom
            .iter()
            .map(|(key, value)| format!("customMetadata {{ key: \"{key}\" value: \"{value}\" }}\n"))
            .collect();
        let text = format!(
            "BookieMetadataFormatVersion\t2\nquorumSize: 1\nensembleSize: 1\nlength: 1000\nlastEntryId: 9\nstate: CLOSED\n\
             segment {{ ensembleMember: \"b:1\" firstEntryId: 0 }}\n{custom}"
        );
        let path = format!("/ledgers/{}", Layout::Hierarchical.path(id).unwrap());
        self.make(&path, text.as_bytes()).await;
    }

    async fn ledger_of(&self, id: u64, topic: &str) {
        let owner = topic.strip_prefix("/managed-ledgers/").unwrap();
        self.ledger(
            id,
            &[
                ("application", "pulsar"),
                ("component", "managed-ledger"),
                ("pulsar/managed-ledger", owner),
            ],
        )
        .await;
    }

    /// Writes a topic's list.
    async fn list(&self, path: &str, ids: &[i64]) {
        let ledgers = ids.iter().map(|id| Entry { id: Some(*id) }).collect();
        let data = List { ledgers }.encode_to_vec();
        match self.store.stat(path).await.unwrap() {
            None => self.make(path, &data).await,
            Some(_) => drop(self.store.set(path, &data, None).await.unwrap()),
        }
    }

    async fn try_scan(&mut self) -> Result<Vec<String>, String> {
        let ledgers = Ledgers {
            store: self.store.clone(),
            root: "/ledgers".to_owned(),
        };
        let pulsar = Pulsar {
            name: "here".to_owned(),
            store: Arc::new(self.server.connect()),
            root: String::new(),
        };
        let progress = watch::Sender::new(Progress::default());
        let now = self.clock.now().wall.0;
        let found = scan(&ledgers, &[pulsar], now, &progress).await;
        let found = found.map_err(|error| crate::report::text(&error))?;
        let judged = self.history.take(&found, true, &Rules::default());
        let told = judged
            .into_iter()
            .filter(|judged| judged.class.name() != "r0");
        Ok(told
            .map(|judged| {
                let verdict = match judged.verdict {
                    Verdict::Keep(why) | Verdict::Wait(why) => why,
                    Verdict::Deletable => "deletable",
                };
                format!("{} {}: {verdict}", judged.ledger.id, judged.class)
            })
            .collect())
    }

    async fn scan(&mut self) -> String {
        self.try_scan().await.unwrap().join("\n")
    }

    fn pass(&self, hours: u64) {
        self.clock.advance(Duration::from_secs(hours * 3600));
    }
}

#[tokio::test]
async fn leaks_of_a_trim_an_unsubscribe_and_a_deletion() {
    let mut stage = Stage::new().await;
    let other = "/managed-ledgers/public/default/persistent/other";
    for id in 1..=5 {
        stage.ledger_of(id, TOPIC).await;
    }
    stage.ledger_of(6, other).await;
    stage.list(TOPIC, &[1, 2, 3]).await;
    stage.list(other, &[6]).await;
    let cursor = |ledger| {
        Numbers {
            first: Some(ledger),
            second: Some(3),
            third: Some(1),
        }
        .encode_to_vec()
    };
    stage.make(&format!("{TOPIC}/s1"), &cursor(4)).await;
    // A roll-over that was never listed.
    insta::assert_snapshot!(stage.scan().await, @"5 r3: it is too young for that to mean anything");
    // The broker dies in a trim, in an unsubscribe, and in the deletion of another topic.
    stage.list(TOPIC, &[3]).await;
    stage
        .store
        .delete(&format!("{TOPIC}/s1"), None)
        .await
        .unwrap();
    stage.store.delete(other, None).await.unwrap();
    stage.pass(24 * 8);
    insta::assert_snapshot!(stage.scan().await, @"
    1 r1: deletable
    2 r1: deletable
    4 r2: its owner has to be absent in more scans, further apart
    5 r3: it takes more scans over a longer time
    6 r2: its owner has to be absent in more scans, further apart
    ");
    stage.pass(2);
    insta::assert_snapshot!(stage.scan().await, @"
    1 r1: deletable
    2 r1: deletable
    4 r2: deletable
    5 r3: deletable
    6 r2: deletable
    ");
    // One comes back: an operator restored the topic from a backup.
    stage.list(TOPIC, &[1, 3]).await;
    stage.pass(1);
    insta::assert_snapshot!(stage.scan().await, @"
    2 r1: deletable
    4 r2: deletable
    5 r3: deletable
    6 r2: deletable
    ");
}

#[tokio::test]
async fn others_ledgers_are_theirs() {
    let mut stage = Stage::new().await;
    stage.ledger(1, &[]).await;
    stage.ledger(2, &[("application", "distributedlog")]).await;
    stage
        .ledger(
            3,
            &[("application", "pulsar"), ("component", "something-new")],
        )
        .await;
    stage.pass(24 * 30);
    for _ in 0..4 {
        stage.pass(24);
        stage.scan().await;
    }
    insta::assert_snapshot!(stage.scan().await, @"
    1 r8: it does not say that it is Pulsar's
    2 r8: it does not say that it is Pulsar's
    3 r8: it does not say that it is Pulsar's
    ");
}

#[tokio::test]
async fn what_cannot_be_read_ends_the_scan() {
    let broken = async |path: &str, data: &[u8]| {
        let mut stage = Stage::new().await;
        stage.ledger_of(1, TOPIC).await;
        stage.list(TOPIC, &[1]).await;
        stage.scan().await;
        let before = stage.history.clone();
        match stage.store.stat(path).await.unwrap() {
            None => stage.make(path, data).await,
            Some(_) => drop(stage.store.set(path, data, None).await.unwrap()),
        }
        let told = stage.try_scan().await.unwrap_err();
        assert_eq!(stage.history, before, "a scan that failed was remembered");
        told
    };
    insta::assert_snapshot!(broken("/ledgers/00/0000/L0001", b"<html>").await, @"ledger 1 cannot be understood: it does not begin as the metadata of a ledger does");
    insta::assert_snapshot!(broken("/ledgers/00/0000/L0002", b"BookieMetadataFormatVersion\t4\nx").await, @"ledger 2 cannot be understood: it is written in format 4, and only formats 1 to 3 are known");
    insta::assert_snapshot!(broken("/ledgers/LAYOUT", b"2\nx.MSLedgerManagerFactory:1").await, @"cannot tell where ledgers are: LAYOUT names MSLedgerManagerFactory, version 1, which keeps its ledgers in a way that is not known");
    insta::assert_snapshot!(broken("/ledgers/INSTANCEID", b"").await, @"/ledgers/INSTANCEID is not there or no text");
    insta::assert_snapshot!(broken(TOPIC, b"ledgerInfo { ledgerId: 1 }").await, @"/managed-ledgers/public/default/persistent/t of here cannot be understood, so it is not known which ledgers it names: it cannot be understood: failed to decode Protobuf message: unexpected end group tag");
    insta::assert_snapshot!(broken(&format!("{TOPIC}/s"), b"\x08").await, @"/managed-ledgers/public/default/persistent/t/s of here cannot be understood, so it is not known which ledgers it names: it cannot be understood: failed to decode Protobuf message: RawCursor.cursors_ledger_id: invalid varint");
    insta::assert_snapshot!(broken("/schemas/public/default/t", b"\xff").await, @"/schemas/public/default/t of here cannot be understood, so it is not known which ledgers it names: it cannot be understood: failed to decode Protobuf message: invalid varint");
}
