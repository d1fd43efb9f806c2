//! What `config check` says about a configuration, for people and for programs.

use serde::Serialize;

use super::Config;
use super::problem::{Problem, Problems};

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
            let verdict = format!(
                "the configuration is valid: {}, {}, {}",
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
