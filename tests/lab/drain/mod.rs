//! `dirkeeper drain` on real bookies with the real client around it: what it says of itself is compared with what that client
//! reads before, meanwhile and after.

pub(crate) mod batch;
pub(crate) mod faults;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::harness::bench::Bench;
use crate::harness::run::{text, wait_for};
use crate::harness::sweep::MARK;
use crate::stand::drain::Stand;
use crate::stand::program::{Beside, Done, ended};
use crate::stand::told::{Column, seconds};

/// A plan of 500 ledgers takes a second; a whole job of them a minute on a busy machine.
const COMMAND_LIMIT: Duration = Duration::from_secs(300);

/// Exit codes of `drain status`.
const FINISHED: Option<i32> = Some(0);

/// The program with a configuration for one cluster.
pub(crate) struct Drain<'a> {
    stand: &'a Stand<'a>,
    config: PathBuf,
    /// Bookies to be emptied.
    pub(crate) numbers: Vec<usize>,
}

impl<'a> Drain<'a> {
    /// A drain of these bookies.
    pub(crate) fn new(stand: &'a Stand<'a>, numbers: &[usize]) -> Drain<'a> {
        let config = stand.bench.folder().join("drain.toml");
        let uri = stand.lab.uri();
        let text = format!("[zookeeper]\nmetadata_service_uri = {uri:?}\n");
        fs::write(&config, text).expect("the folder is ours");
        Drain {
            stand,
            config,
            numbers: numbers.to_vec(),
        }
    }

    /// Ids of the bookies to be emptied.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.stand.ids(&self.numbers)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.stand.bench.program());
        command
            .arg("drain")
            .args(words)
            .args(["--config", text(&self.config)])
            .env(MARK, self.stand.bench.folder())
            .env("NO_COLOR", "1");
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Done {
        ended(self.command(words), COMMAND_LIMIT)
    }

    /// Runs a command that has to succeed; what it printed.
    pub(crate) fn must(&self, words: &[&str]) -> String {
        let done = self.run(words);
        assert_eq!(done.code, Some(0), "{words:?}: {done:#?}");
        done.out
    }

    /// A worker that ends itself by SIGKILL at this step. It has one ledger at a time: the locks of those it had stay for as
    /// long as its session.
    pub(crate) fn work_until(&self, step: &str, job: &str) -> Done {
        let mut command = self.command(&["run", "--job", job, "--workers", "1", "--execute"]);
        command.env("DIRKEEPER_FAIL_AT", step);
        ended(command, COMMAND_LIMIT)
    }

    /// A worker beside the test.
    pub(crate) fn work(&self, name: &str, job: &str, words: &[&str]) -> Beside {
        let words = [&["run", "--job", job, "--execute"], words].concat();
        Beside::start(self.stand.bench, name, self.command(&words))
    }

    /// Starts the job, and sees that its bookies are read-only in the cluster's own list.
    pub(crate) fn start(&self, words: &[&str]) -> String {
        let ids = self.ids().join(",");
        let words = [&["start", "--bookies", &ids, "--execute"], words].concat();
        let told = self.must(&words);
        for number in &self.numbers {
            let registered = self.stand.bookie(*number).registered();
            assert_eq!(registered, Some("readonly"), "bookie {number}");
        }
        job_in(&told)
    }

    /// What a job says of itself, with the exit code.
    pub(crate) fn status(&self, job: &str) -> (Option<i32>, Value) {
        let done = self.run(&["status", "--job", job, "--output", "json"]);
        let told: Result<Value, _> = serde_json::from_str(&done.out);
        let told = told.unwrap_or_else(|error| panic!("{error}: {done:#?}"));
        (done.code, told["jobs"][0].clone())
    }

    /// Waits until nothing is left.
    pub(crate) fn wait_finished(&self, job: &str) {
        wait_for("the job has nothing left", COMMAND_LIMIT, || {
            (self.status(job).0 == FINISHED).then_some(())
        });
    }

    /// The end of a job: that it is safe to stop its bookies, their stop, and the end of their cookies.
    pub(crate) fn finish_and_delete(&self, job: &str) {
        let told = self.must(&["finish", "--job", job, "--readers-safe", "--execute"]);
        assert!(told.contains("safe to stop"), "{told}");
        self.delete(job);
    }

    /// The operator stops the bookies, and then their cookies go.
    pub(crate) fn delete(&self, job: &str) {
        for number in &self.numbers {
            self.stand.bookie(*number).stop("TERM");
        }
        let words = ["--readers-safe", "--delete-cookies", "--execute"];
        self.must(&[&["finish", "--job", job], &words[..]].concat());
        let left = self.stand.lab.zk(&["ls", "/ledgers/cookies"]);
        let left = left.expect("ZooKeeper answers");
        for id in self.ids() {
            assert!(!left.contains(&id), "the cookie of {id} is left: {left}");
        }
    }

    /// No metadata names the bookies, by the client's own reader.
    pub(crate) fn assert_unnamed(&self) {
        let ids = self.ids();
        let ledgers = self.stand.ledgers().into_iter();
        let named: Vec<u64> = ledgers
            .filter(|(_, ledger)| ledger.names(&ids))
            .map(|(id, _)| id)
            .collect();
        assert_eq!(named, [0; 0], "ledgers that name {ids:?}");
    }
}

/// The id of a job in a text.
fn job_in(told: &str) -> String {
    let is_job = |word: &&str| word.len() == 10 && word.starts_with("d-");
    let mut words = told.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let job = words.find(is_job);
    job.unwrap_or_else(|| panic!("no job in {told:?}"))
        .to_owned()
}

/// The row of a test in `docs/drain-lab.md`: what it shows, what came of it, and how long it took.
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
