//! A job as it stands in the metadata store, so that any machine can go on with it: the job itself, its limits, a task for each
//! ledger, and what its workers say. Nodes lie below `<root>/<instance>/drain/jobs/<job>`; each is one JSON document with
//! the version of its form, and one in an unknown form is refused. Begin with [`Jobs`].

mod document;
mod enumerate;
mod jobs;
mod mirror;
mod orders;
mod tasks;
#[cfg(test)]
mod tests;
mod workers;

pub use document::{
    Fragment, Job, Limits, Moved, OpenLedgers, Phase, ReaderGate, Status, Task, Worker,
};
pub use enumerate::{Filled, Found, Progress, enumerate, fill, survey};
pub use jobs::{JobError, Jobs, New};
pub use tasks::{Shard, Stored, Tasks};
