//! What waits for one listener: a lane for each directory and one for the node. Within a lane the
//! order is kept and at most one event is being delivered; a lane that gets longer than its limit
//! keeps its first events and the newest, with a count of those between. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

/// The directory of an event; none for the node.
pub(super) type LaneKey = Option<PathBuf>;

/// How many numbers of left-out events are remembered to be acknowledged with their successor:
/// 8 KiB. Beyond it the oldest are acknowledged early; their successor is in the store itself, so
/// that a crash would lose a count and no news.
const MAX_COVERED: usize = 1024;

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
        let entries = self
            .lanes
            .values_mut()
            .flat_map(|lane| lane.waiting.drain(..));
        let entries = entries.collect();
        self.lanes.retain(|_, lane| lane.busy);
        self.waiting = 0;
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
