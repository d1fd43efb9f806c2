//! What a bookie's file says about its own watch over its disks and about how it gives space back, with
//! BookKeeper's defaults for what it does not say.

use std::time::Duration;

use super::BookieConf;
use crate::health::bookkeeper;
use crate::health::judge::Settings;

/// `minorCompactionThreshold` and `majorCompactionThreshold`.
const MINOR_THRESHOLD: f64 = 0.2;
const MAJOR_THRESHOLD: f64 = 0.8;

/// The storage with a garbage collector for each ledger directory; it is not the default.
const COLLECTOR_FOR_EACH_DIR: &str = "DbLedgerStorage";

/// Bookies ask for a collection at different times within this: each reads the metadata of all ledgers
/// (#2797).
const JITTER_SECONDS: u64 = 600;

impl BookieConf {
    /// How the bookie watches itself. `any_full`: whether one full directory makes it read-only, where
    /// that is known.
    #[must_use]
    pub fn beside(&self, any_full: Option<bool>) -> Settings {
        let default = Settings::default();
        let model = default.model;
        let full = single(self.disk_usage_threshold, model.full);
        let interval = |interval: Option<Duration>, default, threshold: Option<f64>, usual| {
            let interval = interval.or(default).filter(|interval| !interval.is_zero());
            interval.filter(|_| 0.0 < threshold.unwrap_or(usual))
        };
        let entry_log = self.needs().entry_log_reserve;
        let reserve = self
            .min_usable_size_for_high_priority_writes
            .unwrap_or(entry_log);
        let storage = self.ledger_storage_class.as_deref().unwrap_or_default();
        Settings {
            check_interval: self.disk_check_interval.unwrap_or(default.check_interval),
            model: bookkeeper::Settings {
                full,
                warn: single(self.disk_usage_warn_threshold, model.warn),
                low_watermark: single(self.disk_usage_lwm_threshold, full),
                read_only_mode: self.read_only_mode_enabled.unwrap_or(model.read_only_mode),
                // What is unknown counts as what makes a bookie read-only more often.
                any_full: any_full.unwrap_or(true),
                high_priority_reserve: i64::try_from(reserve).unwrap_or(i64::MAX),
            },
            any_full_known: any_full.is_some(),
            persists_status: self.persist_bookie_status_enabled,
            force_read_only: self.force_read_only_bookie.unwrap_or_default(),
            collector_for_each_dir: storage.ends_with(COLLECTOR_FOR_EACH_DIR),
            forced_gc_allowed: self.is_force_gc_allow_when_no_space.unwrap_or_default(),
            gc_wait: self.gc_wait_time.unwrap_or(default.gc_wait),
            minor: interval(
                self.minor_compaction_interval,
                default.minor,
                self.minor_compaction_threshold,
                MINOR_THRESHOLD,
            ),
            major: interval(
                self.major_compaction_interval,
                default.major,
                self.major_compaction_threshold,
                MAJOR_THRESHOLD,
            ),
            jitter: self.id().map_or(Duration::ZERO, |id| {
                Duration::from_secs(spread(&id) % JITTER_SECONDS)
            }),
        }
    }
}

/// BookKeeper holds its thresholds in single precision.
#[allow(clippy::cast_possible_truncation)]
fn single(value: Option<f64>, default: f32) -> f32 {
    value.map_or(default, |value| value as f32)
}

/// A number that differs between bookies and not between starts (FNV-1a).
fn spread(id: &str) -> u64 {
    id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_means_bookkeepers_defaults() {
        let settings = BookieConf::default().beside(None);
        let default = Settings::default();
        assert_eq!(settings.check_interval, Duration::from_secs(10));
        assert_eq!(
            (settings.model.full, settings.model.low_watermark),
            (0.95, 0.95)
        );
        assert_eq!(
            (settings.minor, settings.major),
            (default.minor, default.major)
        );
        assert_eq!(settings, default);
    }

    #[test]
    fn an_interval_or_a_threshold_of_nothing_turns_a_compaction_off() {
        let conf = BookieConf {
            minor_compaction_interval: Some(Duration::ZERO),
            major_compaction_threshold: Some(-1.0),
            ..BookieConf::default()
        };
        let settings = conf.beside(Some(false));
        assert_eq!((settings.minor, settings.major), (None, None));
    }

    #[test]
    fn the_low_watermark_follows_full_and_the_reserve_the_entry_log() {
        let conf = BookieConf {
            disk_usage_threshold: Some(0.97),
            log_size_limit: Some(7),
            ledger_storage_class: Some("a.b.DbLedgerStorage".to_owned()),
            ..BookieConf::default()
        };
        let settings = conf.beside(Some(true));
        assert_eq!(settings.model.low_watermark, 0.97);
        assert_eq!(settings.model.high_priority_reserve, 7);
        assert!(settings.collector_for_each_dir && settings.any_full_known);
    }
}
