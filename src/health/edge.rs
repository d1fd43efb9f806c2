//! The table of edges: which change of an axis is which event. Pure lookups, one an axis.

use super::event::EventKind;
use super::status::{AccessStatus, LatencyStatus, SpaceStatus};

/// Of the space axis. `known` is the newest value that was not unknown.
pub(super) fn space_event(
    told: SpaceStatus,
    known: Option<SpaceStatus>,
    now: SpaceStatus,
) -> Option<EventKind> {
    use SpaceStatus::{AlmostFull, Full, Ok, Unknown};
    // After a time without knowledge, what was known before decides which edge it is.
    let before = if told == Unknown { known } else { Some(told) };
    match (before, now) {
        (_, Unknown) => Some(EventKind::DiskUnknown),
        (_, Full) => Some(EventKind::DiskFull),
        (Some(Full), Ok) => Some(EventKind::DiskWritable),
        (Some(Full), AlmostFull) => Some(EventKind::DiskJustWritable),
        (Some(AlmostFull), Ok) => Some(EventKind::DiskBelowWarn),
        (_, AlmostFull) => Some(EventKind::DiskAlmostFull),
        (Some(Ok), Ok) => Some(EventKind::DiskRecovered),
        (Some(Unknown) | None, Ok) => None,
    }
}

/// Of the access axis. The first verdict of all is no event when it is a good one.
pub(super) fn access_event(known: bool, now: AccessStatus) -> Option<EventKind> {
    match now {
        AccessStatus::Ok => known.then_some(EventKind::DiskRecovered),
        AccessStatus::Unknown => known.then_some(EventKind::DiskUnknown),
        AccessStatus::ReadOnly => Some(EventKind::DiskReadOnly),
        AccessStatus::Hung => Some(EventKind::DiskHung),
        AccessStatus::Failed => Some(EventKind::DiskFailed),
        AccessStatus::Vanished => Some(EventKind::DiskVanished),
        AccessStatus::Replaced => Some(EventKind::DiskReplaced),
    }
}

/// Of the latency axis.
pub(super) fn latency_event(told: LatencyStatus, now: LatencyStatus) -> Option<EventKind> {
    match (told, now) {
        (_, LatencyStatus::Slow) => Some(EventKind::DiskSlow),
        (LatencyStatus::Slow, _) => Some(EventKind::DiskRecovered),
        _ => None,
    }
}
