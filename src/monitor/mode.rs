//! The server's mode as the loop sees it: counts its changes. Whether it is the right one is for the
//! judge to say; the mode is changed elsewhere.

use std::collections::BTreeMap;

use crate::health::event::EventKind;
use crate::health::moment::Moment;
use crate::health::policy::Mode;

use super::Monitor;

impl Monitor {
    pub(super) fn mode_observed(&mut self, now: Moment, mode: Option<Mode>) {
        let before = std::mem::replace(&mut self.observed_mode, mode);
        self.judge.server(mode);
        let (Some(from), Some(to)) = (before, mode) else {
            return;
        };
        if from == to {
            return;
        }
        // A closed list, because it becomes a label.
        let asked = self.tracker.node().wanted() == Some(to);
        let reason = if asked { "disks" } else { "other" };
        let count = self.mode_transitions.entry((to, reason)).or_default();
        *count += 1;
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
