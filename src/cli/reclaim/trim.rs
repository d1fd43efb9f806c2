//! `reclaim trim`: one pass of the full-scan trim, as a table of what was done with each topic.

use std::io::Read;
use std::path::Path;

use tokio::sync::watch;

use super::args::{BrokerArguments, PartArguments, RunArguments, TrimArguments};
use super::cluster::Cluster;
use super::form::{Cell, Column, Table};
use super::mark::office;
use super::office::{Office, exit_of};
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::cluster::broker::{BrokerError, BrokerOptions, Brokers};
use crate::document::shown;
use crate::health::words::bytes_text;
use crate::http_client::{Authorities, Url};
use crate::reclaim::plan::trim::Gain;
use crate::reclaim::state::State;
use crate::reclaim::trim::{
    Done, TopicTrim, TrimCluster, TrimError, TrimOptions, TrimPass, TrimProgress, trim,
};

/// Rows that people are shown.
const MOST: usize = 50;

/// Tokens and certificates are far below it.
const LARGEST: u64 = 1 << 20;

/// `reclaim trim`: 1 if it ended early.
pub(super) fn run(arguments: &TrimArguments) -> Result<Exit, Failure> {
    let _log = super::log();
    block_on::<_, Failure>(async {
        let cluster = Cluster::open(&arguments.cluster).await?;
        if 1 < cluster.pulsars.len() {
            let error =
                anyhow::anyhow!("several Pulsar clusters are named, and brokers are of one");
            let remedy = "name the one whose brokers these are with --pulsar-metadata";
            return Err(Failure::new(Exit::Usage, error).remedy(remedy));
        }
        let state = cluster.state()?;
        let office = office(&cluster, &state, arguments.execute).await?;
        let pass = pass(
            &cluster,
            &state,
            &office,
            &arguments.broker,
            &arguments.part,
        )
        .await;
        office.resign().await;
        let pass = pass?;
        table(&pass, arguments.execute).print(arguments.output, cluster.now())?;
        Ok(if pass.stopped.is_some() {
            Exit::FAILED
        } else {
            Exit::Ok
        })
    })
}

/// A trim of `reclaim run`: how many topics a broker was asked to trim.
pub(super) async fn trim_once(
    cluster: &Cluster,
    state: &State,
    office: &Office,
    arguments: &RunArguments,
) -> Result<u64, Failure> {
    let pass = pass(cluster, state, office, &arguments.broker, &arguments.part).await?;
    let visited = pass.results.iter();
    let visited = visited
        .filter(|topic| matches!(topic.done, Done::Visited(_)))
        .count() as u64;
    tracing::info!(
        executed = arguments.execute,
        topics = pass.counts.topics,
        candidates = pass.results.len(),
        visited,
        bytes = pass.counts.gained,
        "trimmed"
    );
    match pass.stopped {
        None => Ok(visited),
        Some(why) => Err(Failure::new(
            Exit::FAILED,
            anyhow::anyhow!("the trim ended early: {why}"),
        )),
    }
}

async fn pass(
    cluster: &Cluster,
    state: &State,
    office: &Office,
    broker: &BrokerArguments,
    part: &PartArguments,
) -> Result<TrimPass, Failure> {
    let brokers = brokers(cluster, broker)?;
    // Several clusters only in `run`, whose brokers are those of the first.
    let Some(pulsar) = cluster.pulsars.first().cloned() else {
        let error = anyhow::anyhow!("no Pulsar cluster is named");
        return Err(Failure::new(Exit::Usage, error));
    };
    let trimmed = TrimCluster {
        ledgers: cluster.ledgers.clone(),
        bare: cluster.bare().await?,
        entries: cluster.entries(),
        pulsar,
    };
    let options = TrimOptions {
        namespaces: part.namespaces.clone(),
        topics: part.topics.clone(),
        ..TrimOptions::default()
    };
    let (progress, _) = watch::channel(TrimProgress::default());
    let leader = office.leader.as_ref();
    let pass = trim(
        state,
        &trimmed,
        &brokers,
        leader,
        &cluster.clock,
        &options,
        &progress,
    )
    .await;
    pass.map_err(of_trim)
}

fn brokers(cluster: &Cluster, arguments: &BrokerArguments) -> Result<Brokers, Failure> {
    let configured = cluster.config.broker_url.as_deref();
    let configured = configured.and_then(|url| Url::parse(url).ok());
    let Some(url) = arguments.broker_url.clone().or(configured) else {
        let error = anyhow::anyhow!("it is not said where a broker is");
        let remedy = "name one with --broker-url, or set reclaim.broker_url";
        return Err(Failure::new(Exit::Usage, error).remedy(remedy));
    };
    let file = arguments.broker_token_file.as_ref();
    let file = file.or(cluster.config.broker_token_file.as_ref());
    let authorities = match (&arguments.broker_ca_file, url.scheme()) {
        (Some(file), _) => Some(Authorities::of_pem(&bytes(file)?)),
        (None, "https") => Some(Authorities::of_system()),
        (None, _) => None,
    };
    let authorities = authorities.transpose();
    let brokers = Brokers::new(BrokerOptions {
        urls: vec![url],
        cluster: arguments.broker_cluster.clone(),
        token: file.map(|file| token(file)).transpose()?,
        authorities: authorities.map_err(|error| Failure::new(Exit::Config, error))?,
    });
    brokers.map_err(|error| Failure::new(Exit::Usage, error))
}

fn token(file: &Path) -> Result<String, Failure> {
    match String::from_utf8(bytes(file)?) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        _ => {
            let error = anyhow::anyhow!("{} holds no token", shown(file));
            Err(Failure::new(Exit::Config, error))
        }
    }
}

fn bytes(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(file).and_then(|open| open.take(LARGEST).read_to_end(&mut bytes));
    read.map_err(|error| Failure::io(format!("cannot read {}", shown(file)), error))?;
    Ok(bytes)
}

fn of_trim(error: TrimError) -> Failure {
    let exit = match &error {
        TrimError::Store { source, .. } => exit_of(source),
        TrimError::Layout(_) => Exit::Config,
        TrimError::TooDeep { .. } => Exit::Data,
        TrimError::Loaded(source) => of_broker(source),
        TrimError::State(_) => Exit::Io,
    };
    Failure::new(exit, error)
}

fn of_broker(error: &BrokerError) -> Exit {
    match error {
        BrokerError::Address { .. } => Exit::Usage,
        BrokerError::Unauthorized { .. } | BrokerError::Forbidden { .. } => Exit::NotPermitted,
        BrokerError::Clusters(_) => Exit::Usage,
        _ => Exit::Unavailable,
    }
}

fn table(pass: &TrimPass, execute: bool) -> Table {
    let column = |key, heading| Column { key, heading };
    let gained = bytes_text(pass.counts.gained);
    let mut after = vec![format!(
        "{} topics, {} candidates; {gained} less in the lists of the topics, of one copy",
        pass.counts.topics,
        pass.results.len()
    )];
    for (why, count) in &pass.skipped {
        after.push(format!("{count} need no visit: {why}"));
    }
    for path in &pass.unreadable {
        after.push(format!("{path} cannot be understood, and is left alone"));
    }
    if pass.left_out != 0 {
        after.push(format!("{} more are for a later pass", pass.left_out));
    }
    if let Some(why) = &pass.stopped {
        after.push(format!("it ended early: {why}"));
    }
    if !execute {
        after.push("nothing was done: --execute does it".to_owned());
    }
    Table {
        about: vec![
            ("executed", execute.into()),
            ("began", Cell::Time(pass.began)),
            ("ended", Cell::Time(pass.ended)),
            ("topics", pass.counts.topics.into()),
            ("gained", Cell::Bytes(pass.counts.gained)),
        ],
        columns: vec![
            column("topic", "TOPIC"),
            column("expectedBytes", "EXPECTED"),
            column("gainedBytes", "GAINED"),
            column("ledgers", "LEDGERS"),
            column("done", "DONE"),
            column("why", "WHY"),
        ],
        rows: pass.results.iter().map(row).collect(),
        most: MOST,
        after,
        ..Table::default()
    }
}

fn row(topic: &TopicTrim) -> Vec<Cell> {
    let expected = |gain: &Gain| Cell::Bytes(gain.bytes);
    vec![
        topic.topic.as_str().into(),
        topic.found.as_ref().map_or(Cell::Nothing, expected),
        Cell::Bytes(topic.gained),
        topic.ledgers.into(),
        topic.done.as_str().into(),
        topic.obstacle.as_deref().map_or(Cell::Nothing, Cell::from),
    ]
}
