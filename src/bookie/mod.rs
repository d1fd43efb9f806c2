//! The bookie beside the agent: its admin HTTP server, its process, and what its version does. It
//! asks and hands over what it hears; it decides nothing, and it touches no disk.

mod admin;
mod answers;
mod command_line;
mod facts;
mod line;
mod process;
#[cfg(test)]
pub(crate) mod stub;
pub mod watch;

pub use admin::{AdminClient, AdminError, AdminOptions};
pub use facts::{Facts, Version, parse_version};
