//! Facts about all directories together: how they stand, whether any or all are full, how many
//! bytes there are when each file system is counted once (W16: BookKeeper counts bind mounts
//! twice).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::dir::{Role, path_text};
use super::event::{EventKind, NodeSummary};
use super::observation::{Device, Space};
use super::policy::{self, Mode, Policy};
use super::status::{AccessStatus, SpaceStatus};

/// What the node's facts are made of: one directory.
#[derive(Debug, Clone, Copy)]
pub struct DirFacts<'a> {
    /// Path as configured.
    pub path: &'a Path,
    /// Role.
    pub role: Role,
    /// Space axis.
    pub space: SpaceStatus,
    /// Access axis.
    pub access: AccessStatus,
    /// Has room for recovery writes.
    pub room: bool,
    /// It is a journal and has less than it needs next.
    pub emergency: bool,
}

/// An edge of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    /// Which event it is.
    pub kind: EventKind,
    /// The role it is about; none when it is about all.
    pub role: Option<Role>,
    /// Old and new value, for events that have them.
    pub change: Option<(&'static str, &'static str)>,
    /// Why, in words.
    pub message: String,
}

/// The node's state between two evaluations. Everything but the edges can be recomputed.
#[derive(Debug, Clone, Default)]
pub struct Node {
    any_full: bool,
    all_full: BTreeSet<Role>,
    in_trouble: bool,
    wanted: Option<Mode>,
    wanted_reason: Option<String>,
    high_priority_writes: bool,
    journal_emergency: bool,
}

impl Node {
    /// The mode the disks allow; none until enough is known.
    #[must_use]
    pub fn wanted(&self) -> Option<Mode> {
        self.wanted
    }

    /// Why it is not writable.
    #[must_use]
    pub fn wanted_reason(&self) -> Option<&str> {
        self.wanted_reason.as_deref()
    }

    /// Recovery writes are possible.
    #[must_use]
    pub fn high_priority_writes(&self) -> bool {
        self.high_priority_writes
    }

    /// A journal has less than it needs next: read-only may then go below the cluster's floor.
    #[must_use]
    pub fn journal_emergency(&self) -> bool {
        self.journal_emergency
    }

    /// Recomputes everything from how the directories stand now, and returns the edges in the
    /// order in which they are told.
    pub fn update(&mut self, dirs: &[DirFacts<'_>], policy: Policy) -> Vec<NodeChange> {
        let mut changes = Vec::new();
        self.high_priority_writes = policy::high_priority_writes(dirs);
        self.journal_emergency = policy.journal_emergency && dirs.iter().any(|dir| dir.emergency);
        self.update_full(dirs, &mut changes);
        self.update_trouble(dirs, &mut changes);
        self.update_wanted(dirs, policy, &mut changes);
        changes
    }

    fn update_full(&mut self, dirs: &[DirFacts<'_>], changes: &mut Vec<NodeChange>) {
        let first_full = dirs.iter().find(|dir| dir.space == SpaceStatus::Full);
        if let (Some(dir), false) = (first_full, self.any_full) {
            let message = format!("{} is the first full directory", path_text(dir.path));
            changes.push(fact(EventKind::AnyDiskFull, None, message));
        }
        // A directory whose space became unknown may still be full: no edge without knowledge.
        let may_be_full =
            |dir: &DirFacts<'_>| matches!(dir.space, SpaceStatus::Full | SpaceStatus::Unknown);
        self.any_full = first_full.is_some() || (self.any_full && dirs.iter().any(may_be_full));
        for role in Role::ALL {
            let of_role: Vec<_> = dirs.iter().filter(|dir| dir.role == role).collect();
            let none_writable = !of_role.is_empty() && of_role.iter().all(|dir| is_bad(dir));
            let some_writable = of_role.iter().any(|dir| is_good(dir)) || of_role.is_empty();
            if none_writable && self.all_full.insert(role) {
                let message = format!("no {} directory is left that can be written", role.name());
                changes.push(fact(EventKind::AllDisksFull, Some(role), message));
            } else if some_writable {
                self.all_full.remove(&role);
            }
        }
    }

    fn update_trouble(&mut self, dirs: &[DirFacts<'_>], changes: &mut Vec<NodeChange>) {
        if dirs.iter().any(is_bad) {
            self.in_trouble = true;
        } else if self.in_trouble && dirs.iter().all(is_good) {
            self.in_trouble = false;
            let message = "no directory is full or unusable any more".to_owned();
            changes.push(fact(EventKind::AllDisksWritable, None, message));
        }
    }

    fn update_wanted(
        &mut self,
        dirs: &[DirFacts<'_>],
        policy: Policy,
        changes: &mut Vec<NodeChange>,
    ) {
        // Not enough known to say: what was wanted stays wanted.
        let Some((wanted, reason)) = policy::wanted_mode(dirs, policy) else {
            return;
        };
        let before = self.wanted.replace(wanted);
        self.wanted_reason.clone_from(&reason);
        // A node that starts writable is no news.
        if before == Some(wanted) || (before.is_none() && wanted == Mode::Writable) {
            return;
        }
        changes.push(NodeChange {
            kind: EventKind::ModeWanted,
            role: None,
            change: Some((before.map_or("unknown", Mode::name), wanted.name())),
            message: reason.unwrap_or_else(|| "every directory can be written".to_owned()),
        });
    }

    /// How the directories stand, for hooks.
    #[must_use]
    pub fn summary(&self, dirs: &[DirFacts<'_>]) -> NodeSummary {
        let mut summary = NodeSummary {
            wanted_mode: self.wanted,
            high_priority_writes: self.high_priority_writes,
            ..NodeSummary::default()
        };
        for dir in dirs {
            let list: &mut Vec<PathBuf> = match (dir.access, dir.space) {
                (access, _) if access.is_unusable() => &mut summary.unusable,
                (_, SpaceStatus::Full) => &mut summary.full,
                (AccessStatus::Ok, SpaceStatus::AlmostFull) => &mut summary.almost_full,
                (AccessStatus::Ok, SpaceStatus::Ok) => &mut summary.writable,
                _ => continue,
            };
            list.push(dir.path.to_owned());
        }
        summary
    }
}

fn is_bad(dir: &DirFacts<'_>) -> bool {
    dir.access.is_unusable() || dir.space == SpaceStatus::Full
}

fn is_good(dir: &DirFacts<'_>) -> bool {
    dir.access == AccessStatus::Ok && matches!(dir.space, SpaceStatus::Ok | SpaceStatus::AlmostFull)
}

fn fact(kind: EventKind, role: Option<Role>, message: String) -> NodeChange {
    NodeChange {
        kind,
        role,
        change: None,
        message,
    }
}

/// Bytes and inodes of the file systems of each role, each file system counted once. Directories
/// whose device is not known are counted by themselves.
pub fn totals<'a>(
    dirs: impl Iterator<Item = (Role, Option<Device>, &'a Space)>,
) -> BTreeMap<Role, Space> {
    let mut counted = BTreeSet::new();
    let mut totals: BTreeMap<Role, Space> = BTreeMap::new();
    for (role, device, space) in dirs {
        if device.is_some_and(|device| !counted.insert((role, device))) {
            continue;
        }
        let total = totals.entry(role).or_default();
        total.size = total.size.saturating_add(space.size);
        total.available = total.available.saturating_add(space.available);
        total.inodes = total.inodes.saturating_add(space.inodes);
        total.inodes_free = total.inodes_free.saturating_add(space.inodes_free);
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter a directory: `.` ok, `w` almost full, `F` full, `x` failed, `?` unknown, `!` short of
    /// what a journal needs next; ledger
    /// directories before the `|`, journal directories after it.
    fn run(steps: &[&str], any_full: bool) -> Vec<String> {
        let mut node = Node::default();
        let policy = Policy {
            any_full,
            journal_emergency: true,
            ..Policy::default()
        };
        let mut lines = Vec::new();
        for step in steps {
            let mut role = Role::Ledger;
            let mut dirs = Vec::new();
            for letter in step.chars() {
                let (space, access) = match letter {
                    '|' => {
                        role = Role::Journal;
                        continue;
                    }
                    '.' | '!' => (SpaceStatus::Ok, AccessStatus::Ok),
                    'w' => (SpaceStatus::AlmostFull, AccessStatus::Ok),
                    'F' => (SpaceStatus::Full, AccessStatus::Ok),
                    'x' => (SpaceStatus::Ok, AccessStatus::Failed),
                    _ => (SpaceStatus::Unknown, AccessStatus::Unknown),
                };
                dirs.push(DirFacts {
                    path: Path::new("/d"),
                    role,
                    space,
                    access,
                    room: space != SpaceStatus::Full,
                    emergency: letter == '!',
                });
            }
            let changes = node.update(&dirs, policy);
            let names: Vec<_> = changes.iter().map(|change| change.kind.name()).collect();
            let wanted = node.wanted().map_or("?", Mode::name);
            lines.push(
                format!("{step}: {wanted} {}", names.join(" "))
                    .trim_end()
                    .to_owned(),
            );
        }
        lines
    }

    #[test]
    fn any_full_mode_is_decided_by_levels_and_told_by_edges() {
        assert_eq!(
            run(&["??|?", "..|.", "F.|.", "FF|.", "F.|.", "..|."], true),
            [
                "??|?: ?",
                "..|.: writable",
                "F.|.: readOnly anyDiskFull modeWanted",
                "FF|.: readOnly allDisksFull",
                "F.|.: readOnly",
                "..|.: writable allDisksWritable modeWanted",
            ]
        );
    }

    #[test]
    fn without_any_full_mode_only_a_whole_role_counts_the_journal_included() {
        assert_eq!(
            run(&["..|.", "F.|.", "F.|F", "F.|w"], false),
            [
                "..|.: writable",
                "F.|.: writable anyDiskFull",
                "F.|F: readOnly allDisksFull modeWanted",
                "F.|w: writable modeWanted",
            ]
        );
    }

    #[test]
    fn a_journal_short_of_bytes_asks_for_read_only_in_either_mode() {
        for any_full in [true, false] {
            assert_eq!(
                run(&["..|.", "..|!", "..|."], any_full),
                [
                    "..|.: writable",
                    "..|!: readOnly modeWanted",
                    "..|.: writable modeWanted",
                ]
            );
        }
    }

    #[test]
    fn full_at_the_first_look_is_told_and_unknown_changes_nothing() {
        assert_eq!(
            run(&["F?", "F.", "?.", "..", "x.", "?.", ".."], true),
            [
                "F?: readOnly anyDiskFull modeWanted",
                "F.: readOnly",
                "?.: readOnly",
                "..: writable allDisksWritable modeWanted",
                "x.: readOnly modeWanted",
                "?.: readOnly",
                "..: writable allDisksWritable modeWanted",
            ]
        );
    }

    #[test]
    fn a_file_system_is_counted_once_for_each_role() {
        let device = Some(Device { major: 8, minor: 1 });
        let space = Space {
            size: 100,
            available: 40,
            ..Space::default()
        };
        let dirs = [
            (Role::Ledger, device, &space),
            (Role::Ledger, device, &space),
            (Role::Index, device, &space),
            (Role::Ledger, None, &space),
        ];
        let totals = totals(dirs.into_iter());
        assert_eq!(totals[&Role::Ledger].size, 200);
        assert_eq!(totals[&Role::Index].size, 100);
    }
}
