//! The bookie's own properties file: which of its keys are read, their values, and what they mean
//! for our keys. Nothing is assumed for an absent key: what that means depends on the version.

mod beside;
mod mapping;
mod metadata;
mod needs;
mod properties;

use std::path::Path;
use std::time::Duration;

pub(super) use metadata::with_port;
pub use metadata::{MetadataService, ZooKeeper};

pub(super) use mapping::{BookieDir, Mapped, map};
use properties::{Properties, Property};

use super::problem::{Place, Problems, Wrong};
use super::value::ratio;

/// What a key of the bookie's file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Sets this key of ours.
    Ours(&'static str),
    /// Is read from the bookie's file only; no key of ours says the same.
    Own(&'static str),
}

/// A key of the bookie's file.
pub(super) struct PropertyRow {
    pub(super) name: &'static str,
    pub(super) used: Use,
}

macro_rules! properties {
    ($($field:ident: $type:ty, $name:literal, $parse:path, $used:expr, $doc:literal;)*) => {
        /// What a bookie's file sets. None: the key is absent or empty.
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct BookieConf {
            $(#[doc = concat!("`", $name, "`: ", $doc)] pub $field: Option<$type>,)*
        }

        /// The keys that are read, in the order of the documentation.
        pub(super) const PROPERTIES: &[PropertyRow] =
            &[$(PropertyRow { name: $name, used: $used },)*];

        fn values(file: &Path, properties: &Properties, problems: &mut Problems) -> BookieConf {
            BookieConf { $($field: value(file, properties, $name, $parse, problems),)* }
        }
    };
}

use Use::{Ours, Own};

properties! {
    journal_directories: Vec<String>, "journalDirectories", list, Ours("[[dir]] with role = \"journal\""), "directories of the journals";
    journal_directory: String, "journalDirectory", text, Ours("[[dir]] with role = \"journal\""), "the older name for one directory";
    ledger_directories: Vec<String>, "ledgerDirectories", list, Ours("[[dir]] with role = \"ledger\""), "directories of the entry logs";
    index_directories: Vec<String>, "indexDirectories", list, Ours("[[dir]] with role = \"index\""), "directories of the index; those of the entry logs if absent";
    disk_usage_threshold: f64, "diskUsageThreshold", threshold, Ours("thresholds.full"), "usage over which a directory is full";
    disk_usage_warn_threshold: f64, "diskUsageWarnThreshold", threshold, Ours("thresholds.warn"), "usage over which it is almost full";
    disk_usage_lwm_threshold: f64, "diskUsageLwmThreshold", threshold, Ours("thresholds.low_watermark"), "usage below which it is writable again";
    disk_check_interval: Duration, "diskCheckInterval", millis, Ours("probe.interval"), "time between two checks of the bookie's monitor";
    min_usable_size_for_high_priority_writes: u64, "minUsableSizeForHighPriorityWrites", count, Ours("thresholds.high_priority_reserve"), "bytes that recovery writes need";
    min_usable_size_for_entry_log_creation: u64, "minUsableSizeForEntryLogCreation", count, Ours("thresholds.high_priority_reserve"), "the default of the former; bytes that a new entry log needs";
    log_size_limit: u64, "logSizeLimit", count, Ours("thresholds.high_priority_reserve"), "the default of the former; size of an entry log";
    min_usable_size_for_index_file_creation: u64, "minUsableSizeForIndexFileCreation", count, Own("room for index files"), "bytes that a new index file needs";
    read_only_mode_on_any_disk_full_enabled: bool, "readOnlyModeOnAnyDiskFullEnabled", switch, Ours("bookie.read_only_on_any_full"), "one full directory makes the bookie read-only";
    read_only_mode_enabled: bool, "readOnlyModeEnabled", switch, Own("what the bookie does when full"), "read-only instead of a shutdown";
    force_read_only_bookie: bool, "forceReadOnlyBookie", switch, Own("the bookie starts read-only"), "started read-only";
    persist_bookie_status_enabled: bool, "persistBookieStatusEnabled", switch, Own("the bookie writes its status to its disks"), "read-only survives a restart";
    http_server_enabled: bool, "httpServerEnabled", switch, Ours("bookie.admin_url"), "there is an admin HTTP server";
    http_server_port: u16, "httpServerPort", port, Ours("bookie.admin_url"), "its port";
    http_server_host: String, "httpServerHost", text, Ours("bookie.admin_url"), "its address";
    http_server_tls_enable: bool, "httpServerTlsEnable", switch, Ours("bookie.admin_url"), "it speaks HTTPS";
    http_server_trust_store_path: String, "httpServerTrustStorePath", text, Own("the admin server asks for a client certificate: bookie.admin_cert, bookie.admin_key"), "certificates of its clients";
    metadata_service_uri: String, "metadataServiceUri", joined, Ours("zookeeper.metadata_service_uri"), "where the cluster's metadata is";
    zk_servers: String, "zkServers", joined, Ours("zookeeper.metadata_service_uri"), "the older name for the servers";
    zk_ledgers_root_path: String, "zkLedgersRootPath", text, Ours("zookeeper.metadata_service_uri"), "and for the path";
    bookie_id: String, "bookieId", text, Ours("bookie.id"), "the bookie's name in the cluster";
    advertised_address: String, "advertisedAddress", text, Ours("bookie.id"), "its host otherwise";
    bookie_port: u16, "bookiePort", port, Ours("bookie.id"), "and its port";
    ledger_storage_class: String, "ledgerStorageClass", text, Own("what the bookie does when full"), "implementation of the storage";
    entry_log_per_ledger_enabled: bool, "entryLogPerLedgerEnabled", switch, Own("what the bookie does when full"), "an entry log for each ledger";
    is_force_gc_allow_when_no_space: bool, "isForceGCAllowWhenNoSpace", switch, Own("what the bookie does when full"), "compaction goes on when full";
    journal_max_size_mb: u64, "journalMaxSizeMB", count, Own("whether the journals fit on their disk"), "size of a journal file";
    journal_max_backups: u64, "journalMaxBackups", count, Own("whether the journals fit on their disk"), "journal files that are kept";
    journal_pre_alloc_size_mb: u64, "journalPreAllocSizeMB", count, Own("what a journal needs next"), "step in which a journal file grows";
    gc_wait_time: Duration, "gcWaitTime", millis, Own("when space comes back"), "time between two garbage collections";
    gc_overreplicated_ledger_wait_time: Duration, "gcOverreplicatedLedgerWaitTime", millis, Own("when space comes back"), "time between two removals of extra replicas";
    minor_compaction_interval: Duration, "minorCompactionInterval", seconds, Own("when space comes back"), "zero: never";
    major_compaction_interval: Duration, "majorCompactionInterval", seconds, Own("when space comes back"), "zero: never";
    minor_compaction_threshold: f64, "minorCompactionThreshold", number, Own("when space comes back"), "zero or less: never";
    major_compaction_threshold: f64, "majorCompactionThreshold", number, Own("when space comes back"), "zero or less: never";
}

/// BookKeeper's defaults of a journal (`journalMaxSizeMB`, `journalMaxBackups`).
const JOURNAL_MAX_SIZE_MB: u64 = 2048;
const JOURNAL_MAX_BACKUPS: u64 = 5;

/// BookKeeper's default of `bookiePort`.
const BOOKIE_PORT: u16 = 3181;

impl BookieConf {
    /// The bookie's name in the cluster, as far as the file says it.
    #[must_use]
    pub fn id(&self) -> Option<String> {
        let port = self.bookie_port.unwrap_or(BOOKIE_PORT);
        let address = self.advertised_address.as_ref();
        self.bookie_id
            .clone()
            .or_else(|| address.map(|address| format!("{address}:{port}")))
    }

    /// The cluster's metadata service, as far as the file says it.
    #[must_use]
    pub fn metadata_service(&self) -> Option<MetadataService> {
        if let Some(uri) = &self.metadata_service_uri {
            return Some(MetadataService::parse(uri));
        }
        let servers = self.zk_servers.as_ref()?;
        let root = self.zk_ledgers_root_path.as_deref();
        Some(MetadataService::from_servers(servers, root))
    }

    /// Bytes that the files of one journal may take; they have to fit below the full threshold.
    #[must_use]
    pub fn journal_bytes(&self) -> u64 {
        let backups = self.journal_max_backups.unwrap_or(JOURNAL_MAX_BACKUPS);
        backups
            .saturating_add(1)
            .saturating_mul(self.journal_file_bytes())
    }

    /// Bytes after which the bookie begins a new journal file.
    fn journal_file_bytes(&self) -> u64 {
        let size = self.journal_max_size_mb.unwrap_or(JOURNAL_MAX_SIZE_MB);
        size.saturating_mul(1 << 20)
    }
}

/// A bookie's file that was read.
#[derive(Debug)]
pub(super) struct BookieFile {
    pub(super) values: BookieConf,
    properties: Properties,
}

impl BookieFile {
    /// Line of a key, counted from 1.
    pub(super) fn line(&self, key: &str) -> Option<usize> {
        self.properties.get(key).map(|property| property.line)
    }

    /// All keys of the file with their lines and values, in the order of the file.
    pub(super) fn keys(&self) -> Vec<(&str, usize, String)> {
        let mut keys: Vec<_> = self
            .properties
            .iter()
            .map(|(key, property)| (key, property.line, property.joined()))
            .collect();
        keys.sort_by_key(|(_, line, _)| *line);
        keys
    }
}

/// What we call a key of the bookie's file, if we have it.
pub(super) fn equivalent(name: &str) -> Option<&'static str> {
    PROPERTIES.iter().find_map(|row| match row.used {
        Use::Ours(ours) if row.name == name => Some(ours),
        _ => None,
    })
}

/// What to do when the file cannot be read.
pub(super) const REMEDY: &str = "name the bookie's properties file, readable for the agent";

/// Reads the bytes of a bookie's file.
pub(super) fn read(path: &Path, bytes: &[u8], problems: &mut Problems) -> BookieFile {
    let properties = Properties::parse(bytes);
    for (line, why) in &properties.broken {
        let wrong = Wrong::new(*why, "correct the line");
        problems.error(wrong.at(Place::file(path, *line), "", ""));
    }
    if bytes.starts_with("\u{feff}".as_bytes()) {
        let wrong = Wrong::new(
            "begins with a byte order mark, and the bookie takes it for a part of the first line",
            "save the file without it",
        );
        problems.warn(wrong.at(Place::file(path, 1), "", ""));
    }
    if let Some(include) = properties.get("include") {
        let wrong = Wrong::new(
            "other files are not read",
            "name the file that has the keys",
        );
        let place = Place::file(path, include.line);
        problems.warn(wrong.at(place, "include", include.joined()));
    }
    let values = values(path, &properties, problems);
    BookieFile { values, properties }
}

type Parse<T> = fn(&Property) -> Result<T, Wrong>;

/// One key, or none with the reason among the problems.
fn value<T>(
    file: &Path,
    properties: &Properties,
    name: &'static str,
    parse: Parse<T>,
    problems: &mut Problems,
) -> Option<T> {
    let property = properties.get(name)?;
    property.first()?;
    let place = Place::file(file, property.line);
    if property.items.iter().any(|item| item.contains("${")) {
        let wrong = Wrong::new(
            "is filled in when the bookie starts, and cannot be known here",
            "write the value itself",
        );
        problems.error(wrong.at(place, name, property.joined()));
        return None;
    }
    if let Some(again) = property.again.first() {
        let wrong = Wrong::new(
            format!("is there again in line {again}: the bookie takes the first, or joins lists"),
            "leave one",
        );
        problems.warn(wrong.at(place.clone(), name, property.joined()));
    }
    parse(property)
        .map_err(|wrong| problems.error(wrong.at(place, name, property.joined())))
        .ok()
}

fn first(property: &Property) -> &str {
    property.first().unwrap_or_default()
}

#[allow(clippy::unnecessary_wraps)] // one type for all parsers of the table
fn text(property: &Property) -> Result<String, Wrong> {
    Ok(first(property).to_owned())
}

#[allow(clippy::unnecessary_wraps)]
fn joined(property: &Property) -> Result<String, Wrong> {
    Ok(property.joined())
}

#[allow(clippy::unnecessary_wraps)]
fn list(property: &Property) -> Result<Vec<String>, Wrong> {
    Ok(property.items.clone())
}

fn switch(property: &Property) -> Result<bool, Wrong> {
    match first(property).to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" | "t" | "1" => Ok(true),
        "false" | "no" | "off" | "n" | "f" | "0" => Ok(false),
        _ => Err(Wrong::new("is not a switch", "write true or false")),
    }
}

fn threshold(property: &Property) -> Result<f64, Wrong> {
    let number = first(property)
        .parse()
        .map_err(|_| Wrong::new("is not a number", "write a number, like 0.95"))?;
    ratio(number)
}

/// BookKeeper turns a compaction off by a threshold that is not over 0.
fn number(property: &Property) -> Result<f64, Wrong> {
    let number: f64 = first(property)
        .parse()
        .map_err(|_| Wrong::new("is not a number", "write a number, like 0.2"))?;
    if number.is_nan() || 1.0 < number {
        return Err(Wrong::new("is over 1", "write a ratio of live entries"));
    }
    Ok(number)
}

fn count(property: &Property) -> Result<u64, Wrong> {
    first(property)
        .parse()
        .map_err(|_| Wrong::new("is not a whole number of 0 or more", "write one"))
}

fn port(property: &Property) -> Result<u16, Wrong> {
    first(property)
        .parse()
        .map_err(|_| Wrong::new("is not a port", "write 0 to 65535"))
}

fn millis(property: &Property) -> Result<Duration, Wrong> {
    count(property).map(Duration::from_millis)
}

/// BookKeeper turns a thing off by a negative interval.
fn seconds(property: &Property) -> Result<Duration, Wrong> {
    let seconds: i64 = first(property)
        .parse()
        .map_err(|_| Wrong::new("is not a whole number", "write one"))?;
    Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever stands behind a known key, there is a value or a problem, and no panic.
        #[test]
        fn no_value_panics(row in 0..PROPERTIES.len(), value in "\\PC{0,30}") {
            let mut problems = Problems::default();
            let text = format!("{}={value}", PROPERTIES[row].name);
            let file = read(Path::new("/f"), text.as_bytes(), &mut problems);
            map(Path::new("/f"), &file, None, &mut problems);
        }
    }

    #[test]
    fn the_names_of_a_bookie() {
        let mut conf = BookieConf::default();
        assert_eq!(conf.id(), None);
        conf.advertised_address = Some("bk-3".to_owned());
        assert_eq!(conf.id().as_deref(), Some("bk-3:3181"));
        conf.bookie_id = Some("b3".to_owned());
        assert_eq!(conf.id().as_deref(), Some("b3"));
    }

    #[test]
    fn six_journal_files_of_two_gibibytes_by_default() {
        assert_eq!(BookieConf::default().journal_bytes(), 12 << 30);
    }
}
