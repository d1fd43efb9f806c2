//! A cluster of real bookies in the folder of a test, started and stopped by `bk-lab`, and what can be
//! asked of one of its bookies. It ends when dropped.

use std::fs;
use std::io;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::harness::agent::Plan;
use crate::harness::bench::Bench;
use crate::harness::disk::{Disk, make_image};
use crate::harness::http;
use crate::harness::run::{text, try_command, wait_for};
use crate::harness::sweep::MARK;

/// The version whose monitor dirkeeper models.
pub(crate) const STANDARD: &str = "4.17.3";

/// A start with three bookies takes 8 s on an idle machine.
const COMMAND_LIMIT: Duration = Duration::from_secs(180);

/// Jars of one version over a slow line.
const FETCH_LIMIT: Duration = Duration::from_secs(600);

/// A bookie that has not answered by then is called silent.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// ZooKeeper's port of the first cluster, and from one cluster to the next.
const FIRST_PORT: u16 = 12181;
const PORTS: u16 = 20;
static CLUSTERS: AtomicU16 = AtomicU16::new(0);

fn bk_lab() -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/bk-lab"));
    // Times in the bookies' logs are compared with our own.
    command.env("TZ", "UTC");
    command
}

/// Has the jars of these versions in the cache, or says why not.
pub(crate) fn fetch_jars(versions: &[&str]) -> Result<(), String> {
    for version in versions {
        let mut command = bk_lab();
        command.arg("jars").env("BK_LAB_VERSION", version);
        let problem =
            |problem| format!("needs a JDK and the jars of BookKeeper {version}: {problem}");
        try_command(command, FETCH_LIMIT).map_err(problem)?;
    }
    Ok(())
}

/// Where a directory of a bookie lies; disks are mounted there before the cluster starts.
fn place(bookie: usize, dir: &str) -> String {
    format!("lab/bookie{bookie}/{dir}")
}

/// An ext4 of its own for a directory of a bookie.
pub(crate) fn disk(bench: &Bench, bookie: usize, dir: &str, mebibytes: u64) -> Disk {
    let name = prepared_place(bench, bookie, dir);
    let image = bench.folder().join(format!("{name}.image"));
    // No room that only root may use: what the bookie sees as free is all there is.
    make_image(&image, "ext4", mebibytes, &["-m", "0"]);
    Disk::mount_image(bench, &name, &image, "loop")
}

/// The name by which the harness makes a disk for a directory of a bookie.
pub(crate) fn prepared_place(bench: &Bench, bookie: usize, dir: &str) -> String {
    bench.dir(&format!("lab/bookie{bookie}"));
    place(bookie, dir)
}

/// How to start a cluster.
pub(crate) struct Setup<'a> {
    bench: &'a Bench,
    bookies: usize,
    version: String,
    conf: Vec<String>,
    conf_of: Vec<String>,
    memory: Option<(&'static str, &'static str)>,
}

impl<'a> Setup<'a> {
    /// One bookie of the standard version.
    pub(crate) fn new(bench: &'a Bench) -> Setup<'a> {
        Setup {
            bench,
            bookies: 1,
            version: STANDARD.to_owned(),
            conf: Vec::new(),
            conf_of: Vec::new(),
            memory: None,
        }
    }

    pub(crate) fn bookies(mut self, count: usize) -> Self {
        self.bookies = count;
        self
    }

    pub(crate) fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// A line for every bookie's file, `key=value`.
    pub(crate) fn conf(mut self, line: &str) -> Self {
        self.conf.push(line.to_owned());
        self
    }

    /// A line for one bookie's file, `key=value`.
    pub(crate) fn conf_of(mut self, bookie: usize, line: &str) -> Self {
        self.conf_of.push(format!("{bookie}:{line}"));
        self
    }

    /// Heap and direct memory of each of its processes, as `150m`.
    pub(crate) fn memory(mut self, heap: &'static str, direct: &'static str) -> Self {
        self.memory = Some((heap, direct));
        self
    }

    /// Starts it and waits until every bookie answers.
    pub(crate) fn up(self) -> Lab {
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let lab = Lab {
            folder: self.bench.folder().join("lab"),
            mark: self.bench.folder().to_owned(),
            version: self.version,
            zk_port: FIRST_PORT + number * PORTS,
            memory: self.memory,
        };
        let mut words = vec!["--bookies".to_owned(), self.bookies.to_string()];
        words.extend(["--zk-port".to_owned(), lab.zk_port.to_string()]);
        for line in &self.conf {
            words.extend(["--conf-extra".to_owned(), line.clone()]);
        }
        for line in &self.conf_of {
            words.extend(["--conf-bookie".to_owned(), line.clone()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        lab.must("up", &words);
        lab
    }
}

/// A running cluster.
pub(crate) struct Lab {
    folder: PathBuf,
    mark: PathBuf,
    version: String,
    zk_port: u16,
    memory: Option<(&'static str, &'static str)>,
}

impl Lab {
    /// A command of `bk-lab` for this cluster.
    pub(crate) fn command(&self, what: &str, words: &[&str]) -> Command {
        let mut command = bk_lab();
        command
            .arg(what)
            .arg(&self.folder)
            .args(words)
            .env("BK_LAB_VERSION", &self.version)
            .env(MARK, &self.mark);
        if let Some((heap, direct)) = self.memory {
            command
                .env("BK_LAB_HEAP", heap)
                .env("BK_LAB_DIRECT", direct);
        }
        command
    }

    fn must(&self, what: &str, words: &[&str]) -> String {
        let done = try_command(self.command(what, words), COMMAND_LIMIT);
        done.unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Copies the logs into the folder `LAB_LOGS`, for people who look for a reason.
    fn keep_logs(&self) {
        let Some(into) = std::env::var_os("LAB_LOGS").map(PathBuf::from) else {
            return;
        };
        let test = self.mark.file_name().unwrap_or_default().to_string_lossy();
        for folder in [&self.folder, &self.mark] {
            for name in names_in(folder)
                .iter()
                .filter(|name| name.ends_with(".log"))
            {
                let copy = into.join(format!("{test}-{name}"));
                let _ = fs::copy(folder.join(name), copy);
            }
        }
    }

    pub(crate) fn bookie(&self, number: usize) -> Bookie<'_> {
        Bookie { lab: self, number }
    }

    /// One command of ZooKeeper's own client, like `["get", "/ledgers/INSTANCEID"]`; none when it fails.
    pub(crate) fn zk(&self, words: &[&str]) -> Option<String> {
        try_command(self.command("zk", words), COMMAND_LIMIT).ok()
    }

    /// As BookKeeper names the cluster.
    pub(crate) fn uri(&self) -> String {
        format!("zk+hierarchical://{}/ledgers", self.zookeeper())
    }

    /// A daemon of its own that finds and repairs what lost a replica.
    pub(crate) fn start_auto_recovery(&self) {
        self.must("start", &["autorecovery"]);
    }

    pub(crate) fn stop_auto_recovery(&self) {
        self.must("stop", &["autorecovery"]);
    }

    pub(crate) fn stop_zookeeper(&self) {
        self.must("stop", &["zk"]);
    }

    pub(crate) fn start_zookeeper(&self) {
        self.must("start", &["zk"]);
    }

    /// Ephemeral nodes of all sessions, as ZooKeeper's `dump` tells them; none when it does not answer.
    pub(crate) fn ephemerals(&self) -> Option<Vec<String>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.zk_port)).ok()?;
        stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
        stream.write_all(b"dump").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let nodes = answer.lines().filter(|line| line.starts_with("\t/"));
        Some(nodes.map(|line| line.trim().to_owned()).collect())
    }

    /// ZooKeeper's process.
    pub(crate) fn zookeeper_pid(&self) -> i32 {
        let text = fs::read_to_string(self.folder.join("zk.pid")).expect("it was started");
        text.trim().parse().expect("bk-lab writes a number")
    }

    /// ZooKeeper's address.
    pub(crate) fn zookeeper(&self) -> String {
        format!("127.0.0.1:{}", self.zk_port)
    }

    /// An agent beside a bookie, every setting but those of the place a default; more lines for `[bookie]`.
    pub(crate) fn agent<'a>(&self, bench: &'a Bench, bookie: usize, lines: &str) -> Plan<'a> {
        let conf = self.bookie(bookie).conf();
        Plan::with_defaults(bench)
            .named(&format!("agent{bookie}"))
            .toml(&format!(
                "\n[bookie]\nconf = {:?}\nversion = {:?}\n{lines}\n",
                text(&conf),
                self.version
            ))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(problem) = try_command(self.command("down", &[]), COMMAND_LIMIT) {
            eprintln!("{problem}");
        }
        self.keep_logs();
    }
}

/// What a bookie says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Writable,
    ReadOnly,
    /// It answers, and does not run.
    Ending,
    /// No answer in time.
    Silent,
    /// Nobody listens.
    Gone,
}

/// Asks a bookie's admin server on this port.
pub(crate) fn mode_of(port: u16) -> Mode {
    match http::call(port, "GET", "/api/v1/bookie/state", "", ANSWER_LIMIT) {
        Ok((200, body)) => {
            let state: Value = serde_json::from_str(&body).unwrap_or_default();
            match (state["running"].as_bool(), state["readOnly"].as_bool()) {
                (Some(true), Some(false)) => Mode::Writable,
                (Some(true), Some(true)) => Mode::ReadOnly,
                _ => Mode::Ending,
            }
        }
        Ok(_) => Mode::Ending,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Mode::Gone,
        Err(_) => Mode::Silent,
    }
}

/// One bookie of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Bookie<'a> {
    lab: &'a Lab,
    number: usize,
}

impl Bookie<'_> {
    fn name(&self) -> String {
        format!("bookie{}", self.number)
    }

    fn nth(&self) -> u16 {
        u16::try_from(self.number).expect("clusters are small")
    }

    /// Port of its admin server.
    pub(crate) fn admin_port(&self) -> u16 {
        self.lab.zk_port + 5999 + self.nth()
    }

    /// As it is registered.
    pub(crate) fn id(&self) -> String {
        format!("127.0.0.1:{}", self.lab.zk_port + 999 + self.nth())
    }

    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        self.lab.folder.join(self.name()).join(name)
    }

    /// Its own file.
    pub(crate) fn conf(&self) -> PathBuf {
        self.dir("bk_server.conf")
    }

    pub(crate) fn log(&self) -> String {
        let file = self.lab.folder.join(format!("{}.log", self.name()));
        fs::read_to_string(file).unwrap_or_default()
    }

    /// Lines of its log that contain a text.
    pub(crate) fn logged(&self, text: &str) -> usize {
        self.log()
            .lines()
            .filter(|line| line.contains(text))
            .count()
    }

    /// One request to its admin server.
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        http::call(self.admin_port(), method, path, body, ANSWER_LIMIT)
    }

    /// A PUT as an operator makes it by hand; the code of the answer.
    pub(crate) fn put_read_only(&self, read_only: bool) -> io::Result<u16> {
        let body = format!("{{\"readOnly\":{read_only}}}");
        let answer = self.call("PUT", "/api/v1/bookie/state/readonly", &body);
        answer.map(|(code, _)| code)
    }

    pub(crate) fn mode(&self) -> Mode {
        mode_of(self.admin_port())
    }

    /// Where ZooKeeper lists it: `available`, `readonly` or nowhere; none when ZooKeeper does not answer.
    pub(crate) fn registered(&self) -> Option<&'static str> {
        let nodes = self.lab.ephemerals()?;
        let listed = |folder: &str| nodes.contains(&format!("/ledgers/{folder}/{}", self.id()));
        Some(if listed("available") {
            "available"
        } else if listed("available/readonly") {
            "readonly"
        } else {
            "nowhere"
        })
    }

    /// Stops it by this signal and waits for its end.
    pub(crate) fn stop(&self, signal: &str) {
        self.lab.must("stop", &[&self.name(), signal]);
    }

    /// Starts it and waits until it answers.
    pub(crate) fn start(&self) {
        self.lab.must("start", &[&self.name()]);
        wait_for("the bookie answers", COMMAND_LIMIT, || {
            matches!(self.mode(), Mode::Writable | Mode::ReadOnly).then_some(())
        });
    }

    /// Its exit code, once it has ended.
    pub(crate) fn ended(&self) -> Option<i32> {
        let file = self.lab.folder.join(format!("{}.exit", self.name()));
        let text = fs::read_to_string(file).ok()?;
        text.split(' ').next()?.parse().ok()
    }
}

/// Names of what lies in a folder.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
