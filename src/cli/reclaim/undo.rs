//! `reclaim undo`: brings ledgers back, and says honestly how far.

use super::args::{ChoiceArguments, UndoArguments};
use super::cluster::{Cluster, exit_of_state};
use super::form::{Cell, Column, Table};
use super::mark::office;
use super::office::{exit_of, rules};
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::reclaim::undo::{HOPE, Made, UndoError, Undone, undo};

/// `reclaim undo`: 0 only if everything is back.
pub(super) fn run(arguments: &UndoArguments) -> Result<Exit, Failure> {
    block_on::<_, Failure>(async {
        let cluster = Cluster::open(&arguments.cluster).await?;
        let state = cluster.state()?;
        let office = office(&cluster, &state, arguments.execute).await?;
        let rules = rules(&cluster.config, &ChoiceArguments::default());
        let holds = || office.holds();
        let acting = office.acting(&cluster, &state, &rules, &holds);
        let mut results = Vec::new();
        for id in &arguments.ids {
            let done = undo(&acting, *id, cluster.holders(), arguments.execute).await;
            results.push((*id, done));
        }
        office.resign().await;
        let exit = exit(&results);
        table(&results, arguments.execute).print(arguments.output, cluster.now())?;
        Ok(exit)
    })
}

type Results = [(u64, Result<Undone, UndoError>)];

/// That of the worst.
fn exit(results: &Results) -> Exit {
    let of = |result: &Result<Undone, UndoError>| match result {
        Ok(undone) if undone.is_whole() => Exit::Ok,
        Ok(_) => Exit::FAILED,
        Err(UndoError::Store { source, .. } | UndoError::Unanswered { source, .. }) => {
            exit_of(source)
        }
        Err(UndoError::State(source)) => exit_of_state(source),
        Err(_) => Exit::FAILED,
    };
    let worst = results.iter().map(|(_, result)| of(result));
    worst.max_by_key(|exit| exit.code()).unwrap_or(Exit::Ok)
}

fn table(results: &Results, execute: bool) -> Table {
    let column = |key, heading| Column { key, heading };
    let mut rows = Vec::new();
    for (id, result) in results {
        match result {
            Ok(undone) => rows.extend(undone_rows(undone)),
            Err(error) => rows.push(vec![
                (*id).into(),
                "failed".into(),
                Cell::Nothing,
                Cell::Nothing,
                Cell::Nothing,
                crate::report::text(error).into(),
            ]),
        }
    }
    let mut after = vec![HOPE.to_owned()];
    if !execute {
        after.push("nothing was done: --execute does it".to_owned());
    }
    Table {
        about: vec![("executed", execute.into())],
        columns: vec![
            column("ledger", "LEDGER"),
            column("node", "NODE"),
            column("bookie", "BOOKIE"),
            column("entries", "ENTRIES"),
            column("lost", "LOST"),
            column("why", "WHY"),
        ],
        rows,
        after,
        ..Table::default()
    }
}

fn undone_rows(undone: &Undone) -> Vec<Vec<Cell>> {
    let made = match undone.made {
        Made::Again => "made again",
        Made::Would => "would be made",
        Made::Already => "is there",
    };
    let open = undone
        .is_open
        .then_some("it was not closed: nobody knows where it ends");
    let row = |bookie: Cell, entries: Cell, lost: Cell, why: Cell| {
        vec![undone.id.into(), made.into(), bookie, entries, lost, why]
    };
    let mut rows: Vec<Vec<Cell>> = (undone.replicas.iter())
        .map(|replica| {
            let (lost, why) = match &replica.lost {
                Ok(lost) => (Cell::Count(*lost), open.map_or(Cell::Nothing, Cell::from)),
                Err(why) => (Cell::Nothing, why.as_str().into()),
            };
            row(
                replica.bookie.as_str().into(),
                replica.entries.into(),
                lost,
                why,
            )
        })
        .collect();
    if rows.is_empty() {
        let why = open.map_or(Cell::Nothing, Cell::from);
        rows.push(row(Cell::Nothing, Cell::Nothing, Cell::Nothing, why));
    }
    rows
}
