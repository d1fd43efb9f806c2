//! A client of BookKeeper's own protocol, version 3, as far as it reads. `held` is a bookie's list of the entries
//! that it has.

mod held;

pub use held::{Held, HeldError};
