//! A watched directory as the configuration describes it: path, role, thresholds, probe limits.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a bookie uses a directory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Entry logs (`ledgerDirectories`).
    Ledger,
    /// Write-ahead journal (`journalDirectories`).
    Journal,
    /// Ledger index (`indexDirectories`).
    Index,
}

impl Role {
    /// All roles, in the order in which they are shown.
    pub const ALL: [Role; 3] = [Role::Ledger, Role::Journal, Role::Index];

    /// The word used in configuration, JSON and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Role::Ledger => "ledger",
            Role::Journal => "journal",
            Role::Index => "index",
        }
    }

    /// The role of that name, if there is one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A path as text: bytes that are not UTF-8 are written `\xNN`. Where the name itself has `\x` and two
/// hexadecimal digits, its backslash is written `\x5c`, so that no two paths have the same text.
#[must_use]
pub fn path_text(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find("\\x") {
            let (before, after) = rest.split_at(at);
            let digits = after.as_bytes().get(2..4);
            let looks_escaped = digits.is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
            text.push_str(before);
            text.push_str(if looks_escaped { "\\x5c" } else { "\\" });
            rest = &after[1..];
        }
        text.push_str(rest);
        escape(chunk.invalid(), &mut text);
    }
    text
}

/// A path within a sentence for people: its text, made [`printable`].
#[must_use]
pub fn shown(path: &Path) -> String {
    printable(&path_text(path))
}

/// Text for one line that people read, on a terminal, in a log or on the page: what [`steers`] is
/// written `\xNN`, byte by byte, so that the texts of two paths still differ.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if steers(character) {
            escape(character.encode_utf8(&mut [0; 4]).as_bytes(), &mut shown);
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The character would end the line, steer the terminal, or turn the direction of all that follows:
/// with one in a name, an output could say what nobody wrote.
#[must_use]
pub fn steers(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02x}"));
    }
}

/// Identifies a watched directory within one run of the agent. Stays the same through reloads for
/// as long as path and role stay the same; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirId(pub u32);

/// One watched directory with all its settings, already validated by `config`.
#[derive(Debug, Clone, PartialEq)]
pub struct Dir {
    /// Absolute path as configured.
    pub path: PathBuf,
    /// What the bookie uses it for.
    pub role: Role,
    /// When it counts as almost full, full, and writable again.
    pub thresholds: Thresholds,
    /// How it is probed and when an operation is overdue.
    pub probe: ProbePolicy,
    /// The path must be a mount point of its own.
    pub require_mount: bool,
    /// It may be on the root file system: somebody said that no mount is required.
    pub root_ok: bool,
    /// No probe file is written before `current/VERSION` exists: `initbookie` refuses directories
    /// that are not empty. True when a bookie is configured.
    pub await_cookie: bool,
    /// Bytes to hold back in a ballast file; 0: none.
    pub ballast: u64,
}

/// Space limits of one directory. Percent and bytes both apply; the stricter one counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Usage ratio above which the directory is almost full.
    pub warn: f64,
    /// Usage ratio above which it is full.
    pub full: f64,
    /// Usage ratio below which a full directory may be written again.
    pub low_watermark: f64,
    /// Almost full when fewer bytes than this are available; 0 turns the rule off.
    pub warn_available: u64,
    /// Full when fewer bytes than this are available; 0 turns the rule off.
    pub full_available: u64,
    /// Ratio of used inodes above which the directory is almost full.
    pub inodes_warn: f64,
    /// Ratio of used inodes above which it is full.
    pub inodes_full: f64,
    /// Bytes that must be available for recovery (high-priority) writes to a full directory.
    pub high_priority_reserve: u64,
    /// How long a condition must be over before the directory counts as recovered.
    pub dwell: Duration,
}

impl Default for Thresholds {
    /// The defaults of the configuration file (`config::keys`).
    fn default() -> Self {
        Thresholds {
            warn: 0.90,
            full: 0.95,
            low_watermark: 0.90,
            warn_available: 0,
            full_available: 0,
            inodes_warn: 0.90,
            inodes_full: 0.95,
            high_priority_reserve: 1 << 30,
            dwell: Duration::from_secs(30),
        }
    }
}

/// How often a directory is looked at and how long an operation may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbePolicy {
    /// Time between two active probes.
    pub interval: Duration,
    /// Time between two looks at the space, when nothing fills fast.
    pub space_interval: Duration,
    /// Overrides the deadline that follows from the medium.
    pub deadline: Option<Duration>,
    /// A sync on a rotating disk that takes longer than this is slow; a third of it on solid state.
    pub slow: Duration,
}

impl Default for ProbePolicy {
    fn default() -> Self {
        ProbePolicy {
            interval: Duration::from_secs(10),
            space_interval: Duration::from_secs(1),
            deadline: None,
            slow: Duration::from_millis(250),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_keep_their_text_and_show_other_bytes() {
        let text = |bytes: &[u8]| path_text(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(text("/mnt/l 1/ü".as_bytes()), "/mnt/l 1/ü");
        assert_eq!(text(b"/mnt/\xff\xc3"), "/mnt/\\xff\\xc3");
        assert_eq!(text(b"/a\\xff\\x\\\xff"), r"/a\x5cxff\x\\xff");
    }

    #[test]
    fn nothing_in_a_printable_text_steers() {
        assert_eq!(
            printable("a\nb\x1b[2J\u{9b}ü\u{202e}"),
            r"a\x0ab\x1b[2J\xc2\x9bü\xe2\x80\xae"
        );
    }

    proptest! {
        /// Names of what is near an escape, and of any bytes.
        #[test]
        fn two_paths_have_two_texts_printable_or_not(
            one in odd_name(),
            other in odd_name(),
        ) {
            let text = |bytes: &[u8]| path_text(Path::new(OsStr::from_bytes(bytes)));
            let (first, second) = (text(&one), text(&other));
            prop_assert_eq!(first == second, one == other);
            let (first, second) = (printable(&first), printable(&second));
            prop_assert_eq!(first == second, one == other);
            prop_assert!(!first.chars().any(steers), "{:?}", first);
            prop_assert_eq!(printable(&first), first.clone());
        }
    }

    fn odd_name() -> impl Strategy<Value = Vec<u8>> {
        let pieces: [&[u8]; 12] = [
            b"\\", b"\\x", b"0a", b"\n", b"ff", b"\xff", b"5c", b"x", b"\xc2", b"\x9b", b"F",
            b"\\xff",
        ];
        let piece = prop::sample::select(pieces.to_vec());
        let near = prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat());
        prop_oneof![near, prop::collection::vec(any::<u8>(), 0..6)]
    }
}
