//! The table of directories for people, as `status` and `check` show it: one line for each, and
//! below it why. Made from the document of the contract, so that it never shows anything else.

use super::terminal::{self, Terminal, Tone, percent, printable, span, words};
use crate::document::{DirDocument, ForecastDocument, StatusDocument};
use crate::health::words::bytes_text;

/// Blanks between two columns.
const GAP: usize = 2;

/// How far the lines below a directory are moved in.
const INDENT: usize = 4;

/// The columns before the path, in their order. `keep` says which go first when a terminal is too
/// narrow: the smallest.
const COLUMNS: [Column; 6] = [
    Column::new("STATUS", false, 9),
    Column::new("ROLE", false, 4),
    Column::new("USAGE", true, 8),
    Column::new("AVAILABLE", true, 2),
    Column::new("WARN/FULL", true, 1),
    Column::new("SINCE", true, 3),
];

struct Column {
    heading: &'static str,
    right: bool,
    keep: u8,
}

impl Column {
    const fn new(heading: &'static str, right: bool, keep: u8) -> Column {
        Column {
            heading,
            right,
            keep,
        }
    }
}

/// The directories of the document, a line each, and below it what there is to say about it.
#[must_use]
pub fn directories(document: &StatusDocument, terminal: Terminal) -> String {
    let rows: Vec<[String; COLUMNS.len()]> = document
        .dirs
        .iter()
        .map(|dir| cells(dir, &document.time))
        .collect();
    let widths = widths(&rows);
    let longest_path = document
        .dirs
        .iter()
        .map(|dir| length(&printable(&dir.path)));
    let shown = fitting(&widths, longest_path.max().unwrap_or(0), terminal.width);

    let headings = COLUMNS.map(|column| column.heading.to_owned());
    let heading = line(&headings, &widths, &shown, None, terminal) + "DIRECTORY";
    let mut table = terminal.paint(Tone::Heading, &heading);
    table.push('\n');
    for (dir, row) in document.dirs.iter().zip(&rows) {
        let tone = Tone::of_severity(&dir.severity);
        table.push_str(&line(row, &widths, &shown, Some(tone), terminal));
        table.push_str(&printable(&dir.path));
        table.push('\n');
        for remark in remarks(dir) {
            table.push_str(&terminal.paragraph(INDENT, &remark));
        }
    }
    table
}

fn cells(dir: &DirDocument, now: &str) -> [String; COLUMNS.len()] {
    let space = &dir.space;
    let usage = space.usage_ratio.map_or_else(unknown, |ratio| {
        percent(ratio, &[space.low_watermark, space.warn, space.full]) + " %"
    });
    let warn = terminal::limit(space.warn);
    let full = terminal::limit(space.full);
    [
        words(&dir.status),
        printable(&dir.role),
        usage,
        space.available_bytes.map_or_else(unknown, bytes_text),
        format!("{warn}/{full} %"),
        terminal::between(&dir.since, now).unwrap_or_else(|| printable(&dir.since)),
    ]
}

fn unknown() -> String {
    "-".to_owned()
}

/// What there is to say about a directory beside its line: why it is not well, what runs for too
/// long, when it will be full.
fn remarks(dir: &DirDocument) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(cause) = &dir.cause {
        remarks.push(printable(&cause.message));
    }
    if dir.status == "replaced" {
        remarks.push("if this disk is the right one: dirkeeper accept DIRECTORY".to_owned());
    }
    if dir.suspect {
        remarks.push("suspect: not confirmed yet".to_owned());
    }
    if 0.0 < dir.probe.in_flight_seconds && dir.status != "hung" {
        let seconds = dir.probe.in_flight_seconds;
        remarks.push(format!("an operation has been running for {seconds:.1} s"));
    }
    if let Some(forecast) = dir.forecast.as_ref().filter(|_| dir.axes.space != "full") {
        remarks.push(forecast_text(forecast));
    }
    remarks
}

fn forecast_text(forecast: &ForecastDocument) -> String {
    let expected = span(forecast.full_in_seconds);
    let earliest = span(forecast.earliest_seconds);
    match forecast.latest_seconds.map(span) {
        Some(latest) => format!("full in about {expected} ({earliest} to {latest})"),
        None => format!("full in about {expected} ({earliest} or more)"),
    }
}

fn widths(rows: &[[String; COLUMNS.len()]]) -> [usize; COLUMNS.len()] {
    let mut widths = COLUMNS.map(|column| column.heading.len());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = length(cell).max(*width);
        }
    }
    widths
}

/// Which columns can be shown so that the longest path still fits; status and usage always are.
fn fitting(
    widths: &[usize; COLUMNS.len()],
    path: usize,
    terminal: Option<usize>,
) -> [bool; COLUMNS.len()] {
    let mut shown = [true; COLUMNS.len()];
    let Some(terminal) = terminal else {
        return shown;
    };
    let mut by_weight: Vec<usize> = (0..COLUMNS.len()).collect();
    by_weight.sort_by_key(|index| COLUMNS[*index].keep);
    for dropped in by_weight.into_iter().take(COLUMNS.len() - 2) {
        let columns = widths.iter().zip(shown).filter(|(_, shown)| *shown);
        let before: usize = columns.map(|(width, _)| width + GAP).sum();
        if before + path <= terminal {
            break;
        }
        shown[dropped] = false;
    }
    shown
}

/// The shown cells, padded, the first in that tone.
fn line(
    cells: &[String; COLUMNS.len()],
    widths: &[usize; COLUMNS.len()],
    shown: &[bool; COLUMNS.len()],
    tone: Option<Tone>,
    terminal: Terminal,
) -> String {
    let mut line = String::new();
    for (index, column) in COLUMNS
        .iter()
        .enumerate()
        .filter(|(index, _)| shown[*index])
    {
        let cell = &cells[index];
        let padding = " ".repeat(widths[index] - length(cell));
        let painted = match tone {
            Some(tone) if index == 0 => terminal.paint(tone, cell),
            _ => cell.clone(),
        };
        if column.right {
            line.push_str(&padding);
            line.push_str(&painted);
        } else {
            line.push_str(&painted);
            line.push_str(&padding);
        }
        line.push_str(&" ".repeat(GAP));
    }
    line
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{sample, status_document};

    fn document() -> StatusDocument {
        let mut snapshot = sample::snapshot();
        let mut almost = sample::full_dir(4, "/mnt/l4", crate::health::dir::Role::Ledger);
        almost.status = crate::health::status::Status::AlmostFull;
        almost.severity = almost.status.severity();
        almost.space_status = crate::health::status::SpaceStatus::AlmostFull;
        almost.usage_ratio = Some(0.949_99);
        almost.suspect = true;
        almost.in_flight = Some(std::time::Duration::from_millis(2_300));
        snapshot.dirs.push(almost.into());
        status_document(&snapshot, &sample::self_view(), &sample::about())
    }

    #[test]
    fn the_table_has_all_columns_where_there_is_room() {
        insta::assert_snapshot!("wide", directories(&document(), Terminal::NONE));
    }

    /// Columns go one after another; paths stay whole; remarks are wrapped.
    #[test]
    fn the_table_becomes_narrow_with_its_terminal() {
        let narrow = |width| Terminal {
            colour: false,
            width: Some(width),
        };
        let tables = [80, 70, 40].map(|width| directories(&document(), narrow(width)));
        insta::assert_snapshot!("narrow", tables.join("\n"));
    }

    #[test]
    fn colours_do_not_move_columns() {
        let colourful = Terminal {
            colour: true,
            width: None,
        };
        let coloured = directories(&document(), colourful);
        assert!(coloured.contains("\u{1b}["));
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once("\u{1b}[") {
            plain.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        plain.push_str(rest);
        assert_eq!(plain, directories(&document(), Terminal::NONE));
    }
}
