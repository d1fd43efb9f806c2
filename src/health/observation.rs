//! What a look at a directory found, as plain facts. Produced by the prober, by scenario files and
//! by tests; judged by the axes. A fact is never a verdict: `EIO` is here, "failed" is not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::moment::Elapsed;

/// One operation of a look, in the order in which a complete look makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Reading the mount table; touches no watched file system.
    Mountinfo,
    /// Resolving the configured path and opening the directory.
    Open,
    /// Asking the file system for its space.
    Statvfs,
    /// Reading the bookie's cookie, `current/VERSION`.
    Cookie,
    /// Listing the directory for probe files left over from dead processes.
    Clean,
    /// Creating the probe file, exclusively.
    Create,
    /// Writing varied bytes into it.
    Write,
    /// `fdatasync`.
    Sync,
    /// Reading back, past the page cache where the file system can.
    Read,
    /// Comparing what was read with what was written.
    Compare,
    /// Removing the probe file.
    Unlink,
    /// Reading the bookie's own files: `lastMark`, sizes of journal files.
    BookieFiles,
    /// Making, checking or releasing the ballast file.
    Ballast,
    /// The prober itself, when it could not do its work.
    Prober,
    /// Asking the bookie or its cluster; no disk is touched.
    Bookie,
}

impl Operation {
    /// All operations in their order.
    pub const ALL: [Operation; 15] = [
        Operation::Mountinfo,
        Operation::Open,
        Operation::Statvfs,
        Operation::Cookie,
        Operation::Clean,
        Operation::Create,
        Operation::Write,
        Operation::Sync,
        Operation::Read,
        Operation::Compare,
        Operation::Unlink,
        Operation::BookieFiles,
        Operation::Ballast,
        Operation::Prober,
        Operation::Bookie,
    ];

    /// The word used in events, evidence and the `step` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Mountinfo => "mountinfo",
            Operation::Open => "open",
            Operation::Statvfs => "statvfs",
            Operation::Cookie => "cookie",
            Operation::Clean => "clean",
            Operation::Create => "create",
            Operation::Write => "write",
            Operation::Sync => "sync",
            Operation::Read => "read",
            Operation::Compare => "compare",
            Operation::Unlink => "unlink",
            Operation::BookieFiles => "bookieFiles",
            Operation::Ballast => "ballast",
            Operation::Prober => "prober",
            Operation::Bookie => "bookie",
        }
    }
}

/// Space of a file system as `statvfs` gives it, already multiplied into bytes without overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// All bytes of the file system.
    pub size: u64,
    /// Bytes that a process without privilege may still write.
    pub available: u64,
    /// All inodes; 0 where the file system has no such notion.
    pub inodes: u64,
    /// Inodes that a process without privilege may still use.
    pub inodes_free: u64,
}

/// Device number of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// What the storage under a file system is; decides the default deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Medium {
    /// Kernel says non-rotational, and it is neither virtual nor a loop device.
    SolidState,
    /// Kernel says rotational.
    Rotating,
    /// Network or user-space (FUSE) file system.
    Network,
    /// Memory (tmpfs and the like).
    Memory,
    /// Anything else, virtio and loop devices included.
    Unknown,
}

impl Medium {
    /// How long an operation may take before it counts as hung.
    #[must_use]
    pub const fn deadline(self) -> Duration {
        match self {
            Medium::SolidState | Medium::Memory => Duration::from_secs(5),
            Medium::Rotating | Medium::Unknown => Duration::from_secs(15),
            Medium::Network => Duration::from_secs(30),
        }
    }
}

/// The mount table's line for the file system that a directory is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Kernel's id of the mount.
    pub id: u64,
    /// Device number.
    pub device: Device,
    /// Path within the file system that is mounted (`/` unless it is a bind mount or subvolume).
    pub root: PathBuf,
    /// Mount point.
    pub point: PathBuf,
    /// What is mounted, e.g. `/dev/sda1`.
    pub source: String,
    /// File system type, e.g. `ext4`.
    pub fs_type: String,
    /// Mount options joined with super-block options, as the table has them.
    pub options: String,
    /// `ro` among the mount's own or the super block's options.
    pub read_only: bool,
    /// A super-block option by which the kernel says that it gave the file system up
    /// (`emergency_ro`, `shutdown`, or `ro` where no mount of it was made so).
    pub emergency: Option<String>,
    /// The storage under it.
    pub medium: Medium,
}

/// What tells one disk from another. Compared with the pin, see `identity`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// Device number; means something within one boot only.
    pub device: Option<Device>,
    /// Id of the mount on which the directory was opened (statx).
    pub mount_id: Option<u64>,
    /// `f_fsid` of statvfs.
    pub fsid: u64,
    /// File-system UUID where the system knows it without asking the disk.
    pub uuid: Option<String>,
    /// The bookie's cookie.
    pub cookie: Cookie,
    /// Where the configured path led.
    pub canonical: PathBuf,
    /// This boot, so that device numbers are compared within one boot only.
    pub boot_id: String,
}

/// What `current/VERSION` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Cookie {
    /// Not looked at in this round.
    #[default]
    NotRead,
    /// No such file: no bookie was initialised here.
    Absent,
    /// A cookie with the two fields that identify a bookie's disk.
    Present {
        /// `instanceId` of the cluster; empty in old layouts.
        instance_id: String,
        /// `bookieHost`.
        bookie_host: String,
    },
    /// There, but cannot be understood; the text says why.
    Unreadable(String),
}

/// An operation that ended with an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which operation.
    pub operation: Operation,
    /// The kernel's error number; none where there was none (wrong bytes, prober trouble).
    pub errno: Option<i32>,
    /// What the system says about it, with the path: for people, never for decisions.
    pub detail: String,
    /// The finding when it is not an errno.
    pub finding: Finding,
}

/// A finding that no error number describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Finding {
    /// The errno says it all.
    #[default]
    Errno,
    /// Other bytes came back than were written.
    WrongBytes,
    /// The path, or a part of it, has become a symbolic link or leads elsewhere.
    LeadsElsewhere,
    /// Not a directory any more.
    NotADirectory,
    /// Only our own uid is refused: the directory belongs to the bookie's user.
    OnlyUsRefused,
    /// The prober lacks descriptors, memory or the like.
    ProberTrouble,
}

/// How long each finished operation of a look took.
pub type Durations = BTreeMap<Operation, Duration>;

/// What a bookie keeps in `current/` of its directories, as far as a restart depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BookieFiles {
    /// Of a ledger directory: up to where each journal is not needed any more (`lastMark`).
    pub marks: Vec<Mark>,
    /// Of a journal directory: its newest files (`<hex>.txn`), by rising number.
    pub journals: Vec<JournalFile>,
    /// How many older journal files there are beside those.
    pub left_out: u64,
    /// What was read and makes no sense, in words; the bookie passes over it too.
    pub nonsense: Option<String>,
    /// What could not be read or listed, in words; the bookie may be able to.
    pub refused: Option<String>,
}

/// A ledger directory's `lastMark`: entries before it are in ledger storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Place of the journal in the bookie's list of journal directories; none: its only one, whose
    /// file is called `lastMark` without a number.
    pub journal: Option<u32>,
    /// Number of the journal file.
    pub file: u64,
    /// Bytes of that file that are not needed any more.
    pub offset: u64,
}

/// A journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalFile {
    /// Number in its name.
    pub id: u64,
    /// Length in bytes; of the newest one it includes what is preallocated.
    pub bytes: u64,
}

/// A finished look at one directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Look {
    /// Steps that ended well, with their durations; for a failed look those before the failure.
    pub durations: Durations,
    /// Space, if the look came that far.
    pub space: Option<Space>,
    /// Identity, if the look came that far.
    pub identity: Option<Identity>,
    /// True when the active probe (create to unlink) was part of the look.
    pub probed: bool,
    /// The bookie's own files, in full looks at a directory that has them.
    pub bookie_files: Option<BookieFiles>,
    /// Bytes that our ballast file really occupies, in full looks at a directory that has or had one.
    pub ballast: Option<u64>,
    /// How much of the time tasks of this machine waited for any disk, of a look that took long.
    pub pressure: Option<Pressure>,
    /// The first failure; the look ended there.
    pub failure: Option<Failure>,
}

/// An operation that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    /// Which operation.
    pub operation: Operation,
    /// How long it has been running, counted by the prober while the prober itself was running.
    pub age: Elapsed,
    /// The device of the file system has completed writes since the operation has been overdue. Reads
    /// do not count: a frozen file system still reads.
    pub device_writes: bool,
    /// For how long the device has completed nothing at all although requests are in flight, the
    /// operation's own or somebody else's. None where it completes some, or nobody can say.
    pub stalled: Option<Duration>,
    /// How much of the time tasks of this machine waited for any disk.
    pub pressure: Option<Pressure>,
    /// Set when the directory itself waits behind an operation on another directory of the same
    /// file system.
    pub behind: Option<PathBuf>,
}

impl InFlight {
    /// An operation of which nothing more is known.
    #[must_use]
    pub const fn new(operation: Operation, age: Elapsed) -> InFlight {
        InFlight {
            operation,
            age,
            device_writes: false,
            stalled: None,
            pressure: None,
            behind: None,
        }
    }
}

/// The kernel's pressure stall information for I/O, averages of ten seconds in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// Some task waited.
    pub some: u8,
    /// All tasks that had something to do waited.
    pub full: u8,
}

/// One thing learnt about one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // nearly all observations are of the large one
pub enum Observation {
    /// A look ended.
    Looked(Look),
    /// An operation is still running; repeated while it does, from the first second on.
    InFlight(InFlight),
    /// The mount table has this for the directory's path (`None`: nothing but the root is left
    /// where a mount was seen before).
    Mounted(Mount),
    /// A device under the directory holds requests and completes none, in words; none: it does
    /// complete some again.
    Stalled(Option<String>),
    /// What the file system has recorded of its own errors, in words; none: nothing any more.
    Recorded(Option<String>),
    /// The file system had an error, in words. It may have the next one of our own probe.
    FileSystemError(String),
    /// Nobody can say anything: the prober died or stopped answering.
    ProberLost(String),
}
