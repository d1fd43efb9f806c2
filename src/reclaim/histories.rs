//! Random histories of two Pulsar clusters with the same names of topics, of brokers that die, of operators who restore
//! what they deleted, and of two who reclaim with a memory of their own, in which brokers go on between any two reads.
//! Every deletion is looked at (`stage::reclaimer::Eyes`), and in the end all that leaked is gone.
//!
//! `scripts/histories` runs a million of them; `HISTORY=SEED` runs one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::failpoint::Failpoints;
use super::plan::LedgerId;
use super::stage::hooked::{Call, Fate};
use super::stage::reclaimer::{Around, Eyes, Meanwhile, Reclaimer, deleted_by};
use super::stage::tally::{Kind, Tally};
use super::stage::{CURSORS, ROOTS, World};
use super::state::State;
use crate::clock::Clock;
use crate::cluster::store::Op;

/// Histories of an ordinary run of the tests.
const HISTORIES: u64 = 200;

/// Steps of a history, each a broker's or a reclaimer's.
const STEPS: usize = 40;

/// Once in so many calls, something happens around a reclaimer's.
const BROKER: u32 = 15;
const OTHER_RECLAIMER: u32 = 300;
const DEATH: u32 = 400;
const LOST: u32 = 8;
const FAILPOINT: u32 = 60;

/// Once in so many histories the second cluster is in a store of its own.
const SECOND_STORE: u8 = 6;

/// Once in so many histories all that leaked is looked for in the end: a third of the time of a history.
const ENDED: u64 = 4;

/// Between two words of many histories about how far they are.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Minutes: longer than the least age, and longer than any time of grace.
const AGE: u64 = 8 * 24 * 60;
const DAY: u64 = 25 * 60;

/// Before what a reclaimer does next: brokers that live name a ledger within the least age, so all of it has to fit into that.
const PAUSES: [u64; 4] = [2 * 60, 13 * 60, DAY, DAY];
/// Before a sweep: a scan is good for a day.
const SHORT: [u64; 2] = [60, 2 * 60];

type Shared<T> = Arc<Mutex<T>>;

/// Whether anything happens around the calls: in the end all is quiet.
#[derive(Default)]
struct Quiet(AtomicU64);

impl Quiet {
    fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// Nodes that each reclaimer has looked at for the ledger that it is about, and the transactions that made them. From a look to
/// the deletion nobody names a ledger in a node that was not there then, or was another one: no store could tell.
type Looked = [Shared<BTreeMap<String, Option<i64>>>; 2];

/// Whether somebody has looked at that node when it was not the one that it is now, or has looked at it and it is not there.
fn is_another(looked: &Looked, path: &str, created: Option<i64>) -> bool {
    let is_other = |seen: &Option<i64>| created.is_none() || *seen != created;
    let mut all = looked.iter();
    all.any(|nodes| nodes.lock().unwrap().get(path).is_some_and(is_other))
}

/// Keeps in mind what a reclaimer looks at, from where it turns to another ledger, or begins something else.
fn remember(nodes: &mut BTreeMap<String, Option<i64>>, world: &World, call: &Call<'_>) {
    match call {
        Call::Multi([Op::Check { path, .. }]) if path.starts_with("/ledgers/") => nodes.clear(),
        Call::Write(path) if path.starts_with("/dirkeeper/") => nodes.clear(),
        Call::Read(path) => {
            let is_topic = path.contains("/persistent/");
            let cursors = CURSORS.iter().map(|name| format!("{path}/{name}"));
            for path in cursors.filter(|_| is_topic) {
                match world.created(&path) {
                    None => nodes.insert(path, None),
                    created => Some(*nodes.entry(path).or_insert(created)),
                };
            }
            let created = world.created(path);
            nodes.entry((*path).to_owned()).or_insert(created);
        }
        _ => {}
    }
}

/// What happens around the calls of a reclaimer: brokers go on, answers are lost, it dies.
fn around(seed: u64, quiet: &Arc<Quiet>, looked: &Looked, number: usize) -> Around {
    let mut random = fastrand::Rng::with_seed(seed);
    let (quiet, looked) = (Arc::clone(quiet), looked.clone());
    Box::new(move |world, call| {
        if quiet.is() {
            return Fate::Answered;
        }
        let deleted = match call {
            Call::Multi(ops) => deleted_by(ops),
            _ => None,
        };
        let is_blocked = |path: &str, created| is_another(&looked, path, created);
        if random.u32(0..BROKER) == 0 {
            world.step(&mut random, &is_blocked);
        }
        match deleted.zip(Some(random.u8(0..8))) {
            Some((id, 0 | 1)) => world.bring_back(id, &is_blocked),
            Some((id, 2..5)) => world.name_again(id, &is_blocked),
            _ => {}
        }
        remember(&mut looked[number].lock().unwrap(), world, call);
        let open = [Fate::Lost, Fate::MadeAndLost, Fate::Dies, Fate::MadeAndDies];
        let fate = match random.u32(0..DEATH) {
            0 => Fate::Dies,
            1 => Fate::Lost,
            _ if deleted.is_some() && random.u32(0..LOST) == 0 => {
                open[random.usize(0..open.len())].clone()
            }
            _ => Fate::Answered,
        };
        if matches!(fate, Fate::Lost | Fate::MadeAndLost) {
            world.tally.add(Kind::AnswerLost, 1);
        }
        fate
    })
}

struct History {
    world: Shared<World>,
    reclaimers: [Shared<Reclaimer>; 2],
    random: fastrand::Rng,
    quiet: Arc<Quiet>,
}

impl History {
    fn new(seed: u64) -> History {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::with(random.u8(0..SECOND_STORE) == 0);
        for cluster in 0..ROOTS.len() {
            if random.bool() {
                world.namespace(cluster, &mut random);
            }
        }
        let world = Arc::new(Mutex::new(world));
        let quiet = Arc::new(Quiet::default());
        let looked = Looked::default();
        // Is the second cluster declared?
        let clusters = random.usize(1..=ROOTS.len());
        let fates = around(random.u64(..), &quiet, &looked, 0);
        let others = around(random.u64(..), &quiet, &looked, 1);
        let clocks = {
            let mut world = world.lock().unwrap();
            [world.another_clock(), world.another_clock()]
        };
        let [clock, other_clock] = clocks;
        let second = reclaimer(&world, other_clock, clusters, others, Box::new(|| {}));
        let meanwhile = {
            let (second, quiet) = (Arc::clone(&second), Arc::clone(&quiet));
            let world = Arc::clone(&world);
            let mut random = random.fork();
            Box::new(move || {
                if !quiet.is() && random.u32(0..OTHER_RECLAIMER) == 0 {
                    let act = random.u8(0..3);
                    world.lock().unwrap().tally.add(Kind::TwoAtOnce, 1);
                    do_one(&world, &second, 1, act, &mut random);
                }
            })
        };
        let first = reclaimer(&world, clock, clusters, fates, meanwhile);
        History {
            world,
            reclaimers: [first, second],
            random,
            quiet,
        }
    }

    fn run(mut self, is_ended: bool) -> Tally {
        for _ in 0..STEPS {
            match self.random.u8(0..10) {
                0 => self.cycle(),
                1 => {
                    let number = self.any();
                    let act = self.random.u8(0..3);
                    self.do_one(number, act);
                }
                _ => self.step(),
            }
        }
        if is_ended {
            self.end();
        }
        let mut world = self.world.lock().unwrap();
        let second = usize::from(world.is_apart());
        world.tally.add(Kind::SecondStore, second);
        std::mem::take(&mut world.tally)
    }

    /// All that it takes to delete something, with brokers going on.
    fn cycle(&mut self) {
        let number = self.any();
        for act in [SCAN, MARK, SCAN, SWEEP] {
            let pauses = if act == SWEEP { &SHORT[..] } else { &PAUSES };
            let pause = pauses[self.random.usize(0..pauses.len())];
            self.world.lock().unwrap().pass(pause);
            self.do_one(number, act);
            self.step();
        }
    }

    fn do_one(&mut self, number: usize, act: u8) {
        let reclaimer = &self.reclaimers[number];
        do_one(&self.world, reclaimer, number, act, &mut self.random);
    }

    fn step(&mut self) {
        let mut world = self.world.lock().unwrap();
        world.step(&mut self.random, &|_, _| false);
    }

    fn any(&mut self) -> usize {
        usize::from(self.random.u8(0..4) == 0)
    }

    /// Nothing happens any more; scans and sweeps find all that there is to find.
    fn end(&self) {
        self.quiet.0.store(1, Ordering::Relaxed);
        self.world.lock().unwrap().rest();
        let mut reclaimer = self.reclaimers[0].lock().unwrap();
        // Nothing changes, so nothing has to be checked.
        reclaimer.sweep.allow_unchecked = true;
        // So few owners were made on purpose, and so many of them deleted.
        reclaimer.sweep.allow_vanished = true;
        let pass = |minutes| self.world.lock().unwrap().pass(minutes);
        pass(AGE);
        for _ in 0..3 {
            assert!(reclaimer.scan());
            pass(DAY);
        }
        assert!(reclaimer.scan());
        // What was begun under another class is given up first, and marked anew.
        let mut swept = None;
        for _ in 0..2 {
            assert!(reclaimer.mark(&Failpoints::default()).is_some());
            pass(DAY);
            assert!(reclaimer.scan());
            swept = reclaimer.sweep(&Failpoints::default());
            assert!(reclaimer.scan());
        }
        let swept = swept.unwrap();
        assert!(swept.stopped.is_none(), "{:?}", swept.stopped);
        assert!(swept.kept.is_empty(), "{:?}", swept.kept);
        assert_eq!(reclaimer.deletable(), BTreeSet::new(), "{swept:?}");
        let mut world = self.world.lock().unwrap();
        world.tally.add(Kind::Ended, 1);
        assert!(world.foreign.iter().all(|id| world.is_there(*id)));
        if reclaimer.pulsars.len() == ROOTS.len() {
            // One that is open may be written by somebody.
            let leaked = |id: &LedgerId| world.user(*id).is_none() && !world.open.contains_key(id);
            let leaked: Vec<LedgerId> = world.ledgers().into_iter().filter(leaked).collect();
            assert!(
                leaked.is_empty(),
                "{leaked:?} of {:?}",
                reclaimer.last.suspects
            );
        }
    }
}

fn reclaimer(
    world: &Shared<World>,
    clock: Clock,
    clusters: usize,
    around: Around,
    meanwhile: Meanwhile,
) -> Shared<Reclaimer> {
    let state = Arc::new(State::in_memory());
    let stores = Eyes::on_both(world, &state, around, meanwhile);
    Arc::new(Mutex::new(Reclaimer::of(stores, clock, state, clusters)))
}

const SCAN: u8 = 0;
const MARK: u8 = 1;
const SWEEP: u8 = 2;

/// Once in so many scans, it reads a file if there is one.
const FILE: u8 = 3;

/// A reclaimer does one thing, and may die of it; what is in its file stays.
fn do_one(
    world: &Shared<World>,
    reclaimer: &Shared<Reclaimer>,
    number: usize,
    act: u8,
    random: &mut fastrand::Rng,
) {
    let dying = {
        let random = Mutex::new(random.fork());
        Failpoints::new(move |_| random.lock().unwrap().u32(0..FAILPOINT) == 0)
    };
    let is_wrong = world.lock().unwrap().jump(number, random);
    let mut reclaimer = reclaimer.lock().unwrap();
    let mut told = Tally::default();
    match act {
        SCAN => {
            let copied = world.lock().unwrap().copied.clone();
            let copied = copied.filter(|_| is_file_wanted(world, random));
            let (is_done, kind) = match copied {
                Some((file, of)) => (reclaimer.scan_file(file, of), Kind::SnapshotScan),
                None => (reclaimer.scan(), Kind::Scan),
            };
            told.add(kind, usize::from(is_done));
        }
        _ => match reclaimer.is_ready() {
            None => told.add(Kind::Death, 1),
            Some(false) => told.add(Kind::WrongClock, usize::from(is_wrong)),
            Some(true) if act == MARK => match reclaimer.mark(&dying) {
                None => told.add(Kind::Death, 1),
                Some(marked) => {
                    told.add(Kind::Marked, marked.marked.len());
                    told.add(Kind::MarkDropped, marked.dropped.len());
                }
            },
            Some(true) => match reclaimer.sweep(&dying) {
                None => told.add(Kind::Death, 1),
                Some(swept) => {
                    told.add(Kind::MarkDropped, swept.dropped.len());
                    told.add(Kind::MarkPutOff, swept.kept.len());
                    let is_refused = |(_, why): &&(LedgerId, String)| why.contains("refused");
                    told.add(Kind::Refused, swept.kept.iter().filter(is_refused).count());
                }
            },
        },
    }
    world.lock().unwrap().tally.join(&told);
}

/// A file shows one store only.
fn is_file_wanted(world: &Shared<World>, random: &mut fastrand::Rng) -> bool {
    random.u8(0..FILE) == 0 && !world.lock().unwrap().is_apart()
}

fn run(seed: u64) -> Tally {
    History::new(seed).run(seed.is_multiple_of(ENDED))
}

/// Histories on a thread that knows a runtime: whoever has lost an answer twice waits on its clock, which ends that run as
/// a death does. Says what they contained, and the seed of one that failed.
fn work(next: &AtomicU64, all: u64) -> (Tally, Option<u64>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _known = runtime.enter();
    let mut tally = Tally::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if all <= seed {
            return (tally, None);
        }
        let Ok(one) = std::panic::catch_unwind(|| run(seed)) else {
            say(&format!(
                "history {seed} failed: HISTORY={seed} cargo test --lib reclaim::histories"
            ));
            // The others end too.
            next.fetch_max(all, Ordering::Relaxed);
            return (tally, Some(seed));
        };
        tally.join(&one);
    }
}

fn say(words: &str) {
    // Not what is kept back until a test fails.
    let _ = writeln!(std::io::stderr(), "{words}");
}

#[test]
fn what_is_needed_stays_and_what_leaked_goes() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("HISTORY") {
        let (tally, failed) = work(&AtomicU64::new(seed), seed + 1);
        say(&format!("history {seed}: {tally}"));
        assert_eq!(failed, None);
        return;
    }
    let asked = number("HISTORIES");
    let first = number("FIRST_HISTORY").unwrap_or(0);
    let count = asked.unwrap_or(HISTORIES);
    let all = first + count;
    let next = AtomicU64::new(first);
    let clock = Clock::start();
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let ended: Vec<_> = std::thread::scope(|scope| {
        let (alive, are_alive) = std::sync::mpsc::channel::<()>();
        let worker = |_| {
            let (alive, next) = (alive.clone(), &next);
            scope.spawn(move || {
                let ended = work(next, all);
                drop(alive);
                ended
            })
        };
        let workers: Vec<_> = (0..cores).map(worker).collect();
        drop(alive);
        while are_alive.recv_timeout(TOLD_EVERY) == Err(RecvTimeoutError::Timeout) {
            if asked.is_some() {
                let done = next.load(Ordering::Relaxed) - first;
                let rate = done as f64 / clock.elapsed().as_secs_f64();
                say(&format!(
                    "{done} of {count} histories, {rate:.0} in a second"
                ));
            }
        }
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    let mut tally = Tally::default();
    for (one, failed) in ended {
        assert_eq!(failed, None, "a history failed, by its seed");
        tally.join(&one);
    }
    let seconds = clock.elapsed().as_secs();
    say(&format!(
        "{count} histories from {first} on, none failed, {seconds} s on {cores} cores: {tally}"
    ));
    if HISTORIES <= count {
        let missing = Kind::ALL.iter().filter(|(kind, _)| tally.of(*kind) == 0);
        let missing: Vec<_> = missing.map(|(_, name)| name).collect();
        assert!(missing.is_empty(), "what never happened: {missing:?}");
    }
}
