//! What agents say of their bookies: one node for each, which goes with the agent.

use serde::{Deserialize, Serialize};

use super::paths::Paths;
use super::store::{Kind, Link, MetaStore, StoreError, create_with_parents};
use crate::health::beside::AgentStatus;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusDocument {
    over_warn: bool,
    full: bool,
    enforces: bool,
    at: u64,
}

/// A status from its node.
///
/// # Errors
/// It is none, in words.
pub(super) fn parse(bytes: &[u8]) -> Result<AgentStatus, String> {
    let document: StatusDocument =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    Ok(AgentStatus {
        over_warn: document.over_warn,
        full: document.full,
        enforces: document.enforces,
        at: document.at,
    })
}

fn bytes(status: &AgentStatus) -> Vec<u8> {
    let document = StatusDocument {
        over_warn: status.over_warn,
        full: status.full,
        enforces: status.enforces,
        at: status.at,
    };
    serde_json::to_vec(&document).expect("switches and a number are always JSON")
}

/// Says it, in a node of this session. A node of an earlier session of this bookie's agent is replaced: it
/// would go when that session ends, and the newest word with it.
pub(super) async fn publish(
    store: &dyn MetaStore,
    paths: &Paths,
    bookie: &str,
    status: &AgentStatus,
) -> Result<(), StoreError> {
    let path = paths.agent(bookie);
    let data = bytes(status);
    let ours = match *store.link().borrow() {
        Link::Connected(id) => id,
        Link::Lost { .. } => return Err(StoreError::Lost),
    };
    match store.stat(&path).await? {
        Some(stat) if stat.owner == Some(ours) => match store.set(&path, &data, None).await {
            Err(StoreError::NoNode) => {}
            other => return other.map(drop),
        },
        Some(stat) => match store.delete(&path, Some(stat.version)).await {
            Ok(()) | Err(StoreError::NoNode) => {}
            Err(error) => return Err(error),
        },
        None => {}
    }
    create_with_parents(store, &path, &data, Kind::Ephemeral)
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_it_was_written_and_garbage_is_none() {
        let status = AgentStatus {
            over_warn: true,
            full: false,
            enforces: true,
            at: 7,
        };
        let written = bytes(&status);
        assert_eq!(
            String::from_utf8_lossy(&written),
            r#"{"overWarn":true,"full":false,"enforces":true,"at":7}"#
        );
        assert_eq!(parse(&written), Ok(status));
        for bad in [&b""[..], b"[]", b"{}", b"\xff\x00", b"{\"overWarn\":1}"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
