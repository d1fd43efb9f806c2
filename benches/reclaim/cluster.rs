//! A cluster that is computed from the path that is asked for, so that it needs no memory: as a store, and as a snapshot file
//! of ZooKeeper.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use dirkeeper::cluster::ledger::Layout;
use dirkeeper::cluster::store::{Answer, Changed, Kind, Link, MetaStore, Op, Stat, StoreError};
use prost::Message;
use tokio::sync::watch;

pub(crate) const LEDGERS: u64 = 1_000_000;
pub(crate) const TOPICS: u64 = LEDGERS / A_TOPIC;
const A_TOPIC: u64 = 10;
const A_NAMESPACE: u64 = 1000;

/// Before, or after some owners let ledgers go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    First,
    Later,
}

impl Time {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Time::First => "first",
            Time::Later => "later",
        }
    }

    pub(crate) fn of(self) -> i64 {
        match self {
            Time::First => 1_000_000_000_000,
            Time::Later => 1_000_100_000_000,
        }
    }

    /// Ledgers that were let go: half a list of one topic in twenty.
    pub(crate) fn let_go(self) -> u64 {
        match self {
            Time::First => 0,
            Time::Later => TOPICS / 20 * 5,
        }
    }
}

pub(crate) struct Generated {
    time: Time,
    calls: AtomicU64,
    link: watch::Sender<Link>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    quorum: i32,
    #[prost(int32, tag = "2")]
    ensemble: i32,
    #[prost(int64, optional, tag = "3")]
    length: Option<i64>,
    #[prost(int64, tag = "4")]
    last_entry: i64,
    #[prost(int32, tag = "5")]
    state: i32,
    #[prost(message, repeated, tag = "6")]
    segments: Vec<Segment>,
    #[prost(int32, tag = "7")]
    digest: i32,
    #[prost(bytes = "vec", optional, tag = "8")]
    password: Option<Vec<u8>>,
    #[prost(int32, tag = "9")]
    ack: i32,
    #[prost(message, repeated, tag = "11")]
    custom: Vec<Custom>,
}

#[derive(Clone, PartialEq, Message)]
struct Segment {
    #[prost(string, repeated, tag = "1")]
    members: Vec<String>,
    #[prost(int64, optional, tag = "2")]
    first: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Custom {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    ledgers: Vec<Listed>,
}

#[derive(Clone, PartialEq, Message)]
struct Listed {
    #[prost(int64, optional, tag = "1")]
    id: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    entries: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    size: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    closed: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Cursor {
    #[prost(int64, optional, tag = "1")]
    ledger: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    mark_ledger: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    mark_entry: Option<i64>,
}

/// A topic's path below `/managed-ledgers`.
fn topic_path(topic: u64) -> String {
    format!(
        "tenant/n{:03}/persistent/topic-{topic:06}",
        topic / A_NAMESPACE
    )
}

fn ledger(id: u64) -> Vec<u8> {
    let custom = |key: &str, value: &str| Custom {
        key: key.to_owned(),
        value: value.as_bytes().to_vec(),
    };
    let bookie = |number: u64| format!("bookie-{number}.example.org:3181");
    let metadata = Metadata {
        quorum: 2,
        ensemble: 2,
        length: Some(1_000_000),
        last_entry: 999,
        state: 3,
        segments: vec![Segment {
            members: vec![bookie(id % 30), bookie((id + 1) % 30)],
            first: Some(0),
        }],
        digest: 3,
        password: Some(Vec::new()),
        ack: 2,
        custom: vec![
            custom("application", "pulsar"),
            custom("component", "managed-ledger"),
            custom("pulsar/managed-ledger", &topic_path(id / A_TOPIC)),
        ],
    };
    let mut bytes = b"BookieMetadataFormatVersion\t3\n".to_vec();
    metadata
        .encode_length_delimited(&mut bytes)
        .expect("a vector grows");
    bytes
}

impl Generated {
    pub(crate) fn new(time: Time) -> Generated {
        Generated {
            time,
            calls: AtomicU64::new(0),
            link: watch::Sender::new(Link::Connected(1)),
        }
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Every second topic has a cursor, with a ledger of its own: the tenth; one in a hundred leaks it.
    fn topic(&self, topic: u64) -> (Vec<u8>, i32) {
        let moved_on = self.time == Time::Later && topic.is_multiple_of(20);
        let first = if moved_on { 5 } else { 0 };
        let last = if topic.is_multiple_of(2) || topic % 100 == 7 {
            9
        } else {
            10
        };
        let ids = (first..last).map(|number| topic * A_TOPIC + number);
        let ledgers = ids.map(|id| Listed {
            id: i64::try_from(id).ok(),
            entries: Some(1000),
            size: Some(1_000_000),
            closed: Some(900_000_000_000),
        });
        let ledgers = ledgers.collect();
        (List { ledgers }.encode_to_vec(), i32::from(moved_on))
    }

    fn node(&self, path: &str) -> Option<(Vec<u8>, i32, usize)> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let found = match parts[..] {
            ["ledgers", "LAYOUT"] => {
                let text = "2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1";
                (text.as_bytes().to_vec(), 0, 0)
            }
            ["ledgers", "INSTANCEID"] => (b"an-id".to_vec(), 0, 0),
            ["ledgers", ref rest @ ..] if rest.len() == 3 => {
                let id = Layout::Hierarchical.id(&rest.join("/"))?;
                (id < LEDGERS).then(|| (ledger(id), 0, 0))?
            }
            ["managed-ledgers", _, _, _, topic] => {
                let topic = topic.strip_prefix("topic-")?.parse().ok()?;
                let (data, version) = self.topic(topic);
                (data, version, usize::from(topic.is_multiple_of(2)))
            }
            ["managed-ledgers", _, _, _, topic, _] => {
                let topic: i64 = topic.strip_prefix("topic-")?.parse().ok()?;
                let cursor = Cursor {
                    ledger: Some(topic * 10 + 9),
                    mark_ledger: Some(topic * 10 + 3),
                    mark_entry: Some(7),
                };
                (cursor.encode_to_vec(), 0, 0)
            }
            _ => (Vec::new(), 0, self.names(path).len()),
        };
        Some(found)
    }

    fn names(&self, path: &str) -> Vec<String> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match parts[..] {
            [""] => words(&["ledgers", "managed-ledgers", "admin"]),
            ["ledgers"] => words(&["LAYOUT", "INSTANCEID", "00"]),
            ["ledgers", "00"] => (0..LEDGERS / 10_000)
                .map(|part| format!("{part:04}"))
                .collect(),
            ["ledgers", "00", _] => (0..10_000).map(|part| format!("L{part:04}")).collect(),
            ["managed-ledgers"] => words(&["tenant"]),
            ["admin"] => words(&["policies"]),
            ["admin", "policies"] => words(&["tenant"]),
            ["managed-ledgers", "tenant"] | ["admin", "policies", "tenant"] => (0..TOPICS
                / A_NAMESPACE)
                .map(|number| format!("n{number:03}"))
                .collect(),
            ["managed-ledgers", "tenant", _] => words(&["persistent"]),
            ["managed-ledgers", "tenant", namespace, "persistent"] => {
                let number = namespace[1..].parse::<u64>().unwrap_or(0);
                let topics = number * A_NAMESPACE..(number + 1) * A_NAMESPACE;
                topics.map(|topic| format!("topic-{topic:06}")).collect()
            }
            ["managed-ledgers", _, _, _, topic] => {
                let is_even = topic.bytes().last().is_some_and(|digit| digit % 2 == 0);
                if is_even {
                    words(&["subscription"])
                } else {
                    Vec::new()
                }
            }
            _ => Vec::new(),
        }
    }

    fn asked(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn found(&self, path: &str) -> Result<(Vec<u8>, Stat), StoreError> {
        let (data, version, children) = self.node(path).ok_or(StoreError::NoNode)?;
        let stat = Stat {
            version,
            created: 1,
            created_at: 900_000_000_000,
            modified: 900_000_000_000,
            children: u32::try_from(children).unwrap_or(u32::MAX),
            owner: None,
        };
        Ok((data, stat))
    }
}

fn refused<T>() -> Result<T, StoreError> {
    Err(StoreError::Other("it cannot be changed".to_owned()))
}

impl MetaStore for Generated {
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        Box::pin(async move {
            self.asked();
            self.found(path)
        })
    }
    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Stat>> {
        Box::pin(async move {
            self.asked();
            Ok(self.found(path).ok().map(|(_, stat)| stat))
        })
    }
    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            self.asked();
            Ok(self.names(path))
        })
    }
    fn create<'a>(&'a self, _: &'a str, _: &'a [u8], _: Kind) -> Answer<'a, Stat> {
        Box::pin(async { refused() })
    }
    fn set<'a>(&'a self, _: &'a str, _: &'a [u8], _: Option<i32>) -> Answer<'a, Stat> {
        Box::pin(async { refused() })
    }
    fn delete<'a>(&'a self, _: &'a str, _: Option<i32>) -> Answer<'a, ()> {
        Box::pin(async { refused() })
    }
    /// A look whether all that was written before is known.
    fn multi<'a>(&'a self, _: &'a [Op]) -> Answer<'a, ()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }
    fn watch<'a>(&'a self, _: &'a str) -> Answer<'a, (Option<Stat>, Changed)> {
        Box::pin(async { refused() })
    }
    fn watch_children<'a>(&'a self, _: &'a str) -> Answer<'a, (Vec<String>, Changed)> {
        Box::pin(async { refused() })
    }
    fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }
}

/// Writes and sums.
struct Summed {
    file: BufWriter<File>,
    sum: adler2::Adler32,
}

impl Summed {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.write_slice(bytes);
        self.file.write_all(bytes)
    }

    fn long(&mut self, value: i64) -> io::Result<()> {
        self.put(&value.to_be_bytes())
    }

    fn int(&mut self, value: i32) -> io::Result<()> {
        self.put(&value.to_be_bytes())
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.int(i32::try_from(bytes.len()).unwrap_or(i32::MAX))?;
        self.put(bytes)
    }

    /// A node and all below it (`DataTree.serializeNode`).
    fn tree(&mut self, of: &Generated, path: &str) -> io::Result<()> {
        let name = if path.is_empty() { "/" } else { path };
        let (data, stat) = of.found(name).map_err(io::Error::other)?;
        self.data(path.as_bytes())?;
        self.data(&data)?;
        self.long(-1)?;
        for time in [stat.created, stat.created, stat.created_at, stat.modified] {
            self.long(time)?;
        }
        for version in [stat.version, 0, 0] {
            self.int(version)?;
        }
        self.long(0)?;
        self.long(stat.created)?;
        for child in of.names(name) {
            self.tree(of, &format!("{path}/{child}"))?;
        }
        Ok(())
    }
}

/// The cluster as a snapshot file.
pub(crate) fn write(path: &Path, time: Time) -> io::Result<()> {
    let mut out = Summed {
        file: BufWriter::with_capacity(1 << 20, File::create(path)?),
        sum: adler2::Adler32::new(),
    };
    out.put(b"ZKSN")?;
    out.int(2)?;
    out.long(-1)?;
    // No session, no access list.
    out.int(0)?;
    out.int(0)?;
    out.tree(&Generated::new(time), "")?;
    out.data(b"/")?;
    let sum = i64::from(out.sum.checksum());
    out.long(sum)?;
    out.data(b"/")?;
    out.file.flush()
}
