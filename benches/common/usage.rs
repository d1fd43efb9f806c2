//! What this process took.

/// Megabytes that this process had at its peak.
pub(crate) fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("our own status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kilobytes.expect("the peak is there") / 1000.0
}

/// Seconds of CPU that this process took.
pub(crate) fn cpu() -> f64 {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("our own usage");
    let seconds = |time: nix::sys::time::TimeVal| {
        std::time::Duration::new(
            u64::try_from(time.tv_sec()).unwrap_or(0),
            u32::try_from(time.tv_usec()).unwrap_or(0) * 1000,
        )
        .as_secs_f64()
    };
    seconds(usage.user_time()) + seconds(usage.system_time())
}
