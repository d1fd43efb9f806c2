//! The cluster around the bookie, through its ZooKeeper: who is registered, who is claimed, who may change
//! a mode now. One session for all; every call has a deadline, and none is made twice. Begin with
//! [`Cluster`].

mod agents;
mod attempt;
pub mod bookie;
pub mod broker;
mod claims;
#[cfg(test)]
mod contract;
mod ensembles;
pub mod floor;
#[cfg(test)]
mod histories;
#[cfg(test)]
pub(crate) mod hooked;
pub mod leader;
pub mod ledger;
pub mod ledgers;
mod lock;
mod members;
pub mod memory;
mod paced;
mod paths;
pub mod pulsar;
mod registration;
mod replication;
mod snapshot_file;
mod stopping;
pub mod store;
#[cfg(test)]
mod tests;
mod view;
pub mod watch;
mod wire;
mod zookeeper;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::time::timeout;

pub use claims::{claim_for_drain, end_claim_of_drain};
pub use lock::ModeLock;
pub use members::{Members, admin_url, members};
pub use paced::Paced;
pub use paths::{check_bookie, check_name};
pub use registration::{Endpoint, Place, endpoints, racks};
pub use replication::{lacking, lacking_on};
pub use snapshot_file::{SnapshotError, SnapshotFile};
pub use zookeeper::{Servers, Tls, ZooKeeper};

use crate::clock::Clock;
use crate::health::beside::{AgentStatus, ClusterView, Registration, Session};
use crate::health::claim::Claim;
use paths::Paths;
use store::{Changed, Kind, Link, MetaStore, StoreError};

/// How long a call may take. A ZooKeeper that serves answers within milliseconds; one that does not must
/// not be counted on for a change of mode.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// Longest instance id that is believed: BookKeeper's have 36 bytes.
const INSTANCE_LIMIT: usize = 100;

/// Which cluster, and as whom.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Its ZooKeeper.
    pub zookeeper: Servers,
    /// Where BookKeeper keeps everything.
    pub ledgers_root: String,
    /// Below which we keep everything.
    pub root: String,
    /// The bookie beside this agent.
    pub bookie: String,
    /// Where this agent runs, for those who find it in the way.
    pub host: String,
    /// The id that the cluster must have, where it is known from the bookie's cookie.
    pub instance: Option<String>,
    /// The time.
    pub clock: Clock,
}

/// Why something about the cluster is not known, or not done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClusterError {
    /// No server is reached.
    #[error("there is no connection to ZooKeeper")]
    NotConnected,
    /// No answer in time. What was asked for may still take effect.
    #[error("ZooKeeper did not answer within 2 s")]
    TimedOut,
    /// No node can be called so.
    #[error("{bookie:?} is no bookie's id: {why}")]
    Bookie {
        /// The id.
        bookie: String,
        /// Why not.
        why: String,
    },
    /// It is no cluster, or not one yet.
    #[error("{path} is no cluster's id: {why}")]
    Instance {
        /// Of the node with the id.
        path: String,
        /// Why not.
        why: String,
    },
    /// It is another cluster than before, or than the bookie's.
    #[error(
        "the cluster has the id {now} and not {expected}: it is another one, and is left alone"
    )]
    OtherInstance {
        /// The id that it must have.
        expected: String,
        /// The id it has.
        now: String,
    },
    /// Two agents are told to look after one bookie.
    #[error(
        "the agent on {host} is the agent of {bookie} too, and was first: was its configuration copied?"
    )]
    Rival {
        /// Which bookie.
        bookie: String,
        /// Where the other one runs.
        host: String,
    },
    /// Somebody else changed the claims meanwhile.
    #[error("the claims on {bookie} were changed meanwhile")]
    Conflict {
        /// Whose.
        bookie: String,
    },
    /// Somebody else holds the mode lock.
    #[error("the mode lock was not free within {wait:?}; {holder} holds it")]
    Locked {
        /// The bookie whose agent holds it.
        holder: String,
        /// How long it was waited for.
        wait: Duration,
    },
    /// The store says so.
    #[error("{what} cannot be had from ZooKeeper")]
    Store {
        /// What was asked for.
        what: &'static str,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl ClusterError {
    fn of(what: &'static str, source: StoreError) -> ClusterError {
        match source {
            StoreError::Lost => ClusterError::NotConnected,
            StoreError::TimedOut => ClusterError::TimedOut,
            source => ClusterError::Store { what, source },
        }
    }
}

/// The cluster. Clones share one session.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn MetaStore>,
    clock: Clock,
    ledgers_root: String,
    root: String,
    bookie: String,
    agent: agents::Agent,
    expected: Option<String>,
    known: Mutex<Option<Known>>,
    problems: Mutex<Vec<String>>,
}

/// The cluster's id, and the session in which it was read.
struct Known {
    instance: String,
    session: i64,
    paths: Arc<Paths>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the cluster in {}", self.shared.ledgers_root)
    }
}

impl Cluster {
    /// Begins to connect, and goes on for ever. Needs a runtime.
    #[must_use]
    pub fn start(options: ClusterOptions) -> Cluster {
        let zookeeper = ZooKeeper::start(options.zookeeper.clone(), options.clock.clone());
        Cluster::on(Arc::new(zookeeper), options)
    }

    /// The cluster in this store; the ZooKeeper of the options is not used.
    #[must_use]
    pub fn on(store: Arc<dyn MetaStore>, options: ClusterOptions) -> Cluster {
        Cluster {
            shared: Arc::new(Shared {
                store,
                clock: options.clock,
                ledgers_root: options.ledgers_root,
                root: options.root,
                bookie: options.bookie,
                agent: agents::Agent {
                    host: options.host,
                    run: fastrand::u64(..),
                },
                expected: options.instance,
                known: Mutex::new(None),
                problems: Mutex::new(Vec::new()),
            }),
        }
    }

    /// How the session is. Never blocks.
    #[must_use]
    pub fn session(&self) -> Session {
        match *self.link().borrow() {
            Link::Connected(_) => Session::Connected,
            Link::Lost { since } => {
                Session::Lost(self.shared.clock.elapsed().saturating_sub(since))
            }
        }
    }

    /// The bookie beside this agent.
    #[must_use]
    pub fn bookie(&self) -> &str {
        &self.shared.bookie
    }

    /// What was in the way of a better view, the last time one was read, in words.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        lock(&self.shared.problems).clone()
    }

    /// A read is answered now, and it is still the same cluster.
    ///
    /// # Errors
    /// It is not.
    pub async fn confirm(&self) -> Result<(), ClusterError> {
        within(async { self.read_instance().await.map(drop) }).await
    }

    /// Under which lists the bookie is registered.
    ///
    /// # Errors
    /// It could not be read.
    pub async fn registration(&self, bookie: &str) -> Result<Registration, ClusterError> {
        within(async {
            let paths = self.paths_for(bookie).await?;
            let read = registration::read(self.store(), &paths, bookie).await;
            read.map_err(|error| ClusterError::of("the registration", error))
        })
        .await
    }

    /// The bookie is in both lists, by nodes of two sessions: a change of its mode could end it.
    ///
    /// # Errors
    /// It could not be read.
    pub async fn is_registered_by_two(&self, bookie: &str) -> Result<bool, ClusterError> {
        within(async {
            let paths = self.paths_for(bookie).await?;
            let read = registration::is_of_two_sessions(self.store(), &paths, bookie).await;
            read.map_err(|error| ClusterError::of("the registration", error))
        })
        .await
    }

    /// What the bookie's agent wrote about its claims, and the version of that; empty where others made
    /// the node first.
    ///
    /// # Errors
    /// It could not be read.
    pub async fn own_claims(&self, bookie: &str) -> Result<Option<(Vec<u8>, i32)>, ClusterError> {
        within(async {
            let paths = self.paths_for(bookie).await?;
            match self.store().get(&paths.claims_on(bookie)).await {
                Ok((data, stat)) => Ok(Some((data, stat.version))),
                Err(StoreError::NoNode) => Ok(None),
                Err(error) => Err(ClusterError::of("the claims", error)),
            }
        })
        .await
    }

    /// Writes it, in place of that version or, with none, of nothing. Gives the new version. After
    /// [`ClusterError::TimedOut`] it may have been written: read it again.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] when another version is there.
    pub async fn put_own_claims(
        &self,
        bookie: &str,
        data: &[u8],
        version: Option<i32>,
    ) -> Result<i32, ClusterError> {
        within(async {
            let paths = self.paths_for(bookie).await?;
            let (store, path) = (self.store(), paths.claims_on(bookie));
            let written = match version {
                Some(version) => store.set(&path, data, Some(version)).await,
                None => store::create_with_parents(store, &path, data, Kind::Persistent).await,
            };
            match written {
                Ok(stat) => Ok(stat.version),
                Err(StoreError::NodeExists | StoreError::BadVersion | StoreError::NoNode) => {
                    let bookie = bookie.to_owned();
                    Err(ClusterError::Conflict { bookie })
                }
                Err(error) => Err(ClusterError::of("the claims", error)),
            }
        })
        .await
    }

    /// Who else holds the bookie in a mode: one for each drain job.
    ///
    /// # Errors
    /// It could not be read.
    pub async fn foreign_claims(&self, bookie: &str) -> Result<Vec<Claim>, ClusterError> {
        within(async {
            let paths = self.paths_for(bookie).await?;
            let read = claims::foreign(self.store(), &paths, bookie).await;
            read.map_err(|error| ClusterError::of("the claims of others", error))
        })
        .await
    }

    /// Takes the lock under which modes change, waiting for it at most that long.
    ///
    /// # Errors
    /// [`ClusterError::Locked`] when somebody else holds it all the time.
    pub async fn lock_mode(&self, wait: Duration) -> Result<ModeLock, ClusterError> {
        let paths = within(self.paths()).await?;
        let store = Arc::clone(&self.shared.store);
        lock::take(store, paths.mode_lock(), self.bookie(), wait).await
    }

    /// The whole cluster, read now.
    ///
    /// # Errors
    /// A part of it could not be read.
    pub async fn view(&self) -> Result<ClusterView, ClusterError> {
        within(async {
            let paths = self.read_instance().await?;
            let seen = view::read(self.store(), &paths).await;
            let seen = seen.map_err(|error| ClusterError::of("the cluster", error))?;
            *lock(&self.shared.problems) = seen.problems;
            Ok(seen.view)
        })
        .await
    }

    /// Bookies that were allowed to stop and count as gone, and for how long yet. Of those that have been gone and
    /// are back none is left.
    ///
    /// # Errors
    /// It could not be read.
    pub async fn stopping(
        &self,
        lock: &ModeLock,
    ) -> Result<BTreeMap<String, Duration>, ClusterError> {
        within(async {
            let paths = self.paths().await?;
            let read = stopping::read(self.store(), &paths, lock.taken()).await;
            read.map_err(|error| ClusterError::of("the bookies that stop", error))
        })
        .await
    }

    /// From now on this bookie counts as gone, for as long as is given back.
    ///
    /// # Errors
    /// It could not be written, or may not have been.
    pub async fn reserve_stop(&self, _under: &ModeLock) -> Result<Duration, ClusterError> {
        within(async {
            let paths = self.paths_for(self.bookie()).await?;
            let wall = self.clock().now().wall;
            let done = stopping::reserve(self.store(), &paths, self.bookie(), wall).await;
            done.map_err(|error| ClusterError::of("the leave to stop", error))
        })
        .await
    }

    /// BookKeeper knows of ledgers with too few replicas.
    ///
    /// # Errors
    /// It could not be read.
    pub async fn under_replicated(&self) -> Result<bool, ClusterError> {
        within(async {
            let paths = self.paths().await?;
            let lacking = replication::is_lacking(self.store(), &paths).await;
            lacking.map_err(|error| ClusterError::of("the under-replicated ledgers", error))
        })
        .await
    }

    /// Reads the metadata of every ledger, at most so many in a second, and writes down the largest
    /// ensemble for all agents. Takes as long as that takes; nothing is done while another agent does it.
    ///
    /// # Errors
    /// It could not be read or written.
    pub async fn find_largest_ensemble(&self, reads_a_second: u32) -> Result<(), ClusterError> {
        let paths = within(self.paths()).await?;
        let walked = ensembles::walk(self, &paths, reads_a_second).await;
        walked.map_err(|error| ClusterError::of("the ledgers", error))
    }

    /// No other agent says that it is this bookie's. The one that says so first is; a node of it goes with its session.
    ///
    /// # Errors
    /// [`ClusterError::Rival`] when there is one; it could not be read.
    pub async fn is_alone(&self) -> Result<(), ClusterError> {
        within(async {
            let paths = self.paths_for(self.bookie()).await?;
            let path = paths.agent(self.bookie());
            let rival = agents::rival(self.store(), &path, &self.shared.agent).await;
            self.alone(rival)
        })
        .await
    }

    fn alone(&self, rival: Result<Option<String>, StoreError>) -> Result<(), ClusterError> {
        match rival {
            Ok(None) => Ok(()),
            Ok(Some(host)) => Err(ClusterError::Rival {
                bookie: self.bookie().to_owned(),
                host,
            }),
            Err(error) => Err(ClusterError::of("the agent's status", error)),
        }
    }

    /// Says what the agent knows of its bookie, until the session ends.
    ///
    /// # Errors
    /// [`ClusterError::Rival`] when another agent says so; it could not be written.
    pub async fn publish_status(&self, status: &AgentStatus) -> Result<(), ClusterError> {
        within(async {
            let paths = self.paths_for(self.bookie()).await?;
            let agent = &self.shared.agent;
            self.alone(agents::publish(self.store(), &paths, self.bookie(), status, agent).await)
        })
        .await
    }

    /// The session, now and later.
    fn link(&self) -> tokio::sync::watch::Receiver<Link> {
        self.shared.store.link()
    }

    fn store(&self) -> &dyn MetaStore {
        &*self.shared.store
    }

    fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// When the list of writable and that of read-only bookies change.
    async fn lists_changed(&self) -> Result<(Changed, Changed), ClusterError> {
        within(async {
            let paths = self.paths().await?;
            let watch = async |path: String| {
                let watched = self.store().watch_children(&path).await;
                let watched = watched.map(|(_, changed)| changed);
                watched.map_err(|error| ClusterError::of("a list of bookies", error))
            };
            Ok((
                watch(paths.available()).await?,
                watch(paths.read_only()).await?,
            ))
        })
        .await
    }

    async fn paths_for(&self, bookie: &str) -> Result<Arc<Paths>, ClusterError> {
        check_bookie(bookie).map_err(|why| ClusterError::Bookie {
            bookie: bookie.to_owned(),
            why,
        })?;
        self.paths().await
    }

    /// The names of this cluster's nodes; its id is read once in each session.
    async fn paths(&self) -> Result<Arc<Paths>, ClusterError> {
        let link = *self.link().borrow();
        if let Some(known) = &*lock(&self.shared.known)
            && link == Link::Connected(known.session)
        {
            return Ok(Arc::clone(&known.paths));
        }
        self.read_instance().await
    }

    async fn read_instance(&self) -> Result<Arc<Paths>, ClusterError> {
        let Link::Connected(session) = *self.link().borrow() else {
            return Err(ClusterError::NotConnected);
        };
        let path = Paths::instance_id(&self.shared.ledgers_root);
        let data = match self.store().get(&path).await {
            Ok((data, _)) => data,
            Err(StoreError::NoNode) => {
                let why =
                    "it is not there: the cluster is not initialised, or elsewhere".to_owned();
                return Err(ClusterError::Instance { path, why });
            }
            Err(error) => return Err(ClusterError::of("the cluster's id", error)),
        };
        let now = match instance(&data) {
            Ok(now) => now,
            Err(why) => return Err(ClusterError::Instance { path, why }),
        };
        let mut known = lock(&self.shared.known);
        let before = known.as_ref().map(|known| &known.instance);
        if let Some(expected) = self.shared.expected.as_ref().or(before)
            && *expected != now
        {
            let expected = expected.clone();
            return Err(ClusterError::OtherInstance { expected, now });
        }
        let paths = Paths::new(&self.shared.ledgers_root, &self.shared.root, &now);
        let paths = match known.take() {
            Some(known) => known.paths,
            None => Arc::new(paths),
        };
        *known = Some(Known {
            instance: now,
            session,
            paths: Arc::clone(&paths),
        });
        Ok(paths)
    }
}

/// The id in those bytes. It becomes the name of a node.
fn instance(data: &[u8]) -> Result<String, String> {
    let id = std::str::from_utf8(data).map_err(|_| "it is not UTF-8".to_owned())?;
    let id = id.trim();
    if INSTANCE_LIMIT < id.len() {
        return Err(format!("it has more than {INSTANCE_LIMIT} bytes"));
    }
    check_name(id).map(|()| id.to_owned())
}

async fn within<T>(work: impl Future<Output = Result<T, ClusterError>>) -> Result<T, ClusterError> {
    timeout(DEADLINE, work)
        .await
        .unwrap_or(Err(ClusterError::TimedOut))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
