//! Events: records of transitions and of facts about the node. The names are those of BookKeeper's
//! `LedgerDirsListener`, plus what it has no name for.

use std::path::PathBuf;

use super::dir::Role;
use super::moment::Timestamp;
use super::observation::Space;
use super::status::{Axis, Reason, Severity};

macro_rules! event_kinds {
    ($($variant:ident $name:literal $severity:ident $doc:literal;)*) => {
        /// What happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind {
            $(#[doc = $doc] $variant,)*
        }

        impl EventKind {
            /// All kinds, in the order of the documentation.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$variant),*];

            /// The camelCase name used in configuration, JSON, hooks and logs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(EventKind::$variant => $name,)* }
            }

            /// What it means, one sentence; the source of `docs/events.md`.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(EventKind::$variant => $doc,)* }
            }

            /// How much it matters.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(EventKind::$variant => Severity::$severity,)* }
            }

            /// The kind of that name, if there is one.
            #[must_use]
            pub fn parse(name: &str) -> Option<EventKind> {
                EventKind::ALL.iter().copied().find(|kind| kind.name() == name)
            }
        }
    };
}

// The one table of events: code, names, severities and documentation come from it.
event_kinds! {
    DiskFailed "diskFailed" Critical "The directory fails: errors were confirmed by repeated probes.";
    DiskAlmostFull "diskAlmostFull" Warning "Usage went over the warn threshold from below.";
    DiskFull "diskFull" Critical "Usage went over the full threshold, or a write was refused for want of space.";
    DiskWritable "diskWritable" Ok "A full directory is below its low watermark and below warn.";
    DiskJustWritable "diskJustWritable" Warning "A full directory is below its low watermark but still over warn.";
    DiskBelowWarn "diskBelowWarn" Ok "Usage went below the warn threshold without having been full.";
    DiskReadOnly "diskReadOnly" Critical "The file system refuses writes: mounted read-only or given up by the kernel.";
    DiskHung "diskHung" Critical "An operation has been running for longer than its deadline.";
    DiskSlow "diskSlow" Warning "Probes are over the latency limit repeatedly, or much slower than those of sibling disks.";
    DiskVanished "diskVanished" Critical "The mount or the directory is not there any more.";
    DiskReplaced "diskReplaced" Critical "Another disk or directory is in the place of the known one.";
    DiskRecovered "diskRecovered" Ok "Access or latency is good again; the event names its axis.";
    DiskUnknown "diskUnknown" Unknown "What was known is not known any more.";
    AnyDiskFull "anyDiskFull" Critical "The first directory of the node became full.";
    AllDisksFull "allDisksFull" Critical "No directory of a role is left that can be written.";
    AllDisksWritable "allDisksWritable" Ok "No directory is full or unusable any more.";
    FatalError "fatalError" Critical "Nothing can be watched any more: the prober has been away for a minute.";
    ModeWanted "modeWanted" Warning "The mode that the disks allow has changed.";
    ModeChanged "modeChanged" Warning "The mode in which the server runs has changed.";
    ModeMismatch "modeMismatch" Warning "The server has not been in the wanted mode for longer than it should take.";
    ModeClaimed "modeClaimed" Warning "Somebody holds the bookie in a mode from now on: the agent for its disks, an operator or a drain.";
    ModeReleased "modeReleased" Ok "A claim on the bookie's mode has ended.";
    ModeHeld "modeHeld" Warning "The mode is wanted and may not be set now: the floor, the store of the cluster or a limit is in the way.";
    BookieDown "bookieDown" Critical "The bookie does not run, or its admin server does not answer.";
    BookieUp "bookieUp" Ok "The bookie answers again.";
    BookieRestarted "bookieRestarted" Warning "The bookie was started again: a manual read-only is forgotten by that.";
    HighPriorityMismatch "highPriorityMismatch" Warning "The bookie takes high-priority writes where the reserve is used up, or refuses them where it is not.";
    CompactionSuspended "compactionSuspended" Warning "Compaction is suspended although no directory is over warn: nothing in the bookie will resume it.";
    CompactionStalled "compactionStalled" Warning "No compaction has ended for several of its intervals.";
    ForcedGcLoop "forcedGcLoop" Warning "A forced garbage collection follows the other and frees nothing.";
    ClusterOverWarn "clusterOverWarn" Warning "The first bookie of the cluster has a directory over warn.";
    ClusterHeadroomLow "clusterHeadroomLow" Critical "If one more writable bookie is lost, too few are left for new ensembles.";
    ClaimOrphaned "claimOrphaned" Warning "A bookie is held by a claim whose agent is gone.";
    FillForecast "fillForecast" Warning "At the present rate the directory will be full soon.";
    JournalNotDraining "journalNotDraining" Warning "The journal grows and lastMark does not move: the bookie does not get its entries into ledger storage.";
    RestartWouldFail "restartWouldFail" Warning "A start of the bookie would fail now, by what BookKeeper itself checks: do not restart it.";
    RestartPossible "restartPossible" Ok "No reason is known any more for which a start of the bookie would fail.";
    BallastReleased "ballastReleased" Warning "The ballast of a directory that is full, or of a journal that nearly is, was given back.";
    Reminder "reminder" Warning "A bad status lasts.";
}

/// Which directories stand how, at the time of an event, so that a hook has to look up nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSummary {
    /// Directories below warn that can be written, unknown ones not among them.
    pub writable: Vec<PathBuf>,
    /// Directories over warn that can be written.
    pub almost_full: Vec<PathBuf>,
    /// Full directories that work otherwise.
    pub full: Vec<PathBuf>,
    /// Read-only, failed, hung, vanished and replaced ones.
    pub unusable: Vec<PathBuf>,
    /// The mode the disks allow; none while too much is unknown.
    pub wanted_mode: Option<super::policy::Mode>,
    /// A directory has room for recovery writes.
    pub high_priority_writes: bool,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Rises by one from event to event and survives restarts; 0 until the monitor numbered it.
    pub seq: u64,
    /// When the agent decided it.
    pub time: Timestamp,
    /// What happened.
    pub kind: EventKind,
    /// How much it matters; that of the kind unless the tracker knows better.
    pub severity: Severity,
    /// The directory; none for an event of the node.
    pub dir: Option<PathBuf>,
    /// Its role.
    pub role: Option<Role>,
    /// The axis that changed.
    pub axis: Option<Axis>,
    /// Old value, as JSON has it.
    pub from: Option<&'static str>,
    /// New value, as JSON has it.
    pub to: Option<&'static str>,
    /// How many events between first and newest were left out for a slow listener.
    pub coalesced: u32,
    /// Why.
    pub reason: Option<Reason>,
    /// Space of the directory at that time.
    pub space: Option<Space>,
    /// How all directories stood.
    pub node: NodeSummary,
}
