//! One directory as the snapshot shows it: the status with its reason, the numbers, the proof.

use super::moment::Moment;
use super::observation::Operation;
use super::snapshot::DirView;
use super::space;
use super::status::{
    AccessStatus, Axis, Cause, Evidence, LatencyStatus, Reason, Severity, SpaceStatus, Status,
};
use super::track::Track;

/// Why the one-word status is what it is: the reason of its axis.
pub(super) fn reason(track: &Track) -> Option<&Reason> {
    let access = track.access.reason();
    let status = track.status_now();
    [
        (
            Status::of(
                SpaceStatus::Ok,
                track.access.status(),
                LatencyStatus::Normal,
            ),
            access,
        ),
        (
            Status::of(
                track.space.status(),
                AccessStatus::Ok,
                LatencyStatus::Normal,
            ),
            track.space.reason(),
        ),
    ]
    .into_iter()
    .find(|(of_axis, _)| *of_axis == status && status.severity() != Severity::Ok)
    .map_or_else(|| track.latency.reason(), |(_, reason)| reason)
}

/// What is good again, in words.
pub(super) fn back_to_good(track: &Track, axis: Axis) -> Option<Reason> {
    let limits = &track.dir.thresholds;
    let (cause, operation, message) = match axis {
        Axis::Space => {
            let usage = space::usage_ratio(track.last_space.as_ref()?)?;
            let text = format!(
                "usage {usage:.3} is below warn {:.3} and low_watermark {:.3}",
                limits.warn, limits.low_watermark
            );
            (Cause::Bytes, Operation::Statvfs, text)
        }
        Axis::Access => {
            let text = "every step of the probe has been good for the dwell time".to_owned();
            (Cause::Io, Operation::Sync, text)
        }
        Axis::Latency => {
            let text = "probes are within the limits of latency again".to_owned();
            (Cause::Timeout, Operation::Sync, text)
        }
    };
    Some(Reason {
        cause,
        operation,
        errno: None,
        message,
    })
}

/// The directory as the snapshot shows it.
pub(super) fn view(track: &Track, now: Moment) -> DirView {
    let status = track.status_now();
    DirView {
        id: track.id,
        path: track.dir.path.clone(),
        role: track.dir.role,
        status,
        since: track.status.map_or(now.wall, |status| status.since.wall),
        severity: status.severity(),
        suspect: track.access.is_suspect(),
        space_status: track.space.status(),
        access_status: track.access.status(),
        latency_status: track.latency.status(),
        reason: reason(track).cloned(),
        space: track.present_space().copied(),
        usage_ratio: track.present_space().and_then(space::usage_ratio),
        thresholds: track.dir.thresholds,
        forecast: track
            .forecast_view
            .filter(|_| track.present_space().is_some()),
        last_observation: track.last_looked.map(|at| at.wall),
        last_probe_success: track.last_probe_success.map(|at| at.wall),
        durations: track.durations.clone(),
        latency: track.latency.view(),
        in_flight: track.access.overdue().map(|in_flight| in_flight.age),
        mount: track.mount.clone(),
        sources: track.sources.clone(),
        evidence: evidence(track, now),
        transitions: track.transitions.clone(),
        failures: track.failures.clone(),
        high_priority_room: track
            .high_priority_room()
            .filter(|_| track.present_space().is_some()),
        history: track.history.iter().copied().collect(),
    }
}

/// Proof behind the status: what holds on each axis, and what is only suspected.
fn evidence(track: &Track, now: Moment) -> Vec<Evidence> {
    let since = |axis: usize| track.axes_since[axis].unwrap_or(now).wall;
    let mut lines = Vec::new();
    let mut line = |at, text: &str| {
        lines.push(Evidence {
            at,
            text: text.to_owned(),
        });
    };
    for (_, reason) in track.access.conditions() {
        line(since(1), &reason.message);
    }
    if track.access.conditions().next().is_none()
        && let Some(reason) = track.access.reason()
    {
        line(since(1), &reason.message);
    }
    if let Some(reason) = track.space.reason() {
        line(since(0), &reason.message);
    }
    if let Some(reason) = track.latency.reason() {
        line(since(2), &reason.message);
    }
    if let Some(reason) = track.access.suspicion() {
        line(
            now.wall,
            &format!("seen once, not yet confirmed: {}", reason.message),
        );
    }
    if let Some(in_flight) = track.access.overdue() {
        let name = in_flight.operation.name();
        let age = in_flight.age.as_secs_f64();
        line(now.wall, &format!("{name} has been running for {age:.1} s"));
    }
    if track.access.is_on_probation() {
        line(
            now.wall,
            "answers again; recovered after more good rounds and the dwell time",
        );
    }
    if track.awaits_cookie() && track.last_looked.is_some() {
        line(
            now.wall,
            "not probed: there is no current/VERSION, and nothing is written before a bookie was initialised here",
        );
    }
    if track.space.is_leaving() {
        line(
            now.wall,
            "space is below its marks; recovered after the dwell time",
        );
    }
    lines
}
