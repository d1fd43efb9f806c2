//! What `config check` says about a configuration, for people and for programs.

use std::path::PathBuf;

use serde::Serialize;

use super::Config;
use super::problem::{Place, Problem, Problems, Wrong};
use crate::health::dir::path_text;

/// What the disks say of the journals: known only to those who ask them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalRoom {
    /// A sentence for each file system on which the journals do not fit.
    pub too_large: Vec<String>,
    /// Journal directories whose space is not known, and why.
    pub unknown: Vec<(PathBuf, String)>,
}

/// The configuration with what the disks say of it: journals that do not fit make it wrong, and what
/// is not known is a warning.
///
/// # Errors
/// There are such journals.
pub fn with_room(config: Config, room: JournalRoom) -> Result<Config, Problems> {
    let conf = config
        .bookie
        .as_ref()
        .and_then(|bookie| bookie.conf.clone());
    let place = || {
        conf.clone()
            .map_or(Place::Derived, |conf| Place::file(conf, None))
    };
    let at = |wrong: Wrong| wrong.at(place(), "journalMaxSizeMB", "");
    let mut problems = Problems::default();
    for text in room.too_large {
        let remedy = "lower journalMaxBackups or journalMaxSizeMB, or make the file system larger";
        problems.error(at(Wrong::new(text, remedy)));
    }
    for (path, reason) in room.unknown {
        let gap = if reason.is_empty() { "" } else { ": " };
        let path = path_text(&path);
        let text = format!("whether the journals fit in {path} is not known{gap}{reason}");
        problems.warn(at(Wrong::new(
            text,
            "check again when the directory is there",
        )));
    }
    problems.warnings.extend(config.warnings.iter().cloned());
    let problems = problems.sorted();
    if !problems.errors.is_empty() {
        return Err(problems);
    }
    Ok(Config {
        warnings: problems.warnings,
        ..config
    })
}

/// The result of `config check` in JSON.
#[derive(Serialize)]
struct CheckDocument<'a> {
    ok: bool,
    errors: &'a [Problem],
    warnings: &'a [Problem],
}

/// What `config check` prints for people: each problem on a line, then the verdict.
#[must_use]
pub fn check_human(result: &Result<Config, Problems>) -> String {
    let (problems, verdict) = match result {
        Ok(config) => {
            let problems = Problems {
                errors: Vec::new(),
                warnings: config.warnings.clone(),
            };
            let webhooks = match config.webhooks.len() {
                0 => String::new(),
                count => counted(count, "webhook", "webhooks") + ", ",
            };
            let verdict = format!(
                "the configuration is valid: {}, {}, {webhooks}{}",
                counted(config.dirs.len(), "directory", "directories"),
                counted(config.hooks.len(), "hook", "hooks"),
                counted(config.warnings.len(), "warning", "warnings"),
            );
            (problems, verdict)
        }
        Err(problems) => {
            let verdict = format!(
                "the configuration cannot be used: {}, {}",
                counted(problems.errors.len(), "error", "errors"),
                counted(problems.warnings.len(), "warning", "warnings"),
            );
            (problems.clone(), verdict)
        }
    };
    let lines = problems.lines();
    let gap = if lines.is_empty() { "" } else { "\n" };
    format!("{lines}{gap}{verdict}\n")
}

/// What `config check` prints for programs: one line of JSON.
#[must_use]
pub fn check_json(result: &Result<Config, Problems>) -> String {
    let document = match result {
        Ok(config) => CheckDocument {
            ok: true,
            errors: &[],
            warnings: &config.warnings,
        },
        Err(problems) => CheckDocument {
            ok: false,
            errors: &problems.errors,
            warnings: &problems.warnings,
        },
    };
    let mut line = serde_json::to_string(&document).expect("strings and numbers are always JSON");
    line.push('\n');
    line
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
