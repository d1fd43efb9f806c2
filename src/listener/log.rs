//! The log as a listener: one line for each event, written to be understood at night without the
//! source. Events are changes, so nothing is repeated here.

use std::path::{Path, PathBuf};

use crate::document::path_text;
use crate::health::event::Event;
use crate::health::observation::Space;
use crate::health::status::Severity;

/// Writes the line of an event to the agent's log.
pub(super) fn write(event: &Event) {
    let line = line(event);
    match event.severity {
        Severity::Ok => tracing::info!("{line}"),
        Severity::Warning | Severity::Unknown => tracing::warn!("{line}"),
        Severity::Critical => tracing::error!("{line}"),
    }
}

/// Name, directory, change, why with its numbers, space, node.
fn line(event: &Event) -> String {
    let mut line = format!("event {} {}: ", event.seq, event.kind.name());
    match (&event.dir, event.role) {
        (Some(dir), Some(role)) => line += &format!("{} ({})", shown(dir), role.name()),
        (Some(dir), None) => line += &shown(dir),
        (None, _) => line += &node(event),
    }
    let axis = event.axis.map(|axis| format!("{}: ", axis.name()));
    let axis = axis.unwrap_or_default();
    match (event.from, event.to) {
        (Some(from), Some(to)) => line += &format!(", {axis}{} → {}", words(from), words(to)),
        (None, Some(to)) => line += &format!(", {axis}{}", words(to)),
        _ => {}
    }
    if let Some(reason) = &event.reason {
        line += &format!("; {}", reason.message.escape_debug());
    }
    if let Some(space) = event.space {
        line += &format!("; {}", room(space));
    }
    if event.coalesced > 0 {
        line += &format!("; {} events before it left out", event.coalesced);
    }
    line
}

/// What an event of the node means, and which directories made it so.
fn node(event: &Event) -> String {
    let mut text = event.kind.meaning().trim_end_matches('.').to_owned();
    let node = &event.node;
    let lists = [
        ("full", &node.full),
        ("unusable", &node.unusable),
        ("writable", &node.writable),
    ];
    for (name, dirs) in lists {
        if !dirs.is_empty() {
            text += &format!("; {name}: {}", some(dirs));
        }
    }
    if let Some(mode) = node.wanted_mode {
        text += &format!("; wanted mode: {}", words(mode.name()));
    }
    text
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

/// A path on one line, whatever is in its name.
fn shown(path: &Path) -> String {
    let text = path_text(path);
    if text.chars().any(char::is_control) {
        return text.escape_debug().to_string();
    }
    text
}

fn room(space: Space) -> String {
    format!(
        "{} of {} available",
        bytes(space.available),
        bytes(space.size)
    )
}

/// Bytes with the largest unit of which there is at least one.
fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = count.checked_ilog2().unwrap_or_default() / 10;
    if power == 0 {
        return format!("{count} B");
    }
    // One digit is shown; what f64 rounds is far below it.
    #[allow(clippy::cast_precision_loss)]
    let scaled = count as f64 / (1_u64 << (10 * power)) as f64;
    format!("{scaled:.1} {}", units[power as usize])
}

/// `almostFull` as people write it.
fn words(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            text.push(' ');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::event::EventKind;
    use crate::health::status::Axis;
    use crate::listener::testing::{all_full, full};

    #[test]
    fn a_line_says_what_changed_why_and_with_which_numbers() {
        insta::assert_snapshot!(line(&full(42, "/mnt/l1")), @"");
        insta::assert_snapshot!(line(&all_full(43)), @"");
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
        insta::assert_snapshot!(line(&recovered), @"");
    }

    #[test]
    fn a_line_is_one_line_whatever_the_directory_is_called() {
        let line = line(&full(1, "/mnt/a\nb\u{1b}[31m"));
        assert!(!line.chars().any(char::is_control), "{line}");
    }

    #[test]
    fn long_lists_are_cut() {
        let dirs: Vec<PathBuf> = (1..=7).map(|n| format!("/mnt/l{n}").into()).collect();
        insta::assert_snapshot!(some(&dirs), @"");
    }

    #[test]
    fn bytes_have_a_unit() {
        let shown = [0, 1023, 1024, 1536 << 20, u64::MAX].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 GiB", "16.0 EiB"]);
    }
}
