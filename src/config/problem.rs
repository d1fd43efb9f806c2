//! What is wrong with a configuration, as data: place, key, value, what is wrong, what would be
//! right. Problems are collected and shown together; nothing here decides what is a problem.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::health::dir::{path_text, printable, shown};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A file, and the line where there is one.
    File {
        /// As it was named.
        path: PathBuf,
        /// Counted from 1; none for the file as a whole.
        line: Option<usize>,
    },
    /// A command line flag, with its dashes.
    Flag(&'static str),
    /// Not in any file: follows from another value.
    Derived,
    /// The default.
    Default,
}

impl Place {
    pub(super) fn file(path: impl Into<PathBuf>, line: impl Into<Option<usize>>) -> Place {
        Place::File {
            path: path.into(),
            line: line.into(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File {
                path,
                line: Some(line),
            } => write!(f, "{}:{line}", shown(path)),
            Place::File { path, line: None } => f.write_str(&shown(path)),
            Place::Flag(flag) => f.write_str(flag),
            Place::Derived => f.write_str("derived"),
            Place::Default => f.write_str("default"),
        }
    }
}

/// One thing that is wrong, or worth a warning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The key with its section, e.g. `thresholds.warn`; empty for the file as a whole.
    pub key: String,
    /// The value as it was written; empty where there is none.
    pub value: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            f.write_str(&self.key)?;
            if !self.value.is_empty() {
                write!(f, " = {}", self.value)?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.problem)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

/// A problem in JSON (`config check --output json`).
#[derive(Serialize)]
struct ProblemDocument<'a> {
    file: Option<String>,
    line: Option<usize>,
    flag: Option<&'static str>,
    key: &'a str,
    value: &'a str,
    problem: &'a str,
    remedy: &'a str,
}

impl Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (file, line, flag) = match &self.place {
            Place::File { path, line } => (Some(path_text(path)), *line, None),
            Place::Flag(flag) => (None, None, Some(*flag)),
            Place::Derived | Place::Default => (None, None, None),
        };
        ProblemDocument {
            file,
            line,
            flag,
            key: &self.key,
            value: &self.value,
            problem: &self.problem,
            remedy: &self.remedy,
        }
        .serialize(serializer)
    }
}

/// All problems of a configuration at once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Problems {
    /// What keeps the configuration from being used.
    pub errors: Vec<Problem>,
    /// What does not, but should be known.
    pub warnings: Vec<Problem>,
}

impl Problems {
    pub(super) fn error(&mut self, problem: Problem) {
        self.errors.push(problem);
    }

    pub(super) fn warn(&mut self, problem: Problem) {
        self.warnings.push(problem);
    }

    /// One problem a line, errors first, each with its severity.
    pub(super) fn lines(&self) -> String {
        let errors = self.errors.iter().map(|problem| ("error", problem));
        let warnings = self.warnings.iter().map(|problem| ("warning", problem));
        let lines = errors.chain(warnings);
        let lines = lines.map(|(severity, problem)| format!("{severity}: {problem}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// In the order of the files, each problem once: several directories may share a threshold.
    pub(super) fn sorted(mut self) -> Problems {
        for list in [&mut self.errors, &mut self.warnings] {
            list.sort();
            list.dedup();
        }
        self
    }
}

impl fmt::Display for Problems {
    /// One problem a line, errors first. A single error is a sentence of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.errors[..], &self.warnings[..]) {
            ([error], []) => write!(f, "{error}"),
            _ => f.write_str(&self.lines()),
        }
    }
}

impl std::error::Error for Problems {}

/// What is wrong with one value, before it is known where it stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) problem: String,
    pub(super) remedy: String,
}

impl Wrong {
    pub(super) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Wrong {
        Wrong {
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    pub(super) fn at(
        self,
        place: Place,
        key: impl Into<String>,
        value: impl Into<String>,
    ) -> Problem {
        Problem {
            place,
            key: printable(&key.into()),
            value: printable(&value.into()),
            problem: printable(&self.problem),
            remedy: printable(&self.remedy),
        }
    }
}
