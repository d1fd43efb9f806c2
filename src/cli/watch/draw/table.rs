//! The table of directories: one line for each, the columns that there is room for, and the chosen
//! one always in sight.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::super::super::terminal::{self, Tone, percent, span, words};
use super::super::model::{Model, Screen, probe_seconds};
use super::Page;
use super::look::Look;
use crate::document::{DirDocument, SpaceDocument};
use crate::health::words::bytes_text;

/// Columns of sign and word; `almost full` is the longest.
const STATUS: usize = 13;

/// A path is given so many columns before any other column is.
const PATH: usize = 16;

/// A bar of more columns says no more.
const LONGEST_BAR: usize = 24;

/// The columns that can be left out, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Role,
    Usage,
    Bar,
    Free,
    FullIn,
    Probe,
    Since,
}

impl Column {
    const ALL: [Column; 7] = [
        Column::Role,
        Column::Usage,
        Column::Bar,
        Column::Free,
        Column::FullIn,
        Column::Probe,
        Column::Since,
    ];

    /// What is taken in first as there is room.
    const BY_WEIGHT: [Column; 7] = [
        Column::Usage,
        Column::Free,
        Column::Since,
        Column::FullIn,
        Column::Bar,
        Column::Role,
        Column::Probe,
    ];

    const fn heading(self) -> &'static str {
        match self {
            Column::Role => "ROLE",
            Column::Usage => "USED %",
            Column::Bar => "",
            Column::Free => "FREE",
            Column::FullIn => "FULL IN",
            Column::Probe => "PROBE",
            Column::Since => "SINCE",
        }
    }

    const fn width(self) -> usize {
        match self {
            Column::Role | Column::Usage => 7,
            Column::Probe => 8,
            Column::Bar => 10,
            Column::Free => 10,
            Column::FullIn | Column::Since => 9,
        }
    }
}

/// Draws heading and directories into what the page has left.
pub(super) fn draw(model: &Model, rows: &[&DirDocument], look: Look, page: &mut Page<'_>) {
    let columns = fitting(page.width);
    page.line(heading(&columns, look));
    let Some(document) = model.document() else {
        return;
    };
    if rows.is_empty() {
        let text = match document.dirs.len() {
            0 => "no directory is watched",
            _ => "no directory passes the filter",
        };
        page.line(Line::styled(text, look.style(Tone::Dim)));
        return;
    }
    let chosen = model.chosen(rows);
    // The chosen one stays in the middle, as long as there is something on both sides.
    let first = chosen
        .saturating_sub(page.left / 2)
        .min(rows.len().saturating_sub(page.left));
    for (at, dir) in rows.iter().enumerate().skip(first).take(page.left) {
        let mut line = row(dir, &document.time, &columns, look);
        if at == chosen && model.screen == Screen::Dirs {
            line = line.patch_style(Modifier::REVERSED);
        }
        page.line(line);
    }
}

/// The columns for a terminal of this width, each with its own; the path first.
fn fitting(width: usize) -> Vec<(Option<Column>, usize)> {
    let mut left = width.saturating_sub(STATUS + 1);
    let mut path = PATH.min(left);
    left -= path;
    let mut taken = Vec::new();
    for column in Column::BY_WEIGHT {
        if column.width() < left {
            left -= column.width() + 1;
            taken.push(column);
        }
    }
    // A long bar is worth less than a long path.
    let bar = (left / 3).min(LONGEST_BAR - Column::Bar.width());
    let bar = if taken.contains(&Column::Bar) { bar } else { 0 };
    path += left - bar;
    let mut columns = vec![(None, path)];
    for column in Column::ALL {
        if taken.contains(&column) {
            let more = if column == Column::Bar { bar } else { 0 };
            columns.push((Some(column), column.width() + more));
        }
    }
    columns
}

fn heading(columns: &[(Option<Column>, usize)], look: Look) -> Line<'static> {
    let mut text = look.pad("STATUS", STATUS);
    for (column, width) in columns {
        text.push(' ');
        text.push_str(&match column {
            None => look.pad("DIRECTORY", *width),
            Some(Column::Role | Column::Bar) => {
                look.pad(column.map_or("", Column::heading), *width)
            }
            Some(column) => look.pad_left(column.heading(), *width),
        });
    }
    Line::styled(text, look.style(Tone::Heading))
}

fn row(
    dir: &DirDocument,
    now: &str,
    columns: &[(Option<Column>, usize)],
    look: Look,
) -> Line<'static> {
    let tone = look.style(Tone::of_severity(&dir.severity));
    let suspect = if dir.suspect { "?" } else { "" };
    let status = look.text(&words(&dir.status));
    let status = format!("{} {status}{suspect}", look.sign(&dir.severity));
    let mut spans = vec![Span::styled(look.pad(&status, STATUS), tone)];
    for (column, width) in columns {
        spans.push(Span::raw(" "));
        let Some(column) = column else {
            let path = look.fit_middle(&look.text(&dir.path), *width);
            spans.push(Span::raw(look.pad(&path, *width)));
            continue;
        };
        let text = match column {
            Column::Role => look.pad(&look.text(&dir.role), *width),
            Column::Bar => {
                // A blank in a colour would be a whole bar in the chosen line.
                let known = dir.space.usage_ratio.map_or_else(Style::new, |_| tone);
                spans.push(Span::styled(bar(&dir.space, *width, look), known));
                continue;
            }
            column => look.pad_left(&cell(dir, now, *column), *width),
        };
        spans.push(Span::raw(text));
    }
    Line::from(spans)
}

fn cell(dir: &DirDocument, now: &str, column: Column) -> String {
    let unknown = || "-".to_owned();
    match column {
        Column::Usage => usage(&dir.space),
        Column::Free => dir.space.available_bytes.map_or_else(unknown, bytes_text),
        Column::FullIn => {
            let forecast = dir.forecast.as_ref().filter(|_| dir.axes.space != "full");
            forecast.map_or_else(unknown, |forecast| span(forecast.full_in_seconds))
        }
        Column::Probe => probe_seconds(dir).map_or_else(unknown, |(seconds, runs)| {
            format!("{}{}", if runs { ">" } else { "" }, short(seconds))
        }),
        Column::Since => terminal::between(&dir.since, now).unwrap_or_else(unknown),
        Column::Role | Column::Bar => String::new(),
    }
}

/// The usage in percent, on its side of the thresholds, without the sign.
pub(super) fn usage(space: &SpaceDocument) -> String {
    space.usage_ratio.map_or("-".to_owned(), |ratio| {
        percent(ratio, &[space.low_watermark, space.warn, space.full])
    })
}

/// A short time: milliseconds with two digits below ten, seconds above a thousand of them.
pub(super) fn short(seconds: f64) -> String {
    let millis = seconds * 1e3;
    match millis {
        _ if 1_000.0 <= millis => format!("{seconds:.1} s"),
        _ if 10.0 <= millis => format!("{millis:.0} ms"),
        _ if 1.0 <= millis => format!("{millis:.1} ms"),
        _ => format!("{millis:.2} ms"),
    }
}

/// A bar of that many columns, with a mark at each threshold; blank where the usage is not known.
pub(super) fn bar(space: &SpaceDocument, width: usize, look: Look) -> String {
    let [used, free, mark] = look.bar();
    let marks = [space.low_watermark, space.warn, space.full];
    let marks = marks.map(|ratio| place(ratio, width));
    let end = space.usage_ratio.map(|ratio| share(ratio, width));
    let bar = (0..width).map(|at| match end {
        None => ' ',
        Some(_) if marks.contains(&Some(at)) => mark,
        Some(end) if at < end => used,
        Some(_) => free,
    });
    bar.collect()
}

/// The column in which a threshold lies; none outside a bar.
pub(super) fn place(ratio: f64, width: usize) -> Option<usize> {
    (0.0 < ratio && ratio < 1.0).then(|| floor(ratio, width).min(width.saturating_sub(1)))
}

/// Columns that a usage fills: none only when nothing is used, all only when everything is.
fn share(ratio: f64, width: usize) -> usize {
    let ratio = ratio.clamp(0.0, 1.0);
    match floor(ratio, width) {
        0 if 0.0 < ratio => 1.min(width),
        whole => whole,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 0 to the width of a terminal
#[allow(clippy::cast_precision_loss)]
fn floor(ratio: f64, width: usize) -> usize {
    // What is 0.95 in decimal digits is a little less in binary ones.
    (ratio * width as f64 + 1e-6).floor() as usize
}

/// Columns of a text.
pub(super) fn width(text: &str) -> usize {
    text.width()
}
