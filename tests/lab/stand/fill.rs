//! Somebody else's file that takes the space of a disk, at once or at a rate.

use std::path::Path;
use std::time::Duration;

use dirkeeper::clock::Clock;
use nix::sys::statvfs::statvfs;

use crate::harness::disk::Filler;
use crate::harness::run::pass;

/// Between two steps of a filler: small beside all that is measured.
const STEP: Duration = Duration::from_millis(10);

/// 100 MB/s, in bytes a step.
pub(crate) const HUNDRED_MEGABYTES_A_SECOND: i64 = 1_000_000;

/// How a filling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Reached,
    NoSpace,
}

/// Lets the usage of a disk rise by so many bytes each 10 ms until it is over this ratio, or no byte is
/// free. Nothing is written: the blocks are only taken.
pub(crate) fn fill(disk: &Path, bytes_a_step: i64, ratio: f64) -> End {
    let mut filler = Filler::new(disk);
    let clock = Clock::start();
    let mut steps = 0;
    loop {
        if usage(disk) > ratio {
            return End::Reached;
        }
        // The last bytes too.
        let mut piece = bytes_a_step;
        while filler.grow(piece).is_err() {
            if piece <= 4096 {
                return End::NoSpace;
            }
            piece /= 2;
        }
        steps += 1;
        pass((STEP * steps).saturating_sub(clock.elapsed()));
    }
}

/// 1 − available ⁄ size, as the bookie computes it.
#[allow(clippy::cast_precision_loss)] // file systems here are far below 2^52 blocks
pub(crate) fn usage(disk: &Path) -> f64 {
    let now = statvfs(disk).expect("the file system answers");
    1.0 - now.blocks_available() as f64 / now.blocks() as f64
}
