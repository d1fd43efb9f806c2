//! Random histories of two Pulsar clusters with the same names of topics, of brokers that die, of operators who restore
//! what they deleted, and of two who reclaim with a memory of their own, in which brokers go on between any two reads.
//! Every deletion is looked at (`stage::reclaimer::Eyes`), and in the end all that leaked is gone.
//!
//! `HISTORIES=1000000 cargo test --release --lib reclaim::histories` runs so many; `HISTORY=SEED` runs one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::failpoint::Failpoints;
use super::plan::LedgerId;
use super::stage::hooked::{Call, Fate};
use super::stage::reclaimer::{Around, Eyes, Meanwhile, Reclaimer, deleted_by};
use super::stage::{ROOTS, World};
use super::state::State;

/// Histories of an ordinary run of the tests.
const HISTORIES: u64 = 300;

/// Steps of a history, each a broker's or a reclaimer's.
const STEPS: usize = 80;

/// Once in so many calls, something happens around a reclaimer's.
const BROKER: u32 = 15;
const OTHER_RECLAIMER: u32 = 300;
const DEATH: u32 = 400;
const LOST: u32 = 8;
const FAILPOINT: u32 = 60;

/// Minutes: longer than the least age, and longer than any time of grace.
const AGE: u64 = 8 * 24 * 60;
const DAY: u64 = 25 * 60;

type Shared<T> = Arc<Mutex<T>>;

/// Whether anything happens around the calls: in the end all is quiet.
#[derive(Default)]
struct Quiet(AtomicU64);

impl Quiet {
    fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// What happens around the calls of a reclaimer: brokers go on, answers are lost, it dies.
fn around(seed: u64, quiet: &Arc<Quiet>) -> Around {
    let mut random = fastrand::Rng::with_seed(seed);
    let quiet = Arc::clone(quiet);
    Box::new(move |world, call| {
        if quiet.is() {
            return Fate::Answered;
        }
        let is_deletion = matches!(call, Call::Multi(ops) if deleted_by(ops).is_some());
        if random.u32(0..BROKER) == 0 || is_deletion && random.bool() {
            world.step(&mut random, !is_deletion);
        }
        let open = [Fate::Lost, Fate::MadeAndLost, Fate::Dies, Fate::MadeAndDies];
        match random.u32(0..DEATH) {
            0 => Fate::Dies,
            1 => Fate::Lost,
            _ if is_deletion && random.u32(0..LOST) == 0 => open[random.usize(0..open.len())],
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
        // Is the second cluster declared?
        let clusters = random.usize(1..=ROOTS.len());
        let second = reclaimer(
            &world,
            clusters,
            around(random.u64(..), &quiet),
            Box::new(|| {}),
        );
        let meanwhile = {
            let (second, quiet) = (Arc::clone(&second), Arc::clone(&quiet));
            let mut random = random.fork();
            Box::new(move || {
                if !quiet.is() && random.u32(0..OTHER_RECLAIMER) == 0 {
                    act(&mut second.lock().unwrap(), &mut random);
                }
            })
        };
        let first = reclaimer(&world, clusters, around(random.u64(..), &quiet), meanwhile);
        History {
            world,
            reclaimers: [first, second],
            random,
            quiet,
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            if self.random.u8(0..5) == 0 {
                let number = usize::from(self.random.u8(0..4) == 0);
                let reclaimer = Arc::clone(&self.reclaimers[number]);
                act(&mut reclaimer.lock().unwrap(), &mut self.random);
            } else {
                let mut world = self.world.lock().unwrap();
                world.step(&mut self.random, true);
            }
        }
        self.end();
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
        assert!(reclaimer.mark(&Failpoints::default()).is_some());
        pass(DAY);
        assert!(reclaimer.scan());
        let swept = reclaimer.sweep(&Failpoints::default()).unwrap();
        assert!(swept.stopped.is_none(), "{:?}", swept.stopped);
        assert!(swept.kept.is_empty(), "{:?}", swept.kept);
        assert!(reclaimer.scan());
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

/// A reclaimer does one thing, and may die of it; what is in its file stays.
fn act(reclaimer: &mut Reclaimer, random: &mut fastrand::Rng) {
    let dying = {
        let random = Mutex::new(random.fork());
        Failpoints::new(move |_| random.lock().unwrap().u32(0..FAILPOINT) == 0)
    };
    match random.u8(0..5) {
        0..2 => {
            reclaimer.scan();
        }
        2 => {
            reclaimer.mark(&dying);
        }
        _ => {
            reclaimer.sweep(&dying);
        }
    }
}

#[test]
fn what_is_needed_stays_and_what_leaked_goes() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("HISTORY") {
        return History::new(seed).run();
    }
    let all = number("HISTORIES").unwrap_or(HISTORIES);
    for seed in 0..all {
        let run = || History::new(seed).run();
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("HISTORY={seed} repeats it");
            std::panic::resume_unwind(panic);
        }
    }
}
