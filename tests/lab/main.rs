//! The laboratory as tests: the built program beside real bookies of several versions, on real file systems,
//! in mount and network name spaces of their own. `README.md` says what they need; without `LAB=full`
//! only the short ones run.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a test runner speaks
#![allow(clippy::unwrap_used)] // a test may

mod admin;
mod cluster;
mod drain;
mod floor;
#[allow(dead_code)] // the fault tests use the rest of it
#[path = "../faults/harness/mod.rs"]
mod harness;
mod inside;
mod journal_disk;
mod ledger_disk;
mod odd_modes;
mod one_disk;
mod package;
mod reclaim;
mod reconcile;
mod smoke;
mod stand;

use harness::bench::Settings;
use harness::runner::{Fault, report_unprivileged, run};
use harness::stage::{STAGE, Stage, enter};
use stand::lab::{STANDARD, fetch_jars};

/// Clusters at a time: each has three JVMs and more, and their starts take a whole core.
const JOBS: usize = 2;

const fn test(name: &'static str, run: fn(&harness::bench::Bench)) -> Fault {
    Fault::new(name, run)
}

/// Those of every `cargo test`: together some minutes on two cores.
const SHORT: &[Fault] = &[
    test(
        "zookeeper_keeps_the_contract",
        cluster::zookeeper_keeps_the_contract,
    ),
    test("zookeeper_stands_still", cluster::zookeeper_stands_still),
    test("zookeeper_by_tls", cluster::zookeeper_by_tls),
    test("a_cluster_of_bookies", cluster::a_cluster_of_bookies),
    test("inside_ledgers_4_17_3", inside::ledgers_4_17_3),
    test("held_and_let_go_4_17_3", reconcile::held_and_let_go_4_17_3),
    test("never_told_4_16_5", reconcile::never_told_4_16_5),
    test("bookie_restarts", reconcile::bookie_restarts),
    test("agent_beside_a_bookie", smoke::agent_beside_a_bookie),
    test("admin_calls_4_17_3", admin::calls_4_17_3),
    test(
        "admin_heard_through_a_restart",
        admin::heard_through_a_restart,
    ),
];

/// Those of `LAB=full` and of `scripts/lab`.
const LONG: &[Fault] = &[
    test("inside_ledgers_4_14_7", inside::ledgers_4_14_7),
    test("inside_ledgers_db", inside::ledgers_db),
    test("admin_calls_4_14_7", admin::calls_4_14_7),
    test("admin_calls_4_16_6", admin::calls_4_16_6),
    test("admin_calls_4_18_0", admin::calls_4_18_0),
    test("admin_read_only_is_disabled", admin::read_only_is_disabled),
    test(
        "admin_https_with_client_certificate",
        admin::https_with_client_certificate,
    ),
    test(
        "admin_hangs_without_zookeeper",
        admin::hangs_without_zookeeper,
    ),
    test("held_and_let_go_4_14_7", reconcile::held_and_let_go_4_14_7),
    test("held_and_let_go_4_16_6", reconcile::held_and_let_go_4_16_6),
    test("held_and_let_go_4_18_0", reconcile::held_and_let_go_4_18_0),
    test("never_told_4_14_7", reconcile::never_told_4_14_7),
    test(
        "started_without_read_only_4_16_5",
        reconcile::started_without_read_only_4_16_5,
    ),
    test(
        "started_without_read_only_4_17_3",
        reconcile::started_without_read_only_4_17_3,
    ),
    test(
        "agent_killed_at_any_moment",
        reconcile::agent_killed_at_any_moment,
    ),
    test("state_is_lost", reconcile::state_is_lost),
    test("enforce_to_observe", reconcile::enforce_to_observe),
    test(
        "operator_after_the_agent",
        reconcile::operator_after_the_agent,
    ),
    test(
        "agent_after_the_operator",
        reconcile::agent_after_the_operator,
    ),
    test("raw_puts", reconcile::raw_puts),
    test(
        "raw_put_against_the_agent",
        reconcile::raw_put_against_the_agent,
    ),
    test("admin_is_away", reconcile::admin_is_away),
    test(
        "agent_starts_without_zookeeper",
        reconcile::agent_starts_without_zookeeper,
    ),
    test(
        "bookie_recovers_by_itself",
        reconcile::bookie_recovers_by_itself,
    ),
    test("may_stop", reconcile::may_stop),
    test("two_agents", reconcile::two_agents),
    test("state_takes_nothing", reconcile::state_takes_nothing),
    test("package_removed", package::package_removed),
    test("zookeeper_is_away", reconcile::zookeeper_is_away),
    test(
        "persisted_by_the_disks_4_16_6",
        odd_modes::persisted_by_the_disks_4_16_6,
    ),
    test(
        "persisted_by_the_disks_4_17_3",
        odd_modes::persisted_by_the_disks_4_17_3,
    ),
    test(
        "persisted_by_the_disks_4_18_0",
        odd_modes::persisted_by_the_disks_4_18_0,
    ),
    test(
        "persisted_by_hand_4_17_3",
        odd_modes::persisted_by_hand_4_17_3,
    ),
    test(
        "persisted_by_hand_4_18_0",
        odd_modes::persisted_by_hand_4_18_0,
    ),
    test("persisted_claim", odd_modes::persisted_claim),
    test("a_flush_fails_4_17_3", odd_modes::a_flush_fails_4_17_3),
    test("a_flush_fails_4_18_0", odd_modes::a_flush_fails_4_18_0),
    test("registered_nowhere", odd_modes::registered_nowhere),
    test("registered_twice", odd_modes::registered_twice),
    test(
        "registered_in_the_other_list",
        odd_modes::registered_in_the_other_list,
    ),
    test(
        "another_is_registered_wrongly",
        odd_modes::another_is_registered_wrongly,
    ),
    test("six_at_once", floor::six_at_once),
    test("journals_one_at_a_time", floor::journals_one_at_a_time),
    test("ledger_disk_alone", ledger_disk::alone),
    test("ledger_disk_enforced", ledger_disk::enforced),
    test("journal_another_sorted", journal_disk::another_file_sorted),
    test("journal_another_db", journal_disk::another_file_db),
    test("journal_own_sorted", journal_disk::own_journal_sorted),
    test("journal_own_db", journal_disk::own_journal_db),
    test(
        "journal_another_sorted_enforced",
        journal_disk::another_file_sorted_enforced,
    ),
    test(
        "journal_another_db_enforced",
        journal_disk::another_file_db_enforced,
    ),
    test(
        "journal_own_sorted_enforced",
        journal_disk::own_journal_sorted_enforced,
    ),
    test(
        "journal_own_db_enforced",
        journal_disk::own_journal_db_enforced,
    ),
    test("given_up", one_disk::given_up),
    test("given_up_persisted", one_disk::given_up_persisted),
    test("given_up_observed", one_disk::given_up_observed),
    test(
        "given_up_persisted_observed",
        one_disk::given_up_persisted_observed,
    ),
    test("held", one_disk::held),
    test("held_put", one_disk::held_put),
    test("held_put_persisted", one_disk::held_put_persisted),
    test("held_persisted", one_disk::held_persisted),
    test("held_observed", one_disk::held_observed),
    test("held_persisted_observed", one_disk::held_persisted_observed),
    test(
        "reclaim_exactly_the_leaked",
        reclaim::leaked::exactly_the_leaked,
    ),
    test("reclaim_broker_killed", reclaim::killed::broker_killed),
    test("reclaim_expired_topics", reclaim::expired::expired_topics),
    test("reclaim_two_clusters", reclaim::clusters::two_clusters),
    test("reclaim_killed_anywhere", reclaim::crashed::killed_anywhere),
    test("reclaim_refused", reclaim::refused::refused),
    test("drain_two_at_once", drain::batch::two_at_once),
    test(
        "drain_readers_are_waited_for",
        drain::batch::readers_are_waited_for,
    ),
    test("drain_racks_are_kept", drain::batch::racks_are_kept),
    test("drain_killed_anywhere", drain::faults::killed_anywhere),
    test("drain_target_killed", drain::faults::target_killed),
    test("drain_source_restarts", drain::faults::source_restarts),
    test(
        "drain_beside_auto_recovery",
        drain::faults::beside_auto_recovery,
    ),
    test("drain_zookeeper_away", drain::faults::zookeeper_away),
];

/// What all tests run: the newest of each line, and one that a PUT may end.
const VERSIONS: &[&str] = &[STANDARD, "4.14.7", "4.16.5", "4.16.6", "4.18.0"];

/// What the short ones run: each is a hundred megabytes to be fetched once.
const SHORT_VERSIONS: &[&str] = &[STANDARD, "4.16.5"];

/// Name spaces of the tests: bookies of 4.14 listen on every address.
const SPACES: &[&str] = &["--mount", "--net"];

fn main() {
    let full = std::env::var("LAB").as_deref() == Ok("full");
    let tests = if full {
        [SHORT, LONG].concat()
    } else {
        SHORT.to_vec()
    };
    let versions = if full { VERSIONS } else { SHORT_VERSIONS };
    let code = match prepared(versions).map(|()| enter(SPACES)) {
        Err(reason) | Ok(Stage::Unprivileged(reason)) => report_unprivileged(&tests, &reason),
        Ok(Stage::Worker(root)) => {
            let jobs = std::env::var("LAB_JOBS").ok();
            let mut settings = Settings::from_environment();
            settings.jobs = jobs.and_then(|jobs| jobs.parse().ok()).unwrap_or(JOBS);
            harness::run::tool("ip", ["link", "set", "lo", "up"]);
            run(&tests, &root, &settings)
        }
    };
    #[allow(clippy::disallowed_methods)] // a program of its own, not part of the agent
    std::process::exit(code)
}

/// The jars are there, or it is said why not; later stages have no network.
fn prepared(versions: &[&str]) -> Result<(), String> {
    if std::env::var_os(STAGE).is_some() || !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    fetch_jars(versions)?;
    stand::pulsar::fetch_jars()
}
