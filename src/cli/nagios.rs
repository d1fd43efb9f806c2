//! `check --output nagios`: one line of text and performance data by the rules of the Monitoring
//! Plugins, which Nagios, Icinga and their kin read.

use std::collections::BTreeMap;

use super::terminal::{limit, percent, printable, words};
use crate::document::{DirDocument, StatusDocument};

/// How many directories are described before the rest is only counted: some readers cut the line
/// at 1 KiB, and the performance data must still follow.
const MAX_DESCRIBED: usize = 5;

/// How much of a message is shown, in characters; for the same reason.
const MAX_MESSAGE: usize = 120;

/// The line for a finished check.
#[must_use]
pub fn line(document: &StatusDocument) -> String {
    let word = document.status.to_uppercase();
    let text = describe(&document.dirs);
    let data = performance_data(&document.dirs);
    if data.is_empty() {
        return format!("DIRKEEPER {word}: {text}\n");
    }
    format!("DIRKEEPER {word}: {text} | {data}\n")
}

/// The line for a check that could not be made.
#[must_use]
pub fn failure(error: &str) -> String {
    let lines: Vec<&str> = error.lines().map(str::trim).collect();
    let text = lines.join("; ").replace(":; ", ": ");
    format!("DIRKEEPER UNKNOWN: {}\n", one_line(&text))
}

fn describe(dirs: &[DirDocument]) -> String {
    let mut bad: Vec<&DirDocument> = dirs.iter().filter(|dir| dir.severity != "ok").collect();
    if bad.is_empty() {
        return match dirs.len() {
            0 => "no directories".to_owned(),
            1 => "1 directory writable".to_owned(),
            count => format!("{count} directories writable"),
        };
    }
    bad.sort_by_key(|dir| match dir.severity.as_str() {
        "critical" => 0,
        "warning" => 2,
        _ => 1,
    });
    let mut parts: Vec<String> = bad.iter().take(MAX_DESCRIBED).map(|dir| one(dir)).collect();
    if MAX_DESCRIBED < bad.len() {
        parts.push(format!("{} more not ok", bad.len() - MAX_DESCRIBED));
    }
    match dirs.len() - bad.len() {
        0 => {}
        good => parts.push(format!("{good} writable")),
    }
    parts.join("; ")
}

fn one(dir: &DirDocument) -> String {
    let path = one_line(&dir.path);
    let mut text = format!("{path} ({}) {}", dir.role, words(&dir.status));
    if let Some(cause) = &dir.cause {
        let message: String = cause.message.chars().take(MAX_MESSAGE).collect();
        text.push_str(", ");
        text.push_str(&one_line(&message));
    }
    text
}

/// Text on one line without a bar of its own, which simple readers take for the begin of the data.
fn one_line(text: &str) -> String {
    printable(text).replace('|', "\\x7c")
}

/// `'label'=value;warn;critical;min;max` for each directory; the value is U where it is not known.
fn performance_data(dirs: &[DirDocument]) -> String {
    let mut uses: BTreeMap<&str, u32> = BTreeMap::new();
    for dir in dirs {
        *uses.entry(&dir.path).or_default() += 1;
    }
    let series = dirs.iter().map(|dir| {
        let mut name = dir.path.clone();
        if 1 < uses[dir.path.as_str()] {
            // A label is a key: the same directory may serve in two roles.
            name.push_str(&format!(" {}", dir.role));
        }
        let space = &dir.space;
        let limits = [space.low_watermark, space.warn, space.full];
        let value = space
            .usage_ratio
            .map_or_else(|| "U".to_owned(), |ratio| percent(ratio, &limits) + "%");
        let (warn, full) = (limit(space.warn), limit(space.full));
        format!("'{}'={value};{warn};{full};0;100", label(&name))
    });
    series.collect::<Vec<_>>().join(" ")
}

/// A label within single quotes: a quote is doubled, an equals sign is forbidden.
fn label(name: &str) -> String {
    one_line(name).replace('\'', "''").replace('=', "\\x3d")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::document::{sample, status_document};
    use crate::health::dir::Role;
    use crate::health::snapshot::DirView;
    use crate::health::status::Severity;

    fn check(dirs: Vec<DirView>) -> String {
        let mut snapshot = sample::snapshot();
        let severities = dirs.iter().map(|dir| dir.severity);
        snapshot.severity = severities.max().unwrap_or(Severity::Unknown);
        snapshot.dirs = dirs.into_iter().map(Arc::new).collect();
        line(&status_document(
            &snapshot,
            &sample::self_view(),
            &sample::about(),
        ))
    }

    #[test]
    fn one_line_says_it_whatever_the_names() {
        let good = sample::writable_dir(0, "/mnt/journal one", Role::Journal);
        let odd = sample::full_dir(1, "/mnt/it's=a|b\nc", Role::Ledger);
        let both = sample::writable_dir(2, "/mnt/both", Role::Ledger);
        let index = sample::writable_dir(3, "/mnt/both", Role::Index);
        let lines = [
            check(Vec::new()),
            check(vec![good.clone()]),
            check(vec![both, index]),
            check(vec![
                sample::unknown_dir(4, "/mnt/new", Role::Ledger),
                good,
                odd,
            ]),
            check(
                (0..8)
                    .map(|id| sample::hung_dir(id, format!("/mnt/{id}"), Role::Ledger))
                    .collect(),
            ),
            failure("the configuration cannot be used:\n  error: a|b\n  warning: c"),
        ];
        for line in &lines {
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert!(line.matches('|').count() < 2, "{line}");
        }
        insta::assert_snapshot!(lines.join("\n"));
    }
}
