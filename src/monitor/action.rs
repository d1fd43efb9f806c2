//! What the monitor loop takes in: a closed list. Nothing else reaches its state.

use std::path::PathBuf;

use crate::health::beside::{BesideAction, Heard};
use crate::health::claim::Kept;
use crate::health::dir::Dir;
use crate::health::policy::{Mode, Policy};
use crate::probe::Report;

/// One thing for the loop to do.
#[derive(Debug)]
pub enum Action {
    /// The prober says something.
    Report(Box<Report>),
    /// A valid new configuration: directories that stay keep their state.
    Configure(Vec<Dir>, Policy),
    /// Somebody asks for a full look now; none for all directories.
    Probe(Option<PathBuf>),
    /// An operator takes the disk at this path as the right one.
    Accept(PathBuf),
    /// The server beside us, or around us, is in this mode; none when it cannot be asked.
    ModeObserved(Option<Mode>),
    /// Something was heard of the bookie beside us, or of its cluster.
    Heard(Heard),
    /// This was asked of the bookie, well or not.
    Acted(BesideAction),
    /// Who holds the mode, and why a change waits.
    Kept(Kept),
    /// A problem outside the loop began (`Some`) or ended (`None`); the key tells them apart.
    Problem(&'static str, Option<String>),
    /// Pins of earlier runs became known after the start: they stand above those made meanwhile.
    Recall,
    /// Number of the newest event that the state store knows: ours go on after it.
    Numbered(u64),
    /// End.
    Stop,
}
