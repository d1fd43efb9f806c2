//! Giving back the space of ledgers that nothing references any more, in two phases (pulsar #13526): a scan
//! finds them, a mark makes it known, and after a time of grace, with everything read once more, they are
//! deleted. `plan` decides and is pure.

pub mod acting;
pub mod failpoint;
pub mod history;
pub mod inside;
mod judge;
pub mod mark;
mod name;
pub mod plan;
pub mod preflight;
pub mod scan;
pub mod state;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod undo;
