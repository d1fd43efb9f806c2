//! What agents say of their bookies: one node for each, which goes with the agent.

use serde::{Deserialize, Serialize};

use super::paths::Paths;
use super::store::{Kind, Link, MetaStore, StoreError, create_with_parents};
use crate::health::beside::AgentStatus;
use crate::health::dir::printable;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusDocument {
    over_warn: bool,
    full: bool,
    enforces: bool,
    at: u64,
    /// Where it runs.
    #[serde(default)]
    host: String,
    /// Which run of which agent: two sessions of one are no rivals.
    #[serde(default)]
    run: u64,
}

/// Who says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) host: String,
    pub(super) run: u64,
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

fn bytes(status: &AgentStatus, agent: &Agent) -> Vec<u8> {
    let document = StatusDocument {
        over_warn: status.over_warn,
        full: status.full,
        enforces: status.enforces,
        at: status.at,
        host: agent.host.clone(),
        run: agent.run,
    };
    serde_json::to_vec(&document).expect("switches and a number are always JSON")
}

/// Where another agent runs that says it is this bookie's, as long as its session lives.
pub(super) async fn rival(
    store: &dyn MetaStore,
    path: &str,
    agent: &Agent,
) -> Result<Option<String>, StoreError> {
    let (data, stat) = match store.get(path).await {
        Ok(found) => found,
        Err(StoreError::NoNode) => return Ok(None),
        Err(error) => return Err(error),
    };
    let ours = match *store.link().borrow() {
        Link::Connected(id) => id,
        Link::Lost { .. } => return Err(StoreError::Lost),
    };
    // A node that goes with no session is no agent's.
    if stat.owner.is_none_or(|owner| owner == ours) {
        return Ok(None);
    }
    let document = serde_json::from_slice::<StatusDocument>(&data);
    let theirs = document.map(|document| (document.run, printable(&document.host)));
    Ok(match theirs {
        Ok((run, _)) if run == agent.run => None,
        Ok((_, host)) if !host.is_empty() => Some(host),
        _ => Some("a host that it does not name".to_owned()),
    })
}

/// Says it, in a node of this session. A node of an earlier session of this agent is replaced: it would go when that
/// session ends, and the newest word with it. One of another agent stays, and where that runs is given back.
pub(super) async fn publish(
    store: &dyn MetaStore,
    paths: &Paths,
    bookie: &str,
    status: &AgentStatus,
    agent: &Agent,
) -> Result<Option<String>, StoreError> {
    let path = paths.agent(bookie);
    let data = bytes(status, agent);
    if let Some(rival) = rival(store, &path, agent).await? {
        return Ok(Some(rival));
    }
    let ours = match *store.link().borrow() {
        Link::Connected(id) => id,
        Link::Lost { .. } => return Err(StoreError::Lost),
    };
    match store.stat(&path).await? {
        Some(stat) if stat.owner == Some(ours) => match store.set(&path, &data, None).await {
            Err(StoreError::NoNode) => {}
            other => return other.map(|_| None),
        },
        Some(stat) => match store.delete(&path, Some(stat.version)).await {
            Ok(()) | Err(StoreError::NoNode) => {}
            Err(error) => return Err(error),
        },
        None => {}
    }
    create_with_parents(store, &path, &data, Kind::Ephemeral)
        .await
        .map(|_| None)
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
        let agent = Agent {
            host: "bk-3".to_owned(),
            run: 5,
        };
        let written = bytes(&status, &agent);
        assert_eq!(
            String::from_utf8_lossy(&written),
            r#"{"overWarn":true,"full":false,"enforces":true,"at":7,"host":"bk-3","run":5}"#
        );
        assert_eq!(parse(&written), Ok(status.clone()));
        // As an earlier release wrote it.
        let old = br#"{"overWarn":true,"full":false,"enforces":true,"at":7}"#;
        assert_eq!(parse(old), Ok(status));
        for bad in [&b""[..], b"[]", b"{}", b"\xff\x00", b"{\"overWarn\":1}"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
