//! Reads a properties file as BookKeeper's own reader (commons-configuration) does: Latin-1,
//! escapes, continuation lines, repeated keys as lists. Knows no key. Never panics, on any bytes.

use std::collections::BTreeMap;

/// What a file sets, by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Properties {
    keys: BTreeMap<String, Property>,
    /// Lines that the bookie itself would stumble over, and why.
    pub(super) broken: Vec<(usize, &'static str)>,
}

/// All that a file says about one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Property {
    /// Line of the first mention, counted from 1.
    pub(super) line: usize,
    /// Lines of further mentions.
    pub(super) again: Vec<usize>,
    /// Comma-separated parts of all mentions, blanks trimmed. Where one value is asked for, the
    /// first counts.
    pub(super) items: Vec<String>,
}

impl Property {
    /// The value of a key that is no list; none if nothing is written.
    pub(super) fn first(&self) -> Option<&str> {
        self.items.first().map(String::as_str)
    }

    /// The value with its commas, for keys that BookKeeper joins again.
    pub(super) fn joined(&self) -> String {
        self.items.join(",")
    }
}

impl Properties {
    pub(super) fn get(&self, key: &str) -> Option<&Property> {
        self.keys.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Property)> {
        self.keys
            .iter()
            .map(|(key, property)| (key.as_str(), property))
    }

    /// Reads a file's bytes.
    pub(super) fn parse(bytes: &[u8]) -> Properties {
        // Latin-1: each byte is the character of that number.
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        let mut properties = Properties::default();
        for (line, text) in logical_lines(&text, &mut properties.broken) {
            let (key, value) = split(&text);
            let (Some(key), Some(value)) = (unescape(key), unescape(value)) else {
                let why = "has a \\u that four hexadecimal digits do not follow";
                properties.broken.push((line, why));
                continue;
            };
            let items = items(&value);
            match properties.keys.get_mut(&key) {
                Some(property) => {
                    property.again.push(line);
                    property.items.extend(items);
                }
                None => {
                    let property = Property {
                        line,
                        again: Vec::new(),
                        items,
                    };
                    properties.keys.insert(key, property);
                }
            }
        }
        properties
    }
}

/// Lines without comments and blank ones, continued lines joined, with the number of the first.
fn logical_lines(text: &str, broken: &mut Vec<(usize, &'static str)>) -> Vec<(usize, String)> {
    let mut logical = Vec::new();
    let mut pending: Option<(usize, String)> = None;
    // `\r\n` gives an empty line more, so lines are counted by hand.
    let unified = text.replace("\r\n", "\n").replace('\r', "\n");
    for (index, line) in unified.split('\n').enumerate() {
        let line = trim(line);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let (number, mut joined) = pending.take().unwrap_or((index + 1, String::new()));
        let slashes = line.len() - line.trim_end_matches('\\').len();
        if slashes % 2 == 1 {
            joined.push_str(&line[..line.len() - 1]);
            pending = Some((number, joined));
        } else {
            joined.push_str(line);
            logical.push((number, joined));
        }
    }
    if let Some((number, _)) = pending {
        broken.push((
            number,
            "is continued, but the file ends, and the bookie ignores it",
        ));
    }
    logical
}

/// Blanks as Java's `trim` sees them.
fn trim(text: &str) -> &str {
    text.trim_matches(|c| c <= ' ')
}

/// Key and value: the first `=`, `:` or run of blanks that is not escaped separates them.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c <= ' ' || c == '=' || c == ':' {
            let rest = trim(&line[at..]);
            let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
            return (&line[..at], trim(value));
        }
    }
    (line, "")
}

/// Replaces escapes. A backslash before any other character stays, as in `\,`.
fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    // Java's strings are UTF-16: two escapes may form one character.
    let mut units: Vec<u16> = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            flush(&mut units, &mut plain);
            plain.push(c);
            continue;
        }
        let escape = chars.next();
        if escape == Some('u') {
            let digits: String = chars.by_ref().take(4).collect();
            let hexadecimal = digits.chars().all(|digit| digit.is_ascii_hexdigit());
            if digits.len() != 4 || !hexadecimal {
                return None;
            }
            units.push(u16::from_str_radix(&digits, 16).ok()?);
            continue;
        }
        flush(&mut units, &mut plain);
        match escape {
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some('r') => plain.push('\r'),
            Some('f') => plain.push('\u{c}'),
            Some('b') => plain.push('\u{8}'),
            Some(c @ (':' | '#' | '=' | '!' | '\\' | '\'' | '"')) => plain.push(c),
            Some(c) => {
                plain.push('\\');
                plain.push(c);
            }
            None => plain.push('\\'),
        }
    }
    flush(&mut units, &mut plain);
    Some(plain)
}

fn flush(units: &mut Vec<u16>, plain: &mut String) {
    if !units.is_empty() {
        plain.push_str(&String::from_utf16_lossy(units));
        units.clear();
    }
}

/// The comma-separated parts; `\,` is a comma of the value. Empty ones are left out.
fn items(value: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut chars = value.chars().peekable();
    while let Some(c) = chars.next() {
        let last = items.len() - 1;
        match (c, chars.peek()) {
            ('\\', Some(',' | '\\')) => items[last].extend(chars.next()),
            (',', _) => items.push(String::new()),
            (c, _) => items[last].push(c),
        }
    }
    items
        .iter()
        .map(|item| trim(item).to_owned())
        .filter(|item| !item.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &[u8], expected: &[(&str, usize, &[&str])]) {
        let properties = Properties::parse(text);
        assert_eq!(properties.broken, []);
        let found: Vec<_> = properties
            .iter()
            .map(|(key, property)| {
                let items: Vec<_> = property.items.iter().map(String::as_str).collect();
                (key, property.line, items)
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(key, line, items)| (*key, *line, items.to_vec()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn separators_are_equals_colon_and_blanks() {
        check(
            b"a=1\nb:2\nc 3\n  d   =  4  \ne\tx = y\nf\n",
            &[
                ("a", 1, &["1"]),
                ("b", 2, &["2"]),
                ("c", 3, &["3"]),
                ("d", 4, &["4"]),
                ("e", 5, &["x = y"]),
                ("f", 6, &[]),
            ],
        );
    }

    #[test]
    fn comments_and_blank_lines_are_skipped_also_within_a_continued_line() {
        check(
            b"# a=1\n! b=2\n\nc=/x,\\\n  # not a part\n\n   /y\\\n,/z\nd=4\n",
            &[("c", 4, &["/x", "/y", "/z"]), ("d", 9, &["4"])],
        );
    }

    #[test]
    fn an_even_number_of_backslashes_does_not_continue_a_line() {
        check(b"a=x\\\\\nb=2", &[("a", 1, &["x\\"]), ("b", 2, &["2"])]);
    }

    #[test]
    fn line_ends_of_all_systems_count_once() {
        check(
            b"a=1\r\nb=2\rc=3\n",
            &[("a", 1, &["1"]), ("b", 2, &["2"]), ("c", 3, &["3"])],
        );
    }

    #[test]
    fn escapes_and_latin_1() {
        check(
            b"a\\=b=\\u00e9\\t|\\:\nc=\\uD83D\\uDE00\nd=\xe9\ne=/x\\,y,/z\\q",
            &[
                ("a=b", 1, &["é\t|:"]),
                ("c", 2, &["😀"]),
                ("d", 3, &["é"]),
                ("e", 4, &["/x,y", "/z\\q"]),
            ],
        );
    }

    #[test]
    fn a_repeated_key_adds_to_its_list() {
        let properties = Properties::parse(b"dirs=/a, /b ,,\nx=1\ndirs=/c\n");
        let dirs = properties.get("dirs").unwrap();
        assert_eq!(dirs.items, ["/a", "/b", "/c"]);
        assert_eq!((dirs.line, dirs.again.as_slice()), (1, [3].as_slice()));
        assert_eq!(dirs.first(), Some("/a"));
        assert_eq!(dirs.joined(), "/a,/b,/c");
    }

    #[test]
    fn what_the_bookie_would_stumble_over_is_said_with_its_line() {
        let properties = Properties::parse(b"a=1\nb=\\u12\nc=\\uzzzz\nd=/x,\\\n");
        let lines: Vec<_> = properties.broken.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [4, 2, 3]);
    }

    proptest! {
        /// Whatever the bytes, there is an answer.
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            Properties::parse(&bytes);
        }

        /// The same for inputs that consist of what has a meaning.
        #[test]
        fn no_input_of_special_characters_panics(text in r"[\\\\=: ,#!u0-9a-f\r\né]{0,60}") {
            Properties::parse(text.as_bytes());
        }

        /// What is escaped comes back.
        #[test]
        fn a_written_path_is_read_back(path in "/[a-z=: #!.é-]{0,20}x") {
            let escaped: String = path
                .chars()
                .map(|c| match c {
                    '=' | ':' | '#' | '!' => format!("\\{c}"),
                    c if c.is_ascii() => c.to_string(),
                    c => format!("\\u{:04x}", u32::from(c)),
                })
                .collect();
            let properties = Properties::parse(format!("key={escaped}").as_bytes());
            prop_assert_eq!(properties.get("key").unwrap().first(), Some(path.as_str()));
        }
    }
}
