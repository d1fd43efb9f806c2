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
use dirkeeper::state::{Appended, Opened, Store, StoreError, StoreOptions, StoredEvent};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What may take a moment on a busy machine has to happen within this.
const SOON: Duration = Duration::from_secs(20);

/// Nobody waits for a disk: the limits of that are allowed three-fold on a busy machine. What waits
/// for a frozen one waits longer than that.
const SLACK: u32 = 3;

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

/// Appends events and waits until they are all durable, be it after the time that an append waits for
/// a busy disk.
async fn append_all(store: &Store, numbers: std::ops::RangeInclusive<u64>) {
    let lost = store.health().lost;
    let appends: Vec<_> = numbers
        .map(|seq| store.append(event(seq), &page()))
        .collect();
    for append in appends {
        if append.await == Appended::NotDurable {
            until_stored(store).await;
        }
    }
    assert_eq!(store.health().lost, lost);
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

/// Waits until nothing is left to be stored.
async fn until_stored(store: &Store) {
    let problem = format!("events are not stored: {:?}", store.health());
    let stored = || {
        let health = store.health();
        health.ok && health.waiting == 0
    };
    until(SOON, &problem, stored).await;
}

/// Asks again until a busy disk has given its answer.
async fn answer<T>(problem: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let answered = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(SOON, problem, answered).await
}

/// What the store is found to be; asking does not wait for that without end.
async fn verdict(store: &Store, is_one: impl Fn(&Opened) -> bool) -> Opened {
    let limit = SLACK * Duration::from_millis(600);
    let ask = async || Some(within(limit, "open waits", store.open()).await).filter(&is_one);
    answer("the store has no verdict", ask).await
}

/// It was looked at, well or not.
fn is_answer(opened: &Opened) -> bool {
    opened.failure != Some(StoreError::NoAnswer)
}

/// Events after this number.
async fn read(store: &Store, after: u64, limit: usize) -> Vec<StoredEvent> {
    let ask = async || store.events(after, limit).await.ok();
    answer("the events are not read", ask).await
}

async fn keep_claims(store: &Store, claims: &[u8]) {
    let put = async || store.put_claims(claims.to_vec()).await.then_some(());
    answer("the claims are not kept", put).await;
}

/// Waits until all that was put before is durable.
async fn flush(store: &Store) {
    let flush = async || (store.flush().await == Appended::Durable).then_some(());
    answer("it is not durable", flush).await;
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
