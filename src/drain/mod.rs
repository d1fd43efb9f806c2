//! Emptying running bookies, so that they can be taken away in batches (bookkeeper #3456): what lies on them is copied byte
//! for byte to others, and then the metadata of each ledger names those instead. `plan` decides and is pure; `job` is
//! what a job leaves in the metadata store, so that any machine can go on with it.

pub mod around;
pub mod end;
pub mod hold;
pub mod job;
pub mod plan;
