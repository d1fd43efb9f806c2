//! Which alerts a snapshot asks for: one for each axis of a directory that is bad, one for each lasting
//! trouble of the mode, the bookie and the cluster's claims. Levels, not events: what is over is
//! simply not there any more. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::document::{Host, path_text, shown, words};
use crate::health::claim::Owner;
use crate::health::event::EventKind;
use crate::health::moment::{Elapsed, Timestamp};
use crate::health::policy::Mode;
use crate::health::snapshot::{DirView, Snapshot};
use crate::health::status::{AccessStatus, LatencyStatus, Severity, SpaceStatus, Status};

/// What begins the name of each of our alerts.
pub(super) const PREFIX: &str = "Dirkeeper";

/// How long a directory has to be unknown, and a trouble beside the directories to be there: a change
/// of the mode, a restart of a bookie and of another's agent take less.
const LASTING: Duration = Duration::from_secs(60);

/// Identity of an alert.
pub(super) type Labels = BTreeMap<String, String>;

/// An alert that is wanted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Alert {
    pub(super) labels: Labels,
    pub(super) annotations: BTreeMap<&'static str, String>,
    pub(super) since: Timestamp,
}

/// Remembers since when each trouble was seen.
#[derive(Debug, Default)]
pub(super) struct Alerts {
    seen: BTreeMap<Labels, (Elapsed, Timestamp)>,
}

/// A trouble at this moment.
struct Trouble {
    labels: Labels,
    annotations: BTreeMap<&'static str, String>,
    /// Since when by the snapshot itself.
    since: Option<Timestamp>,
    /// How long it has to be there.
    lasting: Duration,
}

impl Alerts {
    /// What the snapshot asks for; none while not every directory was judged: nothing may end then.
    pub(super) fn of(&mut self, snapshot: &Snapshot, host: &Host) -> Option<Vec<Alert>> {
        if !snapshot.ready {
            return None;
        }
        let now = (snapshot.elapsed, snapshot.time);
        let common = common(host);
        let mut troubles: Vec<Trouble> = Vec::new();
        for dir in &snapshot.dirs {
            troubles.extend(of_dir(dir, &common));
        }
        troubles.extend(beside(snapshot, host, &common));
        let mut seen = BTreeMap::new();
        let mut alerts = Vec::new();
        for trouble in troubles {
            let first = self.seen.remove(&trouble.labels).unwrap_or(now);
            seen.insert(trouble.labels.clone(), first);
            if trouble.lasting <= snapshot.elapsed.saturating_sub(first.0) {
                alerts.push(Alert {
                    labels: trouble.labels,
                    annotations: trouble.annotations,
                    since: trouble.since.unwrap_or(first.1),
                });
            }
        }
        self.seen = seen;
        Some(alerts)
    }
}

/// Labels of every alert of this agent.
pub(super) fn common(host: &Host) -> Labels {
    let host_name = ("host".to_owned(), host.host.clone());
    let bookie = host.bookie_id.clone();
    let bookie = bookie.map(|id| ("bookie_id".to_owned(), id));
    std::iter::once(host_name).chain(bookie).collect()
}

/// `almostFull` as `DirkeeperAlmostFull`.
fn alert_name(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    format!("{PREFIX}{}{rest}", first.to_ascii_uppercase())
}

fn labels(common: &Labels, word: &str, severity: Severity) -> Labels {
    let mut labels = common.clone();
    labels.insert("alertname".to_owned(), alert_name(word));
    labels.insert("severity".to_owned(), severity.name().to_owned());
    labels
}

/// One for each axis, because none hides another; `unknown` where nothing worse is known.
fn of_dir(dir: &DirView, common: &Labels) -> Vec<Trouble> {
    let alone = |space, access, latency| Status::of(space, access, latency);
    let (space, access, latency) = (SpaceStatus::Ok, AccessStatus::Ok, LatencyStatus::Normal);
    let mut found = vec![
        alone(dir.space_status, access, latency),
        alone(space, dir.access_status, latency),
        alone(space, access, dir.latency_status),
    ];
    found.retain(|status| {
        let unknown = *status == Status::Unknown && dir.status != Status::Unknown;
        status.severity() != Severity::Ok && !unknown
    });
    found.sort_unstable();
    found.dedup();
    let troubles = found.into_iter().map(|status| {
        let mut labels = labels(common, status.name(), status.severity());
        labels.insert("dir".to_owned(), path_text(&dir.path));
        labels.insert("role".to_owned(), dir.role.name().to_owned());
        let (role, path) = (dir.role.name(), shown(&dir.path));
        let what = words(status.name());
        let mut annotations = BTreeMap::new();
        annotations.insert("summary", format!("the {role} directory {path} is {what}"));
        // The reason belongs to the worst of them.
        let reason = dir.reason.as_ref().filter(|_| status == dir.status);
        if let Some(reason) = reason {
            annotations.insert("description", reason.message.clone());
            annotations.insert("cause", reason.cause.name().to_owned());
        }
        Trouble {
            labels,
            annotations,
            since: (status == dir.status).then_some(dir.since),
            // After a start, something is unknown for a moment.
            lasting: match status {
                Status::Unknown => LASTING,
                _ => Duration::ZERO,
            },
        }
    });
    troubles.collect()
}

fn beside(snapshot: &Snapshot, host: &Host, common: &Labels) -> Vec<Trouble> {
    let trouble = |kind: EventKind, description: String| {
        let annotations = [
            ("summary", kind.meaning().to_owned()),
            ("description", description),
        ];
        Trouble {
            labels: labels(common, kind.name(), kind.severity()),
            annotations: annotations.into(),
            since: None,
            lasting: LASTING,
        }
    };
    let mut troubles = Vec::new();
    let mode = &snapshot.mode;
    // One alert: a bookie that is in the wrong mode and the wrong list is one trouble.
    let wrong = [wrong_mode(snapshot), wrong_registration(snapshot)];
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    if !wrong.is_empty() {
        troubles.push(trouble(EventKind::ModeMismatch, wrong.join("; ")));
    }
    if let Some(held) = &mode.held {
        troubles.push(trouble(EventKind::ModeHeld, held.clone()));
    }
    if snapshot.beside.bookie_up == Some(false) {
        let text = "the bookie does not answer, or says that it does not run".to_owned();
        troubles.push(trouble(EventKind::BookieDown, text));
    }
    let members = snapshot.beside.cluster.iter().flat_map(|it| &it.members);
    for member in members {
        let own = host.bookie_id.as_ref() == Some(&member.id);
        if member.claimed && member.agent.is_none() && !own {
            let text = format!(
                "the bookie {} is held by a claim and has no agent",
                member.id
            );
            let mut orphaned = trouble(EventKind::ClaimOrphaned, text);
            let label = ("claimed_bookie".to_owned(), member.id.clone());
            orphaned.labels.extend([label]);
            troubles.push(orphaned);
        }
    }
    troubles
}

/// The mode is not the one that the disks ask for, and nobody's claim is why.
fn wrong_mode(snapshot: &Snapshot) -> Option<String> {
    let mode = &snapshot.mode;
    let (wanted, observed) = mode.wanted.zip(mode.observed)?;
    let explained = mode.claims.iter().any(|claim| {
        claim.mode == observed && matches!(claim.owner, Owner::Operator | Owner::Drain(_))
    });
    (wanted != observed && !explained).then(|| {
        let (wanted, observed) = (words(wanted.name()), words(observed.name()));
        format!("the disks ask for {wanted}, the server is {observed}")
    })
}

/// The lists of `ZooKeeper` do not have the bookie where it says that it is.
fn wrong_registration(snapshot: &Snapshot) -> Option<String> {
    let beside = &snapshot.beside;
    let observed = snapshot.mode.observed?;
    let found = beside
        .registration
        .filter(|_| beside.zookeeper == Some(true) && beside.bookie_up == Some(true))?;
    let is_read_only = observed == Mode::ReadOnly;
    let lists = match (found.writable, found.read_only) {
        (true, true) => "in both lists",
        (false, false) => "in neither list",
        (_, read_only) if read_only != is_read_only => "in the other list",
        _ => return None,
    };
    let observed = words(observed.name());
    Some(format!(
        "the server is {observed}, and it is registered {lists}"
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::document::sample;
    use crate::health::beside::Registration;

    fn names(alerts: &[Alert]) -> Vec<String> {
        let line = |alert: &Alert| {
            let dir = alert.labels.get("dir").map_or("", String::as_str);
            let (name, severity) = (&alert.labels["alertname"], &alert.labels["severity"]);
            format!("{name} {severity} {dir}").trim().to_owned()
        };
        alerts.iter().map(line).collect()
    }

    fn host() -> Host {
        Host {
            host: "bk-3".to_owned(),
            bookie_id: Some("10.0.0.3:3181".to_owned()),
        }
    }

    fn snapshot(dirs: Vec<DirView>) -> Snapshot {
        let mut snapshot = sample::snapshot();
        snapshot.dirs = dirs.into_iter().map(Arc::new).collect();
        snapshot.ready = true;
        snapshot.mode = crate::health::snapshot::ModeView::default();
        snapshot.beside = crate::health::beside::BesideView::default();
        snapshot
    }

    #[test]
    fn each_axis_of_a_directory_has_its_own_alert_with_its_reason() {
        use crate::health::dir::Role;
        let mut full = sample::full_dir(1, "/mnt/l1", Role::Ledger);
        full.latency_status = LatencyStatus::Slow;
        let good = sample::writable_dir(2, "/mnt/l2", Role::Ledger);
        let unknown = sample::unknown_dir(3, "/mnt/l3", Role::Ledger);
        let since = full.since;
        let mut alerts = Alerts::default();
        let mut now = snapshot(vec![full, good, unknown]);
        let found = alerts.of(&now, &host()).unwrap();
        let expected = [
            "DirkeeperSlow warning /mnt/l1",
            "DirkeeperFull critical /mnt/l1",
            "DirkeeperUnknown unknown /mnt/l3",
        ];
        assert_eq!(names(&found), expected[..2]);
        now.elapsed += LASTING;
        assert_eq!(names(&alerts.of(&now, &host()).unwrap()), expected);
        let full = &found[1];
        assert_eq!(
            (full.since, full.annotations["cause"].as_str()),
            (since, "bytes")
        );
        let labels = &full.labels;
        assert_eq!((&*labels["host"], &*labels["role"]), ("bk-3", "ledger"));
        assert_eq!(labels["bookie_id"], "10.0.0.3:3181");
        assert!(!found[0].annotations.contains_key("cause"));
    }

    #[test]
    fn nothing_is_known_before_every_directory_was_judged() {
        let mut early = snapshot(Vec::new());
        early.ready = false;
        assert_eq!(Alerts::default().of(&early, &host()), None);
    }

    #[test]
    fn troubles_beside_the_directories_have_to_last() {
        let mut alerts = Alerts::default();
        let mut now = snapshot(Vec::new());
        now.mode.wanted = Some(Mode::ReadOnly);
        now.mode.observed = Some(Mode::Writable);
        now.mode.held = Some("too few writable bookies".to_owned());
        now.beside.bookie_up = Some(false);
        let began = now.time;
        assert_eq!(names(&alerts.of(&now, &host()).unwrap()), [""; 0]);
        now.elapsed += LASTING;
        now.time = Timestamp(now.time.0 + 60_000);
        let found = alerts.of(&now, &host()).unwrap();
        let expected = [
            "DirkeeperModeMismatch warning",
            "DirkeeperModeHeld warning",
            "DirkeeperBookieDown critical",
        ];
        assert_eq!(names(&found), expected);
        assert_eq!(found[0].since, began);
        // Over for a moment, it begins anew.
        now.beside.bookie_up = Some(true);
        assert_eq!(alerts.of(&now, &host()).unwrap().len(), 2);
        now.beside.bookie_up = Some(false);
        assert_eq!(alerts.of(&now, &host()).unwrap().len(), 2);
    }

    #[test]
    fn a_registration_that_is_not_that_of_the_state_is_a_mismatch_until_it_is() {
        let both = |writable, read_only| Registration {
            writable,
            read_only,
        };
        for (mode, found, expected) in [
            (Mode::Writable, both(true, false), None),
            (Mode::ReadOnly, both(false, true), None),
            (Mode::Writable, both(true, true), Some("in both lists")),
            (Mode::ReadOnly, both(false, false), Some("in neither list")),
            (Mode::ReadOnly, both(true, false), Some("in the other list")),
        ] {
            let mut alerts = Alerts::default();
            let mut now = snapshot(Vec::new());
            now.mode.observed = Some(mode);
            now.beside.bookie_up = Some(true);
            now.beside.registration = Some(found);
            let mut lasting = |zookeeper| {
                now.beside.zookeeper = Some(zookeeper);
                let _ = alerts.of(&now, &host());
                now.elapsed += LASTING;
                let found = alerts.of(&now, &host()).unwrap();
                found.into_iter().next()
            };
            let said = lasting(true).map(|alert| alert.annotations["description"].clone());
            let words = |lists| {
                let mode = if mode == Mode::Writable {
                    "writable"
                } else {
                    "read-only"
                };
                format!("the server is {mode}, and it is registered {lists}")
            };
            assert_eq!(said, expected.map(words));
            assert_eq!(lasting(false), None, "what is listed is not known");
        }
    }
}
