//! From raw to valid: the configuration file, the bookie's own file and the command line become one
//! [`Config`] that cannot hold nonsense, or all their [`Problems`] at once. Start-up, `config check`
//! and reload use the same code. Reads configuration files and nothing else; never touches a
//! watched directory.

mod bookie;
mod bookie_conf;
mod check;
mod dirs;
mod drain;
mod effective;
mod file;
mod hooks;
mod import;
mod keys;
mod layer;
mod load;
mod problem;
mod reclaim;
mod reference;
mod source;
#[cfg(test)]
mod tests;
mod url;
mod value;
mod version;
mod watch;
mod web;
mod webhooks;
mod zookeeper;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use bookie::{AdminFiles, BookieConfig};
pub use bookie_conf::{BookieConf, MetadataService, ZooKeeper};
pub use check::{Found, JournalRoom, TOKEN_REMEDY, check_human, check_json, with_found};
pub use drain::{DrainConfig, load_drain};
pub use effective::show;
pub use hooks::HookConfig;
pub use import::import;
pub use load::{load, reload};
pub use problem::{Place, Problem, Problems};
pub use reclaim::{
    PulsarMetadata, ReclaimConfig, ReclaimSources, is_zookeeper, load_reclaim, same_servers,
};
pub use reference::{documentation, reference_file};
pub use source::SourceFile;
pub use value::{Secret, parse_bytes};
pub use version::BookieVersion;
pub use watch::{Watch, watch};
pub use web::{WebConfig, WebTls};
pub use webhooks::{AlertmanagerConfig, WebhookConfig, WebhookFiles};
pub use zookeeper::{ZooKeeperConfig, ZooKeeperFiles};

use crate::health::dir::Dir;
use crate::health::policy::Policy;
use layer::Layer;

/// The file that is read when no source is named.
pub const DEFAULT_FILE: &str = "/etc/dirkeeper/dirkeeper.toml";

/// Where a configuration comes from. All texts are as the user wrote them: what is wrong with them
/// is reported together with everything else.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `--config`.
    pub file: Option<PathBuf>,
    /// `--bookie-conf`.
    pub bookie_conf: Option<PathBuf>,
    /// `--dir`, each `ROLE=PATH`.
    pub dirs: Vec<OsString>,
    /// `--listen`.
    pub listen: Option<String>,
    /// `--state-dir`.
    pub state_dir: Option<PathBuf>,
    /// `--web-config-file`.
    pub web_config_file: Option<PathBuf>,
    /// Where a user's programs keep their state; see [`state_home`].
    pub state_home: Option<PathBuf>,
}

impl Sources {
    /// The configuration file that is read, if one is.
    #[must_use]
    pub fn configuration_file(&self) -> Option<&Path> {
        match &self.file {
            Some(file) => Some(file),
            None if self.bookie_conf.is_none() && self.dirs.is_empty() => {
                Some(Path::new(DEFAULT_FILE))
            }
            None => None,
        }
    }

    /// Where nothing at all is named and there is no default file, these directories as ledger
    /// directories. May block on a disk.
    #[must_use]
    pub fn or_ledger_dirs(mut self, dirs: &[PathBuf]) -> Sources {
        let by_default = self.file.is_none() && self.configuration_file().is_some();
        if by_default && !SourceFile::now(Path::new(DEFAULT_FILE)).is_there() {
            let ledger = |dir: &PathBuf| {
                let mut text = OsString::from("ledger=");
                text.push(dir);
                text
            };
            self.dirs = dirs.iter().map(ledger).collect();
        }
        self
    }
}

/// `$XDG_STATE_HOME`, or the folder that stands for it when it is not set.
#[must_use]
pub fn state_home() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let absolute = |path: &PathBuf| path.is_absolute();
    variable("XDG_STATE_HOME").filter(absolute).or_else(|| {
        let home = variable("HOME").filter(absolute)?;
        Some(home.join(".local/state"))
    })
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LogLevel {
    /// What keeps the agent from its work.
    Error,
    /// What an operator should look at.
    Warn,
    /// What happens.
    #[default]
    Info,
    /// Why it happens.
    Debug,
    /// Everything.
    Trace,
}

/// A valid configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Address of the HTTP server.
    pub listen: SocketAddr,
    /// Where the agent keeps its state.
    pub state_dir: PathBuf,
    /// Lock the agent's pages in memory.
    pub lock_memory: bool,
    /// How much is logged.
    pub log_level: LogLevel,
    /// File with the token for requests that change something.
    pub control_token_file: Option<PathBuf>,
    /// File with the token for requests that only read.
    pub read_token_file: Option<PathBuf>,
    /// Who may talk to the HTTP server, and how.
    pub web: WebConfig,
    /// The watched directories; at least one.
    pub dirs: Vec<Dir>,
    /// Programs to run for events.
    pub hooks: Vec<HookConfig>,
    /// Servers that are sent events.
    pub webhooks: Vec<WebhookConfig>,
    /// Where the metrics are written as a textfile.
    pub textfile: Option<PathBuf>,
    /// The Alertmanagers that are told.
    pub alertmanager: Option<AlertmanagerConfig>,
    /// The event log.
    pub events: EventsConfig,
    /// How directories count for the wanted mode, and how often a bad status is repeated.
    pub policy: Policy,
    /// The bookie, if there is one.
    pub bookie: Option<BookieConfig>,
    /// The ZooKeeper of its cluster, if one is named.
    pub zookeeper: Option<ZooKeeperConfig>,
    /// What should be known and does not keep the configuration from being used.
    pub warnings: Vec<Problem>,
    /// The files that were read, to be watched for changes.
    pub files: Vec<SourceFile>,
    /// From which slots the values were made, for `config show` and later checks.
    origin: Origin,
}

impl Config {
    /// Names the bookie that the other one does, and its ZooKeeper: what runs beside them goes on.
    pub fn keep_bookie_of(&mut self, other: &Config) {
        self.bookie.clone_from(&other.bookie);
        self.zookeeper.clone_from(&other.zookeeper);
        self.origin.bookie.clone_from(&other.origin.bookie);
    }

    /// Names no bookie.
    pub fn forget_bookie(&mut self) {
        (self.bookie, self.zookeeper, self.origin.bookie) = (None, None, None);
    }
}

/// The event log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventsConfig {
    /// How much of the event log is kept.
    pub retention_bytes: u64,
    /// How long events are kept.
    pub retention_age: Duration,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Origin {
    node: Layer,
    bookie: Option<Layer>,
    dirs: Vec<Layer>,
    hooks: Vec<Layer>,
    webhooks: Vec<Layer>,
}
