//! How a server gets into the mode that its disks allow: the plan (pure), the switch (a trait with
//! an in-memory form), and the reconciler that turns one until it shows what the plan wants.

pub mod claims;
#[cfg(test)]
mod histories;
pub mod keep;
pub mod plan;
pub mod reconcile;
pub mod switch;

pub use reconcile::Reconciler;
pub use switch::{MemorySwitch, ModeSwitch, Observed, SwitchError};
