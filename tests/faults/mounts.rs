//! Faults of mounts and of the directories themselves: F07, F08, F17 to F20.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::json;

use crate::harness::agent::{Agent, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::{Disk, make_image};
use crate::harness::dying_disk::DyingDisk;
use crate::harness::memory_fs::{Effect, Operation};
use crate::harness::run::{pass, text, tool, try_for, wait_for};
use crate::harness::sweep::mounts_below;

/// Mount changes are announced by the kernel.
const AT_ONCE: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);
/// As all tests configure them.
const DWELL: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(10);

/// Nothing was written into a folder, also after further rounds of probes.
fn assert_stays_empty(folder: &Path, rounds: Duration) {
    pass(rounds);
    let names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(names.is_empty(), "{} holds {names:?}", folder.display());
}

/// F07: remounted read-only, and back.
pub(crate) fn remounted(bench: &Bench) {
    let disk = Disk::block(bench, "remounted", 64);
    let agent = Plan::new(bench).dir(disk.path()).start();
    let changed = bench.now();
    disk.remount(true);
    let event = agent.event("diskReadOnly", disk.path());
    bench.noticed(&event, changed, AT_ONCE);
    assert_eq!(event.cause(), "readOnlyMount");
    agent.wait_status(disk.path(), "readOnly");
    let changed = bench.now();
    disk.remount(false);
    let event = agent.event("diskRecovered", disk.path());
    bench.told(&event, changed, DWELL, DWELL + SECOND);
    assert_eq!(agent.names(disk.path()), ["diskReadOnly", "diskRecovered"]);
    agent.wait_status(disk.path(), "writable");
    agent.finish(bench);
}

/// F08: the kernel gives a file system up, and the mount still says `rw`, but on btrfs.
pub(crate) fn given_up(bench: &Bench) {
    match bench.kind() {
        "ext4" => journal_aborted(bench),
        "xfs" => shut_down(bench),
        _ => transaction_aborted(bench),
    }
}

/// ext4 aborts its journal, and the kernel says so by itself.
fn journal_aborted(bench: &Bench) {
    let (_under, disk) = on_a_short_device(bench);
    let agent = Plan::new(bench).dir(disk.path()).start();
    abort_journal(bench, agent, &disk, AT_ONCE);
}

/// The same for an agent without CAP_SYS_ADMIN, to which the kernel says nothing: the mount table is
/// read once a second.
pub(crate) fn given_up_unheard(bench: &Bench) {
    let (_under, disk) = on_a_short_device(bench);
    let agent = as_nobody(bench, disk.path()).start();
    let missing = agent.dir(disk.path())["sourcesMissing"].clone();
    let fanotify = json!({"name": "fanotify", "reason": "not permitted (needs CAP_SYS_ADMIN)"});
    assert!(
        missing.as_array().unwrap().contains(&fanotify),
        "fanotify is to be missing: {missing}"
    );
    abort_journal(bench, agent, &disk, SECOND);
}

/// An ext4 larger than the device under it.
fn on_a_short_device(bench: &Bench) -> (Disk, Disk) {
    let under = Disk::tmpfs(bench, "under", "size=20m");
    let image = under.path().join("image");
    make_image(&image, "ext4", 200, &[]);
    let disk = Disk::mount_image(bench, "aborted", &image, "loop,errors=remount-ro");
    (under, disk)
}

/// Fills the device until the journal is aborted.
fn abort_journal(bench: &Bench, agent: Agent, disk: &Disk, limit: Duration) {
    let mut file = File::create(disk.path().join("filler")).unwrap();
    let block = vec![0x5a; 256 << 10];
    let at = wait_for("the journal is aborted", Duration::from_secs(30), || {
        // Errors are what this is about.
        let _ = file.write_all(&block).and_then(|()| file.sync_data());
        is_given_up(disk.path()).then(|| bench.now())
    });
    let event = agent.event("diskReadOnly", disk.path());
    bench.noticed(&event, at, limit);
    assert_eq!(event.cause(), "kernelError");
    agent.finish(bench);
}

/// xfs shuts down, as after an error in its log: reads fail too. No option of the mount says so.
fn shut_down(bench: &Bench) {
    let disk = Disk::block(bench, "shut", 64);
    let agent = Plan::new(bench).dir(disk.path()).start();
    let from = bench.now();
    tool("xfs_io", ["-x", "-c", "shutdown", text(disk.path())]);
    let event = agent.event("diskFailed", disk.path());
    // Nobody is told; statvfs fails, once a second.
    bench.noticed(&event, from, SECOND);
    assert_eq!(event.cause(), "io");
    assert_eq!(agent.names(disk.path()), ["diskFailed"]);
    agent.finish(bench);
}

/// btrfs aborts a transaction that it cannot write, and turns read-only.
fn transaction_aborted(bench: &Bench) {
    let dying = DyingDisk::new(bench, "aborted", 128);
    let dir = dying.disk.path();
    let agent = Plan::new(bench).dir(dir).start();
    dying.device.set(Operation::Write, Effect::Fail(Errno::EIO));
    let at = wait_for(
        "the transaction is aborted",
        Duration::from_secs(30),
        || {
            // Errors are what this is about.
            let written = File::create(dir.join("file"));
            let _ = written.and_then(|file| file.sync_all());
            is_given_up(dir).then(|| bench.now())
        },
    );
    let event = agent.event("diskReadOnly", dir);
    // Nobody is told; the mount table is read once a second.
    bench.noticed(&event, at, SECOND);
    assert_eq!(event.cause(), "kernelError");
    agent.finish(bench);
}

/// The kernel has set an option of the super block.
fn is_given_up(point: &Path) -> bool {
    let mount = mounts_below(point).pop();
    let options = mount.map(|mount| mount.super_options).unwrap_or_default();
    let mut options = options.split(',');
    options.any(|option| matches!(option, "emergency_ro" | "ro"))
}

/// F17: unmounted lazily. The mount point stays, as a directory of another disk.
pub(crate) fn unmounted(bench: &Bench) {
    let disk = Disk::block(bench, "gone", 64);
    let agent = Plan::new(bench)
        .set("interval", "2s")
        .dir(disk.path())
        .start();
    let changed = bench.now();
    disk.detach();
    let event = agent.event("diskVanished", disk.path());
    bench.noticed(&event, changed, AT_ONCE);
    assert_stays_empty(disk.path(), Duration::from_secs(5));
    assert_eq!(agent.names(disk.path()), ["diskVanished"]);
    assert_eq!(agent.dir(disk.path())["status"], "vanished");
    agent.finish(bench);
}

/// F17 again, with the agent in mounts of its own that follow the host's, as a unit of systemd is.
pub(crate) fn unmounted_outside(bench: &Bench) {
    let disk = Disk::block(bench, "gone", 64);
    let agent = Plan::new(bench)
        .wrapper(&["unshare", "--mount", "--propagation", "slave", "--"])
        .set("interval", "2s")
        .dir(disk.path())
        .start();
    let changed = bench.now();
    disk.detach();
    let event = agent.event("diskVanished", disk.path());
    bench.noticed(&event, changed, AT_ONCE);
    assert_stays_empty(disk.path(), Duration::from_secs(5));
    assert_eq!(agent.names(disk.path()), ["diskVanished"]);
    agent.finish(bench);
}

/// F18: another file system is mounted over it.
pub(crate) fn mounted_over(bench: &Bench) {
    let disk = Disk::block(bench, "covered", 64);
    let agent = Plan::new(bench)
        .set("interval", "2s")
        .dir(disk.path())
        .start();
    let changed = bench.now();
    let over = Disk::tmpfs(bench, "covered", "size=16m");
    let event = agent.event("diskReplaced", disk.path());
    bench.noticed(&event, changed, AT_ONCE);
    assert_stays_empty(over.path(), Duration::from_secs(5));
    assert_eq!(agent.names(disk.path()), ["diskReplaced"]);
    assert_eq!(agent.dir(disk.path())["status"], "replaced");
    agent.finish(bench);
}

/// F19: a directory is deleted, replaced by a file, replaced by a symbolic link to elsewhere.
pub(crate) fn directory_gone(bench: &Bench) {
    let disk = Disk::tmpfs(bench, "three", "size=64m");
    let [deleted, file, link] = ["deleted", "file", "link"].map(|name| disk.dir(name));
    let agent = Plan::new(bench).dir(&deleted).dir(&file).dir(&link).start();
    File::create(disk.path().join("a-file")).unwrap();
    symlink(disk.dir("elsewhere"), disk.path().join("a-link")).unwrap();
    let changed = bench.now();
    wait_for(
        "the directory is deleted between two probes",
        SECOND,
        || fs::remove_dir(&deleted).ok(),
    );
    for (dir, other) in [(&file, "a-file"), (&link, "a-link")] {
        let other = disk.path().join(other);
        renameat2(
            AT_FDCWD,
            &other,
            AT_FDCWD,
            dir,
            RenameFlags::RENAME_EXCHANGE,
        )
        .unwrap();
    }
    let expected = [
        (&deleted, "diskVanished", "missing"),
        (&file, "diskFailed", "notADirectory"),
        (&link, "diskReplaced", "wrongDevice"),
    ];
    for (dir, name, cause) in expected {
        let event = agent.event(name, dir);
        bench.noticed(&event, changed, SECOND);
        assert_eq!(event.cause(), cause);
        assert_eq!(agent.names(dir), [name]);
    }
    agent.finish(bench);
}

/// An agent as a user without privileges, to whom its directories belong.
fn as_nobody<'a>(bench: &'a Bench, dir: &Path) -> Plan<'a> {
    const NOBODY: u32 = 65534;
    let state = bench.dir("state-of-nobody");
    let [(journal, _), (index, _)] = bench.healthy();
    for path in [dir, &state, &journal, &index] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    Plan::new(bench)
        .copied_to(bench.folder())
        .by_user(NOBODY)
        .state_dir(&state)
        .dir(dir)
}

/// F20: the directory may not be written by the user as whom agent and bookie run.
pub(crate) fn not_permitted(bench: &Bench) {
    let disk = Disk::block(bench, "refused", 64);
    let agent = as_nobody(bench, disk.path()).start();
    let changed = bench.now();
    chown(disk.path(), Some(0), Some(0)).unwrap();
    fs::set_permissions(disk.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let event = agent.event("diskFailed", disk.path());
    bench.noticed(&event, changed, INTERVAL + SECOND * 3);
    assert_eq!(event.cause(), "permission");
    let message = event.json["cause"]["message"].as_str().unwrap();
    let owner = "belongs to uid 0 with mode 0555, we are uid 65534";
    assert!(
        message.contains(owner),
        "owner, mode and uid are to be named: {message}"
    );
    assert_eq!(agent.names(disk.path()), ["diskFailed"]);
    agent.finish(bench);
}

/// No descriptor on a watched directory outlives an operation: plain `umount` succeeds.
pub(crate) fn unmount_succeeds(bench: &Bench) {
    let disk = Disk::block(bench, "idle", 64);
    let agent = Plan::new(bench).dir(disk.path()).start();
    // A look may be running this very moment; a second try shortly after meets none.
    let tries = Duration::from_millis(50);
    let unmounted = try_for(tries, || disk.unmount().is_ok().then_some(()));
    assert!(unmounted.is_some(), "busy beside an idle agent");
    agent.event("diskVanished", disk.path());
    agent.finish(bench);
}
