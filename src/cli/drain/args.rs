//! The command line of `drain`. Values are parsed here into types that cannot hold nonsense; nothing here opens a file or
//! a socket.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::help;
use crate::cli::textfile;
use crate::cluster::check_bookie;
use crate::config::{is_zookeeper, parse_bytes};
use crate::http_client::Url;

/// `drain`.
#[derive(Debug, Subcommand)]
pub enum DrainCommand {
    /// Say what would move, how long it takes, and what is in the way
    #[command(long_about = help::PLAN, after_long_help = help::PLAN_END)]
    Plan(PlanArguments),
    /// Begin a job: make the bookies read-only and write down what is to be moved
    #[command(long_about = help::START, after_long_help = help::START_END)]
    Start(StartArguments),
    /// Work on a job, here; as many may work on it as wanted
    #[command(long_about = help::RUN, after_long_help = help::RUN_END)]
    Run(RunArguments),
    /// Say what is left, and why
    #[command(long_about = help::STATUS, after_long_help = help::STATUS_END)]
    Status(StatusArguments),
    /// Change the limits of a running job
    #[command(long_about = help::SET, after_long_help = help::SET_END)]
    Set(SetArguments),
    /// Give a job up: what was moved stays moved, and the bookies are writable again
    #[command(long_about = help::CANCEL, after_long_help = help::CANCEL_END)]
    Cancel(CancelArguments),
    /// Read all metadata once more, and say whether the bookies can be stopped
    #[command(long_about = help::FINISH, after_long_help = help::FINISH_END)]
    Finish(FinishArguments),
}

/// Which cluster.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which cluster")]
pub struct ClusterArguments {
    /// Where the ledgers' metadata is, as BookKeeper names it
    ///
    /// For example zk+hierarchical://zk1:2181;zk2:2181/ledgers. Default: the section zookeeper of the configuration, else what
    /// the bookie's file says.
    #[arg(long, value_name = "URI", value_parser = parse_metadata_service)]
    pub metadata_service_uri: Option<String>,
    /// Requests in a second to ZooKeeper, every step of a transaction counted
    ///
    /// Of this command; with 'start' and 'set' it is the job's limit too, of each of its workers. Default: what the configuration
    /// says, else 1000; of 'run' the job's own limit.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_requests_per_second: Option<u32>,
    /// The bookie's own configuration file; of it only where the metadata is counts
    #[arg(long, value_name = "FILE")]
    pub bookie_conf: Option<PathBuf>,
    /// Configuration file; its sections zookeeper and drain count
    ///
    /// Default: /etc/dirkeeper/dirkeeper.toml, if it is there and --bookie-conf is not given.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// File with the authorities (PEM) for the certificates of bookies; with it every connection to one is in TLS
    #[arg(long, value_name = "FILE")]
    pub bookie_ca_file: Option<PathBuf>,
    /// Files with our own certificate and its key (PEM), for bookies that ask for one
    #[arg(long, value_names = ["CERT", "KEY"], num_args = 2, requires = "bookie_ca_file")]
    pub bookie_identity_files: Vec<PathBuf>,
}

/// What is to be emptied, and how.
#[derive(Debug, Clone, Default, Args)]
pub struct WhatArguments {
    /// Bookies to empty, by their ids, separated by commas
    #[arg(
        long = "bookies",
        visible_alias = "offline-bookie-ids",
        value_name = "ID",
        value_delimiter = ',',
        required = true,
        value_parser = parse_bookie
    )]
    pub bookies: Vec<String>,
    /// Bytes a second read from each of them and written to each other bookie, by all workers together; 0 for no limit
    ///
    /// Default: what the configuration says, else 100MiB.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub max_bytes_per_second: Option<u64>,
    /// What is done about readers that keep a ledger's old bookies in memory
    ///
    /// Default: what the configuration says, else refuse.
    #[arg(long, value_name = "GATE", value_enum)]
    pub reader_gate: Option<Gate>,
    /// All readers follow changed metadata, so that two replicas of a fragment may move at once
    ///
    /// BookKeeper clients do from 4.17.3 and 4.18.0 on if they ask for updates, and brokers of Pulsar since pulsar #25199.
    #[arg(long)]
    pub readers_refresh: bool,
}

/// `drain plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// What.
    #[command(flatten)]
    pub what: WhatArguments,
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Form,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// `drain start`.
#[derive(Debug, Args)]
pub struct StartArguments {
    /// What.
    #[command(flatten)]
    pub what: WhatArguments,
    /// What is done about ledgers that are still written
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub open_ledgers: Open,
    /// Show the ledgers that are left as empty nodes in offline_ledgers below the ledgers root too, as bookkeeper #3456 proposes
    #[arg(long)]
    pub mirror_offline_ledgers: bool,
    /// A bookie's admin server where it is not as registered, like bk1:3181=http://bk1:8000; may be repeated, and is to be given to 'run'
    /// and 'cancel' too
    #[arg(long = "admin", value_name = "ID=URL", value_parser = parse_admin)]
    pub admins: Vec<(String, String)>,
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

/// `drain run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Which job
    ///
    /// Default: the only one that goes on.
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Ledgers that are copied at a time, here
    ///
    /// Default: the job's own limit, as it was begun or set last; given here it holds for this worker alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,
    /// Read every entry back
    ///
    /// Without it all entries of ledgers up to 64 MiB are, and of larger ones the first and last of each replica and one in 64.
    #[arg(long)]
    pub verify_all: bool,
    /// End when only ledgers are left whose writers have to be waited for
    #[arg(long)]
    pub until_waiting: bool,
    /// A broker's admin address; needed for jobs begun with --open-ledgers unload
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub broker_url: Option<Url>,
    /// File with the token for the brokers
    #[arg(long, value_name = "FILE", requires = "broker_url")]
    pub broker_token_file: Option<PathBuf>,
    /// A bookie's admin server where it is not as registered; may be repeated
    #[arg(long = "admin", value_name = "ID=URL", value_parser = parse_admin)]
    pub admins: Vec<(String, String)>,
    /// Write metrics for node_exporter's textfile collector there; its name has to end with .prom
    #[arg(long, value_name = "FILE", value_parser = textfile::parse)]
    pub textfile: Option<PathBuf>,
    /// Do it; without this it is only said what is left
    #[arg(long)]
    pub execute: bool,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// `drain status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Which job
    ///
    /// Default: all that are not over, or the last one.
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// End when nothing is left to move (0), or when it is blocked for ten seconds (2)
    #[arg(long)]
    pub wait: bool,
    /// Show it every two seconds
    #[arg(long)]
    pub watch: bool,
    /// Ledgers that are named for each reason; 0 for all
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Form,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// `drain set`.
#[derive(Debug, Args)]
pub struct SetArguments {
    /// Which job
    ///
    /// Default: the only one that goes on.
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Bytes a second read from each bookie that is emptied and written to each other, by all workers together; 0 for no limit
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = parse_size,
        required_unless_present_any = ["workers", "max_requests_per_second"]
    )]
    pub max_bytes_per_second: Option<u64>,
    /// Ledgers at a time, by each worker
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// `drain cancel`.
#[derive(Debug, Args)]
pub struct CancelArguments {
    /// Which job
    #[arg(long, value_name = "ID")]
    pub job: String,
    /// A bookie's admin server where it is not as registered; may be repeated
    #[arg(long = "admin", value_name = "ID=URL", value_parser = parse_admin)]
    pub admins: Vec<(String, String)>,
    /// Do it; without this it is only said
    #[arg(long)]
    pub execute: bool,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// `drain finish`.
#[derive(Debug, Args)]
pub struct FinishArguments {
    /// Which job
    #[arg(long, value_name = "ID")]
    pub job: String,
    /// You know that no reader asks the old bookies any more: every broker follows changed metadata, was restarted, or unloaded the
    /// topics that moved
    #[arg(long)]
    pub readers_safe: bool,
    /// Delete the cookies of the bookies too; they must not run any more
    #[arg(long)]
    pub delete_cookies: bool,
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

/// Form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Form {
    /// For people
    #[default]
    Human,
    /// One JSON document
    Json,
}

/// What is done about readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Gate {
    /// A job that moves two replicas of a fragment is not begun, unless --readers-refresh says that it may
    Refuse,
    /// The sources keep every ledger, by its lock, until 'drain finish --readers-safe'; 'drain run' has to go on until then. For up
    /// to 10,000 ledgers
    PerLedger,
}

/// What is done about ledgers that are still written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Open {
    /// Their writers are waited for: one that adds an entry leaves a read-only bookie by itself
    #[default]
    Wait,
    /// Topics whose ledgers stay open are unloaded by a broker
    Unload,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Bad {
    #[error("write it like zk+hierarchical://zk1:2181;zk2:2181/ledgers")]
    Metadata,
    #[error("it is no bookie's id: {0}")]
    Bookie(String),
    #[error("write a size with a unit, for example 50MiB, or 0 for no limit")]
    Size,
    #[error("write ID=URL, for example bk1:3181=http://bk1:8000")]
    Admin,
    #[error("write http://HOST:PORT, for example http://broker:8080")]
    Url,
}

fn parse_metadata_service(value: &str) -> Result<String, Bad> {
    // What is no ZooKeeper is said later, with the exit code of a configuration that cannot be used.
    match is_zookeeper(value) || value.contains("://") || value.starts_with("metadata-store:") {
        true => Ok(value.to_owned()),
        false => Err(Bad::Metadata),
    }
}

fn parse_bookie(value: &str) -> Result<String, Bad> {
    let id = value.trim();
    check_bookie(id).map_err(Bad::Bookie)?;
    Ok(id.to_owned())
}

fn parse_size(value: &str) -> Result<u64, Bad> {
    match value {
        "0" => Ok(0),
        value => parse_bytes(value).ok_or(Bad::Size),
    }
}

fn parse_admin(value: &str) -> Result<(String, String), Bad> {
    let (bookie, url) = value.split_once('=').ok_or(Bad::Admin)?;
    let bookie = parse_bookie(bookie)?;
    match Url::parse(url) {
        Ok(_) => Ok((bookie, url.to_owned())),
        Err(_) => Err(Bad::Admin),
    }
}

fn parse_url(value: &str) -> Result<Url, Bad> {
    let url = Url::parse(value).map_err(|_| Bad::Url)?;
    match url.scheme() {
        "http" | "https" if url.host_str().is_some() => Ok(url),
        _ => Err(Bad::Url),
    }
}
