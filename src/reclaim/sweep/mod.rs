//! Second phase: marks that have stood long enough are deleted, one by one, each after everything around it was read
//! once more, in a transaction that fails if its owner or one of its cursors has changed since. It takes a scan that
//! began after the mark. What is written down before and after each step lets any later run go on from where this one died.

mod breaker;
#[cfg(test)]
mod holds;
mod names;
#[cfg(test)]
mod tests;
mod verify;

use std::time::Duration;

use super::acting::{Acting, Candidate, Confirmed, LastScan, Stop, at};
use super::failpoint::Failpoint;
use super::mark::all_deletable;
use super::plan::LedgerId;
use super::scan::Part;
use super::state::marks::{Mark, Phase, What};
use crate::cluster::ledger::Layout;
use crate::cluster::store::{Op, Stat, StoreError};
use verify::{Clear, Look};

/// Deletions of one pass, and the part of all ledgers: a mistake in the evidence is seen by people before it
/// is a disaster.
const MOST_DELETES: u64 = 1000;
const MOST_PART: u64 = 20;

/// Deletions between two looks of the circuit breaker.
const BREAKER_EVERY: u64 = 100;

/// What to sweep, and how fast.
#[derive(Debug, Clone)]
pub struct SweepOptions {
    /// Otherwise nothing is changed.
    pub execute: bool,
    /// Deletions of this pass; none: 1,000 or a twentieth of all ledgers, whichever is less, and at least one.
    pub max_deletes: Option<u64>,
    /// Deletions per second: each costs the bookies that have the ledger some work.
    pub per_second: u32,
    /// Also where an owner is in another store, so that no transaction can check it.
    pub allow_unchecked: bool,
    /// Also where so many owners are gone that it looks like lost metadata.
    pub allow_vanished: bool,
    /// Also where an owner names a ledger that does not exist, for this reason, which goes into the audit.
    pub allow_missing: Option<String>,
    /// Only marks of this part.
    pub part: Option<Part>,
    /// Owners that the circuit breaker looks at.
    pub sample: usize,
}

impl Default for SweepOptions {
    fn default() -> SweepOptions {
        SweepOptions {
            execute: false,
            max_deletes: None,
            per_second: 10,
            allow_unchecked: false,
            allow_vanished: false,
            allow_missing: None,
            part: None,
            sample: breaker::OWNERS,
        }
    }
}

/// What became of the marks.
#[derive(Debug, Default)]
pub struct Swept {
    /// Deleted; without `execute` those that would be.
    pub deleted: Vec<LedgerId>,
    /// Bytes of all their copies, which bookies free in time.
    pub bytes: u64,
    /// Marks that were taken back, and why.
    pub dropped: Vec<(LedgerId, String)>,
    /// Marks that stand although their time has come, and what is in the way.
    pub kept: Vec<(LedgerId, String)>,
    /// Why it ended early.
    pub stopped: Option<Stop>,
}

/// One pass.
struct Sweep<'a> {
    acting: &'a Acting<'a>,
    last: &'a LastScan,
    options: &'a SweepOptions,
    layout: Layout,
    most: u64,
    /// Deletions that were begun; the breaker's look and the pace count them.
    begun: u64,
    next: Duration,
    /// What was in the way, and why that was no matter: for the audit.
    despite: Option<String>,
    /// What keeps some marks from being swept.
    held: Option<Stop>,
    swept: Swept,
}

/// Deletes what marks say, as far as it still holds. At most [`SweepOptions::per_second`].
pub async fn remove_deletable(
    acting: &Acting<'_>,
    last: &LastScan,
    options: &SweepOptions,
) -> Swept {
    let layout = match acting.layout(last).await {
        Ok(layout) => layout,
        Err(stop) => {
            return Swept {
                stopped: Some(stop),
                ..Swept::default()
            };
        }
    };
    let usual = MOST_DELETES.min(last.ledgers / MOST_PART).max(1);
    let mut sweep = Sweep {
        acting,
        last,
        options,
        layout,
        most: options.max_deletes.unwrap_or(usual),
        begun: 0,
        next: Duration::ZERO,
        despite: None,
        held: None,
        swept: Swept::default(),
    };
    if let (true, Some(stop)) = (options.allow_vanished, Stop::mass(last.vanished)) {
        sweep.despite = Some(format!("with --allow-vanished: {stop}"));
    }
    sweep.swept.stopped = sweep.all().await.err();
    if let Some(stop) = &sweep.swept.stopped {
        tracing::warn!(reason = %crate::report::text(stop), "the sweep ended early");
    }
    sweep.swept
}

impl Sweep<'_> {
    async fn all(&mut self) -> Result<(), Stop> {
        let ids = all_deletable(self.acting.state, self.acting.now())?;
        for (number, id) in ids.iter().enumerate() {
            if let Some(mark) = self.acting.state.mark(*id)?
                && (self.options.part.as_ref()).is_none_or(|part| part.has_owner(&mark.owner.path))
            {
                // A pass may take hours.
                self.acting.is_recent(self.last)?;
                let left = (ids.len() - number) as u64;
                self.one(mark, left).await?;
            }
        }
        self.held.take().map_or(Ok(()), Err)
    }

    async fn one(&mut self, mut mark: Mark, left: u64) -> Result<(), Stop> {
        let path = mark.node.path.clone();
        let store = &*self.acting.ledgers.store;
        // Of a deletion whose answer was lost: what is read next is not older than its end.
        self.acting.settle(store, &path).await?;
        let (bytes, stat) = match store.get(&path).await {
            Ok(found) => found,
            Err(StoreError::NoNode) if mark.phase == Phase::Deleting => {
                return self
                    .finish(&mark, Some("a run before this one sent it"))
                    .await;
            }
            Err(StoreError::NoNode) => {
                return self
                    .drop(&mark, What::Drop, "somebody else deleted it")
                    .await;
            }
            Err(source) => return at(&path, Err(source)),
        };
        if let Some((what, why)) = changed(&mark, &bytes, &stat) {
            return self.drop(&mark, what, why).await;
        }
        let candidate = match self.last.confirms(&mark) {
            Confirmed::Yes(candidate) => candidate,
            Confirmed::NotYet(why) => return self.keep(&mut mark, why),
            Confirmed::Not(why) => return self.drop(&mark, What::Drop, &why).await,
        };
        if mark.class.is_of_absence()
            && let Some(stop) =
                Stop::mass(self.last.vanished).filter(|_| !self.options.allow_vanished)
        {
            let why = stop.to_string();
            self.held = Some(stop);
            return self.keep(&mut mark, why);
        }
        let node = (bytes.as_slice(), &stat);
        let unchecked = self.options.allow_unchecked;
        match verify::look(self.acting, self.last, &mark, candidate, node, unchecked).await? {
            Look::Clear(clear) => self.delete(mark, candidate, clear, left).await,
            Look::Against(why) => self.drop(&mark, What::Drop, &why).await,
            Look::NotNow(why) => self.keep(&mut mark, why),
        }
    }

    /// Looks around, unless somebody has said why it is no matter what is found.
    async fn breaker(&mut self) -> Result<(), Stop> {
        let (acting, last, options) = (self.acting, self.last, self.options);
        let found = breaker::look(acting, last, self.layout, options.sample).await?;
        for (owner, id) in found.missing {
            let archived = acting.state.archived(id)?;
            if archived.is_some_and(|archived| archived.undone_at.is_none()) {
                return Err(Stop::Ours { owner, id });
            }
            let Some(reason) = &options.allow_missing else {
                return Err(Stop::Missing { owner, id });
            };
            let why = format!("although {owner} names ledger {id}, which does not exist: {reason}");
            tracing::warn!(why, "the sweep goes on");
            self.despite = Some(why);
        }
        let mass = Stop::mass(found.vanished).filter(|_| !options.allow_vanished);
        mass.map_or(Ok(()), Err)
    }

    /// Everything was read, and speaks for it.
    async fn delete(
        &mut self,
        mut mark: Mark,
        candidate: &Candidate,
        clear: Clear,
        left: u64,
    ) -> Result<(), Stop> {
        if self.most <= self.begun {
            let done = self.swept.deleted.len() as u64;
            return Err(Stop::Enough { done, left });
        }
        let bytes = candidate.size.0.saturating_mul(candidate.size.1.into());
        if !self.options.execute {
            self.begun += 1;
            self.swept.deleted.push(mark.id);
            self.swept.bytes = self.swept.bytes.saturating_add(bytes);
            return Ok(());
        }
        if self.begun.is_multiple_of(BREAKER_EVERY) {
            self.breaker().await?;
        }
        self.begun += 1;
        self.pace().await;
        self.reach(Failpoint::Verified).await;
        mark.phase = Phase::Deleting;
        mark.attempts = mark.attempts.saturating_add(1);
        mark.obstacle = None;
        self.acting.state.update_mark(&mark)?;
        self.reach(Failpoint::DeletingDurable).await;
        if let Some(why) = clear.changed(self.acting).await? {
            return self.keep(&mut mark, why);
        }
        if !(self.acting.is_leader)() {
            return Err(Stop::NotLeader);
        }
        self.reach(Failpoint::BeforeDelete).await;
        let mut ops = clear.checks;
        ops.push(Op::Delete {
            path: mark.node.path.clone(),
            version: Some(mark.node.version),
        });
        match self.acting.ledgers.store.multi(&ops).await {
            Ok(()) => {}
            Err(source) if source.is_open() => {
                return Err(Stop::Unanswered {
                    id: mark.id,
                    source,
                });
            }
            Err(source @ StoreError::Step { .. }) => {
                let why = format!("the transaction was refused: {source}");
                return match is_refusal(&source) {
                    true => at(&mark.node.path, Err(source)),
                    false => self.keep(&mut mark, why),
                };
            }
            Err(source) => return at(&mark.node.path, Err(source)),
        }
        self.reach(Failpoint::AfterDelete).await;
        self.swept.bytes = self.swept.bytes.saturating_add(bytes);
        let why = self.despite.clone();
        self.finish(&mark, why.as_deref()).await
    }

    /// The ledger's node was deleted, or should have been.
    async fn finish(&mut self, mark: &Mark, why: Option<&str>) -> Result<(), Stop> {
        let path = &mark.node.path;
        if !self.options.execute {
            self.swept.deleted.push(mark.id);
            return Ok(());
        }
        self.folders(path).await;
        let there = at(path, self.acting.ledgers.store.stat(path).await)?;
        let why = match there {
            Some(stat) if stat.created == mark.node.created => {
                return Err(Stop::StillThere { id: mark.id });
            }
            Some(_) => Some("another ledger of that number was made right after it"),
            None => why,
        };
        self.reach(Failpoint::AbsenceSeen).await;
        let now = self.acting.now();
        self.acting.state.deleted(mark, why, now)?;
        self.reach(Failpoint::DeletedDurable).await;
        tracing::info!(ledger = mark.id, class = %mark.class, owner = %mark.owner.path, "ledger deleted");
        self.swept.deleted.push(mark.id);
        Ok(())
    }

    /// Takes away folders that are empty now, as BookKeeper does. Whatever comes of it is no matter.
    async fn folders(&self, path: &str) {
        let root = format!("{}/", self.acting.ledgers.root);
        let mut folder = path.strip_prefix(&root).unwrap_or_default();
        while let Some((above, _)) = folder.rsplit_once('/') {
            folder = above;
            if folder.is_empty() || !self.layout.is_above(folder) {
                return;
            }
            let full = format!("{root}{folder}");
            match self.acting.ledgers.store.delete(&full, None).await {
                Ok(()) | Err(StoreError::NoNode) => self.reach(Failpoint::FolderRemoved).await,
                Err(_) => return,
            }
        }
    }

    async fn drop(&mut self, mark: &Mark, what: What, why: &str) -> Result<(), Stop> {
        if what == What::Alarm {
            tracing::error!(
                ledger = mark.id,
                why,
                "a deletion met what it did not expect"
            );
        }
        if self.options.execute {
            let now = self.acting.now();
            self.acting.state.drop_mark(mark, what, why, now)?;
            self.reach(Failpoint::MarkDropped).await;
        }
        self.swept.dropped.push((mark.id, why.to_owned()));
        Ok(())
    }

    fn keep(&mut self, mark: &mut Mark, why: String) -> Result<(), Stop> {
        if self.options.execute && mark.obstacle.as_ref() != Some(&why) {
            mark.obstacle = Some(why.clone());
            self.acting.state.update_mark(mark)?;
        }
        self.swept.kept.push((mark.id, why));
        Ok(())
    }

    async fn pace(&mut self) {
        let now = self.acting.clock.elapsed();
        let turn = self.next.max(now);
        self.next = turn + Duration::from_secs(1) / self.options.per_second.max(1);
        if now < turn {
            tokio::time::sleep(turn - now).await;
        }
    }

    async fn reach(&self, point: Failpoint) {
        self.acting.failpoints.reach(point).await;
    }
}

/// Whether the marked node is another one than that which was read.
fn changed(mark: &Mark, bytes: &[u8], stat: &Stat) -> Option<(What, &'static str)> {
    if stat.created != mark.node.created {
        return Some(match mark.phase {
            Phase::Marked => (What::Drop, "it is another ledger of that number"),
            Phase::Deleting => (
                What::Alarm,
                "its deletion was begun, and now another ledger of that number is there",
            ),
        });
    }
    if stat.version != mark.node.version || bytes != mark.node.bytes {
        return Some((What::Drop, "its metadata was changed"));
    }
    None
}

/// A refusal that every other deletion would meet too.
fn is_refusal(error: &StoreError) -> bool {
    match error {
        StoreError::Step { source, .. } => is_refusal(source),
        StoreError::NoAuth | StoreError::Other(_) => true,
        _ => false,
    }
}
