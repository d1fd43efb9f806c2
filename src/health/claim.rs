//! Claims: who holds the server in a mode, and why. Every read-only has an owner and a reason, and only
//! its owner ends it (BookKeeper #4225: one mode without an owner lets one party undo another's).

use super::moment::Timestamp;
use super::policy::Mode;

/// Who holds a mode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// This agent, for its disks.
    Agent,
    /// A person, by `mode set`.
    Operator,
    /// A drain job, by its id.
    Drain(String),
    /// The bookie itself, or somebody who told it without us: it is in a mode that no claim explains.
    Bookie,
}

impl Owner {
    /// The word used in JSON and labels; a drain's id is left out.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Owner::Agent => "agent",
            Owner::Operator => "operator",
            Owner::Drain(_) => "drain",
            Owner::Bookie => "bookie",
        }
    }
}

/// One party's hold on the mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who.
    pub owner: Owner,
    /// The mode it holds.
    pub mode: Mode,
    /// Why, in words.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// The server was not yet seen in that mode since the claim was made.
    pub pending: bool,
    /// It was made although too few bookies stayed writable (a journal emergency).
    pub below_floor: bool,
}

/// What stands, as the mode's keeper says it after each change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kept {
    /// Claims of this agent, its operator, and drain jobs.
    pub claims: Vec<Claim>,
    /// Why a wanted change is not made now.
    pub held: Option<String>,
    /// Something is in its way; otherwise it only waits for its time.
    pub blocked: bool,
    /// The disks' wish is followed, not only said.
    pub enforces: bool,
    /// What keeps the claims from being known or written.
    pub problem: Option<String>,
}

impl Kept {
    /// `observe` or `enforce`.
    #[must_use]
    pub const fn control(&self) -> &'static str {
        if self.enforces { "enforce" } else { "observe" }
    }
}
