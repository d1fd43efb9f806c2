//! Append, acknowledge, reopen, and what `kill -9` leaves.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use dirkeeper::state::{Appended, read_events};
use nix::sys::signal::{Signal, kill};

use super::*;

#[tokio::test]
async fn events_pins_and_what_is_pending_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (store, opened) = open(folder.path()).await;
    assert_eq!((opened.last_seq, opened.problems.len()), (0, 0));
    let both = ["page".to_owned(), "chat".to_owned()];
    for seq in 1..=3 {
        store.append(event(seq), &both).await;
    }
    store.acknowledge("page", 1);
    store.acknowledge("page", 2);
    store.acknowledge("chat", 2);
    store.put_pin(b"/mnt/l1", b"old");
    store.put_pin(b"/mnt/l1", b"uuid");
    store.put_pin(b"/mnt/l2", b"gone");
    store.remove_pin(b"/mnt/l2");
    flush(&store).await;
    close(store, folder.path()).await;

    let (store, opened) = open(folder.path()).await;
    assert_eq!(opened.last_seq, 3);
    assert_eq!(opened.pins, [(b"/mnt/l1".to_vec(), b"uuid".to_vec())]);
    let pending: Vec<_> = opened
        .pending
        .iter()
        .map(|(name, events)| (name.as_str(), seqs(events)))
        .collect();
    assert_eq!(pending, [("chat", vec![1, 3]), ("page", vec![3])]);
    assert_eq!(opened.pending["page"], [event(3)]);
    assert!(!opened.pins_lost && opened.problems.is_empty());
    // They are handed out once.
    assert_eq!(store.opened().await.pins, []);
    append_all(&store, 4..=4).await;
    assert_eq!(store.health().last_seq, 4);
}

#[tokio::test]
async fn the_event_log_is_read_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    append_all(&store, 1..=1200).await;
    assert_eq!(seqs(&read(&store, 0, 2).await), [1, 2]);
    assert_eq!(seqs(&read(&store, 1199, 9).await), [1200]);
    assert_eq!(read(&store, 1200, 9).await, []);
    assert_eq!(read(&store, u64::MAX, 9).await, []);
    let all = read(&store, 0, usize::MAX).await;
    assert_eq!(seqs(&all), (1..=1000).collect::<Vec<_>>());
    assert_eq!(all[41], event(42));
    close(store, folder.path()).await;
    let all = read_events(folder.path(), 0, usize::MAX).unwrap();
    assert_eq!(seqs(&all), (1..=1200).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_number_is_given_once() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    append_all(&store, 1..=3).await;
    // The same again is what a writer that died before its acknowledgement leaves.
    append_all(&store, 2..=2).await;
    let mut other = event(2);
    other.json = "{\"seq\":2,\"event\":\"other\"}".into();
    assert_eq!(store.append(other, &page()).await, Appended::NotDurable);
    assert_eq!(read(&store, 1, 1).await, [event(2)]);
    let health = store.health();
    assert_eq!((health.ok, health.lost, health.last_seq), (true, 1, 3));
}

#[tokio::test]
async fn an_event_that_is_too_long_is_refused_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    let mut long = event(1);
    long.json = "x".repeat(300 * 1024).into();
    assert_eq!(store.append(long.clone(), &[]).await, Appended::NotDurable);
    assert_eq!(store.health().lost, 1);
    long.json = "x".repeat(200 * 1024).into();
    store.append(long.clone(), &[]).await;
    until_stored(&store).await;
    assert_eq!(read(&store, 0, 5).await, [long]);
}

#[tokio::test]
async fn the_retention_drops_the_oldest_also_when_pending_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.retention_bytes = 4096;
    let store = Store::start(options, Clock::start());
    append_all(&store, 1..=200).await;
    let kept = read(&store, 0, 1000).await;
    let bytes: usize = kept.iter().map(|event| event.json.len()).sum();
    assert!(
        bytes <= 4096 && 30 < kept.len(),
        "{bytes} in {}",
        kept.len()
    );
    let health = store.health();
    assert!(health.ok);
    assert_eq!(health.dropped_pending, 200 - kept.len() as u64);
    assert!(health.problem.unwrap().contains("dropped by the retention"));
    close(store, folder.path()).await;
    let (_store, opened) = open(folder.path()).await;
    assert_eq!(opened.pending["page"].len(), kept.len());
}

/// Without another append, in several transactions.
#[tokio::test]
async fn a_lowered_retention_takes_effect_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    append_all(&store, 1..=1200).await;
    close(store, folder.path()).await;
    let mut options = options(folder.path());
    options.retention_bytes = 4096;
    let store = Store::start(options, Clock::start());
    within(SOON, "the store does not open", store.opened()).await;
    let few = async {
        while 60 < read(&store, 0, 1000).await.len() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(SOON, "too many events are kept", few).await;
    assert_eq!(store.health().last_seq, 1200);
}

/// Numbers go on although nothing is left of the log.
#[tokio::test]
async fn old_events_are_dropped_and_their_numbers_are_not_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    append_all(&store, 1..=5).await;
    close(store, folder.path()).await;
    let mut options = options(folder.path());
    options.retention_age = Duration::ZERO;
    let store = Store::start(options, Clock::start());
    within(SOON, "the store does not open", store.opened()).await;
    flush(&store).await;
    assert_eq!(read(&store, 0, 9).await, []);
    close(store, folder.path()).await;
    assert_eq!(open(folder.path()).await.1.last_seq, 5);
}

#[tokio::test]
async fn killing_the_writer_loses_nothing_that_was_acknowledged() {
    const EVENTS: u64 = 500;
    const KILLS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    let killer = async {
        for _ in 0..KILLS {
            // Each one gets something done.
            until_ok(&store).await;
            let wait = Duration::from_micros(fastrand::u64(0..60_000));
            tokio::time::sleep(wait).await;
            kill_writers(folder.path());
        }
        std::future::pending().await
    };
    let appender = async {
        let mut durable = BTreeSet::new();
        for seq in 1..=EVENTS {
            if store.append(event(seq), &page()).await == Appended::Durable {
                durable.insert(seq);
            } else {
                until_ok(&store).await;
            }
        }
        durable
    };
    let durable = tokio::select! {
        durable = within(SOON * 6, "the appends do not end", appender) => durable,
        () = killer => unreachable!("it does not end"),
    };
    until_ok(&store).await;
    let health = store.health();
    assert_eq!((health.waiting, health.lost), (0, 0), "{health:?}");
    assert!(5 < health.restarts, "{health:?}");
    close(store, folder.path()).await;

    let stored = read_events(folder.path(), 0, usize::MAX).unwrap();
    assert!(stored.iter().all(|stored| *stored == event(stored.seq)));
    let stored = seqs(&stored);
    let lost: Vec<_> = durable.iter().filter(|seq| !stored.contains(seq)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    // The others were caught up with, in order.
    assert_eq!(stored, (1..=EVENTS).collect::<Vec<_>>());
}

/// What an agent in another process does: appends, and says what is durable.
#[tokio::test]
#[ignore = "is run by the test below"]
async fn agent() {
    let state_dir = PathBuf::from(std::env::var_os("DIRKEEPER_TEST_STATE_DIR").unwrap());
    let (store, opened) = open(&state_dir).await;
    for seq in opened.last_seq + 1.. {
        if store.append(event(seq), &page()).await == Appended::Durable {
            println!("durable {seq}");
        }
    }
}

/// Another process that runs [`agent`], and the lines that it says.
pub(crate) fn spawn_agent(state_dir: &Path) -> (std::process::Child, impl Iterator<Item = String>) {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["durability::agent", "--exact", "--ignored", "--nocapture"])
        .env("DIRKEEPER_TEST_STATE_DIR", state_dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    (process, lines.map_while(Result::ok))
}

#[tokio::test]
async fn killing_the_agent_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut newest = 0;
    for round in 0..6 {
        let (mut process, lines) = spawn_agent(folder.path());
        let count = fastrand::u64(1..40);
        let numbers = lines.filter_map(|line| line.strip_prefix("durable ")?.parse::<u64>().ok());
        let mut said = 0;
        for seq in numbers {
            assert!(newest < seq, "round {round}: {seq} was given before");
            newest = seq;
            said += 1;
            if said == count {
                // The lines that it still says until it is dead are read as well.
                let pid = i32::try_from(process.id()).unwrap();
                kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            }
        }
        process.wait().unwrap();
        assert!(count <= said, "round {round}: the agent ended by itself");
        until(SOON, "the writer stays behind", || {
            writers(folder.path()).is_empty()
        })
        .await;
        let stored = read_events(folder.path(), 0, usize::MAX).unwrap();
        assert!(
            newest <= stored.len() as u64,
            "round {round}: events are lost"
        );
        assert!(
            stored
                .iter()
                .zip(1..)
                .all(|(stored, seq)| *stored == event(seq))
        );
    }
}

#[tokio::test]
async fn the_writer_ends_with_the_last_handle() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    let other = store.clone();
    drop(store);
    append_all(&other, 1..=1).await;
    assert_eq!(writers(folder.path()).len(), 1);
    drop(other);
    until(SOON, "the writer stays", || {
        writers(folder.path()).is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_stopped_store_takes_nothing_more_and_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    let waiting = store.append(event(1), &[]);
    store.stop();
    waiting.await;
    assert_eq!(store.append(event(2), &[]).await, Appended::NotDurable);
    assert!(store.events(0, 1).await.is_err());
    store.opened().await;
    assert!(!store.health().ok);
}

/// A program that cannot be started is a problem in words, and nothing waits for it.
#[tokio::test]
async fn without_a_writer_everything_goes_on_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.program = folder.path().join("missing");
    let store = Store::start(options, Clock::start());
    let opened = within(SLACK * Duration::from_secs(1), "open waits", store.open()).await;
    assert!(!opened.complete && opened.failure.is_some(), "{opened:?}");
    assert_eq!(store.append(event(1), &[]).await, Appended::NotDurable);
    let health = store.health();
    assert!(!health.ok && health.waiting == 1, "{health:?}");
    assert!(health.problem.unwrap().contains("cannot be started"));
}
