//! What the fault tests stand on: stages of the process, tests in parallel, disks that can be broken,
//! agents under test, and the sweeping up. It knows no single fault.

pub(crate) mod agent;
pub(crate) mod bench;
pub(crate) mod disk;
pub(crate) mod dying_disk;
pub(crate) mod http;
pub(crate) mod memory_fs;
pub(crate) mod peers;
pub(crate) mod run;
pub(crate) mod runner;
pub(crate) mod stage;
pub(crate) mod sweep;
