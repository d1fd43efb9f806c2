//! `[zookeeper]`: which ZooKeeper the cluster has, and who the agent is to it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::bookie_conf::MetadataService;
use super::keys::Key;
use super::layer::Layer;
use super::problem::{Place, Problems, Wrong};
use super::source;
use super::value::Secret;

/// How to reach the ZooKeeper of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZooKeeperConfig {
    /// `host:port` of each server.
    pub servers: Vec<String>,
    /// Path under which BookKeeper keeps everything.
    pub ledgers_root: String,
    /// Path under which we do.
    pub root: String,
    /// `user:password` for the scheme `digest`, if it stands in the configuration itself.
    pub digest: Option<Secret>,
    /// The file that has it, and counts before the former.
    pub auth_file: Option<PathBuf>,
    /// Certificates that those of the servers are checked against; with them, TLS is spoken.
    pub tls_ca: Option<PathBuf>,
    /// Our certificate and its key.
    pub tls_identity: Option<(PathBuf, PathBuf)>,
}

/// What the files hold.
#[derive(Debug, Clone)]
pub struct ZooKeeperFiles {
    /// `user:password` for the scheme `digest`.
    pub digest: Option<Secret>,
    /// PEM of the authorities, and of our certificate with its key.
    pub tls: Option<(String, Option<(Secret, Secret)>)>,
}

impl ZooKeeperConfig {
    /// Reads the files that are named. Blocks on their disks.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn read_files(&self) -> Result<ZooKeeperFiles, Problems> {
        let mut problems = Problems::default();
        let mut text = |path: &Path, key: Key| {
            let remedy = "name a file that the agent can read";
            let bytes = source::read(path, remedy, &mut Vec::new(), &mut problems)?;
            let wrong = Wrong::new("is not UTF-8", "save the file as UTF-8");
            String::from_utf8(bytes)
                .map_err(|_| problems.error(wrong.at(Place::file(path, None), key.path(), "")))
                .ok()
        };
        let in_file = self
            .auth_file
            .as_deref()
            .and_then(|path| Some((path, text(path, Key::AuthFile)?)));
        let ca = (self.tls_ca.as_deref()).and_then(|path| text(path, Key::ZooKeeperCa));
        let identity = self.tls_identity.as_ref().and_then(|(cert, key)| {
            let cert = text(cert, Key::ZooKeeperCert)?;
            Some((Secret(cert), Secret(text(key, Key::ZooKeeperKeyFile)?)))
        });
        let mut digest = self.digest.clone();
        if let Some((path, text)) = in_file {
            match auth(text.trim()) {
                Ok(secret) => digest = Some(secret),
                Err(wrong) => {
                    problems.error(wrong.at(Place::file(path, None), Key::AuthFile.path(), ""));
                }
            }
        }
        if problems.errors.is_empty() {
            let tls = ca.map(|ca| (ca, identity));
            Ok(ZooKeeperFiles { digest, tls })
        } else {
            Err(problems.sorted())
        }
    }
}

/// The section, and what the bookie's file says (`mapped`) where that says nothing.
pub(super) fn settle(
    node: &mut Layer,
    mapped: &Layer,
    our_file: Option<&Path>,
    problems: &mut Problems,
) -> Option<ZooKeeperConfig> {
    together(node, our_file, problems);
    if let (false, Some(slot)) = (
        node.slot(Key::MetadataServiceUri).is_set(),
        mapped.get(Key::MetadataServiceUri),
    ) {
        node.set(Key::MetadataServiceUri, slot.clone());
    }
    let uri = node.slot(Key::MetadataServiceUri).text()?;
    let service = MetadataService::parse(&uri).zookeeper?;
    let path = |key| node.slot(key).path();
    Some(ZooKeeperConfig {
        servers: service.servers,
        ledgers_root: service.ledgers_root,
        root: node.slot(Key::Root).text().unwrap_or_default(),
        digest: node.slot(Key::Auth).secret(),
        auth_file: path(Key::AuthFile),
        tls_ca: path(Key::ZooKeeperCa),
        tls_identity: path(Key::ZooKeeperCert).zip(path(Key::ZooKeeperKeyFile)),
    })
}

/// What does not belong together, or is of no use alone.
fn together(node: &Layer, our_file: Option<&Path>, problems: &mut Problems) {
    for (key, other) in [
        (Key::ZooKeeperCert, Key::ZooKeeperKeyFile),
        (Key::ZooKeeperKeyFile, Key::ZooKeeperCert),
        (Key::ZooKeeperCert, Key::ZooKeeperCa),
    ] {
        let slot = node.slot(key);
        if slot.is_set() && !node.slot(other).is_set() {
            let problem = format!("is of no use without {}", other.path());
            problems.error(slot.problem(key, Wrong::new(problem, "set both or none")));
        }
    }
    let auth = node.slot(Key::Auth);
    if !auth.is_set() {
        return;
    }
    let file = node.slot(Key::AuthFile);
    if file.is_set() {
        let warning = Wrong::new("counts instead of zookeeper.auth", "leave one of them out");
        problems.warn(file.problem(Key::AuthFile, warning));
    }
    let mode = our_file.and_then(|path| std::fs::metadata(path).ok());
    if mode.is_some_and(|facts| facts.permissions().mode() & 0o004 != 0) {
        let warning = Wrong::new(
            "stands in a file that everybody on this machine can read",
            "take that right away, or use auth_file",
        );
        problems.warn(warning.at(auth.place, Key::Auth.path(), ""));
    }
}

/// The URI of a ZooKeeper, as it was written.
pub(super) fn uri(text: &str) -> Result<String, Wrong> {
    let example = "write it like \"zk+hierarchical://zk1:2181;zk2:2181/ledgers\"";
    let Some(zookeeper) = MetadataService::parse(text).zookeeper else {
        return Err(Wrong::new("is not a ZooKeeper", example));
    };
    for server in &zookeeper.servers {
        let port = server.rsplit_once(':').map_or("", |(_, port)| port);
        if !port.parse::<u16>().is_ok_and(|port| port != 0) {
            return Err(Wrong::new(
                format!("has no port {port}"),
                "write 1 to 65535",
            ));
        }
    }
    node(&zookeeper.ledgers_root)?;
    Ok(text.to_owned())
}

/// `user:password`, of the one scheme that is understood.
pub(super) fn auth(text: &str) -> Result<Secret, Wrong> {
    let example = "write it like \"digest:user:password\"";
    let Some(digest) = text.strip_prefix("digest:") else {
        let problem = "is of a scheme that is not known; only digest is";
        return Err(Wrong::new(problem, example));
    };
    match digest.split_once(':') {
        Some((user, password)) if !user.is_empty() && !password.is_empty() => {
            Ok(Secret(digest.to_owned()))
        }
        _ => Err(Wrong::new("has no user or no password", example)),
    }
}

/// The id of a bookie, which is the name of its nodes; `readonly` is one of BookKeeper's own beside them.
pub(super) fn bookie_id(text: &str) -> Result<String, Wrong> {
    if is_no_name(text) || text.contains('/') || text == "readonly" {
        let problem = "cannot be a bookie's id";
        return Err(Wrong::new(problem, "write it like \"10.0.0.3:3181\""));
    }
    Ok(text.to_owned())
}

/// The path of a node that is not the root itself.
pub(super) fn node(text: &str) -> Result<String, Wrong> {
    let remedy = "write it like \"/dirkeeper\"";
    let Some(inner) = text.strip_prefix('/') else {
        return Err(Wrong::new("does not begin with a slash", remedy));
    };
    if inner.split('/').any(is_no_name) {
        let problem = "has a part that is empty, relative or not printable";
        return Err(Wrong::new(problem, remedy));
    }
    Ok(text.to_owned())
}

/// ZooKeeper takes no node that is called so.
fn is_no_name(name: &str) -> bool {
    name.is_empty() || name == "." || name == ".." || name.chars().any(char::is_control)
}
