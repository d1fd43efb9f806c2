//! What the bookie keeps in `current/` as far as a restart depends on it: `lastMark` of a ledger
//! directory, names and lengths of the files of a journal. Reads sixteen bytes and a listing.
//!
//! What is there and makes no sense is a fact: the bookie passes over such a mark too. So is what is
//! refused to us, or is no regular file: what the bookie makes of it is not known. Only what says
//! that the disk does not work is a failure.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};

use crate::health::dir::Role;
use crate::health::observation::{BookieFiles, Failure, Finding, JournalFile, Mark, Operation};

use super::place::{errno_of, failure, format_of};

/// The folder in which the bookie really writes.
const CURRENT: &str = "current";

/// `lastMark`: two numbers of eight bytes, big endian (BookKeeper's `LogMark`).
const MARK_BYTES: usize = 16;

/// A bookie has a journal for each fast device; nobody has so many.
const MAX_JOURNALS: u32 = 64;

/// Newest journal files that are told one by one. Each may be 2 GiB, the bookie keeps five beyond
/// what it needs; a thousand are 14 KiB in the pipe.
const MAX_FILES: usize = 1000;

/// Names that are read of one journal directory: as many as of the directory itself for leftovers.
const MAX_ENTRIES: usize = 100_000;

/// The bookie's files of a directory of that role, in which a cookie was seen.
pub(super) fn read(
    place: BorrowedFd<'_>,
    role: Option<Role>,
    path: &Path,
) -> Result<BookieFiles, Failure> {
    let mut files = BookieFiles::default();
    match role {
        Some(Role::Ledger) => marks(place, path, &mut files)?,
        Some(Role::Journal) => journals(place, path, MAX_ENTRIES, &mut files)?,
        Some(Role::Index) | None => {}
    }
    Ok(files)
}

/// The bookie writes `lastMark` when it has one journal, else `lastMark.0` and so on. Files of an
/// earlier number of journals stay behind, so all are told.
fn marks(place: BorrowedFd<'_>, path: &Path, files: &mut BookieFiles) -> Result<(), Failure> {
    let numbered = (0..MAX_JOURNALS).map(Some);
    for journal in std::iter::once(None).chain(numbered) {
        let name = match journal {
            None => format!("{CURRENT}/lastMark"),
            Some(number) => format!("{CURRENT}/lastMark.{number}"),
        };
        match mark_bytes(place, &name) {
            Ok(bytes) => match mark(journal, &bytes) {
                Some(mark) => files.marks.push(mark),
                None => files.nonsense = Some(format!("{name} is no mark")),
            },
            Err(Errno::ENOENT) if journal.is_none() => {}
            Err(Errno::ENOENT) => break,
            Err(errno) => files.refused = Some(fact(errno, &path.join(name))?),
        }
    }
    Ok(())
}

/// At most one byte more than a mark has.
fn mark_bytes(place: BorrowedFd<'_>, name: &str) -> Result<Vec<u8>, Errno> {
    // Not blocking, because a pipe of that name would be waited for.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(openat(place, name, flags, Mode::empty())?);
    let mut bytes = Vec::with_capacity(MARK_BYTES + 1);
    let read = file.take(MARK_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| errno_of(&error))?;
    Ok(bytes)
}

/// BookKeeper reads the first sixteen bytes and does not mind more. Its numbers have a sign; it
/// never writes one that is negative.
fn mark(journal: Option<u32>, bytes: &[u8]) -> Option<Mark> {
    let number = |bytes: &[u8]| -> Option<u64> {
        u64::try_from(i64::from_be_bytes(bytes.try_into().ok()?)).ok()
    };
    Some(Mark {
        journal,
        file: number(bytes.get(..8)?)?,
        offset: number(bytes.get(8..MARK_BYTES)?)?,
    })
}

/// A journal without its `current` is none that is empty: the cookie was there a moment ago, behind
/// a symbolic link perhaps, which is not followed here.
fn journals(
    place: BorrowedFd<'_>,
    path: &Path,
    most: usize,
    files: &mut BookieFiles,
) -> Result<(), Failure> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let current = path.join(CURRENT);
    let mut listing = match Dir::openat(place, CURRENT, flags, Mode::empty()) {
        Ok(listing) => listing,
        Err(errno) => {
            files.refused = Some(fact(errno, &current)?);
            return Ok(());
        }
    };
    let mut newest = BTreeSet::new();
    for (count, entry) in listing.iter().enumerate() {
        if count == most {
            files.refused = Some(format!("{CURRENT} has more than {most} names"));
            break;
        }
        let entry = entry.map_err(|errno| failure(Operation::BookieFiles, errno, &current))?;
        let Some(id) = entry.file_name().to_str().ok().and_then(journal_id) else {
            continue;
        };
        newest.insert(id);
        if MAX_FILES < newest.len() {
            newest.pop_first();
            files.left_out += 1;
        }
    }
    for id in newest {
        let name = format!("{id:x}.txn");
        match fstatat(&listing, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) if format_of(&stat) == SFlag::S_IFREG => {
                let bytes = u64::try_from(stat.st_size).unwrap_or_default();
                files.journals.push(JournalFile { id, bytes });
            }
            Ok(_) => files.refused = Some(format!("{CURRENT}/{name} is no regular file")),
            // The bookie removes the old ones while we look.
            Err(Errno::ENOENT) => {}
            Err(errno) => files.refused = Some(fact(errno, &current.join(name))?),
        }
    }
    Ok(())
}

/// The number in a journal file's name, as BookKeeper writes it: hexadecimal without zeros before
/// it, with `.txn`.
fn journal_id(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".txn")?;
    let id = u64::from_str_radix(digits, 16).ok()?;
    (i64::try_from(id).is_ok() && format!("{id:x}") == digits).then_some(id)
}

/// An error that says something about the file only, in words; any other one is a failure.
fn fact(errno: Errno, path: &Path) -> Result<String, Failure> {
    let found = failure(Operation::BookieFiles, errno, path);
    let of_the_file = [
        Errno::EACCES,
        Errno::EPERM,
        Errno::ELOOP,
        Errno::EISDIR,
        Errno::ENXIO,
        Errno::ENODEV,
        Errno::EAGAIN,
        Errno::ENOENT,
        Errno::ENOTDIR,
    ];
    match found.finding {
        Finding::Errno if of_the_file.contains(&errno) => Ok(found.detail),
        _ => Err(found),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use nix::unistd::mkfifo;
    use proptest::prelude::*;

    use super::*;

    /// Written by BookKeeper 4.17.3's `LogMark.writeLogMark` for file 1796000523456, offset 1073741312.
    /// A bookie's own file has the same form: `000001a22b63862b 000000000053dc00`, with `1a22b63862b.txn`
    /// beside it in the journal.
    const GOLDEN: [u8; MARK_BYTES] = [
        0x00, 0x00, 0x01, 0xa2, 0x29, 0xf9, 0x24, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x3f, 0xff, 0xfe,
        0x00,
    ];

    fn found(dir: &Path, role: Role) -> Result<BookieFiles, Failure> {
        let place = File::open(dir).unwrap();
        read(place.as_fd(), Some(role), dir)
    }

    #[test]
    fn the_real_bytes_are_understood() {
        let mark = mark(None, &GOLDEN).unwrap();
        assert_eq!((mark.file, mark.offset), (1_796_000_523_456, 1_073_741_312));
    }

    #[test]
    fn marks_of_one_journal_and_of_several_are_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(found(dir.path(), Role::Ledger), Ok(BookieFiles::default()));
        let current = dir.path().join(CURRENT);
        fs::create_dir(&current).unwrap();
        fs::write(current.join("lastMark"), GOLDEN).unwrap();
        fs::write(current.join("lastMark.0"), [0; MARK_BYTES]).unwrap();
        fs::write(
            current.join("lastMark.1"),
            [&GOLDEN[..], &[7; 9000]].concat(),
        )
        .unwrap();
        fs::write(current.join("lastMark.3"), GOLDEN).unwrap();
        let files = found(dir.path(), Role::Ledger).unwrap();
        let marks: Vec<_> = files
            .marks
            .iter()
            .map(|mark| (mark.journal, mark.file))
            .collect();
        let file = 1_796_000_523_456;
        assert_eq!(marks, [(None, file), (Some(0), 0), (Some(1), file)]);
        assert_eq!((files.nonsense, files.refused), (None, None));
        assert_eq!(found(dir.path(), Role::Index), Ok(BookieFiles::default()));
    }

    #[test]
    fn what_makes_no_sense_or_is_refused_is_a_fact_and_blocks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let current = dir.path().join(CURRENT);
        fs::create_dir(&current).unwrap();
        let name = current.join("lastMark");
        let facts = || {
            let files = found(dir.path(), Role::Ledger).unwrap();
            assert_eq!(files.marks, []);
            (files.nonsense, files.refused.unwrap_or_default())
        };
        let nonsense = (
            Some("current/lastMark is no mark".to_owned()),
            String::new(),
        );
        for bytes in [&[][..], &GOLDEN[..15], &[0xff; 16]] {
            fs::write(&name, bytes).unwrap();
            assert_eq!(facts(), nonsense);
        }
        fs::remove_file(&name).unwrap();
        symlink("/etc/passwd", &name).unwrap();
        let (none, refused) = facts();
        assert!(none.is_none() && refused.contains("symbolic link"));
        fs::remove_file(&name).unwrap();
        fs::create_dir(&name).unwrap();
        let (none, refused) = facts();
        assert!(none.is_none() && refused.contains("directory"), "{refused}");
        fs::remove_dir(&name).unwrap();
        mkfifo(&name, Mode::S_IRUSR).unwrap();
        assert_eq!(facts(), nonsense);
    }

    /// Each of these once looked like a journal without the file that a mark names.
    #[test]
    fn a_listing_that_is_not_whole_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let current = dir.path().join(CURRENT);
        let refused = || {
            let files = found(dir.path(), Role::Journal).unwrap();
            files.refused.unwrap_or_default()
        };
        assert!(refused().contains("No such file"), "{}", refused());
        fs::write(&current, "").unwrap();
        assert!(refused().contains("Not a directory"), "{}", refused());
        fs::remove_file(&current).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("1.txn"), "").unwrap();
        symlink(&elsewhere, &current).unwrap();
        assert!(refused().contains("irectory"), "a link: {}", refused());
        fs::remove_file(&current).unwrap();
        fs::rename(&elsewhere, &current).unwrap();
        assert_eq!(refused(), "");
        symlink("1.txn", current.join("2.txn")).unwrap();
        assert_eq!(refused(), "current/2.txn is no regular file");
        fs::remove_file(current.join("2.txn")).unwrap();

        // `.`, `..` and the file.
        for (most, whole) in [(3, true), (2, false)] {
            let mut files = BookieFiles::default();
            let place = File::open(dir.path()).unwrap();
            journals(place.as_fd(), dir.path(), most, &mut files).unwrap();
            assert_eq!(files.refused.is_none(), whole, "{files:?}");
        }
    }

    #[test]
    fn what_is_refused_is_no_failure_of_the_disk() {
        let path = Path::new("/j/current");
        for errno in [Errno::EACCES, Errno::EPERM, Errno::ELOOP, Errno::ENOTDIR] {
            let text = fact(errno, path).unwrap();
            assert!(text.contains("/j/current"), "{text}");
        }
        for errno in [Errno::EIO, Errno::ESTALE, Errno::ENOTCONN] {
            assert!(fact(errno, path).is_err(), "{errno}");
        }
    }

    #[test]
    fn the_newest_journal_files_are_told_by_rising_number() {
        let dir = tempfile::tempdir().unwrap();
        let current = dir.path().join(CURRENT);
        fs::create_dir(&current).unwrap();
        for name in [
            "VERSION",
            "x.txn",
            "0a.txn",
            "-1.txn",
            "ffffffffffffffff.txn",
            "b.txn.old",
        ] {
            fs::write(current.join(name), "x").unwrap();
        }
        fs::create_dir(current.join("ffff.txn")).unwrap();
        for id in 1..=MAX_FILES + 2 {
            fs::write(current.join(format!("{id:x}.txn")), vec![0; id % 7]).unwrap();
        }
        let files = found(dir.path(), Role::Journal).unwrap();
        // The folder counts among the newest until it is looked at.
        assert_eq!((files.journals.len(), files.left_out), (MAX_FILES - 1, 3));
        let folder = files.refused.unwrap_or_default();
        assert_eq!(folder, "current/ffff.txn is no regular file");
        assert_eq!(files.journals[0], JournalFile { id: 4, bytes: 4 });
        assert!(files.journals.is_sorted_by_key(|file| file.id));
    }

    proptest! {
        #[test]
        fn no_bytes_and_no_name_make_a_parser_panic(bytes: Vec<u8>, name: String, id in 0..=i64::MAX) {
            prop_assert_eq!(mark(None, &bytes).is_some(), 16 <= bytes.len() && bytes[0] < 128 && bytes[8] < 128);
            let _ = journal_id(&name);
            prop_assert_eq!(journal_id(&format!("{id:x}.txn")), u64::try_from(id).ok());
        }
    }
}
