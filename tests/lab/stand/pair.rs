//! Two bookies and an agent beside the first that may set its mode. The agent is told thresholds far below
//! the bookie's own, so that a read-only is never the bookie's doing but by a PUT.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dirkeeper::clock::Clock;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

use super::fill::fill;
use super::lab::{Bookie, Lab, Mode, Setup, disk};
use super::told::{Column, seconds};
use crate::harness::agent::{Agent, Event, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::Disk;
use crate::harness::run::{outcome, pass, text, try_for};

/// A full directory is seen within a second, and the PUT follows at once; a busy machine is allowed more, and
/// ZooKeeper's sessions their time-outs.
pub(crate) const ENTER: Duration = Duration::from_secs(60);

/// Dwell time, hold-off of a minute, and the same again for a busy machine.
pub(crate) const LEAVE: Duration = Duration::from_secs(150);

/// A wrong mode and a wrong registration are said after half a minute.
pub(crate) const SAID: Duration = Duration::from_secs(90);

/// What has not happened by then is not going to: many turns of the agent.
pub(crate) const NEVER: Duration = Duration::from_secs(20);

/// Bytes of a step of the filling: it ends far below the bookie's own threshold.
const STEP: i64 = 4 << 20;

/// Two bookies; the first has an agent and a disk of its own for its first ledger directory.
pub(crate) struct Pair<'a> {
    // In the order in which they end.
    agent: Option<Agent>,
    pub(crate) lab: Lab,
    disk: Disk,
    bench: &'a Bench,
    version: String,
    clock: Clock,
    /// When the disk was filled or freed last.
    since: Cell<Duration>,
    /// A bookie that ends by itself is started again.
    supervised: Cell<bool>,
    /// It was seen read-only.
    held: Cell<bool>,
    /// Another state directory than the usual one.
    state: Option<PathBuf>,
}

impl<'a> Pair<'a> {
    /// Of this version, with more lines for the bookies' files; the agent enforces.
    pub(crate) fn new(bench: &'a Bench, version: &str, lines: &[&str]) -> Pair<'a> {
        let mut pair = Pair::without_agent(bench, version, lines);
        pair.start_agent("enforce");
        pair
    }

    /// The same, with an agent that observes.
    pub(crate) fn observed(bench: &'a Bench, version: &str, lines: &[&str]) -> Pair<'a> {
        let mut pair = Pair::without_agent(bench, version, lines);
        pair.start_agent("observe");
        pair
    }

    /// The bookies run with a line that is not in their files any more when the agent reads them.
    pub(crate) fn with_hidden(bench: &'a Bench, version: &str, line: &str) -> Pair<'a> {
        let mut pair = Pair::without_agent(bench, version, &[line]);
        let file = pair.bookie().conf();
        let old = fs::read_to_string(&file).expect("it was written at the start");
        let new = old.replace(&format!("{line}\n"), "");
        assert_ne!(old, new, "nothing was hidden");
        fs::write(&file, new).expect("the folder is ours");
        pair.start_agent("enforce");
        pair
    }

    fn without_agent(bench: &'a Bench, version: &str, lines: &[&str]) -> Pair<'a> {
        let disk = disk(bench, 1, "ledger1", 128);
        let setup = Setup::new(bench).bookies(2).version(version);
        let lab = lines
            .iter()
            .fold(setup, |setup, line| setup.conf(line))
            .up();
        Pair {
            agent: None,
            lab,
            disk,
            bench,
            version: version.to_owned(),
            clock: Clock::start(),
            since: Cell::default(),
            supervised: Cell::default(),
            held: Cell::default(),
            state: None,
        }
    }

    fn plan(&self, control: &str) -> Plan<'a> {
        let token = self.bench.folder().join("token");
        fs::write(&token, "a-token-of-the-laboratory\n").expect("the folder is ours");
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&token, private).expect("the file is ours");
        let lines = format!(
            "control = {control:?}\nmin_writable_bookies = 1\nread_only_on_any_full = true"
        );
        self.lab
            .agent(self.bench, 1, &lines)
            .top(&format!("control_token_file = {:?}\n", text(&token)))
            .set("dwell", "2s")
            .toml("\n[thresholds.ledger]\nwarn = 0.5\nfull = 0.6\nlow_watermark = 0.5\n")
    }

    pub(crate) fn start_agent(&mut self, control: &str) {
        // Beside a full directory too, which is not probed.
        let plan = self.plan(control).with_broken_dirs();
        let plan = match &self.state {
            Some(state) => plan.state_dir(state),
            None => plan,
        };
        self.agent = Some(plan.start());
    }

    /// Where the state of the agents that are started from now on is.
    pub(crate) fn keep_state_at(&mut self, state: &Path) {
        self.state = Some(state.to_owned());
    }

    /// A second agent with the configuration of the first.
    pub(crate) fn twin(&self) -> Agent {
        let plan = self.plan("enforce").named("twin");
        plan.with_broken_dirs().start()
    }

    /// The first agent crashes, and this one is the bookie's.
    pub(crate) fn succeed(&mut self, agent: Agent) {
        self.crash_agent();
        self.agent = Some(agent);
    }

    /// Waits until the agent has a problem with these words in it.
    pub(crate) fn has_problem(agent: &Agent, words: &str) {
        let said = try_for(ENTER, || {
            let problems = agent.problems()?;
            problems
                .iter()
                .any(|problem| problem.contains(words))
                .then_some(())
        });
        assert!(said.is_some(), "no {words:?} in {:?}", agent.problems());
    }

    /// The same state, another word for `control`, read again by the running agent.
    pub(crate) fn control(&self, control: &str) {
        let file = self.bench.folder().join("agent1.toml");
        let old = fs::read_to_string(&file).expect("it was written at the start");
        let new = old.replace("control = \"enforce\"", &format!("control = {control:?}"));
        assert_ne!(old, new, "nothing was changed");
        fs::write(&file, new).expect("the folder is ours");
        kill(self.agent().pid(), Signal::SIGHUP).expect("it is ours");
    }

    pub(crate) fn agent(&self) -> &Agent {
        self.agent.as_ref().expect("the agent runs")
    }

    /// The agent ends as by a crash.
    pub(crate) fn crash_agent(&mut self) {
        let mut agent = self.agent.take().expect("the agent runs");
        agent.crash();
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.bench.folder().join("agent1-state")
    }

    pub(crate) fn bookie(&self) -> Bookie<'_> {
        self.lab.bookie(1)
    }

    /// Over the agent's threshold, and far below the bookie's.
    pub(crate) fn fill(&self) {
        fill(self.disk.path(), STEP, 0.7);
        self.since.set(self.clock.elapsed());
    }

    pub(crate) fn free(&self) {
        fs::remove_file(self.disk.path().join("filler")).expect("it was filled");
        self.since.set(self.clock.elapsed());
    }

    /// The disk, for usages of another kind.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// A cell of the page, in the row of this test.
    fn tell(&self, name: &str, value: String) {
        let folder = self.bench.folder().file_name().unwrap_or_default();
        let folder = folder.to_string_lossy();
        let case = folder.rsplit_once('-').map_or(&*folder, |(case, _)| case);
        let table = "Cases of keeping the mode";
        let column = Column {
            bench: self.bench,
            table,
            name,
        };
        column.tell(&format!("`{case}`, {}", self.version), value);
    }

    /// How long ago the disk was filled or freed.
    fn passed(&self) -> String {
        seconds(self.clock.elapsed() - self.since.get())
    }

    /// The bookie becomes read-only and is listed so.
    pub(crate) fn is_held(&self) {
        self.becomes(Mode::ReadOnly, "readonly", ENTER);
        self.tell("read-only after the last change", self.passed());
        self.held.set(true);
    }

    /// The bookie becomes writable and is listed so, and no claim is left.
    pub(crate) fn is_let_go(&self) {
        self.becomes(Mode::Writable, "available", LEAVE);
        if self.held.take() {
            self.tell("writable after the last change", self.passed());
        }
        let gone = || self.claims().is_empty().then_some(());
        assert!(
            try_for(ENTER, gone).is_some(),
            "claims are left: {:?}",
            self.claims()
        );
    }

    /// The bookie is in this mode and listed so, in time.
    pub(crate) fn becomes(&self, mode: Mode, listed: &str, limit: Duration) {
        let bookie = self.bookie();
        let found = try_for(limit, || {
            self.supervise();
            (bookie.mode() == mode && bookie.registered() == Some(listed)).then_some(())
        });
        assert!(
            found.is_some(),
            "the bookie is {:?} and {:?}, not {mode:?} and {listed}, after {limit:?}; the agent: {}",
            bookie.mode(),
            bookie.registered(),
            self.mode_document()
        );
    }

    /// ZooKeeper comes back. A bookie whose old registration has not expired by then may end itself, agent or not;
    /// from now on it is started again.
    pub(crate) fn zookeeper_returns(&self) {
        self.lab.start_zookeeper();
        self.since.set(self.clock.elapsed());
        self.supervised.set(true);
    }

    fn supervise(&self) {
        if let Some(code) = self.bookie().ended().filter(|_| self.supervised.get()) {
            let value = format!("yes, with exit code {code}, when ZooKeeper was back");
            self.tell("the bookie ended by itself", value);
            self.bookie().start();
        }
    }

    /// The bookie is in this mode and stays there.
    pub(crate) fn stays(&self, mode: Mode) {
        let bookie = self.bookie();
        assert_eq!(bookie.mode(), mode);
        let left = try_for(NEVER, || (bookie.mode() != mode).then(|| bookie.mode()));
        assert_eq!(
            left,
            None,
            "it was {mode:?}; the agent: {}",
            self.mode_document()
        );
    }

    /// What the agent says of the mode.
    pub(crate) fn mode_document(&self) -> Value {
        let status = self.agent.as_ref().and_then(Agent::status);
        status.map_or(Value::Null, |status| status["mode"].clone())
    }

    /// Who holds the bookie, as the agent says.
    pub(crate) fn claims(&self) -> Vec<String> {
        let document = self.mode_document();
        let claims = document["claims"].as_array().cloned().unwrap_or_default();
        let owner = |claim: &Value| claim["owner"].as_str().unwrap_or_default().to_owned();
        claims.iter().map(owner).collect()
    }

    /// Waits until the agent says that these hold the bookie.
    pub(crate) fn is_claimed_by(&self, owners: &[&str]) {
        let found = try_for(ENTER, || (self.claims() == owners).then_some(()));
        assert!(
            found.is_some(),
            "not {owners:?} but {}",
            self.mode_document()
        );
    }

    /// Waits until the agent says why it does not do what is wanted, with this word in it.
    pub(crate) fn is_in_the_way(&self, word: &str) {
        let held = || {
            let document = self.mode_document();
            let held = document["held"].as_str()?.to_owned();
            held.contains(word).then_some(held)
        };
        let held = try_for(ENTER, held);
        let held = held.unwrap_or_else(|| panic!("no {word:?} in {}", self.mode_document()));
        self.tell("what the agent says is in the way", held);
    }

    /// Waits for an event of this name after that number, with all these words in its message; its number.
    pub(crate) fn says(&self, since: u64, name: &str, words: &[&str]) -> u64 {
        let fits = |event: &Event| {
            let message = event.json["cause"]["message"].as_str().unwrap_or_default();
            words.iter().all(|word| message.contains(word))
        };
        let since = |event: &Event| since < event.seq && event.name == name;
        let found = try_for(SAID, || {
            let events = self.agent().events();
            let mut events = events.iter().filter(|event| since(event));
            events.find(|event| fits(event)).map(|event| event.seq)
        });
        found.unwrap_or_else(|| {
            let events = self.agent().events().into_iter();
            let said: Vec<_> = events
                .map(|event| (event.name, event.json["cause"]["message"].clone()))
                .collect();
            panic!("no {name} with {words:?} in {said:#?}")
        })
    }

    /// No event of this name came after that number.
    pub(crate) fn has_not_said(&self, since: u64, name: &str) {
        let events = self.agent().events().into_iter();
        let mut events = events.filter(|event| since < event.seq && event.name == name);
        let found = events.next().map(|event| event.json);
        assert_eq!(found, None, "{name}");
    }

    /// `dirkeeper mode ...` as an operator types it; what it printed, and how it ended.
    pub(crate) fn order(&self, words: &[&str]) -> (Option<i32>, String) {
        self.order_to(self.agent(), words)
    }

    /// An agent beside the second bookie, which only looks.
    pub(crate) fn other_agent(&self) -> Agent {
        let lines = "min_writable_bookies = 1";
        self.lab.agent(self.bench, 2, lines).start()
    }

    /// As [`Pair::order`], to that agent.
    pub(crate) fn order_to(&self, agent: &Agent, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(self.bench.program());
        command
            .arg("mode")
            .args(words)
            .args(["--url", &agent.url()]);
        if words[0] != "show" && words[0] != "may-stop" {
            command
                .arg("--token-file")
                .arg(self.bench.folder().join("token"));
        }
        let (status, output, errors) = outcome(command, ENTER).expect("it ends");
        (status.code(), format!("{output}{errors}"))
    }

    /// The same, with success.
    pub(crate) fn must_order(&self, words: &[&str]) {
        let (code, told) = self.order(words);
        assert_eq!(code, Some(0), "mode {words:?}: {told}");
    }

    /// Lets time pass in which nothing may happen.
    pub(crate) fn wait(&self, time: Duration) {
        pass(time);
    }
}
