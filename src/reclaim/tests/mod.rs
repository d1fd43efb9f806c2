//! Scans of small clusters in memory, one after the other, with leaks between them.

mod bad;
mod clusters;
mod hooked;
mod inside;
mod part;
mod resume;
mod times;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::sync::watch;

use super::history::Ruling;
use super::inside::Entries;
use super::scan::{
    Ledgers, Options, Progress, Pulsar, ScanError, Scanned, Shows, Sources, scan_with,
};
use super::state::State;
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

fn path_of(id: u64) -> String {
    format!("/ledgers/{}", Layout::Hierarchical.path(id).unwrap())
}

struct Stage {
    clock: Clock,
    store: Arc<MemorySession>,
    /// What a scan reads through, if not the store itself.
    through: Option<Arc<dyn MetaStore>>,
    entries: Option<Box<dyn Entries>>,
    options: Options,
    state: State,
}

const TOPIC: &str = "/managed-ledgers/public/default/persistent/t";

impl Stage {
    async fn new() -> Stage {
        let clock = Clock::manual();
        let server = Memory::new(clock.clone());
        let stage = Stage {
            store: Arc::new(server.connect()),
            clock,

            through: None,
            entries: None,
            options: Options {
                all_clusters: true,
                patience: Some(Duration::ZERO),
                ..Options::default()
            },
            state: State::in_memory(),
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
        self.make(&path_of(id), text.as_bytes()).await;
    }

    /// One that somebody may be writing.
    async fn open_ledger_of(&self, id: u64, topic: &str) {
        self.ledger_of(id, topic).await;
        let (data, _) = self.store.get(&path_of(id)).await.unwrap();
        let text = String::from_utf8(data).unwrap().replace("CLOSED", "OPEN");
        let set = self.store.set(&path_of(id), text.as_bytes(), None).await;
        set.unwrap();
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

    async fn scanned(&self) -> Result<Scanned, ScanError> {
        let through = || -> Arc<dyn MetaStore> {
            match &self.through {
                Some(store) => Arc::clone(store),
                None => self.store.clone(),
            }
        };
        let ledgers = Ledgers {
            store: through(),
            root: "/ledgers".to_owned(),
        };
        let pulsars = [Pulsar {
            name: "here".to_owned(),
            store: through(),
            root: String::new(),
        }];
        let sources = Sources {
            ledgers: &ledgers,
            pulsars: &pulsars,
            entries: self.entries.as_deref(),
        };
        let progress = watch::Sender::new(Progress::default());
        scan_with(&self.state, sources, &self.options, &self.clock, &progress).await
    }

    /// The sentence with which a scan ends. Nothing that is remembered is changed by it.
    async fn refused(&self) -> String {
        let before = self.remembered();
        let error = self
            .scanned()
            .await
            .expect_err("a scan that cannot be complete");
        assert_eq!(
            self.remembered(),
            before,
            "a scan that failed was remembered"
        );
        crate::report::text(&error)
    }

    /// What followed for every ledger that is not simply referenced.
    fn told(&self) -> String {
        let mut lines = Vec::new();
        self.state
            .for_each_judged(|stored| {
                let why = match stored.ruling {
                    Ruling::Deletable => "deletable",
                    _ => &stored.why,
                };
                if stored.class.name() != "r0" {
                    lines.push(format!("{} {}: {why}", stored.id, stored.class));
                }
            })
            .unwrap();
        lines.join("\n")
    }

    async fn scan(&self) -> String {
        self.scanned().await.unwrap();
        self.told()
    }

    /// All that is remembered, but for times and numbers of requests.
    fn remembered(&self) -> String {
        let mut text = String::new();
        let info = self.state.last_scan().unwrap();
        let counted = info.map(|info| (info.instance, info.ledgers, info.owners, info.classes));
        writeln!(text, "{counted:?}").unwrap();
        for are_gone in [false, true] {
            for (key, known) in self.state.known_after(are_gone, None, usize::MAX).unwrap() {
                let absent = known.absence.map(|absence| absence.scans);
                writeln!(text, "{} {:?} {absent:?}", key.path, known.seen).unwrap();
            }
        }
        self.state
            .for_each_judged(|stored| {
                let suspect = stored.suspect.as_ref();
                let by = suspect.and_then(|suspect| {
                    let (key, how) = suspect.witness.as_ref()?;
                    let how = format!("{how:?}");
                    Some(format!(
                        "{} {}",
                        key.path,
                        how.split(' ').next().unwrap_or("")
                    ))
                });
                let scans = suspect.map(|suspect| suspect.scans);
                let (class, why) = (stored.class, &stored.why);
                writeln!(text, "{} {class} {why} {scans:?} {by:?}", stored.id).unwrap();
            })
            .unwrap();
        text
    }

    fn pass(&self, hours: u64) {
        self.clock.advance(Duration::from_secs(hours * 3600));
    }
}

#[tokio::test]
async fn leaks_of_a_trim_an_unsubscribe_and_a_deletion() {
    let stage = Stage::new().await;
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
    let stage = Stage::new().await;
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

/// A broker dies in the deletion of a topic, and the topic, whose node is empty, gets an old list back.
#[tokio::test]
async fn an_owner_that_comes_back_is_not_gone() {
    let stage = Stage::new().await;
    for id in 1..=3 {
        stage.ledger_of(id, TOPIC).await;
    }
    stage.list(TOPIC, &[2, 3]).await;
    stage.scan().await;
    stage.list(TOPIC, &[]).await;
    stage.pass(8 * 24);
    insta::assert_snapshot!(stage.scan().await, @r"
    1 r4: its namespace is there, or that is not known
    2 r2: its owner has to be absent in more scans, further apart
    3 r2: its owner has to be absent in more scans, further apart
    ");
    stage.list(TOPIC, &[1]).await;
    for _ in 0..3 {
        stage.pass(25);
        stage.scan().await;
    }
    insta::assert_snapshot!(stage.told(), @r"
    2 r3: deletable
    3 r3: deletable
    ");
}

#[tokio::test]
async fn namespaces_that_are_kept_elsewhere_are_not_gone() {
    let stage = Stage::new().await;
    stage
        .ledger_of(1, "/managed-ledgers/t/n/persistent/x")
        .await;
    for _ in 0..4 {
        stage.pass(24 * 4);
        stage.scan().await;
    }
    insta::assert_snapshot!(stage.told(), @"1 r4: deletable");
    // With a configuration store of its own.
    for path in [
        "/admin/policies/public/default",
        "/admin/policies/public",
        "/admin/policies",
    ] {
        stage.store.delete(path, None).await.unwrap();
    }
    stage.pass(1);
    insta::assert_snapshot!(stage.scan().await, @"1 r4: its namespace is there, or that is not known");
}

/// As one that another machine deleted and an undo there brought back.
#[tokio::test]
async fn what_is_made_again_is_another_ledger() {
    let stage = Stage::new().await;
    let other = "/managed-ledgers/public/default/persistent/other";
    stage.list(TOPIC, &[1, 3]).await;
    stage.list(other, &[2]).await;
    for id in 1..=3 {
        stage.ledger_of(id, TOPIC).await;
    }
    stage.scan().await;
    stage.list(TOPIC, &[3]).await;
    stage.store.delete(other, None).await.unwrap();
    for id in 1..=2 {
        stage.store.delete(&path_of(id), None).await.unwrap();
        stage.ledger_of(id, TOPIC).await;
    }
    for _ in 0..3 {
        stage.pass(2);
        let told = stage.scan().await;
        assert!(
            told.starts_with("1 r3: ") && told.contains("\n2 r3: "),
            "{told}"
        );
    }
}
