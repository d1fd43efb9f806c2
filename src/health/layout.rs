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
    pub(super) medium: Medium,
    pub(super) space: Option<Space>,
    /// Usage over which it is full.
    pub(super) full: f64,
}

/// What should be otherwise; each text begins with its key word.
pub(super) fn advice(dirs: &[Placed<'_>], needs: Option<&BookieNeeds>) -> Vec<String> {
    let journals = || dirs.iter().filter(|dir| dir.role == Role::Journal);
    let shared = journals().filter_map(|journal| shares(journal, dirs));
    let rotating = journals()
        .filter(|journal| journal.medium == Medium::Rotating)
        .map(|journal| {
            let path = path_text(journal.path);
            format!(
                "journalOnRotational: the journal {path} is on a rotating disk, and each write waits \
                 for it: give it a solid-state one"
            )
        });
    let too_large = journals().filter_map(|journal| does_not_fit(journal, dirs, needs?));
    shared.chain(rotating).chain(too_large).collect()
}

/// Named once for each journal, however many directories it shares its file system with.
fn shares(journal: &Placed<'_>, dirs: &[Placed<'_>]) -> Option<String> {
    let device = journal.device?;
    let mut others = dirs
        .iter()
        .filter(|dir| dir.role != Role::Journal && dir.device == Some(device));
    let first = others.next()?;
    let more = match others.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "rolesShareDevice: the journal {} is on the file system of the {} directory {}{more}: each \
         slows the other down, and both are full together",
        path_text(journal.path),
        first.role.name(),
        path_text(first.path),
    ))
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
            "journalDoesNotFit: the files that the bookie may keep in {} ((journalMaxBackups + 1) × \
             journalMaxSizeMB) are up to {}, and {} are below full: make them fewer or smaller, or \
             the file system larger",
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
