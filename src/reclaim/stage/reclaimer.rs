//! One who scans, marks and sweeps such a cluster, and the eyes on each of its calls: nothing but ledgers and their
//! empty folders may be touched, and no ledger deleted that anybody needs, or without a mark that could bring it back.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::hooked::{Call, Fate, Hook, Hooked};
use super::tally::Kind;
use super::{ROOTS, World, now, soon};
use crate::clock::Clock;
use crate::cluster::ledger::Layout;
use crate::cluster::memory::MemorySession;
use crate::cluster::store::{MetaStore, Op, Stat};
use crate::reclaim::acting::{Acting, LastScan};
use crate::reclaim::failpoint::Failpoints;
use crate::reclaim::history::Ruling;
use crate::reclaim::inside::Entries;
use crate::reclaim::mark::{MarkOptions, Marked, mark_deletable};
use crate::reclaim::plan::class::{Class, Rules};
use crate::reclaim::plan::{LedgerId, Millis};
use crate::reclaim::preflight::preflight;
use crate::reclaim::scan::{Ledgers, Options, Progress, Pulsar, Shows, Sources, scan_with};
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
        Reclaimer::of([Arc::clone(&store), store], clock, state, clusters)
    }

    /// Of clusters that may be in different stores.
    pub(in crate::reclaim) fn of(
        stores: [Arc<dyn MetaStore>; 2],
        clock: Clock,
        state: Arc<State>,
        clusters: usize,
    ) -> Reclaimer {
        let pulsar = |(root, store): (&&str, &Arc<dyn MetaStore>)| Pulsar {
            name: format!("pulsar{root}"),
            store: Arc::clone(store),
            root: (*root).to_owned(),
        };
        let pulsars = ROOTS[..clusters].iter().zip(&stores).map(pulsar).collect();
        let [store, _] = stores;
        Reclaimer {
            state,
            last: LastScan::default(),
            pulsars,
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
        let (ledgers, pulsars) = (self.ledgers.clone(), self.pulsars.clone());
        self.scan_of(&ledgers, &pulsars, None)
    }

    /// Scans a file that shows the store as it was then.
    pub(in crate::reclaim) fn scan_file(&mut self, file: Arc<dyn MetaStore>, of: Millis) -> bool {
        let ledgers = Ledgers {
            store: Arc::clone(&file),
            ..self.ledgers.clone()
        };
        let pulsars = self.pulsars.iter().map(|pulsar| Pulsar {
            store: Arc::clone(&file),
            ..pulsar.clone()
        });
        self.scan_of(&ledgers, &pulsars.collect::<Vec<_>>(), Some(of))
    }

    fn scan_of(
        &mut self,
        ledgers: &Ledgers,
        pulsars: &[Pulsar],
        snapshot_of: Option<Millis>,
    ) -> bool {
        let progress = watch::Sender::new(Progress::default());
        let options = Options {
            all_clusters: self.pulsars.len() == ROOTS.len(),
            snapshot_of: snapshot_of.map(Shows::at),
            ..Options::default()
        };
        let sources = Sources {
            ledgers,
            pulsars,
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

    /// Whether our clock is right, and all is as it was; none if it died.
    pub(in crate::reclaim) fn is_ready(&self) -> Option<bool> {
        let ready = preflight(&self.state, &self.ledgers, "/dirkeeper", &self.clock);
        now(ready).map(|ready| ready.is_ok())
    }

    /// Marks whatever may be marked, agreed to by somebody.
    pub(in crate::reclaim) fn mark(&self, failpoints: &Failpoints) -> Option<Marked> {
        let options = MarkOptions {
            classes: Class::ALL.into(),
            confirmed: self.last.suspects.keys().copied().collect(),
            part: None,
            allow_vanished: self.sweep.allow_vanished,
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
    around: Arc<Mutex<Around>>,
    meanwhile: Arc<Mutex<Meanwhile>>,
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
        let [store, _] = Eyes::on_both(world, state, around, meanwhile);
        store
    }

    /// On the store of each cluster, which may be the same.
    pub(in crate::reclaim) fn on_both(
        world: &Arc<Mutex<World>>,
        state: &Arc<State>,
        around: Around,
        meanwhile: Meanwhile,
    ) -> [Arc<dyn MetaStore>; 2] {
        let (around, meanwhile) = (
            Arc::new(Mutex::new(around)),
            Arc::new(Mutex::new(meanwhile)),
        );
        let on = |store: &Arc<MemorySession>| -> Arc<dyn MetaStore> {
            Arc::new(Hooked {
                store: Arc::<MemorySession>::clone(store),
                hook: Eyes {
                    world: Arc::clone(world),
                    state: Arc::clone(state),
                    around: Arc::clone(&around),
                    meanwhile: Arc::clone(&meanwhile),
                    node: Mutex::new(None),
                },
            })
        };
        let world = world.lock().unwrap();
        let store = on(&world.store);
        let other = match world.is_apart() {
            true => on(&world.other),
            false => Arc::clone(&store),
        };
        [store, other]
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
                let is_ours = is_ours || path.starts_with("/dirkeeper");
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
        let mut world = self.world.lock().unwrap();
        let user = world.user(id);
        assert_eq!(
            user,
            None,
            "ledger {id} was deleted: {:?}",
            self.state.mark(id)
        );
        let mark = self.state.mark(id).unwrap().expect("it has a mark");
        assert_eq!(mark.phase, Phase::Deleting);
        world.tally.add(Kind::Deleted(mark.class), 1);
        if world.open.contains_key(&id) {
            world.tally.add(Kind::OpenDeleted, 1);
        }
        drop(world);
        let (bytes, stat) = self.node.lock().unwrap().take().expect("it was there");
        let node = (mark.node.bytes, mark.node.created, mark.node.version);
        assert_eq!(node, (bytes, stat.created, stat.version));
    }
}
