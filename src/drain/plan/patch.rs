//! New names of bookies in the bytes of a ledger's metadata. Everything else stays as it is, byte for byte: what a later
//! BookKeeper added and we do not know is not lost, and no two writers of the same thing write it differently.

mod locate;

use std::ops::Range;

use thiserror::Error;

use crate::cluster::check_bookie;
use crate::cluster::ledger::{LedgerMetadata, MetadataError};

/// Why no new metadata is made. Nothing is to be written then.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatchError {
    /// The bytes.
    #[error("the metadata is not understood")]
    Metadata(#[from] MetadataError),
    /// Another ensemble.
    #[error("no segment begins at entry {first}")]
    NoSegment {
        /// The entry.
        first: u64,
    },
    /// Another bookie.
    #[error("place {index} of the segment from entry {first} is not {old}'s")]
    NotThere {
        /// The first entry of the segment.
        first: u64,
        /// The place.
        index: usize,
        /// Who was thought to be there.
        old: String,
    },
    /// A bookie would be in an ensemble twice.
    #[error("{bookie} would be in the segment from entry {first} twice")]
    Repeats {
        /// The first entry of the segment.
        first: u64,
        /// Who.
        bookie: String,
    },
    /// No id.
    #[error("{bookie:?} is no bookie's id: {why}")]
    Bookie {
        /// The name.
        bookie: String,
        /// Why not.
        why: String,
    },
    /// It is written in a way that is read, but was never seen written.
    #[error("the names of the segment from entry {first} are not found: {why}")]
    NotFound {
        /// The first entry of the segment.
        first: u64,
        /// In words.
        why: String,
    },
    /// The check at the end: what was made says something else than was meant.
    #[error("the new metadata would differ in more than the replaced bookies")]
    Differs,
}

/// The same metadata, with other bookies in one segment: each change is a place, who is there and who is to be.
///
/// # Errors
/// It cannot be done so that nothing else changes.
pub fn replace(
    bytes: &[u8],
    segment_first: u64,
    changes: &[(usize, &str, &str)],
) -> Result<Vec<u8>, PatchError> {
    let first = segment_first;
    let mut expected = LedgerMetadata::decode(bytes)?;
    let mut segments = expected.segments.iter_mut().enumerate();
    let (nth, segment) = segments
        .find(|(_, segment)| segment.first_entry == first)
        .ok_or(PatchError::NoSegment { first })?;
    let mut sorted = changes.to_vec();
    sorted.sort_unstable();
    for (index, old, new) in &sorted {
        check_bookie(new).map_err(|why| PatchError::Bookie {
            bookie: (*new).to_owned(),
            why,
        })?;
        match segment.members.get_mut(*index) {
            Some(member) if member == old => (*new).clone_into(member),
            _ => {
                return Err(PatchError::NotThere {
                    first,
                    index: *index,
                    old: (*old).to_owned(),
                });
            }
        }
    }
    let mut names: Vec<_> = segment.members.iter().collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        let bookie = twice[0].clone();
        return Err(PatchError::Repeats { first, bookie });
    }
    let new: Vec<_> = sorted
        .iter()
        .map(|(index, _, new)| (*index, *new))
        .collect();
    let edits = locate::edits(bytes, expected.format, nth, &new)
        .map_err(|why| PatchError::NotFound { first, why })?;
    let patched = applied(bytes, &edits);
    match LedgerMetadata::decode(&patched) {
        Ok(found) if found == expected => Ok(patched),
        _ => Err(PatchError::Differs),
    }
}

/// Bytes to be put in place of others.
struct Edit {
    at: Range<usize>,
    new: Vec<u8>,
}

/// The bytes with the edits made, which are ascending and do not overlap.
fn applied(bytes: &[u8], edits: &[Edit]) -> Vec<u8> {
    let added: usize = edits.iter().map(|edit| edit.new.len()).sum();
    let mut patched = Vec::with_capacity(bytes.len() + added);
    let mut done = 0;
    for edit in edits {
        patched.extend_from_slice(&bytes[done..edit.at.start]);
        patched.extend_from_slice(&edit.new);
        done = edit.at.end;
    }
    patched.extend_from_slice(&bytes[done..]);
    patched
}

#[cfg(test)]
mod tests;
