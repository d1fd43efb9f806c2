//! Text in, text out: the conformance traces of the real BookKeeper, and how bad input is answered.

#![allow(clippy::unwrap_used)] // a test may: what it unwraps is its own

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dirkeeper::cli::simulate::{self, Semantics, SimulateError};
use serde_json::Value;

/// Traces that come with the project; a file that is not picked up must not pass unnoticed.
const TRACES: usize = 63;

fn inputs(folder: &str, ending: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(ending))
        .collect();
    paths.sort();
    paths
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn simulate(semantics: Semantics, input: &str) -> (String, Result<(), SimulateError>) {
    let mut output = Vec::new();
    let result = simulate::run(semantics, input.as_bytes(), &mut output);
    (String::from_utf8(output).unwrap(), result)
}

/// Compares line by line, so that a failure shows its step.
fn assert_same(name: &Path, actual: &str, expected: &str) {
    let (actual, expected) = (json_lines(actual), json_lines(expected));
    for (step, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
        assert_eq!(actual, expected, "{} step {step}", name.display());
    }
    assert_eq!(actual.len(), expected.len(), "{}", name.display());
}

#[test]
fn every_trace_of_bookkeeper_comes_out_the_same() {
    let inputs = inputs("tests/conformance", ".in.jsonl");
    assert_eq!(inputs.len(), TRACES);
    for path in inputs {
        let input = fs::read_to_string(&path).unwrap();
        let expected = path.to_str().unwrap().replace(".in.jsonl", ".out.jsonl");
        let expected = fs::read_to_string(expected).unwrap();
        let (output, result) = simulate(Semantics::Bookkeeper, &input);
        assert!(result.is_ok(), "{}: {result:?}", path.display());
        assert_same(&path, &output, &expected);
    }
}

const HEADER: &str = r#"{"dirs":[{"path":"/d1","role":"ledger"},{"path":"/j1","role":"journal"},{"path":"/i1","role":"index"}],"settings":{"readOnlyModeOnAnyDiskFullEnabled":true}}"#;
const START: &str =
    r#"{"observe":{"/d1":{"total":1000,"usable":900},"/i1":{"total":1000,"usable":900}}}"#;

/// Runs the first line as a whole input, or the others after a good header, and compares what is
/// said about it. `HEAD` and `START` stand for good lines.
fn check_refused(input: &str, expected: &str) {
    let input = input.replace("HEAD", HEADER).replace("START", START);
    let (_, result) = simulate(Semantics::Bookkeeper, &input);
    let error = result.expect_err(&input);
    assert_eq!(error.exit_code(), 65, "{input}");
    let text = error.to_string();
    let said = text.split("; ").next().unwrap();
    assert_eq!(said, expected, "{input}");
    assert!(text.len() > said.len() + 10, "no remedy: {text}");
}

#[test]
fn bad_headers_are_refused() {
    let header = |dirs: &str, settings: &str| {
        let settings = format!(r#"{{"readOnlyModeOnAnyDiskFullEnabled":true{settings}}}"#);
        format!(r#"{{"dirs":[{dirs}],"settings":{settings}}}"#)
    };
    let ledger = r#"{"path":"/d1","role":"ledger"}"#;
    check_refused("", "line 1: the input is empty");
    check_refused("\n", "line 1: the line is empty");
    check_refused(
        "[]",
        "line 1: invalid type: sequence, expected an object (column 0)",
    );
    check_refused(
        "null",
        "line 1: invalid type: null, expected an object (column 4)",
    );
    check_refused(
        &HEADER[..40],
        "line 1: the JSON is cut off at column 40: EOF while parsing a value",
    );
    check_refused(
        &format!("{HEADER} {HEADER}"),
        "line 1: trailing characters (column 158)",
    );
    check_refused(
        r#"{"dirs":[]}"#,
        "line 1: missing field `settings` (column 11)",
    );
    check_refused(
        r#"{"dirs":[],"settings":{}}"#,
        "line 1: missing field `readOnlyModeOnAnyDiskFullEnabled` (column 24)",
    );
    check_refused(
        &header("", ""),
        r#"line 1: no directory has the role "ledger""#,
    );
    check_refused(
        &header(r#"{"path":"/j1","role":"journal"}"#, ""),
        r#"line 1: no directory has the role "ledger""#,
    );
    check_refused(
        &header(r#"{"path":"/d1","role":"data"}"#, ""),
        "line 1: unknown variant `data`, expected one of `ledger`, `journal`, `index` (column 36)",
    );
    check_refused(
        &header(r#"{"path":"","role":"ledger"}"#, ""),
        "line 1: the path of a directory is empty",
    );
    check_refused(
        &header(r#"{"path":"/d1"}"#, ""),
        "line 1: missing field `role` (column 23)",
    );
    check_refused(
        &header(&format!("{ledger},{ledger}"), ""),
        r#"line 1: directory "/d1" is there twice"#,
    );
    check_refused(
        &header(r#"{"path":"/d1","role":"ledger","fs":"A"}"#, ""),
        "line 1: unknown field `fs`, expected one of `path`, `role`, `filesystem` (column 43)",
    );
    check_refused(
        &header(r#"{"path":"/d1","role":"ledger","filesystem":null}"#, ""),
        "line 1: invalid type: null, expected a string (column 56)",
    );
    check_refused(
        &header(r#"{"path":"/d1","path":"/d2","role":"ledger"}"#, ""),
        "line 1: duplicate field `path` (column 29)",
    );
    check_refused(
        &header(ledger, r#","diskUsageTreshold":0.9"#),
        "line 1: unknown field `diskUsageTreshold`, expected one of `diskUsageThreshold`, `diskUsageWarnThreshold`, `diskUsageLwmThreshold`, `readOnlyModeEnabled`, `readOnlyModeOnAnyDiskFullEnabled`, `minUsableSizeForHighPriorityWrites` (column 112)",
    );
    check_refused(
        &header(
            ledger,
            r#","readOnlyModeEnabled":true,"readOnlyModeEnabled":true"#,
        ),
        "line 1: duplicate field `readOnlyModeEnabled` (column 141)",
    );
    check_refused(
        &header(ledger, r#","readOnlyModeEnabled":"yes""#),
        r#"line 1: invalid type: string "yes", expected a boolean (column 120)"#,
    );
    check_refused(
        &header(ledger, r#","diskUsageThreshold":"0.95""#),
        r#"line 1: diskUsageThreshold is "0.95""#,
    );
    check_refused(
        &header(ledger, r#","diskUsageThreshold":null"#),
        "line 1: diskUsageThreshold is null",
    );
    check_refused(
        &header(ledger, r#","diskUsageThreshold":NaN"#),
        "line 1: expected value (column 115)",
    );
    check_refused(
        &header(ledger, r#","diskUsageThreshold":0"#),
        "line 1: diskUsageThreshold is 0",
    );
    check_refused(
        &header(ledger, r#","diskUsageThreshold":1"#),
        "line 1: diskUsageThreshold is 1",
    );
    check_refused(
        &header(ledger, r#","diskUsageThreshold":95"#),
        "line 1: diskUsageThreshold is 95",
    );
    check_refused(
        &header(ledger, r#","diskUsageThreshold":0.85"#),
        "line 1: diskUsageWarnThreshold is 0.9, above diskUsageThreshold, which is 0.85",
    );
    check_refused(
        &header(ledger, r#","diskUsageLwmThreshold":0.96"#),
        "line 1: diskUsageLwmThreshold is 0.96, above diskUsageThreshold, which is 0.95",
    );
    check_refused(
        &header(ledger, r#","minUsableSizeForHighPriorityWrites":1.5"#),
        "line 1: invalid type: floating point `1.5`, expected i64 (column 133)",
    );
    check_refused(
        &header(
            ledger,
            r#","minUsableSizeForHighPriorityWrites":9223372036854775808"#,
        ),
        "line 1: invalid value: integer `9223372036854775808`, expected i64 (column 149)",
    );
}

#[test]
fn bad_steps_are_refused_with_their_line() {
    let step = |dirs: &str| format!("HEAD\nSTART\n{{\"observe\":{{{dirs}}}}}");
    check_refused(
        "HEAD\n{\"observe\":{}}",
        r#"line 2: nothing is observed of directory "/d1""#,
    );
    check_refused(
        "HEAD\n{\"observe\":{\"/d1\":{\"total\":1,\"usable\":1}}}",
        r#"line 2: nothing is observed of directory "/i1""#,
    );
    check_refused("HEAD\nSTART\n\nSTART", "line 3: the line is empty");
    check_refused(
        "HEAD\nSTART\n{}",
        "line 3: missing field `observe` (column 2)",
    );
    check_refused(
        "HEAD\nSTART\n{\"observe\":{},\"at\":5}",
        "line 3: unknown field `at`, expected `observe` (column 18)",
    );
    check_refused(
        "HEAD\nSTART\n{\"observe\":{},\"observe\":{}}",
        "line 3: duplicate field `observe` (column 23)",
    );
    check_refused(
        "HEAD\nSTART\n{\"observe\":[]}",
        "line 3: invalid type: sequence, expected an object with a directory's path for each key (column 11)",
    );
    check_refused(
        "HEAD\nSTART\n{\"observe\":{\"/d1\":{\"total\":10",
        "line 3: the JSON is cut off at column 29: EOF while parsing an object",
    );
    check_refused(
        &step(r#""/d2":{"total":1,"usable":1}"#),
        r#"line 3: directory "/d2" is not in the header"#,
    );
    check_refused(
        &step(r#""/d1":{"total":1,"usable":1},"/d1":{"total":1,"usable":1}"#),
        r#"line 3: directory "/d1" is there twice (column 70)"#,
    );
    check_refused(
        &step(r#""/d1":{"total":1,"total":1,"usable":1}"#),
        "line 3: duplicate field `total` (column 36)",
    );
    check_refused(
        &step(r#""/d1":{"total":1,"usable":1,"free":1}"#),
        "line 3: unknown field `free`, expected one of `total`, `usable`, `error` (column 46)",
    );
    check_refused(
        &step(r#""/d1":{"total":1}"#),
        r#"line 3: "/d1" has no usable"#,
    );
    check_refused(
        &step(r#""/d1":{"usable":1}"#),
        r#"line 3: "/d1" has no total"#,
    );
    check_refused(
        &step(r#""/d1":[10,1]"#),
        "line 3: invalid type: sequence, expected an object (column 18)",
    );
    check_refused(&step(r#""/d1":{}"#), r#"line 3: "/d1" has no total"#);
    check_refused(
        &step(r#""/d1":null"#),
        "line 3: invalid type: null, expected an object (column 22)",
    );
    check_refused(
        &step(r#""/d1":{"total":1,"usable":null}"#),
        "line 3: invalid type: null, expected i64 (column 42)",
    );
    check_refused(
        &step(r#""/d1":{"error":"eio"}"#),
        "line 3: unknown variant `eio`, expected `io` or `store` (column 32)",
    );
    check_refused(
        &step(r#""/d1":{"error":"store"}"#),
        r#"line 3: "/d1" has no total"#,
    );
    check_refused(
        &step(r#""/d1":{"error":"io","usable":1}"#),
        r#"line 3: "/d1" has no total"#,
    );
    check_refused(
        &step(r#""/d1":{"total":10,"usable":11}"#),
        r#"line 3: "/d1" has usable 11, more than its total, 10"#,
    );
    check_refused(
        &step(r#""/d1":{"total":10,"usable":-1}"#),
        r#"line 3: "/d1" has total 10 and usable -1"#,
    );
    check_refused(
        &step(r#""/d1":{"total":10.0,"usable":1}"#),
        "line 3: invalid type: floating point `10.0`, expected i64 (column 31)",
    );
    check_refused(
        &step(r#""/d1":{"total":1e3,"usable":1}"#),
        "line 3: invalid type: floating point `1000.0`, expected i64 (column 30)",
    );
    check_refused(
        &step(r#""/d1":{"total":"10","usable":1}"#),
        r#"line 3: invalid type: string "10", expected i64 (column 31)"#,
    );
    check_refused(
        &step(r#""/d1":{"total":9223372036854775808,"usable":1}"#),
        "line 3: invalid value: integer `9223372036854775808`, expected i64 (column 46)",
    );
    check_refused(
        &step(r#""/j1":{"total":1,"usable":2}"#),
        r#"line 3: "/j1" has usable 2, more than its total, 1"#,
    );
}

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
    let (output, result) = simulate(
        Semantics::Bookkeeper,
        &format!("{HEADER}\n{START}\n{START}\n?"),
    );
    assert!(result.is_err());
    assert_eq!(output.lines().count(), 2);
}

#[test]
fn the_last_line_needs_no_newline_and_a_header_alone_is_answered_by_nothing() {
    let (output, result) = simulate(Semantics::Bookkeeper, &format!("{HEADER}\r\n{START}"));
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(output.lines().count(), 1);
    let (output, result) = simulate(Semantics::Bookkeeper, HEADER);
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
    let run = |steps: usize| {
        let lines = Steps {
            left: steps,
            line: Vec::new(),
        };
        let start = format!("{HEADER}\n{START}\n").into_bytes();
        let chunks = Chunks(std::iter::once(start).chain(lines), io::Cursor::default());
        simulate::run(Semantics::Bookkeeper, BufReader::new(chunks), io::sink()).unwrap();
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    };
    let few = run(1_000);
    let many = run(100_000);
    // Other tests run beside this one; an answer for each step alone would be 20 MB.
    assert!(many < few + (8 << 20), "{few} bytes, then {many}");
}
