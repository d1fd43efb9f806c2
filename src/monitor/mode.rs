//! The server's mode as the loop sees it: counts its changes. Whether it is the right one is for the
//! judge to say; the mode is changed elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::health::event::EventKind;
use crate::health::moment::{Elapsed, Moment};
use crate::health::policy::Mode;

use super::Monitor;

/// A change is told at once, and the next one not before this: a server that flips with each look would fill the
/// log and the queue of each hook. All are counted.
const CHANGE_PAUSE: Duration = Duration::from_secs(5);

/// The change that was told last.
#[derive(Debug, Default)]
pub(super) struct Changes {
    told: Option<Mode>,
    at: Option<Elapsed>,
}

impl Changes {
    /// The mode before, if it is time to tell that it is this one now.
    fn tell(&mut self, now: Elapsed, to: Mode) -> Option<Mode> {
        let from = *self.told.get_or_insert(to);
        let early = self.at.is_some_and(|at| now < at + CHANGE_PAUSE);
        if from == to || early {
            return None;
        }
        (self.told, self.at) = (Some(to), Some(now));
        Some(from)
    }
}

impl Monitor {
    pub(super) fn mode_observed(&mut self, now: Moment, mode: Option<Mode>) {
        let before = std::mem::replace(&mut self.observed_mode, mode);
        self.judge.server(mode);
        let Some(to) = mode else {
            return;
        };
        if before.is_some_and(|before| before != to) {
            // A closed list, because it becomes a label.
            let asked = self.tracker.node().wanted() == Some(to);
            let reason = if asked { "disks" } else { "other" };
            let count = self.mode_transitions.entry((to, reason)).or_default();
            *count += 1;
        }
        let Some(from) = self.changes.tell(now.elapsed, to) else {
            return;
        };
        let message = format!("the server is {} now, it was {}", to.name(), from.name());
        let change = Some((from.name(), to.name()));
        let event = self
            .tracker
            .node_event(now, EventKind::ModeChanged, change, message);
        self.tell(vec![event]);
    }
}

/// Every mode and reason, so that each series exists from the first scrape.
pub(super) fn all_transitions() -> BTreeMap<(Mode, &'static str), u64> {
    let modes = [Mode::Writable, Mode::ReadOnly];
    modes
        .into_iter()
        .flat_map(|mode| [((mode, "disks"), 0), ((mode, "other"), 0)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_that_flips_each_second_is_told_now_and_then() {
        let mut changes = Changes::default();
        let mut told = Vec::new();
        for second in 0..13 {
            let mode = [Mode::Writable, Mode::ReadOnly][second % 2];
            if changes
                .tell(Duration::from_secs(second as u64), mode)
                .is_some()
            {
                told.push(second);
            }
        }
        assert_eq!(told, [1, 6, 11]);
        // What was held back is told when its time has come.
        let tell =
            |changes: &mut Changes, at| changes.tell(Duration::from_secs(at), Mode::Writable);
        assert_eq!(tell(&mut changes, 15), None);
        assert_eq!(tell(&mut changes, 16), Some(Mode::ReadOnly));
    }
}
