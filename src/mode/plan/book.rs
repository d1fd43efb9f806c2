//! The book of claims on one bookie: what this agent and its operator hold. Its revision rises with
//! each change, so that of two copies (the state store's and ZooKeeper's) the newer one is known.

use crate::health::claim::Claim;
use crate::health::policy::Mode;

/// What this agent and its operator hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Book {
    /// Rises with each change; 0 when nothing was ever written.
    pub revision: u64,
    /// Held for the disks.
    pub agent: Option<Claim>,
    /// Held by `mode set`.
    pub operator: Option<Claim>,
    /// The operator has let go, and the server was not yet told.
    pub releasing: bool,
}

impl Book {
    /// Of two copies the one that was written last. A copy that is lost has revision 0.
    #[must_use]
    pub fn newer(self, other: Book) -> Book {
        if self.revision < other.revision {
            other
        } else {
            self
        }
    }

    /// Both say the same. Whether a read-only was seen already is not worth a revision, so it may differ.
    #[must_use]
    pub fn says_as(&self, other: &Book) -> bool {
        let settled = |book: &Book| {
            let mut book = book.clone();
            let claims = [&mut book.agent, &mut book.operator];
            for claim in claims.into_iter().flatten() {
                claim.pending &= claim.mode != Mode::ReadOnly;
            }
            book
        };
        settled(self) == settled(other)
    }

    /// The operator's claim as long as it stands.
    #[must_use]
    pub fn order(&self) -> Option<&Claim> {
        self.operator.as_ref().filter(|_| !self.releasing)
    }

    /// What stands in it, for people.
    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.operator.iter().chain(&self.agent)
    }

    /// A read-only that we began and have not ended.
    #[must_use]
    pub fn holds_read_only(&self) -> bool {
        self.claims().any(|claim| claim.mode == Mode::ReadOnly)
    }
}
