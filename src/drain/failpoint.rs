//! Every step of a worker at which its process can die with something done and something not. See the leaf `failpoint`.

use crate::failpoint::Step;

/// What happens at them.
pub type Failpoints = crate::failpoint::Failpoints<Failpoint>;

/// The steps, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failpoint {
    /// The ledger was read and targets were chosen; nothing is written.
    Chosen,
    /// The lock is held, and the choice is in the store.
    LockHeld,
    /// Some entries are on the target.
    PartCopied,
    /// All are.
    Copied,
    /// The target says that it has them.
    Verified,
    /// The transaction is about to be sent.
    BeforeChange,
    /// It was answered.
    AfterChange,
    /// Metadata and targets were seen to be as they should.
    Checked,
    /// The task is gone or says what it waits for, and the lock is given back.
    Done,
}

impl Failpoint {
    /// All, in their order.
    pub const ALL: [Failpoint; 9] = [
        Failpoint::Chosen,
        Failpoint::LockHeld,
        Failpoint::PartCopied,
        Failpoint::Copied,
        Failpoint::Verified,
        Failpoint::BeforeChange,
        Failpoint::AfterChange,
        Failpoint::Checked,
        Failpoint::Done,
    ];

    /// As in `DIRKEEPER_FAIL_AT`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Failpoint::Chosen => "drain-chosen",
            Failpoint::LockHeld => "drain-lock-held",
            Failpoint::PartCopied => "drain-part-copied",
            Failpoint::Copied => "drain-copied",
            Failpoint::Verified => "drain-verified",
            Failpoint::BeforeChange => "drain-before-change",
            Failpoint::AfterChange => "drain-after-change",
            Failpoint::Checked => "drain-checked",
            Failpoint::Done => "drain-done",
        }
    }
}

impl Step for Failpoint {
    fn name(self) -> &'static str {
        Failpoint::name(self)
    }
}
