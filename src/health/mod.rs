//! Decides. What the disks showed goes in, what it means comes out: status of each directory, facts
//! about the node, wanted mode, events. Nothing here reads a clock, a file or a socket; time is a
//! parameter, so every decision can be replayed by a line in a scenario file.
//!
//! Reading order: `moment`, `dir`, `observation`, `status`, then the three axes `space`, `access`
//! (with `identity`) and `latency` (with `outlier`), `forecast`, `policy`, `node`, `event`, `snapshot`,
//! `schedule`, `track` (one directory), `tracks` (the list) and `tracker`, which joins them, with the `pins`
//! of all. `journal`, `restart` and `layout` judge the files that the bookie needs; `bookie_files` joins them with
//! the tracks. `beside` is what is heard of the bookie and its cluster, `claim` who holds its mode, `judge`
//! what follows from that. `words`: numbers for people.

pub mod access;
pub mod ballast;
pub mod beside;
mod bookie_files;
pub mod bookkeeper;
pub mod claim;
pub mod dir;
mod edge;
pub mod event;
pub mod forecast;
pub mod identity;
pub mod journal;
pub mod judge;
pub mod latency;
mod layout;
pub mod moment;
pub mod node;
pub mod observation;
pub mod outlier;
mod pins;
pub mod policy;
pub mod restart;
mod root_disk;
pub mod schedule;
pub mod snapshot;
pub mod space;
pub mod status;
pub mod track;
pub mod tracker;
mod tracks;
mod view;
pub mod words;
