//! Forced collections that follow each other and free nothing: with `isForceGCAllowWhenNoSpace` each
//! check of a full directory begins one as soon as the one before has ended, and each reads the
//! metadata of all ledgers (#1946, W43).

use std::collections::VecDeque;
use std::time::Duration;

use super::super::super::dir::Role;
use super::super::super::event::EventKind;
use super::super::super::moment::Elapsed;
use super::super::{NodeFacts, Told, time_text};

/// What is looked at: several collections of a few minutes.
const WINDOW: Duration = Duration::from_secs(900);

/// Less than this of it says nothing.
const ENOUGH: Duration = Duration::from_secs(600);

/// Looks that are nearer to the one before are left out, so that the window holds 90 at most.
const APART: Duration = Duration::from_secs(10);

/// Fewer looks say nothing.
const LOOKS: usize = 10;

/// A window in which the ledgers' disks gained this part of their size was of use.
const GAIN: f64 = 0.01;

/// The newest looks.
#[derive(Debug, Clone, Default)]
pub(super) struct ForcedLoop {
    looks: VecDeque<Look>,
    newest: Option<bool>,
    told: bool,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    at: Elapsed,
    forced: bool,
    available: u64,
}

impl ForcedLoop {
    pub(super) fn newest(&self) -> Option<bool> {
        self.newest
    }

    /// They follow each other for nothing.
    pub(super) fn is_loop(&self) -> bool {
        self.told
    }

    /// Takes in whether a forced collection runs. Says once that they follow each other for nothing.
    pub(super) fn look(
        &mut self,
        now: Elapsed,
        forced: Option<bool>,
        node: &NodeFacts<'_>,
    ) -> Option<Told> {
        self.newest = forced;
        let forced = forced?;
        let near = |look: &Look| now < look.at + APART;
        if self.looks.back().is_some_and(near) {
            return None;
        }
        let ledgers = node.dirs.iter().filter(|dir| dir.role == Role::Ledger);
        let spaces: Option<Vec<_>> = ledgers.map(|dir| dir.space).collect();
        let spaces = spaces?;
        let sum = |of: fn(&super::super::Space) -> u64| {
            spaces.iter().map(of).fold(0, u64::saturating_add)
        };
        let (available, size) = (sum(|space| space.available), sum(|space| space.size));
        self.looks.push_back(Look {
            at: now,
            forced,
            available,
        });
        while self
            .looks
            .front()
            .is_some_and(|look| look.at + WINDOW < now)
        {
            self.looks.pop_front();
        }
        let all = self.looks.len();
        let busy = self.looks.iter().filter(|look| look.forced).count();
        if 2 * busy < all {
            self.told = false;
        }
        let first = self.looks.front()?;
        let long = now.saturating_sub(first.at);
        let most = all * 3 <= busy * 4;
        #[allow(clippy::cast_precision_loss)] // a part of a size, to a percent
        let useful = size as f64 * GAIN <= available.saturating_sub(first.available) as f64;
        if self.told || all < LOOKS || long < ENOUGH || !most || useful {
            return None;
        }
        self.told = true;
        Some(Told::new(
            EventKind::ForcedGcLoop,
            format!(
                "a forced garbage collection ran in {busy} of {all} looks of the last {} and the ledger directories \
                 gained nothing: each reads the metadata of all ledgers (#1946); make room, or turn \
                 isForceGCAllowWhenNoSpace off",
                time_text(long)
            ),
        ))
    }
}
