//! At what time a scan may be said to have been made. Ages and absences are differences between the times of scans, so one whose
//! time is not certain is no evidence, and is refused.

use super::{Ledgers, Options, ScanError};
use crate::clock::Clock;
use crate::reclaim::plan::Millis;
use crate::reclaim::preflight::{MOST_SKEW, clocks};
use crate::reclaim::scan::ScanInfo;

/// When a snapshot file shows the cluster: somewhere between these two. What lasts is counted up to the first, what is new
/// from the second on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shows {
    /// The newest change in it.
    pub newest: Millis,
    /// When the file was written, or copied.
    pub written: Millis,
}

impl Shows {
    /// At exactly that time.
    #[must_use]
    pub fn at(time: Millis) -> Shows {
        Shows {
            newest: time,
            written: time,
        }
    }

    fn is_dated(self, now: Millis) -> Result<Shows, ScanError> {
        let ahead = (self.newest - self.written).max(self.written - now);
        match MOST_SKEW < ahead {
            true => Err(ScanError::Dated {
                seconds: ahead / 1000,
            }),
            false => Ok(Shows {
                written: self.written.max(self.newest),
                ..self
            }),
        }
    }
}

/// When a scan takes place, from its first read to its last.
pub(super) struct Times<'a> {
    pub(super) ledgers: &'a Ledgers,
    pub(super) options: &'a Options,
    pub(super) clock: &'a Clock,
}

impl Times<'_> {
    fn now(&self) -> Millis {
        self.clock.now().wall.0
    }

    /// When it begins.
    pub(super) async fn began(
        &self,
        last: Option<&ScanInfo>,
        instance: &str,
    ) -> Result<Millis, ScanError> {
        let now = self.now();
        if let Some(shows) = self.options.snapshot_of {
            let shows = shows.is_dated(now)?;
            return match last {
                Some(last) if shows.newest <= last.ended => Err(ScanError::OldSnapshot),
                _ => Ok(shows.newest),
            };
        }
        let ahead = last.map_or(0, |last| last.ended - now);
        if 0 < ahead {
            let millis = ahead;
            return Err(ScanError::Backwards { millis });
        }
        let transaction = self.transaction(instance).await?;
        match (last.and_then(|last| last.transaction), transaction) {
            (Some(then), Some(now)) if now <= then => Err(ScanError::SetBack),
            _ => Ok(now),
        }
    }

    /// When all was read, and the newest transaction of the store then.
    pub(super) async fn ended(
        &self,
        began: Millis,
        instance: &str,
    ) -> Result<(Millis, Option<i64>), ScanError> {
        if let Some(shows) = self.options.snapshot_of {
            return Ok((shows.written.max(began), None));
        }
        let transaction = self.transaction(instance).await?;
        // Small steps of a clock are as good as none.
        Ok((self.now().max(began), transaction))
    }

    /// That our clock and that of the store agree now, and the newest transaction.
    async fn transaction(&self, instance: &str) -> Result<Option<i64>, ScanError> {
        let Some(root) = &self.options.clock_root else {
            return Ok(None);
        };
        let stat = clocks(self.ledgers, root, instance, self.clock).await?;
        Ok(Some(stat.created))
    }
}
