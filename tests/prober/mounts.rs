//! The prober on file systems made for the test, in a mount name space of the test's own. Needs
//! root; without it each test says that it is skipped.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dirkeeper::health::dir::DirId;
use dirkeeper::health::observation::{Finding, Medium, Operation};
use dirkeeper::probe::{LookKind, Report};
use nix::sys::signal::Signal;
use tokio::time::sleep;

use super::SLACK;
use super::watch::{PROBE, Point, Watch, binary, run, watched};

const INSIDE: &str = "DIRKEEPER_TEST_MOUNTS";

/// Runs the body in a mount name space of its own, by starting this test program again for this
/// one test. Every mount is gone when that process ends, however it ends.
fn in_own_mounts(test: &str, body: impl FnOnce(&Path)) {
    in_own_mounts_of("mounts", test, body);
}

/// The same for a test of another file of this program.
pub(crate) fn in_own_mounts_of(file: &str, test: &str, body: impl FnOnce(&Path)) {
    if let Some(root) = std::env::var_os(INSIDE) {
        return body(Path::new(&root));
    }
    if !nix::unistd::geteuid().is_root() {
        // Written past the test harness, which would keep it for itself.
        let text = format!("SKIPPED {test}: it needs root for its mounts\n");
        let _ = io::stderr().write_all(text.as_bytes());
        return;
    }
    // Removed by this process, when the mounts in it are gone.
    let root = tempfile::tempdir().expect("a directory");
    let status = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("{file}::{test}"), "--nocapture"])
        .env(INSIDE, fs::canonicalize(root.path()).expect("a path"))
        .status()
        .expect("util-linux is there");
    assert!(status.success(), "{test} failed in its name space");
}

pub(crate) fn do_run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    let status = status.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

/// A file system in memory at a new directory of that name.
pub(crate) fn tmpfs(root: &Path, name: &str, options: &str) -> PathBuf {
    mounted(root, name, &["-t", "tmpfs", "-o", options, "tmpfs"])
}

pub(crate) fn mounted(root: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let point = root.join(name);
    fs::create_dir_all(&point).expect("a mount point");
    let mut arguments = arguments.to_vec();
    arguments.push(text(&point));
    do_run("mount", &arguments);
    point
}

/// An ext4 of 16 MiB on a loop device. Thawed when the test ends, however it ends: a frozen file
/// system would outlive its name space.
pub(crate) struct Ext4 {
    pub(crate) point: PathBuf,
}

impl Ext4 {
    pub(crate) fn new(root: &Path, name: &str) -> Ext4 {
        let image = root.join(format!("{name}.img"));
        let file = fs::File::create(&image).expect("an image");
        file.set_len(16 << 20).expect("a sparse image");
        do_run("mkfs.ext4", &["-q", text(&image)]);
        let point = mounted(root, name, &["-o", "loop", text(&image)]);
        Ext4 { point }
    }

    fn freeze(&self) {
        do_run("fsfreeze", &["--freeze", text(&self.point)]);
    }

    fn thaw(&self) {
        do_run("fsfreeze", &["--unfreeze", text(&self.point)]);
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze")
            .args(["--unfreeze", text(&self.point)])
            .stderr(std::process::Stdio::null())
            .status();
        let _ = Command::new("umount").arg(&self.point).status();
    }
}

#[test]
fn a_frozen_file_system_shows_as_in_flight_and_delays_no_other() {
    in_own_mounts(
        "a_frozen_file_system_shows_as_in_flight_and_delays_no_other",
        |root| {
            let ext4 = Ext4::new(root, "ext4");
            let (one, other) = (ext4.point.join("one"), ext4.point.join("other"));
            fs::create_dir(&one).unwrap();
            fs::create_dir(&other).unwrap();
            let memory = tmpfs(root, "memory", "size=1m");
            run(async {
                let mut watch = Watch::of(&[&one, &other, &memory]);
                watch.alive().await;
                for dir in 0..3 {
                    assert_eq!(watch.look(dir, PROBE).await.failure, None);
                }
                ext4.freeze();
                let frozen = Point::now();
                watch.prober.look(DirId(0), PROBE);
                let first = watch.in_flight(0, Duration::ZERO).await;
                let since = frozen.elapsed();
                let range = Duration::from_secs(1)..SLACK * Duration::from_secs(2);
                assert!(range.contains(&since), "reported after {since:?}");
                assert_eq!((first.operation, first.behind), (Operation::Create, None));
                watch.prober.look(DirId(1), LookKind::Space);
                let second = watch.in_flight(1, Duration::ZERO).await;
                assert_eq!(second.behind.as_deref(), Some(one.as_path()));
                assert_eq!(watch.look(2, PROBE).await.failure, None);
                // A stopped prober ages nothing: three seconds count as one.
                let before = watch.in_flight(0, Duration::ZERO).await.age;
                let told = Point::now();
                watch.signal(Signal::SIGSTOP);
                sleep(Duration::from_secs(3)).await;
                watch.signal(Signal::SIGCONT);
                let after = watch.in_flight(0, before).await.age;
                let (aged, passed) = (after - before, told.elapsed());
                // Two seconds are left out, and one is for how late each is told.
                assert!(
                    aged + Duration::from_secs(1) < passed,
                    "aged {aged:?} in {passed:?}, most of it stopped"
                );
                ext4.thaw();
                let look = watch.looked(0).await;
                assert_eq!((look.probed, look.failure), (true, None));
                assert_eq!(watch.looked(1).await.failure, None);
                assert_eq!(fs::read_dir(&one).unwrap().count(), 0);
            });
        },
    );
}

#[test]
fn stopping_does_not_wait_for_a_stuck_look() {
    in_own_mounts("stopping_does_not_wait_for_a_stuck_look", |root| {
        let ext4 = Ext4::new(root, "ext4");
        let started = std::sync::OnceLock::new();
        run(async {
            let mut watch = Watch::of(&[&ext4.point]);
            watch.alive().await;
            assert_eq!(watch.look(0, PROBE).await.failure, None);
            ext4.freeze();
            watch.prober.look(DirId(0), PROBE);
            watch.in_flight(0, Duration::ZERO).await;
            started.set(Point::now()).unwrap();
            watch.prober.stop();
        });
        let took = started.get().unwrap().elapsed();
        assert!(
            took < SLACK * Duration::from_millis(100),
            "stopped after {took:?}"
        );
        ext4.thaw();
    });
}

/// Children killed while a disk holds them are counted; after three of them their directory is not
/// asked about any more, but still reported as in flight, until one of them ends.
#[test]
fn at_most_three_children_are_left_behind_for_one_disk() {
    in_own_mounts(
        "at_most_three_children_are_left_behind_for_one_disk",
        |root| {
            let ext4 = Ext4::new(root, "ext4");
            let memory = tmpfs(root, "memory", "size=1m");
            run(async {
                let mut watch = Watch::of(&[&ext4.point, &memory]);
                watch.alive().await;
                assert_eq!(watch.look(0, PROBE).await.failure, None);
                ext4.freeze();
                for abandoned in 1..=3 {
                    watch.prober.look(DirId(0), PROBE);
                    watch.in_flight(0, Duration::ZERO).await;
                    let killed = Point::now();
                    watch.signal(Signal::SIGKILL);
                    let (reason, ..) = watch.lost().await;
                    assert!(reason.contains("cannot end"), "{reason}");
                    watch.alive().await;
                    let back = killed.elapsed();
                    assert!(back < SLACK * Duration::from_secs(3), "back after {back:?}");
                    assert_eq!(watch.prober.abandoned(), abandoned);
                }
                watch.prober.look(DirId(0), PROBE);
                let held = watch.in_flight(0, Duration::ZERO).await;
                assert_eq!(held.operation, Operation::Create);
                watch
                    .in_flight(0, held.age + Duration::from_millis(600))
                    .await;
                assert_eq!(watch.look(1, PROBE).await.failure, None);
                watch.signal(Signal::SIGKILL);
                let (reason, _, abandoned) = watch.lost().await;
                assert_eq!(abandoned, 3, "the fourth was not stuck: {reason}");
                watch.alive().await;
                watch.prober.look(DirId(0), PROBE);
                ext4.thaw();
                let look = watch.looked(0).await;
                assert_eq!((look.probed, look.failure), (true, None));
                assert_eq!(watch.prober.abandoned(), 0);
                let left = fs::read_dir(&ext4.point).unwrap().count();
                assert_eq!(left, 1, "lost+found, and no file of a killed child");
            });
        },
    );
}

/// Of so many changes most are noticed in time: each may be late on a busy machine, but without the
/// kernel's word most of them would be.
const CHANGES: usize = 9;

/// When the mount was said to be read-only or not.
async fn becomes(watch: &mut Watch, read_only: bool) {
    while watch.mounted(0).await.read_only != read_only {}
}

#[test]
fn changes_of_the_mount_table_are_noticed_within_a_tenth_of_a_second() {
    in_own_mounts(
        "changes_of_the_mount_table_are_noticed_within_a_tenth_of_a_second",
        |root| {
            let point = tmpfs(root, "memory", "size=1m");
            let mut delays = Vec::new();
            run(async {
                let mut watch = Watch::of(&[&point]);
                let mount = watch.mounted(0).await;
                assert_eq!(
                    (mount.point.as_path(), mount.read_only),
                    (point.as_path(), false)
                );
                assert_eq!(
                    (mount.fs_type.as_str(), mount.medium),
                    ("tmpfs", Medium::Memory)
                );
                assert!(watch.look(0, PROBE).await.probed);

                // The last one leaves it read-only.
                for change in 1..=CHANGES {
                    let (option, read_only) = match change % 2 {
                        1 => ("remount,ro", true),
                        _ => ("remount,rw", false),
                    };
                    do_run("mount", &["-o", option, text(&point)]);
                    let now = Point::now();
                    becomes(&mut watch, read_only).await;
                    delays.push(now.elapsed());
                }
                let signal = |report| match report {
                    Report::Signal { what, .. } => Some(what),
                    _ => None,
                };
                let what = watch.until("signal", signal).await;
                assert!(what.starts_with("mount options became ro"), "{what}");
                let failure = watch.look(0, PROBE).await.failure.unwrap();
                assert_eq!(
                    (failure.operation, failure.errno),
                    (Operation::Create, Some(30))
                );

                // Plain umount works beside an idle prober: nothing is held open.
                do_run("umount", &[text(&point)]);
                assert_ne!(watch.mounted(0).await.point, point);
                let look = watch.look(0, PROBE).await;
                assert_eq!((look.probed, look.failure), (false, None), "another place");
                assert_eq!(fs::read_dir(&point).unwrap().count(), 0);

                tmpfs(root, "memory", "size=1m");
                assert_eq!(watch.mounted(0).await.point, point);
                assert!(!watch.look(0, PROBE).await.probed, "another place again");
                assert!(watch.look(0, PROBE).await.probed, "asked for a second time");
            });
            delays.sort();
            let limit = SLACK * Duration::from_millis(100);
            assert!(delays[CHANGES / 2] < limit, "{delays:?}");
        },
    );
}

#[test]
fn a_required_mount_that_is_there_is_probed_at_the_first_look() {
    in_own_mounts(
        "a_required_mount_that_is_there_is_probed_at_the_first_look",
        |root| {
            let mut settings = watched(&tmpfs(root, "memory", "size=1m"));
            settings.require_mount = true;
            run(async {
                for _ in 0..20 {
                    let mut watch = Watch::with(binary(), vec![(DirId(0), settings.clone())]);
                    watch.alive().await;
                    assert!(watch.look(0, PROBE).await.probed);
                }
            });
        },
    );
}

#[test]
fn a_full_file_system_is_told_by_its_errno_and_left_clean() {
    in_own_mounts(
        "a_full_file_system_is_told_by_its_errno_and_left_clean",
        |root| {
            let point = tmpfs(root, "memory", "size=64k");
            fs::write(point.join("filler"), vec![1; 64 << 10]).unwrap();
            let few = tmpfs(root, "few", "nr_inodes=2");
            fs::write(few.join("filler"), "").unwrap();
            run(async {
                let mut watch = Watch::of(&[&point, &few]);
                watch.alive().await;
                let look = watch.look(0, PROBE).await;
                assert_eq!(look.space.unwrap().available, 0);
                let failure = look.failure.unwrap();
                assert_eq!(
                    (failure.operation, failure.errno),
                    (Operation::Write, Some(28))
                );
                assert_eq!(fs::read_dir(&point).unwrap().count(), 1);
                let look = watch.look(1, PROBE).await;
                assert_eq!(look.space.unwrap().inodes_free, 0);
                let failure = look.failure.unwrap();
                assert_eq!(
                    (failure.operation, failure.errno),
                    (Operation::Create, Some(28))
                );
            });
        },
    );
}

#[test]
fn a_file_system_without_direct_reads_is_read_through_the_cache_and_says_so() {
    in_own_mounts(
        "a_file_system_without_direct_reads_is_read_through_the_cache_and_says_so",
        |root| {
            let point = mounted(root, "ram", &["-t", "ramfs", "ramfs"]);
            run(async {
                let mut watch = Watch::of(&[&point]);
                watch.alive().await;
                watch.prober.look(DirId(0), PROBE);
                let sources = |report| match report {
                    Report::Sources { sources, .. } if 2 < sources.active.len() => Some(sources),
                    _ => None,
                };
                let sources = watch.until("sources", sources).await;
                assert_eq!(
                    sources.active,
                    ["statvfs", "probe-cached-read", "mountinfo", "psi"]
                );
            });
        },
    );
}

/// ext4 gives itself up when its journal cannot be written, here because the file under it cannot
/// grow. The mount still says `rw`, and the kernel wakes nobody for the mount table.
#[test]
fn a_file_system_that_gave_itself_up_is_noticed() {
    in_own_mounts("a_file_system_that_gave_itself_up_is_noticed", |root| {
        let small = tmpfs(root, "small", "size=20m");
        let image = small.join("image");
        let file = fs::File::create(&image).unwrap();
        file.set_len(200 << 20).unwrap();
        let lazy = "lazy_itable_init=1,lazy_journal_init=1";
        do_run("mkfs.ext4", &["-q", "-E", lazy, text(&image)]);
        let point = mounted(
            root,
            "ext4",
            &["-o", "loop,errors=remount-ro", text(&image)],
        );
        run(async {
            let mut watch = Watch::of(&[&point]);
            watch.mounted(0).await;
            let look = watch.look(0, PROBE).await;
            assert_eq!((look.probed, look.failure), (true, None));
            let mut errors = 0;
            for number in 0..10_000 {
                let written = fs::write(point.join(number.to_string()), vec![7; 1 << 20]);
                let synced = written
                    .and_then(|()| fs::File::open(point.join(number.to_string()))?.sync_all());
                errors += u32::from(synced.is_err());
                if fs::write(point.join("again"), "").is_err() {
                    break;
                }
            }
            assert!(0 < errors);
            let now = Point::now();
            let mount = watch.mounted(0).await;
            assert_eq!(mount.emergency.as_deref(), Some("emergency_ro"));
            let took = now.elapsed();
            assert!(
                took < SLACK * Duration::from_millis(100),
                "noticed after {took:?}"
            );
            let failure = watch.look(0, PROBE).await.failure.unwrap();
            assert_eq!(
                (failure.operation, failure.errno),
                (Operation::Create, Some(30))
            );
            do_run("umount", &[text(&point)]);
        });
    });
}

/// A look that is stuck on a disk which was then unmounted by force is made again on what is there
/// now.
#[test]
fn a_stuck_look_is_made_again_where_the_directory_is_now() {
    in_own_mounts(
        "a_stuck_look_is_made_again_where_the_directory_is_now",
        |root| {
            let ext4 = Ext4::new(root, "ext4");
            // A second way to the frozen file system, for thawing it.
            let second = mounted(root, "second", &["--bind", text(&ext4.point)]);
            run(async {
                let mut watch = Watch::of(&[&ext4.point]);
                watch.alive().await;
                assert!(watch.look(0, PROBE).await.probed);
                ext4.freeze();
                watch.prober.look(DirId(0), PROBE);
                watch.in_flight(0, Duration::ZERO).await;
                do_run("umount", &["-l", text(&ext4.point)]);
                let look = watch.looked(0).await;
                assert_eq!((look.probed, look.failure), (false, None), "another place");
                do_run("fsfreeze", &["--unfreeze", text(&second)]);
                watch.prober.stop();
            });
            assert_eq!(fs::read_dir(&ext4.point).unwrap().count(), 0);
        },
    );
}

#[test]
fn five_hundred_directories_on_forty_file_systems_are_answered() {
    in_own_mounts(
        "five_hundred_directories_on_forty_file_systems_are_answered",
        |root| {
            let disks: Vec<PathBuf> = (0..40)
                .map(|disk| tmpfs(root, &format!("disk{disk}"), "size=1m"))
                .collect();
            let dirs: Vec<PathBuf> = (0..500)
                .map(|dir| disks[dir % disks.len()].join(dir.to_string()))
                .collect();
            dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
            let paths: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
            run(async {
                let mut watch = Watch::of(&paths);
                watch.alive().await;
                for _ in 0..2 {
                    (0..500).for_each(|dir| watch.prober.look(DirId(dir), PROBE));
                    let mut probed = 0;
                    let all = |report| {
                        if let Report::Observed { observation, .. } = report
                            && let dirkeeper::health::observation::Observation::Looked(look) =
                                observation
                        {
                            assert_eq!(look.failure, None);
                            assert!(look.probed);
                            probed += 1;
                        }
                        (probed == 500).then_some(())
                    };
                    watch.until("500 answers", all).await;
                }
                let child = watch.children()[0];
                let threads = fs::read_dir(format!("/proc/{child}/task")).unwrap().count();
                assert!(threads <= 42, "{threads} threads for 40 file systems");
            });
        },
    );
}

/// A prober that runs as somebody else: what only its own uid may not do is told from what nobody
/// may.
#[test]
fn a_refusal_says_whether_the_owner_would_be_refused_too() {
    in_own_mounts(
        "a_refusal_says_whether_the_owner_would_be_refused_too",
        |root| {
            do_run("chmod", &["0755", text(root)]);
            let public = tmpfs(root, "public", "size=512m,mode=755");
            let (ours, theirs) = (public.join("0755"), public.join("0555"));
            for (path, mode) in [(&ours, "0755"), (&theirs, "0555")] {
                fs::create_dir(path).unwrap();
                do_run("chmod", &[mode, text(path)]);
            }
            let program = public.join("dirkeeper");
            fs::copy(binary(), &program).unwrap();
            let script = public.join("as-nobody");
            let line = format!(
                "#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups {} \"$@\"\n",
                program.display()
            );
            fs::write(&script, line).unwrap();
            do_run("chmod", &["0755", text(&script)]);
            run(async {
                let dirs = vec![(DirId(0), watched(&ours)), (DirId(1), watched(&theirs))];
                let mut watch = Watch::with(script, dirs);
                watch.alive().await;
                let failure = watch.look(0, PROBE).await.failure.unwrap();
                assert_eq!(
                    failure.finding,
                    Finding::OnlyUsRefused,
                    "{}",
                    failure.detail
                );
                let failure = watch.look(1, PROBE).await.failure.unwrap();
                assert_eq!((failure.finding, failure.errno), (Finding::Errno, Some(13)));
                assert!(
                    failure.detail.ends_with("mode 0555, we are uid 65534)"),
                    "{}",
                    failure.detail
                );
            });
        },
    );
}
