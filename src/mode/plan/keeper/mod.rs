//! Keeps one bookie in the mode that its disks, its operator and a drain ask for. Pure and level-based:
//! each turn is decided from what is seen now, so a restart of the bookie or of the agent, a lost message
//! and a PUT that took effect late all heal at the next turn. Makes no call: it says the next [`Step`],
//! and is told what came of it.
//!
//! Rules: design 1.6 (docs/bookkeeper.md). Unknown never acts; a claim is durable before its PUT; only what a
//! claim of ours began is ended; entering is never delayed by us, leaving is.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use super::book::Book;
use crate::health::beside::BookieState;
use crate::health::claim::{Claim, Owner};
use crate::health::moment::{Elapsed, Moment};
use crate::health::policy::Mode;

/// The disks must have allowed writing for so long before our read-only ends: one check of the bookie's own
/// monitor, which would undo it at once if it saw them otherwise. Beside the dwell of each directory.
pub const DWELL: Duration = Duration::from_secs(10);

/// A read-only of ours lasts at least so long: clients that moved away are not called back for a moment.
pub const HOLD_OFF: Duration = Duration::from_secs(60);

/// In an hour our read-only is ended at most so often. Clients that fail over more often than every ten
/// minutes suffer more from the change than from a smaller cluster.
pub const LEAVES: usize = 6;

/// Over which time [`LEAVES`] counts.
pub const LEAVES_WINDOW: Duration = Duration::from_secs(3600);

/// After something that was in the way: the floor, a lock, a call that failed. Doubles up to
/// [`LONGEST_PAUSE`] while it lasts.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// After a bookie refused: it will do so again until it is configured otherwise and restarted.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Whether the disks' wish is only said, or followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Control {
    /// Say what would be done. Orders of an operator are followed all the same.
    #[default]
    Observe,
    /// Do it.
    Enforce,
}

impl Control {
    /// The word used in configuration and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Control::Observe => "observe",
            Control::Enforce => "enforce",
        }
    }
}

/// What is fixed for a bookie.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Whether the disks' wish is followed.
    pub control: Control,
    /// Why this bookie must never be sent a PUT: its version would end it, or has no such call.
    pub never: Option<String>,
    /// `persistBookieStatusEnabled` is true or unknown: a PUT makes the bookie write its status into each
    /// ledger directory, on its only state thread.
    pub persists_status: bool,
}

/// What is seen at a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct World {
    /// The mode that the disks allow; none while too much is unknown.
    pub wanted: Option<Mode>,
    /// Why, when it is read-only.
    pub reason: Option<String>,
    /// A ledger directory is hung, or suspected to be.
    pub hung: Option<String>,
    /// What the bookie says of itself, just now; none when it cannot be asked.
    pub bookie: Option<BookieState>,
    /// Why a PUT must not be sent now: the session with ZooKeeper is lost (one PUT would block the bookie's
    /// whole admin server, and take effect later).
    pub store_lost: Option<String>,
    /// Another agent looks after this bookie, and was first: nothing is done meanwhile.
    pub rival: Option<Held>,
    /// Claims of others: drain jobs.
    pub foreign: Vec<Claim>,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make this book durable, in the state store and in ZooKeeper.
    Keep(Book),
    /// Under the lock, if the floor allows: [`Keeper::begin`], PUT read-only, and read back.
    Enter,
    /// PUT writable, and read back.
    Leave,
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done. Of `Enter` and `Leave`: it was answered with success, which the next look has to show.
    Done,
    /// Something is in the way, in words; it may go later.
    Held(String),
    /// The bookie refused, in words; it will do so again.
    Refused(String),
}

/// Keeps one bookie.
#[derive(Debug)]
pub struct Keeper {
    settings: Settings,
    book: Book,
    /// The newest revision that is known to be durable.
    durable: u64,
    /// What is in ZooKeeper is known; before, no claim is made and none ended.
    known: bool,
    /// The disks have allowed writing since then.
    allowed_since: Option<Elapsed>,
    /// Our read-only was entered then.
    entered: Option<Elapsed>,
    /// When our read-only was ended, the newest last.
    leaves: VecDeque<Elapsed>,
    pause: Pause,
    held: Option<Held>,
}

/// Why a change that is wanted is not made now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// In words.
    pub text: String,
    /// Something is in the way; otherwise it only waits for its time.
    pub blocked: bool,
}

fn blocked(text: String) -> Held {
    Held {
        text,
        blocked: true,
    }
}

/// A wait after something was in the way.
#[derive(Debug, Default)]
struct Pause {
    until: Elapsed,
    length: Duration,
    /// What was in the way.
    text: Option<String>,
}

impl Keeper {
    /// A keeper with the state store's copy of the book; the default where there is none.
    #[must_use]
    pub fn new(settings: Settings, book: Book) -> Keeper {
        Keeper {
            settings,
            durable: 0,
            book,
            known: false,
            allowed_since: None,
            entered: None,
            leaves: VecDeque::new(),
            pause: Pause::default(),
            held: None,
        }
    }

    /// ZooKeeper's copy was read; the default where it has none.
    pub fn found(&mut self, now: Moment, theirs: Book) {
        self.known = true;
        // A copy that is equal is durable; one that is older has to be written again. Of two books with one revision
        // another agent of this bookie wrote ZooKeeper's, and that one counts.
        self.durable = theirs.revision.min(self.book.revision);
        let same = self.book.revision == theirs.revision;
        if self.book.revision < theirs.revision || (same && !self.book.says_as(&theirs)) {
            self.durable = theirs.revision;
            self.book = theirs;
        }
        if self.book.holds_read_only() {
            // When it was entered is not known: not before now.
            self.entered.get_or_insert(now.elapsed);
        }
    }

    /// Other settings from now on.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
        self.pause = Pause::default();
    }

    /// An operator's order: hold it in this mode.
    pub fn order(&mut self, now: Moment, mode: Mode, reason: String) {
        self.book.operator = Some(Claim {
            owner: Owner::Operator,
            mode,
            reason,
            since: now.wall,
            pending: true,
            below_floor: false,
        });
        self.book.releasing = false;
        self.changed();
    }

    /// An operator lets go. False when there is nothing to let go of.
    pub fn release(&mut self) -> bool {
        if self.book.order().is_none() {
            return false;
        }
        self.book.releasing = true;
        self.changed();
        true
    }

    /// The book.
    #[must_use]
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// ZooKeeper's copy was read: claims may be made and ended.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// All of it is in ZooKeeper.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.known && self.durable == self.book.revision
    }

    /// The admin server turned out to be another bookie's: it is sent nothing more until it is configured anew.
    pub fn is_stranger(&mut self, why: String) {
        self.settings.never = Some(why);
    }

    /// Why this bookie is never sent a PUT.
    #[must_use]
    pub fn never(&self) -> Option<&str> {
        self.settings.never.as_deref()
    }

    /// An order could not be kept: as if it had not been given. Its revision is not used again.
    pub fn forget(&mut self, before: Book) {
        let revision = self.book.revision;
        self.book = Book { revision, ..before };
        self.changed();
    }

    /// Whether the disks' wish is followed.
    #[must_use]
    pub fn control(&self) -> Control {
        self.settings.control
    }

    /// Why a change that is wanted is not made now.
    #[must_use]
    pub fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// An `Enter` may go on: under the lock, and the floor allows it, or an emergency does. Returns the book to be
    /// made durable before the PUT, if it changed. Not earlier: a claim whose PUT is not imminent would take
    /// somebody else's read-only for ours.
    pub fn begin(&mut self, now: Moment, world: &World, below_floor: bool) -> Option<Book> {
        if self.agent_should_claim(world, Mode::Writable) {
            self.claim(now, world, below_floor);
            return Some(self.book.clone());
        }
        let claim = self.book.agent.as_mut()?;
        if !below_floor || claim.below_floor {
            return None;
        }
        claim.below_floor = true;
        self.book.revision += 1;
        Some(self.book.clone())
    }

    fn claim(&mut self, now: Moment, world: &World, below_floor: bool) {
        self.book.agent = Some(Claim {
            owner: Owner::Agent,
            mode: Mode::ReadOnly,
            reason: world.reason.clone().unwrap_or_else(|| "disks".to_owned()),
            since: now.wall,
            pending: true,
            below_floor,
        });
        self.changed();
    }

    /// What is to be done next; none when all is as it should be or nothing may be done.
    pub fn next(&mut self, now: Moment, world: &World) -> Option<Step> {
        self.look(now, world);
        self.held = None;
        if let Some(rival) = &world.rival {
            // The book is the other one's to write.
            let concerned =
                self.settings.control == Control::Enforce || self.book.holds_read_only();
            self.held = concerned.then(|| rival.clone());
            return None;
        }
        self.settle(now, world);
        let step = self.step(now, world);
        if step.is_none() && self.held.is_none() && now.elapsed < self.pause.until {
            self.held = self.pause.text.clone().map(blocked);
        }
        step
    }

    /// What came of the step that was said last.
    pub fn done(&mut self, now: Moment, step: &Step, outcome: Outcome) {
        match (step, outcome) {
            (Step::Keep(book), Outcome::Done) => {
                self.durable = self.durable.max(book.revision);
                self.pause = Pause::default();
            }
            (Step::Enter, Outcome::Done) => {
                self.entered.get_or_insert(now.elapsed);
                self.pause = Pause::default();
            }
            (Step::Leave, Outcome::Done) => {
                // An operator's are not counted: nobody limits them.
                if self.book.operator.is_none() {
                    self.leaves.push_back(now.elapsed);
                }
                self.pause = Pause::default();
                // Told once: what the bookie does by itself afterwards is its own.
                self.confirm(Mode::Writable);
            }
            (_, Outcome::Held(text)) => {
                let length = (self.pause.length * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                self.pause_for(now, length, text);
            }
            (_, Outcome::Refused(text)) => self.pause_for(now, REFUSED_PAUSE, text),
        }
    }

    fn pause_for(&mut self, now: Moment, length: Duration, text: String) {
        self.pause = Pause {
            until: now.elapsed + length,
            length,
            text: Some(text.clone()),
        };
        self.held = Some(blocked(text));
    }

    /// Takes in what time and the bookie show.
    fn look(&mut self, now: Moment, world: &World) {
        match world.wanted {
            Some(Mode::Writable) => {
                self.allowed_since.get_or_insert(now.elapsed);
            }
            _ => self.allowed_since = None,
        }
        while let Some(&first) = self.leaves.front() {
            if now.elapsed.saturating_sub(first) < LEAVES_WINDOW {
                break;
            }
            self.leaves.pop_front();
        }
        if let Some(mode) = world
            .bookie
            .and_then(BookieState::mode)
            .filter(|_| self.known)
        {
            self.confirm(mode);
        }
    }

    /// The bookie shows this mode: claims of it do not wait for it any more. Of a read-only it is not worth a
    /// revision: a copy that still says pending is treated alike. An order to be writable is told once, and
    /// must not be told again by an agent that was restarted.
    fn confirm(&mut self, mode: Mode) {
        let mut told = false;
        let claims = [&mut self.book.agent, &mut self.book.operator];
        for claim in claims.into_iter().flatten() {
            if claim.mode == mode {
                told |= claim.pending && mode == Mode::Writable;
                claim.pending = false;
            }
        }
        if told {
            self.changed();
        }
    }

    fn changed(&mut self) {
        self.book.revision += 1;
        // What was in the way may not be in the way of this.
        self.pause = Pause::default();
    }

    /// Makes and ends claims of the book, as far as that needs no call first.
    fn settle(&mut self, now: Moment, world: &World) {
        let Some(observed) = world
            .bookie
            .and_then(BookieState::mode)
            .filter(|_| self.known)
        else {
            return;
        };
        // It is held already, so there is no PUT to wait for: ours outlives the other claim.
        if observed == Mode::ReadOnly
            && self.another_holds(world)
            && self.agent_should_claim(world, observed)
        {
            self.claim(now, world, false);
        }
        // Ended without a call: the bookie is writable already, or another claim goes on.
        let writable = observed == Mode::Writable;
        if self.agent_may_end(world) && (writable || self.another_holds(world)) {
            self.book.agent = None;
            self.changed();
        }
        if self.book.releasing {
            let held = self.book.operator.as_ref().map(|claim| claim.mode);
            let goes_on = self.book.agent.is_some() || foreign_holds(world);
            if writable || goes_on || held == Some(Mode::Writable) {
                (self.book.operator, self.book.releasing) = (None, false);
                self.changed();
            }
        }
        if !self.book.holds_read_only() {
            self.entered = None;
        } else if observed == Mode::ReadOnly {
            // Also by a PUT that was not answered and took effect later.
            self.entered.get_or_insert(now.elapsed);
        }
    }

    /// The disks ask for read-only and nobody else keeps the bookie there. Where it is read-only by itself, a
    /// PUT would be answered with success and forgotten (measured in all versions), so there is
    /// nothing to claim; where a claim of another holds it, ours outlives that one.
    fn agent_should_claim(&self, world: &World, observed: Mode) -> bool {
        self.settings.control == Control::Enforce
            && self.settings.never.is_none()
            && world.wanted == Some(Mode::ReadOnly)
            && self.book.agent.is_none()
            && !self.ordered(Mode::Writable)
            && (observed == Mode::Writable || self.another_holds(world))
    }

    /// The agent's claim has lost its reason. While it is not known what the disks allow, it has not.
    fn agent_may_end(&self, world: &World) -> bool {
        self.book.agent.is_some()
            && (world.wanted == Some(Mode::Writable) || self.ordered(Mode::Writable))
    }

    fn ordered(&self, mode: Mode) -> bool {
        self.book.order().is_some_and(|claim| claim.mode == mode)
    }

    /// A drain holds the bookie and may be kept in mind: under `observe` its job looks after itself.
    fn drained(&self, world: &World) -> bool {
        self.settings.control == Control::Enforce && foreign_holds(world)
    }

    fn another_holds(&self, world: &World) -> bool {
        foreign_holds(world) || self.ordered(Mode::ReadOnly)
    }

    fn step(&mut self, now: Moment, world: &World) -> Option<Step> {
        let goal = self.goal(now, world);
        if self.known && self.durable < self.book.revision {
            if now.elapsed < self.pause.until {
                return None;
            }
            return Some(Step::Keep(self.book.clone()));
        }
        if goal.is_none() {
            self.pause = Pause::default();
        }
        let step = match (goal?, world.bookie.and_then(BookieState::mode)?) {
            (Mode::ReadOnly, Mode::Writable) => Step::Enter,
            (Mode::Writable, Mode::ReadOnly) => Step::Leave,
            _ => {
                self.pause = Pause::default();
                return None;
            }
        };
        if let Some(text) = self.in_the_way(world) {
            self.held = Some(blocked(text));
            return None;
        }
        if now.elapsed < self.pause.until {
            return None;
        }
        Some(step)
    }

    /// In which mode the claims want the bookie; none where it is not ours to say.
    fn goal(&mut self, now: Moment, world: &World) -> Option<Mode> {
        if !self.known {
            if self.book.revision != 0 || self.settings.control == Control::Enforce {
                self.held = world.store_lost.clone().map(blocked);
            }
            return None;
        }
        if let Some(order) = self.book.order() {
            // Writable is told once: a bookie that goes back by itself has a reason, and is not fought.
            let told = order.mode == Mode::Writable && !order.pending;
            return (!told).then_some(order.mode);
        }
        if self.drained(world) {
            return Some(Mode::ReadOnly);
        }
        if self.book.agent.is_some() {
            if !self.agent_may_end(world) {
                return Some(Mode::ReadOnly);
            }
            return match self.too_early(now) {
                // While it waits to be ended it is kept: it is still our read-only.
                Some(held) => {
                    self.held = Some(held);
                    None
                }
                None => Some(Mode::Writable),
            };
        }
        if self.agent_should_claim(world, Mode::Writable) {
            return Some(Mode::ReadOnly);
        }
        if self.book.releasing && !foreign_holds(world) {
            return Some(Mode::Writable);
        }
        if self.settings.control == Control::Enforce && world.wanted == Some(Mode::ReadOnly) {
            self.held = self.settings.never.clone().map(blocked);
        }
        None
    }

    /// Why our read-only is not ended yet.
    fn too_early(&self, now: Moment) -> Option<Held> {
        let since = |at: Option<Elapsed>| now.elapsed.saturating_sub(at.unwrap_or(now.elapsed));
        let waits = |text: &str| {
            Some(Held {
                text: text.to_owned(),
                blocked: false,
            })
        };
        if since(self.allowed_since) < DWELL {
            return waits("read-only ends when the disks have allowed writing for 10 s");
        }
        if since(self.entered) < HOLD_OFF {
            return waits("the disks allow writing, and read-only lasts at least a minute");
        }
        if LEAVES <= self.leaves.len() {
            return Some(blocked(format!(
                "read-only was ended {LEAVES} times within an hour: it is kept until the first of them is an hour ago"
            )));
        }
        None
    }

    /// Why no PUT may be sent now.
    fn in_the_way(&self, world: &World) -> Option<String> {
        if let Some(never) = &self.settings.never {
            return Some(never.clone());
        }
        if let Some(lost) = &world.store_lost {
            return Some(format!(
                "{lost}: a PUT would block the bookie's admin server and take effect later"
            ));
        }
        match &world.hung {
            Some(hung) if self.settings.persists_status => Some(format!(
                "{hung}: the bookie would write its status there and hang"
            )),
            _ => None,
        }
    }
}

fn foreign_holds(world: &World) -> bool {
    let mut foreign = world.foreign.iter();
    foreign.any(|claim| claim.mode == Mode::ReadOnly)
}
