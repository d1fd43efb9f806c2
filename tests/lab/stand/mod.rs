//! What the laboratory's tests stand on: clusters of real bookies, fillers, writers of ledgers, and what
//! is seen of a bookie over time. It knows no single test.

pub(crate) mod broker;
pub(crate) mod drain;
pub(crate) mod fill;
pub(crate) mod gate;
pub(crate) mod lab;
pub(crate) mod load;
pub(crate) mod pair;
pub(crate) mod program;
pub(crate) mod pulsar;
pub(crate) mod seen;
pub(crate) mod told;
pub(crate) mod zookeeper;
