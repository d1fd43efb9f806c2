//! The lines above the directories: how bad it is, the mode and who holds it, what is beside, and
//! what is wrong with the agent itself.

use std::collections::BTreeMap;

use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::super::super::terminal::{self, Tone, words};
use super::super::model::{Model, Rank, rank};
use super::look::Look;
use crate::document::{ModeDocument, StatusDocument};

/// The lines, at most `most`; what does not fit is on the screen of the node.
pub(super) fn lines(model: &Model, look: Look, width: usize, most: usize) -> Vec<Line<'static>> {
    let Some(document) = model.document() else {
        let text = format!("asking {} ...", look.text(&model.url));
        return vec![Line::raw(look.fit(&text, width))];
    };
    let mut lines = vec![first(document, look, width)];
    let mut add = |text: &str, tone: Option<Tone>| {
        let text = look.fit(&look.text(text), width);
        lines.push(match tone {
            Some(tone) => Line::styled(text, look.style(tone)),
            None => Line::raw(text),
        });
    };
    add(&beside(document), None);
    add(&mode(&document.mode), None);
    for claim in &document.mode.claims {
        let since = terminal::between(&claim.since, &document.time);
        let since = since.map_or(String::new(), |since| format!(" for {since}"));
        let pending = if claim.pending {
            ", not in effect yet"
        } else {
            ""
        };
        let (owner, mode, reason) = (&claim.owner, words(&claim.mode), &claim.reason);
        let text = format!("  held {mode}{since} by {owner}{pending}: {reason}");
        add(&text, None);
    }
    if let Some(held) = &document.mode.held {
        add(&format!("  not changed now: {held}"), None);
    }
    if let Some(restart) = &document.restart
        && restart.would_succeed == Some(false)
    {
        let why = restart.reasons.join("; ");
        add(&format!("a restart would fail: {why}"), Some(Tone::Bad));
    }
    for problem in &document.problems {
        add(&format!("problem: {problem}"), Some(Tone::Warning));
    }
    let most = most.max(2);
    if most < lines.len() {
        let more = lines.len() - most + 1;
        lines.truncate(most - 1);
        let text = format!("and {more} more (n: node)");
        lines.push(Line::styled(look.fit(&text, width), look.style(Tone::Dim)));
    }
    lines
}

/// Severity and host to the left, version and time to the right as far as there is room.
fn first(document: &StatusDocument, look: Look, width: usize) -> Line<'static> {
    let severity = look.text(&document.status);
    let sign = look.sign(&document.status);
    let severity = format!(" {sign} {} ", severity.to_uppercase());
    let tone = look
        .style(Tone::of_severity(&document.status))
        .add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let host = format!(" {}", look.text(&document.host));
    let mut facts = format!("dirkeeper {}", look.text(&document.version));
    if let Some(up) = terminal::between(&document.started_at, &document.time) {
        facts.push_str(&format!(", up {up}"));
    }
    if document.semantics != "dirkeeper" {
        facts.push_str(&format!(", semantics {}", look.text(&document.semantics)));
    }
    facts.push_str(&format!("  {}", clock(&document.time)));
    let severity = Span::styled(severity, tone);
    let room = width.saturating_sub(severity.width());
    let host = look.fit(&host, room);
    let room = room.saturating_sub(Span::raw(&*host).width() + 1);
    let facts = if facts.len() <= room {
        look.pad_left(&facts, room + 1)
    } else {
        String::new()
    };
    Line::from(vec![
        severity,
        Span::styled(host, look.style(Tone::Heading)),
        Span::styled(facts, look.style(Tone::Dim)),
    ])
}

/// The time of day of an RFC 3339 time, or the text as it is.
pub(super) fn clock(time: &str) -> String {
    let time = terminal::printable(time);
    match time.get(11..19) {
        Some(clock) if time.is_ascii() => format!("{clock}Z"),
        _ => time,
    }
}

/// The mode in one line; what `dirkeeper status` says in whole sentences.
fn mode(mode: &ModeDocument) -> String {
    let shown = |mode: &Option<String>| mode.as_deref().map(words);
    let mut text = match shown(&mode.wanted) {
        Some(wanted) => format!("mode: {wanted} wanted"),
        None => "mode: unknown which is wanted".to_owned(),
    };
    if let Some(observed) = shown(&mode.observed) {
        text.push_str(&format!(", bookie {observed}"));
    }
    text.push_str(&format!(", control {}", mode.control));
    if !mode.high_priority_writes {
        text.push_str(", no room for recovery writes");
    }
    text
}

/// Whether bookie and ZooKeeper are there, and how many directories are what.
fn beside(document: &StatusDocument) -> String {
    let mut facts = Vec::new();
    if let Some(beside) = &document.beside {
        facts.extend(beside.bookie_up.map(|up| match up {
            true => "bookie serves".to_owned(),
            false => "BOOKIE DOES NOT SERVE".to_owned(),
        }));
        facts.extend(beside.zookeeper_connected.map(|there| match there {
            true => "ZooKeeper connected".to_owned(),
            false => "ZOOKEEPER NOT CONNECTED".to_owned(),
        }));
    }
    let mut counts: BTreeMap<(Rank, &str), usize> = BTreeMap::new();
    for dir in &document.dirs {
        *counts.entry((rank(dir), &dir.status)).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .into_iter()
        .map(|((_, status), count)| format!("{count} {}", words(status)))
        .collect();
    facts.push(match counts.len() {
        0 => "no directory is watched".to_owned(),
        _ => format!("directories: {}", counts.join(", ")),
    });
    facts.join(", ")
}
