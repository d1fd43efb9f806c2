//! Every step of marking, sweeping and undoing at which the process can die with something done and something not. Tests
//! have it die at each of them, in the process and, by `DIRKEEPER_FAIL_AT` in builds for debugging, for real.

use std::fmt;
use std::sync::Arc;

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

/// What happens at the steps: nothing, unless somebody wants to see the process die.
#[derive(Clone, Default)]
pub struct Failpoints {
    dies: Option<Arc<dyn Fn(Failpoint) -> bool + Send + Sync>>,
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Failpoints({})", self.dies.is_some())
    }
}

impl Failpoints {
    /// Asks at each step. Where the answer is yes, the work never goes on: whoever asked drops it.
    #[must_use]
    pub fn new(dies: impl Fn(Failpoint) -> bool + Send + Sync + 'static) -> Failpoints {
        Failpoints {
            dies: Some(Arc::new(dies)),
        }
    }

    /// A step is reached.
    pub(super) async fn reach(&self, point: Failpoint) {
        #[cfg(debug_assertions)]
        if std::env::var_os("DIRKEEPER_FAIL_AT").is_some_and(|name| name == point.name()) {
            std::process::abort();
        }
        if let Some(dies) = &self.dies
            && dies(point)
        {
            std::future::pending::<()>().await;
        }
    }
}
