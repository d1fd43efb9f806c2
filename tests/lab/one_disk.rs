//! One of two ledger disks fails under a running bookie: given up by the kernel (F08), or every request
//! held (F12). What the bookie does by itself is recorded; an agent that observes says so and stops nothing.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::harness::agent::{Agent, PATIENCE};
use crate::harness::bench::Bench;
use crate::harness::disk::{Disk, make_image};
use crate::harness::dying_disk::DyingDisk;
use crate::harness::run::{pass, try_for, wait_for};
use crate::harness::sweep::mounts_below;
use crate::stand::lab::{Bookie, Mode, Setup, prepared_place};
use crate::stand::load::Load;
use crate::stand::seen::Seen;
use crate::stand::told::{Column, seconds};

/// Three of the bookie's own looks, and three of its flushes.
const WATCHED: Duration = Duration::from_secs(40);

/// What is not back by then does not come back by itself.
const BACK: Duration = Duration::from_secs(40);

#[derive(Clone, Copy, PartialEq)]
enum Failure {
    GivenUp,
    Held,
}

/// One case of the table.
#[derive(Clone, Copy)]
struct Case {
    failure: Failure,
    persisted: bool,
    agent: bool,
}

macro_rules! cases {
    ($($name:ident: $failure:ident, $persisted:literal, $agent:literal;)*) => {
        $(pub(crate) fn $name(bench: &Bench) {
            let case = Case { failure: Failure::$failure, persisted: $persisted, agent: $agent };
            case.run(bench);
        })*
    };
}

cases! {
    given_up: GivenUp, false, false;
    given_up_persisted: GivenUp, true, false;
    given_up_observed: GivenUp, false, true;
    given_up_persisted_observed: GivenUp, true, true;
    held: Held, false, false;
    held_persisted: Held, true, false;
    held_observed: Held, false, true;
    held_persisted_observed: Held, true, true;
}

/// Why nobody may send a PUT then: with its status persisted the bookie writes it on its only state thread.
fn put_while_held(bench: &Bench, persisted: bool) {
    let name = if persisted {
        "status persisted"
    } else {
        "status not persisted"
    };
    let table = "A PUT of read-only while one of two ledger disks holds every request";
    let column = Column { bench, table, name };
    let disk = Breakable::new(bench, Failure::Held);
    let persisted = format!("persistBookieStatusEnabled={persisted}");
    let lab = Setup::new(bench).conf(&persisted).up();
    let bookie = lab.bookie(1);
    let released = Released(&disk);
    let seen = Seen::of(bookie);
    disk.fail();
    let put = seen.note("PUT");
    let answer = bookie.put_read_only(true);
    let word = answer.map_or_else(|error| error.kind().to_string(), |code| code.to_string());
    column.tell("answer within 2 s", word);
    pass(WATCHED.saturating_sub(seen.now() - put));
    column.tell("bookie after 40 s", format!("{:?}", bookie.mode()));
    column.tell("registered after 40 s", bookie.registered().unwrap_or("?"));
    let answer = bookie.put_read_only(false);
    let word = answer.map_or_else(|error| error.kind().to_string(), |code| code.to_string());
    column.tell("PUT of writable then", word);
    pass(Duration::from_secs(5));
    column.tell("registered 5 s later", bookie.registered().unwrap_or("?"));
    drop(released);
    pass(Duration::from_secs(10));
    column.tell(
        "bookie 10 s after the disk answers again",
        format!("{:?}", bookie.mode()),
    );
    column.tell(
        "registered 10 s after the disk answers again",
        bookie.registered().unwrap_or("?"),
    );
    println!("{}", seen.text());
}

pub(crate) fn held_put(bench: &Bench) {
    put_while_held(bench, false);
}
pub(crate) fn held_put_persisted(bench: &Bench) {
    put_while_held(bench, true);
}

/// The disk that fails, with what lies under it.
enum Breakable {
    OnShortDevice { disk: Disk, _under: Disk },
    OnFuse(DyingDisk),
}

impl Breakable {
    fn new(bench: &Bench, failure: Failure) -> Breakable {
        let name = prepared_place(bench, 1, "ledger1");
        match failure {
            Failure::GivenUp => {
                let under = Disk::tmpfs(bench, "under", "size=100m");
                let image = under.path().join("image");
                make_image(&image, "ext4", 400, &["-m", "0"]);
                let options = "loop,errors=remount-ro";
                let disk = Disk::mount_image(bench, &name, &image, options);
                Breakable::OnShortDevice {
                    disk,
                    _under: under,
                }
            }
            Failure::Held => Breakable::OnFuse(DyingDisk::new(bench, &name, 128)),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Breakable::OnShortDevice { disk, .. } => disk.path(),
            Breakable::OnFuse(dying) => dying.disk.path(),
        }
    }

    /// Breaks it; it is broken when this returns.
    fn fail(&self) {
        match self {
            Breakable::OnFuse(dying) => dying.hold(),
            Breakable::OnShortDevice { disk, .. } => {
                let mut file = File::create(disk.path().join("filler")).unwrap();
                let block = vec![0x5a; 256 << 10];
                wait_for("the journal is aborted", Duration::from_secs(60), || {
                    // Errors are what this is about.
                    let _ = file.write_all(&block).and_then(|()| file.sync_data());
                    let mount = mounts_below(disk.path()).pop()?;
                    let mut options = mount.super_options.split(',');
                    options
                        .any(|option| option == "emergency_ro" || option == "ro")
                        .then_some(())
                });
            }
        }
    }

    /// What was held goes on; a file system that was given up stays so.
    fn release(&self) {
        if let Breakable::OnFuse(dying) = self {
            dying.device.release();
        }
    }
}

/// Releases a disk before the cluster on it is stopped, also after a failure.
struct Released<'a>(&'a Breakable);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Case {
    fn column(self) -> String {
        let persisted = if self.persisted {
            "status persisted"
        } else {
            "status not persisted"
        };
        let agent = if self.agent { ", agent observes" } else { "" };
        format!("{persisted}{agent}")
    }

    fn table(self) -> &'static str {
        match self.failure {
            Failure::GivenUp => {
                "One of two ledger disks is given up by the kernel (emergency read-only)"
            }
            Failure::Held => "One of two ledger disks holds every request",
        }
    }

    fn run(self, bench: &Bench) {
        let name = self.column();
        let column = Column {
            bench,
            table: self.table(),
            name: &name,
        };
        let disk = Breakable::new(bench, self.failure);
        let persisted = format!("persistBookieStatusEnabled={}", self.persisted);
        let lab = Setup::new(bench).conf(&persisted).up();
        let bookie = lab.bookie(1);
        let released = Released(&disk);
        let mut agent = self
            .agent
            .then(|| lab.agent(bench, 1, "control = \"observe\"").start());
        let seen = Seen::of(bookie);
        let words = "--ledgers 4 --open 4 --entries 1 --size 16384 --ensemble 1 --write 1 --ack 1 --hold 60 --interval 20";
        let mut load = Load::start(bench, &lab, &words.split(' ').collect::<Vec<_>>());
        load.wait_ledgers(4);

        let lines = bookie.log().lines().count();
        disk.fail();
        let (since, broken) = (bench.now(), seen.note("broken"));
        if let Some(agent) = &agent {
            self.said(&column, agent, disk.path(), since);
        }
        pass(WATCHED.saturating_sub(seen.now() - broken));
        bookie_after(&column, bookie, &seen, broken, lines);
        if let Some(agent) = &mut agent {
            assert!(agent.get("/readyz").is_some(), "the agent hangs");
            let (millis, status) = agent.stop(bench);
            assert_eq!(status.code(), Some(0), "the agent ended with {status}");
            column.tell("the agent ends, asked to, after", format!("{millis} ms"));
        }
        if self.failure == Failure::Held {
            drop(released);
            let at = seen.note("released");
            let back = try_for(BACK, || {
                (bookie.mode() == Mode::Writable).then(|| seen.now() - at)
            });
            let word = back.map_or_else(
                || format!("{:?} after {}", bookie.mode(), seconds(BACK)),
                seconds,
            );
            column.tell("from released to writable", word);
            column.tell("registered then", bookie.registered().unwrap_or("?"));
        }
        load.wait_end(Duration::from_secs(180));
        column.tell("ledgers that a client lost, of 4", load.lost().to_string());
        println!("{}", seen.text());
    }

    /// The agent says what happened to this directory, and keeps its hands off.
    fn said(self, column: &Column<'_>, agent: &Agent, dir: &Path, since: i64) {
        let wanted = match self.failure {
            Failure::GivenUp => "diskReadOnly",
            Failure::Held => "diskHung",
        };
        let event = try_for(PATIENCE, || {
            let events = agent.events().into_iter();
            let mut of_dir = events.filter(|event| event.dir.as_deref() == Some(dir));
            of_dir.find(|event| event.name == wanted)
        });
        let event = event.unwrap_or_else(|| panic!("no {wanted}: {:?}", agent.names(dir)));
        column.tell(
            "the agent says",
            format!(
                "`{wanted}` ({}) after {} ms",
                event.cause(),
                (event.time - since).max(0)
            ),
        );
    }
}

/// What the bookie did by itself; `lines` of its log are older.
fn bookie_after(
    column: &Column<'_>,
    bookie: Bookie<'_>,
    seen: &Seen,
    broken: Duration,
    lines: usize,
) {
    let first = seen
        .changes()
        .into_iter()
        .find(|change| change.at >= broken);
    let word = first.map_or_else(
        || "none".to_owned(),
        |change| format!("{:?} after {}", change.mode, seconds(change.at - broken)),
    );
    column.tell("first change of the bookie", word);
    let ended = bookie
        .ended()
        .map(|code| format!("ended with exit code {code}"));
    let word = ended.unwrap_or_else(|| format!("{:?}", bookie.mode()));
    column.tell("bookie after 40 s", word);
    column.tell("registered after 40 s", bookie.registered().unwrap_or("?"));
    let log = bookie.log();
    let mut errors = log
        .lines()
        .skip(lines)
        .filter(|line| line.contains(" ERROR "));
    column.tell(
        "its first ERROR",
        errors
            .next()
            .map_or_else(|| "–".to_owned(), |line| said_without_paths(bookie, line)),
    );
}

/// A line of the log without its time and the paths of the test.
fn said_without_paths(bookie: Bookie<'_>, line: &str) -> String {
    let text = line.split_once(" ERROR ").map_or(line, |(_, text)| text);
    let folder = bookie.dir("").to_string_lossy().into_owned();
    let text: String = text.trim().replace(&folder, "").chars().take(120).collect();
    format!("`{text}`")
}
