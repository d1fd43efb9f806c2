//! What `config check` says about a configuration, for people and for programs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Config;
use super::keys::{Key, Section};
use super::problem::{Place, Problem, Problems, Wrong};
use crate::health::dir::path_text;
use crate::health::words::counted;

/// What a start finds beside the files of the configuration: known only to those who look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Of the journals.
    pub room: JournalRoom,
    /// Keys whose file holds no token that may be used, and why.
    pub tokens: Vec<(&'static str, String)>,
}

/// What the disks say of the journals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalRoom {
    /// A sentence for each file system on which the journals do not fit.
    pub too_large: Vec<String>,
    /// Journal directories whose space is not known, and why.
    pub unknown: Vec<(PathBuf, String)>,
}

/// What to do about a file that should hold a token.
pub const TOKEN_REMEDY: &str =
    "write one word of visible ASCII into it and chmod 0640 it, or leave the key out";

/// The configuration with what was found. What would keep an agent from starting makes it wrong; all
/// else is a warning. Asks for the programs of hooks itself, which may block on their disks.
///
/// # Errors
/// There is no agent with it.
pub fn with_found(config: Config, found: Found) -> Result<Config, Problems> {
    let mut problems = Problems::default();
    journals(&config, found.room, &mut problems);
    for (name, why) in found.tokens {
        let named = |key: &Key| key.row().name == name;
        if let Some(key) = Key::all_in(Section::Top).find(named) {
            let wrong = Wrong::new(format!("cannot be used: {why}"), TOKEN_REMEDY);
            problems.error(config.origin.node.slot(key).problem(key, wrong));
        }
    }
    for (hook, slots) in config.hooks.iter().zip(&config.origin.hooks) {
        let program = hook.command.first().map(Path::new);
        if let Some(why) = program.and_then(no_program) {
            let text = format!("cannot be run now: {why}");
            let remedy = "name a program with its whole path, executable for the agent";
            let wrong = Wrong::new(text, remedy);
            problems.warn(
                slots
                    .slot(Key::HookCommand)
                    .problem(Key::HookCommand, wrong),
            );
        }
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

/// Journals that do not fit keep nobody from starting: the agent tells it as long as it lasts.
fn journals(config: &Config, room: JournalRoom, problems: &mut Problems) {
    let conf = config
        .bookie
        .as_ref()
        .and_then(|bookie| bookie.conf.clone());
    let place = conf.map_or(Place::Derived, |conf| Place::file(conf, None));
    let mut warn = |text: String, remedy: &str| {
        let wrong = Wrong::new(text, remedy);
        problems.warn(wrong.at(place.clone(), "journalMaxSizeMB", ""));
    };
    for text in room.too_large {
        let remedy = "lower journalMaxBackups or journalMaxSizeMB, or make the file system larger";
        warn(text, remedy);
    }
    for (path, reason) in room.unknown {
        let gap = if reason.is_empty() { "" } else { ": " };
        let path = path_text(&path);
        let text = format!("whether the journals fit in {path} is not known{gap}{reason}");
        warn(text, "check again when the directory is there");
    }
}

/// Why nobody can run this, if so.
fn no_program(path: &Path) -> Option<String> {
    match std::fs::metadata(path) {
        Err(error) => Some(error.to_string()),
        Ok(facts) if !facts.is_file() => Some("it is not a file".to_owned()),
        Ok(facts) if facts.permissions().mode() & 0o111 == 0 => {
            Some("it is not executable".to_owned())
        }
        Ok(_) => None,
    }
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
                "the configuration is valid: {}, {}, {webhooks}{}; `dirkeeper check` says how the directories are",
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
