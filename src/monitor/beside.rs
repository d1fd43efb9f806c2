//! What is heard of the bookie and its cluster, as the loop takes it in: the judge decides, the loop
//! tells its events.

use crate::health::beside::Heard;
use crate::health::judge::Told;
use crate::health::moment::Moment;

use super::Monitor;

impl Monitor {
    pub(super) fn heard(&mut self, now: Moment, heard: Heard) {
        let is_state = matches!(heard, Heard::State(_));
        let facts = self.tracker.node_facts(&self.holding.kept.claims);
        let told = self.judge.hear(now, heard, &facts);
        self.tell_judged(now, told);
        if is_state {
            self.mode_observed(now, self.judge.observed());
        }
    }

    /// What follows from time alone.
    pub(super) fn judge(&mut self, now: Moment) {
        if self.judge.due().is_none_or(|due| now.elapsed < due) {
            return;
        }
        let facts = self.tracker.node_facts(&self.holding.kept.claims);
        let told = self.judge.tick(now, &facts);
        self.tell_judged(now, told);
    }

    fn tell_judged(&mut self, now: Moment, told: Vec<Told>) {
        let events = told
            .into_iter()
            .map(|told| self.tracker.told_event(now, told))
            .collect();
        self.tell(events);
    }
}
