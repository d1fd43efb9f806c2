//! A directory as the control thread knows it: what the agent said of it, where it is, and the look
//! that is under way.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::health::ballast::Order;
use crate::health::dir::{DirId, Role, path_text};
use crate::health::observation::{Device, Mount};
use crate::probe::wire::{KernelSource, Kind, Place, device_of};

use super::super::errors::Counter;
use super::super::kernel::FsId;
use super::super::lane::LaneKey;
use super::super::look::{Guard, KnownUuid, Task};
use super::super::stack::Stack;
use super::held::Held;
use super::pulse::Unmoved;

/// A directory as the control thread knows it.
pub(super) struct Watched {
    pub(super) path: PathBuf,
    pub(super) settings: Settings,
    pub(super) pinned: Option<PathBuf>,
    /// As it was last reported.
    pub(super) mount: Option<Mount>,
    pub(super) uuid: Option<KnownUuid>,
    /// The devices under it.
    pub(super) stack: Arc<Stack>,
    /// Whether the counters of its devices know of our probes.
    pub(super) unmoved: Unmoved,
    /// Where its file system counts errors.
    pub(super) counter: Option<Counter>,
    /// The id of its file system, once errors of that are watched.
    pub(super) fsid: Option<FsId>,
    /// What the kernel tells by itself; with the reason where it does not.
    pub(super) sources: BTreeMap<KernelSource, Option<String>>,
    /// The lowest device of the stack that is stalled, as the agent was told.
    pub(super) stalled: Option<Device>,
    /// The last look had the read-only flag.
    pub(super) read_only: bool,
    pub(super) look: Option<Outstanding>,
    /// What that look found, while it waits for the mount table.
    pub(super) held: Option<Held>,
    /// Writing was refused, the table did not say why, and nothing was written since.
    pub(super) unexplained: bool,
}

/// What the agent says of a directory once.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    /// Which of the bookie's files are in it.
    pub(super) role: Option<Role>,
    pub(super) await_cookie: bool,
    pub(super) require_mount: bool,
}

/// What the agent asks in a look.
#[derive(Clone, Copy)]
pub(super) struct Question {
    pub(super) kind: Kind,
    pub(super) expected: Option<Place>,
    pub(super) ballast: Order,
}

/// A look that the agent waits for.
#[derive(Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) token: u64,
    pub(super) asked: Question,
    pub(super) lane: LaneKey,
}

impl Watched {
    pub(super) fn new(path: PathBuf, settings: Settings, pinned: Option<PathBuf>) -> Watched {
        Watched {
            path,
            settings,
            pinned,
            mount: None,
            uuid: None,
            stack: Arc::default(),
            unmoved: Unmoved::default(),
            counter: None,
            fsid: None,
            sources: BTreeMap::new(),
            stalled: None,
            read_only: false,
            look: None,
            held: None,
            unexplained: false,
        }
    }

    /// A source works for it or, with a reason, does not; true when that is news.
    pub(super) fn source(&mut self, source: KernelSource, refused: Option<String>) -> bool {
        self.sources.get(&source) != Some(&refused) && {
            self.sources.insert(source, refused);
            true
        }
    }

    pub(super) fn lane(&self, dir: DirId) -> LaneKey {
        match (&self.pinned, &self.mount) {
            (Some(_), Some(mount)) => LaneKey::FileSystem(mount.device),
            _ => LaneKey::Unresolved(dir),
        }
    }

    pub(super) fn task(&self, asked: Question) -> Task {
        let mount = self.mount.as_ref();
        let is_mount_point = mount.is_some_and(|mount| Some(&mount.point) == self.pinned.as_ref());
        Task {
            path: self.path.clone(),
            pinned: self.pinned.clone(),
            kind: asked.kind,
            role: self.settings.role,
            ballast: asked.ballast,
            await_cookie: self.settings.await_cookie,
            guard: Guard {
                expected: asked
                    .expected
                    .map(|place| (device_of(place.device), place.mount_id)),
                mount_id: mount.map(|mount| mount.id),
                mount_missing: self.settings.require_mount && !is_mount_point,
            },
            uuid: self.uuid.clone(),
            source: mount.map(|mount| mount.source.clone()),
            fs_type: mount.map(|mount| mount.fs_type.clone()),
        }
    }
}

pub(super) fn what_changed(before: &Mount, now: &Mount) -> String {
    if before.id != now.id || before.device != now.device || before.point != now.point {
        format!(
            "{} ({}) is mounted at {} instead of {} at {}",
            now.source,
            now.fs_type,
            path_text(&now.point),
            before.source,
            path_text(&before.point)
        )
    } else {
        format!("mount options became {}", now.options)
    }
}
