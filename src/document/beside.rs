//! The document of what is beside the agent: the bookie and its cluster, as they were last heard.

use serde::{Deserialize, Serialize};

use super::timestamp_text;
use crate::health::beside::{
    BesideAction, BesideView, BookieProcess, ClusterView, CompactionView, GcDetails, Member,
    Registration, ShouldBe,
};
use crate::health::moment::Timestamp;

/// Bookie and cluster; what is not known is null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BesideDocument {
    /// The bookie answers and serves.
    pub bookie_up: Option<bool>,
    /// The bookie takes recovery writes while it is read-only.
    pub high_priority_writes: Option<bool>,
    /// Its process.
    pub process: Option<ProcessDocument>,
    /// Under which lists of ZooKeeper it is registered.
    pub registration: Option<RegistrationDocument>,
    /// What its own monitor should have made of it.
    pub should_be: Option<ShouldBeDocument>,
    /// How it gives space back.
    pub compaction: CompactionDocument,
    /// `resumeCompaction` or `requestGc` when that should be asked of the bookie now.
    pub action: Option<String>,
    /// The session with ZooKeeper is there; null where it is not configured.
    pub zookeeper_connected: Option<bool>,
    /// The cluster.
    pub cluster: Option<ClusterDocument>,
}

impl BesideDocument {
    /// None where nothing is beside.
    pub(super) fn new(view: &BesideView) -> Option<BesideDocument> {
        if *view == BesideView::default() {
            return None;
        }
        Some(BesideDocument {
            bookie_up: view.bookie_up,
            high_priority_writes: view.high_priority_writes,
            process: view.process.as_ref().map(ProcessDocument::new),
            registration: view.registration.map(RegistrationDocument::new),
            should_be: view.should_be.as_ref().map(ShouldBeDocument::new),
            compaction: CompactionDocument::new(&view.compaction),
            action: view.action.map(|action| {
                match action {
                    BesideAction::ResumeCompaction { .. } => "resumeCompaction",
                    BesideAction::RequestGc => "requestGc",
                }
                .to_owned()
            }),
            zookeeper_connected: view.zookeeper,
            cluster: view
                .cluster
                .as_ref()
                .map(|cluster| ClusterDocument::new(cluster, view)),
        })
    }
}

/// The bookie's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessDocument {
    /// Its id.
    pub pid: u32,
    /// When it started.
    pub started_at: String,
    /// BookKeeper's version.
    pub version: Option<String>,
}

impl ProcessDocument {
    fn new(process: &BookieProcess) -> ProcessDocument {
        ProcessDocument {
            pid: process.pid,
            started_at: timestamp_text(process.started),
            version: process.version.clone(),
        }
    }
}

/// Lists of ZooKeeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrationDocument {
    /// `available/<id>`.
    pub writable: bool,
    /// `available/readonly/<id>`.
    pub read_only: bool,
}

impl RegistrationDocument {
    fn new(registration: Registration) -> RegistrationDocument {
        RegistrationDocument {
            writable: registration.writable,
            read_only: registration.read_only,
        }
    }
}

/// What the bookie's own monitor should have made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShouldBeDocument {
    /// `writable`, `readOnly` or `shutdown`.
    pub mode: String,
    /// Why.
    pub reason: String,
}

impl ShouldBeDocument {
    fn new(should_be: &ShouldBe) -> ShouldBeDocument {
        ShouldBeDocument {
            mode: should_be.mode.name().to_owned(),
            reason: should_be.reason.clone(),
        }
    }
}

/// How the bookie gives space back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionDocument {
    /// Major compaction is suspended somewhere; null while nobody can say.
    pub major_suspended: Option<bool>,
    /// Minor compaction, likewise.
    pub minor_suspended: Option<bool>,
    /// That was concluded from directories that were over warn, and not said by the bookie.
    pub concluded: bool,
    /// A forced garbage collection runs.
    pub forced_gc: Option<bool>,
    /// Forced ones follow each other and free nothing.
    #[serde(default)]
    pub forced_gc_loop: Option<bool>,
    /// A collector has ended no compaction for several of its intervals.
    #[serde(default)]
    pub stalled: Option<bool>,
    /// One for the bookie, or one for each ledger directory.
    pub collectors: Vec<CollectorDocument>,
}

impl CompactionDocument {
    fn new(view: &CompactionView) -> CompactionDocument {
        let flags = view.flags;
        let suspended = view.suspended;
        CompactionDocument {
            major_suspended: suspended
                .map(|suspended| suspended.major)
                .or_else(|| Some(flags?.major_suspended)),
            minor_suspended: suspended
                .map(|suspended| suspended.minor)
                .or_else(|| Some(flags?.minor_suspended)),
            concluded: suspended.is_some_and(|suspended| !suspended.seen),
            forced_gc: view.forced,
            forced_gc_loop: view.forced_loop,
            stalled: view.stalled,
            collectors: view.details.iter().map(CollectorDocument::new).collect(),
        }
    }
}

/// One garbage collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CollectorDocument {
    /// Major compactions since the bookie's start.
    pub major_compactions: u64,
    /// Minor ones.
    pub minor_compactions: u64,
    /// When the last major one ended; before the first, when the bookie started.
    pub last_major: String,
    /// Likewise.
    pub last_minor: String,
    /// One runs.
    pub compacting: bool,
}

impl CollectorDocument {
    fn new(details: &GcDetails) -> CollectorDocument {
        let time =
            |millis: u64| timestamp_text(Timestamp(i64::try_from(millis).unwrap_or(i64::MAX)));
        CollectorDocument {
            major_compactions: details.majors,
            minor_compactions: details.minors,
            last_major: time(details.last_major),
            last_minor: time(details.last_minor),
            compacting: details.major_compacting || details.minor_compacting,
        }
    }
}

/// The cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDocument {
    /// The largest ensemble in use.
    pub largest_ensemble: Option<u32>,
    /// Every bookie with a cookie or a registration.
    pub bookies: Vec<MemberDocument>,
    /// Bookies that are held by a claim and have had no agent for a minute.
    #[serde(default)]
    pub claims_orphaned: Vec<String>,
    /// Isolation groups, and the cluster itself as an empty name, that one writable bookie less would leave with too
    /// few for the largest ensemble.
    #[serde(default)]
    pub headroom_low: Vec<String>,
}

impl ClusterDocument {
    fn new(view: &ClusterView, beside: &BesideView) -> ClusterDocument {
        let low = beside.headroom_low.iter().filter(|(_, low)| *low);
        ClusterDocument {
            claims_orphaned: beside.orphaned.clone(),
            headroom_low: low.map(|(name, _)| name.clone()).collect(),
            largest_ensemble: view.largest_ensemble,
            bookies: view.members.iter().map(MemberDocument::new).collect(),
        }
    }
}

/// One bookie of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberDocument {
    /// Its id.
    pub id: String,
    /// It is registered as writable.
    pub writable: bool,
    /// It is registered as read-only.
    pub read_only: bool,
    /// Its rack.
    pub rack: Option<String>,
    /// Its isolation group.
    pub group: Option<String>,
    /// A directory of it is over warn; null without an agent there.
    pub over_warn: Option<bool>,
    /// It is held by a claim.
    pub claimed: bool,
}

impl MemberDocument {
    fn new(member: &Member) -> MemberDocument {
        MemberDocument {
            id: member.id.clone(),
            writable: member.registration.writable,
            read_only: member.registration.read_only,
            rack: member.rack.clone(),
            group: member.group.clone(),
            over_warn: member
                .agent
                .as_ref()
                .map(|agent| agent.over_warn || agent.full),
            claimed: member.claimed,
        }
    }
}
