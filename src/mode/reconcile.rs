//! Turns a switch until it shows the wanted mode. A thread of its own, because a switch may block;
//! it is handed what is wanted and hands back what it sees, and nobody waits for it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use std::{panic, thread};

use super::plan::{self, Situation, Step};
use super::switch::{ModeSwitch, SwitchError};
use crate::health::policy::Mode;

/// The switch is asked at least so often, so that a change by somebody else is seen.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// What the disks allow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Mode; none while it is not known.
    pub mode: Option<Mode>,
    /// Why it is not writable.
    pub reason: Option<String>,
    /// Recovery writes are possible.
    pub high_priority_writes: bool,
}

/// What the reconciler hands back after each turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The mode seen at the end of the turn; none when the switch cannot be asked.
    pub observed: Option<Mode>,
    /// What went wrong.
    pub problem: Option<String>,
}

/// Handle of the thread.
#[derive(Debug)]
pub struct Reconciler {
    wanted: SyncSender<Wanted>,
}

impl Reconciler {
    /// Starts the thread. `report` is called on it after each turn and must not block for long.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        switch: Box<dyn ModeSwitch>,
        report: impl Fn(Outcome) + Send + 'static,
    ) -> std::io::Result<Reconciler> {
        // One waiting value is enough: a newer one replaces what it says, see `want`.
        let (wanted, receiver) = sync_channel(1);
        thread::Builder::new()
            .name("mode".to_owned())
            .spawn(move || run(switch, &receiver, &report))?;
        Ok(Reconciler { wanted })
    }

    /// Says what is wanted now. Never blocks. False when the thread has not taken the value before
    /// yet: say it again later (levels, not edges).
    pub fn want(&self, wanted: Wanted) -> bool {
        !matches!(self.wanted.try_send(wanted), Err(TrySendError::Full(_)))
    }
}

fn run(mut switch: Box<dyn ModeSwitch>, wanted: &Receiver<Wanted>, report: &impl Fn(Outcome)) {
    let mut now = Wanted::default();
    let mut ours = false;
    loop {
        match wanted.recv_timeout(ASK_INTERVAL) {
            Ok(newer) => now = newer,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let turn = panic::AssertUnwindSafe(|| turn(switch.as_mut(), &now, &mut ours));
        // A switch that panics now may work later; without this thread nobody would try.
        let ended = panic::catch_unwind(turn).unwrap_or_else(|_| {
            Err(SwitchError {
                what: "the mode switch panicked".to_owned(),
            })
        });
        let outcome = match ended {
            Ok(observed) => Outcome {
                observed: Some(observed),
                problem: None,
            },
            Err(error) => Outcome {
                observed: None,
                problem: Some(error.to_string()),
            },
        };
        report(outcome);
    }
}

/// One turn: look, do one step, look again.
fn turn(
    switch: &mut dyn ModeSwitch,
    wanted: &Wanted,
    ours: &mut bool,
) -> Result<Mode, SwitchError> {
    let before = switch.observe()?;
    if wanted.mode.is_some() && before.high_priority_writes != wanted.high_priority_writes {
        switch.set_high_priority_writes(wanted.high_priority_writes)?;
    }
    let situation = Situation {
        wanted: wanted.mode,
        observed: Some(before.mode),
        ours: *ours,
    };
    match plan::next(situation) {
        Step::Nothing => return Ok(before.mode),
        Step::Enter => {
            // Ours before it is done: a crash in between must not leave it without an owner.
            *ours = true;
            switch.set_mode(Mode::ReadOnly, wanted.reason.as_deref().unwrap_or("disks"))?;
        }
        Step::Leave => {
            switch.set_mode(Mode::Writable, "every directory can be written")?;
            *ours = false;
        }
    }
    Ok(switch.observe()?.mode)
}

#[cfg(test)]
mod tests {
    use super::super::switch::MemorySwitch;
    use super::*;

    fn wanted(mode: Mode) -> Wanted {
        Wanted {
            mode: Some(mode),
            reason: Some("/d is full".to_owned()),
            high_priority_writes: mode == Mode::Writable,
        }
    }

    #[test]
    fn a_switch_follows_the_disks_and_comes_back() {
        let handle = MemorySwitch::new();
        let mut switch = handle.clone();
        let mut ours = false;
        for mode in [
            Mode::Writable,
            Mode::ReadOnly,
            Mode::ReadOnly,
            Mode::Writable,
        ] {
            assert_eq!(turn(&mut switch, &wanted(mode), &mut ours), Ok(mode));
        }
        assert!(handle.now().high_priority_writes);
    }

    #[test]
    fn an_operators_read_only_is_never_ended() {
        let handle = MemorySwitch::new();
        let mut switch = handle.clone();
        let mut ours = false;
        handle.turn(Mode::ReadOnly);
        for mode in [Mode::ReadOnly, Mode::Writable] {
            let seen = turn(&mut switch, &wanted(mode), &mut ours);
            assert_eq!(seen, Ok(Mode::ReadOnly));
        }
    }

    #[test]
    fn the_thread_reports_what_it_sees() {
        let handle = MemorySwitch::new();
        let (sender, outcomes) = sync_channel(8);
        let report = move |outcome| drop(sender.try_send(outcome));
        let reconciler = Reconciler::start(Box::new(handle.clone()), report).unwrap();
        assert!(reconciler.want(wanted(Mode::ReadOnly)));
        let outcome = outcomes.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(outcome.observed, Some(Mode::ReadOnly));
        assert_eq!(handle.reason(), "/d is full");
    }
}
