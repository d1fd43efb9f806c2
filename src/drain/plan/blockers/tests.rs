//! One thing in the way after the other, each in a cluster that is fit without it.

use super::super::place::{Seen, targets};
use super::super::survey::Source;
use super::*;

const GIB: u64 = 1 << 30;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Six bookies of which `a` and `b` leave; `a` to `d` are of a group.
struct Scene {
    drained: BTreeSet<String>,
    known: BTreeSet<String>,
    seen: Seen,
    racks: Result<Racks, String>,
    survey: Survey,
    jobs: BTreeMap<String, BTreeSet<String>>,
    readers_are_safe: bool,
    keeps_ledgers: bool,
    alive: BTreeSet<String>,
    sasl: BTreeSet<String>,
}

impl Scene {
    fn new() -> Scene {
        let known = set(&["a", "b", "c", "d", "e", "f"]);
        let map = br#"{"g": {"a": {"rack": "1"}, "b": {"rack": "2"}, "c": {"rack": "1"}, "d": {"rack": "2"}}}"#;
        let source = |bytes| Source {
            fragments: 1,
            bytes,
            largest_ensemble: 2,
        };
        let survey = Survey {
            ledgers: 2,
            sources: BTreeMap::from([
                ("a".to_owned(), source(30 * GIB)),
                ("b".to_owned(), source(20 * GIB)),
            ]),
            largest_ensemble: 3,
            ..Survey::default()
        };
        Scene {
            drained: set(&["a", "b"]),
            seen: Seen {
                writable: known.clone(),
                space: known
                    .iter()
                    .map(|id| (id.clone(), (50 * GIB, 100 * GIB)))
                    .collect(),
                warn: BTreeSet::new(),
            },
            alive: known.clone(),
            known,
            racks: Racks::parse(map),
            survey,
            jobs: BTreeMap::new(),
            readers_are_safe: false,
            keeps_ledgers: false,
            sasl: BTreeSet::new(),
        }
    }
}

/// What is in the way after a change.
fn told(change: impl FnOnce(&mut Scene)) -> String {
    let mut scene = Scene::new();
    change(&mut scene);
    let none = Racks::default();
    let racks = scene.racks.as_ref().unwrap_or(&none);
    let targets = targets(racks, &scene.seen, &scene.drained);
    let found = blockers(&Preflight {
        drained: &scene.drained,
        known: &scene.known,
        targets: &targets,
        racks: scene.racks.as_ref().map_err(String::as_str),
        survey: &scene.survey,
        jobs: &scene.jobs,
        readers_are_safe: scene.readers_are_safe,
        keeps_ledgers: scene.keeps_ledgers,
        alive: &scene.alive,
        sasl: &scene.sasl,
    });
    let found: Vec<_> = found.iter().map(Blocker::to_string).collect();
    found.join("; ")
}

fn fragments(count: u64) -> Listed<Fragment> {
    let mut all = Listed::default();
    for ledger in 1..=count {
        all.push(Fragment { ledger, first: 7 });
    }
    all
}

#[test]
fn one_that_does_not_run() {
    let told = told(|scene| {
        scene.alive.remove("b");
    });
    insta::assert_snapshot!(told, @"b is not registered: a bookie is emptied while it runs; start it, or let BookKeeper's own recovery replace what it held");
}

#[test]
fn nothing() {
    assert_eq!(told(|_| {}), "");
}

#[test]
fn names_of_bookies() {
    insta::assert_snapshot!(told(|scene| scene.drained.clear()), @"no bookie is named: say which with --bookies");
    insta::assert_snapshot!(told(|scene| { scene.drained.insert("x:1".to_owned()); }), @"x:1 is not known to this cluster, neither by a cookie nor by a registration: look at the spelling and the port");
    insta::assert_snapshot!(told(|scene| scene.drained.extend(set(&["x:1", "y:1"]))), @"x:1, y:1 are not known to this cluster, neither by a cookie nor by a registration: look at the spelling and the port");
}

#[test]
fn all_of_them() {
    let all = told(|scene| scene.drained = scene.known.clone());
    insta::assert_snapshot!(all, @"all bookies of the cluster are named: add others first");
}

#[test]
fn too_few_left() {
    insta::assert_snapshot!(told(|scene| scene.survey.largest_ensemble = 5), @"4 writable bookies would be left, and the largest ensemble has 5: add bookies, or empty fewer at once");
    // Bookies that are read-only already are none that are left.
    insta::assert_snapshot!(told(|scene| scene.seen.writable = set(&["a", "b", "c", "d"])), @"2 writable bookies would be left, and the largest ensemble has 3: add bookies, or empty fewer at once");
}

#[test]
fn too_few_left_of_a_group() {
    let few = told(|scene| {
        scene.survey.sources.get_mut("b").unwrap().largest_ensemble = 3;
    });
    insta::assert_snapshot!(few, @"2 writable bookies of the isolation group g would be left, and an ensemble in it has 3: add bookies to the group, or empty fewer at once");
}

#[test]
fn too_little_space() {
    // A fifth more than 50 GiB, and a twentieth of each of the two in the group is kept.
    let space = |free: u64| {
        move |scene: &mut Scene| {
            for of in scene.seen.space.values_mut() {
                of.0 = free;
            }
        }
    };
    assert_eq!(told(space(35 * GIB + 1)), "");
    insta::assert_snapshot!(told(space(35 * GIB - 20)), @"64424509400 bytes are free in the isolation group g and 64424509440 are wanted, a fifth more than what is to be moved: add bookies or space");
    // Near full is as good as full.
    insta::assert_snapshot!(told(|scene| { scene.seen.warn.insert("c".to_owned()); }), @"48318382080 bytes are free in the isolation group g and 64424509440 are wanted, a fifth more than what is to be moved: add bookies or space");
    let nobodys = told(|scene| {
        scene.racks = Ok(Racks::default());
        space(GIB)(scene);
    });
    insta::assert_snapshot!(nobodys, @"0 bytes are free and 64424509440 are wanted, a fifth more than what is to be moved: add bookies or space");
}

#[test]
fn replicas_that_are_lost_already() {
    insta::assert_snapshot!(told(|scene| scene.survey.short = fragments(2)), @"2 fragments have fewer replicas on registered bookies than their ack quorum, ledger 1 from entry 7, 2 from entry 7: bring those bookies back or let autorecovery end first");
}

#[test]
fn another_job() {
    let overlap = told(|scene| {
        scene.jobs.insert("d-00000001".to_owned(), set(&["b", "c"]));
        scene.jobs.insert("d-00000002".to_owned(), set(&["c", "d"]));
    });
    insta::assert_snapshot!(overlap, @"b is in job d-00000001: cancel or finish it first");
}

#[test]
fn readers_that_would_fail() {
    let doubled = |scene: &mut Scene| scene.survey.doubled = fragments(12);
    insta::assert_snapshot!(told(doubled), @"12 fragments have two replicas on the named bookies, ledger 1 from entry 7, 2 from entry 7, 3 from entry 7, 4 from entry 7, 5 from entry 7, 6 from entry 7, 7 from entry 7, 8 from entry 7, 9 from entry 7, 10 from entry 7 and 2 more, and the brokers are not known to read changed metadata: empty one bookie after the other, or use --reader-gate per-ledger");
    let safe = told(|scene| {
        doubled(scene);
        scene.readers_are_safe = true;
    });
    assert_eq!(safe, "");
}

#[test]
fn more_locks_than_a_session_should_have() {
    let kept = |ledgers, keeps| {
        told(|scene| (scene.survey.ledgers, scene.keeps_ledgers) = (ledgers, keeps))
    };
    assert_eq!(kept(10_000, true), "");
    assert_eq!(kept(10_001, false), "");
    insta::assert_snapshot!(kept(10_001, true), @"10001 ledgers would stay locked for readers until the job is finished, and ZooKeeper bears no more than 10000 of them: empty fewer bookies at once, or take brokers that read changed metadata and say --readers-refresh");
}

#[test]
fn bookies_that_do_not_answer() {
    insta::assert_snapshot!(told(|scene| scene.seen.space.clear()), @"none of the 4 writable bookies that stay says how much space it has, so none can be chosen");
    let nothing_to_move = told(|scene| {
        scene.seen.space.clear();
        scene.survey = Survey::default();
    });
    assert_eq!(nothing_to_move, "");
}

#[test]
fn bookies_that_want_sasl() {
    insta::assert_snapshot!(told(|scene| scene.sasl = set(&["a", "c"])), @"a, c want SASL, which is not spoken here: no entry can be copied");
}

#[test]
fn a_map_of_racks_that_is_not_understood() {
    insta::assert_snapshot!(told(|scene| scene.racks = Racks::parse(b"[")), @"the map of racks /bookies is not understood, so no target can be chosen: invalid type: sequence, expected a map at line 1 column 0");
}

#[test]
fn metadata_that_is_not_understood() {
    insta::assert_snapshot!(told(|scene| scene.survey.add_unreadable(7, "format 3 is damaged".to_owned())), @"the metadata of 1 ledgers is not understood, and may name the bookies: 7 (format 3 is damaged)");
}
