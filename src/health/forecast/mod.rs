//! When will a directory be full? Takes (time, size, available) of each look and answers with an
//! expected, an earliest and a latest time, and with the wait until the next look. Pure arithmetic in
//! constant memory; it decides nothing about statuses.
//!
//! Method: `history` keeps the highest level of use at seven time scales, `trend` puts a robust line
//! through one of them, and the longest scale that still describes the present is believed (see
//! [`Forecast::estimate`]). `pace` holds the short-term rate for adaptive looks.

mod history;
mod pace;
#[cfg(test)]
mod tests;
mod trend;

use std::time::Duration;

use super::moment::Elapsed;
use super::snapshot::ForecastView;
use history::{History, SCALES};
pub use pace::{MIN_LOOK, Pace};
use trend::Trend;

/// What lies further ahead than this is no forecast: no trend of a disk lasts for ten years.
const HORIZON: Duration = Duration::from_secs(10 * 365 * 86_400);

/// What will be full within this time will be so soon: enough to act by hand.
pub const HORIZON_SOON: Duration = Duration::from_secs(3600);

/// A change of the size by more than this part is a resize, whose jump says nothing about filling.
/// Smaller ones happen on file systems whose size follows their use (pools with several data sets).
const RESIZE: f64 = 0.01;

/// How often the trend is put anew, as a part of the expected time, and its limits. A far forecast
/// needs no new line each second; with these limits the lines cost less than 10 µs a second.
const REFRESH_PART: f64 = 1.0 / 64.0;
const REFRESH_MIN: f64 = 1.0;
const REFRESH_MAX: f64 = 30.0;
/// The same while nothing fills; not at all while the level of use stays where it is or falls.
const REFRESH_IDLE: f64 = 5.0;

/// The fill forecast of one directory. Below 2 KiB, no allocation.
#[derive(Debug, Clone)]
pub struct Forecast {
    history: History,
    pace: Pace,
    /// The newest look.
    last: Option<Last>,
    /// The believed trend, until `refresh_at`.
    trend: Option<Trend>,
    /// Seconds since the start of the agent from which on the trend is put anew, once the level is
    /// above `refresh_over`.
    refresh_at: f64,
    refresh_over: f64,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    at: Elapsed,
    size: u64,
    available: u64,
    /// Bytes used up since the first look, resizes left out; falls when space is freed.
    level: f64,
}

impl Default for Forecast {
    fn default() -> Self {
        Forecast::new()
    }
}

impl Forecast {
    /// A forecast that has seen nothing.
    #[must_use]
    pub fn new() -> Forecast {
        Forecast {
            history: History::new(),
            pace: Pace::new(),
            last: None,
            trend: None,
            refresh_at: 0.0,
            refresh_over: f64::NEG_INFINITY,
        }
    }

    /// Takes in one look. A look from before the newest one is ignored; a size of zero is no look.
    pub fn observe(&mut self, at: Elapsed, size: u64, available: u64) {
        if size == 0 {
            return;
        }
        let level = match self.last {
            Some(last) if at < last.at => return,
            Some(last) if is_resize(last.size, size) => {
                self.pace.resume(at, available);
                last.level
            }
            Some(last) => {
                self.pace.observe(at, available);
                last.level + difference(last.available, available)
            }
            None => {
                self.pace.observe(at, available);
                0.0
            }
        };
        self.history.observe(at.as_secs_f64(), level);
        self.last = Some(Last {
            at,
            size,
            available,
            level,
        });
    }

    /// Forgets everything: another disk is there, or the directory was unknown for long.
    pub fn reset(&mut self) {
        *self = Forecast::new();
    }

    /// Time until fewer than `full_below` bytes are available, as of the newest look. None while it
    /// does not fill, or too little is known. Zero when it is there already.
    ///
    /// - `expected`: the trend's line through the peaks of use reaches the threshold. Where filling
    ///   and freeing alternate (compaction), the line is the peaks' own, so it does not jump with each
    ///   tooth. Never earlier than the fill rate alone could get there.
    /// - `earliest`: from the present level, at the fastest plausible fill rate, nothing freed.
    /// - `latest`: at the slowest plausible rate; none when that is no filling at all.
    ///
    /// Cheap to call after each look: the trend is kept for a second up to half a minute.
    pub fn estimate(&mut self, full_below: u64) -> Option<ForecastView> {
        let last = self.last?;
        if last.available <= full_below {
            return Some(ForecastView {
                expected: Duration::ZERO,
                earliest: Duration::ZERO,
                latest: Some(Duration::ZERO),
            });
        }
        let now = last.at.as_secs_f64();
        let distance = difference(last.available, full_below);
        if self.refresh_at <= now && self.refresh_over < last.level {
            self.refresh(last, distance);
        }
        let trend = self.trend?;
        // Where the line of the peaks is now, never below what is used already.
        let to_line = (last.level + distance - trend.line(now)).clamp(0.0, distance);
        let earliest = distance / trend.fast;
        let expected = (to_line / trend.rate).max(earliest);
        let latest = (0.0 < trend.slow).then(|| (to_line / trend.slow).max(expected));
        Some(ForecastView {
            expected: duration(expected)?,
            earliest: duration(earliest)?,
            latest: latest.and_then(duration),
        })
    }

    fn refresh(&mut self, last: Last, distance: f64) {
        let now = last.at.as_secs_f64();
        self.trend = self.believed(last);
        let wait = match self.trend {
            Some(trend) => (distance / trend.rate * REFRESH_PART).clamp(REFRESH_MIN, REFRESH_MAX),
            None => REFRESH_IDLE.min(now.max(REFRESH_MIN)),
        };
        self.refresh_at = now + wait;
        self.refresh_over = match self.trend {
            Some(_) => f64::NEG_INFINITY,
            None => last.level,
        };
    }

    /// Bytes a second by which the directory has filled lately, fading within seconds after filling
    /// stops; 0 while space is freed.
    #[must_use]
    pub fn fill_rate(&self) -> f64 {
        self.pace.rate()
    }

    /// Wait from the newest look to the next one; see [`Pace::next_look`].
    #[must_use]
    pub fn next_look(&self, thresholds: &[u64], space_interval: Duration) -> Duration {
        self.pace.next_look(thresholds, space_interval)
    }

    /// The trend of the longest scale that describes the present, if it is one of filling.
    fn believed(&self, now: Last) -> Option<Trend> {
        for scale in (0..SCALES).rev() {
            let Some(mut trend) = Trend::of(self.history.closed(scale)) else {
                continue;
            };
            let shorter = scale
                .checked_sub(1)
                .and_then(|shorter| Trend::of(self.history.closed(shorter)));
            if shorter.is_none_or(|shorter| self.describes(scale, &trend, &shorter, now)) {
                // Teeth that are hidden in the buckets of this scale show their rate in finer ones;
                // the finest is left out, because one look to the next is mostly noise.
                let finer = (1..scale).map(|finer| trend::gross(self.history.closed(finer)));
                trend.fast = finer.fold(trend.fast, f64::max);
                return trend.is_filling().then_some(trend);
            }
        }
        None
    }

    /// True when a scale describes the present, so that the next shorter one need not be asked:
    /// - the present lies where the points older than the shorter scale lie around the line. Where a
    ///   finer scale has drops, the present is the highest level of four of its buckets: a valley
    ///   between two teeth is no end of filling;
    /// - the shorter scale, if it has no drops, has about the same rate.
    ///
    /// Teeth pass, because they have been there before. A fill that begins, ends or changes does not.
    fn describes(&self, scale: usize, trend: &Trend, shorter: &Trend, now: Last) -> bool {
        let seconds = now.at.as_secs_f64();
        let older = seconds - History::span(scale - 1);
        let Some((low, high)) = trend.band(self.history.closed(scale), older) else {
            return false;
        };
        let teeth = (0..scale)
            .rev()
            .find(|finer| trend::has_drops(self.history.all(*finer)));
        let height = |at: f64, level: f64| level - trend.rate * at;
        let mut present = height(seconds, now.level);
        // A quarter beyond what was seen is still the same behaviour.
        let mut tolerance = 0.25 * (high - low) + BLOCK;
        if let Some(teeth) = teeth {
            let recent = seconds - 4.0 * History::width(teeth);
            for point in self.history.all(teeth) {
                if recent <= point.at {
                    present = present.max(height(point.at, point.level));
                }
            }
            tolerance += 0.5 * trend.rate.abs() * History::width(scale);
        }
        let is_within = low - tolerance <= present && present <= high + tolerance;
        let is_smooth = teeth.is_none_or(|teeth| teeth + 1 < scale);
        is_within && (!is_smooth || shorter.allows(trend.rate, BLOCK / History::span(scale - 1)))
    }
}

/// Differences below this are no news: a small file more or less.
const BLOCK: f64 = 65_536.0;

fn is_resize(old: u64, new: u64) -> bool {
    RESIZE * float(old) < difference(old, new).abs()
}

fn difference(from: u64, to: u64) -> f64 {
    if to <= from {
        float(from - to)
    } else {
        -float(to - from)
    }
}

/// Bytes as a float; exact up to 8 PiB, and good to 15 digits beyond.
#[allow(clippy::cast_precision_loss)]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

fn duration(seconds: f64) -> Option<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    (duration <= HORIZON).then_some(duration)
}
