//! Reads configuration files as bytes, and remembers what was read so that a change can be noticed.

use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::problem::{Place, Problems, Wrong};

/// A configuration of a thousand directories has about 100 KB; whatever is larger is another file.
const FILE_LIMIT: u64 = 1 << 20;

/// A file from which a configuration was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// Of its contents; none if it could not be read.
    digest: Option<u64>,
}

impl SourceFile {
    /// The file as it is now. May block on a disk.
    pub(super) fn now(path: &Path) -> SourceFile {
        SourceFile::of(path, bytes(path).as_deref().ok())
    }

    /// It could be read.
    pub(super) fn is_there(&self) -> bool {
        self.digest.is_some()
    }

    fn of(path: &Path, bytes: Option<&[u8]>) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            digest: bytes.map(|bytes| {
                let mut hasher = DefaultHasher::new();
                bytes.hash(&mut hasher);
                hasher.finish()
            }),
        }
    }
}

/// A pipe is refused without waiting for its other side: nobody may come, and it cannot be read
/// again to notice a change.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other("it is a pipe or a device, not a file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
    if FILE_LIMIT < bytes.len() as u64 {
        return Err(io::Error::other("the file is too large to be one"));
    }
    Ok(bytes)
}

/// The bytes of a file, or none with the reason among the problems. May block on a disk.
pub(super) fn read(
    path: &Path,
    remedy: &str,
    files: &mut Vec<SourceFile>,
    problems: &mut Problems,
) -> Option<Vec<u8>> {
    let read = bytes(path);
    files.push(SourceFile::of(path, read.as_deref().ok()));
    read.map_err(|error| {
        let wrong = Wrong::new(format!("cannot be read: {error}"), remedy);
        problems.error(wrong.at(Place::file(path, None), "", ""));
    })
    .ok()
}
