//! What a pass does and does not do: its limits, the lock, a look without touching, and what stops it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::cluster::store::MetaStore;
use crate::reclaim::acting::Acting;
use crate::reclaim::failpoint::Failpoints;
use crate::reclaim::mark::{MarkOptions, mark_deletable};
use crate::reclaim::plan::class::Class;
use crate::reclaim::stage::reclaimer::Reclaimer;
use crate::reclaim::stage::{For, Name, ROOTS, World, now};
use crate::reclaim::state::State;

const TOPIC: Name = (0, 0);

/// Five days: longer than any time of grace, and several scans so far apart are all that absence takes.
const LONG: u64 = 5 * 24 * 60;

/// Three hours: longer than the grace of r1, and a scan is not old by then.
const SHORT: u64 = 3 * 60;

fn list(world: &mut World, ids: &[LedgerId]) {
    world.topics.entry(TOPIC).or_default().list = ids.to_vec();
    world.write_list(TOPIC);
}

/// A topic that let go ten of its twelve ledgers, in two scans; 13 is of a topic that nobody ever saw.
fn leaked() -> (Mutex<World>, Reclaimer) {
    let mut world = World::new();
    let ids: Vec<_> = (0..12).map(|_| world.make(TOPIC, For::List)).collect();
    world.make((0, 5), For::List);
    list(&mut world, &ids);
    let store: Arc<dyn MetaStore> = world.store.clone();
    let state = Arc::new(State::in_memory());
    let mut reclaimer = Reclaimer::new(store, world.clock.clone(), state, ROOTS.len());
    assert!(reclaimer.scan());
    list(&mut world, &ids[10..]);
    for _ in 0..2 {
        world.pass(LONG);
        assert!(reclaimer.scan());
    }
    (Mutex::new(world), reclaimer)
}

/// Marked, long ago, and scanned since.
fn marked() -> (Mutex<World>, Reclaimer) {
    let (world, mut reclaimer) = leaked();
    reclaimer.mark(&Failpoints::default()).unwrap();
    world.lock().unwrap().pass(LONG);
    assert!(reclaimer.scan());
    (world, reclaimer)
}

fn stop(swept: &Swept) -> String {
    let stopped = swept.stopped.as_ref();
    stopped.map_or_else(String::new, |stop| crate::report::text(stop))
}

fn sweep(reclaimer: &Reclaimer) -> Swept {
    reclaimer.sweep(&Failpoints::default()).unwrap()
}

#[test]
fn classes_are_asked_for() {
    let (_world, reclaimer) = leaked();
    let mark = |options: &MarkOptions| {
        let marked = reclaimer.with(&Failpoints::default(), async |acting| {
            mark_deletable(acting, &reclaimer.last, options).await
        });
        let marked = marked.unwrap();
        let ids = marked.marked.iter().map(|planned| planned.id);
        (ids.collect::<Vec<_>>(), marked.skipped)
    };
    let told = |execute| MarkOptions {
        execute,
        ..MarkOptions::default()
    };
    assert_eq!(mark(&told(false)), ((1..=10).collect(), vec![]));
    assert_eq!(reclaimer.state.mark(1).unwrap(), None, "nothing is written");
    assert_eq!(mark(&told(true)), ((1..=10).collect(), vec![]));
    assert_eq!(mark(&told(true)), (vec![], vec![]), "they are marked");
    let mut unseen = MarkOptions {
        classes: [Class::NoOwner].into(),
        ..told(true)
    };
    assert_eq!(
        mark(&unseen),
        (vec![], vec![(13, "nobody has confirmed it")])
    );
    unseen.confirmed.insert(13);
    assert_eq!(mark(&unseen), (vec![13], vec![]));
}

#[test]
fn a_mark_needs_its_time_and_a_scan_after_it() {
    let (world, mut reclaimer) = leaked();
    reclaimer.mark(&Failpoints::default()).unwrap();
    let swept = sweep(&reclaimer);
    assert!(
        swept.deleted.is_empty() && swept.kept.is_empty(),
        "no time has passed"
    );
    world.lock().unwrap().pass(SHORT);
    let swept = sweep(&reclaimer);
    assert!(swept.deleted.is_empty());
    assert_eq!(
        swept.kept[0].1,
        "it takes a complete scan that began after the mark"
    );
    let obstacle = reclaimer.state.mark(1).unwrap().unwrap().obstacle;
    assert_eq!(
        obstacle.as_deref(),
        Some("it takes a complete scan that began after the mark")
    );
    world.lock().unwrap().pass(LONG);
    assert!(reclaimer.scan());
    assert_eq!(
        sweep(&reclaimer).deleted,
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13]
    );
}

#[test]
fn a_clock_that_was_ahead_makes_no_scan_a_later_one() {
    let (world, mut reclaimer) = leaked();
    // By our clock the scan began an hour from now.
    reclaimer.last.began += 3_600_000;
    insta::assert_snapshot!(stop(&sweep(&reclaimer)), @"the last scan began 3600 s from now by our clock, which was wrong then or is now: set it, and scan again");
    // It was marked by that scan, and time has caught up.
    reclaimer.last.began -= 3_600_000;
    reclaimer.mark(&Failpoints::default()).unwrap();
    world.lock().unwrap().pass(SHORT);
    let mut mark = reclaimer.state.mark(1).unwrap().unwrap();
    mark.last = mark.marked_at + 3_600_000;
    reclaimer.state.update_mark(&mark).unwrap();
    reclaimer.last.began = mark.last;
    let swept = sweep(&reclaimer);
    assert_eq!(
        swept.kept[0],
        (
            1,
            "it takes a complete scan that began after the mark".to_owned()
        )
    );
}

#[test]
fn without_execute_nothing_is_touched() {
    let (world, mut reclaimer) = marked();
    reclaimer.sweep.execute = false;
    let swept = sweep(&reclaimer);
    assert_eq!((swept.deleted.len(), swept.bytes), (11, 22_000));
    assert_eq!(world.lock().unwrap().ledgers().len(), 13);
    assert_eq!(reclaimer.state.archived(1).unwrap(), None);
}

#[test]
fn a_pass_has_an_end() {
    let (world, mut reclaimer) = marked();
    // A twentieth of 13, and at least one.
    reclaimer.sweep.max_deletes = None;
    insta::assert_snapshot!(stop(&sweep(&reclaimer)), @"1 ledgers are deleted, the most of one pass, and 10 more may be: look at the result, then run it again, with --max-deletes for another number");
    reclaimer.sweep.max_deletes = Some(3);
    assert_eq!(sweep(&reclaimer).deleted, [2, 3, 4]);
    assert_eq!(world.lock().unwrap().ledgers().len(), 9);
}

#[test]
fn whoever_loses_the_lock_stops() {
    let (world, reclaimer) = marked();
    let leads = AtomicBool::new(true);
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let is_leader = || {
        if asked.fetch_add(1, Ordering::Relaxed) == 2 {
            leads.store(false, Ordering::Relaxed);
        }
        leads.load(Ordering::Relaxed)
    };
    let acting = Acting {
        state: &reclaimer.state,
        ledgers: &reclaimer.ledgers,
        pulsars: &reclaimer.pulsars,
        clock: &reclaimer.clock,
        rules: &crate::reclaim::plan::class::Rules::default(),
        is_leader: &is_leader,
        entries: None,
        failpoints: &Failpoints::default(),
    };
    let swept = now(remove_deletable(&acting, &reclaimer.last, &reclaimer.sweep)).unwrap();
    insta::assert_snapshot!(stop(&swept), @"the lock of reclaim is not held any more: another dirkeeper may be at work");
    assert_eq!(swept.deleted, [1, 2]);
    assert_eq!(world.lock().unwrap().ledgers().len(), 11);
    // What was begun is gone on with.
    assert_eq!(sweep(&reclaimer).deleted.len(), 9);
}

#[test]
fn a_ledger_in_use_that_is_missing_stops_everything() {
    let (world, reclaimer) = marked();
    world
        .lock()
        .unwrap()
        .take(&crate::reclaim::stage::path_of(11));
    let swept = sweep(&reclaimer);
    assert!(swept.deleted.is_empty());
    insta::assert_snapshot!(stop(&swept), @"/managed-ledgers/public/default/persistent/t0 names ledger 11, which does not exist: somebody deletes ledgers that are in use, so nothing is deleted until that is understood, or --allow-missing says why it may be");
}

#[test]
fn owners_in_another_store_are_not_checkable() {
    let (world, mut reclaimer) = marked();
    // The same nodes by another handle, as of another ensemble.
    struct Quiet;
    impl crate::reclaim::stage::hooked::Hook for Quiet {
        fn before(
            &self,
            _: &crate::reclaim::stage::hooked::Call<'_>,
        ) -> crate::reclaim::stage::hooked::Fate {
            crate::reclaim::stage::hooked::Fate::Answered
        }
    }
    let elsewhere: Arc<dyn MetaStore> = Arc::new(crate::reclaim::stage::hooked::Hooked {
        store: world.lock().unwrap().store.clone(),
        hook: Quiet,
    });
    for pulsar in &mut reclaimer.pulsars {
        pulsar.store = Arc::clone(&elsewhere);
    }
    let swept = sweep(&reclaimer);
    assert!(swept.deleted.is_empty());
    assert_eq!(swept.kept.len(), 11);
    insta::assert_snapshot!(swept.kept[0].1, @"its owner is in another store, where no transaction can check it: --allow-unchecked");
    reclaimer.sweep.allow_unchecked = true;
    assert_eq!(sweep(&reclaimer).deleted.len(), 11);
}

#[test]
fn another_cluster_is_not_swept() {
    let (world, reclaimer) = marked();
    world.lock().unwrap().put("/ledgers/INSTANCEID", b"another");
    insta::assert_snapshot!(stop(&sweep(&reclaimer)), @"the last scan is of cluster an-id, and this is another: scan again");
}

#[test]
fn an_owner_that_was_set_back_is_believed_nothing() {
    let (world, reclaimer) = marked();
    // Made again with fewer writes behind it, and the same transaction: as after a restore of the store. Here
    // the mark is what is changed.
    let mut mark = reclaimer.state.mark(1).unwrap().unwrap();
    if let crate::reclaim::state::marks::Evidence::LetGo { to, .. } = &mut mark.evidence {
        *to += 1;
    }
    reclaimer.state.update_mark(&mark).unwrap();
    let swept = sweep(&reclaimer);
    insta::assert_snapshot!(swept.dropped[0].1, @"/managed-ledgers/public/default/persistent/t0 is older than it was: was the store set back?");
    assert!(world.lock().unwrap().is_there(1));
}

#[test]
fn the_archive_ends() {
    let (_world, reclaimer) = marked();
    sweep(&reclaimer);
    let archived = reclaimer.state.archived(1).unwrap().unwrap();
    let later = |millis| archived.deleted_at + crate::reclaim::state::marks::ARCHIVE_AGE + millis;
    reclaimer.state.forget_archived(later(0)).unwrap();
    assert!(reclaimer.state.archived(1).unwrap().is_some());
    // What was undone is not to be marked again, however long ago.
    let undone = reclaimer.state.archived(2).unwrap().unwrap();
    let again = reclaimer.state.undone(&undone, "again", later(0));
    again.unwrap();
    reclaimer.state.forget_archived(later(1)).unwrap();
    assert!(reclaimer.state.archived(1).unwrap().is_none());
    assert!(reclaimer.state.archived(2).unwrap().is_some());
}
