//! What is in the way of a job, found before it begins: each with what it is about and what to do. A job with a blocker is
//! not started.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::place::{Load, Target};
use super::racks::Racks;
use super::survey::{Fragment, Listed, Survey};

/// Free bytes that are wanted for each byte to be moved, in tenths: entry logs have headers and indexes, and others go on
/// writing meanwhile.
const SPACE_TENTHS: u64 = 12;

/// Ledgers that stay locked at most. When a session ends, ZooKeeper writes the paths of all that ends with it into one transaction,
/// and servers that read one of more than a megabyte do not start again (ZOOKEEPER-4306); these are half of it. BookKeeper's replication
/// workers list all locks in one answer, too.
const MOST_KEPT: u64 = 10_000;

/// Ids named in a sentence.
const NAMED: usize = 10;

/// All that is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Preflight<'a> {
    /// The bookies that are to be emptied.
    pub drained: &'a BTreeSet<String>,
    /// Every bookie that has a cookie or is registered.
    pub known: &'a BTreeSet<String>,
    /// As [`super::place::targets`] gives them.
    pub targets: &'a [Target],
    /// Pulsar's map of racks, or why it is not understood.
    pub racks: Result<&'a Racks, &'a str>,
    /// What is to be moved.
    pub survey: &'a Survey,
    /// Other jobs that are not over, each with its bookies.
    pub jobs: &'a BTreeMap<String, BTreeSet<String>>,
    /// Readers that keep a ledger's old bookies in memory are no matter: all are known to read changed metadata, or the source
    /// keeps each ledger until its owner was unloaded (`--reader-gate per-ledger`).
    pub readers_are_safe: bool,
    /// Each ledger stays locked until the job is finished.
    pub keeps_ledgers: bool,
    /// Bookies that are registered, writable or not.
    pub alive: &'a BTreeSet<String>,
    /// Bookies that want SASL before they answer.
    pub sasl: &'a BTreeSet<String>,
}

/// One thing in the way.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Blocker {
    /// Nobody is named.
    #[error("no bookie is named: say which with --bookies")]
    Nobody,
    /// Nobody is called so.
    #[error("{} not known to this cluster, neither by a cookie nor by a registration: look at the spelling and the port", listed(.0, "is", "are"))]
    Unknown(Vec<String>),
    /// They do not run.
    #[error("{} not registered: a bookie is emptied while it runs; start it, or let BookKeeper's own recovery replace what it held", listed(.0, "is", "are"))]
    Absent(Vec<String>),
    /// No bookie would be left.
    #[error("all bookies of the cluster are named: add others first")]
    All,
    /// Too few would be left.
    #[error(
        "{left} writable bookies would be left, and the largest ensemble has {needed}: add bookies, or empty fewer at once"
    )]
    TooFew {
        /// Writable ones that stay.
        left: usize,
        /// The largest ensemble.
        needed: u32,
    },
    /// Too few of an isolation group would be left.
    #[error(
        "{left} writable bookies of the isolation group {group} would be left, and an ensemble in it has {needed}: add bookies to the group, or empty fewer at once"
    )]
    Group {
        /// The group; empty for bookies without one.
        group: String,
        /// Writable ones of it that stay.
        left: usize,
        /// The largest ensemble with one of them.
        needed: u32,
    },
    /// Too little space.
    #[error(
        "{free} bytes are free{} and {needed} are wanted, a fifth more than what is to be moved: add bookies or space", of_group(.group)
    )]
    Space {
        /// The isolation group in which it lacks; none for bookies without one.
        group: Option<String>,
        /// Bytes wanted.
        needed: u64,
        /// Bytes that targets can be given.
        free: u64,
    },
    /// Data that may be lost already.
    #[error(
        "{} fragments have fewer replicas on registered bookies than their ack quorum, ledger {}: bring those bookies back or let autorecovery end first", .0.count, fragments(.0)
    )]
    Short(Listed<Fragment>),
    /// Another job.
    #[error("{} in job {job}: cancel or finish it first", listed(.bookies, "is", "are"))]
    Overlap {
        /// The other job.
        job: String,
        /// Which of the bookies are in it.
        bookies: Vec<String>,
    },
    /// Readers that could fail.
    #[error(
        "{} fragments have two replicas on the named bookies, ledger {}, and the brokers are not known to read changed metadata: empty one bookie after the other, or use --reader-gate per-ledger", .0.count, fragments(.0)
    )]
    Readers(Listed<Fragment>),
    /// More locks than a session should have.
    #[error(
        "{0} ledgers would stay locked for readers until the job is finished, and ZooKeeper bears no more than {MOST_KEPT} of them: empty fewer bookies at once, or take brokers that read changed metadata and say --readers-refresh"
    )]
    Keeps(u64),
    /// Nobody says that it has space.
    #[error(
        "none of the {0} writable bookies that stay says how much space it has, so none can be chosen"
    )]
    Silent(usize),
    /// Bookies that do not answer us.
    #[error("{} SASL, which is not spoken here: no entry can be copied", listed(.0, "wants", "want"))]
    Sasl(Vec<String>),
    /// No racks.
    #[error("the map of racks /bookies is not understood, so no target can be chosen: {0}")]
    Racks(String),
    /// Ledgers that may name anybody.
    #[error(
        "the metadata of {} ledgers is not understood, and may name the bookies: {}", .0.count, unreadable(.0)
    )]
    Unreadable(Listed<(u64, String)>),
}

/// Everything that is in the way, in a fixed order; nothing, and the job may start.
#[must_use]
pub fn blockers(seen: &Preflight<'_>) -> Vec<Blocker> {
    let (drained, survey) = (seen.drained, seen.survey);
    let mut found = Vec::new();
    if drained.is_empty() {
        return vec![Blocker::Nobody];
    }
    let unknown: Vec<_> = drained.difference(seen.known).cloned().collect();
    if !unknown.is_empty() {
        found.push(Blocker::Unknown(unknown));
    }
    let known = drained.intersection(seen.known);
    let absent: Vec<_> = known
        .filter(|id| !seen.alive.contains(*id))
        .cloned()
        .collect();
    if !absent.is_empty() {
        found.push(Blocker::Absent(absent));
    }
    let all = seen.known.is_subset(drained);
    if all {
        found.push(Blocker::All);
    }
    for (job, bookies) in seen.jobs {
        let bookies: Vec<_> = drained.intersection(bookies).cloned().collect();
        if !bookies.is_empty() {
            let job = job.clone();
            found.push(Blocker::Overlap { job, bookies });
        }
    }
    if !seen.sasl.is_empty() {
        found.push(Blocker::Sasl(seen.sasl.iter().cloned().collect()));
    }
    if !survey.unreadable.some.is_empty() {
        found.push(Blocker::Unreadable(survey.unreadable.clone()));
    }
    match seen.racks {
        // That nobody is left says enough.
        Ok(_) if all => {}
        Ok(racks) => found.extend(room(seen, racks)),
        Err(why) => found.push(Blocker::Racks(why.to_owned())),
    }
    if !survey.short.some.is_empty() {
        found.push(Blocker::Short(survey.short.clone()));
    }
    if seen.keeps_ledgers && MOST_KEPT < survey.ledgers {
        found.push(Blocker::Keeps(survey.ledgers));
    }
    if !seen.readers_are_safe && !survey.doubled.some.is_empty() {
        found.push(Blocker::Readers(survey.doubled.clone()));
    }
    found
}

/// What is wanted of an isolation group.
#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    ensemble: u32,
    bytes: u64,
}

/// Too few bookies or too little space, in the cluster and in each isolation group.
fn room(seen: &Preflight<'_>, racks: &Racks) -> Vec<Blocker> {
    let mut found = Vec::new();
    let stay = || seen.targets.iter().filter(|one| one.is_writable);
    let (left, needed) = (stay().count(), seen.survey.largest_ensemble);
    let is_few = |left: usize, needed: u32| left < needed as usize;
    if is_few(left, needed) {
        found.push(Blocker::TooFew { left, needed });
    }
    if 0 < left && 0 < seen.survey.ledgers && stay().all(|one| one.total == 0) {
        // That there is no space says less.
        found.push(Blocker::Silent(left));
        return found;
    }
    let mut groups = BTreeMap::<Option<&str>, Wanted>::new();
    for (bookie, source) in &seen.survey.sources {
        let wanted = groups.entry(racks.group(bookie)).or_default();
        wanted.ensemble = wanted.ensemble.max(source.largest_ensemble);
        wanted.bytes = wanted.bytes.saturating_add(source.bytes);
    }
    let load = Load::default();
    for (group, wanted) in groups {
        let of_it = || stay().filter(|one| one.group.as_deref() == group);
        let left = of_it().count();
        if let Some(group) = group
            && is_few(left, wanted.ensemble)
        {
            let group = group.to_owned();
            let needed = wanted.ensemble;
            found.push(Blocker::Group {
                group,
                left,
                needed,
            });
        }
        let takers = of_it().filter(|one| !one.warn);
        let free = takers.map(|one| one.room(load.given(&one.id)));
        let free = free.fold(0, u64::saturating_add);
        let needed = (wanted.bytes / 10).saturating_mul(SPACE_TENTHS);
        if free < needed {
            let group = group.map(str::to_owned);
            found.push(Blocker::Space {
                group,
                needed,
                free,
            });
        }
    }
    found
}

/// The first of some names, how many more there are, and the verb for as many.
fn listed(names: &[String], one: &str, many: &str) -> String {
    let verb = if names.len() == 1 { one } else { many };
    format!("{} {verb}", some(names.iter(), names.len() as u64))
}

fn some(items: impl Iterator<Item = impl std::fmt::Display>, count: u64) -> String {
    let named: Vec<_> = items.take(NAMED).map(|item| item.to_string()).collect();
    let more = count - named.len() as u64;
    let named = named.join(", ");
    match more {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn fragments(all: &Listed<Fragment>) -> String {
    let told = all.some.iter();
    let told = told.map(|one| format!("{} from entry {}", one.ledger, one.first));
    some(told, all.count)
}

fn unreadable(all: &Listed<(u64, String)>) -> String {
    let told = all.some.iter();
    some(
        told.map(|(ledger, why)| format!("{ledger} ({why})")),
        all.count,
    )
}

fn of_group(group: &Option<String>) -> String {
    let named = |group| format!(" in the isolation group {group}");
    group.as_ref().map(named).unwrap_or_default()
}

#[cfg(test)]
mod tests;
