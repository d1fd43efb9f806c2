//! What `dirkeeper drain` takes from the configuration: where the cluster is, as `reclaim` does, and its section `[drain]`.

use std::time::Duration;

use super::keys::Key;
use super::problem::{Problem, Problems};
use super::reclaim::{Read, ReclaimSources, read};
use super::zookeeper::ZooKeeperConfig;

/// What counts for `dirkeeper drain` where its command line says nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct DrainConfig {
    /// The ZooKeeper of the ledgers, if one is named.
    pub zookeeper: Option<ZooKeeperConfig>,
    /// The URI of the ledgers' metadata where it is no ZooKeeper.
    pub unsupported: Option<String>,
    /// Bytes a second from each bookie that is emptied and to each that takes them; 0 for no limit.
    pub max_bytes_per_second: u64,
    /// Requests a second to ZooKeeper, by each worker.
    pub requests_per_second: u32,
    /// Ledgers at a time, by each worker.
    pub workers: u32,
    /// The source keeps each ledger until its readers are safe (`per-ledger`), or what could harm them is refused.
    pub is_per_ledger: bool,
    /// How long a writer of an open ledger is waited for before its topic is unloaded.
    pub unload_after: Duration,
    /// What should be known.
    pub warnings: Vec<Problem>,
}

/// Reads it. Blocks on the disks of the files that are named.
///
/// # Errors
/// All that is wrong with the files.
pub fn load_drain(sources: &ReclaimSources) -> Result<DrainConfig, Problems> {
    let Read {
        node,
        zookeeper,
        unsupported,
        warnings,
        ..
    } = read(sources)?;
    let slot = |key| node.slot(key);
    Ok(DrainConfig {
        zookeeper,
        unsupported,
        max_bytes_per_second: slot(Key::DrainMaxBytes).size().unwrap_or_default(),
        requests_per_second: slot(Key::DrainRequests).count().unwrap_or(1),
        workers: slot(Key::DrainWorkers).count().unwrap_or(1),
        is_per_ledger: slot(Key::DrainReaderGate).text().as_deref() == Some("per-ledger"),
        unload_after: slot(Key::DrainUnloadAfter).duration().unwrap_or_default(),
        warnings,
    })
}
