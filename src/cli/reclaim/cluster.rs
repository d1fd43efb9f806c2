//! The cluster as a command of `reclaim` opens it: which ZooKeepers there are, one session and one pace for
//! each, and the state directory.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tokio::time::timeout;

use super::args::{ClusterArguments, StateArguments};
use super::office::{ROOT, of_store};
use super::same::{are_same, seem_same};
use crate::cli::exit::{Exit, Failure};
use crate::clock::Clock;
use crate::cluster::bookie::{Bookies, Limits};
use crate::cluster::store::{Link, MetaStore};
use crate::cluster::{Paced, Servers, SnapshotError, SnapshotFile, Tls, ZooKeeper};
use crate::config::{
    self, PulsarMetadata, ReclaimConfig, ReclaimSources, ZooKeeperConfig, same_servers,
};
use crate::document::shown;
use crate::reclaim::inside::{Entries, Inside};
use crate::reclaim::plan::{LedgerId, Millis};
use crate::reclaim::scan::{Ledgers, Pulsar, Shows};
use crate::reclaim::state::{FILE, State, StateError};
use crate::reclaim::undo::{Has, Holders};

/// How long a first answer is waited for: an ensemble that serves has elected its leader by then, and nobody likes to
/// wait longer to be told of a slip in an address.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Where BookKeeper keeps everything unless it is told otherwise.
const LEDGERS_ROOT: &str = "/ledgers";

/// The cluster.
pub(super) struct Cluster {
    pub(super) config: ReclaimConfig,
    pub(super) ledgers: Ledgers,
    pub(super) pulsars: Vec<Pulsar>,
    /// Every Pulsar cluster on these bookies was declared.
    pub(super) all_clusters: bool,
    /// What time the snapshot file shows, if it is one.
    pub(super) snapshot_of: Option<Shows>,
    pub(super) clock: Clock,
    paced: Vec<Arc<Paced<ZooKeeper>>>,
    /// The bookies; none beside a snapshot file.
    bookies: Option<Held>,
    servers: Option<Servers>,
    /// The servers of each Pulsar cluster, where they are declared.
    places: Vec<Vec<String>>,
}

/// A ZooKeeper, by its servers.
struct Store {
    servers: Vec<String>,
    store: Arc<dyn MetaStore>,
}

impl Cluster {
    /// Opens it. Blocks on files, and until every ZooKeeper has answered once.
    pub(super) async fn open(arguments: &ClusterArguments) -> Result<Cluster, Failure> {
        let config = load(Some(arguments), &arguments.state)?;
        let clock = Clock::start();
        let Some(zookeeper) = &config.zookeeper else {
            return Err(nameless(&config));
        };
        let (given, pulsars) = declared(arguments, &config)?;
        let servers = servers(zookeeper)?;
        let limit = (arguments.max_requests_per_second).unwrap_or(config.requests_per_second);
        let mut paced = Vec::new();
        let mut stores: Vec<Store> = Vec::new();
        let mut open = |names: &[String]| {
            if let Some(known) = stores.iter().find(|one| same_servers(&one.servers, names)) {
                return Arc::clone(&known.store);
            }
            let session = ZooKeeper::start(
                Servers {
                    servers: names.to_vec(),
                    ..servers.clone()
                },
                clock.clone(),
            );
            let one = Arc::new(Paced::new(session, limit, clock.clone()));
            paced.push(Arc::clone(&one));
            let store: Arc<dyn MetaStore> = one;
            stores.push(Store {
                servers: names.to_vec(),
                store: Arc::clone(&store),
            });
            store
        };
        let ledgers = Ledgers {
            store: open(&zookeeper.servers),
            root: zookeeper.ledgers_root.clone(),
        };
        let places = match given {
            true => pulsars.iter().map(|one| one.servers.clone()).collect(),
            false => vec![zookeeper.servers.clone()],
        };
        let pulsars = match given {
            true => pulsars
                .iter()
                .map(|one| pulsar(one, open(&one.servers)))
                .collect(),
            false => vec![beside(&ledgers, &zookeeper.servers)],
        };
        for store in &stores {
            connected(store).await?;
        }
        let bookies = Bookies::new(
            Arc::clone(&ledgers.store),
            &ledgers.root,
            clock.clone(),
            Limits::default(),
        );
        Ok(Cluster {
            ledgers,
            pulsars,
            all_clusters: given,
            snapshot_of: None,
            clock,
            bookies: Some(Held(Inside::new(bookies))),
            paced,
            places,
            servers: Some(servers),
            config,
        })
    }

    /// The cluster as a snapshot file of its ZooKeeper shows it. Blocks on the file.
    pub(super) fn of_file(arguments: &ClusterArguments, file: &Path) -> Result<Cluster, Failure> {
        let config = load(Some(arguments), &arguments.state)?;
        let (given, pulsars) = declared(arguments, &config)?;
        let zookeeper = config.zookeeper.as_ref();
        in_one_file(&pulsars, zookeeper.map(|zookeeper| &*zookeeper.servers))?;
        let snapshot = snapshot(file)?;
        // A copy of an old file is new, and shows nothing new.
        let shows = Shows {
            newest: snapshot.newest(),
            written: written(file)?,
        };
        let store: Arc<dyn MetaStore> = Arc::new(snapshot);
        let root = zookeeper.map_or(LEDGERS_ROOT, |zookeeper| zookeeper.ledgers_root.as_str());
        let ledgers = Ledgers {
            store: Arc::clone(&store),
            root: root.to_owned(),
        };
        let pulsars = match given {
            true => pulsars
                .iter()
                .map(|one| pulsar(one, Arc::clone(&store)))
                .collect(),
            false => {
                let servers = zookeeper.map(|zookeeper| zookeeper.servers.clone());
                vec![beside(
                    &ledgers,
                    &servers.unwrap_or_else(|| vec![shown(file)]),
                )]
            }
        };
        Ok(Cluster {
            ledgers,
            pulsars,
            all_clusters: given,
            snapshot_of: Some(shows),
            clock: Clock::start(),
            bookies: None,
            paced: Vec::new(),
            places: Vec::new(),
            servers: None,
            config,
        })
    }

    /// A Pulsar cluster whose ZooKeeper is that of the ledgers under another name shares its session from now on: its owners and
    /// the ledgers can be in one transaction. For sure if this is to act; else as far as it is seen without a write.
    pub(super) async fn join(&mut self, acts: bool) -> Result<(), Failure> {
        let root = (self.config.zookeeper.as_ref()).map_or(ROOT, |zookeeper| &*zookeeper.root);
        for pulsar in &mut self.pulsars {
            if Arc::ptr_eq(&pulsar.store, &self.ledgers.store) {
                continue;
            }
            let (one, other) = (&*self.ledgers.store, &*pulsar.store);
            let same = match acts {
                true => are_same(one, other, &self.ledgers.root, root).await,
                false => seem_same(one, other, &self.ledgers.root).await,
            };
            let same = same.map_err(|error| {
                let what = format!(
                    "cannot tell whether {} is the ledgers' ZooKeeper",
                    pulsar.name
                );
                of_store(what, error)
            })?;
            if same {
                pulsar.store = Arc::clone(&self.ledgers.store);
            }
        }
        Ok(())
    }

    /// The ZooKeeper of the first Pulsar cluster in a session of its own, without a pace: how fast it answers is
    /// seen there.
    pub(super) async fn bare(&self) -> Result<Arc<dyn MetaStore>, Failure> {
        let servers = Servers {
            servers: self.places.first().cloned().unwrap_or_default(),
            ..self.servers.clone().unwrap_or_default()
        };
        let one = Store {
            servers: servers.servers.clone(),
            store: Arc::new(ZooKeeper::start(servers, self.clock.clone())),
        };
        connected(&one).await?;
        Ok(one.store)
    }

    /// Who reads inside ledgers.
    pub(super) fn entries(&self) -> Option<&dyn Entries> {
        let bookies = self.bookies.as_ref()?;
        Some(&bookies.0)
    }

    /// Who asks bookies what they have.
    pub(super) fn holders(&self) -> Option<&dyn Holders> {
        let bookies = self.bookies.as_ref()?;
        Some(bookies)
    }

    /// Requests that were made so far.
    pub(super) fn requests(&self) -> u64 {
        self.paced.iter().map(|paced| paced.calls()).sum()
    }

    /// The state, made if it is not there.
    pub(super) fn state(&self) -> Result<State, Failure> {
        let dir = state_dir(&self.config)?;
        std::fs::create_dir_all(&dir)
            .map_err(|error| Failure::io(format!("cannot make {}", shown(&dir)), error))?;
        State::open(&dir).map_err(of_state)
    }

    /// By our clock.
    pub(super) fn now(&self) -> Millis {
        self.clock.now().wall.0
    }
}

/// Entries of one ledger that are read from a bookie to see whether it has them: as many as a ledger of Pulsar's has, within
/// a minute or so.
const MOST_READ: usize = 50_000;

/// Asks bookies what they have.
struct Held(Inside);

impl Holders for Held {
    fn held<'a>(
        &'a self,
        bookie: &'a str,
        ledger: LedgerId,
        entries: Vec<u64>,
    ) -> Pin<Box<dyn Future<Output = Has> + Send + 'a>> {
        Box::pin(async move {
            let has: Box<dyn Fn(u64) -> bool + Send> =
                match self.0.entries_held(bookie, ledger).await {
                    Ok(held) => Box::new(move |entry| held.contains(entry)),
                    Err(_) if entries.len() <= MOST_READ => {
                        let held = self.read_each(bookie, ledger, entries).await?;
                        Box::new(move |entry| held.contains(&entry))
                    }
                    Err(error) => return Err(crate::report::text(&error)),
                };
            Ok(has)
        })
    }
}

impl Held {
    /// Pulsar's storage (`DbLedgerStorage`) has no list of entries.
    async fn read_each(
        &self,
        bookie: &str,
        ledger: LedgerId,
        entries: Vec<u64>,
    ) -> Result<BTreeSet<u64>, String> {
        let mut held = BTreeSet::new();
        for entry in entries {
            match self.0.has_entry(bookie, ledger, entry).await {
                Ok(true) => drop(held.insert(entry)),
                Ok(false) => {}
                Err(error) => return Err(crate::report::text(&error)),
            }
        }
        Ok(held)
    }
}

/// The configuration, with what the command line says of the cluster.
pub(super) fn load(
    cluster: Option<&ClusterArguments>,
    state: &StateArguments,
) -> Result<ReclaimConfig, Failure> {
    let uri = cluster.and_then(|cluster| cluster.metadata_service_uri.clone());
    if let Some(uri) = uri.as_ref().filter(|uri| !config::is_zookeeper(uri)) {
        return Err(not_supported(uri));
    }
    let config = config::load_reclaim(&ReclaimSources {
        file: state.config.clone(),
        bookie_conf: cluster.and_then(|cluster| cluster.bookie_conf.clone()),
        metadata_service_uri: uri,
        state_dir: state.state_dir.clone(),
    });
    let config = config.map_err(anyhow::Error::new)?;
    for warning in &config.warnings {
        eprintln!("dirkeeper: warning: {warning}");
    }
    Ok(config)
}

/// The state that is there already.
pub(super) fn known_state(config: &ReclaimConfig) -> Result<State, Failure> {
    let dir = state_dir(config)?;
    let path = dir.join(FILE);
    // To make an empty one would answer a slip in the path with an empty report.
    if !path.exists() {
        return Err(of_state(StateError::Missing { path }));
    }
    State::open(&dir).map_err(of_state)
}

fn state_dir(config: &ReclaimConfig) -> Result<PathBuf, Failure> {
    config.state_dir.clone().ok_or_else(|| {
        let error = anyhow::anyhow!("it is not known where state is kept");
        Failure::new(Exit::Usage, error).remedy("name a directory with --state-dir")
    })
}

/// What went wrong with our own file.
pub(super) fn of_state(error: StateError) -> Failure {
    Failure::new(exit_of_state(&error), error)
}

/// The code of what is the matter with our own file, whoever came upon it.
pub(super) fn exit_of_state(error: &StateError) -> Exit {
    match error {
        StateError::InUse { .. } => Exit::Busy,
        StateError::Newer { .. } | StateError::Damaged { .. } => Exit::Data,
        StateError::Missing { .. } | StateError::File { .. } => Exit::Io,
    }
}

fn not_supported(uri: &str) -> Failure {
    let error = anyhow::anyhow!("{uri} is no ZooKeeper, and reclaim works with ZooKeeper only");
    Failure::new(Exit::Config, error)
}

fn nameless(config: &ReclaimConfig) -> Failure {
    if let Some(uri) = &config.unsupported {
        return not_supported(uri);
    }
    let error = anyhow::anyhow!("it is not said where the ledgers' metadata is");
    Failure::new(Exit::Usage, error).remedy(
        "name it with --metadata-service-uri, or the bookie's file with --bookie-conf, or set \
         zookeeper.metadata_service_uri in the configuration",
    )
}

/// Whether the Pulsar clusters were declared, and which they are.
fn declared(
    arguments: &ClusterArguments,
    config: &ReclaimConfig,
) -> Result<(bool, Vec<PulsarMetadata>), Failure> {
    let texts = match (&config.pulsars, arguments.pulsar_metadata.is_empty()) {
        (_, false) => &arguments.pulsar_metadata,
        (Some(texts), true) => texts,
        (None, true) => return Ok((false, Vec::new())),
    };
    let mut pulsars: Vec<PulsarMetadata> = Vec::new();
    for text in texts {
        let one = PulsarMetadata::parse(text);
        let one = one.map_err(|why| Failure::new(Exit::Usage, anyhow::anyhow!(why)))?;
        let is_same = |known: &PulsarMetadata| {
            known.root == one.root && same_servers(&known.servers, &one.servers)
        };
        if pulsars.iter().any(is_same) {
            let error = anyhow::anyhow!("the Pulsar cluster {text} is named twice");
            return Err(Failure::new(Exit::Usage, error).remedy("name each once"));
        }
        pulsars.push(one);
    }
    Ok((true, pulsars))
}

/// A file shows one ZooKeeper. Of a Pulsar cluster in another one it shows nothing, or another cluster at the same path.
fn in_one_file(pulsars: &[PulsarMetadata], here: Option<&[String]>) -> Result<(), Failure> {
    let Some(here) = here.or(pulsars.first().map(|one| &*one.servers)) else {
        return Ok(());
    };
    let is_elsewhere = |one: &&PulsarMetadata| !same_servers(&one.servers, here);
    let Some(one) = pulsars.iter().find(is_elsewhere) else {
        return Ok(());
    };
    let (there, here) = (one.servers.join(","), here.join(","));
    let error = anyhow::anyhow!(
        "a snapshot file shows one ZooKeeper, and the metadata of a Pulsar cluster is on {there}, not on {here}"
    );
    Err(Failure::new(Exit::Usage, error).remedy("scan the live servers, without --snapshot"))
}

fn pulsar(metadata: &PulsarMetadata, store: Arc<dyn MetaStore>) -> Pulsar {
    Pulsar {
        name: metadata.name(),
        store,
        root: metadata.root.clone(),
    }
}

/// The Pulsar cluster that nobody named.
fn beside(ledgers: &Ledgers, servers: &[String]) -> Pulsar {
    Pulsar {
        name: format!("zk://{}=", servers.join(",")),
        store: Arc::clone(&ledgers.store),
        root: String::new(),
    }
}

fn servers(zookeeper: &ZooKeeperConfig) -> Result<Servers, Failure> {
    let files = zookeeper.read_files().map_err(anyhow::Error::new)?;
    Ok(Servers {
        servers: zookeeper.servers.clone(),
        digest: files.digest.map(|secret| secret.0),
        tls: files.tls.map(|(ca, identity)| Tls {
            ca,
            identity: identity.map(|(cert, key)| (cert.0, key.0)),
        }),
    })
}

async fn connected(store: &Store) -> Result<(), Failure> {
    let mut link = store.store.link();
    let connected = link.wait_for(|link| matches!(link, Link::Connected(_)));
    match timeout(FIRST_ANSWER, connected).await {
        Ok(Ok(_)) => Ok(()),
        _ => {
            let servers = store.servers.join(",");
            let seconds = FIRST_ANSWER.as_secs();
            let error = anyhow::anyhow!("no ZooKeeper of {servers} answered within {seconds} s");
            let remedy = "look whether it runs, has its quorum (a server in read-only mode is not asked, for it may be stale), \
                          and this machine may reach it; the log says why it could not be connected to";
            Err(Failure::new(Exit::Unavailable, error).remedy(remedy))
        }
    }
}

fn snapshot(file: &Path) -> Result<SnapshotFile, Failure> {
    let what = || format!("cannot use {}", shown(file));
    SnapshotFile::open(file).map_err(|error| match error {
        SnapshotError::Io(error) => Failure::io(what(), error),
        error => Failure::new(Exit::Data, anyhow::Error::new(error).context(what())),
    })
}

/// When the file was written, or copied: a snapshot shows the cluster as it was at some time until then.
fn written(file: &Path) -> Result<Millis, Failure> {
    let modified = std::fs::metadata(file).and_then(|facts| facts.modified());
    let modified =
        modified.map_err(|error| Failure::io(format!("cannot look at {}", shown(file)), error))?;
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_shows_one_zookeeper() {
        let told = |texts: &[&str], here: Option<&[String]>| {
            let pulsars = texts.iter().map(|text| PulsarMetadata::parse(text));
            let pulsars: Vec<_> = pulsars.collect::<Result<_, _>>().unwrap();
            match in_one_file(&pulsars, here) {
                Ok(()) => "taken".to_owned(),
                Err(failure) => failure.error.to_string(),
            }
        };
        let here = ["zk1:2181".to_owned()];
        assert_eq!(told(&[], None), "taken");
        assert_eq!(told(&["zk1=", "zk1=/b"], Some(&here)), "taken");
        // At the same path as the first, whose nodes would be read twice.
        let both = ["zk1=", "zk9="];
        let refused = "a snapshot file shows one ZooKeeper, and the metadata of a Pulsar cluster is on zk9:2181, not on zk1:2181";
        assert_eq!(told(&both, Some(&here)), refused);
        assert_eq!(told(&both, None), refused);
    }
}
