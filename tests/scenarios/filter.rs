//! `simulate` as a filter: bounds, silence, flushing, memory.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

use dirkeeper::cli::simulate::{self, Semantics};

use super::{HEADER, START, json_lines, replay};

#[test]
fn lines_that_are_no_text_or_too_long_are_refused() {
    let mut input = format!("{HEADER}\n{START}\n{{\"observe\":{{\"/d").into_bytes();
    input.extend(b"\xff\":{}}}\n");
    let result = simulate::run(Semantics::Bookkeeper, &input[..], io::sink());
    let text = result.unwrap_err().to_string();
    assert!(
        text.starts_with("line 3: byte 0xff at column 16 is not UTF-8"),
        "{text}"
    );

    // A line without an end is refused long before it has filled the memory.
    let endless = HEADER.as_bytes().chain(&b"\n"[..]).chain(io::repeat(b' '));
    let result = simulate::run(Semantics::Bookkeeper, BufReader::new(endless), io::sink());
    let text = result.unwrap_err().to_string();
    assert!(
        text.starts_with("line 2: longer than 4194304 bytes"),
        "{text}"
    );
}

#[test]
fn lines_before_a_bad_one_are_answered() {
    let (output, result) = replay(
        Semantics::Bookkeeper,
        &format!("{HEADER}\n{START}\n{START}\n?"),
    );
    assert!(result.is_err());
    assert_eq!(output.lines().count(), 2);
}

#[test]
fn the_last_line_needs_no_newline_and_a_header_alone_is_answered_by_nothing() {
    let (output, result) = replay(Semantics::Bookkeeper, &format!("{HEADER}\r\n{START}"));
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(output.lines().count(), 1);
    let (output, result) = replay(Semantics::Bookkeeper, HEADER);
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(output, "");
}

#[test]
fn after_a_shutdown_the_rest_is_read_in_silence() {
    let failed = r#"{"observe":{"/d1":{"error":"io"}}}"#;
    let input = format!("{HEADER}\n{START}\n{failed}\n{START}\nnonsense\n");
    let mut input = io::Cursor::new(
        input
            .into_bytes()
            .into_iter()
            .chain([0xff; 9])
            .collect::<Vec<u8>>(),
    );
    let mut output = Vec::new();
    simulate::run(Semantics::Bookkeeper, &mut input, &mut output).unwrap();
    assert_eq!(
        input.position(),
        u64::try_from(input.get_ref().len()).unwrap()
    );
    assert_eq!(output.iter().filter(|byte| **byte == b'\n').count(), 2);
}

/// A terminal between two people: what is read and what is written, in the order of happening.
#[derive(Clone, Default)]
struct Wiretap(Rc<RefCell<String>>);

struct Asking<'a>(Wiretap, std::str::Lines<'a>);

impl Read for Asking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(line) = self.1.next() else {
            return Ok(0);
        };
        self.0.0.borrow_mut().push_str("read ");
        buffer[..line.len()].copy_from_slice(line.as_bytes());
        buffer[line.len()] = b'\n';
        Ok(line.len() + 1)
    }
}

impl Write for Wiretap {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        write!(self.0.borrow_mut(), "write ").unwrap();
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        write!(self.0.borrow_mut(), "flush ").unwrap();
        Ok(())
    }
}

#[test]
fn each_answer_is_flushed_before_the_next_line_is_read() {
    let tap = Wiretap::default();
    let input = format!("{HEADER}\n{START}\n{START}");
    let asking = BufReader::new(Asking(tap.clone(), input.lines()));
    simulate::run(Semantics::Bookkeeper, asking, tap.clone()).unwrap();
    assert_eq!(*tap.0.borrow(), "read read write flush read write flush ");
}

/// Steps without end, none of which is ever in memory as a whole.
struct Steps {
    left: usize,
    line: Vec<u8>,
}

impl Iterator for Steps {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        self.left = self.left.checked_sub(1)?;
        let usable = self.left % 100;
        self.line.clear();
        writeln!(
            self.line,
            r#"{{"observe":{{"/d1":{{"total":100,"usable":{usable}}}}}}}"#
        )
        .unwrap();
        Some(self.line.clone())
    }
}

struct Chunks<I>(I, io::Cursor<Vec<u8>>);

impl<I: Iterator<Item = Vec<u8>>> Read for Chunks<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.1.read(buffer)? {
            0 => match self.0.next() {
                None => Ok(0),
                Some(chunk) => {
                    self.1 = io::Cursor::new(chunk);
                    self.1.read(buffer)
                }
            },
            length => Ok(length),
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn many_steps_take_no_more_memory_than_few() {
    let run = |semantics: Semantics, steps: usize| {
        let lines = Steps {
            left: steps,
            line: Vec::new(),
        };
        let start = format!("{HEADER}\n{START}\n").into_bytes();
        let chunks = Chunks(std::iter::once(start).chain(lines), io::Cursor::default());
        simulate::run(semantics, BufReader::new(chunks), io::sink()).unwrap();
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    };
    for semantics in Semantics::ALL {
        let few = run(semantics, 1_000);
        let many = run(semantics, 50_000);
        // Other tests run beside this one; the answers alone would be 10 MB and more.
        assert!(
            many < few + (6 << 20),
            "{semantics:?}: {few} bytes, then {many}"
        );
    }
}

#[test]
fn the_program_is_a_filter() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let input = fs::read_to_string(folder.join("X05.in.jsonl")).unwrap();
    let expected = fs::read_to_string(folder.join("X05.out.jsonl")).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_dirkeeper"))
        .args(["simulate", "--semantics", "bookkeeper", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = program.stdin.take().unwrap();
    let mut from = BufReader::new(program.stdout.take().unwrap());
    let mut expected = expected.lines();
    for (number, line) in input.lines().enumerate() {
        writeln!(to, "{line}").unwrap();
        if 0 < number {
            // Without the answer to this line no other one is written.
            let mut answer = String::new();
            from.read_line(&mut answer).unwrap();
            assert_eq!(json_lines(&answer), json_lines(expected.next().unwrap()));
        }
    }
    drop(to);
    assert!(program.wait().unwrap().success());
    assert_eq!(expected.next(), None);
}
