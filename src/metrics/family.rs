//! The one table of metrics: name, type, help, labels, and how the series are collected. What is
//! not in it is not exposed, and `docs/metrics.md` is written from it.
//!
//! A number that is not known has no series (a NaN would spoil every sum over directories). States
//! are sets: 1 for the present one, 0 for the others.

use prometheus::proto::MetricType;

use super::{Facts, Series, beside, float};
use crate::document::shown_space;
use crate::health::claim::Owner;
use crate::health::event::EventKind;
use crate::health::observation::Operation;
use crate::health::policy::Mode;
use crate::health::restart::Verdict;
use crate::health::snapshot::{DirView, Histogram};
use crate::health::status::{Cause, Status};

/// Steps whose durations have a series: the look at the space, and what a probe asks of the disk.
/// Each step costs a series for every directory.
const STEPS: [Operation; 5] = [
    Operation::Statvfs,
    Operation::Create,
    Operation::Write,
    Operation::Sync,
    Operation::Read,
];

/// One metric family, and how its series are collected: `C` is a function.
pub(super) struct Family<C = fn(&Facts<'_>, &mut Series)> {
    pub(super) name: &'static str,
    pub(super) kind: MetricType,
    pub(super) help: &'static str,
    pub(super) labels: &'static [&'static str],
    pub(super) collect: C,
}

type Labels = &'static [&'static str];

/// The families of the agent.
type Collect = fn(&Facts<'_>, &mut Series);

pub(super) const fn family<C>(
    kind: MetricType,
    name: &'static str,
    help: &'static str,
    labels: Labels,
    collect: C,
) -> Family<C> {
    Family {
        name,
        kind,
        help,
        labels,
        collect,
    }
}

const fn gauge(name: &'static str, help: &'static str, labels: Labels, collect: Collect) -> Family {
    family(MetricType::GAUGE, name, help, labels, collect)
}

const fn counter(
    name: &'static str,
    help: &'static str,
    labels: Labels,
    collect: Collect,
) -> Family {
    family(MetricType::COUNTER, name, help, labels, collect)
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    labels: Labels,
    collect: Collect,
) -> Family {
    family(MetricType::HISTOGRAM, name, help, labels, collect)
}

/// Labels of a series of one directory. The role belongs to it: one path may have two.
const DIR: &[&str] = &["dir", "role"];

/// All families, in the order in which they are exposed.
pub(super) const FAMILIES: &[Family] = &[
    gauge(
        "dirkeeper_build_info",
        "Version and revision of the running agent; always 1.",
        &["version", "revision"],
        |facts, series| series.gauge(&[facts.about.version, facts.about.revision], 1.0),
    ),
    gauge(
        "dirkeeper_dir_status",
        "Status of the directory in one word: 1 for the present one, 0 for the others.",
        &["dir", "role", "status"],
        |facts, series| {
            for (path, dir) in &facts.dirs {
                for status in Status::ALL {
                    let labels = [path, dir.role.name(), status.name()];
                    series.flag(&labels, status == dir.status);
                }
            }
        },
    ),
    gauge(
        "dirkeeper_dir_status_since_timestamp_seconds",
        "When the directory got its present status, in Unix time.",
        DIR,
        |facts, series| each_dir(facts, series, |dir| Some(dir.since.seconds())),
    ),
    gauge(
        "dirkeeper_dir_last_observation_timestamp_seconds",
        "When the directory was last looked at, well or not, in Unix time.",
        DIR,
        |facts, series| each_dir(facts, series, |dir| Some(dir.last_observation?.seconds())),
    ),
    gauge(
        "dirkeeper_dir_size_bytes",
        "Size of the file system.",
        DIR,
        |facts, series| each_dir(facts, series, |dir| Some(float(shown_space(dir)?.size))),
    ),
    gauge(
        "dirkeeper_dir_available_bytes",
        "Bytes that a process without privilege may still write.",
        DIR,
        |facts, series| {
            each_dir(facts, series, |dir| {
                Some(float(shown_space(dir)?.available))
            })
        },
    ),
    gauge(
        "dirkeeper_dir_usage_ratio",
        "1 - available / size.",
        DIR,
        |facts, series| {
            each_dir(facts, series, |dir| {
                dir.usage_ratio.filter(|ratio| ratio.is_finite())
            })
        },
    ),
    gauge(
        "dirkeeper_dir_inodes",
        "Inodes of the file system, where it counts them.",
        DIR,
        |facts, series| each_dir(facts, series, |dir| Some(inodes(dir)?.0)),
    ),
    gauge(
        "dirkeeper_dir_inodes_free",
        "Inodes that a process without privilege may still use.",
        DIR,
        |facts, series| each_dir(facts, series, |dir| Some(inodes(dir)?.1)),
    ),
    gauge(
        "dirkeeper_dir_threshold_ratio",
        "Usage ratios at which the status of the directory changes.",
        &["dir", "role", "threshold"],
        |facts, series| {
            for (path, dir) in &facts.dirs {
                let limits = &dir.thresholds;
                for (name, ratio) in [
                    ("warn", limits.warn),
                    ("full", limits.full),
                    ("low_watermark", limits.low_watermark),
                ] {
                    series.gauge(&[path, dir.role.name(), name], ratio);
                }
            }
        },
    ),
    gauge(
        "dirkeeper_dir_full_in_seconds",
        "Time until the directory is full at the present rate; +Inf when it may never be, absent without a forecast.",
        &["dir", "role", "bound"],
        |facts, series| {
            for (path, dir) in &facts.dirs {
                let Some(forecast) = dir.forecast else {
                    continue;
                };
                let seconds = |time: std::time::Duration| time.as_secs_f64().round();
                let latest = forecast.latest.map_or(f64::INFINITY, seconds);
                for (bound, value) in [
                    ("expected", seconds(forecast.expected)),
                    ("earliest", seconds(forecast.earliest)),
                    ("latest", latest),
                ] {
                    series.gauge(&[path, dir.role.name(), bound], value);
                }
            }
        },
    ),
    gauge(
        "dirkeeper_dir_ballast_bytes",
        "Bytes of the ballast file: that are to be held, and that really occupy blocks.",
        &["dir", "role", "kind"],
        |facts, series| {
            for (path, dir) in &facts.dirs {
                let Some(ballast) = dir.ballast else {
                    continue;
                };
                let role = dir.role.name();
                series.gauge(&[path, role, "wanted"], float(ballast.wanted));
                series.known(&[path, role, "held"], ballast.held.map(float));
            }
        },
    ),
    gauge(
        "dirkeeper_high_priority_room_bytes",
        "Bytes for recovery writes beyond the reserve; 0 when there is less than the reserve.",
        DIR,
        |facts, series| {
            each_dir(facts, series, |dir| {
                Some(float(dir.high_priority_room?.bytes))
            });
        },
    ),
    gauge(
        "dirkeeper_journal_unmarked_bytes",
        "Bytes of the bookie's journal behind lastMark, at most: files are preallocated. Absent while a mark is not known.",
        DIR,
        |facts, series| {
            each_dir(facts, series, |dir| Some(float(dir.journal?.unmarked?)));
        },
    ),
    gauge(
        "dirkeeper_restart_would_fail",
        "Whether a start of the bookie would fail now, by what BookKeeper itself checks; absent while that is not known, and without the bookie's file.",
        &[],
        |facts, series| match facts.snapshot.restart.as_ref().map(|view| view.verdict) {
            Some(Verdict::WouldFail) => series.flag(&[], true),
            Some(Verdict::WouldSucceed) => series.flag(&[], false),
            Some(Verdict::Unknown) | None => {}
        },
    ),
    counter(
        "dirkeeper_dir_transitions_total",
        "Changes of the directory's status, by the new status.",
        &["dir", "role", "to"],
        |facts, series| {
            for (path, dir) in &facts.dirs {
                for to in Status::ALL {
                    let changes = dir.transitions.get(&to).copied().unwrap_or_default();
                    series.count(&[path, dir.role.name(), to.name()], changes);
                }
            }
        },
    ),
    histogram(
        "dirkeeper_probe_duration_seconds",
        "Durations of the steps of all looks and probes.",
        &["step"],
        |facts, series| {
            let none = Histogram::default();
            for step in STEPS {
                let durations = facts.snapshot.probe_histograms.get(&step);
                series.histogram(&[step.name()], durations.unwrap_or(&none));
            }
        },
    ),
    gauge(
        "dirkeeper_probe_last_duration_seconds",
        "Durations of the steps of the newest probe of the directory.",
        &["dir", "role", "step"],
        |facts, series| {
            for (path, dir) in &facts.dirs {
                for step in STEPS {
                    let duration = dir.durations.get(&step).map(|time| time.as_secs_f64());
                    series.known(&[path, dir.role.name(), step.name()], duration);
                }
            }
        },
    ),
    gauge(
        "dirkeeper_dir_slow_score",
        "How late the newest probes of the directory were, damped: 1 never, 58 three in a row, 100 always.",
        DIR,
        |facts, series| each_dir(facts, series, |dir| dir.latency.score.map(f64::from)),
    ),
    counter(
        "dirkeeper_probe_failures_total",
        "Looks and probes that failed, by cause.",
        &["dir", "role", "cause"],
        |facts, series| {
            for (path, dir) in &facts.dirs {
                for cause in Cause::ALL {
                    let failures = dir.failures.get(&cause).copied().unwrap_or_default();
                    if failures == 0 && is_verdict(cause) {
                        continue;
                    }
                    series.count(&[path, dir.role.name(), cause.name()], failures);
                }
            }
        },
    ),
    gauge(
        "dirkeeper_probe_in_flight_seconds",
        "Age of the operation that is running on the directory; 0 when none is late.",
        DIR,
        |facts, series| {
            each_dir(facts, series, |dir| {
                Some(dir.in_flight.unwrap_or_default().as_secs_f64())
            });
        },
    ),
    gauge(
        "dirkeeper_mode",
        "Mode that the disks allow (wanted) and that the server has (observed): 1 for the present one, all 0 while nobody can say.",
        &["kind", "mode"],
        |facts, series| {
            let view = &facts.snapshot.mode;
            for (kind, present) in [("wanted", view.wanted), ("observed", view.observed)] {
                for mode in [Mode::Writable, Mode::ReadOnly] {
                    series.flag(&[kind, mode.name()], present == Some(mode));
                }
            }
        },
    ),
    gauge(
        "dirkeeper_high_priority_writes",
        "Whether recovery writes are possible by the disks (wanted), and whether the bookie takes them (observed); the second is absent while nobody can say.",
        &["kind"],
        |facts, series| {
            series.flag(&["wanted"], facts.snapshot.mode.high_priority_writes);
            let observed = facts.snapshot.beside.high_priority_writes;
            series.known_flag(&["observed"], observed);
        },
    ),
    gauge(
        "dirkeeper_mode_claim",
        "Who holds the server in a mode: 1 for each owner that has a claim. A bookie that is in a mode that no claim explains has one itself.",
        &["owner"],
        |facts, series| {
            let claims = &facts.snapshot.mode.claims;
            for owner in Owner::NAMES {
                let holds = claims.iter().any(|claim| claim.owner.name() == owner);
                series.flag(&[owner], holds);
            }
        },
    ),
    gauge(
        "dirkeeper_mode_held",
        "1 while a change of the mode is wanted and something keeps it from being made; the status says what.",
        &[],
        |facts, series| series.flag(&[], facts.snapshot.mode.held.is_some()),
    ),
    gauge(
        "dirkeeper_journal_emergency",
        "1 while a journal is below its bytes, so that the bookie may go below the cluster's floor for it; 0 too where that is not configured.",
        &[],
        |facts, series| series.flag(&[], facts.snapshot.mode.journal_emergency),
    ),
    gauge(
        "dirkeeper_bookie_up",
        "1 while the bookie answers and serves; absent without a bookie, and before it was asked.",
        &[],
        |facts, series| series.known_flag(&[], facts.snapshot.beside.bookie_up),
    ),
    gauge(
        "dirkeeper_zookeeper_connected",
        "1 while the session with ZooKeeper is there; absent where none is configured.",
        &[],
        |facts, series| series.known_flag(&[], facts.snapshot.beside.zookeeper),
    ),
    gauge(
        "dirkeeper_bookie_compaction_suspended",
        "1 while compaction of the bookie is suspended somewhere, as it says or as follows from what was over warn.",
        &["kind"],
        beside::suspended,
    ),
    gauge(
        "dirkeeper_bookie_compaction_stalled",
        "1 while a collector of the bookie has ended no major or minor compaction for several of its intervals; absent before its counters were read.",
        &[],
        |facts, series| series.known_flag(&[], facts.snapshot.beside.compaction.stalled),
    ),
    counter(
        "dirkeeper_bookie_compactions_total",
        "Compactions since the start of the bookie, over all its collectors; a major one does not count as a minor one too.",
        &["kind"],
        beside::compactions,
    ),
    gauge(
        "dirkeeper_bookie_forced_gc",
        "1 while a forced garbage collection of the bookie runs.",
        &[],
        |facts, series| series.known_flag(&[], facts.snapshot.beside.compaction.forced),
    ),
    gauge(
        "dirkeeper_bookie_forced_gc_loop",
        "1 while forced garbage collections of the bookie follow each other and free nothing; absent while nobody can say whether one runs.",
        &[],
        |facts, series| series.known_flag(&[], facts.snapshot.beside.compaction.forced_loop),
    ),
    gauge(
        "dirkeeper_cluster_bookies",
        "Bookies of the cluster by their registration, and with a directory over warn as their agents say; by rack where there are at most 64.",
        &["state", "rack"],
        beside::cluster_bookies,
    ),
    gauge(
        "dirkeeper_cluster_largest_ensemble",
        "The largest ensemble in use; new ones of it need as many writable bookies.",
        &[],
        beside::largest_ensemble,
    ),
    gauge(
        "dirkeeper_cluster_headroom_low",
        "1 where one writable bookie less would be too few for the largest ensemble, in the cluster (no group) or in an isolation group that can serve it; groups are left out where there are more than 64.",
        &["group"],
        beside::headroom_low,
    ),
    gauge(
        "dirkeeper_cluster_claims_orphaned",
        "Bookies of the cluster that are held by a claim and have had no agent for a minute; absent before the cluster was read.",
        &[],
        beside::orphaned,
    ),
    counter(
        "dirkeeper_mode_transitions_total",
        "Changes of the mode, by the new mode and the reason.",
        &["to", "reason"],
        |facts, series| {
            for ((to, reason), changes) in &facts.snapshot.mode.transitions {
                series.count(&[to.name(), reason], *changes);
            }
        },
    ),
    counter(
        "dirkeeper_events_total",
        "Events since the start of the agent.",
        &["event"],
        |facts, series| {
            for kind in EventKind::ALL {
                let events = facts.snapshot.event_counts.get(kind).copied();
                series.count(&[kind.name()], events.unwrap_or_default());
            }
        },
    ),
    counter(
        "dirkeeper_listener_events_total",
        "Events handed to the listener, by what became of them.",
        &["listener", "outcome"],
        |facts, series| {
            for view in &facts.own.listeners {
                for (outcome, events) in [
                    ("delivered", view.delivered),
                    ("failed", view.failed),
                    ("retried", view.retried),
                    ("coalesced", view.coalesced),
                ] {
                    series.count(&[&view.name, outcome], events);
                }
            }
        },
    ),
    gauge(
        "dirkeeper_listener_queue_length",
        "Events that wait for the listener.",
        &["listener"],
        |facts, series| {
            for view in &facts.own.listeners {
                series.gauge(&[&view.name], float(view.pending));
            }
        },
    ),
    histogram(
        "dirkeeper_hook_duration_seconds",
        "Durations of the runs of the hook.",
        &["hook"],
        |facts, series| {
            for view in &facts.own.listeners {
                if let Some(durations) = &view.durations {
                    series.histogram(&[&view.name], durations);
                }
            }
        },
    ),
    counter(
        "dirkeeper_child_restarts_total",
        "Restarts of the agent's child processes.",
        &["child"],
        |facts, series| {
            series.count(&["prober"], facts.snapshot.prober_restarts);
            series.count(&["writer"], facts.own.writer_restarts);
        },
    ),
    gauge(
        "dirkeeper_children_abandoned",
        "Child processes that did not end when they were killed and were left behind.",
        &[],
        |facts, series| series.gauge(&[], float(facts.snapshot.children_abandoned)),
    ),
    gauge(
        "dirkeeper_watches_nothing",
        "1 while the prober has been away for a minute: no directory is watched.",
        &[],
        |facts, series| series.flag(&[], facts.snapshot.watches_nothing),
    ),
    counter(
        "dirkeeper_log_lines_dropped_total",
        "Log lines that did not fit into the queue.",
        &[],
        |facts, series| series.count(&[], facts.own.log_lines_dropped),
    ),
    gauge(
        "dirkeeper_loop_last_turn_timestamp_seconds",
        "When the monitor loop made its newest turn, in Unix time.",
        &[],
        |facts, series| series.gauge(&[], facts.snapshot.time.seconds()),
    ),
    gauge(
        "dirkeeper_state_store_ok",
        "1 while the state store takes events in time; 0 while they are kept in memory only.",
        &[],
        |facts, series| series.flag(&[], facts.own.state_store_ok),
    ),
    gauge(
        "dirkeeper_config_reload_ok",
        "1 when the newest reading of the configuration was valid; 0 while an older one is in force.",
        &[],
        |facts, series| series.flag(&[], facts.own.config_reload_ok),
    ),
    counter(
        "process_cpu_seconds_total",
        "User and system CPU time of the agent in seconds, without its children.",
        &[],
        |facts, series| {
            if let Some(seconds) = facts.process.cpu_seconds {
                series.counter(&[], seconds);
            }
        },
    ),
    gauge(
        "process_max_fds",
        "Most file descriptors that the agent may open.",
        &[],
        |facts, series| series.known(&[], facts.process.max_fds),
    ),
    gauge(
        "process_open_fds",
        "File descriptors that the agent has open.",
        &[],
        |facts, series| series.known(&[], facts.process.open_fds),
    ),
    gauge(
        "process_resident_memory_bytes",
        "Resident memory of the agent, without its children.",
        &[],
        |facts, series| series.known(&[], facts.process.resident_bytes),
    ),
    gauge(
        "process_start_time_seconds",
        "When the agent started, in Unix time.",
        &[],
        |facts, series| series.gauge(&[], facts.snapshot.started_at.seconds()),
    ),
    gauge(
        "process_threads",
        "Threads of the agent.",
        &[],
        |facts, series| series.known(&[], facts.process.threads),
    ),
    gauge(
        "process_virtual_memory_bytes",
        "Virtual memory of the agent, without its children.",
        &[],
        |facts, series| series.known(&[], facts.process.virtual_bytes),
    ),
];

/// One series for each directory of which the number is known.
fn each_dir(facts: &Facts<'_>, series: &mut Series, number: fn(&DirView) -> Option<f64>) {
    for (path, dir) in &facts.dirs {
        series.known(&[path, dir.role.name()], number(dir));
    }
}

/// Causes of verdicts on numbers and kernel signals, and of the bookie's events: no probe fails by them, so
/// they cost no series.
fn is_verdict(cause: Cause) -> bool {
    use Cause::{Bookie, Cluster, Inodes, KernelError, NoSize};
    matches!(cause, Inodes | KernelError | NoSize | Bookie | Cluster)
}

/// All inodes and the free ones, where the file system has the notion.
fn inodes(dir: &DirView) -> Option<(f64, f64)> {
    let space = shown_space(dir).filter(|space| space.inodes != 0)?;
    Some((float(space.inodes), float(space.inodes_free)))
}
