//! Random histories of two Pulsar clusters with the same names of topics, of brokers that die, of operators who restore
//! what they deleted, and of two who reclaim with a memory of their own, in which brokers go on between any two reads.
//! Every deletion is looked at (`stage::reclaimer::Eyes`), and in the end all that leaked is gone.
//!
//! `HISTORIES=1000000 cargo test --release --lib reclaim::histories` runs so many; `HISTORY=SEED` runs one.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::failpoint::Failpoints;
use super::plan::LedgerId;
use super::stage::hooked::{Call, Fate};
use super::stage::reclaimer::{Around, Eyes, Meanwhile, Reclaimer, deleted_by};
use super::stage::{ROOTS, World};
use super::state::State;

/// Histories of an ordinary run of the tests.
const HISTORIES: u64 = 60;

/// Steps of a history, each a broker's or a reclaimer's.
const STEPS: usize = 60;

/// Once in so many calls, something happens around a reclaimer's.
const BROKER: u32 = 15;
const OTHER_RECLAIMER: u32 = 300;
const DEATH: u32 = 400;
const LOST: u32 = 8;
const FAILPOINT: u32 = 60;

/// Minutes: longer than the least age, and longer than any time of grace.
const AGE: u64 = 8 * 24 * 60;
const DAY: u64 = 25 * 60;
/// A scan is good for a day.
const HOUR: u64 = 60;

type Shared<T> = Arc<Mutex<T>>;

/// Whether anything happens around the calls: in the end all is quiet.
#[derive(Default)]
struct Quiet(AtomicU64);

impl Quiet {
    fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// Nodes that each reclaimer has read since its last transaction. Between its last look at a node that is not there and the
/// transaction nobody makes that node: no store could tell.
type Looked = [Shared<BTreeSet<String>>; 2];

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
        if matches!(call, Call::Multi(_)) && deleted.is_none() {
            looked[number].lock().unwrap().clear();
        }
        let is_blocked = |path: &str| looked.iter().any(|set| set.lock().unwrap().contains(path));
        if random.u32(0..BROKER) == 0 {
            world.step(&mut random, &is_blocked);
        }
        if let Some(id) = deleted
            && random.u8(0..4) == 0
        {
            world.bring_back(id, &is_blocked);
        }
        if let Call::Read(path) = call {
            looked[number].lock().unwrap().insert((*path).to_owned());
        }
        let open = [Fate::Lost, Fate::MadeAndLost, Fate::Dies, Fate::MadeAndDies];
        match random.u32(0..DEATH) {
            0 => Fate::Dies,
            1 => Fate::Lost,
            _ if deleted.is_some() && random.u32(0..LOST) == 0 => {
                open[random.usize(0..open.len())].clone()
            }
            _ => Fate::Answered,
        }
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
        let world = Arc::new(Mutex::new(World::new()));
        let quiet = Arc::new(Quiet::default());
        let looked = Looked::default();
        // Is the second cluster declared?
        let clusters = random.usize(1..=ROOTS.len());
        let second = reclaimer(
            &world,
            clusters,
            around(random.u64(..), &quiet, &looked, 1),
            Box::new(|| {}),
        );
        let meanwhile = {
            let (second, quiet) = (Arc::clone(&second), Arc::clone(&quiet));
            let mut random = random.fork();
            Box::new(move || {
                if !quiet.is() && random.u32(0..OTHER_RECLAIMER) == 0 {
                    let act = random.u8(0..3);
                    do_one(&mut second.lock().unwrap(), act, &mut random);
                }
            })
        };
        let first = reclaimer(
            &world,
            clusters,
            around(random.u64(..), &quiet, &looked, 0),
            meanwhile,
        );
        History {
            world,
            reclaimers: [first, second],
            random,
            quiet,
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            match self.random.u8(0..10) {
                0 => self.cycle(),
                1 => {
                    let reclaimer = self.any();
                    let act = self.random.u8(0..3);
                    do_one(&mut reclaimer.lock().unwrap(), act, &mut self.random);
                }
                _ => self.step(),
            }
        }
        self.end();
    }

    /// All that it takes to delete something, with brokers going on.
    fn cycle(&mut self) {
        let reclaimer = self.any();
        for (act, minutes) in [(SCAN, DAY), (MARK, DAY), (SCAN, DAY), (SWEEP, HOUR)] {
            self.world.lock().unwrap().pass(minutes);
            do_one(&mut reclaimer.lock().unwrap(), act, &mut self.random);
            self.step();
        }
    }

    fn step(&mut self) {
        let mut world = self.world.lock().unwrap();
        world.step(&mut self.random, &|_| false);
    }

    fn any(&mut self) -> Shared<Reclaimer> {
        Arc::clone(&self.reclaimers[usize::from(self.random.u8(0..4) == 0)])
    }

    /// Nothing happens any more; scans and sweeps find all that there is to find.
    fn end(&self) {
        self.quiet.0.store(1, Ordering::Relaxed);
        self.world.lock().unwrap().rest();
        let mut reclaimer = self.reclaimers[0].lock().unwrap();
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
        let world = self.world.lock().unwrap();
        assert!(world.foreign.iter().all(|id| world.is_there(*id)));
        if reclaimer.pulsars.len() == ROOTS.len() {
            let leaked = |id: &LedgerId| world.user(*id).is_none();
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
    clusters: usize,
    around: Around,
    meanwhile: Meanwhile,
) -> Shared<Reclaimer> {
    let state = Arc::new(State::in_memory());
    let clock = world.lock().unwrap().clock.clone();
    let store = Eyes::on(world, &state, around, meanwhile);
    Arc::new(Mutex::new(Reclaimer::new(store, clock, state, clusters)))
}

const SCAN: u8 = 0;
const MARK: u8 = 1;
const SWEEP: u8 = 2;

/// A reclaimer does one thing, and may die of it; what is in its file stays.
fn do_one(reclaimer: &mut Reclaimer, act: u8, random: &mut fastrand::Rng) {
    let dying = {
        let random = Mutex::new(random.fork());
        Failpoints::new(move |_| random.lock().unwrap().u32(0..FAILPOINT) == 0)
    };
    match act {
        SCAN => drop(reclaimer.scan()),
        MARK => drop(reclaimer.mark(&dying)),
        _ => drop(reclaimer.sweep(&dying)),
    }
}

/// One history, on a thread that knows a runtime: whoever has lost an answer twice waits on its clock, which ends that run
/// as a death does.
fn run(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _known = runtime.enter();
    History::new(seed).run();
}

#[test]
fn what_is_needed_stays_and_what_leaked_goes() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("HISTORY") {
        return run(seed);
    }
    let all = number("HISTORIES").unwrap_or(HISTORIES);
    let next = AtomicU64::new(0);
    // The seed of each history that failed; what was wrong has been printed.
    let work = || {
        let seeds = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let mut seeds = seeds.take_while(|seed| *seed < all);
        seeds.find(|seed| std::panic::catch_unwind(|| run(*seed)).is_err())
    };
    let failed: Vec<u64> = std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|worker| worker.join().unwrap());
        ended.flatten().collect()
    });
    assert!(failed.is_empty(), "HISTORY=seed repeats one of {failed:?}");
}
