//! The program killed at each of its steps, and at any moment, on a real ZooKeeper: run again, it comes to the same end.

use std::collections::BTreeSet;
use std::time::Duration;

use dirkeeper::reclaim::failpoint::Failpoint;

use super::leaked::{only_these_are_gone, watched};
use super::{Done, Program, tell};
use crate::harness::bench::Bench;
use crate::harness::run::{pass, try_for, wait_for};
use crate::stand::pulsar::{Pulsar, Setup};

/// The lock of one who was killed goes with its session.
const SESSION: Duration = Duration::from_secs(60);

/// A slow scan or sweep that is not killed.
const SLOW: Duration = Duration::from_secs(120);

/// Between two looks at one that is to be killed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

const TOPIC: &str = "public/default/persistent/t";

/// Its ledgers go in a sweep that is killed now and again.
const SWEPT: &str = "public/default/persistent/s";

/// So many, of which a sweep deletes two in a second at that rate of requests.
const LEAKED: usize = 36;
const RATE: &str = "25";

/// More writes than it takes to get the lock and to look at the clock; from then on a sweep deletes.
const OPENING: u64 = 10;

/// How often the sweep is killed, and the longest time from then on, in milliseconds.
const KILLS: usize = 5;
const LONGEST: u64 = 1500;

/// Requests per second of a scan that is killed: it takes a quarter of a minute.
const SCAN_RATE: &str = "12";

/// Topics of one message, whose nodes and cursors a scan has to read after all ledgers.
const SMALL: usize = 15;

/// A ledger alone in its folder, of which its topic knows nothing.
const ALONE: u64 = 12_340_000;
const FOLDER: &str = "/ledgers/00/1234";

/// Runs it again until the lock of the one who died is gone.
fn again(program: &Program<'_>, words: &[&str]) -> Done {
    wait_for("the lock is free again", SESSION, || {
        let done = program.run(words);
        let held = done.code == Some(1) && done.errors.contains("is at work");
        (!held).then_some(done)
    })
}

/// What each step belongs to.
fn command(point: Failpoint) -> &'static str {
    match point {
        Failpoint::MarkRead | Failpoint::MarkDurable | Failpoint::MarkDropped => "mark",
        Failpoint::UndoChecked | Failpoint::UndoCreated | Failpoint::UndoDurable => "undo",
        _ => "sweep",
    }
}

struct Crashes<'a> {
    pulsar: &'a Pulsar,
    program: Program<'a>,
    /// What is there now.
    ledgers: BTreeSet<u64>,
}

/// One ledger is let go for each step, and is gone in the end, or back, or kept because it is named again. Then a scan and a sweep
/// are killed at any moment.
pub(crate) fn killed_anywhere(bench: &Bench) {
    let began = bench.now();
    let pulsar = Setup::new(bench).collection(Duration::from_secs(600)).up();
    pulsar.retention("public/default", 600);
    pulsar.produce("public/default/t", 200);
    pulsar.produce("public/default/s", 500);
    let small = (0..SMALL).map(|number| (format!("public/default/w{number}"), Some(1)));
    pulsar.fill(1, "1", "100", &small.collect::<Vec<_>>());
    pulsar.order("PUT", "/admin/v2/namespaces/public/default/unload", None);
    // From here on nobody but the program changes anything.
    pulsar.stop("broker1");
    let custom = "application=pulsar,component=managed-ledger,pulsar/managed-ledger=public/default/persistent/t";
    pulsar.tool(&["make", &format!("1:closed:CRC32C:{ALONE}:2:{custom}")]);
    let list = pulsar.list(TOPIC);
    let zookeeper = pulsar.zookeeper();
    let program = |name| {
        Program::new(
            bench,
            name,
            &pulsar,
            &[(&zookeeper, "")],
            "max_deletes = 1000",
        )
    };
    killed_in_a_scan(&pulsar, &program("whole"), &program("killed"));
    let program = program("reclaim");
    program.scan();
    killed_in_a_sweep(&pulsar, &program);
    let mut crashes = Crashes {
        pulsar: &pulsar,
        program,
        ledgers: pulsar.ledgers().into_keys().collect(),
    };
    // The oldest first, as in a trim.
    let mut ids = list.iter().copied().peekable();
    for point in Failpoint::ALL {
        match point {
            Failpoint::FolderRemoved => crashes.alone_in_a_folder(),
            Failpoint::MarkDropped => {
                let id = *ids.peek().expect("there are enough ledgers");
                for command in ["mark", "sweep"] {
                    crashes.named_again(command, id);
                }
            }
            _ => crashes.at_one(point, ids.next().expect("there are enough ledgers")),
        }
    }
    let shows = "the program ends at once at each of its steps of marking, sweeping and undoing, a mark that is dropped and a folder that \
                 goes included; a scan and a sweep are killed by SIGKILL at any moment; run again, it comes to the same end";
    let steps = Failpoint::ALL.len();
    tell(
        bench,
        began,
        shows,
        format!(
            "{steps} steps, each with a ledger of its own; a scan killed twice, a sweep of {LEAKED} {KILLS} times"
        ),
    );
}

impl Crashes<'_> {
    fn forget(&self, id: u64) {
        let node = format!("/managed-ledgers/{TOPIC}");
        self.pulsar.tool(&["forget", &node, &id.to_string()]);
    }

    /// The command, killed at that step if it is its, and then once more.
    fn step(&self, point: Failpoint, at: &str, words: &[&str]) {
        if words[0] == at {
            let killed = self.program.run_until(point.name(), words);
            assert_eq!(
                killed.code,
                None,
                "{}: it did not end at that step: {killed:#?}",
                point.name()
            );
        }
        let done = again(&self.program, words);
        assert_eq!(
            done.code,
            Some(0),
            "{} after {}: {done:#?}",
            words[0],
            point.name()
        );
    }

    /// Marked and swept, it is gone, and nothing else is.
    fn gone(&mut self, point: Failpoint, id: u64, mark: &[&str]) {
        let at = command(point);
        self.step(point, at, mark);
        assert_eq!(
            self.program.marks(),
            BTreeSet::from([id]),
            "{}",
            point.name()
        );
        self.program.ripen();
        self.step(point, at, &["sweep", "--execute"]);
        let left: BTreeSet<u64> = self.pulsar.ledgers().into_keys().collect();
        assert_eq!(
            &self.ledgers - &left,
            BTreeSet::from([id]),
            "{}",
            point.name()
        );
        assert_eq!(self.program.marks(), BTreeSet::new(), "{}", point.name());
        self.ledgers = left;
    }

    fn at_one(&mut self, point: Failpoint, id: u64) {
        self.forget(id);
        self.program.scan();
        self.gone(point, id, &["mark", "--execute"]);
        let number = id.to_string();
        if command(point) == "undo" {
            self.step(point, "undo", &["undo", &number, "--execute"]);
            let read = self.pulsar.tool(&["read", "CRC32C", &number]);
            assert!(
                read.starts_with(&format!("{id} read 10 ")),
                "{}: {read}",
                point.name()
            );
            self.ledgers.insert(id);
        }
        println!("    killed at {}: the same end", point.name());
    }

    /// The last of a folder.
    fn alone_in_a_folder(&mut self) {
        let there = |pulsar: &Pulsar| pulsar.dump(&["/ledgers"]).contains_key(FOLDER);
        assert!(there(self.pulsar), "{ALONE} is somewhere else");
        self.program.scan_until_ripe();
        let point = Failpoint::FolderRemoved;
        self.gone(point, ALONE, &["mark", "--class", "r3", "--execute"]);
        assert!(!there(self.pulsar), "an empty folder was left behind");
        println!("    killed at {}: the same end", point.name());
    }

    /// A ledger that is named again after it was marked is kept.
    fn named_again(&self, at: &str, id: u64) {
        let node = format!("/managed-ledgers/{TOPIC}");
        let named = self.pulsar.tool(&["hex", &node]);
        self.forget(id);
        self.program.scan();
        let mark = ["mark", "--execute"];
        self.program.must(&mark);
        assert_eq!(self.program.marks(), BTreeSet::from([id]));
        self.pulsar.tool(&["set", &node, named.trim()]);
        self.program.ripen();
        let words = match at {
            "mark" => mark,
            _ => ["sweep", "--execute"],
        };
        self.step(Failpoint::MarkDropped, at, &words);
        let left: BTreeSet<u64> = self.pulsar.ledgers().into_keys().collect();
        assert_eq!(left, self.ledgers);
        assert_eq!(self.program.marks(), BTreeSet::new());
        println!("    killed when {at} dropped a mark: the same end");
    }
}

/// A scan that is killed twice says that it went on, asks for much less then, and finds what one that was not killed
/// finds.
fn killed_in_a_scan(pulsar: &Pulsar, whole: &Program<'_>, killed: &Program<'_>) {
    let before = pulsar.packets();
    whole.scan();
    let all = pulsar.packets() - before;
    // Among what ledgers say of themselves, and among who names them.
    for (name, part) in [("first", all / 3), ("second", all * 3 / 4)] {
        let most = pulsar.packets() + part;
        let words = ["scan", "--max-requests-per-second", SCAN_RATE];
        let mut scan = killed.begin(name, &words);
        let mut looks = 0;
        wait_for("the scan is under way", SLOW, || {
            pass(LOOK_EVERY);
            // Each look is one of them.
            looks += 1;
            (most + looks <= pulsar.packets()).then_some(())
        });
        assert!(
            scan.is_running(),
            "it ended before it was killed: {}",
            scan.log()
        );
        scan.kill();
    }
    let before = pulsar.packets();
    let done = killed.run(&["scan"]);
    let rest = pulsar.packets() - before;
    assert_eq!(done.code, Some(0), "{done:#?}");
    assert!(
        done.errors
            .contains("went on with a scan that was interrupted"),
        "{done:#?}"
    );
    println!("    a scan asked {all} times, one that was killed {rest} times at last");
    assert!(
        rest < all * 2 / 3,
        "it did not go on where it was: {rest} of {all}"
    );
    assert_eq!(killed.report(), whole.report());
}

/// A sweep that is killed again and again deletes each ledger that was let go once, and nothing else.
fn killed_in_a_sweep(pulsar: &Pulsar, program: &Program<'_>) {
    let list = pulsar.list(SWEPT);
    let leaked: BTreeSet<u64> = list[..LEAKED].iter().copied().collect();
    let node = format!("/managed-ledgers/{SWEPT}");
    let numbers: Vec<String> = leaked.iter().map(u64::to_string).collect();
    let words = ["forget", node.as_str()].into_iter();
    let words: Vec<&str> = words.chain(numbers.iter().map(String::as_str)).collect();
    pulsar.tool(&words);
    program.scan();
    program.must(&["mark", "--execute"]);
    assert_eq!(program.marks(), leaked);
    program.ripen();
    let all = pulsar.ledgers();
    let before = watched(pulsar);
    let deleted = || {
        let told = program.must(&["report", "--deletions", "--output", "csv"]);
        let lines = told.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let ids = lines.filter(|words| words[1] == "delete");
        let ids = ids.map(|words| words[2].parse().expect("a ledger has a number"));
        let ids: Vec<u64> = ids.collect();
        ids
    };
    for number in 0..KILLS {
        let writes = pulsar.writes();
        let words = ["sweep", "--execute", "--max-requests-per-second", RATE];
        let mut sweep = program.begin(&format!("sweep{number}"), &words);
        wait_for("the sweep deletes something", SLOW, || {
            (writes + OPENING < pulsar.writes()).then_some(())
        });
        let moment = Duration::from_millis(fastrand::u64(..LONGEST));
        let ended = try_for(moment, || (!sweep.is_running()).then_some(()));
        assert_eq!(ended, None, "it ended before it was killed");
        sweep.kill();
        let sofar = deleted().len();
        println!("    killed {moment:?} after it began to delete, with {sofar} of {LEAKED} gone");
        assert!(
            (1..LEAKED).contains(&sofar),
            "that was not in the middle: {sofar}"
        );
    }
    let done = again(program, &["sweep", "--execute"]);
    assert_eq!(done.code, Some(0), "{done:#?}");
    assert_eq!(program.marks(), BTreeSet::new());
    only_these_are_gone(&before, &watched(pulsar), pulsar, &all, &leaked);
    let mut deleted = deleted();
    deleted.sort_unstable();
    assert_eq!(deleted, Vec::from_iter(leaked), "each was deleted once");
}
