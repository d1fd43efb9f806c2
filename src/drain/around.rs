//! What is around a job: bookies and their space, racks, and who answers. Asked again whenever it is needed, because all of it
//! changes while a job runs.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;

use thiserror::Error;

use super::plan::place::{Seen, Target, targets};
use super::plan::racks::Racks;
use crate::cluster::bookie::{BookieError, Bookies, Code, Space};
use crate::cluster::store::{MetaStore, StoreError, together};
use crate::cluster::{Members, members};

type Asked = Pin<Box<dyn Future<Output = Result<Space, BookieError>> + Send>>;

/// Which cluster it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where BookKeeper keeps everything, as `/ledgers`.
    pub ledgers_root: String,
    /// Where we keep everything, as `/dirkeeper`.
    pub root: String,
    /// The cluster's id.
    pub instance: String,
}

/// A list of the cluster that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot read {path}")]
pub struct AroundError {
    /// Which node.
    pub path: String,
    /// Why.
    #[source]
    pub source: StoreError,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Around {
    /// Who is there.
    pub members: Members,
    /// Pulsar's map of racks, or why it is not understood.
    pub racks: Result<Racks, String>,
    /// What bookies said, and agents of them.
    pub seen: Seen,
    /// Bookies that answer nobody who does not say first who it is.
    pub sasl: BTreeSet<String>,
    /// Bookies that gave no answer, each with the reason.
    pub silent: BTreeMap<String, String>,
}

impl Around {
    /// Every bookie, as something to be chosen from. Nobody where the racks are not understood.
    #[must_use]
    pub fn targets(&self, drained: &BTreeSet<String>) -> Vec<Target> {
        let racks = self.racks.as_ref();
        racks.map_or(Vec::new(), |racks| targets(racks, &self.seen, drained))
    }
}

/// Looks. Takes as long as the slowest bookie may take to answer.
///
/// # Errors
/// A list of the cluster cannot be read. A bookie that does not answer is no error.
pub async fn look(
    store: &dyn MetaStore,
    place: &Place,
    bookies: &Bookies,
) -> Result<Around, AroundError> {
    let Place {
        ledgers_root,
        root,
        instance,
    } = place;
    let members = members(store, ledgers_root, root, instance).await;
    let members = members.map_err(|(path, source)| AroundError { path, source })?;
    let writable = members.writable.difference(&members.read_only).cloned();
    let mut around = Around {
        racks: Racks::parse(&members.racks),
        seen: Seen {
            writable: writable.collect(),
            space: BTreeMap::new(),
            warn: members.over_warn.clone(),
        },
        sasl: BTreeSet::new(),
        silent: BTreeMap::new(),
        members,
    };
    let alive: Vec<String> = around.members.alive().into_iter().collect();
    let ask = |id: &String| -> Asked {
        let bookie = bookies.get(id);
        Box::pin(async move { bookie.space().await })
    };
    let answers = together(alive.iter().map(ask).collect()).await;
    for (id, answer) in alive.into_iter().zip(answers) {
        match answer {
            Ok(space) => drop(around.seen.space.insert(id, (space.free, space.total))),
            Err(BookieError::Status(Code::Unauthorized)) => drop(around.sasl.insert(id)),
            Err(error) => drop(around.silent.insert(id, crate::report::text(&error))),
        }
    }
    Ok(around)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::Clock;
    use crate::cluster::bookie::Limits;
    use crate::cluster::bookie::fake::Fake;
    use crate::cluster::memory::Memory;
    use crate::cluster::store::{Kind, create_with_parents};

    #[tokio::test]
    async fn bookies_say_what_they_have_or_why_not() {
        let store = Arc::new(Memory::new(Clock::manual()).connect());
        let (one, other, strict) = (
            Fake::start().await,
            Fake::start().await,
            Fake::start().await,
        );
        one.has_space(100, 60);
        strict.fail(502);
        let gone = Fake::start().await;
        let silent = gone.id().to_owned();
        drop(gone);
        for (list, id) in [
            ("available", one.id()),
            ("available/readonly", other.id()),
            ("available", strict.id()),
            ("available", &silent),
        ] {
            let path = format!("/ledgers/{list}/{id}");
            let made = create_with_parents(&*store, &path, b"", Kind::Persistent).await;
            made.unwrap();
        }
        let place = Place {
            ledgers_root: "/ledgers".to_owned(),
            root: "/dirkeeper".to_owned(),
            instance: "i".to_owned(),
        };
        let dynamic: Arc<dyn MetaStore> = store.clone();
        let bookies = Bookies::new(dynamic, "/ledgers", Clock::manual(), Limits::default());
        let around = look(&*store, &place, &bookies).await.unwrap();
        assert_eq!(around.seen.space[one.id()], (60, 100));
        assert!(around.seen.space.contains_key(other.id()));
        assert_eq!(around.sasl, BTreeSet::from([strict.id().to_owned()]));
        assert_eq!(around.silent.keys().collect::<Vec<_>>(), [&silent]);
        let drained = BTreeSet::from([one.id().to_owned()]);
        let writable = |id: &str| {
            let targets = around.targets(&drained);
            targets.iter().any(|one| one.id == id && one.is_writable)
        };
        assert!(!writable(one.id()), "it is to be emptied");
        assert!(!writable(other.id()), "it is read-only");
        assert!(writable(strict.id()));
    }
}
