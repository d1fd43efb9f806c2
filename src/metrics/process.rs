//! Facts about the agent's own process, from procfs. Only files that the kernel answers without a
//! lock on the memory map are read: one held by a page fault on a dead disk would block a scrape.

use std::fs;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};

use super::float;

/// Clock ticks a second in `/proc/self/stat`: USER_HZ, 100 on every architecture this builds for.
const TICKS_PER_SECOND: f64 = 100.0;

/// What is known about the process; parts that cannot be read are none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessFacts {
    /// User and system time so far.
    pub cpu_seconds: Option<f64>,
    /// Threads.
    pub threads: Option<f64>,
    /// Virtual memory.
    pub virtual_bytes: Option<f64>,
    /// Resident memory.
    pub resident_bytes: Option<f64>,
    /// Open descriptors.
    pub open_fds: Option<f64>,
    /// Most descriptors that it may open.
    pub max_fds: Option<f64>,
}

impl ProcessFacts {
    /// Reads them; some 20 µs, no disk.
    #[must_use]
    pub fn read() -> ProcessFacts {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.and_then(|bytes| u32::try_from(bytes).ok());
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        ProcessFacts {
            open_fds: open_fds(),
            max_fds: getrlimit(Resource::RLIMIT_NOFILE)
                .ok()
                .map(|(soft, _hard)| float(soft)),
            ..ProcessFacts::of_stat(&stat, page.map(f64::from))
        }
    }

    /// The parts that one line of `/proc/self/stat` tells.
    fn of_stat(stat: &str, page: Option<f64>) -> ProcessFacts {
        // The second field is the program's name in parentheses and may hold anything; the state,
        // which is field 3 of proc_pid_stat(5), follows the last closing one.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_ascii_whitespace().collect())
            .unwrap_or_default();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let resident = field(24).zip(page).map(|(pages, page)| pages * page);
        ProcessFacts {
            cpu_seconds: field(14)
                .zip(field(15))
                .map(|(user, system)| (user + system) / TICKS_PER_SECOND),
            threads: field(20),
            virtual_bytes: field(23),
            resident_bytes: resident,
            ..ProcessFacts::default()
        }
    }
}

/// Counts `/proc/self/fd`, without the descriptor that reads it.
fn open_fds() -> Option<f64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?.count();
    u32::try_from(entries)
        .ok()
        .map(|count| f64::from(count.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 0 9 0 0 0 150 50 0 0 20 0 4 0 99 8192 3 0";
        let facts = ProcessFacts::of_stat(stat, Some(4096.0));
        assert_eq!(facts.cpu_seconds, Some(2.0));
        assert_eq!(facts.threads, Some(4.0));
        assert_eq!(facts.virtual_bytes, Some(8192.0));
        assert_eq!(facts.resident_bytes, Some(12288.0));
        assert_eq!(ProcessFacts::of_stat("", None), ProcessFacts::default());
    }

    #[test]
    fn this_process_knows_all_its_facts() {
        let facts = ProcessFacts::read();
        assert!(
            facts.cpu_seconds.is_some() && facts.threads.is_some(),
            "{facts:?}"
        );
        assert!(facts.resident_bytes > Some(0.0), "{facts:?}");
        assert!(facts.virtual_bytes > facts.resident_bytes, "{facts:?}");
        assert!(facts.open_fds > Some(2.0), "{facts:?}");
        assert!(facts.max_fds > facts.open_fds, "{facts:?}");
    }
}
