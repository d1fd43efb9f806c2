//! A cluster to be drained, and what the real client says of it before, meanwhile and after: every entry, every replica,
//! all metadata, handles that are held and writers that go on. See `DrainLoad.java`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::lab::{Bookie, Lab, Setup};
use crate::harness::bench::Bench;
use crate::harness::run::{text, try_command, wait_exit, wait_for};

/// Small, as the cluster has it.
const HEAP: &str = "150m";

/// With the lab's 64 MB a bookie that is read from at full speed ends itself.
const DIRECT: &str = "192m";

/// Reading 6,000 entries of 160 MB takes 15 s on an idle machine.
const CLIENT_LIMIT: Duration = Duration::from_secs(600);

/// Longer than any session lives without its owner.
const LOCKED: Duration = Duration::from_secs(60);

/// Differences that are shown; there may be thousands.
const SHOWN: usize = 8;

const DB_STORAGE: &str =
    "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage";

/// A running cluster with short passes.
pub(crate) struct Stand<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) lab: Lab,
    count: usize,
}

/// An entry: ledger and number.
pub(crate) type At = (u64, i64);

/// Replicas of an entry that are good, and how many there should be.
pub(crate) type Replicas = BTreeMap<At, (u64, u64)>;

/// The metadata of one ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) state: String,
    pub(crate) last: i64,
    pub(crate) length: i64,
    /// What its creator made up, which a writer of BookKeeper's own loses when it changes an ensemble.
    token: i64,
    /// All else that a drain leaves as it is.
    pub(crate) rest: String,
    /// First entry and members of each fragment.
    pub(crate) fragments: Vec<(u64, Vec<String>)>,
}

impl Ledger {
    pub(crate) fn names(&self, ids: &[String]) -> bool {
        let mut members = self.fragments.iter().flat_map(|(_, members)| members);
        members.any(|member| ids.contains(member))
    }
}

impl<'a> Stand<'a> {
    /// So many bookies, those with odd numbers with the storage that Pulsar's have; each looks that often for ledgers of which
    /// it is no member any more.
    pub(crate) fn up(bench: &'a Bench, bookies: usize, pass: Duration) -> Stand<'a> {
        let mut setup = Setup::new(bench)
            .bookies(bookies)
            .memory(HEAP, DIRECT)
            .conf("gcWaitTime=2000")
            // What the repair could not do at once it tries again soon, instead of keeping it locked for minutes.
            .conf("rwRereplicateBackoffMs=500")
            .conf("lockReleaseOfFailedLedgerGracePeriod=5000")
            // How full the machine's own disk is says nothing here.
            .conf("diskUsageThreshold=0.99")
            .conf("diskUsageWarnThreshold=0.989")
            .conf(&format!(
                "gcOverreplicatedLedgerWaitTime={}",
                pass.as_millis()
            ));
        for bookie in (1..=bookies).step_by(2) {
            setup = setup.conf_of(bookie, DB_STORAGE);
        }
        Stand {
            bench,
            lab: setup.up(),
            count: bookies,
        }
    }

    pub(crate) fn bookie(&self, number: usize) -> Bookie<'_> {
        self.lab.bookie(number)
    }

    /// Ids of these bookies.
    pub(crate) fn ids(&self, numbers: &[usize]) -> Vec<String> {
        numbers.iter().map(|n| self.bookie(*n).id()).collect()
    }

    /// Pulsar's map of racks, for bookie 1, 2 and so on.
    pub(crate) fn set_racks(&self, racks: &[&str]) {
        let places = (1..).zip(racks).map(|(number, rack)| {
            let id = self.bookie(number).id();
            format!("{id:?}:{{\"rack\":{rack:?},\"hostname\":\"\"}}")
        });
        let map = format!(
            "{{\"default\":{{{}}}}}",
            places.collect::<Vec<_>>().join(",")
        );
        let made = self.lab.zk(&["create", "/bookies", &map]);
        assert!(made.is_some(), "the map of racks cannot be made");
    }

    /// The client, for a command that ends by itself; the last line it tells.
    fn client(&self, what: &str, words: &[&str]) -> String {
        let done = try_command(
            self.lab.command(&format!("drain-{what}"), words),
            CLIENT_LIMIT,
        );
        done.unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Ledgers of all kinds whose owner stays; so many of them stay open.
    pub(crate) fn make(&self, words: &[&str]) -> Client {
        let ports = (1..=self.count).map(|n| self.bookie(n).admin_port().to_string());
        let ports = ports.collect::<Vec<_>>().join(",");
        let words = [&["--admin", &ports, "--stay"], words].concat();
        let mut client = self.beside("make", &words);
        client.wait("made");
        client
    }

    /// Handles of all ledgers, and how many. They have read once, so that their client is connected to every bookie: one that is
    /// not may lose the address of a bookie for good when that becomes read-only (bookkeeper #4172).
    pub(crate) fn hold(&self, words: &[&str]) -> (Client, u64) {
        let mut client = self.beside("hold", words);
        let held = client.wait("held")["ledgers"].as_u64();
        client.order("read");
        (client, held.expect("a number"))
    }

    /// A client that goes on beside the test: `make`, `hold` or `write`.
    pub(crate) fn beside(&self, what: &str, words: &[&str]) -> Client {
        Client::start(self, what, words)
    }

    /// Every entry that the real client reads, with length and digest.
    pub(crate) fn entries(&self, name: &str) -> BTreeMap<At, String> {
        let file = self.bench.folder().join(name);
        let told = self.client("hash", &[text(&file)]);
        let told: Value = serde_json::from_str(&told).expect("the client tells JSON");
        let read = fs::read_to_string(&file).expect("the client wrote it");
        let bad: Vec<&str> = read.lines().filter(|line| line.contains('!')).collect();
        assert!(
            told["wrong"] == 0 && told["errors"] == 0,
            "{name}: {told}: {:#?}",
            &bad[..bad.len().min(SHOWN)]
        );
        let lines = read.lines().map(|line| {
            let (at, rest) = at(line);
            (at, rest.to_owned())
        });
        lines.collect()
    }

    /// What every bookie of every write set has.
    pub(crate) fn replicas(&self, name: &str) -> Replicas {
        let file = self.bench.folder().join(name);
        self.client("raw", &[text(&file)]);
        let read = fs::read_to_string(&file).expect("the client wrote it");
        let lines = read.lines().map(|line| {
            let (at, rest) = at(line);
            let mut counts = rest.split(' ').map(|count| count.parse().unwrap());
            (at, (counts.next().unwrap(), counts.next().unwrap()))
        });
        // What is wrong with a replica follows the counts.
        lines.collect()
    }

    /// All metadata, by the client's own reader.
    pub(crate) fn ledgers(&self) -> BTreeMap<u64, Ledger> {
        let told = self.client("members", &[]);
        let lines = told
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        lines.map(|line: Value| ledger(&line)).collect()
    }

    /// Waits until no ledger is locked: in their passes bookies lock some, too, each for a moment.
    pub(crate) fn wait_unlocked(&self) {
        let locked = |node: &String| node.starts_with("/ledgers/underreplication/locks/");
        wait_for("no ledger is locked", LOCKED, || {
            let nodes = self.lab.ephemerals()?;
            (!nodes.iter().any(locked)).then_some(())
        });
    }

    /// Passes for over-replicated ledgers that a bookie has ended.
    pub(crate) fn passes(&self, number: usize) -> usize {
        let bookie = self.bookie(number);
        let ended = ["Removed over-replicated", "No over-replicated"];
        ended.iter().map(|line| bookie.logged(line)).sum()
    }

    /// Waits for two whole passes that begin after now, of each storage of these bookies.
    pub(crate) fn wait_two_passes(&self, numbers: &[usize], limit: Duration) {
        // One that is under way now, and two more; the storage that Pulsar's have makes a pass for each of two folders.
        let wanted = |number| self.passes(number) + 3 * if number % 2 == 1 { 2 } else { 1 };
        let wanted: Vec<(usize, usize)> = numbers.iter().map(|n| (*n, wanted(*n))).collect();
        wait_for("two passes of the drained bookies", limit, || {
            let done = wanted.iter().all(|(n, count)| *count <= self.passes(*n));
            done.then_some(())
        });
    }
}

fn at(line: &str) -> (At, &str) {
    let mut words = line.splitn(3, ' ');
    let mut word = || words.next().expect("a line has three words and more");
    let (ledger, entry) = (word().parse(), word().parse());
    ((ledger.unwrap(), entry.unwrap()), word())
}

fn ledger(line: &Value) -> (u64, Ledger) {
    let word = |name: &str| line[name].as_str().expect("the line has it").to_owned();
    let number = |name: &str| line[name].as_i64().expect("the line has it");
    let fragments = line["ensembles"].as_array().expect("the line has it");
    let fragments = fragments.iter().map(|fragment| {
        let fragment = fragment.as_array().expect("first entry and members");
        let members = fragment[1..]
            .iter()
            .map(|id| id.as_str().unwrap().to_owned());
        (fragment[0].as_u64().unwrap(), members.collect())
    });
    let ledger = Ledger {
        state: word("state"),
        last: number("last"),
        length: number("length"),
        token: number("token"),
        rest: word("rest"),
        fragments: fragments.collect(),
    };
    (line["ledger"].as_u64().unwrap(), ledger)
}

/// Every entry of before is there and the same.
pub(crate) fn assert_same_entries(before: &BTreeMap<At, String>, after: &BTreeMap<At, String>) {
    let differ = before
        .iter()
        .filter(|(at, was)| after.get(*at) != Some(was));
    let differ: Vec<_> = differ.map(|(at, was)| (at, was, after.get(at))).collect();
    assert!(
        differ.is_empty(),
        "{} of {} entries differ: {:#?}",
        differ.len(),
        before.len(),
        &differ[..differ.len().min(SHOWN)]
    );
}

/// Every entry has as many good replicas as before, or more.
pub(crate) fn assert_no_worse(before: &Replicas, after: &Replicas) {
    let good = |counts: Option<&(u64, u64)>| counts.map_or(0, |(good, _)| *good);
    let worse = before
        .iter()
        .filter(|(at, was)| good(after.get(*at)) < was.0.min(was.1));
    let worse: Vec<_> = worse.map(|(at, was)| (at, was, after.get(at))).collect();
    assert!(
        worse.is_empty(),
        "{} of {} entries have fewer replicas: {:#?}",
        worse.len(),
        before.len(),
        &worse[..worse.len().min(SHOWN)]
    );
}

/// Nothing but members changed, only these ids went, and each fragment has distinct members; how many were replaced.
pub(crate) fn assert_only_members(
    before: &BTreeMap<u64, Ledger>,
    after: &BTreeMap<u64, Ledger>,
    gone: &[String],
) -> usize {
    let mut replaced = 0;
    for (id, was) in before {
        let is = after
            .get(id)
            .unwrap_or_else(|| panic!("ledger {id} is gone"));
        assert_eq!(was.rest, is.rest, "ledger {id}");
        if was.state == "CLOSED" {
            let end = |l: &Ledger| (l.state.clone(), l.last, l.length, l.token);
            assert_eq!(end(was), end(is), "ledger {id}");
            let count = |ledger: &Ledger| ledger.fragments.len();
            assert_eq!(count(was), count(is), "ledger {id}");
        }
        for ((first, old), (now_first, new)) in was.fragments.iter().zip(&is.fragments) {
            assert_eq!(first, now_first, "ledger {id}");
            let distinct: BTreeSet<&String> = new.iter().collect();
            assert_eq!(
                distinct.len(),
                old.len(),
                "ledger {id} from {first}: {new:?}"
            );
            for (old, new) in old.iter().zip(new).filter(|(old, new)| old != new) {
                // An open ledger's writer has a part in it, too.
                let may = gone.contains(old) && !gone.contains(new);
                assert!(may, "ledger {id} from {first}: {old} became {new}");
                replaced += 1;
            }
        }
    }
    replaced
}

/// A client beside the test, told by lines and answering by lines; ended when dropped.
pub(crate) struct Client {
    process: Child,
    orders: Option<ChildStdin>,
    told: PathBuf,
    read: usize,
}

impl Client {
    fn start(stand: &Stand<'_>, what: &str, words: &[&str]) -> Client {
        let [told, complained] =
            ["told", "log"].map(|end| stand.bench.folder().join(format!("{what}.{end}")));
        let file = |path| File::create(path).expect("the folder is ours");
        let mut process = stand
            .lab
            .command(&format!("drain-{what}"), words)
            .stdin(Stdio::piped())
            .stdout(file(&told))
            .stderr(file(&complained))
            .spawn()
            .expect("bk-lab can be started");
        Client {
            orders: process.stdin.take(),
            process,
            told,
            read: 0,
        }
    }

    /// The next line with this event; those before it are passed over.
    fn next(&mut self, event: &str) -> Option<Value> {
        let told = fs::read_to_string(&self.told).unwrap_or_default();
        // The last one may be half written.
        let whole = &told[..told.rfind('\n').map_or(0, |end| end + 1)];
        for line in whole.lines().skip(self.read) {
            self.read += 1;
            let line: Value = serde_json::from_str(line).expect("the client tells JSON");
            if line["event"] == event {
                return Some(line);
            }
        }
        None
    }

    /// Waits for a line with this event.
    pub(crate) fn wait(&mut self, event: &str) -> Value {
        wait_for(&format!("the client's {event:?}"), CLIENT_LIMIT, || {
            let ended = wait_exit(&mut self.process, Duration::ZERO).is_some();
            let found = self.next(event);
            assert!(
                found.is_some() || !ended,
                "the client ended before {event:?}"
            );
            found
        })
    }

    /// One order.
    pub(crate) fn say(&mut self, word: &str) {
        let orders = self.orders.as_mut().expect("it listens");
        writeln!(orders, "{word}").expect("the client runs");
    }

    /// An order that must be done without an error; what was told of it.
    pub(crate) fn order(&mut self, word: &str) -> Value {
        self.say(word);
        let done = self.wait(word);
        assert_eq!(done["errors"], 0, "{done}");
        done
    }

    /// Ends a phase of the writer; what it saw in it.
    pub(crate) fn mark(&mut self, name: &str) -> Value {
        self.say(&format!("mark {name}"));
        let phase = self.wait("phase");
        assert_eq!(phase["name"], name, "{phase}");
        phase
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
