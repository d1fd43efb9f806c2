//! What a test writes into `docs/bookie-lab.md`: cells of a table, appended to the file for results when
//! `scripts/lab` asks for them, and shown in any case.

use std::time::Duration;

use serde_json::json;

use crate::harness::bench::Bench;

/// A table of the page and one of its columns.
#[derive(Clone, Copy)]
pub(crate) struct Column<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) table: &'static str,
    pub(crate) name: &'a str,
}

impl Column<'_> {
    /// One cell.
    pub(crate) fn tell(&self, row: &str, value: impl Into<String>) {
        let value = value.into();
        println!("    {} | {} | {row}: {value}", self.table, self.name);
        self.bench.record(json!({
            "table": self.table, "column": self.name, "row": row, "value": value,
        }));
    }
}

/// A time as it is read best.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
