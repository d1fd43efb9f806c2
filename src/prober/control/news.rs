//! What the kernel says by itself about the directories: where they are mounted, what is below, and
//! which errors their file systems had.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use crate::health::dir::DirId;
use crate::probe::wire::{Answer, KernelSource};

use super::super::errors::{Counted, Counter};
use super::super::kernel::FsId;
use super::super::lane::LaneKey;
use super::super::pressure;
use super::super::stack::Stack;
use super::Control;
use super::pulse::Unmoved;
use super::watched::what_changed;

/// What is under a mount; with the reason where that cannot be said.
#[derive(Clone)]
pub(super) struct Below {
    stack: Result<Arc<Stack>, String>,
    counter: Result<Counter, String>,
    no_pressure: Option<String>,
}

impl Control {
    /// Reports the new mount of each directory whose mount changed. A look that is under way on
    /// the file system that was there before may never end: it is made again where the directory
    /// is now.
    pub(super) fn mounts_changed(&mut self) -> io::Result<()> {
        let ids: Vec<DirId> = self.dirs.keys().copied().collect();
        for dir in ids {
            self.report_mount(dir)?;
            let Some(watched) = self.dirs.get(&dir) else {
                continue;
            };
            if let Some(look) = watched.look
                && let (LaneKey::FileSystem(_), now) = (look.lane, watched.lane(dir))
                && look.lane != now
            {
                self.hand_out(dir, look.asked)?;
            }
            self.release_if_explained(dir)?;
        }
        self.drop_idle_lanes();
        Ok(())
    }

    /// Where the kernel does not say which file system it was, it may have been each.
    pub(super) fn file_system_errors(&mut self, of: &BTreeSet<Option<FsId>>) -> io::Result<()> {
        let dirs = self.dirs.iter().filter(|(_, each)| each.fsid.is_some());
        let dirs = dirs.filter(|(_, each)| of.contains(&None) || of.contains(&each.fsid));
        let dirs: Vec<DirId> = dirs.map(|(dir, _)| *dir).collect();
        let what = match of.contains(&None) {
            true => "the kernel reports an error of this or another watched file system",
            false => "the kernel reports an error of the file system",
        };
        dirs.into_iter().try_for_each(|dir| self.erred(dir, what))
    }

    fn erred(&mut self, dir: DirId, what: &str) -> io::Result<()> {
        self.say(&Answer::FileSystemError {
            dir: dir.0,
            what: what.to_owned(),
        })
    }

    /// Says what the mount table has for a directory, if that is news; a change is a reason for
    /// the agent to look at once.
    pub(super) fn report_mount(&mut self, dir: DirId) -> io::Result<()> {
        let Some((table, watched)) = self.table.as_ref().zip(self.dirs.get_mut(&dir)) else {
            return Ok(());
        };
        let path = watched.pinned.as_ref().unwrap_or(&watched.path);
        let Some(entry) = table.covering(path) else {
            return Ok(());
        };
        // Asked before the facts about the device are, which cost more: other mounts than ours
        // may come and go all the time.
        if watched.mount.as_ref().is_some_and(|mount| entry.is(mount)) {
            return Ok(());
        }
        let mount = entry.to_mount(self.tools.facts.medium(entry));
        let before = watched.mount.replace(mount.clone());
        self.say(&Answer::Mounted {
            dir: dir.0,
            mount: (&mount).into(),
        })?;
        if let Some(before) = before {
            self.signal(dir, &what_changed(&before, &mount))?;
        }
        self.look_below(dir)
    }

    /// Finds the devices under a directory and where its file system counts errors, once for each
    /// mount, however many directories are on it.
    fn look_below(&mut self, dir: DirId) -> io::Result<()> {
        let Some((table, watched)) = self.table.as_ref().zip(self.dirs.get_mut(&dir)) else {
            return Ok(());
        };
        let path = watched.pinned.as_ref().unwrap_or(&watched.path);
        let Some(entry) = table.covering(path) else {
            return Ok(());
        };
        let facts = &self.tools.facts;
        let below = self.below.entry(entry.id).or_insert_with(|| Below {
            stack: facts.stack(entry, table).map(Arc::new),
            counter: facts.counter(entry),
            no_pressure: pressure::read().err(),
        });
        let Below { stack, counter, .. } = below.clone();
        watched.source(KernelSource::Diskstats, stack.as_ref().err().cloned());
        watched.source(KernelSource::SysfsErrors, counter.as_ref().err().cloned());
        watched.source(KernelSource::Psi, below.no_pressure.clone());
        watched.stack = stack.unwrap_or_default();
        for key in [LaneKey::Unresolved(dir), watched.lane(dir)] {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.stack = Arc::clone(&watched.stack);
            }
        }
        watched.unmoved = Unmoved::default();
        watched.counter = counter.ok();
        let known = watched.counter.as_ref();
        let recorded = known
            .and_then(|counter| self.recorded.get(counter))
            .cloned();
        let was_stalled = watched.stalled.take().is_some();
        self.say_sources(dir)?;
        if was_stalled {
            self.say(&Answer::Stalled {
                dir: dir.0,
                what: None,
            })?;
        }
        if recorded.is_some() {
            self.say(&Answer::Recorded {
                dir: dir.0,
                what: recorded,
            })?;
        }
        self.below_changed = true;
        Ok(())
    }

    /// Follows what is under the directories, and nothing else.
    pub(super) fn follow(&mut self) {
        let stacks = self.dirs.values().map(|each| each.stack.as_ref());
        self.pulse.follow(stacks);
        let mut counters: Vec<Counter> = self
            .dirs
            .values()
            .filter_map(|each| each.counter.clone())
            .collect();
        counters.sort();
        counters.dedup();
        self.recorded
            .retain(|counter, _| counters.contains(counter));
        self.kernel.count(counters);
    }

    pub(super) fn say_sources(&mut self, dir: DirId) -> io::Result<()> {
        let Some(watched) = self.dirs.get(&dir) else {
            return Ok(());
        };
        let sources = watched.sources.clone().into_iter().collect();
        let disks = watched.stack.disks.iter();
        let disks = disks.map(|disk| (disk.major, disk.minor)).collect();
        self.say(&Answer::Sources {
            dir: dir.0,
            sources,
            disks,
        })
    }

    /// File systems counted errors: old ones are a fact, new ones a reason to look at once.
    pub(super) fn counted(&mut self, news: Vec<Counted>) -> io::Result<()> {
        for news in news {
            let Counted {
                counter,
                text,
                newest,
            } = news;
            let dirs = self.dirs.iter();
            let dirs = dirs.filter(|(_, each)| each.counter.as_ref() == Some(&counter));
            let dirs: Vec<DirId> = dirs.map(|(dir, _)| *dir).collect();
            for dir in dirs {
                let what = text.clone();
                self.say(&Answer::Recorded { dir: dir.0, what })?;
                if let Some(newest) = &newest {
                    self.erred(dir, newest)?;
                }
            }
            match text {
                Some(text) => drop(self.recorded.insert(counter, text)),
                None => drop(self.recorded.remove(&counter)),
            }
        }
        Ok(())
    }
}
