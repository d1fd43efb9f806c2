//! Reads the configuration again, on SIGHUP and when its files change. Read in a thread that may be
//! lost, because the file may lie on a dead disk; a valid one takes effect whole, an invalid one
//! changes nothing and is said.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::sync::{mpsc, oneshot, watch};

use super::beside::{Beside, Ready};
use super::listeners;
use super::server::Door;
use super::systemd::Systemd;
use crate::config::{self, Config, Problems, Sources, Watch};
use crate::health::words::counted;
use crate::listener::{Dispatcher, Listener};
use crate::monitor::Action;
use crate::report;

/// A problem of a configuration, for callers outside.
pub use crate::config::Problem;

/// Asks for reloads.
pub(super) struct Reloader {
    wake: mpsc::Sender<()>,
}

/// What a valid configuration brings: its receivers of events, and what its files gave for the bookie, where one
/// is to begin.
type Read = (Config, Vec<Listener>, Result<Option<Ready>, anyhow::Error>);

/// Who is told of each reload beside the loop: whether it was well, the bookie's part, the directory
/// of the textfile, the service manager, the door of the HTTP server.
pub(super) type Told = (
    Arc<AtomicBool>,
    Arc<Beside>,
    watch::Sender<Option<PathBuf>>,
    Systemd,
    Door,
);

impl Reloader {
    pub(super) fn start(
        (sources, config): (Sources, Config),
        (dispatcher, actions): (Dispatcher, mpsc::Sender<Action>),
        (ok, beside, textfile, systemd, door): Told,
    ) -> Reloader {
        // One waiting wish is as good as many.
        let (wake, wakes) = mpsc::channel(1);
        let task = Task {
            sources,
            with_bookie: config.bookie.is_some().then(|| config.clone()),
            config,
            actions,
            dispatcher,
            ok,
            beside,
            textfile,
            systemd,
            door,
            wake: wake.clone(),
        };
        tokio::spawn(task.run(wakes));
        Reloader { wake }
    }

    /// Reads the configuration again soon.
    pub(super) fn now(&self) {
        let _ = self.wake.try_send(());
    }
}

struct Task {
    sources: Sources,
    config: Config,
    actions: mpsc::Sender<Action>,
    dispatcher: Dispatcher,
    ok: Arc<AtomicBool>,
    /// The newest that named a bookie: that one is kept, also when it is not named any more.
    with_bookie: Option<Config>,
    beside: Arc<Beside>,
    /// Told where the textfile goes.
    textfile: watch::Sender<Option<PathBuf>>,
    systemd: Systemd,
    door: Door,
    wake: mpsc::Sender<()>,
}

impl Task {
    async fn run(mut self, mut wakes: mpsc::Receiver<()>) {
        let mut watch = self.watch();
        while wakes.recv().await.is_some() {
            self.systemd.reloading();
            match self.read().await {
                None => {}
                Some(Ok((config, listeners, ready))) => {
                    self.begin(&config, ready).await;
                    self.apply(config, listeners).await;
                    drop(watch.take());
                    watch = self.watch();
                }
                Some(Err(problems)) => self.refuse(&problems).await,
            }
            self.systemd.reloaded();
        }
    }

    /// Watches the files of the present configuration; without a watch SIGHUP still works.
    fn watch(&self) -> Option<Watch> {
        let watched = self.config.dirs.iter().map(|dir| dir.path.clone());
        let files = self.config.files.clone();
        match config::watch(files, watched.collect(), self.wake.clone()) {
            Ok(watch) => Some(watch),
            Err(error) => {
                tracing::warn!(
                    "the configuration is not watched for changes, only SIGHUP: {error}"
                );
                None
            }
        }
    }

    async fn read(&self) -> Option<Result<Read, Problems>> {
        let (sources, old) = (self.sources.clone(), self.running());
        let begins = !self.beside.has_begun();
        let (answer, result) = oneshot::channel();
        let reader = move || {
            let read = config::reload(&sources, &old).and_then(|config| {
                let listeners = listeners::all(&config)?;
                let ready = begins.then(|| Ready::of(&config));
                Ok((config, listeners, ready.unwrap_or(Ok(None))))
            });
            // Who asked has ended, or takes it.
            let _ = answer.send(read);
        };
        let thread = thread::Builder::new()
            .name("reload".to_owned())
            .spawn(reader);
        if let Err(error) = thread {
            tracing::warn!("the configuration cannot be read again: {error}");
            return None;
        }
        result.await.ok()
    }

    /// The configuration as it runs.
    fn running(&self) -> Config {
        let mut running = self.config.clone();
        match &self.with_bookie {
            Some(before) if running.bookie.is_none() => running.keep_bookie_of(before),
            Some(_) => {}
            // One that could not begin binds the next to nothing.
            None => running.forget_bookie(),
        }
        running
    }

    /// The bookie's part, which begins with the first configuration that names one.
    async fn begin(&mut self, config: &Config, ready: Result<Option<Ready>, anyhow::Error>) {
        let (ready, problem) = match ready {
            Ok(ready) => (ready, None),
            Err(error) => {
                let why = report::text(&*error);
                let text = format!("the bookie of the changed configuration is not kept: {why}");
                tracing::error!("{text}");
                (None, Some(text))
            }
        };
        self.beside.configure(config, ready);
        if config.bookie.is_some() && self.beside.has_begun() {
            self.with_bookie = Some(config.clone());
        }
        let _ = self.actions.send(Action::Problem("bookie", problem)).await;
    }

    async fn apply(&mut self, config: Config, listeners: Vec<Listener>) {
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        // What it has to end, it says itself.
        let _ended = self.dispatcher.replace(listeners);
        let watched = config.dirs.iter().map(|dir| dir.path.clone()).collect();
        let ended = self.dispatcher.keep_dirs(&watched);
        if ended > 0 {
            tracing::warn!("{ended} events waited at hooks for directories that were removed");
        }
        let dirs = config.dirs.clone();
        let _ = self
            .actions
            .send(Action::Configure(dirs, config.policy))
            .await;
        let _ = self
            .actions
            .send(Action::Problem("configuration", None))
            .await;
        self.door.change(&config.web);
        let textfile = config.textfile.clone();
        self.textfile
            .send_if_modified(|old| std::mem::replace(old, textfile.clone()) != textfile);
        self.ok.store(true, Ordering::Relaxed);
        let hooks = config.hooks.len() + config.webhooks.len();
        let count = config.dirs.len();
        tracing::info!(
            "the configuration was read again: {}, {}",
            counted(count, "directory", "directories"),
            counted(hooks, "hook", "hooks")
        );
        self.config = config;
    }

    async fn refuse(&self, problems: &Problems) {
        self.ok.store(false, Ordering::Relaxed);
        for problem in &problems.errors {
            tracing::error!("the changed configuration is not valid and was not used: {problem}");
        }
        let count = counted(problems.errors.len(), "error", "errors");
        let text = format!(
            "the changed configuration is not valid ({count}) and was not used: {}",
            problems
                .errors
                .first()
                .map_or_else(String::new, ToString::to_string)
        );
        let _ = self
            .actions
            .send(Action::Problem("configuration", Some(text)))
            .await;
    }
}
