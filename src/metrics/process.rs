//! Facts about the agent's own process, from procfs and the kernel's accounts: no disk is asked.

use std::fs;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::float;

/// Reads the facts again and again; keeps what does not change.
#[derive(Debug)]
pub struct ProcessReader {
    system: Option<(System, Pid)>,
}

impl Default for ProcessReader {
    fn default() -> Self {
        let system = System::new().ok().zip(sysinfo::get_current_pid().ok());
        ProcessReader { system }
    }
}

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

impl ProcessReader {
    /// Reads the facts; less than a tenth of a millisecond.
    #[must_use]
    pub fn read(&mut self) -> ProcessFacts {
        let memory = self.memory();
        ProcessFacts {
            cpu_seconds: cpu_seconds(),
            threads: entries("/proc/self/task").map(f64::from),
            virtual_bytes: memory.map(|(virtual_bytes, _)| virtual_bytes),
            resident_bytes: memory.map(|(_, resident_bytes)| resident_bytes),
            // Without the descriptor that reads it.
            open_fds: entries("/proc/self/fd").map(|count| f64::from(count.saturating_sub(1))),
            max_fds: getrlimit(Resource::RLIMIT_NOFILE)
                .ok()
                .map(|(soft, _hard)| float(soft)),
        }
    }

    /// Virtual and resident memory.
    fn memory(&mut self) -> Option<(f64, f64)> {
        let (system, own) = self.system.as_mut()?;
        // Of this process only, and only its memory: the rest would read the machine's accounts.
        let only = ProcessRefreshKind::nothing().with_memory().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[*own]), false, only);
        let process = system.process(*own)?;
        Some((float(process.virtual_memory()), float(process.memory())))
    }
}

fn cpu_seconds() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Some(float(u64::try_from(micros).ok()?) / 1e6)
}

fn entries(folder: &str) -> Option<u32> {
    u32::try_from(fs::read_dir(folder).ok()?.count()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_knows_all_its_facts() {
        let facts = ProcessReader::default().read();
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
