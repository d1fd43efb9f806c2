//! The log as a listener: one line for each event, written to be understood at night without the
//! source. Events are changes, so nothing is repeated here.

use std::path::PathBuf;

use crate::document::{printable, shown, words};
use crate::health::event::{Event, NodeSummary};
use crate::health::status::Severity;
use crate::health::words::bytes_text;

/// Writes the line of an event to the agent's log.
pub(super) fn write(event: &Event) {
    let line = line(event);
    match event.severity {
        Severity::Ok => tracing::info!("{line}"),
        Severity::Warning | Severity::Unknown => tracing::warn!("{line}"),
        Severity::Critical => tracing::error!("{line}"),
    }
}

/// Name, directory, change, why with its numbers, space, mode.
fn line(event: &Event) -> String {
    let mut line = format!("event {} {}: ", event.seq, event.kind.name());
    match (&event.dir, event.role) {
        (Some(dir), Some(role)) => line += &format!("{} ({})", shown(dir), role.name()),
        (Some(dir), None) => line += &shown(dir),
        (None, _) => line += event.kind.meaning().trim_end_matches('.'),
    }
    if let Some(to) = event.to {
        let axis = event.axis.map(|axis| format!("{}: ", axis.name()));
        line += &format!(", {}{}", axis.unwrap_or_default(), words(to));
    }
    if let Some(from) = event.from {
        line += &format!(" (was {})", words(from));
    }
    if let Some(reason) = &event.reason {
        line += &format!("; {}", printable(&reason.message));
    }
    if let Some(space) = event.space {
        let (available, size) = (bytes_text(space.available), bytes_text(space.size));
        line += &format!("; {available} of {size} available");
    }
    if event.dir.is_none() {
        line += &node(&event.node);
    }
    if let Some(mode) = event.node.wanted_mode {
        line += &format!("; wanted mode: {}", words(mode.name()));
    }
    if event.coalesced > 0 {
        line += &format!("; {} events before it left out", event.coalesced);
    }
    line
}

/// Which directories made an event of the node so.
fn node(node: &NodeSummary) -> String {
    let lists = [
        ("full", &node.full),
        ("unusable", &node.unusable),
        ("writable", &node.writable),
    ];
    let named = lists.iter().filter(|(_, dirs)| !dirs.is_empty());
    let named = named.map(|(name, dirs)| format!("; {name}: {}", some(dirs)));
    named.collect()
}

/// Directories named in a line: what fits a terminal.
const MAX_NAMED: usize = 5;

fn some(dirs: &[PathBuf]) -> String {
    let named = dirs.iter().take(MAX_NAMED).map(|dir| shown(dir));
    let named: Vec<String> = named.collect();
    match dirs.len().saturating_sub(MAX_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::event::EventKind;
    use crate::health::status::Axis;
    use crate::listener::testing::{all_full, full};

    #[test]
    fn a_line_says_what_changed_why_and_with_which_numbers() {
        insta::assert_snapshot!(line(&full(42, "/mnt/l1")), @"event 42 diskFull: /mnt/l1 (ledger), space: full (was almost full); usage 0.951 is over full 0.950; 49.0 GiB of 1000.0 GiB available; wanted mode: read-only");
        insta::assert_snapshot!(line(&all_full(43)), @"event 43 allDisksFull: No directory of a role is left that can be written; full: /mnt/l1; writable: /mnt/l2; wanted mode: read-only");
        let recovered = Event {
            kind: EventKind::DiskRecovered,
            axis: Some(Axis::Access),
            from: Some("readOnly"),
            to: Some("ok"),
            reason: None,
            space: None,
            coalesced: 3,
            ..full(44, "/mnt/l1")
        };
        insta::assert_snapshot!(line(&recovered), @"event 44 diskRecovered: /mnt/l1 (ledger), access: ok (was read-only); wanted mode: read-only; 3 events before it left out");
    }

    #[test]
    fn a_line_is_one_line_whatever_the_directory_is_called() {
        let line = line(&full(1, "/mnt/a\nb\u{1b}[31m"));
        assert!(!line.chars().any(char::is_control), "{line}");
    }

    #[test]
    fn long_lists_are_cut() {
        let dirs: Vec<PathBuf> = (1..=7).map(|n| format!("/mnt/l{n}").into()).collect();
        insta::assert_snapshot!(some(&dirs), @"/mnt/l1, /mnt/l2, /mnt/l3, /mnt/l4, /mnt/l5 and 2 more");
    }
}
