//! Marks, sweeps and undos that die at each of their steps, or whose answers are lost, and runs after them that go on from
//! the file; and references that appear at each moment before a deletion.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::failpoint::{Failpoint, Failpoints};
use super::plan::LedgerId;
use super::stage::hooked::{Call, Fate};
use super::stage::reclaimer::{Around, Eyes, Reclaimer, deleted_by};
use super::stage::{Cursor, For, Name, ROOTS, Topic, World, now, path_of, wire};
use super::state::State;
use super::undo::{Made, undo};
use crate::cluster::store::MetaStore;

const T0: Name = (0, 0);
const T1: Name = (0, 1);

/// The ledger of topic 1.
const FAR: LedgerId = 20_001;

/// Two days: longer than any time of grace.
const LONG: u64 = 2 * 24 * 60;

/// Topic 0 with four ledgers, a cursor and a schema, and topic 1 with one ledger.
fn world() -> World {
    let mut world = World::new();
    let mut topic = Topic::default();
    topic.list.extend((0..4).map(|_| world.make(T0, For::List)));
    let cursor = Cursor {
        ledger: Some(world.make(T0, For::Cursor("s"))),
        ..Cursor::default()
    };
    topic.cursors.insert("s", cursor);
    world.topics.insert(T0, topic);
    // In a folder of its own.
    world.next = FAR - 1;
    let other = Topic {
        list: vec![world.make(T1, For::List)],
        ..Topic::default()
    };
    world.topics.insert(T1, other);
    world.write_list(T0);
    world.write_cursor(T0, "s");
    world.write_list(T1);
    world.next = 5;
    world.make_foreign();
    world
}

/// The broker dies in a trim of topic 0 and in the deletion of topic 1.
const LEAKED: [LedgerId; 4] = [1, 2, 3, FAR];

fn leak(world: &mut World) {
    world.topics.get_mut(&T0).unwrap().list = vec![4];
    world.write_list(T0);
    world.topics.remove(&T1);
    world.take(&World::topic_path(T1));
}

/// Ledger 3 is brought back by an operator.
fn bring_back(world: &mut World) {
    world.topics.get_mut(&T0).unwrap().list = vec![3, 4];
    world.write_list(T0);
}

fn quiet() -> Around {
    Box::new(|_, _| Fate::Answered)
}

/// A reclaimer on the file in that folder, which has scanned before and after the leaks.
struct Run<'a> {
    dir: &'a Path,
    world: Arc<Mutex<World>>,
    reclaimer: Option<Reclaimer>,
}

impl<'a> Run<'a> {
    fn new(dir: &'a Path) -> Run<'a> {
        let world = Arc::new(Mutex::new(world()));
        let mut run = Run {
            dir,
            world,
            reclaimer: None,
        };
        run.start(quiet());
        assert!(run.reclaimer().scan());
        leak(&mut run.world.lock().unwrap());
        for _ in 0..2 {
            run.pass();
            assert!(run.reclaimer().scan());
        }
        assert_eq!(run.reclaimer().deletable(), LEAKED.into());
        run
    }

    /// Ends what runs, and starts anew with what is on the disk.
    fn start(&mut self, around: Around) {
        let before = self.reclaimer.take();
        let kept = before.map(|before| before.last);
        let state = Arc::new(State::open(self.dir).unwrap());
        let clock = self.world.lock().unwrap().clock.clone();
        let store = Eyes::on(&self.world, &state, around, Box::new(|| {}));
        let mut reclaimer = Reclaimer::new(store, clock, state, ROOTS.len());
        if let Some(last) = kept {
            reclaimer.last = last;
        }
        self.reclaimer = Some(reclaimer);
    }

    fn reclaimer(&mut self) -> &mut Reclaimer {
        self.reclaimer.as_mut().unwrap()
    }

    fn pass(&self) {
        self.world.lock().unwrap().pass(LONG);
    }

    /// Marks, has ledger 3 come back, waits, scans and sweeps; none if it died on the way.
    fn cycle(&mut self, failpoints: &Failpoints) -> Option<()> {
        self.reclaimer().mark(failpoints)?;
        bring_back(&mut self.world.lock().unwrap());
        self.pass();
        assert!(self.reclaimer().scan());
        self.reclaimer().sweep(failpoints).map(drop)
    }

    /// Runs until nothing is left to do, and looks at the end.
    fn finish(&mut self, what: &str) {
        self.start(quiet());
        for _ in 0..2 {
            self.cycle(&Failpoints::default()).unwrap();
        }
        let left = self.world.lock().unwrap().ledgers();
        assert_eq!(left, [3, 4, 5, 6], "{what}");
        let state = Arc::clone(&self.reclaimer().state);
        let mut marks = 0;
        state.for_each_mark(|_| marks += 1).unwrap();
        assert_eq!(marks, 0, "{what}: marks are left");
        let mut told = Vec::new();
        state
            .for_each_audit(|_, line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                if line["what"] == "delete" {
                    told.push(line["ledger"].as_u64().unwrap());
                }
            })
            .unwrap();
        told.sort_unstable();
        assert_eq!(told, [1, 2, FAR], "{what}: each deletion is told once");
        for id in told {
            let bytes = state.archived(id).unwrap().unwrap().mark.node.bytes;
            let undone = self
                .reclaimer()
                .with(&Failpoints::default(), async |acting| {
                    undo(acting, id, None, true).await.unwrap()
                });
            assert_eq!(undone.unwrap().made, Made::Again, "{what}");
            let path = path_of(id);
            let store = self.world.lock().unwrap().store.clone();
            assert_eq!(
                now(store.get(&path)).unwrap().unwrap().0,
                bytes,
                "{what}: byte for byte"
            );
        }
    }
}

/// Dies at a step, the given number of times after it was first reached.
fn dying(at: Failpoint, after: usize) -> (Failpoints, Arc<AtomicUsize>) {
    let reached = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reached);
    let failpoints =
        Failpoints::new(move |point| point == at && count.fetch_add(1, Ordering::Relaxed) == after);
    (failpoints, reached)
}

#[test]
fn death_at_every_step() {
    for point in Failpoint::ALL {
        if Failpoint::UndoChecked <= point {
            continue;
        }
        for after in 0..3 {
            let dir = tempfile::tempdir().unwrap();
            let mut run = Run::new(dir.path());
            let (failpoints, reached) = dying(point, after);
            let lived = run.cycle(&failpoints).is_some();
            let reached = reached.load(Ordering::Relaxed);
            assert!(0 < reached, "{point:?} is never reached");
            assert_eq!(lived, reached <= after, "{point:?}");
            run.finish(&format!("{point:?} {after}"));
        }
    }
}

#[test]
fn lost_answers_to_every_deletion() {
    for fate in [Fate::Lost, Fate::MadeAndLost, Fate::Dies, Fate::MadeAndDies] {
        for which in 0..3 {
            let dir = tempfile::tempdir().unwrap();
            let mut run = Run::new(dir.path());
            let (mut number, chosen) = (0, fate.clone());
            run.start(Box::new(move |_, call| match call {
                Call::Multi(ops) if deleted_by(ops).is_some() => {
                    number += 1;
                    if number == which + 1 {
                        chosen.clone()
                    } else {
                        Fate::Answered
                    }
                }
                _ => Fate::Answered,
            }));
            let lived = run.cycle(&Failpoints::default()).is_some();
            assert_eq!(lived, matches!(fate, Fate::Lost | Fate::MadeAndLost));
            run.finish(&format!("{fate:?} {which}"));
        }
    }
}

#[test]
fn another_ledger_of_that_number_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::new(dir.path());
    run.start(Box::new(|_, call| match call {
        Call::Multi(ops) if deleted_by(ops) == Some(1) => Fate::MadeAndLost,
        _ => Fate::Answered,
    }));
    run.cycle(&Failpoints::default());
    run.world
        .lock()
        .unwrap()
        .put(&path_of(1), &wire::ledger(&[("application", "pulsar")]));
    run.start(quiet());
    let swept = run.reclaimer().sweep(&Failpoints::default()).unwrap();
    assert_eq!(swept.dropped[0].0, 1);
    assert!(run.world.lock().unwrap().is_there(1));
    let mut alarms = 0;
    let state = Arc::clone(&run.reclaimer().state);
    state
        .for_each_audit(|_, line| alarms += usize::from(line.contains(r#""what":"alarm""#)))
        .unwrap();
    assert_eq!(alarms, 1);
    // The bytes of what was deleted are kept all the same.
    assert!(state.archived(1).unwrap().is_some());
}

#[test]
fn undo_dies_at_every_step() {
    for point in Failpoint::ALL {
        if point < Failpoint::UndoChecked {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut run = Run::new(dir.path());
        run.cycle(&Failpoints::default()).unwrap();
        let (failpoints, reached) = dying(point, 0);
        let undone = |run: &mut Run<'_>, failpoints: &Failpoints| {
            run.reclaimer().with(failpoints, async |acting| {
                undo(acting, 1, None, true).await.unwrap()
            })
        };
        assert!(undone(&mut run, &failpoints).is_none(), "{point:?}");
        assert_eq!(reached.load(Ordering::Relaxed), 1);
        run.start(quiet());
        undone(&mut run, &Failpoints::default()).unwrap();
        let world = run.world.lock().unwrap();
        let (bytes, _) = now(world.store.get(&path_of(1))).unwrap().unwrap();
        drop(world);
        let archived = run.reclaimer().state.archived(1).unwrap().unwrap();
        assert_eq!(archived.mark.node.bytes, bytes);
        assert!(archived.undone_at.is_some());
        // It was asked for: no mark takes it away again.
        run.pass();
        run.reclaimer().scan();
        let marked = run.reclaimer().mark(&Failpoints::default()).unwrap();
        assert!(marked.marked.iter().all(|planned| planned.id != 1));
    }
}

/// A reference to the ledger, made by somebody.
type Appears = fn(&mut World, LedgerId);

/// How a reference may appear, to which ledger, and the node at which it is seen last if no transaction can check it.
const APPEARING: [(&str, LedgerId, Option<&str>, Appears); 5] = [
    ("its topic lists it", 1, None, |world, id| {
        world.topics.get_mut(&T0).unwrap().list.push(id);
        world.write_list(T0);
    }),
    ("a cursor of its topic has it", 1, None, |world, id| {
        let topic = world.topics.get_mut(&T0).unwrap();
        topic.cursors.get_mut("s").unwrap().buckets.push(id);
        world.write_cursor(T0, "s");
    }),
    (
        "a new cursor of its topic has it",
        1,
        Some(TOPIC0),
        |world, id| {
            let cursor = Cursor {
                ledger: Some(id),
                ..Cursor::default()
            };
            let topic = world.topics.get_mut(&T0).unwrap();
            topic.cursors.insert("new", cursor);
            world.write_cursor(T0, "new");
        },
    ),
    (
        "its topic is made again with it",
        FAR,
        Some(TOPIC1),
        |world, id| {
            let topic = Topic {
                list: vec![id],
                ..Topic::default()
            };
            world.topics.insert(T1, topic);
            world.write_list(T1);
        },
    ),
    (
        "the other cluster's topic lists it",
        1,
        Some(OTHER),
        |world, id| {
            let name = (1, T0.1);
            let topic = Topic {
                list: vec![id],
                ..Topic::default()
            };
            world.topics.insert(name, topic);
            world.write_list(name);
        },
    ),
];

const TOPIC0: &str = "/managed-ledgers/public/default/persistent/t0";
const TOPIC1: &str = "/managed-ledgers/public/default/persistent/t1";
const OTHER: &str = "/b/managed-ledgers/public/default/persistent/t0";

/// Sweeps, and has a reference appear before that call. Says whether the ledger is there afterwards, the number of its
/// deletion and that of the last look at a node before it.
fn sweep_with(
    id: LedgerId,
    looked_at: Option<&'static str>,
    appears: Appears,
    moment: Option<usize>,
) -> (bool, usize, usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::new(dir.path());
    run.reclaimer().mark(&Failpoints::default()).unwrap();
    run.pass();
    assert!(run.reclaimer().scan());
    let (sent, looked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (sees_sent, sees_look) = (Arc::clone(&sent), Arc::clone(&looked));
    let mut calls = 0;
    run.start(Box::new(move |world, call| {
        match call {
            Call::Multi(ops) if deleted_by(ops) == Some(id) => {
                sees_sent.store(calls, Ordering::Relaxed);
            }
            Call::Read(path)
                if looked_at == Some(path) && sees_sent.load(Ordering::Relaxed) == 0 =>
            {
                sees_look.store(calls, Ordering::Relaxed);
            }
            _ => {}
        }
        if Some(calls) == moment && world.is_there(id) {
            appears(world, id);
        }
        calls += 1;
        Fate::Answered
    }));
    // Its owners are taken at random.
    run.reclaimer().sweep.sample = 0;
    let swept = run.reclaimer().sweep(&Failpoints::default()).unwrap();
    let is_there = run.world.lock().unwrap().is_there(id);
    assert_eq!(swept.deleted.contains(&id), !is_there);
    (
        is_there,
        sent.load(Ordering::Relaxed),
        looked.load(Ordering::Relaxed),
    )
}

/// Before each call of a sweep in turn, up to the transaction itself where a version says it, else up to the last look:
/// between that and the transaction no store can tell that a node is new.
#[test]
fn a_reference_that_appears_at_any_moment_prevents_the_deletion() {
    for (what, id, looked_at, appears) in APPEARING {
        let (is_there, sent, looked) = sweep_with(id, looked_at, appears, None);
        assert!(!is_there, "{what}: without it the ledger goes");
        let last = if looked_at.is_some() { looked } else { sent };
        assert!(5 < last, "{what}: {last} moments");
        for moment in 0..=last {
            let (is_there, ..) = sweep_with(id, looked_at, appears, Some(moment));
            assert!(is_there, "{what}, before call {moment} of {last}");
        }
        if looked_at.is_none() {
            let (is_there, ..) = sweep_with(id, looked_at, appears, Some(sent + 1));
            assert!(!is_there, "{what}: afterwards it is too late");
        }
    }
}

/// A broker makes a ledger and names it, in a list that is there or in a new one, at each moment of a scan. That is why owners
/// are read last.
#[test]
fn what_is_named_while_a_scan_goes_on_is_seen_to_be() {
    for name in [T0, (0, 5)] {
        for moment in 0.. {
            let (world, state) = (Arc::new(Mutex::new(world())), Arc::new(State::in_memory()));
            let calls = Arc::new(AtomicUsize::new(0));
            let around: Around = {
                let calls = Arc::clone(&calls);
                Box::new(move |world, _| {
                    if calls.fetch_add(1, Ordering::Relaxed) == moment {
                        let id = world.make(name, For::List);
                        world.topics.entry(name).or_default().list.push(id);
                        world.write_list(name);
                    }
                    Fate::Answered
                })
            };
            let clock = world.lock().unwrap().clock.clone();
            let store = Eyes::on(&world, &state, around, Box::new(|| {}));
            let mut reclaimer = Reclaimer::new(store, clock, state, ROOTS.len());
            assert!(reclaimer.scan());
            let world = world.lock().unwrap();
            let suspects = reclaimer.last.suspects.keys();
            let needed: Vec<_> = suspects.filter_map(|id| world.user(*id)).collect();
            assert_eq!(needed, ["another application"], "{name:?} at call {moment}");
            if calls.load(Ordering::Relaxed) <= moment {
                break;
            }
        }
    }
}
