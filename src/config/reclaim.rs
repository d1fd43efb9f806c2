//! `[reclaim]`, and how `dirkeeper reclaim` reads a configuration: only what says where the cluster's metadata
//! is and how to reclaim; on a machine without a bookie nothing else need be there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeValue;

use super::bookie_conf::{self, with_port};
use super::file::{self, FileSettings};
use super::keys::Key;
use super::layer::{Layer, Slot};
use super::load::{from_here, node_slots};
use super::problem::{Place, Problem, Problems, Wrong};
use super::source::{self, SourceFile};
use super::value::{Value, absolute, nearest, one_of, strings};
use super::zookeeper::{self, ZooKeeperConfig};
use super::{DEFAULT_FILE, state_home};

/// Where the configuration of `dirkeeper reclaim` comes from, as the user wrote it.
#[derive(Debug, Clone, Default)]
pub struct ReclaimSources {
    /// `--config`.
    pub file: Option<PathBuf>,
    /// `--bookie-conf`.
    pub bookie_conf: Option<PathBuf>,
    /// `--metadata-service-uri`.
    pub metadata_service_uri: Option<String>,
    /// `--state-dir`.
    pub state_dir: Option<PathBuf>,
}

/// The metadata of a Pulsar cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulsarMetadata {
    /// `host:port` of each server of its ZooKeeper.
    pub servers: Vec<String>,
    /// What is before `/managed-ledgers`: nothing, or a path without a final slash.
    pub root: String,
}

/// What counts for `dirkeeper reclaim` where its command line says nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct ReclaimConfig {
    /// The ZooKeeper of the ledgers, if one is named.
    pub zookeeper: Option<ZooKeeperConfig>,
    /// The URI of the ledgers' metadata where it is no ZooKeeper.
    pub unsupported: Option<String>,
    /// Where state is kept.
    pub state_dir: Option<PathBuf>,
    /// The Pulsar clusters; none: they were not declared.
    pub pulsars: Option<Vec<String>>,
    /// Requests a second to each ZooKeeper.
    pub requests_per_second: u32,
    /// Between two passes.
    pub interval: Duration,
    /// Between two trims; none: off.
    pub trim_interval: Option<Duration>,
    /// Classes that may be marked, by name.
    pub classes: Vec<String>,
    /// How long a mark stands, where it is not by class.
    pub grace: Option<Duration>,
    /// Age before absence means anything.
    pub min_age: Duration,
    /// Scans, and the time over which, for a ledger that is named by nobody.
    pub absence: (u32, Duration),
    /// Scans, and the time over which, for an owner that is gone.
    pub gone: (u32, Duration),
    /// Deletions in a pass, where it is not by the number of ledgers.
    pub max_deletes: Option<u32>,
    /// Deletions in a second.
    pub deletes_per_second: u32,
    /// A broker.
    pub broker_url: Option<String>,
    /// File with its token.
    pub broker_token_file: Option<PathBuf>,
    /// What should be known.
    pub warnings: Vec<Problem>,
}

/// Reads it. Blocks on the disks of the files that are named.
///
/// # Errors
/// All that is wrong with the files.
pub fn load_reclaim(sources: &ReclaimSources) -> Result<ReclaimConfig, Problems> {
    read(sources).map(config)
}

/// What the files say, for commands that work on a cluster and watch nothing.
pub(super) struct Read {
    pub(super) node: Layer,
    pub(super) zookeeper: Option<ZooKeeperConfig>,
    pub(super) unsupported: Option<String>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) warnings: Vec<Problem>,
}

/// Reads the files.
pub(super) fn read(sources: &ReclaimSources) -> Result<Read, Problems> {
    let mut problems = Problems::default();
    let file = own_file(sources);
    let mut settings = FileSettings::default();
    if let Some(path) = &file {
        let remedy = "name a file that can be read";
        let bytes = source::read(path, remedy, &mut Vec::new(), &mut problems);
        settings = bytes
            .map(|bytes| file::read(path, bytes, &mut problems))
            .unwrap_or_default();
    }
    let named = sources.bookie_conf.as_deref().map(from_here);
    let conf = named.or_else(|| settings.node.slot(Key::Conf).path());
    let (mapped, mut unsupported) = match conf {
        Some(path) => bookie_file(&path, &mut problems),
        None => (Layer::default(), None),
    };
    let mut node = node_slots(&settings.node);
    if let Some(uri) = &sources.metadata_service_uri {
        let place = Place::Flag("--metadata-service-uri");
        match zookeeper::uri(uri) {
            Ok(uri) => node.set(Key::MetadataServiceUri, Slot::new(Value::Text(uri), place)),
            Err(wrong) => problems.error(wrong.at(place, "", uri)),
        }
    }
    let zookeeper = zookeeper::settle(&mut node, &mapped, file.as_deref(), &mut problems);
    if zookeeper.is_some() {
        unsupported = None;
    }
    let state_dir = state_dir(sources, file.is_some(), &node, &mut problems);
    let problems = problems.sorted();
    if !problems.errors.is_empty() {
        return Err(problems);
    }
    Ok(Read {
        node,
        zookeeper,
        unsupported,
        state_dir,
        warnings: problems.warnings,
    })
}

/// Which file of ours is read: the default one only if it is there.
fn own_file(sources: &ReclaimSources) -> Option<PathBuf> {
    if sources.file.is_some() || sources.bookie_conf.is_some() {
        return sources.file.clone();
    }
    let default = Path::new(DEFAULT_FILE);
    SourceFile::now(default)
        .is_there()
        .then(|| default.to_owned())
}

/// What a bookie's file says of the metadata, and the URI if it is none that can be used. What else it says is
/// nothing to us, and its mistakes neither.
fn bookie_file(path: &Path, problems: &mut Problems) -> (Layer, Option<String>) {
    let Some(bytes) = source::read(path, bookie_conf::REMEDY, &mut Vec::new(), problems) else {
        return (Layer::default(), None);
    };
    let mut others = Problems::default();
    let file = bookie_conf::read(path, &bytes, &mut others);
    let mapped = bookie_conf::map(path, &file, None, &mut others);
    let service = file.values.metadata_service();
    let unsupported = service.filter(|service| service.zookeeper.is_none());
    (mapped.layer, unsupported.map(|service| service.uri))
}

/// As the agent's where a file of ours is read, else as a user's programs.
fn state_dir(
    sources: &ReclaimSources,
    has_file: bool,
    node: &Layer,
    problems: &mut Problems,
) -> Option<PathBuf> {
    let Some(path) = &sources.state_dir else {
        let home = || Some(state_home()?.join("dirkeeper"));
        return match has_file {
            true => node.slot(Key::StateDir).path(),
            false => home(),
        };
    };
    match absolute(&from_here(path)) {
        Ok(path) => Some(path),
        Err(wrong) => {
            let place = Place::Flag("--state-dir");
            problems.error(wrong.at(place, "", path.to_string_lossy()));
            None
        }
    }
}

fn config(read: Read) -> ReclaimConfig {
    let Read {
        node,
        zookeeper,
        unsupported,
        state_dir,
        warnings,
    } = read;
    let slot = |key| node.slot(key);
    let time = |key| slot(key).duration().unwrap_or_default();
    let count = |key| slot(key).count().unwrap_or(1);
    ReclaimConfig {
        zookeeper,
        unsupported,
        state_dir,
        pulsars: slot(Key::ReclaimPulsar).words(),
        requests_per_second: count(Key::ReclaimRequests),
        interval: time(Key::ReclaimInterval),
        trim_interval: Some(time(Key::ReclaimTrimInterval)).filter(|time| !time.is_zero()),
        classes: slot(Key::ReclaimClasses).words().unwrap_or_default(),
        grace: slot(Key::ReclaimGrace).duration(),
        min_age: time(Key::ReclaimMinAge),
        absence: (
            count(Key::ReclaimAbsenceScans),
            time(Key::ReclaimAbsenceSpan),
        ),
        gone: (count(Key::ReclaimGoneScans), time(Key::ReclaimGoneSpan)),
        max_deletes: slot(Key::ReclaimMaxDeletes).count(),
        deletes_per_second: count(Key::ReclaimDeletesPerSecond),
        broker_url: slot(Key::ReclaimBroker).text(),
        broker_token_file: slot(Key::ReclaimBrokerToken).path(),
        warnings,
    }
}

/// Whether it is the URI of a ZooKeeper that can be used.
#[must_use]
pub fn is_zookeeper(uri: &str) -> bool {
    zookeeper::uri(uri).is_ok()
}

impl PulsarMetadata {
    /// Understands `URI=ROOT`: the URI as BookKeeper or Pulsar writes it (`zk+…://`, `zk:`, `metadata-store:zk:`, or servers
    /// alone), whose own path is a part of the root; `=ROOT` may be left out.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str) -> Result<PulsarMetadata, String> {
        let example = "write it like zk://zk1:2181,zk2:2181=/pulsar-a";
        let (uri, root) = text.split_once('=').unwrap_or((text, ""));
        let rest = uri.strip_prefix("metadata-store:").unwrap_or(uri);
        let rest = match rest.split_once("://") {
            Some((scheme, rest)) if scheme == "zk" || scheme.starts_with("zk+") => rest,
            Some((scheme, _)) => return Err(format!("{scheme} is no ZooKeeper; {example}")),
            None => rest.strip_prefix("zk:").unwrap_or(rest),
        };
        for other in ["etcd:", "oxia:", "rocksdb:", "memory:"] {
            if rest.starts_with(other) {
                return Err(format!("{other} is no ZooKeeper; {example}"));
            }
        }
        let (servers, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let servers = servers.split([',', ';']).map(str::trim);
        let servers: Vec<String> = servers
            .filter(|server| !server.is_empty())
            .map(with_port)
            .collect();
        let port = |server: &String| {
            let port = server.rsplit_once(':').map_or("", |(_, port)| port);
            port.parse::<u16>().is_ok_and(|port| port != 0)
        };
        if servers.is_empty() || !servers.iter().all(port) {
            return Err(format!("it names no server, or no port of it; {example}"));
        }
        let root = format!(
            "{}{}",
            path.trim_end_matches('/'),
            root.trim_end_matches('/')
        );
        if !root.is_empty() && zookeeper::node(&root).is_err() {
            return Err(format!("{root:?} is no path of a node; {example}"));
        }
        Ok(PulsarMetadata { servers, root })
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> String {
        format!("zk://{}={}", self.servers.join(","), self.root)
    }
}

/// Whether both are the same servers, in whatever order.
#[must_use]
pub fn same_servers(one: &[String], other: &[String]) -> bool {
    let set = |servers: &[String]| {
        servers
            .iter()
            .cloned()
            .collect::<std::collections::BTreeSet<_>>()
    };
    set(one) == set(other)
}

/// A list of places of Pulsar's metadata, as they were written.
pub(super) fn pulsars(raw: &DeValue<'_>) -> Result<Value, Wrong> {
    let texts = strings(raw, "write a list like [\"zk://zk1:2181=/pulsar-a\"]")?;
    for text in &texts {
        PulsarMetadata::parse(text).map_err(|why| {
            let (problem, remedy) = why.split_once("; ").unwrap_or((&why, ""));
            Wrong::new(format!("holds {text:?}: {problem}"), remedy)
        })?;
    }
    if texts.is_empty() {
        return Err(Wrong::new(
            "names no cluster",
            "leave the key out, or name all of them",
        ));
    }
    Ok(Value::Words(texts))
}

/// A list of some of these words, each once.
pub(super) fn words(raw: &DeValue<'_>, known: &'static [&'static str]) -> Result<Value, Wrong> {
    let remedy = format!("write a list of {}", one_of(known));
    let mut words = Vec::new();
    for word in strings(raw, &remedy)? {
        if !known.contains(&word.as_str()) {
            let near = nearest(&word, known.iter().copied());
            let remedy = near.map_or(remedy.clone(), |near| format!("did you mean {near:?}"));
            return Err(Wrong::new(
                format!("holds {word:?}, which is not known here"),
                remedy,
            ));
        }
        if !words.contains(&word) {
            words.push(word);
        }
    }
    if words.is_empty() {
        return Err(Wrong::new("is empty", remedy));
    }
    Ok(Value::Words(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_pulsar_metadata() {
        let check = |text: &str, expected: Result<(&[&str], &str), &str>| {
            let found = PulsarMetadata::parse(text);
            let found = found.map(|found| (found.servers, found.root));
            match (found, expected) {
                (Ok((servers, root)), Ok(expected)) => {
                    let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
                    assert_eq!((servers.as_slice(), root.as_str()), expected, "{text}");
                }
                (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        };
        check("zk://a:1,b=/x", Ok((&["a:1", "b:2181"], "/x")));
        check("zk+hierarchical://a:1;b:2/=/", Ok((&["a:1", "b:2"], "")));
        check("zk:a:1/chroot", Ok((&["a:1"], "/chroot")));
        check("metadata-store:zk:a:1/c=/x/", Ok((&["a:1"], "/c/x")));
        check("a:1=", Ok((&["a:1"], "")));
        check("etcd:http://a:1", Err("no ZooKeeper"));
        check("oxia://a:1=/x", Err("oxia is no ZooKeeper"));
        check("metadata-store:oxia:a", Err("no ZooKeeper"));
        check("zk://=/x", Err("names no server"));
        check("zk://a:99999", Err("port"));
        check("zk://a=x//y", Err("no path"));
        check("", Err("names no server"));
    }

    #[test]
    fn the_file_says_it_and_the_command_line_more_loudly() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dirkeeper.toml");
        let text = "[zookeeper]\nmetadata_service_uri = \"zk://a:1/l\"\n\
                    [reclaim]\nclasses = [\"r1\", \"r3\"]\nabsence_scans = 2\n\
                    pulsar_metadata = [\"zk://b:1=/p\"]\n";
        std::fs::write(&file, text).unwrap();
        let mut sources = ReclaimSources {
            file: Some(file),
            ..ReclaimSources::default()
        };
        let config = load_reclaim(&sources).unwrap();
        assert_eq!(config.zookeeper.unwrap().ledgers_root, "/l");
        assert_eq!(config.classes, ["r1", "r3"]);
        assert_eq!(config.absence, (2, Duration::from_secs(86_400)));
        assert_eq!(config.pulsars.unwrap(), ["zk://b:1=/p"]);
        assert_eq!(config.trim_interval, None);
        assert_eq!(config.state_dir.unwrap(), Path::new("/var/lib/dirkeeper"));
        sources.metadata_service_uri = Some("zk://c:2/m".to_owned());
        let config = load_reclaim(&sources).unwrap();
        assert_eq!(config.zookeeper.unwrap().servers, ["c:2"]);
    }

    #[test]
    fn of_a_bookies_file_only_the_metadata_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bookkeeper.conf");
        let check = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let config = load_reclaim(&ReclaimSources {
                bookie_conf: Some(path.clone()),
                ..ReclaimSources::default()
            });
            config.unwrap()
        };
        let relative = "journalDirectories=data/journal\nledgerDirectories=data/ledgers\n";
        let zookeeper = check(&format!("{relative}metadataServiceUri=zk://a:1/l\n"));
        assert_eq!(zookeeper.zookeeper.unwrap().servers, ["a:1"]);
        assert_eq!(zookeeper.unsupported, None);
        let other = check("metadataServiceUri=metadata-store:oxia://a:1/l\n");
        assert_eq!(other.zookeeper, None);
        assert_eq!(
            other.unsupported.as_deref(),
            Some("metadata-store:oxia://a:1/l")
        );
    }
}
