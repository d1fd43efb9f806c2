//! Lines of text of a bounded length, one at a time. Knows nothing of what they say.

use std::io::{self, BufRead};

use super::{Problem, SimulateError};

/// The longest line: 4 MiB hold an observation of 20,000 directories with paths of 100 bytes.
pub(super) const MAX_LINE: usize = 4 << 20;

pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    number: u64,
}

pub(super) enum Line<'a> {
    Text(&'a str),
    End,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Lines<R> {
        Lines {
            input,
            buffer: Vec::new(),
            number: 0,
        }
    }

    /// Number of the newest line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next line without its end. The last one may lack a newline.
    pub(super) fn next_line(&mut self) -> Result<Line<'_>, SimulateError> {
        self.buffer.clear();
        self.number += 1;
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(SimulateError::Read(error)),
            };
            if chunk.is_empty() {
                if self.buffer.is_empty() {
                    return Ok(Line::End);
                }
                break;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if MAX_LINE < self.buffer.len() + part.len() {
                let what = format!("longer than {MAX_LINE} bytes");
                let remedy = "a line describes one step; split the directories among several runs";
                return Err(Problem::new(what, remedy).at(self.number));
            }
            self.buffer.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                break;
            }
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(Line::Text(text)),
            Err(error) => {
                let at = error.valid_up_to();
                let what = format!(
                    "byte {:#04x} at column {} is not UTF-8",
                    self.buffer[at],
                    at + 1
                );
                let remedy = "JSON is written in UTF-8";
                Err(Problem::new(what, remedy).at(self.number))
            }
        }
    }

    /// Reads to the end and forgets everything.
    pub(super) fn drain(&mut self) -> Result<(), SimulateError> {
        loop {
            let length = match self.input.fill_buf() {
                Ok([]) => return Ok(()),
                Ok(chunk) => chunk.len(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(SimulateError::Read(error)),
            };
            self.input.consume(length);
        }
    }
}
