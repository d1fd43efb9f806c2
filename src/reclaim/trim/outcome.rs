//! What a pass says of itself: how far it is, and what it came to for each topic.

use std::collections::BTreeMap;

use super::super::plan::Millis;
use super::super::plan::trim::Gain;
use crate::cluster::broker::TopicName;

/// How far a pass is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrimProgress {
    /// Topics seen in the metadata, those of the pass that this one goes on with counted in.
    pub topics: u64,
    /// Of them the ones that were seen by that pass.
    pub before: u64,
    /// Topics that there are, as far as was asked for; none until that is known.
    pub all: Option<u64>,
    /// Those that seem worth a visit.
    pub candidates: u64,
    /// Candidates that are dealt with.
    pub done: u64,
    /// Those that a broker was asked to trim.
    pub visited: u64,
    /// Ledgers that lists have less.
    pub ledgers: u64,
    /// Bytes of one copy given back.
    pub gained: u64,
    /// Why it goes slower than it was told to, if it does.
    pub slowed: Option<String>,
}

impl TrimProgress {
    pub(super) fn add(&mut self, result: &TopicTrim) {
        self.done += 1;
        self.visited += u64::from(matches!(result.done, Done::Visited(_)));
        self.ledgers += result.ledgers;
        self.gained = self.gained.saturating_add(result.gained);
    }
}

/// What was done with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It would be visited: a dry run.
    Found,
    /// Nothing, and why: it turned out when it was its turn.
    Left(&'static str),
    /// The broker refused to trim it, and did not load it. The obstacle says why.
    Refused,
    /// It was visited.
    Visited(After),
    /// It was still loaded because of a visit before that was cut off.
    CaughtUp(After),
}

/// How a topic was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Unloaded again.
    Unloaded,
    /// Loaded: somebody uses it by now.
    InUse,
    /// Not there any more.
    Gone,
    /// Perhaps still loaded, see the obstacle. The next pass unloads it. A broker with
    /// `brokerDeleteInactiveTopicsEnabled` deletes it meanwhile if it has no subscriptions.
    StillLoaded,
}

impl Done {
    /// For people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Done::Found => "would be visited",
            Done::Left(why) => why,
            Done::Refused => "refused by its broker",
            Done::Visited(After::Unloaded) => "trimmed and unloaded",
            Done::Visited(After::InUse) => "trimmed, and in use by now",
            Done::Visited(After::Gone) => "gone meanwhile",
            Done::Visited(After::StillLoaded) => "visited, and not unloaded",
            Done::CaughtUp(After::Unloaded) => "unloaded, after a pass that was cut off",
            Done::CaughtUp(After::InUse) => "in use, after a pass that was cut off",
            Done::CaughtUp(After::Gone) => "gone, after a pass that was cut off",
            Done::CaughtUp(After::StillLoaded) => "not unloaded, after a pass that was cut off",
        }
    }
}

/// What a pass came to for one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTrim {
    /// Which.
    pub topic: TopicName,
    /// What a visit seemed worth; none for one that was left loaded before.
    pub found: Option<Gain>,
    /// What was done.
    pub done: Done,
    /// Bytes of one copy that its list has less.
    pub gained: u64,
    /// Ledgers that its list has less.
    pub ledgers: u64,
    /// What was in the way, in one sentence.
    pub obstacle: Option<String>,
}

/// What a pass came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrimPass {
    /// When it began.
    pub began: Millis,
    /// And ended.
    pub ended: Millis,
    /// It went on with a pass that was cut off.
    pub resumed: bool,
    /// What was seen and done.
    pub counts: TrimProgress,
    /// Topics that need no visit, by the reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Topics whose node cannot be understood.
    pub unreadable: Vec<String>,
    /// Results beyond the most that are kept; they are counted.
    pub left_out: u64,
    /// What was done with each candidate, the largest first, after those that were left loaded before.
    pub results: Vec<TopicTrim>,
    /// How much slower it went than it was told to at worst, and why; none if it did not.
    pub slowed: Option<String>,
    /// Why it ended before all candidates were dealt with, if it did.
    pub stopped: Option<String>,
}
