//! What a hook is told: the event as JSON for its standard input and as environment variables.
//! Event data goes nowhere else; no shell ever sees it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use crate::document::{self, EventDocument, Host};
use crate::health::event::Event;
use crate::state::StoredEvent;

/// Longest value of a variable: the kernel starts no program with one over 128 KiB, and a
/// message of this length says no more.
const MAX_VALUE: usize = 32 << 10;

/// Beginning of the names of our variables.
pub(super) const PREFIX: &str = "DIRKEEPER_";

/// Variables by which a service manager addresses the agent alone: a hook that inherited them could
/// answer in its name.
pub(super) const PRIVATE: [&str; 7] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "JOURNAL_STREAM",
];

/// An event on its way to hooks. Clones share its text, which names every directory.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::listener) struct Notice {
    document: Arc<EventDocument>,
    dir: Option<PathBuf>,
}

impl Notice {
    /// Of an event that just happened.
    pub(in crate::listener) fn new(event: &Event, host: &Host) -> Notice {
        Notice {
            document: Arc::new(EventDocument::new(event, host)),
            dir: event.dir.clone(),
        }
    }

    /// Of an event that an earlier run of the agent stored.
    pub(in crate::listener) fn restore(stored: &StoredEvent) -> serde_json::Result<Notice> {
        let document: EventDocument = serde_json::from_str(&stored.json)?;
        let dir = document.dir.as_deref().map(path_of_text);
        let document = Arc::new(document);
        Ok(Notice { document, dir })
    }

    /// Its directory.
    pub(in crate::listener) fn dir(&self) -> Option<&PathBuf> {
        self.dir.as_ref()
    }

    /// Says that so many events before it were left out.
    pub(in crate::listener) fn coalesce(&mut self, count: u32) {
        if 0 < count {
            let document = Arc::make_mut(&mut self.document);
            document.coalesced = document.coalesced.saturating_add(count);
        }
    }

    /// For log lines: `event 42 diskFull of "/mnt/l1"`.
    pub(in crate::listener) fn title(&self) -> String {
        let EventDocument { seq, event, .. } = &*self.document;
        match &self.document.dir {
            Some(dir) => format!("event {seq} {event} of {dir:?}"),
            None => format!("event {seq} {event}"),
        }
    }

    /// Number of the event.
    pub(in crate::listener) fn seq(&self) -> u64 {
        self.document.seq
    }

    /// Name of the event.
    pub(in crate::listener) fn event(&self) -> &str {
        &self.document.event
    }

    /// The JSON, one line without its line feed.
    pub(in crate::listener) fn json(&self) -> String {
        document::json(&*self.document)
    }

    /// The JSON for standard input: one line with its line feed.
    pub(super) fn input(&self) -> Vec<u8> {
        let mut line = self.json();
        line.push('\n');
        line.into_bytes()
    }

    /// The variables. Each is always there; what there is nothing to say about is empty, so that a
    /// script under `set -u` needs no special case.
    pub(super) fn variables(&self) -> Vec<(String, OsString)> {
        let EventDocument { node, .. } = &*self.document;
        let cause = self.document.cause.as_ref();
        let space = self.document.space.as_ref();
        let text = |value: Option<&str>| OsString::from(value.unwrap_or_default());
        let all = [
            ("EVENT", text(Some(&self.document.event))),
            ("SEQ", self.document.seq.to_string().into()),
            ("TIME", text(Some(&self.document.time))),
            ("SEVERITY", text(Some(&self.document.severity))),
            ("HOST", text(Some(&self.document.host))),
            ("BOOKIE_ID", text(self.document.bookie_id.as_deref())),
            ("DIR", self.dir.clone().unwrap_or_default().into()),
            ("ROLE", text(self.document.role.as_deref())),
            ("FROM", text(self.document.from.as_deref())),
            ("TO", text(self.document.to.as_deref())),
            ("CAUSE", text(cause.map(|cause| cause.kind.as_str()))),
            ("MESSAGE", text(cause.map(|cause| cause.message.as_str()))),
            ("USAGE_RATIO", number(space.map(|space| space.usage_ratio))),
            (
                "AVAILABLE_BYTES",
                number(space.map(|space| space.available_bytes)),
            ),
            ("WANTED_MODE", text(node.wanted_mode.as_deref())),
            (
                "HIGH_PRIORITY_WRITES",
                node.high_priority_writes.to_string().into(),
            ),
        ];
        let named = all.into_iter();
        named
            .map(|(name, value)| (format!("{PREFIX}{name}"), allowed(&value)))
            .collect()
    }
}

fn number(value: Option<impl ToString>) -> OsString {
    value
        .map(|value| value.to_string())
        .unwrap_or_default()
        .into()
}

/// A value that a program can be started with: not too long, and without the NUL that would end it.
fn allowed(value: &OsStr) -> OsString {
    let bytes = value.as_bytes();
    let bytes = bytes.iter().copied().filter(|&byte| byte != 0);
    OsString::from_vec(bytes.take(MAX_VALUE).collect())
}

/// The path that `document::path_text` wrote.
fn path_of_text(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        match escaped_byte(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

fn escaped_byte(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"\\x")?.get(..2)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None; // the parser below would take a sign
    }
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::sample;
    use crate::listener::testing::{all_full, full};
    use crate::mutation::edited;

    fn text(notice: &Notice) -> String {
        let lines = notice.variables();
        let lines = lines
            .iter()
            .map(|(name, value)| format!("{name}={}\n", value.to_str().unwrap()));
        lines.collect()
    }

    #[test]
    fn the_variables_are_those_of_the_contract() {
        let notice = Notice::new(&full(42, "/mnt/l1"), &sample::about().host);
        insta::assert_snapshot!(text(&notice), @"
        DIRKEEPER_EVENT=diskFull
        DIRKEEPER_SEQ=42
        DIRKEEPER_TIME=2026-11-30T01:02:03.456Z
        DIRKEEPER_SEVERITY=critical
        DIRKEEPER_HOST=bk-3
        DIRKEEPER_BOOKIE_ID=10.0.0.3:3181
        DIRKEEPER_DIR=/mnt/l1
        DIRKEEPER_ROLE=ledger
        DIRKEEPER_FROM=almostFull
        DIRKEEPER_TO=full
        DIRKEEPER_CAUSE=bytes
        DIRKEEPER_MESSAGE=usage 0.951 is over full 0.950
        DIRKEEPER_USAGE_RATIO=0.951
        DIRKEEPER_AVAILABLE_BYTES=52613349376
        DIRKEEPER_WANTED_MODE=readOnly
        DIRKEEPER_HIGH_PRIORITY_WRITES=true
        ");
    }

    #[test]
    fn what_a_node_event_has_not_is_empty() {
        let notice = Notice::new(&all_full(43), &Host::default());
        insta::assert_snapshot!(text(&notice), @"
        DIRKEEPER_EVENT=allDisksFull
        DIRKEEPER_SEQ=43
        DIRKEEPER_TIME=2026-11-30T01:02:03.456Z
        DIRKEEPER_SEVERITY=critical
        DIRKEEPER_HOST=
        DIRKEEPER_BOOKIE_ID=
        DIRKEEPER_DIR=
        DIRKEEPER_ROLE=
        DIRKEEPER_FROM=
        DIRKEEPER_TO=
        DIRKEEPER_CAUSE=
        DIRKEEPER_MESSAGE=
        DIRKEEPER_USAGE_RATIO=
        DIRKEEPER_AVAILABLE_BYTES=
        DIRKEEPER_WANTED_MODE=readOnly
        DIRKEEPER_HIGH_PRIORITY_WRITES=true
        ");
    }

    #[test]
    fn a_stored_event_says_the_same_as_the_event_itself() {
        for dir in [
            &b"/mnt/l 1\n\"'$`"[..],
            b"/mnt/\xff\xc3x\\x4",
            "/ü\\x41".as_bytes(),
            b"/mnt/\\xff\\x5c\\xFF\\x+f",
        ] {
            let event = full(7, OsStr::from_bytes(dir));
            let host = sample::about().host;
            let stored = StoredEvent {
                seq: 7,
                json: Arc::from(document::event_json(&event, &host)),
            };
            assert_eq!(
                Notice::restore(&stored).unwrap(),
                Notice::new(&event, &host)
            );
        }
    }

    #[test]
    fn values_are_cut_before_the_kernel_refuses_them() {
        let mut event = full(7, "/mnt/l1");
        event.reason.as_mut().unwrap().message = "a\0b".repeat(1 << 20);
        let variables = Notice::new(&event, &Host::default()).variables();
        let (_, message) = variables
            .iter()
            .find(|(name, _)| name == "DIRKEEPER_MESSAGE")
            .unwrap();
        assert_eq!(message.len(), MAX_VALUE);
        assert!(message.to_str().unwrap().starts_with("abab"));
    }

    proptest! {
        /// Also when the log is damaged: whatever it holds, a program can be started with it.
        #[test]
        fn any_stored_text_is_an_event_that_a_hook_can_be_told_or_an_error(
            json in edited(document::event_json(&full(7, "/mnt/l1"), &sample::about().host)),
        ) {
            let json = String::from_utf8_lossy(&json);
            let stored = StoredEvent { seq: 7, json: Arc::from(&*json) };
            if let Ok(notice) = Notice::restore(&stored) {
                for (name, value) in notice.variables() {
                    prop_assert!(!value.as_bytes().contains(&0), "{}", name);
                    prop_assert!(value.len() <= MAX_VALUE, "{}", name);
                }
                prop_assert_eq!(notice.input().iter().filter(|byte| **byte == b'\n').count(), 1);
            }
        }

        #[test]
        fn a_directory_of_any_bytes_is_the_same_after_a_restart(
            name in prop_oneof![
                prop::collection::vec(1_u8.., 0..20),
                edited(b"/mnt/\\xff\\x5c\xff\\x0".as_slice()),
            ],
        ) {
            let event = full(7, OsStr::from_bytes(&name));
            let host = sample::about().host;
            let json = Arc::from(document::event_json(&event, &host));
            let notice = Notice::restore(&StoredEvent { seq: 7, json }).unwrap();
            prop_assert_eq!(notice.dir(), event.dir.as_ref());
            prop_assert_eq!(notice, Notice::new(&event, &host));
        }
    }
}
