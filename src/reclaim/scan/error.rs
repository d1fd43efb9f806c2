//! Why a scan ended without a result, each in one sentence.

use thiserror::Error;

use super::{LedgerId, Millis};
use crate::cluster::ledger::{LayoutError, MetadataError};
use crate::cluster::pulsar::PulsarError;
use crate::cluster::store::StoreError;
use crate::reclaim::preflight::PreflightError;
use crate::reclaim::state::StateError;

/// Why a scan ended without a result.
#[derive(Debug, Error)]
pub enum ScanError {
    /// The store.
    #[error("cannot read {path}")]
    Store {
        /// Of which node.
        path: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The store answers, and not for this node.
    #[error(
        "{tries} times in a row there was no answer for {path}: if it, or the list of its children, is larger than jute.maxbuffer \
         (1 MiB unless set), raise that"
    )]
    NoAnswer {
        /// Which node.
        path: String,
        /// How often it was asked.
        tries: u32,
        /// The last time.
        #[source]
        source: StoreError,
    },
    /// The store does not answer.
    #[error(
        "no server was reached for {seconds} s to read {path}; the next scan goes on from here"
    )]
    Unreachable {
        /// Which node.
        path: String,
        /// How long that was tried.
        seconds: u64,
        /// The last time.
        #[source]
        source: StoreError,
    },
    /// The layout.
    #[error("{path}/LAYOUT says where ledgers are, and is not there: is {path} the ledgers root?")]
    NoLayout {
        /// The root.
        path: String,
    },
    /// The layout.
    #[error("cannot tell where ledgers are below {path}")]
    Layout {
        /// The root.
        path: String,
        /// Why.
        #[source]
        source: LayoutError,
    },
    /// The cluster's id.
    #[error("{path}/INSTANCEID is not there or no text")]
    NoInstance {
        /// The root.
        path: String,
    },
    /// Another cluster than before.
    #[error(
        "this is cluster {found}, and what is remembered is of cluster {remembered}: name another --state-dir"
    )]
    OtherCluster {
        /// The id that is remembered.
        remembered: String,
        /// The id that is there.
        found: String,
    },
    /// A cluster less than before.
    #[error(
        "{cluster} was read by an earlier scan and is not named now, so that all of its ledgers would look as if nobody named \
         them: name it too, or say with --pulsar-gone that it is no more"
    )]
    NotNamed {
        /// Which cluster.
        cluster: String,
    },
    /// Another cluster by the name of one that was read before.
    #[error(
        "what is at {cluster} was made anew since an earlier scan read it, so that what is remembered is of another Pulsar cluster: \
         say with --pulsar-gone that it is no more"
    )]
    Rebuilt {
        /// Its name.
        cluster: String,
    },
    /// One cluster, two names.
    #[error("{one} and {other} are the same Pulsar cluster: name it once")]
    Twice {
        /// The first name.
        one: String,
        /// The second.
        other: String,
    },
    /// What another place held, and nobody lives there.
    #[error(
        "{cluster} holds what {before} held, and no broker is registered there: it may be a copy that was left behind, so name one \
         of the old servers too, or scan while a broker runs"
    )]
    Copy {
        /// Its name now.
        cluster: String,
        /// Its name at an earlier scan.
        before: String,
    },
    /// A file that shows nothing new.
    #[error("the snapshot is not newer than the last scan, so that nothing new follows from it")]
    OldSnapshot,
    /// A file whose dates contradict each other.
    #[error(
        "the dates of the snapshot file are {seconds} s apart (a node in it is newer than the file, or the file newer than our \
         clock), so it is not known what time it shows"
    )]
    Dated {
        /// How far.
        seconds: i64,
    },
    /// Our clock was wrong, or is.
    #[error(
        "by our clock the last scan ended {millis} ms from now, so it was wrong then or is now: set it, or take another --state-dir \
         if it was wrong then"
    )]
    Backwards {
        /// How far.
        millis: Millis,
    },
    /// The store has forgotten.
    #[error(
        "the metadata store was set back to a time before the last scan, so what is remembered does not hold: take another \
         --state-dir"
    )]
    SetBack,
    /// The clocks, or they cannot be seen.
    #[error(transparent)]
    Clock(#[from] PreflightError),
    /// A ledger.
    #[error("ledger {id} at {path} cannot be understood")]
    Ledger {
        /// Which.
        id: LedgerId,
        /// Its node.
        path: String,
        /// Why.
        #[source]
        source: MetadataError,
    },
    /// An owner.
    #[error("{path} of {cluster} cannot be understood, so it is not known which ledgers it names")]
    Owner {
        /// Which cluster.
        cluster: String,
        /// Which node.
        path: String,
        /// Why.
        #[source]
        source: PulsarError,
    },
    /// Nothing of Pulsar's is there.
    #[error(
        "{cluster} has no /managed-ledgers below {root:?}: is it the metadata of a Pulsar cluster?"
    )]
    NoPulsar {
        /// Which cluster.
        cluster: String,
        /// Its root.
        root: String,
    },
    /// More than can be.
    #[error("{path} has {count} children, and more than {most} are not believed")]
    TooMany {
        /// Which node.
        path: String,
        /// How many.
        count: usize,
        /// How many may be.
        most: usize,
    },
    /// Deeper than can be.
    #[error("{path} has children, and lies deeper than anything of Pulsar's")]
    TooDeep {
        /// Which node.
        path: String,
    },
    /// What is remembered.
    #[error(transparent)]
    State(#[from] StateError),
}

impl ScanError {
    /// What was read before is good, and the next scan goes on with it.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        match self {
            ScanError::Unreachable { .. } | ScanError::State(_) => true,
            ScanError::Store { source, .. }
            | ScanError::Clock(PreflightError::Store { source, .. }) => source.is_open(),
            _ => false,
        }
    }
}
