//! Composition: makes the parts, joins them, runs them and stops them in order. Decides nothing and
//! does nothing else; every rule is in the part that it joins. The order of a start: address, state
//! store, listeners, prober, monitor, HTTP; the order of a stop: HTTP, monitor with its prober,
//! listeners, store.

mod beside;
mod check;
mod handles;
mod listeners;
mod logging;
mod pins;
mod reload;
mod room;
mod server;
mod systemd;
mod textfile;
mod token;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;

pub use check::{CheckOptions, NotConfigured, check};
pub use listeners::{hooks, webhook};
pub use logging::{Log, start as start_log};
pub use reload::Problem;
pub use room::journal_room;
pub use token::{read as read_token, unusable as unusable_tokens};

use crate::child;
use crate::clock::Clock;
use crate::config::{self, Config, Sources};
use crate::document::{About, Host, shown};
use crate::health::dir::Role;
use crate::http;
use crate::listener::{Dispatcher, Listener};
use crate::monitor::{ACTION_QUEUE, Action, Monitor, MonitorOptions};
use crate::probe::{Prober, ProberOptions};
use crate::shutdown::{Request, Signals};
use crate::state::{Opened, Store, StoreError, StoreOptions, StoredEvent};

use beside::Beside;
use pins::Pins;
use server::{Door, Server};

/// A stop may take so long before the process ends without it: the 2 s that are promised, less what
/// the system needs.
const STOP_LIMIT: Duration = Duration::from_millis(1700);

/// How often the numbers of the state store are looked at, and whether it began afresh. Both are
/// rare; what is wrong with it is asked for whenever somebody wants to know.
const STORE_INTERVAL: Duration = Duration::from_secs(5);

/// What the agent says when it has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// What is watched, in configured order.
    pub dirs: Vec<(Role, PathBuf)>,
    /// Where page, API and metrics are served.
    pub address: SocketAddr,
    /// Where events and pins are kept.
    pub state_dir: PathBuf,
    /// Names of the hooks and webhooks.
    pub hooks: Vec<String>,
}

/// Why the agent does not start although its configuration is valid.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state directory belongs to another agent, or to a newer version.
    #[error("cannot use the state directory {}", shown(.dir))]
    State {
        /// Which.
        dir: PathBuf,
        /// Why not.
        source: StoreError,
    },
    /// The token file cannot be used.
    #[error("cannot use the {key} {}: {why}", shown(.file))]
    Token {
        /// The key that names it.
        key: &'static str,
        /// Which.
        file: PathBuf,
        /// Why not.
        why: String,
    },
}

impl StartError {
    /// What the user can do.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            StartError::State { source, .. } => match source {
                StoreError::NewerVersion { .. } => {
                    "run the newer version, or name another directory with --state-dir or state_dir"
                }
                _ => {
                    "stop the other agent, or name another directory with --state-dir or state_dir"
                }
            },
            StartError::Token { .. } => config::TOKEN_REMEDY,
        }
    }
}

/// What the files of tokens hold.
struct Tokens {
    control: Option<Arc<str>>,
    read: Option<Arc<str>>,
}

impl Tokens {
    fn read(config: &Config) -> Result<Tokens, StartError> {
        let read = |key, file: &Option<PathBuf>| {
            let file = file.clone();
            file.map(|file| token::read(key, file)).transpose()
        };
        Ok(Tokens {
            control: read("control_token_file", &config.control_token_file)?,
            read: read("read_token_file", &config.read_token_file)?,
        })
    }
}

/// Runs the agent until a signal stops it. `greet` is called when it has started.
///
/// # Errors
/// The configuration is not valid, the address is in use, the state directory belongs to another
/// agent, or the system refuses threads or signals.
pub async fn run(sources: Sources, greet: impl FnOnce(&Started)) -> Result<(), anyhow::Error> {
    let config = config::load(&sources)?;
    let log = logging::start(config.log_level);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if config.lock_memory {
        lock_memory();
    }
    let tokens = Tokens::read(&config)?;
    let mut signals = Signals::take().context("cannot take over signals")?;
    let listeners = listeners::all(&config)?;
    let address = http::bind(config.listen)?;
    let started = Started {
        dirs: config
            .dirs
            .iter()
            .map(|dir| (dir.role, dir.path.clone()))
            .collect(),
        address: address.local_addr().unwrap_or(config.listen),
        state_dir: config.state_dir.clone(),
        hooks: receivers(&config),
    };
    let agent = Agent::start(
        (sources, config),
        listeners,
        log.dropped(),
        (address, tokens),
    )
    .await?;
    let (dirs, address, state_dir) = (started.dirs.len(), started.address, &started.state_dir);
    tracing::info!(
        "watching {dirs} {}, listening on {address}, state in {}",
        if dirs == 1 {
            "directory"
        } else {
            "directories"
        },
        shown(state_dir)
    );
    greet(&started);
    loop {
        match signals.next().await {
            Request::Stop => break,
            Request::Reload => agent.reload.now(),
        }
    }
    tracing::info!("stopping");
    signals.end_within(STOP_LIMIT);
    agent.stop().await;
    drop(log);
    Ok(())
}

fn receivers(config: &Config) -> Vec<String> {
    let hooks = config.hooks.iter().map(|hook| hook.name.clone());
    let webhooks = config.webhooks.iter().map(|webhook| webhook.name.clone());
    hooks.chain(webhooks).collect()
}

/// This machine's name, as documents say it.
#[must_use]
pub fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(
        |_| "localhost".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// A running agent.
struct Agent {
    actions: mpsc::Sender<Action>,
    monitor: tokio::task::JoinHandle<()>,
    server: Server,
    dispatcher: Dispatcher,
    store: Store,
    reload: reload::Reloader,
    systemd: systemd::Systemd,
    beside: Arc<Beside>,
}

impl Agent {
    async fn start(
        (sources, config): (Sources, Config),
        listeners: Vec<Listener>,
        log_dropped: handles::Dropped,
        (address, tokens): (std::net::TcpListener, Tokens),
    ) -> Result<Agent, anyhow::Error> {
        let clock = Clock::start();
        let program = child::own_program().context("cannot find this program's own file")?;
        let host = host(&config);
        let (store, mut opened) = open_store(&config, &program, &clock).await?;
        let (actions, action_queue) = mpsc::channel(ACTION_QUEUE);
        let pending = std::mem::take(&mut opened.pending);
        let dispatcher = dispatcher(listeners, &store, pending, &host, &clock);
        let pins = std::mem::take(&mut opened.pins);
        let pins = Pins::new(store.clone(), pins, opened.complete);
        let options = monitor_options(&config, &pins, last_seq(&opened), &dispatcher);
        let (reports, report_queue) = mpsc::channel(ACTION_QUEUE);
        let prober = Prober::start(prober_options(&config, program), clock.clone(), reports);
        let (monitor, snapshots) = Monitor::new(options, prober, clock.clone());
        let joints = beside::Joints {
            store: store.clone(),
            stored: opened.claims.take(),
            pins: pins.clone(),
            snapshots: snapshots.clone(),
            actions: actions.clone(),
            clock: clock.clone(),
        };
        let beside = Arc::new(Beside::start(&config, joints)?);
        let reload_ok = Arc::new(AtomicBool::new(true));
        let door = Door::new(&config.web, tokens.read);
        let parts = handles::Parts {
            alertmanager: listeners::alertmanager(&config, &snapshots, &host, &clock)?,
            access: door.receiver(),
            about: about(host),
            clock,
            snapshots,
            dispatcher: dispatcher.clone(),
            store: store.clone(),
            actions: actions.clone(),
            reload_ok: Arc::clone(&reload_ok),
            log_dropped,
            token: tokens.control,
            first_problems: opened.problems,
            mode_orders: beside.orders(),
        };
        let textfile = textfile::start(config.textfile.clone(), &parts);
        let systemd = systemd::Systemd::start(parts.snapshots.clone());
        let server = Server::start(address, parts.handles()).context("cannot serve HTTP")?;
        let heard = (dispatcher.clone(), actions.clone());
        let kept = (pins, opened.complete);
        tokio::spawn(follow_store(store.clone(), heard.clone(), kept));
        let told = (
            reload_ok,
            Arc::clone(&beside),
            textfile,
            systemd.clone(),
            door,
        );
        let reload = reload::Reloader::start((sources, config), heard, told);
        Ok(Agent {
            actions,
            beside,
            monitor: tokio::spawn(monitor.run(action_queue, report_queue)),
            server,
            dispatcher,
            store,
            reload,
            systemd,
        })
    }

    /// Stops everything in order. Nothing here waits for a disk.
    async fn stop(self) {
        self.systemd.stopping().await;
        let served = self.server.stop();
        self.beside.stop();
        let _ = self.actions.send(Action::Stop).await;
        let _ = self.monitor.await;
        self.dispatcher.stop().await;
        self.store.stop();
        let _ = served.await;
    }
}

/// Where events come from, as they say it themselves.
pub(crate) fn host(config: &Config) -> Host {
    let bookie = config.bookie.as_ref();
    Host {
        host: host_name(),
        bookie_id: bookie.and_then(|bookie| bookie.id.clone()),
    }
}

fn about(host: Host) -> About {
    About {
        host,
        version: crate::VERSION,
        revision: crate::REVISION,
        semantics: "dirkeeper",
    }
}

/// Opens the state store. Trouble with it takes away durability, not the start; only a directory
/// that belongs to somebody else does that.
async fn open_store(
    config: &Config,
    program: &std::path::Path,
    clock: &Clock,
) -> Result<(Store, Opened), anyhow::Error> {
    let options = StoreOptions {
        state_dir: config.state_dir.clone(),
        program: program.to_owned(),
        retention_bytes: config.events.retention_bytes,
        retention_age: config.events.retention_age,
        lock_memory: config.lock_memory,
    };
    let store = Store::start(options, clock.clone());
    let mut opened = store.open().await;
    if let Some(failure) = opened.failure.take_if(|failure| failure.is_fatal()) {
        let dir = config.state_dir.clone();
        return Err(StartError::State {
            dir,
            source: failure,
        }
        .into());
    }
    for problem in &opened.problems {
        tracing::warn!("{problem}");
    }
    // What is wrong with the store itself is in its health, and not there any more once it ends.
    opened.problems.clear();
    if opened.pins_lost {
        let text =
            "the identity pins are lost: the disks that are there now were taken as the right ones";
        tracing::warn!("{text}");
        opened.problems.push(text.to_owned());
    }
    Ok((store, opened))
}

fn dispatcher(
    listeners: Vec<Listener>,
    store: &Store,
    pending: BTreeMap<String, Vec<StoredEvent>>,
    host: &Host,
    clock: &Clock,
) -> Dispatcher {
    let store = Some(store.clone());
    Dispatcher::start(listeners, store, pending, host.clone(), clock.clone())
}

fn prober_options(config: &Config, program: PathBuf) -> ProberOptions {
    ProberOptions {
        program,
        args: Vec::new(),
        dirs: Vec::new(),
        lock_memory: config.lock_memory,
    }
}

/// The newest number of earlier runs; none when the store may say it soon.
fn last_seq(opened: &Opened) -> Option<u64> {
    let slow = matches!(
        opened.failure,
        Some(StoreError::NoAnswer | StoreError::Busy)
    );
    (!slow || 0 < opened.last_seq).then_some(opened.last_seq)
}

fn monitor_options(
    config: &Config,
    pins: &Pins,
    last_seq: Option<u64>,
    dispatcher: &Dispatcher,
) -> MonitorOptions {
    let (known, keep, dispatcher) = (pins.clone(), pins.clone(), dispatcher.clone());
    MonitorOptions {
        dirs: config.dirs.clone(),
        policy: config.policy,
        pins: Box::new(move |dir| known.get(dir)),
        keep_pin: Box::new(move |dir, pin| keep.keep(dir, pin)),
        publish: Box::new(move |event| dispatcher.dispatch(event)),
        last_seq,
        look_only: false,
    }
}

/// Takes over what the store holds when it opens late: pins, what waits for listeners, and its
/// numbers, so that new events go on above them. Puts the pins again when the store began afresh.
async fn follow_store(
    store: Store,
    (dispatcher, actions): (Dispatcher, mpsc::Sender<Action>),
    (pins, complete): (Pins, bool),
) {
    if !complete {
        let opened = store.opened().await;
        // First what is older than anything that gets a number from now on.
        dispatcher.resume(opened.pending);
        pins.complete(opened.pins);
        // An error means that the loop has ended, and nothing is left to tell.
        let _ = actions.send(Action::Recall).await;
        let _ = actions.send(Action::Numbered(opened.last_seq)).await;
    }
    let mut tick = tokio::time::interval(STORE_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut fresh_starts = store.health().fresh_starts;
    loop {
        tick.tick().await;
        let health = store.health();
        if fresh_starts != health.fresh_starts {
            fresh_starts = health.fresh_starts;
            pins.put_all();
        }
        if actions
            .send(Action::Numbered(health.last_seq))
            .await
            .is_err()
        {
            return;
        }
    }
}

/// The children do the same when they are greeted.
fn lock_memory() {
    if let Err(error) = child::lock_memory() {
        tracing::warn!("lock_memory is set, but the pages cannot be locked: {error}");
    }
}
