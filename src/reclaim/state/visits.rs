//! Which topics were visited for trimming, and which of them are still loaded because of it: that is on the disk before the
//! broker is told to load one, so that no end of this program leaves a topic loaded for good.

use redb::{ReadableTable, TableDefinition, TableError};
use serde::{Deserialize, Serialize};

use super::{State, StateError};
use crate::reclaim::plan::trim::Past;
use crate::reclaim::plan::{DAY, Millis};

/// Visits by the path of the topic's node.
const VISITS: TableDefinition<&str, &[u8]> = TableDefinition::new("visits");

/// A visit so long ago says nothing any more: longer than the longest rest of a topic, and than most retentions.
const FORGOTTEN_AFTER: Millis = 400 * DAY;

/// What is remembered of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Visit {
    /// When it was visited first.
    pub first: Millis,
    /// And last.
    pub last: Millis,
    /// How often.
    pub visits: u64,
    /// The last ones, so many in a row, gave nothing back.
    pub fruitless: u32,
    /// Bytes of one copy that all visits gave back.
    pub gained: u64,
    /// Its last ledger began to age with the last one.
    pub started: bool,
    /// It is loaded because of us, or may be.
    pub loaded_by_us: bool,
}

impl Visit {
    /// As far as the next visit depends on it.
    #[must_use]
    pub fn past(&self) -> Past {
        Past {
            at: self.last,
            fruitless: self.fruitless,
            started: self.started,
        }
    }
}

impl State {
    /// What is remembered of a topic.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn visit(&self, topic: &str) -> Result<Option<Visit>, StateError> {
        let bytes = self.read(|transaction| match transaction.open_table(VISITS) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            table => Ok(table?.get(topic)?.map(|value| value.value().to_vec())),
        })?;
        bytes.map(|bytes| self.decode(topic, &bytes)).transpose()
    }

    /// Remembers a visit.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put_visit(&self, topic: &str, visit: &Visit) -> Result<(), StateError> {
        let bytes = postcard::to_stdvec(visit).map_err(|_| self.damaged("a visit"))?;
        self.write(|transaction| {
            transaction.open_table(VISITS)?.insert(topic, &*bytes)?;
            Ok(())
        })
    }

    /// The topics that may still be loaded because of us.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn loaded_by_us(&self) -> Result<Vec<(String, Visit)>, StateError> {
        let mut all = self.visits()?;
        all.retain(|(_, visit)| visit.loaded_by_us);
        Ok(all)
    }

    /// Forgets visits of long ago.
    ///
    /// # Errors
    /// They cannot be read or written.
    pub fn forget_visits(&self, now: Millis) -> Result<(), StateError> {
        let mut old = self.visits()?;
        old.retain(|(_, visit)| {
            !visit.loaded_by_us && FORGOTTEN_AFTER < now.saturating_sub(visit.last)
        });
        if old.is_empty() {
            return Ok(());
        }
        self.write(|transaction| {
            let mut table = transaction.open_table(VISITS)?;
            for (topic, _) in &old {
                table.remove(topic.as_str())?;
            }
            Ok(())
        })
    }

    /// All of them.
    fn visits(&self) -> Result<Vec<(String, Visit)>, StateError> {
        let all = self.read(|transaction| {
            let table = match transaction.open_table(VISITS) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                table => table?,
            };
            let mut all = Vec::new();
            for row in table.iter()? {
                let (topic, value) = row?;
                all.push((topic.value().to_owned(), value.value().to_vec()));
            }
            Ok(all)
        })?;
        let decoded = all.into_iter().map(|(topic, bytes)| {
            let visit = self.decode(&topic, &bytes)?;
            Ok((topic, visit))
        });
        decoded.collect()
    }

    fn decode(&self, topic: &str, bytes: &[u8]) -> Result<Visit, StateError> {
        postcard::from_bytes(bytes).map_err(|_| self.damaged(format!("a visit of {topic}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_are_remembered_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        assert_eq!(state.visit("/a").unwrap(), None);
        assert!(state.loaded_by_us().unwrap().is_empty());
        let visit = Visit {
            first: 1,
            last: 2,
            visits: 3,
            fruitless: 1,
            gained: 1 << 40,
            started: true,
            loaded_by_us: false,
        };
        let loaded = Visit {
            loaded_by_us: true,
            ..visit
        };
        state.put_visit("/a", &visit).unwrap();
        state.put_visit("/b", &loaded).unwrap();
        drop(state);
        let state = State::open(dir.path()).unwrap();
        assert_eq!(state.visit("/a").unwrap(), Some(visit));
        assert_eq!(state.loaded_by_us().unwrap(), [("/b".to_owned(), loaded)]);
        state.forget_visits(FORGOTTEN_AFTER + 2).unwrap();
        assert!(state.visit("/a").unwrap().is_some());
        state.forget_visits(FORGOTTEN_AFTER + 3).unwrap();
        assert_eq!(state.visit("/a").unwrap(), None);
        assert!(
            state.visit("/b").unwrap().is_some(),
            "a loaded topic was forgotten"
        );
    }

    #[test]
    fn what_no_program_of_ours_wrote_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        let garbage: &[u8] = &[0xff; 3];
        state
            .write(|transaction| {
                transaction.open_table(VISITS)?.insert("/a", garbage)?;
                Ok(())
            })
            .unwrap();
        let error = state.loaded_by_us().unwrap_err();
        assert!(error.to_string().contains("a visit of /a"), "{error}");
    }
}
