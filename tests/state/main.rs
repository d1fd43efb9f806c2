//! The state store with its real writer child: what is acknowledged survives, and no disk makes
//! anybody wait. Tests that need a file system of their own run as root only and say so otherwise.

// Helpers of tests do not count as tests.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod claims;
mod damage;
mod disks;
mod durability;
mod locks;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dirkeeper::clock::Clock;
use dirkeeper::state::{Appended, Opened, Store, StoreOptions, StoredEvent};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What may take a moment on a busy machine has to happen within this.
const SOON: Duration = Duration::from_secs(20);

fn options(state_dir: &Path) -> StoreOptions {
    StoreOptions {
        state_dir: state_dir.to_owned(),
        program: PathBuf::from(env!("CARGO_BIN_EXE_dirkeeper")),
        retention_bytes: 16 << 20,
        retention_age: Duration::from_secs(30 * 24 * 3600),
        lock_memory: false,
    }
}

fn start(state_dir: &Path) -> Store {
    Store::start(options(state_dir), Clock::start())
}

/// Starts a store that is expected to open.
async fn open(state_dir: &Path) -> (Store, Opened) {
    let store = start(state_dir);
    let opened = within(SOON, "the store does not open", store.opened()).await;
    assert!(opened.complete, "{opened:?}");
    (store, opened)
}

/// Stops a store and waits until its writer has ended.
async fn close(store: Store, state_dir: &Path) {
    store.stop();
    until(SOON, "the writer does not end", || {
        writers(state_dir).is_empty()
    })
    .await;
}

fn event(seq: u64) -> StoredEvent {
    let json = format!("{{\"seq\":{seq},\"event\":\"diskFull\",\"dir\":\"/mnt/l{seq}\"}}");
    StoredEvent {
        seq,
        json: Arc::from(json),
    }
}

fn seqs(events: &[StoredEvent]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

fn page() -> Vec<String> {
    vec!["page".to_owned()]
}

/// Appends events until they are all durable.
async fn append_all(store: &Store, numbers: std::ops::RangeInclusive<u64>) {
    let appends: Vec<_> = numbers
        .map(|seq| store.append(event(seq), &page()))
        .collect();
    for append in appends {
        assert_eq!(append.await, Appended::Durable, "{:?}", store.health());
    }
}

async fn within<T>(limit: Duration, problem: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => panic!("{problem}"),
    }
}

/// Waits until it holds.
async fn until(limit: Duration, problem: &str, holds: impl FnMut() -> bool) {
    let mut holds = holds;
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(limit, problem, wait).await;
}

async fn until_ok(store: &Store) {
    let problem = "the store does not recover";
    until(SOON, problem, || store.health().ok).await;
}

/// Process ids of the writers of this state directory.
fn writers(state_dir: &Path) -> Vec<Pid> {
    let state_dir = state_dir.to_str().unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let pid: i32 = name.to_str()?.parse().ok()?;
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
            let arguments: Vec<&str> = line.trim_end_matches('\0').split('\0').collect();
            arguments
                .ends_with(&["__child", "writer", state_dir])
                .then(|| Pid::from_raw(pid))
        })
        .collect()
}

fn kill_writers(state_dir: &Path) {
    for pid in writers(state_dir) {
        let _ = kill(pid, Signal::SIGKILL);
    }
}
