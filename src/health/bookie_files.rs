//! The bookie's own files over all directories: which mark counts for which journal, what the
//! snapshot shows of it, and the events that follow. The rules are in `journal`, `restart` and
//! `layout`; this joins them with the tracks.

use std::collections::BTreeMap;

use super::dir::{DirId, Role};
use super::event::{Event, EventKind};
use super::journal::{self, Drain, JournalView, Position, Replay};
use super::layout::{self, Placed};
use super::moment::{Elapsed, Moment};
use super::observation::{BookieFiles, Cookie, Operation};
use super::policy::Policy;
use super::restart::{self, RestartView, StartDir, StartJournal, Verdict};
use super::status::{AccessStatus, Cause, Reason, Severity, SpaceStatus};
use super::track::Track;
use super::tracker::Tracker;

/// A directory's files of the bookie, and when they were seen.
#[derive(Debug, Clone)]
pub(super) struct SeenFiles {
    pub(super) at: Elapsed,
    pub(super) files: BookieFiles,
    /// The newest look found a mark that makes no sense; this is what the one before it found.
    pub(super) is_doubted: bool,
}

/// What is remembered between two evaluations.
#[derive(Debug, Clone, Default)]
pub(super) struct BookieWatch {
    drains: BTreeMap<DirId, Drain>,
    restart: restart::Watch,
}

/// One journal, as known now.
struct Journal<'a> {
    place: usize,
    seen: &'a SeenFiles,
    /// None while not every mark is known.
    known: Option<Known>,
}

/// What is known when every mark is.
#[derive(Clone, Copy)]
struct Known {
    mark: Position,
    /// When that mark was last read.
    read: Elapsed,
    replay: Replay,
    /// No ledger directory was passed over: one that comes back may have a larger mark.
    of_all: bool,
}

impl SeenFiles {
    /// After another look. The bookie cuts `lastMark` to nothing before it writes it anew, so what
    /// makes no sense is believed when it is found twice in a row.
    pub(super) fn after(before: Option<SeenFiles>, now: Elapsed, files: &BookieFiles) -> SeenFiles {
        match before {
            Some(before)
                if files.nonsense.is_some()
                    && before.files.nonsense.is_none()
                    && !before.is_doubted =>
            {
                SeenFiles {
                    is_doubted: true,
                    ..before
                }
            }
            _ => SeenFiles {
                at: now,
                files: files.clone(),
                is_doubted: false,
            },
        }
    }
}

impl Tracker {
    /// Computes anew what depends on several directories; the ids of those that look different now.
    pub fn refresh_journals(&mut self) -> Vec<DirId> {
        let views: Vec<(usize, JournalView)> = journals(&self.tracks, self.policy)
            .into_iter()
            .map(|journal| {
                let replay = journal.known.map(|known| known.replay);
                (journal.place, journal::view(&journal.seen.files, replay))
            })
            .collect();
        let mut changed = Vec::new();
        for (place, track) in self.tracks.iter_mut().enumerate() {
            let found = views.iter().find(|(of, _)| *of == place);
            let view = found.map(|(_, view)| *view);
            if track.journal_view != view {
                track.journal_view = view;
                changed.push(track.id);
            }
        }
        changed
    }

    /// Whether a start of the bookie would fail now; none without a bookie's file.
    #[must_use]
    pub fn restart(&self) -> Option<RestartView> {
        let needs = self.policy.bookie.as_ref()?;
        if self.policy.partial {
            return None;
        }
        let dirs: Vec<StartDir<'_>> = self.tracks.iter().map(start_dir).collect();
        let found = journals(&self.tracks, self.policy);
        let of_role = self.tracks.iter().enumerate();
        let starts: Vec<StartJournal<'_>> = of_role
            .filter(|(_, track)| track.dir.role == Role::Journal)
            .map(|(place, track)| {
                let journal = found.iter().find(|journal| journal.place == place);
                StartJournal {
                    path: &track.dir.path,
                    replay: journal.and_then(|journal| Some(journal.known?.replay)),
                    refused: refused(&self.tracks, track),
                    in_order: journal.is_some_and(|journal| self.is_in_order(journal)),
                }
            })
            .collect();
        Some(restart::judge(&dirs, &starts, needs))
    }

    /// What is said about a missing file does not depend on the order of the looks.
    fn is_in_order(&self, journal: &Journal<'_>) -> bool {
        let drain = self.bookie.drains.get(&self.tracks[journal.place].id);
        let (Some(known), Some(drain)) = (journal.known, drain) else {
            return false;
        };
        known.of_all && drain.surely_misses(journal.seen.at, known.read)
    }

    /// What should be otherwise about where the directories are, in words.
    #[must_use]
    pub fn layout_advice(&self) -> Vec<String> {
        let placed: Vec<Placed<'_>> = self.tracks.iter().map(placed).collect();
        layout::advice(&placed, self.policy.bookie.as_ref())
    }

    /// Journals that do not fit on their disks, a sentence for each; none without a bookie's file.
    #[must_use]
    pub fn oversized_journals(&self) -> Vec<String> {
        let placed: Vec<Placed<'_>> = self.tracks.iter().map(placed).collect();
        let needs = self.policy.bookie.as_ref();
        needs.map_or_else(Vec::new, |needs| layout::too_large(&placed, needs))
    }

    /// Events of journals that do not drain, and of a start that would fail.
    pub(super) fn bookie_events(&mut self, now: Moment) -> Vec<Event> {
        let mut events = Vec::new();
        for (place, text) in self.stuck_journals(now.elapsed) {
            let mut event = self.event(now, EventKind::JournalNotDraining);
            let track = &self.tracks[place];
            event.dir = Some(track.dir.path.clone());
            event.role = Some(track.dir.role);
            event.space = track.last_space;
            event.reason = Some(reason(text));
            events.push(event);
        }
        events.extend(self.restart_event(now));
        events
    }

    fn stuck_journals(&mut self, now: Elapsed) -> Vec<(usize, String)> {
        let needs = self.policy.bookie;
        let roll = needs.map(|needs| needs.journal_file_bytes.max(needs.entry_log_bytes));
        let drains = &mut self.bookie.drains;
        let mut stuck = Vec::new();
        for journal in journals(&self.tracks, self.policy) {
            let track = &self.tracks[journal.place];
            let Some(Known { mark, replay, .. }) = journal.known else {
                continue;
            };
            let over_warn = matches!(
                track.space.status(),
                SpaceStatus::AlmostFull | SpaceStatus::Full
            );
            let drain = drains
                .entry(track.id)
                .or_insert_with(|| Drain::new(now, mark, replay.bytes));
            let text = drain.observe(now, mark, replay, over_warn, roll);
            drain.note_listing(journal.seen.at, replay.missing.is_some());
            stuck.extend(text.map(|text| (journal.place, text)));
        }
        let known = |id: &DirId| self.tracks.iter().any(|track| track.id == *id);
        drains.retain(|id, _| known(id));
        stuck
    }

    fn restart_event(&mut self, now: Moment) -> Option<Event> {
        let view = self.restart()?;
        let dwells = self.tracks.iter().map(|track| track.dir.thresholds.dwell);
        let dwell = dwells.max().unwrap_or_default();
        let told = self
            .bookie
            .restart
            .observe(now.elapsed, view.verdict, dwell)?;
        let kind = match told {
            Verdict::WouldFail => EventKind::RestartWouldFail,
            Verdict::WouldSucceed | Verdict::Unknown => EventKind::RestartPossible,
        };
        let mut event = self.event(now, kind);
        debug_assert_eq!(event.severity == Severity::Ok, told != Verdict::WouldFail);
        let text = match told {
            Verdict::WouldFail => format!("a start would fail: {}", view.reasons.join("; ")),
            _ => "no reason is known any more for which a start would fail".to_owned(),
        };
        event.reason = Some(reason(text));
        Some(event)
    }
}

fn reason(message: String) -> Reason {
    Reason {
        cause: Cause::Bytes,
        operation: Operation::BookieFiles,
        errno: None,
        message,
    }
}

/// Journals whose files were seen. Their marks are known when those of every ledger directory are,
/// those aside that the bookie could not read either.
fn journals(tracks: &[Track], policy: Policy) -> Vec<Journal<'_>> {
    if policy.partial {
        return Vec::new();
    }
    let ledgers = || of_role(tracks, Role::Ledger).map(|(_, track)| track);
    let of_all = ledgers().all(has_whole_files);
    let all_known = ledgers().all(|track| has_whole_files(track) || is_passed_over(track))
        && ledgers().any(has_whole_files);
    let several = 1 < of_role(tracks, Role::Journal).count();
    let mut journals = Vec::new();
    for (index, (place, track)) in (0..).zip(of_role(tracks, Role::Journal)) {
        let Some(seen) = &track.bookie_files else {
            continue;
        };
        let known = (all_known && has_whole_files(track)).then(|| {
            let files = || ledgers().filter_map(|track| track.bookie_files.as_ref());
            let mark = journal::mark(index, several, files().map(|seen| &seen.files));
            let has_it = |seen: &&SeenFiles| {
                journal::mark(index, several, std::iter::once(&seen.files)) == mark
            };
            let read = files().filter(has_it).map(|seen| seen.at).max();
            Known {
                mark,
                read: read.unwrap_or_default(),
                replay: journal::replay(mark, &seen.files),
                of_all,
            }
        });
        journals.push(Journal { place, seen, known });
    }
    journals
}

fn of_role(tracks: &[Track], role: Role) -> impl Iterator<Item = (usize, &Track)> {
    let tracks = tracks.iter().enumerate();
    tracks.filter(move |(_, track)| track.dir.role == role)
}

fn has_whole_files(track: &Track) -> bool {
    let seen = track.bookie_files.as_ref();
    seen.is_some_and(|seen| seen.files.refused.is_none())
}

/// The bookie does without the mark of a directory in which reading fails. It waits for one that
/// hangs.
fn is_passed_over(track: &Track) -> bool {
    matches!(
        track.access.status(),
        AccessStatus::Failed | AccessStatus::Vanished | AccessStatus::Replaced
    )
}

/// What was refused to us, for which it is not known what that journal needs.
fn refused<'a>(tracks: &'a [Track], journal: &'a Track) -> Option<&'a str> {
    let ledgers = of_role(tracks, Role::Ledger).map(|(_, track)| track);
    let working = ledgers.filter(|track| !is_passed_over(track));
    std::iter::once(journal)
        .chain(working)
        .find_map(|track| track.bookie_files.as_ref()?.files.refused.as_deref())
}

fn placed(track: &Track) -> Placed<'_> {
    Placed {
        path: &track.dir.path,
        role: track.dir.role,
        device: track.mount.as_ref().map(|mount| mount.device),
        disks: &track.sources.disks,
        medium: track.medium(),
        space: track.present_space().copied(),
        full: track.dir.thresholds.full,
    }
}

fn start_dir(track: &Track) -> StartDir<'_> {
    let cookie = track.pin.as_ref().map(|pin| &pin.identity.cookie);
    StartDir {
        path: &track.dir.path,
        role: track.dir.role,
        access: track.access.status(),
        cause: track.access.reason().map(|reason| reason.cause),
        had_cookie: matches!(cookie, Some(Cookie::Present { .. })),
        device: track.mount.as_ref().map(|mount| mount.device),
        space: track.present_space().copied(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::dir::{Dir, ProbePolicy, Thresholds};
    use super::super::observation::{JournalFile, Mark};
    use super::*;

    /// Two ledger directories and two journals.
    fn tracker(policy: Policy) -> Tracker {
        let dir = |path: &str, role| Dir {
            path: PathBuf::from(path),
            role,
            thresholds: Thresholds::default(),
            probe: ProbePolicy::default(),
            require_mount: false,
            root_ok: false,
            await_cookie: true,
            ballast: 0,
        };
        let dirs = vec![
            dir("/j0", Role::Journal),
            dir("/l0", Role::Ledger),
            dir("/j1", Role::Journal),
            dir("/l1", Role::Ledger),
        ];
        let mut tracker = Tracker::new(policy);
        tracker.configure(Moment::default(), dirs, policy, |_| None);
        tracker
    }

    fn see(tracker: &mut Tracker, place: usize, marks: &[(u32, u64)], files: &[(u64, u64)]) {
        let marks = marks.iter().map(|(journal, file)| Mark {
            journal: Some(*journal),
            file: *file,
            offset: 0,
        });
        let journals = files.iter().map(|(id, bytes)| JournalFile {
            id: *id,
            bytes: *bytes,
        });
        tracker.tracks[place].bookie_files = Some(SeenFiles {
            at: Elapsed::ZERO,
            files: BookieFiles {
                marks: marks.collect(),
                journals: journals.collect(),
                ..BookieFiles::default()
            },
            is_doubted: false,
        });
    }

    fn unmarked(tracker: &mut Tracker) -> Vec<Option<u64>> {
        tracker.refresh_journals();
        let views = tracker.tracks.iter().filter_map(|track| track.journal_view);
        views.map(|view| view.unmarked).collect()
    }

    #[test]
    fn each_journal_is_joined_with_the_marks_of_all_ledger_directories() {
        let mut tracker = tracker(Policy::default());
        see(&mut tracker, 0, &[], &[(5, 10), (6, 20)]);
        see(&mut tracker, 2, &[], &[(7, 40), (8, 80)]);
        assert_eq!(unmarked(&mut tracker), [None, None]);
        see(&mut tracker, 1, &[(0, 5), (1, 8)], &[]);
        assert_eq!(unmarked(&mut tracker), [None, None], "/l1 may have more");
        see(&mut tracker, 3, &[(0, 6), (1, 7)], &[]);
        assert_eq!(unmarked(&mut tracker), [Some(20), Some(80)]);
        assert_eq!(tracker.refresh_journals(), [], "nothing changed since");
        tracker.policy.partial = true;
        assert_eq!(unmarked(&mut tracker), []);
    }

    /// The bookie passes over a mark that it cannot read; we wait only for what may still answer.
    #[test]
    fn a_dead_ledger_directory_hides_no_journal() {
        let mut tracker = tracker(Policy::default());
        see(&mut tracker, 0, &[], &[(5, 10), (6, 20)]);
        see(&mut tracker, 1, &[(0, 6)], &[]);
        let dead = reason("gone".to_owned());
        tracker.tracks[3].access.set(AccessStatus::Vanished, dead);
        assert_eq!(unmarked(&mut tracker), [Some(20)]);
    }

    /// It may come back with a larger mark, and the file that the smaller one names be removed.
    #[test]
    fn a_hung_ledger_directory_leaves_its_journal_unknown() {
        let mut tracker = tracker(Policy::default());
        see(&mut tracker, 0, &[], &[(5, 10), (6, 20)]);
        see(&mut tracker, 1, &[(0, 6)], &[]);
        let hung = reason("waits".to_owned());
        tracker.tracks[3].access.set(AccessStatus::Hung, hung);
        assert_eq!(unmarked(&mut tracker), [None]);
    }

    #[test]
    fn what_is_refused_leaves_journals_unknown_while_its_directory_works() {
        for (place, expected) in [(0, [None, Some(40)]), (1, [None, None])] {
            let mut tracker = tracker(Policy::default());
            see(&mut tracker, 0, &[], &[(5, 10)]);
            see(&mut tracker, 2, &[], &[(7, 40)]);
            see(&mut tracker, 1, &[(0, 5), (1, 7)], &[]);
            see(&mut tracker, 3, &[(0, 5), (1, 7)], &[]);
            assert_eq!(unmarked(&mut tracker), [Some(10), Some(40)]);
            let track = &mut tracker.tracks[place];
            let seen = track.bookie_files.as_mut().unwrap();
            seen.files.refused = Some("no".to_owned());
            assert_eq!(unmarked(&mut tracker), expected, "{place}");
            let tracks = &tracker.tracks;
            assert_eq!(refused(tracks, &tracks[0]), Some("no"), "{place}");
            let dead = reason("gone".to_owned());
            tracker.tracks[1].access.set(AccessStatus::Failed, dead);
            let known = unmarked(&mut tracker)[1];
            assert_eq!(known, Some(40), "the bookie passes over it too: {place}");
        }
    }

    #[test]
    fn a_mark_that_makes_no_sense_is_believed_at_the_second_look() {
        let second = Elapsed::from_secs;
        let mark = |file| Mark {
            journal: None,
            file,
            offset: 0,
        };
        let good = |file| BookieFiles {
            marks: vec![mark(file)],
            ..BookieFiles::default()
        };
        let nonsense = BookieFiles {
            nonsense: Some("short".to_owned()),
            ..BookieFiles::default()
        };
        let mut seen = None;
        let looks = [
            (good(5), Some((1, 5))),
            (nonsense.clone(), Some((1, 5))),
            (good(6), Some((3, 6))),
            (nonsense.clone(), Some((3, 6))),
            (nonsense.clone(), None),
            (nonsense, None),
            (good(7), Some((7, 7))),
        ];
        for (at, (files, expected)) in (1..).zip(looks) {
            let now = SeenFiles::after(seen.take(), second(at), &files);
            let first = now.files.marks.first();
            let found = first.map(|mark| (now.at.as_secs(), mark.file));
            assert_eq!(found, expected, "look {at}");
            seen = Some(now);
        }
    }

    #[test]
    fn without_the_bookies_file_nothing_is_said_about_a_start() {
        assert_eq!(tracker(Policy::default()).restart(), None);
    }
}
