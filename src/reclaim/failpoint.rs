//! Every step of marking, sweeping and undoing at which the process can die with something done and something not. See
//! the leaf `failpoint`.

use crate::failpoint::Step;

/// What happens at them.
pub type Failpoints = crate::failpoint::Failpoints<Failpoint>;

/// The steps, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failpoint {
    /// The nodes of ledgers to be marked were read.
    MarkRead,
    /// Some marks are on the disk.
    MarkDurable,
    /// A mark was taken back, on the disk.
    MarkDropped,
    /// Everything around a ledger was read once more, and speaks for its deletion.
    Verified,
    /// That it is being deleted is on the disk.
    DeletingDurable,
    /// The transaction is about to be sent.
    BeforeDelete,
    /// It was answered.
    AfterDelete,
    /// An empty folder above the ledger is gone.
    FolderRemoved,
    /// The ledger was seen to be gone.
    AbsenceSeen,
    /// That it is deleted is on the disk.
    DeletedDurable,
    /// An undo found nothing in its way.
    UndoChecked,
    /// The node is there again.
    UndoCreated,
    /// That it is is on the disk.
    UndoDurable,
}

impl Failpoint {
    /// All, in their order.
    pub const ALL: [Failpoint; 13] = [
        Failpoint::MarkRead,
        Failpoint::MarkDurable,
        Failpoint::MarkDropped,
        Failpoint::Verified,
        Failpoint::DeletingDurable,
        Failpoint::BeforeDelete,
        Failpoint::AfterDelete,
        Failpoint::FolderRemoved,
        Failpoint::AbsenceSeen,
        Failpoint::DeletedDurable,
        Failpoint::UndoChecked,
        Failpoint::UndoCreated,
        Failpoint::UndoDurable,
    ];

    /// As in `DIRKEEPER_FAIL_AT`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Failpoint::MarkRead => "mark-read",
            Failpoint::MarkDurable => "mark-durable",
            Failpoint::MarkDropped => "mark-dropped",
            Failpoint::Verified => "verified",
            Failpoint::DeletingDurable => "deleting-durable",
            Failpoint::BeforeDelete => "before-delete",
            Failpoint::AfterDelete => "after-delete",
            Failpoint::FolderRemoved => "folder-removed",
            Failpoint::AbsenceSeen => "absence-seen",
            Failpoint::DeletedDurable => "deleted-durable",
            Failpoint::UndoChecked => "undo-checked",
            Failpoint::UndoCreated => "undo-created",
            Failpoint::UndoDurable => "undo-durable",
        }
    }
}

impl Step for Failpoint {
    fn name(self) -> &'static str {
        Failpoint::name(self)
    }
}
