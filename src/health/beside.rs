//! What the agent hears about the bookie beside it and the cluster around both: plain values, as the
//! rooms that ask hand them to the monitor loop. None of them is about a disk.

use std::time::Duration;

use super::bookkeeper;
use super::moment::Timestamp;
use super::policy::Mode;

/// `GET /api/v1/bookie/state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookieState {
    /// It serves.
    pub running: bool,
    /// It takes no writes. A bookie that is about to end says so too: see `running` first.
    pub read_only: bool,
    /// It is about to end.
    pub shutting_down: bool,
    /// `availableForHighPriorityWrites`; none where the answer has no such field.
    pub high_priority_writes: Option<bool>,
}

impl BookieState {
    /// The mode of a bookie that serves. One that ends answers read-only, and is not in any mode.
    #[must_use]
    pub fn mode(self) -> Option<Mode> {
        let mode = match self.read_only {
            true => Mode::ReadOnly,
            false => Mode::Writable,
        };
        (self.running && !self.shutting_down).then_some(mode)
    }
}

/// `GET /api/v1/bookie/gc/suspend_compaction` (from 4.16.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionFlags {
    /// Minor compaction is suspended; with `DbLedgerStorage` only when every directory's is.
    pub minor_suspended: bool,
    /// Major compaction is suspended, likewise.
    pub major_suspended: bool,
}

/// One element of `GET /api/v1/bookie/gc_details`: one for the bookie, or one for each ledger directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcDetails {
    /// A forced compaction runs.
    pub force_compacting: bool,
    /// A major compaction runs.
    pub major_compacting: bool,
    /// A minor compaction runs.
    pub minor_compacting: bool,
    /// Milliseconds since the epoch; set to the start of the bookie before the first one.
    pub last_major: u64,
    /// Likewise.
    pub last_minor: u64,
    /// Major compactions since the start.
    pub majors: u64,
    /// Minor compactions since the start.
    pub minors: u64,
}

/// The bookie's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookieProcess {
    /// Its id.
    pub pid: u32,
    /// When it started.
    pub started: Timestamp,
    /// BookKeeper's version as the jar on its command line has it, such as `4.17.3`.
    pub version: Option<String>,
}

/// Under which lists of ZooKeeper the bookie is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registration {
    /// `available/<id>`.
    pub writable: bool,
    /// `available/readonly/<id>`.
    pub read_only: bool,
}

/// One bookie as the cluster shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: String,
    /// Where it is registered.
    pub registration: Registration,
    /// Its rack; none where nobody says.
    pub rack: Option<String>,
    /// Its isolation group; none where nobody says.
    pub group: Option<String>,
    /// What its agent says; none where no agent is there.
    pub agent: Option<AgentStatus>,
    /// Its agent's node holds claims.
    pub claimed: bool,
    /// One of them was made although too few bookies stayed writable.
    pub below_floor: bool,
}

impl Member {
    /// Clients may write to it. In both lists is read-only: so they treat it (W34).
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.registration.writable && !self.registration.read_only
    }
}

/// What an agent publishes about its bookie.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentStatus {
    /// A directory is over warn.
    pub over_warn: bool,
    /// A directory is full or unusable.
    pub full: bool,
    /// `control` of that agent.
    pub enforces: bool,
    /// When it said so, milliseconds since the epoch.
    pub at: u64,
}

impl AgentStatus {
    /// The same but for the time, which changes each second.
    #[must_use]
    pub fn says_the_same(&self, other: &AgentStatus) -> bool {
        let at = self.at;
        *self
            == AgentStatus {
                at,
                ..other.clone()
            }
    }
}

/// The whole cluster at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterView {
    /// Every bookie with a cookie or a registration, by id.
    pub members: Vec<Member>,
    /// The largest ensemble in use, once known.
    pub largest_ensemble: Option<u32>,
}

/// How the session with ZooKeeper is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// Not configured.
    None,
    /// Configured, and not connected for so long.
    Lost(Duration),
    /// Connected.
    Connected,
}

/// One thing heard. An `Err` says in words why it could not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// State of the bookie.
    State(Result<BookieState, String>),
    /// Compaction flags; `Ok(None)` where this version has no such call.
    Compaction(Result<Option<CompactionFlags>, String>),
    /// Details of garbage collection.
    Gc(Result<Vec<GcDetails>, String>),
    /// A forced garbage collection runs.
    ForcedGc(Result<bool, String>),
    /// The bookie's process; `Ok(None)` when there is none.
    Process(Result<Option<BookieProcess>, String>),
    /// Its registration.
    Registration(Result<Registration, String>),
    /// The cluster.
    Cluster(Result<ClusterView, String>),
    /// The session.
    Session(Session),
}

/// Bookie and cluster as the snapshot shows them; none where nothing was heard lately.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BesideView {
    /// The bookie answers and serves; none without a bookie.
    pub bookie_up: Option<bool>,
    /// The bookie takes recovery writes.
    pub high_priority_writes: Option<bool>,
    /// The session with ZooKeeper is there; none where it is not configured.
    pub zookeeper: Option<bool>,
    /// The cluster.
    pub cluster: Option<ClusterView>,
    /// Bookies that are held by a claim and have had no agent for too long.
    pub orphaned: Vec<String>,
    /// The cluster (without a name) and each isolation group that can serve the largest ensemble: whether it could not
    /// with one writable bookie less.
    pub headroom_low: Vec<(String, bool)>,
    /// The bookie's process.
    pub process: Option<BookieProcess>,
    /// Where the bookie is registered.
    pub registration: Option<Registration>,
    /// What the bookie's own monitor should have made of it; none while that is not known.
    pub should_be: Option<ShouldBe>,
    /// How it gives space back.
    pub compaction: CompactionView,
    /// What should be asked of the bookie beside its mode, where the agent enforces.
    pub action: Option<BesideAction>,
}

/// What the bookie's own monitor should be making of its disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShouldBe {
    /// Mode of the bookie.
    pub mode: bookkeeper::Mode,
    /// Why, in words.
    pub reason: String,
}

/// Compaction as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompactionView {
    /// As the bookie says; none where this version has no such call.
    pub flags: Option<CompactionFlags>,
    /// What is suspended; none when nothing is, as far as known.
    pub suspended: Option<SuspendedView>,
    /// Of each collector.
    pub details: Vec<GcDetails>,
    /// A forced collection runs.
    pub forced: Option<bool>,
    /// A collector has ended no compaction for several of its intervals; none before its counters were read.
    pub stalled: Option<bool>,
    /// Forced collections follow each other and free nothing; none while nobody can say whether one runs.
    pub forced_loop: Option<bool>,
}

/// What is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuspendedView {
    /// Major compaction, somewhere.
    pub major: bool,
    /// Minor compaction, somewhere.
    pub minor: bool,
    /// The bookie says so. Else it is concluded from directories that were over warn: with one collector
    /// for each ledger directory the bookie says so only when all are suspended.
    pub seen: bool,
}

/// What may be asked of the bookie beside its mode, only where the agent enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BesideAction {
    /// Resume compaction that the bookie suspended and will not resume.
    ResumeCompaction {
        /// The major one.
        major: bool,
        /// The minor one.
        minor: bool,
    },
    /// Ask for a garbage collection, without force for either kind of compaction.
    RequestGc,
}
