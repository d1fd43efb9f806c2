//! Random histories, from fixed seeds: disks, bookies of two kinds of versions, ZooKeeper, operators, agents
//! that crash and lose their state, for several bookies of one cluster with a floor. Whatever happens,
//! once the world is quiet each bookie is in the mode that it should be in, and the rules held all the time.

use std::time::Duration;

use super::plan::book::Book;
use super::plan::keeper::{Control, Keeper, LEAVES, Outcome, Settings, Step, World};
use crate::health::beside::BookieState;
use crate::health::moment::{Moment, Timestamp};
use crate::health::policy::Mode;

const HISTORIES: u64 = 200;
const BOOKIES: usize = 4;
const FLOOR: usize = 2;

/// Seconds of trouble, and of quiet afterwards: the longest dwell, hold-off and pause fit in twice.
const TROUBLE: u64 = 900;
const QUIET: u64 = 240;

/// `diskCheckInterval` in seconds.
const CHECK: u64 = 10;

/// A bookie as the laboratory measured it: docs/bookkeeper-versions.md.
#[derive(Debug, Default)]
struct Bookie {
    /// 4.17.3 or later: a manual read-only is remembered.
    remembers: bool,
    up: bool,
    read_only: bool,
    manual: bool,
    /// What its own monitor saw last.
    saw_full: bool,
    /// Disks as its own monitor will see them, and as the agent does.
    full: bool,
    /// A PUT that waits for ZooKeeper.
    late: Option<bool>,
}

impl Bookie {
    fn start(&mut self) {
        *self = Bookie {
            remembers: self.remembers,
            full: self.full,
            up: true,
            read_only: self.full,
            saw_full: self.full,
            ..Bookie::default()
        };
    }

    fn check(&mut self) {
        if self.full && !self.read_only {
            self.read_only = true;
            self.manual = false;
        }
        let freed = self.saw_full && !self.full;
        if freed && self.read_only && !(self.remembers && self.manual) {
            self.read_only = false;
        }
        self.saw_full = self.full;
    }

    fn put(&mut self, read_only: bool) {
        if read_only && !self.read_only {
            self.manual = true;
        }
        if !read_only {
            self.manual = false;
        }
        self.read_only = read_only;
    }

    fn state(&self) -> Option<BookieState> {
        // With a PUT that waits for ZooKeeper its whole admin server is silent.
        (self.up && self.late.is_none()).then_some(BookieState {
            running: true,
            read_only: self.read_only,
            shutting_down: false,
            high_priority_writes: Some(true),
        })
    }
}

/// One bookie with its agent.
#[derive(Debug)]
struct Node {
    bookie: Bookie,
    /// None while the agent is down.
    keeper: Option<Keeper>,
    /// The state store's copy, and ZooKeeper's.
    stored: Book,
    mirrored: Book,
    control: Control,
    /// The operator's last word.
    order: Option<Mode>,
    /// An operator's PUT without `mode set`, on a writable bookie: nobody may end it.
    raw: bool,
    /// How often this agent ended a read-only of its own; the histories are shorter than an hour.
    leaves: usize,
}

struct World4 {
    nodes: Vec<Node>,
    zookeeper: bool,
    second: u64,
    log: Vec<String>,
}

fn moment(second: u64) -> Moment {
    Moment {
        elapsed: Duration::from_secs(second),
        wall: Timestamp(1_700_000_000_000 + 1000 * second.cast_signed()),
    }
}

impl World4 {
    fn new(random: &mut fastrand::Rng) -> World4 {
        let node = |random: &mut fastrand::Rng| {
            let control = match random.u8(..5) {
                0 => Control::Observe,
                _ => Control::Enforce,
            };
            let mut node = Node {
                bookie: Bookie {
                    remembers: random.bool(),
                    up: true,
                    ..Bookie::default()
                },
                keeper: None,
                stored: Book::default(),
                mirrored: Book::default(),
                control,
                order: None,
                raw: false,
                leaves: 0,
            };
            node.start_agent();
            node
        };
        World4 {
            nodes: (0..BOOKIES).map(|_| node(random)).collect(),
            zookeeper: true,
            second: 0,
            log: Vec::new(),
        }
    }

    fn note(&mut self, at: usize, what: &str) {
        self.log
            .push(format!("{:4} s bookie {at}: {what}", self.second));
    }

    fn writable(&self) -> usize {
        let writable = |node: &&Node| node.bookie.up && !node.bookie.read_only;
        self.nodes.iter().filter(writable).count()
    }

    /// One random thing happens.
    fn trouble(&mut self, random: &mut fastrand::Rng) {
        let at = random.usize(..BOOKIES);
        let what = random.u8(..14);
        let (now, zookeeper) = (moment(self.second), self.zookeeper);
        let node = &mut self.nodes[at];
        let text = match what {
            0..=2 => {
                node.bookie.full = !node.bookie.full;
                "its disks fill or are freed"
            }
            3 => {
                node.bookie.up = false;
                "it dies"
            }
            4 | 5 => {
                node.bookie.start();
                node.raw = false;
                "it starts again"
            }
            6 => {
                node.keeper = None;
                "the agent is killed"
            }
            7 => {
                node.start_agent();
                "the agent starts again"
            }
            8 => {
                node.stored = Book::default();
                node.start_agent();
                "the agent starts without its state directory"
            }
            9 => {
                self.zookeeper = !self.zookeeper;
                "ZooKeeper goes or comes"
            }
            10 => node.order(now, zookeeper, Some(Mode::ReadOnly)),
            11 => node.order(now, zookeeper, Some(Mode::Writable)),
            12 => node.order(now, zookeeper, None),
            _ => {
                let bookie = &mut node.bookie;
                let taken = bookie.up && bookie.late.is_none() && zookeeper;
                // While a claim of ours stands, nobody can tell whose read-only it is; and an order to be
                // writable that was taken is followed, even late.
                let ordered = node.mirrored.order().is_some_and(|order| order.pending);
                if taken && !bookie.read_only {
                    bookie.put(true);
                    node.raw = !node.mirrored.holds_read_only() && !ordered;
                }
                "an operator sends a PUT by himself"
            }
        };
        self.note(at, text);
    }

    fn turn(&mut self, random: &mut fastrand::Rng) {
        for at in 0..BOOKIES {
            let node = &mut self.nodes[at];
            if let Some(read_only) = node.bookie.late.take_if(|_| self.zookeeper) {
                node.bookie.put(read_only);
            }
            // Each at its own second.
            if node.bookie.up && (self.second + at as u64).is_multiple_of(CHECK) {
                node.bookie.check();
            }
            for _ in 0..3 {
                if !self.act(at, random) {
                    break;
                }
            }
        }
    }

    /// One turn of one agent, as the task around it makes it; false when it did nothing.
    fn act(&mut self, at: usize, random: &mut fastrand::Rng) -> bool {
        let now = moment(self.second);
        let quiet = TROUBLE <= self.second;
        let world = self.seen(at);
        let zookeeper = self.zookeeper;
        let node = &mut self.nodes[at];
        let Some(keeper) = node.keeper.as_mut() else {
            return false;
        };
        if zookeeper && !keeper.is_known() {
            keeper.found(now, node.mirrored.clone());
        }
        let Some(step) = keeper.next(now, &world) else {
            return false;
        };
        // Killed before or after any step, and between claim and PUT.
        let mut killed = |chance| !quiet && random.u16(..chance) == 0;
        let (before, between, after) = (killed(400), killed(20), killed(400));
        let late = killed(20);
        if before {
            return self.kill(at, "before a step");
        }
        let outcome = match &step {
            Step::Keep(book) => self.keep(at, book),
            Step::Enter => match self.enter(at, &world, between) {
                Some(outcome) => outcome,
                None => return self.kill(at, "between claim and PUT"),
            },
            Step::Leave => self.leave(at, late),
        };
        if let Some(keeper) = self.nodes[at].keeper.as_mut() {
            keeper.done(now, &step, outcome.clone());
        }
        self.note(at, &format!("{step:?} → {outcome:?}"));
        if after {
            self.kill(at, "after a step");
        }
        true
    }

    fn seen(&self, at: usize) -> World {
        let bookie = &self.nodes[at].bookie;
        let wanted = if bookie.full {
            Mode::ReadOnly
        } else {
            Mode::Writable
        };
        World {
            wanted: Some(wanted),
            reason: Some("full".to_owned()),
            hung: None,
            bookie: bookie.state(),
            store_lost: (!self.zookeeper).then(|| "ZooKeeper is away".to_owned()),
            rival: None,
            foreign: Vec::new(),
        }
    }

    fn kill(&mut self, at: usize, when: &str) -> bool {
        self.nodes[at].keeper = None;
        self.note(at, &format!("the agent is killed {when}"));
        false
    }

    fn keep(&mut self, at: usize, book: &Book) -> Outcome {
        if !self.zookeeper {
            return Outcome::Held("ZooKeeper is away".to_owned());
        }
        let node = &mut self.nodes[at];
        (node.stored, node.mirrored) = (book.clone(), book.clone());
        Outcome::Done
    }

    /// None when it is killed between claim and PUT.
    fn enter(&mut self, at: usize, world: &World, killed: bool) -> Option<Outcome> {
        if self.writable() <= FLOOR {
            return Some(Outcome::Held("the floor".to_owned()));
        }
        let log = || self.log.join("\n");
        assert!(self.zookeeper, "a PUT while ZooKeeper is away: {}", log());
        let now = moment(self.second);
        let node = &mut self.nodes[at];
        let keeper = node.keeper.as_mut()?;
        if let Some(book) = keeper.begin(now, world, false) {
            (node.stored, node.mirrored) = (book.clone(), book.clone());
            keeper.done(now, &Step::Keep(book), Outcome::Done);
        }
        let ours = node.mirrored.holds_read_only();
        assert!(
            ours,
            "a PUT before its claim is durable: {}",
            self.log.join("\n")
        );
        if killed {
            return None;
        }
        node.bookie.put(true);
        Some(Outcome::Done)
    }

    /// `late`: ZooKeeper goes away in this very moment.
    fn leave(&mut self, at: usize, late: bool) -> Outcome {
        let log = self.log.join("\n");
        assert!(self.zookeeper, "a PUT while ZooKeeper is away: {log}");
        let node = &mut self.nodes[at];
        assert!(
            !node.raw,
            "an operator's read-only was ended: bookie {at}: {log}"
        );
        assert_ne!(node.order, Some(Mode::ReadOnly), "{log}");
        if late {
            self.zookeeper = false;
            node.bookie.late = Some(false);
            return Outcome::Held("no answer in time".to_owned());
        }
        node.bookie.put(false);
        let ordered = |keeper: &Keeper| keeper.book().operator.is_some();
        if node.order.is_none() && !node.keeper.as_ref().is_some_and(ordered) {
            node.leaves += 1;
            assert!(node.leaves <= LEAVES, "{log}");
        }
        Outcome::Done
    }

    /// Two checks of the bookie's monitor after the last trouble each is read-only that should be.
    fn check_read_only(&self, seed: u64) {
        for (at, node) in self.nodes.iter().enumerate() {
            let keeper = node.keeper.as_ref().expect("all agents run in the end");
            let asked = node.bookie.full || node.order == Some(Mode::ReadOnly);
            let held = keeper.held().is_some_and(|held| held.text == "the floor");
            let log = || self.log.join("\n");
            let read_only = node.bookie.read_only || !asked || held;
            assert!(read_only, "seed {seed}, bookie {at}: {node:#?}\n{}", log());
        }
    }

    /// What must be so when nothing has happened for a while.
    fn check(&self, seed: u64) {
        for (at, node) in self.nodes.iter().enumerate() {
            let keeper = node.keeper.as_ref().expect("all agents run in the end");
            let limits = ["the floor", "within an hour"];
            let held = keeper
                .held()
                .map(|held| held.text.as_str())
                .unwrap_or_default();
            let limited = limits.into_iter().any(|limit| held.contains(limit));
            let read_only = node.bookie.read_only;
            let context = || {
                format!(
                    "seed {seed}, bookie {at}: {node:#?}\nhistory:\n{}",
                    self.log.join("\n")
                )
            };
            let expected = match (node.order, node.bookie.full) {
                (Some(Mode::ReadOnly), _) => Some(true),
                // Its own monitor makes it read-only, and the operator's word is not fought over.
                (_, true) => Some(true),
                (Some(Mode::Writable) | None, false) if node.raw => None,
                (Some(Mode::Writable) | None, false) => Some(false),
            };
            if let Some(expected) = expected
                && !limited
            {
                assert_eq!(read_only, expected, "{}", context());
            }
            if read_only && !node.raw {
                let owned = keeper.book().holds_read_only() || node.bookie.full;
                assert!(owned, "read-only without an owner: {}", context());
            }
            let order = keeper.book().order().map(|claim| claim.mode);
            assert_eq!(order, node.order, "{}", context());
        }
    }
}

impl Node {
    fn start_agent(&mut self) {
        self.leaves = 0;
        let settings = Settings {
            control: self.control,
            ..Settings::default()
        };
        self.keeper = Some(Keeper::new(settings, self.stored.clone()));
    }

    /// `mode set` and `mode release` through the agent: answered when it is durable, refused while the agent
    /// is down or cannot reach ZooKeeper.
    fn order(&mut self, now: Moment, zookeeper: bool, mode: Option<Mode>) -> &'static str {
        let reachable = |keeper: &&mut Keeper| keeper.is_known() && zookeeper;
        let Some(keeper) = self.keeper.as_mut().filter(reachable) else {
            return "an order is refused";
        };
        match mode {
            Some(mode) => keeper.order(now, mode, "by hand".to_owned()),
            None if keeper.release() => {}
            None => return "there is nothing to release",
        }
        let step = Step::Keep(keeper.book().clone());
        (self.stored, self.mirrored) = (keeper.book().clone(), keeper.book().clone());
        keeper.done(now, &step, Outcome::Done);
        // From now on his PUT is covered by his word.
        self.raw = false;
        self.order = mode;
        "an operator gives an order"
    }
}

#[test]
fn whatever_happens_each_bookie_ends_in_the_mode_it_should_be_in() {
    for seed in 0..HISTORIES {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World4::new(&mut random);
        while world.second < TROUBLE + QUIET {
            if world.second < TROUBLE && random.u8(..8) == 0 {
                world.trouble(&mut random);
            }
            if world.second == TROUBLE {
                world.zookeeper = true;
                for node in &mut world.nodes {
                    if !node.bookie.up {
                        node.bookie.start();
                        node.raw = false;
                    }
                    if node.keeper.is_none() {
                        node.start_agent();
                    }
                }
            }
            world.turn(&mut random);
            world.second += 1;
            if world.second == TROUBLE + 2 * CHECK {
                world.check_read_only(seed);
            }
        }
        world.check(seed);
    }
}
