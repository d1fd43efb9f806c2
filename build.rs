//! Puts the git revision into the binary. A tarball without git gives "unknown"; packagers may set
//! `DIRKEEPER_REVISION`. Runs again only when a commit is made or checked out.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DIRKEEPER_REVISION");
    // A tarball unpacked inside some other repository must not take that one's revision.
    let ours = git(&["rev-parse", "--show-prefix"]).is_some_and(|prefix| prefix.is_empty())
        && git(&["ls-files", "Cargo.toml"]).is_some_and(|file| !file.is_empty());
    let mut revision = None;
    if ours {
        revision = git(&["rev-parse", "--short=12", "HEAD"]);
        // Gets a line with each commit and checkout, in worktrees too.
        let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
        if let Some(log) = log.filter(|log| Path::new(log).exists()) {
            println!("cargo:rerun-if-changed={log}");
        }
    }
    let given = std::env::var("DIRKEEPER_REVISION").ok();
    let revision = given.or(revision).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=DIRKEEPER_REVISION={revision}");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
