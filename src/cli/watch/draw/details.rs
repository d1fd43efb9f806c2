//! Screens of text: everything about one directory, and everything about the node beside its
//! directories.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::super::status;
use super::super::super::terminal::{Terminal, Tone, between, limit, span, words};
use super::super::model::{Entry, Model};
use super::look::{Look, wrap};
use super::{log, table};
use crate::document::{DirDocument, SpaceDocument};
use crate::health::words::bytes_text;

/// Columns of a label, with the blanks around it.
const LABEL: usize = 14;

/// A bar of more columns says no more.
const LONGEST_BAR: usize = 60;

/// Everything about the chosen directory.
pub(super) fn lines(model: &Model, look: Look, width: usize) -> Vec<Line<'static>> {
    let (Some(dir), Some(document)) = (model.detailed(), model.document()) else {
        let text = "this directory is not watched, or no picture of it has come yet";
        return vec![Line::raw(look.fit(text, width))];
    };
    let mut text = Text {
        look,
        width,
        lines: Vec::new(),
    };
    let tone = look.style(Tone::of_severity(&dir.severity));
    let (sign, status) = (look.sign(&dir.severity), words(&dir.status));
    let title = format!("{sign} {status}  {} ({})", dir.path, dir.role);
    for line in wrap(&look.text(&title), width) {
        text.lines.push(Line::styled(line, tone));
    }
    verdict(&mut text, dir, &document.time);
    space(&mut text, &dir.space, tone);
    if let Some(forecast) = dir.forecast.as_ref().filter(|_| dir.axes.space != "full") {
        let latest = forecast.latest_seconds.map_or("never".to_owned(), span);
        text.add(
            "forecast",
            &format!(
                "full in about {} ({} to {latest})",
                span(forecast.full_in_seconds),
                span(forecast.earliest_seconds)
            ),
        );
    }
    probe(&mut text, dir, &document.time);
    beside(&mut text, dir);
    let evidence = dir.evidence.iter().rev();
    for (at, evidence) in evidence.enumerate() {
        let label = if at == 0 { "evidence" } else { "" };
        text.add(label, &format!("{} {}", evidence.at, evidence.text));
    }
    text.lines.push(Line::default());
    events(&mut text, model, dir);
    text.lines
}

struct Text {
    look: Look,
    width: usize,
    lines: Vec<Line<'static>>,
}

impl Text {
    /// A label and what it names, wrapped beside it.
    fn add(&mut self, label: &str, value: &str) {
        let value = self.look.text(value);
        let parts = wrap(&value, self.width.saturating_sub(LABEL));
        for (at, part) in parts.into_iter().enumerate() {
            self.put(if at == 0 { label } else { "" }, part, Style::new());
        }
    }

    fn put(&mut self, label: &str, value: String, style: Style) {
        let label = self.look.pad(&format!(" {label}"), LABEL);
        self.lines.push(Line::from(vec![
            Span::styled(label, self.look.style(Tone::Dim)),
            Span::styled(value, style),
        ]));
    }
}

fn verdict(text: &mut Text, dir: &DirDocument, now: &str) {
    let age = between(&dir.since, now).map_or(String::new(), |age| format!(" ({age})"));
    let suspect = if dir.suspect {
        ", not confirmed yet"
    } else {
        ""
    };
    text.add("since", &format!("{}{age}{suspect}", dir.since));
    let axes = &dir.axes;
    text.add(
        "axes",
        &format!(
            "space {}, access {}, latency {}",
            words(&axes.space),
            words(&axes.access),
            words(&axes.latency)
        ),
    );
    if let Some(cause) = &dir.cause {
        let errno = cause
            .errno
            .map_or(String::new(), |errno| format!(", errno {errno}"));
        let kind = words(&cause.kind);
        text.add(
            "cause",
            &format!("{}: {kind} ({}{errno})", cause.message, cause.operation),
        );
    }
}

fn space(text: &mut Text, space: &SpaceDocument, tone: Style) {
    let unknown = || "-".to_owned();
    let of = |number: Option<u64>| number.map_or_else(unknown, bytes_text);
    let usage = match space.usage_ratio {
        Some(_) => format!(
            "{} %, {} of {} available",
            table::usage(space),
            of(space.available_bytes),
            of(space.size_bytes)
        ),
        None => "not known".to_owned(),
    };
    text.add("usage", &usage);
    let bar_width = LONGEST_BAR.min(text.width.saturating_sub(LABEL));
    let bar = table::bar(space, bar_width, text.look);
    text.put("", bar, tone);
    text.add(
        "",
        &format!(
            "writable again below {} %, almost full above {} %, full above {} %",
            limit(space.low_watermark),
            limit(space.warn),
            limit(space.full)
        ),
    );
    if let (Some(free), Some(all)) = (space.inodes_free, space.inodes) {
        text.add("inodes", &format!("{free} of {all} free"));
    }
}

fn probe(text: &mut Text, dir: &DirDocument, now: &str) {
    let probe = &dir.probe;
    if 0.0 < probe.in_flight_seconds {
        let seconds = probe.in_flight_seconds;
        text.add("runs now", &format!("an operation, for {seconds:.1} s"));
    }
    let last = probe.last_success.as_ref();
    let last = last.map_or("none yet".to_owned(), |last| {
        between(last, now).map_or(last.clone(), |age| format!("{last} ({age} ago)"))
    });
    text.add("last good", &last);
    let steps = &probe.durations_seconds;
    let steps = [
        ("create", steps.create),
        ("write", steps.write),
        ("sync", steps.sync),
        ("read", steps.read),
    ];
    let steps = steps
        .iter()
        .filter_map(|(step, seconds)| Some(format!("{step} {}", table::short((*seconds)?))));
    let steps: Vec<String> = steps.collect();
    if !steps.is_empty() {
        text.add("newest probe", &steps.join(", "));
    }
    if let Some(score) = dir.latency.score {
        text.add("slow score", &format!("{score} of 100"));
    }
    for (step, times) in &dir.latency.steps {
        let [last, median, most] =
            [times.last_seconds, times.median_seconds, times.max_seconds].map(table::short);
        text.add(
            "",
            &format!("{step}: {last}, median {median}, at most {most}"),
        );
    }
}

/// Journal, ballast, mount and sources.
fn beside(text: &mut Text, dir: &DirDocument) {
    if let Some(journal) = &dir.journal {
        let unmarked = journal.unmarked_bytes;
        let unmarked = unmarked.map_or("an unknown number of bytes".to_owned(), bytes_text);
        let files = journal.files;
        text.add(
            "journal",
            &format!("{files} files, a start would read {unmarked} of them again"),
        );
    }
    if let Some(ballast) = &dir.ballast {
        let held = ballast.held_bytes.map_or("-".to_owned(), bytes_text);
        let (state, wanted) = (words(&ballast.state), bytes_text(ballast.wanted_bytes));
        text.add("ballast", &format!("{state}: {held} of {wanted} held"));
    }
    if let Some(mount) = &dir.mount {
        text.add(
            "mount",
            &format!(
                "{} on {}, {} ({}), device {}",
                mount.source, mount.point, mount.fs_type, mount.options, mount.device
            ),
        );
    }
    text.add("sources", &dir.sources.join(", "));
    for missing in &dir.sources_missing {
        text.add("", &format!("not {}: {}", missing.name, missing.reason));
    }
}

/// Its events, newest first.
fn events(text: &mut Text, model: &Model, dir: &DirDocument) {
    let mut any = false;
    for entry in model.log().rev() {
        let Entry::Event(event) = entry else {
            continue;
        };
        if event.dir.as_ref() == Some(&dir.path) && event.role.as_ref() == Some(&dir.role) {
            any = true;
            let line = log::event_line(event, text.look, text.width, false);
            text.lines.push(line);
        }
    }
    if !any {
        text.add("events", "none in the log that is kept here");
    }
}

/// Mode, what is beside, listeners and problems, as `dirkeeper status` says them.
pub(super) fn node(model: &Model, look: Look, width: usize) -> Vec<Line<'static>> {
    let Some(document) = model.document() else {
        return vec![Line::raw("no picture has come yet")];
    };
    let terminal = Terminal {
        colour: false,
        width: Some(width),
    };
    let text = status::node(document, terminal);
    let lines = text
        .lines()
        .flat_map(|line| wrap_line(&look.text(line), width));
    lines.map(Line::raw).collect()
}

/// A line that is already indented and nearly fits: only what is too long is broken.
fn wrap_line(line: &str, width: usize) -> Vec<String> {
    if table::width(line) <= width {
        return vec![line.to_owned()];
    }
    wrap(line, width)
}
