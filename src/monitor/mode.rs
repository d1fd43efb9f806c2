//! The server's mode as the loop sees it: counts its changes and says once when it is not the wanted
//! one for too long. Changes no mode; that is `mode`'s work.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::health::event::EventKind;
use crate::health::moment::Moment;
use crate::health::policy::Mode;

use super::Monitor;

/// The observed mode may differ from the wanted one for so long before it is an event: a bookie's
/// own monitor acts within its check interval of 10 s.
const MODE_GRACE: Duration = Duration::from_secs(30);

impl Monitor {
    pub(super) fn mode_observed(&mut self, now: Moment, mode: Option<Mode>) {
        let before = std::mem::replace(&mut self.observed_mode, mode);
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

    /// Tells once when the server has not been in the wanted mode for too long.
    pub(super) fn check_mode(&mut self, now: Moment) {
        let wanted = self.tracker.node().wanted();
        let (Some(wanted), Some(observed)) = (wanted, self.observed_mode) else {
            self.mode_differs_since = None;
            return;
        };
        if wanted == observed {
            self.mode_differs_since = None;
            self.mismatch_told = false;
            return;
        }
        let since = *self.mode_differs_since.get_or_insert(now.elapsed);
        if self.mismatch_told || now.elapsed.saturating_sub(since) < MODE_GRACE {
            return;
        }
        self.mismatch_told = true;
        let (wanted, observed) = (wanted.name(), observed.name());
        let message = format!("the disks ask for {wanted}, the server has been {observed}");
        let change = Some((observed, wanted));
        let event = self
            .tracker
            .node_event(now, EventKind::ModeMismatch, change, message);
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
