//! The immutable picture that the monitor loop publishes after each turn. Metrics, HTTP, status page
//! and command line read it; none of them ever asks a disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::ballast::BallastView;
use super::beside::{AgentStatus, BesideView};
use super::claim::Claim;
use super::dir::{DirId, Role, Thresholds};
use super::event::{Event, EventKind};
use super::journal::JournalView;
use super::latency::LatencyView;
use super::moment::{Elapsed, Timestamp};
use super::observation::{Device, Durations, Mount, Operation, Space};
use super::policy::{HighPriorityRoom, Mode};
use super::restart::RestartView;
use super::status::{
    AccessStatus, Cause, Evidence, LatencyStatus, Reason, Severity, SpaceStatus, Status,
};

/// Everything the agent knows, at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Wall-clock time of the turn that made it.
    pub time: Timestamp,
    /// The same on the monotonic clock.
    pub elapsed: Elapsed,
    /// When the agent started.
    pub started_at: Timestamp,
    /// Worst severity of all directories; unknown until each was judged once.
    pub severity: Severity,
    /// Every directory was judged once, `unknown` included.
    pub ready: bool,
    /// Mode.
    pub mode: ModeView,
    /// Bookie and cluster.
    pub beside: BesideView,
    /// Directories in configured order.
    pub dirs: Vec<Arc<DirView>>,
    /// Bytes of all file systems that directories of a role are on, each counted once.
    pub totals: BTreeMap<Role, Space>,
    /// The newest events, oldest first; at most [`RECENT_EVENTS`].
    pub recent_events: Arc<Vec<Arc<Event>>>,
    /// Events since the start of the agent, by kind.
    pub event_counts: BTreeMap<EventKind, u64>,
    /// Number of the newest event; 0 when there was none ever.
    pub last_seq: u64,
    /// Whether a start of the bookie would fail; none without its file.
    pub restart: Option<RestartView>,
    /// Probe durations since the start of the agent, by step.
    pub probe_histograms: BTreeMap<Operation, Histogram>,
    /// Troubles of the agent itself, in words.
    pub problems: Vec<String>,
    /// Prober restarts since the start of the agent.
    pub prober_restarts: u64,
    /// Children that did not end when killed and were left behind.
    pub children_abandoned: u64,
    /// The prober has been away for so long that nothing is watched.
    pub watches_nothing: bool,
}

impl Snapshot {
    /// What the agent says of its bookie to others; none before each directory was judged once.
    #[must_use]
    pub fn agent_status(&self) -> Option<AgentStatus> {
        // Unknown is the least of them.
        let over = |least: SpaceStatus| self.dirs.iter().any(|dir| least <= dir.space_status);
        let mut dirs = self.dirs.iter();
        let unusable = dirs.any(|dir| dir.access_status.is_unusable());
        self.ready.then(|| AgentStatus {
            over_warn: over(SpaceStatus::AlmostFull),
            full: over(SpaceStatus::Full) || unusable,
            enforces: self.mode.control == "enforce",
            at: self.time.0.unsigned_abs(),
        })
    }
}

/// How many events the snapshot keeps: an hour of one event every 14 s, 256 × about 1 KiB.
pub const RECENT_EVENTS: usize = 256;

/// Mode of the server beside the agent, as wanted and as seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeView {
    /// What the disks allow; none while too much is unknown to say.
    pub wanted: Option<Mode>,
    /// Why, when it is not writable.
    pub reason: Option<String>,
    /// What the server says; none without one.
    pub observed: Option<Mode>,
    /// Recovery writes are possible.
    pub high_priority_writes: bool,
    /// Mode changes so far, by target and reason: `disks` when they asked for it, else `other`.
    pub transitions: BTreeMap<(Mode, &'static str), u64>,
    /// `observe` or `enforce`.
    pub control: &'static str,
    /// Who holds the server in a mode.
    pub claims: Vec<Claim>,
    /// Why a change that is wanted is not made now; none when there is none to make.
    pub held: Option<String>,
    /// A journal is nearly full: for that the bookie may go below the cluster's floor.
    pub journal_emergency: bool,
}

impl Default for ModeView {
    fn default() -> Self {
        ModeView {
            wanted: None,
            reason: None,
            observed: None,
            high_priority_writes: false,
            transitions: BTreeMap::new(),
            control: "observe",
            claims: Vec::new(),
            held: None,
            journal_emergency: false,
        }
    }
}

/// One directory.
#[derive(Debug, Clone, PartialEq)]
pub struct DirView {
    /// Identifies it within this run.
    pub id: DirId,
    /// Path as configured.
    pub path: PathBuf,
    /// Role.
    pub role: Role,
    /// One word.
    pub status: Status,
    /// Since when that word.
    pub since: Timestamp,
    /// How much it matters.
    pub severity: Severity,
    /// Failing but not confirmed, overdue but not hung, or recovering but not confirmed.
    pub suspect: bool,
    /// Space axis.
    pub space_status: SpaceStatus,
    /// Access axis.
    pub access_status: AccessStatus,
    /// Latency axis.
    pub latency_status: LatencyStatus,
    /// Why the status is what it is; none when all is well.
    pub reason: Option<Reason>,
    /// Newest numbers.
    pub space: Option<Space>,
    /// 1 − available ⁄ size; none where the size makes no sense.
    pub usage_ratio: Option<f64>,
    /// Settings.
    pub thresholds: Thresholds,
    /// When it will be full.
    pub forecast: Option<ForecastView>,
    /// When a look last ended, well or not.
    pub last_observation: Option<Timestamp>,
    /// When a complete probe last succeeded.
    pub last_probe_success: Option<Timestamp>,
    /// Durations of the newest probe.
    pub durations: Durations,
    /// Slow score, and what the newest probes took.
    pub latency: LatencyView,
    /// Age of the operation that is running, if one is overdue enough to be reported.
    pub in_flight: Option<Duration>,
    /// Where it is mounted.
    pub mount: Option<Mount>,
    /// Which sources of observation are active for it, and which are not.
    pub sources: Sources,
    /// Proof behind the status, oldest first.
    pub evidence: Vec<Evidence>,
    /// Changes of the one-word status so far, by target.
    pub transitions: BTreeMap<Status, u64>,
    /// Failed probes so far, by cause.
    pub failures: BTreeMap<Cause, u64>,
    /// Room for recovery writes.
    pub high_priority_room: Option<HighPriorityRoom>,
    /// The bookie's journal in it; none of other directories, and before it was seen.
    pub journal: Option<JournalView>,
    /// Its ballast file; none when there is none and none is to be.
    pub ballast: Option<BallastView>,
    /// Recent status changes, oldest first: when and to what.
    pub history: Vec<(Timestamp, Status)>,
}

/// Sources of observation of one directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sources {
    /// Names of those that work.
    pub active: Vec<&'static str>,
    /// Names of those that do not, with the reason.
    pub missing: Vec<(&'static str, String)>,
    /// The whole disks under the directory; none where they are not known or there are none.
    pub disks: Vec<Device>,
}

/// Seconds until the directory is full, at the measured rate and its spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForecastView {
    /// At the middle rate.
    pub expected: Duration,
    /// At the fastest plausible rate.
    pub earliest: Duration,
    /// At the slowest plausible rate; none when it may never fill.
    pub latest: Option<Duration>,
}

/// A histogram with the bounds of [`Histogram::BOUNDS`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// Observations at or below each bound, not cumulated; the last one is the rest.
    pub buckets: [u64; Histogram::BOUNDS.len() + 1],
    /// Sum of all observations in seconds.
    pub sum: f64,
    /// Number of all observations.
    pub count: u64,
}

impl Histogram {
    /// Upper bounds in seconds: from a fast NVMe sync to the network deadline, a factor of 3–4 apart.
    pub const BOUNDS: [f64; 10] = [
        0.0001, 0.0005, 0.002, 0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 30.0,
    ];

    /// Takes in one duration.
    pub fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let slot = Self::BOUNDS.iter().position(|bound| seconds <= *bound);
        self.buckets[slot.unwrap_or(Self::BOUNDS.len())] += 1;
        self.sum += seconds;
        self.count += 1;
    }
}

/// How one listener is doing. Filled in by the dispatcher; shown by metrics, API and page.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListenerView {
    /// Name from the configuration.
    pub name: String,
    /// `log`, `hook`, …
    pub kind: &'static str,
    /// Events taken by it.
    pub delivered: u64,
    /// Events it refused for good.
    pub failed: u64,
    /// Tries that will be repeated.
    pub retried: u64,
    /// Events merged into others because it was too slow.
    pub coalesced: u64,
    /// Events waiting.
    pub pending: u64,
    /// Durations of runs; hooks only.
    pub durations: Option<Histogram>,
}

/// How the agent itself is doing, beside the snapshot: what is known outside the monitor loop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SelfView {
    /// Listeners in configured order.
    pub listeners: Vec<ListenerView>,
    /// The state store takes writes and answers in time.
    pub state_store_ok: bool,
    /// The newest reload of the configuration was valid.
    pub config_reload_ok: bool,
    /// Log lines that did not fit.
    pub log_lines_dropped: u64,
    /// Writer restarts since the start of the agent.
    pub writer_restarts: u64,
    /// Troubles outside the monitor loop, in words.
    pub problems: Vec<String>,
}
