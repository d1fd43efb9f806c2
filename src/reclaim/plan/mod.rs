//! Decides what a ledger is to whom, and what may be done about it. Pure: what was read, and when, is handed
//! in. Begin with [`classify`](class::classify); `evidence` is what one scan after the other adds up to.

pub mod class;
pub mod evidence;
pub mod strain;
pub mod trim;

#[cfg(test)]
mod tests;

/// A ledger's number.
pub type LedgerId = u64;

/// Milliseconds since 1970, by the clock of the metadata store's server where it dates a node, and by ours
/// where it dates a scan. The two are compared before anything is marked.
pub type Millis = i64;

/// Milliseconds of an hour.
pub const HOUR: Millis = 3_600_000;

/// Milliseconds of a day.
pub const DAY: Millis = 24 * HOUR;
