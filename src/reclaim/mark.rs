//! First phase: what the last complete scan found deletable is marked, with the bytes of its node, and what marks say is
//! held against that scan. Nothing in the cluster is changed here.

use std::collections::BTreeSet;

use super::acting::{Acting, Candidate, Confirmed, LastScan, Stop, at};
use super::failpoint::Failpoint;
use super::history::Ruling;
use super::plan::class::{Class, Maker};
use super::plan::evidence::Witness;
use super::plan::{LedgerId, Millis};
use super::scan::Part;
use super::state::marks::{Evidence, Mark, NodeOf, OwnerOf, Phase, What};
use super::state::{State, StateError};
use crate::cluster::ledger::Layout;
use crate::cluster::store::get_all;

/// Ledgers read and written in one go: some seconds of work at the usual pace.
const BATCH: usize = 512;

/// What to mark.
#[derive(Debug, Clone)]
pub struct MarkOptions {
    /// Of these classes only.
    pub classes: BTreeSet<Class>,
    /// Ledgers of R4 that somebody has looked at and agreed to.
    pub confirmed: BTreeSet<LedgerId>,
    /// Only ledgers of this part.
    pub part: Option<Part>,
    /// Also where so many owners are gone that it looks like lost metadata.
    pub allow_vanished: bool,
    /// Otherwise nothing is written.
    pub execute: bool,
}

impl MarkOptions {
    fn asks_for(&self, candidate: &Candidate) -> bool {
        let is_in = |part: &Part| part.has(candidate.maker, &candidate.owner);
        self.classes.contains(&candidate.class) && self.part.as_ref().is_none_or(is_in)
    }
}

impl Default for MarkOptions {
    /// The classes with a witness.
    fn default() -> MarkOptions {
        MarkOptions {
            classes: [Class::Trimmed, Class::OwnerGone, Class::Offloaded].into(),
            confirmed: BTreeSet::new(),
            part: None,
            allow_vanished: false,
            execute: false,
        }
    }
}

/// What was marked, or would be.
#[derive(Debug, Default)]
pub struct Marked {
    /// New marks.
    pub marked: Vec<Planned>,
    /// Marks that were taken back, and why.
    pub dropped: Vec<(LedgerId, String)>,
    /// Ledgers that were not marked although the scan found them deletable, and why.
    pub skipped: Vec<(LedgerId, &'static str)>,
    /// Marks that stand.
    pub standing: u64,
    /// Why it ended early.
    pub stopped: Option<Stop>,
}

/// A new mark in a few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Which ledger.
    pub id: LedgerId,
    /// Its class.
    pub class: Class,
    /// Bytes of all copies.
    pub bytes: u64,
    /// When it may be deleted.
    pub deletable_at: Millis,
}

/// Marks that have stood long enough, by ascending numbers, with those whose deletion was begun.
///
/// # Errors
/// The file cannot be used.
pub fn all_deletable(state: &State, now: Millis) -> Result<Vec<LedgerId>, StateError> {
    let mut ids = Vec::new();
    state.for_each_mark(|mark| {
        if mark.phase == Phase::Deleting || mark.deletable_at <= now {
            ids.push(mark.id);
        }
    })?;
    Ok(ids)
}

/// Takes back what the last scan speaks against, and marks what it found deletable.
pub async fn mark_deletable(acting: &Acting<'_>, last: &LastScan, options: &MarkOptions) -> Marked {
    let mut marked = Marked::default();
    marked.stopped = mark_all(acting, last, options, &mut marked).await.err();
    marked
}

async fn mark_all(
    acting: &Acting<'_>,
    last: &LastScan,
    options: &MarkOptions,
    marked: &mut Marked,
) -> Result<(), Stop> {
    let layout = acting.layout(last).await?;
    let standing = review(acting, last, options.execute, marked).await?;
    let mass = Stop::mass(last.vanished).filter(|_| !options.allow_vanished);
    let mut found = found(acting, last, layout, options, &standing, marked)?;
    if mass.is_some() {
        found.retain(|(_, candidate, ..)| !candidate.class.is_of_absence());
    }
    for some in found.chunks(BATCH) {
        let paths: Vec<_> = some.iter().map(|(.., path)| path.clone()).collect();
        let nodes = get_all(&*acting.ledgers.store, &paths).await;
        let nodes = at(&acting.ledgers.root, nodes)?;
        acting.failpoints.reach(Failpoint::MarkRead).await;
        let now = acting.now();
        let mut marks = Vec::new();
        for ((id, candidate, grace, path), node) in some.iter().zip(nodes) {
            match node {
                Some((bytes, stat))
                    if (stat.created, stat.version) == (candidate.created, candidate.version) =>
                {
                    let node = NodeOf {
                        path: path.clone(),
                        created: stat.created,
                        version: stat.version,
                        bytes,
                    };
                    let mark = mark(acting, last, *id, candidate, node, now, *grace);
                    let copies = u64::from(candidate.size.1);
                    marked.marked.push(Planned {
                        id: *id,
                        class: mark.class,
                        bytes: candidate.size.0.saturating_mul(copies),
                        deletable_at: mark.deletable_at,
                    });
                    marks.push(mark);
                }
                Some(_) => marked.skipped.push((*id, "it was changed since the scan")),
                None => marked.skipped.push((*id, "it is gone since the scan")),
            }
        }
        if options.execute {
            if !(acting.is_leader)() {
                return Err(Stop::NotLeader);
            }
            acting.state.put_marks(&marks)?;
            acting.failpoints.reach(Failpoint::MarkDurable).await;
        }
    }
    // The rest was marked; that these were not is said as long as somebody asks for them.
    let mass = mass.filter(|_| options.classes.iter().any(|class| class.is_of_absence()));
    mass.map_or(Ok(()), Err)
}

/// Ledgers that may be marked and are not yet, with the time of grace of their class and the path of their node.
fn found<'a>(
    acting: &Acting<'_>,
    last: &'a LastScan,
    layout: Layout,
    options: &MarkOptions,
    standing: &BTreeSet<LedgerId>,
    marked: &mut Marked,
) -> Result<Vec<(LedgerId, &'a Candidate, Millis, String)>, Stop> {
    let mut found = Vec::new();
    for (id, candidate) in &last.suspects {
        if candidate.ruling != Ruling::Deletable
            || !options.asks_for(candidate)
            || standing.contains(id)
        {
            continue;
        }
        let Some(grace) = acting.rules.grace(candidate.class) else {
            continue;
        };
        if candidate.class == Class::NoOwner && !options.confirmed.contains(id) {
            marked.skipped.push((*id, "nobody has confirmed it"));
        } else if was_undone(acting.state, *id)? {
            let why = "it was deleted once and made again";
            marked.skipped.push((*id, why));
        } else if let Some(path) = layout.path(*id) {
            let path = format!("{}/{path}", acting.ledgers.root);
            found.push((*id, candidate, grace, path));
        }
    }
    Ok(found)
}

fn was_undone(state: &State, id: LedgerId) -> Result<bool, StateError> {
    let archived = state.archived(id)?;
    Ok(archived.is_some_and(|archived| archived.undone_at.is_some()))
}

/// Holds all marks against the scan; says which stand. Those whose deletion was begun are the sweep's: only it
/// can find out what came of it.
async fn review(
    acting: &Acting<'_>,
    last: &LastScan,
    execute: bool,
    marked: &mut Marked,
) -> Result<BTreeSet<LedgerId>, Stop> {
    let mut standing = BTreeSet::new();
    let mut wrong = Vec::new();
    acting.state.for_each_mark(|mark| {
        let confirmed = match mark.phase {
            Phase::Marked => last.confirms(&mark),
            Phase::Deleting => Confirmed::NotYet("its deletion was begun".to_owned()),
        };
        match confirmed {
            Confirmed::Yes(_) | Confirmed::NotYet(_) => drop(standing.insert(mark.id)),
            Confirmed::Not(why) => wrong.push((mark, why)),
        }
    })?;
    marked.standing = standing.len() as u64;
    for (mark, why) in wrong {
        if execute {
            acting
                .state
                .drop_mark(&mark, What::Drop, &why, acting.now())?;
            acting.failpoints.reach(Failpoint::MarkDropped).await;
        }
        marked.dropped.push((mark.id, why));
    }
    if execute {
        acting.state.forget_archived(acting.now())?;
    }
    Ok(standing)
}

fn mark(
    acting: &Acting<'_>,
    last: &LastScan,
    id: LedgerId,
    candidate: &Candidate,
    node: NodeOf,
    now: Millis,
    grace: Millis,
) -> Mark {
    let (owner, evidence) = evidence(acting, candidate);
    Mark {
        id,
        class: candidate.class,
        owner,
        evidence,
        node,
        first: candidate.first,
        last: last.began,
        scans: candidate.scans,
        marked_at: now,
        deletable_at: now.saturating_add(grace),
        phase: Phase::Marked,
        attempts: 0,
        obstacle: None,
    }
}

fn evidence(acting: &Acting<'_>, candidate: &Candidate) -> (OwnerOf, Evidence) {
    let Some((key, witness)) = &candidate.witness else {
        let tree = match candidate.maker {
            Maker::Schema => "/schemas",
            _ => "/managed-ledgers",
        };
        let owner = OwnerOf {
            cluster: None,
            name: String::new(),
            path: format!("{tree}/{}", candidate.owner),
            created: None,
        };
        let evidence = match candidate.class {
            Class::Offloaded => Evidence::Moved,
            _ => Evidence::Absence,
        };
        return (owner, evidence);
    };
    let cluster = acting.pulsars.get(usize::from(key.cluster));
    let owner = OwnerOf {
        cluster: Some(key.cluster),
        name: cluster.map_or_else(String::new, |cluster| cluster.name.clone()),
        path: key.path.clone(),
        created: Some(key.created),
    };
    let evidence = match (candidate.class, *witness) {
        (Class::Offloaded, _) => Evidence::Moved,
        (_, Witness::Trimmed { from, to, at, .. }) => Evidence::LetGo { from, to, at },
        (_, Witness::Gone { absence, .. }) => Evidence::OwnerGone {
            since: absence.since,
            until: absence.until,
            scans: absence.scans,
        },
    };
    (owner, evidence)
}
