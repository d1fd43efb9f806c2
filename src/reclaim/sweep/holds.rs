//! Tests: what keeps all of a pass, or of a class, from being deleted. Owners that vanish in numbers, a scan that is old, a
//! ledger in use that is missing, and what an operator may say to each.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::cluster::bookie::Held;
use crate::cluster::ledger::LedgerMetadata;
use crate::cluster::store::MetaStore;
use crate::reclaim::failpoint::Failpoints;
use crate::reclaim::inside::{Entries, InsideError, Told};
use crate::reclaim::mark::{MarkOptions, Marked};
use crate::reclaim::plan::LedgerId;
use crate::reclaim::plan::class::Class;
use crate::reclaim::stage::reclaimer::Reclaimer;
use crate::reclaim::stage::{For, Name, ROOTS, World, path_of};
use crate::reclaim::state::State;
use crate::reclaim::state::marks::Mark;

/// Five days, in minutes: longer than any time of grace.
const LONG: u64 = 5 * 24 * 60;

const TOPICS: u8 = 50;

/// Fifty topics with a ledger each, number 1 to 50. The first one has let go 1, and has 51.
struct Many {
    world: World,
    reclaimer: Reclaimer,
}

impl Many {
    fn new() -> Many {
        let mut world = World::new();
        for number in 0..TOPICS {
            let id = world.make((0, number), For::List);
            list(&mut world, number, &[id]);
        }
        let next = world.make((0, 0), For::List);
        list(&mut world, 0, &[1, next]);
        let store: Arc<dyn MetaStore> = world.store.clone();
        let state = Arc::new(State::in_memory());
        let mut reclaimer = Reclaimer::new(store, world.clock.clone(), state, ROOTS.len());
        assert!(reclaimer.scan());
        list(&mut world, 0, &[next]);
        Many { world, reclaimer }
    }

    fn vanish(&self, numbers: std::ops::Range<u8>) {
        for number in numbers {
            self.world.take(&World::topic_path((0, number)));
        }
    }

    fn scan(&mut self) {
        self.world.pass(LONG);
        assert!(self.reclaimer.scan());
    }

    /// Twice is enough for an owner to be believed gone.
    fn scans(&mut self) {
        self.scan();
        self.scan();
    }

    fn mark(&self, allow_vanished: bool) -> (Vec<LedgerId>, String) {
        let options = MarkOptions {
            execute: true,
            allow_vanished,
            ..MarkOptions::default()
        };
        let marked = self.reclaimer.with(&Failpoints::default(), async |acting| {
            crate::reclaim::mark::mark_deletable(acting, &self.reclaimer.last, &options).await
        });
        let Marked {
            marked, stopped, ..
        } = marked.unwrap();
        let ids = marked.iter().map(|planned| planned.id);
        (ids.collect(), text(stopped.as_ref()))
    }

    fn sweep(&self) -> (Vec<LedgerId>, String) {
        let swept = self.reclaimer.sweep(&Failpoints::default()).unwrap();
        (swept.deleted, text(swept.stopped.as_ref()))
    }
}

fn list(world: &mut World, number: u8, ids: &[LedgerId]) {
    let name: Name = (0, number);
    world.topics.entry(name).or_default().list = ids.to_vec();
    world.write_list(name);
}

fn text(stop: Option<&Stop>) -> String {
    stop.map_or_else(String::new, |stop| crate::report::text(stop))
}

/// The reasons beside deletions.
fn reasons(state: &State) -> Vec<String> {
    let mut all = Vec::new();
    let told = state.for_each_audit(|_, line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line["what"] == "delete" {
            all.push(line["why"].as_str().unwrap_or_default().to_owned());
        }
    });
    told.unwrap();
    all
}

#[test]
fn topics_that_are_deleted_now_and_then_are_believed() {
    let mut many = Many::new();
    many.vanish(40..50);
    many.scans();
    let (marked, stop) = many.mark(false);
    assert_eq!((marked.len(), &*stop), (11, ""), "a fifth of fifty");
    many.scan();
    assert_eq!(many.sweep().0.len(), 11);
}

#[test]
fn a_tree_that_is_empty_all_at_once_is_not() {
    let mut many = Many::new();
    many.scan();
    many.vanish(0..50);
    let gone = "50 of 50 owners of ledgers are gone, ";
    // It is no smaller loss when it is scanned again, and again.
    for _ in 0..3 {
        many.scan();
        let (marked, stop) = many.mark(false);
        assert!(marked.is_empty() || marked == [1], "{marked:?}");
        assert!(stop.starts_with(gone), "{stop}");
    }
    many.scan();
    let (marked, stop) = many.mark(true);
    assert_eq!((marked.len(), &*stop), (50, ""));
    many.scan();
    let (swept, stop) = many.sweep();
    assert_eq!(swept, [1], "what its owner let go before");
    assert!(stop.starts_with(gone), "{stop}");
    many.reclaimer.sweep.allow_vanished = true;
    assert_eq!(many.sweep().0.len(), 50);
    let reasons = reasons(&many.reclaimer.state);
    assert!(reasons[1].starts_with("with --allow-vanished: 50 of 50 owners"));
}

#[test]
fn a_little_of_it_at_each_scan_adds_up() {
    let mut many = Many::new();
    let mut most = 0;
    for number in (0..50).step_by(5) {
        many.vanish(number..number + 5);
        many.scan();
        let (marked, stop) = many.mark(false);
        most += marked.len();
        assert_eq!(stop.is_empty(), number < 10, "{number}: {stop}");
    }
    // Those of the first two scans, of which the second was seen to be gone once.
    assert_eq!(most, 6);
}

#[test]
fn topics_that_brokers_make_anew_do_not_hide_it() {
    let mut many = Many::new();
    many.scan();
    many.vanish(0..50);
    for number in 0..50 {
        let new = many.world.make((0, number), For::List);
        list(&mut many.world, number, &[new]);
    }
    many.scans();
    let (marked, stop) = many.mark(false);
    assert_eq!(marked, [1]);
    assert!(stop.starts_with("50 of 100 owners"), "{stop}");
    // The tree is restored, by a tool that makes other nodes.
    for number in 0..50 {
        let id = u64::from(number) + 1;
        let old = if number == 0 { 51 } else { id };
        list(&mut many.world, number, &[old, id + 51]);
    }
    many.scan();
    assert_eq!(many.mark(false), (vec![], String::new()));
}

/// By a tool that writes over what is there, so that versions rise.
#[test]
fn an_old_list_that_is_written_back_lets_nothing_go() {
    let mut many = Many::new();
    many.scan();
    assert_eq!(many.mark(false).0, [1]);
    list(&mut many.world, 0, &[1]);
    many.scan();
    // The broker goes on with it.
    let new = many.world.make((0, 0), For::List);
    list(&mut many.world, 0, &[1, new]);
    many.scan();
    assert!(many.mark(false).0.is_empty());
    let all = &many.reclaimer.last.suspects;
    assert_eq!(all[&51].class, Class::NeverListed);
}

#[test]
fn what_was_marked_before_is_held_too() {
    let mut many = Many::new();
    many.vanish(45..50);
    many.scans();
    assert_eq!(many.mark(false).0.len(), 6);
    many.vanish(20..45);
    many.scan();
    let (swept, stop) = many.sweep();
    assert_eq!(swept, [1], "its owner let it go");
    insta::assert_snapshot!(stop, @"30 of 50 owners of ledgers are gone, which looks like metadata that was lost, half restored, or read at the wrong place, so nothing of r2, r3 and r4 is touched: see that /managed-ledgers is whole, and say --allow-vanished if all of them were deleted on purpose");
    let kept = many.reclaimer.state.mark(50).unwrap().unwrap().obstacle;
    assert_eq!(kept.as_deref(), Some(&*stop));
}

#[test]
fn what_vanishes_after_the_scan_is_seen_by_the_breaker() {
    let mut many = Many::new();
    many.scan();
    assert_eq!(many.mark(false).0, [1]);
    many.scan();
    many.reclaimer.sweep.sample = 20;
    many.vanish(0..50);
    let (swept, stop) = many.sweep();
    assert!(swept.is_empty());
    assert!(stop.starts_with("20 of 20 owners"), "{stop}");
}

#[test]
fn an_old_scan_speaks_for_nothing() {
    let mut many = Many::new();
    let new = many.world.make((0, 1), For::List);
    list(&mut many.world, 1, &[new]);
    many.scan();
    assert_eq!(many.mark(false).0, [1, 2]);
    many.scan();
    many.world.pass(24 * 60 + 1);
    let (swept, stop) = many.sweep();
    assert!(swept.is_empty());
    insta::assert_snapshot!(stop, @"the last scan began 24 h ago, and nothing is deleted by what is older than a day: scan again");
    // It grows old while ledgers are deleted.
    many.scan();
    let clock = many.world.clock.clone();
    let slow = Failpoints::new(move |point| {
        if point == Failpoint::AbsenceSeen {
            clock.advance(Duration::from_secs(25 * 3600));
        }
        false
    });
    let swept = many.reclaimer.sweep(&slow).unwrap();
    assert_eq!(swept.deleted, [1]);
    insta::assert_snapshot!(text(swept.stopped.as_ref()), @"the last scan began 25 h ago, and nothing is deleted by what is older than a day: scan again");
    many.scan();
    assert_eq!(many.sweep(), (vec![2], String::new()));
}

/// Says that so many entries of every ledger are confirmed, or nothing.
struct Confirmed(Arc<Mutex<Option<i64>>>);

impl Entries for Confirmed {
    fn last_entry<'a>(&'a self, _: LedgerId, _: &'a LedgerMetadata) -> Told<'a, Option<u64>> {
        Box::pin(async { Ok(None) })
    }
    fn read<'a>(&'a self, _: LedgerId, _: &'a LedgerMetadata, _: u64) -> Told<'a, Option<Vec<u8>>> {
        Box::pin(async { Ok(None) })
    }
    fn last_add_confirmed<'a>(&'a self, ledger: LedgerId, _: &'a LedgerMetadata) -> Told<'a, i64> {
        let why = "no bookie answers".to_owned();
        let known = *self.0.lock().unwrap();
        Box::pin(async move { known.ok_or(InsideError::End { ledger, why }) })
    }
    fn entries_held<'a>(&'a self, _: &'a str, _: LedgerId) -> Told<'a, Held> {
        unreachable!("nobody asks for them")
    }
}

#[test]
fn an_open_ledger_is_looked_into_once_more() {
    let mut many = Many::new();
    let id = many.world.make((0, 0), For::List);
    let open = "BookieMetadataFormatVersion\t2\nquorumSize: 1\nensembleSize: 1\nlength: 0\nlastEntryId: -1\nstate: OPEN\n\
                segment { ensembleMember: \"b:1\" firstEntryId: 0 }\n\
                customMetadata { key: \"application\" value: \"pulsar\" }\n\
                customMetadata { key: \"component\" value: \"managed-ledger\" }\n\
                customMetadata { key: \"pulsar/managed-ledger\" value: \"public/default/persistent/t0\" }\n";
    many.world.put(&path_of(id), open.as_bytes());
    let confirmed = Arc::new(Mutex::new(Some(5)));
    many.reclaimer.entries = Some(Arc::new(Confirmed(Arc::clone(&confirmed))));
    many.scans();
    many.scan();
    assert!(many.reclaimer.deletable().contains(&id));
    many.reclaimer.mark(&Failpoints::default()).unwrap();
    many.scan();
    let kept = |many: &Many| {
        let swept = many.reclaimer.sweep(&Failpoints::default()).unwrap();
        assert!(!swept.deleted.contains(&id), "{:?}", swept.deleted);
        assert_eq!(swept.kept.len(), 1);
        swept.kept[0].1.clone()
    };
    *confirmed.lock().unwrap() = Some(6);
    insta::assert_snapshot!(kept(&many), @"entries were added to it since it was suspected first");
    *confirmed.lock().unwrap() = None;
    insta::assert_snapshot!(kept(&many), @"it is not closed, and whether it is written is not known: it is not known where ledger 52 ends now: no bookie answers");
    let entries = many.reclaimer.entries.take();
    insta::assert_snapshot!(kept(&many), @"it is not closed, and nobody asks the bookies whether it is written");
    many.reclaimer.entries = entries;
    *confirmed.lock().unwrap() = Some(5);
    assert_eq!(many.sweep().0, [id]);
}

#[test]
fn why_a_missing_ledger_is_no_matter_is_written_down() {
    let mut many = Many::new();
    many.scan();
    assert_eq!(many.mark(false).0, [1]);
    many.scan();
    many.world.take(&path_of(7));
    many.reclaimer.sweep.sample = usize::from(TOPICS);
    let (swept, stop) = many.sweep();
    assert!(swept.is_empty() && stop.contains(" names ledger 7, which does not exist"));
    many.reclaimer.sweep.allow_missing = Some("disks lost in March".to_owned());
    // Whatever is said, one that was deleted by us is no disk's fault.
    let mark = many.reclaimer.state.mark(1).unwrap().unwrap();
    let ours = Mark { id: 7, ..mark };
    let now = many.world.now();
    many.reclaimer.state.deleted(&ours, None, now).unwrap();
    insta::assert_snapshot!(many.sweep().1, @"/managed-ledgers/public/default/persistent/t6 names ledger 7, which was deleted here: bring it back with 'dirkeeper reclaim undo 7', and find out why before anything more is deleted");
    many.world.put(&path_of(7), b"");
    many.world.take(&path_of(8));
    assert_eq!(many.sweep().0, [1]);
    let reasons = reasons(&many.reclaimer.state);
    insta::assert_snapshot!(reasons.last().unwrap(), @"although /managed-ledgers/public/default/persistent/t7 names ledger 8, which does not exist: disks lost in March");
}
