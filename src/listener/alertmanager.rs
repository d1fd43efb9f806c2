//! Alerts for Alertmanager: each instance is told, again and again, which alerts there are now, and
//! once more when one is over. Levels from the snapshot, so there is no queue: what an instance
//! missed it learns the next time. A thread of its own, because a name that is looked up may hold it.

mod alerts;
mod told;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::lock;
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::document::Host;
use crate::health::moment::{Elapsed, Moment};
use crate::health::snapshot::{ListenerView, Snapshot};
use crate::http_client::{Authorities, HttpClient, Limits, TlsError, Url};
use alerts::Alerts;
use told::Told;

/// How often an alert that lasts is sent: as Prometheus does it by default.
const RESEND: Duration = Duration::from_secs(60);

/// Wait after the first failure, doubling up to [`RESEND`].
const RETRY_FIRST: Duration = Duration::from_secs(5);

/// For one request. What is not answered by then is asked again.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Of an answer: the alerts of this agent, each with its labels, twice for each of 512 directories.
const ANSWER_LIMIT: usize = 4 << 20;

/// Who is told.
#[derive(Debug, Clone)]
pub struct AlertmanagerOptions {
    /// The address of each instance, without `/api/v2/alerts`. Each gets everything.
    pub urls: Vec<Url>,
    /// Who may have signed their certificates.
    pub authorities: Authorities,
}

/// The running instances; they are told nothing more when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Alertmanager {
    instances: Arc<Vec<Arc<Instance>>>,
    _running: Arc<watch::Sender<()>>,
}

#[derive(Debug)]
struct Instance {
    name: String,
    url: Url,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    delivered: u64,
    failed: u64,
    problem: Option<String>,
}

impl Alertmanager {
    /// Starts telling. Connects to nobody here.
    ///
    /// # Errors
    /// The certificates are of no use.
    pub fn start(
        options: AlertmanagerOptions,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        host: Host,
        clock: Clock,
    ) -> Result<Alertmanager, TlsError> {
        let client = HttpClient::with_authorities(&options.authorities)?;
        let instances = options.urls.into_iter().enumerate().map(|(index, url)| {
            // No hook can have a name with a colon.
            let name = format!("alertmanager:{}", index + 1);
            let state = Mutex::default();
            Arc::new(Instance { name, url, state })
        });
        let instances: Arc<Vec<_>> = Arc::new(instances.collect());
        let (running, stopped) = watch::channel(());
        let teller = Teller {
            client,
            snapshots,
            host,
            clock,
        };
        let told = Arc::clone(&instances);
        let started = thread::Builder::new()
            .name("alertmanager".to_owned())
            .spawn(move || run(&told, &teller, stopped));
        if let Err(error) = started {
            for instance in instances.iter() {
                instance.fail(format!("has no thread: {error}"));
            }
        }
        Ok(Alertmanager {
            instances,
            _running: Arc::new(running),
        })
    }

    /// How each instance is doing. Never blocks.
    #[must_use]
    pub fn views(&self) -> Vec<ListenerView> {
        let views = self.instances.iter().map(|instance| {
            let state = lock(&instance.state);
            ListenerView {
                name: instance.name.clone(),
                kind: "alertmanager",
                delivered: state.delivered,
                failed: state.failed,
                ..ListenerView::default()
            }
        });
        views.collect()
    }

    /// What is wrong with instances now, in words.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let instances = self.instances.iter();
        let problems = instances.filter_map(|instance| lock(&instance.state).problem.clone());
        problems.collect()
    }
}

impl Instance {
    fn succeed(&self) {
        let mut state = lock(&self.state);
        state.delivered += 1;
        state.problem = None;
    }

    fn fail(&self, why: String) {
        let mut state = lock(&self.state);
        state.failed += 1;
        let at = self.url.origin().ascii_serialization();
        let problem = format!("the Alertmanager {at} was not told: {why}");
        if state.problem.as_ref() != Some(&problem) {
            tracing::warn!("{problem}");
        }
        state.problem = Some(problem);
    }
}

/// What the conversations share.
#[derive(Clone)]
struct Teller {
    client: HttpClient,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    host: Host,
    clock: Clock,
}

fn run(instances: &[Arc<Instance>], teller: &Teller, mut stopped: watch::Receiver<()>) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            for instance in instances {
                instance.fail(format!("has no runtime: {error}"));
            }
            return;
        }
    };
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for instance in instances {
            tasks.spawn(teller.clone().tell(Arc::clone(instance)));
        }
        // Nothing is ever sent: it ends with the last handle.
        while stopped.changed().await.is_ok() {}
    });
    runtime.shutdown_background();
}

impl Teller {
    /// Tells one instance for as long as there are snapshots. The loop publishes one each second; where
    /// it does not, nobody knows, and the alerts end by themselves.
    async fn tell(mut self, instance: Arc<Instance>) {
        let mut alerts = Alerts::default();
        let mut told = Told::default();
        let mut due = Elapsed::ZERO;
        let mut retry = Backoff::new(RETRY_FIRST, RESEND);
        let mut failing = false;
        loop {
            let snapshot = Arc::clone(&self.snapshots.borrow_and_update());
            let Moment { elapsed, wall } = self.clock.now();
            if let Some(wanted) = alerts.of(&snapshot, &self.host) {
                let changed = told.want(wanted, wall);
                if due <= elapsed || (changed && !failing) {
                    let result = self.send(&instance, &mut told).await;
                    failing = result.is_err();
                    let wait = match result {
                        Ok(()) => {
                            instance.succeed();
                            retry.reset();
                            RESEND
                        }
                        Err(why) => {
                            instance.fail(why);
                            retry.next_wait(fastrand::f64())
                        }
                    };
                    due = self.clock.elapsed() + wait;
                }
            }
            if self.snapshots.changed().await.is_err() {
                return;
            }
        }
    }

    async fn send(&self, instance: &Instance, told: &mut Told) -> Result<(), String> {
        let now = self.clock.now().wall;
        if !told.knows_earlier() {
            // An alert of an earlier run may be over since.
            let url = told::question(&instance.url, &self.host);
            let limits = Limits {
                time: TIMEOUT,
                bytes: ANSWER_LIMIT,
            };
            let answer = self.client.get_within(&url, limits).await;
            let answer = answer.map_err(|error| crate::report::text(&error))?;
            told.take_earlier(&answer, &self.host, now)?;
        }
        let body = told.body(now, 3 * RESEND);
        if body == "[]" {
            return Ok(());
        }
        let url = told::address(&instance.url);
        let reply = self.client.tell(&url, &[], body, TIMEOUT).await;
        let reply = reply.map_err(|error| crate::report::text(&error))?;
        match reply.status {
            200..=299 => {
                told.was_heard();
                Ok(())
            }
            status => Err(format!("status {status}: {}", reply.text)),
        }
    }
}
