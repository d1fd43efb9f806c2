//! A small Pulsar cluster in the folder of a test, started and stopped by `pulsar/pulsar-lab`, what its tools say of the
//! metadata, and faults. It ends when dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::harness::bench::Bench;
use crate::harness::http;
use crate::harness::run::{try_command, wait_exit, wait_for};
use crate::harness::sweep::MARK;

use super::lab::names_in;

/// A start takes 17 to 29 s, more on a busy machine; a tool that reads ten thousand messages a minute.
const COMMAND_LIMIT: Duration = Duration::from_secs(240);

/// A bookie answers at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// All jars over a slow line.
const FETCH_LIMIT: Duration = Duration::from_secs(600);

/// Ports of the first cluster, behind those of `bk-lab`, and from one cluster to the next.
const FIRST_PORT: u16 = 24100;
const PORTS: u16 = 100;
static CLUSTERS: AtomicU16 = AtomicU16::new(0);

fn pulsar_lab() -> Command {
    let script = "/tests/lab/pulsar/pulsar-lab";
    Command::new(format!("{}{script}", env!("CARGO_MANIFEST_DIR")))
}

/// Has the jars in the cache, or says why not.
pub(crate) fn fetch_jars() -> Result<(), String> {
    let mut command = pulsar_lab();
    command.arg("jars");
    let problem = |problem| format!("needs a JDK and the jars of Pulsar: {problem}");
    try_command(command, FETCH_LIMIT).map_err(problem).map(drop)
}

/// How to start a cluster.
pub(crate) struct Setup<'a> {
    bench: &'a Bench,
    brokers: usize,
    collection: Duration,
    extra: Vec<String>,
}

impl<'a> Setup<'a> {
    /// ZooKeeper, three bookies and a broker.
    pub(crate) fn new(bench: &'a Bench) -> Setup<'a> {
        Setup {
            bench,
            brokers: 1,
            collection: Duration::from_secs(5),
            extra: Vec::new(),
        }
    }

    pub(crate) fn brokers(mut self, count: usize) -> Self {
        self.brokers = count;
        self
    }

    /// Time between two collections of the bookies.
    pub(crate) fn collection(mut self, time: Duration) -> Self {
        self.collection = time;
        self
    }

    /// A line for every broker's file, `key=value`.
    pub(crate) fn conf(mut self, line: &str) -> Self {
        self.extra.push(line.to_owned());
        self
    }

    /// Starts it and waits until every broker is healthy.
    pub(crate) fn up(self) -> Pulsar {
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let pulsar = Pulsar {
            folder: self.bench.dir("pulsar"),
            mark: self.bench.folder().to_owned(),
            port: FIRST_PORT + number * PORTS,
        };
        let mut up = pulsar.command("up", &[]);
        up.env("LAB_BASE_PORT", pulsar.port.to_string())
            .env("LAB_BROKERS", self.brokers.to_string())
            .env("LAB_GC_WAIT", self.collection.as_millis().to_string())
            .env("LAB_BROKER_EXTRA", self.extra.join(" "));
        try_command(up, COMMAND_LIMIT).unwrap_or_else(|problem| panic!("{problem}"));
        pulsar
    }
}

/// A running cluster.
pub(crate) struct Pulsar {
    folder: PathBuf,
    mark: PathBuf,
    port: u16,
}

/// A ledger as the lab's own tool reads it.
#[derive(Debug, Clone)]
pub(crate) struct ToolLedger {
    /// `OPEN` or `CLOSED`.
    pub(crate) state: String,
    /// What it says of itself, in braces.
    pub(crate) custom: String,
}

impl Pulsar {
    fn command(&self, what: &str, words: &[&str]) -> Command {
        let mut command = pulsar_lab();
        command
            .arg(what)
            .arg(&self.folder)
            .args(words)
            .env(MARK, &self.mark);
        command
    }

    fn must(&self, what: &str, words: &[&str]) -> String {
        let done = try_command(self.command(what, words), COMMAND_LIMIT);
        done.unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// The address of ZooKeeper.
    pub(crate) fn zookeeper(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn zookeeper_port(&self) -> u16 {
        self.port
    }

    /// Where each process has a folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What a process logged.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.folder.join(name).join("log")
    }

    /// As BookKeeper names the cluster.
    pub(crate) fn uri(&self) -> String {
        format!("zk+hierarchical://{}/ledgers", self.zookeeper())
    }

    /// The address of the second ZooKeeper.
    pub(crate) fn zookeeper2(&self) -> String {
        format!("127.0.0.1:{}", self.port + 1)
    }

    /// The HTTP port of a broker.
    pub(crate) fn broker_port(&self, broker: u16) -> u16 {
        self.port + 70 + broker
    }

    /// The admin address of a broker.
    pub(crate) fn broker_url(&self, broker: u16) -> String {
        format!("http://127.0.0.1:{}", self.broker_port(broker))
    }

    /// A further Pulsar cluster on the same bookies: `zk/ROOT` or `zk2/`.
    pub(crate) fn join(&self, broker: u16, store: &str) {
        self.must("join", &[&broker.to_string(), store]);
    }

    /// Starts a process and waits for it.
    pub(crate) fn start(&self, name: &str) {
        self.must("start", &[name]);
    }

    pub(crate) fn stop(&self, name: &str) {
        self.must("stop", &[name]);
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(&self, name: &str) {
        self.must("kill", &[name]);
    }

    pub(crate) fn pid(&self, name: &str) -> String {
        self.must("pid", &[name]).trim().to_owned()
    }

    /// One call of the brokers' admin interface: status and body.
    pub(crate) fn rest(&self, method: &str, path: &str, body: Option<&str>) -> (u16, String) {
        let words = [Some(method), Some(path), body];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        let answer = self.must("rest", &words);
        let (body, code) = answer.rsplit_once("HTTP ").expect("curl says the code");
        let code = code.trim().parse().expect("it is a number");
        (code, body.trim().to_owned())
    }

    /// The same, of which the answer may never come.
    pub(crate) fn attempt(&self, method: &str, path: &str, body: Option<&str>) {
        let words = [Some(method), Some(path), body];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        let _ = try_command(self.command("rest", &words), COMMAND_LIMIT);
    }

    /// The same, which has to succeed.
    pub(crate) fn order(&self, method: &str, path: &str, body: Option<&str>) {
        let (code, answer) = self.rest(method, path, body);
        assert!(
            (200..300).contains(&code),
            "{method} {path}: {code} {answer}"
        );
    }

    /// How long a namespace keeps what was read, in minutes.
    pub(crate) fn retention(&self, namespace: &str, minutes: i64) {
        let size = if minutes == 0 { 0 } else { -1 };
        let body = format!(r#"{{"retentionTimeInMinutes":{minutes},"retentionSizeInMB":{size}}}"#);
        let path = format!("/admin/v2/namespaces/{namespace}/retention");
        self.order("POST", &path, Some(&body));
    }

    /// The page of metrics of a broker, on which every loaded topic is, and no other.
    pub(crate) fn metrics(&self, broker: u16) -> String {
        let answer = http::call(
            self.broker_port(broker),
            "GET",
            "/metrics/",
            "",
            ANSWER_LIMIT,
        );
        let (code, page) = answer.expect("a broker shows its metrics");
        assert_eq!(code, 200, "{page}");
        page
    }

    /// A command of `LabTool`.
    pub(crate) fn tool(&self, words: &[&str]) -> String {
        self.must("tool", words)
    }

    /// The same, with the broker of this number.
    pub(crate) fn tool_at(&self, broker: u16, words: &[&str]) -> String {
        let mut command = self.command("tool", words);
        command.env("LAB_BROKER", broker.to_string());
        try_command(command, COMMAND_LIMIT).unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Starts a command of `LabTool` that goes on beside the test.
    pub(crate) fn begin(&self, name: &str, words: &[&str]) -> Tool {
        let told = self.mark.join(format!("{name}.out"));
        let file = |path: &Path| File::create(path).expect("the folder is ours");
        let process = self
            .command("tool", words)
            .stdin(Stdio::null())
            .stdout(file(&told))
            .stderr(file(&self.mark.join(format!("{name}.log"))))
            .spawn()
            .expect("the script can be started");
        Tool { process, told }
    }

    /// Messages sent one by one, ten of them a ledger.
    pub(crate) fn produce(&self, topic: &str, count: usize) {
        let topic = format!("persistent://{topic}");
        self.tool(&["produce", &topic, &count.to_string()]);
    }

    /// A subscription from the beginning that acknowledges so many.
    pub(crate) fn subscribe(&self, topic: &str, name: &str, acknowledged: usize) {
        let topic = format!("persistent://{topic}");
        self.tool(&["subscribe", &topic, name, &acknowledged.to_string()]);
    }

    /// Every ledger there is.
    pub(crate) fn ledgers(&self) -> BTreeMap<u64, ToolLedger> {
        let told = self.tool(&["ledgers"]);
        let lines = told.lines().filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let id = words.next()?.parse().ok()?;
            let state = words.next()?.to_owned();
            let custom = line.rfind(" {").map_or("", |at| &line[at + 1..]).to_owned();
            Some((id, ToolLedger { state, custom }))
        });
        lines.collect()
    }

    /// Ledgers that no reference names, by the lab's own walk.
    pub(crate) fn orphans(&self) -> BTreeSet<u64> {
        let told = self.tool(&["orphans"]);
        let lines = told.lines().filter_map(|line| {
            let rest = line.strip_prefix("orphan ")?;
            rest.split(' ').next()?.parse().ok()
        });
        lines.collect()
    }

    /// Every node from these down, with all that ZooKeeper says of it.
    pub(crate) fn dump(&self, paths: &[&str]) -> BTreeMap<String, String> {
        let told = self.tool(&[&["dump"], paths].concat());
        let lines = told
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(path, rest)| (path.to_owned(), rest.to_owned()));
        lines.collect()
    }

    /// Messages of so many bytes to each topic by this broker, and the subscription `s1` that acknowledges so many, if any.
    pub(crate) fn fill(
        &self,
        broker: u16,
        count: &str,
        bytes: &str,
        topics: &[(String, Option<usize>)],
    ) {
        let word = |(topic, acknowledged): &(String, Option<usize>)| match acknowledged {
            Some(count) => format!("persistent://{topic}={count}"),
            None => format!("persistent://{topic}"),
        };
        let topics: Vec<String> = topics.iter().map(word).collect();
        let words = ["topics", count, bytes].into_iter();
        let words: Vec<&str> = words.chain(topics.iter().map(String::as_str)).collect();
        self.tool_at(broker, &words);
    }

    /// Ledgers in the lists of topics, by their names, one list for each; of one that is not there it is empty.
    pub(crate) fn lists(&self, topics: &[String]) -> Vec<Vec<u64>> {
        let node = |topic: &String| {
            let (namespace, topic) = topic.rsplit_once('/').expect("it has a namespace");
            format!("/managed-ledgers/{namespace}/persistent/{topic}")
        };
        let nodes: Vec<String> = topics.iter().map(node).collect();
        let words: Vec<&str> = ["lists"]
            .into_iter()
            .chain(nodes.iter().map(String::as_str))
            .collect();
        let told = self.tool(&words);
        let list = |node: &String| {
            let mut lines = told.lines().map(|line| line.split(' '));
            let ids = lines.find_map(|mut words| (words.next() == Some(node)).then_some(words));
            ids.map_or(Vec::new(), |ids| {
                ids.filter_map(|id| id.parse().ok()).collect()
            })
        };
        nodes.iter().map(list).collect()
    }

    /// Ledgers in the list of a topic, by its node.
    pub(crate) fn list(&self, topic: &str) -> Vec<u64> {
        self.list_at("", topic)
    }

    /// The same of a cluster that has its metadata below this root.
    pub(crate) fn list_at(&self, root: &str, topic: &str) -> Vec<u64> {
        let shown = self.tool(&["show", &format!("{root}/managed-ledgers/{topic}")]);
        let ids = shown
            .lines()
            .filter_map(|line| line.trim().strip_prefix("ledgerId: "));
        ids.filter_map(|id| id.parse().ok()).collect()
    }

    /// The ledger of a cursor, by its node.
    pub(crate) fn cursor_ledger(&self, node: &str) -> u64 {
        let shown = self.tool(&["show", node]);
        let id = shown
            .lines()
            .find_map(|line| line.trim().strip_prefix("cursorsLedgerId: "));
        id.and_then(|id| id.parse().ok())
            .unwrap_or_else(|| panic!("{node} has no ledger:\n{shown}"))
    }

    /// Bytes of all entry logs of all bookies.
    pub(crate) fn entry_logs(&self) -> u64 {
        let bookies = names_in(&self.folder);
        let folders = bookies.iter().filter(|name| name.starts_with("bookie"));
        let folders = folders.map(|name| self.folder.join(name).join("ledgers/current"));
        let size = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
        folders
            .flat_map(|folder| {
                let names = names_in(&folder).into_iter();
                let logs = names.filter(|name| name.ends_with(".log"));
                let sizes: Vec<u64> = logs.map(|name| size(&folder.join(name))).collect();
                sizes
            })
            .sum()
    }

    /// Lets every bookie forget now what has no metadata any more.
    pub(crate) fn collect(&self) {
        for bookie in 1..=3 {
            let port = self.port + 30 + bookie;
            let answer = http::call(port, "PUT", "/api/v1/bookie/gc", "", ANSWER_LIMIT);
            assert!(
                answer.as_ref().is_ok_and(|(code, _)| *code == 200),
                "{answer:?}"
            );
        }
    }

    /// A process is killed at the next change of a node (or of its children), which `cause` brings about; the
    /// last line says what changed.
    pub(crate) fn kill_when(
        &self,
        pid: &str,
        path: &str,
        what: &str,
        cause: impl FnOnce(),
    ) -> String {
        let mut killer = self.begin("killwhen", &["killwhen", path, pid, what]);
        killer.wait_line("watching ");
        cause();
        let told = killer.wait_end(COMMAND_LIMIT);
        assert!(told.contains("killed "), "{told}");
        told
    }
}

impl Drop for Pulsar {
    fn drop(&mut self) {
        if let Err(problem) = try_command(self.command("down", &[]), COMMAND_LIMIT) {
            eprintln!("{problem}");
        }
        let Some(into) = std::env::var_os("LAB_LOGS").map(PathBuf::from) else {
            return;
        };
        let test = self.mark.file_name().unwrap_or_default().to_string_lossy();
        for name in names_in(&self.folder) {
            let copy = into.join(format!("{test}-{name}.log"));
            let _ = fs::copy(self.log(&name), copy);
        }
    }
}

/// A tool that runs beside the test; ended when dropped.
pub(crate) struct Tool {
    process: Child,
    told: PathBuf,
}

impl Tool {
    fn told(&self) -> String {
        fs::read_to_string(&self.told).unwrap_or_default()
    }

    /// Waits until it printed a line that begins so.
    pub(crate) fn wait_line(&self, begin: &str) {
        wait_for(&format!("the tool says {begin:?}"), COMMAND_LIMIT, || {
            let told = self.told();
            let found = told.lines().any(|line| line.starts_with(begin));
            found.then_some(())
        });
    }

    /// What it printed in all, once it has ended by itself.
    pub(crate) fn wait_end(&mut self, limit: Duration) -> String {
        let status = wait_exit(&mut self.process, limit);
        assert!(
            status.is_some(),
            "a tool does not end within {limit:?}: {}",
            self.told()
        );
        self.told()
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
