//! What a scan makes of Pulsar clusters that it did not read and an earlier one did, or the other way round. Nothing follows
//! for what was not looked at, and nothing is forgotten: it is laid aside. What an owner was seen to let go stays so
//! whoever looked away meanwhile; what was absent is counted anew when more is read than before.

use super::history::{References, Suspect};
use super::judge::{CHUNK, Judge};
use super::plan::LedgerId;
use super::plan::evidence::{Known, Witness};
use super::scan::{Ledger, OwnerKey, PulsarId, ScanError, is_gone, number};
use super::state::aside::{AsideKey, AsideWitness};
use super::state::history::Outcome;

type Seen = Option<(OwnerKey, Witness)>;

impl Judge<'_> {
    /// A cluster is read that the last scan did not read: what nobody named then, somebody there may have named.
    pub(super) fn is_wider(&self) -> bool {
        let is_new = |now: &PulsarId| !self.known.read.iter().any(|one| one.is(now));
        self.clusters.iter().any(is_new)
    }

    /// Owners by the numbers that their clusters have now. Those of clusters that are not read are laid aside.
    pub(super) fn renumbered(
        &self,
        known: Vec<(OwnerKey, Known)>,
        outcome: &mut Outcome,
    ) -> Result<Vec<(OwnerKey, Known)>, ScanError> {
        let is_wider = self.is_wider();
        let mut read = Vec::with_capacity(known.len());
        for (mut key, mut known) in known {
            let Some(cluster) = self.known.read.get(usize::from(key.cluster)) else {
                continue;
            };
            if let Some(number) = number(cluster, self.clusters) {
                key.cluster = number;
                known.absence = known.absence.filter(|_| !is_wider);
                read.push((key, known));
            } else if !is_gone(cluster, self.gone) {
                let key = AsideKey {
                    cluster: cluster.key.clone(),
                    path: key.path,
                    created: key.created,
                };
                self.lay_aside(key, known, outcome)?;
            }
        }
        Ok(read)
    }

    /// Nobody knows since when one is absent that was not looked for.
    fn lay_aside(
        &self,
        key: AsideKey,
        mut known: Known,
        outcome: &mut Outcome,
    ) -> Result<(), ScanError> {
        known.absence = None;
        // A ledger that is made again is not the one that it named.
        let same = self.state.are_the_same(&known.seen.ledgers)?;
        let mut same = same.into_iter();
        known.seen.ledgers.retain(|_| same.next().unwrap_or(false));
        if !known.seen.ledgers.is_empty() {
            outcome.aside.push((key, known));
        }
        Ok(())
    }

    /// Owners that were laid aside, of clusters that are read again.
    pub(super) async fn owners_aside(&mut self, references: &References) -> Result<(), ScanError> {
        let mut after = None;
        loop {
            let aside = self.state.aside_after(after.as_ref(), CHUNK)?;
            let Some((last, _)) = aside.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            let mut outcome = Outcome::default();
            let mut back = Vec::new();
            for (key, known) in aside {
                match self.aside(&key.cluster) {
                    Aside::Back(number) => back.push((key.numbered(number), known)),
                    Aside::Still => self.lay_aside(key, known, &mut outcome)?,
                    Aside::Gone => {}
                }
            }
            self.compared(back, references, &mut outcome)?;
            self.state.prepare(&outcome)?;
            tokio::task::yield_now().await;
        }
    }

    /// What is remembered of a ledger that nobody names, and how this scan or an earlier one saw it let go.
    pub(super) fn remembered(
        &self,
        ledger: &Ledger,
        (known, witness): (Option<Suspect>, Seen),
        aside: Option<AsideWitness>,
        outcome: &mut Outcome,
    ) -> (Option<Suspect>, Seen) {
        let known = known.map(|known| self.renumbered_suspect(ledger.id, known, outcome));
        let mut known = known.map(|known| match self.is_wider() {
            true => known.anew(self.span()),
            false => known,
        });
        let Some(aside) = aside.filter(|aside| aside.ledger == ledger.created) else {
            return (known, witness);
        };
        match self.aside(&aside.owner.cluster) {
            Aside::Back(number) => {
                let seen = (aside.owner.numbered(number), aside.how);
                if let Some(known) = &mut known {
                    known.witness.get_or_insert(seen.clone());
                }
                (known, witness.or(Some(seen)))
            }
            Aside::Still => {
                outcome.witnesses_aside.push((ledger.id, aside));
                (known, witness)
            }
            Aside::Gone => (known, witness),
        }
    }

    fn renumbered_suspect(
        &self,
        id: LedgerId,
        mut suspect: Suspect,
        outcome: &mut Outcome,
    ) -> Suspect {
        let Some((mut key, how)) = suspect.witness.take() else {
            return suspect;
        };
        let Some(cluster) = self.known.read.get(usize::from(key.cluster)) else {
            return suspect;
        };
        if let Some(number) = number(cluster, self.clusters) {
            key.cluster = number;
            suspect.witness = Some((key, how));
        } else if matches!(how, Witness::Trimmed { .. }) && !is_gone(cluster, self.gone) {
            let owner = AsideKey {
                cluster: cluster.key.clone(),
                path: key.path,
                created: key.created,
            };
            let witness = AsideWitness {
                ledger: suspect.created,
                owner,
                how,
            };
            outcome.witnesses_aside.push((id, witness));
        }
        suspect
    }

    fn aside(&self, key: &str) -> Aside {
        let Some(cluster) = self.known.left_out.iter().find(|one| one.key == key) else {
            return Aside::Gone;
        };
        match number(cluster, self.clusters) {
            Some(number) => Aside::Back(number),
            None if is_gone(cluster, self.gone) => Aside::Gone,
            None => Aside::Still,
        }
    }
}

/// What became of a cluster that was left out.
enum Aside {
    Back(u16),
    Still,
    Gone,
}
