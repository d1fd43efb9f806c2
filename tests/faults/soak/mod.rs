//! The soak: an agent with its default settings beside writers at full speed on every file system that
//! it watches, four busy loops a core, real crossings at known times and pauses of the whole agent.
//! What it says is then held against what happened. `SOAK_TIME` is how long, `SOAK_DISK` the folder
//! for the disks' images, by default the temporary one.

mod beside;
mod crossing;
mod load;
mod verdict;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use dirkeeper::clock::Clock;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use crate::harness::agent::{Agent, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::run::pass;
use beside::Beside;
use crossing::Swing;
use load::Load;
use verdict::{Told, Verdict};

pub(crate) use verdict::{judge_finds, judge_knows_outliers};

/// The short form: two rounds, one of them with a pause.
const SHORT: Duration = Duration::from_secs(120);

/// Between two lines of progress.
const LINE: Duration = Duration::from_secs(30);

/// How long the agent is stopped, as a suspended machine would: longer than any deadline here.
const PAUSE: Duration = Duration::from_secs(20);

/// Into a pause, before the crossing that falls into it.
const INTO_PAUSE: Duration = Duration::from_secs(5);

/// Images are sparse; writers keep each below half of this.
const DISK_MIB: u64 = 2048;

/// A watched file system with its directories.
#[derive(Debug)]
struct Place {
    kind: &'static str,
    disk: Disk,
    dirs: Vec<(PathBuf, &'static str)>,
}

impl Place {
    fn new(kind: &'static str, disk: Disk, roles: &[&'static str]) -> Place {
        let dirs = roles.iter().enumerate();
        let dirs = dirs.map(|(number, role)| (disk.dir(&format!("{role}{number}")), *role));
        Place {
            dirs: dirs.collect(),
            kind,
            disk,
        }
    }
}

/// Twelve directories on six file systems. Where there is time to find an outlier (some minutes), two
/// more disks: with six of them the agent can say what is usual among siblings.
fn places(bench: &Bench, time: Duration) -> Vec<Place> {
    let folder = std::env::var_os("SOAK_DISK").map_or_else(std::env::temp_dir, PathBuf::from);
    let real = |name: &str, kind| Disk::on_real_disk(bench, &folder, name, kind, DISK_MIB);
    let tmpfs = |name: &str| Disk::tmpfs(bench, name, "size=512m");
    let mut places = vec![
        Place::new(
            "ext4",
            real("ext4", "ext4"),
            &["journal", "ledger", "index"],
        ),
        Place::new("xfs", real("xfs", "xfs"), &["journal", "ledger", "ledger"]),
        Place::new("btrfs", real("btrfs", "btrfs"), &["ledger", "index"]),
        Place::new("tmpfs", tmpfs("tmpfs"), &["ledger", "index"]),
        Place::new("ext4", real("over-warn", "ext4"), &["ledger"]),
        Place::new("tmpfs", tmpfs("over-full"), &["ledger"]),
    ];
    if SHORT < time {
        let more = [("ext4-second", "ext4"), ("xfs-second", "xfs")];
        places.extend(more.map(|(name, kind)| Place::new(kind, real(name, kind), &["ledger"])));
    }
    places
}

/// The test.
pub(crate) fn no_false_verdict(bench: &Bench) {
    let time = time();
    let places = places(bench, time);
    let dirs = places.iter().flat_map(|place| &place.dirs);
    let plan = dirs.fold(Plan::with_defaults(bench), |plan, (path, role)| {
        plan.dir_with(path, &format!("role = {role:?}"))
    });
    let mut agent = plan.start();
    let mut load = Load::start(bench, &places, time);
    let soak = Soak {
        bench,
        agent: &agent,
        places: &places,
        events: AtomicU64::new(0),
        rounds: AtomicU64::new(0),
        clock: Clock::start(),
    };
    let (told, besides) = soak.run(time, &load);
    let took = soak.clock.elapsed();
    let rounds = soak.rounds.load(Ordering::SeqCst);
    load.assert_running();
    let verdict = Verdict::of(&agent.events(), &told, &besides);
    let mut problems = verdict.problems.clone();
    problems.extend(statuses(&agent, &places));
    let summary = json!({
        "soak": if problems.is_empty() { "ok" } else { "failed" },
        "seconds": took.as_secs(), "rounds": rounds,
        "directories": places.iter().map(|place| place.dirs.len()).sum::<usize>(),
        "writtenBytes": load.written(), "cpuLoad": load.loops(),
        "crossings": told.len(), "crossingsToldAfterMs": verdict.told_after,
        "fileSystems": besides.iter().map(Beside::summary).collect::<Vec<_>>(),
        "events": verdict.by_kind, "slowAgreed": verdict.slow_agreed,
        "restarts": agent.metric("dirkeeper_child_restarts_total", &["prober"]),
        "notes": verdict.notes, "problems": problems,
    });
    say(&summary);
    load.stop();
    agent.finish_after_events(bench);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn time() -> Duration {
    let text = std::env::var("SOAK_TIME");
    text.map_or(SHORT, |text| {
        humantime::parse_duration(&text).expect("SOAK_TIME is a duration like 30m")
    })
}

/// At the end every directory is known and well.
fn statuses(agent: &Agent, places: &[Place]) -> Vec<String> {
    let dirs = places.iter().flat_map(|place| &place.dirs);
    let access = dirs.map(|(path, _)| (path, agent.dir(path)["axes"]["access"].clone()));
    access
        .filter(|(_, access)| access != "ok")
        .map(|(path, access)| format!("access of {} ends as {access}", path.display()))
        .collect()
}

fn say(summary: &Value) {
    println!("\nsoak: {}", summary["soak"].as_str().unwrap_or_default());
    for key in [
        "seconds",
        "rounds",
        "directories",
        "writtenBytes",
        "cpuLoad",
        "crossings",
        "crossingsToldAfterMs",
        "events",
        "slowAgreed",
        "restarts",
    ] {
        println!("  {key}: {}", summary[key]);
    }
    for key in ["fileSystems", "notes", "problems"] {
        for line in summary[key].as_array().into_iter().flatten() {
            println!("  {key}: {line}");
        }
    }
    println!("{summary}");
}

struct Soak<'a> {
    bench: &'a Bench,
    agent: &'a Agent,
    places: &'a [Place],
    events: AtomicU64,
    rounds: AtomicU64,
    clock: Clock,
}

impl<'a> Soak<'a> {
    /// Rounds until the time is over; the crossings there were, and what was measured beside.
    fn run(&self, time: Duration, load: &Load) -> (Vec<Told>, Vec<Beside<'a>>) {
        let stop = AtomicBool::new(false);
        let (end, ended) = channel::<()>();
        std::thread::scope(|scope| {
            let besides: Vec<_> = self.places.iter().map(Beside::new).collect();
            let writers: Vec<_> = besides
                .into_iter()
                .map(|beside| scope.spawn(|| beside.run(self.bench, &stop)))
                .collect();
            scope.spawn(move || self.tell(load, &ended));
            // Also after a panic the threads end, and with them the scope.
            let told = {
                let _guard = Guard(&stop, end);
                self.rounds(time)
            };
            let writers = writers.into_iter();
            let besides = writers.map(|writer| writer.join().expect("side writers do not fail"));
            (told, besides.collect())
        })
    }

    fn rounds(&self, time: Duration) -> Vec<Told> {
        let [.., warn, full] = self.places else {
            unreachable!("two places are for crossings")
        };
        let mut warn = Swing::new(warn, 0.925, [("diskAlmostFull", ""), ("diskBelowWarn", "")]);
        let mut full = Swing::new(
            full,
            0.97,
            [
                ("diskFull", "diskAlmostFull"),
                ("diskWritable", "diskJustWritable"),
            ],
        );
        let mut told = Vec::new();
        for round in 1.. {
            let paused = (round % 2 == 0).then(|| self.pause());
            told.extend([warn.rise(self.bench), full.rise(self.bench)]);
            if let Some(paused) = paused {
                let rest = PAUSE.saturating_sub(INTO_PAUSE);
                pass(rest);
                drop(paused);
                let both = told.iter_mut().rev().take(2);
                both.for_each(|crossing| crossing.shift(rest));
            }
            told.iter().rev().take(2).for_each(|one| self.wait(one));
            told.extend([warn.fall(self.bench), full.fall(self.bench)]);
            told.iter().rev().take(2).for_each(|one| self.wait(one));
            self.rounds.store(round, Ordering::SeqCst);
            if self.clock.elapsed() >= time {
                break;
            }
        }
        told
    }

    /// Waits until it was told, or could have been; the verdict says which.
    fn wait(&self, crossing: &Told) {
        loop {
            let events = self.agent.events();
            self.events.store(events.len() as u64, Ordering::SeqCst);
            if crossing.found_in(&events) || self.bench.now() > crossing.latest {
                return;
            }
            pass(Duration::from_millis(200));
        }
    }

    /// Stops the agent and its children; they go on when the guard is dropped.
    fn pause(&self) -> Paused {
        let children = ["prober", "writer"].map(|kind| self.agent.child(kind));
        let all = children.into_iter().flatten();
        let all: Vec<_> = [self.agent.pid()].into_iter().chain(all).collect();
        let paused = Paused(all);
        for pid in &paused.0 {
            kill(*pid, Signal::SIGSTOP).expect("the agent runs");
        }
        pass(INTO_PAUSE);
        paused
    }

    /// A line of progress each half minute.
    fn tell(&self, load: &Load, ended: &Receiver<()>) {
        while ended.recv_timeout(LINE) == Err(RecvTimeoutError::Timeout) {
            println!(
                "soak: {} s, {} rounds, {} events, {} MB written",
                self.clock.elapsed().as_secs(),
                self.rounds.load(Ordering::SeqCst),
                self.events.load(Ordering::SeqCst),
                load.written() / 1_000_000,
            );
        }
    }
}

struct Paused(Vec<nix::unistd::Pid>);

impl Drop for Paused {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

struct Guard<'a>(&'a AtomicBool, #[allow(dead_code)] Sender<()>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
