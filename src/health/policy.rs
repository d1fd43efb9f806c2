//! Which mode the disks allow: read-only or writable, recovery writes or not.

use super::dir::Role;

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

/// How directories count for the wanted mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// One full directory of these roles asks for read-only; otherwise only all of them do.
    pub any_full: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Policy { any_full: true }
    }
}

/// Roles whose directories must be writable for a bookie to take writes.
pub const WRITE_ROLES: [Role; 3] = Role::ALL;
