//! Who else holds a bookie in a mode: the claims below its node, and what can be told from the agent's
//! own document without knowing it whole.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::paths::Paths;
use super::store::{
    Kind, MetaStore, Op, StoreError, children_if_any, create_with_parents, get_all,
};
use crate::health::claim::{Claim, Owner, REASON_LIMIT};
use crate::health::dir::printable;
use crate::health::moment::Timestamp;
use crate::health::policy::Mode;

/// A claim as others than the agent write it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimDocument {
    owner: String,
    mode: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    since: i64,
    #[serde(default)]
    below_floor: bool,
}

/// The version of an agent's document whose claims are known by their names.
const AGENT_VERSION: u32 = 1;

/// What everybody may read from an agent's document.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AgentDocument {
    version: u32,
    below_floor: bool,
    agent: Option<IgnoredAny>,
    operator: Option<IgnoredAny>,
}

/// What stands in a bookie's claims node, as far as others need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Summary {
    /// Somebody holds the bookie in a mode.
    pub(super) claimed: bool,
    /// A claim was made although too few bookies stayed writable.
    pub(super) below_floor: bool,
}

/// The claims of others on a bookie, by name. One that cannot be read holds read-only all the same: to
/// end what somebody holds would be worse than to hold it too long.
pub(super) async fn foreign(
    store: &dyn MetaStore,
    paths: &Paths,
    bookie: &str,
) -> Result<Vec<Claim>, StoreError> {
    let top = paths.claims_on(bookie);
    let mut names = children_if_any(store, &top).await?;
    names.sort();
    let nodes: Vec<String> = names.iter().map(|name| format!("{top}/{name}")).collect();
    let found = get_all(store, &nodes).await?;
    let read = names.iter().zip(found);
    Ok(read
        .filter_map(|(name, found)| Some(claim(name, &found?.0)))
        .collect())
}

pub(super) fn claim(name: &str, bytes: &[u8]) -> Claim {
    parsed(name, bytes).unwrap_or_else(|why| Claim {
        owner: Owner::Drain(name.to_owned()),
        mode: Mode::ReadOnly,
        reason: line(&format!("the claim cannot be read: {why}")),
        since: Timestamp::default(),
        pending: false,
        below_floor: false,
    })
}

fn parsed(name: &str, bytes: &[u8]) -> Result<Claim, String> {
    let document: ClaimDocument =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mode = [Mode::Writable, Mode::ReadOnly]
        .into_iter()
        .find(|mode| mode.name() == document.mode)
        .ok_or_else(|| format!("{:.40} is no mode", document.mode))?;
    let owner = match document.owner.split_once(':') {
        Some(("drain", job)) => Owner::Drain(line(job)),
        None if document.owner == "operator" => Owner::Operator,
        _ => Owner::Drain(name.to_owned()),
    };
    Ok(Claim {
        owner,
        mode,
        reason: line(&document.reason),
        since: Timestamp(document.since),
        pending: false,
        below_floor: document.below_floor,
    })
}

/// Text of somebody else for a line that people read: as long as an order's reason may be, and steers nothing.
fn line(text: &str) -> String {
    let short: String = text.chars().take(REASON_LIMIT).collect();
    printable(&short)
}

/// What the node of a bookie's claims comes to: the agent's document, and how many others there are.
pub(super) fn summary(document: &[u8], others: u32) -> Summary {
    if document.is_empty() {
        return Summary {
            claimed: others != 0,
            below_floor: false,
        };
    }
    match serde_json::from_slice::<AgentDocument>(document) {
        Ok(agent) => Summary {
            // The node stays when its last claim ends. What another release wrote may be a claim.
            claimed: others != 0
                || agent.version != AGENT_VERSION
                || agent.agent.is_some()
                || agent.operator.is_some(),
            below_floor: agent.below_floor,
        },
        // Garbage may stand for anything: no second bookie goes below the floor beside it.
        Err(_) => Summary {
            claimed: true,
            below_floor: true,
        },
    }
}

/// A drain's claim on a bookie, which keeps it read-only (`<root>/<instance>/claims/<bookie>/<job>`). Agents keep a bookie as it
/// is while a claim of somebody else stands. Made again it changes nothing. `going_on` is checked in the same transaction, so that
/// none is left behind by a job that is over.
///
/// # Errors
/// It could not be written, or it is not known whether it was; step 0 is `going_on`.
pub async fn claim_for_drain(
    store: &dyn MetaStore,
    (root, instance): (&str, &str),
    bookie: &str,
    (job, going_on): (&str, Op),
    since: Timestamp,
) -> Result<(), StoreError> {
    let top = Paths::new("", root, instance).claims_on(bookie);
    let path = format!("{top}/{job}");
    if store.stat(&path).await?.is_some() {
        return Ok(());
    }
    match create_with_parents(store, &top, &[], Kind::Persistent).await {
        Ok(_) | Err(StoreError::NodeExists) => {}
        Err(error) => return Err(error),
    }
    let document = serde_json::json!({
        "owner": format!("drain:{job}"),
        "mode": Mode::ReadOnly.name(),
        "reason": "its ledgers are being moved to other bookies",
        "since": since.0,
    });
    let data = document.to_string().into_bytes();
    let kind = Kind::Persistent;
    match store
        .multi(&[going_on, Op::Create { path, data, kind }])
        .await
    {
        Err(StoreError::Step { at: 1, source }) if *source == StoreError::NodeExists => Ok(()),
        made => made,
    }
}

/// Ends a drain's claim, and says whether another one, an agent's or an operator's included, still stands on the bookie.
///
/// # Errors
/// It could not be ended, or it is not known whether it was.
pub async fn end_claim_of_drain(
    store: &dyn MetaStore,
    (root, instance): (&str, &str),
    bookie: &str,
    job: &str,
) -> Result<bool, StoreError> {
    let top = Paths::new("", root, instance).claims_on(bookie);
    match store.delete(&format!("{top}/{job}"), None).await {
        Ok(()) | Err(StoreError::NoNode) => {}
        Err(error) => return Err(error),
    }
    match store.get(&top).await {
        Ok((document, stat)) => Ok(summary(&document, stat.children).claimed),
        Err(StoreError::NoNode) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &str, expected: &str) {
        let claim = claim("j1", bytes.as_bytes());
        let owner = match &claim.owner {
            Owner::Drain(job) => format!("drain:{job}"),
            owner => owner.name().to_owned(),
        };
        let since = claim.since.0;
        let shown = format!("{owner} {} {since} {}", claim.mode.name(), claim.reason);
        assert_eq!(shown, expected, "{bytes}");
    }

    #[test]
    fn claims_of_others() {
        check(
            r#"{"owner":"drain:j1","mode":"readOnly","reason":"out","since":5}"#,
            "drain:j1 readOnly 5 out",
        );
        check(
            r#"{"owner":"operator","mode":"writable","later":1}"#,
            "operator writable 0 ",
        );
        check(
            r#"{"owner":"robot","mode":"readOnly"}"#,
            "drain:j1 readOnly 0 ",
        );
        check(
            r#"{"owner":"drain:x","mode":"closed"}"#,
            "drain:j1 readOnly 0 the claim cannot be read: closed is no mode",
        );
        check(
            "",
            "drain:j1 readOnly 0 the claim cannot be read: EOF while parsing a value at line 1 column 0",
        );
        check(
            r#"{"owner":"drain:\u001b[2J","mode":"readOnly","reason":"a\nb"}"#,
            r"drain:\x1b[2J readOnly 0 a\x0ab",
        );
        let long = format!(
            r#"{{"owner":"drain:x","mode":"readOnly","reason":"{}"}}"#,
            "r".repeat(900_000)
        );
        assert_eq!(claim("j1", long.as_bytes()).reason.len(), REASON_LIMIT);
    }

    #[tokio::test]
    async fn a_drain_claims_and_lets_go() {
        use crate::clock::Clock;
        use crate::cluster::memory::Memory;
        let store = Memory::new(Clock::manual()).connect();
        let here = ("/dirkeeper", "i");
        let job = |version| {
            let path = "/job".to_owned();
            Op::Check { path, version }
        };
        store.create("/job", b"", Kind::Persistent).await.unwrap();
        let over = claim_for_drain(&store, here, "b:1", ("d-1", job(7)), Timestamp(5)).await;
        assert!(
            matches!(over, Err(StoreError::Step { at: 0, .. })),
            "{over:?}"
        );
        for _ in 0..2 {
            let made = claim_for_drain(&store, here, "b:1", ("d-1", job(0)), Timestamp(5)).await;
            made.unwrap();
        }
        let paths = Paths::new("/ledgers", "/dirkeeper", "i");
        let found = foreign(&store, &paths, "b:1").await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].owner, Owner::Drain("d-1".to_owned()));
        assert_eq!(
            (found[0].mode, found[0].since),
            (Mode::ReadOnly, Timestamp(5))
        );
        claim_for_drain(&store, here, "b:1", ("d-2", job(0)), Timestamp(6))
            .await
            .unwrap();
        let ended = async |job| end_claim_of_drain(&store, here, "b:1", job).await.unwrap();
        assert!(ended("d-1").await, "another stands");
        assert!(!ended("d-2").await);
        assert!(!ended("d-2").await, "it is gone already");
        let agents = br#"{"version":1,"agent":{"x":1},"belowFloor":false}"#;
        store
            .set("/dirkeeper/i/claims/b:1", agents, None)
            .await
            .unwrap();
        assert!(ended("d-2").await, "the agent's own stands");
    }

    #[test]
    fn what_a_document_says_to_others() {
        let said = |document: &str, others| {
            let Summary {
                claimed,
                below_floor,
            } = summary(document.as_bytes(), others);
            (claimed, below_floor)
        };
        assert_eq!(said("", 0), (false, false));
        assert_eq!(said("", 1), (true, false));
        // As `mode::claims` writes it when the last claim has ended.
        let ended = r#"{"version":1,"revision":2,"belowFloor":false,"releasing":false,"agent":null,"operator":null}"#;
        assert_eq!(said(ended, 0), (false, false));
        assert_eq!(said(ended, 2), (true, false));
        assert_eq!(
            said(r#"{"version":1,"agent":{"x":1},"belowFloor":true}"#, 0),
            (true, true)
        );
        assert_eq!(said(r#"{"version":1,"operator":{}}"#, 0), (true, false));
        assert_eq!(said(r#"{"version":2,"agent":null}"#, 0), (true, false));
        assert_eq!(said("{}", 0), (true, false));
        assert_eq!(said("garbage", 0), (true, true));
    }
}
