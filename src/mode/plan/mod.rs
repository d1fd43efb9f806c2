//! What to do next to a server's mode. Pure and level-based: decided from what is wanted and what
//! is seen now, never from an edge, so a lost message heals at the next turn.

pub mod book;
pub mod keeper;

use crate::health::policy::Mode;

/// What is wanted, seen and owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// The mode the disks allow; none while it is not known.
    pub wanted: Option<Mode>,
    /// The mode the server is in; none while it cannot be asked.
    pub observed: Option<Mode>,
    /// The present read-only was begun by us.
    pub ours: bool,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// All is as it should be, or nothing may be done.
    Nothing,
    /// Make it read-only. Never delayed.
    Enter,
    /// Make it writable again.
    Leave,
}

/// The next step. Unknown never acts, and only a read-only of our own is ended (BookKeeper #4225:
/// one mode without an owner lets one party undo another's).
#[must_use]
pub fn next(situation: Situation) -> Step {
    match (situation.wanted, situation.observed) {
        (Some(Mode::ReadOnly), Some(Mode::Writable)) => Step::Enter,
        (Some(Mode::Writable), Some(Mode::ReadOnly)) if situation.ours => Step::Leave,
        _ => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mode::{ReadOnly, Writable};

    #[test]
    fn only_what_we_began_is_ended_and_unknown_never_acts() {
        let cases = [
            (Some(ReadOnly), Some(Writable), false, Step::Enter),
            (Some(ReadOnly), Some(ReadOnly), false, Step::Nothing),
            (Some(Writable), Some(ReadOnly), false, Step::Nothing),
            (Some(Writable), Some(ReadOnly), true, Step::Leave),
            (Some(Writable), Some(Writable), true, Step::Nothing),
            (None, Some(ReadOnly), true, Step::Nothing),
            (None, Some(Writable), true, Step::Nothing),
            (Some(ReadOnly), None, true, Step::Nothing),
            (Some(Writable), None, true, Step::Nothing),
        ];
        for (wanted, observed, ours, step) in cases {
            let situation = Situation {
                wanted,
                observed,
                ours,
            };
            assert_eq!(next(situation), step, "{situation:?}");
        }
    }
}
