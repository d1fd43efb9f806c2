//! The metadata store that is a ZooKeeper: one session, connected in the background for ever. A session
//! that ends is followed by a new one; whoever had nodes in it makes them again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use zookeeper_client as zk;

use super::store::{Answer, Changed, Kind, Link, MetaStore, Op, Stat, StoreError};
use crate::backoff::Backoff;
use crate::clock::Clock;

/// As a bookie's own (`zkTimeout`): an agent that is gone is noticed as fast as a bookie that is gone.
/// The server has the last word, by default within 4 and 40 s.
const SESSION: Duration = Duration::from_secs(10);

/// Waits between two tries to connect: at once after a short trouble, and no burden for a server that
/// comes back to hundreds of agents.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How to reach a ZooKeeper.
#[derive(Debug, Clone, Default)]
pub struct Servers {
    /// `host:port` of each.
    pub servers: Vec<String>,
    /// `user:password` for the scheme `digest`; nodes that we make are then open to it alone.
    pub digest: Option<String>,
    /// TLS, for all servers or none.
    pub tls: Option<Tls>,
}

/// Certificates in PEM.
#[derive(Debug, Clone)]
pub struct Tls {
    /// What the servers' certificates are checked against.
    pub ca: String,
    /// Our own certificate and its key.
    pub identity: Option<(String, String)>,
}

/// A ZooKeeper. Dropping it closes the session, and its nodes go.
#[derive(Debug)]
pub struct ZooKeeper {
    client: Arc<Mutex<Option<zk::Client>>>,
    link: watch::Receiver<Link>,
    secured: bool,
    task: JoinHandle<()>,
}

impl ZooKeeper {
    /// Begins to connect. Never fails: what keeps it from connecting is logged.
    #[must_use]
    pub fn start(servers: Servers, clock: Clock) -> ZooKeeper {
        let client = Arc::new(Mutex::new(None));
        let since = clock.elapsed();
        let (sender, link) = watch::channel(Link::Lost { since });
        let secured = servers.digest.is_some();
        let task = tokio::spawn(keep(servers, clock, Arc::clone(&client), sender));
        ZooKeeper {
            client,
            link,
            secured,
            task,
        }
    }

    /// The client, while it is connected. Without a connection nothing is sent: it would wait in a queue
    /// and take effect long after its caller gave up.
    fn client(&self) -> Result<zk::Client, StoreError> {
        match *self.link.borrow() {
            Link::Connected(_) => lock(&self.client).clone().ok_or(StoreError::Lost),
            Link::Lost { .. } => Err(StoreError::Lost),
        }
    }

    fn acls(&self) -> zk::Acls<'static> {
        if self.secured {
            zk::Acls::creator_all()
        } else {
            zk::Acls::anyone_all()
        }
    }

    fn options(&self, kind: Kind) -> zk::CreateOptions<'static> {
        match kind {
            Kind::Persistent => zk::CreateMode::Persistent.with_acls(self.acls()),
            Kind::Ephemeral => zk::CreateMode::Ephemeral.with_acls(self.acls()),
        }
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        self.task.abort();
        lock(&self.client).take();
    }
}

/// Connects, follows the session to its end, and begins again.
async fn keep(
    servers: Servers,
    clock: Clock,
    slot: Arc<Mutex<Option<zk::Client>>>,
    link: watch::Sender<Link>,
) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let mut said = String::new();
    loop {
        match connect(&servers).await {
            Ok(client) => {
                backoff.reset();
                said.clear();
                let id = client.session_id().0;
                let states = client.state_watcher();
                *lock(&slot) = Some(client);
                tracing::info!("connected to ZooKeeper");
                follow(id, states, &clock, &link).await;
                lock(&slot).take();
            }
            Err(error) => {
                // Once for each reason: it may go on for hours.
                let text = error.to_string();
                if said != text {
                    tracing::warn!("cannot connect to ZooKeeper: {text}");
                    said = text;
                }
            }
        }
        tokio::time::sleep(backoff.next_wait(fastrand::f64())).await;
    }
}

async fn connect(servers: &Servers) -> Result<zk::Client, zk::Error> {
    let mut connector = zk::Client::connector().with_session_timeout(SESSION);
    if let Some(digest) = &servers.digest {
        connector = connector.with_auth("digest", digest.as_bytes());
    }
    let cluster = servers.servers.join(",");
    match &servers.tls {
        None => connector.connect(&cluster).await,
        Some(tls) => {
            connector
                .with_tls(options(&servers.servers, tls)?)
                .secure_connect(&cluster)
                .await
        }
    }
}

fn options(servers: &[String], tls: &Tls) -> Result<zk::TlsOptions, zk::Error> {
    for server in servers {
        let host = server
            .rsplit_once(':')
            .map_or(server.as_str(), |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        // The client would panic.
        if rustls::pki_types::ServerName::try_from(host).is_err() {
            return Err(zk::Error::BadArguments(
                &"a server's name is none that TLS can check",
            ));
        }
    }
    // Two providers are compiled in, and the client takes the process's; a second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = zk::TlsOptions::new().with_pem_ca(&tls.ca)?;
    match &tls.identity {
        Some((certificate, key)) => options.with_pem_identity(certificate, key),
        None => Ok(options),
    }
}

/// Says how the session is until it ends.
async fn follow(id: i64, mut states: zk::StateWatcher, clock: &Clock, link: &watch::Sender<Link>) {
    let mut state = states.state();
    loop {
        match state {
            zk::SessionState::SyncConnected => {
                link.send_replace(Link::Connected(id));
            }
            _ => lost(clock, link),
        }
        if state.is_terminated() {
            tracing::warn!("the session with ZooKeeper ended ({state}); a new one is begun");
            return;
        }
        state = states.changed().await;
    }
}

fn lost(clock: &Clock, link: &watch::Sender<Link>) {
    link.send_if_modified(|link| {
        let was = matches!(link, Link::Connected(_));
        if was {
            let since = clock.elapsed();
            *link = Link::Lost { since };
            tracing::warn!("the connection to ZooKeeper is lost");
        }
        was
    });
}

impl MetaStore for ZooKeeper {
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        Box::pin(async move {
            let (data, stat) = self.client()?.get_data(path).await.map_err(failed)?;
            Ok((data, known(&stat)))
        })
    }

    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Stat>> {
        Box::pin(async move {
            let stat = self.client()?.check_stat(path).await.map_err(failed)?;
            Ok(stat.as_ref().map(known))
        })
    }

    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(async move { self.client()?.list_children(path).await.map_err(failed) })
    }

    fn create<'a>(&'a self, path: &'a str, data: &'a [u8], kind: Kind) -> Answer<'a, Stat> {
        Box::pin(async move {
            let client = self.client()?;
            let made = client.create(path, data, &self.options(kind)).await;
            made.map(|(stat, _)| known(&stat)).map_err(failed)
        })
    }

    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], version: Option<i32>) -> Answer<'a, Stat> {
        Box::pin(async move {
            let client = self.client()?;
            let stat = client.set_data(path, data, version).await.map_err(failed)?;
            Ok(known(&stat))
        })
    }

    fn delete<'a>(&'a self, path: &'a str, version: Option<i32>) -> Answer<'a, ()> {
        Box::pin(async move { self.client()?.delete(path, version).await.map_err(failed) })
    }

    fn multi<'a>(&'a self, ops: &'a [Op]) -> Answer<'a, ()> {
        Box::pin(async move {
            let client = self.client()?;
            let mut writer = client.new_multi_writer();
            for op in ops {
                match op {
                    Op::Check { path, version } => writer.add_check_version(path, *version),
                    Op::Create { path, data, kind } => {
                        writer.add_create(path, data, &self.options(*kind))
                    }
                    Op::Set {
                        path,
                        data,
                        version,
                    } => writer.add_set_data(path, data, *version),
                    Op::Delete { path, version } => writer.add_delete(path, *version),
                }
                .map_err(failed)?;
            }
            match writer.commit().await {
                Ok(_) => Ok(()),
                Err(zk::MultiWriteError::RequestFailed { source }) => Err(failed(source)),
                Err(zk::MultiWriteError::OperationFailed { index, source }) => {
                    Err(StoreError::Step {
                        at: index,
                        source: Box::new(failed(source)),
                    })
                }
            }
        })
    }

    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<Stat>, Changed)> {
        Box::pin(async move {
            let client = self.client()?;
            let (stat, watcher) = client.check_and_watch_stat(path).await.map_err(failed)?;
            Ok((stat.as_ref().map(known), until(watcher)))
        })
    }

    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Changed)> {
        Box::pin(async move {
            let client = self.client()?;
            let (names, watcher) = client.list_and_watch_children(path).await.map_err(failed)?;
            Ok((names, until(watcher)))
        })
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }
}

fn until(watcher: zk::OneshotWatcher) -> Changed {
    Box::pin(async move {
        watcher.changed().await;
    })
}

fn known(stat: &zk::Stat) -> Stat {
    Stat {
        version: stat.version,
        created: stat.czxid,
        created_at: stat.ctime,
        owner: (stat.ephemeral_owner != 0).then_some(stat.ephemeral_owner),
        children: u32::try_from(stat.num_children).unwrap_or(0),
        modified: stat.mtime,
    }
}

fn failed(error: zk::Error) -> StoreError {
    match error {
        zk::Error::NoNode => StoreError::NoNode,
        zk::Error::NodeExists => StoreError::NodeExists,
        zk::Error::BadVersion => StoreError::BadVersion,
        zk::Error::NotEmpty => StoreError::NotEmpty,
        zk::Error::NoChildrenForEphemerals => StoreError::EphemeralParent,
        zk::Error::NoAuth | zk::Error::AuthFailed => StoreError::NoAuth,
        // In its own words: no answer for so long, or what the socket said.
        zk::Error::ConnectionLoss | zk::Error::Custom(_) => StoreError::Lost,
        zk::Error::SessionExpired | zk::Error::SessionMoved | zk::Error::ClientClosed => {
            StoreError::Expired
        }
        zk::Error::Timeout => StoreError::TimedOut,
        other => StoreError::Other(other.to_string()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_server_and_no_certificate_ends_the_program() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let own = params.self_signed(&key).unwrap().pem();
        let why = |server: &str, ca: &str, identity: Option<(&str, &str)>| {
            let owned = |(cert, key): (&str, &str)| (cert.to_owned(), key.to_owned());
            let tls = Tls {
                ca: ca.to_owned(),
                identity: identity.map(owned),
            };
            match options(&[server.to_owned()], &tls) {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            }
        };
        for server in [
            "zk-1.example.org:2181",
            "127.0.0.1:1",
            "[::1]:2181",
            "a_b:1",
        ] {
            assert_eq!(why(server, &own, None), "", "{server}");
        }
        for server in ["a b:2181", ":2181", "a..b:1"] {
            assert!(
                why(server, &own, None).contains("a server's name"),
                "{server}"
            );
        }
        assert!(why("a:1", "", None).contains("no valid tls trust anchor"));
        assert!(why("a:1", &own, Some((&own, ""))).contains("no client private key"));
        assert_eq!(why("a:1", &own, Some((&own, &key.serialize_pem()))), "");
    }
}
