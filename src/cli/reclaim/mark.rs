//! `reclaim mark` and `reclaim sweep`: the two phases, as tables of what was done or would be.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use super::args::{ChoiceArguments, LimitArguments, MarkArguments, PartArguments, SweepArguments};
use super::cluster::{Cluster, of_state};
use super::form::{Cell, Column, Table, age, moment};
use super::office::{Office, last_scan, of_stop, rules};
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::config::ReclaimConfig;
use crate::document::shown;
use crate::health::words::bytes_text;
use crate::reclaim::acting::{Candidate, LastScan, Stop};
use crate::reclaim::mark::{MarkOptions, Marked, mark_deletable};
use crate::reclaim::plan::class::Class;
use crate::reclaim::plan::evidence::Witness;
use crate::reclaim::plan::{LedgerId, Millis};
use crate::reclaim::state::State;
use crate::reclaim::sweep::{SweepOptions, Swept, remove_deletable};

/// Rows that people are shown.
const MOST: usize = 50;

/// Largest file of confirmed ledgers that is read: some millions of numbers.
const LARGEST: u64 = 64 << 20;

/// `reclaim mark`.
pub(super) fn mark(arguments: &MarkArguments) -> Result<Exit, Failure> {
    block_on::<_, Failure>(async {
        let mut cluster = Cluster::open(&arguments.cluster).await?;
        cluster.join(arguments.execute).await?;
        let state = cluster.state()?;
        let last = last_scan(&cluster, &state).await?;
        let confirmed = arguments.confirmed.as_deref().map(confirmed).transpose()?;
        let options = MarkOptions {
            confirmed: confirmed.unwrap_or_default(),
            allow_vanished: arguments.allow_vanished,
            ..mark_options(
                &cluster.config,
                &arguments.choice,
                &arguments.part,
                arguments.execute,
            )
        };
        let office = office(&cluster, &state, arguments.execute).await?;
        let marked = mark_with(
            &cluster,
            &state,
            &office,
            &arguments.choice,
            &last,
            &options,
        )
        .await;
        office.resign().await;
        let (table, stop) = marked_table(marked, &last, options.execute, cluster.now());
        table.print(arguments.output, cluster.now())?;
        stop.map_or(Ok(Exit::Ok), |stop| Err(of_stop(stop)))
    })
}

/// `reclaim sweep`.
pub(super) fn sweep(arguments: &SweepArguments) -> Result<Exit, Failure> {
    block_on::<_, Failure>(async {
        let mut cluster = Cluster::open(&arguments.cluster).await?;
        cluster.join(arguments.execute).await?;
        let state = cluster.state()?;
        let last = last_scan(&cluster, &state).await?;
        let options = SweepOptions {
            allow_vanished: arguments.allow_vanished,
            allow_missing: arguments.allow_missing.clone(),
            ..sweep_options(
                &cluster.config,
                &arguments.limits,
                &arguments.part,
                arguments.execute,
            )
        };
        let whose = whose(&state)?;
        let office = office(&cluster, &state, arguments.execute).await?;
        let choice = ChoiceArguments::default();
        let swept = sweep_with(&cluster, &state, &office, &choice, &last, &options).await;
        office.resign().await;
        let (table, stop) = swept_table(swept, &whose, options.execute);
        table.print(arguments.output, cluster.now())?;
        stop.map_or(Ok(Exit::Ok), |stop| Err(of_stop(stop)))
    })
}

pub(super) async fn office(
    cluster: &Cluster,
    state: &State,
    execute: bool,
) -> Result<Office, Failure> {
    match execute {
        true => Office::take(cluster, state).await,
        false => Ok(Office::dry()),
    }
}

pub(super) async fn mark_with(
    cluster: &Cluster,
    state: &State,
    office: &Office,
    choice: &ChoiceArguments,
    last: &LastScan,
    options: &MarkOptions,
) -> Marked {
    let rules = rules(&cluster.config, choice);
    let holds = || office.holds();
    mark_deletable(
        &office.acting(cluster, state, &rules, &holds),
        last,
        options,
    )
    .await
}

pub(super) async fn sweep_with(
    cluster: &Cluster,
    state: &State,
    office: &Office,
    choice: &ChoiceArguments,
    last: &LastScan,
    options: &SweepOptions,
) -> Swept {
    let rules = rules(&cluster.config, choice);
    let holds = || office.holds();
    remove_deletable(
        &office.acting(cluster, state, &rules, &holds),
        last,
        options,
    )
    .await
}

pub(super) fn mark_options(
    config: &ReclaimConfig,
    choice: &ChoiceArguments,
    part: &PartArguments,
    execute: bool,
) -> MarkOptions {
    let classes: BTreeSet<Class> = match choice.classes.is_empty() {
        false => choice.classes.iter().copied().collect(),
        true => {
            let named = config.classes.iter().map(|name| Class::named(name));
            named.flatten().collect()
        }
    };
    MarkOptions {
        classes,
        confirmed: BTreeSet::new(),
        part: part.part(),
        allow_vanished: false,
        execute,
    }
}

pub(super) fn sweep_options(
    config: &ReclaimConfig,
    limits: &LimitArguments,
    part: &PartArguments,
    execute: bool,
) -> SweepOptions {
    SweepOptions {
        execute,
        max_deletes: limits.max_deletes.or(config.max_deletes).map(u64::from),
        per_second: config.deletes_per_second,
        allow_unchecked: limits.allow_unchecked,
        part: part.part(),
        ..SweepOptions::default()
    }
}

/// The first number of each line; a heading is none.
fn confirmed(file: &Path) -> Result<BTreeSet<LedgerId>, Failure> {
    use std::io::Read;
    let mut text = String::new();
    let read =
        std::fs::File::open(file).and_then(|open| open.take(LARGEST).read_to_string(&mut text));
    read.map_err(|error| Failure::io(format!("cannot read {}", shown(file)), error))?;
    let mut ids = BTreeSet::new();
    for (number, line) in text.lines().enumerate() {
        let word = line.split([',', ' ', '\t']).next().unwrap_or_default();
        match word.parse() {
            Ok(id) => {
                ids.insert(id);
            }
            Err(_) if word.is_empty() || (number == 0 && word == "ledger") => {}
            Err(_) => {
                let name = shown(file);
                let number = number + 1;
                let error = anyhow::anyhow!("line {number} of {name} begins with no number");
                return Err(Failure::new(Exit::Data, error));
            }
        }
    }
    Ok(ids)
}

const fn column(key: &'static str, heading: &'static str) -> Column {
    Column { key, heading }
}

/// Class and owner of every mark.
type Whose = HashMap<LedgerId, (Class, String)>;

pub(super) fn whose(state: &State) -> Result<Whose, Failure> {
    let mut whose = Whose::new();
    let told = state.for_each_mark(|mark| {
        whose.insert(mark.id, (mark.class, mark.owner.path));
    });
    told.map_err(of_state)?;
    Ok(whose)
}

fn marked_table(
    marked: Marked,
    last: &LastScan,
    execute: bool,
    now: Millis,
) -> (Table, Option<Stop>) {
    let bytes = marked.marked.iter().map(|planned| planned.bytes);
    let bytes = bytes.fold(0, u64::saturating_add);
    let count = marked.marked.len();
    let done = if execute {
        "were marked"
    } else {
        "would be marked"
    };
    let mut after = vec![format!(
        "{count} {done}, with {} in all copies; {} marks stood before",
        bytes_text(bytes),
        marked.standing
    )];
    if !execute && count != 0 {
        after.push("nothing was done: --execute does it".to_owned());
    }
    if execute && count != 0 {
        after.push(
            "when their grace has passed: 'dirkeeper reclaim scan' once more, then \
             'dirkeeper reclaim sweep'"
                .to_owned(),
        );
    }
    let table = Table {
        about: vec![
            ("executed", execute.into()),
            ("marked", (count as u64).into()),
            ("bytes", Cell::Bytes(bytes)),
            ("standing", marked.standing.into()),
        ],
        columns: vec![
            column("what", "WHAT"),
            column("ledger", "LEDGER"),
            column("class", "CLASS"),
            column("bytes", "BYTES"),
            column("deletableAt", "DELETABLE"),
            column("owner", "OWNER"),
            column("why", "WHY"),
        ],
        rows: marked_rows(&marked, last, now),
        most: MOST,
        after,
        ..Table::default()
    };
    (table, marked.stopped)
}

fn marked_rows(marked: &Marked, last: &LastScan, now: Millis) -> Vec<Vec<Cell>> {
    let suspect = |id: LedgerId| last.suspects.get(&id);
    let owner = |id| suspect(id).map_or(Cell::Nothing, |one| (&*one.owner).into());
    let planned = marked.marked.iter().map(|planned| {
        let why = suspect(planned.id).map(|one| evidence(one, now));
        vec![
            "mark".into(),
            planned.id.into(),
            planned.class.name().into(),
            Cell::Bytes(planned.bytes),
            Cell::Time(planned.deletable_at),
            owner(planned.id),
            why.map_or(Cell::Nothing, Cell::from),
        ]
    });
    let dropped = marked.dropped.iter();
    let dropped = dropped.map(|(id, why)| ("drop", *id, why.as_str()));
    let skipped = marked.skipped.iter().map(|(id, why)| ("skip", *id, *why));
    let others = dropped.chain(skipped).map(|(what, id, why)| {
        vec![
            what.into(),
            id.into(),
            suspect(id).map_or(Cell::Nothing, |one| one.class.name().into()),
            Cell::Nothing,
            Cell::Nothing,
            owner(id),
            why.into(),
        ]
    });
    planned.chain(others).collect()
}

/// What was seen, in words.
fn evidence(candidate: &Candidate, now: Millis) -> String {
    match &candidate.witness {
        Some((key, Witness::Trimmed { from, to, at, .. })) => format!(
            "{} named it in version {from} and not in {to}, seen {}",
            key.path,
            moment(*at)
        ),
        Some((key, Witness::Gone { absence, .. })) => format!(
            "{} named it and is gone since {}, in {} scans",
            key.path,
            moment(absence.since),
            absence.scans
        ),
        None => format!(
            "nobody has named it in {} scans over {}",
            candidate.scans,
            age(candidate.first, now)
        ),
    }
}

fn swept_table(swept: Swept, whose: &Whose, execute: bool) -> (Table, Option<Stop>) {
    let deleted = swept.deleted.iter().map(|id| ("delete", *id, None));
    let dropped = swept.dropped.iter();
    let dropped = dropped.map(|(id, why)| ("drop", *id, Some(why.as_str())));
    let kept = swept
        .kept
        .iter()
        .map(|(id, why)| ("wait", *id, Some(why.as_str())));
    let rows = deleted.chain(dropped).chain(kept).map(|(what, id, why)| {
        let mark = whose.get(&id);
        vec![
            what.into(),
            id.into(),
            mark.map_or(Cell::Nothing, |(class, _)| class.name().into()),
            mark.map_or(Cell::Nothing, |(_, owner)| owner.as_str().into()),
            why.map_or(Cell::Nothing, Cell::from),
        ]
    });
    let count = swept.deleted.len() as u64;
    let done = if execute {
        "were deleted"
    } else {
        "would be deleted"
    };
    let mut after = vec![format!(
        "{count} {done}, with {} in all copies; bookies give the space back when they next collect",
        bytes_text(swept.bytes)
    )];
    if !execute && count != 0 {
        after.push("nothing was done: --execute does it".to_owned());
    }
    let table = Table {
        about: vec![
            ("executed", execute.into()),
            ("deleted", count.into()),
            ("bytes", Cell::Bytes(swept.bytes)),
        ],
        columns: vec![
            column("what", "WHAT"),
            column("ledger", "LEDGER"),
            column("class", "CLASS"),
            column("owner", "OWNER"),
            column("why", "WHY"),
        ],
        rows: rows.collect(),
        most: MOST,
        after,
        ..Table::default()
    };
    (table, swept.stopped)
}
