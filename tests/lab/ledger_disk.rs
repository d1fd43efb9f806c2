//! A ledger disk filled by somebody else at 100 MB/s, freed, and swung around the threshold, under writers:
//! BookKeeper alone and with dirkeeper beside it, by the same function.

use std::fs;
use std::time::Duration;

use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::run::pass;
use crate::stand::fill::{HUNDRED_MEGABYTES_A_SECOND, fill};
use crate::stand::lab::{Bookie, Mode, Setup, disk};
use crate::stand::load::Load;
use crate::stand::seen::Seen;
use crate::stand::told::{Column, seconds};

/// BookKeeper's default.
const THRESHOLD: f64 = 0.95;

/// The bookie looks each 10 s; what it has not done after two looks it does not do.
const TWO_LOOKS: Duration = Duration::from_secs(25);

/// With dirkeeper, the way back takes its dwell time and its hold-off beside that.
const WAY_BACK: Duration = Duration::from_secs(180);

/// How long, and how often, the usage swings; no divisor of the bookie's own 10 s.
const SWING: Duration = Duration::from_secs(180);
const HALF_A_SWING: Duration = Duration::from_secs(7);

/// The bookie's own looks come at any moment of 10 s, so one filling says little.
const FILLS: u32 = 5;

/// BookKeeper's default `diskCheckInterval`.
const INTERVAL: Duration = Duration::from_secs(10);

/// To where the filling begins to count.
const NEARLY_AT_ONCE: i64 = 64 << 20;

/// An agent that sees the disk fill may be there a step before the filler has looked.
const EARLY: Duration = Duration::from_millis(100);

/// A disk of 4 GiB is over the threshold for two seconds before its last byte is gone.
const MEBIBYTES: u64 = 4096;

/// BookKeeper's own monitor and nobody else.
pub(crate) fn alone(bench: &Bench) {
    filled_and_swung(bench, None, "BookKeeper alone");
}

/// The same with an agent that may set the mode.
pub(crate) fn enforced(bench: &Bench) {
    let lines = "control = \"enforce\"\nmin_writable_bookies = 1";
    filled_and_swung(bench, Some(lines), "with dirkeeper");
}

fn filled_and_swung(bench: &Bench, agent: Option<&str>, name: &str) {
    let table = "A ledger disk is filled at 100 MB/s";
    let column = Column { bench, table, name };
    let disk = disk(bench, 1, "ledger1", MEBIBYTES);
    let any_full = "readOnlyModeOnAnyDiskFullEnabled=true";
    let lab = Setup::new(bench).bookies(3).conf(any_full).up();
    let bookie = lab.bookie(1);
    let _agent = agent.map(|lines| lab.agent(bench, 1, lines).start());
    let seen = Seen::of(bookie);
    let words = "--ledgers 4 --open 4 --entries 1 --size 65536 --ensemble 2 --write 2 --ack 2 --hold 900 --interval 5";
    let load = Load::start(bench, &lab, &words.split(' ').collect::<Vec<_>>());
    load.wait_ledgers(4);
    for number in 0..FILLS {
        // The last one ended with a look of the bookie's: each begins at another moment after it.
        pass(INTERVAL / FILLS * number);
        filled(&column, bookie, &disk, &seen);
    }
    column.tell("ledgers that a client lost, of 4", load.lost().to_string());
    drop(load);

    let from = seen.note("swings");
    while seen.now() - from < SWING {
        for usage in [THRESHOLD + 0.01, THRESHOLD - 0.01] {
            disk.set_usage(usage);
            pass(HALF_A_SWING);
        }
    }
    let count = seen.count_since(from);
    column.tell(
        "changes of mode while usage swings by 1 % around the threshold for 3 minutes",
        count.to_string(),
    );
    println!("{}", seen.text());
}

/// Once over the threshold, to the last byte, and back.
fn filled(column: &Column<'_>, bookie: Bookie<'_>, disk: &Disk, seen: &Seen) {
    let refused = no_space(bookie);
    fill(disk.path(), NEARLY_AT_ONCE, THRESHOLD - 0.1);
    fill(disk.path(), HUNDRED_MEGABYTES_A_SECOND, THRESHOLD);
    let crossed = seen.note("over the threshold");
    fill(disk.path(), HUNDRED_MEGABYTES_A_SECOND, 1.0);
    let full = seen.note("not one byte is free");
    column.tell(
        "from the threshold to the last byte",
        seconds(full - crossed),
    );
    let away = [Mode::ReadOnly, Mode::Ending, Mode::Gone];
    let entered = seen.change(crossed.saturating_sub(EARLY), &away, TWO_LOOKS);
    let word = entered.map_or_else(
        || "stays writable".to_owned(),
        |change| {
            let after = seconds(change.at.saturating_sub(crossed));
            match change.mode {
                Mode::ReadOnly => after,
                other => format!("{other:?} after {after}"),
            }
        },
    );
    column.tell("from the threshold to read-only", word);
    pass(TWO_LOOKS.saturating_sub(seen.now() - full));
    column.tell(
        "lines of the bookie's log with \"No space left on device\"",
        (no_space(bookie) - refused).to_string(),
    );
    column.tell("25 s after the last byte", format!("{:?}", bookie.mode()));
    fs::remove_file(disk.path().join("filler")).unwrap();
    let freed = seen.note("freed");
    let word = seen.delay(freed, Mode::Writable, WAY_BACK).map_or_else(
        || format!("not within {}, but {:?}", seconds(WAY_BACK), bookie.mode()),
        seconds,
    );
    column.tell("from freed to writable", word);
}

fn no_space(bookie: Bookie<'_>) -> usize {
    bookie.logged("No space left on device")
}
