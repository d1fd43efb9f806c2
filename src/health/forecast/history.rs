//! The level of use at seven time scales, in constant memory: the highest level of each bucket of
//! time, 14 buckets a scale, each scale four times as coarse as the one before. Knows nothing of
//! thresholds or trends.

/// Number of scales: buckets of 1, 4, 16, 64, 256, 1024 and 4096 s, so that the longest window is
/// 16 h and holds the hourly compactions and garbage collections of a bookie.
pub(super) const SCALES: usize = 7;

/// Buckets a scale: seven scales of 14 take 1.7 KiB. Five are enough for a line, and three teeth of
/// four buckets each still fit.
pub(super) const BUCKETS: usize = 14;

/// How much coarser each scale is. Below `BUCKETS`, so that the window of a scale holds several
/// buckets of the next one.
const RATIO: f64 = 4.0;

/// Seconds in a bucket of the finest scale: the usual time between two looks.
const FINEST: f64 = 1.0;

/// The highest level of a bucket and when it was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Point {
    /// Seconds since the start of the agent.
    pub(super) at: f64,
    /// Bytes used since the first look.
    pub(super) level: f64,
}

#[derive(Debug, Clone)]
struct Scale {
    /// Oldest first; the newest one is still open.
    points: [Point; BUCKETS],
    len: usize,
    /// When the open bucket ends.
    end: f64,
}

#[derive(Debug, Clone)]
pub(super) struct History {
    scales: [Scale; SCALES],
}

impl History {
    pub(super) fn new() -> History {
        let scale = Scale {
            points: [Point::default(); BUCKETS],
            len: 0,
            end: f64::NEG_INFINITY,
        };
        History {
            scales: std::array::from_fn(|_| scale.clone()),
        }
    }

    /// Takes in one level. Buckets in which nothing was seen do not exist.
    pub(super) fn observe(&mut self, at: f64, level: f64) {
        let mut width = FINEST;
        for scale in &mut self.scales {
            scale.observe(width, Point { at, level });
            width *= RATIO;
        }
    }

    /// The finished buckets of a scale, oldest first.
    pub(super) fn closed(&self, scale: usize) -> &[Point] {
        let all = self.all(scale);
        &all[..all.len().saturating_sub(1)]
    }

    /// All buckets of a scale, the unfinished one last.
    pub(super) fn all(&self, scale: usize) -> &[Point] {
        let scale = &self.scales[scale];
        &scale.points[..scale.len]
    }

    /// Seconds in a bucket.
    pub(super) fn width(scale: usize) -> f64 {
        (0..scale).fold(FINEST, |width, _| width * RATIO)
    }

    /// Seconds that a full scale looks back.
    pub(super) fn span(scale: usize) -> f64 {
        #[allow(clippy::cast_precision_loss)] // 14
        let buckets = BUCKETS as f64;
        buckets * History::width(scale)
    }
}

impl Scale {
    fn observe(&mut self, width: f64, point: Point) {
        if point.at < self.end {
            let open = &mut self.points[self.len - 1];
            if open.level <= point.level {
                *open = point;
            }
            return;
        }
        self.end = ((point.at / width).floor() + 1.0) * width;
        #[allow(clippy::cast_precision_loss)] // 14
        let oldest = point.at - BUCKETS as f64 * width;
        let stale = self.points[..self.len]
            .iter()
            .take_while(|old| old.at < oldest)
            .count();
        let drop = stale.max((self.len + 1).saturating_sub(BUCKETS));
        self.points.copy_within(drop..self.len, 0);
        self.len -= drop;
        self.points[self.len] = point;
        self.len += 1;
    }
}
