//! Giving back the space of ledgers that nothing references any more, in two phases (pulsar #13526): a scan
//! finds them, a mark makes it known, and after a time of grace, with everything read once more, they are
//! deleted. `plan` decides and is pure.

pub mod history;
mod name;
pub mod plan;
pub mod scan;
pub mod state;
#[cfg(test)]
mod tests;
pub mod trim;
