//! Says what went wrong: an error with its chain of sources as `dirkeeper: what: why`, each layer
//! once. The one place that turns an error into text for people; ends nothing.

use std::error::Error;
use std::io::{self, Write};

use crate::health::dir::printable;

/// The error and its sources, outermost first, joined by colons. A layer that the one above has
/// already quoted is left out, because many libraries print their source as well as link it. A
/// layer of several lines, such as all problems of a configuration, follows line by line.
#[must_use]
pub fn text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(layer) = source {
        let sentence = layer.to_string();
        if sentence.contains('\n') {
            text.push(':');
            for line in sentence.lines() {
                text.push_str("\n  ");
                text.push_str(line);
            }
        } else if !sentence.is_empty() && !text.ends_with(&sentence) {
            text.push_str(": ");
            text.push_str(&sentence);
        }
        source = layer.source();
    }
    text
}

/// Writes the error to standard error, and below it what to do about it, if somebody knows.
/// A standard error that takes nothing is no reason to fail once more.
pub fn print(error: &(dyn Error + 'static), remedy: Option<&str>) {
    let lines = text(error);
    let lines: Vec<String> = lines.lines().map(printable).collect();
    let mut lines = format!("dirkeeper: {}\n", lines.join("\n"));
    if let Some(remedy) = remedy {
        lines.push_str("  try: ");
        lines.push_str(remedy);
        lines.push('\n');
    }
    let _ = io::stderr().lock().write_all(lines.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    fn chain(texts: &[&'static str]) -> Layer {
        let mut layers = texts.iter().rev();
        let mut error = Layer {
            text: layers.next().unwrap(),
            source: None,
        };
        for text in layers {
            error = Layer {
                text,
                source: Some(Box::new(error)),
            };
        }
        error
    }

    #[test]
    fn each_layer_is_said_once() {
        let check = |texts: &[&'static str], expected: &str| {
            assert_eq!(text(&chain(texts)), expected);
        };
        check(&["cannot listen"], "cannot listen");
        check(
            &["cannot listen", "address in use"],
            "cannot listen: address in use",
        );
        check(
            &["cannot listen: address in use", "address in use"],
            "cannot listen: address in use",
        );
        check(&["cannot listen", "", "in use"], "cannot listen: in use");
        check(&["bad", "one\ntwo"], "bad:\n  one\n  two");
    }
}
