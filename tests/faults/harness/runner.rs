//! Runs the tests, several at a time, and prints as libtest does. What a test prints is its own; what
//! went wrong is printed at the end, with the agents' logs.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dirkeeper::clock::Clock;
use serde_json::json;

use super::bench::{Bench, Place, Settings};
use super::peers::Peers;
use super::stage::is_ending;
use super::sweep;

/// So many tests with limits below a second at a time: their starts must not be felt by the others.
const QUIET_JOBS: usize = 4;

/// What a test bears beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Company {
    /// Nobody: it measures what any load would change.
    Nobody,
    /// Nobody whose peers are asked: it holds up their answers.
    NobodyWhoAsks,
    /// Others that mostly wait: its limits are strict and narrow.
    Quiet,
    /// Anybody.
    Anybody,
}

/// One test.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    /// Number of the fault and what is done: `F07_remount`.
    pub(crate) name: &'static str,
    run: fn(&Bench),
    company: Company,
    /// Once in all: it measures nothing.
    once: bool,
    /// On each kind of file system, because the verdict or the time may depend on it.
    each_kind: bool,
    /// Kinds that cannot have the fault, and why.
    absent: &'static [(&'static str, &'static str)],
}

impl Fault {
    /// A test that runs once a run, beside any other.
    pub(crate) const fn new(name: &'static str, run: fn(&Bench)) -> Fault {
        Fault {
            name,
            run,
            company: Company::Anybody,
            once: false,
            each_kind: false,
            absent: &[],
        }
    }

    pub(crate) const fn beside(mut self, company: Company) -> Fault {
        self.company = company;
        self
    }

    pub(crate) const fn once(mut self) -> Fault {
        self.once = true;
        self
    }

    pub(crate) const fn on_each_kind(mut self) -> Fault {
        self.each_kind = true;
        self
    }

    /// The fault does not exist on these kinds, for these reasons.
    pub(crate) const fn but_not_on(
        mut self,
        absent: &'static [(&'static str, &'static str)],
    ) -> Fault {
        self.absent = absent;
        self
    }
}

/// A test that waits for its turn.
struct Turn<'a> {
    fault: &'a Fault,
    kind: &'a str,
    run: usize,
}

impl Turn<'_> {
    /// Whom it bears with these settings.
    fn company(&self, settings: &Settings) -> Company {
        match self.fault.company {
            Company::NobodyWhoAsks if settings.peers => Company::Nobody,
            Company::Quiet if settings.strict => Company::Quiet,
            Company::Nobody => Company::Nobody,
            _ => Company::Anybody,
        }
    }

    /// As it is printed and as its folder is called.
    fn name(&self) -> String {
        if self.fault.each_kind {
            format!("{}-{}", self.fault.name, self.kind)
        } else {
            self.fault.name.to_owned()
        }
    }

    fn place(&self) -> Place {
        Place {
            fault: self.fault.name,
            kind: self.kind.to_owned(),
            each_kind: self.fault.each_kind,
            run: self.run,
            folder: format!("{}-{}", self.name(), self.run),
        }
    }
}

/// What the command line asks for; the few options of libtest that make sense here.
struct Selection {
    words: Vec<String>,
    skip: Vec<String>,
    exact: bool,
    list: bool,
}

impl Selection {
    fn from_arguments() -> Selection {
        let mut selection = Selection {
            words: Vec::new(),
            skip: Vec::new(),
            exact: false,
            list: false,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--exact" => selection.exact = true,
                "--list" => selection.list = true,
                "--skip" => selection.skip.extend(arguments.next()),
                "--test-threads" | "--format" | "--color" | "-Z" => {
                    arguments.next();
                }
                option if option.starts_with('-') => {}
                word => selection.words.push(word.to_owned()),
            }
        }
        selection
    }

    fn takes(&self, name: &str) -> bool {
        let matches = |word: &String| {
            if self.exact {
                name == word
            } else {
                name.contains(word.as_str())
            }
        };
        (self.words.is_empty() || self.words.iter().any(matches)) && !self.skip.iter().any(matches)
    }
}

/// What the first stage does when nothing can be run: says so, loudly in CI.
pub(crate) fn report_unprivileged(faults: &[Fault], reason: &str) -> i32 {
    let selection = Selection::from_arguments();
    let taken = faults.iter().filter(|fault| selection.takes(fault.name));
    if selection.list {
        taken.for_each(|fault| println!("{}: test", fault.name));
        return 0;
    }
    let count = taken.count();
    println!("skipped: {reason}");
    if std::env::var("CI").as_deref() == Ok("true") {
        println!(
            "test result: FAILED. 0 passed; {count} failed; 0 ignored; 0 measured; 0 filtered out"
        );
        return 101;
    }
    println!("test result: ok. 0 passed; 0 failed; {count} ignored; 0 measured; 0 filtered out");
    0
}

/// All turns of these tests, those of one run together.
fn turns<'a>(taken: &[&'a Fault], settings: &'a Settings) -> Vec<Turn<'a>> {
    let mut turns = Vec::new();
    for run in 1..=settings.runs {
        for fault in taken.iter().filter(|fault| run == 1 || !fault.once) {
            let kinds = if fault.each_kind {
                &settings.kinds[..]
            } else {
                &settings.kinds[..1]
            };
            turns.extend(kinds.iter().map(|kind| Turn { fault, kind, run }));
        }
    }
    turns
}

/// Runs all that are selected; the exit code.
pub(crate) fn run(faults: &[Fault], root: &Path, settings: &Settings) -> i32 {
    let selection = Selection::from_arguments();
    let taken: Vec<&Fault> = faults
        .iter()
        .filter(|fault| selection.takes(fault.name))
        .collect();
    if selection.list {
        taken
            .iter()
            .for_each(|fault| println!("{}: test", fault.name));
        return 0;
    }
    let clock = Clock::start();
    let mut turns = turns(&taken, settings);
    let total = turns.len();
    println!("\nrunning {total} tests, {} at a time", settings.jobs);
    let counter = AtomicUsize::new(0);
    let peers = settings.peers.then(|| Arc::new(Peers::start(root)));
    let mut failures = Vec::new();
    for (company, jobs) in [
        (Company::Nobody, 1),
        (Company::Quiet, settings.jobs.min(QUIET_JOBS)),
        (Company::Anybody, settings.jobs),
    ] {
        let (now, later): (Vec<_>, Vec<_>) = turns
            .into_iter()
            .partition(|turn| turn.company(settings) == company);
        turns = later;
        let run = |turn: &Turn<'_>| {
            let result = run_one(turn, root, settings, peers.clone());
            let number = counter.fetch_add(1, Ordering::Relaxed) + 1;
            println!("({number}/{total}) {}", result.line);
            result.problem.map(|text| (turn.name(), text))
        };
        failures.extend(run_all(now.into(), jobs, &run));
    }
    drop(peers);
    for (name, text) in &failures {
        println!("\n---- {name} ----\n{text}");
    }
    println!(
        "\ntest result: {}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        if failures.is_empty() { "ok" } else { "FAILED" },
        total - failures.len(),
        failures.len(),
        faults.len() - taken.len(),
        clock.elapsed().as_secs_f64(),
    );
    if failures.is_empty() { 0 } else { 101 }
}

fn run_all(
    queue: VecDeque<Turn<'_>>,
    jobs: usize,
    run: &(impl Fn(&Turn<'_>) -> Option<(String, String)> + Sync),
) -> Vec<(String, String)> {
    let queue = Mutex::new(queue);
    let failures = Mutex::new(Vec::new());
    let next = || {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.pop_front().filter(|_| !is_ending())
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(turn) = next() {
                    let failure = run(&turn);
                    let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                    failures.extend(failure);
                }
            });
        }
    });
    failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

/// How a test ended.
struct Outcome {
    line: String,
    problem: Option<String>,
}

fn run_one(
    turn: &Turn<'_>,
    root: &Path,
    settings: &Settings,
    peers: Option<Arc<Peers>>,
) -> Outcome {
    let clock = Clock::start();
    let name = turn.name();
    let bench = Bench::new(root, turn.place(), settings, peers);
    let mut absent = turn.fault.absent.iter();
    if let Some((_, why)) = absent.find(|(kind, _)| *kind == turn.kind) {
        bench.record(json!({ "absent": why }));
        let line = format!("test {name} ... does not exist here: {why}");
        return Outcome {
            line,
            problem: None,
        };
    }
    let result = catch_unwind(AssertUnwindSafe(|| (turn.fault.run)(&bench)));
    bench.end();
    let mut problems = bench.over_limit();
    if let Err(panic) = result {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|| "a panic without text".to_owned());
        bench.record(json!({ "failed": text }));
        problems.push(text);
    } else {
        bench.record(json!({ "passed": true }));
    }
    // Whatever the test did, the next one finds a clean machine.
    for left in sweep::sweep(bench.folder()) {
        problems.push(format!("left behind: {left}"));
    }
    let verdict = if problems.is_empty() { "ok" } else { "FAILED" };
    let (seconds, times) = (clock.elapsed().as_secs_f64(), bench.summary());
    let line = format!("test {name} ... {verdict} ({seconds:.1}s){times}");
    if problems.is_empty() {
        let _ = std::fs::remove_dir_all(bench.folder());
        return Outcome {
            line,
            problem: None,
        };
    }
    let problem = Some(format!("{}\n{}", problems.join("\n"), bench.logs()));
    Outcome { line, problem }
}
