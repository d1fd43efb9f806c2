//! Ballast on real file systems: what the prober says it occupies is gone for others, and all of it is
//! back when it is released. Needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dirkeeper::health::ballast::{FILE_NAME, Order};
use dirkeeper::health::dir::DirId;
use dirkeeper::health::observation::Operation;
use dirkeeper::probe::LookKind;
use nix::sys::signal::Signal;

use super::SLACK;
use super::mounts::{do_run, in_own_mounts_of, mounted, text};
use super::watch::{PROBE, Point, Watch, binary, run, watched};

const MIB: u64 = 1 << 20;
const WANTED: u64 = 40 * MIB;

/// Metadata of the file, and what the file system does by itself meanwhile.
const BESIDE: u64 = 4 * MIB;

/// The most that one look may add.
const PIECE: u64 = 16 * MIB;

/// For all of it: the disk may be slow, and some file systems count blocks seconds later.
const PATIENCE: Duration = Duration::from_secs(60);

/// A twentieth of an ext4 of this size is for root.
const RESERVED: u64 = 16 * MIB;

const fn ballast(ballast: Order) -> LookKind {
    LookKind::Full {
        probe: true,
        ballast,
    }
}

/// Unmounted when the test ends, however it ends: the loop device goes with it.
struct Disk(PathBuf);

impl Disk {
    fn new(root: &Path, kind: &str, options: &str) -> Disk {
        if kind == "tmpfs" {
            return Disk(mounted(root, kind, &["-t", kind, "-o", "size=320m", kind]));
        }
        let image = root.join(format!("{kind}.image"));
        let file = fs::File::create(&image).expect("an image");
        file.set_len(320 * MIB).expect("a sparse image");
        let force = if kind == "ext4" { "-F" } else { "-f" };
        do_run(&format!("mkfs.{kind}"), &["-q", force, text(&image)]);
        Disk(mounted(root, kind, &["-o", options, text(&image)]))
    }

    /// After everything that is written has its place.
    fn available(&self) -> u64 {
        do_run("sync", &["--file-system", text(&self.0)]);
        let stat = nix::sys::statvfs::statvfs(&self.0).expect("it is mounted");
        stat.blocks_available() * stat.fragment_size()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Makes all of it below this directory. Each look adds something and no more than a piece; how long that
/// takes is a matter of the disk, and the quickest look tells how much of it is ours.
async fn fill(watch: &mut Watch, dir: &Path, wanted: u64) {
    let length = || fs::metadata(dir.join(FILE_NAME)).map_or(0, |file| file.len());
    let (begin, mut quickest) = (Point::now(), Duration::MAX);
    loop {
        let before = length();
        let look = watch.look(0, ballast(Order::Fill(wanted))).await;
        assert_eq!((look.failure, look.probed), (None, true));
        quickest = quickest.min(look.durations[&Operation::Ballast]);
        let after = length();
        let grown = before < after && after <= before + PIECE;
        assert!(grown || after == wanted, "from {before} to {after} bytes");
        if look.ballast == Some(wanted) {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "the ballast is not made");
    }
    let limit = SLACK * Duration::from_millis(400);
    assert!(quickest < limit, "no look in less than {quickest:?}");
}

#[test]
fn it_really_takes_space_and_really_gives_it_back() {
    let test = "it_really_takes_space_and_really_gives_it_back";
    in_own_mounts_of("ballast", test, |root| {
        for (kind, options) in [
            ("ext4", "loop"),
            ("xfs", "loop"),
            ("btrfs", "loop,compress-force=zstd"),
            ("tmpfs", ""),
        ] {
            let disk = Disk::new(root, kind, options);
            run(async {
                let mut watch = Watch::of(&[&disk.0]);
                watch.alive().await;
                assert_eq!(watch.look(0, PROBE).await.failure, None);
                let before = disk.available();
                fill(&mut watch, &disk.0, WANTED).await;
                let taken = before.saturating_sub(disk.available());
                assert!(WANTED <= taken + MIB, "{kind}: {taken} bytes are taken");
                let look = watch.look(0, ballast(Order::Measure)).await;
                assert_eq!(look.ballast, Some(WANTED), "{kind}");
                let look = watch.look(0, ballast(Order::Release)).await;
                assert_eq!((look.ballast, look.failure), (Some(0), None), "{kind}");
                let took = look.durations[&Operation::Ballast];
                let limit = SLACK * Duration::from_secs(1);
                assert!(took < limit, "{kind}: given back in {took:?}");
                let missing = before.saturating_sub(disk.available());
                assert!(missing < BESIDE, "{kind}: {missing} bytes are not back");
            });
        }
    });
}

#[test]
fn our_own_greed_is_no_verdict_and_a_full_disk_gets_it_back() {
    let test = "our_own_greed_is_no_verdict_and_a_full_disk_gets_it_back";
    in_own_mounts_of("ballast", test, |root| {
        for kind in ["ext4", "btrfs", "tmpfs"] {
            let disk = Disk::new(root, kind, "loop");
            run(async {
                let mut watch = Watch::of(&[&disk.0]);
                watch.alive().await;
                watch.look(0, PROBE).await;
                let mut held = 0;
                loop {
                    let look = watch.look(0, ballast(Order::Fill(1024 * MIB))).await;
                    let want = look.failure.as_ref().is_some_and(|failure| {
                        // The probe before it may be refused: that the disk is full is true.
                        failure.operation == Operation::Ballast
                    });
                    assert!(!want, "{kind}: {look:?}");
                    if look.failure.is_some() || look.ballast == Some(held) {
                        break;
                    }
                    held = look.ballast.expect("it is ours");
                }
                assert!(100 * MIB < held, "{kind}: {held} bytes");
                let filler = fs::write(disk.0.join("filler"), vec![7; 320 << 20]);
                assert!(filler.is_err(), "{kind}: there was room beside the ballast");
                let look = watch.look(0, ballast(Order::Release)).await;
                assert_eq!((look.ballast, look.failure), (Some(0), None), "{kind}");
                // Root had got what ext4 keeps for it, too.
                let expected = disk.available() + RESERVED + BESIDE;
                assert!(
                    held < expected,
                    "{kind}: {expected} of {held} bytes are back"
                );
            });
        }
    });
}

#[test]
fn a_prober_that_is_killed_meanwhile_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut watch = Watch::of(&[dir.path()]);
        watch.alive().await;
        watch.look(0, PROBE).await;
        for _ in 0..3 {
            watch
                .prober
                .look(DirId(0), ballast(Order::Fill(1024 * MIB)));
            watch.signal(Signal::SIGKILL);
            watch.alive().await;
            // Where it was is not known to the new one before it has looked.
            watch.look(0, PROBE).await;
        }
        fill(&mut watch, dir.path(), WANTED).await;
        let file = fs::metadata(dir.path().join(FILE_NAME)).unwrap();
        assert_eq!(file.len(), WANTED);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    });
}

#[test]
fn nothing_is_made_before_the_cookie_exists_and_nothing_at_the_first_look() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut settings = watched(dir.path());
        settings.await_cookie = true;
        let mut watch = Watch::with(binary(), vec![(DirId(0), settings)]);
        watch.alive().await;
        for _ in 0..2 {
            let look = watch.look(0, ballast(Order::Fill(WANTED))).await;
            assert_eq!((look.ballast, look.probed), (None, false));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::create_dir(dir.path().join("current")).unwrap();
        fs::write(dir.path().join("current/VERSION"), "4\n").unwrap();
        let look = watch.look(0, ballast(Order::Fill(MIB))).await;
        assert_eq!(look.ballast, Some(MIB));
    });
}
