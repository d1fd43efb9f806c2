//! File systems that are remounted while they are probed: what the mount table says comes before the
//! looks that it explains. Needs root; without it each test says that it is skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use dirkeeper::health::dir::DirId;
use dirkeeper::health::observation::Observation;
use dirkeeper::probe::Report;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use super::SLACK;
use super::kernel::of_kind;
use super::mounts::{Ext4, do_run, in_own_mounts_of, text, tmpfs};
use super::watch::{PROBE, Point, Watch, run};

/// So many directories on the file system: each hears of the remount by itself.
const DIRS: u32 = 3;

/// The loser of a race is seen in a few of a hundred remounts of a quiet machine.
const ROUNDS: u32 = 150;

/// Remounts, as soon as no probe holds a file open for writing.
fn remount(point: &Path, read_only: MsFlags) {
    let (begin, none) = (Point::now(), None::<&str>);
    let flags = MsFlags::MS_REMOUNT | read_only;
    while let Err(errno) = mount(none, point, none, flags, none) {
        assert_eq!(errno, Errno::EBUSY, "{} is remounted", point.display());
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{} is always busy",
            point.display()
        );
        thread::yield_now();
    }
}

/// What was last said of each directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Told {
    read_only: bool,
    refused: bool,
}

/// Probes until each directory was refused and its mount was said to be read-only, and says of which
/// that came too late.
async fn refused_unexplained(watch: &mut Watch) -> Vec<usize> {
    let mut told = [Told::default(); DIRS as usize];
    let mut unexplained = Vec::new();
    (0..DIRS).for_each(|dir| watch.prober.look(DirId(dir), PROBE));
    while told.iter().any(|dir| !dir.refused || !dir.read_only) {
        let observed = |report| match report {
            Report::Observed { dir, observation } => Some((dir, observation)),
            _ => None,
        };
        let (dir, observation) = watch.until("refusal or its reason", observed).await;
        let index = usize::try_from(dir.0).expect("three directories");
        match observation {
            Observation::Mounted(mount) => told[index].read_only = mount.read_only,
            Observation::Looked(look) => match look.failure {
                None => watch.prober.look(dir, PROBE),
                Some(failure) => {
                    assert_eq!(failure.errno, Some(30), "{}", failure.detail);
                    told[index].refused = true;
                    if !told[index].read_only {
                        unexplained.push(index);
                    }
                }
            },
            _ => {}
        }
    }
    unexplained
}

async fn writable_again(watch: &mut Watch) {
    let mut left = DIRS;
    let writable = |report| {
        if let Report::Observed {
            observation: Observation::Mounted(mount),
            ..
        } = report
        {
            left -= u32::from(!mount.read_only);
        }
        (left == 0).then_some(())
    };
    watch.until("writable mount", writable).await;
}

fn remounted_many_times(point: &Path) {
    let dirs: Vec<PathBuf> = (0..DIRS).map(|dir| point.join(dir.to_string())).collect();
    dirs.iter()
        .for_each(|dir| fs::create_dir(dir).expect("the point is ours"));
    let paths: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
    run(async {
        let mut watch = Watch::of(&paths);
        watch.alive().await;
        for dir in 0..DIRS {
            assert_eq!(watch.look(dir, PROBE).await.failure, None);
        }
        let mut unexplained = 0;
        for _ in 0..ROUNDS {
            let at = point.to_owned();
            let remounted = thread::spawn(move || remount(&at, MsFlags::MS_RDONLY));
            unexplained += refused_unexplained(&mut watch).await.len();
            remounted.join().expect("it is remounted");
            remount(point, MsFlags::empty());
            writable_again(&mut watch).await;
        }
        assert_eq!(
            unexplained, 0,
            "of {ROUNDS} remounts, looks that were refused before it was said why"
        );
    });
}

#[test]
fn memory_that_is_remounted_says_so_before_its_refusals() {
    let test = "memory_that_is_remounted_says_so_before_its_refusals";
    in_own_mounts_of("remounts", test, |root| {
        remounted_many_times(&tmpfs(root, "memory", "size=1m"));
    });
}

#[test]
fn a_disk_that_is_remounted_says_so_before_its_refusals() {
    let test = "a_disk_that_is_remounted_says_so_before_its_refusals";
    in_own_mounts_of("remounts", test, |root| {
        remounted_many_times(&Ext4::new(root, "ext4").point);
    });
}

/// Eight looks that wait for nothing, on a busy machine as well.
const FASTER: Duration = Duration::from_secs(3);

/// A subvolume that is read-only by itself, on a mount that is not: the table never says why. The first
/// refusal waits for that in vain, those after it do not.
#[test]
fn a_refusal_that_nobody_explains_is_said_all_the_same() {
    let test = "a_refusal_that_nobody_explains_is_said_all_the_same";
    in_own_mounts_of("remounts", test, |root| {
        let point = of_kind(root, "btrfs", root);
        let volume = point.join("volume");
        do_run("btrfs", &["-q", "subvolume", "create", text(&volume)]);
        let read_only = |value| {
            do_run("btrfs", &["property", "set", text(&volume), "ro", value]);
        };
        run(async {
            let mut watch = Watch::of(&[&volume]);
            watch.alive().await;
            for _ in 0..2 {
                assert_eq!(watch.look(0, PROBE).await.failure, None);
                read_only("true");
                // Each that waited would take half a second and more.
                for (looks, limit) in [(1, SLACK * Duration::from_secs(1)), (8, FASTER)] {
                    let asked = Point::now();
                    for _ in 0..looks {
                        let failure = watch.look(0, PROBE).await.failure.unwrap();
                        assert_eq!(failure.errno, Some(30), "{}", failure.detail);
                    }
                    let took = asked.elapsed();
                    assert!(took < limit, "{looks} said after {took:?}");
                }
                read_only("false");
            }
        });
        do_run("umount", &[text(&point)]);
    });
}
