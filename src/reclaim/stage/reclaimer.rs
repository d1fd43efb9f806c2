//! One who scans, marks and sweeps such a cluster, and the eyes on each of its calls: nothing but ledgers and their
//! empty folders may be touched, and no ledger deleted that anybody needs, or without a mark that could bring it back.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::hooked::{Call, Fate, Hook, Hooked};
use super::{ROOTS, World, now, soon};
use crate::clock::Clock;
use crate::cluster::ledger::Layout;
use crate::cluster::store::{MetaStore, Op, Stat};
use crate::reclaim::acting::{Acting, LastScan};
use crate::reclaim::failpoint::Failpoints;
use crate::reclaim::history::Ruling;
use crate::reclaim::inside::Entries;
use crate::reclaim::mark::{MarkOptions, Marked, mark_deletable};
use crate::reclaim::plan::LedgerId;
use crate::reclaim::plan::class::{Class, Rules};
use crate::reclaim::scan::{Ledgers, Options, Progress, Pulsar, Sources, scan_with};
use crate::reclaim::state::State;
use crate::reclaim::state::marks::Phase;
use crate::reclaim::sweep::{SweepOptions, Swept, remove_deletable};

pub(in crate::reclaim) struct Reclaimer {
    pub(in crate::reclaim) state: Arc<State>,
    pub(in crate::reclaim) last: LastScan,
    pub(in crate::reclaim) ledgers: Ledgers,
    pub(in crate::reclaim) pulsars: Vec<Pulsar>,
    pub(in crate::reclaim) clock: Clock,
    pub(in crate::reclaim) sweep: SweepOptions,
    pub(in crate::reclaim) entries: Option<Arc<dyn Entries>>,
}

/// A pace that waits for nobody, and no end before all is done.
pub(in crate::reclaim) const FAST: SweepOptions = SweepOptions {
    execute: true,
    max_deletes: Some(u64::MAX),
    per_second: u32::MAX,
    allow_unchecked: false,
    allow_vanished: false,
    allow_missing: None,
    sample: 3,
    part: None,
};

impl Reclaimer {
    /// Of the first so many Pulsar clusters.
    pub(in crate::reclaim) fn new(
        store: Arc<dyn MetaStore>,
        clock: Clock,
        state: Arc<State>,
        clusters: usize,
    ) -> Reclaimer {
        let pulsar = |root: &&str| Pulsar {
            name: format!("pulsar{root}"),
            store: Arc::clone(&store),
            root: (*root).to_owned(),
        };
        Reclaimer {
            state,
            last: LastScan::default(),
            pulsars: ROOTS[..clusters].iter().map(pulsar).collect(),
            ledgers: Ledgers {
                store,
                root: "/ledgers".to_owned(),
            },
            clock,
            sweep: FAST,
            entries: None,
        }
    }

    /// Scans; says whether it lived to see the end. One that did not has learnt nothing.
    pub(in crate::reclaim) fn scan(&mut self) -> bool {
        let progress = watch::Sender::new(Progress::default());
        let options = Options {
            all_clusters: self.pulsars.len() == ROOTS.len(),
            ..Options::default()
        };
        let sources = Sources {
            ledgers: &self.ledgers,
            pulsars: &self.pulsars,
            entries: self.entries.as_deref(),
        };
        let scan = scan_with(&self.state, sources, &options, &self.clock, &progress);
        if !matches!(soon(scan), Some(Ok(_))) {
            return false;
        }
        self.last = LastScan::read(&self.state).unwrap();
        true
    }

    pub(in crate::reclaim) fn with<T>(
        &self,
        failpoints: &Failpoints,
        work: impl AsyncFnOnce(&Acting<'_>) -> T,
    ) -> Option<T> {
        let acting = Acting {
            state: &self.state,
            ledgers: &self.ledgers,
            pulsars: &self.pulsars,
            clock: &self.clock,
            rules: &Rules::default(),
            is_leader: &|| true,
            entries: self.entries.as_deref(),
            failpoints,
        };
        now(work(&acting))
    }

    /// Marks whatever may be marked, agreed to by somebody.
    pub(in crate::reclaim) fn mark(&self, failpoints: &Failpoints) -> Option<Marked> {
        let options = MarkOptions {
            classes: Class::ALL.into(),
            confirmed: self.last.suspects.keys().copied().collect(),
            part: None,
            allow_vanished: false,
            execute: true,
        };
        self.with(failpoints, async |acting| {
            mark_deletable(acting, &self.last, &options).await
        })
    }

    pub(in crate::reclaim) fn sweep(&self, failpoints: &Failpoints) -> Option<Swept> {
        self.with(failpoints, async |acting| {
            remove_deletable(acting, &self.last, &self.sweep).await
        })
    }

    /// What the last scan found deletable.
    pub(in crate::reclaim) fn deletable(&self) -> BTreeSet<LedgerId> {
        let all = self.last.suspects.iter();
        all.filter(|(_, candidate)| candidate.ruling == Ruling::Deletable)
            .map(|(id, _)| *id)
            .collect()
    }
}

/// What happens around a call, beside being looked at.
pub(in crate::reclaim) type Around = Box<dyn FnMut(&mut World, &Call<'_>) -> Fate + Send>;

/// What goes on beside it.
pub(in crate::reclaim) type Meanwhile = Box<dyn FnMut() + Send>;

/// Looks at every call of a reclaimer.
pub(in crate::reclaim) struct Eyes {
    world: Arc<Mutex<World>>,
    state: Arc<State>,
    around: Mutex<Around>,
    meanwhile: Mutex<Meanwhile>,
    node: Mutex<Option<(Vec<u8>, Stat)>>,
}

/// The ledger of a transaction that deletes one.
pub(in crate::reclaim) fn deleted_by(ops: &[Op]) -> Option<LedgerId> {
    let Some(Op::Delete { path, .. }) = ops.last() else {
        return None;
    };
    Layout::Hierarchical.id(path.strip_prefix("/ledgers/")?)
}

impl Eyes {
    pub(in crate::reclaim) fn on(
        world: &Arc<Mutex<World>>,
        state: &Arc<State>,
        around: Around,
        meanwhile: Meanwhile,
    ) -> Arc<dyn MetaStore> {
        let store = world.lock().unwrap().store.clone();
        Arc::new(Hooked {
            store,
            hook: Eyes {
                world: Arc::clone(world),
                state: Arc::clone(state),
                around: Mutex::new(around),
                meanwhile: Mutex::new(meanwhile),
                node: Mutex::new(None),
            },
        })
    }
}

impl Hook for Eyes {
    fn before(&self, call: &Call<'_>) -> Fate {
        (self.meanwhile.lock().unwrap())();
        let mut world = self.world.lock().unwrap();
        let fate = (self.around.lock().unwrap())(&mut world, call);
        match call {
            Call::Read(_) => {}
            Call::Write(path) => {
                // An undo makes sure of the root too.
                let folder = path.strip_prefix("/ledgers").unwrap_or("LAYOUT");
                let folder = folder.trim_start_matches('/');
                let is_ours = Layout::Hierarchical.is_above(folder)
                    || Layout::Hierarchical.id(folder).is_some();
                assert!(is_ours, "{path} was written");
            }
            Call::Multi(ops) => {
                let (last, checks) = ops.split_last().unwrap();
                let is_check = |op: &Op| matches!(op, Op::Check { .. });
                assert!(checks.iter().all(is_check), "{ops:?}");
                if let Op::Delete { path, .. } = last {
                    let node = now(world.store.get(path)).unwrap().ok();
                    *self.node.lock().unwrap() = node;
                } else {
                    assert!(is_check(last), "{ops:?}");
                }
            }
        }
        fate
    }

    fn applied(&self, ops: &[Op]) {
        let Some(id) = deleted_by(ops) else { return };
        let user = self.world.lock().unwrap().user(id);
        assert_eq!(
            user,
            None,
            "ledger {id} was deleted: {:?}",
            self.state.mark(id)
        );
        let mark = self.state.mark(id).unwrap().expect("it has a mark");
        assert_eq!(mark.phase, Phase::Deleting);
        let (bytes, stat) = self.node.lock().unwrap().take().expect("it was there");
        let node = (mark.node.bytes, mark.node.created, mark.node.version);
        assert_eq!(node, (bytes, stat.created, stat.version));
    }
}
