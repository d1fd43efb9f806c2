//! What a drain decides, pure: which parts of a ledger have to move, where to, what its metadata becomes, and what is
//! in the way of a job. Begin with [`fragment`].

pub mod blockers;
pub mod fragment;
pub mod patch;
pub mod place;
pub mod racks;
pub mod survey;
