//! Runs the tests, several at a time, and prints as libtest does. What a test prints is its own; what
//! went wrong is printed at the end, with the agents' logs.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use dirkeeper::clock::Clock;

use super::bench::{Bench, Settings};
use super::sweep;

/// One test.
pub(crate) struct Fault {
    /// Number of the fault and what is done: `F07_remount`.
    pub(crate) name: &'static str,
    /// The test.
    pub(crate) run: fn(&Bench),
    /// Alone, because it measures what other load would change.
    pub(crate) alone: bool,
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

/// Runs all that are selected; the exit code.
pub(crate) fn run(faults: &[Fault], root: &Path) -> i32 {
    let selection = Selection::from_arguments();
    let settings = Settings::from_environment();
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
    println!(
        "\nrunning {} tests, {} at a time",
        taken.len(),
        settings.jobs
    );
    let mut failures = Vec::new();
    for run in 1..=settings.runs {
        let of_kind = |alone| {
            let kind = taken.iter().filter(move |fault| fault.alone == alone);
            kind.map(|fault| (*fault, run)).collect::<VecDeque<_>>()
        };
        failures.extend(run_all(of_kind(true), 1, root, &settings));
        failures.extend(run_all(of_kind(false), settings.jobs, root, &settings));
    }
    for (name, text) in &failures {
        println!("\n---- {name} ----\n{text}");
    }
    let total = taken.len() * settings.runs;
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

type Failures = Vec<(String, String)>;

fn run_all(
    queue: VecDeque<(&Fault, usize)>,
    jobs: usize,
    root: &Path,
    settings: &Settings,
) -> Failures {
    let queue = Mutex::new(queue);
    let failures = Mutex::new(Failures::new());
    let locked = || {
        queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((fault, run)) = locked() {
                    if let Err(text) = run_one(fault, run, root, settings) {
                        let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                        failures.push((fault.name.to_owned(), text));
                    }
                }
            });
        }
    });
    failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

fn run_one(fault: &Fault, run: usize, root: &Path, settings: &Settings) -> Result<(), String> {
    let clock = Clock::start();
    let bench = Bench::new(root, fault.name, run, settings);
    let result = catch_unwind(AssertUnwindSafe(|| (fault.run)(&bench)));
    bench.end();
    let mut problems = bench.over_limit();
    if let Err(panic) = result {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        problems.push(text.unwrap_or_else(|| "a panic without text".to_owned()));
    }
    // Whatever the test did, the next one finds a clean machine.
    for left in sweep::sweep(bench.folder()) {
        problems.push(format!("left behind: {left}"));
    }
    let verdict = if problems.is_empty() { "ok" } else { "FAILED" };
    let times = bench.summary();
    println!(
        "test {} ... {verdict} ({:.1}s){times}",
        fault.name,
        clock.elapsed().as_secs_f64()
    );
    if problems.is_empty() {
        let _ = std::fs::remove_dir_all(bench.folder());
        return Ok(());
    }
    Err(format!("{}\n{}", problems.join("\n"), bench.logs()))
}
