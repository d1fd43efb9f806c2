//! A client of bookies: BookKeeper's own protocol, version 3, as far as it reads. Begin with [`Bookies`]; `client` is
//! what can be asked, `connection` one line to one bookie, `messages` what goes over it, `address` where it goes.
//! `digest` tells whether an entry is what its writer wrote, `held` which entries a bookie has. No bookie is changed by
//! any of it, and no ledger fenced.

mod address;
mod client;
mod connection;
mod crc32c;
mod digest;
mod error;
#[cfg(test)]
pub(crate) mod fake;
mod held;
mod messages;
#[cfg(test)]
mod tests;

pub use client::{After, Bookie, Bookies, Confirmed, Limits, Space};
pub use digest::{Digest, Entry, EntryError};
pub use error::{BookieError, Code};
pub use held::{Held, HeldError};
