//! The bookie beside the agent: joins its admin server, its ZooKeeper and the keeper of its mode with the loop.
//! Nothing of it is needed for the watch, and each part may be missing by itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::pins::Pins;
use crate::bookie::{self, AdminClient, AdminOptions, Facts, Version};
use crate::clock::Clock;
use crate::cluster::{self, Cluster, ClusterOptions, Servers, Tls};
use crate::config::{BookieConfig, Config, ZooKeeperConfig, ZooKeeperFiles};
use crate::health::beside::{AgentStatus, BesideAction};
use crate::health::snapshot::Snapshot;
use crate::mode::keep::{self, Ordered, Parts};
use crate::mode::plan::keeper::{Control, Settings};
use crate::monitor::Action;
use crate::report;
use crate::state::Store;

/// Orders that wait for the keeper; each person gives one at a time.
const ORDERS: usize = 16;

/// What it is joined with.
#[derive(Clone)]
pub(super) struct Joints {
    pub(super) store: Store,
    pub(super) stored: Option<Vec<u8>>,
    /// Cookies that were seen, with the cluster's id.
    pub(super) pins: Pins,
    pub(super) snapshots: watch::Receiver<Arc<Snapshot>>,
    pub(super) actions: mpsc::Sender<Action>,
    pub(super) clock: Clock,
}

/// Who takes orders about the mode; none while there is no bookie to keep.
pub(super) type Orders = watch::Receiver<Option<mpsc::Sender<Ordered>>>;

/// The bookie's part. Begins with the first configuration that names a bookie, at the start or later, and then stays
/// with that one.
pub(super) struct Beside {
    joints: Joints,
    configured: watch::Sender<Option<BookieConfig>>,
    orders: watch::Sender<Option<mpsc::Sender<Ordered>>>,
    running: Mutex<Option<Running>>,
}

/// The running parts; they end when it is dropped.
#[derive(Default)]
struct Running {
    _following: Option<cluster::watch::ClusterWatch>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// What was made of the files that a configuration names.
pub(super) struct Ready {
    admin: Option<AdminClient>,
    servers: Option<Servers>,
}

impl Ready {
    /// Reads them; none where no bookie is named. Blocks on their disks.
    ///
    /// # Errors
    /// A file with certificates cannot be read or used.
    pub(super) fn of(config: &Config) -> Result<Option<Ready>, anyhow::Error> {
        let Some(bookie) = &config.bookie else {
            return Ok(None);
        };
        let servers = match &config.zookeeper {
            Some(zookeeper) => Some(servers(zookeeper, zookeeper.read_files()?)),
            None => None,
        };
        let admin = admin(bookie)?;
        Ok(Some(Ready { admin, servers }))
    }
}

impl Beside {
    /// Begins with the bookie that is named, or waits for one.
    ///
    /// # Errors
    /// As [`Ready::of`].
    pub(super) fn start(config: &Config, joints: Joints) -> Result<Beside, anyhow::Error> {
        let beside = Beside {
            joints,
            configured: watch::Sender::new(None),
            orders: watch::Sender::new(None),
            running: Mutex::new(None),
        };
        beside.configure(config, Ready::of(config)?);
        Ok(beside)
    }

    /// It has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.running().is_some()
    }

    /// Takes a valid configuration. The first with a bookie begins it; `ready` is what its files gave.
    pub(super) fn configure(&self, config: &Config, ready: Option<Ready>) {
        self.configured.send_replace(config.bookie.clone());
        let mut running = self.running();
        if let (None, Some(bookie), Some(ready)) = (&*running, &config.bookie, ready) {
            *running = Some(self.begin(config, bookie, ready));
        }
    }

    /// Ends it. A PUT that is under way is not waited for: its claim is durable, and the next run goes on with it.
    pub(super) fn stop(&self) {
        self.running().take();
    }

    /// Where orders about the mode go.
    pub(super) fn orders(&self) -> Orders {
        self.orders.subscribe()
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, config: &Config, bookie: &BookieConfig, ready: Ready) -> Running {
        let joints = self.joints.clone();
        let mut running = Running::default();
        let Ready { admin, servers } = ready;
        let actions = joints.actions.clone();
        // A full queue loses one of many equal reports.
        let heard = move |heard| drop(actions.try_send(Action::Heard(heard)));
        let options = bookie::watch::WatchOptions {
            conf: bookie.conf.clone(),
        };
        let clock = joints.clock.clone();
        let state = bookie::watch::start(options, admin.clone(), heard.clone(), clock);
        let id = bookie.id.clone();
        let cluster = cluster(config, id.as_deref(), servers, &joints);
        if let Some(cluster) = &cluster {
            let (status, said) = watch::channel(None);
            let follow = follow_status(joints.snapshots.clone(), status);
            running.tasks.push(tokio::spawn(follow));
            running._following = Some(cluster::watch::start(cluster, heard, said));
        }
        match (admin, id) {
            (Some(admin), Some(id)) => {
                let settings = self.configured.subscribe();
                let orders = running.keep((admin, id, cluster), state, settings, joints);
                self.orders.send_replace(Some(orders));
            }
            // There is nothing to keep: it is only listened to.
            _ => running.tasks.push(tokio::spawn(hold(state))),
        }
        running
    }
}

impl Running {
    fn keep(
        &mut self,
        (admin, bookie_id, cluster): (AdminClient, String, Option<Cluster>),
        state: watch::Receiver<bookie::watch::NewestState>,
        configured: watch::Receiver<Option<BookieConfig>>,
        joints: Joints,
    ) -> mpsc::Sender<Ordered> {
        let version = configured_version(configured.borrow().as_ref());
        let act = act(
            (admin.clone(), version),
            cluster.clone(),
            joints.snapshots.clone(),
            joints.actions.clone(),
        );
        let (orders, order_queue) = mpsc::channel(ORDERS);
        let (settings, min_writable) = self.derive(configured, joints.snapshots.clone());
        let actions = joints.actions;
        let report = move |kept| actions.try_send(Action::Kept(kept)).is_ok();
        let parts = Parts {
            settings,
            min_writable,
            bookie_id,
            admin,
            state,
            cluster,
            store: joints.store,
            stored: joints.stored,
            snapshots: joints.snapshots,
            orders: order_queue,
            report: Box::new(report),
            clock: joints.clock,
        };
        self.tasks.push(tokio::spawn(act));
        self.tasks.push(tokio::spawn(keep::keep(parts)));
        orders
    }

    /// The keeper's settings: from the configuration, and from the version that the bookie's process shows.
    fn derive(
        &mut self,
        mut configured: watch::Receiver<Option<BookieConfig>>,
        mut snapshots: watch::Receiver<Arc<Snapshot>>,
    ) -> (watch::Receiver<Settings>, watch::Receiver<Option<u32>>) {
        let first = configured.borrow_and_update().clone();
        let (settings, kept) = watch::channel(settings(first.as_ref(), None));
        let least = first.and_then(|bookie| bookie.min_writable_bookies);
        let (min_writable, least) = watch::channel(least);
        let follow = async move {
            loop {
                let version = seen_version(&snapshots.borrow_and_update());
                let bookie = configured.borrow_and_update().clone();
                let new = match &bookie {
                    Some(bookie) => self::settings(Some(bookie), version),
                    // Nothing is begun any more. What is known of the bookie still holds for what has to be ended.
                    None => Settings {
                        control: Control::Observe,
                        ..settings.borrow().clone()
                    },
                };
                settings.send_if_modified(|old| std::mem::replace(old, new.clone()) != new);
                let new = bookie.and_then(|bookie| bookie.min_writable_bookies);
                min_writable.send_if_modified(|old| std::mem::replace(old, new) != new);
                tokio::select! {
                    changed = configured.changed() => if changed.is_err() { return },
                    changed = snapshots.changed() => if changed.is_err() { return },
                }
            }
        };
        self.tasks.push(tokio::spawn(follow));
        (kept, least)
    }
}

/// The poll of the bookie ends with its last receiver.
async fn hold(state: watch::Receiver<bookie::watch::NewestState>) {
    std::future::pending::<()>().await;
    drop(state);
}

fn admin(bookie: &BookieConfig) -> Result<Option<AdminClient>, anyhow::Error> {
    let Some(url) = bookie.admin_url.clone() else {
        return Ok(None);
    };
    let files = bookie.read_files()?;
    let options = AdminOptions {
        url,
        ca: files.ca,
        cert_and_key: files.cert_and_key,
    };
    Ok(Some(AdminClient::new(options)?))
}

/// The cluster, where it is known and the bookie has a name in it.
fn cluster(
    config: &Config,
    id: Option<&str>,
    servers: Option<Servers>,
    joints: &Joints,
) -> Option<Cluster> {
    let zookeeper = config.zookeeper.as_ref()?;
    Some(Cluster::start(ClusterOptions {
        bookie: id?.to_owned(),
        host: super::host_name(),
        zookeeper: servers?,
        ledgers_root: zookeeper.ledgers_root.clone(),
        root: zookeeper.root.clone(),
        instance: joints.pins.instance(&config.dirs),
        clock: joints.clock.clone(),
    }))
}

fn servers(zookeeper: &ZooKeeperConfig, files: ZooKeeperFiles) -> Servers {
    Servers {
        servers: zookeeper.servers.clone(),
        digest: files.digest.map(|secret| secret.0),
        tls: files.tls.map(|(ca, identity)| Tls {
            ca,
            identity: identity.map(|(cert, key)| (cert.0, key.0)),
        }),
    }
}

fn configured_version(bookie: Option<&BookieConfig>) -> Option<Version> {
    let version = bookie?.version?;
    Some((version.major, version.minor, version.patch))
}

fn seen_version(snapshot: &Snapshot) -> Option<Version> {
    let process = snapshot.beside.process.as_ref()?;
    bookie::parse_version(process.version.as_deref()?)
}

/// What is fixed for this bookie. What the configuration says of its version goes before what is seen.
fn settings(bookie: Option<&BookieConfig>, seen: Option<Version>) -> Settings {
    let Some(bookie) = bookie else {
        return Settings::default();
    };
    let version = configured_version(Some(bookie)).or(seen);
    let file = bookie.conf.as_ref().map(|_| &bookie.file);
    Settings {
        control: if bookie.enforce {
            Control::Enforce
        } else {
            Control::Observe
        },
        never: never(version, file.map(|file| file.read_only_mode_enabled)),
        persists_status: file.is_none_or(|file| file.persist_bookie_status_enabled == Some(true)),
    }
}

/// Why this bookie must never be sent a PUT. `mode_enabled` is `readOnlyModeEnabled` of its file, if there is one;
/// true is the default.
fn never(version: Option<Version>, mode_enabled: Option<Option<bool>>) -> Option<String> {
    let facts = Facts::of(version);
    if version.is_some() && !facts.state_readonly {
        return Some("this version of BookKeeper has no call for the mode".to_owned());
    }
    match mode_enabled {
        Some(Some(false)) => Some(
            "readOnlyModeEnabled is false: the bookie refuses read-only, and some versions shut down instead"
                .to_owned(),
        ),
        None if facts.put_may_end_bookie => Some(
            "it is not known whether a PUT would end this bookie: set bookie.conf, or bookie.version to 4.17.2 or later"
                .to_owned(),
        ),
        _ => None,
    }
}

/// What this agent says of its bookie in ZooKeeper.
async fn follow_status(
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    status: watch::Sender<Option<AgentStatus>>,
) {
    loop {
        let new = snapshots.borrow_and_update().agent_status();
        status.send_if_modified(|old| {
            let changed = match (&*old, &new) {
                (Some(old), Some(new)) => !old.says_the_same(new),
                (old, new) => old.is_some() != new.is_some(),
            };
            if changed {
                *old = new;
            }
            changed
        });
        if snapshots.changed().await.is_err() {
            return;
        }
    }
}

/// Asks of the bookie what the judge wants beside its mode, where the agent enforces.
async fn act(
    (admin, version): (AdminClient, Option<Version>),
    cluster: Option<Cluster>,
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    actions: mpsc::Sender<Action>,
) {
    while snapshots.changed().await.is_ok() {
        let (action, flags) = {
            let snapshot = snapshots.borrow_and_update();
            let action = snapshot.beside.action;
            let facts = Facts::of(version.or_else(|| seen_version(&snapshot)));
            let enforces = snapshot.mode.control == Control::Enforce.name();
            (action.filter(|_| enforces), facts.gc_flags)
        };
        let (Some(action), Some(cluster)) = (action, &cluster) else {
            continue;
        };
        match ask(&admin, cluster, &action, flags).await {
            Ok(()) => tracing::info!("the bookie was asked to {}", words(action)),
            Err(error) => {
                let why = report::text(&*error);
                tracing::warn!("the bookie could not be asked to {}: {why}", words(action));
            }
        }
        // Well or not: it is not asked again at once.
        let _ = actions.send(Action::Acted(action)).await;
    }
}

fn words(action: BesideAction) -> &'static str {
    match action {
        BesideAction::ResumeCompaction { .. } => "resume compaction",
        BesideAction::RequestGc => "collect garbage",
    }
}

async fn ask(
    admin: &AdminClient,
    cluster: &Cluster,
    action: &BesideAction,
    flags: bool,
) -> Result<(), anyhow::Error> {
    cluster.is_alone().await?;
    match action {
        BesideAction::ResumeCompaction { major, minor } => {
            Ok(admin.resume_compaction(*major, *minor).await?)
        }
        BesideAction::RequestGc if !flags => {
            anyhow::bail!("this version forces compactions with it, whatever is asked for")
        }
        BesideAction::RequestGc => {
            // Each collection reads the metadata of every ledger: one bookie at a time begins one.
            let lock = cluster.lock_mode(keep::LOCK_WAIT).await?;
            let asked = admin.trigger_gc().await;
            lock.release().await;
            Ok(asked?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::sample;

    #[test]
    fn what_others_hear_of_this_bookie() {
        let mut snapshot = sample::snapshot();
        let full = snapshot.agent_status().unwrap();
        assert!(full.over_warn && full.full, "{full:?}");
        snapshot.dirs.clear();
        let well = snapshot.agent_status().unwrap();
        assert!(!well.over_warn && !well.full, "{well:?}");
        assert!(!full.says_the_same(&well));
        let later = AgentStatus {
            at: 1,
            ..full.clone()
        };
        assert!(full.says_the_same(&later));
        snapshot.ready = false;
        assert_eq!(snapshot.agent_status(), None);
    }

    #[test]
    fn a_put_is_never_sent_where_it_could_end_the_bookie() {
        let old = Some((4, 16, Some(5)));
        let new = Some((4, 17, Some(3)));
        for (version, mode_enabled, expected) in [
            (new, Some(None), None),
            (old, Some(None), None),
            (old, Some(Some(true)), None),
            (None, Some(None), None),
            (new, None, None),
            (old, None, Some("not known")),
            (None, None, Some("not known")),
            (new, Some(Some(false)), Some("readOnlyModeEnabled")),
            (old, Some(Some(false)), Some("readOnlyModeEnabled")),
            (Some((4, 14, Some(3))), Some(None), Some("no call")),
        ] {
            let found = never(version, mode_enabled);
            match expected {
                None => assert_eq!(found, None, "{version:?} {mode_enabled:?}"),
                Some(text) => assert!(
                    found.is_some_and(|found| found.contains(text)),
                    "{version:?}"
                ),
            }
        }
    }
}
