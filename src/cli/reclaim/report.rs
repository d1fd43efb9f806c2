//! What the last scan found, as a table by class, namespace, tenant, owner or ledger.

use std::collections::HashMap;

use super::args::By;
use super::form::{Cell, Column, Table, age, moment};
use crate::cluster::ledger::LedgerState;
use crate::health::words::bytes_text;
use crate::reclaim::history::Ruling;
use crate::reclaim::plan::Millis;
use crate::reclaim::plan::class::{Class, Maker};
use crate::reclaim::scan::{Part, ScanInfo};
use crate::reclaim::state::Stored;

/// Rows for people, unless they ask for more: a screen.
const TOP: usize = 20;

/// Of all copies: of a ledger that is not closed at least so many, or none if no bookie told how many.
fn bytes(row: &Stored) -> Option<u64> {
    let length = match row.state {
        LedgerState::Closed => Some(row.length),
        _ => row.told,
    };
    length.map(|length| length.saturating_mul(row.copies.into()))
}

/// Of those that are not all closed there may be more.
fn weight(bytes: u64, open: u64) -> Cell {
    match open {
        0 => Cell::Bytes(bytes),
        _ => Cell::AtLeast(bytes),
    }
}

/// What is added up for a line.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    ledgers: u64,
    bytes: u64,
    /// Not closed.
    open: u64,
    /// And nobody told how many bytes they have.
    unknown: u64,
    deletable: u64,
    /// Of those the ones that are not closed.
    deletable_open: u64,
    deletable_bytes: u64,
    waiting: u64,
    made: Option<(Millis, Millis)>,
}

impl Sum {
    fn add(&mut self, row: &Stored) {
        self.ledgers += 1;
        let bytes = bytes(row);
        self.bytes = self.bytes.saturating_add(bytes.unwrap_or_default());
        let open = u64::from(row.state != LedgerState::Closed);
        self.open += open;
        self.unknown += u64::from(bytes.is_none());
        match row.ruling {
            Ruling::Deletable => {
                self.deletable += 1;
                self.deletable_open += open;
                let all = self
                    .deletable_bytes
                    .saturating_add(bytes.unwrap_or_default());
                self.deletable_bytes = all;
            }
            Ruling::Wait => self.waiting += 1,
            Ruling::Keep => {}
        }
        let (first, last) = self.made.unwrap_or((row.made, row.made));
        self.made = Some((first.min(row.made), last.max(row.made)));
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) by: By,
    /// Only these; all if empty.
    pub(super) classes: Vec<Class>,
    /// At most so many lines, 0 for all; for people a screen if it is not given.
    pub(super) top: Option<usize>,
    /// Only these; all if none is given.
    pub(super) part: Option<Part>,
}

/// Takes in one ledger after the other: of a million, only what the lines need is kept.
pub(super) struct Report {
    question: Question,
    classes: [Sum; Class::ALL.len()],
    groups: HashMap<String, Sum>,
    ledgers: Vec<(u64, Vec<Cell>)>,
}

impl Report {
    pub(super) fn new(question: Question) -> Report {
        Report {
            question,
            classes: [Sum::default(); Class::ALL.len()],
            groups: HashMap::new(),
            ledgers: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, row: &Stored) {
        let Question { classes, part, .. } = &self.question;
        let of_class = classes.is_empty() || classes.contains(&row.class);
        let of_part = part
            .as_ref()
            .is_none_or(|part| part.has(row.maker, &row.owner));
        if !of_class || !of_part {
            return;
        }
        self.classes[row.class as usize].add(row);
        let (tenant, namespace) = places(row);
        let group = match self.question.by {
            By::Class => return,
            By::Ledger => {
                let bytes = bytes(row).unwrap_or_default();
                self.ledgers.push((bytes, ledger(row)));
                return;
            }
            By::Tenant => tenant,
            By::Namespace => namespace,
            By::Owner if row.maker == Maker::Foreign => OTHERS,
            By::Owner => &row.owner,
        };
        match self.groups.get_mut(group) {
            Some(sum) => sum.add(row),
            None => self.groups.entry(group.to_owned()).or_default().add(row),
        }
    }

    /// Of each class the ledgers, the bytes of all copies, and how many may be marked.
    pub(super) fn classes(&self) -> impl Iterator<Item = (Class, u64, u64, u64)> {
        let sums = Class::ALL.into_iter().zip(&self.classes);
        sums.map(|(class, sum)| (class, sum.ledgers, sum.bytes, sum.deletable))
    }

    pub(super) fn table(self, scan: &ScanInfo, now: Millis) -> Table {
        let deletable = self.classes.iter().map(|sum| sum.deletable).sum();
        let bytes = self.classes.iter().map(|sum| sum.deletable_bytes).sum();
        let waiting = self.classes.iter().map(|sum| sum.waiting).sum();
        let open = self.classes.iter().map(|sum| sum.open).sum();
        let unknown = self.classes.iter().map(|sum| sum.unknown).sum();
        let (columns, rows) = match self.question.by {
            By::Class => by_class(&self.classes),
            By::Ledger => (LEDGER.to_vec(), largest(self.ledgers)),
            By::Tenant => (grouped("tenant", "TENANT"), groups(self.groups)),
            By::Namespace => (grouped("namespace", "NAMESPACE"), groups(self.groups)),
            By::Owner => (grouped("owner", "OWNER"), groups(self.groups)),
        };
        let mut table = Table {
            about: about(scan),
            before: vec![heading(scan, now)],
            columns,
            rows,
            most: TOP,
            after: Vec::new(),
        };
        if let Some(top) = self.question.top {
            table.most = 0;
            table.rows.truncate(if top == 0 { usize::MAX } else { top });
        }
        table.after.extend(not_closed(open, unknown));
        table.after.extend(next(scan, deletable, bytes, waiting));
        table
    }
}

/// Ledgers that do not say that they are Pulsar's.
const OTHERS: &str = "(not Pulsar's)";

/// Tenant and namespace of the owner. The namespace of the first format has three parts, and stands before the domain.
fn places(row: &Stored) -> (&str, &str) {
    if row.maker == Maker::Foreign {
        return (OTHERS, OTHERS);
    }
    let owner = row.owner.as_str();
    let slashes: Vec<usize> = owner.match_indices('/').map(|(at, _)| at).collect();
    let upto = |part: usize| slashes.get(part).map_or(owner, |at| &owner[..*at]);
    let part = |number: usize| {
        let begin = match number {
            0 => 0,
            number => slashes.get(number - 1)? + 1,
        };
        Some(&owner[begin..slashes.get(number).copied().unwrap_or(owner.len())])
    };
    let first_format = row.maker != Maker::Schema && part(3) == Some("persistent");
    (upto(0), upto(if first_format { 2 } else { 1 }))
}

const fn column(key: &'static str, heading: &'static str) -> Column {
    Column { key, heading }
}

/// The columns of every sum.
const SUM: [Column; 9] = [
    column("ledgers", "LEDGERS"),
    column("bytes", "BYTES"),
    column("open", "OPEN"),
    column("unknown", "UNKNOWN"),
    column("deletable", "DELETABLE"),
    column("deletableBytes", "BYTES"),
    column("waiting", "WAITING"),
    column("oldest", "OLDEST"),
    column("newest", "NEWEST"),
];

const LEDGER: [Column; 8] = [
    column("ledger", "LEDGER"),
    column("class", "CLASS"),
    column("state", "STATE"),
    column("bytes", "BYTES"),
    column("made", "AGE"),
    column("verdict", "VERDICT"),
    column("owner", "OWNER"),
    column("reason", "REASON"),
];

fn grouped(key: &'static str, heading: &'static str) -> Vec<Column> {
    let first = [column(key, heading)];
    first.into_iter().chain(SUM).collect()
}

fn cells(sum: &Sum) -> [Cell; SUM.len()] {
    let (oldest, newest) = match sum.made {
        Some((first, last)) => (Cell::Time(first), Cell::Time(last)),
        None => (Cell::Nothing, Cell::Nothing),
    };
    [
        sum.ledgers.into(),
        weight(sum.bytes, sum.open),
        sum.open.into(),
        sum.unknown.into(),
        sum.deletable.into(),
        weight(sum.deletable_bytes, sum.deletable_open),
        sum.waiting.into(),
        oldest,
        newest,
    ]
}

fn by_class(sums: &[Sum; Class::ALL.len()]) -> (Vec<Column>, Vec<Vec<Cell>>) {
    let first = [column("class", "CLASS"), column("meaning", "WHAT")];
    let columns = first.into_iter().chain(SUM).collect();
    let there = Class::ALL.into_iter().zip(sums);
    let rows = there
        .filter(|(_, sum)| sum.ledgers != 0)
        .map(|(class, sum)| {
            let first = [class.name().into(), class.words().into()];
            first.into_iter().chain(cells(sum)).collect()
        });
    (columns, rows.collect())
}

/// By what they would give back, then by all that they hold, then by name.
fn groups(groups: HashMap<String, Sum>) -> Vec<Vec<Cell>> {
    let mut groups: Vec<(String, Sum)> = groups.into_iter().collect();
    groups.sort_by(|(one, a), (other, b)| {
        let weight = |sum: &Sum| (sum.deletable_bytes, sum.bytes, sum.ledgers);
        weight(b).cmp(&weight(a)).then_with(|| one.cmp(other))
    });
    let rows = groups.into_iter().map(|(name, sum)| {
        let first = [Cell::from(name)];
        first.into_iter().chain(cells(&sum)).collect()
    });
    rows.collect()
}

/// The largest first; those of one size as they were taken in, which is by number.
fn largest(mut ledgers: Vec<(u64, Vec<Cell>)>) -> Vec<Vec<Cell>> {
    ledgers.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    ledgers.into_iter().map(|(_, cells)| cells).collect()
}

fn ledger(row: &Stored) -> Vec<Cell> {
    let verdict = match row.ruling {
        Ruling::Keep => "keep",
        Ruling::Wait => "wait",
        Ruling::Deletable => "deletable",
    };
    let (state, open) = match row.state {
        LedgerState::Closed => ("closed", 0),
        LedgerState::InRecovery => ("in recovery", 1),
        LedgerState::Open => ("open", 1),
    };
    let reason = match row.why.as_str() {
        "" => Cell::Nothing,
        why => why.into(),
    };
    let owner = match row.maker {
        Maker::Foreign => Cell::Nothing,
        _ => row.owner.as_str().into(),
    };
    vec![
        row.id.into(),
        row.class.name().into(),
        state.into(),
        bytes(row).map_or(Cell::Nothing, |bytes| weight(bytes, open)),
        Cell::Time(row.made),
        verdict.into(),
        owner,
        reason,
    ]
}

fn about(scan: &ScanInfo) -> Vec<(&'static str, Cell)> {
    vec![
        ("instance", scan.instance.as_str().into()),
        ("began", Cell::Time(scan.began)),
        ("ended", Cell::Time(scan.ended)),
        ("ledgers", scan.ledgers.into()),
        ("owners", scan.owners.into()),
        ("requests", scan.requests.into()),
        ("allClusters", scan.all_clusters.into()),
        ("snapshot", scan.is_snapshot.into()),
    ]
}

fn heading(scan: &ScanInfo, now: Millis) -> String {
    let of = match scan.is_snapshot {
        true => "a snapshot file of",
        false => "",
    };
    let took = age(scan.began, scan.ended);
    let part = match &scan.part {
        Some(part) => {
            let all = [part.namespaces(), part.topics()].concat();
            format!(", of which {}", all.join(", "))
        }
        None => String::new(),
    };
    format!(
        "scan of {of} cluster {}, begun {} ({} ago), {took} long, {} requests: {} ledgers, {} owners{part}",
        scan.instance,
        moment(scan.began),
        age(scan.began, now),
        scan.requests,
        scan.ledgers,
        scan.owners,
    )
    .replace("  ", " ")
}

/// What the numbers leave open.
fn not_closed(open: u64, unknown: u64) -> Option<String> {
    (open != 0).then(|| {
        format!(
            "{open} are not closed, so that the metadata does not say how large they are: of {} a bookie did, + marks \
             what is at least so much; of {unknown} it is not known",
            open - unknown
        )
    })
}

/// What to do now, in a line or two.
fn next(scan: &ScanInfo, deletable: u64, bytes: u64, waiting: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if deletable != 0 {
        let bytes = bytes_text(bytes);
        lines.push(format!(
            "{deletable} may be marked, with {bytes} in all copies: 'dirkeeper reclaim mark' says which, \
             'dirkeeper reclaim mark --execute' does it"
        ));
    }
    if waiting != 0 {
        lines.push(format!(
            "{waiting} need more time or more scans: scan again, an hour from now or later"
        ));
    }
    if !scan.all_clusters {
        lines.push(
            "it was not said that this is every Pulsar cluster on these bookies, so nothing that \
             would need to know that is deletable: name each with --pulsar-metadata"
                .to_owned(),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::Terminal;
    use crate::reclaim::plan::DAY;

    fn scan() -> ScanInfo {
        ScanInfo {
            began: 100 * DAY,
            ended: 100 * DAY + 63_000,
            instance: "an-id".to_owned(),
            requests: 42,
            ledgers: 5,
            owners: 2,
            all_clusters: false,
            clusters: vec!["zk://a:1=".to_owned()],
            part: None,
            is_snapshot: false,
            vanished: Default::default(),
            transaction: None,
            classes: [0; Class::ALL.len()],
        }
    }

    fn stored(id: u64, class: Class, ruling: Ruling, owner: &str) -> Stored {
        Stored {
            id,
            created: 1,
            version: 0,
            made: 90 * DAY,
            length: id << 20,
            told: None,
            copies: 2,
            state: LedgerState::Closed,
            maker: Maker::Topic,
            owner: owner.to_owned(),
            class,
            ruling,
            why: match ruling {
                Ruling::Deletable => String::new(),
                _ => "for a reason".to_owned(),
            },
            suspect: None,
        }
    }

    fn rows() -> Vec<Stored> {
        let topic = "shop/orders/persistent/a,b";
        let open = Stored {
            state: LedgerState::Open,
            length: 0,
            made: 99 * DAY,
            ..stored(4, Class::NeverListed, Ruling::Wait, topic)
        };
        let foreign = Stored {
            maker: Maker::Foreign,
            ..stored(5, Class::Foreign, Ruling::Keep, "")
        };
        let recovered = Stored {
            state: LedgerState::InRecovery,
            length: 0,
            told: Some(6 << 20),
            ..stored(6, Class::Trimmed, Ruling::Deletable, topic)
        };
        vec![
            recovered,
            stored(1, Class::Referenced, Ruling::Keep, topic),
            stored(2, Class::Trimmed, Ruling::Deletable, topic),
            stored(
                3,
                Class::Trimmed,
                Ruling::Deletable,
                "old/eu/orders/persistent/c",
            ),
            open,
            foreign,
        ]
    }

    fn report(by: By, classes: &[Class], top: Option<usize>) -> Table {
        let mut report = Report::new(Question {
            by,
            classes: classes.to_vec(),
            top,
            part: None,
        });
        for row in &rows() {
            report.add(row);
        }
        report.table(&scan(), 101 * DAY)
    }

    #[test]
    fn the_last_scan_by_class_and_what_next() {
        let table = report(By::Class, &[], None);
        insta::assert_snapshot!(table.human(Terminal::NONE, 101 * DAY));
    }

    #[test]
    fn who_leaves_the_most_behind_comes_first() {
        let mut text = String::new();
        for by in [By::Tenant, By::Namespace, By::Owner] {
            text.push_str(&report(by, &[], None).csv());
        }
        text.push_str(&report(By::Namespace, &[Class::Trimmed], Some(1)).csv());
        insta::assert_snapshot!(text);
    }

    #[test]
    fn each_ledger_with_its_reason() {
        let table = report(By::Ledger, &[], None);
        insta::assert_snapshot!(table.csv() + &table.json());
    }
}
