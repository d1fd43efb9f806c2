//! What a command needs before it may act: the cluster looked at, the lock of reclaim held, and a complete scan
//! to go by. A dry run takes no lock and writes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::args::ChoiceArguments;
use super::cluster::{Cluster, exit_of_state, of_state};
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
use crate::reclaim::scan::{KnownClusters, PulsarId, ScanError, identity};
use crate::reclaim::state::State;

/// How long the lock is waited for: the lock of a command that was killed stands until its session of 10 s has ended; one
/// that works goes on for hours.
const LOCK: Duration = Duration::from_secs(15);

/// Where locks are kept unless the configuration says otherwise.
pub(super) const ROOT: &str = "/dirkeeper";

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
                let leader = leader.map_err(|error| {
                    of_store("cannot take the lock of reclaim".to_owned(), error)
                })?;
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
pub(super) async fn last_scan(cluster: &Cluster, state: &State) -> Result<LastScan, Failure> {
    if state.last_scan().map_err(of_state)?.is_none() {
        let error = anyhow::anyhow!("there is no complete scan to go by");
        return Err(Failure::new(Exit::FAILED, error).remedy("run 'dirkeeper reclaim scan' first"));
    }
    let mut now = Vec::new();
    for pulsar in &cluster.pulsars {
        let read = identity(pulsar).await;
        let one = read.map_err(|error| of_store(format!("cannot read {}", pulsar.name), error))?;
        // One that is not there is not the one that was.
        now.push(one.unwrap_or_else(|| PulsarId {
            key: String::new(),
            name: pulsar.name.clone(),
        }));
    }
    let known = state.clusters().map_err(of_state)?;
    same_clusters(&known, &now)?;
    for (pulsar, (then, now)) in cluster.pulsars.iter().zip(known.read.iter().zip(&now)) {
        let live = then.is_live_as(now, pulsar).await;
        if !live.map_err(|error| of_store(format!("cannot read {}", now.name), error))? {
            let error = ScanError::Copy {
                cluster: now.name.clone(),
                before: then.name.clone(),
            };
            return Err(Failure::new(Exit::Config, error));
        }
    }
    LastScan::read(state).map_err(of_state)
}

/// The last scan read all that is known, which is what is named now.
fn same_clusters(known: &KnownClusters, now: &[PulsarId]) -> Result<(), Failure> {
    let names = |ids: &[PulsarId]| {
        let names: Vec<&str> = ids.iter().map(|one| one.name.as_str()).collect();
        names.join(", ")
    };
    if !known.left_out.is_empty() {
        let left_out = names(&known.left_out);
        let error =
            anyhow::anyhow!("the last scan did not read {left_out}, which earlier ones read");
        let remedy = "scan with all Pulsar clusters named, or say with 'scan --pulsar-gone' which is no more";
        return Err(Failure::new(Exit::Config, error).remedy(remedy));
    }
    let are_same = known.read.len() == now.len()
        && (known.read.iter().zip(now)).all(|(then, now)| then.is(now));
    if are_same {
        return Ok(());
    }
    let (then, now) = (names(&known.read), names(now));
    let error = match then == now {
        true => anyhow::anyhow!("what is at {now} was made anew since the last scan read it"),
        false => anyhow::anyhow!("the last scan read {then}, and now {now} is named"),
    };
    let remedy = "name the same Pulsar clusters in the same order, or scan again";
    Err(Failure::new(Exit::Config, error).remedy(remedy))
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

pub(super) fn of_store(what: String, error: StoreError) -> Failure {
    let exit = exit_of(&error);
    Failure::new(exit, anyhow::Error::new(error).context(what))
}

fn of_preflight(error: PreflightError) -> Failure {
    Failure::new(of_looking(&error), error)
}

/// The code of what keeps one from acting.
pub(super) fn of_looking(error: &PreflightError) -> Exit {
    match error {
        PreflightError::Store { source, .. } => exit_of(source),
        PreflightError::NoWrites { .. } => Exit::Unavailable,
        PreflightError::NoAuth { .. } => Exit::NotPermitted,
        PreflightError::Layout(_)
        | PreflightError::NoInstance { .. }
        | PreflightError::OtherCluster { .. } => Exit::Config,
        PreflightError::Clocks { .. } => Exit::FAILED,
        PreflightError::State(error) => exit_of_state(error),
    }
}

/// Why marking or sweeping ended early.
pub(super) fn of_stop(stop: Stop) -> Failure {
    let exit = match &stop {
        Stop::State(error) => exit_of_state(error),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::state::StateError;

    fn ids(words: &[&str]) -> Vec<PulsarId> {
        let one = |word: &&str| {
            let (key, name) = word.split_once(' ').unwrap();
            PulsarId {
                key: key.to_owned(),
                name: name.to_owned(),
            }
        };
        words.iter().map(one).collect()
    }

    #[test]
    fn what_is_named_is_what_was_scanned() {
        let known = |left_out: &[&str]| KnownClusters {
            read: ids(&["1-1 zk://a:1=", "2-2 zk://b:1="]),
            left_out: ids(left_out),
        };
        let told = |known: &KnownClusters, now: &[&str]| match same_clusters(known, &ids(now)) {
            Ok(()) => "taken".to_owned(),
            Err(failure) => format!("{} {}", failure.exit.code(), failure.error),
        };
        let (all, part) = (known(&[]), known(&["3-3 zk://c:1="]));
        let same = ["1-1 zk://a:1=", "2-2 zk://b:1="];
        let lines = [
            told(&all, &same),
            // By another name.
            told(&all, &["1-1 zk://x:1=", "2-2 zk://b:1="]),
            told(&all, &["2-2 zk://b:1=", "1-1 zk://a:1="]),
            told(&all, &same[..1]),
            told(&all, &["1-1 zk://a:1=", "9-9 zk://b:1="]),
            told(&part, &same),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r"
        taken
        taken
        78 the last scan read zk://a:1=, zk://b:1=, and now zk://b:1=, zk://a:1= is named
        78 the last scan read zk://a:1=, zk://b:1=, and now zk://a:1= is named
        78 what is at zk://a:1=, zk://b:1= was made anew since the last scan read it
        78 the last scan did not read zk://c:1=, which earlier ones read
        ");
    }

    #[test]
    fn a_damaged_file_is_bad_data_whoever_comes_upon_it() {
        let damaged = || StateError::Damaged {
            path: "reclaim.redb".into(),
            what: "a mark".to_owned(),
        };
        let all = [
            of_state(damaged()).exit,
            of_stop(Stop::State(damaged())).exit,
            of_preflight(PreflightError::State(damaged())).exit,
        ];
        assert_eq!(all.map(Exit::code), [65; 3]);
    }

    #[test]
    fn a_zookeeper_that_takes_no_writes_is_not_available() {
        let source = StoreError::Other("NotReadOnly".to_owned());
        let failure = of_preflight(PreflightError::NoWrites { source });
        assert_eq!(failure.exit.code(), 69);
    }
}
