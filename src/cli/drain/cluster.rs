//! The cluster as a command of `drain` opens it: one session with its ZooKeeper at a pace, its id, and its bookies.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::args::ClusterArguments;
use crate::cli::exit::{Exit, Failure};
use crate::clock::Clock;
use crate::cluster::bookie::{Bookies, Limits};
use crate::cluster::ledger::Layout;
use crate::cluster::store::{Link, MetaStore, StoreError};
use crate::cluster::{Paced, Servers, Tls, ZooKeeper};
use crate::config::{self, DrainConfig, ReclaimSources};
use crate::document::shown;
use crate::drain::around::{Around, AroundError, Place, look};
use crate::drain::job::{Job, JobError, Jobs};
use crate::drain::worker::MEMORY;

/// How long a first answer is waited for: an ensemble that serves has elected its leader by then.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Requests to one bookie at a time: with the window of every ledger, enough to keep its disk and its network busy.
const AT_ONCE: usize = 512;

/// Bytes of one entry at most: as many as there is room for. Whoever lets producers send more than the usual 5 MiB has set the same
/// limit for all bookies (`nettyMaxFrameSizeBytes`).
const FRAME: usize = MEMORY;

/// Certificates are far below it.
const LARGEST: u64 = 1 << 20;

/// The cluster.
pub(super) struct Cluster {
    pub(super) config: DrainConfig,
    pub(super) store: Arc<dyn MetaStore>,
    /// The same, whose pace can be changed.
    pub(super) paced: Arc<Paced<ZooKeeper>>,
    pub(super) place: Place,
    pub(super) layout: Layout,
    pub(super) jobs: Jobs,
    pub(super) bookies: Arc<Bookies>,
    pub(super) clock: Clock,
}

impl Cluster {
    /// Opens it. Blocks on files, and until ZooKeeper has answered.
    pub(super) async fn open(arguments: &ClusterArguments) -> Result<Cluster, Failure> {
        let mut config = load(arguments)?;
        let limit = (arguments.max_requests_per_second).unwrap_or(config.requests_per_second);
        config.requests_per_second = limit;
        let clock = Clock::start();
        let Some(zookeeper) = &config.zookeeper else {
            return Err(nameless(&config));
        };
        let files = zookeeper.read_files().map_err(anyhow::Error::new)?;
        let servers = Servers {
            servers: zookeeper.servers.clone(),
            digest: files.digest.map(|secret| secret.0),
            tls: files.tls.map(|(ca, identity)| Tls {
                ca,
                identity: identity.map(|(cert, key)| (cert.0, key.0)),
            }),
        };
        let session = ZooKeeper::start(servers, clock.clone());
        let paced = Arc::new(Paced::new(session, limit, clock.clone()));
        let store: Arc<dyn MetaStore> = paced.clone();
        connected(&*store, &zookeeper.servers).await?;
        let root = zookeeper.ledgers_root.trim_end_matches('/').to_owned();
        let instance = text(&*store, &format!("{root}/INSTANCEID")).await?;
        let layout = text(&*store, &format!("{root}/LAYOUT")).await?;
        let layout = Layout::parse(layout.as_bytes());
        let layout = layout.map_err(|error| {
            let error = anyhow::Error::new(error).context("cannot tell where ledgers are");
            Failure::new(Exit::Config, error)
        })?;
        let place = Place {
            ledgers_root: root.clone(),
            root: zookeeper.root.clone(),
            instance,
        };
        let limits = Limits {
            in_flight: AT_ONCE,
            frame: FRAME,
            ..Limits::default()
        };
        let bookies = Bookies::new(Arc::clone(&store), &root, clock.clone(), limits);
        Ok(Cluster {
            jobs: Jobs::open(Arc::clone(&store), &place.root, &place.instance),
            bookies: Arc::new(secured(bookies, arguments)?),
            store,
            paced,
            place,
            layout,
            clock,
            config,
        })
    }

    /// What is around.
    pub(super) async fn look(&self) -> Result<Around, Failure> {
        let around = look(&*self.store, &self.place, &self.bookies).await;
        around.map_err(of_around)
    }

    /// The job that is named, or the only one that goes on.
    pub(super) async fn job(&self, id: Option<&str>) -> Result<Job, Failure> {
        if let Some(id) = id {
            return self.jobs.get(id).await.map_err(of_job);
        }
        let all = self.jobs.list().await.map_err(of_job)?;
        let mut going: Vec<Job> = all.into_iter().filter(|job| !job.phase.is_over()).collect();
        match going.len() {
            1 => Ok(going.remove(0)),
            0 => {
                let error = anyhow::anyhow!("no job goes on in this cluster");
                Err(Failure::new(Exit::FAILED, error)
                    .remedy("begin one with 'dirkeeper drain start'"))
            }
            _ => {
                let ids: Vec<&str> = going.iter().map(|job| job.id.as_str()).collect();
                let error = anyhow::anyhow!("several jobs go on: {}", ids.join(", "));
                Err(Failure::new(Exit::Usage, error).remedy("name one with --job"))
            }
        }
    }
}

/// The code that an error of a store gives.
pub(super) fn exit_of(error: &StoreError) -> Exit {
    match error {
        StoreError::NoAuth => Exit::NotPermitted,
        StoreError::Lost | StoreError::Expired | StoreError::TimedOut => Exit::Unavailable,
        StoreError::Step { source, .. } => exit_of(source),
        _ => Exit::FAILED,
    }
}

fn of_around(error: AroundError) -> Failure {
    Failure::new(exit_of(&error.source), error)
}

/// Why a job cannot be read or changed.
pub(super) fn of_job(error: JobError) -> Failure {
    let exit = match &error {
        JobError::Store { source, .. } => exit_of(source),
        JobError::Document { .. } => Exit::Data,
        _ => Exit::FAILED,
    };
    Failure::new(exit, error)
}

fn load(arguments: &ClusterArguments) -> Result<DrainConfig, Failure> {
    let uri = arguments.metadata_service_uri.clone();
    if let Some(uri) = uri.as_ref().filter(|uri| !config::is_zookeeper(uri)) {
        return Err(not_supported(uri));
    }
    let config = config::load_drain(&ReclaimSources {
        file: arguments.config.clone(),
        bookie_conf: arguments.bookie_conf.clone(),
        metadata_service_uri: uri,
        state_dir: None,
    });
    let config = config.map_err(anyhow::Error::new)?;
    for warning in &config.warnings {
        eprintln!("dirkeeper: warning: {warning}");
    }
    Ok(config)
}

fn not_supported(uri: &str) -> Failure {
    let error = anyhow::anyhow!("{uri} is no ZooKeeper, and drain works with ZooKeeper only");
    Failure::new(Exit::Config, error)
}

fn nameless(config: &DrainConfig) -> Failure {
    if let Some(uri) = &config.unsupported {
        return not_supported(uri);
    }
    let error = anyhow::anyhow!("it is not said where the ledgers' metadata is");
    Failure::new(Exit::Usage, error).remedy(
        "name it with --metadata-service-uri, or the bookie's file with --bookie-conf, or set \
         zookeeper.metadata_service_uri in the configuration",
    )
}

async fn connected(store: &dyn MetaStore, servers: &[String]) -> Result<(), Failure> {
    let mut link = store.link();
    let connected = link.wait_for(|link| matches!(link, Link::Connected(_)));
    match timeout(FIRST_ANSWER, connected).await {
        Ok(Ok(_)) => Ok(()),
        _ => {
            let (servers, seconds) = (servers.join(","), FIRST_ANSWER.as_secs());
            let error = anyhow::anyhow!("no ZooKeeper of {servers} answered within {seconds} s");
            let remedy = "look whether it runs and this machine may reach it; the log says why it \
                          could not be connected to";
            Err(Failure::new(Exit::Unavailable, error).remedy(remedy))
        }
    }
}

/// A node that has to hold text.
async fn text(store: &dyn MetaStore, path: &str) -> Result<String, Failure> {
    match store.get(path).await {
        Ok((bytes, _)) => match String::from_utf8(bytes) {
            Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
            _ => {}
        },
        Err(StoreError::NoNode) => {}
        Err(error) => {
            let exit = exit_of(&error);
            let error = anyhow::Error::new(error).context(format!("cannot read {path}"));
            return Err(Failure::new(exit, error));
        }
    }
    let error = anyhow::anyhow!("{path} is not there or no text: is that the ledgers root?");
    Err(Failure::new(Exit::Config, error))
}

fn secured(bookies: Bookies, arguments: &ClusterArguments) -> Result<Bookies, Failure> {
    let Some(ca) = &arguments.bookie_ca_file else {
        return Ok(bookies);
    };
    let identity = match &arguments.bookie_identity_files[..] {
        [certificate, key] => Some((file(certificate)?, file(key)?)),
        _ => None,
    };
    let ca = file(ca)?;
    let secured = bookies.with_tls(&Tls { ca, identity });
    secured.map_err(|why| {
        let error = anyhow::anyhow!("the certificates for bookies cannot be used: {why}");
        Failure::new(Exit::Config, error)
    })
}

/// A file of text.
pub(super) fn file(path: &Path) -> Result<String, Failure> {
    use std::io::Read;
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(LARGEST).read_to_string(&mut text));
    read.map_err(|error| Failure::io(format!("cannot read {}", shown(path)), error))?;
    Ok(text)
}
