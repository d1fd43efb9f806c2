//! The ballast file of a directory: bytes that we occupy so that they can be given back when the
//! directory becomes full and the bookie needs room to compact, to roll its logs or to start.

/// What a full look is to do with the ballast file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Nothing: there is none to be, and none was seen.
    #[default]
    None,
    /// Say how much it really occupies.
    Measure,
    /// Make it so large if it is smaller.
    Fill(u64),
    /// Remove it.
    Release,
}
