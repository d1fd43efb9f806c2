//! The access axis: can the directory be used at all. Failed needs proof (so many errors of so many
//! probes), hung is judged while the operation runs, and whatever was bad takes good rounds and the
//! dwell time to be good again, without a restart.

use std::time::Duration;

use super::dir::path_text;
use super::moment::Elapsed;
use super::observation::{Failure, Finding, InFlight, Operation};
use super::status::{AccessStatus, Cause, Reason};

/// A probe error makes the directory suspect; so many of the newest [`FAIL_WINDOW`] make it failed.
/// Two of three: one I/O error may be a cable, two within seconds are a disk (Ozone tolerates one
/// error per window as well, HDDS-14871).
const FAIL_ERRORS: u32 = 2;

/// How many of the newest probes count.
const FAIL_WINDOW: u32 = 3;

/// Good rounds that end an outage.
const GOOD_ROUNDS: u32 = 3;

/// An operation that runs for so long makes the directory suspect.
pub const SUSPECT_AFTER: Duration = Duration::from_secs(2);

/// A device that completes writes of others works, if slowly: then an operation of ours may take so
/// many times the deadline, once.
const BUSY_FACTOR: u32 = 3;

/// What a failure means. By error number, never by text (Ozone's HDDS-14888).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// No space: a matter of the space axis, never of access.
    Full(Cause),
    /// Reads only; one is proof.
    ReadOnly(Cause),
    /// The directory or its mount is gone; one is proof.
    Vanished,
    /// Something else is there; one is proof.
    Replaced,
    /// Failed, and one is proof.
    FailedAtOnce(Cause),
    /// Failed, if it repeats.
    FailedIfRepeated(Cause),
    /// Says nothing about the disk.
    NotTheDisk,
}

/// What a failure means.
#[must_use]
pub fn meaning(failure: &Failure) -> Meaning {
    match failure.finding {
        Finding::WrongBytes => return Meaning::FailedAtOnce(Cause::Corrupt),
        Finding::LeadsElsewhere => return Meaning::Replaced,
        Finding::NotADirectory => return Meaning::FailedAtOnce(Cause::NotADirectory),
        Finding::OnlyUsRefused | Finding::ProberTrouble => return Meaning::NotTheDisk,
        Finding::Errno => {}
    }
    match failure.errno {
        Some(errno::ENOSPC) => Meaning::Full(Cause::Bytes),
        Some(errno::EDQUOT) => Meaning::Full(Cause::Quota),
        Some(errno::EROFS) => Meaning::ReadOnly(Cause::KernelError),
        Some(errno::ENOENT) => Meaning::Vanished,
        Some(errno::ENOTDIR) => Meaning::FailedAtOnce(Cause::NotADirectory),
        Some(errno::ELOOP) => Meaning::Replaced,
        Some(errno::EACCES | errno::EPERM) => Meaning::FailedIfRepeated(Cause::Permission),
        Some(errno::ENOTCONN | errno::ESTALE | errno::ENODEV | errno::ENXIO | errno::ESHUTDOWN) => {
            Meaning::FailedAtOnce(Cause::Disconnected)
        }
        Some(errno::EMFILE | errno::ENFILE | errno::ENOMEM | errno::EAGAIN | errno::EINTR) => {
            Meaning::NotTheDisk
        }
        // A failed sync means that data which was accepted is lost: nothing to wait for.
        Some(errno::EIO) if failure.operation == Operation::Sync => {
            Meaning::FailedAtOnce(Cause::Io)
        }
        Some(errno::EUCLEAN | errno::EBADMSG) => Meaning::FailedAtOnce(Cause::KernelError),
        _ => Meaning::FailedIfRepeated(Cause::Io),
    }
}

/// Error numbers of Linux (`asm-generic/errno.h`), named here because `health` uses std only.
/// Alpha, MIPS, PA-RISC and SPARC number the ones over 34 differently; no bookie runs there.
pub mod errno {
    #![allow(missing_docs)]
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const EINTR: i32 = 4;
    pub const EIO: i32 = 5;
    pub const ENXIO: i32 = 6;
    pub const EAGAIN: i32 = 11;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const ENODEV: i32 = 19;
    pub const ENOTDIR: i32 = 20;
    pub const ENFILE: i32 = 23;
    pub const EMFILE: i32 = 24;
    pub const ENOSPC: i32 = 28;
    pub const EROFS: i32 = 30;
    pub const ELOOP: i32 = 40;
    pub const EBADMSG: i32 = 74;
    pub const ENOTCONN: i32 = 107;
    pub const ESHUTDOWN: i32 = 108;
    pub const ESTALE: i32 = 116;
    pub const EUCLEAN: i32 = 117;
    pub const EDQUOT: i32 = 122;
}

/// Judges the access to one directory.
#[derive(Debug, Clone, Default)]
pub struct AccessAxis {
    /// Known good at least once, or bad.
    seen: bool,
    /// Each condition stands by itself; the worst is the value.
    replaced: Option<Reason>,
    vanished: Option<Reason>,
    failed: Option<Reason>,
    hung: Option<Reason>,
    read_only: Option<Reason>,
    unknown: Option<Reason>,
    /// One bit a round, newest lowest: 1 was an error that counts if repeated.
    recent: u8,
    suspicion: Option<Reason>,
    overdue: Option<InFlight>,
    /// The device below holds requests and completes none, in words.
    stalled: Option<String>,
    good_rounds: u32,
    good_since: Option<Elapsed>,
}

impl AccessAxis {
    /// The axis' value: the worst of its conditions.
    #[must_use]
    pub fn status(&self) -> AccessStatus {
        self.worst().map_or_else(
            || match (&self.unknown, self.seen) {
                (None, true) => AccessStatus::Ok,
                _ => AccessStatus::Unknown,
            },
            |(status, _)| status,
        )
    }

    /// Why it is not ok.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        self.worst()
            .map(|(_, reason)| reason)
            .or(self.unknown.as_ref())
    }

    /// Every condition that holds, worst first.
    pub fn conditions(&self) -> impl Iterator<Item = (AccessStatus, &Reason)> {
        [
            (AccessStatus::Replaced, &self.replaced),
            (AccessStatus::Vanished, &self.vanished),
            (AccessStatus::Failed, &self.failed),
            (AccessStatus::Hung, &self.hung),
            (AccessStatus::ReadOnly, &self.read_only),
        ]
        .into_iter()
        .filter_map(|(status, reason)| reason.as_ref().map(|reason| (status, reason)))
    }

    fn worst(&self) -> Option<(AccessStatus, &Reason)> {
        self.conditions().next()
    }

    /// Errors that are not proof yet, an operation that is late but not hung, or good rounds that
    /// are not enough yet.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        let late = self
            .overdue
            .as_ref()
            .is_some_and(|in_flight| in_flight.age >= SUSPECT_AFTER);
        self.suspicion.is_some() || late || self.stalled.is_some() || self.is_on_probation()
    }

    /// Bad before, good at present, not yet for long enough.
    #[must_use]
    pub fn is_on_probation(&self) -> bool {
        self.good_rounds > 0 && self.status().is_unusable()
    }

    /// What makes it suspect, in words.
    #[must_use]
    pub fn suspicion(&self) -> Option<&Reason> {
        self.suspicion.as_ref()
    }

    /// What the device below is stalled with, in words.
    #[must_use]
    pub fn stalled(&self) -> Option<&str> {
        self.stalled.as_deref()
    }

    /// The device below stalls, in words, or does not any more. Suspicious, and no proof: what is
    /// held may be somebody else's.
    pub fn set_stalled(&mut self, what: Option<String>) {
        self.stalled = what;
    }

    /// The operation that is running late.
    #[must_use]
    pub fn overdue(&self) -> Option<&InFlight> {
        self.overdue.as_ref()
    }

    /// A complete round was good in every step.
    pub fn good_round(&mut self, now: Elapsed, dwell: Duration) {
        self.unknown = None;
        self.seen = true;
        self.overdue = None;
        self.recent = (self.recent << 1) & window_mask();
        if self.recent == 0 {
            self.suspicion = None;
        }
        if self.worst().is_none() {
            self.good_rounds = 0;
            self.good_since = None;
            return;
        }
        self.good_rounds += 1;
        let since = *self.good_since.get_or_insert(now);
        if self.good_rounds >= GOOD_ROUNDS && now.saturating_sub(since) >= dwell {
            *self = AccessAxis {
                seen: true,
                stalled: self.stalled.take(),
                ..AccessAxis::default()
            };
        }
    }

    /// A look ended, though not a complete round: the operation that was late is not running.
    pub fn answered(&mut self) {
        self.overdue = None;
        self.unknown = None;
    }

    /// A look failed with this meaning. `Full` and `NotTheDisk` say nothing about access.
    pub fn failed_look(&mut self, meaning: Meaning, reason: Reason) {
        self.overdue = None;
        match meaning {
            Meaning::Full(_) => {}
            Meaning::NotTheDisk => self.lost(reason),
            Meaning::ReadOnly(_) => self.set(AccessStatus::ReadOnly, reason),
            Meaning::Vanished => self.set(AccessStatus::Vanished, reason),
            Meaning::Replaced => self.set(AccessStatus::Replaced, reason),
            Meaning::FailedAtOnce(_) => self.set(AccessStatus::Failed, reason),
            Meaning::FailedIfRepeated(_) => {
                self.bad_news();
                self.recent = ((self.recent << 1) | 1) & window_mask();
                if self.recent.count_ones() >= FAIL_ERRORS {
                    self.set(AccessStatus::Failed, reason);
                } else {
                    self.suspicion = Some(reason);
                }
            }
        }
    }

    /// Sets a condition that is proven.
    pub fn set(&mut self, status: AccessStatus, reason: Reason) {
        self.bad_news();
        let place = match status {
            AccessStatus::Replaced => &mut self.replaced,
            AccessStatus::Vanished => &mut self.vanished,
            AccessStatus::Failed => &mut self.failed,
            AccessStatus::Hung => &mut self.hung,
            AccessStatus::ReadOnly => &mut self.read_only,
            AccessStatus::Ok | AccessStatus::Unknown => return,
        };
        // The first evidence is kept: it is nearest to the fault.
        place.get_or_insert(reason);
        if matches!(status, AccessStatus::Replaced | AccessStatus::Vanished) {
            // One of the two is there; the newer finding is.
            if status == AccessStatus::Replaced {
                self.vanished = None;
            } else {
                self.replaced = None;
            }
            // What was wrong with the disk that is not there any more is not known of the present one.
            self.hung = None;
        }
    }

    /// The pinned disk is there. What stands in the way of its use, if anything does, is another
    /// condition; without one, vanished and replaced take good rounds to end.
    pub fn identified(&mut self) {
        if self.failed.is_some() || self.hung.is_some() || self.read_only.is_some() {
            self.replaced = None;
            self.vanished = None;
        }
    }

    /// An operator took the disk that is there as the right one. It is not known to work before a
    /// good round has shown it.
    pub fn accept(&mut self) {
        self.replaced = None;
        self.vanished = None;
        self.lost(Reason {
            cause: Cause::WrongDevice,
            operation: Operation::Open,
            errno: None,
            message: "accepted by an operator, not probed yet".to_owned(),
        });
    }

    /// A round that was good up to a write for which there was no space. The directory answers, so
    /// nothing but `failed`, which a write has to disprove, outlives such rounds.
    pub fn refused_round(&mut self, now: Elapsed, dwell: Duration) {
        if self.failed.is_some() {
            self.answered();
        } else {
            self.good_round(now, dwell);
        }
    }

    /// An operation is still running. It hangs when it is over its deadline, or when its device has
    /// completed nothing for that long: then it waits in the same queue as what was held first.
    pub fn in_flight(&mut self, in_flight: InFlight, deadline: Duration, dir: &str) {
        let limit = extended(&in_flight, deadline);
        let stalled = in_flight.stalled.filter(|stalled| deadline <= *stalled);
        if (limit <= in_flight.age || stalled.is_some()) && self.hung.is_none() {
            let name = in_flight.operation.name();
            let age = in_flight.age.as_secs_f64();
            let what = match &in_flight.behind {
                Some(other) => format!(
                    "{dir} waits behind {name} on {}, which shares its file system and has been running for {age:.1} s",
                    path_text(other)
                ),
                None => format!("{name} on {dir} has been running for {age:.1} s"),
            };
            let over = match stalled.filter(|_| in_flight.age < limit) {
                Some(stalled) => format!(
                    "and its device has completed nothing for {:.1} s, over the deadline of {:.1} s",
                    stalled.as_secs_f64(),
                    deadline.as_secs_f64()
                ),
                None => format!("over the deadline of {:.1} s", limit.as_secs_f64()),
            };
            let reason = Reason {
                cause: Cause::Timeout,
                operation: in_flight.operation,
                errno: None,
                message: format!("{what}, {over}"),
            };
            self.set(AccessStatus::Hung, reason);
        }
        if in_flight.age >= SUSPECT_AFTER {
            self.bad_news();
        }
        self.overdue = Some(in_flight);
    }

    /// Nobody can say anything at present.
    pub fn lost(&mut self, reason: Reason) {
        self.bad_news();
        self.overdue = None;
        self.unknown = Some(reason);
    }

    fn bad_news(&mut self) {
        self.good_rounds = 0;
        self.good_since = None;
    }
}

/// How long an operation may run before it hangs.
#[must_use]
pub fn extended(in_flight: &InFlight, deadline: Duration) -> Duration {
    if in_flight.device_writes {
        deadline * BUSY_FACTOR
    } else {
        deadline
    }
}

const fn window_mask() -> u8 {
    (1 << FAIL_WINDOW) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(operation: Operation, errno: i32) -> Failure {
        Failure {
            operation,
            errno: Some(errno),
            detail: String::new(),
            finding: Finding::Errno,
        }
    }

    /// Feeds one round a second: `+` good, `e` EIO on write, `s` EIO on sync, `r` EROFS,
    /// `v` ENOENT, `f` ENOSPC, `p` prober trouble; returns the statuses' initials.
    fn run(dwell: u64, rounds: &str) -> String {
        let mut axis = AccessAxis::default();
        let mut word = String::new();
        for (second, round) in rounds.chars().enumerate() {
            let now = Duration::from_secs(second as u64);
            let failed = match round {
                '+' => {
                    axis.good_round(now, Duration::from_secs(dwell));
                    None
                }
                'e' => Some(failure(Operation::Write, errno::EIO)),
                's' => Some(failure(Operation::Sync, errno::EIO)),
                'r' => Some(failure(Operation::Create, errno::EROFS)),
                'v' => Some(failure(Operation::Open, errno::ENOENT)),
                'f' => Some(failure(Operation::Write, errno::ENOSPC)),
                _ => Some(failure(Operation::Open, errno::EMFILE)),
            };
            if let Some(failure) = failed {
                let reason = Reason {
                    cause: Cause::Io,
                    operation: failure.operation,
                    errno: failure.errno,
                    message: String::new(),
                };
                axis.failed_look(meaning(&failure), reason);
            }
            word.push_str(&axis.status().name()[..1]);
        }
        word
    }

    #[test]
    fn failed_takes_two_errors_of_three_and_one_failed_sync_is_enough() {
        assert_eq!(run(0, "+e+++e"), "oooooo");
        assert_eq!(run(0, "+e+e"), "ooof");
        assert_eq!(run(0, "+s"), "of");
        assert_eq!(run(0, "+r"), "or");
        assert_eq!(run(0, "+v"), "ov");
    }

    #[test]
    fn recovery_takes_three_good_rounds_and_the_dwell_time() {
        assert_eq!(run(0, "+s+++"), "offfo");
        assert_eq!(run(5, "+s++++++++"), "offffffooo");
        assert_eq!(run(0, "+s++e+++"), "offffffo");
    }

    #[test]
    fn full_is_never_failed_and_our_own_want_is_unknown() {
        assert_eq!(run(0, "+fff"), "oooo");
        assert_eq!(run(0, "+p+"), "ouo");
    }

    #[test]
    fn the_worst_condition_is_the_value_and_the_milder_one_is_not_forgotten() {
        assert_eq!(run(0, "+rsv"), "orfv");
        let mut axis = AccessAxis::default();
        let reason = |operation| Reason {
            cause: Cause::Io,
            operation,
            errno: None,
            message: String::new(),
        };
        axis.set(AccessStatus::ReadOnly, reason(Operation::Create));
        axis.set(AccessStatus::Replaced, reason(Operation::Open));
        axis.accept();
        assert_eq!(axis.status(), AccessStatus::ReadOnly);
    }

    #[test]
    fn no_space_ends_a_hang_but_not_a_failure() {
        let reason = |operation| Reason {
            cause: Cause::Io,
            operation,
            errno: None,
            message: String::new(),
        };
        for (status, after) in [
            (AccessStatus::Hung, AccessStatus::Ok),
            (AccessStatus::Vanished, AccessStatus::Ok),
            (AccessStatus::Failed, AccessStatus::Failed),
        ] {
            let mut axis = AccessAxis::default();
            axis.set(status, reason(Operation::Sync));
            for second in 0..4 {
                axis.refused_round(Duration::from_secs(second), Duration::ZERO);
            }
            assert_eq!(axis.status(), after, "{status:?}");
        }
    }

    /// Feeds (age, stalled, writes) of one sync with a deadline of five seconds: `-` well, `s`
    /// suspect, `H` hung.
    fn sync(heartbeats: &[(u64, u64, bool)]) -> String {
        let mut axis = AccessAxis::default();
        axis.good_round(Duration::ZERO, Duration::ZERO);
        let mut word = String::new();
        for &(age, stalled, device_writes) in heartbeats {
            let in_flight = InFlight {
                operation: Operation::Sync,
                age: Duration::from_secs(age),
                device_writes,
                stalled: (0 < stalled).then(|| Duration::from_secs(stalled)),
                pressure: None,
                behind: None,
            };
            axis.in_flight(in_flight, Duration::from_secs(5), "/d");
            word.push_str(match (axis.status(), axis.is_suspect()) {
                (AccessStatus::Hung, _) => "H",
                (_, true) => "s",
                (_, false) => "-",
            });
        }
        word
    }

    #[test]
    fn hung_is_declared_at_the_deadline_and_suspected_before() {
        let alone = [1, 2, 4, 5].map(|age| (age, 0, false));
        assert_eq!(sync(&alone), "-ssH");
    }

    #[test]
    fn writes_of_others_extend_the_deadline_once_to_three_times() {
        let busy = [1, 2, 5, 14, 15].map(|age| (age, 0, true));
        assert_eq!(sync(&busy), "-sssH");
    }

    /// The first request that is held may be somebody else's: the age is that of the stall, but only
    /// while an operation of ours is held as well.
    #[test]
    fn a_stall_of_the_device_counts_from_its_begin() {
        assert_eq!(sync(&[(1, 3, false), (2, 4, false), (3, 5, false)]), "-sH");
        assert_eq!(sync(&[(5, 1, true), (8, 4, true), (9, 5, true)]), "ssH");
        let mut axis = AccessAxis::default();
        axis.good_round(Duration::ZERO, Duration::ZERO);
        axis.set_stalled(Some("8:0 holds".to_owned()));
        assert!(axis.is_suspect() && axis.status() == AccessStatus::Ok);
        axis.good_round(Duration::ZERO, Duration::ZERO);
        assert!(axis.is_suspect(), "only its end ends it");
        axis.set_stalled(None);
        assert!(!axis.is_suspect());
    }
}
