//! Which topics were visited for trimming, and which of them are still loaded because of it: that is on the disk before the
//! broker is told to load one, so that no end of this program leaves a topic loaded for good.

use std::ops::Deref;

use redb::{ReadableTable, TableDefinition, TableError};
use serde::{Deserialize, Serialize};

use super::{State, StateError};
use crate::reclaim::plan::trim::Past;
use crate::reclaim::plan::{DAY, Millis};

/// Visits by cluster and the path of the topic's node. The table `visits` of a program before this one did not say of which
/// cluster they are, and is not read.
const VISITS: TableDefinition<(&str, &str), &[u8]> = TableDefinition::new("visits of topics");

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

/// What is remembered, with the visits of one cluster.
pub struct Visits<'a> {
    state: &'a State,
    /// Of [`PulsarId::key`](crate::reclaim::scan::PulsarId).
    cluster: String,
}

impl Deref for Visits<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state
    }
}

impl State {
    /// What is remembered, with the visits of this cluster: two may have topics of the same names.
    #[must_use]
    pub fn visits_of(&self, cluster: &str) -> Visits<'_> {
        Visits {
            state: self,
            cluster: cluster.to_owned(),
        }
    }

    /// All visits, with their clusters and topics.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn all_visits(&self) -> Result<Vec<(String, String, Visit)>, StateError> {
        let all = self.read(|transaction| {
            let table = match transaction.open_table(VISITS) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                table => table?,
            };
            let mut all = Vec::new();
            for row in table.iter()? {
                let (key, value) = row?;
                let (cluster, topic) = key.value();
                all.push((cluster.to_owned(), topic.to_owned(), value.value().to_vec()));
            }
            Ok(all)
        })?;
        let decoded = all.into_iter().map(|(cluster, topic, bytes)| {
            let visit = self.decode(&topic, &bytes)?;
            Ok((cluster, topic, visit))
        });
        decoded.collect()
    }

    fn decode(&self, topic: &str, bytes: &[u8]) -> Result<Visit, StateError> {
        postcard::from_bytes(bytes).map_err(|_| self.damaged(format!("a visit of {topic}")))
    }
}

impl Visits<'_> {
    /// What is remembered of a topic.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn visit(&self, topic: &str) -> Result<Option<Visit>, StateError> {
        let key = (self.cluster.as_str(), topic);
        let bytes = self.read(|transaction| match transaction.open_table(VISITS) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            table => Ok(table?.get(key)?.map(|value| value.value().to_vec())),
        })?;
        bytes.map(|bytes| self.decode(topic, &bytes)).transpose()
    }

    /// Remembers a visit.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put_visit(&self, topic: &str, visit: &Visit) -> Result<(), StateError> {
        let key = (self.cluster.as_str(), topic);
        let bytes = super::rows::encoded(visit);
        self.write(|transaction| {
            transaction.open_table(VISITS)?.insert(key, &*bytes)?;
            Ok(())
        })
    }

    /// The topics that may still be loaded because of us.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn loaded_by_us(&self) -> Result<Vec<(String, Visit)>, StateError> {
        let all = self.all_visits()?.into_iter();
        let ours = all.filter(|(cluster, _, visit)| *cluster == self.cluster && visit.loaded_by_us);
        Ok(ours.map(|(_, topic, visit)| (topic, visit)).collect())
    }

    /// Forgets visits of long ago, of all clusters.
    ///
    /// # Errors
    /// They cannot be read or written.
    pub fn forget_visits(&self, now: Millis) -> Result<(), StateError> {
        let mut old = self.all_visits()?;
        old.retain(|(.., visit)| {
            !visit.loaded_by_us && FORGOTTEN_AFTER < now.saturating_sub(visit.last)
        });
        if old.is_empty() {
            return Ok(());
        }
        self.write(|transaction| {
            let mut table = transaction.open_table(VISITS)?;
            for (cluster, topic, _) in &old {
                table.remove((cluster.as_str(), topic.as_str()))?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_are_remembered_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let file = State::open(dir.path()).unwrap();
        let state = file.visits_of("1-1");
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
        drop(file);
        let file = State::open(dir.path()).unwrap();
        let state = file.visits_of("1-1");
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
    fn topics_of_the_same_name_are_others_in_another_cluster() {
        let state = State::in_memory();
        let (one, other) = (state.visits_of("1-1"), state.visits_of("2-2"));
        let visit = |visits| Visit {
            visits,
            loaded_by_us: true,
            ..Visit::default()
        };
        one.put_visit("/a", &visit(1)).unwrap();
        assert_eq!(other.visit("/a").unwrap(), None);
        assert_eq!(other.loaded_by_us().unwrap(), []);
        other.put_visit("/a", &visit(2)).unwrap();
        let seen = [&one, &other].map(|state| state.visit("/a").unwrap().unwrap().visits);
        assert_eq!(seen, [1, 2]);
        assert_eq!(one.loaded_by_us().unwrap(), [("/a".to_owned(), visit(1))]);
    }

    #[test]
    fn visits_that_do_not_say_of_which_cluster_are_not_believed() {
        const OLD: TableDefinition<&str, &[u8]> = TableDefinition::new("visits");
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        let row = super::super::rows::encoded(&Visit::default());
        let put = state.write(|transaction| {
            transaction.open_table(OLD)?.insert("/a", &*row)?;
            Ok(())
        });
        put.unwrap();
        drop(state);
        let state = State::open(dir.path()).unwrap();
        assert_eq!(state.visits_of("1-1").visit("/a").unwrap(), None);
        assert_eq!(state.all_visits().unwrap(), []);
    }

    #[test]
    fn what_no_program_of_ours_wrote_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        let garbage: &[u8] = &[0xff; 3];
        state
            .write(|transaction| {
                transaction
                    .open_table(VISITS)?
                    .insert(("1-1", "/a"), garbage)?;
                Ok(())
            })
            .unwrap();
        let error = state.all_visits().unwrap_err();
        assert!(error.to_string().contains("a visit of /a"), "{error}");
    }
}
