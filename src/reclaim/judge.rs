//! What follows from a scan that read everything, with what was remembered before: owner by owner and ledger by ledger
//! from the disk, prepared there beside what is remembered, and put in its place at once. If it is interrupted it
//! begins anew from what was read.

use tokio::sync::watch;

use super::history::{Around, References, Ruling, Span, Suspect, facts, made, suspected};
use super::name;
use super::plan::class::{Class, Maker, Named, Rules, classify};
use super::plan::evidence::{Known, Vanished, Witness, compare};
use super::plan::{LedgerId, Millis};
use super::scan::{
    ANY_NAMESPACE, COMPACTION, Inside, KnownClusters, Ledger, OwnerKey, Part, Progress, PulsarId,
    Reading, ScanError, ScanInfo, Step,
};
use super::state::State;
use super::state::history::Outcome;
use crate::cluster::ledger::LedgerState;

/// Rows that are read, judged and prepared in one go: some megabytes.
pub(super) const CHUNK: usize = 4096;

/// Open ledgers whose bookies are asked about in one scan: each costs a read of metadata and some of bookies. The
/// rest counts as written.
const MOST_ASKED: usize = 10_000;

/// A scan that is judged.
pub(super) struct Judge<'a> {
    pub(super) state: &'a State,
    pub(super) inside: Option<Inside<'a>>,
    pub(super) rules: &'a Rules,
    pub(super) info: ScanInfo,
    pub(super) progress: &'a watch::Sender<Progress>,
    pub(super) asked: usize,
    /// Who the clusters are, and which are no more.
    pub(super) clusters: &'a [PulsarId],
    pub(super) gone: &'a [String],
    /// Those that were known before this scan.
    pub(super) known: KnownClusters,
    /// The newest transaction when the last scan ended, and when that was.
    pub(super) before: Option<(i64, Millis)>,
}

/// What stands for ledgers of one owner; the next one asked about is often of the same.
struct Last {
    maker: Maker,
    owner: String,
    around: Around,
}

fn ids_of(lost: &[(LedgerId, Witness)]) -> Vec<LedgerId> {
    lost.iter().map(|(id, _)| *id).collect()
}

impl Judge<'_> {
    pub(super) async fn all(mut self) -> Result<ScanInfo, ScanError> {
        self.state.begin_judging()?;
        self.known = self.state.clusters()?;
        let before = self.state.last_scan()?;
        self.before = before.and_then(|info| Some((info.transaction?, info.ended)));
        self.info.vanished = Vanished::default();
        let references = self.references().await?;
        self.owners(false, &references).await?;
        self.owners(true, &references).await?;
        self.owners_aside(&references).await?;
        self.ledgers(&references).await?;
        let known = self.known.after(self.clusters, self.gone);
        self.state.complete(&self.info, &known)?;
        Ok(self.info)
    }

    pub(super) fn span(&self) -> Span {
        Span {
            began: self.info.began,
            ended: self.info.ended,
        }
    }

    fn part(&self) -> Option<&Part> {
        self.info.part.as_ref()
    }

    /// Everything that anybody names, and the owners of a part.
    async fn references(&mut self) -> Result<References, ScanError> {
        let mut references = References::default();
        let mut after = None;
        loop {
            let owners = self.state.owners_after(after.as_ref(), CHUNK)?;
            let Some((last, _)) = owners.last() else {
                return Ok(references.sorted());
            };
            after = Some(last.clone());
            for (_, reading) in &owners {
                self.info.vanished.there += u64::from(!reading.seen.ledgers.is_empty());
                references.add(&reading.seen.ledgers, &reading.moved, &reading.positions);
            }
            if let Some(part) = self.part() {
                let mut read = owners;
                read.retain(|(key, _)| part.has_owner(&key.path));
                self.state.prepare(&Outcome {
                    read,
                    ..Outcome::default()
                })?;
            }
            // Whoever keeps the sessions with the stores has its turn.
            tokio::task::yield_now().await;
        }
    }

    /// What owners that were known let go.
    async fn owners(&mut self, are_gone: bool, references: &References) -> Result<(), ScanError> {
        let mut after = None;
        loop {
            let known = self.state.known_after(are_gone, after.as_ref(), CHUNK)?;
            let Some((last, _)) = known.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            let mut outcome = Outcome::default();
            let known = self.renumbered(known, &mut outcome)?;
            self.compared(known, references, &mut outcome)?;
            self.state.prepare(&outcome)?;
            tokio::task::yield_now().await;
        }
    }

    /// With what was read of each of them now.
    pub(super) fn compared(
        &mut self,
        known: Vec<(OwnerKey, Known)>,
        references: &References,
        outcome: &mut Outcome,
    ) -> Result<(), ScanError> {
        let keys: Vec<_> = known.iter().map(|(key, _)| key).collect();
        let now = self.state.owners(&keys)?;
        for ((key, known), now) in known.into_iter().zip(now) {
            if now.is_none() && self.leaves_some(&known, references)? {
                self.info.vanished.gone += 1;
            }
            self.owner(key, known, now, outcome)?;
        }
        Ok(())
    }

    fn owner(
        &self,
        key: OwnerKey,
        known: Known,
        now: Option<Reading>,
        outcome: &mut Outcome,
    ) -> Result<(), ScanError> {
        if self.part().is_some_and(|part| !part.has_owner(&key.path)) {
            let kept = match known.absence {
                Some(_) => &mut outcome.gone,
                None => &mut outcome.known,
            };
            kept.push((key, known));
            return Ok(());
        }
        let span = self.span();
        let at = match known.absence {
            Some(_) => span.began,
            None => span.ended,
        };
        // It may name them where that was not read.
        let is_hidden = now.as_ref().is_some_and(|now| now.hidden.is_some());
        let is_there = now.is_some();
        let (kept, mut lost) = compare(Some(known.clone()), now.map(|now| now.seen), at);
        if is_hidden {
            lost.clear();
        }
        let ids = ids_of(&lost);
        let same = self.state.are_the_same(&ids)?;
        lost.retain({
            let mut same = same.into_iter();
            move |_| same.next().unwrap_or(false)
        });
        if is_there {
            // A part's scan does not move on from what it does not judge.
            if self.part().is_some() && !self.are_judged(&lost)? {
                outcome.known.push((key.clone(), known));
            }
        } else if let Some(mut kept) = kept.filter(|_| !lost.is_empty()) {
            // One that is gone is remembered for as long as a ledger of its is there, and that is made again is not its.
            kept.seen.ledgers = ids_of(&lost);
            outcome.gone.push((key.clone(), kept));
        }
        let witnessed = lost.into_iter().map(|(id, how)| (id, key.clone(), how));
        outcome.witnessed.extend(witnessed);
        Ok(())
    }

    /// An owner that is gone left ledgers that nobody names. In a tree that was copied the same path is another node, which
    /// names them.
    fn leaves_some(&self, known: &Known, references: &References) -> Result<bool, ScanError> {
        let ids = known.seen.ledgers.iter().copied();
        let ids: Vec<_> = ids.filter(|id| references.of(*id) != Named::Hard).collect();
        Ok(self.state.are_the_same(&ids)?.contains(&true))
    }

    fn are_judged(&self, lost: &[(LedgerId, Witness)]) -> Result<bool, ScanError> {
        let Some(part) = self.part() else {
            return Ok(true);
        };
        for (id, _) in lost {
            let some = self.state.ledgers_after(id.checked_sub(1), 1)?;
            if !some.iter().all(|one| part.has(one.maker, &one.owner)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn ledgers(&mut self, references: &References) -> Result<(), ScanError> {
        let mut after = None;
        let mut done = 0;
        let mut last = None;
        loop {
            let ledgers = self.state.ledgers_after(after, CHUNK)?;
            let Some(end) = ledgers.last() else {
                return Ok(());
            };
            after = Some(end.id);
            done += ledgers.len() as u64;
            let mut outcome = Outcome::default();
            let part = self.part().cloned();
            let is_in = |one: &Ledger| {
                part.as_ref()
                    .is_none_or(|part| part.has(one.maker, &one.owner))
            };
            let mut unnamed = Vec::new();
            for ledger in ledgers {
                let named = references.of(ledger.id);
                let is_in = is_in(&ledger);
                if named != Named::Hard {
                    unnamed.push((ledger, named, is_in));
                } else if is_in {
                    self.info.classes[0] += 1;
                }
            }
            let ids: Vec<_> = unnamed.iter().map(|(ledger, ..)| ledger.id).collect();
            let known = self.state.suspects(&ids)?;
            let aside = self.state.witnesses_aside(&ids)?;
            let known = known.into_iter().zip(aside);
            for ((ledger, named, is_in), (known, aside)) in unnamed.into_iter().zip(known) {
                let (known, witness) = self.remembered(&ledger, known, aside, &mut outcome);
                if is_in {
                    self.ledger(&ledger, named, (known, witness), &mut last, &mut outcome)
                        .await?;
                } else {
                    // As it was.
                    outcome
                        .suspects
                        .extend(known.map(|known| (ledger.id, known)));
                }
            }
            self.state.prepare(&outcome)?;
            self.progress.send_replace(Progress {
                step: Step::Judge,
                done,
                all: Some(self.info.ledgers),
            });
            tokio::task::yield_now().await;
        }
    }

    /// One that nobody needs by what was read.
    async fn ledger(
        &mut self,
        ledger: &Ledger,
        named: Named,
        (known, witness): (Option<Suspect>, Option<(OwnerKey, Witness)>),
        last: &mut Option<Last>,
        outcome: &mut Outcome,
    ) -> Result<(), ScanError> {
        let end = self.confirmed(ledger).await?;
        let lac = end.map(|(lac, _)| lac);
        let suspect = suspected(ledger, known, witness, lac, self.span());
        let around = self.around(ledger, last)?;
        let (all, began) = (self.info.all_clusters, self.info.began);
        let mut facts = facts(ledger, named, Some(&suspect), lac, around, all, began);
        facts.made = made(ledger, self.before);
        let (class, verdict) = classify(&facts, self.rules);
        let (ruling, why) = Ruling::of(verdict);
        if let Some(at) = Class::ALL.iter().position(|one| *one == class) {
            self.info.classes[at] += 1;
        }
        let length = end.and_then(|(_, length)| length);
        outcome
            .lengths
            .extend(length.map(|length| (ledger.id, length)));
        outcome.suspects.push((ledger.id, suspect));
        outcome.judged.push((ledger.id, class, ruling, why));
        Ok(())
    }

    async fn confirmed(
        &mut self,
        ledger: &Ledger,
    ) -> Result<Option<(i64, Option<u64>)>, ScanError> {
        let Some(inside) = &self.inside else {
            return Ok(None);
        };
        let is_open = ledger.state != LedgerState::Closed && ledger.maker != Maker::Foreign;
        if !is_open || MOST_ASKED <= self.asked {
            return Ok(None);
        }
        self.asked += 1;
        inside.confirmed(ledger.id).await
    }

    fn around(&self, ledger: &Ledger, last: &mut Option<Last>) -> Result<Around, ScanError> {
        if let Some(last) = last
            && (last.maker, &last.owner) == (ledger.maker, &ledger.owner)
        {
            return Ok(last.around);
        }
        let owner = &ledger.owner;
        let path = match ledger.maker {
            Maker::Schema => format!("/schemas/{owner}"),
            _ => format!("/managed-ledgers/{owner}"),
        };
        let clusters = u16::try_from(self.info.clusters.len()).unwrap_or(u16::MAX);
        let there = self.state.at_path(clusters, &path)?;
        let hidden = match ledger.maker {
            Maker::Schema => there.clone(),
            _ => self
                .state
                .at_path(clusters, &format!("{path}/{COMPACTION}"))?,
        };
        let mut is_namespace_there = self.state.is_namespace(ANY_NAMESPACE)?;
        for name in name::namespaces(owner) {
            is_namespace_there |= self.state.is_namespace(name)?;
            if ledger.maker == Maker::Schema {
                is_namespace_there |= self.state.is_namespace_of_old(name)?;
            }
        }
        let around = Around {
            is_owner_there: !there.is_empty(),
            is_hidden: hidden.iter().any(|reading| reading.hidden.is_some()),
            is_namespace_there,
        };
        *last = Some(Last {
            maker: ledger.maker,
            owner: owner.clone(),
            around,
        });
        Ok(around)
    }
}
