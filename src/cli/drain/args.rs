//! The command line of `drain`. Values are parsed here into types that cannot hold nonsense; nothing here opens a file or
//! a socket.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::help;
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
    /// Default: what the configuration says, else 1000.
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
    /// Bytes a second from each of them, and to each that takes their ledgers; 0 for no limit
    ///
    /// Default: what the configuration says, else 100MiB.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub max_bytes_per_second: Option<u64>,
    /// What is done about readers that keep a ledger's old bookies in memory
    ///
    /// Default: what the configuration says, else refuse.
    #[arg(long, value_name = "GATE", value_enum)]
    pub reader_gate: Option<Gate>,
    /// All readers are known to take over changed metadata: nothing is refused for their sake
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
    /// Show what is left below offline_ledgers, as bookkeeper #3456 proposes
    #[arg(long)]
    pub mirror_offline_ledgers: bool,
    /// A bookie's admin server where it is not as registered, like bk1:3181=http://bk1:8000; may be repeated
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
    /// Default: what the configuration says, else 8.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,
    /// Read every entry back, also of ledgers over 64 MiB, of which else a sample is read
    #[arg(long)]
    pub verify_all: bool,
    /// End when nothing is left but what waits for others, instead of waiting for it
    #[arg(long)]
    pub until_waiting: bool,
    /// A broker's admin address, for jobs with --open-ledgers unload
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub broker_url: Option<Url>,
    /// File with the token for the brokers
    #[arg(long, value_name = "FILE", requires = "broker_url")]
    pub broker_token_file: Option<PathBuf>,
    /// A bookie's admin server where it is not as registered; may be repeated
    #[arg(long = "admin", value_name = "ID=URL", value_parser = parse_admin)]
    pub admins: Vec<(String, String)>,
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
    /// End when the job is finished or blocked, and not before
    #[arg(long)]
    pub wait: bool,
    /// Show it again and again
    #[arg(long)]
    pub watch: bool,
    /// Ledgers that are named of each kind; 0 for all
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
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Bytes a second from each bookie that is emptied, and to each other; 0 for no limit
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
    /// No reader keeps old bookies in memory any more: brokers read changed metadata, or were restarted, or their topics unloaded
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
    /// A job that moves two replicas of a fragment is not begun
    Refuse,
    /// The sources keep every ledger, by its lock, until 'drain finish --readers-safe'; 'drain run' has to go on until then
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
