//! Series about the bookie and its cluster.

use std::collections::BTreeMap;

use super::{Facts, Series, float};
use crate::health::beside::GcDetails;

/// Racks with series of their own; of more, only the cluster as a whole has some.
const MAX_RACKS: usize = 64;

/// Isolation groups likewise.
const MAX_GROUPS: usize = 64;

/// Bookies by state, and by rack where there are few. An empty rack: nobody says which.
pub(super) fn cluster_bookies(facts: &Facts<'_>, series: &mut Series) {
    let Some(cluster) = &facts.snapshot.beside.cluster else {
        return;
    };
    let by = |each_rack: bool| {
        let mut racks: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
        for member in &cluster.members {
            let rack = member.rack.as_deref().filter(|_| each_rack);
            let counts = racks.entry(rack.unwrap_or_default()).or_default();
            let over_warn = member
                .agent
                .as_ref()
                .is_some_and(|agent| agent.over_warn || agent.full);
            counts[0] += u64::from(member.registration.writable);
            counts[1] += u64::from(member.registration.read_only);
            counts[2] += u64::from(over_warn);
        }
        racks
    };
    let mut racks = by(true);
    if MAX_RACKS < racks.len() {
        racks = by(false);
    }
    for (rack, counts) in racks {
        for (state, count) in ["writable", "readOnly", "overWarn"].into_iter().zip(counts) {
            series.gauge(&[state, rack], float(count));
        }
    }
}

/// The largest ensemble in use.
pub(super) fn largest_ensemble(facts: &Facts<'_>, series: &mut Series) {
    let cluster = facts.snapshot.beside.cluster.as_ref();
    let size = cluster.and_then(|cluster| cluster.largest_ensemble);
    series.known(&[], size.map(f64::from));
}

/// Whether the cluster and its groups could spare a bookie. An empty group: the cluster.
pub(super) fn headroom_low(facts: &Facts<'_>, series: &mut Series) {
    let places = &facts.snapshot.beside.headroom_low;
    let many = MAX_GROUPS < places.len();
    for (group, low) in places.iter().filter(|(group, _)| !many || group.is_empty()) {
        series.flag(&[group], *low);
    }
}

/// Claims without an agent.
pub(super) fn orphaned(facts: &Facts<'_>, series: &mut Series) {
    let beside = &facts.snapshot.beside;
    let count = beside.orphaned.len() as u64;
    series.known(&[], beside.cluster.as_ref().map(|_| float(count)));
}

/// What is suspended, read or concluded.
pub(super) fn suspended(facts: &Facts<'_>, series: &mut Series) {
    let view = &facts.snapshot.beside.compaction;
    let (Some(flags), suspended) = (view.flags, view.suspended) else {
        return;
    };
    let major = suspended.map_or(flags.major_suspended, |suspended| suspended.major);
    let minor = suspended.map_or(flags.minor_suspended, |suspended| suspended.minor);
    series.flag(&["major"], major);
    series.flag(&["minor"], minor);
}

/// Compactions of all collectors since the bookie's start.
pub(super) fn compactions(facts: &Facts<'_>, series: &mut Series) {
    let details = &facts.snapshot.beside.compaction.details;
    if details.is_empty() {
        return;
    }
    let sum = |of: fn(&GcDetails) -> u64| details.iter().map(of).fold(0, u64::saturating_add);
    series.count(&["major"], sum(|details| details.majors));
    series.count(&["minor"], sum(|details| details.minors));
}
