//! The documents of the snapshot and of one directory in it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    About, BesideDocument, CauseDocument, ModeDocument, path_text, rounded_ratio, timestamp_text,
    usage_ratio,
};
use crate::health::ballast::BallastView;
use crate::health::journal::JournalView;
use crate::health::latency::LatencyView;
use crate::health::observation::{Mount, Operation, Space};
use crate::health::restart::{RestartView, Verdict};
use crate::health::snapshot::{DirView, ForecastView, ListenerView, SelfView, Snapshot};
use crate::health::status::Evidence;

/// The document of `/api/v1/status`.
#[must_use]
pub fn status_document(snapshot: &Snapshot, own: &SelfView, about: &About) -> StatusDocument {
    StatusDocument {
        host: about.host.host.clone(),
        version: about.version.to_owned(),
        time: timestamp_text(snapshot.time),
        started_at: timestamp_text(snapshot.started_at),
        semantics: about.semantics.to_owned(),
        status: snapshot.severity.name().to_owned(),
        mode: ModeDocument::new(&snapshot.mode),
        restart: snapshot.restart.as_ref().map(RestartDocument::new),
        beside: BesideDocument::new(&snapshot.beside),
        dirs: snapshot
            .dirs
            .iter()
            .map(|dir| DirDocument::new(dir))
            .collect(),
        totals: snapshot
            .totals
            .iter()
            .map(|(role, space)| (role.name().to_owned(), TotalDocument::new(*space)))
            .collect(),
        listeners: own.listeners.iter().map(ListenerDocument::new).collect(),
        problems: problems(snapshot, own),
    }
}

/// The document of one directory: what `/api/v1/status` has, and its recent history.
#[must_use]
pub fn dir_document(dir: &DirView) -> DirDocument {
    let history = dir.history.iter().map(|(at, status)| HistoryDocument {
        at: timestamp_text(*at),
        status: status.name().to_owned(),
    });
    DirDocument {
        history: Some(history.collect()),
        ..DirDocument::new(dir)
    }
}

/// Troubles of the agent, those of the monitor loop first.
#[must_use]
pub fn problems(snapshot: &Snapshot, own: &SelfView) -> Vec<String> {
    let all = snapshot.problems.iter().chain(&own.problems);
    all.cloned().collect()
}

/// The snapshot: `/api/v1/status`, `status --output json`, `check --output json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDocument {
    /// Host name.
    pub host: String,
    /// Version of the agent.
    pub version: String,
    /// When the picture was made.
    pub time: String,
    /// When the agent started.
    pub started_at: String,
    /// `dirkeeper` or `bookkeeper`.
    pub semantics: String,
    /// Worst of all directories: `ok`, `warning`, `critical` or `unknown`.
    pub status: String,
    /// Mode.
    pub mode: ModeDocument,
    /// Whether a start of the bookie would fail now; none without its file.
    #[serde(default)]
    pub restart: Option<RestartDocument>,
    /// Bookie and cluster; absent where there is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<BesideDocument>,
    /// Directories in configured order.
    pub dirs: Vec<DirDocument>,
    /// Bytes of the file systems of each role, each counted once however many directories it has.
    #[serde(default)]
    pub totals: BTreeMap<String, TotalDocument>,
    /// Listeners in configured order.
    pub listeners: Vec<ListenerDocument>,
    /// Troubles of the agent itself.
    pub problems: Vec<String>,
}

/// Bytes of all file systems that directories of a role are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TotalDocument {
    /// All bytes.
    pub size_bytes: u64,
    /// Bytes that may still be written.
    pub available_bytes: u64,
}

impl TotalDocument {
    fn new(space: Space) -> TotalDocument {
        TotalDocument {
            size_bytes: space.size,
            available_bytes: space.available,
        }
    }
}

/// Whether a start of the bookie would fail now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartDocument {
    /// False: it would fail. True: no reason is known for which it would. None: it may fail.
    pub would_succeed: Option<bool>,
    /// Why, those that are certain first.
    pub reasons: Vec<String>,
}

impl RestartDocument {
    fn new(view: &RestartView) -> RestartDocument {
        RestartDocument {
            would_succeed: match view.verdict {
                Verdict::WouldSucceed => Some(true),
                Verdict::WouldFail => Some(false),
                Verdict::Unknown => None,
            },
            reasons: view.reasons.clone(),
        }
    }
}

/// The bookie's journal in a journal directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalDocument {
    /// Bytes behind `lastMark` that a start would read again, at most; null while not known.
    pub unmarked_bytes: Option<u64>,
    /// Files.
    pub files: u64,
    /// Number of the oldest one, as in its name.
    pub oldest_id: Option<String>,
}

impl JournalDocument {
    fn new(view: JournalView) -> JournalDocument {
        JournalDocument {
            unmarked_bytes: view.unmarked,
            files: view.files,
            oldest_id: view.oldest.map(|id| format!("{id:x}")),
        }
    }
}

/// One directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DirDocument {
    /// Path as configured.
    pub path: String,
    /// Role.
    pub role: String,
    /// One word.
    pub status: String,
    /// Since when that word.
    pub since: String,
    /// How much it matters.
    pub severity: String,
    /// Not confirmed, in either direction.
    pub suspect: bool,
    /// The three axes.
    pub axes: AxesDocument,
    /// Why; none when all is well.
    pub cause: Option<CauseDocument>,
    /// Numbers and thresholds.
    pub space: SpaceDocument,
    /// When it will be full; none when that cannot be said.
    pub forecast: Option<ForecastDocument>,
    /// The active probe.
    pub probe: ProbeDocument,
    /// The bookie's journal in it; none of other directories, and before it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalDocument>,
    /// How fast it has been lately.
    #[serde(default)]
    pub latency: LatencyDocument,
    /// Where it is mounted.
    pub mount: Option<MountDocument>,
    /// Active sources of observation.
    pub sources: Vec<String>,
    /// Sources that do not work here, with the reason.
    #[serde(default)]
    pub sources_missing: Vec<MissingDocument>,
    /// Proof behind the status, oldest first.
    pub evidence: Vec<EvidenceDocument>,
    /// The ballast file; absent when there is none and none is to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ballast: Option<BallastDocument>,
    /// Recent changes of status, oldest first; in the document of one directory only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<HistoryDocument>>,
}

impl DirDocument {
    fn new(dir: &DirView) -> DirDocument {
        DirDocument {
            path: path_text(&dir.path),
            role: dir.role.name().to_owned(),
            status: dir.status.name().to_owned(),
            since: timestamp_text(dir.since),
            severity: dir.severity.name().to_owned(),
            suspect: dir.suspect,
            axes: AxesDocument {
                space: dir.space_status.name().to_owned(),
                access: dir.access_status.name().to_owned(),
                latency: dir.latency_status.name().to_owned(),
            },
            cause: dir.reason.as_ref().map(CauseDocument::new),
            space: SpaceDocument::new(dir),
            forecast: dir.forecast.map(ForecastDocument::new),
            probe: ProbeDocument::new(dir),
            journal: dir.journal.map(JournalDocument::new),
            latency: LatencyDocument::new(&dir.latency),
            mount: dir.mount.as_ref().map(MountDocument::new),
            sources: dir
                .sources
                .active
                .iter()
                .map(|&name| name.to_owned())
                .collect(),
            sources_missing: dir
                .sources
                .missing
                .iter()
                .map(MissingDocument::new)
                .collect(),
            evidence: dir.evidence.iter().map(EvidenceDocument::new).collect(),
            ballast: dir.ballast.map(BallastDocument::new),
            history: None,
        }
    }
}

/// A source of observation that does not work for a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissingDocument {
    /// Its name.
    pub name: String,
    /// Why it does not.
    pub reason: String,
}

impl MissingDocument {
    fn new((name, reason): &(&'static str, String)) -> MissingDocument {
        MissingDocument {
            name: (*name).to_owned(),
            reason: reason.clone(),
        }
    }
}

/// Bytes that are held back to be given away when the directory is full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BallastDocument {
    /// Bytes that are to be held.
    pub wanted_bytes: u64,
    /// Bytes that are really occupied; none while that is not known.
    pub held_bytes: Option<u64>,
    /// `unknown`, `held`, `filling`, `waiting`, `released`, `obstructed`, `refused`, `tooLarge` or
    /// `unasked`.
    pub state: String,
}

impl BallastDocument {
    fn new(ballast: BallastView) -> BallastDocument {
        BallastDocument {
            wanted_bytes: ballast.wanted,
            held_bytes: ballast.held,
            state: ballast.state.name().to_owned(),
        }
    }
}

/// Values of the three axes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AxesDocument {
    /// `unknown`, `ok`, `almostFull`, `full`.
    pub space: String,
    /// `unknown`, `ok`, `readOnly`, `failed`, `hung`, `vanished`, `replaced`.
    pub access: String,
    /// `unknown`, `normal`, `slow`.
    pub latency: String,
}

/// Numbers and thresholds of a directory; what is not known is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpaceDocument {
    /// All bytes.
    pub size_bytes: Option<u64>,
    /// Bytes that may still be written.
    pub available_bytes: Option<u64>,
    /// Usage.
    pub usage_ratio: Option<f64>,
    /// All inodes.
    pub inodes: Option<u64>,
    /// Inodes that may still be used.
    pub inodes_free: Option<u64>,
    /// Warn threshold.
    pub warn: f64,
    /// Full threshold.
    pub full: f64,
    /// Low watermark.
    pub low_watermark: f64,
}

impl SpaceDocument {
    fn new(dir: &DirView) -> SpaceDocument {
        let limits = &dir.thresholds;
        let space = shown_space(dir);
        let inodes = space.filter(|space| space.inodes != 0);
        SpaceDocument {
            size_bytes: space.map(|space| space.size),
            available_bytes: space.map(|space| space.available),
            usage_ratio: shown_usage(dir),
            inodes: inodes.map(|space| space.inodes),
            inodes_free: inodes.map(|space| space.inodes_free),
            warn: limits.warn,
            full: limits.full,
            low_watermark: limits.low_watermark,
        }
    }
}

/// The directory's space, if its numbers make sense.
#[must_use]
pub fn shown_space(dir: &DirView) -> Option<Space> {
    dir.space.filter(|space| usage_ratio(*space).is_some())
}

/// The directory's usage as it is shown, rounded on the right side of its thresholds.
#[must_use]
pub fn shown_usage(dir: &DirView) -> Option<f64> {
    let limits = &dir.thresholds;
    dir.usage_ratio
        .filter(|ratio| ratio.is_finite())
        .map(|ratio| rounded_ratio(ratio, &[limits.low_watermark, limits.warn, limits.full]))
}

/// Seconds until the directory is full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForecastDocument {
    /// At the middle rate.
    pub full_in_seconds: u64,
    /// At the fastest plausible rate.
    pub earliest_seconds: u64,
    /// At the slowest plausible rate; none when it may never fill.
    pub latest_seconds: Option<u64>,
}

impl ForecastDocument {
    fn new(forecast: ForecastView) -> ForecastDocument {
        ForecastDocument {
            full_in_seconds: forecast.expected.as_secs(),
            earliest_seconds: forecast.earliest.as_secs(),
            latest_seconds: forecast.latest.map(|latest| latest.as_secs()),
        }
    }
}

/// The active probe of a directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeDocument {
    /// When a complete probe last succeeded.
    pub last_success: Option<String>,
    /// Durations of the newest one.
    pub durations_seconds: DurationsDocument,
    /// Age of the operation that is running, if it is worth saying; else 0.
    pub in_flight_seconds: f64,
}

impl ProbeDocument {
    fn new(dir: &DirView) -> ProbeDocument {
        let duration = |operation| dir.durations.get(&operation).map(Duration::as_secs_f64);
        ProbeDocument {
            last_success: dir.last_probe_success.map(timestamp_text),
            durations_seconds: DurationsDocument {
                create: duration(Operation::Create),
                write: duration(Operation::Write),
                sync: duration(Operation::Sync),
                read: duration(Operation::Read),
            },
            in_flight_seconds: dir.in_flight.unwrap_or_default().as_secs_f64(),
        }
    }
}

/// Seconds that the steps of a probe took; null for a step that was not done.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DurationsDocument {
    /// Creating the probe file.
    pub create: Option<f64>,
    /// Writing it.
    pub write: Option<f64>,
    /// Syncing it.
    pub sync: Option<f64>,
    /// Reading it back.
    pub read: Option<f64>,
}

/// How fast a directory has been in its newest probes, at most sixty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencyDocument {
    /// Slow score, from 1, never late, to 100, always late; null before the first probe.
    pub score: Option<u8>,
    /// `create`, `write`, `sync`, `read`, `unlink`, each if it was done.
    pub steps: BTreeMap<String, StepDocument>,
}

/// Seconds that a step of the probe took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepDocument {
    /// In the newest probe.
    pub last_seconds: f64,
    /// In the middle.
    pub median_seconds: f64,
    /// At most.
    pub max_seconds: f64,
}

impl LatencyDocument {
    fn new(latency: &LatencyView) -> LatencyDocument {
        let steps = latency.steps.iter().map(|view| {
            let document = StepDocument {
                last_seconds: view.last.as_secs_f64(),
                median_seconds: view.median.as_secs_f64(),
                max_seconds: view.max.as_secs_f64(),
            };
            (view.step.name().to_owned(), document)
        });
        LatencyDocument {
            score: latency.score,
            steps: steps.collect(),
        }
    }
}

/// Where a directory is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountDocument {
    /// Mount point.
    pub point: String,
    /// Major and minor number, such as `8:1`.
    pub device: String,
    /// What is mounted.
    pub source: String,
    /// File system type.
    pub fs_type: String,
    /// Options.
    pub options: String,
}

impl MountDocument {
    fn new(mount: &Mount) -> MountDocument {
        MountDocument {
            point: path_text(&mount.point),
            device: format!("{}:{}", mount.device.major, mount.device.minor),
            source: mount.source.clone(),
            fs_type: mount.fs_type.clone(),
            options: mount.options.clone(),
        }
    }
}

/// One line of proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvidenceDocument {
    /// When it was first seen.
    pub at: String,
    /// What was seen.
    pub text: String,
}

impl EvidenceDocument {
    fn new(evidence: &Evidence) -> EvidenceDocument {
        EvidenceDocument {
            at: timestamp_text(evidence.at),
            text: evidence.text.clone(),
        }
    }
}

/// One change of status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryDocument {
    /// When.
    pub at: String,
    /// To which status.
    pub status: String,
}

/// One listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerDocument {
    /// Name from the configuration.
    pub name: String,
    /// `log`, `hook`, …
    pub kind: String,
    /// Events taken.
    pub delivered: u64,
    /// Events refused for good.
    pub failed: u64,
    /// Events waiting.
    pub pending: u64,
}

impl ListenerDocument {
    fn new(listener: &ListenerView) -> ListenerDocument {
        ListenerDocument {
            name: listener.name.clone(),
            kind: listener.kind.to_owned(),
            delivered: listener.delivered,
            failed: listener.failed,
            pending: listener.pending,
        }
    }
}
