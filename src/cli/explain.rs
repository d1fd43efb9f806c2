//! `check --explain`: for each directory what was tried, what each step gave, and which verdict
//! follows from it. For somebody who doubts the verdict.

use std::fmt::Write;
use std::time::Duration;

use super::check::exit_of;
use super::terminal::{self, Terminal, Tone, percent, printable, words};
use crate::document::{shown, shown_space, shown_usage, timestamp_text};
use crate::health::moment::Timestamp;
use crate::health::observation::{Medium, Mount, Operation};
use crate::health::snapshot::{DirView, Snapshot, Sources};
use crate::health::status::{AccessStatus, LatencyStatus, Reason, SpaceStatus, Status};
use crate::health::words::bytes_text;

/// Column in which what follows a heading begins.
const MARGIN: usize = 12;

/// The whole text.
#[must_use]
pub fn explain(snapshot: &Snapshot, terminal: Terminal) -> String {
    let blocks = snapshot.dirs.iter().map(|dir| block(dir, terminal));
    blocks.collect::<Vec<_>>().join("\n")
}

fn block(dir: &DirView, terminal: Terminal) -> String {
    let path = shown(&dir.path);
    let status = words(dir.status.name());
    let tone = Tone::of_severity(dir.severity.name());
    let mut text = format!(
        "{} ({}): {}\n",
        terminal.paint(Tone::Heading, &path),
        dir.role.name(),
        terminal.paint(tone, &status)
    );
    let mut say = |heading: &str, lines: &[String]| {
        for (number, line) in lines.iter().enumerate() {
            let heading = if number == 0 { heading } else { "" };
            let _ = writeln!(text, "  {heading:<width$}{line}", width = MARGIN - 2);
        }
    };
    say("tried", &steps(dir));
    say("space", &[space(dir)]);
    say("mount", &dir.mount.as_ref().map_or_else(no_mount, mount));
    say("sources", &sources(&dir.sources));
    say("evidence", &evidence(dir));
    say("axes", &[axes(dir)]);
    say("verdict", &verdict(dir));
    text
}

/// Each step with what it gave. The step that the reason names and that has no duration is the one
/// at which the look ended.
fn steps(dir: &DirView) -> Vec<String> {
    let stopped = dir
        .reason
        .as_ref()
        .filter(|reason| !dir.durations.contains_key(&reason.operation));
    if dir.durations.is_empty() && stopped.is_none() {
        let text = match dir.last_observation {
            None => "nothing has answered yet",
            Some(_) => "looked at, and not probed",
        };
        return vec![text.to_owned()];
    }
    let mut steps = Vec::new();
    // Not every directory has these.
    let optional = [Operation::BookieFiles, Operation::Ballast];
    let operations = Operation::ALL.into_iter().filter(|operation| {
        let shown = !optional.contains(operation) || dir.durations.contains_key(operation);
        shown && *operation < Operation::Prober
    });
    for operation in operations {
        let gave = match (dir.durations.get(&operation), stopped) {
            (Some(duration), _) => format!("ok, {}", short(*duration)),
            (None, Some(reason)) if reason.operation == operation => failed(reason, dir.in_flight),
            (None, Some(reason)) if reason.operation < operation => "not reached".to_owned(),
            // Read when it changes, not at each look, so it has no duration.
            (None, _) if operation == Operation::Mountinfo && dir.mount.is_some() => {
                "ok".to_owned()
            }
            // Durations are kept of whole probes; the steps before the one that ended the look were made.
            (None, Some(reason)) if reason.operation <= Operation::Unlink => "ok".to_owned(),
            (None, _) => "not done".to_owned(),
        };
        steps.push(format!("{:<11} {gave}", operation.name()));
    }
    if let Some(reason) = stopped.filter(|reason| reason.operation == Operation::Prober) {
        steps.push(format!("{:<11} {}", "prober", failed(reason, None)));
    }
    steps
}

fn failed(reason: &Reason, in_flight: Option<Duration>) -> String {
    if let Some(age) = in_flight {
        return format!("still running after {}", short(age));
    }
    let message = printable(&reason.message);
    match reason.errno {
        Some(errno) => format!("failed: {message} (errno {errno})"),
        None => format!("failed: {message}"),
    }
}

fn space(dir: &DirView) -> String {
    let limits = &dir.thresholds;
    let limits_text = format!(
        "warn {} %, full {} %, low watermark {} %",
        terminal::limit(limits.warn),
        terminal::limit(limits.full),
        terminal::limit(limits.low_watermark)
    );
    let (Some(space), Some(usage)) = (shown_space(dir), shown_usage(dir)) else {
        return format!("not known; {limits_text}");
    };
    let mut text = format!(
        "{} % of {} used, {} available",
        percent(usage, &[limits.low_watermark, limits.warn, limits.full]),
        bytes_text(space.size),
        bytes_text(space.available)
    );
    if space.inodes != 0 {
        let used = space.inodes.saturating_sub(space.inodes_free);
        let _ = write!(text, "; {used} of {} inodes used", space.inodes);
    }
    format!("{text}; {limits_text}")
}

fn mount(mount: &Mount) -> Vec<String> {
    let point = shown(&mount.point);
    let root = shown(&mount.root);
    let part = if root == "/" {
        String::new()
    } else {
        format!(", its part {root}")
    };
    let medium = match mount.medium {
        Medium::SolidState => "solid state",
        Medium::Rotating => "rotating",
        Medium::Network => "network or user space",
        Medium::Memory => "memory",
        Medium::Unknown => "medium not known",
    };
    let mut lines = vec![
        format!(
            "{} on {point}, {} ({})",
            printable(&mount.source),
            printable(&mount.fs_type),
            printable(&mount.options)
        ),
        format!(
            "device {}:{}, mount id {}{part}; {medium}: overdue after {} s unless configured",
            mount.device.major,
            mount.device.minor,
            mount.id,
            mount.medium.deadline().as_secs()
        ),
    ];
    if let Some(option) = &mount.emergency {
        lines.push(format!("given up by the kernel: {}", printable(option)));
    }
    lines
}

fn no_mount() -> Vec<String> {
    vec!["not known".to_owned()]
}

fn evidence(dir: &DirView) -> Vec<String> {
    if dir.evidence.is_empty() {
        return vec!["none against it".to_owned()];
    }
    let line = |at: Timestamp, text: &str| format!("{} {}", timestamp_text(at), printable(text));
    dir.evidence
        .iter()
        .map(|evidence| line(evidence.at, &evidence.text))
        .collect()
}

fn axes(dir: &DirView) -> String {
    format!(
        "space {}, access {}, latency {}",
        words(dir.space_status.name()),
        words(dir.access_status.name()),
        words(dir.latency_status.name())
    )
}

fn verdict(dir: &DirView) -> Vec<String> {
    let mut sentence = words(dir.status.name());
    if let Some(axis) = deciding_axis(dir) {
        let _ = write!(sentence, ", by its {axis}");
    }
    if let Some(reason) = &dir.reason {
        let _ = write!(sentence, ": {}", printable(&reason.message));
    }
    if dir.suspect {
        sentence.push_str("; suspect: one more look would tell");
    }
    let code = exit_of(dir.severity).code();
    vec![
        sentence,
        format!("{}, exit code {code}", dir.severity.name()),
    ]
}

/// The axis that makes the status what it is; none when all are fine.
fn deciding_axis(dir: &DirView) -> Option<&'static str> {
    const FINE: (SpaceStatus, AccessStatus, LatencyStatus) =
        (SpaceStatus::Ok, AccessStatus::Ok, LatencyStatus::Normal);
    let alone = [
        ("space", Status::of(dir.space_status, FINE.1, FINE.2)),
        ("access", Status::of(FINE.0, dir.access_status, FINE.2)),
        ("latency", Status::of(FINE.0, FINE.1, dir.latency_status)),
    ];
    let decides = |(_, status): &(&str, Status)| *status == dir.status;
    if dir.status == Status::Writable {
        return None;
    }
    alone.into_iter().find(decides).map(|(axis, _)| axis)
}

/// Those that work, then each that does not, with the reason.
fn sources(sources: &Sources) -> Vec<String> {
    let active = match sources.active.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let missing = sources.missing.iter();
    let missing = missing.map(|(name, reason)| format!("not {name}: {}", printable(reason)));
    std::iter::once(active).chain(missing).collect()
}

/// A duration with a unit that keeps it short.
fn short(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", duration.as_secs_f64() * 1e3),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::document::sample;
    use crate::health::dir::Role;
    use crate::health::status::Cause;

    #[test]
    fn every_step_and_the_verdict_are_told() {
        let mut snapshot = sample::snapshot();
        let mut failing = sample::writable_dir(5, "/mnt/l5", Role::Ledger);
        failing.status = Status::Failed;
        failing.severity = failing.status.severity();
        failing.access_status = AccessStatus::Failed;
        failing
            .durations
            .retain(|operation, _| *operation < Operation::Write);
        failing.reason = Some(Reason {
            cause: Cause::Io,
            operation: Operation::Write,
            errno: Some(5),
            message: "write of /mnt/l5: Input/output error".to_owned(),
        });
        snapshot.dirs.push(Arc::new(failing));
        insta::assert_snapshot!(explain(&snapshot, Terminal::NONE));
    }
}
