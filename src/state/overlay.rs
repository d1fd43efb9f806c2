//! A database file that is read and never written: what the database changes while it is open, its
//! repair after a crash included, stays in memory. So the store can be read on a full, frozen or
//! read-only file system, and looking at it leaves no trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

/// Changed bytes are kept in blocks of this size, the database's page.
const BLOCK: usize = 4096;

#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    /// The same file, for its locks.
    locks: FileBackend,
    changes: Mutex<Changes>,
}

#[derive(Debug)]
struct Changes {
    len: u64,
    /// The file counts up to here; beyond it there are zeroes.
    file_len: u64,
    blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
}

impl Overlay {
    /// # Errors
    /// The file's length or a second descriptor cannot be had.
    pub(super) fn new(file: File) -> io::Result<Overlay> {
        let len = file.metadata()?.len();
        let locks = FileBackend::new(file.try_clone()?).map_err(io::Error::other)?;
        Ok(Overlay {
            file,
            locks,
            changes: Mutex::new(Changes {
                len,
                file_len: len,
                blocks: BTreeMap::new(),
            }),
        })
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the file itself has there, zeroes beyond its end.
    fn read_file(&self, file_len: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = file_len.saturating_sub(offset);
        let count = usize::try_from(there).unwrap_or(usize::MAX).min(out.len());
        let (inside, beyond) = out.split_at_mut(count);
        self.file.read_exact_at(inside, offset)?;
        beyond.fill(0);
        Ok(())
    }
}

/// The blocks that `len` bytes at `offset` touch: number of the block, where in it they begin, and
/// their range among the bytes.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = usize::try_from(at % BLOCK as u64).unwrap_or(0);
        let count = (BLOCK - within).min(len - done);
        let range = done..done + count;
        done += count;
        (count > 0).then_some((at / BLOCK as u64, within, range))
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changes().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changes = self.changes();
        if changes.len < offset.saturating_add(out.len() as u64) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_file(changes.file_len, offset, out)?;
        for (number, within, range) in pieces(offset, out.len()) {
            if let Some(block) = changes.blocks.get(&number) {
                let count = range.len();
                out[range].copy_from_slice(&block[within..within + count]);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changes = self.changes();
        if len < changes.len {
            let first_gone = len.div_ceil(BLOCK as u64);
            changes.blocks.split_off(&first_gone);
            let keep = usize::try_from(len % BLOCK as u64).unwrap_or(0);
            if let Some(block) = changes.blocks.get_mut(&(len / BLOCK as u64)) {
                block[keep..].fill(0);
            }
        }
        changes.len = len;
        changes.file_len = changes.file_len.min(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changes = self.changes();
        for (number, within, range) in pieces(offset, data.len()) {
            if !changes.blocks.contains_key(&number) {
                let mut block = Box::new([0; BLOCK]);
                self.read_file(changes.file_len, number * BLOCK as u64, &mut block[..])?;
                changes.blocks.insert(number, block);
            }
            if let Some(block) = changes.blocks.get_mut(&number) {
                block[within..within + range.len()].copy_from_slice(&data[range]);
            }
        }
        changes.len = changes.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.locks.close()
    }

    // Whoever only reads shares the file with others that only read, and not with a writer.

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.locks.try_lock_shared_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.locks.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.locks.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.locks.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Reads see what a plain file would show, and the file underneath stays as it was.
        #[test]
        fn behaves_like_a_file_and_leaves_the_file_alone(
            start in proptest::collection::vec(any::<u8>(), 0..9000),
            steps in proptest::collection::vec(
                (any::<bool>(), 0_usize..12_000, proptest::collection::vec(any::<u8>(), 1..6000)),
                1..8,
            ),
        ) {
            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, &start).unwrap();
            let overlay = Overlay::new(file.try_clone().unwrap()).unwrap();
            let mut model = start.clone();
            for (resize, at, bytes) in steps {
                if resize {
                    model.resize(at, 0);
                    overlay.set_len(at as u64).unwrap();
                } else {
                    if model.len() < at + bytes.len() {
                        model.resize(at + bytes.len(), 0);
                    }
                    model[at..at + bytes.len()].copy_from_slice(&bytes);
                    overlay.write(at as u64, &bytes).unwrap();
                }
                let mut seen = vec![7; model.len()];
                overlay.read(0, &mut seen).unwrap();
                prop_assert!(seen == model);
            }
            let mut kept = vec![0; start.len()];
            file.read_exact_at(&mut kept, 0).unwrap();
            prop_assert_eq!(kept, start);
        }
    }
}
