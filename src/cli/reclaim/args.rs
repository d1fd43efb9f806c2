//! The command line of `reclaim`. Values are parsed here into types that cannot hold nonsense; nothing here
//! opens a file or a socket.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::help;
use crate::cli::textfile;
use crate::config::{PulsarMetadata, is_zookeeper};
use crate::http_client::Url;
use crate::reclaim::plan::class::Class;
use crate::reclaim::scan::Part;

/// `reclaim`.
#[derive(Debug, Subcommand)]
pub enum ReclaimCommand {
    /// Read which ledgers there are and who names them, and say what each is
    #[command(long_about = help::SCAN, after_long_help = help::SCAN_END)]
    Scan(ScanArguments),
    /// Show what the last scan found, without a request to anybody
    #[command(long_about = help::REPORT, after_long_help = help::REPORT_END)]
    Report(ReportArguments),
    /// First phase: mark what may be deleted once its grace has passed
    #[command(long_about = help::MARK, after_long_help = help::MARK_END)]
    Mark(MarkArguments),
    /// Second phase: look at each mark once more, and delete
    #[command(long_about = help::SWEEP, after_long_help = help::SWEEP_END)]
    Sweep(SweepArguments),
    /// Bring deleted ledgers back, as far as the bookies still have them
    #[command(long_about = help::UNDO, after_long_help = help::UNDO_END)]
    Undo(UndoArguments),
    /// Let the brokers trim topics that nobody has loaded
    #[command(long_about = help::TRIM, after_long_help = help::TRIM_END)]
    Trim(TrimArguments),
    /// Do all of it again and again: scan, mark, sweep, trim
    #[command(long_about = help::RUN, after_long_help = help::RUN_END)]
    Run(RunArguments),
}

/// Which cluster, and where what is known of it is kept. Shared by all that read it, as their last
/// field, because the heading goes on to the arguments after it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which cluster")]
pub struct ClusterArguments {
    /// Where the ledgers' metadata is, as BookKeeper names it
    ///
    /// For example zk+hierarchical://zk1:2181;zk2:2181/ledgers. Default: the section zookeeper of the configuration, else what
    /// the bookie's file says.
    #[arg(long, value_name = "URI", value_parser = parse_metadata_service)]
    pub metadata_service_uri: Option<String>,
    /// A Pulsar cluster on these bookies: its ZooKeeper, and the node above managed-ledgers; to be repeated for each
    ///
    /// Like zk://zk1:2181=/pulsar-a. Given at least once, the list counts as complete. Without it the ledgers'
    /// own ZooKeeper is searched from its top, and what needs all clusters to be known is never marked.
    #[arg(long, value_name = "URI=ROOT", value_parser = parse_pulsar)]
    pub pulsar_metadata: Vec<String>,
    /// Requests in a second to each ZooKeeper, every step of a transaction counted
    ///
    /// Default: what the configuration says, else 200.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_requests_per_second: Option<u32>,
    /// The bookie's own configuration file; of it only where the metadata is counts
    #[arg(long, value_name = "FILE")]
    pub bookie_conf: Option<PathBuf>,
    /// Where it is kept.
    #[command(flatten)]
    pub state: StateArguments,
}

/// Where what is known is kept.
#[derive(Debug, Clone, Default, Args)]
pub struct StateArguments {
    /// Configuration file; its sections zookeeper and reclaim count
    ///
    /// Default: /etc/dirkeeper/dirkeeper.toml, if it is there and --bookie-conf is not given.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where scans, marks and the archive are kept; one for each cluster
    ///
    /// Default: what the configuration says; without one $XDG_STATE_HOME/dirkeeper or ~/.local/state/dirkeeper.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// A part of the topics, to try on a part first.
#[derive(Debug, Clone, Default, Args)]
pub struct PartArguments {
    /// Only ledgers of topics of this namespace; may be repeated
    #[arg(long = "namespace", value_name = "TENANT/NAMESPACE", value_parser = parse_namespace)]
    pub namespaces: Vec<String>,
    /// Only ledgers of this topic; may be repeated
    #[arg(long = "topic", value_name = "TOPIC", value_parser = parse_topic)]
    pub topics: Vec<String>,
}

impl PartArguments {
    /// The part; none for everything.
    #[must_use]
    pub fn part(&self) -> Option<Part> {
        let all = self.namespaces.is_empty() && self.topics.is_empty();
        (!all).then(|| Part::new(self.namespaces.clone(), self.topics.clone()))
    }
}

/// `reclaim scan`.
#[derive(Debug, Args)]
pub struct ScanArguments {
    /// Read this snapshot file of ZooKeeper instead of asking it
    ///
    /// The live servers get no request at all. What is found so is a suspicion: mark and sweep ask the live servers.
    #[arg(long, value_name = "FILE", conflicts_with = "max_requests_per_second")]
    pub snapshot: Option<PathBuf>,
    /// A Pulsar cluster that earlier scans read and that is no more; may be repeated
    ///
    /// Written like --pulsar-metadata. What is remembered of it is forgotten. If it is there after all, its ledgers will look as if
    /// nobody named them.
    #[arg(long, value_name = "URI=ROOT", value_parser = parse_gone)]
    pub pulsar_gone: Vec<String>,
    /// What is shown; everything is read all the same.
    #[command(flatten)]
    pub part: PartArguments,
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Form,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// `reclaim report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// A line for each of these
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub by: By,
    /// Only these classes, separated by commas; see docs/reclaim.md
    #[arg(long = "class", value_name = "CLASS", value_delimiter = ',', value_parser = parse_class)]
    pub classes: Vec<Class>,
    /// The so many with the most bytes, deletable ones first; 0 for all
    ///
    /// Default: 20 for people, all for programs.
    #[arg(long, value_name = "N", value_parser = parse_top)]
    pub top: Option<usize>,
    /// What was deleted, when and on what evidence, oldest first
    #[arg(long, conflicts_with_all = ["by", "classes", "top", "marks", "namespaces", "topics"])]
    pub deletions: bool,
    /// What is marked, and when it may be deleted
    #[arg(long, conflicts_with_all = ["by", "classes", "top", "namespaces", "topics"])]
    pub marks: bool,
    /// Of which topics.
    #[command(flatten)]
    pub part: PartArguments,
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Form,
    /// Where the last scan is.
    #[command(flatten)]
    pub state: StateArguments,
}

/// `reclaim mark`.
#[derive(Debug, Args)]
pub struct MarkArguments {
    /// Which classes, and how long.
    #[command(flatten)]
    pub choice: ChoiceArguments,
    /// File with the numbers of ledgers of r4 that somebody has looked at: one a line, or 'report --by ledger --output csv'
    #[arg(long, value_name = "FILE")]
    pub confirmed: Option<PathBuf>,
    /// Also where so many owners of ledgers are gone that it looks like lost metadata; they were deleted on purpose
    #[arg(long)]
    pub allow_vanished: bool,
    /// Do it; without this it is only said
    #[arg(long)]
    pub execute: bool,
    /// Of which topics.
    #[command(flatten)]
    pub part: PartArguments,
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Form,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// What may be marked.
#[derive(Debug, Clone, Default, Args)]
pub struct ChoiceArguments {
    /// Classes that may be marked: r1, r2, r3, r4, r5, separated by commas
    ///
    /// Default: what the configuration says, else r1,r2,r5. r3 and r4 rest on absence alone.
    #[arg(long = "class", value_name = "CLASS", value_delimiter = ',', value_parser = parse_deletable)]
    pub classes: Vec<Class>,
    /// How long a mark stands before its ledger may be deleted
    ///
    /// Default: what the configuration says, else 1h for r1 and r5, 1d for r2, r3 and r4.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub grace: Option<Duration>,
}

/// `reclaim sweep`.
#[derive(Debug, Args)]
pub struct SweepArguments {
    /// How much.
    #[command(flatten)]
    pub limits: LimitArguments,
    /// Also where so many owners of ledgers are gone that it looks like lost metadata; they were deleted on purpose
    #[arg(long)]
    pub allow_vanished: bool,
    /// Also where an owner names a ledger that does not exist; the reason goes into the log of deletions
    #[arg(long, value_name = "REASON", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub allow_missing: Option<String>,
    /// Do it; without this it is only said
    #[arg(long)]
    pub execute: bool,
    /// Of which topics.
    #[command(flatten)]
    pub part: PartArguments,
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Form,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// How much may be deleted.
#[derive(Debug, Clone, Default, Args)]
pub struct LimitArguments {
    /// Delete at most so many
    ///
    /// Default: what the configuration says, else 1000, or a twentieth of all ledgers if that is less.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_deletes: Option<u32>,
    /// Delete also ledgers whose owner is in another ZooKeeper, where no transaction can check it
    #[arg(long)]
    pub allow_unchecked: bool,
}

/// `reclaim undo`.
#[derive(Debug, Args)]
pub struct UndoArguments {
    /// Numbers of ledgers that were deleted by us
    #[arg(value_name = "LEDGER_ID", required = true, value_parser = parse_ledger)]
    pub ids: Vec<u64>,
    /// Do it; without this it is only said
    #[arg(long)]
    pub execute: bool,
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Form,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// `reclaim trim`.
#[derive(Debug, Args)]
pub struct TrimArguments {
    /// Who trims.
    #[command(flatten)]
    pub broker: BrokerArguments,
    /// Do it; without this it is only said
    #[arg(long)]
    pub execute: bool,
    /// Of which topics.
    #[command(flatten)]
    pub part: PartArguments,
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Form,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// The brokers.
#[derive(Debug, Clone, Default, Args)]
pub struct BrokerArguments {
    /// A broker's admin address; others are found by its redirects
    ///
    /// Default: what the configuration says.
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub broker_url: Option<Url>,
    /// File with the token for the brokers
    #[arg(long, value_name = "FILE")]
    pub broker_token_file: Option<PathBuf>,
    /// File with the authorities (PEM) for the brokers' certificates
    ///
    /// Default: those that this machine trusts.
    #[arg(long, value_name = "FILE")]
    pub broker_ca_file: Option<PathBuf>,
    /// The brokers' cluster, where they know several
    #[arg(long, value_name = "NAME")]
    pub broker_cluster: Option<String>,
}

/// `reclaim run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Time between two passes
    ///
    /// Default: what the configuration says, else 6h.
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub interval: Option<Duration>,
    /// Time between two full-scan trims; 0 for none
    ///
    /// Default: full_scan_trim_ledger_interval of the configuration, else none.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub trim_interval: Option<Duration>,
    /// End after one pass
    #[arg(long)]
    pub once: bool,
    /// What may be marked.
    #[command(flatten)]
    pub choice: ChoiceArguments,
    /// How much may be deleted.
    #[command(flatten)]
    pub limits: LimitArguments,
    /// Who trims.
    #[command(flatten)]
    pub broker: BrokerArguments,
    /// Mark, delete and trim; without this it is only said what would be
    #[arg(long)]
    pub execute: bool,
    /// Write metrics for node_exporter's textfile collector there; its name has to end with .prom
    #[arg(long, value_name = "FILE", value_parser = textfile::parse)]
    pub textfile: Option<PathBuf>,
    /// Of which topics.
    #[command(flatten)]
    pub part: PartArguments,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// Form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Form {
    /// A table for people
    #[default]
    Human,
    /// One JSON document
    Json,
    /// The rows of the table, with a heading, as RFC 4180 has it
    Csv,
}

/// What a line of the report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum By {
    /// What is known about who references them
    #[default]
    Class,
    /// The namespace of the owner
    Namespace,
    /// The tenant of the owner
    Tenant,
    /// The topic, cursor or schema
    Owner,
    /// Each ledger by itself
    Ledger,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Bad {
    #[error("write it like zk+hierarchical://zk1:2181;zk2:2181/ledgers")]
    Metadata,
    #[error("{0}")]
    Pulsar(String),
    #[error("write TENANT/NAMESPACE, or TENANT/CLUSTER/NAMESPACE for one of version 1")]
    Namespace,
    #[error(
        "write persistent://TENANT/NAMESPACE/TOPIC, or with a cluster before the namespace for a name of version 1"
    )]
    Topic,
    #[error("the classes are r0 to r8, see docs/reclaim.md")]
    Class,
    #[error("{0} is never deleted; write some of r1, r2, r3, r4, r5")]
    Kept(Class),
    #[error(
        "write the number of a ledger, for example 4711; 'reclaim report --deletions' names those that were deleted"
    )]
    Ledger,
    #[error("write how many lines, for example 10, or 0 for all")]
    Top,
    #[error("write a number with a unit, for example 6h or 30m")]
    Time,
    #[error("that is no time at all; write for example 6h")]
    NoTime,
    #[error("write http://HOST:PORT, for example http://broker:8080")]
    Url,
}

/// What is no ZooKeeper is said later, in one sentence with the exit code of a configuration that cannot be used.
fn parse_metadata_service(value: &str) -> Result<String, Bad> {
    let of_zookeeper = ["zk:", "zk+", "metadata-store:zk:"];
    let of_others = ["metadata-store:", "etcd:", "oxia:", "rocksdb:", "memory:"];
    let begins = |starts: &[&str]| starts.iter().any(|start| value.starts_with(start));
    let is_other = begins(&of_others) || value.contains("://");
    match is_zookeeper(value) || (is_other && !begins(&of_zookeeper)) {
        true => Ok(value.to_owned()),
        false => Err(Bad::Metadata),
    }
}

fn parse_pulsar(value: &str) -> Result<String, Bad> {
    match PulsarMetadata::parse(value) {
        Ok(_) => Ok(value.to_owned()),
        Err(why) => Err(Bad::Pulsar(why)),
    }
}

/// As a cluster is called everywhere.
fn parse_gone(value: &str) -> Result<String, Bad> {
    let one = PulsarMetadata::parse(value).map_err(Bad::Pulsar)?;
    Ok(one.name())
}

fn parse_namespace(value: &str) -> Result<String, Bad> {
    let parts: Vec<&str> = value.split('/').collect();
    match (2..=3).contains(&parts.len()) && parts.iter().all(|part| !part.is_empty()) {
        true => Ok(value.to_owned()),
        false => Err(Bad::Namespace),
    }
}

/// As Pulsar's tools name it.
fn parse_topic(value: &str) -> Result<String, Bad> {
    let name = value.strip_prefix("persistent://").unwrap_or(value);
    let parts: Vec<&str> = name.splitn(4, '/').collect();
    // The path of a node is written in another order.
    let is_path = parts.get(2) == Some(&"persistent") && parts.len() == 4;
    let is_name = (3..=4).contains(&parts.len()) && parts.iter().all(|part| !part.is_empty());
    match is_name && !is_path {
        true => Ok(format!("persistent://{name}")),
        false => Err(Bad::Topic),
    }
}

fn parse_class(value: &str) -> Result<Class, Bad> {
    Class::named(&value.trim().to_lowercase()).ok_or(Bad::Class)
}

fn parse_deletable(value: &str) -> Result<Class, Bad> {
    match parse_class(value)? {
        class @ (Class::Referenced | Class::Compacted | Class::Schema | Class::Foreign) => {
            Err(Bad::Kept(class))
        }
        class => Ok(class),
    }
}

fn parse_ledger(value: &str) -> Result<u64, Bad> {
    value.parse().map_err(|_| Bad::Ledger)
}

fn parse_top(value: &str) -> Result<usize, Bad> {
    value.parse().map_err(|_| Bad::Top)
}

fn parse_time(value: &str) -> Result<Duration, Bad> {
    match value {
        "0" => Ok(Duration::ZERO),
        _ => humantime::parse_duration(value).map_err(|_| Bad::Time),
    }
}

fn parse_period(value: &str) -> Result<Duration, Bad> {
    let time = parse_time(value)?;
    match time.is_zero() {
        true => Err(Bad::NoTime),
        false => Ok(time),
    }
}

fn parse_url(value: &str) -> Result<Url, Bad> {
    let url = Url::parse(value).map_err(|_| Bad::Url)?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err(Bad::Url),
    }
}
