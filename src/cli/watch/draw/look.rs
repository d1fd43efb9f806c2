//! What a terminal can show and how wide that is: signs and colours for a severity, text that steers
//! nothing, cut and wrapped by the columns that it takes.

use ratatui::style::{Color, Modifier, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::super::super::terminal::{Tone, printable};

/// What a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli::watch) struct Look {
    /// Colours are wanted.
    pub(in crate::cli::watch) colour: bool,
    /// The locale has more characters than ASCII.
    pub(in crate::cli::watch) unicode: bool,
}

impl Look {
    /// Text from outside, in characters that this terminal has and that steer nothing.
    pub(super) fn text(self, text: &str) -> String {
        let text = printable(text);
        if self.unicode || text.is_ascii() {
            return text;
        }
        let mut ascii = String::with_capacity(text.len() + 16);
        for character in text.chars() {
            if character.is_ascii() {
                ascii.push(character);
            } else {
                ascii.extend(character.escape_unicode());
            }
        }
        ascii
    }

    /// The sign of a severity by its word: states differ without colours too.
    pub(super) fn sign(self, severity: &str) -> &'static str {
        match (severity, self.unicode) {
            ("ok", true) => "✓",
            ("ok", false) => "+",
            ("warning", true) => "▲",
            ("warning", false) => "!",
            ("critical", true) => "✖",
            ("critical", false) => "X",
            _ => "?",
        }
    }

    /// What stands for what was cut.
    pub(super) fn cut(self) -> &'static str {
        if self.unicode { "…" } else { "~" }
    }

    /// A line across.
    pub(super) fn rule(self) -> &'static str {
        if self.unicode { "─" } else { "-" }
    }

    /// Used space, free space and the mark of a threshold in a bar.
    pub(super) fn bar(self) -> [char; 3] {
        if self.unicode {
            ['█', '░', '┃']
        } else {
            ['#', '.', '|']
        }
    }

    pub(super) fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        let colour = |colour| {
            if self.colour { style.fg(colour) } else { style }
        };
        match tone {
            Tone::Good => colour(Color::Green),
            Tone::Warning => colour(Color::Yellow),
            Tone::Bad => colour(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Unknown => colour(Color::Magenta),
            Tone::Heading => style.add_modifier(Modifier::BOLD),
            Tone::Dim => colour(Color::DarkGray),
        }
    }

    /// The text in at most so many columns, its end cut.
    pub(super) fn fit(self, text: &str, width: usize) -> String {
        if text.width() <= width {
            return text.to_owned();
        }
        let room = width.saturating_sub(1);
        let mut cut = head(text, room).to_owned();
        if width != 0 {
            cut.push_str(self.cut());
        }
        cut
    }

    /// The text in at most so many columns, its middle cut: both ends of a path say which it is, the
    /// last one more.
    pub(super) fn fit_middle(self, text: &str, width: usize) -> String {
        if text.width() <= width || width < 3 {
            return self.fit(text, width);
        }
        let room = width - 1;
        let head = head(text, room / 3);
        let tail = tail(text, room - head.width());
        format!("{head}{}{tail}", self.cut())
    }

    /// The text followed by blanks up to so many columns, or cut to them.
    pub(super) fn pad(self, text: &str, width: usize) -> String {
        let mut padded = self.fit(text, width);
        let missing = width.saturating_sub(padded.width());
        padded.extend(std::iter::repeat_n(' ', missing));
        padded
    }

    /// Blanks up to so many columns followed by the text.
    pub(super) fn pad_left(self, text: &str, width: usize) -> String {
        let text = self.fit(text, width);
        " ".repeat(width.saturating_sub(text.width())) + &text
    }
}

fn columns(character: char) -> usize {
    character.width().unwrap_or(0)
}

/// As much of the beginning as goes into so many columns.
fn head(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (at, character) in text.char_indices() {
        used += columns(character);
        if width < used {
            return &text[..at];
        }
    }
    text
}

/// As much of the end.
fn tail(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (at, character) in text.char_indices().rev() {
        used += columns(character);
        if width < used {
            return &text[at + character.len_utf8()..];
        }
    }
    text
}

/// The text in lines of at most so many columns, broken between words where it can be.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(2);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let mut word = word;
        if used != 0 && width < used + 1 + word.width() {
            lines.push(String::new());
            used = 0;
        } else if used != 0 {
            push(&mut lines, " ");
            used += 1;
        }
        while width < used + word.width() {
            let part = head(word, width - used);
            push(&mut lines, part);
            lines.push(String::new());
            used = 0;
            word = &word[part.len()..];
        }
        push(&mut lines, word);
        used += word.width();
    }
    lines
}

fn push(lines: &mut [String], text: &str) {
    if let Some(line) = lines.last_mut() {
        line.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look {
        colour: false,
        unicode: true,
    };

    #[test]
    fn texts_are_cut_by_the_columns_that_they_take() {
        let check = |text: &str, width, end: &str, middle: &str| {
            assert_eq!(LOOK.fit(text, width), end);
            assert_eq!(LOOK.fit_middle(text, width), middle);
            assert!(LOOK.fit_middle(text, width).width() <= width);
            assert_eq!(LOOK.pad(text, width).width(), width);
        };
        check("/mnt/l1", 7, "/mnt/l1", "/mnt/l1");
        check("/mnt/ledger/7", 7, "/mnt/l…", "/m…er/7");
        // Each takes two columns, and one half of one cannot be shown.
        check("日本語日本語", 6, "日本…", "…本語");
        check("/mnt/l1", 1, "…", "…");
        check("/mnt/l1", 0, "", "");
    }

    #[test]
    fn text_steers_nothing_and_is_ascii_where_there_is_no_more() {
        let ascii = Look {
            unicode: false,
            ..LOOK
        };
        assert_eq!(ascii.text("é\u{1b}]0;x\n"), r"\u{e9}\x1b]0;x\x0a");
        assert_eq!(LOOK.text("é\u{9b}2J\u{202e}"), r"é\xc2\x9b2J\xe2\x80\xae");
    }

    #[test]
    fn long_words_are_broken_and_nothing_is_lost() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("a /mnt/ledgers/7", 8), ["a", "/mnt/led", "gers/7"]);
        assert_eq!(wrap("日本語", 4), ["日本", "語"]);
        assert_eq!(wrap("", 8), [""]);
        assert_eq!(wrap("日", 0), ["日"]);
    }
}
