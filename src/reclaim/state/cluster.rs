//! Which cluster the file is about, since the first run.

use redb::{TableDefinition, TableError, WriteTransaction};

use super::{State, StateError};

const CLUSTER: TableDefinition<&str, &str> = TableDefinition::new("cluster");
const INSTANCE: &str = "instance";

impl State {
    /// The cluster's id at the first run, be it a scan or one that acted.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn instance(&self) -> Result<Option<String>, StateError> {
        let remembered = self.read(|transaction| match transaction.open_table(CLUSTER) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            table => Ok(table?
                .get(INSTANCE)?
                .map(|instance| instance.value().to_owned())),
        })?;
        match remembered {
            Some(instance) => Ok(Some(instance)),
            None => Ok(self.last_scan()?.map(|info| info.instance)),
        }
    }

    /// Remembers it.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn remember_instance(&self, instance: &str) -> Result<(), StateError> {
        self.write(|transaction| set(transaction, instance))
    }
}

pub(super) fn set(transaction: &WriteTransaction, instance: &str) -> Result<(), redb::Error> {
    transaction
        .open_table(CLUSTER)?
        .insert(INSTANCE, instance)?;
    Ok(())
}
