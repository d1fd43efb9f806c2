//! Emptying running bookies, so that they can be taken away in batches (bookkeeper #3456): what lies on them is copied byte
//! for byte to others, and then the metadata of each ledger names those instead. `plan` decides and is pure; `job` is
//! what a job leaves in the metadata store, so that any machine can go on with it; `around` looks at the cluster, `hold` keeps
//! the bookies read-only, `worker` does the tasks, `end` says whether the bookies can be stopped.

pub mod around;
pub mod end;
pub mod failpoint;
pub mod hold;
pub mod job;
mod lock;
pub mod plan;
pub mod throttle;
pub mod worker;
