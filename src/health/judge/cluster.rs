//! What the cluster as a whole is in for: the first bookie over warn, too few writable ones, claims
//! whose agents are gone. Each is a level, told once until it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::beside::{ClusterView, Member};
use super::super::event::EventKind;
use super::super::moment::Elapsed;
use super::Told;

/// An agent may be away from a claim of its bookie for so long: an upgrade, or a session that ends
/// and comes again.
const ORPHAN_GRACE: Duration = Duration::from_secs(60);

/// Names of bookies in one message; all of them are in the snapshot.
const NAMED: usize = 5;

/// The cluster as last heard, and what was told of it.
#[derive(Debug, Clone, Default)]
pub(super) struct ClusterWatch {
    view: Option<ClusterView>,
    over_warn_told: bool,
    /// Whether each place that is judged lacks headroom, which is told once. The whole cluster is `""`, which is no
    /// group's name.
    low: BTreeMap<String, bool>,
    /// Bookies with claims and without an agent: since when, and whether told.
    orphans: BTreeMap<String, (Elapsed, bool)>,
}

impl ClusterWatch {
    /// A cluster is there.
    pub(super) fn is_known(&self) -> bool {
        self.view.is_some()
    }

    pub(super) fn view(&self) -> Option<&ClusterView> {
        self.view.as_ref()
    }

    /// Bookies that are held by a claim and have no agent, by now for too long.
    pub(super) fn orphaned(&self) -> Vec<String> {
        let late = self.orphans.iter().filter(|(_, (_, told))| *told);
        late.map(|(id, _)| id.clone()).collect()
    }

    /// Each place that is judged, with whether it lacks headroom.
    pub(super) fn headroom_low(&self) -> Vec<(String, bool)> {
        let places = self.low.iter();
        places.map(|(name, low)| (name.clone(), *low)).collect()
    }

    /// Takes in the cluster. One that cannot be read changes nothing: it is neither well nor worse.
    pub(super) fn hear(&mut self, now: Elapsed, view: Option<ClusterView>) -> Vec<Told> {
        let Some(view) = view else {
            return Vec::new();
        };
        let mut told = Vec::new();
        told.extend(self.over_warn(&view));
        told.extend(self.headroom(&view));
        let orphans = view
            .members
            .iter()
            .filter(|member| member.claimed && member.agent.is_none());
        let orphans = orphans.map(|member| {
            let known = self.orphans.get(&member.id).copied();
            (member.id.clone(), known.unwrap_or((now, false)))
        });
        self.orphans = orphans.collect();
        self.view = Some(view);
        told.extend(self.tick(now));
        told
    }

    /// Claims that have been without an agent for too long.
    pub(super) fn tick(&mut self, now: Elapsed) -> Vec<Told> {
        let mut late = Vec::new();
        for (id, (since, told)) in &mut self.orphans {
            if !*told && ORPHAN_GRACE <= now.saturating_sub(*since) {
                *told = true;
                late.push(Told::new(
                    EventKind::ClaimOrphaned,
                    format!(
                        "the bookie {id} is held by a claim and has had no agent for a minute: start its agent, or \
                         release the claim, else it stays in that mode"
                    ),
                ));
            }
        }
        late
    }

    /// Consumed data is deleted only while brokers can write: a cluster of which all are full is
    /// locked, so the first one over warn is the time to act (apache/pulsar#15332).
    fn over_warn(&mut self, view: &ClusterView) -> Option<Told> {
        let over: Vec<&Member> = view
            .members
            .iter()
            .filter(|member| is_over(member))
            .collect();
        let before = std::mem::replace(&mut self.over_warn_told, !over.is_empty());
        if over.is_empty() || before {
            return None;
        }
        let ids: Vec<&str> = over
            .iter()
            .take(NAMED)
            .map(|member| member.id.as_str())
            .collect();
        let unknown = view
            .members
            .iter()
            .filter(|member| member.agent.is_none())
            .count();
        let others = match unknown {
            0 => String::new(),
            1 => "; of one other nobody says how it stands".to_owned(),
            more => format!("; of {more} others nobody says how they stand"),
        };
        Some(Told::new(
            EventKind::ClusterOverWarn,
            format!(
                "{} of {} bookies {} a directory over warn ({}){others}",
                over.len(),
                view.members.len(),
                if over.len() == 1 { "has" } else { "have" },
                ids.join(", ")
            ),
        ))
    }

    /// A new ensemble needs as many writable bookies as it is large; inside an isolation group the
    /// group's own. A group that never had so many does not serve such ensembles. Racks are not judged:
    /// an ensemble spans them, and BookKeeper takes any rack when another has none left.
    fn headroom(&mut self, view: &ClusterView) -> Vec<Told> {
        let Some(ensemble) = view.largest_ensemble.filter(|size| 0 < *size) else {
            return Vec::new();
        };
        let ensemble = ensemble as usize;
        let mut groups: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
        for member in &view.members {
            groups.entry("").or_default().push(member);
            let group = member.group.as_deref().filter(|name| !name.is_empty());
            if let Some(group) = group {
                groups.entry(group).or_default().push(member);
            }
        }
        let mut low = BTreeMap::new();
        let mut told = Vec::new();
        for (name, members) in groups {
            let writable = members.iter().filter(|member| member.is_writable()).count();
            let serves = name.is_empty() || ensemble <= members.len();
            if !serves {
                continue;
            }
            let is_low = writable <= ensemble;
            low.insert(name.to_owned(), is_low);
            if !is_low || self.low.get(name) == Some(&true) {
                continue;
            }
            let place = match name {
                "" => "the cluster".to_owned(),
                name => format!("the group {name}"),
            };
            told.push(Told::new(
                EventKind::ClusterHeadroomLow,
                format!(
                    "{place} has {writable} writable of {} bookies, and the largest ensemble in use is {ensemble}: \
                     {} cannot be made{}",
                    members.len(),
                    if writable < ensemble { "such ledgers" } else { "with one less, such ledgers" },
                    if writable < ensemble { " now" } else { "" },
                ),
            ));
        }
        self.low = low;
        told
    }
}

fn is_over(member: &Member) -> bool {
    let agent = member.agent.as_ref();
    agent.is_some_and(|agent| agent.over_warn || agent.full)
}
