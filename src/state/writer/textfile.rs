//! The textfile of metrics, written beside the store: a thread of its own in the writer child, because
//! its directory may be as dead as any other and the store must not wait for it. The newest text wins.
//! The file is put in place by a rename, and taken away when the agent is gone.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;

use super::Answers;
use crate::state::wire::{Answer, TEXT_LIMIT, TextPart};

/// What node_exporter reads, and what it does not because of its end.
const FILE: &str = "dirkeeper.prom";
const UNFINISHED: &str = ".dirkeeper.prom.new";

/// How long the end of the agent is held up for the file to be removed; a dead directory keeps it.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Hands texts to the thread that writes them.
pub(super) struct Textfile {
    slot: Arc<Slot>,
    gathering: Vec<u8>,
    ended: Receiver<()>,
}

#[derive(Default)]
struct Slot {
    wanted: Mutex<Wanted>,
    wake: Condvar,
}

#[derive(Default)]
struct Wanted {
    /// What is to be done next; a newer wish takes the place of an older one.
    next: Option<Wish>,
    ended: bool,
}

enum Wish {
    Put { directory: PathBuf, text: Vec<u8> },
    Remove,
}

impl Slot {
    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn want(&self, wish: Wish) {
        self.wanted().next = Some(wish);
        self.wake.notify_one();
    }
}

impl Textfile {
    /// Starts the thread, which says how each wish went.
    ///
    /// # Errors
    /// The system refuses it.
    pub(super) fn start(answers: Arc<Answers>) -> io::Result<Textfile> {
        let slot: Arc<Slot> = Arc::default();
        let (tell, ended) = mpsc::channel();
        let its = Arc::clone(&slot);
        thread::Builder::new()
            .name("textfile".to_owned())
            .stack_size(128 * 1024)
            .spawn(move || work(&its, &answers, &tell))?;
        Ok(Textfile {
            slot,
            gathering: Vec::new(),
            ended,
        })
    }

    /// Takes in what the agent says. Never waits.
    pub(super) fn take(&mut self, part: TextPart) {
        match part {
            TextPart::Begin => self.gathering.clear(),
            TextPart::Piece(piece) => {
                if self.gathering.len() + piece.len() <= TEXT_LIMIT {
                    self.gathering.extend_from_slice(&piece);
                }
            }
            TextPart::Put { directory } => {
                let directory = OsString::from_vec(directory.into_vec()).into();
                let text = std::mem::take(&mut self.gathering);
                self.slot.want(Wish::Put { directory, text });
            }
            TextPart::Remove => self.slot.want(Wish::Remove),
        }
    }

    /// The agent is gone: the file is removed, unless its directory does not answer.
    pub(super) fn end(self) {
        {
            let mut wanted = self.slot.wanted();
            wanted.next = None;
            wanted.ended = true;
        }
        self.slot.wake.notify_one();
        let _ = self.ended.recv_timeout(LAST_PATIENCE);
    }
}

fn work(slot: &Slot, answers: &Answers, ended: &Sender<()>) {
    let mut written: Option<Written> = None;
    loop {
        let wish = {
            let mut wanted = slot.wanted();
            loop {
                match wanted.next.take() {
                    Some(wish) => break Some(wish),
                    None if wanted.ended => break None,
                    None => {
                        let woken = slot.wake.wait(wanted);
                        wanted = woken.unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        };
        let result = match wish {
            Some(Wish::Put { directory, text }) => {
                if written
                    .as_ref()
                    .is_some_and(|file| file.directory != directory)
                {
                    written.take().map(Written::remove);
                }
                put(&directory, &text).map(|file| written = Some(file))
            }
            Some(Wish::Remove) => written.take().map_or(Ok(()), Written::remove),
            None => {
                // Nobody is left to be told.
                let _ = written.take().map(Written::remove);
                let _ = ended.send(());
                return;
            }
        };
        let result = result.map_err(|error| error.to_string());
        answers.say(&Answer::Text(result));
    }
}

/// The file as it was put in place.
struct Written {
    directory: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl Written {
    /// Removes it, if it is still the one: another agent, or the next writer, may have put its own.
    fn remove(self) -> io::Result<()> {
        let path = self.directory.join(FILE);
        match fs::symlink_metadata(&path) {
            Ok(found) if (found.dev(), found.ino()) == self.id => fs::remove_file(path),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Nothing waits for it to be on disk: after a crash of the machine it is of no use.
fn put(directory: &Path, text: &[u8]) -> io::Result<Written> {
    let unfinished = directory.join(UNFINISHED);
    let begun = begin(&unfinished, text);
    let placed = begun.and_then(|id| {
        fs::rename(&unfinished, directory.join(FILE))?;
        Ok(id)
    });
    match placed {
        Ok(id) => Ok(Written {
            directory: directory.to_owned(),
            id,
        }),
        Err(error) => {
            // A full disk should not be fuller by it.
            let _ = fs::remove_file(&unfinished);
            Err(error)
        }
    }
}

fn begin(path: &Path, text: &[u8]) -> io::Result<(u64, u64)> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other(
            "its unfinished file is a pipe or a device",
        ));
    }
    // For the user of node_exporter, whatever our umask is.
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(text)?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_put_whole_and_only_our_own_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path(), folder.path().join(FILE));
        let first = put(path, b"up 1\n").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"up 1\n");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o644);
        let second = put(path, b"up 2\n").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"up 2\n");
        first.remove().unwrap();
        assert!(file.exists(), "it is another one by now");
        second.remove().unwrap();
        assert_eq!(fs::read_dir(path).unwrap().count(), 0);
        assert!(put(&path.join("missing"), b"").is_err());
    }

    #[test]
    fn a_link_or_a_pipe_in_its_place_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (unfinished, other) = (folder.path().join(UNFINISHED), folder.path().join("other"));
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &unfinished).unwrap();
        assert!(put(folder.path(), b"text").is_err());
        assert_eq!(fs::read(&other).unwrap(), b"kept");
    }
}
