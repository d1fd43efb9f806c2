//! For tests: input that is nearly right, made from input that is, and pieces in which it arrives.

use proptest::prelude::*;
use proptest::sample::Index;

/// What parsers have a meaning for, and numbers at their limits.
const SPECIALS: [&[u8]; 24] = [
    b"",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"\0",
    b"\\",
    b"\\u",
    b"\\04",
    b"\"",
    b"'",
    b"=",
    b":",
    b"-",
    b",",
    b"[",
    b"{}",
    b"\xff",
    b"\xc3",
    "é".as_bytes(),
    b"0",
    b"-1",
    b"18446744073709551616",
    b"1e999",
];

#[derive(Debug, Clone)]
enum Edit {
    Set(Index, u8),
    Put(Index, &'static [u8]),
    Remove(Index, usize),
    /// Once more, somewhere else.
    Copy(Index, usize, Index),
    Cut(Index),
}

/// These bytes after one to four small edits.
pub(crate) fn edited(valid: impl Into<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let valid = valid.into();
    let edit = prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        4 => (any::<Index>(), prop::sample::select(SPECIALS.to_vec()))
            .prop_map(|(at, what)| Edit::Put(at, what)),
        2 => (any::<Index>(), 1..20_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        2 => (any::<Index>(), 1..60_usize, any::<Index>())
            .prop_map(|(from, length, to)| Edit::Copy(from, length, to)),
        1 => any::<Index>().prop_map(Edit::Cut),
    ];
    prop::collection::vec(edit, 1..5).prop_map(move |edits| {
        edits
            .iter()
            .fold(valid.clone(), |bytes, edit| edit.apply(bytes))
    })
}

impl Edit {
    fn apply(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        // One more than there are bytes: also at the end.
        let places = bytes.len() + 1;
        match self {
            Edit::Set(at, byte) => {
                if let Some(old) = bytes.get_mut(at.index(places)) {
                    *old = *byte;
                }
            }
            Edit::Put(at, what) => {
                let at = at.index(places);
                bytes.splice(at..at, what.iter().copied());
            }
            Edit::Remove(at, length) => {
                let at = at.index(places);
                bytes.drain(at..(at + length).min(places - 1));
            }
            Edit::Copy(from, length, to) => {
                let (from, to) = (from.index(places), to.index(places));
                let part = bytes[from..(from + length).min(places - 1)].to_vec();
                bytes.splice(to..to, part);
            }
            Edit::Cut(at) => bytes.truncate(at.index(places)),
        }
        bytes
    }
}

/// Lengths of pieces in which bytes arrive.
pub(crate) fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1..50_usize, 1..8)
}

/// The bytes in pieces of these lengths, over and over.
pub(crate) fn pieces<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut lengths = lengths.iter().cycle();
    while !bytes.is_empty() {
        let length = lengths.next().map_or(1, |length| *length).min(bytes.len());
        let (piece, rest) = bytes.split_at(length);
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}
