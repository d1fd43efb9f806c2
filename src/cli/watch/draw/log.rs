//! The log of events: the newest ones below the directories, or all that are kept on a screen of
//! their own.

use ratatui::text::{Line, Span};

use super::super::super::events;
use super::super::super::terminal::{Tone, printable};
use super::super::model::{Entry, Model};
use super::look::Look;
use super::{Page, header};
use crate::document::EventDocument;

/// The newest events, in what the page has left.
pub(super) fn newest(model: &Model, look: Look, page: &mut Page<'_>) {
    if page.left < 2 {
        return;
    }
    page.line(title(model, look, page.width));
    lines(model, look, page, 0);
}

/// The whole log, scrolled from its end; by how many lines it can be.
pub(super) fn full(model: &Model, look: Look, page: &mut Page<'_>) -> usize {
    page.line(title(model, look, page.width));
    let room = page.left;
    let count = model.log().filter(|entry| passes(model, entry)).count();
    let longest = count.saturating_sub(room);
    lines(model, look, page, model.scroll.min(longest));
    longest
}

fn title(model: &Model, look: Look, width: usize) -> Line<'static> {
    let mut title = format!("{} EVENTS ", look.rule().repeat(2));
    if let Some(trouble) = model.log_trouble() {
        title.push_str(&look.text(&format!("(not followed now: {trouble}) ")));
    }
    let mut title = look.fit(&title, width);
    let used = super::table::width(&title);
    title.push_str(&look.rule().repeat(width.saturating_sub(used)));
    Line::styled(title, look.style(Tone::Heading))
}

fn lines(model: &Model, look: Look, page: &mut Page<'_>, scroll: usize) {
    let shown = model.log().rev().filter(|entry| passes(model, entry));
    let mut shown: Vec<&Entry> = shown.skip(scroll).take(page.left).collect();
    if shown.is_empty() {
        page.line(Line::styled("none", look.style(Tone::Dim)));
    }
    shown.reverse();
    for entry in shown {
        page.line(entry_line(entry, look, page.width));
    }
}

fn passes(model: &Model, entry: &Entry) -> bool {
    if model.filter.is_empty() {
        return true;
    }
    match entry {
        Entry::Event(event) => {
            let what = events::what(event);
            model.passes(&format!("{} {} {what}", event.severity, event.event))
        }
        Entry::Gap(..) => true,
    }
}

fn entry_line(entry: &Entry, look: Look, width: usize) -> Line<'static> {
    match entry {
        Entry::Event(event) => event_line(event, look, width, true),
        Entry::Gap(after, before) => {
            let text = format!("the events between {after} and {before} are lost");
            Line::styled(look.fit(&text, width), look.style(Tone::Warning))
        }
    }
}

/// One event in a line; the day only where there is much room.
pub(super) fn event_line(
    event: &EventDocument,
    look: Look,
    width: usize,
    with_dir: bool,
) -> Line<'static> {
    let time = if 110 <= width {
        look.text(&event.time)
    } else {
        header::clock(&event.time)
    };
    let what = events::what(event);
    // A sentence about the node follows its name by a colon.
    let mut what = what.trim_start_matches([':', ' ']);
    if let Some(dir) = event.dir.as_ref().filter(|_| !with_dir) {
        let role = event.role.as_deref().unwrap_or("directory");
        let beginning = printable(&format!("{dir} ({role})"));
        what = what.strip_prefix(&*beginning).unwrap_or(what).trim_start();
    }
    let tone = look.style(Tone::of_severity(&event.severity));
    let head = format!(
        "{} {:<16} ",
        look.sign(&event.severity),
        look.text(&event.event)
    );
    let used = super::table::width(&time) + 1 + super::table::width(&head);
    let what = look.fit(&look.text(what), width.saturating_sub(used));
    Line::from(vec![
        Span::styled(format!("{time} "), look.style(Tone::Dim)),
        Span::styled(head, tone),
        Span::raw(what),
    ])
}
