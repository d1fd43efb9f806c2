//! Advice about where directories are: what costs speed or makes one full disk take the others
//! along. Known only at run time, told as problems, never as a status. Pure.

use std::path::Path;

use super::dir::{Role, path_text};
use super::observation::{Device, Medium, Space};
use super::restart::BookieNeeds;
use super::words::bytes_text;

/// Where a directory is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) path: &'a Path,
    pub(super) role: Role,
    pub(super) device: Option<Device>,
    /// The whole disks under it, as far as known.
    pub(super) disks: &'a [Device],
    pub(super) medium: Medium,
    pub(super) space: Option<Space>,
    /// Usage over which it is full.
    pub(super) full: f64,
}

/// What should be otherwise; each text begins with its key word.
pub(super) fn advice(dirs: &[Placed<'_>], needs: Option<&BookieNeeds>) -> Vec<String> {
    let journals = || dirs.iter().filter(|dir| dir.role == Role::Journal);
    let shared = dirs.iter().filter_map(|dir| match dir.role {
        Role::Journal => shares(dir, dirs, &[Role::Ledger, Role::Index]),
        // Where they are one directory on purpose it is watched as a ledger directory alone.
        Role::Index => shares(dir, dirs, &[Role::Ledger]),
        Role::Ledger => None,
    });
    let rotating = journals()
        .filter(|journal| journal.medium == Medium::Rotating)
        .map(|journal| {
            let path = path_text(journal.path);
            format!(
                "journalOnRotational: the journal {path} is on a rotating disk, and each write waits \
                 for it: give it a solid-state one"
            )
        });
    let too_large = needs
        .map(|needs| too_large(dirs, needs))
        .unwrap_or_default();
    let too_large = too_large.into_iter().map(|text| {
        format!("journalDoesNotFit: {text}: make them fewer or smaller, or the file system larger")
    });
    shared.chain(rotating).chain(too_large).collect()
}

/// Journals that the bookie may let grow beyond what is below full, a sentence for each file system.
pub(super) fn too_large(dirs: &[Placed<'_>], needs: &BookieNeeds) -> Vec<String> {
    let journals = dirs.iter().filter(|dir| dir.role == Role::Journal);
    journals
        .filter_map(|journal| does_not_fit(journal, dirs, needs))
        .collect()
}

/// Said once for each directory, however many others of these roles it shares with: of a file system
/// first, else of a disk, which two partitions of it are on.
fn shares(dir: &Placed<'_>, dirs: &[Placed<'_>], roles: &[Role]) -> Option<String> {
    let with = |near: fn(&Placed<'_>, &Placed<'_>) -> bool| -> Vec<&Placed<'_>> {
        let others = dirs.iter().filter(|other| roles.contains(&other.role));
        others.filter(|other| near(dir, other)).collect()
    };
    let (file_system, disk) = (with(on_one_file_system), with(on_one_disk));
    let (what, others, also) = if file_system.is_empty() {
        ("a disk", disk, "")
    } else {
        (
            "the file system",
            file_system,
            ", and both are full together",
        )
    };
    let (first, more) = others.split_first()?;
    let more = match more.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let name = match dir.role {
        Role::Journal => "journal",
        _ => "index directory",
    };
    Some(format!(
        "rolesShareDevice: the {name} {} is on {what} of the {} directory {}{more}: each slows the \
         other down{also}",
        path_text(dir.path),
        first.role.name(),
        path_text(first.path),
    ))
}

fn on_one_file_system(one: &Placed<'_>, other: &Placed<'_>) -> bool {
    one.device.is_some() && one.device == other.device
}

fn on_one_disk(one: &Placed<'_>, other: &Placed<'_>) -> bool {
    one.disks.iter().any(|disk| other.disks.contains(disk))
}

/// All files that the bookie may keep of the journals of one file system have to fit below full.
/// Said of the first of them.
fn does_not_fit(journal: &Placed<'_>, dirs: &[Placed<'_>], needs: &BookieNeeds) -> Option<String> {
    let together = |other: &&Placed<'_>| {
        let same_device = journal.device.is_some() && other.device == journal.device;
        other.role == Role::Journal && (same_device || other.path == journal.path)
    };
    let mut group = dirs.iter().filter(together);
    if group.next()?.path != journal.path {
        return None;
    }
    let journals = 1 + group.count() as u64;
    let needed = needs.journal_bytes.saturating_mul(journals);
    let size = journal.space?.size;
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    let below_full = (size as f64 * journal.full) as u64;
    (below_full < needed).then(|| {
        format!(
            "the files that the bookie may keep in {} ((journalMaxBackups + 1) × journalMaxSizeMB) \
             are up to {}, and {} are below full",
            path_text(journal.path),
            bytes_text(needed),
            bytes_text(below_full),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(path: &'static str, role: Role, minor: u32, medium: Medium) -> Placed<'static> {
        Placed {
            path: Path::new(path),
            role,
            device: Some(Device { major: 8, minor }),
            disks: &[],
            medium,
            space: Some(Space {
                size: 20 << 30,
                ..Space::default()
            }),
            full: 0.95,
        }
    }

    fn words(dirs: &[Placed<'_>], needs: Option<&BookieNeeds>) -> Vec<String> {
        let word = |text: &String| text.split(':').next().map(str::to_owned);
        advice(dirs, needs).iter().filter_map(word).collect()
    }

    #[test]
    fn a_journal_that_shares_its_file_system_is_named_once() {
        let dirs = [
            placed("/j", Role::Journal, 1, Medium::SolidState),
            placed("/l1", Role::Ledger, 1, Medium::SolidState),
            placed("/l2", Role::Ledger, 1, Medium::SolidState),
            placed("/i", Role::Index, 2, Medium::Rotating),
        ];
        let expected = "rolesShareDevice: the journal /j is on the file system of the ledger \
                        directory /l1 and 1 more: each slows the other down, and both are full \
                        together";
        assert_eq!(advice(&dirs, None), [expected]);
        assert_eq!(words(&dirs[1..], None), [""; 0]);
        let index = placed("/i", Role::Index, 1, Medium::SolidState);
        assert_eq!(words(&[dirs[0], index], None), ["rolesShareDevice"]);
    }

    #[test]
    fn an_index_of_its_own_wants_another_file_system_than_the_ledgers() {
        let dirs = [
            placed("/l1", Role::Ledger, 1, Medium::SolidState),
            placed("/i", Role::Index, 1, Medium::SolidState),
            placed("/i2", Role::Index, 2, Medium::SolidState),
        ];
        let expected = "rolesShareDevice: the index directory /i is on the file system of the \
                        ledger directory /l1: each slows the other down, and both are full together";
        assert_eq!(advice(&dirs, None), [expected]);
    }

    #[test]
    fn two_partitions_of_a_disk_are_named_too() {
        let disks = [16, 0].map(|minor| Device { major: 8, minor });
        let on = |path, role, minor, disks| Placed {
            disks,
            ..placed(path, role, minor, Medium::SolidState)
        };
        let dirs = [
            on("/j", Role::Journal, 1, &disks[1..]),
            on("/l1", Role::Ledger, 2, &disks),
            on("/l2", Role::Ledger, 3, &disks[..1]),
        ];
        let expected = "rolesShareDevice: the journal /j is on a disk of the ledger directory /l1: \
                        each slows the other down";
        assert_eq!(advice(&dirs, None), [expected]);
    }

    #[test]
    fn what_is_not_known_is_no_advice() {
        let nowhere = |path, role| Placed {
            device: None,
            space: None,
            ..placed(path, role, 0, Medium::Unknown)
        };
        let dirs = [nowhere("/j", Role::Journal), nowhere("/l", Role::Ledger)];
        assert_eq!(words(&dirs, Some(&needs(u64::MAX))), [""; 0]);
    }

    #[test]
    fn a_journal_wants_a_fast_disk() {
        let dirs = [
            placed("/j", Role::Journal, 1, Medium::Rotating),
            placed("/l", Role::Ledger, 2, Medium::Rotating),
        ];
        assert_eq!(words(&dirs, None), ["journalOnRotational"]);
    }

    fn needs(journal_bytes: u64) -> BookieNeeds {
        BookieNeeds {
            entry_log_reserve: 0,
            index_file_reserve: 0,
            read_only_mode: true,
            warn: 0.9,
            full: 0.95,
            writes_at_once: false,
            entry_log_bytes: 0,
            journal_file_bytes: 0,
            journal_bytes,
            journal_step: 0,
        }
    }

    #[test]
    fn all_journals_of_a_file_system_have_to_fit_below_full() {
        let journals = [
            placed("/j/1", Role::Journal, 1, Medium::SolidState),
            placed("/j/2", Role::Journal, 1, Medium::SolidState),
        ];
        let fits = needs(9 << 30);
        assert_eq!(words(&journals, Some(&fits)), [""; 0]);
        let too_large = needs(10 << 30);
        assert_eq!(words(&journals[..1], Some(&too_large)), [""; 0]);
        assert_eq!(words(&journals, Some(&too_large)), ["journalDoesNotFit"]);
    }
}
