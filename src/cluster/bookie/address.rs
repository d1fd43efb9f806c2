//! Where a bookie listens: what it registered counts, and its id is an address only if nothing is registered.

use super::error::BookieError;
use crate::cluster::paths::{Paths, check_bookie};
use crate::cluster::registration::endpoints;
use crate::cluster::store::{MetaStore, StoreError};

/// The endpoint of the protocol, among those that a bookie registers.
const PROTOCOL: &str = "bookie-rpc";

/// Host and port of a bookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Looks it up. A bookie may be in the one list, in the other, or in none; then it may still run.
pub(super) async fn of(
    store: &dyn MetaStore,
    ledgers_root: &str,
    id: &str,
) -> Result<Address, BookieError> {
    check_bookie(id).map_err(BookieError::Id)?;
    let paths = Paths::new(ledgers_root, "", "");
    for list in [paths.available(), paths.read_only()] {
        match store.get(&format!("{list}/{id}")).await {
            Ok((bytes, _)) => {
                let endpoints = endpoints(&bytes).map_err(BookieError::Endpoints)?;
                let ours = endpoints.into_iter().find(|one| one.protocol == PROTOCOL);
                if let Some(endpoint) = ours {
                    return Ok(Address {
                        host: bare(&endpoint.host).to_owned(),
                        port: endpoint.port,
                    });
                }
            }
            Err(StoreError::NoNode) => {}
            Err(error) => return Err(BookieError::Registration(error)),
        }
    }
    in_id(id).ok_or(BookieError::NoAddress)
}

/// The address that an id is.
fn in_id(id: &str) -> Option<Address> {
    let (host, port) = id.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| 0 < *port)?;
    let host = match bare(host) {
        // More colons are an address of version 6, and that has brackets.
        bare if bare.is_empty() || (bare == host && host.contains(':')) => return None,
        bare => bare.to_owned(),
    };
    Some(Address { host, port })
}

fn bare(host: &str) -> &str {
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::cluster::memory::Memory;
    use crate::cluster::store::{Kind, create_with_parents};

    /// A registration with two endpoints, of which the second is the protocol's.
    fn registration(host: &str, port: u8) -> Vec<u8> {
        let field = |tag: u8, text: &str| [&[tag, text.len() as u8], text.as_bytes()].concat();
        let endpoint = |host: &str, port: u8, protocol: &str| {
            let inner = [
                field(0x0a, "id"),
                vec![0x10, port],
                field(0x1a, host),
                field(0x22, protocol),
            ];
            let inner = inner.concat();
            [&[0x32, inner.len() as u8], &inner[..]].concat()
        };
        [endpoint("h", 80, "http"), endpoint(host, port, PROTOCOL)].concat()
    }

    #[tokio::test]
    async fn what_is_registered_counts_before_the_id() {
        let store = Memory::new(Clock::manual()).connect();
        let nodes = [
            ("available/one", registration("10.0.0.1", 100)),
            ("available/readonly/two:9", registration("[::1]", 101)),
            ("available/old:3181", Vec::new()),
            ("available/bad", b"<xml/>".to_vec()),
            ("available/mute", Vec::new()),
        ];
        for (path, data) in nodes {
            let path = format!("/ledgers/{path}");
            create_with_parents(&store, &path, &data, Kind::Persistent)
                .await
                .unwrap();
        }
        let mut told = Vec::new();
        for id in [
            "one",
            "two:9",
            "old:3181",
            "gone:3181",
            "[::1]:7",
            "bad",
            "mute",
            "a/b",
            "x:0",
            "::1:7",
        ] {
            told.push(match of(&store, "/ledgers", id).await {
                Ok(address) => format!("{id}: {address}"),
                Err(error) => format!("{id}: {error}"),
            });
        }
        insta::assert_snapshot!(told.join("\n"), @"
        one: 10.0.0.1:100
        two:9: ::1:101
        old:3181: old:3181
        gone:3181: gone:3181
        [::1]:7: ::1:7
        bad: its registration cannot be understood: it is cut off, or no protobuf message
        mute: it is not registered, and its id is no host and port
        a/b: it cannot be a bookie's id: it has a slash, which would make a node below another
        x:0: it is not registered, and its id is no host and port
        ::1:7: it is not registered, and its id is no host and port
        ");
    }
}
