//! The fault tests: real faults on real file systems, with the built program running as users run it,
//! and the time from the fault to the event. Each test is a row of the table of faults; `CONTRIBUTING.md`
//! says how to run them. They need root, and a mount name space of their own, which they make.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a test runner speaks
#![allow(clippy::unwrap_used)] // a test may

mod agents;
mod ballast;
mod crashes;
mod devices;
mod hangs;
mod harness;
mod mounts;
mod own;
mod returns;
mod space;

use harness::runner::{Fault, report_unprivileged, run};
use harness::stage::{Stage, enter};

/// A test that may run beside others.
const fn fault(name: &'static str, run: fn(&harness::bench::Bench)) -> Fault {
    Fault {
        name,
        run,
        alone: false,
    }
}

/// A test that measures what other load would change.
const fn alone(name: &'static str, run: fn(&harness::bench::Bench)) -> Fault {
    Fault {
        name,
        run,
        alone: true,
    }
}

/// Long ones first, so that none is left running alone at the end.
const FAULTS: &[Fault] = &[
    alone("F02_filled_at_one_gigabyte_a_second", space::filled_fast),
    alone("crashes_lose_no_event", crashes::no_event_is_lost),
    fault("F05_swing_around_full", space::swing_around_full),
    fault("F37_swing_around_warn", space::swing_around_warn),
    fault("F31_500_directories", hangs::many_directories),
    fault("F37_axes_are_independent", devices::axes_are_independent),
    fault(
        "ballast_given_back_and_made_again",
        ballast::given_back_and_made_again,
    ),
    fault(
        "ballast_none_where_none_may_be",
        ballast::none_where_none_may_be,
    ),
    fault("F13_frozen_and_thawed", hangs::frozen_and_thawed),
    fault("F12_device_holds_requests", hangs::device_holds_requests),
    fault("F16_every_sync_is_slow", devices::slow_syncs),
    fault("F23_agent_paused", agents::paused),
    fault("F24_wall_clock_stepped", agents::wall_clock_stepped),
    fault("F28_stop_beside_frozen_dir", hangs::stop_beside_frozen_dir),
    fault("F28_stop_with_frozen_state", hangs::stop_with_frozen_state),
    fault("F28_check_in_a_shell", hangs::check_in_a_shell),
    fault("F29_started_while_frozen", hangs::started_while_frozen),
    fault("F32_left_over_probe_files", agents::left_over_files),
    fault("F32_two_agents_and_checks", agents::two_agents_and_checks),
    fault("F09_device_fails_writes", devices::failing_writes),
    fault("F10_device_fails_reads", devices::failing_reads),
    fault("F11_device_corrupts", devices::corrupting),
    fault("F14_statfs_never_answers", devices::statfs_hangs),
    fault("F15_daemon_killed", devices::daemon_killed),
    fault("F21_quota_exceeded", devices::quota_exceeded),
    fault("F22_size_zero", devices::size_zero),
    fault("F25_prober_killed_ten_times", agents::prober_killed),
    fault("F26_prober_stopped", agents::prober_stopped),
    fault("F27_state_directory_full", agents::state_full),
    fault("F27_state_directory_read_only", agents::state_read_only),
    fault("F27_state_directory_frozen", agents::state_frozen),
    fault("F35_standard_error_is_full", agents::standard_error_full),
    fault("F01_filled_over_warn_then_full", space::filled),
    fault("F03_inodes_used_up", space::inodes_used_up),
    fault("F04_freed_in_steps", space::freed_in_steps),
    fault("F06_freed_below_warn", space::freed_below_warn),
    fault("F07_remounted", mounts::remounted),
    fault("F08_journal_aborted", mounts::journal_aborted),
    fault("F17_mounted_again", returns::mounted_again),
    fault("F17_bind_unmounted", returns::bind_unmounted),
    fault("F17_unmounted", mounts::unmounted),
    fault("F17_unmounted_outside", mounts::unmounted_outside),
    fault("F18_mounted_over", mounts::mounted_over),
    fault("F19_directory_gone_or_another", mounts::directory_gone),
    fault("F34_own_disk_hangs", agents::own_disk_hangs),
    fault("F20_not_permitted", mounts::not_permitted),
    fault(
        "F36_prober_without_descriptors",
        agents::prober_without_descriptors,
    ),
    fault("F30_three_dirs_of_one_disk", space::three_dirs_of_one_disk),
    fault(
        "ballast_killed_while_it_is_made",
        ballast::killed_while_it_is_made,
    ),
    fault("ballast_refused_without", ballast::refused_without),
    fault("unmount_beside_an_idle_agent", mounts::unmount_succeeds),
    fault("harness_sweeps_what_is_left", own::sweeps_what_is_left),
    fault("second_agent_on_one_state", agents::state_locked),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(space::FILL) {
        space::fill_as_another_user(arguments);
        return;
    }
    let code = match enter() {
        Stage::Unprivileged(reason) => report_unprivileged(FAULTS, &reason),
        Stage::Worker(root) => run(FAULTS, &root),
    };
    #[allow(clippy::disallowed_methods)] // a program of its own, not part of the agent
    std::process::exit(code)
}
