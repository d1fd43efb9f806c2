//! What the bookie's file means in our words: a layer of our keys below the configuration file and
//! above the defaults, and the directories.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::BookieFile;
use crate::config::keys::Key;
use crate::config::layer::{Layer, Slot};
use crate::config::problem::{Place, Problems, Wrong};
use crate::config::value::{Value, absolute, duration_text};
use crate::config::zookeeper;
use crate::health::dir::{Role, path_text};

/// A directory that the bookie's file names.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::config) struct BookieDir {
    pub(in crate::config) role: Role,
    pub(in crate::config) path: PathBuf,
    pub(in crate::config) place: Place,
}

/// The bookie's file in our words.
#[derive(Debug, Default)]
pub(in crate::config) struct Mapped {
    pub(in crate::config) layer: Layer,
    pub(in crate::config) dirs: Vec<BookieDir>,
}

/// BookKeeper's defaults for the two kinds of directories that it cannot do without.
const DEFAULT_JOURNAL: &str = "/tmp/bk-txn";
const DEFAULT_LEDGERS: &str = "/tmp/bk-data";

/// BookKeeper's default of `httpServerPort`, where `httpServerEnabled` is set.
const ADMIN_PORT: u16 = 8080;

/// Says in our words what the file sets. Relative directories are relative to `home`.
pub(in crate::config) fn map(
    path: &Path,
    file: &BookieFile,
    home: Option<&Path>,
    problems: &mut Problems,
) -> Mapped {
    let mut mapper = Mapper {
        path,
        file,
        home,
        problems,
        mapped: Mapped::default(),
    };
    mapper.thresholds();
    mapper.interval();
    mapper.id();
    mapper.admin_url();
    mapper.metadata_service();
    mapper.dirs();
    mapper.mapped
}

struct Mapper<'a> {
    path: &'a Path,
    file: &'a BookieFile,
    home: Option<&'a Path>,
    problems: &'a mut Problems,
    mapped: Mapped,
}

impl Mapper<'_> {
    fn place(&self, name: &str) -> Place {
        Place::file(self.path, self.file.line(name))
    }

    fn set(&mut self, key: Key, value: Option<Value>, name: &str) {
        if let Some(value) = value {
            let slot = Slot::new(value, self.place(name));
            self.mapped.layer.set(key, slot);
        }
    }

    fn thresholds(&mut self) {
        let values = &self.file.values;
        for (key, value, name) in [
            (Key::Full, values.disk_usage_threshold, "diskUsageThreshold"),
            (
                Key::Warn,
                values.disk_usage_warn_threshold,
                "diskUsageWarnThreshold",
            ),
            (
                Key::LowWatermark,
                values.disk_usage_lwm_threshold,
                "diskUsageLwmThreshold",
            ),
        ] {
            self.set(key, value.map(Value::Ratio), name);
        }
        // As in BookKeeper: each is the default of the one before it.
        let reserves = [
            (values.log_size_limit, "logSizeLimit"),
            (
                values.min_usable_size_for_entry_log_creation,
                "minUsableSizeForEntryLogCreation",
            ),
            (
                values.min_usable_size_for_high_priority_writes,
                "minUsableSizeForHighPriorityWrites",
            ),
        ];
        for (value, name) in reserves {
            self.set(Key::HighPriorityReserve, value.map(Value::Size), name);
        }
    }

    /// The bookie may check at any interval; ours must make sense for probes that write.
    fn interval(&mut self) {
        let name = "diskCheckInterval";
        let Some(interval) = self.file.values.disk_check_interval else {
            return;
        };
        let raw = DeValue::String(duration_text(interval).into());
        match Key::Interval.row().kind.parse(&raw) {
            Ok(value) => self.set(Key::Interval, Some(value), name),
            Err(wrong) => {
                let problem = format!("{} for our probes and is not taken over", wrong.problem);
                let warning = Wrong::new(problem, "set probe.interval in our own file");
                let value = duration_text(interval);
                self.problems
                    .warn(warning.at(self.place(name), name, value));
            }
        }
    }

    fn id(&mut self) {
        let Some(id) = self.file.values.id() else {
            return;
        };
        let name = match self.file.values.bookie_id {
            Some(_) => "bookieId",
            None => "advertisedAddress",
        };
        match zookeeper::bookie_id(&id) {
            Ok(id) => self.set(Key::BookieId, Some(Value::Text(id)), name),
            Err(wrong) => self.problems.error(wrong.at(self.place(name), name, id)),
        }
    }

    /// Only where the file enables the server: what serves metrics on another port is not it.
    fn admin_url(&mut self) {
        let values = &self.file.values;
        if values.http_server_enabled != Some(true) {
            return;
        }
        let scheme = match values.http_server_tls_enable {
            Some(true) => "https",
            _ => "http",
        };
        let host = match values.http_server_host.as_deref() {
            None | Some("0.0.0.0") => "127.0.0.1".to_owned(),
            Some(host) => match host.trim_matches(['[', ']']).parse() {
                Ok(IpAddr::V6(address)) if address.is_unspecified() => "[::1]".to_owned(),
                Ok(IpAddr::V6(address)) => format!("[{address}]"),
                _ => host.to_owned(),
            },
        };
        let port = values.http_server_port.unwrap_or(ADMIN_PORT);
        let url = format!("{scheme}://{host}:{port}");
        match Key::AdminUrl
            .row()
            .kind
            .parse(&DeValue::String(url.clone().into()))
        {
            Ok(value) => self.set(Key::AdminUrl, Some(value), "httpServerEnabled"),
            Err(wrong) => {
                let name = "httpServerHost";
                self.problems.error(wrong.at(self.place(name), name, url));
            }
        }
    }

    /// The bookie may well run with another store: only what we do needs ZooKeeper.
    fn metadata_service(&mut self) {
        let Some(service) = self.file.values.metadata_service() else {
            return;
        };
        let name = match self.file.values.metadata_service_uri {
            Some(_) => "metadataServiceUri",
            None => "zkServers",
        };
        match zookeeper::uri(&service.uri) {
            Ok(uri) => self.set(Key::MetadataServiceUri, Some(Value::Text(uri)), name),
            Err(wrong) => {
                let problem = format!("{}: the agent works with observe only", wrong.problem);
                let remedy = "leave bookie.control at \"observe\"";
                let warning = Wrong::new(problem, remedy);
                self.problems
                    .warn(warning.at(self.place(name), name, service.uri));
            }
        }
    }

    fn dirs(&mut self) {
        let values = &self.file.values;
        let ledgers = values.ledger_directories.as_deref();
        self.role_dirs(Role::Ledger, "ledgerDirectories", ledgers, DEFAULT_LEDGERS);
        let older = values.journal_directory.as_slice();
        match values.journal_directories.as_deref() {
            None if !older.is_empty() => {
                self.role_dirs(Role::Journal, "journalDirectory", Some(older), "");
            }
            journals => {
                let name = "journalDirectories";
                self.role_dirs(Role::Journal, name, journals, DEFAULT_JOURNAL);
            }
        }
        if let Some(indexes) = values.index_directories.as_deref() {
            self.role_dirs(Role::Index, "indexDirectories", Some(indexes), "");
        }
    }

    fn role_dirs(
        &mut self,
        role: Role,
        name: &'static str,
        paths: Option<&[String]>,
        default: &str,
    ) {
        let place = self.place(name);
        let default = [default.to_owned()];
        let paths = match paths {
            Some(paths) => paths,
            // What is there and wrong was reported; the default would only confuse.
            None if self.is_broken(name) => return,
            None => {
                let problem = format!("is not set, and the bookie then uses {}", default[0]);
                let warning = Wrong::new(problem, "set it in the bookie's file");
                self.problems.warn(warning.at(place.clone(), name, ""));
                &default
            }
        };
        for path in paths {
            match self.dir(path) {
                Ok(path) => {
                    let dir = BookieDir {
                        role,
                        path,
                        place: place.clone(),
                    };
                    self.add(dir, name);
                }
                Err(wrong) => {
                    let problem = wrong.at(place.clone(), name, path.clone());
                    self.problems.error(problem);
                }
            }
        }
    }

    fn is_broken(&self, name: &str) -> bool {
        self.problems
            .errors
            .iter()
            .any(|problem| problem.key == name && problem.place == self.place(name))
    }

    fn dir(&self, path: &str) -> Result<PathBuf, Wrong> {
        let path = Path::new(path);
        match self.home {
            Some(home) => absolute(&home.join(path)),
            None if path.is_relative() => Err(Wrong::new(
                "is a relative path",
                "set bookie.home in our own file to what it is relative to",
            )),
            None => absolute(path),
        }
    }

    fn add(&mut self, dir: BookieDir, name: &str) {
        let mut same_path = self
            .mapped
            .dirs
            .iter()
            .filter(|other| other.path == dir.path);
        if same_path.any(|other| other.role == dir.role) {
            let warning = Wrong::new("is named twice", "name each directory once");
            let value = path_text(&dir.path);
            self.problems.warn(warning.at(dir.place, name, value));
            return;
        }
        self.mapped.dirs.push(dir);
    }
}
