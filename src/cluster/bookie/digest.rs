//! An entry as a bookie keeps it, and whether it is what its writer wrote. Pure. A bookie never checks it:
//! what it hands out may be damaged, of another ledger, or old.

use flate2::Crc;
use ring::{digest, hmac};
use thiserror::Error;

use super::crc32c::crc32c;
use crate::cluster::ledger::{DigestType, Secret};

/// Ledger, entry, confirmed entry and length, each in 8 bytes.
const HEADER: usize = 32;

/// Ledger and confirmed entry of what a writer tells between entries.
const LAC_HEADER: usize = 16;

/// Checks entries of a ledger.
#[derive(Clone)]
pub struct Digest {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Crc32,
    Crc32c,
    Hmac(hmac::Key),
    Dummy,
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the key.
        f.write_str(self.name())
    }
}

/// An entry that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its number.
    pub id: u64,
    /// What was confirmed when it was written; -1 if nothing was. A replicator of Java's writes a later one into an old
    /// entry, so that it may be larger than `id`.
    pub confirmed: i64,
    /// Bytes of all entries up to it.
    pub length: i64,
    /// What the owner wrote.
    pub payload: &'a [u8],
}

/// Why bytes are not that entry.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EntryError {
    /// No room for header and digest.
    #[error("it has {0} bytes, too few for an entry")]
    Short(usize),
    /// Of another ledger, or another entry.
    #[error("it is entry {entry} of ledger {ledger}")]
    Other {
        /// The ledger.
        ledger: i64,
        /// The entry.
        entry: i64,
    },
    /// Damaged, or written with another password.
    #[error("its {0} digest is wrong")]
    Digest(&'static str),
}

impl Digest {
    /// Of a ledger with that password; Pulsar's is empty.
    #[must_use]
    pub fn new(kind: DigestType, password: &[u8]) -> Digest {
        let kind = match kind {
            DigestType::Crc32 => Kind::Crc32,
            DigestType::Crc32c => Kind::Crc32c,
            DigestType::Dummy => Kind::Dummy,
            DigestType::Hmac => {
                let secret = [&b"mac"[..], password].concat();
                let key = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &secret);
                let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key.as_ref());
                Kind::Hmac(key)
            }
        };
        Digest { kind }
    }

    /// Of the ledger with that secret.
    #[must_use]
    pub fn of(secret: &Secret) -> Digest {
        Digest::new(secret.digest, secret.password())
    }

    /// The entry in those bytes, which must be this one if one is given.
    ///
    /// # Errors
    /// It is another one, or damaged.
    pub fn open<'a>(
        &self,
        ledger: u64,
        entry: Option<u64>,
        raw: &'a [u8],
    ) -> Result<Entry<'a>, EntryError> {
        let short = || EntryError::Short(raw.len());
        let (header, rest) = raw.split_first_chunk::<HEADER>().ok_or_else(short)?;
        let (digest, payload) = rest.split_at_checked(self.length()).ok_or_else(short)?;
        let number = |at| long(header, at);
        let found = u64::try_from(number(8)).ok();
        let (Some(id), true) = (found, u64::try_from(number(0)) == Ok(ledger)) else {
            return Err(other(number(0), number(8)));
        };
        if entry.is_some_and(|entry| entry != id) {
            return Err(other(number(0), number(8)));
        }
        self.check(&[header, payload], digest)?;
        Ok(Entry {
            id,
            confirmed: number(16),
            length: number(24),
            payload,
        })
    }

    /// The confirmed entry in what a writer tells between entries.
    ///
    /// # Errors
    /// It is of another ledger, or damaged.
    pub fn open_confirmed(&self, ledger: u64, raw: &[u8]) -> Result<i64, EntryError> {
        let short = || EntryError::Short(raw.len());
        let (header, rest) = raw.split_first_chunk::<LAC_HEADER>().ok_or_else(short)?;
        let (digest, _) = rest.split_at_checked(self.length()).ok_or_else(short)?;
        let confirmed = long(header, 8);
        if u64::try_from(long(header, 0)) != Ok(ledger) {
            return Err(other(long(header, 0), confirmed));
        }
        self.check(&[header], digest)?;
        Ok(confirmed)
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Crc32 => "CRC32",
            Kind::Crc32c => "CRC32C",
            Kind::Hmac(_) => "HMAC",
            Kind::Dummy => "DUMMY",
        }
    }

    /// Bytes of the digest itself.
    fn length(&self) -> usize {
        match self.kind {
            Kind::Crc32 => 8,
            Kind::Crc32c => 4,
            Kind::Hmac(_) => 20,
            Kind::Dummy => 0,
        }
    }

    fn check(&self, parts: &[&[u8]], digest: &[u8]) -> Result<(), EntryError> {
        if self.over(parts) == digest {
            Ok(())
        } else {
            Err(EntryError::Digest(self.name()))
        }
    }

    fn over(&self, parts: &[&[u8]]) -> Vec<u8> {
        match &self.kind {
            Kind::Crc32 => {
                let mut sum = Crc::new();
                parts.iter().for_each(|part| sum.update(part));
                u64::from(sum.sum()).to_be_bytes().to_vec()
            }
            Kind::Crc32c => {
                let sum = parts.iter().fold(0, |sum, part| crc32c(sum, part));
                sum.to_be_bytes().to_vec()
            }
            Kind::Hmac(key) => {
                let mut sum = hmac::Context::with_key(key);
                parts.iter().for_each(|part| sum.update(part));
                sum.sign().as_ref().to_vec()
            }
            Kind::Dummy => Vec::new(),
        }
    }

    /// An entry as its writer sends it.
    #[cfg(test)]
    pub(crate) fn seal(&self, ledger: u64, entry: u64, confirmed: i64, payload: &[u8]) -> Vec<u8> {
        let mut header = [ledger, entry].map(u64::to_be_bytes).concat();
        header.extend(confirmed.to_be_bytes());
        header.extend((payload.len() as u64).to_be_bytes());
        let digest = self.over(&[&header, payload]);
        [&header[..], &digest, payload].concat()
    }

    /// What a writer tells between entries.
    #[cfg(test)]
    pub(crate) fn seal_confirmed(&self, ledger: u64, confirmed: i64) -> Vec<u8> {
        let header = [ledger.to_be_bytes(), confirmed.to_be_bytes()].concat();
        [&header[..], &self.over(&[&header])].concat()
    }
}

fn other(ledger: i64, entry: i64) -> EntryError {
    EntryError::Other { ledger, entry }
}

fn long(header: &[u8], at: usize) -> i64 {
    let word = header.get(at..).and_then(<[u8]>::first_chunk::<8>);
    i64::from_be_bytes(word.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KINDS: [DigestType; 4] = [
        DigestType::Crc32,
        DigestType::Hmac,
        DigestType::Crc32c,
        DigestType::Dummy,
    ];

    #[test]
    fn entries_of_each_kind_are_opened_and_damaged_ones_are_not() {
        for kind in KINDS {
            let digest = Digest::new(kind, b"");
            let raw = digest.seal(7, 3, 2, b"hello");
            let opened = digest.open(7, Some(3), &raw).unwrap();
            assert_eq!((opened.id, opened.confirmed), (3, 2));
            assert_eq!(opened.payload, b"hello");
            assert_eq!(digest.open(7, None, &raw), Ok(opened));
            for at in 16..raw.len() {
                let mut damaged = raw.clone();
                damaged[at] ^= 1;
                let told = digest.open(7, Some(3), &damaged);
                assert_eq!(told.is_err(), kind != DigestType::Dummy, "{kind:?} {at}");
            }
            let told = digest.seal_confirmed(7, 41);
            assert_eq!(digest.open_confirmed(7, &told), Ok(41));
            assert!(digest.open_confirmed(8, &told).is_err());
        }
    }

    #[test]
    fn what_it_is_instead() {
        let digest = Digest::new(DigestType::Crc32c, b"");
        let raw = digest.seal(7, 3, 2, b"hello");
        let told = |ledger, entry, raw| digest.open(ledger, Some(entry), raw).unwrap_err();
        insta::assert_snapshot!(told(7, 4, &raw), @"it is entry 3 of ledger 7");
        insta::assert_snapshot!(told(8, 3, &raw), @"it is entry 3 of ledger 7");
        insta::assert_snapshot!(told(7, 3, &raw[..35]), @"it has 35 bytes, too few for an entry");
        let other = Digest::new(DigestType::Hmac, b"").seal(7, 3, 2, b"hello");
        insta::assert_snapshot!(told(7, 3, &other), @"its CRC32C digest is wrong");
        let secret = Digest::new(DigestType::Hmac, b"x");
        insta::assert_snapshot!(secret.open(7, None, &other).unwrap_err(), @"its HMAC digest is wrong");
    }

    #[test]
    fn a_later_confirmed_entry_is_no_damage() {
        let digest = Digest::new(DigestType::Crc32, b"");
        let raw = digest.seal(7, 3, 90, b"");
        assert_eq!(digest.open(7, Some(3), &raw).unwrap().confirmed, 90);
    }

    proptest! {
        #[test]
        fn any_bytes_are_opened_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            for kind in KINDS {
                let digest = Digest::new(kind, b"");
                let _ = digest.open(0, None, &bytes);
                let _ = digest.open_confirmed(0, &bytes);
            }
        }
    }
}
