//! Text in, text out: the conformance traces of the real BookKeeper, and how bad input is answered.

#![allow(clippy::unwrap_used)] // a test may: what it unwraps is its own

#[path = "scenarios/filter.rs"]
mod filter;

use std::fmt::Write as _;
use std::fs;
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

fn replay(semantics: Semantics, input: &str) -> (String, Result<(), SimulateError>) {
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
        let (output, result) = replay(Semantics::Bookkeeper, &input);
        assert!(result.is_ok(), "{}: {result:?}", path.display());
        assert_same(&path, &output, &expected);
    }
}

/// What BookKeeper looks at: everything else in an input is not there for it.
fn as_bookkeeper_sees_it(input: &str) -> String {
    let mut lines = json_lines(input);
    for dir in lines[0]["dirs"].as_array_mut().unwrap() {
        let keys = ["path", "role", "filesystem"];
        dir.as_object_mut()
            .unwrap()
            .retain(|key, _| keys.contains(&key.as_str()));
    }
    let settings = lines[0]["settings"].as_object_mut().unwrap();
    settings
        .retain(|key, _| key.contains("disk") || key.contains("Enabled") || key.contains("min"));
    for line in &mut lines[1..] {
        line.as_object_mut().unwrap().remove("at");
        for (_, seen) in line["observe"].as_object_mut().unwrap() {
            let keys = ["total", "usable", "error"];
            seen.as_object_mut()
                .unwrap()
                .retain(|key, _| keys.contains(&key.as_str()));
        }
    }
    let texts: Vec<String> = lines.iter().map(Value::to_string).collect();
    texts.join("\n")
}

/// Compares with the file that names what is expected, or writes it if `UPDATE_EXPECT` is set.
fn check_expected(path: &Path, semantics: Semantics, input: &str) {
    let (mut output, result) = replay(semantics, input);
    if let Err(error) = result {
        let line = serde_json::json!({ "refused": error.to_string() });
        writeln!(output, "{line}").unwrap();
    }
    let expected = path.with_extension(format!("{}.out", semantics.name()));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&expected, &output).unwrap();
    }
    let expected = fs::read_to_string(&expected).unwrap_or_default();
    assert_same(path, &output, &expected);
}

// One file for each weakness of BookKeeper's that docs/bookkeeper.md names, with what BookKeeper
// makes of it and what dirkeeper does. A hung operation has no answer of BookKeeper's: its only
// thread hangs with it.
#[test]
fn weaknesses_of_bookkeeper_are_shown_and_not_shared() {
    let inputs = inputs("tests/scenarios", ".jsonl");
    assert!(inputs.len() > 20, "{}", inputs.len());
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/bookkeeper.md");
    let docs = fs::read_to_string(docs).unwrap();
    for path in inputs {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            docs.contains(&format!("`{name}`")),
            "{name} is not in docs/bookkeeper.md"
        );
        let input = fs::read_to_string(&path).unwrap();
        check_expected(&path, Semantics::Dirkeeper, &input);
        if !input.contains("inFlight") {
            check_expected(&path, Semantics::Bookkeeper, &as_bookkeeper_sees_it(&input));
        }
    }
}

// One slow disk of many, too few disks, load, mixed media. BookKeeper looks at no latency.
#[test]
fn outliers_among_siblings() {
    for name in ["dying", "four", "load", "media"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/latency");
        let path = path.join(name).with_extension("jsonl");
        let input = fs::read_to_string(&path).unwrap();
        check_expected(&path, Semantics::Dirkeeper, &input);
    }
}

// UPDATE_EXPECT=1 rewrites the output.
#[test]
fn example_of_the_documentation_is_right() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/simulate.md");
    let docs = fs::read_to_string(&path).unwrap();
    let block = |name: &str| {
        let begin = docs.find(&format!("```jsonl {name}\n")).unwrap() + 10 + name.len();
        (begin, begin + docs[begin..].find("```").unwrap())
    };
    let (begin, end) = block("input");
    let (output, result) = replay(Semantics::Dirkeeper, &docs[begin..end]);
    assert!(result.is_ok(), "{result:?}");
    let (begin, end) = block("output");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, format!("{}{output}{}", &docs[..begin], &docs[end..])).unwrap();
        return;
    }
    assert_eq!(&docs[begin..end], output);
}

const HEADER: &str = r#"{"dirs":[{"path":"/d1","role":"ledger"},{"path":"/j1","role":"journal"},{"path":"/i1","role":"index"}],"settings":{"readOnlyModeOnAnyDiskFullEnabled":true}}"#;
const START: &str =
    r#"{"observe":{"/d1":{"total":1000,"usable":900},"/i1":{"total":1000,"usable":900}}}"#;

/// `HEAD` and `START` stand for good lines.
fn written_out(input: &str) -> String {
    input.replace("HEAD", HEADER).replace("START", START)
}

#[test]
fn wrong_input_is_refused_with_line_value_and_remedy() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/refused.txt");
    let text = fs::read_to_string(&path).unwrap();
    let (comment, cases) = text.split_once("\n\n").unwrap();
    let mut actual = format!("{comment}\n");
    for case in cases.split("\n\n") {
        let name = case.lines().next().unwrap();
        let mut all = Semantics::ALL.into_iter();
        let semantics = all.find(|one| one.name() == name).unwrap();
        let lines = case.lines().filter(|line| line.starts_with('|'));
        let input: String = lines
            .clone()
            .map(|line| format!("{}\n", line[1..].trim()))
            .collect();
        let (_, result) = replay(semantics, &written_out(&input));
        let error = result.expect_err(case);
        assert_eq!(error.exit_code(), 65, "{case}");
        assert!(error.to_string().contains("; "), "no remedy: {error}");
        let lines: String = lines.map(|line| format!("{line}\n")).collect();
        write!(actual, "\n{name}\n{lines}{error}\n").unwrap();
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &actual).unwrap();
    }
    assert_eq!(actual, fs::read_to_string(&path).unwrap());
}
