//! The agent's side of the prober, which makes every system call on watched directories (`prober`);
//! nothing here touches one.
//!
//! `process` is the face, `supervisor` the task behind it. `wire` is what agent and prober say to
//! each other, `link` the pipes of one child, `known` what outlives a child, `children` ends those
//! that must go and keeps account of those that cannot.

pub mod process;
pub mod wire;

mod children;
mod known;
mod link;
mod supervisor;

pub use process::{LookKind, Prober, ProberOptions, Report, WatchedDir};
