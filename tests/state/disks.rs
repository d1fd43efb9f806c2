//! State directories on file systems that are full, read-only or frozen. As root only, each on a
//! file system of its own, which is thawed and unmounted whatever happens.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;

/// A mounted file system of this test.
struct Mount {
    folder: tempfile::TempDir,
    /// Thaws and unmounts when the pipe to it closes, also when this process is killed.
    cleaner: Child,
}

/// Says why the test is skipped, if it is.
fn may_mount() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root to mount");
    }
    root
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
}

impl Mount {
    fn tmpfs(size: &str) -> Mount {
        let mount = Mount::unmounted();
        let options = format!("size={size}");
        run(
            "mount",
            &["-t", "tmpfs", "-o", &options, "tmpfs", mount.point()],
        );
        mount
    }

    fn ext4() -> Mount {
        let mount = Mount::unmounted();
        let image = mount.folder.path().join("image");
        File::create(&image).unwrap().set_len(32 << 20).unwrap();
        let image = image.to_str().unwrap();
        run(
            "mkfs.ext4",
            &["-q", "-F", "-E", "lazy_itable_init=0", image],
        );
        run("mount", &["-o", "loop", image, mount.point()]);
        mount
    }

    fn unmounted() -> Mount {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("mount")).unwrap();
        let cleaner = Command::new("sh")
            .args(["-c", "cat; fsfreeze --unfreeze \"$0\"; umount -l \"$0\""])
            .arg(folder.path().join("mount"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        Mount { folder, cleaner }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    fn point(&self) -> &str {
        Box::leak(self.path().into_boxed_path()).to_str().unwrap()
    }

    fn state_dir(&self) -> PathBuf {
        self.path().join("state")
    }

    fn freeze(&self) {
        run("fsfreeze", &["--freeze", self.point()]);
    }

    fn thaw(&self) {
        run("fsfreeze", &["--unfreeze", self.point()]);
    }

    fn remount(&self, how: &str) {
        run("mount", &["-o", &format!("remount,{how}"), self.point()]);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        let _ = self.cleaner.wait();
    }
}

/// Health says so within a second, and nobody waits half a second, on a machine that is not busy.
async fn check_trouble(store: &Store, seq: u64, word: &str) {
    let said = || {
        let health = store.health();
        !health.ok && health.problem.is_some_and(|text| text.contains(word))
    };
    let problem = format!("health does not say {word:?}: {:?}", store.health());
    until(SLACK * Duration::from_millis(1000), &problem, said).await;
    let append = store.append(event(seq), &page());
    let appended = within(
        SLACK * Duration::from_millis(500),
        "an append waits",
        append,
    )
    .await;
    assert_eq!(appended, Appended::NotDurable);
}

/// It heals by itself, and has what happened meanwhile.
async fn check_healed(store: &Store, newest: u64) {
    until_ok(store).await;
    let all = read(store, 0, 1000).await;
    assert_eq!(seqs(&all), (1..=newest).collect::<Vec<_>>());
    let health = store.health();
    assert_eq!((health.waiting, health.lost), (0, 0));
    append_all(store, newest + 1..=newest + 1).await;
}

#[tokio::test]
async fn a_frozen_state_directory_costs_durability_only_until_it_is_thawed() {
    if !may_mount() {
        return;
    }
    let mount = Mount::ext4();
    let (store, _) = open(&mount.state_dir()).await;
    append_all(&store, 1..=3).await;
    mount.freeze();
    check_trouble(&store, 4, "not answered").await;
    let reading = within(
        SLACK * Duration::from_secs(1),
        "a read waits",
        store.events(0, 9),
    );
    assert!(reading.await.is_err());
    mount.thaw();
    check_healed(&store, 4).await;
    assert_eq!(store.health().restarts, 0);
}

/// Not noticed beforehand: the append itself meets the frozen file system.
#[tokio::test]
async fn an_append_to_a_frozen_state_directory_is_given_up_in_time() {
    if !may_mount() {
        return;
    }
    let mount = Mount::ext4();
    let (store, _) = open(&mount.state_dir()).await;
    append_all(&store, 1..=1).await;
    mount.freeze();
    let append = store.append(event(2), &page());
    let appended = within(
        SLACK * Duration::from_millis(500),
        "the append waits",
        append,
    )
    .await;
    assert_eq!(appended, Appended::NotDurable);
    assert!(!store.health().ok);
    mount.thaw();
    check_healed(&store, 2).await;
}

#[tokio::test]
async fn stopping_does_not_wait_for_a_frozen_state_directory() {
    if !may_mount() {
        return;
    }
    let mount = Mount::ext4();
    let (store, _) = open(&mount.state_dir()).await;
    append_all(&store, 1..=1).await;
    mount.freeze();
    check_trouble(&store, 2, "not answered").await;
    let clock = Clock::start();
    store.stop();
    drop(store);
    assert!(clock.elapsed() < SLACK * Duration::from_millis(50));
    assert_eq!(writers(&mount.state_dir()).len(), 1, "it was left behind");

    // The next agent is not told that the directory belongs to somebody.
    let store = start(&mount.state_dir());
    let opened = verdict(&store, |_| true).await;
    let failure = opened.failure.unwrap();
    assert!(!failure.is_fatal(), "{failure:?}");
    mount.thaw();
    let opened = within(SOON, "the store does not open", store.opened()).await;
    assert!(opened.complete);
    assert_eq!(opened.pending["page"][0], event(1));
}

/// The contents are read although nothing can be written.
#[tokio::test]
async fn a_store_on_a_frozen_file_system_is_read_at_start() {
    if !may_mount() {
        return;
    }
    let mount = Mount::ext4();
    let (store, _) = open(&mount.state_dir()).await;
    append_all(&store, 1..=3).await;
    store.put_pin(b"key", b"value");
    keep_claims(&store, b"claims").await;
    kill_writers(&mount.state_dir());
    close(store, &mount.state_dir()).await;
    mount.freeze();
    let store = start(&mount.state_dir());
    let opened = verdict(&store, |opened| opened.last_seq == 3).await;
    assert!(!opened.complete, "{opened:?}");
    assert_eq!((opened.last_seq, opened.pins.len()), (3, 1), "{opened:?}");
    assert_eq!(opened.claims.as_deref(), Some(&b"claims"[..]));
    let put = store.put_claims(b"newer".to_vec());
    assert!(!within(SLACK * Duration::from_millis(500), "claims wait", put).await);
    check_trouble(&store, 4, "").await;
    mount.thaw();
    within(SOON, "the store does not open", store.opened()).await;
    check_healed(&store, 4).await;
}

#[tokio::test]
async fn a_full_state_directory_is_said_and_heals() {
    if !may_mount() {
        return;
    }
    let mount = Mount::tmpfs("1m");
    let (store, _) = open(&mount.state_dir()).await;
    append_all(&store, 1..=3).await;
    fill(&mount);
    let problem = "health does not say that it is full";
    let full = || {
        let health = store.health();
        !health.ok && health.problem.is_some_and(|text| text.contains("full"))
    };
    until(SLACK * Duration::from_millis(1000), problem, full).await;
    // Whether one more fits or not, nobody waits; sooner or later none does.
    let mut seq = 3;
    loop {
        seq += 1;
        let append = store.append(event(seq), &page());
        let appended = within(
            SLACK * Duration::from_millis(500),
            "an append waits",
            append,
        )
        .await;
        if appended == Appended::NotDurable {
            break;
        }
        assert!(seq < 5000, "a full disk takes everything");
    }
    until(SLACK * Duration::from_millis(1000), problem, full).await;
    fs::remove_file(mount.path().join("filler")).unwrap();
    check_healed(&store, seq).await;
}

/// Takes all the space that is left.
fn fill(mount: &Mount) {
    let mut filler = File::create(mount.path().join("filler")).unwrap();
    let full = std::io::copy(&mut std::io::repeat(7), &mut filler).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
}

#[tokio::test]
async fn a_state_directory_that_is_full_at_start_is_used_when_there_is_room() {
    if !may_mount() {
        return;
    }
    let mount = Mount::tmpfs("1m");
    fs::create_dir(mount.state_dir()).unwrap();
    fill(&mount);
    let store = start(&mount.state_dir());
    let opened = verdict(&store, is_answer).await;
    let failure = opened.failure.unwrap();
    assert!(failure.to_string().contains("is full"), "{failure}");
    check_trouble(&store, 1, "is full").await;
    fs::remove_file(mount.path().join("filler")).unwrap();
    check_healed(&store, 1).await;
}

#[tokio::test]
async fn a_read_only_state_directory_is_said_and_heals() {
    if !may_mount() {
        return;
    }
    let mount = Mount::tmpfs("8m");
    let (store, _) = open(&mount.state_dir()).await;
    append_all(&store, 1..=3).await;
    store.put_pin(b"key", b"value");
    keep_claims(&store, b"claims").await;
    close(store, &mount.state_dir()).await;
    mount.remount("ro");

    let store = start(&mount.state_dir());
    let opened = verdict(&store, is_answer).await;
    let failure = opened.failure.unwrap();
    assert!(failure.to_string().contains("is read-only"), "{failure}");
    assert!(!failure.is_fatal());
    assert_eq!((opened.last_seq, opened.pins.len()), (3, 1));
    assert_eq!(opened.claims.as_deref(), Some(&b"claims"[..]));
    assert_eq!(seqs(&opened.pending["page"]), [1, 2, 3]);
    check_trouble(&store, 4, "read-only").await;
    mount.remount("rw");
    within(SOON, "the store does not open", store.opened()).await;
    check_healed(&store, 4).await;
}

#[tokio::test]
async fn another_file_system_over_the_state_directory_is_said() {
    if !may_mount() {
        return;
    }
    let mount = Mount::tmpfs("8m");
    let (store, _) = open(&mount.state_dir()).await;
    append_all(&store, 1..=3).await;
    let over = mount.state_dir();
    let over = over.to_str().unwrap();
    run("mount", &["-t", "tmpfs", "-o", "ro", "tmpfs", over]);
    check_trouble(&store, 4, "removed or replaced").await;
    let problem = "health does not say what is there now";
    until(SOON, problem, || {
        matches!(store.health().failure, Some(StoreError::ReadOnly(_)))
    })
    .await;
    run("umount", &[over]);
    check_healed(&store, 4).await;
}

#[tokio::test]
async fn a_state_directory_that_may_not_be_made_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let state_dir = file.join("state");
    let store = start(&state_dir);
    let opened = verdict(&store, is_answer).await;
    assert!(!opened.failure.unwrap().is_fatal());
    check_trouble(&store, 1, "creating").await;
    fs::remove_file(&file).unwrap();
    check_healed(&store, 1).await;
    close(store, &state_dir).await;
}

/// A writer that hangs for half a minute is left behind for another one.
#[tokio::test]
async fn a_stuck_writer_is_replaced_after_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path()).await;
    append_all(&store, 1..=3).await;
    let stuck = writers(folder.path())[0];
    kill(stuck, Signal::SIGSTOP).unwrap();
    check_trouble(&store, 4, "not answered").await;
    let limit = Duration::from_secs(60);
    let replaced = || store.health().restarts == 1 && store.health().ok;
    until(limit, "the writer is not replaced", replaced).await;
    check_healed(&store, 4).await;
    assert!(!writers(folder.path()).contains(&stuck));
    assert_eq!(store.health().abandoned, 0);
}

#[tokio::test]
async fn a_textfile_in_a_full_or_frozen_directory_is_said_and_keeps_nothing_up() {
    if !may_mount() {
        return;
    }
    let (mount, state) = (Mount::ext4(), tempfile::tempdir().unwrap());
    let (store, _) = open(&state.path().join("state")).await;
    let textfile = mount.path().join("dirkeeper.prom");
    store.put_textfile(&mount.path(), "up 1\n");
    until(SOON, "it is not written", || textfile.exists()).await;

    store.put_textfile(&mount.path(), &"x".repeat(15 << 20));
    store.put_textfile(&mount.path(), &"y".repeat(15 << 20));
    let filler = File::create(mount.path().join("filler")).unwrap();
    let _ = nix::fcntl::posix_fallocate(&filler, 0, 64 << 20);
    store.put_textfile(&mount.path(), &"z".repeat(15 << 20));
    let full = || {
        let problem = store.textfile_problem();
        problem.is_some_and(|text| text.contains("cannot be written: No space"))
    };
    until(SOON, "a full disk is not said", full).await;
    append_all(&store, 1..=3).await;
    assert!(store.health().ok);
    drop(filler);
    fs::remove_file(mount.path().join("filler")).unwrap();

    mount.freeze();
    store.put_textfile(&mount.path(), "up 2\n");
    let hangs = || {
        let problem = store.textfile_problem();
        problem.is_some_and(|text| text.contains("has not answered for"))
    };
    until(SOON, "a frozen disk is not said", hangs).await;
    append_all(&store, 4..=6).await;
    assert!(store.health().ok);
    mount.thaw();
    let well = || store.textfile_problem().is_none();
    until(SOON, "a thawed disk is not noticed", well).await;
    assert_eq!(fs::read_to_string(&textfile).unwrap(), "up 2\n");
    close(store, &state.path().join("state")).await;
    assert!(!textfile.exists());
}
