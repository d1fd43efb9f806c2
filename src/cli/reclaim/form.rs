//! A result as a table, and its three forms: for people, as one JSON document, as CSV.

use serde_json::{Map, Value};

use super::args::Form;
use crate::cli::exit::Failure;
use crate::cli::terminal::{Terminal, Tone, print, printable, span};
use crate::document::timestamp_text;
use crate::health::moment::Timestamp;
use crate::health::words::bytes_text;
use crate::reclaim::plan::Millis;

/// Blanks between two columns.
const GAP: &str = "  ";

/// A column: its key in JSON and CSV, and its heading for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) key: &'static str,
    pub(super) heading: &'static str,
}

/// What stands in a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Text(String),
    Count(u64),
    Bytes(u64),
    /// So many, and perhaps more.
    AtLeast(u64),
    /// Counts by what they count.
    Counts(Vec<(String, u64)>),
    /// A moment; people read how long ago that was.
    Time(Millis),
    Flag(bool),
    /// It is not known, or there is none.
    Nothing,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Cell {
        Cell::Flag(flag)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Cell {
        Cell::Count(count)
    }
}

/// A table, with what is to be said about the whole of it.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Keys of the JSON document beside its rows, such as which scan it is.
    pub(super) about: Vec<(&'static str, Cell)>,
    /// Lines before the table, for people.
    pub(super) before: Vec<String>,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// People are shown so many rows; 0 for all.
    pub(super) most: usize,
    /// Lines after it, for people.
    pub(super) after: Vec<String>,
}

impl Table {
    /// Writes it to standard output. `now` is for ages.
    pub(super) fn print(&self, form: Form, now: Millis) -> Result<(), Failure> {
        print(&match form {
            Form::Human => self.human(Terminal::stdout(), now),
            Form::Json => self.json(),
            Form::Csv => self.csv(),
        })
    }

    pub(super) fn human(&self, terminal: Terminal, now: Millis) -> String {
        let mut text = String::new();
        for line in &self.before {
            text.push_str(&terminal.paragraph(0, line));
        }
        if !self.rows.is_empty() {
            if !text.is_empty() {
                text.push('\n');
            }
            self.aligned(&mut text, terminal, now);
        }
        let shown = self.shown().len();
        if shown < self.rows.len() {
            let more = self.rows.len() - shown;
            text.push_str(&format!("and {more} more, which --output csv shows too\n"));
        }
        if !self.after.is_empty() && !self.rows.is_empty() {
            text.push('\n');
        }
        for line in &self.after {
            text.push_str(&terminal.paragraph(0, line));
        }
        text
    }

    fn shown(&self) -> &[Vec<Cell>] {
        match self.most {
            0 => &self.rows,
            most => &self.rows[..most.min(self.rows.len())],
        }
    }

    fn aligned(&self, text: &mut String, terminal: Terminal, now: Millis) {
        let rows: Vec<Vec<String>> = (self.shown().iter())
            .map(|row| row.iter().map(|cell| cell.human(now)).collect())
            .collect();
        let width = |index: usize| {
            let cells = rows.iter().map(|row| length(&row[index]));
            cells
                .max()
                .unwrap_or(0)
                .max(length(self.columns[index].heading))
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let right: Vec<bool> = (0..self.columns.len())
            .map(|index| {
                !self
                    .rows
                    .iter()
                    .any(|row| matches!(row[index], Cell::Text(_)))
            })
            .collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let cells = cells.zip(&widths).zip(&right);
            let padded = cells.map(|((cell, width), right)| {
                let blanks = " ".repeat(width - length(cell));
                match right {
                    true => blanks + cell,
                    false => cell.to_owned() + &blanks,
                }
            });
            padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
        };
        let heading = line(&mut self.columns.iter().map(|column| column.heading));
        text.push_str(&terminal.paint(Tone::Heading, &heading));
        text.push('\n');
        for row in &rows {
            text.push_str(&line(&mut row.iter().map(String::as_str)));
            text.push('\n');
        }
    }

    pub(super) fn json(&self) -> String {
        let mut document = Map::new();
        for (key, cell) in &self.about {
            document.insert((*key).to_owned(), cell.json());
        }
        let row = |row: &Vec<Cell>| {
            let cells = self.columns.iter().zip(row);
            Value::Object(
                cells
                    .map(|(column, cell)| (column.key.to_owned(), cell.json()))
                    .collect(),
            )
        };
        document.insert("rows".to_owned(), self.rows.iter().map(row).collect());
        Value::Object(document).to_string() + "\n"
    }

    /// As RFC 4180 has it, but with line feeds alone.
    pub(super) fn csv(&self) -> String {
        let mut text = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = String>| {
            text.push_str(
                &cells
                    .map(|cell| quoted(&cell))
                    .collect::<Vec<_>>()
                    .join(","),
            );
            text.push('\n');
        };
        line(&mut self.columns.iter().map(|column| column.key.to_owned()));
        for row in &self.rows {
            line(&mut row.iter().map(Cell::plain));
        }
        text
    }
}

impl Cell {
    fn human(&self, now: Millis) -> String {
        match self {
            Cell::Text(text) => printable(text),
            Cell::Count(count) => count.to_string(),
            Cell::Bytes(bytes) => bytes_text(*bytes),
            Cell::AtLeast(bytes) => bytes_text(*bytes) + "+",
            Cell::Counts(counts) => listed(counts),
            Cell::Time(at) => age(*at, now),
            Cell::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
            Cell::Nothing => "-".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Cell::Text(text) => text.as_str().into(),
            Cell::Count(number) | Cell::Bytes(number) | Cell::AtLeast(number) => (*number).into(),
            Cell::Counts(counts) => {
                let counts = counts.iter().cloned();
                Value::Object(counts.map(|(what, count)| (what, count.into())).collect())
            }
            Cell::Time(at) => moment(*at).into(),
            Cell::Flag(flag) => (*flag).into(),
            Cell::Nothing => Value::Null,
        }
    }

    fn plain(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(number) | Cell::Bytes(number) | Cell::AtLeast(number) => number.to_string(),
            Cell::Counts(counts) => listed(counts),
            Cell::Time(at) => moment(*at),
            Cell::Flag(flag) => flag.to_string(),
            Cell::Nothing => String::new(),
        }
    }
}

fn listed(counts: &[(String, u64)]) -> String {
    let counts = counts.iter().map(|(what, count)| format!("{count} {what}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// How long ago, or in what time.
pub(super) fn age(at: Millis, now: Millis) -> String {
    let seconds = (now - at).unsigned_abs() / 1000;
    match now < at {
        true => format!("in {}", span(seconds)),
        false => span(seconds),
    }
}

/// As RFC 3339 has it.
pub(super) fn moment(at: Millis) -> String {
    timestamp_text(Timestamp(at))
}

/// A cell that a program for tables would take for a formula is none of ours: names of topics are URL-encoded.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) || cell.trim() != cell {
        return format!("\"{}\"", cell.replace('"', "\"\""));
    }
    cell.to_owned()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |key, heading| Column { key, heading };
        Table {
            about: vec![
                ("instance", "a \"b\"".into()),
                ("ended", Cell::Time(60_000)),
            ],
            before: vec!["the last scan".to_owned()],
            columns: vec![
                column("owner", "OWNER"),
                column("ledgers", "LEDGERS"),
                column("bytes", "BYTES"),
                column("oldest", "OLDEST"),
            ],
            rows: vec![
                vec![
                    "a,\"b\"\n".into(),
                    12_u64.into(),
                    Cell::Bytes(3 << 20),
                    Cell::Time(0),
                ],
                vec![
                    " x".into(),
                    3_u64.into(),
                    Cell::Nothing,
                    Cell::Time(90_000_000),
                ],
            ],
            most: 0,
            after: vec!["what next".to_owned()],
        }
    }

    #[test]
    fn people_read_columns() {
        insta::assert_snapshot!(table().human(Terminal::NONE, 86_400_000), @r#"
        the last scan

        OWNER      LEDGERS    BYTES  OLDEST
        a,"b"\x0a       12  3.0 MiB     1 d
         x               3        -  in 1 h

        what next
        "#);
    }

    #[test]
    fn programs_read_documents_and_quoted_lines() {
        insta::assert_snapshot!(table().json(), @r#"{"ended":"1970-01-01T00:01:00.000Z","instance":"a \"b\"","rows":[{"bytes":3145728,"ledgers":12,"oldest":"1970-01-01T00:00:00.000Z","owner":"a,\"b\"\n"},{"bytes":null,"ledgers":3,"oldest":"1970-01-02T01:00:00.000Z","owner":" x"}]}"#);
        insta::assert_snapshot!(table().csv(), @r#"
        owner,ledgers,bytes,oldest
        "a,""b""
        ",12,3145728,1970-01-01T00:00:00.000Z
        " x",3,,1970-01-02T01:00:00.000Z
        "#);
    }
}
