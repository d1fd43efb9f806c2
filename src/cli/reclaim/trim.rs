//! `reclaim trim`: one pass of the full-scan trim, as a table of what was done with each topic.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::args::{BrokerArguments, PartArguments, RunArguments, TrimArguments};
use super::cluster::{Cluster, of_state};
use super::form::{Cell, Column, Table};
use super::mark::office;
use super::office::{Office, exit_of};
use super::passes::trim_interval;
use super::progress::{Watcher, trim_line};
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::cluster::broker::{BrokerError, BrokerOptions, Brokers};
use crate::document::shown;
use crate::health::words::bytes_text;
use crate::http_client::{Authorities, Url};
use crate::reclaim::plan::Millis;
use crate::reclaim::scan::Pulsar;
use crate::reclaim::state::State;
use crate::reclaim::trim::{
    self, TopicTrim, TrimCluster, TrimError, TrimOptions, TrimPass, TrimProgress,
};
use crate::report;

/// Rows that people are shown.
const MOST: usize = 50;

/// Tokens and certificates are far below it.
const LARGEST: u64 = 1 << 20;

/// How long what is loaded because of us is waited for when a signal has ended a pass: a broker unloads in a second or
/// two, and who waits for us to end kills us sooner or later.
const UNLOADING: Duration = Duration::from_secs(20);

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
        // Before anybody has to wait for the lock.
        let brokers = brokers(&cluster, &arguments.broker)?;
        let state = cluster.state()?;
        let office = office(&cluster, &state, arguments.execute).await?;
        let mut watcher = Watcher::new(cluster.clock.clone())?;
        let options = options(&arguments.part, None);
        let trim = Trim {
            cluster: &cluster,
            state: &state,
            office: &office,
            brokers: &brokers,
            options: &options,
        };
        let pass = trim.pass(&mut watcher).await;
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
    watcher: &mut Watcher,
) -> Result<u64, Failure> {
    let brokers = brokers(cluster, &arguments.broker)?;
    let options = options(&arguments.part, trim_interval(cluster, arguments));
    let trim = Trim {
        cluster,
        state,
        office,
        brokers: &brokers,
        options: &options,
    };
    let pass = trim.pass(watcher).await?;
    let counts = &pass.counts;
    tracing::info!(
        executed = arguments.execute,
        resumed = pass.resumed,
        topics = counts.topics,
        candidates = counts.candidates,
        visited = counts.visited,
        ledgers = counts.ledgers,
        bytes = counts.gained,
        slowed = pass.slowed.as_deref().unwrap_or("no"),
        "trimmed"
    );
    match pass.stopped {
        None => Ok(counts.visited),
        Some(why) => Err(Failure::new(
            Exit::FAILED,
            anyhow::anyhow!("the trim ended early: {why}"),
        )),
    }
}

/// Whether a pass of `reclaim run` is to trim.
pub(super) fn is_due(
    cluster: &Cluster,
    state: &State,
    arguments: &RunArguments,
    interval: Duration,
) -> Result<bool, Failure> {
    let options = options(&arguments.part, Some(interval));
    let is_due = trim::is_due(
        state,
        pulsar(cluster)?,
        &options,
        millis(interval),
        cluster.now(),
    );
    is_due.map_err(of_state)
}

/// A `reclaim run` that is to trim knows how, before it has scanned for hours.
pub(super) fn check(cluster: &Cluster, arguments: &RunArguments) -> Result<(), Failure> {
    match trim_interval(cluster, arguments) {
        Some(interval) if !interval.is_zero() => brokers(cluster, &arguments.broker).map(drop),
        _ => Ok(()),
    }
}

fn options(part: &PartArguments, interval: Option<Duration>) -> TrimOptions {
    let usual = TrimOptions::default();
    let interval = interval.map_or(0, millis);
    TrimOptions {
        namespaces: part.namespaces.clone(),
        topics: part.topics.clone(),
        resumable_for: usual.resumable_for.max(interval),
        ..usual
    }
}

fn millis(time: Duration) -> Millis {
    Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX)
}

/// Several clusters only in `run`, whose brokers are those of the first.
fn pulsar(cluster: &Cluster) -> Result<&Pulsar, Failure> {
    cluster.pulsars.first().ok_or_else(|| {
        let error = anyhow::anyhow!("no Pulsar cluster is named");
        Failure::new(Exit::Usage, error)
    })
}

/// What a pass takes.
struct Trim<'a> {
    cluster: &'a Cluster,
    state: &'a State,
    office: &'a Office,
    brokers: &'a Brokers,
    options: &'a TrimOptions,
}

impl Trim<'_> {
    async fn pass(&self, watcher: &mut Watcher) -> Result<TrimPass, Failure> {
        let Trim {
            cluster,
            state,
            brokers,
            ..
        } = *self;
        let trimmed = TrimCluster {
            ledgers: cluster.ledgers.clone(),
            bare: cluster.bare().await?,
            entries: cluster.entries(),
            pulsar: pulsar(cluster)?.clone(),
        };
        let (progress, receiver) = watch::channel(TrimProgress::default());
        let (leader, clock) = (self.office.leader.as_ref(), &cluster.clock);
        let began = clock.elapsed();
        let work = trim::trim(
            state,
            &trimmed,
            brokers,
            leader,
            clock,
            self.options,
            &progress,
        );
        let line = |now: Duration| trim_line(&receiver.borrow(), now.saturating_sub(began));
        let followed = watcher.follow(work, line).await;
        if watcher.is_stopped
            && let Some(leader) = leader
        {
            // What is left loaded without a subscription may be deleted by its broker.
            let unload = trim::unload(state, &trimmed, brokers, leader, clock, self.options);
            match timeout(UNLOADING, unload).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!("{}", report::text(&error)),
                Err(_) => tracing::warn!("topics are left loaded: the next trim unloads them"),
            }
        }
        followed?.map_err(of_trim)
    }
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
        TrimError::State(_) => match error {
            TrimError::State(error) => return of_state(error),
            _ => Exit::Io,
        },
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
    let counts = &pass.counts;
    let skipped = pass.skipped.iter();
    let skipped = skipped.map(|(why, count)| ((*why).to_owned(), *count));
    Table {
        about: vec![
            ("executed", execute.into()),
            ("resumed", pass.resumed.into()),
            ("began", Cell::Time(pass.began)),
            ("ended", Cell::Time(pass.ended)),
            ("topics", counts.topics.into()),
            ("candidates", counts.candidates.into()),
            ("visited", counts.visited.into()),
            ("trimmedLedgers", counts.ledgers.into()),
            ("gained", Cell::Bytes(counts.gained)),
            ("skipped", Cell::Counts(skipped.collect())),
            ("unreadable", (pass.unreadable.len() as u64).into()),
            ("slowed", optional(pass.slowed.as_deref())),
            ("stopped", optional(pass.stopped.as_deref())),
        ],
        columns: vec![
            column("topic", "TOPIC"),
            column("expectedBytes", "EXPECTED"),
            column("laterBytes", "LATER"),
            column("reason", "REASON"),
            column("done", "DONE"),
            column("gainedBytes", "GAINED"),
            column("ledgers", "LEDGERS"),
            column("why", "IN THE WAY"),
        ],
        rows: pass.results.iter().map(row).collect(),
        most: MOST,
        after: after(pass, execute),
        ..Table::default()
    }
}

/// The whole of it in words.
fn after(pass: &TrimPass, execute: bool) -> Vec<String> {
    let counts = &pass.counts;
    let gained = bytes_text(counts.gained);
    let mut after = vec![format!(
        "{} topics, {} candidates, {} visited: {} ledgers and {gained} of one copy less in the lists of the topics",
        counts.topics, counts.candidates, counts.visited, counts.ledgers,
    )];
    if pass.resumed {
        after.push(format!(
            "it went on with a pass that was cut off after {} topics",
            counts.before
        ));
    }
    for (why, count) in &pass.skipped {
        after.push(format!("{count} need no visit: {why}"));
    }
    for path in &pass.unreadable {
        after.push(format!("{path} cannot be understood, and is left alone"));
    }
    if pass.left_out != 0 {
        after.push(format!("{} more were dealt with", pass.left_out));
    }
    if let Some(why) = &pass.slowed {
        after.push(format!("it went slower than it was told to: {why}"));
    }
    if let Some(why) = &pass.stopped {
        after.push(format!("it ended early: {why}"));
        if execute {
            after.push("the next one goes on where this one was".to_owned());
        }
    }
    if !execute {
        after.push("nothing was done: --execute does it".to_owned());
    }
    after
}

fn optional(text: Option<&str>) -> Cell {
    text.map_or(Cell::Nothing, Cell::from)
}

fn row(topic: &TopicTrim) -> Vec<Cell> {
    let found = topic.found.as_ref();
    let later = found.and_then(|gain| gain.later);
    vec![
        topic.topic.as_str().into(),
        found.map_or(Cell::Nothing, |gain| Cell::Bytes(gain.bytes)),
        later.map_or(Cell::Nothing, Cell::Bytes),
        optional(found.map(|gain| gain.why.as_str())),
        topic.done.as_str().into(),
        Cell::Bytes(topic.gained),
        topic.ledgers.into(),
        optional(topic.obstacle.as_deref()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::Terminal;
    use crate::cluster::broker::TopicName;
    use crate::reclaim::plan::trim::{Gain, Why};
    use crate::reclaim::trim::Done;

    fn pass(done: Done) -> TrimPass {
        let gain = Gain {
            bytes: 3 << 20,
            ledgers: 3,
            later: Some(1 << 20),
            starts: true,
            why: Why::Age,
            expire: None,
        };
        let mut pass = TrimPass {
            ended: 60_000,
            resumed: true,
            results: vec![TopicTrim {
                topic: TopicName::of_node("shop/orders/persistent/a").unwrap(),
                found: Some(gain),
                done,
                gained: 0,
                ledgers: 0,
                obstacle: None,
            }],
            slowed: Some("brokers answer in 400 ms instead of 10 ms: 2 times slower".to_owned()),
            ..TrimPass::default()
        };
        pass.counts.topics = 12;
        pass.counts.before = 5;
        pass.counts.candidates = 1;
        pass.skipped.insert("it is Pulsar's own", 4);
        pass
    }

    #[test]
    fn people_read_what_would_be_visited_and_why() {
        let table = table(&pass(Done::Found), false);
        insta::assert_snapshot!(table.human(Terminal::NONE, 0), @"
        TOPIC                       EXPECTED    LATER  REASON                DONE              GAINED  LEDGERS  IN THE WAY
        persistent://shop/orders/a   3.0 MiB  1.0 MiB  older than retention  would be visited     0 B        0           -

        12 topics, 1 candidates, 0 visited: 0 ledgers and 0 B of one copy less in the lists of the topics
        it went on with a pass that was cut off after 5 topics
        4 need no visit: it is Pulsar's own
        it went slower than it was told to: brokers answer in 400 ms instead of 10 ms: 2 times slower
        nothing was done: --execute does it
        ");
    }

    #[test]
    fn programs_read_the_counts_too() {
        let table = table(&pass(Done::Refused), true);
        insta::assert_snapshot!(table.json() + &table.csv(), @r#"
        {"began":"1970-01-01T00:00:00.000Z","candidates":1,"ended":"1970-01-01T00:01:00.000Z","executed":true,"gained":0,"resumed":true,"rows":[{"done":"refused by its broker","expectedBytes":3145728,"gainedBytes":0,"laterBytes":1048576,"ledgers":0,"reason":"older than retention","topic":"persistent://shop/orders/a","why":null}],"skipped":{"it is Pulsar's own":4},"slowed":"brokers answer in 400 ms instead of 10 ms: 2 times slower","stopped":null,"topics":12,"trimmedLedgers":0,"unreadable":0,"visited":0}
        topic,expectedBytes,laterBytes,reason,done,gainedBytes,ledgers,why
        persistent://shop/orders/a,3145728,1048576,older than retention,refused by its broker,0,0,
        "#);
    }
}
