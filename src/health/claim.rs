//! Claims: who holds the server in a mode, and why. Every read-only has an owner and a reason, and only
//! its owner ends it (BookKeeper #4225: one mode without an owner lets one party undo another's).

use std::fmt;

use super::dir::steers;
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
    /// Every word of [`Owner::name`].
    pub const NAMES: [&str; 4] = ["agent", "operator", "drain", "bookie"];

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

/// What a person, or a program with the token, asks about the server's mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModeOrder {
    /// Hold it in this mode, as the operator.
    Set {
        /// The mode.
        mode: Mode,
        /// Why; passes [`check_reason`].
        reason: String,
    },
    /// End the operator's claim.
    Release,
    /// May the server end now? A refusal has one reason a line.
    MayStop {
        /// A yes is reserved for it: for some minutes others count it as gone.
        reserve: bool,
    },
}

/// Longest reason: what still reads as one sentence in a table, an alert and a claim in ZooKeeper.
pub const REASON_LIMIT: usize = 500;

/// Why a reason is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadReason {
    /// Nothing is said.
    Empty,
    /// So many characters.
    Long(usize),
    /// It would steer the terminal of whoever reads it.
    Steers,
}

impl fmt::Display for BadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadReason::Empty => f.write_str("the reason is empty: say why, others will read it"),
            BadReason::Long(length) => write!(
                f,
                "the reason has {length} characters, and {REASON_LIMIT} is the most"
            ),
            BadReason::Steers => {
                f.write_str("the reason holds control characters: write it in one line")
            }
        }
    }
}

impl std::error::Error for BadReason {}

/// A reason without the blanks around it.
///
/// # Errors
/// It is empty, too long, or holds control characters.
pub fn check_reason(reason: &str) -> Result<&str, BadReason> {
    let reason = reason.trim();
    let length = reason.chars().count();
    if length == 0 {
        return Err(BadReason::Empty);
    }
    if REASON_LIMIT < length {
        return Err(BadReason::Long(length));
    }
    if reason.contains(steers) {
        return Err(BadReason::Steers);
    }
    Ok(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_that_says_something() {
        assert_eq!(check_reason(" disk swap \n"), Ok("disk swap"));
        let longest = "ü".repeat(REASON_LIMIT);
        assert_eq!(check_reason(&longest), Ok(longest.as_str()));
        assert_eq!(
            check_reason(&(longest + "x")),
            Err(BadReason::Long(REASON_LIMIT + 1))
        );
        for empty in ["", " ", "\t\n"] {
            assert_eq!(check_reason(empty), Err(BadReason::Empty));
        }
        for steering in ["two\nlines", "\u{1b}[31mred", "a\0b", "\u{202e}back"] {
            assert_eq!(check_reason(steering), Err(BadReason::Steers));
        }
    }

    #[test]
    fn each_owner_has_a_name() {
        let owners = [
            Owner::Agent,
            Owner::Operator,
            Owner::Drain("7".to_owned()),
            Owner::Bookie,
        ];
        assert_eq!(owners.map(|owner| owner.name()), Owner::NAMES);
    }
}
