//! The textfile of metrics on its way to the writer: the newest one only, in pieces, and what became
//! of the one before. Pure.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::wire::{TEXT_PIECE, TextPart};
use crate::health::dir::shown;
use crate::health::moment::Elapsed;

/// An answer that takes longer than this has a reason that somebody should know: the writer answers
/// a write to any living disk in less.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Text {
    /// Where the newest one goes.
    directory: Option<PathBuf>,
    unsent: VecDeque<TextPart>,
    /// Since when an answer is missing.
    asked: Option<Elapsed>,
    failure: Option<String>,
}

impl Text {
    /// A new text takes the place of what was not sent.
    pub(super) fn put(&mut self, directory: &Path, text: &str, now: Elapsed) {
        self.directory = Some(directory.to_owned());
        self.unsent.clear();
        self.unsent.push_back(TextPart::Begin);
        let pieces = text.as_bytes().chunks(TEXT_PIECE);
        let pieces = pieces.map(|piece| TextPart::Piece(piece.into()));
        self.unsent.extend(pieces);
        let directory = directory.as_os_str().as_bytes().into();
        self.unsent.push_back(TextPart::Put { directory });
        self.asked.get_or_insert(now);
    }

    /// There is to be none any more.
    pub(super) fn remove(&mut self, now: Elapsed) {
        self.unsent.clear();
        self.unsent.push_back(TextPart::Remove);
        self.asked.get_or_insert(now);
    }

    pub(super) fn next(&mut self) -> Option<TextPart> {
        self.unsent.pop_front()
    }

    /// The writer that was told a part of it is gone; the next text is whole.
    pub(super) fn forget(&mut self) {
        self.unsent.clear();
    }

    pub(super) fn answered(&mut self, result: Result<(), String>) {
        self.asked = None;
        self.failure = result.err();
    }

    /// What is wrong with it, in words.
    pub(super) fn problem(&self, now: Elapsed) -> Option<String> {
        let directory = shown(self.directory.as_ref()?);
        if let Some(asked) = self.asked
            && asked + PATIENCE < now
        {
            let seconds = now.saturating_sub(asked).as_secs();
            return Some(format!(
                "the textfile directory {directory} has not answered for {seconds} s"
            ));
        }
        let failure = self.failure.as_ref()?;
        Some(format!(
            "the textfile in {directory} cannot be written: {failure}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Elapsed {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_newest_text_is_sent_whole() {
        let mut text = Text::default();
        text.put(Path::new("/t"), "old", seconds(1));
        assert_eq!(text.next(), Some(TextPart::Begin));
        let long = "x".repeat(TEXT_PIECE + 1);
        text.put(Path::new("/t"), &long, seconds(2));
        let parts: Vec<TextPart> = std::iter::from_fn(|| text.next()).collect();
        let directory = b"/t".as_slice().into();
        let expected = [
            TextPart::Begin,
            TextPart::Piece(vec![b'x'; TEXT_PIECE].into()),
            TextPart::Piece(b"x".as_slice().into()),
            TextPart::Put { directory },
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn silence_and_refusals_are_said_until_they_are_over() {
        let mut text = Text::default();
        assert_eq!(text.problem(seconds(9)), None);
        text.put(Path::new("/t"), "", seconds(1));
        assert_eq!(text.problem(seconds(6)), None);
        text.put(Path::new("/t"), "", seconds(16));
        let problem = text.problem(seconds(17)).unwrap();
        assert_eq!(
            problem,
            "the textfile directory /t has not answered for 16 s"
        );
        text.answered(Err("no space".to_owned()));
        let problem = text.problem(seconds(18)).unwrap();
        assert_eq!(problem, "the textfile in /t cannot be written: no space");
        text.answered(Ok(()));
        assert_eq!(text.problem(seconds(99)), None);
    }
}
