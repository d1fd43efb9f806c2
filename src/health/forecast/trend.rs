//! A robust line through the buckets of one time scale: Theil and Sen's, the median of the slopes of
//! all pairs of points. A third of the points may be anything without moving it far.
//!
//! Filling that is interrupted by freeing is measured in one of two ways:
//! - three peaks or more: freeing is a habit (compaction), and the line goes through the peaks;
//! - fewer: freeing was an incident, and the line is that of the filling, with what was freed added
//!   back. An operator who deletes a backup once does not turn a filling disk into an emptying one.

use super::history::{BUCKETS, Point};

/// Fewer points than this are no trend: four of noise form a line too often.
const MIN_POINTS: usize = 5;

/// This many peaks make freeing a habit. With two, each window with two incidents would do.
const HABIT: usize = 3;

/// Slopes of this part of the pairs count as implausibly slow, and as many as implausibly fast.
const TAIL: f64 = 0.1;

/// Part of the rising steps that are slower than the fill rate between two drops.
const GROSS: f64 = 0.75;

/// Pairs of all points of a scale: 91 for 14.
const MAX_PAIRS: usize = BUCKETS * (BUCKETS - 1) / 2;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trend {
    /// Bytes a second of the line.
    pub(super) rate: f64,
    /// Slowest plausible rate.
    pub(super) slow: f64,
    /// Fastest plausible rate, nothing freed.
    pub(super) fast: f64,
    /// Level of the line at time zero; the line goes through the peaks.
    base: f64,
    /// How far the points of the line lie apart around it.
    spread: f64,
    /// Seconds that the line has lasted.
    lasted: f64,
    /// Bytes freed that were added back, if freeing was an incident.
    freed: Freed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Freed {
    /// Peaks are compared as they are.
    Habit,
    /// What was freed is added back before comparing.
    Incident,
}

impl Trend {
    /// The trend of these points, oldest first; none if there are too few.
    pub(super) fn of(points: &[Point]) -> Option<Trend> {
        if points.len() < MIN_POINTS {
            return None;
        }
        let mut on_line = Points::new();
        peaks(points, &mut on_line);
        let freed = if HABIT <= on_line.len {
            Freed::Habit
        } else {
            on_line = Points::new();
            add_back(points, &mut on_line);
            Freed::Incident
        };
        let line = on_line.as_slice();
        let mut pairs = Slopes::new();
        for (index, first) in line.iter().enumerate() {
            for second in &line[index + 1..] {
                pairs.push(first, second);
            }
        }
        let rate = pairs.quantile(0.5)?;
        let slow = pairs.quantile(TAIL)?;
        let fast = pairs.quantile(1.0 - TAIL)?.max(gross(points)).max(rate);
        let (low, high) = bounds(line.iter().map(|point| point.level - rate * point.at))?;
        let base = match freed {
            Freed::Habit => middle(line.iter().map(|point| point.level - rate * point.at))?,
            Freed::Incident => since_last_drop(points, rate)?,
        };
        Some(Trend {
            rate,
            slow,
            fast,
            base,
            spread: high - low,
            lasted: line[line.len() - 1].at - line[0].at,
            freed,
        })
    }

    /// The level of the line at a time.
    pub(super) fn line(&self, at: f64) -> f64 {
        self.base + self.rate * at
    }

    /// True when the line rises by more than twice what its points scatter: noise alone makes lines
    /// that rise by once its width, now and then.
    pub(super) fn is_filling(&self) -> bool {
        0.0 < self.rate && 2.0 * self.spread < self.rate * self.lasted
    }

    /// True when a rate is a plausible one here, give or take a quarter and `tolerance`.
    pub(super) fn allows(&self, rate: f64, tolerance: f64) -> bool {
        self.slow * 0.8 - tolerance <= rate && rate <= self.fast * 1.25 + tolerance
    }

    /// Between which heights over the line's slope the points lie that are older than `before`;
    /// none if there are fewer than two.
    pub(super) fn band(&self, points: &[Point], before: f64) -> Option<(f64, f64)> {
        let mut levels = Points::new();
        match self.freed {
            Freed::Habit => points.iter().for_each(|point| levels.push(*point)),
            Freed::Incident => add_back(points, &mut levels),
        }
        let older = levels.as_slice().iter().filter(|point| point.at < before);
        if older.clone().count() < 2 {
            return None;
        }
        bounds(older.map(|point| point.level - self.rate * point.at))
    }
}

/// True when the level ever fell from one point to the next.
pub(super) fn has_drops(points: &[Point]) -> bool {
    points.windows(2).any(|pair| pair[1].level < pair[0].level)
}

/// The points after which the level fell and before which it did not.
fn peaks(points: &[Point], peaks: &mut Points) {
    for three in points.windows(3) {
        if three[0].level <= three[1].level && three[2].level < three[1].level {
            peaks.push(three[1]);
        }
    }
}

/// The points with what was freed after them taken off: the newest ones keep their level, so that the
/// line is one of levels as they are now.
fn add_back(points: &[Point], levels: &mut Points) {
    let freed = |pair: &[Point]| (pair[0].level - pair[1].level).max(0.0);
    let mut ahead: f64 = points.windows(2).map(freed).sum();
    for (index, point) in points.iter().enumerate() {
        if 0 < index {
            ahead -= freed(&points[index - 1..=index]);
        }
        levels.push(Point {
            at: point.at,
            level: point.level - ahead,
        });
    }
}

/// The highest point over the slope since the level last fell.
fn since_last_drop(points: &[Point], rate: f64) -> Option<f64> {
    let drop = points
        .windows(2)
        .rposition(|pair| pair[1].level < pair[0].level);
    let since = drop.map_or(0, |index| index + 1);
    let heights = points[since..]
        .iter()
        .map(|point| point.level - rate * point.at);
    bounds(heights).map(|(_, high)| high)
}

/// The usual rate while nothing is freed: an upper quartile of the rising steps.
pub(super) fn gross(points: &[Point]) -> f64 {
    let mut steps = Slopes::new();
    for pair in points.windows(2) {
        if pair[0].level < pair[1].level {
            steps.push(&pair[0], &pair[1]);
        }
    }
    steps.quantile(GROSS).unwrap_or(0.0)
}

fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |bounds, value| match bounds {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all = Slopes::new();
    values.for_each(|value| all.add(value));
    all.quantile(0.5)
}

/// A list of points on the stack.
struct Points {
    points: [Point; BUCKETS],
    len: usize,
}

impl Points {
    fn new() -> Points {
        Points {
            points: [Point::default(); BUCKETS],
            len: 0,
        }
    }

    fn push(&mut self, point: Point) {
        if self.len < BUCKETS {
            self.points[self.len] = point;
            self.len += 1;
        }
    }

    fn as_slice(&self) -> &[Point] {
        &self.points[..self.len]
    }
}

/// A list of numbers on the stack that can tell its quantiles.
struct Slopes {
    values: [f64; MAX_PAIRS],
    len: usize,
}

impl Slopes {
    fn new() -> Slopes {
        Slopes {
            values: [0.0; MAX_PAIRS],
            len: 0,
        }
    }

    fn add(&mut self, value: f64) {
        if self.len < MAX_PAIRS {
            self.values[self.len] = value;
            self.len += 1;
        }
    }

    fn push(&mut self, first: &Point, second: &Point) {
        let time = second.at - first.at;
        if 0.0 < time {
            self.add((second.level - first.level) / time);
        }
    }

    /// The value below which that part of all lies; the upper one of two middle values.
    fn quantile(&mut self, part: f64) -> Option<f64> {
        let values = &mut self.values[..self.len];
        let rank = rank(values.len(), part)?;
        let (_, value, _) = values.select_nth_unstable_by(rank, f64::total_cmp);
        Some(*value)
    }
}

fn rank(len: usize, part: f64) -> Option<usize> {
    let last = len.checked_sub(1)?;
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )] // at most 90, from 0 on
    let rank = (last as f64 * part).round() as usize;
    Some(rank.min(last))
}
