//! The bookie's mode against the one that its disks ask for, with the reason for the difference as
//! far as it can be known; the same for its registrations and for recovery writes.

use std::time::Duration;

use super::super::beside::{BookieState, Registration, Session};
use super::super::claim::Owner;
use super::super::event::EventKind;
use super::super::moment::Elapsed;
use super::super::policy::Mode;
use super::shadow::Shadow;
use super::{NodeFacts, Settings, Told};

/// The observed mode may differ from the wanted one for so long before it is an event: a bookie's
/// own monitor acts within its check interval of 10 s.
const MODE_GRACE: Duration = Duration::from_secs(30);

/// After the bookie's own check is due, its flag for recovery writes may lag by so much: the time of the
/// check itself, and of the next answer.
const PRIORITY_GRACE: Duration = Duration::from_secs(10);

/// A registration may differ from the state for so long: it is read every few seconds, and a change of
/// mode makes one node before it removes the other (#4172).
const REGISTRATION_GRACE: Duration = Duration::from_secs(30);

/// Compares wanted and observed mode.
#[derive(Debug, Clone, Default)]
pub(super) struct ModeWatch {
    differs_since: Option<Elapsed>,
    told: bool,
    /// The mode of the first answer after a start that was seen.
    first: Option<Mode>,
    /// A start was seen, and no answer since.
    awaits_first: bool,
}

impl ModeWatch {
    pub(super) fn restarted(&mut self) {
        self.awaits_first = true;
        self.first = None;
    }

    pub(super) fn first_answer(&mut self, mode: Mode) {
        if std::mem::take(&mut self.awaits_first) {
            self.first = Some(mode);
        }
    }

    /// Tells once when the bookie has not been in the wanted mode for too long. No explanation: it
    /// is in order, because somebody holds it there.
    pub(super) fn tick(
        &mut self,
        now: Elapsed,
        wanted: Option<Mode>,
        observed: Option<Mode>,
        explained: Option<String>,
    ) -> Option<Told> {
        let (Some(wanted), Some(observed)) = (wanted, observed) else {
            self.differs_since = None;
            return None;
        };
        let Some(explained) = explained else {
            self.differs_since = None;
            self.told = false;
            return None;
        };
        let since = *self.differs_since.get_or_insert(now);
        if self.told || now.saturating_sub(since) < MODE_GRACE {
            return None;
        }
        self.told = true;
        let (wanted, observed) = (wanted.name(), observed.name());
        let why = if explained.is_empty() { "" } else { ": " };
        let message =
            format!("the disks ask for {wanted}, the server has been {observed}{why}{explained}");
        Some(Told {
            kind: EventKind::ModeMismatch,
            change: Some((observed, wanted)),
            message,
        })
    }

    /// Why the bookie is not in the mode that the disks ask for; none when somebody's claim is why.
    pub(super) fn explain(
        &self,
        observed: Mode,
        settings: &Settings,
        shadow: &Shadow,
        node: &NodeFacts<'_>,
    ) -> Option<String> {
        let mut claims = node.claims.iter();
        if claims.any(|claim| claim.mode == observed && claim.owner != Owner::Bookie) {
            return None;
        }
        Some(match observed {
            Mode::Writable => shadow.why_writable(settings, node),
            Mode::ReadOnly => self.why_read_only(settings, shadow),
        })
    }

    fn why_read_only(&self, settings: &Settings, shadow: &Shadow) -> String {
        if settings.force_read_only {
            return "forceReadOnlyBookie is set, and no call ends that (#3881)".to_owned();
        }
        if let Some(why) = shadow.why_read_only() {
            return why;
        }
        let plain =
            "the bookie is read-only although its disks are healthy and no claim explains it";
        let persisted = settings.persists_status != Some(false);
        if self.first == Some(Mode::ReadOnly) && persisted {
            return format!(
                "{plain}; it was so in its first answer after its start, so its status files keep it there \
                 (persistBookieStatusEnabled; #4640, #4225), and the one event that ends that is lost when a \
                 replay takes longer than diskCheckInterval (W5)"
            );
        }
        if settings.persists_status == Some(true) {
            return format!(
                "{plain}; somebody told it by PUT, a flush of its storage failed (#1919, #4270, W20: look for errors \
                 of the flush in its log), or its status files have kept it there since before its start, and a \
                 restart need not end that (persistBookieStatusEnabled; #4640, #4225)"
            );
        }
        format!(
            "{plain}; somebody told it by PUT, or a flush of its storage failed, and nothing in the bookie ends \
             that but a restart (#1919, #4270, W20): look for errors of the flush in its log"
        )
    }
}

/// Compares the bookie's registrations with its state.
#[derive(Debug, Clone, Default)]
pub(super) struct Registered {
    wrong_since: Option<(Elapsed, Wrong)>,
    told: Option<Wrong>,
}

/// How a registration differs from the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Both,
    Neither,
    Other,
}

impl Registered {
    /// Says once when the lists of ZooKeeper and the bookie's state do not agree.
    pub(super) fn tick(
        &mut self,
        now: Elapsed,
        session: Option<Session>,
        registration: Option<Registration>,
        state: Option<BookieState>,
    ) -> Option<Told> {
        let (Some(Session::Connected), Some(registration), Some(state)) =
            (session, registration, state)
        else {
            self.wrong_since = None;
            return None;
        };
        let wrong = match registration {
            Registration {
                writable: true,
                read_only: true,
            } => Wrong::Both,
            Registration {
                writable: false,
                read_only: false,
            } => Wrong::Neither,
            Registration { read_only, .. } if read_only != state.read_only => Wrong::Other,
            _ => {
                *self = Registered::default();
                return None;
            }
        };
        let since = match self.wrong_since {
            Some((since, same)) if same == wrong => since,
            _ => now,
        };
        self.wrong_since = Some((since, wrong));
        if self.told == Some(wrong) || now.saturating_sub(since) < REGISTRATION_GRACE {
            return None;
        }
        self.told = Some(wrong);
        let is = if state.read_only {
            "read-only"
        } else {
            "writable"
        };
        let why = match wrong {
            Wrong::Both => {
                "it is registered among the writable and among the read-only bookies, and clients may lose it \
                 when the second node goes (W34, #4172)"
            }
            Wrong::Neither => {
                "it is registered in neither list: no client finds it (W33, #2760), and a restart registers it"
            }
            Wrong::Other => {
                "it is registered in the other list: the change of its mode did not reach ZooKeeper (W33)"
            }
        };
        Some(Told::new(
            EventKind::ModeMismatch,
            format!("the bookie says that it is {is}, but {why}"),
        ))
    }
}

/// Compares the bookie's flag for recovery writes with the room there is.
#[derive(Debug, Clone, Default)]
pub(super) struct Priority {
    since: Option<(Elapsed, Case)>,
    told: Option<Case>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// Takes them without room.
    Takes,
    /// Refuses them with room.
    Refuses,
    /// Takes them though somebody took it out of service.
    ByHand,
}

impl Priority {
    /// Says each kind of difference once. The flag counts only while the bookie is read-only: a writable
    /// one takes every write (`WriteEntryProcessor`).
    pub(super) fn tick(
        &mut self,
        now: Elapsed,
        settings: &Settings,
        state: Option<BookieState>,
        node: &NodeFacts<'_>,
    ) -> Option<Told> {
        let state = state.filter(|_| node.is_known())?;
        let room = node.high_priority_writes;
        let case = match state.high_priority_writes {
            Some(true) if state.read_only && !room => Case::Takes,
            Some(false) if state.read_only && room => Case::Refuses,
            // What the agent holds for its disks, and does not let go yet, is no hand.
            Some(true)
                if state.read_only
                    && node.wanted == Some(Mode::Writable)
                    && !node.claims.iter().any(|claim| claim.owner == Owner::Agent) =>
            {
                Case::ByHand
            }
            _ => {
                *self = Priority::default();
                return None;
            }
        };
        let since = match self.since {
            Some((since, same)) if same == case => since,
            _ => now,
        };
        self.since = Some((since, case));
        let wait = settings.check_interval + PRIORITY_GRACE;
        if self.told == Some(case) || now.saturating_sub(since) < wait {
            return None;
        }
        self.told = Some(case);
        let (change, message) = match case {
            Case::Takes => (
                ("true", "false"),
                "the bookie takes recovery writes although no directory of some role has more than the reserve: it \
                 allows them until its first check (W35), lets its index directories decide for its ledgers (W8), and \
                 does not look at its journal (W38); it has no call to change that, so make room",
            ),
            Case::Refuses => (
                ("false", "true"),
                "the bookie refuses recovery writes although every role has a directory with room: it decides that \
                 only in the check in which it becomes full",
            ),
            Case::ByHand => (
                ("true", "false"),
                "the bookie is read-only although its disks are well, set by hand or by a failed flush, and then it \
                 goes on taking recovery and re-replication writes (W36); it has no call to change that",
            ),
        };
        Some(Told {
            kind: EventKind::HighPriorityMismatch,
            change: Some(change),
            message: message.to_owned(),
        })
    }
}
