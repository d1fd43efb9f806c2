//! One directory as the snapshot shows it: the status with its reason, the numbers, the proof.

use std::time::Duration;

use super::access;
use super::moment::Moment;
use super::observation::{Operation, Pressure};
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

/// The reason, and of a full directory with room again what it waits for: its numbers alone would contradict it.
fn with_the_dwell(track: &Track, reason: &Reason) -> Reason {
    let usage = track.present_space().and_then(space::usage_ratio);
    match usage.filter(|_| track.space.is_leaving() && track.status_now() == Status::Full) {
        None => reason.clone(),
        Some(usage) => Reason {
            message: format!(
                "{}; now {usage:.3}, writable again after {} s below its marks",
                reason.message,
                track.dir.thresholds.dwell.as_secs()
            ),
            ..reason.clone()
        },
    }
}

/// What is good again, in words. The cause of an axis that is good is what has ended.
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
    let (cause, operation) = track.told.causes[axis as usize].unwrap_or((cause, operation));
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
        reason: reason(track).map(|reason| with_the_dwell(track, reason)),
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
        journal: track.journal_view,
        ballast: track.ballast_view(now),
        history: track.history.iter().copied().collect(),
    }
}

/// A signal is shown for so long: one who is called at night looks within minutes.
const SIGNAL_SHOWN: Duration = Duration::from_secs(600);

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
    for text in running(track) {
        line(now.wall, &text);
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
    if let Some(text) = track.ballast_view(now).and_then(|ballast| ballast.text()) {
        line(now.wall, &text);
    }
    if track.space.is_leaving() {
        line(
            now.wall,
            "space is below its marks; recovered after the dwell time",
        );
    }
    lines.extend(told_by_the_kernel(track, now));
    lines
}

/// What is held up, and what is known about why.
fn running(track: &Track) -> Vec<String> {
    let mut texts = Vec::new();
    if let Some(in_flight) = track.access.overdue() {
        let name = in_flight.operation.name();
        let age = in_flight.age.as_secs_f64();
        texts.push(format!("{name} has been running for {age:.1} s"));
        if in_flight.device_writes {
            let limit = access::extended(in_flight, track.deadline()).as_secs_f64();
            texts.push(format!(
                "the device still completes writes: deadline extended to {limit:.1} s"
            ));
        }
    }
    // Proof as well for a probe that ended late.
    let slow = track.latency.reason().and(track.pressure);
    let overdue = track.access.overdue();
    if let Some(Pressure { some, full }) = overdue.map_or(slow, |in_flight| in_flight.pressure) {
        texts.push(format!(
            "tasks waited for I/O {full} % of the last 10 s (PSI full avg10; some {some} %)"
        ));
    }
    texts.extend(track.access.stalled().map(str::to_owned));
    texts
}

/// Errors that the file system has recorded, and the newest signals.
fn told_by_the_kernel(track: &Track, now: Moment) -> impl Iterator<Item = Evidence> {
    let recorded = track.recorded.as_ref().map(|what| (now, what));
    let signals = track.signals.iter().map(|(at, what)| (*at, what));
    let signals =
        signals.filter(move |(at, _)| now.elapsed.saturating_sub(at.elapsed) < SIGNAL_SHOWN);
    recorded
        .into_iter()
        .chain(signals)
        .map(|(at, text)| Evidence {
            at: at.wall,
            text: text.clone(),
        })
}

#[cfg(test)]
mod tests {
    use super::super::dir::{Dir, DirId, ProbePolicy, Role, Thresholds};
    use super::super::moment::Timestamp;
    use super::super::observation::{Durations, InFlight, Medium, Observation, Pressure, Space};
    use super::super::schedule::Wait;
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment {
            elapsed: Duration::from_secs(seconds.unsigned_abs()),
            wall: Timestamp(seconds * 1000),
        }
    }

    fn track() -> Track {
        let dir = Dir {
            path: "/d".into(),
            role: Role::Ledger,
            thresholds: Thresholds::default(),
            probe: ProbePolicy::default(),
            require_mount: false,
            root_ok: false,
            await_cookie: false,
            ballast: 0,
        };
        Track::new(DirId(0), dir, None)
    }

    /// Each line of evidence with its second.
    fn lines(track: &Track, now: i64) -> Vec<String> {
        let evidence = view(track, at(now)).evidence;
        let line = |line: &Evidence| format!("{} {}", line.at.0 / 1000, line.text);
        evidence.iter().map(line).collect()
    }

    #[test]
    fn a_full_directory_with_room_says_what_it_waits_for() {
        let mut track = track();
        let why = |track: &mut Track, now: i64, available| {
            let space = Space {
                size: 1 << 40,
                available,
                inodes: 0,
                inodes_free: 0,
            };
            let limits = track.dir.thresholds;
            track.space.observe(at(now).elapsed, &space, &limits, 0);
            track.last_space = Some(space);
            view(track, at(now)).reason.map(|reason| reason.message)
        };
        let full = why(&mut track, 1, 1 << 30).unwrap();
        assert_eq!(full, "usage 0.999 is over full 0.950");
        let waits = format!("{full}; now 0.500, writable again after 30 s below its marks");
        assert_eq!(why(&mut track, 2, 1 << 39), Some(waits));
        assert_eq!(why(&mut track, 33, 1 << 39), None);
    }

    #[test]
    fn signals_are_evidence_for_ten_minutes_and_the_newest_few_are_kept() {
        let mut track = track();
        for second in 1..=7 {
            track.signal(at(second), format!("signal {second}"));
        }
        track.signal(at(8), "signal 6".to_owned());
        let kept = [
            "3 signal 3",
            "4 signal 4",
            "5 signal 5",
            "7 signal 7",
            "8 signal 6",
        ];
        assert_eq!(lines(&track, 9), kept);
        assert_eq!(lines(&track, 606), kept[3..]);
        assert!(lines(&track, 608).is_empty());
    }

    /// A file system that goes on with errors has the next one of our own probe.
    #[test]
    fn errors_hurry_at_once_and_then_once_an_interval() {
        let mut track = track();
        let interval = track.dir.probe.interval;
        let mut fulls = Vec::new();
        for second in 0..30 {
            let now = at(second);
            if let Some(full) = track.schedule.begin(now.elapsed) {
                track
                    .schedule
                    .ended(now.elapsed, || Wait::Round(interval), interval / 10);
                fulls.extend(full.then_some(second));
            }
            if 2 <= second {
                let what = format!("btrfs counted an error: write_errs {second}");
                track.observe(now, Observation::FileSystemError(what));
            }
            if second == 2 {
                assert_eq!(track.schedule.due(), Some(now.elapsed), "the first");
            }
        }
        // Every ten seconds in its turn, and between two turns once.
        assert_eq!(fulls, [0, 3, 10, 13, 20, 23]);
        let newest = lines(&track, 30).pop();
        assert_eq!(
            newest.as_deref(),
            Some("29 btrfs counted an error: write_errs 29")
        );
        track.signal(at(30), "another mount".to_owned());
        assert_eq!(track.schedule.due(), Some(at(30).elapsed), "no error");
    }

    #[test]
    fn what_the_kernel_counts_is_evidence_and_no_verdict() {
        let mut track = track();
        let status = track.status_now();
        track.observe(
            at(1),
            Observation::Recorded(Some("2 errors: run e2fsck".to_owned())),
        );
        track.observe(at(1), Observation::Stalled(Some("8:0 holds".to_owned())));
        let running = InFlight {
            operation: Operation::Sync,
            age: Duration::from_secs(3),
            device_writes: true,
            stalled: None,
            pressure: Some(Pressure { some: 91, full: 87 }),
            behind: None,
        };
        track.observe(at(1), Observation::InFlight(running));
        assert_eq!(
            lines(&track, 2),
            [
                "2 sync has been running for 3.0 s",
                "2 the device still completes writes: deadline extended to 45.0 s",
                "2 tasks waited for I/O 87 % of the last 10 s (PSI full avg10; some 91 %)",
                "2 8:0 holds",
                "2 2 errors: run e2fsck",
            ]
        );
        assert_eq!(track.status_now(), status);
        assert!(view(&track, at(2)).suspect);
        track.void_look(at(3));
        assert_eq!(lines(&track, 3).len(), 4, "the next prober says it anew");
        track.observe(at(3), Observation::Recorded(None));
        assert_eq!(lines(&track, 3).len(), 3, "and they were set back");
    }

    #[test]
    fn pressure_is_evidence_for_slow_probes_and_for_no_others() {
        let mut track = track();
        track.pressure = Some(Pressure { some: 40, full: 30 });
        assert!(lines(&track, 1).is_empty());
        let probe = Durations::from([(Operation::Sync, Duration::from_secs(1))]);
        let slow = Duration::from_millis(250);
        for second in 1..=3 {
            let dwell = Duration::from_secs(2);
            track
                .latency
                .observe(at(second).elapsed, &probe, slow, Medium::Rotating, dwell);
        }
        let lines = lines(&track, 3);
        let text = "3 tasks waited for I/O 30 % of the last 10 s (PSI full avg10; some 40 %)";
        assert_eq!(lines.last().map(String::as_str), Some(text), "{lines:?}");
        assert_eq!(lines.len(), 2, "the reason and the pressure");
    }
}
