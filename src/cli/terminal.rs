//! Standard output and how things are written on it: colours and width of a terminal, and the forms
//! of numbers, times and names that people read. Decides nothing about directories.

use std::io::{self, IsTerminal, Write};
use std::time::SystemTime;

use clap::builder::styling::{AnsiColor, Style};

use super::exit::{Exit, Failure};
use crate::document;
pub use crate::document::printable;

/// Writes a result to standard output, at once.
///
/// # Errors
/// Standard output takes nothing. When only its reader has gone (`| head`), the failure has the exit
/// code 0 and is not worth a word.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let written = output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(Exit::Ok, error),
        _ => Failure::io("cannot write to standard output", error),
    })
}

/// What the reader of an output can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Colours are understood and wanted.
    pub colour: bool,
    /// Characters in a line; none where lines may have any length.
    pub width: Option<usize>,
}

/// How a piece of text is to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// All is well.
    Good,
    /// Worth a look.
    Warning,
    /// Somebody is needed.
    Bad,
    /// Nobody knows.
    Unknown,
    /// A heading.
    Heading,
    /// Of less weight.
    Dim,
}

impl Tone {
    /// The tone of a severity by its word.
    #[must_use]
    pub fn of_severity(severity: &str) -> Tone {
        match severity {
            "ok" => Tone::Good,
            "warning" => Tone::Warning,
            "critical" => Tone::Bad,
            _ => Tone::Unknown,
        }
    }

    const fn style(self) -> Style {
        match self {
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Warning => AnsiColor::Yellow.on_default(),
            Tone::Bad => AnsiColor::Red.on_default().bold(),
            Tone::Unknown => AnsiColor::Magenta.on_default(),
            Tone::Heading => Style::new().bold(),
            Tone::Dim => Style::new().dimmed(),
        }
    }
}

impl Terminal {
    /// A file or a pipe: no colours, lines of any length.
    pub const NONE: Terminal = Terminal {
        colour: false,
        width: None,
    };

    /// What standard output is.
    #[must_use]
    pub fn stdout() -> Terminal {
        let output = io::stdout();
        if !output.is_terminal() {
            return Terminal::NONE;
        }
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let width = terminal_size::terminal_size_of(&output);
        Terminal {
            colour: !set("NO_COLOR") && !dumb,
            width: width.map(|(terminal_size::Width(width), _)| usize::from(width)),
        }
    }

    /// The text in that tone, where colours can be seen.
    #[must_use]
    pub fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let style = tone.style();
        format!("{style}{text}{style:#}")
    }

    /// The text in lines that fit, each after `indent` blanks and ended by a line feed. Words that
    /// do not fit into a line keep their length: a path must stay whole to be copied.
    #[must_use]
    pub fn paragraph(self, indent: usize, text: &str) -> String {
        let width = self.width.unwrap_or(usize::MAX);
        let margin = " ".repeat(indent);
        let mut paragraph = String::new();
        let mut column = 0;
        for word in text.split(' ') {
            let length = word.chars().count();
            if column != 0 && width.saturating_sub(column + 1) < length {
                paragraph.push('\n');
                column = 0;
            }
            if column == 0 {
                paragraph.push_str(&margin);
                column = indent;
            } else {
                paragraph.push(' ');
                column += 1;
            }
            paragraph.push_str(word);
            column += length;
        }
        paragraph.push('\n');
        paragraph
    }
}

/// A word of the API as people write it: `almostFull` is almost full.
#[must_use]
pub fn words(name: &str) -> String {
    document::words(&printable(name))
}

/// A ratio in percent, with one digit after the point, or as many more (up to four) as it takes to
/// be seen on its side of the limits.
#[must_use]
pub fn percent(ratio: f64, limits: &[f64]) -> String {
    let text = |digits: usize| format!("{:.digits$}", ratio * 100.0);
    let same_side = |text: &str| {
        text.parse().is_ok_and(|shown: f64| {
            let side = |limit: &f64| {
                // Both in percent, so that 0.9 and 90.0 meet in spite of binary fractions.
                let limit = (limit * 1e6).round() / 1e4;
                shown.partial_cmp(&limit) == (ratio * 100.0).partial_cmp(&limit)
            };
            limits.iter().all(side)
        })
    };
    (1..4)
        .map(text)
        .find(|text| same_side(text))
        .unwrap_or_else(|| text(4))
}

/// A limit in percent, as short as it can be written: `90`, `92.5`.
#[must_use]
pub fn limit(ratio: f64) -> String {
    let text = format!("{:.3}", ratio * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A span of time in its two largest units, such as `3 d 4 h`.
#[must_use]
pub fn span(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let largest = UNITS.iter().position(|(length, _)| *length <= seconds);
    let Some(largest) = largest else {
        return "0 s".to_owned();
    };
    let (length, name) = UNITS[largest];
    let mut text = format!("{} {name}", seconds / length);
    if let Some((smaller, name)) = UNITS.get(largest + 1) {
        let rest = seconds % length / smaller;
        if rest != 0 {
            text.push_str(&format!(" {rest} {name}"));
        }
    }
    text
}

/// The span from one RFC 3339 time to a later one; none when they cannot be read or are the other
/// way round.
#[must_use]
pub fn between(earlier: &str, later: &str) -> Option<String> {
    let time = |text| humantime::parse_rfc3339(text).ok();
    let span_of = |from: SystemTime, to: SystemTime| to.duration_since(from).ok();
    let between = span_of(time(earlier)?, time(later)?)?;
    Some(span(between.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_stay_on_their_side_of_a_limit() {
        let check = |ratio: f64, expected: &str| {
            assert_eq!(percent(ratio, &[0.9, 0.95]), expected, "{ratio}");
        };
        check(0.6, "60.0");
        check(0.9123, "91.2");
        check(0.9, "90.0");
        check(0.95, "95.0");
        check(0.9499, "94.99");
        check(0.949_999, "94.9999");
        check(0.950_01, "95.001");
        assert_eq!(limit(0.9), "90");
        assert_eq!(limit(0.925), "92.5");
        assert_eq!(limit(1.0), "100");
    }

    #[test]
    fn spans_have_units() {
        assert_eq!(span(0), "0 s");
        assert_eq!(span(59), "59 s");
        assert_eq!(span(60), "1 m");
        assert_eq!(span(5_399), "1 h 29 m");
        assert_eq!(span(90_000), "1 d 1 h");
    }

    #[test]
    fn spans_between_times_need_two_times_in_order() {
        let check = |from, to, expected: Option<&str>| {
            assert_eq!(between(from, to).as_deref(), expected);
        };
        check(
            "2026-11-30T01:00:00Z",
            "2026-11-30T01:02:03.456Z",
            Some("2 m 3 s"),
        );
        check("2026-11-30T01:02:04Z", "2026-11-30T01:02:03Z", None);
        check("yesterday", "2026-11-30T01:02:03Z", None);
    }

    #[test]
    fn names_are_words() {
        assert_eq!(words("almostFull"), "almost full");
        assert_eq!(words("readOnly"), "read-only");
    }

    #[test]
    fn paragraphs_fit_and_keep_long_words_whole() {
        let narrow = Terminal {
            width: Some(12),
            ..Terminal::NONE
        };
        assert_eq!(
            narrow.paragraph(2, "one two three /a/very/long/path end"),
            "  one two\n  three\n  /a/very/long/path\n  end\n"
        );
        assert_eq!(Terminal::NONE.paragraph(2, "one two"), "  one two\n");
        let colourful = Terminal {
            colour: true,
            ..narrow
        };
        insta::assert_snapshot!(
            colourful.paint(Tone::Bad, "full").escape_debug(),
            @r"\u{1b}[1m\u{1b}[31mfull\u{1b}[0m"
        );
    }
}
