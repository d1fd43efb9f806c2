//! Being written.

pub mod simulate;
