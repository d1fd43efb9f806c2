//! The words for where a directory stands: values of the three axes, the one-word status made of
//! them, causes, severities, evidence.

use std::fmt;

use super::moment::{Moment, Timestamp};

/// The axes on which a directory is judged. Independent; combined only for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Bytes and inodes.
    Space,
    /// Can it be used at all.
    Access,
    /// How fast does it answer.
    Latency,
}

impl Axis {
    /// The word used in events and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Axis::Space => "space",
            Axis::Access => "access",
            Axis::Latency => "latency",
        }
    }
}

/// Space axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum SpaceStatus {
    /// Not seen yet, or the numbers make no sense.
    #[default]
    Unknown,
    /// Below warn.
    Ok,
    /// Over warn.
    AlmostFull,
    /// Over full, or the file system refused a write for want of space.
    Full,
}

impl SpaceStatus {
    /// The word used in events and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SpaceStatus::Unknown => "unknown",
            SpaceStatus::Ok => "ok",
            SpaceStatus::AlmostFull => "almostFull",
            SpaceStatus::Full => "full",
        }
    }
}

/// Access axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum AccessStatus {
    /// Not seen yet, or the prober cannot say.
    #[default]
    Unknown,
    /// Works.
    Ok,
    /// Reads only.
    ReadOnly,
    /// An operation has been running for longer than its deadline.
    Hung,
    /// Errors, proven.
    Failed,
    /// The mount or the directory is not there any more.
    Vanished,
    /// Another disk or directory is in its place.
    Replaced,
}

impl AccessStatus {
    /// The word used in events and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AccessStatus::Unknown => "unknown",
            AccessStatus::Ok => "ok",
            AccessStatus::ReadOnly => "readOnly",
            AccessStatus::Hung => "hung",
            AccessStatus::Failed => "failed",
            AccessStatus::Vanished => "vanished",
            AccessStatus::Replaced => "replaced",
        }
    }

    /// True for the values in which a bookie cannot write.
    #[must_use]
    pub const fn is_unusable(self) -> bool {
        !matches!(self, AccessStatus::Unknown | AccessStatus::Ok)
    }
}

/// Latency axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum LatencyStatus {
    /// Not enough probes yet.
    #[default]
    Unknown,
    /// Within the limit.
    Normal,
    /// Over the limit repeatedly, or an outlier among sibling disks.
    Slow,
}

impl LatencyStatus {
    /// The word used in events and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            LatencyStatus::Unknown => "unknown",
            LatencyStatus::Normal => "normal",
            LatencyStatus::Slow => "slow",
        }
    }
}

/// The one-word status, for display. Declared from best to worst, so that `max` is the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// All axes are fine.
    Writable,
    /// Over warn.
    AlmostFull,
    /// Over the latency limit, or an outlier among sibling disks.
    Slow,
    /// Not known.
    Unknown,
    /// Over full.
    Full,
    /// Reads only.
    ReadOnly,
    /// Does not answer.
    Hung,
    /// Errors.
    Failed,
    /// Gone.
    Vanished,
    /// Another disk.
    Replaced,
}

impl Status {
    /// All statuses, best first.
    pub const ALL: [Status; 10] = [
        Status::Writable,
        Status::AlmostFull,
        Status::Slow,
        Status::Unknown,
        Status::Full,
        Status::ReadOnly,
        Status::Hung,
        Status::Failed,
        Status::Vanished,
        Status::Replaced,
    ];

    /// The word used in JSON and in the `status` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Status::Writable => "writable",
            Status::AlmostFull => "almostFull",
            Status::Slow => "slow",
            Status::Unknown => "unknown",
            Status::Full => "full",
            Status::ReadOnly => "readOnly",
            Status::Hung => "hung",
            Status::Failed => "failed",
            Status::Vanished => "vanished",
            Status::Replaced => "replaced",
        }
    }

    /// The status that the three axes make together: the worst of what each of them says.
    #[must_use]
    pub fn of(space: SpaceStatus, access: AccessStatus, latency: LatencyStatus) -> Status {
        let space = match space {
            SpaceStatus::Unknown => Status::Unknown,
            SpaceStatus::Ok => Status::Writable,
            SpaceStatus::AlmostFull => Status::AlmostFull,
            SpaceStatus::Full => Status::Full,
        };
        let access = match access {
            AccessStatus::Unknown => Status::Unknown,
            AccessStatus::Ok => Status::Writable,
            AccessStatus::ReadOnly => Status::ReadOnly,
            AccessStatus::Hung => Status::Hung,
            AccessStatus::Failed => Status::Failed,
            AccessStatus::Vanished => Status::Vanished,
            AccessStatus::Replaced => Status::Replaced,
        };
        // Too few probes to judge latency is no reason to doubt a directory that works.
        let latency = match latency {
            LatencyStatus::Unknown | LatencyStatus::Normal => Status::Writable,
            LatencyStatus::Slow => Status::Slow,
        };
        space.max(access).max(latency)
    }

    /// How much it matters.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Status::Writable => Severity::Ok,
            Status::AlmostFull | Status::Slow => Severity::Warning,
            Status::Unknown => Severity::Unknown,
            _ => Severity::Critical,
        }
    }
}

/// How much a status or an event matters. Declared from best to worst; unknown is worse than a
/// warning and better than a proven fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing to do.
    Ok,
    /// Worth a look in daylight.
    Warning,
    /// Nobody can say.
    Unknown,
    /// Needs somebody now.
    Critical,
}

impl Severity {
    /// The word used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Unknown => "unknown",
            Severity::Critical => "critical",
        }
    }
}

/// Why a status is what it is. A closed list; free text goes into the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Bytes over a threshold, or ENOSPC.
    Bytes,
    /// Inodes over a threshold.
    Inodes,
    /// EDQUOT.
    Quota,
    /// EACCES, EPERM.
    Permission,
    /// EIO and other errors of the device.
    Io,
    /// Other bytes came back than were written.
    Corrupt,
    /// ENOTCONN, ENODEV, ESTALE: nobody serves the file system any more.
    Disconnected,
    /// A file is where the directory was.
    NotADirectory,
    /// The directory or its mount is not there.
    Missing,
    /// Another device, file system or bookie's cookie is there.
    WrongDevice,
    /// An operation is overdue.
    Timeout,
    /// The kernel itself reported an error of the file system.
    KernelError,
    /// Mounted read-only.
    ReadOnlyMount,
    /// The file system says that it has no size, or numbers that cannot be.
    NoSize,
    /// The prober could not do its work.
    Prober,
    /// What the bookie says of itself, or does not.
    Bookie,
    /// How the cluster stands.
    Cluster,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 17] = [
        Cause::Bytes,
        Cause::Inodes,
        Cause::Quota,
        Cause::Permission,
        Cause::Io,
        Cause::Corrupt,
        Cause::Disconnected,
        Cause::NotADirectory,
        Cause::Missing,
        Cause::WrongDevice,
        Cause::Timeout,
        Cause::KernelError,
        Cause::ReadOnlyMount,
        Cause::NoSize,
        Cause::Prober,
        Cause::Bookie,
        Cause::Cluster,
    ];

    /// The word used in JSON and in the `cause` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Bytes => "bytes",
            Cause::Inodes => "inodes",
            Cause::Quota => "quota",
            Cause::Permission => "permission",
            Cause::Io => "io",
            Cause::Corrupt => "corrupt",
            Cause::Disconnected => "disconnected",
            Cause::NotADirectory => "notADirectory",
            Cause::Missing => "missing",
            Cause::WrongDevice => "wrongDevice",
            Cause::Timeout => "timeout",
            Cause::KernelError => "kernelError",
            Cause::ReadOnlyMount => "readOnlyMount",
            Cause::NoSize => "noSize",
            Cause::Prober => "prober",
            Cause::Bookie => "bookie",
            Cause::Cluster => "cluster",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why an axis has its value: the closed cause, the operation and error number behind it, and a
/// sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Closed cause.
    pub cause: Cause,
    /// Operation that showed it.
    pub operation: super::observation::Operation,
    /// Error number of the kernel, if there was one.
    pub errno: Option<i32>,
    /// The numbers compared or the error text, with the path.
    pub message: String,
}

/// One line of proof behind a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// When it was first seen.
    pub at: Timestamp,
    /// What was seen.
    pub text: String,
}

/// A value with the moment since when it has been so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since<T> {
    /// The value.
    pub value: T,
    /// Since when.
    pub since: Moment,
}
