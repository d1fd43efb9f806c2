//! Keeps the bookies of a job read-only, so that writers go elsewhere and nothing new comes. The claim is durable before the
//! order (design: every read-only has an owner and a reason), what the bookie registers is the proof, and because a bookie
//! forgets the order when it restarts, or when one of its own disks comes back, a job gives it again. A job that is over claims and
//! orders nothing, and what it did not begin it does not end.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;
use tokio::time::{sleep, timeout};

use super::around::Place;
use super::job::{JobError, Jobs};
use crate::bookie::{AdminClient, AdminError, AdminOptions};
use crate::clock::Clock;
use crate::cluster::store::{MetaStore, StoreError};
use crate::cluster::{admin_url, claim_for_drain, end_claim_of_drain};
use crate::health::moment::Timestamp;

/// How long a bookie may take to change its registration after it took the order: it makes one node and deletes another.
const CHANGE: Duration = Duration::from_secs(30);

/// Between two looks at a registration whose change was not seen.
const LOOK: Duration = Duration::from_secs(1);

/// Why a bookie is not as it should be.
#[derive(Debug, Error)]
pub enum HoldError {
    /// The store.
    #[error("cannot {what} {bookie}")]
    Store {
        /// What was to be done.
        what: &'static str,
        /// With which bookie.
        bookie: String,
        /// Why not.
        #[source]
        source: StoreError,
    },
    /// It is not known where to give the order.
    #[error(
        "{bookie} has registered no admin server, so nothing can order it to be read-only: set httpServerEnabled=true there, or name the server with --admin {bookie}=URL"
    )]
    NoAdmin {
        /// Which bookie.
        bookie: String,
    },
    /// Its registration cannot be read.
    #[error("the registration of {bookie} cannot be understood: {why}")]
    Registration {
        /// Which bookie.
        bookie: String,
        /// In words.
        why: String,
    },
    /// The order failed.
    #[error("{bookie} did not take the order")]
    Admin {
        /// Which bookie.
        bookie: String,
        /// Why.
        #[source]
        source: Box<AdminError>,
    },
    /// Another bookie answers there.
    #[error(
        "the admin server that is said to be that of {bookie} is that of {other}: look at --admin"
    )]
    Other {
        /// Which bookie.
        bookie: String,
        /// Who answered.
        other: String,
    },
    /// Some versions end when they are ordered what they were not started with.
    #[error(
        "{bookie} was started with readOnlyModeEnabled=false, so that it cannot be read-only: start it with true"
    )]
    NoReadOnly {
        /// Which bookie.
        bookie: String,
    },
    /// The job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// It took the order and did not follow it.
    #[error("{bookie} took the order and is still registered as before after {CHANGE:?}")]
    Unchanged {
        /// Which bookie.
        bookie: String,
    },
    /// It does not run.
    #[error(
        "{bookie} is not registered: it does not run, or ZooKeeper has lost it; what it holds is copied from other replicas by BookKeeper's own recovery"
    )]
    Absent {
        /// Which bookie.
        bookie: String,
    },
}

/// How a bookie is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registered {
    /// It takes entries.
    Writable,
    /// It takes none.
    ReadOnly,
    /// Not at all.
    Absent,
}

/// Where admin servers are that are not as registered: by bookie.
pub type Admins = BTreeMap<String, String>;

/// Who orders.
pub struct Hold<'a> {
    /// The store.
    pub store: &'a dyn MetaStore,
    /// Of the cluster.
    pub place: &'a Place,
    /// All jobs.
    pub jobs: &'a Jobs,
    /// For which of them.
    pub job: &'a str,
    /// Admin servers that were named.
    pub admins: &'a Admins,
    /// The time.
    pub clock: &'a Clock,
}

impl std::fmt::Debug for Hold<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bookies held for {}", self.job)
    }
}

impl Hold<'_> {
    /// Claims the bookie and makes it read-only, if it is not. Says whether an order was needed.
    ///
    /// # Errors
    /// [`HoldError::Job`] where the job is over. Otherwise it may be writable; the claim stands where it was made: an agent keeps
    /// to it.
    pub async fn enter(&self, bookie: &str) -> Result<bool, HoldError> {
        self.claim(bookie).await?;
        let ordered = self.order(bookie, true).await;
        if !matches!(ordered, Ok(false) | Err(HoldError::Job(_)))
            && self.jobs.is_cancelled(self.job).await?
        {
            // Whoever gave the job up may have been here before this order.
            self.leave(bookie).await?;
            self.jobs.going_on(self.job).await?;
        }
        ordered
    }

    async fn claim(&self, bookie: &str) -> Result<(), HoldError> {
        let here = (self.place.root.as_str(), self.place.instance.as_str());
        let since = Timestamp(self.clock.now().wall.0);
        let mut claimed = Ok(());
        // The job may be another between the look and the claim, once: it begins to run.
        for _ in 0..2 {
            let job = (self.job, self.jobs.going_on(self.job).await?);
            claimed = claim_for_drain(self.store, here, bookie, job, since).await;
            if !matches!(claimed, Err(StoreError::Step { at: 0, .. })) {
                break;
            }
        }
        claimed.map_err(|source| failed("claim", bookie, source))
    }

    /// Ends the claim, and makes the bookie writable unless another claim stands, or this job never ordered it to be
    /// read-only. Says whether it is.
    ///
    /// # Errors
    /// It may still be read-only.
    pub async fn leave(&self, bookie: &str) -> Result<bool, HoldError> {
        let here = (self.place.root.as_str(), self.place.instance.as_str());
        let others = end_claim_of_drain(self.store, here, bookie, self.job).await;
        if others.map_err(|source| failed("end the claim on", bookie, source))?
            || !self.jobs.has_ordered(self.job, bookie).await?
        {
            return Ok(false);
        }
        let is_writable = match self.order(bookie, false).await {
            Ok(_) => true,
            // It has forgotten it when it starts.
            Err(HoldError::Absent { .. }) => false,
            Err(error) => return Err(error),
        };
        self.jobs.forget_order(self.job, bookie).await?;
        Ok(is_writable)
    }

    /// Ends the claim on a bookie that is no more.
    ///
    /// # Errors
    /// The store.
    pub async fn forget(&self, bookie: &str) -> Result<(), HoldError> {
        let here = (self.place.root.as_str(), self.place.instance.as_str());
        let ended = end_claim_of_drain(self.store, here, bookie, self.job).await;
        ended.map_err(|source| failed("end the claim on", bookie, source))?;
        Ok(())
    }

    /// How the bookie is registered. One in both lists changes just now, and takes entries until it has.
    ///
    /// # Errors
    /// The store.
    pub async fn registered(&self, bookie: &str) -> Result<Registered, HoldError> {
        let there = async |list: &str| {
            let path = format!("{}/{list}/{bookie}", self.place.ledgers_root);
            let stat = self.store.stat(&path).await;
            let stat =
                stat.map_err(|source| failed("look for the registration of", bookie, source));
            Ok::<_, HoldError>(stat?.is_some())
        };
        Ok(
            match (
                there("available").await?,
                there("available/readonly").await?,
            ) {
                (true, _) => Registered::Writable,
                (false, true) => Registered::ReadOnly,
                (false, false) => Registered::Absent,
            },
        )
    }

    async fn order(&self, bookie: &str, read_only: bool) -> Result<bool, HoldError> {
        let wanted = match read_only {
            true => Registered::ReadOnly,
            false => Registered::Writable,
        };
        match self.registered(bookie).await? {
            Registered::Absent => {
                let bookie = bookie.to_owned();
                return Err(HoldError::Absent { bookie });
            }
            now if now == wanted => return Ok(false),
            _ => {}
        }
        let failed = |source| HoldError::Admin {
            bookie: bookie.to_owned(),
            source: Box::new(source),
        };
        let client = AdminClient::new(AdminOptions {
            url: self.admin(bookie).await?,
            ..AdminOptions::default()
        });
        let client = client.map_err(failed)?;
        let config = client.server_config().await.map_err(failed)?;
        if let Some(other) = config.other_than(bookie) {
            let bookie = bookie.to_owned();
            return Err(HoldError::Other { bookie, other });
        }
        if read_only {
            if !config.read_only_enabled {
                let bookie = bookie.to_owned();
                return Err(HoldError::NoReadOnly { bookie });
            }
            self.jobs.note_order(self.job, bookie).await?;
        }
        client.set_read_only(read_only).await.map_err(failed)?;
        match self.changes(bookie, wanted).await? {
            true => Ok(true),
            false => {
                let bookie = bookie.to_owned();
                Err(HoldError::Unchanged { bookie })
            }
        }
    }

    async fn admin(&self, bookie: &str) -> Result<String, HoldError> {
        if let Some(url) = self.admins.get(bookie) {
            return Ok(url.clone());
        }
        let bookie_id = || bookie.to_owned();
        match admin_url(self.store, &self.place.ledgers_root, bookie).await {
            Ok(Some(url)) => Ok(url),
            Ok(None) => {
                let bookie = bookie_id();
                Err(HoldError::NoAdmin { bookie })
            }
            Err(why) => {
                let bookie = bookie_id();
                Err(HoldError::Registration { bookie, why })
            }
        }
    }

    /// Whether the registration changes in time.
    async fn changes(&self, bookie: &str, wanted: Registered) -> Result<bool, HoldError> {
        let change = async {
            while self.registered(bookie).await? != wanted {
                sleep(LOOK).await;
            }
            Ok(true)
        };
        timeout(CHANGE, change).await.unwrap_or(Ok(false))
    }
}

fn failed(what: &'static str, bookie: &str, source: StoreError) -> HoldError {
    let bookie = bookie.to_owned();
    HoldError::Store {
        what,
        bookie,
        source,
    }
}

#[cfg(test)]
mod tests;
