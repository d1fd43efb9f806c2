//! The exposition as a whole, its documentation, and what Prometheus' own checker says.

use std::io::Write;
use std::process::{Command, Stdio};

use super::*;
use crate::document::sample;
use crate::health::beside::BesideView;
use crate::health::snapshot::ModeView;

fn exposition(snapshot: &Snapshot) -> String {
    let process = ProcessFacts {
        cpu_seconds: Some(1.25),
        threads: Some(5.0),
        virtual_bytes: Some(1e8),
        resident_bytes: Some(5e6),
        open_fds: Some(17.0),
        max_fds: Some(1024.0),
    };
    let mut text = String::new();
    render(
        snapshot,
        &sample::self_view(),
        &sample::about(),
        &process,
        &mut text,
    );
    text
}

#[test]
fn the_exposition_is_complete_and_escaped() {
    insta::assert_snapshot!("exposition", exposition(&sample::snapshot()));
}

#[test]
fn nothing_unknown_is_shown_as_a_number() {
    let mut snapshot = sample::snapshot();
    snapshot.dirs = vec![sample::unknown_dir(0, "/mnt/l", crate::health::dir::Role::Ledger).into()];
    let text = exposition(&snapshot);
    let shown: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("dir=") && !line.ends_with(" 0"))
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    dirkeeper_dir_status{dir="/mnt/l",role="ledger",status="unknown"} 1
    dirkeeper_dir_status_since_timestamp_seconds{dir="/mnt/l",role="ledger"} 1796000463.456
    dirkeeper_dir_threshold_ratio{dir="/mnt/l",role="ledger",threshold="warn"} 0.9
    dirkeeper_dir_threshold_ratio{dir="/mnt/l",role="ledger",threshold="full"} 0.95
    dirkeeper_dir_threshold_ratio{dir="/mnt/l",role="ledger",threshold="low_watermark"} 0.9
    "#);
}

#[test]
fn nothing_unknown_about_bookie_and_cluster_is_shown_and_every_owner_is() {
    let mut snapshot = sample::snapshot();
    snapshot.mode = ModeView::default();
    snapshot.beside = BesideView::default();
    let text = exposition(&snapshot);
    let names = [
        "mode_claim",
        "mode_held",
        "high_priority_writes",
        "bookie",
        "zookeeper",
    ];
    let shown: Vec<&str> = text
        .lines()
        .filter(|line| {
            let name = line.strip_prefix("dirkeeper_");
            name.is_some_and(|name| names.iter().any(|begin| name.starts_with(begin)))
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    dirkeeper_high_priority_writes{kind="wanted"} 0
    dirkeeper_mode_claim{owner="agent"} 0
    dirkeeper_mode_claim{owner="operator"} 0
    dirkeeper_mode_claim{owner="drain"} 0
    dirkeeper_mode_claim{owner="bookie"} 0
    dirkeeper_mode_held 0
    "#);
}

#[test]
fn a_directory_that_left_leaves_no_series() {
    let mut snapshot = sample::snapshot();
    assert!(exposition(&snapshot).contains("journal one"));
    snapshot.dirs.clear();
    assert!(!exposition(&snapshot).contains("dir="));
}

#[test]
fn the_reference_in_docs_is_up_to_date() {
    crate::generated::check("docs/metrics.md", &reference());
}

/// Skipped where `promtool` is not installed; the test script installs it.
#[test]
fn promtool_has_nothing_to_say() {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        return;
    };
    let text = exposition(&sample::snapshot());
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&said), "");
    assert!(output.status.success());
}

#[test]
fn of_very_many_racks_only_the_whole_cluster_has_series() {
    let mut snapshot = sample::snapshot();
    let cluster = snapshot.beside.cluster.as_mut().unwrap();
    let member = cluster.members[1].clone();
    cluster.members = (0..65)
        .map(|rack| crate::health::beside::Member {
            rack: Some(format!("/r{rack}")),
            ..member.clone()
        })
        .collect();
    let text = exposition(&snapshot);
    let lines = text.lines();
    let shown: Vec<&str> = lines
        .filter(|line| line.starts_with("dirkeeper_cluster_bookies"))
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    dirkeeper_cluster_bookies{state="writable",rack=""} 65
    dirkeeper_cluster_bookies{state="readOnly",rack=""} 0
    dirkeeper_cluster_bookies{state="overWarn",rack=""} 0
    "#);
}
