//! `dirkeeper simulate`: observations in, decisions out, one JSON object a line. A filter: it answers
//! each line after the header and flushes the answer before it reads the next line. Nothing here
//! decides; each semantics has a file that turns its lines into calls of `health` and back.

mod bookkeeper;
mod dirkeeper;
mod lines;
mod looks;
mod wire;

use std::io::{self, BufRead, Write};

use lines::{Line, Lines};

use crate::health::dir::printable;

/// Whose rules decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Semantics {
    /// Our own.
    Dirkeeper,
    /// Those of Apache BookKeeper 4.17.3, also where they are wrong.
    Bookkeeper,
}

impl Semantics {
    /// All of them, the default first.
    pub const ALL: [Semantics; 2] = [Semantics::Dirkeeper, Semantics::Bookkeeper];

    /// The word on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Semantics::Dirkeeper => "dirkeeper",
            Semantics::Bookkeeper => "bookkeeper",
        }
    }
}

/// Why a simulation ended early.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The input is wrong; exit code 65.
    #[error("line {line}: {problem}; {remedy}")]
    Data {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong, with the value.
        problem: String,
        /// What would be right.
        remedy: String,
    },
    /// The input cannot be read; exit code 74.
    #[error("cannot read the input")]
    Read(#[source] io::Error),
    /// The answers cannot be written; exit code 74.
    #[error("cannot write the answer")]
    Write(#[source] io::Error),
}

impl SimulateError {
    /// The exit code of the command line.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            SimulateError::Data { .. } => 65,
            SimulateError::Read(_) | SimulateError::Write(_) => 74,
        }
    }

    /// True when the reader of the answers has gone away, which is no reason to complain.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, SimulateError::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// What is wrong with a line, before its number is known.
#[derive(Debug)]
struct Problem {
    what: String,
    remedy: String,
}

impl Problem {
    fn new(what: impl Into<String>, remedy: impl Into<String>) -> Problem {
        // A parser quotes names as they are.
        Problem {
            what: printable(&what.into()),
            remedy: remedy.into(),
        }
    }

    fn at(self, line: u64) -> SimulateError {
        SimulateError::Data {
            line,
            problem: self.what,
            remedy: self.remedy,
        }
    }
}

/// One run of one semantics.
trait Simulation {
    /// Takes in a line and appends the answer, without a newline.
    fn answer(&mut self, line: &str, answer: &mut Vec<u8>) -> Result<Flow, Problem>;
}

/// Whether answers follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Continues,
    /// That was the last answer; what follows is read and ignored.
    Ends,
}

/// Reads a header and observations from `input` and writes an answer for each observation to
/// `output`. Blocks on both; its memory depends on the number of directories and the longest line
/// only.
///
/// # Errors
/// The first line that is wrong; all lines before it have been answered.
pub fn run(
    semantics: Semantics,
    input: impl BufRead,
    mut output: impl Write,
) -> Result<(), SimulateError> {
    let mut lines = Lines::new(input);
    let header = match lines.next_line()? {
        Line::Text(header) => header,
        Line::End => {
            let problem = Problem::new("the input is empty", wire::HEADER_REMEDY);
            return Err(problem.at(1));
        }
    };
    let mut simulation = open(semantics, header).map_err(|problem| problem.at(1))?;
    let mut answer = Vec::new();
    loop {
        let number = lines.number() + 1;
        let Line::Text(line) = lines.next_line()? else {
            return Ok(());
        };
        answer.clear();
        let flow = simulation
            .answer(line, &mut answer)
            .map_err(|problem| problem.at(number))?;
        answer.push(b'\n');
        output
            .write_all(&answer)
            .and_then(|()| output.flush())
            .map_err(SimulateError::Write)?;
        if flow == Flow::Ends {
            return lines.drain();
        }
    }
}

fn open(semantics: Semantics, header: &str) -> Result<Box<dyn Simulation>, Problem> {
    match semantics {
        Semantics::Bookkeeper => Ok(Box::new(bookkeeper::Simulated::new(header)?)),
        Semantics::Dirkeeper => Ok(Box::new(dirkeeper::Simulated::new(header)?)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::edited;

    const OURS: &str = r#"{"dirs":[{"path":"/d1","role":"ledger"},{"path":"/j1","role":"journal","filesystem":"A"}],"settings":{"dwell":"20s"}}
{"observe":{"/d1":{"total":1000,"usable":500},"/j1":{"total":1000,"usable":900,"inodes":100,"inodesFree":50}}}
{"at":8000,"observe":{"/d1":{"inFlight":{"step":"sync","age":16000}}}}
{"at":20000,"observe":{"/d1":{"total":1000,"usable":500},"/j1":{"total":1000,"usable":900,"probe":{"step":"sync","errno":"EIO"}}}}
"#;

    const THEIRS: &str = r#"{"dirs":[{"path":"/d1","role":"ledger"},{"path":"/d2","role":"ledger"}],"settings":{"diskUsageThreshold":0.9,"readOnlyModeOnAnyDiskFullEnabled":true}}
{"observe":{"/d1":{"total":0,"usable":0},"/d2":{"total":1000,"usable":900}}}
{"observe":{}}
{"observe":{"/d1":{"error":"io"}}}
"#;

    proptest! {
        /// Every line before the first wrong one is answered, and the wrong one is named.
        #[test]
        fn any_line_has_its_answer_or_its_error(
            ours in edited(OURS),
            theirs in edited(THEIRS),
            bytes: Vec<u8>,
        ) {
            for (semantics, input) in [
                (Semantics::Dirkeeper, &ours),
                (Semantics::Bookkeeper, &theirs),
                (Semantics::Dirkeeper, &bytes),
            ] {
                let mut output = Vec::new();
                let result = run(semantics, &input[..], &mut output);
                let answers = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                let mut count = 0;
                for answer in answers {
                    let answer: serde_json::Value = serde_json::from_slice(answer).unwrap();
                    prop_assert!(answer.is_object());
                    count += 1;
                }
                if let Err(error) = result {
                    let SimulateError::Data { line, problem, remedy } = &error else {
                        panic!("memory can be read and written: {error}");
                    };
                    prop_assert_eq!(*line, if count == 0 { (*line).clamp(1, 2) } else { count + 2 });
                    prop_assert!(!problem.is_empty() && !remedy.is_empty());
                    prop_assert!(!problem.contains(char::is_control), "{:?}", problem);
                }
            }
        }
    }
}
