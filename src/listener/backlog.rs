//! What waits for one listener: a lane for each directory and one for the node. Within a lane the
//! order is kept and at most one event is being delivered; a lane that gets longer than its limit
//! keeps its first events and the newest, with a count of those between. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

/// The directory of an event; none for the node.
pub(super) type LaneKey = Option<PathBuf>;

/// How many numbers of left-out events are remembered to be acknowledged with their successor, so that
/// a crash does not lose the count. Beyond it the oldest are acknowledged early: their successor is in
/// the store itself, and directories that flap through an outage must not crowd the news of others out
/// of the thousand events that a restart gets from the store.
const MAX_COVERED: usize = 16;

/// One waiting event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry<T> {
    /// Number of the event.
    pub(super) seq: u64,
    /// The event.
    pub(super) event: T,
    /// How many events just before it were left out.
    pub(super) coalesced: u32,
    /// Numbers of these, oldest first.
    covered: VecDeque<u64>,
}

impl<T> Entry<T> {
    /// Its own number and those of the events it stands for.
    pub(super) fn seqs(&self) -> impl Iterator<Item = u64> + '_ {
        self.covered.iter().copied().chain([self.seq])
    }
}

/// What happened to others when an event was taken in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pushed {
    /// An event was left out in favour of the new one.
    pub(super) coalesced: bool,
    /// Numbers that are not waited for any more.
    pub(super) released: Vec<u64>,
    /// How many events were thrown away because the whole backlog is full.
    pub(super) lost: u64,
}

/// The waiting events of one listener.
#[derive(Debug)]
pub(super) struct Backlog<T> {
    lane_limit: usize,
    limit: usize,
    lanes: BTreeMap<LaneKey, Lane<T>>,
    waiting: usize,
}

#[derive(Debug)]
struct Lane<T> {
    busy: bool,
    waiting: VecDeque<Entry<T>>,
}

impl<T> Backlog<T> {
    /// An empty backlog: at most `lane_limit` waiting events for a directory, `limit` in all.
    pub(super) fn new(lane_limit: usize, limit: usize) -> Backlog<T> {
        assert!(0 < lane_limit && lane_limit <= limit);
        Backlog {
            lane_limit,
            limit,
            lanes: BTreeMap::new(),
            waiting: 0,
        }
    }

    /// Takes in the newest event. Where there is no room it replaces the last one waiting in its
    /// lane; where nothing waits there, the oldest event of all goes.
    pub(super) fn push(&mut self, key: LaneKey, seq: u64, event: T) -> Pushed {
        let mut pushed = Pushed::default();
        let crowded = self.waiting >= self.limit;
        let lane = self.lanes.entry(key).or_insert_with(|| Lane {
            busy: false,
            waiting: VecDeque::new(),
        });
        let mut entry = Entry {
            seq,
            event,
            coalesced: 0,
            covered: VecDeque::new(),
        };
        let replaces = crowded || lane.waiting.len() >= self.lane_limit;
        if let Some(old) = lane.waiting.pop_back_if(|_| replaces) {
            entry.coalesced = old.coalesced.saturating_add(1);
            entry.covered = old.covered;
            entry.covered.push_back(old.seq);
            let excess = entry.covered.len().saturating_sub(MAX_COVERED);
            pushed.released.extend(entry.covered.drain(..excess));
            pushed.coalesced = true;
            self.waiting -= 1;
        }
        lane.waiting.push_back(entry);
        self.waiting += 1;
        if self.waiting > self.limit
            && let Some(lost) = self.remove_oldest()
        {
            pushed.lost = 1;
            pushed.released.extend(lost.seqs());
        }
        pushed
    }

    /// The oldest event of a lane in which nothing is being delivered. Its lane is busy from now on,
    /// until [`Backlog::finish`].
    pub(super) fn take(&mut self) -> Option<(LaneKey, Entry<T>)> {
        let key = self.oldest(|lane| !lane.busy)?;
        let lane = self.lanes.get_mut(&key)?;
        let entry = lane.waiting.pop_front()?;
        lane.busy = true;
        self.waiting -= 1;
        Some((key, entry))
    }

    /// True when [`Backlog::take`] would give something.
    pub(super) fn has_ready(&self) -> bool {
        self.oldest(|lane| !lane.busy).is_some()
    }

    /// The delivery in that lane is over.
    pub(super) fn finish(&mut self, key: &LaneKey) {
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.busy = false;
            self.forget_if_empty(key);
        }
    }

    /// Number of waiting events, those being delivered not among them.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Removes all that wait.
    pub(super) fn clear(&mut self) -> Vec<Entry<T>> {
        self.remove_lanes(|_| false)
    }

    /// Removes what waits in lanes that are not kept.
    pub(super) fn remove_lanes(&mut self, keep: impl Fn(&LaneKey) -> bool) -> Vec<Entry<T>> {
        let mut entries = Vec::new();
        for (_, lane) in self.lanes.iter_mut().filter(|(key, _)| !keep(key)) {
            entries.extend(lane.waiting.drain(..));
        }
        self.lanes.retain(|key, lane| lane.busy || keep(key));
        self.waiting -= entries.len();
        entries
    }

    fn remove_oldest(&mut self) -> Option<Entry<T>> {
        let key = self.oldest(|_| true)?;
        let entry = self.lanes.get_mut(&key)?.waiting.pop_front()?;
        self.waiting -= 1;
        self.forget_if_empty(&key);
        Some(entry)
    }

    fn forget_if_empty(&mut self, key: &LaneKey) {
        if let Some(lane) = self.lanes.get(key)
            && !lane.busy
            && lane.waiting.is_empty()
        {
            self.lanes.remove(key);
        }
    }

    fn oldest(&self, eligible: impl Fn(&Lane<T>) -> bool) -> Option<LaneKey> {
        let lanes = self.lanes.iter().filter(|(_, lane)| eligible(lane));
        let first = lanes.filter_map(|(key, lane)| Some((lane.waiting.front()?.seq, key)));
        first.min().map(|(_, key)| key.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn lane(number: u8) -> LaneKey {
        (number > 0).then(|| format!("/mnt/l{number}").into())
    }

    fn taken(backlog: &mut Backlog<u64>) -> Option<(u64, u32)> {
        let (key, entry) = backlog.take()?;
        backlog.finish(&key);
        Some((entry.seq, entry.coalesced))
    }

    #[test]
    fn a_lane_over_its_limit_keeps_the_first_and_the_newest() {
        let mut backlog = Backlog::new(2, 100);
        for seq in 1..=5 {
            backlog.push(lane(1), seq, seq);
        }
        assert_eq!(taken(&mut backlog), Some((1, 0)));
        backlog.push(lane(1), 6, 6);
        let (key, entry) = backlog.take().unwrap();
        assert_eq!((entry.seq, entry.coalesced), (5, 3));
        assert_eq!(entry.seqs().collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!(backlog.take(), None); // the lane is busy
        assert!(!backlog.has_ready());
        backlog.finish(&key);
        assert_eq!(taken(&mut backlog), Some((6, 0)));
        assert_eq!(taken(&mut backlog), None);
    }

    #[test]
    fn the_oldest_event_that_may_go_goes_first_whatever_its_lane() {
        let mut backlog = Backlog::new(2, 100);
        for seq in 1..=6 {
            backlog.push(lane((seq % 3) as u8), seq, seq);
        }
        let order: Vec<u64> = std::iter::from_fn(|| taken(&mut backlog))
            .map(|(seq, _)| seq)
            .collect();
        assert_eq!(order, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_full_backlog_loses_the_oldest_and_says_so() {
        let mut backlog = Backlog::new(2, 3);
        for seq in 1..=3 {
            assert_eq!(backlog.push(lane(seq as u8), seq, seq), Pushed::default());
        }
        let pushed = backlog.push(lane(4), 4, 4);
        assert_eq!((pushed.lost, pushed.released), (1, vec![1]));
        // A lane that has something waiting makes room itself.
        let pushed = backlog.push(lane(4), 5, 5);
        assert_eq!((pushed.lost, pushed.coalesced), (0, true));
        let rest: Vec<u64> = backlog.clear().iter().map(|entry| entry.seq).collect();
        assert_eq!(rest, [2, 3, 5]);
        assert_eq!(backlog.len(), 0);
    }

    #[test]
    fn a_removed_lane_takes_what_waits_in_it_and_nothing_else() {
        let mut backlog = Backlog::new(2, 100);
        for seq in 1..=4 {
            backlog.push(lane((seq % 2) as u8), seq, seq);
        }
        let (key, _) = backlog.take().unwrap();
        assert_eq!(key, lane(1));
        let removed = backlog.remove_lanes(|key| *key != lane(1));
        let removed: Vec<u64> = removed.iter().map(|entry| entry.seq).collect();
        assert_eq!((removed, backlog.len()), (vec![3], 2));
        backlog.finish(&key);
        assert_eq!(taken(&mut backlog), Some((2, 0)));
        assert_eq!(taken(&mut backlog), Some((4, 0)));
    }

    #[test]
    fn numbers_of_left_out_events_are_bounded() {
        let mut backlog = Backlog::new(1, 1);
        let pushes = (1..=3000).map(|seq| backlog.push(None, seq, seq));
        let released: Vec<u64> = pushes.flat_map(|pushed| pushed.released).collect();
        assert_eq!(released, (1..=2983).collect::<Vec<u64>>());
        let (_, entry) = backlog.take().unwrap();
        assert_eq!(entry.seqs().count(), MAX_COVERED + 1);
        assert_eq!(entry.coalesced, 2999);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Arrive(u8),
        Begin,
        Complete(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..4_u8).prop_map(Step::Arrive),
            2 => Just(Step::Begin),
            2 => any::<prop::sample::Index>().prop_map(Step::Complete),
        ];
        prop::collection::vec(step, 0..200)
    }

    /// What a listener with this backlog would see.
    struct Seen {
        backlog: Backlog<u64>,
        arrived: BTreeMap<LaneKey, Vec<u64>>,
        running: Vec<LaneKey>,
        delivered: BTreeMap<LaneKey, Vec<u64>>,
        accounted: Vec<u64>,
        left_out: u64,
        lost: u64,
    }

    impl Seen {
        fn new(limit: usize) -> Seen {
            Seen {
                backlog: Backlog::new(2, limit),
                arrived: BTreeMap::new(),
                running: Vec::new(),
                delivered: BTreeMap::new(),
                accounted: Vec::new(),
                left_out: 0,
                lost: 0,
            }
        }

        fn arrive(&mut self, lane: LaneKey, seq: u64) {
            let pushed = self.backlog.push(lane.clone(), seq, seq);
            assert!(!pushed.released.contains(&seq), "the newest is never lost");
            self.arrived.entry(lane).or_default().push(seq);
            self.accounted.extend(pushed.released);
            self.lost += pushed.lost;
        }

        fn begin(&mut self) -> bool {
            let Some((lane, entry)) = self.backlog.take() else {
                return false;
            };
            assert!(
                !self.running.contains(&lane),
                "one at a time for a directory"
            );
            let covered = (entry.coalesced as usize).min(MAX_COVERED);
            assert_eq!(entry.seqs().count(), covered + 1);
            self.accounted.extend(entry.seqs());
            self.left_out += u64::from(entry.coalesced);
            self.delivered
                .entry(lane.clone())
                .or_default()
                .push(entry.seq);
            self.running.push(lane);
            true
        }

        fn complete(&mut self, which: usize) {
            let lane = self.running.remove(which);
            self.backlog.finish(&lane);
        }

        fn play(&mut self, steps: Vec<Step>) {
            for (seq, step) in (1..).zip(steps) {
                match step {
                    Step::Arrive(number) => self.arrive(lane(number), seq),
                    Step::Begin => _ = self.begin(),
                    Step::Complete(which) if !self.running.is_empty() => {
                        self.complete(which.index(self.running.len()));
                    }
                    Step::Complete(_) => {}
                }
            }
            loop {
                while !self.running.is_empty() {
                    self.complete(0);
                }
                if !self.begin() {
                    break;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn one_directory_is_never_reordered_and_its_first_and_newest_never_lost(steps in steps()) {
            let mut seen = Seen::new(1000);
            seen.play(steps);
            let all: BTreeSet<u64> = seen.arrived.values().flatten().copied().collect();
            let accounted: BTreeSet<u64> = seen.accounted.iter().copied().collect();
            prop_assert_eq!(accounted.len(), seen.accounted.len(), "each counts once");
            prop_assert_eq!(accounted, all);
            let delivered: usize = seen.delivered.values().map(Vec::len).sum();
            prop_assert_eq!(delivered as u64 + seen.left_out, seen.accounted.len() as u64);
            for (lane, arrived) in &seen.arrived {
                let delivered = &seen.delivered[lane];
                prop_assert!(delivered.is_sorted());
                prop_assert_eq!(delivered.first(), arrived.first());
                prop_assert_eq!(delivered.last(), arrived.last());
            }
        }

        #[test]
        fn a_small_backlog_keeps_its_bound_and_accounts_for_everything(steps in steps()) {
            let mut seen = Seen::new(3);
            seen.play(steps);
            let all: BTreeSet<u64> = seen.arrived.values().flatten().copied().collect();
            let accounted: BTreeSet<u64> = seen.accounted.iter().copied().collect();
            prop_assert_eq!(accounted, all);
            for delivered in seen.delivered.values() {
                prop_assert!(delivered.is_sorted());
            }
        }
    }
}
