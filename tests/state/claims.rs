//! The claims on the server's mode: whoever was told that they are on disk finds them again, whatever
//! was killed, and nothing older takes their place.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use redb::{Database, TableDefinition};

use super::*;

/// Claims with a number in them, long enough to fill some pages.
fn claims(number: u32) -> Vec<u8> {
    let mut claims = number.to_le_bytes().to_vec();
    claims.resize(1000 + usize::try_from(number % 7).unwrap() * 3000, b'c');
    claims
}

/// The number in them; they must be whole.
fn number(stored: &[u8]) -> u32 {
    let number = u32::from_le_bytes(stored[..4].try_into().unwrap());
    assert!(stored == claims(number), "claims {number} are not whole");
    number
}

/// What a new agent finds.
async fn stored(state_dir: &Path) -> u32 {
    let (store, opened) = open(state_dir).await;
    assert!(!opened.pins_lost, "{opened:?}");
    close(store, state_dir).await;
    opened.claims.map_or(0, |claims| number(&claims))
}

#[tokio::test]
async fn the_newest_claims_survive_a_restart_and_are_handed_out_once() {
    let folder = tempfile::tempdir().unwrap();
    let (store, opened) = open(folder.path()).await;
    assert_eq!(opened.claims, None);
    let older = store.put_claims(b"older".to_vec());
    keep_claims(&store, b"newer").await;
    // Whether it was sent before the newer ones came or not: it is answered.
    within(SOON, "the older claims are not answered", older).await;
    close(store, folder.path()).await;

    let (store, opened) = open(folder.path()).await;
    assert_eq!(opened.claims.as_deref(), Some(&b"newer"[..]));
    assert_eq!(store.opened().await.claims, None);
    keep_claims(&store, b"").await;
    close(store, folder.path()).await;
    let (_store, opened) = open(folder.path()).await;
    assert_eq!(opened.claims.as_deref(), Some(&b""[..]));
}

#[tokio::test]
async fn claims_that_are_too_long_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    assert!(!store.put_claims(vec![0; 300 * 1024]).await);
    keep_claims(&store, &[7; 200 * 1024]).await;
    close(store, folder.path()).await;
    let (_store, opened) = open(folder.path()).await;
    assert_eq!(opened.claims, Some(vec![7; 200 * 1024]));
}

/// A store of an older program has no table for them, and stays one that such a program can use.
#[tokio::test]
async fn a_store_without_a_table_of_claims_gets_one() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    append_all(&store, 1..=2).await;
    close(store, folder.path()).await;
    let database = Database::open(folder.path().join("state.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let table: TableDefinition<&str, &[u8]> = TableDefinition::new("claims");
    assert!(transaction.delete_table(table).unwrap());
    transaction.commit().unwrap();
    drop(database);

    let (store, opened) = open(folder.path()).await;
    assert_eq!((opened.last_seq, opened.claims), (2, None));
    assert!(!opened.pins_lost && opened.problems.is_empty());
    keep_claims(&store, &claims(1)).await;
    close(store, folder.path()).await;
    assert_eq!(stored(folder.path()).await, 1);
}

#[tokio::test]
async fn killing_the_writer_loses_no_claims_that_were_acknowledged() {
    const ROUNDS: u32 = 12;
    let folder = tempfile::tempdir().unwrap();
    let mut put = 0;
    for round in 0..ROUNDS {
        let (store, opened) = open(folder.path()).await;
        let before = opened.claims.map_or(0, |claims| number(&claims));
        assert!(before <= put, "round {round}");
        let killer = async {
            let wait = Duration::from_micros(fastrand::u64(0..40_000));
            tokio::time::sleep(wait).await;
            kill_writers(folder.path());
        };
        let putter = async {
            let mut durable = before;
            // Until the writer is gone, and some into its successor.
            let mut refused = 0;
            while refused < 3 {
                put += 1;
                if store.put_claims(claims(put)).await {
                    durable = put;
                } else {
                    refused += 1;
                    until_ok(&store).await;
                }
                if store.health().restarts != 0 && before + 20 < put {
                    break;
                }
            }
            durable
        };
        let both = async { tokio::join!(killer, putter) };
        let ((), durable) = within(SOON, "the claims are not put", both).await;
        // The agent goes without a word.
        kill_writers(folder.path());
        close(store, folder.path()).await;
        let found = stored(folder.path()).await;
        assert!(
            durable <= found && found <= put,
            "round {round}: {durable} were acknowledged, {put} put, {found} found"
        );
    }
}

/// What an agent in another process does: puts claims, and says which are durable.
#[tokio::test]
#[ignore = "is run by the test below"]
async fn agent() {
    let state_dir = PathBuf::from(std::env::var_os("DIRKEEPER_TEST_STATE_DIR").unwrap());
    let (store, opened) = open(&state_dir).await;
    let newest = opened.claims.map_or(0, |claims| number(&claims));
    for next in newest + 1.. {
        if store.put_claims(claims(next)).await {
            println!("durable {next}");
        }
    }
}

fn spawn_agent(state_dir: &Path) -> (Child, impl Iterator<Item = u32>) {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["claims::agent", "--exact", "--ignored", "--nocapture"])
        .env("DIRKEEPER_TEST_STATE_DIR", state_dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let numbers = lines
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("durable ")?.parse().ok());
    (process, numbers)
}

#[tokio::test]
async fn killing_the_agent_loses_no_claims_that_were_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let (mut process, numbers) = spawn_agent(folder.path());
        let count = fastrand::usize(1..40);
        let mut newest = 0;
        for (said, number) in numbers.enumerate() {
            newest = number;
            if said == count {
                // The lines that it still says until it is dead are read as well.
                let pid = i32::try_from(process.id()).unwrap();
                kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            }
        }
        process.wait().unwrap();
        assert_ne!(newest, 0, "round {round}: the agent put nothing");
        until(SOON, "the writer stays behind", || {
            writers(folder.path()).is_empty()
        })
        .await;
        let found = stored(folder.path()).await;
        assert!(
            newest <= found,
            "round {round}: {newest} were acknowledged, {found} found"
        );
    }
}
