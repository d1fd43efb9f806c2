//! What a bookie's file says about a start of the bookie, with BookKeeper's defaults for what it
//! does not say.

use super::BookieConf;
use crate::health::restart::BookieNeeds;

/// `logSizeLimit`.
const LOG_SIZE_LIMIT: u64 = 1 << 30;

/// `minUsableSizeForIndexFileCreation`.
const INDEX_FILE_RESERVE: u64 = 100 << 20;

/// `diskUsageWarnThreshold` and `diskUsageThreshold`.
const WARN: f64 = 0.90;
const FULL: f64 = 0.95;

/// `journalPreAllocSizeMB`.
const JOURNAL_STEP_MB: u64 = 16;

/// The storage that writes each entry to an entry log as it comes; it is not the default.
const WRITES_AT_ONCE: &str = "InterleavedLedgerStorage";

const MIB: u64 = 1 << 20;

impl BookieConf {
    /// What the bookie needs to start.
    #[must_use]
    pub fn needs(&self) -> BookieNeeds {
        let entry_log_bytes = self.log_size_limit.unwrap_or(LOG_SIZE_LIMIT);
        let step = self.journal_pre_alloc_size_mb.unwrap_or(JOURNAL_STEP_MB);
        let storage = self.ledger_storage_class.as_deref().unwrap_or_default();
        BookieNeeds {
            // Documented as 1.2 times the log's size; the factor is cut to 1 before it is applied
            // (`ServerConfiguration.getMinUsableSizeForEntryLogCreation`).
            entry_log_reserve: self
                .min_usable_size_for_entry_log_creation
                .unwrap_or(entry_log_bytes),
            index_file_reserve: self
                .min_usable_size_for_index_file_creation
                .unwrap_or(INDEX_FILE_RESERVE),
            read_only_mode: self.read_only_mode_enabled.unwrap_or(true),
            warn: self.disk_usage_warn_threshold.unwrap_or(WARN),
            full: self.disk_usage_threshold.unwrap_or(FULL),
            writes_at_once: storage.ends_with(WRITES_AT_ONCE),
            entry_log_bytes,
            journal_file_bytes: self.journal_file_bytes(),
            journal_bytes: self.journal_bytes(),
            journal_step: step.saturating_mul(MIB),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_means_bookkeepers_defaults() {
        let needs = BookieConf::default().needs();
        assert_eq!(needs.entry_log_reserve, 1 << 30);
        assert_eq!(needs.index_file_reserve, 100 << 20);
        assert_eq!(needs.journal_file_bytes, 2 << 30);
        assert_eq!(needs.journal_step, 16 << 20);
        assert!(needs.read_only_mode && !needs.writes_at_once);
    }

    #[test]
    fn the_size_of_an_entry_log_is_the_default_of_its_reserve() {
        let mut conf = BookieConf {
            log_size_limit: Some(5),
            ledger_storage_class: Some("org.example.InterleavedLedgerStorage".to_owned()),
            ..BookieConf::default()
        };
        assert_eq!(conf.needs().entry_log_reserve, 5);
        assert!(conf.needs().writes_at_once);
        conf.min_usable_size_for_entry_log_creation = Some(7);
        let needs = conf.needs();
        assert_eq!((needs.entry_log_reserve, needs.entry_log_bytes), (7, 5));
    }
}
