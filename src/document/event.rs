//! The document of an event, written for hooks, API and event log and read back from them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Host, json, mode_name, path_text, rounded_ratio, timestamp_text, usage_ratio};
use crate::health::event::{Event, EventKind, NodeSummary};
use crate::health::observation::Space;
use crate::health::status::Reason;

/// The event as one line of JSON, without a line feed.
#[must_use]
pub fn event_json(event: &Event, host: &Host) -> String {
    json(&EventDocument::new(event, host))
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventDocument {
    /// Number; the key for idempotence.
    pub seq: u64,
    /// When it was decided, RFC 3339.
    pub time: String,
    /// Name of the event.
    pub event: String,
    /// `ok`, `warning`, `unknown` or `critical`.
    pub severity: String,
    /// Host name.
    pub host: String,
    /// The bookie's id, when there is a bookie.
    pub bookie_id: Option<String>,
    /// The directory; none for an event of the node.
    pub dir: Option<String>,
    /// Its role.
    pub role: Option<String>,
    /// The axis that changed.
    pub axis: Option<String>,
    /// Old value.
    pub from: Option<String>,
    /// New value.
    pub to: Option<String>,
    /// Events left out between first and newest.
    pub coalesced: u32,
    /// Why.
    pub cause: Option<CauseDocument>,
    /// Space at that time.
    pub space: Option<EventSpaceDocument>,
    /// How all directories stood.
    pub node: NodeDocument,
}

impl EventDocument {
    /// The document of an event.
    #[must_use]
    pub fn new(event: &Event, host: &Host) -> EventDocument {
        EventDocument {
            seq: event.seq,
            time: timestamp_text(event.time),
            event: event.kind.name().to_owned(),
            severity: event.severity.name().to_owned(),
            host: host.host.clone(),
            bookie_id: host.bookie_id.clone(),
            dir: event.dir.as_deref().map(path_text),
            role: event.role.map(|role| role.name().to_owned()),
            axis: event.axis.map(|axis| axis.name().to_owned()),
            from: event.from.map(str::to_owned),
            to: event.to.map(str::to_owned),
            coalesced: event.coalesced,
            cause: event.reason.as_ref().map(CauseDocument::new),
            space: event.space.and_then(EventSpaceDocument::new),
            node: NodeDocument::new(&event.node),
        }
    }
}

/// Why a status is what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CauseDocument {
    /// Word of a closed list.
    pub kind: String,
    /// Operation that showed it.
    pub operation: String,
    /// Error number of the kernel, if there was one.
    pub errno: Option<i32>,
    /// A sentence for people.
    pub message: String,
}

impl CauseDocument {
    pub(super) fn new(reason: &Reason) -> CauseDocument {
        CauseDocument {
            kind: reason.cause.name().to_owned(),
            operation: reason.operation.name().to_owned(),
            errno: reason.errno,
            message: reason.message.clone(),
        }
    }
}

/// Space of a directory in an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventSpaceDocument {
    /// All bytes.
    pub size_bytes: u64,
    /// Bytes that may still be written.
    pub available_bytes: u64,
    /// Usage.
    pub usage_ratio: f64,
}

impl EventSpaceDocument {
    fn new(space: Space) -> Option<EventSpaceDocument> {
        let ratio = usage_ratio(space)?;
        // An event does not carry the thresholds. People write them with at most four digits, and
        // the only such number that rounding to six digits could reach is the nearest one.
        let nearest = (ratio * 1e4).round() / 1e4;
        Some(EventSpaceDocument {
            size_bytes: space.size,
            available_bytes: space.available,
            usage_ratio: rounded_ratio(ratio, &[nearest]),
        })
    }
}

/// How all directories stand.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeDocument {
    /// Below warn and good.
    pub writable: Vec<String>,
    /// Over warn and good otherwise.
    pub almost_full: Vec<String>,
    /// Full and good otherwise.
    pub full: Vec<String>,
    /// Read-only, failed, hung, vanished, replaced.
    pub unusable: Vec<String>,
    /// The mode the disks allow; none while too much is unknown.
    pub wanted_mode: Option<String>,
    /// There is room for recovery writes.
    pub high_priority_writes: bool,
}

impl NodeDocument {
    fn new(node: &NodeSummary) -> NodeDocument {
        let paths = |paths: &[PathBuf]| paths.iter().map(|path| path_text(path)).collect();
        NodeDocument {
            writable: paths(&node.writable),
            almost_full: paths(&node.almost_full),
            full: paths(&node.full),
            unusable: paths(&node.unusable),
            wanted_mode: node.wanted_mode.map(mode_name),
            high_priority_writes: node.high_priority_writes,
        }
    }
}
/// The text of `docs/events.md`, from the table in `health::event`.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from(
        "# Events\n\nWritten from the table in `src/health/event.rs`; do not edit. An event is told once, when something \
         changes; what lasts is in the snapshot and the metrics, and in `reminder`. The cause \
         of an axis that is good again names what has ended, and its message what is good now. The JSON of an event is \
         described in the [hooks' page](hooks.md), and what to do about each in the [runbook](operations.md#runbook).\n\n| event | severity | meaning |\n| --- | --- | --- |\n",
    );
    for kind in EventKind::ALL {
        let (name, severity) = (kind.name(), kind.severity().name());
        text.push_str(&format!("| `{name}` | {severity} | {} |\n", kind.meaning()));
    }
    text
}

#[cfg(test)]
mod tests {
    /// Meaning, first look and remedy under a heading of its own, at whatever level.
    #[test]
    fn every_event_has_an_entry_in_the_runbook() {
        let runbook = include_str!("../../docs/operations.md");
        for kind in super::EventKind::ALL {
            let heading = format!("# {}\n", kind.name());
            let entry = runbook.split_once(&heading).map(|(_, rest)| rest);
            let entry = entry.unwrap_or_else(|| panic!("{} has no entry", kind.name()));
            let entry = entry.split("\n#").next().unwrap_or_default();
            assert!(40 < entry.len(), "{} is not explained", kind.name());
        }
    }

    #[test]
    fn the_reference_in_docs_is_up_to_date() {
        crate::generated::check("docs/events.md", &super::reference());
    }
}
