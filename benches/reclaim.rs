//! What a scan of a million ledgers and a hundred thousand topics costs: peak memory, CPU and requests, from a snapshot
//! file and through a store, each for the first time and with everything to remember; and that no second sees more requests than
//! the limit. Prints one JSON line a figure, and ends with an error where one is beyond its limit.

#![allow(clippy::print_stdout)]

#[path = "reclaim/cluster.rs"]
mod cluster;
#[path = "reclaim/pace.rs"]
mod pace;
#[path = "common/usage.rs"]
mod usage;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use cluster::{Generated, LEDGERS, TOPICS, Time};
use dirkeeper::clock::Clock;
use dirkeeper::cluster::SnapshotFile;
use dirkeeper::cluster::store::MetaStore;
use dirkeeper::reclaim::plan::class::Class;
use dirkeeper::reclaim::scan::{
    Ledgers, Options, Progress, Pulsar, Scanned, Shows, Sources, scan_with,
};
use dirkeeper::reclaim::state::State;

/// Megabytes of a scan at its peak (design, budgets).
const MOST_MEMORY: f64 = 300.0;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [_, "--case", "pace", ..] => return pace::check(),
        [_, "--case", case, dir, ..] => return one(case, Path::new(dir)),
        _ => {}
    }
    let dir = tempfile::tempdir().expect("a folder for the files");
    for time in [Time::First, Time::Later] {
        cluster::write(&dir.path().join(time.word()), time).expect("the snapshot is written");
    }
    // Each in a process of its own, which has a peak of its own.
    for case in ["file first", "file later", "store first", "store later"] {
        let program = std::env::current_exe().expect("our own path");
        let mut child = Command::new(program);
        child.args(["--case", case]).arg(dir.path());
        let status = child.status().expect("the case starts");
        assert!(status.success(), "{case} failed");
    }
    pace::check();
}

fn one(case: &str, dir: &Path) {
    let (kind, time) = case.split_once(' ').expect("two words");
    let time = if time == "first" {
        Time::First
    } else {
        Time::Later
    };
    let state_dir = dir.join(format!("{kind}.state"));
    std::fs::create_dir_all(&state_dir).expect("a folder for the state");
    let state = State::open(&state_dir).expect("the state opens");
    let clock = Clock::start();
    let generated = Arc::new(Generated::new(time));
    let store: Arc<dyn MetaStore> = match kind {
        "file" => Arc::new(SnapshotFile::open(&dir.join(time.word())).expect("a snapshot")),
        _ => Arc::clone(&generated) as Arc<dyn MetaStore>,
    };
    let options = Options {
        all_clusters: true,
        snapshot_of: (kind == "file").then(|| Shows::at(time.of())),
        ..Options::default()
    };
    let scanned = scan(store, &state, &clock, &options);
    let info = scanned.info;
    assert_eq!(info.ledgers, LEDGERS, "every ledger was read");
    assert_eq!(
        info.requests,
        generated.calls(),
        "requests are counted where they are made"
    );
    let let_go = info.classes[Class::ALL
        .iter()
        .position(|class| *class == Class::Trimmed)
        .unwrap_or(0)];
    assert_eq!(let_go, time.let_go(), "what was let go was seen");
    let say = |what: &str, value: f64, unit: &str| {
        println!(
            "{{\"bench\":\"reclaim\",\"dirs\":0,\"what\":\"scan, {case}, {what}\",\"value\":{value:.1},\"unit\":\"{unit}\"}}"
        );
    };
    let memory = usage::peak();
    say("peak memory", memory, "MB");
    say("CPU", usage::cpu(), "s");
    say("time", clock.elapsed().as_secs_f64(), "s");
    #[allow(clippy::cast_precision_loss)] // for people
    say("requests", info.requests as f64, "requests");
    #[allow(clippy::cast_precision_loss)] // for people
    let file = std::fs::metadata(state.path()).map_or(0, |file| file.len()) as f64;
    say("state file", file / 1e6, "MB");
    assert!(
        memory < MOST_MEMORY,
        "{case} took {memory} MB for {LEDGERS} ledgers of {TOPICS} topics"
    );
}

pub(crate) fn scan(
    store: Arc<dyn MetaStore>,
    state: &State,
    clock: &Clock,
    options: &Options,
) -> Scanned {
    let ledgers = Ledgers {
        store: Arc::clone(&store),
        root: "/ledgers".to_owned(),
    };
    let pulsars = [Pulsar {
        name: "here".to_owned(),
        store,
        root: String::new(),
    }];
    let sources = Sources {
        ledgers: &ledgers,
        pulsars: &pulsars,
        entries: None,
    };
    let progress = tokio::sync::watch::Sender::new(Progress::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let scanned = runtime.block_on(scan_with(state, sources, options, clock, &progress));
    scanned.expect("the scan comes to its end")
}
