//! One test for each reason, and what holds for every ensemble and every cluster.

use fastrand::Rng;
use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

fn target(id: &str, rack: Option<&str>, group: Option<&str>, free: u64) -> Target {
    Target {
        id: id.to_owned(),
        rack: rack.map(str::to_owned),
        group: group.map(str::to_owned),
        free,
        total: 100 * GIB,
        is_writable: true,
        warn: false,
    }
}

fn names(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// Who takes the place of `a`, which is no target itself, in the ensemble a, b.
fn told(change: impl FnOnce(&mut Vec<Target>, &mut BTreeSet<String>, &mut Load)) -> String {
    let mut bookies = vec![
        target("a", Some("/r1"), None, 50 * GIB),
        target("b", Some("/r2"), None, 50 * GIB),
        target("c", Some("/r1"), None, 50 * GIB),
        target("d", Some("/r3"), None, 40 * GIB),
    ];
    bookies[0].is_writable = false;
    let (mut rejected, mut load) = (BTreeSet::new(), Load::default());
    change(&mut bookies, &mut rejected, &mut load);
    match choose(&names(&["a", "b"]), 0, 2, &bookies, &rejected, &load) {
        Ok(target) => target.id.clone(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_one_with_most_room_that_is_fit() {
    assert_eq!(told(|_, _, _| {}), "c");
    assert_eq!(told(|bookies, _, _| bookies[2].is_writable = false), "d");
    assert_eq!(told(|bookies, _, _| bookies[2].warn = true), "d");
    assert_eq!(told(|bookies, _, _| bookies[2].total = 0), "d");
    assert_eq!(told(|bookies, _, _| bookies[2].free = 4 * GIB), "d");
    assert_eq!(
        told(|bookies, _, _| bookies[2].rack = Some("r2".to_owned())),
        "d"
    );
    assert_eq!(
        told(|bookies, _, _| bookies[2].group = Some("x".to_owned())),
        "d"
    );
    assert_eq!(
        told(|_, rejected, _| {
            rejected.insert("c".to_owned());
        }),
        "d"
    );
    // What it was given counts.
    assert_eq!(told(|_, _, load| load.give("c", 9 * GIB)), "c");
    assert_eq!(told(|_, _, load| load.give("c", 11 * GIB)), "d");
    // The first by name of those that have as much.
    assert_eq!(told(|bookies, _, _| bookies[3].free = 50 * GIB), "c");
}

#[test]
fn nobody() {
    let all = told(|bookies, rejected, load| {
        bookies[2].is_writable = false;
        rejected.insert("d".to_owned());
        bookies.push(target("e", None, Some("x"), GIB));
        bookies.push(target("f", Some("/r2"), None, GIB));
        bookies.push(Target {
            warn: true,
            ..target("g", None, None, 50 * GIB)
        });
        bookies.push(target("h", None, None, 50 * GIB));
        load.give("h", u64::MAX);
        bookies.push(Target {
            total: 0,
            ..target("i", None, None, 0)
        });
    });
    insta::assert_snapshot!(all, @"no bookie can take the replica: 2 hold another replica, 1 is not writable or leaves too, 1 did not take it, 1 is of another isolation group, 1 would leave it in fewer racks, 2 are nearly full, 1 does not say how much space it has");
    insta::assert_snapshot!(told(|bookies, _, _| bookies.clear()), @"no bookie can take the replica");
}

#[test]
fn what_is_seen_of_bookies() {
    let map = br#"{"g": {"a": {"rack": "/r1"}, "gone": {"rack": "/r2"}}}"#;
    let racks = Racks::parse(map).unwrap();
    let set = |ids: &[&str]| {
        ids.iter()
            .map(|id| (*id).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let seen = Seen {
        writable: set(&["a", "b", "leaves"]),
        space: BTreeMap::from([("a".to_owned(), (5, 100))]),
        warn: set(&["b"]),
    };
    let told: Vec<_> = targets(&racks, &seen, &set(&["leaves"]))
        .into_iter()
        .map(|one| {
            let (rack, group) = (one.rack.unwrap_or_default(), one.group.unwrap_or_default());
            let (id, free, total) = (one.id, one.free, one.total);
            format!(
                "{id} {rack} {group} {free}/{total} {} {}",
                one.is_writable, one.warn
            )
        })
        .collect();
    let expected = [
        "a /r1 g 5/100 true false",
        "b   0/0 true true",
        "gone /r2 g 0/0 false false",
        "leaves   0/0 false false",
    ];
    assert_eq!(told, expected);
}

/// The racks of each write set, counted here in another way than there.
fn racks(ensemble: &[String], quorum: u32, bookies: &[Target]) -> Vec<usize> {
    let rack = |id: &String| {
        let found = bookies.iter().find(|one| one.id == *id);
        found.and_then(|one| one.rack.clone()).unwrap_or_default()
    };
    let sets = (0..ensemble.len()).map(|entry| {
        let mut racks: Vec<_> = ensemble
            .iter()
            .cycle()
            .skip(entry)
            .take(quorum as usize)
            .map(rack)
            .collect();
        racks.sort();
        racks.dedup();
        racks.len()
    });
    sets.collect()
}

proptest! {
    #[test]
    fn nothing_becomes_worse(seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let mut bookies: Vec<_> = (0..rng.usize(1..12)).map(|id| {
            let rack = rng.bool().then(|| format!("/r{}", rng.u32(..4)));
            let group = rng.bool().then(|| format!("g{}", rng.u32(..2)));
            let free = rng.u64(..100 * GIB);
            let one = target(&format!("b{id}"), rack.as_deref(), group.as_deref(), free);
            Target { is_writable: rng.u32(..5) != 0, warn: rng.u32(..5) == 0, ..one }
        }).collect();
        let mut ids: Vec<_> = bookies.iter().map(|one| one.id.clone()).collect();
        rng.shuffle(&mut ids);
        let size = rng.usize(1..=ids.len().min(5));
        let ensemble = ids[..size].to_vec();
        let (index, quorum) = (rng.usize(..size), rng.u32(1..=size as u32));
        let rejected: BTreeSet<_> = ids.iter().filter(|_| rng.u32(..5) == 0).cloned().collect();
        let mut load = Load::default();
        for id in &ids {
            load.give(id, rng.u64(..50 * GIB));
        }
        let chosen = choose(&ensemble, index, quorum, &bookies, &rejected, &load).cloned();
        let fit = |one: &Target| {
            let mut after = ensemble.clone();
            after[index].clone_from(&one.id);
            let old = bookies.iter().find(|other| other.id == ensemble[index]).unwrap();
            let before = racks(&ensemble, quorum, &bookies);
            let is_spread = before.iter().zip(racks(&after, quorum, &bookies)).all(|(before, after)| *before <= after);
            is_spread && one.is_writable && !one.warn && one.group == old.group
                && !ensemble.contains(&one.id) && !rejected.contains(&one.id)
                && 0 < one.room(load.given(&one.id))
        };
        let best = bookies.iter().filter(|one| fit(one)).map(|one| one.room(load.given(&one.id))).max();
        match &chosen {
            Ok(one) => {
                prop_assert!(fit(one), "{one:?}");
                prop_assert_eq!(Some(one.room(load.given(&one.id))), best);
            }
            Err(none) => {
                prop_assert_eq!(best, None);
                prop_assert_eq!(none.refused.values().sum::<usize>(), bookies.len());
            }
        }
        // In whatever order they are heard of.
        rng.shuffle(&mut bookies);
        prop_assert_eq!(choose(&ensemble, index, quorum, &bookies, &rejected, &load).cloned(), chosen);
    }
}
