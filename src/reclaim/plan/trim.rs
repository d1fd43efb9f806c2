//! What trimming a topic that nobody has loaded would give back. The broker decides; this says whether a visit can be worth
//! it, by the broker's own rule: ledgers go from the oldest on, as long as no subscription needs them and they
//! are older than retention, or the list is larger. The last ledger begins to age when the topic is loaded.

use super::Millis;
use crate::cluster::pulsar::{ListedLedger, Position};

/// Most doublings of the time for which a topic is left alone after visits that gained nothing: a month, from a day on.
const MOST_DOUBLINGS: u32 = 5;

/// What is kept beyond what is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// For how long; none: for ever.
    pub time: Option<Millis>,
    /// How many bytes; none: without limit.
    pub size: Option<u64>,
    /// After which a message counts as acknowledged; none: never.
    pub ttl: Option<Millis>,
}

impl Policy {
    /// Of minutes and megabytes as Pulsar writes them, negative for ever, and of seconds.
    #[must_use]
    pub fn of(minutes: i64, megabytes: i64, ttl_seconds: Option<u64>) -> Policy {
        let ttl = ttl_seconds.map(|seconds| i64::try_from(seconds).unwrap_or(Millis::MAX));
        Policy {
            time: (0 <= minutes).then(|| minutes.saturating_mul(60_000)),
            size: u64::try_from(megabytes)
                .ok()
                .map(|megabytes| megabytes.saturating_mul(1 << 20)),
            ttl: ttl.map(|ttl| ttl.saturating_mul(1000)),
        }
    }
}

/// The slowest subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slowest {
    /// There is none.
    None,
    /// Its position.
    At(Position),
    /// It was not read yet, or stands where we do not read: in a ledger. It may be anywhere.
    Unknown,
}

/// The last ledger of the list, of which the list says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// It was not read yet, or cannot be.
    Unknown,
    /// It is open: the broker died, or it is written now.
    Open {
        /// Nothing was written in the metadata since then, by the store's clock.
        since: Millis,
    },
    /// It is closed, since then, with so much in it.
    Closed {
        /// Entries.
        entries: u64,
        /// Bytes.
        length: u64,
        /// Since when, by the store's clock.
        since: Millis,
    },
}

/// What is known of a topic.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Oldest first.
    pub list: &'a [ListedLedger],
    /// What its last one is.
    pub last: Last,
    /// The slowest subscription.
    pub slowest: Slowest,
    /// What is kept.
    pub policy: Policy,
    /// Now.
    pub now: Millis,
}

/// Why something can be given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is older than retention.
    Age,
    /// The list is larger than retention.
    Size,
    /// It is older than retention, and the time of life of its messages is over.
    Expiry,
    /// It is older than retention, and whether a subscription needs it is not known.
    Perhaps,
    /// It is the last ledger, whose time begins with the visit.
    Clock,
}

impl Why {
    /// For people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Age => "older than retention",
            Why::Size => "over the size of retention",
            Why::Expiry => "older than retention and the time of life of its messages",
            Why::Perhaps => "older than retention, if no subscription needs it",
            Why::Clock => "its last ledger begins to age with a visit, and goes with a second one",
        }
    }
}

/// What a visit can give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gain {
    /// Bytes of one copy that can go with this visit.
    pub bytes: u64,
    /// In so many ledgers.
    pub ledgers: u64,
    /// Bytes of the last ledger, which can go with a second visit one retention later; none if there are none, or if
    /// that is not known.
    pub later: Option<u64>,
    /// The last ledger begins to age.
    pub starts: bool,
    /// Why, of the first one.
    pub why: Why,
    /// Messages older than so many seconds are to be expired first.
    pub expire: Option<u64>,
}

/// What to do with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, and why.
    Leave(&'static str),
    /// A visit.
    Visit(Gain),
}

/// A list that is one empty ledger.
pub const EMPTY: &str = "there is nothing in it";
/// Retention without limits.
pub const FOR_EVER: &str = "it keeps everything for ever";
/// Nothing beyond retention.
pub const YOUNG: &str = "nothing in it is beyond retention";
/// Not acknowledged.
pub const NEEDED: &str = "a subscription has not acknowledged it";
/// Below the threshold.
pub const LITTLE: &str = "a visit would give back too little";

/// Says what a visit would give back. What is not known counts in favour of a visit, so that the answer can be asked for
/// again with more facts.
#[must_use]
pub fn judge(facts: &Facts<'_>, min_gain: u64) -> Verdict {
    let Some((last, older)) = facts.list.split_last() else {
        return Verdict::Leave(EMPTY);
    };
    if facts.policy.time.is_none() && facts.policy.size.is_none() {
        return Verdict::Leave(FOR_EVER);
    }
    let last = as_loaded(last, facts);
    if older.is_empty() && last.size == 0 && !last.unknown {
        return Verdict::Leave(EMPTY);
    }
    let mut walk = Walk::new(facts, older, last);
    let mut stopped = older.iter().find_map(|ledger| walk.take(ledger).err());
    if stopped.is_none() {
        stopped = walk.last(last).err();
    }
    let gain = Gain {
        bytes: walk.bytes,
        ledgers: walk.ledgers,
        later: walk.later,
        starts: walk.starts,
        why: match (walk.why, stopped) {
            (Some(why), _) => why,
            (None, _) if walk.starts => Why::Clock,
            (None, why) => return Verdict::Leave(why.unwrap_or(EMPTY)),
        },
        expire: walk.expire.then(|| seconds(facts.policy.ttl)),
    };
    // What is in it is known after the visit.
    let unknown = gain.starts && gain.later.is_none();
    let all = gain.bytes.saturating_add(gain.later.unwrap_or(0));
    if !unknown && all < min_gain.max(1) {
        return Verdict::Leave(LITTLE);
    }
    Verdict::Visit(gain)
}

fn seconds(ttl: Option<Millis>) -> u64 {
    u64::try_from(ttl.unwrap_or(0) / 1000).unwrap_or(0)
}

/// The last ledger as it stands in the list once the topic is loaded.
#[derive(Debug, Clone, Copy)]
struct Tail {
    id: u64,
    entries: u64,
    size: u64,
    since: Millis,
    /// Whether there is anything in it.
    unknown: bool,
}

fn as_loaded(last: &ListedLedger, facts: &Facts<'_>) -> Tail {
    let (entries, size, since, unknown) = match facts.last {
        Last::Unknown => (last.entries, last.size, 0, true),
        Last::Open { since } => (last.entries, last.size, since, true),
        Last::Closed {
            entries,
            length,
            since,
        } => (entries, length, since, false),
    };
    Tail {
        id: last.id,
        entries,
        size,
        since,
        unknown,
    }
}

/// From the oldest ledger on, as the broker does it.
struct Walk<'a> {
    facts: &'a Facts<'a>,
    /// Ledgers before this one are acknowledged by all; none if it is not known.
    before: Option<u64>,
    /// Bytes of the whole list, and of what is taken of it.
    total: u64,
    taken: u64,
    bytes: u64,
    ledgers: u64,
    why: Option<Why>,
    expire: bool,
    later: Option<u64>,
    starts: bool,
}

impl<'a> Walk<'a> {
    fn new(facts: &'a Facts<'a>, older: &[ListedLedger], last: Tail) -> Walk<'a> {
        let entries_of = |id| {
            let listed = older.iter().find(|ledger| ledger.id == id);
            let listed = listed.map(|ledger| ledger.entries);
            listed.or((id == last.id && !last.unknown).then_some(last.entries))
        };
        let before = match facts.slowest {
            Slowest::None => Some(u64::MAX),
            Slowest::Unknown => None,
            Slowest::At(at) => {
                let done = at.entry.is_some_and(|entry| {
                    entries_of(at.ledger).is_some_and(|entries| entry.saturating_add(1) == entries)
                });
                Some(at.ledger.saturating_add(u64::from(done)))
            }
        };
        let sizes = older.iter().map(|ledger| ledger.size);
        Walk {
            facts,
            before,
            total: sizes.fold(last.size, u64::saturating_add),
            taken: 0,
            bytes: 0,
            ledgers: 0,
            why: None,
            expire: false,
            later: None,
            starts: false,
        }
    }

    /// Whether a ledger that was closed then can go, and why.
    fn can_go(&mut self, id: u64, closed: Option<Millis>, size: u64) -> Result<Why, &'static str> {
        let Facts { policy, now, .. } = *self.facts;
        self.taken = self.taken.saturating_add(size);
        let age = closed.map_or(0, |closed| now.saturating_sub(closed));
        let is_old = policy.time.is_some_and(|time| time < age);
        let rest = self.total.saturating_sub(self.taken);
        let is_over = policy.size.is_some_and(|size| size <= rest);
        if !is_old && !is_over {
            return Err(YOUNG);
        }
        let is_free = self.before.is_some_and(|before| id < before);
        if is_free {
            return Ok(if is_old { Why::Age } else { Why::Size });
        }
        // The proposal's rule: older than both together goes whatever the subscriptions say.
        let both = |ttl| policy.time.unwrap_or(0).saturating_add(ttl);
        if is_old && policy.ttl.is_some_and(|ttl| both(ttl) < age) {
            return Ok(Why::Expiry);
        }
        match self.before {
            None if is_old => Ok(Why::Perhaps),
            _ => Err(NEEDED),
        }
    }

    fn take(&mut self, ledger: &ListedLedger) -> Result<(), &'static str> {
        let why = self.can_go(ledger.id, ledger.closed_at, ledger.size)?;
        self.add(
            why,
            if ledger.gone_to_storage {
                0
            } else {
                ledger.size
            },
        );
        Ok(())
    }

    fn add(&mut self, why: Why, bytes: u64) {
        self.why.get_or_insert(why);
        self.expire |= why == Why::Expiry;
        self.bytes = self.bytes.saturating_add(bytes);
        self.ledgers += 1;
    }

    /// The last ledger is an ordinary one once the topic is loaded, closed just then.
    fn last(&mut self, last: Tail) -> Result<(), &'static str> {
        if last.size == 0 && !last.unknown {
            return Ok(());
        }
        let why = self.can_go(last.id, Some(last.since), last.size)?;
        let at_once = match self.facts.policy.time {
            _ if last.unknown => false,
            Some(0) => true,
            _ => why == Why::Size,
        };
        if at_once {
            self.add(why, last.size);
        } else {
            self.starts = true;
            self.expire |= why == Why::Expiry;
            self.later = (!last.unknown).then_some(last.size);
        }
        Ok(())
    }
}

/// The visit before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// When it was.
    pub at: Millis,
    /// The last visits, so many in a row, gave nothing back.
    pub fruitless: u32,
    /// The last ledger began to age with it.
    pub started: bool,
}

/// Whether it is time for another visit. The second of a pair comes when retention is over, whatever the time of rest.
#[must_use]
pub fn is_due(past: Option<Past>, gain: &Gain, now: Millis, rest: Millis) -> bool {
    let Some(past) = past else { return true };
    if past.started && 0 < gain.ledgers {
        return true;
    }
    let rest = rest.saturating_mul(1 << past.fruitless.min(MOST_DOUBLINGS));
    rest <= now.saturating_sub(past.at)
}

#[cfg(test)]
#[path = "trim_tests.rs"]
mod tests;
