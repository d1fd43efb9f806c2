//! Notices changed configuration files: a write, an atomic rename, a swapped symbolic link as
//! Kubernetes makes it. Runs in a thread of its own that may be lost on a dead disk; never watches a
//! folder that belongs to a watched directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use notify::event::EventKind;
use notify::{INotifyWatcher, RecursiveMode, Watcher};

use super::file::read_bytes;

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

#[derive(Debug, PartialEq)]
enum Wake {
    Event,
    Stop,
}

/// Watches the files and sends one unit for each change of their contents. A full channel means
/// that a change waits to be taken already. Files inside `watched` directories are left out. Returns
/// at once.
///
/// # Errors
/// No thread can be started.
pub fn watch(
    files: Vec<PathBuf>,
    watched: &[PathBuf],
    changes: tokio::sync::mpsc::Sender<()>,
) -> std::io::Result<Watch> {
    let files: Vec<PathBuf> = files
        .into_iter()
        .filter(|file| !inside(file, watched))
        .collect();
    let watched = watched.to_vec();
    let (stop, wakes) = mpsc::channel();
    let waker = stop.clone();
    std::thread::Builder::new()
        .name("config-watch".to_owned())
        .spawn(move || {
            let mut seen: Vec<_> = files.iter().map(|file| read_bytes(file).ok()).collect();
            let mut folders = Folders::new(waker);
            // The files may have changed between their reading and the first watch.
            folders.cover(&files, &watched);
            let mut wait = QUIET;
            while next(&wakes, wait) {
                wait = LOOK;
                folders.cover(&files, &watched);
                let now: Vec<_> = files.iter().map(|file| read_bytes(file).ok()).collect();
                if now != seen {
                    seen = now;
                    if let Err(tokio::sync::mpsc::error::TrySendError::Closed(())) =
                        changes.try_send(())
                    {
                        return;
                    }
                }
            }
        })?;
    Ok(Watch { stop })
}

fn inside(file: &Path, watched: &[PathBuf]) -> bool {
    watched.iter().any(|dir| file.starts_with(dir))
}

/// Waits for something to happen and for quiet after it. False: stop.
fn next(wakes: &mpsc::Receiver<Wake>, wait: Duration) -> bool {
    let mut timeout = wait;
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
    watcher: Option<INotifyWatcher>,
    covered: BTreeSet<PathBuf>,
}

impl Folders {
    fn new(waker: Sender<Wake>) -> Folders {
        let handler = move |event: notify::Result<notify::Event>| {
            // Our own reading is an access too.
            let read = matches!(&event, Ok(event) if matches!(event.kind, EventKind::Access(_)));
            if !read {
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
    fn cover(&mut self, files: &[PathBuf], watched: &[PathBuf]) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let named = files.iter().cloned();
        let real = files.iter().filter_map(|file| file.canonicalize().ok());
        let wanted: BTreeSet<PathBuf> = named
            .chain(real)
            .filter(|file| !inside(file, watched))
            .filter_map(|file| std::path::absolute(file).ok())
            .filter_map(|file| file.parent().map(Path::to_owned))
            .collect();
        for gone in self.covered.difference(&wanted) {
            let _ = watcher.unwatch(gone);
        }
        // A folder may have been replaced under its name: watching it again is harmless.
        self.covered = wanted
            .into_iter()
            .filter(|folder| watcher.watch(folder, RecursiveMode::NonRecursive).is_ok())
            .collect();
    }
}
