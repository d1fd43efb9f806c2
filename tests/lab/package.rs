//! What the Debian package does before it goes, with an agent that holds a real bookie.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use crate::harness::bench::Bench;
use crate::harness::run::{outcome, text};
use crate::stand::lab::{Mode, STANDARD};
use crate::stand::pair::{LEAVE, Pair};

const PRERM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/debian/prerm");

/// Where the disks have room again the bookie is let go before the package is; where they do not, that is told.
pub(crate) fn package_removed(bench: &Bench) {
    let pair = Pair::new(bench, STANDARD, &[]);
    let file = bench.folder().join("agent1.toml");
    let before = fs::read_to_string(&file).expect("the agent was started with it");
    pair.fill();
    pair.is_held();

    let told = prerm(bench, "5");
    assert!(told.contains("still holds its bookie"), "{told}");
    assert_eq!(fs::read_to_string(&file).ok().as_ref(), Some(&before));
    assert_eq!(pair.bookie().mode(), Mode::ReadOnly);

    pair.free();
    let told = prerm(bench, "120");
    assert!(!told.contains("still holds"), "{told}");
    assert_eq!(pair.bookie().mode(), Mode::Writable);
    assert_eq!(pair.bookie().registered(), Some("available"));
    assert_eq!(pair.claims(), Vec::<String>::new());
    assert_eq!(fs::read_to_string(&file).ok().as_ref(), Some(&before));
}

/// What the script says when the package is removed; nobody stops the agent afterwards here.
fn prerm(bench: &Bench, seconds: &str) -> String {
    let programs = bench.folder().join("programs");
    if !programs.exists() {
        fs::create_dir(&programs).expect("the folder is ours");
        symlink(bench.program(), programs.join("dirkeeper")).expect("the folder is ours");
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command
        .args([PRERM, "remove"])
        .env("PATH", format!("{}:{path}", text(&programs)))
        .env("DIRKEEPER_CONFIG_DIR", bench.folder())
        .env("DIRKEEPER_RELEASE_SECONDS", seconds);
    let (status, output, errors) =
        outcome(command, LEAVE + Duration::from_secs(5)).expect("it ends");
    assert!(status.success(), "{status}: {output}{errors}");
    output + &errors
}
