//! The fault tests: real faults on real file systems, with the built program running as users run it,
//! and the time from the fault to the event. Each test is a row of the table of faults; `CONTRIBUTING.md`
//! says how to run them. They need root, and a mount name space of their own, which they make.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a test runner speaks
#![allow(clippy::unwrap_used)] // a test may

mod agents;
mod ballast;
mod crashes;
mod devices;
mod guards;
mod hangs;
mod harness;
mod mounts;
mod own;
mod quota;
mod returns;
mod soak;
mod space;
mod state_dir;
mod wants;

use harness::bench::Settings;
use harness::runner::{Company, Fault, report_unprivileged, run};
use harness::stage::{Stage, enter};

/// A test that may run beside any other.
const fn fault(name: &'static str, run: fn(&harness::bench::Bench)) -> Fault {
    Fault::new(name, run)
}

/// A test that measures what other load would change.
const fn alone(name: &'static str, run: fn(&harness::bench::Bench)) -> Fault {
    Fault::new(name, run).beside(Company::Nobody)
}

/// A test with a limit, or a room between two limits, of a second or less.
const fn quiet(name: &'static str, run: fn(&harness::bench::Bench)) -> Fault {
    Fault::new(name, run).beside(Company::Quiet)
}

const NO_INODES: (&str, &str) = ("btrfs", "btrfs has no fixed number of inodes");
const BTRFS_ONLY: &[(&str, &str)] = &[
    ("ext4", "this kernel has no quota for ext4"),
    ("xfs", "this kernel has no quota for xfs"),
];

/// Long ones first, so that none is left running alone at the end.
const FAULTS: &[Fault] = &[
    alone("F02_filled_at_one_gigabyte_a_second", space::filled_fast).on_each_kind(),
    alone("crashes_lose_no_event", crashes::no_event_is_lost).once(),
    alone("soak", soak::no_false_verdict).once(),
    fault("F14_statfs_never_answers", devices::statfs_hangs).beside(Company::NobodyWhoAsks),
    quiet("F17_unmounted", mounts::unmounted).on_each_kind(),
    quiet("F17_unmounted_outside", mounts::unmounted_outside),
    quiet("F18_mounted_over", mounts::mounted_over).on_each_kind(),
    quiet("F12_device_holds_requests", hangs::device_holds_requests).on_each_kind(),
    quiet(
        "F12_device_holds_a_request_of_another",
        hangs::device_holds_a_request_of_another,
    ),
    quiet(
        "F12_device_under_a_partition",
        hangs::device_under_a_partition,
    ),
    quiet("F07_remounted", mounts::remounted).on_each_kind(),
    quiet("F08_given_up_by_the_kernel", mounts::given_up).on_each_kind(),
    quiet("F08_given_up_without_privilege", mounts::given_up_unheard),
    quiet("F25_prober_killed_ten_times", agents::prober_killed),
    quiet("F26_prober_stopped", agents::prober_stopped),
    quiet("F27_state_directory_full", state_dir::full),
    quiet("F27_state_directory_becomes_full", state_dir::becomes_full),
    quiet("F27_state_directory_read_only", state_dir::read_only),
    quiet(
        "F27_state_directory_becomes_read_only",
        state_dir::becomes_read_only,
    ),
    quiet("F27_state_directory_frozen", state_dir::frozen),
    quiet("F01_filled_over_warn_then_full", space::filled),
    quiet("F03_inodes_used_up", space::inodes_used_up)
        .on_each_kind()
        .but_not_on(&[NO_INODES]),
    quiet("F04_freed_in_steps", space::freed_in_steps),
    quiet("F06_freed_below_warn", space::freed_below_warn),
    quiet("F19_directory_gone_or_another", mounts::directory_gone),
    quiet("F36_prober_without_descriptors", wants::without_descriptors),
    quiet("F30_three_dirs_of_one_disk", space::three_dirs_of_one_disk).on_each_kind(),
    fault("F16_every_sync_is_slow", devices::slow_syncs),
    fault("F16_one_of_six_is_slow", devices::one_of_six_is_slow),
    fault("F05_swing_around_full", space::swing_around_full),
    fault("F37_swing_around_warn", space::swing_around_warn),
    fault("F31_500_directories", hangs::many_directories),
    fault("F37_axes_are_independent", devices::axes_are_independent),
    fault(
        "ballast_given_back_and_made_again",
        ballast::given_back_and_made_again,
    )
    .on_each_kind(),
    fault(
        "ballast_none_where_none_may_be",
        ballast::none_where_none_may_be,
    ),
    fault("F13_frozen_and_thawed", hangs::frozen_and_thawed).on_each_kind(),
    fault("F23_agent_paused", agents::paused),
    fault("F24_wall_clock_stepped", agents::wall_clock_stepped),
    fault("F28_stop_beside_frozen_dir", hangs::stop_beside_frozen_dir),
    fault("F28_stop_with_frozen_state", hangs::stop_with_frozen_state),
    fault("F28_check_in_a_shell", hangs::check_in_a_shell),
    fault(
        "F28_stop_beside_held_device",
        hangs::stop_beside_held_device,
    ),
    fault("F28_check_of_a_held_device", hangs::check_of_held_device),
    fault("F29_started_while_frozen", hangs::started_while_frozen),
    fault("F32_left_over_probe_files", agents::left_over_files),
    fault("F32_left_at_thaw", agents::left_at_thaw),
    fault("F32_two_agents_and_checks", agents::two_agents_and_checks),
    fault("F09_device_fails_writes", devices::failing_writes).on_each_kind(),
    fault("F10_device_fails_reads", devices::failing_reads).on_each_kind(),
    fault("F11_device_corrupts", devices::corrupting).on_each_kind(),
    fault("F15_daemon_killed", devices::daemon_killed),
    fault("F21_quota_refused_by_fuse", devices::quota_exceeded),
    fault("F21_quota_of_the_file_system", quota::qgroup_limit)
        .on_each_kind()
        .but_not_on(BTRFS_ONLY),
    fault("F22_size_zero", devices::size_zero),
    fault("F35_standard_error_is_full", agents::standard_error_full),
    fault("F17_mounted_again", returns::mounted_again).on_each_kind(),
    fault("F17_bind_unmounted", returns::bind_unmounted),
    fault("F18_accepted", returns::accepted).on_each_kind(),
    fault("F34_own_disk_hangs", agents::own_disk_hangs),
    fault(
        "require_mount_not_mounted_at_the_start",
        guards::not_mounted_at_the_start,
    ),
    fault(
        "restart_would_fail_by_the_reserves",
        guards::full_bookie_would_not_start,
    ),
    fault("explain_bad_disks", guards::bad_disks_are_explained).once(),
    fault(
        "config_check_of_a_silent_journal",
        guards::silent_journal_is_a_remark,
    )
    .beside(Company::NobodyWhoAsks)
    .once(),
    fault("F20_not_permitted", mounts::not_permitted),
    fault("F36_prober_without_memory", wants::without_memory),
    fault(
        "F36_only_the_agent_is_refused",
        wants::only_the_agent_is_refused,
    ),
    fault(
        "ballast_killed_while_it_is_made",
        ballast::killed_while_it_is_made,
    )
    .once(),
    fault("ballast_refused_without", ballast::refused_without).once(),
    fault("unmount_beside_an_idle_agent", mounts::unmount_succeeds)
        .on_each_kind()
        .once(),
    fault("harness_sweeps_what_is_left", own::sweeps_what_is_left).once(),
    fault("harness_cleans_when_killed", own::cleans_when_killed).once(),
    fault("soak_judge_finds_false_verdicts", soak::judge_finds).once(),
    fault("soak_judge_knows_outliers", soak::judge_knows_outliers).once(),
    fault("second_agent_on_one_state", agents::state_locked).once(),
];

/// What a run of this program runs that is started to be killed.
const VICTIMS: &[Fault] = &[fault("victim", own::waits_for_its_end)];

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(space::FILL) {
        space::fill_as_another_user(arguments);
        return;
    }
    let faults = if own::is_victim() { VICTIMS } else { FAULTS };
    let code = match enter(&["--mount"]) {
        Stage::Unprivileged(reason) => report_unprivileged(faults, &reason),
        Stage::Worker(root) => run(faults, &root, &Settings::from_environment()),
    };
    #[allow(clippy::disallowed_methods)] // a program of its own, not part of the agent
    std::process::exit(code)
}
