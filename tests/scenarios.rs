//! Text in, text out: the conformance traces of the real BookKeeper, and how bad input is answered.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

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
