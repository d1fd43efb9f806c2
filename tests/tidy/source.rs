//! Reads Rust source for the rules of `tidy.rs`: code without comments and literals, the paths it
//! names with their groups unfolded, the functions and test modules in it. A lexer of the few things
//! the rules ask about, not a parser.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// One file of Rust.
pub(crate) struct Source {
    /// Relative to the root of the repository.
    pub(crate) path: PathBuf,
    /// As it is.
    pub(crate) text: String,
    /// The same bytes, with those of comments and literals blanked.
    pub(crate) code: String,
    /// Ranges of lines, from 0, that are compiled for tests only.
    tests: Vec<Range<usize>>,
}

/// A path like `std::fs::File`, and the line, from 0, on which it ends.
pub(crate) struct Named {
    pub(crate) line: usize,
    pub(crate) segments: Vec<String>,
}

impl Named {
    pub(crate) fn text(&self) -> String {
        self.segments.join("::")
    }

    /// It is this path or something in it.
    pub(crate) fn is_in(&self, prefix: &str) -> bool {
        let prefix: Vec<&str> = prefix.split("::").collect();
        self.segments.len() >= prefix.len() && self.segments.iter().zip(prefix).all(|(a, b)| a == b)
    }
}

impl Source {
    pub(crate) fn read(root: &Path, path: &Path) -> Source {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        Source::new(path, text)
    }

    pub(crate) fn new(path: &Path, text: String) -> Source {
        let code = blank(&text);
        let tests = test_lines(&code);
        let path = path.to_owned();
        Source {
            path,
            text,
            code,
            tests,
        }
    }

    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        let file = self.path.file_name().is_some_and(|name| name == "tests.rs");
        let folder = self.path.iter().any(|part| part == "tests");
        file || folder || self.tests.iter().any(|range| range.contains(&line))
    }

    /// All paths of two segments or more, in code that is not only for tests.
    pub(crate) fn paths(&self) -> Vec<Named> {
        let mut named = self.paths_with_tests();
        named.retain(|path| !self.is_test_line(path.line));
        named
    }

    pub(crate) fn paths_with_tests(&self) -> Vec<Named> {
        let mut reader = Reader {
            tokens: tokens(&self.code),
            at: 0,
            named: Vec::new(),
        };
        while reader.at < reader.tokens.len() {
            reader.path(&[]);
        }
        reader.named.retain(|path| path.segments.len() > 1);
        reader.named
    }

    /// Name, first line (from 0) and length in lines of each function with a body.
    pub(crate) fn functions(&self) -> Vec<(String, usize, usize)> {
        let tokens = tokens(&self.code);
        let mut found = Vec::new();
        for (at, pair) in tokens.windows(2).enumerate() {
            if pair[0].text != "fn" || !is_word(&pair[1].text) {
                continue;
            }
            let Some(open) = body(&tokens[at..]) else {
                continue;
            };
            let end = closing(&tokens, at + open);
            found.push((pair[1].text.clone(), pair[0].line, end - pair[0].line + 1));
        }
        found
    }
}

struct Token {
    text: String,
    line: usize,
}

/// Where the body of the function that starts here opens; none for one without.
fn body(tokens: &[Token]) -> Option<usize> {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            "{" if depth == 0 => return Some(at),
            ";" if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The line of the brace that closes the one at `open`.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for token in &tokens[open..] {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return token.line;
        }
    }
    tokens.last().map_or(0, |token| token.line)
}

fn test_lines(code: &str) -> Vec<Range<usize>> {
    let tokens = tokens(code);
    let mut ranges = Vec::new();
    for (at, window) in tokens.windows(7).enumerate() {
        let texts = window.iter().map(|token| token.text.as_str());
        if texts.eq(["#", "[", "cfg", "(", "test", ")", "]"])
            && let Some(open) = body(&tokens[at + 7..])
        {
            ranges.push(window[0].line..closing(&tokens, at + 7 + open) + 1);
        }
    }
    ranges
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
    named: Vec<Named>,
}

impl Reader {
    fn next_is(&self, text: &str) -> bool {
        self.tokens
            .get(self.at)
            .is_some_and(|token| token.text == text)
    }

    /// Reads one path that continues `prefix`, with its groups, or passes one token by.
    fn path(&mut self, prefix: &[String]) {
        let mut segments = prefix.to_vec();
        let mut line = self.tokens[self.at].line;
        loop {
            if self.next_is("{") && !segments.is_empty() {
                self.group(&segments);
                return;
            }
            let Some(token) = self.tokens.get(self.at) else {
                break;
            };
            line = token.line;
            let name = token.text.clone();
            self.at += 1;
            if !is_word(&name) && name != "*" {
                return;
            }
            segments.push(name);
            if !self.next_is("::") {
                break;
            }
            self.at += 1;
        }
        self.named.push(Named { line, segments });
    }

    fn group(&mut self, prefix: &[String]) {
        self.at += 1;
        while self.at < self.tokens.len() && !self.next_is("}") {
            self.path(prefix);
            while self.at < self.tokens.len() && !self.next_is(",") && !self.next_is("}") {
                self.at += 1;
            }
            if self.next_is(",") {
                self.at += 1;
            }
        }
        self.at += 1;
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::`, and single other characters.
fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (line, text) in code.lines().enumerate() {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = rest
                .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                .unwrap_or(rest.len());
            let length = match word {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                length => length,
            };
            tokens.push(Token {
                text: rest[..length].to_owned(),
                line,
            });
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// The code with every character of comments, strings and character literals replaced by a blank;
/// lines stay lines.
fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = skipped(
            rest,
            out.ends_with(|c: char| c.is_alphanumeric() || c == '_'),
        );
        if length == 0 {
            out.push(first);
            at += first.len_utf8();
        } else {
            out.extend(
                rest[..length]
                    .chars()
                    .map(|c| if c == '\n' { '\n' } else { ' ' }),
            );
            at += length;
        }
    }
    out
}

/// Length of the comment or literal that starts here; 0 when none does.
fn skipped(rest: &str, within_word: bool) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    let literal = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    let prefix = rest.len() - literal.len();
    if within_word && prefix > 0 {
        return 0;
    }
    if let Some(raw) = literal.strip_prefix('r').filter(|_| !within_word) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = &raw[hashes + 1..];
            let length = body
                .find(&end)
                .map_or(body.len(), |found| found + end.len());
            return prefix + 1 + hashes + 1 + length;
        }
    }
    if let Some(body) = literal.strip_prefix('"') {
        return prefix + 1 + quoted(body, '"').unwrap_or(body.len());
    }
    // A quote that no second one follows soon is a lifetime.
    if let Some(body) = literal.strip_prefix('\'') {
        let end = match body.chars().next() {
            Some('\\') => quoted(body, '\''),
            Some(first) => body[first.len_utf8()..]
                .starts_with('\'')
                .then_some(first.len_utf8() + 1),
            None => None,
        };
        return end.map_or(0, |length| prefix + 1 + length);
    }
    0
}

/// Bytes up to and with the closing quote.
fn quoted(body: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + c.len_utf8()),
            _ => {}
        }
    }
    None
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

#[test]
fn groups_are_unfolded_and_literals_are_not_code() {
    let text = r####"
        use std::{fs::{self, File}, io};
        fn f<'a>(x: &'a str) { g(crate::a::b, "crate::no", 'x', '\'', r#"std::no"#); } // std::no
        #[cfg(test)]
        mod tests { use std::net::X; }
    "####;
    let source = Source::new(Path::new("src/x.rs"), text.to_owned());
    let paths: Vec<String> = source.paths().iter().map(Named::text).collect();
    assert_eq!(
        paths,
        ["std::fs::self", "std::fs::File", "std::io", "crate::a::b"]
    );
    assert_eq!(source.functions(), [("f".to_owned(), 2, 1)]);
    assert!(source.is_test_line(4) && !source.is_test_line(2));
}
