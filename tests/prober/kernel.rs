//! What the kernel tells about real file systems by itself: their counters of errors, and how they
//! give themselves up. Needs root; without it each test says that it is skipped.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dirkeeper::health::dir::DirId;
use dirkeeper::health::observation::Observation;
use dirkeeper::health::snapshot::Sources;
use dirkeeper::probe::{LookKind, Report};

use super::mounts::{Ext4, do_run, in_own_mounts_of, mounted, text, tmpfs};
use super::watch::{PROBE, Watch, run};

fn in_own_mounts(test: &str, body: impl FnOnce(&Path)) {
    in_own_mounts_of("kernel", test, body);
}

async fn recorded(watch: &mut Watch) -> String {
    let wanted = |report| match report {
        Report::Observed {
            observation: Observation::Recorded(what),
            ..
        } => what,
        _ => None,
    };
    watch.until("recorded errors", wanted).await
}

async fn error(watch: &mut Watch, begin: &str) -> String {
    let wanted = |report| match report {
        Report::Observed {
            observation: Observation::FileSystemError(what),
            ..
        } if what.starts_with(begin) => Some(what),
        _ => None,
    };
    watch.until("signal", wanted).await
}

/// The sources after a probe.
pub(crate) async fn sources(watch: &mut Watch) -> Sources {
    watch.prober.look(DirId(0), PROBE);
    let wanted = |report| match report {
        Report::Sources { sources, .. } => {
            let kernel = ["fanotify", "diskstats", "sysfs-errors", "psi"];
            let known = sources.active.iter();
            let known = known.chain(sources.missing.iter().map(|(name, _)| name));
            let known = known.filter(|name| kernel.contains(name)).count();
            (known == kernel.len() && sources.active.contains(&"probe")).then_some(sources)
        }
        _ => None,
    };
    watch.until("all sources", wanted).await
}

#[test]
fn errors_that_ext4_records_are_a_signal_and_later_a_fact() {
    in_own_mounts(
        "errors_that_ext4_records_are_a_signal_and_later_a_fact",
        |root| {
            let ext4 = Ext4::new(root, "ext4");
            run(async {
                let mut watch = Watch::of(&[&ext4.point]);
                let source = watch.mounted(0).await.source;
                let name = Path::new(&source).file_name().unwrap().to_str().unwrap();
                let sources = sources(&mut watch).await;
                let all = [
                    "statvfs",
                    "probe",
                    "mountinfo",
                    "fanotify",
                    "diskstats",
                    "sysfs-errors",
                    "psi",
                ];
                assert_eq!(
                    (&sources.active[..], &sources.missing[..]),
                    (&all[..], &[][..])
                );
                fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1").unwrap();
                let what = recorded(&mut watch).await;
                assert!(what.contains("has recorded 1 error, the first"), "{what}");
                let what = error(&mut watch, "ext4").await;
                assert!(
                    what.starts_with("ext4 recorded an error in trigger_test"),
                    "{what}"
                );
                // For the next prober it is of the past: a fact, and no reason to hurry.
                let mut watch = Watch::of(&[&ext4.point]);
                let next = |report| match report {
                    Report::Observed {
                        observation: Observation::FileSystemError(what),
                        ..
                    } => Some(Err(what)),
                    Report::Observed {
                        observation: Observation::Recorded(what),
                        ..
                    } => what.map(Ok),
                    _ => None,
                };
                let what = watch.until("recorded errors", next).await.unwrap();
                assert!(what.ends_with("run e2fsck"), "{what}");
            });
        },
    );
}

/// Only the directories of the file system that had an error hear of it: once from the kernel, and
/// once from the counter.
#[test]
fn an_error_of_one_ext4_is_none_of_another() {
    in_own_mounts("an_error_of_one_ext4_is_none_of_another", |root| {
        let broken = Ext4::new(root, "broken");
        let sound = Ext4::new(root, "sound");
        run(async {
            let mut watch = Watch::of(&[&sound.point, &broken.point]);
            let mut sources = Vec::new();
            let mut trigger = None;
            for dir in [0, 1] {
                let source = watch.mounted(dir).await.source;
                let name = Path::new(&source).file_name().unwrap().to_str().unwrap();
                trigger = Some(format!("/sys/fs/ext4/{name}/trigger_fs_error"));
            }
            for dir in [0, 1] {
                watch.look(dir, PROBE).await;
                watch.look(dir, PROBE).await;
            }
            let trigger = trigger.unwrap();
            fs::write(&trigger, "1").unwrap();
            let reported = |report| match report {
                Report::Observed {
                    dir,
                    observation: Observation::FileSystemError(what),
                } => Some((dir, what)),
                _ => None,
            };
            for _ in 0..2 {
                let (dir, what) = watch.until("an error", reported).await;
                assert_eq!(dir, DirId(1), "{what}");
                sources.push(what);
            }
            let kernel = "the kernel reports an error of the file system";
            assert!(sources.iter().any(|what| what == kernel), "{sources:?}");
            let counter = "ext4 recorded an error in trigger_test";
            assert!(
                sources.iter().any(|what| what.starts_with(counter)),
                "{sources:?}"
            );
        });
    });
}

/// Nothing in the mount table, sysfs or statvfs says that an xfs was shut down: only using it does.
#[test]
fn an_xfs_that_was_shut_down_is_told_by_its_errno() {
    in_own_mounts("an_xfs_that_was_shut_down_is_told_by_its_errno", |root| {
        let point = of_kind(root, "xfs", root);
        run(async {
            let mut watch = Watch::of(&[&point]);
            watch.alive().await;
            let sources = sources(&mut watch).await;
            assert_eq!(
                sources.missing,
                [
                    ("fanotify", "xfs reports no errors".to_owned()),
                    ("sysfs-errors", "xfs keeps no counter".to_owned()),
                ]
            );
            do_run("xfs_io", &["-x", "-c", "shutdown -f", text(&point)]);
            let failure = watch.look(0, LookKind::Space).await.failure.unwrap();
            assert_eq!(failure.errno, Some(5), "{}", failure.detail);
        });
        do_run("umount", &[text(&point)]);
    });
}

/// The file under a btrfs cannot grow: it aborts its transaction and is read-only from then on.
#[test]
fn a_btrfs_that_gave_itself_up_is_read_only() {
    in_own_mounts("a_btrfs_that_gave_itself_up_is_read_only", |root| {
        let small = tmpfs(root, "small", "size=20m");
        let point = of_kind(root, "btrfs", &small);
        run(async {
            let mut watch = Watch::of(&[&point]);
            assert!(!watch.mounted(0).await.read_only);
            // More than there is room for; the first error need not be the last straw.
            for number in 0..60 {
                let file = point.join(number.to_string());
                let written = fs::write(&file, vec![7; 1 << 20]);
                let _ = written.and_then(|()| fs::File::open(&file)?.sync_all());
            }
            let read_only = |report| match report {
                Report::Observed {
                    observation: Observation::Mounted(mount),
                    ..
                } => mount.read_only.then_some(()),
                _ => None,
            };
            watch.until("read-only", read_only).await;
        });
        do_run("umount", &[text(&point)]);
    });
}

/// A byte of a file changes under a btrfs.
#[test]
fn errors_that_btrfs_counts_are_a_signal() {
    in_own_mounts("errors_that_btrfs_counts_are_a_signal", |root| {
        const BLOCK: usize = 4096;
        let point = of_kind(root, "btrfs", root);
        fs::write(point.join("data"), vec![0xA7; 1 << 20]).unwrap();
        do_run("umount", &[text(&point)]);
        let image = root.join("btrfs.image");
        let bytes = fs::read(&image).unwrap();
        let mut blocks = bytes.chunks_exact(BLOCK);
        let block = blocks.position(|block| block == [0xA7; BLOCK]).unwrap();
        let file = fs::File::options().write(true).open(&image).unwrap();
        file.write_all_at(&[0], (block * BLOCK) as u64).unwrap();
        file.sync_all().unwrap();
        mounted(root, "btrfs", &["-o", "loop", text(&image)]);
        run(async {
            let mut watch = Watch::of(&[&point]);
            watch.alive().await;
            let sources = sources(&mut watch).await;
            assert_eq!(
                sources.missing,
                [("fanotify", "btrfs reports no errors".to_owned())]
            );
            fs::read(point.join("data")).unwrap_err();
            let what = error(&mut watch, "btrfs").await;
            assert!(what.contains("corruption_errs"), "{what}");
        });
        do_run("umount", &[text(&point)]);
    });
}

#[test]
fn what_has_no_device_says_so() {
    in_own_mounts("what_has_no_device_says_so", |root| {
        let point = tmpfs(root, "memory", "size=1m");
        run(async {
            let mut watch = Watch::of(&[&point]);
            watch.alive().await;
            let sources = sources(&mut watch).await;
            let missing: Vec<String> = sources.missing.into_iter().map(|each| each.1).collect();
            assert_eq!(
                missing,
                [
                    "tmpfs reports no errors",
                    "tmpfs has no block device",
                    "tmpfs keeps no counter"
                ]
            );
        });
    });
}

/// As with `psi=0` on the kernel's command line, which takes the folder away.
#[test]
fn a_kernel_without_pressure_is_no_source_of_it() {
    in_own_mounts("a_kernel_without_pressure_is_no_source_of_it", |root| {
        let point = tmpfs(root, "memory", "size=1m");
        do_run("mount", &["-t", "tmpfs", "none", "/proc/pressure"]);
        run(async {
            let mut watch = Watch::of(&[&point]);
            watch.alive().await;
            let sources = sources(&mut watch).await;
            let psi = sources.missing.iter().find(|(name, _)| *name == "psi");
            let reason = psi.map(|(_, reason)| reason.as_str());
            let expected = "the kernel has no PSI (before Linux 4.20, or psi=0)";
            assert_eq!(reason, Some(expected));
        });
        do_run("umount", &["/proc/pressure"]);
    });
}

/// A new file system of that kind on a loop device with a sparse file in `folder`.
pub(crate) fn of_kind(root: &Path, kind: &str, folder: &Path) -> PathBuf {
    let image = folder.join(format!("{kind}.image"));
    let file = fs::File::create(&image).expect("the folder is ours");
    file.set_len(320 << 20).expect("the folder is ours");
    do_run(&format!("mkfs.{kind}"), &["-q", text(&image)]);
    mounted(root, kind, &["-o", "loop", text(&image)])
}
