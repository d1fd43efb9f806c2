//! How far the full-scan trim of a cluster is, so that a pass that was cut off is gone on with, and when the last one was
//! that saw every topic.

use redb::{TableDefinition, TableError};
use serde::{Deserialize, Serialize};

use super::{State, StateError};
use crate::reclaim::plan::Millis;

/// Positions by what is trimmed: a cluster, or a part of one.
const POSITIONS: TableDefinition<&str, &[u8]> = TableDefinition::new("trim positions");

/// How far a pass is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrimPosition {
    /// When the pass began, be it in another process.
    pub began: Millis,
    /// When it was here.
    pub at: Millis,
    /// Topics up to here are dealt with; none: all are.
    pub behind: Option<Behind>,
    /// How many topics that were.
    pub topics: u64,
}

/// A place in the order of topics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Behind {
    /// The folder of topics, below `/managed-ledgers`.
    pub folder: String,
    /// The last one in it; none: all of it.
    pub topic: Option<String>,
}

impl State {
    /// How far the trim of this is; none if there was never one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn trim_position(&self, of: &str) -> Result<Option<TrimPosition>, StateError> {
        let bytes = self.read(|transaction| match transaction.open_table(POSITIONS) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            table => Ok(table?.get(of)?.map(|value| value.value().to_vec())),
        })?;
        let position = bytes.map(|bytes| postcard::from_bytes(&bytes));
        let position = position.transpose();
        position.map_err(|_| self.damaged("the position of a trim"))
    }

    /// Remembers how far it is.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put_trim_position(&self, of: &str, position: &TrimPosition) -> Result<(), StateError> {
        let bytes = super::rows::encoded(position);
        self.write(|transaction| {
            transaction.open_table(POSITIONS)?.insert(of, &*bytes)?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_has_a_position_of_its_own_that_outlives_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        assert_eq!(state.trim_position("a").unwrap(), None);
        let position = TrimPosition {
            began: 1,
            at: 2,
            behind: Some(Behind {
                folder: "t/n/persistent".to_owned(),
                topic: Some("x".to_owned()),
            }),
            topics: 3,
        };
        state.put_trim_position("a", &position).unwrap();
        drop(state);
        let state = State::open(dir.path()).unwrap();
        assert_eq!(state.trim_position("a").unwrap(), Some(position));
        assert_eq!(state.trim_position("b").unwrap(), None);
    }

    #[test]
    fn what_no_program_of_ours_wrote_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        let garbage: &[u8] = &[0xff; 3];
        state
            .write(|transaction| {
                transaction.open_table(POSITIONS)?.insert("a", garbage)?;
                Ok(())
            })
            .unwrap();
        let error = state.trim_position("a").unwrap_err().to_string();
        assert!(error.contains("the position of a trim"), "{error}");
    }
}
