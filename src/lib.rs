//! dirkeeper watches the journal, ledger and index directories of a storage server and says, in
//! time, which of them can still be written. Start with [`health`] to read how it decides, and with
//! [`embed`] to use it inside another server.

/// Version of the release.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Revision of the source it was built from; `unknown` outside a checkout.
pub const REVISION: &str = env!("DIRKEEPER_REVISION");

pub mod app;
pub mod backoff;
pub mod bookie;
pub mod child;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod document;
pub mod drain;
pub mod embed;
pub mod failpoint;
#[cfg(test)]
mod generated;
pub mod health;
pub mod http;
pub mod http_client;
pub mod listener;
pub mod metrics;
pub mod mode;
pub mod monitor;
#[cfg(test)]
mod mutation;
pub mod probe;
pub mod prober;
pub mod reclaim;
pub mod report;
pub mod shutdown;
pub mod state;
