//! What a command needs before it may act: the cluster looked at, the lock of reclaim held, and a complete scan
//! to go by. A dry run takes no lock and writes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::args::ChoiceArguments;
use super::cluster::{Cluster, of_state};
use crate::app;
use crate::cli::exit::{Exit, Failure};
use crate::cluster::leader::{Leader, campaign};
use crate::cluster::store::StoreError;
use crate::config::ReclaimConfig;
use crate::reclaim::acting::{Acting, LastScan, Stop};
use crate::reclaim::failpoint::Failpoints;
use crate::reclaim::plan::Millis;
use crate::reclaim::plan::class::Rules;
use crate::reclaim::preflight::{PreflightError, preflight};
use crate::reclaim::state::State;

/// How long the lock is waited for: the lock of a command that was killed stands until its session of 10 s has ended; one
/// that works goes on for hours.
const LOCK: Duration = Duration::from_secs(15);

/// Where locks are kept unless the configuration says otherwise.
const ROOT: &str = "/dirkeeper";

/// The right to act, as far as it is needed.
pub(super) struct Office {
    /// None: a dry run.
    pub(super) leader: Option<Leader>,
    failpoints: Failpoints,
}

impl Office {
    /// To say only what would be done.
    pub(super) fn dry() -> Office {
        Office {
            leader: None,
            failpoints: Failpoints::default(),
        }
    }

    /// Of who was elected.
    pub(super) fn of(leader: Leader) -> Office {
        Office {
            leader: Some(leader),
            ..Office::dry()
        }
    }

    /// Looks at the cluster and takes the lock, or says why not.
    pub(super) async fn take(cluster: &Cluster, state: &State) -> Result<Office, Failure> {
        let path = lock_path(cluster, state).await?;
        let (leads, other) = watch::channel(None);
        let store = Arc::clone(&cluster.ledgers.store);
        let who = app::host_name();
        let campaign = campaign(store, &path, &who, &leads);
        match timeout(LOCK, campaign).await {
            Ok(leader) => {
                let leader = leader.map_err(|error| of_store("the lock of reclaim", error))?;
                Ok(Office::of(leader))
            }
            Err(_) => {
                let other = other.borrow().clone();
                let other = other.unwrap_or_else(|| "somebody".to_owned());
                let error = anyhow::anyhow!("dirkeeper reclaim on {other} is at work");
                let remedy = "wait for its end; a 'reclaim run' does all of it by itself";
                Err(Failure::new(Exit::FAILED, error).remedy(remedy))
            }
        }
    }

    pub(super) fn acting<'a>(
        &'a self,
        cluster: &'a Cluster,
        state: &'a State,
        rules: &'a Rules,
        is_leader: &'a (dyn Fn() -> bool + Send + Sync),
    ) -> Acting<'a> {
        Acting {
            state,
            ledgers: &cluster.ledgers,
            pulsars: &cluster.pulsars,
            clock: &cluster.clock,
            rules,
            is_leader,
            entries: cluster.entries(),
            failpoints: &self.failpoints,
        }
    }

    /// Still, and for certain; a dry run needs no lock.
    pub(super) fn holds(&self) -> bool {
        self.leader.as_ref().is_none_or(Leader::is_leader)
    }

    /// Makes room for the next one.
    pub(super) async fn resign(self) {
        if let Some(leader) = self.leader {
            leader.resign().await;
        }
    }
}

/// Where our nodes are.
pub(super) fn root(cluster: &Cluster) -> &str {
    let zookeeper = cluster.config.zookeeper.as_ref();
    zookeeper.map_or(ROOT, |zookeeper| zookeeper.root.as_str())
}

/// Looks at the cluster, and says where its lock is.
pub(super) async fn lock_path(cluster: &Cluster, state: &State) -> Result<String, Failure> {
    let root = root(cluster);
    let ready = preflight(state, &cluster.ledgers, root, &cluster.clock).await;
    let ready = ready.map_err(of_preflight)?;
    Ok(format!("{root}/{}/reclaim/leader", ready.instance))
}

/// The last complete scan, of the clusters that are named now.
pub(super) fn last_scan(cluster: &Cluster, state: &State) -> Result<LastScan, Failure> {
    let Some(info) = state.last_scan().map_err(of_state)? else {
        let error = anyhow::anyhow!("there is no complete scan to go by");
        return Err(Failure::new(Exit::FAILED, error).remedy("run 'dirkeeper reclaim scan' first"));
    };
    let named: Vec<&str> = cluster
        .pulsars
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    if info.clusters != named {
        let (then, now) = (info.clusters.join(", "), named.join(", "));
        let error = anyhow::anyhow!("the last scan read {then}, and now {now} is named");
        let remedy = "name the same Pulsar clusters in the same order, or scan again";
        return Err(Failure::new(Exit::Config, error).remedy(remedy));
    }
    LastScan::read(state).map_err(of_state)
}

/// How much evidence it takes, by configuration and command line.
pub(super) fn rules(config: &ReclaimConfig, choice: &ChoiceArguments) -> Rules {
    let millis = |time: Duration| Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX);
    let usual = Rules::default();
    let grace = choice.grace.or(config.grace).map(millis);
    Rules {
        min_age: millis(config.min_age),
        min_scans: config.absence.0,
        min_span: millis(config.absence.1),
        gone_scans: config.gone.0,
        gone_span: millis(config.gone.1),
        grace_let_go: grace.unwrap_or(usual.grace_let_go),
        grace_owner_gone: grace.unwrap_or(usual.grace_owner_gone),
        grace_unwitnessed: grace.unwrap_or(usual.grace_unwitnessed),
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

fn of_store(what: &str, error: StoreError) -> Failure {
    let exit = exit_of(&error);
    Failure::new(
        exit,
        anyhow::Error::new(error).context(format!("cannot take {what}")),
    )
}

fn of_preflight(error: PreflightError) -> Failure {
    Failure::new(of_looking(&error), error)
}

/// The code of what keeps one from acting.
pub(super) fn of_looking(error: &PreflightError) -> Exit {
    match error {
        PreflightError::Store { source, .. } | PreflightError::NoWrites { source } => {
            exit_of(source)
        }
        PreflightError::NoAuth { .. } => Exit::NotPermitted,
        PreflightError::Layout(_)
        | PreflightError::NoInstance { .. }
        | PreflightError::OtherCluster { .. } => Exit::Config,
        PreflightError::Clocks { .. } => Exit::FAILED,
        PreflightError::State(_) => Exit::Io,
    }
}

/// Why marking or sweeping ended early.
pub(super) fn of_stop(stop: Stop) -> Failure {
    let exit = match &stop {
        Stop::State(_) => Exit::Io,
        Stop::Store { source, .. } | Stop::Unanswered { source, .. } => exit_of(source),
        Stop::Layout(_) | Stop::Instance { .. } => Exit::Config,
        Stop::NotLeader
        | Stop::Future { .. }
        | Stop::Old { .. }
        | Stop::Vanished { .. }
        | Stop::Enough { .. }
        | Stop::Missing { .. }
        | Stop::Ours { .. }
        | Stop::StillThere { .. } => Exit::FAILED,
    };
    Failure::new(exit, stop)
}
