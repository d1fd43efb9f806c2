//! What reclaim remembers between its commands, and through kill -9: one file in the state directory, with one
//! process at a time that writes it. What is written is on the disk when that returns. Blocks on the disk of the
//! state directory.

pub(super) mod aside;
mod cluster;
pub mod history;
mod holder;
pub mod marks;
pub mod position;
mod rows;
pub(super) mod scan;
pub mod visits;

use std::path::{Path, PathBuf};

use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase, TableDefinition, TableError,
    WriteTransaction,
};
use thiserror::Error;

pub use history::Stored;
pub use holder::Holder;
use holder::Sign;

/// The file, in the state directory.
pub const FILE: &str = "reclaim.redb";

/// Version of all tables of the file. One with a newer version is not touched.
const SCHEMA: u64 = 1;

/// Numbers by name.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const META_SCHEMA: &str = "schema";

/// The database's own cache: the file is written in sequence and read in sequence.
const CACHE_BYTES: usize = 8 << 20;

/// Why something is not remembered, or not known any more.
#[derive(Debug, Error)]
pub enum StateError {
    /// Another process works with it.
    #[error(
        "{path} is in use by another dirkeeper reclaim{}: wait for its end, or name another --state-dir",
        holder.as_ref().map_or(String::new(), |holder| format!(" ({holder})"))
    )]
    InUse {
        /// The file.
        path: PathBuf,
        /// Who has it, where that is known.
        holder: Option<Holder>,
    },
    /// Nothing was ever remembered there.
    #[error("{path} is not there: run dirkeeper reclaim scan first, or name its --state-dir")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A newer program wrote it.
    #[error("{path} has version {found}, and this program knows {SCHEMA}: use the newer program")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// It cannot be read or written, or is damaged.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: redb::Error,
    },
    /// What stands in it is not understood.
    #[error(
        "{path} holds {what} that cannot be understood: move it away, which forgets all evidence and marks"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
}

/// The open file.
#[derive(Debug)]
pub struct State {
    database: Database,
    path: PathBuf,
    /// Taken away before the file is closed.
    sign: Option<Sign>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.sign.take();
    }
}

impl State {
    /// Opens the file in this directory, which has to be there, or makes it.
    ///
    /// # Errors
    /// It is in use, or cannot be used.
    pub fn open(dir: &Path) -> Result<State, StateError> {
        let path = dir.join(FILE);
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let database = match builder.create(&path) {
            Ok(database) => database,
            Err(DatabaseError::DatabaseAlreadyOpen) => {
                let holder = Holder::of(&path);
                return Err(StateError::InUse { path, holder });
            }
            Err(error) => {
                let source = error.into();
                return Err(StateError::File { path, source });
            }
        };
        let mut state = State::with(database, path)?;
        state.sign = Sign::put(&state.path);
        Ok(state)
    }

    /// Without a file.
    #[cfg(test)]
    pub(super) fn in_memory() -> State {
        let backend = redb::backends::InMemoryBackend::new();
        let database = Database::builder().create_with_backend(backend).unwrap();
        State::with(database, PathBuf::new()).unwrap()
    }

    fn with(database: Database, path: PathBuf) -> Result<State, StateError> {
        let state = State {
            database,
            path,
            sign: None,
        };
        let found = state.read(|transaction| match transaction.open_table(META) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            table => Ok(table?.get_owned(META_SCHEMA)?.map(|number| number.value())),
        })?;
        match found {
            Some(found) if SCHEMA < found => {
                let path = state.path.clone();
                return Err(StateError::Newer { path, found });
            }
            Some(_) => {}
            None => state.write(|transaction| {
                transaction.open_table(META)?.insert(META_SCHEMA, SCHEMA)?;
                Ok(())
            })?,
        }
        Ok(state)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads in one transaction.
    pub(super) fn read<T>(
        &self,
        ask: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StateError> {
        let read = || ask(&self.database.begin_read()?);
        read().map_err(|source| self.failed(source))
    }

    /// Writes in one transaction, all or nothing, on the disk when this returns.
    pub(super) fn write<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StateError> {
        let write = || {
            #[cfg_attr(not(test), expect(unused_mut))]
            let mut transaction = self.database.begin_write()?;
            #[cfg(test)]
            if self.path.as_os_str().is_empty() {
                // Nothing would outlive the process anyway.
                let _ = transaction.set_durability(redb::Durability::None);
            }
            let result = change(&transaction)?;
            transaction.commit()?;
            Ok(result)
        };
        write().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: redb::Error) -> StateError {
        let path = self.path.clone();
        StateError::File { path, source }
    }

    /// For a value in a table that no program of ours wrote so.
    pub(super) fn damaged(&self, what: impl Into<String>) -> StateError {
        StateError::Damaged {
            path: self.path.clone(),
            what: what.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        let refused = State::open(dir.path()).unwrap_err();
        let text = refused.to_string();
        let StateError::InUse { holder, .. } = refused else {
            panic!("{text}");
        };
        assert_eq!(holder.unwrap().pid, std::process::id());
        let pid = std::process::id();
        assert!(
            text.contains(&format!("(process {pid}, since 20")),
            "{text}"
        );
        drop(state);
        drop(State::open(dir.path()).unwrap());
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_newer_file_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        state
            .write(|transaction| {
                transaction.open_table(META)?.insert(META_SCHEMA, 2)?;
                Ok(())
            })
            .unwrap();
        drop(state);
        let refused = State::open(dir.path()).unwrap_err();
        assert!(
            matches!(refused, StateError::Newer { found: 2, .. }),
            "{refused}"
        );
    }
}
