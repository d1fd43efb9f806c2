//! One state directory, one agent.

use std::fs;

use dirkeeper::state::{StoreError, read_events};

use super::durability::spawn_agent;
use super::*;

#[tokio::test]
async fn a_directory_of_another_agent_is_refused_by_name_until_that_agent_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut process, mut lines) = spawn_agent(folder.path());
    assert!(lines.any(|line| line == "durable 1"));
    let held = StoreError::Locked {
        pid: Some(process.id()),
    };
    assert_eq!(read_events(folder.path(), 0, 9).unwrap_err(), held);

    let store = start(folder.path());
    let opened = verdict(&store, is_answer).await;
    assert_eq!(opened.failure, Some(held.clone()));
    assert!(held.is_fatal());
    let text = format!("is in use by the agent with process id {}", process.id());
    assert!(opened.problems[0].contains(&text), "{opened:?}");
    assert_eq!(store.append(event(1), &[]).await, Appended::NotDurable);
    store.stop();

    process.kill().unwrap();
    lines.for_each(drop);
    process.wait().unwrap();
    // At once: its writer needs a moment to end, and that is waited for.
    let (_store, opened) = open(folder.path()).await;
    assert!(opened.problems.is_empty(), "{opened:?}");
    assert!(0 < opened.last_seq);
}

#[tokio::test]
async fn reading_leaves_no_trace_and_needs_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let error = read_events(folder.path(), 0, 9).unwrap_err();
    assert!(error.to_string().contains("there is none in"), "{error}");
    let (store, _) = open(folder.path()).await;
    append_all(&store, 1..=3).await;
    // Not closed in order: reading repairs it, in memory.
    kill_writers(folder.path());
    close(store, folder.path()).await;
    let file = folder.path().join("state.redb");
    // A writer may have been on its way when the store was stopped: it lets go at once.
    let (mut before, mut read) = (Vec::new(), None);
    until(SOON, "the lock is not let go", || {
        before = fs::read(&file).unwrap();
        read = match read_events(folder.path(), 1, 9) {
            Err(StoreError::Locked { .. } | StoreError::Busy) => None,
            result => Some(result.unwrap()),
        };
        read.is_some()
    })
    .await;
    assert_eq!(seqs(&read.unwrap()), [2, 3]);
    assert!(before == fs::read(&file).unwrap());
}
