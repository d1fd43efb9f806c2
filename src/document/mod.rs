//! The JSON documents of the public contract: events and the snapshot, as the API, hooks, webhooks,
//! the event log and the command line write and read them. Key order is part of the contract. It
//! converts values and does nothing else: no I/O, no clock, no decision.

mod beside;
mod event;
mod mode;
#[cfg(test)]
pub(crate) mod sample;
mod status;

use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

use crate::health::dir::steers;
use crate::health::moment::Timestamp;
use crate::health::observation::Space;
use crate::health::policy::Mode;

pub use crate::health::dir::{path_text, printable, shown};
pub use beside::BesideDocument;
pub use event::{
    CauseDocument, EventDocument, EventSpaceDocument, NodeDocument, event_json,
    reference as event_reference,
};
pub use mode::{ClaimDocument, ModeDocument};
pub use status::{
    AxesDocument, DirDocument, DurationsDocument, EvidenceDocument, ForecastDocument,
    HistoryDocument, JournalDocument, ListenerDocument, MountDocument, ProbeDocument,
    RestartDocument, SpaceDocument, StatusDocument, TotalDocument, dir_document, problems,
    shown_space, shown_usage, status_document,
};

/// Where the agent runs, as every document says it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    /// Host name.
    pub host: String,
    /// The bookie's id, when there is a bookie.
    pub bookie_id: Option<String>,
}

/// What the agent says about itself and does not change while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Where it runs.
    pub host: Host,
    /// Version of the release.
    pub version: &'static str,
    /// Revision it was built from; empty when that is not known.
    pub revision: &'static str,
    /// Semantics in force: `dirkeeper` or `bookkeeper`.
    pub semantics: &'static str,
}

/// A document as one line of JSON. What would steer a terminal is escaped, also where JSON allows it
/// as it is: the document may be printed.
///
/// # Panics
/// Never for the documents of this module: they have string keys and finite numbers only.
#[must_use]
pub fn json<T: Serialize>(document: &T) -> String {
    let json = serde_json::to_string(document);
    quiet(json.expect("documents have string keys and write to memory"))
}

/// The same JSON with nothing in its strings that steers a terminal. The blanks between its parts
/// stay, which no string can have as they are.
#[must_use]
pub fn quiet(json: String) -> String {
    let steers = |character| steers(character) && !matches!(character, '\n' | '\r' | '\t');
    if !json.contains(steers) {
        return json;
    }
    let mut quiet = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if steers(character) {
            quiet.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            quiet.push(character);
        }
    }
    quiet
}

/// A word of the contract as people write it: `almostFull` is almost full.
#[must_use]
pub fn words(name: &str) -> String {
    if name == "readOnly" {
        return "read-only".to_owned();
    }
    let mut words = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_uppercase() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

/// RFC 3339 in UTC with milliseconds, such as `2026-11-30T01:02:03.456Z`. Times outside the years
/// 1970 to 9999, which only a broken clock shows, are written as the nearest of them.
#[must_use]
pub fn timestamp_text(time: Timestamp) -> String {
    const LAST: i64 = 253_402_300_799_999; // 9999-12-31T23:59:59.999Z
    let millis = u64::try_from(time.0.clamp(0, LAST)).unwrap_or_default();
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis)).to_string()
}

/// 1 − available ⁄ size; none where the numbers make no sense, and then no number of that space is
/// shown anywhere.
#[must_use]
pub fn usage_ratio(space: Space) -> Option<f64> {
    if space.size == 0 || space.size < space.available {
        return None;
    }
    // Beyond 2^53 bytes (8 PiB) the ratio loses digits that nobody can see.
    #[allow(clippy::cast_precision_loss)]
    let ratio = (space.size - space.available) as f64 / space.size as f64;
    Some(ratio)
}

/// The ratio with four to six digits where these keep it on the side of each limit on which it
/// really is, else unchanged: a directory is never shown over a threshold that it has not crossed.
#[must_use]
pub fn rounded_ratio(ratio: f64, limits: &[f64]) -> f64 {
    let same_side = |rounded: f64| {
        let side = |value: f64, limit: &f64| value.partial_cmp(limit);
        limits
            .iter()
            .all(|limit| side(rounded, limit) == side(ratio, limit))
    };
    [1e4, 1e5, 1e6]
        .into_iter()
        .map(|scale| (ratio * scale).round() / scale)
        .find(|rounded| same_side(*rounded))
        .unwrap_or(ratio)
}

fn mode_name(mode: Mode) -> String {
    mode.name().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_words() {
        let shown = ["almostFull", "ok", "readOnly"].map(words);
        assert_eq!(shown, ["almost full", "ok", "read-only"]);
    }

    #[test]
    fn timestamps_are_rfc_3339_with_milliseconds() {
        assert_eq!(timestamp_text(sample::NOW), "2026-11-30T01:02:03.456Z");
        assert_eq!(timestamp_text(Timestamp(-1)), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            timestamp_text(Timestamp(i64::MAX)),
            "9999-12-31T23:59:59.999Z"
        );
    }

    #[test]
    fn a_rounded_ratio_stays_on_its_side_of_the_limits() {
        assert_eq!(rounded_ratio(0.912_345_678, &[0.9, 0.95]), 0.9123);
        assert_eq!(rounded_ratio(0.949_99, &[0.95]), 0.949_99);
        assert_eq!(rounded_ratio(0.949_999_9, &[0.95]), 0.949_999_9);
        assert_eq!(rounded_ratio(0.950_000_1, &[0.95]), 0.950_000_1);
        assert_eq!(rounded_ratio(0.95, &[0.95]), 0.95);
    }

    #[test]
    fn json_does_not_steer_a_terminal_and_says_the_same() {
        let odd = "a\u{7f}\u{9b}2J\u{202e}\n\"\\ü";
        let line = json(&odd);
        assert_eq!(line, r#""a\u007f\u009b2J\u202e\n\"\\ü""#);
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), odd);
        let pretty = "{\n\t\"a\": 1\r\n}".to_owned();
        assert_eq!(quiet(pretty.clone()), pretty);
    }

    #[test]
    fn usage_of_absurd_sizes_is_not_known() {
        let usage = |size, available| {
            usage_ratio(Space {
                size,
                available,
                ..Space::default()
            })
        };
        assert_eq!(usage(0, 0), None);
        assert_eq!(usage(10, 11), None);
        assert_eq!(usage(10, 1), Some(0.9));
    }

    #[test]
    fn the_event_document_is_that_of_the_contract() {
        let snapshot = sample::snapshot();
        let [full, mode] = snapshot.recent_events.as_slice() else {
            panic!("the sample has two events");
        };
        let line = event_json(full, &sample::about().host);
        let lines = [line.as_str(), &event_json(mode, &sample::about().host)].join("\n");
        insta::assert_snapshot!("events", lines);
        let read: EventDocument = serde_json::from_str(&line).unwrap();
        assert_eq!(read, EventDocument::new(full, &sample::about().host));
    }

    #[test]
    fn the_status_document_is_that_of_the_contract() {
        let snapshot = sample::snapshot();
        let document = status_document(&snapshot, &sample::self_view(), &sample::about());
        insta::assert_snapshot!("status", serde_json::to_string_pretty(&document).unwrap());
        let read: StatusDocument = serde_json::from_str(&json(&document)).unwrap();
        assert_eq!(read, document);
    }

    #[test]
    fn the_document_of_one_directory_has_its_history() {
        let document = dir_document(&sample::snapshot().dirs[1]);
        insta::assert_snapshot!("dir", serde_json::to_string_pretty(&document).unwrap());
    }
}
