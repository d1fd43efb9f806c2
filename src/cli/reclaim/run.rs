//! `reclaim run`: pass after pass of scan, mark, sweep and trim, by one process for a cluster. Between two passes our
//! own file is closed, so that `report` can be asked.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::args::RunArguments;
use super::cluster::Cluster;
use super::mark::{mark_options, mark_with, sweep_options, sweep_with};
use super::office::{Office, last_scan, lock_path, of_stop};
use super::passes::Passes;
use super::progress::Watcher;
use super::scan::scan_once;
use super::trim;
use crate::app;
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::cluster::leader::campaign;
use crate::config::LogLevel;
use crate::reclaim::acting::Stop;
use crate::reclaim::state::State;

/// The longest wait after a pass that failed: what keeps a ZooKeeper from answering is mostly over by then.
const AFTER_FAILURE: Duration = Duration::from_secs(600);

/// How long somebody who reads our own file is waited for, and how often it is looked at: a report takes seconds.
const TRIES: u32 = 60;
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// `reclaim run`: 0 when a signal ended it.
pub(super) fn run(arguments: &RunArguments) -> Result<Exit, Failure> {
    let _log = app::start_log(LogLevel::Info);
    block_on::<_, Failure>(async {
        let mut cluster = Cluster::open(&arguments.cluster).await?;
        trim::check(&cluster, arguments)?;
        if arguments.execute {
            cluster.join(true).await?;
        }
        let mut runner = Runner {
            watcher: Watcher::new(cluster.clock.clone())?,
            passes: Passes::new(arguments),
            arguments,
            cluster: &cluster,
        };
        match runner.all().await {
            Err(End::Stopped) => {
                tracing::info!("stopped by a signal");
                Ok(Exit::Ok)
            }
            Err(End::Failed(failure)) => Err(failure),
            Ok(()) => Ok(Exit::Ok),
        }
    })
}

struct Runner<'a> {
    arguments: &'a RunArguments,
    cluster: &'a Cluster,
    watcher: Watcher,
    passes: Passes,
}

/// Why it does not go on.
enum End {
    Stopped,
    Failed(Failure),
}

impl Runner<'_> {
    async fn all(&mut self) -> Result<(), End> {
        let interval = self
            .arguments
            .interval
            .unwrap_or(self.cluster.config.interval);
        let mode = match self.arguments.execute {
            true => "",
            false => "; nothing is changed without --execute",
        };
        tracing::info!(
            "a pass every {}{mode}",
            humantime::format_duration(interval)
        );
        loop {
            let office = self.lead().await?;
            // Until the lock is lost.
            while office.holds() {
                let began = self.cluster.clock.elapsed();
                let passed = self.pass(&office).await;
                self.passes.publish(self.cluster, office.holds());
                let wait = match passed {
                    Ok(()) => interval,
                    Err(End::Failed(failure)) if self.goes_on(&failure) => {
                        interval.min(AFTER_FAILURE)
                    }
                    Err(end) => return Err(end),
                };
                if self.arguments.once {
                    office.resign().await;
                    return Ok(());
                }
                let spent = self.cluster.clock.elapsed().saturating_sub(began);
                self.rest(&office, wait.saturating_sub(spent)).await?;
            }
            tracing::warn!("the lock of reclaim is lost");
            self.passes.publish(self.cluster, false);
        }
    }

    /// What time may heal is said, and tried again.
    fn goes_on(&mut self, failure: &Failure) -> bool {
        let heals = !matches!(
            failure.exit,
            Exit::Config | Exit::Usage | Exit::NotPermitted
        );
        if heals && !self.arguments.once {
            tracing::error!("the pass failed: {:#}", failure.error);
        }
        heals && !self.arguments.once
    }

    /// Waits for the lock, however long.
    async fn lead(&mut self) -> Result<Office, End> {
        if !self.arguments.execute {
            return Ok(Office::dry());
        }
        let path = {
            let state = self.state().await?;
            let path = lock_path(self.cluster, &state);
            self.watcher.until_stop(path).await?.map_err(End::Failed)?
        };
        let (leads, mut other) = watch::channel(None);
        let store = Arc::clone(&self.cluster.ledgers.store);
        let who = app::host_name();
        let told = async {
            while other.changed().await.is_ok() {
                match &*other.borrow_and_update() {
                    Some(name) => tracing::info!("{name} reclaims"),
                    None => tracing::info!("nobody reclaims, or that is not known"),
                }
            }
            std::future::pending::<()>().await;
        };
        let lead = async {
            tokio::select! {
                leader = campaign(store, &path, &who, &leads) => leader,
                () = told => unreachable!("it never ends"),
            }
        };
        let leader = self.watcher.until_stop(lead).await?;
        let leader = leader.map_err(|error| {
            let exit = super::office::exit_of(&error);
            let error = anyhow::Error::new(error).context("cannot take the lock of reclaim");
            End::Failed(Failure::new(exit, error))
        })?;
        tracing::info!("this process reclaims now");
        Ok(Office::of(leader))
    }

    async fn rest(&mut self, office: &Office, time: Duration) -> Result<(), End> {
        let lost = async {
            match &office.leader {
                Some(leader) => leader.lost().await,
                None => std::future::pending().await,
            }
        };
        let wait = async {
            tokio::select! {
                () = sleep(time) => {}
                () = lost => {}
            }
        };
        self.watcher.until_stop(wait).await
    }

    /// Our own file, when nobody else reads it.
    async fn state(&mut self) -> Result<State, End> {
        let mut tries = 1;
        loop {
            match self.cluster.state() {
                Err(failure) if failure.exit == Exit::Busy && tries < TRIES => {
                    self.watcher.until_stop(sleep(BETWEEN_TRIES)).await?;
                    tries += 1;
                }
                other => return other.map_err(End::Failed),
            }
        }
    }

    /// One pass, and another at once as long as its scan grew old while it deleted.
    async fn pass(&mut self, office: &Office) -> Result<(), End> {
        while self.part_of_pass(office).await? == Passed::ScanIsOld {
            tracing::info!("the scan is a day old by now: scanning again");
        }
        Ok(())
    }

    /// What a step failed at is counted, and ends the pass.
    async fn part_of_pass(&mut self, office: &Office) -> Result<Passed, End> {
        let (arguments, cluster) = (self.arguments, self.cluster);
        let state = self.state().await?;
        if arguments.execute {
            // A clock, or the rights of our user, may have changed since the pass before.
            let looked = lock_path(cluster, &state);
            self.watcher
                .until_stop(looked)
                .await?
                .map_err(End::Failed)?;
        }
        let resumed = self.scan(&state, office).await?;

        let last = last_scan(cluster, &state).await.map_err(End::Failed)?;
        let (choice, execute) = (&arguments.choice, arguments.execute);
        let options = mark_options(&cluster.config, choice, &arguments.part, execute);
        let work = mark_with(cluster, &state, office, choice, &last, &options);
        let marked = self.watcher.until_stop(work).await?;
        let (count, dropped) = (marked.marked.len(), marked.dropped.len());
        tracing::info!(executed = execute, marked = count, dropped, "marked");
        // What rests on owners that are there goes on; that others are gone is said at the end.
        let is_partial = matches!(marked.stopped, Some(Stop::Vanished { .. }));
        let ended = marked.stopped.map_or(Ok(()), |stop| Err(of_stop(stop)));
        let ended = self.passes.step("mark", cluster, ended);
        let (partial, whole) = match is_partial {
            true => (ended, Ok(())),
            false => (Ok(()), ended),
        };
        whole?;

        let options = sweep_options(&cluster.config, &arguments.limits, &arguments.part, execute);
        let work = sweep_with(cluster, &state, office, choice, &last, &options);
        let swept = self.watcher.until_stop(work).await?;
        let (deleted, dropped, kept) = (swept.deleted.len(), swept.dropped.len(), swept.kept.len());
        tracing::info!(
            executed = execute,
            deleted,
            dropped,
            kept,
            bytes = swept.bytes,
            "swept"
        );
        if execute {
            self.passes.deleted(deleted);
        }
        self.passes.take_marks(&state).map_err(End::Failed)?;
        if matches!(swept.stopped, Some(Stop::Old { .. })) && (deleted + dropped != 0 || resumed) {
            return Ok(Passed::ScanIsOld);
        }
        let ended = swept.stopped.map_or(Ok(()), |stop| Err(of_stop(stop)));
        self.passes.step("sweep", cluster, ended)?;
        partial?;

        let is_due = self.passes.trim_is_due(cluster, &state, arguments);
        if is_due.map_err(End::Failed)? {
            let work = trim::trim_once(cluster, &state, office, arguments, &mut self.watcher);
            let trimmed = work.await;
            if self.watcher.is_stopped {
                return Err(End::Stopped);
            }
            let count = self.passes.step("trim", cluster, trimmed)?;
            self.passes.trimmed(count);
        }
        Ok(Passed::All)
    }

    /// Scans; says whether it went on with a scan that was interrupted.
    async fn scan(&mut self, state: &State, office: &Office) -> Result<bool, End> {
        let cluster = self.cluster;
        let part = self.arguments.part.part();
        let scanned = scan_once(cluster, state, part, &[], &mut self.watcher).await;
        if self.watcher.is_stopped {
            return Err(End::Stopped);
        }
        let scanned = self.passes.step("scan", cluster, scanned)?;
        let info = scanned.info;
        tracing::info!(
            ledgers = info.ledgers,
            owners = info.owners,
            requests = info.requests,
            "scanned"
        );
        self.passes.take_scan(state).map_err(End::Failed)?;
        self.passes.publish(cluster, office.holds());
        Ok(scanned.resumed)
    }
}

/// What a pass came to.
#[derive(Debug, PartialEq, Eq)]
enum Passed {
    All,
    /// It ended early, after it had got on.
    ScanIsOld,
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

impl Watcher {
    /// Does the work, unless a signal asks for the end: then it is dropped where it waits, as if the process had
    /// been killed there.
    async fn until_stop<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return Ok(result),
                request = self.signals.next() => if request == crate::shutdown::Request::Stop {
                    return Err(End::Stopped);
                },
            }
        }
    }
}
