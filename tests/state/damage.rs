//! Files that are damaged, or from the future.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use dirkeeper::state::{StoreError, read_events};
use redb::{Database, TableDefinition};

use super::*;

/// What [`filled`] puts as claims.
const CLAIMS: &[u8] = b"operator readOnly: disk swap";

/// A closed store with 300 events, a pin and claims.
async fn filled() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    append_all(&store, 1..=300).await;
    store.put_pin(b"/mnt/l1", b"uuid");
    keep_claims(&store, CLAIMS).await;
    flush(&store).await;
    close(store, folder.path()).await;
    folder
}

fn kept_aside(state_dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(state_dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().contains("/state.redb.corrupt-2"))
        .collect()
}

/// Damages the store, and expects it to be kept aside as it is and a new one to work.
async fn check_damage(damage: impl FnOnce(&Path)) {
    let folder = filled().await;
    let file = folder.path().join("state.redb");
    damage(&file);
    let damaged = fs::read(&file).unwrap();
    let error = read_events(folder.path(), 0, 9).unwrap_err();
    assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");

    let (store, opened) = open(folder.path()).await;
    let kept = kept_aside(folder.path());
    assert_eq!(kept.len(), 1);
    assert!(fs::read(&kept[0]).unwrap() == damaged);
    assert!(opened.pins_lost && opened.pins.is_empty() && opened.pending.is_empty());
    assert_eq!(opened.claims, None);
    let said = opened.problems.join("\n");
    assert!(said.contains(kept[0].to_str().unwrap()), "{said}");
    assert_eq!(read(&store, 0, 9).await, []);
    let next = opened.last_seq + 1;
    append_all(&store, next..=next + 5).await;
    close(store, folder.path()).await;
    let (_store, opened) = open(folder.path()).await;
    assert_eq!(opened.last_seq, next + 5);
    assert!(!opened.pins_lost && opened.problems.is_empty());
}

fn truncate(file: &Path, len: u64) {
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.set_len(len).unwrap();
}

#[tokio::test]
async fn an_empty_file_is_damage() {
    check_damage(|file| truncate(file, 0)).await;
}

#[tokio::test]
async fn a_truncated_file_is_damage() {
    check_damage(|file| truncate(file, fs::metadata(file).unwrap().len() / 3)).await;
    check_damage(|file| truncate(file, 4096)).await;
    check_damage(|file| truncate(file, 5)).await;
}

#[tokio::test]
async fn garbage_and_zeroes_are_damage() {
    check_damage(|file| fs::write(file, "garbage ".repeat(9999)).unwrap()).await;
    check_damage(|file| {
        let len = usize::try_from(fs::metadata(file).unwrap().len()).unwrap();
        fs::write(file, vec![0; len]).unwrap();
    })
    .await;
}

/// The quick look before the opening does not see this one, and the opening does.
#[tokio::test]
async fn half_a_flipped_page_is_damage() {
    check_damage(|path| {
        let bytes = fs::read(path).unwrap();
        let text = event(150).json;
        let at = bytes
            .windows(text.len())
            .rposition(|window| window == text.as_bytes())
            .unwrap();
        let page = at / 4096 * 4096;
        let flipped: Vec<u8> = bytes[page + 2048..page + 4096]
            .iter()
            .map(|byte| !byte)
            .collect();
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&flipped, page as u64 + 2048).unwrap();
    })
    .await;
}

#[tokio::test]
async fn another_database_is_damage() {
    check_damage(|file| {
        fs::remove_file(file).unwrap();
        let database = Database::create(file).unwrap();
        let transaction = database.begin_write().unwrap();
        let table: TableDefinition<u64, u64> = TableDefinition::new("theirs");
        transaction.open_table(table).unwrap();
        transaction.commit().unwrap();
    })
    .await;
}

async fn check_newer(state_dir: &Path, found: u64, known: u64) {
    let file = state_dir.join("state.redb");
    let before = fs::read(&file).unwrap();
    let error = StoreError::NewerVersion { found, known };
    assert!(error.is_fatal());
    let store = start(state_dir);
    let opened = verdict(&store, is_answer).await;
    assert_eq!(opened.failure, Some(error.clone()));
    assert!(!opened.pins_lost);
    close(store, state_dir).await;
    assert_eq!(read_events(state_dir, 0, 9).unwrap_err(), error);
    assert!(before == fs::read(&file).unwrap(), "the file was touched");
    assert!(kept_aside(state_dir).is_empty());
}

#[tokio::test]
async fn a_newer_version_is_refused_and_not_touched() {
    let folder = filled().await;
    let database = Database::open(folder.path().join("state.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta: TableDefinition<&str, u64> = TableDefinition::new("meta");
    transaction
        .open_table(meta)
        .unwrap()
        .insert("schema", 7)
        .unwrap();
    transaction.commit().unwrap();
    drop(database);
    check_newer(folder.path(), 7, 1).await;
}

/// The database's own version is a byte in each of its two headers.
#[tokio::test]
async fn a_newer_file_format_is_refused_and_not_touched() {
    let folder = filled().await;
    let file = OpenOptions::new()
        .write(true)
        .open(folder.path().join("state.redb"))
        .unwrap();
    file.write_all_at(&[4], 64).unwrap();
    file.write_all_at(&[4], 192).unwrap();
    check_newer(folder.path(), 4, 3).await;
}

#[tokio::test]
async fn a_removed_store_is_noticed_and_made_again() {
    let folder = filled().await;
    let (store, _) = open(folder.path()).await;
    fs::remove_dir_all(folder.path()).unwrap();
    until(SOON, "the store is not made again", || {
        folder.path().join("state.redb").exists() && store.health().ok
    })
    .await;
    let opened = store.opened().await;
    assert!(opened.pins_lost, "{opened:?}");
    append_all(&store, 301..=301).await;
    assert_eq!(seqs(&read(&store, 0, 9).await), [301]);
}

/// Whatever is flipped, a working store comes out, and what it has is not garbage.
#[tokio::test]
async fn random_damage_never_keeps_the_store_from_working() {
    let folder = filled().await;
    let file = folder.path().join("state.redb");
    let whole = fs::read(&file).unwrap();
    for round in 0..rounds() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut damaged = whole.clone();
        // Half of them near the beginning, where the structure is.
        let end = if random.bool() { 1024 } else { damaged.len() };
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..end);
            let until = (at + random.usize(1..64)).min(damaged.len());
            damaged[at..until].fill_with(|| random.u8(..));
        }
        // The version of the file format, which is refused if it looks like the next ones.
        for at in [64, 192] {
            if (4..=15).contains(&damaged[at]) {
                damaged[at] = whole[at];
            }
        }
        fs::write(&file, &damaged).unwrap();
        let store = start(folder.path());
        let opened = tokio::time::timeout(SOON, store.opened()).await;
        let opened = opened.unwrap_or_else(|_| {
            panic!("round {round}, seed {seed}: {:?}", store.health());
        });
        let events = read(&store, 0, 1000).await;
        assert!(
            events.iter().all(|stored| *stored == event(stored.seq)),
            "seed {seed}"
        );
        let whole = events.len() == 300 && opened.claims.as_deref() == Some(CLAIMS);
        assert!(opened.pins_lost || whole, "seed {seed}");
        close(store, folder.path()).await;
    }
}

/// More of them when asked for.
fn rounds() -> u32 {
    let asked = std::env::var("DIRKEEPER_TEST_ROUNDS");
    asked.map_or(12, |rounds| rounds.parse().unwrap())
}
