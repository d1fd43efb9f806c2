//! The repository as `tidy.rs` sees it: its files, their lines, links and changelog, and the packages
//! it is built from.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::source::Source;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder, in order.
pub(crate) fn rust(folder: &str) -> Vec<Source> {
    let mut files = files_below(Path::new(folder));
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files
        .iter()
        .map(|file| Source::read(root(), file))
        .collect()
}

pub(crate) fn rust_everywhere() -> Vec<Source> {
    ["src", "tests", "benches", "examples"]
        .into_iter()
        .flat_map(rust)
        .collect()
}

/// Files below a folder, relative to the root, without what is built and what git keeps.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root().join(folder)) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for entry in entries.map(Result::unwrap) {
        let path = folder.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && path != Path::new("target") && path != Path::new(".git") {
            files.extend(files_below(&path));
        } else if kind.is_file() {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Lines, in any text file but the lock file and generated pictures of data, that hold a word.
pub(crate) fn lines_with(words: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files_below(Path::new("")) {
        // Names the registry in each entry, by Cargo's own choice.
        if file == Path::new("Cargo.lock") || file == Path::new(".git") {
            continue;
        }
        let Ok(text) = fs::read_to_string(root().join(&file)) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(word.as_str())) {
                found.push(format!("{}:{}: {word}", file.display(), number + 1));
            }
        }
    }
    found
}

/// Links of Markdown files to a file or heading that does not exist. Other sites are not asked.
pub(crate) fn dead_links() -> Vec<String> {
    let mut dead = Vec::new();
    let mut files = files_below(Path::new(""));
    files.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    for file in files {
        let text = fs::read_to_string(root().join(&file)).unwrap();
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let folder = file.parent().unwrap_or(Path::new(""));
            let target = if target.is_empty() {
                file.clone()
            } else {
                folder.join(target)
            };
            let found = match fs::read_to_string(root().join(&target)) {
                Ok(text) => anchor.is_empty() || headings(&text).contains(anchor),
                Err(_) => anchor.is_empty() && root().join(&target).exists(),
            };
            if !found {
                dead.push(format!("{}: {link}", file.display()));
            }
        }
    }
    dead
}

/// Targets of `[text](target)` outside code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let mut rest = line.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let end = rest.find(')').unwrap_or(rest.len());
            let target = rest[..end].split_whitespace().next().unwrap_or_default();
            found.push(target.to_owned());
        }
    }
    found
}

/// Lines outside fenced code, without their `code`.
fn prose(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let parts = line.split('`').step_by(2);
            lines.push(parts.collect::<Vec<&str>>().join(""));
        }
    }
    lines
}

/// The anchors that a page's headings get.
fn headings(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if !fenced && line.starts_with('#') {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            anchors.insert(kept.collect::<String>().replace(' ', "-"));
        }
    }
    anchors
}

/// What is wrong with the form of the changelog.
pub(crate) fn changelog_faults() -> Vec<String> {
    const SECTIONS: [&str; 6] = [
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    ];
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let mut faults = Vec::new();
    let mut entry: Option<(usize, String)> = None;
    let lines = text
        .lines()
        .enumerate()
        .skip_while(|(_, line)| !line.starts_with("## "));
    for (at, line) in lines.chain([(0, "")]) {
        let continued = line.starts_with("  ");
        if !continued
            && let Some((at, text)) = entry.take()
            && !text.ends_with('.')
        {
            faults.push(format!("CHANGELOG.md:{}: no full stop at the end", at + 1));
        }
        let good = if let Some(version) = line.strip_prefix("## ") {
            version == "Unreleased" || is_release(version)
        } else if let Some(section) = line.strip_prefix("### ") {
            SECTIONS.contains(&section)
        } else if let Some(text) = line.strip_prefix("- ") {
            entry = Some((at, text.to_owned()));
            text.starts_with(|c: char| c.is_uppercase() || c == '`')
        } else if continued {
            if let Some((_, text)) = &mut entry {
                text.push_str(line);
            }
            true
        } else {
            line.is_empty()
        };
        if !good {
            faults.push(format!("CHANGELOG.md:{}: {line}", at + 1));
        }
    }
    faults
}

/// `1.2.3 - 2026-01-31`
fn is_release(text: &str) -> bool {
    let numbers = |text: &str, mark: char, count: usize| {
        let parts: Vec<&str> = text.split(mark).collect();
        parts.len() == count && parts.iter().all(|part| part.parse::<u32>().is_ok())
    };
    text.split_once(" - ")
        .is_some_and(|(version, date)| numbers(version, '.', 3) && numbers(date, '-', 3))
}

/// Packages of the program on Linux whose licence or source `deny.toml` does not allow.
pub(crate) fn forbidden_packages() -> Vec<String> {
    let policy = fs::read_to_string(root().join("deny.toml")).unwrap();
    let policy: toml::Table = policy.parse().unwrap();
    let allowed: BTreeSet<&str> = policy["licenses"]["allow"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(toml::Value::as_str)
        .collect();
    let banned: BTreeSet<&str> = policy["bans"]["deny"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|ban| ban["name"].as_str())
        .collect();
    let mut forbidden = Vec::new();
    for package in packages() {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let name = text("name");
        if !licence_is_allowed(text("license"), &allowed) {
            forbidden.push(format!("{name}: licence {}", text("license")));
        }
        if banned.contains(name) {
            forbidden.push(format!("{name}: banned"));
        }
        let own = package["source"].is_null() && name == env!("CARGO_PKG_NAME");
        if !own && !text("source").starts_with("registry+") {
            forbidden.push(format!("{name}: not from a registry"));
        }
    }
    forbidden
}

fn packages() -> Vec<serde_json::Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().clone();
    assert!(packages.len() > 1, "no packages at all");
    packages
}

/// Judges an SPDX expression, and the older form with a slash for OR.
fn licence_is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let verdict = any_of(&words, &mut at, allowed);
    verdict && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut verdict = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        verdict |= all_of(words, at, allowed);
    }
    verdict
}

fn all_of(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut verdict = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        verdict &= one(words, at, allowed);
    }
    verdict
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let first = words.get(*at).copied().unwrap_or_default();
    *at += 1;
    if first == "(" {
        let verdict = any_of(words, at, allowed);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return verdict && closed;
    }
    if words.get(*at) == Some(&"WITH") {
        let name = format!("{first} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
        return allowed.contains(name.as_str());
    }
    allowed.contains(first)
}

#[test]
fn licence_expressions_are_judged_as_they_read() {
    let allowed = BTreeSet::from(["MIT", "ISC"]);
    assert!(licence_is_allowed("MIT OR GPL-3.0", &allowed));
    assert!(licence_is_allowed("GPL-3.0/MIT", &allowed));
    assert!(licence_is_allowed("(GPL-3.0 OR MIT) AND ISC", &allowed));
    assert!(!licence_is_allowed("MIT AND GPL-3.0", &allowed));
    assert!(!licence_is_allowed(
        "Apache-2.0 WITH LLVM-exception",
        &allowed
    ));
    assert!(!licence_is_allowed("", &allowed));
}
