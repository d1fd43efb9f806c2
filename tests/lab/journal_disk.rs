//! A journal disk without a byte: filled by somebody else's file, or by the bookie's own journal. A bookie
//! alone ends; with dirkeeper it is read-only in time, and lives.

use std::fs;
use std::time::Duration;

use crate::harness::bench::Bench;
use crate::harness::run::{pass, text, try_command, try_for};
use crate::stand::fill::{HUNDRED_MEGABYTES_A_SECOND, fill, usage};
use crate::stand::lab::{Bookie, Lab, Mode, Setup, disk};
use crate::stand::load::Load;
use crate::stand::seen::Seen;
use crate::stand::told::{Column, seconds};

const SORTED: &str = "org.apache.bookkeeper.bookie.SortedLedgerStorage";
const DB: &str = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage";

/// Who takes the space.
#[derive(Clone, Copy, PartialEq)]
enum By {
    AnotherFile,
    OwnJournal,
}

/// A bookie whose journal has no room ends within a second or two, or not at all.
const ENDING: Duration = Duration::from_secs(30);

/// From the first ledger to the last byte of the journal's disk, at 6 MB/s and more.
const WRITING: Duration = Duration::from_secs(180);

/// One case of the table.
struct Case {
    by: By,
    storage: &'static str,
    enforced: bool,
}

macro_rules! cases {
    ($($name:ident: $by:ident, $storage:ident, $enforced:literal;)*) => {
        $(pub(crate) fn $name(bench: &Bench) {
            filled(bench, &Case { by: By::$by, storage: $storage, enforced: $enforced });
        })*
    };
}

cases! {
    another_file_sorted: AnotherFile, SORTED, false;
    another_file_db: AnotherFile, DB, false;
    own_journal_sorted: OwnJournal, SORTED, false;
    own_journal_db: OwnJournal, DB, false;
    another_file_sorted_enforced: AnotherFile, SORTED, true;
    another_file_db_enforced: AnotherFile, DB, true;
    own_journal_sorted_enforced: OwnJournal, SORTED, true;
    own_journal_db_enforced: OwnJournal, DB, true;
}

impl Case {
    fn column(&self) -> String {
        let storage = if self.storage == SORTED {
            "SortedLedgerStorage"
        } else {
            "DbLedgerStorage"
        };
        let by = if self.by == By::AnotherFile {
            "another's file"
        } else {
            "its own journal"
        };
        let beside = if self.enforced {
            "with dirkeeper"
        } else {
            "alone"
        };
        format!("{by}, {storage}, {beside}")
    }

    /// Somebody else needs a second for the whole disk, the journal a minute.
    fn mebibytes(&self) -> u64 {
        if self.by == By::AnotherFile {
            256
        } else {
            1024
        }
    }

    fn words(&self) -> &'static str {
        match self.by {
            By::AnotherFile => {
                "--ledgers 4 --open 4 --entries 1 --size 65536 --ensemble 1 --write 1 --ack 1 --hold 40 --interval 5"
            }
            By::OwnJournal => {
                "--ledgers 40 --entries 800 --size 65536 --threads 2 --window 4 --add-timeout 30 --retries 9 --ensemble 1 --write 1 --ack 1"
            }
        }
    }
}

fn filled(bench: &Bench, case: &Case) {
    let name = case.column();
    let table = "The journal's disk has no byte left";
    let column = Column {
        bench,
        table,
        name: &name,
    };
    let disk = disk(bench, 1, "journal", case.mebibytes());
    let storage = format!("ledgerStorageClass={}", case.storage);
    // The default of BookKeeper: one journal file is larger than the disk.
    let lab = Setup::new(bench)
        .conf(&storage)
        .conf("journalMaxSizeMB=2048")
        .up();
    let bookie = lab.bookie(1);
    let lines = "control = \"enforce\"";
    let agent = case.enforced.then(|| lab.agent(bench, 1, lines).start());
    let seen = Seen::of(bookie);
    let mut load = Load::start(bench, &lab, &case.words().split(' ').collect::<Vec<_>>());
    if case.by == By::AnotherFile {
        load.wait_ledgers(4);
        fill(disk.path(), HUNDRED_MEGABYTES_A_SECOND, 1.0);
    } else {
        let over = || (usage(disk.path()) > 0.999 || bookie.mode() != Mode::Writable).then_some(());
        try_for(WRITING, over);
    }
    let full = seen.note("full, or not writable any more");
    column.tell(
        "usage when it was full, or not writable any more",
        format!("{:.1} %", usage(disk.path()) * 100.0),
    );
    pass(ENDING);
    let first = seen.change(
        Duration::ZERO,
        &[Mode::ReadOnly, Mode::Ending, Mode::Gone],
        Duration::ZERO,
    );
    column.tell(
        "the bookie first becomes",
        first.map_or("–".to_owned(), |change| format!("{:?}", change.mode)),
    );
    column.tell("after 30 s", fate(bookie, &seen, full));
    match case.by {
        By::AnotherFile => load.wait_end(Duration::from_secs(300)),
        By::OwnJournal => load.end(),
    }
    if !case.enforced {
        again(&column, &lab, disk.path());
    }
    fs::remove_file(disk.path().join("filler")).ok();
    column.tell(
        "what the client wrote is read again after freeing",
        read_again(&lab, &load),
    );
    println!("{}", seen.text());
    drop(agent);
}

/// Whether it lives, and how it ended.
fn fate(bookie: Bookie<'_>, seen: &Seen, full: Duration) -> String {
    match bookie.ended() {
        None => format!("runs, {:?}", bookie.mode()),
        Some(code) => {
            let gone = seen.change(Duration::ZERO, &[Mode::Gone], Duration::ZERO);
            let after = gone.map_or("–".to_owned(), |change| {
                seconds(change.at.saturating_sub(full))
            });
            format!("has ended after {after} with exit code {code}")
        }
    }
}

/// A bookie that ended is started while its disk is as full as it was, and after freeing.
fn again(column: &Column<'_>, lab: &Lab, journal: &std::path::Path) {
    let bookie = lab.bookie(1);
    if bookie.ended().is_none() {
        return;
    }
    let started = try_command(lab.command("start", &["bookie1"]), ENDING);
    assert!(started.is_ok(), "{started:?}");
    let ended = try_for(ENDING, || bookie.ended());
    let word = ended.map_or_else(
        || {
            format!(
                "does not end within {}, and is {:?}",
                seconds(ENDING),
                bookie.mode()
            )
        },
        |code| format!("ends again with exit code {code}"),
    );
    column.tell("started while full", word);
    fs::remove_file(journal.join("filler")).ok();
    if bookie.ended().is_some() {
        let _ = try_command(lab.command("start", &["bookie1"]), ENDING);
    }
}

fn read_again(lab: &Lab, load: &Load) -> String {
    let bookie = lab.bookie(1);
    let up = try_for(ENDING, || {
        matches!(bookie.mode(), Mode::Writable | Mode::ReadOnly).then_some(())
    });
    if up.is_none() {
        return format!("the bookie does not come up: {:?}", bookie.mode());
    }
    let verify = lab.command("verify", &[text(load.written()), "--recover"]);
    match try_command(verify, Duration::from_secs(120)) {
        Ok(told) => told.lines().last().unwrap_or_default().to_owned(),
        Err(problem) => problem.lines().last().unwrap_or_default().to_owned(),
    }
}
