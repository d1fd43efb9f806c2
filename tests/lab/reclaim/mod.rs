//! `dirkeeper reclaim` on a real Pulsar cluster: the program as its user has it, with times of seconds instead of
//! hours and days, and the lab's own tools as the judge of what it did.

pub(crate) mod clusters;
pub(crate) mod crashed;
pub(crate) mod expired;
mod interrupted;
pub(crate) mod killed;
pub(crate) mod leaked;
pub(crate) mod refused;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::harness::bench::Bench;
use crate::harness::run::{pass, text, tool};
use crate::harness::sweep::MARK;
use crate::stand::program::ended;
pub(crate) use crate::stand::program::{Beside, Done};
use crate::stand::pulsar::Pulsar;
use crate::stand::told::{Column, seconds};

/// A scan of a thousand ledgers takes a second; a sweep of fifty takes five.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);

/// Times so short that a test can wait for them. Every mark stands for as long as `GRACE`.
const RULES: &str = r#"
full_scan_maximum_zookeeper_requests_per_second = 2000
min_age = "1s"
absence_scans = 3
absence_span = "2s"
gone_scans = 2
gone_span = "1s"
grace = "3s"
"#;

/// As in [`RULES`], and a little more.
pub(crate) const GRACE: Duration = Duration::from_millis(3500);

/// More than the spans in [`RULES`].
pub(crate) const SPAN: Duration = Duration::from_millis(1500);

/// All classes that can be deleted at all.
pub(crate) const EVERY: &str = "r1,r2,r3,r4,r5";

/// The program with the state and configuration of one user of it.
pub(crate) struct Program<'a> {
    bench: &'a Bench,
    config: PathBuf,
    state: PathBuf,
}

/// A ledger as the report has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) class: String,
    pub(crate) row: Value,
}

impl<'a> Program<'a> {
    /// One for this cluster; `pulsars` are declared, all of them: ZooKeeper's address and the root.
    pub(crate) fn new(
        bench: &'a Bench,
        name: &str,
        cluster: &Pulsar,
        pulsars: &[(&str, &str)],
        lines: &str,
    ) -> Program<'a> {
        let config = bench.folder().join(format!("{name}.toml"));
        let declared: Vec<String> = pulsars
            .iter()
            .map(|(zookeeper, root)| format!("\"zk://{zookeeper}={root}\""))
            .collect();
        let declared = match declared.len() {
            0 => String::new(),
            _ => format!("pulsar_metadata = [{}]\n", declared.join(", ")),
        };
        let text = format!(
            "[zookeeper]\nmetadata_service_uri = {:?}\n\n[reclaim]\n{declared}{RULES}{lines}\n",
            cluster.uri()
        );
        fs::write(&config, text).expect("the folder is ours");
        Program {
            bench,
            config,
            state: bench.dir(&format!("{name}-state")),
        }
    }

    /// Another one that knows what this one knows by now.
    pub(crate) fn copy(&self, name: &str) -> Program<'a> {
        let state = self.bench.dir(&format!("{name}-state"));
        let all = format!("{}/.", text(&self.state));
        tool("cp", ["-a", &all, text(&state)]);
        Program {
            bench: self.bench,
            config: self.config.clone(),
            state,
        }
    }

    /// A command with the configuration.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.bench.program());
        command
            .arg("reclaim")
            .args(words)
            .args(["--config", text(&self.config)])
            .args(["--state-dir", text(&self.state)])
            .env(MARK, self.bench.folder())
            .env("NO_COLOR", "1");
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Done {
        ended(self.command(words), COMMAND_LIMIT)
    }

    /// The same with a place at which the program ends itself by SIGKILL.
    pub(crate) fn run_until(&self, place: &str, words: &[&str]) -> Done {
        let mut command = self.command(words);
        command.env("DIRKEEPER_FAIL_AT", place);
        ended(command, COMMAND_LIMIT)
    }

    /// Runs a command that has to succeed; what it printed.
    pub(crate) fn must(&self, words: &[&str]) -> String {
        let done = self.run(words);
        assert_eq!(done.code, Some(0), "{words:?}: {done:#?}");
        done.out
    }

    /// Starts a command that goes on beside the test.
    pub(crate) fn begin(&self, name: &str, words: &[&str]) -> Beside {
        Beside::start(self.bench, name, self.command(words))
    }

    pub(crate) fn scan(&self) -> String {
        self.must(&["scan"])
    }

    /// Every ledger of the last scan.
    pub(crate) fn report(&self) -> BTreeMap<u64, Judged> {
        let told = self.must(&["report", "--by", "ledger", "--output", "json"]);
        let document: Value = serde_json::from_str(&told).expect("it is JSON");
        let rows = document["rows"].as_array().expect("it has rows");
        let judged = rows.iter().map(|row| {
            let id = row["ledger"].as_u64().expect("a ledger has a number");
            let class = row["class"].as_str().expect("it has a class").to_owned();
            let row = row.clone();
            (id, Judged { class, row })
        });
        judged.collect()
    }

    /// The ledgers of the last scan that are of these classes.
    pub(crate) fn of_class(&self, classes: &[&str]) -> BTreeSet<u64> {
        let judged = self.report().into_iter();
        let taken = judged.filter(|(_, judged)| classes.contains(&judged.class.as_str()));
        taken.map(|(id, _)| id).collect()
    }

    /// Ledgers that are marked.
    pub(crate) fn marks(&self) -> BTreeSet<u64> {
        let told = self.must(&["report", "--marks", "--output", "json"]);
        let document: Value = serde_json::from_str(&told).expect("it is JSON");
        let rows = document["rows"].as_array().expect("it has rows");
        rows.iter()
            .filter_map(|row| row["ledger"].as_u64())
            .collect()
    }

    /// Scans until what is named by nobody was so long enough, whoever let it go.
    pub(crate) fn scan_until_ripe(&self) {
        for _ in 0..3 {
            self.scan();
            pass(SPAN);
        }
        self.scan();
    }

    /// The whole way, once what is named by nobody is so long enough: marks what is of these classes (of R4 what is in
    /// a list that somebody has looked at), waits for the grace, looks again and deletes.
    pub(crate) fn mark_and_sweep(&self, classes: &str) {
        let table = self.must(&[
            "report", "--by", "ledger", "--class", "r4", "--output", "csv",
        ]);
        let list = self.bench.folder().join("confirmed.csv");
        fs::write(&list, table).expect("the folder is ours");
        self.must(&[
            "mark",
            "--class",
            classes,
            "--confirmed",
            text(&list),
            "--execute",
        ]);
        self.ripen();
        self.must(&["sweep", "--execute"]);
    }

    /// The grace of all marks passes, and a scan that began after them is there.
    pub(crate) fn ripen(&self) {
        pass(GRACE);
        self.scan();
    }
}

/// The row of a test in `docs/reclaim-lab.md`: what it shows, what came of it, and how long it took.
pub(crate) fn tell(bench: &Bench, began: i64, shows: &str, result: impl Into<String>) {
    let folder = bench.folder().file_name().unwrap_or_default();
    let folder = folder.to_string_lossy();
    let name = folder.rsplit_once('-').map_or(&*folder, |(name, _)| name);
    let column = |name| Column {
        bench,
        table: "Tests",
        name,
    };
    column("it shows").tell(name, shows);
    column("result").tell(name, result);
    column("time").tell(name, seconds(bench.since(began)));
}
