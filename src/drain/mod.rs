//! Moves what bookies hold to others while they run, so that they can be taken away.

pub mod failpoint;
mod lock;
pub mod throttle;
pub mod worker;
