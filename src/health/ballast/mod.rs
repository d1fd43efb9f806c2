//! The ballast file of a directory: bytes that we occupy so that they can be given back when the
//! directory becomes full and the bookie needs room to compact, to roll its logs or to start.
//! Given back at once; made, and made again, only slowly and with room to spare.

use std::sync::Arc;
use std::time::Duration;

use super::dir::{Role, Thresholds, path_text};
use super::moment::Elapsed;
use super::observation::Space;
use super::snapshot::DirView;
use super::space;
use super::words::bytes_text;

/// Its name in the directory. One for each directory, so that agents and people find it.
pub const FILE_NAME: &str = ".dirkeeper-ballast";

/// What a full look is to do with the ballast file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Nothing: there is none to be, and none was seen.
    #[default]
    None,
    /// Say how much it really occupies.
    Measure,
    /// Make it so large: let it grow by a piece, or cut it at once.
    Fill(u64),
    /// Remove it.
    Release,
}

/// What a journal allocates at a time where no bookie's file says it: the default of
/// `journalPreAllocSizeMB`.
pub(super) const JOURNAL_STEP: u64 = 16 << 20;

/// A journal needs room for two such steps, and for what is written in so many seconds: the time in
/// which a bookie notices and checkpoints. Less is an emergency, whatever the percentage.
const JOURNAL_STEPS: u64 = 2;
const JOURNAL_SECONDS: f64 = 30.0;

/// Beyond its marks a directory must have room for this part of its size after the ballast is made:
/// twice the swing of 1 % that compaction makes, so that the ballast itself never brings it to a mark.
const SPARE: f64 = 0.02;

/// So many orders may come to nothing before the ballast counts as one that cannot be made. One a
/// second; some file systems count blocks only five seconds after they were written.
const IDLE_FILLS: u32 = 10;

/// Then it is tried again after so long: a limit or a quota may have been lifted.
const TRY_AGAIN: Duration = Duration::from_secs(600);

/// After the file grew, a rate is not believed for so long: a file system that counts blocks late makes
/// our writes look like the bookie's. Five seconds until they are counted, ten for the rate to fade.
const OWN_RATE: Duration = Duration::from_secs(15);

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BallastState {
    /// Not looked at yet.
    Unknown,
    /// As large as it is to be.
    Held,
    /// It grows.
    Filling,
    /// It will be made when there has been room for the dwell time.
    Waiting,
    /// It was given back, and is made again when there has been room for the dwell time.
    Released,
    /// Something else has its name, or it may not be changed.
    Obstructed,
    /// The file system gives it no more room, by a quota or a limit.
    Refused,
    /// More than fits beside the thresholds.
    TooLarge,
    /// No setting asks for it; it is not ours to remove.
    Unasked,
}

impl BallastState {
    /// The word used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            BallastState::Unknown => "unknown",
            BallastState::Held => "held",
            BallastState::Filling => "filling",
            BallastState::Waiting => "waiting",
            BallastState::Released => "released",
            BallastState::Obstructed => "obstructed",
            BallastState::Refused => "refused",
            BallastState::TooLarge => "tooLarge",
            BallastState::Unasked => "unasked",
        }
    }
}

/// The ballast as the snapshot shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BallastView {
    /// Bytes that are to be held.
    pub wanted: u64,
    /// Bytes that are really occupied; none while that is not known.
    pub held: Option<u64>,
    /// How it stands.
    pub state: BallastState,
}

/// What the policy has to know about the directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances {
    pub(super) wanted: u64,
    pub(super) role: Role,
    /// What the bookie allocates at a time for a journal file.
    pub(super) journal_step: u64,
    pub(super) space: Option<Space>,
    pub(super) limits: Thresholds,
    /// Bytes a second by which others fill it.
    pub(super) fill_rate: f64,
    /// When ballast last grew in another directory of the file system.
    pub(super) grew_beside: Option<Elapsed>,
    /// Full for want of bytes or by a quota. Removing bytes gives nobody inodes.
    pub(super) full: bool,
    /// Nothing is known that keeps us from changing files in it.
    pub(super) usable: bool,
    /// Everything is good, and nothing says that it fills soon.
    pub(super) well: bool,
    /// A bookie is to be initialised here, and refuses directories that are not empty.
    pub(super) before_bookie: bool,
}

/// The ballast of one directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Ballast {
    /// What a look found last; none before the first, and where something else has the name.
    held: Option<u64>,
    measured: bool,
    /// A setting of this run has asked for it. Another agent's is not ours to remove.
    ours: bool,
    /// It was given back for want of space and is not whole again.
    released: bool,
    asked: Order,
    /// What was asked is for want of space, and not because no ballast is to be here any more.
    for_space: bool,
    /// Since when everything has been well, with room for it.
    calm_since: Option<Elapsed>,
    grew_at: Option<Elapsed>,
    idle_fills: u32,
    refused_at: Option<Elapsed>,
}

impl Ballast {
    /// Takes in how the directory is. True when the ballast must be given back now.
    pub(super) fn observe(&mut self, now: Elapsed, facts: &Circumstances) -> bool {
        self.ours |= 0 < facts.wanted;
        let calm = facts.well && !facts.before_bookie && self.has_room(facts);
        self.calm_since = self.calm_since.filter(|_| calm).or(calm.then_some(now));
        if self.refused_at.is_some_and(|at| at + TRY_AGAIN <= now) {
            self.refused_at = None;
        }
        self.is_there() && self.order(now, facts) == Order::Release
    }

    /// What the full look that begins now is to do.
    pub(super) fn begin(&mut self, now: Elapsed, facts: Option<&Circumstances>) -> Order {
        self.asked = facts.map_or(Order::None, |facts| self.order(now, facts));
        self.for_space = facts.is_some_and(|facts| {
            self.is_short(now, facts) && !facts.before_bookie && 0 < facts.wanted
        });
        self.asked
    }

    /// The last look was to give it back.
    pub(super) fn was_releasing(&self) -> bool {
        self.asked == Order::Release
    }

    /// A look that was ordered something has found so many bytes; none: something else has the name.
    /// Returns the bytes that were given back for want of space.
    pub(super) fn found(&mut self, now: Elapsed, found: Option<u64>, wanted: u64) -> Option<u64> {
        let before = std::mem::replace(&mut self.held, found);
        self.measured = true;
        if before < found && matches!(self.asked, Order::Fill(_)) {
            self.grew_at = Some(now);
        }
        match self.asked {
            Order::Release => {
                let given = before.filter(|bytes| 0 < *bytes && found == Some(0))?;
                self.calm_since = None;
                self.released |= self.for_space;
                return self.for_space.then_some(given);
            }
            Order::Fill(size) if found < Some(size) && found <= before => {
                self.idle_fills += 1;
                if self.idle_fills == IDLE_FILLS {
                    self.refused_at = Some(now);
                    self.idle_fills = 0;
                }
            }
            Order::Fill(_) => self.idle_fills = 0,
            // Somebody removed it: as before the first time.
            Order::Measure if found < before => self.calm_since = None,
            Order::Measure | Order::None => {}
        }
        self.released &= found < Some(wanted);
        None
    }

    /// Bytes of others and of the ballast are told apart by this.
    pub(super) fn held(&self) -> u64 {
        self.held.unwrap_or_default()
    }

    /// When it last grew by an order of ours.
    pub(super) fn grew_at(&self) -> Option<Elapsed> {
        self.grew_at
    }

    /// There is some, or was by an order of ours. Nearly everywhere there is none.
    pub(super) fn is_there(&self) -> bool {
        0 < self.held() || self.grew_at.is_some()
    }

    /// It grows: the next full look is due soon.
    pub(super) fn is_filling(&self, now: Elapsed, facts: &Circumstances) -> bool {
        matches!(self.order(now, facts), Order::Fill(_))
    }

    /// Bytes that are to be held and are not. A full directory is not writable again before there is
    /// room for them too: else it would fill once more, and this time without ballast.
    pub(super) fn owed(&self, facts: &Circumstances) -> u64 {
        let Some(held) = self.held else {
            return 0;
        };
        if facts.before_bookie || self.refused_at.is_some() || !fits(facts) {
            return 0;
        }
        facts.wanted.saturating_sub(held)
    }

    /// As the snapshot shows it; none when there is none and none is to be.
    pub(super) fn view(&self, now: Elapsed, facts: &Circumstances) -> Option<BallastView> {
        let wanted = facts.wanted;
        if wanted == 0 && self.held() == 0 {
            return None;
        }
        let state = match self.held {
            _ if wanted == 0 && !self.ours => BallastState::Unasked,
            None if self.measured => BallastState::Obstructed,
            None => BallastState::Unknown,
            Some(held) if held == wanted => BallastState::Held,
            _ if self.refused_at.is_some() => BallastState::Refused,
            Some(_) if self.is_filling(now, facts) => BallastState::Filling,
            Some(_) if self.released => BallastState::Released,
            Some(_) if !fits(facts) => BallastState::TooLarge,
            Some(_) => BallastState::Waiting,
        };
        Some(BallastView {
            wanted,
            held: self.held,
            state,
        })
    }

    fn order(&self, now: Elapsed, facts: &Circumstances) -> Order {
        let wanted = facts.wanted;
        if !facts.usable || (wanted == 0 && self.measured && self.held() == 0) {
            return Order::None;
        }
        let Some(held) = self.held else {
            return Order::Measure;
        };
        let unwanted = wanted == 0 || facts.before_bookie || self.is_short(now, facts);
        if unwanted && 0 < held {
            return if self.ours {
                Order::Release
            } else {
                Order::None
            };
        }
        let calm = self
            .calm_since
            .is_some_and(|since| since + facts.limits.dwell <= now);
        let may_grow = calm && facts.well && self.refused_at.is_none();
        if wanted < held || (held < wanted && may_grow) {
            return Order::Fill(wanted);
        }
        Order::Measure
    }

    /// Full, or for a journal so near to it that the bookie may end (BookKeeper #4855): read-only
    /// does not empty a journal, so it needs room while it still works.
    fn is_short(&self, now: Elapsed, facts: &Circumstances) -> bool {
        facts.full
            || (facts.role == Role::Journal
                && facts
                    .space
                    .is_some_and(|space| space.available < self.journal_floor(now, facts)))
    }

    /// Bytes below which the bookie's journal is about to fail.
    fn journal_floor(&self, now: Elapsed, facts: &Circumstances) -> u64 {
        let grew_at = self.grew_at.max(facts.grew_beside);
        let ours = grew_at.is_some_and(|at| now < at + OWN_RATE);
        let rate = if ours { 0.0 } else { facts.fill_rate };
        journal_floor(facts.journal_step, rate)
    }

    /// A journal with less than it needs next, ballast that could be given back included: that is given
    /// back first, and is worth more than a change of mode (#1349, #3150). None elsewhere and while
    /// its space is not known.
    pub(super) fn journal_emergency(&self, now: Elapsed, facts: &Circumstances) -> Option<bool> {
        let space = facts.space.filter(|_| facts.role == Role::Journal)?;
        let reachable = space.available.saturating_add(self.held());
        Some(reachable < self.journal_floor(now, facts))
    }

    /// What is missing would fit, and leave the directory well away from its marks.
    fn has_room(&self, facts: &Circumstances) -> bool {
        let missing = facts.wanted.saturating_sub(self.held());
        facts
            .space
            .is_some_and(|space| marks(&space, facts).saturating_add(missing) <= space.available)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, and a rate is not below 0
fn journal_floor(step: u64, fill_rate: f64) -> u64 {
    step.saturating_mul(JOURNAL_STEPS)
        .max((fill_rate * JOURNAL_SECONDS) as u64)
}

/// Even an empty directory would be over a mark with all of it.
fn fits(facts: &Circumstances) -> bool {
    facts
        .space
        .is_none_or(|space| marks(&space, facts).saturating_add(facts.wanted) <= space.size)
}

/// Bytes that must stay available beside the ballast.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // a part of a size, to a percent
fn marks(space: &Space, facts: &Circumstances) -> u64 {
    let spare = (space.size as f64 * SPARE) as u64;
    let mut mark =
        space::writable_above(space, &facts.limits).max(space::warn_below(space, &facts.limits));
    if facts.role == Role::Journal {
        mark = mark.max(journal_floor(facts.journal_step, 0.0));
    }
    mark.saturating_add(spare)
}

impl BallastView {
    /// In words; none where there is nothing to say beyond the numbers.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let wanted = bytes_text(self.wanted);
        let held = bytes_text(self.held.unwrap_or_default());
        let text = match self.state {
            BallastState::Unknown | BallastState::Held => return None,
            BallastState::Filling => format!("{held} of {wanted} are held so far"),
            BallastState::Waiting => {
                format!(
                    "{held} of {wanted} are held; the rest follows when there has been room for the dwell time"
                )
            }
            BallastState::Released => {
                format!(
                    "given back; {wanted} are held again when there has been room for the dwell time"
                )
            }
            BallastState::Obstructed => {
                format!(
                    "something that is not the agent's file, or may not be changed, has the name {FILE_NAME}: remove it"
                )
            }
            BallastState::Refused => {
                format!("only {held} of {wanted} can be held: a quota or a limit is in the way")
            }
            BallastState::TooLarge => {
                format!("{wanted} do not fit beside the thresholds: ask for less")
            }
            BallastState::Unasked => {
                format!(
                    "{held} are held that no setting asks for: set ballast, or remove {FILE_NAME}"
                )
            }
        };
        Some(format!("ballast: {text}"))
    }
}

/// Ballast that is not there although it is asked for, and will not be by itself: the first of it, and how
/// many directories there are.
#[must_use]
pub fn trouble(dirs: &[Arc<DirView>]) -> Option<String> {
    let mut troubled = dirs.iter().filter_map(|dir| {
        let ballast = dir.ballast.filter(|ballast| {
            use BallastState::{Obstructed, Refused, TooLarge};
            matches!(ballast.state, Obstructed | Refused | TooLarge)
        })?;
        Some(format!("{}: {}", path_text(&dir.path), ballast.text()?))
    });
    let first = troubled.next()?;
    Some(match troubled.count() {
        0 => first,
        more => format!("{first} (and {more} other directories)"),
    })
}

#[cfg(test)]
mod tests;
