//! Who is in the cluster, for a command that comes from outside and is no bookie's agent: bookies and their state, Pulsar's
//! map of racks, what agents say of space, and where a bookie's admin server is.

use std::collections::BTreeSet;

use super::agents;
use super::paths::{Paths, READ_ONLY};
use super::registration::endpoints;
use super::store::{MetaStore, StoreError, children_if_any, get_all};

/// The service of a bookie that is its admin server, by name and protocol.
const ADMIN: (&str, &str) = ("httpserver", "http");

/// The service that answers BookKeeper's own protocol.
const PROTOCOL: &str = "bookie-rpc";

/// Who is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// Every bookie that has a cookie or is registered.
    pub known: BTreeSet<String>,
    /// Those that take entries.
    pub writable: BTreeSet<String>,
    /// Those that are registered as read-only. While a bookie changes it may be in both lists.
    pub read_only: BTreeSet<String>,
    /// Those whose agent says that a disk is over its warn threshold, or full.
    pub over_warn: BTreeSet<String>,
    /// Pulsar's map of racks, as it is; empty where there is none.
    pub racks: Vec<u8>,
}

impl Members {
    /// Those that serve reads.
    #[must_use]
    pub fn alive(&self) -> BTreeSet<String> {
        self.writable.union(&self.read_only).cloned().collect()
    }
}

/// Reads who is there. `root` is ours, as `/dirkeeper`.
///
/// # Errors
/// One of the lists cannot be read, with its path.
pub async fn members(
    store: &dyn MetaStore,
    ledgers_root: &str,
    root: &str,
    instance: &str,
) -> Result<Members, (String, StoreError)> {
    let paths = Paths::new(ledgers_root, root, instance);
    let list = async |path: String| -> Result<BTreeSet<String>, (String, StoreError)> {
        match children_if_any(store, &path).await {
            Ok(names) => Ok(names.into_iter().filter(|name| name != READ_ONLY).collect()),
            Err(error) => Err((path, error)),
        }
    };
    let mut members = Members {
        known: list(paths.cookies()).await?,
        writable: list(paths.available()).await?,
        read_only: list(paths.read_only()).await?,
        ..Members::default()
    };
    let alive = members.alive();
    members.known.extend(alive);
    members.racks = match store.get(&paths.racks()).await {
        Ok((bytes, _)) => bytes,
        Err(StoreError::NoNode) => Vec::new(),
        Err(error) => return Err((paths.racks(), error)),
    };
    let agents: Vec<String> = list(paths.agents()).await?.into_iter().collect();
    let nodes: Vec<String> = agents.iter().map(|name| paths.agent(name)).collect();
    let found = get_all(store, &nodes).await;
    let found = found.map_err(|error| (paths.agents(), error))?;
    for (name, found) in agents.into_iter().zip(found) {
        let status = found.and_then(|(bytes, _)| agents::parse(&bytes).ok());
        if status.is_some_and(|status| status.over_warn || status.full) {
            members.over_warn.insert(name);
        }
    }
    Ok(members)
}

/// The address of a bookie's admin server, as it registered it; none if it registered none, or is not registered.
///
/// # Errors
/// Its registration cannot be read, or not be understood, in words.
pub async fn admin_url(
    store: &dyn MetaStore,
    ledgers_root: &str,
    bookie: &str,
) -> Result<Option<String>, String> {
    let paths = Paths::new(ledgers_root, "", "");
    for list in [paths.available(), paths.read_only()] {
        let bytes = match store.get(&format!("{list}/{bookie}")).await {
            Ok((bytes, _)) => bytes,
            Err(StoreError::NoNode) => continue,
            Err(error) => return Err(error.to_string()),
        };
        let all = endpoints(&bytes)?;
        let (id, protocol) = ADMIN;
        let Some(admin) = all
            .iter()
            .find(|one| one.id == id || one.protocol == protocol)
        else {
            return Ok(None);
        };
        // An admin server that listens everywhere is where the bookie is.
        let everywhere = ["", "0.0.0.0", "::", "[::]"].contains(&admin.host.as_str());
        let other = all.iter().find(|one| one.protocol == PROTOCOL);
        let host = match (everywhere, other) {
            (true, Some(other)) => &other.host,
            (true, None) => return Ok(None),
            (false, _) => &admin.host,
        };
        let host = match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]"),
            false => host.clone(),
        };
        return Ok(Some(format!("http://{host}:{}", admin.port)));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::cluster::memory::{Memory, MemorySession};
    use crate::cluster::store::{Kind, create_with_parents};

    async fn store(nodes: &[(&str, &[u8])]) -> MemorySession {
        let store = Memory::new(Clock::manual()).connect();
        for (path, data) in nodes {
            let made = create_with_parents(&store, path, data, Kind::Persistent).await;
            made.unwrap();
        }
        store
    }

    #[tokio::test]
    async fn who_is_there() {
        let warn = br#"{"overWarn":true,"full":false,"enforces":true,"at":1}"#;
        let fine = br#"{"overWarn":false,"full":false,"enforces":true,"at":1}"#;
        let store = store(&[
            ("/x/ledgers/cookies/a:1", b""),
            ("/x/ledgers/cookies/gone:1", b""),
            ("/x/ledgers/available/a:1", b""),
            ("/x/ledgers/available/b:1", b""),
            ("/x/ledgers/available/readonly/c:1", b""),
            ("/x/bookies", b"{}"),
            ("/dirkeeper/i/agents/a:1", warn),
            ("/dirkeeper/i/agents/b:1", fine),
            ("/dirkeeper/i/agents/c:1", b"garbage"),
        ])
        .await;
        let found = members(&store, "/x/ledgers", "/dirkeeper", "i")
            .await
            .unwrap();
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            found,
            Members {
                known: set(&["a:1", "b:1", "c:1", "gone:1"]),
                writable: set(&["a:1", "b:1"]),
                read_only: set(&["c:1"]),
                over_warn: set(&["a:1"]),
                racks: b"{}".to_vec(),
            }
        );
    }

    fn endpoint(id: &str, host: &str, port: u8, protocol: &str) -> Vec<u8> {
        let text = |tag: u8, text: &str| [&[tag, text.len() as u8], text.as_bytes()].concat();
        let inner = [
            text(0x0a, id),
            vec![0x10, port],
            text(0x1a, host),
            text(0x22, protocol),
        ]
        .concat();
        [vec![0x32, inner.len() as u8], inner].concat()
    }

    #[tokio::test]
    async fn where_an_admin_server_is() {
        let rpc = |host| endpoint("bookie", host, 31, "bookie-rpc");
        let admin = |host| endpoint("httpserver", host, 80, "http");
        let both = |one, other| [rpc(one), admin(other)].concat();
        let store = store(&[
            ("/l/available/everywhere", &both("10.0.0.1", "0.0.0.0")),
            ("/l/available/here", &both("10.0.0.1", "localhost")),
            ("/l/available/readonly/six", &both("fe80::1", "::")),
            ("/l/available/none", &rpc("10.0.0.1")),
            ("/l/available/old", b""),
            ("/l/available/garbage", b"\x32\xff"),
        ])
        .await;
        let told = async |bookie| match admin_url(&store, "/l", bookie).await {
            Ok(url) => url.unwrap_or_default(),
            Err(_) => "cannot be understood".to_owned(),
        };
        assert_eq!(told("everywhere").await, "http://10.0.0.1:80");
        assert_eq!(told("here").await, "http://localhost:80");
        assert_eq!(told("six").await, "http://[fe80::1]:80");
        for bookie in ["none", "old", "stranger"] {
            assert_eq!(told(bookie).await, "", "{bookie}");
        }
        assert_eq!(told("garbage").await, "cannot be understood");
    }
}
