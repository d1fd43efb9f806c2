//! A client of bookies: BookKeeper's own protocol, version 3, as far as entries are read and copied. Begin with
//! [`Bookies`]; `client` is what can be asked, `connection` one line to one bookie, which `secured` takes to TLS,
//! `messages` what goes over it, `address` where it goes. `digest` tells whether an entry is what its writer wrote,
//! `held` which entries a bookie has. No ledger is fenced, and only [`Bookie::add_entry`] changes a bookie.

#[cfg(test)]
mod adding;
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
mod secured;
#[cfg(test)]
mod tests;

pub use client::{After, Bookie, Bookies, Confirmed, Limits, Space};
pub use digest::{Digest, Entry, EntryError};
pub use error::{BookieError, Code};
pub use held::{Held, HeldError};
