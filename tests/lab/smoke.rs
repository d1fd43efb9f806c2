//! The laboratory itself: an agent beside a real bookie.

use std::process::Command;
use std::time::Duration;

use crate::harness::bench::Bench;
use crate::harness::run::{text, try_command};
use crate::stand::lab::{Mode, Setup};

/// The agent takes directories, thresholds and admin address from the bookie's own file.
pub(crate) fn agent_beside_a_bookie(bench: &Bench) {
    let lab = Setup::new(bench).up();
    let bookie = lab.bookie(1);
    let agent = lab.agent(bench, 1, "").start();
    let status = agent.status().expect("the agent answers");
    let mut seen: Vec<(String, String)> = Vec::new();
    for dir in status["dirs"].as_array().expect("there are directories") {
        let word = |key: &str| dir[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(word("status"), "writable", "{dir}");
        seen.push((word("role"), word("path")));
    }
    seen.sort();
    let wanted = [
        ("index", "index1"),
        ("index", "index2"),
        ("journal", "journal"),
        ("ledger", "ledger1"),
        ("ledger", "ledger2"),
    ];
    let wanted = wanted.map(|(role, name)| (role.to_owned(), text(&bookie.dir(name)).to_owned()));
    assert_eq!(seen, wanted);
    let mut show = Command::new(bench.program());
    let config = bench.folder().join("agent1.toml");
    show.args(["config", "show", "--config", text(&config)]);
    let shown = try_command(show, Duration::from_secs(10)).unwrap();
    let admin = format!("admin_url = \"http://127.0.0.1:{}\"", bookie.admin_port());
    assert!(shown.contains(&admin), "{admin} is not in:\n{shown}");
    assert_eq!(bookie.mode(), Mode::Writable);
    assert_eq!(bookie.registered(), Some("available"));
}
