//! What the probe costs a busy journal: how long each append with its sync takes a writer at full
//! speed, without an agent, beside one with the default interval, and beside one that probes ten
//! times as often. Each slice of time with an agent is compared with the slices without one right before and
//! after it, and what many such pairs say is summed up by their median and its interval of confidence.
//! Prints one JSON line a figure; `scripts/bench` writes them to docs/benchmarks.md. Ends with a
//! code of its own where the 99th percentile shows a cost, and where it can show none.

#![allow(clippy::print_stdout)]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use common::{Agent, pause, port, wait_for};
use dirkeeper::clock::Clock;

/// What the journal's writer appends between two syncs.
const APPEND: usize = 4096;

/// BookKeeper's `journalPreAllocSizeMB`: one write this far ahead makes the file longer, so that most
/// syncs do not have to.
const AHEAD: u64 = 16 << 20;

/// The file starts again here, as a journal is rolled.
const ROLL: u64 = 512 << 20;

/// After the start of an agent or the end of one, before anything is measured.
const SETTLE: Duration = Duration::from_secs(2);

/// One probe of the default interval falls into a slice, 8 s after the agent has settled.
const SLICE: Duration = Duration::from_secs(10);

/// Rounds of four slices; with the settling one takes 50 s, all less than eleven minutes.
const ROUNDS: usize = 12;

/// Who watches: nobody, an agent as it is, nobody, one that probes ten times as often. So nobody's slices
/// are the neighbours of all others.
const ROUND: [Option<&str>; 4] = [None, Some("10s"), None, Some("1s")];

const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// An interval that reaches so far up would hide a probe that costs a journal half of its time again:
/// then nothing can be said, and `within noise` would sound as if something was.
const HIDING: f64 = 1.5;

/// The percentile that decides how it ends: the middle hides a probe in ten seconds, and beyond this
/// a slice has too few appends to be like another.
const DECIDES: &str = "p99";

/// What an interval says, the worst last; each but the first has its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Within = 0,
    Lost = 3,
    Beyond = 4,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Verdict::Within => "within noise",
            Verdict::Lost => "lost in noise",
            Verdict::Beyond => "beyond noise",
        }
    }
}

/// Percentiles of one slice in milliseconds.
type Slice = [f64; PERCENTILES.len()];

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, slice) = if quick {
        (6, Duration::from_secs(2))
    } else {
        (ROUNDS, SLICE)
    };
    let place = Place::new();
    let mut syncs = 0;
    let mut slices: Vec<Slice> = Vec::new();
    // One more without an agent at the end: the last one with an agent has two neighbours, too.
    for turn in 0..=rounds * ROUND.len() {
        let times = place.measure(ROUND[turn % ROUND.len()], slice);
        syncs += times.len();
        slices.push(percentiles(times));
    }
    word("journal disk", &place.kind());
    say("journal syncs", syncs as f64 / 1e3, "thousand");
    say("journal rounds", rounds as f64, "");
    ExitCode::from(report(&slices) as u8)
}

/// Prints all figures; returns the worst verdict of the percentile that decides.
fn report(slices: &[Slice]) -> Verdict {
    let mut worst = Verdict::Within;
    for (number, (percentile, _)) in PERCENTILES.into_iter().enumerate() {
        let values: Vec<f64> = slices.iter().map(|slice| slice[number]).collect();
        let nobody: Vec<f64> = values.iter().copied().step_by(2).collect();
        let what = |text: &str| format!("journal sync {percentile}, {text}");
        say(&what("without"), median(&nobody), "ms");
        let all = [
            // Nobody's slices against their own neighbours: what the method says where there is nothing.
            ("nobody", Factors::of(&nobody, 1, 2)),
            ("every 10 s", Factors::of(&values, 1, ROUND.len())),
            ("every 1 s", Factors::of(&values, 3, ROUND.len())),
        ];
        for (name, factors) in all {
            let verdict = factors.verdict();
            say(&what(name), factors.middle, "times");
            say(&what(&format!("{name}, least")), factors.least, "times");
            say(&what(&format!("{name}, most")), factors.most, "times");
            word(&what(&format!("{name}, verdict")), verdict.words());
            if percentile == DECIDES {
                // Where nobody seems to cost something, the machine changed: no figure is to be believed.
                let restless = name == "nobody" && verdict != Verdict::Within;
                worst = worst.max(if restless { Verdict::Lost } else { verdict });
            }
        }
    }
    worst
}

/// By which factors slices differ from their neighbours: the median, and the interval that holds the true
/// median with a confidence of at least 95 %, whatever the distribution (the order statistics of the
/// sign test).
struct Factors {
    least: f64,
    middle: f64,
    most: f64,
}

impl Factors {
    /// Of each `step`-th slice from `first` on that has a neighbour on each side.
    fn of(values: &[f64], first: usize, step: usize) -> Factors {
        let mut factors: Vec<f64> = (first..values.len() - 1)
            .step_by(step)
            .map(|at| values[at] / (values[at - 1] * values[at + 1]).sqrt())
            .collect();
        factors.sort_by(f64::total_cmp);
        let aside = aside(factors.len());
        Factors {
            least: factors[aside],
            middle: median(&factors),
            most: factors[factors.len() - 1 - aside],
        }
    }

    fn verdict(&self) -> Verdict {
        if self.least > 1.0 {
            Verdict::Beyond
        } else if self.most < HIDING && 1.0 <= self.most {
            Verdict::Within
        } else {
            Verdict::Lost
        }
    }
}

/// How many of `n` sorted values lie below the interval, and above: as many as leave the median outside in
/// no more than 5 % of all runs.
fn aside(n: usize) -> usize {
    let mut way = 0.5_f64.powi(n as i32);
    let mut below = way;
    let mut aside = 0;
    while 2.0 * below <= 0.05 {
        aside += 1;
        way *= (n - aside + 1) as f64 / aside as f64;
        below += way;
    }
    aside.saturating_sub(1)
}

/// The watched folder on the disk of the build, and one in memory for what the agent itself writes:
/// its state belongs on another disk than a journal.
struct Place {
    journal: PathBuf,
    own: PathBuf,
    clock: Clock,
}

impl Place {
    fn new() -> Place {
        let name = format!("dirkeeper-probe-cost-{}", std::process::id());
        let memory = Path::new("/dev/shm");
        let own = if memory.is_dir() {
            memory.join(&name)
        } else {
            std::env::temp_dir().join(&name)
        };
        let folder = std::env::var_os("BENCH_DISK").map(PathBuf::from);
        let folder = folder.unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
        let journal = folder.join(format!("{name}-journal"));
        for folder in [&journal, &own] {
            fs::create_dir_all(folder).expect("a folder of ours");
        }
        Place {
            journal,
            own,
            clock: Clock::start(),
        }
    }

    /// Kind of the journal's file system.
    fn kind(&self) -> String {
        let mut find = Command::new("findmnt");
        find.args(["--noheadings", "--output=FSTYPE", "--target"])
            .arg(&self.journal);
        let output = find.output().expect("findmnt is part of util-linux");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Times of all syncs of a slice.
    fn measure(&self, interval: Option<&str>, slice: Duration) -> Vec<Duration> {
        let agent = interval.map(|interval| self.watch(interval));
        let mut journal = Journal::new(&self.journal);
        self.write(&mut journal, SETTLE);
        let times = self.write(&mut journal, slice);
        drop(agent);
        drop(journal);
        pause(Duration::from_millis(500));
        times
    }

    fn watch(&self, interval: &str) -> Agent {
        let port = port();
        let config = self.own.join("dirkeeper.toml");
        let text = format!(
            "listen = \"127.0.0.1:{port}\"\nstate_dir = {:?}\n\n[probe]\ninterval = {interval:?}\n\n\
             [[dir]]\npath = {:?}\nrole = \"journal\"\n",
            self.own.join("state"),
            self.journal,
        );
        fs::write(&config, text).expect("the folder is ours");
        let agent = Agent::start(&["--config".into(), config.into()]);
        wait_for(&self.clock, port, "/readyz");
        agent
    }

    fn write(&self, journal: &mut Journal, time: Duration) -> Vec<Duration> {
        let mut times = Vec::new();
        let start = self.clock.elapsed();
        while self.clock.elapsed() - start < time {
            let before = self.clock.elapsed();
            journal.append();
            journal.file.sync_data().expect("the disk is well");
            times.push(self.clock.elapsed() - before);
        }
        times
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for folder in [&self.journal, &self.own] {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// A file that is written as BookKeeper writes its journal; removed when dropped.
struct Journal {
    path: PathBuf,
    file: File,
    at: u64,
    ahead: u64,
}

impl Journal {
    fn new(folder: &Path) -> Journal {
        let path = folder.join("1.txn");
        let file = File::create(&path).expect("the folder is ours");
        Journal {
            path,
            file,
            at: 0,
            ahead: 0,
        }
    }

    fn append(&mut self) {
        if self.at >= ROLL {
            self.file.set_len(0).expect("a file can be cut");
            (self.at, self.ahead) = (0, 0);
        }
        if self.at + APPEND as u64 > self.ahead {
            self.ahead += AHEAD;
            self.put(&[0; APPEND], self.ahead - APPEND as u64);
        }
        self.put(&[0x5a; APPEND], self.at);
        self.at += APPEND as u64;
    }

    fn put(&self, bytes: &[u8], at: u64) {
        self.file.write_all_at(bytes, at).expect("there is room");
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn percentiles(mut times: Vec<Duration>) -> Slice {
    times.sort_unstable();
    PERCENTILES.map(|(_, share)| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // an index
        let at = (times.len() as f64 * share) as usize;
        times[at.min(times.len() - 1)].as_secs_f64() * 1e3
    })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

fn say(what: &str, value: f64, unit: &str) {
    println!(
        "{{\"bench\":\"probe_cost\",\"dirs\":1,\"what\":\"{what}\",\"value\":{value:.3},\"unit\":\"{unit}\"}}"
    );
}

fn word(what: &str, value: &str) {
    println!(
        "{{\"bench\":\"probe_cost\",\"dirs\":1,\"what\":\"{what}\",\"value\":\"{value}\",\"unit\":\"\"}}"
    );
}
