//! A cluster for tests: a store in memory, bookies on ports of their own, ledgers whose entries are known, and a judge who
//! knows nothing of the worker: whatever happens, each entry is on enough bookies of those that its metadata names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use prost::Message;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::cluster::bookie::fake::Fake;
use crate::cluster::bookie::{Bookies, Digest, Limits as BookieLimits};
use crate::cluster::ledger::{DigestType, Layout, LedgerMetadata, LedgerState};
use crate::cluster::memory::{Memory, MemorySession};
use crate::cluster::store::{Kind, MetaStore, create_with_parents};
use crate::drain::failpoint::Failpoints;
use crate::drain::job::{Job, Jobs, Limits, New, Tasks, fill};
use crate::drain::plan::place::Target;
use crate::drain::worker::{MEMORY, Outcome, Progress, Worker, run};

/// A run on two busy processors may take this long before it counts as stuck.
pub(super) const STUCK: Duration = Duration::from_secs(120);

pub(super) const PASSWORD: &[u8] = b"secret";

/// A ledger that is to be made.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) id: u64,
    pub(super) state: LedgerState,
    pub(super) quorums: (u32, u32, u32),
    /// First entries and the places of bookies in the world.
    pub(super) segments: Vec<(u64, Vec<usize>)>,
    /// Entries that were written.
    pub(super) sizes: Vec<usize>,
}

impl Shape {
    /// One closed segment of 3, 2, 2 from bookie 0 on.
    pub(super) fn simple(id: u64, sizes: &[usize]) -> Shape {
        Shape {
            id,
            state: LedgerState::Closed,
            quorums: (3, 2, 2),
            segments: vec![(0, vec![0, 2, 3])],
            sizes: sizes.to_vec(),
        }
    }
}

/// One as it is known to be.
struct Known {
    bytes: Vec<u8>,
    entries: BTreeMap<u64, Vec<u8>>,
    /// Replicas that there were of each entry at first.
    before: BTreeMap<u64, usize>,
}

pub(super) struct World {
    pub(super) clock: Clock,
    pub(super) server: Memory,
    pub(super) admin: Arc<MemorySession>,
    pub(super) bookies: Vec<Arc<Fake>>,
    pub(super) drained: BTreeSet<String>,
    pub(super) targets: watch::Sender<Arc<Vec<Target>>>,
    pub(super) limits: watch::Sender<Limits>,
    known: BTreeMap<u64, Known>,
    pub(super) job: Option<Job>,
}

#[derive(Clone, PartialEq, Message)]
struct Written {
    #[prost(int32, optional, tag = "1")]
    write_quorum: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    ensemble: Option<i32>,
    #[prost(int64, optional, tag = "3")]
    length: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    last: Option<i64>,
    #[prost(int32, optional, tag = "5")]
    state: Option<i32>,
    #[prost(message, repeated, tag = "6")]
    segments: Vec<WrittenSegment>,
    #[prost(int32, optional, tag = "7")]
    digest: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "8")]
    password: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "9")]
    ack_quorum: Option<i32>,
    /// Of a later BookKeeper.
    #[prost(string, optional, tag = "99")]
    later: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct WrittenSegment {
    #[prost(string, repeated, tag = "1")]
    members: Vec<String>,
    #[prost(int64, optional, tag = "2")]
    first: Option<i64>,
}

/// What a call to the store in memory comes to, which never waits.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("the store in memory waits"),
    }
}

pub(super) fn path_of(ledger: u64) -> String {
    format!("/ledgers/{}", Layout::Hierarchical.path(ledger).unwrap())
}

fn digest() -> Digest {
    Digest::new(DigestType::Crc32c, PASSWORD)
}

impl World {
    /// So many bookies, of which the first ones are to be emptied, and these ledgers.
    pub(super) async fn with(count: usize, drained: usize, shapes: &[Shape]) -> Arc<World> {
        let clock = Clock::start();
        let server = Memory::new(clock.clone());
        let admin = Arc::new(server.connect());
        let layout = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1";
        let layout = create_with_parents(&*admin, "/ledgers/LAYOUT", layout, Kind::Persistent);
        layout.await.unwrap();
        let mut bookies = Vec::new();
        for _ in 0..count {
            bookies.push(Arc::new(Fake::start().await));
        }
        let names = bookies.iter().take(drained).map(|one| one.id().to_owned());
        let drained: BTreeSet<_> = names.collect();
        let target = |one: &Arc<Fake>| Target {
            id: one.id().to_owned(),
            free: 1 << 40,
            total: 1 << 41,
            is_writable: !drained.contains(one.id()),
            ..Target::default()
        };
        let targets = Arc::new(bookies.iter().map(target).collect());
        let mut world = World {
            clock,
            server,
            admin,
            bookies,
            drained,
            targets: watch::Sender::new(targets),
            limits: watch::Sender::new(limits(0, 4)),
            known: BTreeMap::new(),
            job: None,
        };
        for shape in shapes {
            world.make(shape).await;
        }
        world.begin().await;
        Arc::new(world)
    }

    async fn make(&mut self, shape: &Shape) {
        let (ensemble, write_quorum, ack_quorum) = shape.quorums;
        let mut length = 0;
        let ids: Vec<Vec<&str>> = shape
            .segments
            .iter()
            .map(|(_, places)| {
                places
                    .iter()
                    .map(|place| self.bookies[*place].id())
                    .collect()
            })
            .collect();
        let mut entries = BTreeMap::new();
        for (id, size) in shape.sizes.iter().enumerate() {
            let id = id as u64;
            let payload: Vec<u8> = (0..*size).map(|at| (at as u64 * 7 + id) as u8).collect();
            let confirmed = id as i64 - 1;
            let raw = digest().seal(shape.id, id, confirmed, &payload);
            length += *size as i64;
            let segment = shape.segments.iter().rposition(|(first, _)| *first <= id);
            let places = &shape.segments[segment.unwrap()].1;
            for copy in 0..u64::from(write_quorum) {
                let place = (id + copy) % u64::from(ensemble);
                self.bookies[places[place as usize]].put(shape.id, id, raw.clone());
            }
            entries.insert(id, raw);
        }
        let is_closed = shape.state == LedgerState::Closed;
        let written = Written {
            write_quorum: Some(write_quorum as i32),
            ensemble: Some(ensemble as i32),
            length: Some(if is_closed { length } else { 0 }),
            last: Some(if is_closed {
                shape.sizes.len() as i64 - 1
            } else {
                -1
            }),
            state: Some(match shape.state {
                LedgerState::Open => 1,
                LedgerState::InRecovery => 2,
                LedgerState::Closed => 3,
            }),
            segments: shape
                .segments
                .iter()
                .zip(ids)
                .map(|((first, _), ids)| WrittenSegment {
                    members: ids.into_iter().map(str::to_owned).collect(),
                    first: Some(*first as i64),
                })
                .collect(),
            digest: Some(3),
            password: Some(PASSWORD.to_vec()),
            ack_quorum: Some(ack_quorum as i32),
            later: Some("kept as it is".to_owned()),
        };
        let mut bytes = b"BookieMetadataFormatVersion\t3\n".to_vec();
        bytes.extend(written.encode_length_delimited_to_vec());
        LedgerMetadata::decode(&bytes).expect("the shape cannot be");
        let path = path_of(shape.id);
        create_with_parents(&*self.admin, &path, &bytes, Kind::Persistent)
            .await
            .unwrap();
        let metadata = LedgerMetadata::decode(&bytes).unwrap();
        let mut known = Known {
            bytes,
            entries,
            before: BTreeMap::new(),
        };
        for id in known.entries.keys() {
            let count = self.replicas(shape.id, &metadata, *id, &known).len();
            known.before.insert(*id, count);
        }
        self.known.insert(shape.id, known);
    }

    /// The job, with all its tasks.
    async fn begin(&mut self) {
        let new = New {
            bookies: self.drained.clone(),
            ..New::default()
        };
        let jobs = self.jobs(self.admin.clone());
        let job = jobs
            .create(&new, &self.limits.borrow().clone())
            .await
            .unwrap();
        let tasks = jobs.tasks(&job.id);
        let (progress, _) = watch::channel(Default::default());
        let store = &*self.admin;
        fill(&tasks, store, "/ledgers", &self.drained, &progress)
            .await
            .unwrap();
        jobs.started(&job.id).await.unwrap();
        self.job = Some(jobs.get(&job.id).await.unwrap());
    }

    pub(super) fn jobs(&self, store: Arc<dyn MetaStore>) -> Jobs {
        Jobs::open(store, "/dirkeeper", "an-id")
    }

    pub(super) fn tasks(&self) -> Tasks {
        self.jobs(self.admin.clone())
            .tasks(&self.job.as_ref().unwrap().id)
    }

    pub(super) fn worker(&self, store: Arc<dyn MetaStore>) -> Worker {
        let limits = BookieLimits {
            answer: Duration::from_secs(3),
            rest: Duration::ZERO,
            waits: (Duration::from_millis(1), Duration::from_millis(2)),
            in_flight: 256,
            ..BookieLimits::default()
        };
        let bookies = Bookies::new(self.admin.clone(), "/ledgers", self.clock.clone(), limits);
        Worker {
            jobs: self.jobs(Arc::clone(&store)),
            store,
            ledgers_root: "/ledgers".to_owned(),
            layout: Layout::Hierarchical,
            bookies: Arc::new(bookies),
            clock: self.clock.clone(),
            targets: self.targets.subscribe(),
            limits: self.limits.subscribe(),
            secret: None,
            verify_all: false,
            until_waiting: true,
            memory: MEMORY,
            name: format!("w-{:x}", fastrand::u32(..)),
            host: "here".to_owned(),
            pace: Box::new(|_| {}),
            failpoints: Failpoints::default(),
        }
    }

    /// Runs a worker to its end.
    pub(super) async fn run(&self, worker: Worker) -> Outcome {
        let progress = watch::Sender::new(Progress::default());
        let stop = std::future::pending();
        let ran = run(self.job.as_ref().unwrap(), worker, stop, &progress);
        let ran = timeout(STUCK, ran).await;
        ran.expect("the worker is stuck")
            .expect("the worker gave up")
    }

    /// An ordinary worker with a session of its own.
    pub(super) async fn finish(&self) -> Outcome {
        self.run(self.worker(Arc::new(self.server.connect()))).await
    }

    pub(super) fn metadata(&self, ledger: u64) -> Option<LedgerMetadata> {
        let (bytes, _) = now(self.admin.get(&path_of(ledger))).ok()?;
        Some(LedgerMetadata::decode(&bytes).unwrap())
    }

    fn bookie(&self, id: &str) -> Option<&Fake> {
        self.bookies
            .iter()
            .find(|one| one.id() == id)
            .map(|one| &**one)
    }

    /// Who of the write set has the entry, as it was written.
    fn replicas(
        &self,
        ledger: u64,
        metadata: &LedgerMetadata,
        entry: u64,
        known: &Known,
    ) -> Vec<String> {
        let mut segments = metadata.segments.iter();
        let segment = segments.rfind(|one| one.first_entry <= entry).unwrap();
        let size = segment.members.len() as u64;
        let copies = 0..u64::from(metadata.write_quorum);
        let named = copies.map(|copy| &segment.members[((entry + copy) % size) as usize]);
        let has = |id: &&String| {
            let held = self.bookie(id).map(|one| one.entries(ledger));
            held.is_some_and(|held| held.get(&entry) == known.entries.get(&entry))
        };
        named.filter(has).cloned().collect()
    }

    /// At every moment: distinct bookies, and each entry on as many of its write set as before.
    pub(super) fn judge(&self, when: &str) {
        for (ledger, known) in &self.known {
            let Some(metadata) = self.metadata(*ledger) else {
                continue;
            };
            for segment in &metadata.segments {
                let distinct: BTreeSet<_> = segment.members.iter().collect();
                assert_eq!(distinct.len(), segment.members.len(), "{when}: {ledger}");
            }
            for (entry, before) in &known.before {
                let there = self.replicas(*ledger, &metadata, *entry, known).len();
                let enough = (*before).min(metadata.write_quorum as usize);
                let what = format!("entry {entry} of ledger {ledger}");
                assert!(
                    enough <= there,
                    "{when}: {what} is on {there} and not {enough}"
                );
            }
        }
    }

    /// The end: nothing names the drained bookies in what is not open, only members differ, no lock is left.
    pub(super) fn judge_end(&self, when: &str, left_open: &[u64]) {
        self.judge(when);
        for (ledger, known) in &self.known {
            let Ok((bytes, _)) = now(self.admin.get(&path_of(*ledger))) else {
                continue;
            };
            assert_eq!(masked(&bytes), masked(&known.bytes), "{when}: {ledger}");
            let metadata = LedgerMetadata::decode(&bytes).unwrap();
            let before = LedgerMetadata::decode(&known.bytes).unwrap();
            for (at, (new, old)) in metadata.segments.iter().zip(&before.segments).enumerate() {
                let is_tail = left_open.contains(ledger) && at + 1 == before.segments.len();
                for (new, old) in new.members.iter().zip(&old.members) {
                    if is_tail || !self.drained.contains(old) {
                        assert_eq!(new, old, "{when}: {ledger}");
                    } else {
                        assert!(!self.drained.contains(new), "{when}: {ledger} names {new}");
                    }
                }
            }
        }
        let left = now(self.tasks().count()).unwrap();
        assert_eq!(left, left_open.len() as u64, "{when}: tasks");
        assert_eq!(self.locks(), Vec::<String>::new(), "{when}: locks");
    }

    pub(super) fn locks(&self) -> Vec<String> {
        let locks = now(self.admin.children("/ledgers/underreplication/locks"));
        locks.unwrap_or_default()
    }

    /// The over-replicated pass of all bookies: they forget closed ledgers that do not name them and are not locked.
    pub(super) fn pass(&self) {
        let locks = self.locks();
        for ledger in self.known.keys() {
            let Some(metadata) = self.metadata(*ledger) else {
                continue;
            };
            let is_locked = locks.contains(&format!("urL{ledger:010}"));
            if is_locked || metadata.state != LedgerState::Closed {
                continue;
            }
            for one in &self.bookies {
                if !metadata.bookies().contains(one.id()) {
                    one.forget(*ledger);
                }
            }
        }
    }

    /// What was written of a ledger.
    pub(super) fn raw(&self, ledger: u64, entry: u64) -> Vec<u8> {
        self.known[&ledger].entries[&entry].clone()
    }
}

pub(super) fn limits(max_bytes_per_second: u64, workers: u32) -> Limits {
    Limits {
        max_bytes_per_second,
        max_requests_per_second: 0,
        workers,
    }
}

/// Without the ids of bookies, which all have as many digits.
fn masked(bytes: &[u8]) -> Vec<u8> {
    const HOST: &[u8] = b"127.0.0.1:";
    let mut masked = bytes.to_vec();
    for at in 0..bytes.len() {
        if bytes[at..].starts_with(HOST) {
            masked[at + HOST.len()..][..5].fill(b'*');
        }
    }
    masked
}
