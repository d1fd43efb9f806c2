//! The house rules that a compiler does not know: which room may use which, what is pure, who may
//! read a clock or end the process, how long a file is, how a changelog looks, where links lead. Each
//! rule lists everything that breaks it, with the reason for the rule.

#![allow(clippy::unwrap_used)] // a test may: what it unwraps is its own

#[path = "tidy/house.rs"]
mod house;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/tree.rs"]
mod tree;

use std::collections::BTreeMap;
use std::path::Path;

use house::{
    ARROWS, COMMENT_LINES, FILE_LINES, FILE_SYSTEM, FUNCTION_LINES, IMPURE, LEAVES,
    MAY_READ_CLOCKS, MAY_SLEEP, MAY_USE_FILES, NO_FILE_SYSTEM, PAGE, PURE,
};
use source::Source;

fn check(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

/// The top-level module that a file of `src` belongs to.
fn room(path: &Path) -> Option<String> {
    let first = path.strip_prefix("src").ok()?.components().next()?;
    let name = first.as_os_str().to_str()?;
    Some(name.strip_suffix(".rs").unwrap_or(name).to_owned())
}

/// What a file of `src` says of other rooms, `super::` chains that reach the root included.
fn uses(source: &Source, rooms: &[String]) -> Vec<(usize, String)> {
    let depth = source.path.components().count() - 1;
    let mut found = Vec::new();
    for path in source.paths_with_tests() {
        let supers = path
            .segments
            .iter()
            .take_while(|word| *word == "super")
            .count();
        let rest = match path.segments[0].as_str() {
            "crate" => &path.segments[1..],
            "super" if supers >= depth => &path.segments[supers..],
            _ => continue,
        };
        if rest.first().is_some_and(|first| rooms.contains(first)) {
            found.push((path.line + 1, rest.join("::")));
        }
    }
    found
}

#[test]
fn arrows_between_rooms_are_as_drawn() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().chain(LEAVES).copied().collect();
    let leaf = |name: &str| LEAVES.iter().any(|(leaf, _)| *leaf == name);
    let sources = tree::rust("src");
    let rooms: Vec<String> = sources
        .iter()
        .filter_map(|source| room(&source.path))
        .collect();
    let mut broken = Vec::new();
    for source in &sources {
        let room = room(&source.path).unwrap();
        if room == "lib" || room == "main" {
            continue;
        }
        let Some(allowed) = arrows.get(room.as_str()) else {
            broken.push(format!(
                "{}: no room of that name is drawn",
                source.path.display()
            ));
            continue;
        };
        for (line, used) in uses(source, &rooms) {
            let target = used.split("::").next().unwrap_or_default();
            let drawn = allowed.iter().any(|arrow| match *arrow {
                "*" => target != "cli" && target != "app",
                arrow => used == arrow || used.starts_with(&format!("{arrow}::")),
            });
            let to_leaf = leaf(target) && room != "health" && !leaf(&room);
            if target != room && !drawn && !to_leaf {
                broken.push(format!(
                    "{}:{line}: {room} uses {used}",
                    source.path.display()
                ));
            }
        }
    }
    check(
        "rooms use only what is drawn for them (ARCHITECTURE.md, \"Rooms\")",
        &broken,
    );
}

/// Lines of `src`, without tests, that name one of these, outside the files that may.
fn named_outside(names: &[&str], may: &[(&str, &str)]) -> Vec<String> {
    let mut broken = Vec::new();
    for source in tree::rust("src") {
        if may
            .iter()
            .any(|(place, _)| source.path.starts_with_text(place))
        {
            continue;
        }
        for path in source.paths() {
            let harmless = NO_FILE_SYSTEM.iter().any(|name| path.is_in(name));
            if let Some(name) = names.iter().find(|name| path.is_in(name) && !harmless) {
                broken.push(format!(
                    "{}:{}: {name}",
                    source.path.display(),
                    path.line + 1
                ));
            }
        }
    }
    broken
}

/// Prefixes of paths as text, so that `src/state/writer` is the file and the folder.
trait StartsWithText {
    fn starts_with_text(&self, prefix: &str) -> bool;
}

impl StartsWithText for Path {
    fn starts_with_text(&self, prefix: &str) -> bool {
        self.to_str().is_some_and(|text| text.starts_with(prefix))
    }
}

#[test]
fn decisions_are_pure() {
    let mut broken = Vec::new();
    for source in tree::rust("src") {
        if !PURE.iter().any(|place| source.path.starts_with_text(place)) {
            continue;
        }
        for path in source.paths() {
            let plain = path.segments[0] == "crate" || path.segments[0] == "super";
            if !plain && IMPURE.iter().any(|name| path.is_in(name)) {
                let line = path.line + 1;
                broken.push(format!("{}:{line}: {}", source.path.display(), path.text()));
            }
        }
    }
    check(
        "what decides uses nothing of the world; hand it a value instead",
        &broken,
    );
}

#[test]
fn watched_paths_are_touched_by_the_prober_only() {
    let broken = named_outside(FILE_SYSTEM, MAY_USE_FILES);
    check(
        "a file-system call may never return: it belongs into a child",
        &broken,
    );
}

#[test]
fn clocks_are_read_in_one_place_and_nothing_sleeps() {
    let mut broken = Vec::new();
    for source in tree::rust("src").into_iter().chain(tree::rust("tests")) {
        let is_in = |places: &[(&str, &str)]| {
            let mut places = places.iter();
            places.any(|(place, _)| source.path.starts_with_text(place))
        };
        let (clock, may_sleep) = (is_in(MAY_READ_CLOCKS), is_in(MAY_SLEEP));
        for path in source.paths_with_tests() {
            let mut tail = path.segments.iter().rev().map(String::as_str);
            let last = (
                tail.next().unwrap_or_default(),
                tail.next().unwrap_or_default(),
            );
            let bad = match last {
                ("now", "Instant" | "SystemTime" | "UtcDateTime" | "Utc" | "Local") => !clock,
                ("sleep" | "sleep_ms", "thread") => true,
                ("sleep" | "sleep_until", "time" | "tokio") => !may_sleep,
                _ => false,
            };
            if bad {
                let line = path.line + 1;
                broken.push(format!("{}:{line}: {}", source.path.display(), path.text()));
            }
        }
    }
    check(
        "take a Clock or a Moment, and wait for a condition with a deadline",
        &broken,
    );
}

#[test]
fn errors_are_typed_below_the_composition() {
    let may = [
        ("src/app", "composition"),
        ("src/cli/", "commands"),
        ("src/main.rs", "exit code"),
    ];
    let broken = named_outside(&["anyhow"], &may);
    check(
        "anyhow is for app and cli; below them an error is a type",
        &broken,
    );
}

#[test]
fn the_process_is_ended_in_few_places() {
    let may = [
        ("src/main.rs", "exit code"),
        ("src/shutdown.rs", "a stop that cannot wait"),
        (
            "src/failpoint.rs",
            "builds for debugging only, where a test asks for it",
        ),
    ];
    let names = [
        "std::process::exit",
        "process::exit",
        "std::process::abort",
        "process::abort",
    ];
    check("return an error instead", &named_outside(&names, &may));
}

#[test]
fn files_and_functions_are_of_a_size_to_read() {
    let mut broken = Vec::new();
    for source in tree::rust_everywhere() {
        let name = source.path.display();
        let lines = source.text.lines().count();
        if lines > FILE_LINES {
            broken.push(format!("{name}: {lines} lines, at most {FILE_LINES}"));
        }
        for (function, line, lines) in source.functions() {
            // A test may be a long table.
            if lines > FUNCTION_LINES && !source.is_test_line(line) {
                broken.push(format!("{name}:{}: {function} has {lines} lines", line + 1));
            }
        }
        let comment = source
            .text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .count();
        let page = source.path == Path::new(PAGE);
        if !(1..=COMMENT_LINES).contains(&comment) && !page {
            broken.push(format!(
                "{name}: begins with {comment} lines of //!, 1 to {COMMENT_LINES}"
            ));
        }
    }
    check(
        "split by idea when the second idea arrives, and say what a file is for",
        &broken,
    );
}

#[test]
fn nothing_is_left_over() {
    // Put together here, so that this file does not hold them.
    let words = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["XX", "X:"],
        ["Being", " written"],
        ["dbg", "!("],
        ["todo", "!("],
        ["unimpl", "emented!("],
        ["<<<<", "<<< "],
        [">>>>", ">>> "],
    ];
    let broken = tree::lines_with(&words.map(|parts| parts.concat()));
    check("finish it or take it out", &broken);
}

#[test]
fn the_repository_speaks_of_itself_alone() {
    let words = [
        ["/wo", "rk/"],
        ["/fa", "rm/"],
        ["/ro", "ot/"],
        ["/tmp/", "wt"],
        ["crates", ".io"],
        ["registry.np", "mjs.org"],
        ["pypi", ".org"],
        ["proxy.go", "lang.org"],
        ["repo1.ma", "ven.org"],
        ["deb.deb", "ian.org"],
        ["python", "hosted.org"],
    ];
    let broken = tree::lines_with(&words.map(|parts| parts.concat()));
    check(
        "no path of one machine and no host of a package registry in a file",
        &broken,
    );
}

#[test]
fn links_in_documents_lead_somewhere() {
    check(
        "a link to a file or a heading that is not there",
        &tree::dead_links(),
    );
}

#[test]
fn every_fault_is_on_its_page() {
    let read = |path: &str| std::fs::read_to_string(tree::root().join(path)).unwrap();
    let (tests, page) = (read("tests/faults/main.rs"), read("docs/faults.md"));
    let names = tests.split('"').filter(|word| word.starts_with('F'));
    let numbers = names.filter_map(|name| Some(name.split_once('_')?.0));
    let broken: Vec<String> = numbers
        .filter(|number| !page.contains(&format!("| {number} ")))
        .map(str::to_owned)
        .collect();
    check(
        "scripts/faults measures it and writes docs/faults.md",
        &broken,
    );
}

#[test]
fn the_changelog_has_its_form() {
    check(
        "see the first lines of CHANGELOG.md",
        &tree::changelog_faults(),
    );
}

#[test]
fn dependencies_are_sorted() {
    let manifest = std::fs::read_to_string(tree::root().join("Cargo.toml")).unwrap();
    let mut broken = Vec::new();
    for section in manifest
        .split("\n[")
        .filter(|part| part.contains("dependencies]"))
    {
        let names: Vec<&str> = section
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(" = ").map(|(name, _)| name))
            .collect();
        let unsorted = names.windows(2).filter(|pair| pair[0] > pair[1]);
        broken.extend(unsorted.map(|pair| format!("Cargo.toml: {} after {}", pair[1], pair[0])));
    }
    check("one place for each name", &broken);
}

#[test]
fn licences_and_sources_are_allowed() {
    check(
        "deny.toml names what is allowed",
        &tree::forbidden_packages(),
    );
}
