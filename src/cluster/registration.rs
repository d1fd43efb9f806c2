//! Who is in the cluster: cookies, the two lists of registered bookies, Pulsar's map of racks, and what
//! a bookie says of its services when it registers.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::paths::Paths;
use super::store::{MetaStore, StoreError};
use super::wire::{Field, fields};
use crate::health::beside::Registration;

/// Where a bookie is, as Pulsar's operators said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// Its rack.
    pub rack: Option<String>,
    /// Its isolation group.
    pub group: Option<String>,
}

/// One service of a bookie, such as `httpserver` or `bookie`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Endpoint {
    /// Its name.
    pub id: String,
    /// Its port.
    pub port: u16,
    /// The host or address it listens on.
    pub host: String,
    /// Such as `http`.
    pub protocol: String,
}

/// Under which lists the bookie is.
pub(super) async fn read(
    store: &dyn MetaStore,
    paths: &Paths,
    bookie: &str,
) -> Result<Registration, StoreError> {
    let at = |list: String| format!("{list}/{bookie}");
    Ok(Registration {
        writable: store.stat(&at(paths.available())).await?.is_some(),
        read_only: store.stat(&at(paths.read_only())).await?.is_some(),
    })
}

/// Both lists have a node of it, and from two sessions: one of them is not the bookie's own. A change of mode makes the
/// node that is there already, waits for its end, and ends the bookie where that does not come (measured with 4.17.3).
pub(super) async fn is_of_two_sessions(
    store: &dyn MetaStore,
    paths: &Paths,
    bookie: &str,
) -> Result<bool, StoreError> {
    let at = |list: String| format!("{list}/{bookie}");
    let writable = store.stat(&at(paths.available())).await?;
    let read_only = store.stat(&at(paths.read_only())).await?;
    Ok(writable
        .zip(read_only)
        .is_some_and(|(writable, read_only)| writable.owner != read_only.owner))
}

#[derive(Deserialize)]
struct RackDocument {
    rack: Option<String>,
}

/// Pulsar's map of racks: group, then bookie, then rack and host name.
///
/// # Errors
/// It is no such map, in words.
pub fn racks(bytes: &[u8]) -> Result<BTreeMap<String, Place>, String> {
    // Pulsar makes the node empty.
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(BTreeMap::new());
    }
    let groups: BTreeMap<String, BTreeMap<String, RackDocument>> =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut places = BTreeMap::new();
    for (group, bookies) in groups {
        for (bookie, RackDocument { rack }) in bookies {
            let place = Place {
                rack: rack.filter(|rack| !rack.is_empty()),
                group: Some(group.clone()),
            };
            places.insert(bookie, place);
        }
    }
    Ok(places)
}

/// What a bookie says of its services (`BookieServiceInfoFormat`). No data: a bookie from before there
/// was such a thing, or one that is told not to say it.
///
/// # Errors
/// The data is nothing of the kind.
pub fn endpoints(bytes: &[u8]) -> Result<Vec<Endpoint>, String> {
    const ENDPOINTS: u64 = 6;
    let mut all = Vec::new();
    for field in fields(bytes) {
        if let (ENDPOINTS, Field::Bytes(inner)) = field? {
            all.push(endpoint(inner)?);
        }
    }
    Ok(all)
}

fn endpoint(bytes: &[u8]) -> Result<Endpoint, String> {
    let mut endpoint = Endpoint::default();
    for field in fields(bytes) {
        match field? {
            (1, Field::Bytes(id)) => endpoint.id = text(id),
            (2, Field::Number(port)) => {
                endpoint.port = u16::try_from(port).map_err(|_| format!("{port} is no port"))?;
            }
            (3, Field::Bytes(host)) => endpoint.host = text(host),
            (4, Field::Bytes(protocol)) => endpoint.protocol = text(protocol),
            _ => {}
        }
    }
    Ok(endpoint)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn racks_of_pulsar() {
        let places = racks(
            br#"{"default": {"a:3181": {"rack": "/r1", "hostname": "a"}, "b:3181": {"rack": ""}},
                 "other": {"c:3181": {"rack": "/r2", "added": 1}}}"#,
        )
        .unwrap();
        let shown: Vec<_> = places
            .iter()
            .map(|(id, place)| format!("{id} {:?} {:?}", place.rack, place.group))
            .collect();
        assert_eq!(
            shown,
            [
                r#"a:3181 Some("/r1") Some("default")"#,
                r#"b:3181 None Some("default")"#,
                r#"c:3181 Some("/r2") Some("other")"#,
            ]
        );
        assert_eq!(racks(b"").unwrap(), BTreeMap::new());
        assert_eq!(racks(b"{}").unwrap(), BTreeMap::new());
        for bad in [&b"[]"[..], b"{\"g\": 1}", b"\xff", b"{", b"null"] {
            assert!(racks(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn services_of_a_bookie() {
        // As a 4.17 bookie writes them: one endpoint, then properties.
        let mut bytes = vec![0x32, 29];
        bytes.extend(b"\x0a\x0ahttpserver\x10\x90\x3f\x1a\x07");
        bytes.extend(b"0.0.0.0");
        bytes[1] = u8::try_from(bytes.len() - 2).unwrap();
        bytes.extend(b"\x3a\x06\x0a\x01k\x12\x01v");
        assert_eq!(
            endpoints(&bytes).unwrap(),
            [Endpoint {
                id: "httpserver".to_owned(),
                port: 8080,
                host: "0.0.0.0".to_owned(),
                protocol: String::new(),
            }]
        );
        assert_eq!(endpoints(b"").unwrap(), []);
        for bad in [
            &b"\x32\xff"[..],
            b"\x32\x05\x10\xff\xff\xff\x7f",
            b"<xml/>",
            b"\x80",
        ] {
            assert!(endpoints(bad).is_err(), "{bad:?}");
        }
    }
}
