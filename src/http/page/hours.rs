//! How full each directory was in the last hours, in a few hundred bytes: looked at in the snapshot every
//! five seconds, the highest value of each span of time kept. Nothing is decided from it.

use std::collections::BTreeMap;
use std::fmt::{Result as Written, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::words::{about, percent};
use crate::health::dir::DirId;
use crate::health::snapshot::{DirView, Snapshot};

/// Between two looks at the snapshot: an agent that has just started has a line after some of them.
const TICK: Duration = Duration::from_secs(5);

/// Points of a line: as wide as a phone shows them, and 288 bytes for each directory.
const POINTS: usize = 144;

/// Looks that a point stands for, at most: 320 s, so that a full line goes back 12.8 h and shows a bookie's
/// hourly compactions. Until then each point stands for as few as fit.
const MAX_LOOKS: u32 = 64;

/// Ten thousandths: a tenth of what is shown.
const SCALE: f64 = 1e4;

/// Nobody knew. No ratio is as large.
const UNKNOWN: u16 = u16::MAX;

/// The smallest height of a line, in ratio: noise below it is drawn flat.
const LEAST_HEIGHT: f64 = 0.01;

/// Shared by the task that looks and by those that render.
pub(in crate::http) type SharedHours = Arc<Mutex<Hours>>;

/// The lines of all directories that are watched.
#[derive(Debug, Default)]
pub(in crate::http) struct Hours {
    dirs: BTreeMap<DirId, Line>,
}

#[derive(Debug)]
struct Line {
    /// Oldest first.
    points: Vec<u16>,
    /// Looks that a point stands for.
    each: u32,
    /// The point that is still open, and how many looks it has.
    open: u16,
    looks: u32,
}

impl Hours {
    /// Looks until the server stops.
    pub(in crate::http) fn keep(
        snapshots: watch::Receiver<Arc<Snapshot>>,
        mut stopping: watch::Receiver<()>,
    ) -> SharedHours {
        let hours = SharedHours::default();
        let kept = Arc::clone(&hours);
        tokio::spawn(async move {
            while timeout(TICK, stopping.changed()).await.is_err() {
                let snapshot = snapshots.borrow().clone();
                let mut hours = kept.lock().unwrap_or_else(PoisonError::into_inner);
                hours.look(&snapshot);
            }
        });
        hours
    }

    fn look(&mut self, snapshot: &Snapshot) {
        let watched = |id: &DirId| snapshot.dirs.iter().any(|dir| dir.id == *id);
        if snapshot.dirs.len() < self.dirs.len() {
            self.dirs.retain(|id, _| watched(id));
        }
        for dir in &snapshot.dirs {
            let line = self.dirs.entry(dir.id).or_insert_with(Line::new);
            line.look(point(dir));
        }
    }

    /// The line as a picture with its text; nothing before there is one.
    pub(super) fn write(&self, html: &mut String, dir: DirId) -> Written {
        match self.dirs.get(&dir) {
            Some(line) => line.write(html),
            None => Ok(()),
        }
    }
}

fn point(dir: &DirView) -> u16 {
    let ratio = dir.usage_ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
    // From 0 to 10,000.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    ratio.map_or(UNKNOWN, |ratio| (ratio * SCALE).round() as u16)
}

/// The higher one of those that are known.
fn higher(a: u16, b: u16) -> u16 {
    match (a, b) {
        (UNKNOWN, known) | (known, UNKNOWN) => known,
        (a, b) => a.max(b),
    }
}

impl Line {
    fn new() -> Line {
        Line {
            points: Vec::with_capacity(POINTS),
            each: 1,
            open: UNKNOWN,
            looks: 0,
        }
    }

    fn look(&mut self, value: u16) {
        self.open = higher(self.open, value);
        self.looks += 1;
        if self.looks < self.each {
            return;
        }
        if self.points.len() == POINTS {
            if self.each < MAX_LOOKS {
                self.thin();
                // Half of what it stands for now.
                return;
            }
            self.points.remove(0);
        }
        self.points.push(self.open);
        (self.open, self.looks) = (UNKNOWN, 0);
    }

    /// Two points become one.
    fn thin(&mut self) {
        for at in 0..POINTS / 2 {
            self.points[at] = higher(self.points[2 * at], self.points[2 * at + 1]);
        }
        self.points.truncate(POINTS / 2);
        self.each *= 2;
    }

    fn write(&self, html: &mut String) -> Written {
        let known = |point: &&u16| **point != UNKNOWN;
        let mut all = self.points.iter().filter(known);
        let (Some(first), Some(last)) = (all.next(), all.next_back()) else {
            return Ok(());
        };
        let known = || {
            self.points
                .iter()
                .copied()
                .filter(|point| *point != UNKNOWN)
        };
        let (lowest, highest) = known().fold((UNKNOWN, 0), |(lowest, highest), point| {
            (point.min(lowest), point.max(highest))
        });
        let looks = u32::try_from(self.points.len()).unwrap_or(u32::MAX) * self.each;
        let span = about(TICK * looks);
        let text = |point: u16| percent((ratio(point) * 1e3).round() / 1e3);
        let (from, to) = (text(*first), text(*last));
        write!(
            html,
            "<dt>Last hours</dt><dd><svg class=\"spark\" viewBox=\"0 0 {} 24\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"usage from {from} % to {to} % in the last {span}, lowest {} %, highest {} %\">",
            self.points.len() - 1,
            text(lowest),
            text(highest),
        )?;
        self.write_strokes(html, ratio(lowest), ratio(highest))?;
        writeln!(html, "</svg> {from} % → {to} % in {span}</dd>")
    }

    /// One stroke for each run of known points.
    fn write_strokes(&self, html: &mut String, lowest: f64, highest: f64) -> Written {
        let height = (highest - lowest).max(LEAST_HEIGHT);
        let mut drawing = false;
        for (at, point) in self.points.iter().enumerate() {
            if *point == UNKNOWN {
                if drawing {
                    html.push_str("\"/>");
                }
                drawing = false;
                continue;
            }
            html.push_str(if drawing { " " } else { "<polyline points=\"" });
            drawing = true;
            let y = 22.0 - 20.0 * (ratio(*point) - lowest) / height;
            write!(html, "{at},{y:.1}")?;
        }
        if drawing {
            html.push_str("\"/>");
        }
        Ok(())
    }
}

fn ratio(point: u16) -> f64 {
    f64::from(point) / SCALE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(values: impl IntoIterator<Item = u16>) -> Line {
        let mut line = Line::new();
        for value in values {
            line.look(value);
        }
        line
    }

    fn html(line: &Line) -> String {
        let mut html = String::new();
        line.write(&mut html).unwrap();
        html
    }

    #[test]
    fn a_line_needs_two_points_and_has_gaps_where_nothing_was_known() {
        assert_eq!(html(&line([6000])), "");
        assert_eq!(html(&line([UNKNOWN; 9])), "");
        let text = html(&line([6120, 6200, UNKNOWN, 6400]));
        assert_eq!(text.matches("<polyline").count(), 2, "{text}");
        assert!(
            text.contains("usage from 61.2 % to 64 % in the last 20s, lowest 61.2 %, highest 64 %"),
            "{text}"
        );
        assert!(text.contains("points=\"0,22.0 1,"), "{text}");
        assert!(text.contains("points=\"3,2.0\"/></svg>"), "{text}");
    }

    #[test]
    fn a_line_never_grows_and_keeps_its_peaks() {
        let looks = 4 * POINTS * MAX_LOOKS as usize;
        let mut line = line(std::iter::repeat_n(100, looks - 1000));
        line.look(9000);
        for _ in 0..999 {
            line.look(100);
        }
        assert!(line.points.len() <= POINTS && line.points.capacity() == POINTS);
        assert_eq!(line.each, MAX_LOOKS);
        assert!(html(&line).contains("highest 90 %"), "{}", html(&line));
        assert!(html(&line).contains("in 12h 48m"), "{}", html(&line));
    }

    #[test]
    fn a_line_of_any_length_tells_how_long_it_is() {
        for looks in [2_u32, 144, 145, 146, 288, 289, 1000, 9216] {
            let line = line(std::iter::repeat_n(1, looks as usize));
            let told = u32::try_from(line.points.len()).unwrap() * line.each + line.looks;
            assert_eq!(told, looks);
        }
    }

    #[test]
    fn directories_that_are_gone_are_forgotten() {
        let mut snapshot = crate::document::sample::snapshot();
        let mut hours = Hours::default();
        hours.look(&snapshot);
        assert_eq!(hours.dirs.len(), 4);
        snapshot.dirs.truncate(1);
        hours.look(&snapshot);
        assert_eq!(hours.dirs.len(), 1);
    }
}
