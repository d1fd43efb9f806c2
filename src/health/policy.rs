//! Which mode the disks allow: read-only or writable, recovery writes or not. Recomputed from all
//! directories of all roles together, never from an edge (BookKeeper's W1, W4, W8, W20).

use std::time::Duration;

use super::dir::{Role, path_text};
use super::judge;
use super::node::DirFacts;
use super::restart::BookieNeeds;
use super::status::{AccessStatus, SpaceStatus};

/// Mode of a bookie or of a server that embeds the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Takes reads and writes.
    Writable,
    /// Takes reads only.
    ReadOnly,
}

impl Mode {
    /// The word used in JSON and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Writable => "writable",
            Mode::ReadOnly => "readOnly",
        }
    }
}

/// Room for recovery (high-priority) writes in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HighPriorityRoom {
    /// Bytes available beyond the reserve; 0 when there are fewer.
    pub bytes: u64,
    /// More is available than the reserve asks for.
    pub enough: bool,
}

impl HighPriorityRoom {
    /// Room with so many bytes available and such a reserve. BookKeeper asks for strictly more
    /// than the reserve (`LedgerDirsMonitor`, `minUsableSizeForHighPriorityWrites`).
    #[must_use]
    pub const fn of(available: u64, reserve: u64) -> HighPriorityRoom {
        HighPriorityRoom {
            bytes: available.saturating_sub(reserve),
            enough: available > reserve,
        }
    }
}

/// How directories count, and how often a lasting bad status is repeated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// One full directory asks for read-only; otherwise only all of one role do.
    pub any_full: bool,
    /// A bad status that lasts is told again after this time; zero turns reminders off.
    pub reminder_interval: Duration,
    /// What the bookie needs to start; none without its file.
    pub bookie: Option<BookieNeeds>,
    /// There is a bookie: a journal with less room than it needs next asks for read-only. Other servers'
    /// journals may be of any size.
    pub journal_emergency: bool,
    /// How the bookie watches itself.
    pub beside: judge::Settings,
    /// Only some of the node's directories are looked at: what needs all of them is not judged.
    pub partial: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            any_full: true,
            reminder_interval: Duration::from_secs(3600),
            bookie: None,
            journal_emergency: false,
            beside: judge::Settings::default(),
            partial: false,
        }
    }
}

/// The mode that the directories allow, and why. None while nothing asks for read-only and not
/// everything is known: unknown never acts.
#[must_use]
pub fn wanted_mode(dirs: &[DirFacts<'_>], policy: Policy) -> Option<(Mode, Option<String>)> {
    let reason = unusable(dirs)
        .or_else(|| emergency(dirs).filter(|_| policy.journal_emergency))
        .or_else(|| all_full(dirs))
        .or_else(|| any_full(dirs).filter(|_| policy.any_full));
    if reason.is_some() {
        return Some((Mode::ReadOnly, reason));
    }
    let known = |dir: &DirFacts<'_>| {
        dir.space != SpaceStatus::Unknown && dir.access != AccessStatus::Unknown
    };
    (!dirs.is_empty() && dirs.iter().all(known)).then_some((Mode::Writable, None))
}

/// Every role has a directory that works and has room beyond the reserve; false while unknown
/// (W35: BookKeeper starts with true).
#[must_use]
pub fn high_priority_writes(dirs: &[DirFacts<'_>]) -> bool {
    Role::ALL.into_iter().all(|role| {
        let mut of_role = dirs.iter().filter(|dir| dir.role == role).peekable();
        of_role.peek().is_none() || of_role.any(|dir| dir.access == AccessStatus::Ok && dir.room)
    }) && !dirs.is_empty()
}

fn unusable(dirs: &[DirFacts<'_>]) -> Option<String> {
    let dir = dirs.iter().find(|dir| dir.access.is_unusable())?;
    Some(format!("{} is {}", path_text(dir.path), dir.access.name()))
}

/// Bytes, not percent: a bookie whose journal cannot grow ends at once (#1349, #3150).
fn emergency(dirs: &[DirFacts<'_>]) -> Option<String> {
    let dir = dirs.iter().find(|dir| dir.emergency)?;
    let path = path_text(dir.path);
    Some(format!("{path} has less room than the journal needs next"))
}

fn any_full(dirs: &[DirFacts<'_>]) -> Option<String> {
    let dir = dirs.iter().find(|dir| dir.space == SpaceStatus::Full)?;
    Some(format!("{} is full", path_text(dir.path)))
}

fn all_full(dirs: &[DirFacts<'_>]) -> Option<String> {
    let role = Role::ALL.into_iter().find(|role| {
        let mut of_role = dirs.iter().filter(|dir| dir.role == *role).peekable();
        of_role.peek().is_some() && of_role.all(|dir| dir.space == SpaceStatus::Full)
    })?;
    Some(format!("every {} directory is full", role.name()))
}
