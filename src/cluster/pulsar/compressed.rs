//! Pulsar's header before compressed metadata (`managedLedgerInfoCompressionType`): two bytes that begin no
//! message, the length of a small message, that message with kind and size, and the compressed rest.

use std::borrow::Cow;
use std::io::Read;

use prost::Message;

use super::PulsarError;

/// `MAGIC_MANAGED_INFO_METADATA`.
const MAGIC: [u8; 2] = [0x47, 0x78];

/// Most bytes that are unpacked. A node has at most 1 MiB (`jute.maxbuffer`), often raised to 4; a list of ledgers
/// shrinks to a third. What claims more is damage or an attack.
const LIMIT: usize = 64 << 20;

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(int32, optional, tag = "1")]
    compression_type: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    uncompressed_size: Option<i32>,
}

/// The message itself, unpacked where it is packed.
pub(super) fn plain(bytes: &[u8]) -> Result<Cow<'_, [u8]>, PulsarError> {
    match bytes.strip_prefix(&MAGIC) {
        None => Ok(Cow::Borrowed(bytes)),
        Some(rest) => unpacked(rest)
            .map(Cow::Owned)
            .map_err(PulsarError::Compressed),
    }
}

fn unpacked(rest: &[u8]) -> Result<Vec<u8>, String> {
    let cut = || "it is cut off".to_owned();
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| cut())?;
    let (header, body) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = Header::decode(header).map_err(|error| error.to_string())?;
    let size = header.uncompressed_size.unwrap_or(-1);
    let size = usize::try_from(size)
        .ok()
        .filter(|size| *size <= LIMIT)
        .ok_or_else(|| format!("{size} bytes are announced, {LIMIT} at most are read"))?;
    let unpacked = match header.compression_type.unwrap_or(0) {
        0 => body.to_vec(),
        1 => lz4_flex::block::decompress(body, size).map_err(|error| error.to_string())?,
        2 => all(flate2::read::ZlibDecoder::new(body), size)?,
        3 => {
            let frame = ruzstd::decoding::StreamingDecoder::new(body);
            all(frame.map_err(|error| error.to_string())?, size)?
        }
        4 => {
            let announced = snap::raw::decompress_len(body).map_err(|error| error.to_string())?;
            if announced != size {
                return Err(format!(
                    "{size} bytes are announced, and {announced} within"
                ));
            }
            let mut decoder = snap::raw::Decoder::new();
            decoder
                .decompress_vec(body)
                .map_err(|error| error.to_string())?
        }
        other => return Err(format!("compression {other} is unknown")),
    };
    if unpacked.len() != size {
        return Err(format!(
            "{size} bytes are announced, {} are there",
            unpacked.len()
        ));
    }
    Ok(unpacked)
}

/// All bytes, and one more than announced at most.
fn all(reader: impl Read, size: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(size).unwrap_or(u64::MAX).saturating_add(1);
    reader
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}
