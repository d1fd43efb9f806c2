//! Notices changed configuration files: a write, an atomic rename, a swapped symbolic link as
//! Kubernetes makes it. Runs in a thread of its own that may be lost on a dead disk; never watches a
//! folder that belongs to a watched directory.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use notify::{EventKind, INotifyWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc::error::TrySendError;

use super::source::SourceFile;

/// How long the folder must be quiet before the files are looked at: editors and package managers
/// make several steps, which take some milliseconds.
const QUIET: Duration = Duration::from_millis(200);

/// How many events are waited out at most: a folder that never rests is looked at all the same.
const QUIET_EVENTS: usize = 64;

/// How often the files are looked at without any event: inotify has limits on its watches, and
/// says nothing on some file systems or when a folder is replaced.
const LOOK: Duration = Duration::from_secs(30);

/// The running watch; dropping it ends the thread, unless that is stuck on a disk.
#[derive(Debug)]
pub struct Watch {
    stop: Sender<Wake>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // An error means that the thread has ended.
        let _ = self.stop.send(Wake::Stop);
    }
}

#[derive(Debug)]
enum Wake {
    Event,
    Stop,
}

/// Watches the files of a configuration and sends a unit for each change of their contents, one
/// since they were read included. A full channel means that a change waits to be taken already.
/// Files inside `watched` directories are left out. Start it anew when a reload has other files.
/// Returns at once.
///
/// # Errors
/// No thread can be started.
pub fn watch(
    files: Vec<SourceFile>,
    watched: Vec<PathBuf>,
    changes: tokio::sync::mpsc::Sender<()>,
) -> io::Result<Watch> {
    let (stop, wakes) = mpsc::channel();
    let waker = stop.clone();
    thread::Builder::new()
        .name("config-watch".to_owned())
        .spawn(move || run(files, &watched, &changes, waker, &wakes))?;
    Ok(Watch { stop })
}

fn run(
    mut files: Vec<SourceFile>,
    watched: &[PathBuf],
    changes: &tokio::sync::mpsc::Sender<()>,
    waker: Sender<Wake>,
    wakes: &Receiver<Wake>,
) {
    files.retain(|file| !inside(&file.path, watched));
    let mut folders = Folders::new(waker);
    loop {
        folders.cover(&files, watched);
        let now: Vec<_> = files
            .iter()
            .map(|file| SourceFile::now(&file.path))
            .collect();
        if now != files {
            files = now;
            if let Err(TrySendError::Closed(())) = changes.try_send(()) {
                return;
            }
        }
        if !wait(wakes) {
            return;
        }
    }
}

fn inside(file: &Path, watched: &[PathBuf]) -> bool {
    watched.iter().any(|dir| file.starts_with(dir))
}

/// Waits for something to happen and for quiet after it. False: stop.
fn wait(wakes: &Receiver<Wake>) -> bool {
    let mut timeout = LOOK;
    for _ in 0..QUIET_EVENTS {
        match wakes.recv_timeout(timeout) {
            Ok(Wake::Event) => timeout = QUIET,
            Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => return true,
        }
    }
    true
}

/// The folders with an inotify watch: where a file is named, and where its symbolic links lead.
struct Folders {
    /// None where the system gives no more of them; the files are then looked at all the same.
    watcher: Option<INotifyWatcher>,
    covered: BTreeSet<PathBuf>,
}

impl Folders {
    fn new(waker: Sender<Wake>) -> Folders {
        let handler = move |event: notify::Result<notify::Event>| {
            // Our own reading is an access too.
            let access = matches!(&event, Ok(event) if matches!(event.kind, EventKind::Access(_)));
            if !access {
                // An error means that the watch has ended.
                let _ = waker.send(Wake::Event);
            }
        };
        Folders {
            watcher: INotifyWatcher::new(handler, notify::Config::default()).ok(),
            covered: BTreeSet::new(),
        }
    }

    /// Watches what has to be watched now, and nothing else. What cannot be watched is looked at
    /// from time to time.
    fn cover(&mut self, files: &[SourceFile], watched: &[PathBuf]) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let named = files.iter().map(|file| file.path.clone());
        let real = files
            .iter()
            .filter_map(|file| file.path.canonicalize().ok());
        let wanted: BTreeSet<PathBuf> = named
            .chain(real)
            .filter(|file| !inside(file, watched))
            .filter_map(|file| std::path::absolute(file).ok())
            .filter_map(|file| file.parent().map(Path::to_owned))
            .collect();
        for gone in self.covered.difference(&wanted) {
            // An error means that the folder is gone, and its watch with it.
            let _ = watcher.unwatch(gone);
        }
        // A folder may have been replaced under its name: watching it again is harmless.
        self.covered = wanted
            .into_iter()
            .filter(|folder| watcher.watch(folder, RecursiveMode::NonRecursive).is_ok())
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tokio::sync::mpsc::Receiver;

    use super::*;

    /// Longer than any machine needs; reached only by a failing test.
    const DEADLINE: Duration = Duration::from_secs(20);

    fn start(file: &Path, watched: Vec<PathBuf>) -> (Watch, Receiver<()>) {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let files = vec![SourceFile::now(file)];
        (watch(files, watched, sender).unwrap(), receiver)
    }

    /// The next change; none when the watch has ended.
    fn next(receiver: &mut Receiver<()>) -> Option<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let change =
            runtime.block_on(async { tokio::time::timeout(DEADLINE, receiver.recv()).await });
        change.expect("a change is noticed in time")
    }

    #[test]
    fn a_write_and_an_atomic_rename_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        fs::write(&file, "1").unwrap();
        let (_watch, mut changes) = start(&file, Vec::new());
        fs::write(&file, "2").unwrap();
        assert_eq!(next(&mut changes), Some(()));

        fs::write(folder.path().join("a.toml.new"), "3").unwrap();
        fs::rename(folder.path().join("a.toml.new"), &file).unwrap();
        assert_eq!(next(&mut changes), Some(()));

        fs::remove_file(&file).unwrap();
        assert_eq!(next(&mut changes), Some(()));
        fs::write(&file, "4").unwrap();
        assert_eq!(next(&mut changes), Some(()));
    }

    /// Kubernetes: `a.toml` → `..data/a.toml`, `..data` → a folder with a date in its name.
    #[test]
    fn a_swapped_symbolic_link_is_noticed_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for version in ["..1", "..2", "..3"] {
            fs::create_dir(path(version)).unwrap();
            fs::write(path(version).join("a.toml"), version).unwrap();
        }
        symlink("..1", path("..data")).unwrap();
        symlink("..data/a.toml", path("a.toml")).unwrap();
        let (_watch, mut changes) = start(&path("a.toml"), Vec::new());
        for version in ["..2", "..3"] {
            symlink(version, path("..data_tmp")).unwrap();
            fs::rename(path("..data_tmp"), path("..data")).unwrap();
            assert_eq!(next(&mut changes), Some(()), "{version}");
        }
    }

    #[test]
    fn a_file_that_is_written_where_its_link_leads_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let (link, file) = (
            folder.path().join("a.toml"),
            elsewhere.path().join("b.toml"),
        );
        fs::write(&file, "1").unwrap();
        symlink(&file, &link).unwrap();
        let (_watch, mut changes) = start(&link, Vec::new());
        fs::write(&file, "2").unwrap();
        assert_eq!(next(&mut changes), Some(()));
    }

    /// The file changed after it was read and before anybody watched.
    #[test]
    fn an_early_change_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        fs::write(&file, "1").unwrap();
        let read = vec![SourceFile::now(&file)];
        fs::write(&file, "2").unwrap();
        let (sender, mut changes) = tokio::sync::mpsc::channel(1);
        let _watch = watch(read, Vec::new(), sender).unwrap();
        assert_eq!(next(&mut changes), Some(()));
    }

    #[test]
    fn a_dropped_watch_ends_its_thread() {
        let folder = tempfile::tempdir().unwrap();
        let (watch, mut changes) = start(&folder.path().join("a.toml"), Vec::new());
        drop(watch);
        assert_eq!(next(&mut changes), None);
    }

    #[test]
    fn a_folder_in_a_watched_directory_is_never_watched() {
        let folder = tempfile::tempdir().unwrap();
        let file = SourceFile::now(&folder.path().join("a.toml"));
        let (waker, _wakes) = mpsc::channel();
        let mut folders = Folders::new(waker);
        folders.cover(std::slice::from_ref(&file), &[folder.path().to_owned()]);
        assert_eq!(folders.covered, BTreeSet::new());
        folders.cover(&[file], &[]);
        assert_eq!(folders.covered, BTreeSet::from([folder.path().to_owned()]));
    }
}
