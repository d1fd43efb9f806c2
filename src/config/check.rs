//! What `config check` says, and the check that needs a look at the disks: whether two configured
//! paths lead to one directory. The look itself is the prober's; here only its result is judged.

use std::path::PathBuf;

use serde::Serialize;

use super::Config;
use super::dirs::a;
use super::keys::Key;
use super::problem::{Problem, Problems, Wrong};
use super::value::Value;
use crate::health::dir::{Dir, Role};
use crate::health::observation::Device;

/// Where a configured directory really is, as the prober found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// Index in [`Config::dirs`].
    pub dir: usize,
    /// The path with all symbolic links followed.
    pub canonical: PathBuf,
    /// Device number of the directory.
    pub device: Device,
    /// Inode number of the directory.
    pub inode: u64,
}

impl Config {
    /// Finds directories that are configured twice by different paths. Paths that are equal as
    /// written were judged when the configuration was read. Looks at nothing itself.
    #[must_use]
    pub fn check_paths(&self, looked: &[Looked]) -> Problems {
        let mut problems = Problems::default();
        for (index, one) in looked.iter().enumerate() {
            // One sentence for each directory, however many others are the same.
            let mut earlier = looked[..index].iter();
            if let Some((found, problem)) = earlier.find_map(|other| self.check_pair(other, one)) {
                match found {
                    Found::Error => problems.error(problem),
                    Found::Warning => problems.warn(problem),
                }
            }
        }
        problems.sorted()
    }

    fn check_pair(&self, first: &Looked, second: &Looked) -> Option<(Found, Problem)> {
        let (one, other) = (self.dirs.get(first.dir)?, self.dirs.get(second.dir)?);
        let same_path = first.canonical == second.canonical;
        let same_file = first.device == second.device && first.inode == second.inode;
        if one.path == other.path || !(same_path || same_file) {
            return None;
        }
        let wrong = if !same_path {
            Wrong::new(
                format!("is {} again, through another mount", one.path.display()),
                "name the directory once, unless the bookie uses both paths",
            )
        } else if one.role == other.role {
            Wrong::new(
                format!("is {} again, through a symbolic link", one.path.display()),
                "name each directory once",
            )
        } else {
            Wrong::new(
                format!(
                    "is {} again, through a symbolic link, and that is {} directory",
                    one.path.display(),
                    a(one.role)
                ),
                remedy_for_roles(one, other),
            )
        };
        let place = self.origin.dir_places.get(second.dir)?.clone();
        let value = Value::Path(other.path.clone()).to_toml();
        let found = if same_path && one.role == other.role {
            Found::Error
        } else {
            Found::Warning
        };
        Some((found, wrong.at(place, Key::DirPath.path(), value)))
    }
}

enum Found {
    Error,
    Warning,
}

fn remedy_for_roles(one: &Dir, other: &Dir) -> &'static str {
    if [one.role, other.role].contains(&Role::Journal) {
        "give the journal a disk of its own"
    } else {
        "leave the index directory out"
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
    let lines = problems.to_string();
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
