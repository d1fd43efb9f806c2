//! The space axis: bytes and inodes against their thresholds, with hysteresis in both directions.
//! Becoming full is never delayed; becoming writable again needs the low watermark and the dwell
//! time. A write that was refused for want of space counts whatever the numbers say.

use std::time::Duration;

use super::dir::Thresholds;
use super::moment::Elapsed;
use super::observation::{Operation, Space};
use super::status::{Cause, Reason, SpaceStatus};

/// Below warn by this much, a directory that was almost full is no longer so at once; nearer to
/// the threshold it has to stay below for [`NEAR_WARN_DWELL`]. Twice the swing of 1 % that
/// compaction makes on a bookie at its threshold.
const WARN_MARGIN: f64 = 0.02;

/// How long usage just below warn must stay there: longer than one cycle of a minute's swing.
const NEAR_WARN_DWELL: Duration = Duration::from_secs(60);

/// Judges the space of one directory.
#[derive(Debug, Clone, Default)]
pub struct SpaceAxis {
    /// Newest value that was not unknown; hysteresis goes on from it.
    known: SpaceStatus,
    unknown: Option<Reason>,
    reason: Option<Reason>,
    refused: Option<Reason>,
    /// Since when the condition for leaving the present value has held without a break.
    leaving_since: Option<Elapsed>,
    /// Numbers that make sense, or a refused write, were seen at least once.
    seen: bool,
}

/// How the numbers stand against the thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Below warn.
    Ok,
    /// Over warn.
    Warn,
    /// Over full.
    Full,
}

impl SpaceAxis {
    /// The axis' value.
    #[must_use]
    pub fn status(&self) -> SpaceStatus {
        if self.unknown.is_some() || !self.seen {
            SpaceStatus::Unknown
        } else {
            self.known
        }
    }

    /// Why it is not ok.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        match self.status() {
            SpaceStatus::Ok => None,
            SpaceStatus::Unknown => self.unknown.as_ref(),
            SpaceStatus::AlmostFull | SpaceStatus::Full => self.reason.as_ref(),
        }
    }

    /// A full directory is below its marks and waits out its dwell time.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.leaving_since.is_some()
    }

    /// Takes in numbers; the value may change. A full directory is writable again only when it is
    /// below its marks with `owed` bytes more in use.
    pub fn observe(&mut self, now: Elapsed, space: &Space, limits: &Thresholds, owed: u64) {
        if let Some(reason) = nonsense(space) {
            self.unknown = Some(reason);
            self.leaving_since = None;
            return;
        }
        self.unknown = None;
        let level = level(space, limits);
        let target = self.target(now, level, space, limits, owed);
        if target != self.known || !self.seen {
            self.known = target;
            self.reason = self.refused.clone().filter(|_| target == SpaceStatus::Full);
            if self.reason.is_none() && target != SpaceStatus::Ok {
                self.reason = Some(explain(space, limits, target));
            }
        }
        self.seen = true;
    }

    /// A write was refused with ENOSPC or EDQUOT: full at once, whatever the numbers say.
    pub fn refuse(&mut self, reason: Reason) {
        self.unknown = None;
        self.leaving_since = None;
        if self.known != SpaceStatus::Full || !self.seen {
            self.reason = Some(reason.clone());
        }
        self.refused = Some(reason);
        self.known = SpaceStatus::Full;
        self.seen = true;
    }

    /// A probe wrote and synced: whatever refused a write before does not any more.
    pub fn accepted_write(&mut self) {
        self.refused = None;
    }

    /// Full for want of bytes, or by a quota; inodes are another matter.
    #[must_use]
    pub fn wants_bytes(&self, space: &Space, limits: &Thresholds) -> bool {
        let refused = self.refused.as_ref();
        let over = || {
            usage_ratio(space).is_some_and(|usage| usage > limits.full)
                || space.available < limits.full_available
        };
        self.status() == SpaceStatus::Full
            && (refused.is_some_and(|reason| reason.cause != Cause::Inodes) || over())
    }

    /// A write was refused and none has succeeded since.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    fn target(
        &mut self,
        now: Elapsed,
        level: Level,
        space: &Space,
        limits: &Thresholds,
        owed: u64,
    ) -> SpaceStatus {
        if level == Level::Full || self.refused.is_some() {
            self.leaving_since = None;
            return SpaceStatus::Full;
        }
        let plain = if level == Level::Warn {
            SpaceStatus::AlmostFull
        } else {
            SpaceStatus::Ok
        };
        match self.known {
            SpaceStatus::Full => {
                let with_owed = Space {
                    available: space.available.saturating_sub(owed),
                    ..*space
                };
                let below = below_low_watermark(&with_owed, limits);
                self.leave(now, below, limits.dwell, SpaceStatus::Full, plain)
            }
            SpaceStatus::AlmostFull if plain == SpaceStatus::Ok => {
                let inodes = inode_ratio(space).unwrap_or(0.0);
                if usage_ratio(space).is_some_and(|usage| usage < limits.warn - WARN_MARGIN)
                    && inodes < limits.inodes_warn - WARN_MARGIN
                    && limits.warn_available == 0
                {
                    self.leaving_since = None;
                    return SpaceStatus::Ok;
                }
                let wait = limits.dwell.max(NEAR_WARN_DWELL);
                self.leave(now, true, wait, SpaceStatus::AlmostFull, plain)
            }
            _ => {
                self.leaving_since = None;
                plain
            }
        }
    }

    /// `after` once `may_leave` has held for `dwell`, else `present`.
    fn leave(
        &mut self,
        now: Elapsed,
        may_leave: bool,
        dwell: Duration,
        present: SpaceStatus,
        after: SpaceStatus,
    ) -> SpaceStatus {
        if !may_leave {
            self.leaving_since = None;
            return present;
        }
        let since = *self.leaving_since.get_or_insert(now);
        if now.saturating_sub(since) < dwell {
            return present;
        }
        self.leaving_since = None;
        after
    }
}

/// 1 − available ⁄ size; none where that makes no sense. BookKeeper's W15: a size of zero gave
/// not-a-number there, which is over no threshold.
#[must_use]
pub fn usage_ratio(space: &Space) -> Option<f64> {
    if space.size == 0 || space.available > space.size {
        return None;
    }
    Some(1.0 - ratio(space.available, space.size))
}

/// Ratio of used inodes; none where the file system has no such notion.
#[must_use]
pub fn inode_ratio(space: &Space) -> Option<f64> {
    if space.inodes == 0 || space.inodes_free > space.inodes {
        return None;
    }
    Some(1.0 - ratio(space.inodes_free, space.inodes))
}

/// Bytes available below which the directory counts as full: whichever limit is reached first.
#[must_use]
pub fn full_below(space: &Space, limits: &Thresholds) -> u64 {
    available_at(space, limits.full).max(limits.full_available)
}

/// Bytes available below which the directory counts as almost full.
#[must_use]
pub fn warn_below(space: &Space, limits: &Thresholds) -> u64 {
    available_at(space, limits.warn).max(limits.warn_available)
}

/// Bytes available below which a full directory stays so.
#[must_use]
pub fn writable_above(space: &Space, limits: &Thresholds) -> u64 {
    available_at(space, limits.low_watermark).max(low_watermark_bytes(limits))
}

// Exact enough: what uses it has a spread of percents.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn available_at(space: &Space, usage: f64) -> u64 {
    ((1.0 - usage) * space.size as f64) as u64
}

#[allow(clippy::cast_precision_loss)] // 53 bits are 2^-53 of a ratio
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

fn nonsense(space: &Space) -> Option<Reason> {
    let message = if space.size == 0 {
        "the file system says that its size is 0".to_owned()
    } else if space.available > space.size {
        let Space {
            size, available, ..
        } = space;
        format!("the file system says that {available} of {size} bytes are available")
    } else {
        return None;
    };
    Some(Reason {
        cause: Cause::NoSize,
        operation: Operation::Statvfs,
        errno: None,
        message,
    })
}

fn level(space: &Space, limits: &Thresholds) -> Level {
    let usage = usage_ratio(space).unwrap_or(0.0);
    let inodes = inode_ratio(space).unwrap_or(0.0);
    if usage > limits.full || space.available < limits.full_available || inodes > limits.inodes_full
    {
        Level::Full
    } else if usage > limits.warn
        || space.available < limits.warn_available
        || inodes > limits.inodes_warn
    {
        Level::Warn
    } else {
        Level::Ok
    }
}

/// Strictly below the low watermark in every measure. Inodes use their warn threshold as the
/// mark; bytes use `warn_available`, or a tenth more than `full_available` where that is nearer.
fn below_low_watermark(space: &Space, limits: &Thresholds) -> bool {
    let usage = usage_ratio(space).unwrap_or(0.0);
    let inodes = inode_ratio(space).unwrap_or(0.0);
    let bytes = low_watermark_bytes(limits);
    usage < limits.low_watermark && space.available >= bytes && inodes <= limits.inodes_warn
}

fn low_watermark_bytes(limits: &Thresholds) -> u64 {
    let full = limits.full_available;
    full.saturating_add(full / 10)
}

/// Names the limit that was crossed, with the numbers that were compared.
fn explain(space: &Space, limits: &Thresholds, status: SpaceStatus) -> Reason {
    let full = status == SpaceStatus::Full;
    let (word, usage_limit, bytes_limit, inode_limit) = if full {
        (
            "full",
            limits.full,
            limits.full_available,
            limits.inodes_full,
        )
    } else {
        (
            "warn",
            limits.warn,
            limits.warn_available,
            limits.inodes_warn,
        )
    };
    let usage = usage_ratio(space).unwrap_or(0.0);
    let inodes = inode_ratio(space).unwrap_or(0.0);
    let (cause, message) = if usage > usage_limit {
        let shown = shown_over(usage, usage_limit);
        (
            Cause::Bytes,
            format!("usage {shown} is over {word} {usage_limit:.3}"),
        )
    } else if space.available < bytes_limit {
        let available = space.available;
        let text = format!("{available} bytes available are below {word}_available {bytes_limit}");
        (Cause::Bytes, text)
    } else if inodes > inode_limit {
        let shown = shown_over(inodes, inode_limit);
        (
            Cause::Inodes,
            format!("inode usage {shown} is over inodes_{word} {inode_limit:.3}"),
        )
    } else {
        // Full by hysteresis alone: known full before, numbers between the marks.
        (
            Cause::Bytes,
            format!("usage {usage:.3} has been over {word} {usage_limit:.3}"),
        )
    };
    Reason {
        cause,
        operation: Operation::Statvfs,
        errno: None,
        message,
    }
}

/// A ratio with as many digits as it takes to see that it is over the limit: "usage 0.950 is over
/// 0.950" would send a reader looking for a mistake that is not there.
fn shown_over(value: f64, limit: f64) -> String {
    let three = format!("{value:.3}");
    if three == format!("{limit:.3}") {
        return format!("{value:.6}");
    }
    three
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds usages in percent, one a second, and returns the statuses as a line.
    fn run(limits: &Thresholds, percents: &[f64]) -> String {
        let mut axis = SpaceAxis::default();
        let mut words = Vec::new();
        for (second, percent) in percents.iter().enumerate() {
            let available = ((100.0 - percent) * 1e7).round() as u64;
            let space = Space {
                size: 1_000_000_000,
                available,
                ..Space::default()
            };
            axis.observe(Duration::from_secs(second as u64), &space, limits, 0);
            words.push(axis.status().name());
        }
        words.join(" ")
    }

    fn limits(dwell: u64) -> Thresholds {
        Thresholds {
            dwell: Duration::from_secs(dwell),
            ..Thresholds::default()
        }
    }

    #[test]
    fn full_returns_only_below_its_own_low_watermark_and_after_the_dwell() {
        assert_eq!(
            run(&limits(2), &[96.0, 93.0, 89.0, 91.0, 89.0, 89.0, 89.0]),
            "full full full full full full ok"
        );
    }

    #[test]
    fn full_may_return_to_almost_full_when_the_low_watermark_is_over_warn() {
        let limits = Thresholds {
            warn: 0.80,
            ..limits(0)
        };
        assert_eq!(run(&limits, &[96.0, 85.0]), "full almostFull");
    }

    #[test]
    fn almost_full_ends_at_once_well_below_warn_and_not_just_below() {
        assert_eq!(
            run(&limits(30), &[91.0, 89.5, 90.5, 89.5, 87.0]),
            "almostFull almostFull almostFull almostFull ok"
        );
    }

    #[test]
    fn exactly_at_a_threshold_is_not_over_it() {
        assert_eq!(run(&limits(0), &[90.0, 95.0]), "ok almostFull");
    }

    #[test]
    fn absurd_sizes_are_unknown_and_hysteresis_survives_them() {
        let mut axis = SpaceAxis::default();
        let space = |size, available| Space {
            size,
            available,
            ..Space::default()
        };
        let mut words = Vec::new();
        for (at, seen) in [
            space(0, 0),
            space(100, 2),
            space(0, 0),
            space(9, 10),
            space(100, 7),
        ]
        .iter()
        .enumerate()
        {
            axis.observe(Duration::from_secs(at as u64), seen, &limits(0), 0);
            words.push(axis.status().name());
        }
        assert_eq!(words, ["unknown", "full", "unknown", "unknown", "full"]);
    }

    #[test]
    fn bytes_and_inodes_count_as_well_as_percent() {
        let mut axis = SpaceAxis::default();
        let limits = Thresholds {
            full_available: 1000,
            ..limits(0)
        };
        let roomy = Space {
            size: 1_000_000,
            available: 500_000,
            inodes: 100,
            inodes_free: 50,
        };
        let zero = Duration::ZERO;
        axis.observe(
            zero,
            &Space {
                inodes_free: 4,
                ..roomy
            },
            &limits,
            0,
        );
        assert_eq!(axis.reason().map(|r| r.cause), Some(Cause::Inodes));
        axis.observe(zero, &roomy, &limits, 0);
        assert_eq!(axis.status(), SpaceStatus::Ok);
        axis.observe(
            zero,
            &Space {
                available: 999,
                ..roomy
            },
            &limits,
            0,
        );
        assert_eq!(axis.status(), SpaceStatus::Full);
    }

    #[test]
    fn a_refused_write_is_full_until_one_is_accepted() {
        let mut axis = SpaceAxis::default();
        let empty = Space {
            size: 100,
            available: 90,
            ..Space::default()
        };
        let reason = Reason {
            cause: Cause::Quota,
            operation: Operation::Write,
            errno: Some(122),
            message: "quota".to_owned(),
        };
        axis.refuse(reason);
        axis.observe(Duration::ZERO, &empty, &limits(0), 0);
        assert_eq!(axis.status(), SpaceStatus::Full);
        assert_eq!(axis.reason().map(|r| r.cause), Some(Cause::Quota));
        axis.accepted_write();
        axis.observe(Duration::ZERO, &empty, &limits(0), 0);
        assert_eq!(axis.status(), SpaceStatus::Ok);
    }
}
