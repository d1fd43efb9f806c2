//! What it takes to check the entries of a ledger and to add to it: the password, which stands in its metadata from format
//! 2 on. It is kept apart from the rest, so that nobody has it who does not need it.

use prost::Message;
use ring::digest;

use super::{DigestType, LedgerMetadata, MetadataError, PREFIX, Raw, text};

/// Of one ledger.
#[derive(Clone)]
pub struct Secret {
    /// How its entries are checked.
    pub digest: DigestType,
    password: Vec<u8>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the password.
        write!(f, "Secret({:?})", self.digest)
    }
}

impl Secret {
    /// Of a ledger with that password. That of a ledger in format 1 is in no metadata.
    #[must_use]
    pub fn new(digest: DigestType, password: &[u8]) -> Secret {
        Secret {
            digest,
            password: password.to_owned(),
        }
    }

    /// Reads a node's data; none in format 1, and where no digest is told.
    ///
    /// # Errors
    /// It is not understood whole.
    pub fn decode(bytes: &[u8]) -> Result<Option<Secret>, MetadataError> {
        let metadata = LedgerMetadata::decode(bytes)?;
        let line = bytes.iter().position(|byte| *byte == b'\n');
        let body = &bytes[line.map_or(PREFIX.len(), |line| line + 1)..];
        let raw = match metadata.format {
            2 => text::second(body),
            3 => Raw::decode_length_delimited(body).map_err(|error| error.to_string()),
            _ => return Ok(None),
        };
        let raw = raw.map_err(|why| MetadataError::Damaged {
            format: metadata.format,
            why,
        })?;
        Ok(metadata
            .digest
            .zip(raw.password)
            .map(|(digest, password)| Secret { digest, password }))
    }

    /// What a bookie wants to see of who adds, the same from the first entry to the last (`MasterKeyGen`).
    #[must_use]
    pub fn master_key(&self) -> [u8; 20] {
        let secret = [&b"ledger"[..], &self.password].concat();
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &secret);
        let mut key = [0; 20];
        key.copy_from_slice(hash.as_ref());
        key
    }

    /// The password.
    #[must_use]
    pub fn password(&self) -> &[u8] {
        &self.password
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &[u8] = b"BookieMetadataFormatVersion\t2\nquorumSize: 1\nensembleSize: 1\nlength: 0\nlastEntryId: -1\n\
        state: CLOSED\nsegment {\n  ensembleMember: \"a:1\"\n  firstEntryId: 0\n}\ndigestType: CRC32C\n\
        password: \"p\\001\"\nackQuorumSize: 1\n";

    #[test]
    fn the_password_is_used_and_never_shown() {
        let secret = Secret::decode(V2).unwrap().unwrap();
        assert_eq!(secret.password(), b"p\x01");
        assert_eq!(format!("{secret:?}"), "Secret(Crc32c)");
        let other = Secret::new(DigestType::Crc32c, b"p");
        assert_ne!(secret.master_key(), other.master_key());
    }

    #[test]
    fn the_key_of_no_password_is_the_hash_of_a_word() {
        let key = Secret::new(DigestType::Crc32c, b"").master_key();
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        // printf ledger | sha1sum
        assert_eq!(hex, "850bf1071c5e3d8c24235676f8816ae0cbe2f14f");
    }

    #[test]
    fn format_one_has_none() {
        let first = b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\ta:1\n-1\tCLOSED";
        assert!(Secret::decode(first).unwrap().is_none());
        assert!(Secret::decode(b"something else").is_err());
    }
}
