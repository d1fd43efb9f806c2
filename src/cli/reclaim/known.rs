//! `reclaim report`: what is known already, from our own file, without a request to anybody.

use std::time::Duration;

use serde::Deserialize;

use super::args::{By, Form, ReportArguments};
use super::cluster::{known_state, load, of_state};
use super::form::{Cell, Column, Table, moment};
use super::report::{Question, Report};
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::print;
use crate::clock::Clock;
use crate::reclaim::plan::Millis;
use crate::reclaim::state::State;
use crate::reclaim::state::marks::{Evidence, Mark, Phase};

/// How long a file that is in use is waited for, and how often it is looked at: a short command is over by then, and nobody who
/// asked for a report waits longer without being told.
const TRIES: u64 = 10;
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Rows that people are shown.
const MOST: usize = 100;

/// `reclaim report`.
pub(super) fn report(arguments: &ReportArguments) -> Result<Exit, Failure> {
    let config = load(None, &arguments.state)?;
    let state = block_on::<_, Failure>(patiently(BETWEEN_TRIES, || known_state(&config)))?;
    let now = Clock::start().now().wall.0;
    if arguments.deletions {
        deletions(&state, arguments.output, now)?;
    } else if arguments.marks {
        marks(&state)?.print(arguments.output, now)?;
    } else {
        let question = Question {
            by: arguments.by,
            classes: arguments.classes.clone(),
            top: arguments.top,
            part: arguments.part.part(),
        };
        judged(&state, question, now)?.print(arguments.output, now)?;
    }
    Ok(Exit::Ok)
}

/// Waits for whoever has the file: between two steps of `run`, and after a short command, it is free.
async fn patiently(
    between: Duration,
    mut open: impl FnMut() -> Result<State, Failure>,
) -> Result<State, Failure> {
    let mut tries = 0;
    loop {
        match open() {
            Err(failure) if failure.exit == Exit::Busy && tries < TRIES => {
                if tries == 0 {
                    let seconds = TRIES * between.as_secs();
                    eprintln!("dirkeeper: waiting up to {seconds} s: {}", failure.error);
                }
                tries += 1;
                tokio::time::sleep(between).await;
            }
            other => return other,
        }
    }
}

/// The last scan as a table.
pub(super) fn judged(state: &State, question: Question, now: Millis) -> Result<Table, Failure> {
    let Some(scan) = state.last_scan().map_err(of_state)? else {
        let error = anyhow::anyhow!("there is no complete scan to report");
        return Err(Failure::new(Exit::FAILED, error).remedy("run 'dirkeeper reclaim scan' first"));
    };
    let mut report = Report::new(question);
    let told = state.for_each_judged(|row| report.add(row));
    told.map_err(of_state)?;
    Ok(report.table(&scan, now))
}

/// The question that `scan` answers at its end.
pub(super) fn by_class(part: Option<crate::reclaim::scan::Part>) -> Question {
    Question {
        by: By::Class,
        classes: Vec::new(),
        top: None,
        part,
    }
}

const fn column(key: &'static str, heading: &'static str) -> Column {
    Column { key, heading }
}

fn marks(state: &State) -> Result<Table, Failure> {
    let mut rows = Vec::new();
    let told = state.for_each_mark(|mark| rows.push(marked(&mark)));
    told.map_err(of_state)?;
    let count = rows.len();
    Ok(Table {
        columns: vec![
            column("ledger", "LEDGER"),
            column("class", "CLASS"),
            column("phase", "PHASE"),
            column("markedAt", "MARKED"),
            column("deletableAt", "DELETABLE"),
            column("owner", "OWNER"),
            column("evidence", "EVIDENCE"),
            column("obstacle", "IN THE WAY"),
        ],
        rows,
        most: MOST,
        after: vec![format!("{count} marks")],
        ..Table::default()
    })
}

fn marked(mark: &Mark) -> Vec<Cell> {
    let phase = match mark.phase {
        Phase::Marked => "marked",
        Phase::Deleting => "deleting",
    };
    let obstacle = mark.obstacle.as_deref();
    vec![
        mark.id.into(),
        mark.class.name().into(),
        phase.into(),
        Cell::Time(mark.marked_at),
        Cell::Time(mark.deletable_at),
        mark.owner.path.as_str().into(),
        evidence(mark.evidence).into(),
        obstacle.map_or(Cell::Nothing, Cell::from),
    ]
}

fn evidence(evidence: Evidence) -> String {
    match evidence {
        Evidence::LetGo { from, to, at } => {
            format!(
                "named in version {from} and not in {to}, seen {}",
                moment(at)
            )
        }
        Evidence::OwnerGone { since, scans, .. } => {
            format!("owner gone since {}, in {scans} scans", moment(since))
        }
        Evidence::Moved => "moved to other storage".to_owned(),
        Evidence::Absence => "named by nobody".to_owned(),
    }
}

/// A line of the audit, as far as people read it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    at: Millis,
    what: String,
    ledger: u64,
    class: String,
    owner: String,
    evidence: serde_json::Value,
    why: Option<String>,
}

/// Marks and what became of them are not told here: they are many, and `--marks` tells those that stand.
const TOLD: [&str; 3] = ["delete", "undo", "alarm"];

/// For programs each line as it was written.
fn deletions(state: &State, form: Form, now: Millis) -> Result<(), Failure> {
    let (mut rows, mut raw) = (Vec::new(), String::new());
    let told = state.for_each_audit(|_, text| {
        let Ok(line) = serde_json::from_str::<Line>(text) else {
            return;
        };
        if !TOLD.contains(&line.what.as_str()) {
            return;
        }
        if form == Form::Json {
            raw.push_str(text);
            raw.push('\n');
            return;
        }
        rows.push(vec![
            Cell::Time(line.at),
            line.what.into(),
            line.ledger.into(),
            line.class.into(),
            line.owner.into(),
            line.evidence.to_string().into(),
            line.why.map_or(Cell::Nothing, Cell::from),
        ]);
    });
    told.map_err(of_state)?;
    if form == Form::Json {
        return print(&raw);
    }
    let count = rows.len();
    let table = Table {
        columns: vec![
            column("at", "AGO"),
            column("what", "WHAT"),
            column("ledger", "LEDGER"),
            column("class", "CLASS"),
            column("owner", "OWNER"),
            column("evidence", "EVIDENCE"),
            column("why", "WHY"),
        ],
        rows,
        after: vec![format!("{count} deletions, undos and alarms")],
        ..Table::default()
    };
    table.print(form, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_report_waits_and_then_says_who_has_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let open = || State::open(dir.path()).map_err(of_state);
        let soon = Duration::from_millis(1);
        let mut state = Some(open().unwrap());
        let refused = patiently(soon, open).await.unwrap_err();
        assert_eq!(refused.exit.code(), 75);
        let who = format!("process {}", std::process::id());
        assert!(
            refused.error.to_string().contains(&who),
            "{}",
            refused.error
        );
        // It is free before the wait is over.
        let mut tries = 0;
        let opened = patiently(soon, || {
            tries += 1;
            if tries == TRIES {
                state.take();
            }
            open()
        });
        opened.await.unwrap();
        assert_eq!(tries, TRIES);
    }
}
