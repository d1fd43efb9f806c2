//! The document of the mode: what is wanted, what is seen, and who holds it.

use serde::{Deserialize, Serialize};

use super::{mode_name, timestamp_text};
use crate::health::claim::Claim;
use crate::health::snapshot::ModeView;

/// Mode, as wanted and as seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeDocument {
    /// What the disks allow; none while too much is unknown.
    pub wanted: Option<String>,
    /// What the server says; none without one.
    pub observed: Option<String>,
    /// Recovery writes are possible.
    pub high_priority_writes: bool,
    /// `observe` or `enforce`.
    pub control: String,
    /// Who holds the server in a mode.
    pub claims: Vec<ClaimDocument>,
    /// Why a change that is wanted is not made now; none when there is none to make.
    #[serde(default)]
    pub held: Option<String>,
    /// A journal is below its bytes: for that the bookie may go below the cluster's floor.
    #[serde(default)]
    pub journal_emergency: bool,
}

impl ModeDocument {
    pub(super) fn new(view: &ModeView) -> ModeDocument {
        ModeDocument {
            wanted: view.wanted.map(mode_name),
            observed: view.observed.map(mode_name),
            high_priority_writes: view.high_priority_writes,
            control: view.control.to_owned(),
            claims: view.claims.iter().map(ClaimDocument::new).collect(),
            held: view.held.clone(),
            journal_emergency: view.journal_emergency,
        }
    }
}

/// One party's hold on the mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimDocument {
    /// `agent`, `operator`, `drain` or `bookie`.
    pub owner: String,
    /// The mode.
    pub mode: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: String,
    /// The server was not yet seen in that mode.
    #[serde(default)]
    pub pending: bool,
}

impl ClaimDocument {
    fn new(claim: &Claim) -> ClaimDocument {
        ClaimDocument {
            owner: claim.owner.name().to_owned(),
            mode: mode_name(claim.mode),
            reason: claim.reason.clone(),
            since: timestamp_text(claim.since),
            pending: claim.pending,
        }
    }
}
