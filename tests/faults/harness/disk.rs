//! File systems that can be filled, frozen, remounted and taken away. Each ends with its guard: thawed
//! first, then unmounted, lazily when somebody still holds it.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::statvfs;

use super::bench::Bench;
use super::run::{text, tool, try_command};

/// The smallest image on which each kind of file system can be made.
const SMALLEST: &[(&str, u64)] = &[("ext4", 32), ("xfs", 320), ("btrfs", 128)];

/// A mounted file system of a test.
#[derive(Debug)]
pub(crate) struct Disk {
    path: PathBuf,
    /// Can be frozen.
    block: bool,
}

impl Disk {
    /// A tmpfs with these options, like `size=64m,nr_inodes=1000`.
    pub(crate) fn tmpfs(bench: &Bench, name: &str, options: &str) -> Disk {
        let path = bench.dir(name);
        mount(
            Some(name),
            &path,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options),
        )
        .expect("tmpfs is there");
        Disk { path, block: false }
    }

    /// A file system on a loop device, of the kind of this test, of this many MiB or as small as the
    /// kind allows.
    pub(crate) fn block(bench: &Bench, name: &str, mebibytes: u64) -> Disk {
        let image = bench.folder().join(format!("{name}.image"));
        make_image(&image, bench.kind(), mebibytes, &[]);
        Disk::mount_image(bench, name, &image, "loop")
    }

    /// A file system of this kind on a loop device whose file lies in `folder`, so on a real disk,
    /// and is read and written past the page cache where that disk can. The file never has a name:
    /// it is gone with the mount, whatever ends this program.
    pub(crate) fn on_real_disk(
        bench: &Bench,
        folder: &Path,
        name: &str,
        kind: &str,
        mebibytes: u64,
    ) -> Disk {
        let file = tempfile::tempfile_in(folder).expect("the folder can be written");
        file.set_len(mebibytes << 20).expect("the file is sparse");
        let image = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        make_file_system(Path::new(&image), kind, &[]);
        let disk = Disk::mount_image(bench, name, Path::new(&image), "loop");
        let device = tool("findmnt", ["-n", "-o", "SOURCE", text(disk.path())]);
        let mut direct = Command::new("losetup");
        direct.args(["--direct-io=on", device.trim()]);
        // A disk that cannot has the page cache in between, as a bookie on it would.
        let _ = try_command(direct, Duration::from_secs(5));
        disk
    }

    /// Mounts an image; the loop device goes away with the mount.
    pub(crate) fn mount_image(bench: &Bench, name: &str, image: &Path, options: &str) -> Disk {
        let path = bench.dir(name);
        tool("mount", ["-o", options, text(image), text(&path)]);
        Disk { path, block: true }
    }

    /// The same file system, or a directory of it, at a second place.
    pub(crate) fn bind(bench: &Bench, name: &str, of: &Path) -> Disk {
        let path = bench.dir(name);
        mount(
            Some(of),
            &path,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .expect("root may bind");
        Disk { path, block: false }
    }

    /// A file system that something else mounted here.
    pub(crate) fn mounted_at(path: PathBuf, block: bool) -> Disk {
        Disk { path, block }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A directory on it.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        fs::create_dir(&path).expect("the file system is writable");
        path
    }

    /// Remounts the file system itself, not only this mount of it.
    pub(crate) fn remount(&self, read_only: bool) {
        let flags = if read_only {
            MsFlags::MS_RDONLY
        } else {
            MsFlags::empty()
        };
        let none = None::<&str>;
        mount(none, &self.path, none, flags | MsFlags::MS_REMOUNT, none)
            .expect("it can be remounted");
    }

    /// `umount -l`.
    pub(crate) fn detach(&self) {
        umount2(&self.path, MntFlags::MNT_DETACH).expect("it is mounted");
    }

    /// Plain `umount`: an error when somebody uses it.
    pub(crate) fn unmount(&self) -> nix::Result<()> {
        umount2(&self.path, MntFlags::empty())
    }

    /// Freezes it until the guard is dropped.
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        tool("fsfreeze", ["--freeze", text(&self.path)]);
        Frozen(self)
    }

    fn thaw(&self) {
        let mut command = Command::new("fsfreeze");
        command.arg("--unfreeze").arg(&self.path);
        // An error says that it is not frozen, or not mounted any more.
        let _ = try_command(command, Duration::from_secs(5));
    }

    /// 1 − available ⁄ size, as the agent computes it.
    #[allow(clippy::cast_precision_loss)] // file systems here are far below 2^52 blocks
    pub(crate) fn usage(&self) -> f64 {
        let now = statvfs(&self.path).expect("the file system answers");
        1.0 - now.blocks_available() as f64 / now.blocks() as f64
    }

    /// Makes one file so large that the usage is this, to a block or a thousandth.
    pub(crate) fn set_usage(&self, ratio: f64) {
        Filler::new(&self.path).set_usage(ratio);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.block {
            self.thaw();
        }
        // Twice: a test may have mounted something over it. An error says that it is gone already.
        while umount2(&self.path, MntFlags::MNT_DETACH).is_ok() {}
    }
}

/// A frozen file system; thawed at the end in any case.
#[derive(Debug)]
pub(crate) struct Frozen<'a>(&'a Disk);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.thaw();
    }
}

/// Makes a sparse file with a file system in it, with more options for its `mkfs`.
pub(crate) fn make_image(image: &Path, kind: &str, mebibytes: u64, more: &[&str]) {
    let file = File::create(image).expect("the folder is ours");
    let mebibytes = mebibytes.max(smallest(kind));
    file.set_len(mebibytes << 20).expect("the file is sparse");
    make_file_system(image, kind, more);
}

/// Makes a file system in a file that has its size, with more options for its `mkfs`.
fn make_file_system(image: &Path, kind: &str, more: &[&str]) {
    let lazy = ["-E", "lazy_itable_init=1,lazy_journal_init=1"];
    let lazy: &[&str] = if kind == "ext4" { &lazy } else { &[] };
    let options = mkfs_options(kind).iter().chain(lazy).chain(more);
    tool(
        &format!("mkfs.{kind}"),
        options.copied().chain([text(image)]),
    );
}

/// What `mkfs` of a kind needs to say nothing and to refuse nothing.
pub(crate) fn mkfs_options(kind: &str) -> &'static [&'static str] {
    match kind {
        "ext4" => &["-q", "-F"],
        // Data and metadata share the space: a small one has none to give to one of them alone.
        "btrfs" => &["-q", "-f", "--mixed"],
        _ => &["-q", "-f"],
    }
}

/// MiB of the smallest file system of a kind.
pub(crate) fn smallest(kind: &str) -> u64 {
    let smallest = SMALLEST.iter().find(|(known, _)| *known == kind);
    smallest
        .unwrap_or_else(|| panic!("FAULT_FS={kind} is not known"))
        .1
}

/// One file that takes the space a test wants to be taken.
#[derive(Debug)]
pub(crate) struct Filler {
    folder: PathBuf,
    file: OwnedFd,
    length: i64,
}

impl Filler {
    /// Name of the file.
    const NAME: &str = "filler";

    pub(crate) fn new(folder: &Path) -> Filler {
        let path = folder.join(Filler::NAME);
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .expect("it is writable");
        let length = file.metadata().expect("an open file has a length").len();
        let length = i64::try_from(length).expect("files here are small");
        Filler {
            folder: folder.to_owned(),
            file: file.into(),
            length,
        }
    }

    /// Adds bytes without writing them; an error when they do not fit.
    pub(crate) fn grow(&mut self, bytes: i64) -> nix::Result<()> {
        fallocate(&self.file, FallocateFlags::empty(), self.length, bytes)?;
        self.length += bytes;
        Ok(())
    }

    /// See [`Disk::set_usage`].
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // small file systems
    pub(crate) fn set_usage(&mut self, ratio: f64) {
        // Metadata takes blocks too, so the first step may miss by some.
        for _ in 0..8 {
            let now = statvfs(&self.folder).expect("the file system answers");
            let blocks = now.blocks() as f64;
            let missing = now.blocks_available() as f64 - blocks * (1.0 - ratio);
            if missing.abs() <= (blocks / 1000.0).max(1.0) {
                return;
            }
            let bytes = missing as i64 * now.fragment_size() as i64;
            if bytes > 0 {
                // btrfs refuses its last chunk in one piece.
                let mut piece = bytes;
                while self.grow(piece).is_err() && piece > 4096 {
                    piece /= 2;
                }
            } else {
                self.length = (self.length + bytes).max(0);
                nix::unistd::ftruncate(&self.file, self.length).expect("a file can be cut");
            }
        }
    }
}
