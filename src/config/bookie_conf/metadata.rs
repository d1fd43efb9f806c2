//! Where a bookie's cluster keeps its metadata, from `metadataServiceUri` or the older keys.

/// A metadata service as BookKeeper names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataService {
    /// The whole URI.
    pub uri: String,
    /// Set when the service is ZooKeeper; others can be watched beside, not used.
    pub zookeeper: Option<ZooKeeper>,
}

/// A ZooKeeper ensemble and where the ledgers are in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZooKeeper {
    /// `host:port` of each server.
    pub servers: Vec<String>,
    /// Path under which BookKeeper keeps everything.
    pub ledgers_root: String,
}

/// BookKeeper's and Pulsar's path when none is given.
const LEDGERS: &str = "/ledgers";

/// ZooKeeper's port for clients when none is given.
const PORT: u16 = 2181;

impl MetadataService {
    /// Understands `zk+…://servers/path` (BookKeeper) and `metadata-store:zk:servers/path`
    /// (Pulsar); servers are separated by `,` or `;`.
    pub(in crate::config) fn parse(uri: &str) -> MetadataService {
        let pulsar = uri.strip_prefix("metadata-store:zk:");
        let servers = match (pulsar, uri.split_once("://")) {
            (Some(rest), _) => Some(rest.trim_start_matches("//")),
            (None, Some((scheme, rest))) if scheme == "zk" || scheme.starts_with("zk+") => {
                Some(rest)
            }
            _ => None,
        };
        MetadataService {
            uri: uri.to_owned(),
            zookeeper: servers.and_then(ZooKeeper::parse),
        }
    }

    /// From `zkServers` and `zkLedgersRootPath`.
    pub(super) fn from_servers(servers: &str, root: Option<&str>) -> MetadataService {
        let servers = servers.replace(',', ";");
        MetadataService::parse(&format!("zk://{servers}{}", root.unwrap_or(LEDGERS)))
    }
}

impl ZooKeeper {
    fn parse(text: &str) -> Option<ZooKeeper> {
        let (servers, path) = match text.find('/') {
            Some(slash) => text.split_at(slash),
            None => (text, ""),
        };
        let servers: Vec<String> = servers
            .split([',', ';'])
            .map(str::trim)
            .filter(|server| !server.is_empty())
            .map(with_port)
            .collect();
        let path = path.trim_end_matches('/');
        (!servers.is_empty()).then(|| ZooKeeper {
            servers,
            ledgers_root: if path.is_empty() { LEDGERS } else { path }.to_owned(),
        })
    }
}

pub(in crate::config) fn with_port(server: &str) -> String {
    let digits = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match server.rsplit_once(':') {
        Some((_, port)) if digits(port) => server.to_owned(),
        _ => format!("{server}:{PORT}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::edited;

    fn check(uri: &str, expected: Option<(&[&str], &str)>) {
        let zookeeper = MetadataService::parse(uri).zookeeper;
        let found = zookeeper
            .as_ref()
            .map(|zookeeper| (zookeeper.servers.clone(), zookeeper.ledgers_root.as_str()));
        let expected = expected.map(|(servers, root)| {
            let servers: Vec<String> = servers.iter().map(|&server| server.to_owned()).collect();
            (servers, root)
        });
        assert_eq!(found, expected, "{uri}");
    }

    #[test]
    fn uris_of_bookkeeper_and_pulsar() {
        check(
            "zk+hierarchical://a:2181;b:2182/ledgers",
            Some((&["a:2181", "b:2182"], "/ledgers")),
        );
        check("zk+null://a,b/x/y/", Some((&["a:2181", "b:2181"], "/x/y")));
        check(
            "metadata-store:zk:a:2181,b:2181",
            Some((&["a:2181", "b:2181"], "/ledgers")),
        );
        check(
            "metadata-store:zk:a:2181/chroot/ledgers",
            Some((&["a:2181"], "/chroot/ledgers")),
        );
        check("zk://[::1]:2181", Some((&["[::1]:2181"], "/ledgers")));
        check("etcd:http://a:2379/x", None);
        check("metadata-store:oxia://a:6648/x", None);
        check("zk:///ledgers", None);
        check("", None);
    }

    #[test]
    fn older_keys() {
        let service = MetadataService::from_servers("a:1,b:2", Some("/my/ledgers"));
        assert_eq!(service.uri, "zk://a:1;b:2/my/ledgers");
    }

    proptest! {
        /// Whatever the URI, it is none that can be used, or servers with ports and a path.
        #[test]
        fn any_uri_has_servers_with_ports_or_none(
            uri in prop_oneof![
                any::<String>(),
                "(zk|zk\\+x|metadata-store:zk|etcd):(//)?[a-z0-9:,;/\\[\\] ]{0,30}",
                edited("zk+hierarchical://a:2181;[::1]:2182/my/ledgers")
                    .prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            ],
        ) {
            let service = MetadataService::parse(&uri);
            prop_assert_eq!(&service.uri, &uri);
            if let Some(zookeeper) = service.zookeeper {
                let ZooKeeper { servers, ledgers_root: root } = &zookeeper;
                for server in servers {
                    let port = server.rsplit_once(':').unwrap().1;
                    prop_assert!(port.bytes().all(|byte| byte.is_ascii_digit()), "{}", server);
                }
                prop_assert!(root.starts_with('/') && !root.ends_with('/'), "{}", root);
                let written = format!("zk://{}{root}", servers.join(";"));
                prop_assert_eq!(MetadataService::parse(&written).zookeeper, Some(zookeeper));
            }
        }
    }
}
