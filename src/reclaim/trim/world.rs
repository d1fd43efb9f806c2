//! A small Pulsar cluster for tests: metadata in memory, and brokers over real HTTP that load, trim and unload as was
//! measured of real ones. A topic's ledgers of ten entries are closed an hour apart.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use prost::Message;
use tokio::sync::Notify;

use super::lock;
use crate::clock::Clock;
use crate::cluster::broker::stub::{Asked, Stub, said, sent_on};
use crate::cluster::ledger::Layout;
use crate::cluster::memory::{Memory, MemorySession};
use crate::cluster::store::{Kind, MetaStore, create_with_parents};

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    ledgers: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(int64, optional, tag = "1")]
    id: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    entries: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    size: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    timestamp: Option<i64>,
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

/// Bytes of each ledger that is not empty.
pub(super) const SIZE: i64 = 1000;

#[derive(Debug, Clone, Copy)]
struct Ledger {
    id: i64,
    entries: i64,
    /// 0 of the last one, until the topic is loaded.
    closed: i64,
}

#[derive(Debug, Default)]
pub(super) struct Topic {
    list: Vec<Ledger>,
    /// Mark-delete positions.
    cursors: BTreeMap<String, (i64, i64)>,
    owner: usize,
    pub(super) loaded: bool,
    pub(super) producers: usize,
}

type Hook = Box<dyn Fn(&mut Inner) + Send>;

#[derive(Default)]
pub(super) struct Inner {
    pub(super) topics: BTreeMap<String, Topic>,
    /// Minutes, megabytes, seconds to live.
    pub(super) policy: (i64, i64, i64),
    /// All that was asked but for what loads nothing.
    pub(super) log: Vec<String>,
    /// What is answered to lines that end so, instead of being done.
    pub(super) instead: BTreeMap<&'static str, String>,
    /// A line that ends so is not answered; done before that, or not.
    pub(super) held: Option<(&'static str, bool)>,
    /// Happens when a topic is trimmed.
    pub(super) on_trim: Option<Hook>,
    /// So long a question about a topic's list takes.
    pub(super) slow: Duration,
    pub(super) brokers: Vec<Stub>,
    next: i64,
}

pub(super) struct World {
    pub(super) clock: Clock,
    pub(super) server: Memory,
    store: MemorySession,
    pub(super) inner: Mutex<Inner>,
    pub(super) reached: Notify,
}

/// What the store in memory answers, which it does at once.
fn now<T>(answer: impl Future<Output = T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the store in memory made somebody wait"),
    }
}

impl World {
    pub(super) async fn start(brokers: usize) -> Arc<World> {
        let clock = Clock::manual();
        clock.advance(Duration::from_secs(100 * 3600));
        let server = Memory::new(clock.clone());
        let world = Arc::new(World {
            store: server.connect(),
            clock,
            server,
            inner: Mutex::default(),
            reached: Notify::new(),
        });
        let class = "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory";
        world.put("/ledgers/LAYOUT", format!("2\n{class}:1").as_bytes());
        world.put("/managed-ledgers", b"");
        for number in 0..brokers {
            let handler = Arc::downgrade(&world);
            let stub = Stub::start(move |asked| handler.upgrade()?.answer(number, &asked)).await;
            lock(&world.inner).brokers.push(stub);
        }
        world.keep(1, -1, 0);
        world
    }

    /// Sets the policies of the namespace.
    pub(super) fn keep(&self, minutes: i64, megabytes: i64, ttl: i64) {
        lock(&self.inner).policy = (minutes, megabytes, ttl);
        let policies = serde_json::json!({
            "retention_policies": {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes},
            "message_ttl_in_seconds": ttl,
        });
        self.put(
            "/admin/policies/public/default",
            policies.to_string().as_bytes(),
        );
    }

    fn put(&self, path: &str, data: &[u8]) {
        if now(self.store.set(path, data, None)).is_err() {
            now(create_with_parents(
                &self.store,
                path,
                data,
                Kind::Persistent,
            ))
            .unwrap();
        }
    }

    pub(super) fn ledger(&self, id: i64, entries: i64) {
        let length = if entries == 0 { 0 } else { SIZE };
        let last = entries - 1;
        let text = format!(
            "BookieMetadataFormatVersion\t2\nquorumSize: 1\nensembleSize: 1\nlength: {length}\nlastEntryId: {last}\nstate: CLOSED\n\
             segment {{ ensembleMember: \"b:1\" firstEntryId: 0 }}\n"
        );
        let path = Layout::Hierarchical.path(id.unsigned_abs()).unwrap();
        self.put(&format!("/ledgers/{path}"), text.as_bytes());
    }

    /// A topic with so many full ledgers, and a last one that is not listed as closed, all written hours ago.
    pub(super) fn topic(&self, name: &str, full: i64, owner: usize, cursors: &[(&str, i64, i64)]) {
        let mut inner = lock(&self.inner);
        let first = inner.next + 1;
        inner.next += full + 1;
        let time = self.clock.now().wall.0;
        let ledger = |at: i64| Ledger {
            id: first + at,
            entries: 10,
            closed: if at == full {
                0
            } else {
                time - 3_600_000 * (full - at)
            },
        };
        let topic = Topic {
            list: (0..=full).map(ledger).collect(),
            cursors: cursors
                .iter()
                .map(|(name, ledger, entry)| ((*name).to_owned(), (first + ledger, *entry)))
                .collect(),
            owner,
            ..Topic::default()
        };
        for ledger in &topic.list {
            self.ledger(ledger.id, 10);
        }
        self.write(name, &topic);
        inner.topics.insert(name.to_owned(), topic);
    }

    fn write(&self, name: &str, topic: &Topic) {
        let node = format!("/managed-ledgers/public/default/persistent/{name}");
        let last = topic.list.len().saturating_sub(1);
        let entry = |(at, ledger): (usize, &Ledger)| {
            let listed = at < last || 0 < ledger.closed;
            Entry {
                id: Some(ledger.id),
                entries: listed.then_some(ledger.entries),
                size: listed.then_some(SIZE),
                timestamp: Some(ledger.closed),
            }
        };
        let ledgers = topic.list.iter().enumerate().map(entry).collect();
        self.put(&node, &List { ledgers }.encode_to_vec());
        for (cursor, (ledger, entry)) in &topic.cursors {
            let data = Cursor {
                ledger: Some(-1),
                mark_ledger: Some(*ledger),
                mark_entry: Some(*entry),
            };
            self.put(&format!("{node}/{cursor}"), &data.encode_to_vec());
        }
    }

    pub(super) fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Topics with the ledgers of their lists, `*` for those that are loaded.
    pub(super) fn told(&self) -> String {
        let inner = lock(&self.inner);
        let topics = inner.topics.iter().map(|(name, topic)| {
            let list = topic.list.iter().map(|ledger| match ledger.entries {
                0 => "empty".to_owned(),
                _ => ledger.id.to_string(),
            });
            let loaded = if topic.loaded { "*" } else { "" };
            format!("{name}{loaded}: {}", list.collect::<Vec<_>>().join(" "))
        });
        topics.collect::<Vec<_>>().join("\n")
    }

    fn answer(&self, number: usize, asked: &Asked) -> Option<String> {
        let mut inner = lock(&self.inner);
        let line = asked.line.as_str();
        let held = inner.held.filter(|(end, _)| line.ends_with(end));
        if let Some((_, false)) = held {
            self.reached.notify_one();
            return None;
        }
        let instead = inner.instead.iter().find(|(end, _)| line.ends_with(*end));
        if let Some((_, instead)) = instead {
            return Some(instead.clone());
        }
        let answer = self.done(&mut inner, number, line);
        if held.is_some() {
            self.reached.notify_one();
            return None;
        }
        Some(answer)
    }

    fn done(&self, inner: &mut Inner, number: usize, line: &str) -> String {
        let (verb, path) = line.split_once(' ').unwrap();
        let (path, _) = path.split_once('?').unwrap_or((path, ""));
        match path {
            "/admin/v2/clusters" => return said(200, r#"["lab"]"#),
            "/admin/v2/brokers/lab" => {
                let ids: Vec<_> = inner.brokers.iter().map(Stub::id).collect();
                return said(200, &serde_json::to_string(&ids).unwrap());
            }
            "/metrics/" => {
                let here = inner
                    .topics
                    .iter()
                    .filter(|(_, t)| t.loaded && t.owner == number);
                let lines = here.map(|(name, _)| {
                    format!(
                        "pulsar_producers_count{{topic=\"persistent://public/default/{name}\"}} 0\n"
                    )
                });
                return said(200, &format!("up{{}} 1\n{}", lines.collect::<String>()));
            }
            _ => {}
        }
        let below = path
            .strip_prefix("/admin/v2/persistent/public/default/")
            .unwrap();
        let (name, call) = below.split_once('/').unwrap();
        let (minutes, megabytes, ttl) = inner.policy;
        match call {
            "retention" => {
                return said(
                    200,
                    &format!(
                        "{{\"retentionTimeInMinutes\":{minutes},\"retentionSizeInMB\":{megabytes}}}"
                    ),
                );
            }
            "messageTTL" => return said(200, &ttl.to_string()),
            "internal-info" => {
                self.clock.advance(inner.slow);
                return info(inner.topics.get(name));
            }
            _ => {}
        }
        let owner = inner.topics.get(name).map(|topic| topic.owner);
        let Some(owner) = owner else {
            return said(404, r#"{"reason":"Topic not found"}"#);
        };
        if owner != number {
            let to = inner.brokers[owner].url();
            return sent_on(&format!("{to}{}?authoritative=false", &path[1..]));
        }
        inner.log.push(format!("{verb} {below}"));
        let mut topic = inner.topics.remove(name).unwrap();
        self.load(inner, &mut topic);
        let answer = self.ordered(inner, &mut topic, call);
        self.write(name, &topic);
        inner.topics.insert(name.to_owned(), topic);
        if let Some(hook) = inner.on_trim.take_if(|_| call == "trim") {
            hook(inner);
            inner.on_trim = Some(hook);
        }
        answer
    }

    /// The last ledger is closed now, if it is not empty; another one is made.
    fn load(&self, inner: &mut Inner, topic: &mut Topic) {
        if topic.loaded {
            return;
        }
        topic.loaded = true;
        let time = self.clock.now().wall.0;
        topic.list.retain(|ledger| 0 < ledger.entries);
        if let Some(last) = topic.list.last_mut().filter(|last| last.closed == 0) {
            last.closed = time;
        }
        inner.next += 1;
        topic.list.push(Ledger {
            id: inner.next,
            entries: 0,
            closed: 0,
        });
        self.ledger(inner.next, 0);
    }

    fn ordered(&self, inner: &mut Inner, topic: &mut Topic, call: &str) -> String {
        let time = self.clock.now().wall.0;
        match call.split('/').next().unwrap() {
            "stats" => {
                let producers = vec!["{}"; topic.producers].join(",");
                said(
                    200,
                    &format!("{{\"publishers\":[{producers}],\"subscriptions\":{{}}}}"),
                )
            }
            "unload" => {
                topic.loaded = false;
                said(204, "")
            }
            "trim" => {
                trimmed(topic, inner.policy, time);
                said(200, "")
            }
            "all_subscription" => {
                let seconds: i64 = call.rsplit_once('/').unwrap().1.parse().unwrap();
                let old =
                    |ledger: &&Ledger| 0 < ledger.closed && ledger.closed + seconds * 1000 < time;
                if let Some(last) = topic.list.iter().rfind(old) {
                    for position in topic.cursors.values_mut() {
                        *position = (*position).max((last.id, last.entries - 1));
                    }
                }
                said(204, "")
            }
            other => panic!("nobody should ask for {other}"),
        }
    }

    pub(super) fn loaded(&self) -> BTreeSet<String> {
        let inner = lock(&self.inner);
        let loaded = inner.topics.iter().filter(|(_, topic)| topic.loaded);
        loaded.map(|(name, _)| name.clone()).collect()
    }
}

fn info(topic: Option<&Topic>) -> String {
    let Some(topic) = topic else {
        return said(500, "<html>HTTP ERROR 500</html>");
    };
    let list = topic.list.iter().map(|ledger| match ledger.closed {
        0 => serde_json::json!({"ledgerId": ledger.id, "entries": 0, "size": 0, "timestamp": 1}),
        closed => serde_json::json!({
            "ledgerId": ledger.id, "entries": ledger.entries, "size": SIZE, "timestamp": closed,
        }),
    });
    let list: Vec<_> = list.collect();
    said(
        200,
        &serde_json::json!({"version": 1, "ledgers": list, "cursors": {}}).to_string(),
    )
}

/// `internalTrimLedgers`.
fn trimmed(topic: &mut Topic, (minutes, megabytes, _): (i64, i64, i64), time: i64) {
    let slowest = topic.cursors.values().min().copied();
    let before = slowest.map_or(i64::MAX, |(ledger, entry)| ledger + i64::from(entry == 9));
    let total = SIZE * i64::try_from(topic.list.len() - 1).unwrap();
    let mut taken = 0;
    let kept = topic.list.iter().position(|ledger| {
        taken += SIZE;
        let is_old = 0 <= minutes && minutes * 60_000 < time - ledger.closed;
        let is_over = 0 <= megabytes && megabytes << 20 <= total - taken;
        ledger.entries == 0 || before <= ledger.id || !(is_old || is_over)
    });
    topic.list.drain(..kept.unwrap());
}
