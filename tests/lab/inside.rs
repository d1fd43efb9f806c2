//! Reading inside ledgers of real bookies that BookKeeper's own client wrote: bytes, ends, lists of entries, and a
//! writer that does not notice.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use dirkeeper::clock::Clock;
use dirkeeper::cluster::bookie::{Bookies, Held, Limits};
use dirkeeper::cluster::ledger::{DigestType, Layout, LedgerMetadata, LedgerState};
use dirkeeper::cluster::store::{Link, MetaStore};
use dirkeeper::cluster::{Servers, ZooKeeper};
use dirkeeper::reclaim::inside::{Entries, Inside};
use serde_json::Value;

use crate::harness::bench::Bench;
use crate::harness::run::try_command;
use crate::stand::lab::{Lab, STANDARD, Setup};
use crate::stand::load::Load;

/// A JVM that writes some ledgers.
const WRITE_LIMIT: Duration = Duration::from_secs(90);

/// An entry is added every 100 ms.
const MOVE_LIMIT: Duration = Duration::from_secs(30);

/// Entries of each ledger, and bytes of each: not a multiple of eight, which the last word of a sum would hide.
const ENTRIES: u64 = 20;
const SIZE: usize = 301;

/// As `BkLoad` calls them, and as metadata does.
const DIGESTS: [(&str, DigestType); 4] = [
    ("CRC32", DigestType::Crc32),
    ("CRC32C", DigestType::Crc32c),
    ("MAC", DigestType::Hmac),
    ("DUMMY", DigestType::Dummy),
];

pub(crate) fn ledgers_4_17_3(bench: &Bench) {
    ledgers(bench, STANDARD, None);
}

/// The oldest that is supported.
pub(crate) fn ledgers_4_14_7(bench: &Bench) {
    ledgers(bench, "4.14.7", None);
}

/// The storage that Pulsar uses.
pub(crate) fn ledgers_db(bench: &Bench) {
    let storage = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage";
    ledgers(
        bench,
        STANDARD,
        Some(&format!("ledgerStorageClass={storage}")),
    );
}

/// A ledger that was written, and how.
struct Written {
    id: u64,
    is_closed: bool,
    digest: DigestType,
}

fn ledgers(bench: &Bench, version: &str, line: Option<&str>) {
    let setup = Setup::new(bench).bookies(3).version(version);
    let lab = match line {
        Some(line) => setup.conf(line).up(),
        None => setup.up(),
    };
    let mut all = Vec::new();
    for (name, digest) in DIGESTS {
        all.extend(write(&lab, name, digest));
    }
    run(async {
        let look = Look::new(&lab).await;
        for ledger in &all {
            look.whole(ledger).await;
        }
        look.nothing(1000).await;
        match line {
            None => look.lists(&all).await,
            Some(_) => look.no_list(&all[0]).await,
        }
    });
    writer(bench, &lab);
    // Each entry has another copy.
    lab.bookie(2).stop("KILL");
    run(async {
        let look = Look::new(&lab).await;
        for ledger in &all {
            look.entries(ledger, &look.metadata(ledger.id).await).await;
        }
        let dead = lab.bookie(2).id();
        let held = look.inside.entries_held(&dead, all[0].id).await;
        assert!(held.is_err(), "a dead bookie is no empty one");
    });
}

/// The end moves with a writer, and the writer goes on.
fn writer(bench: &Bench, lab: &Lab) {
    let words = "--ledgers 1 --open 1 --entries 2 --size 100 --hold 600 --interval 100";
    let words: Vec<_> = words.split(' ').collect();
    let writer = Load::start(bench, lab, &words);
    writer.wait_ledgers(1);
    let told = std::fs::read_to_string(writer.written()).expect("it is there");
    let line = told.lines().next().expect("it was waited for");
    let line: Value = serde_json::from_str(line).expect("it writes JSON");
    let id = line["ledger"].as_u64().expect("a ledger has a number");
    run(async {
        let look = Look::new(lab).await;
        look.moves(id).await;
        assert_eq!(look.metadata(id).await.state, LedgerState::Open);
    });
    assert_eq!(writer.lost(), 0);
}

/// Nothing in it may block: the session with ZooKeeper lives on the same thread.
fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(work)
}

/// Two ledgers, the second left open by a writer that died.
fn write(lab: &Lab, name: &str, digest: DigestType) -> Vec<Written> {
    let words = format!(
        "--ledgers 2 --open 1 --entries {ENTRIES} --size {SIZE} --window 1 --threads 1 --digest {name}"
    );
    let words: Vec<_> = words.split(' ').collect();
    let told = try_command(lab.command("load", &words), WRITE_LIMIT);
    let told = told.unwrap_or_else(|problem| panic!("{problem}"));
    let lines: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).expect("it writes JSON"))
        .collect();
    assert_eq!(lines.len(), 2, "{told}");
    let written = |line: &Value| Written {
        id: line["ledger"].as_u64().expect("a ledger has a number"),
        is_closed: line["state"] == "closed",
        digest,
    };
    lines.iter().map(written).collect()
}

struct Look {
    store: Arc<ZooKeeper>,
    inside: Inside,
    bookies: Bookies,
}

impl Look {
    async fn new(lab: &Lab) -> Look {
        let servers = Servers {
            servers: vec![lab.zookeeper()],
            digest: None,
            tls: None,
        };
        let store = Arc::new(ZooKeeper::start(servers, Clock::start()));
        let mut link = store.link();
        let there = link.wait_for(|link| matches!(link, Link::Connected(_)));
        let there = tokio::time::timeout(MOVE_LIMIT, there).await;
        assert!(there.is_ok(), "no session within {MOVE_LIMIT:?}");
        let bookies = || {
            let limits = Limits::default();
            Bookies::new(store.clone(), "/ledgers", Clock::start(), limits)
        };
        Look {
            inside: Inside::new(bookies()),
            bookies: bookies(),
            store,
        }
    }

    async fn metadata(&self, ledger: u64) -> LedgerMetadata {
        let read = async |path: &str| self.store.get(path).await.expect("the node is there").0;
        let layout = Layout::parse(&read("/ledgers/LAYOUT").await).expect("a known layout");
        let path = layout.path(ledger).expect("a ledger's id");
        let bytes = read(&format!("/ledgers/{path}")).await;
        LedgerMetadata::decode(&bytes).expect("it is understood")
    }

    /// Everything about a ledger that nobody writes any more.
    async fn whole(&self, ledger: &Written) {
        let metadata = self.metadata(ledger.id).await;
        assert_eq!(metadata.digest, Some(ledger.digest));
        self.entries(ledger, &metadata).await;
        let Look { inside, .. } = self;
        let last = inside.last_entry(ledger.id, &metadata).await;
        assert_eq!(last, Ok(Some(ENTRIES - 1)), "{:?}", ledger.digest);
        // The last of an open ledger was acknowledged, and no later one says so.
        let count = i64::try_from(ENTRIES).expect("a small number");
        let confirmed = inside.last_add_confirmed(ledger.id, &metadata).await;
        let wanted = count - if ledger.is_closed { 1 } else { 2 };
        assert_eq!(confirmed, Ok(wanted), "{:?}", ledger.digest);
        let end = inside
            .end(ledger.id, &metadata)
            .await
            .expect("all bookies answer");
        assert_eq!(end.last(), Some(&payload(ledger.id, ENTRIES - 1)));
        assert_eq!(end.len(), if ledger.is_closed { 1 } else { 2 });
        for member in metadata.bookies() {
            let space = self.bookies.get(member).space().await.expect("it answers");
            assert!(0 < space.free && space.free <= space.total, "{space:?}");
        }
        let after = self.metadata(ledger.id).await;
        assert_eq!(after, metadata, "reading changed the ledger");
        assert_eq!(after.state == LedgerState::Closed, ledger.is_closed);
    }

    /// Every entry, byte for byte, and none behind the last.
    async fn entries(&self, ledger: &Written, metadata: &LedgerMetadata) {
        for entry in 0..ENTRIES {
            let read = self.inside.read(ledger.id, metadata, entry).await;
            let wanted = payload(ledger.id, entry);
            assert_eq!(read, Ok(Some(wanted)), "{:?} {entry}", ledger.digest);
        }
    }

    /// Which entries each bookie has, and that it has none of a ledger that never was.
    async fn lists(&self, all: &[Written]) {
        for ledger in all {
            let metadata = self.metadata(ledger.id).await;
            for member in metadata.bookies() {
                let held = self.inside.entries_held(member, ledger.id).await;
                let held = held.expect("it answers");
                let wrong = (0..ENTRIES + 3).find(|entry| {
                    let has = *entry < ENTRIES && metadata.write_set(*entry).contains(&member);
                    has != held.contains(*entry)
                });
                assert_eq!(wrong, None, "{held:?}");
                let held = self.inside.entries_held(member, 1000).await;
                assert!(held.as_ref().is_ok_and(Held::is_empty), "{held:?}");
            }
        }
    }

    /// Bookies with Pulsar's storage do not answer that, and answer everything else as before.
    async fn no_list(&self, ledger: &Written) {
        let metadata = self.metadata(ledger.id).await;
        let member = &metadata.segments[0].members[0];
        let held = self.inside.entries_held(member, ledger.id).await;
        assert!(held.is_err(), "{held:?}: it can tell now");
        self.entries(ledger, &metadata).await;
    }

    /// What bookies say of a ledger that never was.
    async fn nothing(&self, ledger: u64) {
        let mut metadata = self.metadata(0).await;
        metadata.state = LedgerState::Open;
        metadata.last_entry = None;
        let Look { inside, .. } = self;
        assert_eq!(inside.read(ledger, &metadata, 0).await, Ok(None));
        assert_eq!(inside.last_entry(ledger, &metadata).await, Ok(None));
        assert_eq!(inside.last_add_confirmed(ledger, &metadata).await, Ok(-1));
        for member in metadata.bookies() {
            let bookie = self.bookies.get(member);
            // The entry after the last of a ledger that is there.
            let absent = bookie
                .read_entry(0, ENTRIES)
                .await
                .expect_err("it is not there");
            assert!(absent.is_absent(), "{absent}");
            let after = bookie.read_after(0, -1).await.expect("it answers");
            assert!(0 <= after.confirmed, "{after:?}");
        }
    }

    /// The end of this ledger moves on.
    async fn moves(&self, id: u64) {
        let metadata = self.metadata(id).await;
        let mut ends = Vec::new();
        let moved = async {
            while ends.len() < 3 {
                let confirmed = self.inside.last_add_confirmed(id, &metadata).await;
                let confirmed = confirmed.expect("all bookies answer");
                if ends.last() < Some(&confirmed) {
                    ends.push(confirmed);
                }
            }
        };
        let done = tokio::time::timeout(MOVE_LIMIT, moved).await;
        assert!(done.is_ok(), "the end stands still at {ends:?}");
    }
}

/// What `BkLoad` writes.
fn payload(ledger: u64, entry: u64) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64
        .wrapping_add(ledger.wrapping_mul(0xD1B5_4A32_D192_ED03))
        .wrapping_add(entry.wrapping_mul(0x8CB9_2BA7_2F3D_8DD7));
    let mut bytes = Vec::new();
    while bytes.len() < SIZE {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bytes.extend((word ^ (word >> 31)).to_le_bytes());
    }
    bytes.truncate(SIZE);
    bytes
}
