//! Giving back the space of ledgers that nothing references any more, in two phases (pulsar #13526): a scan
//! finds them, a mark makes it known, and after a time of grace, with everything read once more, they are
//! deleted. `plan` decides and is pure.

pub mod acting;
#[cfg(test)]
mod crashes;
pub mod failpoint;
#[cfg(test)]
mod histories;
pub mod history;
pub mod inside;
mod judge;
mod left_out;
pub mod mark;
mod name;
pub mod plan;
pub mod preflight;
pub mod scan;
#[cfg(test)]
mod stage;
pub mod state;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod trim;
pub mod undo;
