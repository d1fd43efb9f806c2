//! Follows the cluster for the monitor loop: the bookie's registration, the view, the session. Says what
//! this agent says of its bookie, and says it again in each new session.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::store::Link;
use super::{Cluster, ensembles};
use crate::health::beside::{AgentStatus, Heard};
use crate::report;

/// A look at the registration: two stats. As a bookie's own registration takes seconds to change, more
/// often shows nothing.
const REGISTRATION: Duration = Duration::from_secs(5);

/// A look at the cluster: a read for each bookie's agent and claims.
const CLUSTER: Duration = Duration::from_secs(30);

/// The least time between two of them, however fast the lists change: a restart of every bookie at once
/// must not make each agent read everything for each.
const CLUSTER_PAUSE: Duration = Duration::from_secs(5);

/// Before the lists are watched again: each is read for that, and a cluster that starts changes them for
/// every bookie.
const LISTS_PAUSE: Duration = Duration::from_millis(200);

/// Words about changes that wait: one says it all.
const CHANGES: usize = 1;

/// Ends when dropped.
#[derive(Debug)]
pub struct ClusterWatch {
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for ClusterWatch {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Begins to follow. `heard` must not block; `status` is what the agent says of its bookie, nothing until
/// it knows.
#[must_use]
pub fn start(
    cluster: &Cluster,
    heard: impl Fn(Heard) + Send + Sync + 'static,
    status: watch::Receiver<Option<AgentStatus>>,
) -> ClusterWatch {
    let follower = Follower {
        cluster: cluster.clone(),
        heard: Arc::new(heard),
        problems: Vec::new(),
    };
    let (changed, changes) = mpsc::channel(CHANGES);
    ClusterWatch {
        tasks: vec![
            tokio::spawn(follower.run(changes, status)),
            tokio::spawn(follow_lists(cluster.clone(), changed)),
            tokio::spawn(ensembles::keep(cluster.clone())),
        ],
    }
}

struct Follower {
    cluster: Cluster,
    heard: Arc<dyn Fn(Heard) + Send + Sync>,
    /// What was in the way at the last view, to say it once.
    problems: Vec<String>,
}

impl Follower {
    async fn run(
        mut self,
        mut changes: mpsc::Receiver<()>,
        mut status: watch::Receiver<Option<AgentStatus>>,
    ) {
        let mut registration = interval(REGISTRATION);
        registration.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut link = self.cluster.link();
        let mut views = interval(CLUSTER);
        views.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let clock = self.cluster.clock().clone();
        let mut last_view = None;
        let mut published = None::<(i64, AgentStatus)>;
        loop {
            tokio::select! {
                _ = registration.tick() => self.registration().await,
                _ = views.tick() => {
                    self.view().await;
                    last_view = Some(clock.elapsed());
                }
                Some(()) = changes.recv() => {
                    self.registration().await;
                    let age = last_view.map_or(CLUSTER_PAUSE, |last| clock.elapsed() - last);
                    views.reset_after(CLUSTER_PAUSE.saturating_sub(age));
                }
                Ok(()) = link.changed() => {
                    (self.heard)(Heard::Session(self.cluster.session()));
                    if matches!(*link.borrow_and_update(), Link::Connected(_)) {
                        self.registration().await;
                        views.reset_immediately();
                    }
                }
                Ok(()) = status.changed() => {}
            }
            self.publish(&mut published, &mut status).await;
        }
    }

    /// With the session, so that its loss has an age.
    async fn registration(&self) {
        (self.heard)(Heard::Session(self.cluster.session()));
        let found = self.cluster.registration(self.cluster.bookie()).await;
        (self.heard)(Heard::Registration(
            found.map_err(|error| report::text(&error)),
        ));
    }

    async fn view(&mut self) {
        let view = self.cluster.view().await;
        (self.heard)(Heard::Cluster(view.map_err(|error| report::text(&error))));
        let problems = self.cluster.problems();
        for problem in problems.iter().filter(|new| !self.problems.contains(new)) {
            tracing::warn!("{problem}");
        }
        self.problems = problems;
    }

    /// When it changed, in a new session, and again until it is taken.
    async fn publish(
        &self,
        published: &mut Option<(i64, AgentStatus)>,
        status: &mut watch::Receiver<Option<AgentStatus>>,
    ) {
        let Link::Connected(session) = *self.cluster.link().borrow() else {
            return;
        };
        let Some(status) = status.borrow_and_update().clone() else {
            return;
        };
        let same =
            |(before, said): &(i64, AgentStatus)| *before == session && said.says_the_same(&status);
        if published.as_ref().is_some_and(same) {
            return;
        }
        if self.cluster.publish_status(&status).await.is_ok() {
            *published = Some((session, status));
        }
    }
}

/// Says when one of the two lists of bookies changed, as long as there is a session to hear it in.
async fn follow_lists(cluster: Cluster, changed: mpsc::Sender<()>) {
    loop {
        match cluster.lists_changed().await {
            Ok((writable, read_only)) => {
                tokio::select! {
                    () = writable => {}
                    () = read_only => {}
                }
            }
            Err(_) => {
                // Until then the looks see what changes.
                tokio::time::sleep(REGISTRATION).await;
                continue;
            }
        }
        // Full: it is said already.
        if let Err(mpsc::error::TrySendError::Closed(())) = changed.try_send(()) {
            return;
        }
        tokio::time::sleep(LISTS_PAUSE).await;
    }
}
