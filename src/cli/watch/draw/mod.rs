//! Makes a screen of the model: which parts there are and how many lines each gets. Pure: the same
//! model, size and look are always the same screen. No layout solver: the parts are few.

mod details;
mod header;
mod log;
pub(super) mod look;
mod table;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use self::look::Look;
use super::super::terminal::Tone;
use super::keys;
use super::model::{Model, Screen};

/// Below this nothing can be read.
const SMALLEST: (u16, u16) = (24, 6);

/// Lines from which on the newest events are shown below the directories.
const LINES_WITH_LOG: usize = 18;

/// Draws the model. Tells by how many lines a screen of text can be scrolled.
pub(super) fn draw(model: &Model, look: Look, frame: &mut Frame<'_>) -> usize {
    let area = frame.area();
    let mut page = Page {
        width: usize::from(area.width),
        next: area.y,
        left: usize::from(area.height),
        area,
        buffer: frame.buffer_mut(),
    };
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        page.line(Line::raw(look.fit("too small", page.width)));
        return 0;
    }
    page.left -= 1; // the footer
    let longest = match model.screen {
        Screen::Dirs => {
            dirs(model, look, &mut page);
            0
        }
        Screen::Log => {
            banner(model, look, &mut page);
            log::full(model, look, &mut page)
        }
        Screen::Details => text(model, look, &mut page, details::lines),
        Screen::Node => text(model, look, &mut page, details::node),
        Screen::Help => text(model, look, &mut page, help),
    };
    page.next = area.y + area.height - 1;
    page.left = 1;
    page.line(footer(model, look, usize::from(area.width)));
    longest
}

/// The lines of a frame, from top to bottom.
struct Page<'a> {
    width: usize,
    next: u16,
    left: usize,
    area: Rect,
    buffer: &'a mut Buffer,
}

impl Page<'_> {
    /// One more line; nothing where there is no more room.
    fn line(&mut self, line: Line<'_>) {
        if self.left == 0 {
            return;
        }
        self.buffer
            .set_line(self.area.x, self.next, &line, self.area.width);
        self.next += 1;
        self.left -= 1;
    }
}

/// Columns that a cell's text takes.
#[cfg(test)]
pub(super) fn columns_of(text: &str) -> usize {
    table::width(text)
}

fn dirs(model: &Model, look: Look, page: &mut Page<'_>) {
    for line in header::lines(model, look, page.width, page.left / 3) {
        page.line(line);
    }
    banner(model, look, page);
    let rows = model.dirs();
    let log = if page.left < LINES_WITH_LOG - 6 {
        0
    } else {
        // What the directories do not need, and a third at least.
        (page.left / 3).max(page.left.saturating_sub(rows.len() + 2))
    };
    let below = log.min(page.left);
    page.left -= below;
    table::draw(model, &rows, look, page);
    page.next += u16::try_from(page.left).unwrap_or(0);
    page.left = below;
    log::newest(model, look, page);
}

/// Why what is shown is not what is; a line that nobody overlooks.
fn banner(model: &Model, look: Look, page: &mut Page<'_>) {
    let Some(banner) = model.banner() else {
        return;
    };
    let text = look.pad(&format!(" {}", look.text(&banner)), page.width);
    let style = look.style(Tone::Bad).add_modifier(Modifier::REVERSED);
    page.line(Line::styled(text, style));
}

/// A screen of text, scrolled.
fn text(
    model: &Model,
    look: Look,
    page: &mut Page<'_>,
    lines: fn(&Model, Look, usize) -> Vec<Line<'static>>,
) -> usize {
    banner(model, look, page);
    let lines = lines(model, look, page.width);
    let longest = lines.len().saturating_sub(page.left);
    for line in lines.into_iter().skip(model.scroll.min(longest)) {
        page.line(line);
    }
    longest
}

fn help(_: &Model, look: Look, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::styled("Keys", look.style(Tone::Heading)),
        Line::default(),
    ];
    for (key, what) in keys::HELP {
        for (at, part) in look::wrap(what, width.saturating_sub(22))
            .into_iter()
            .enumerate()
        {
            let key = look.pad(if at == 0 { key } else { "" }, 20);
            lines.push(Line::from(vec![
                Span::styled(format!(" {key} "), look.style(Tone::Heading)),
                Span::raw(part),
            ]));
        }
    }
    lines.push(Line::default());
    lines.push(Line::raw(
        " No key changes anything at the agent or its disks.",
    ));
    lines
}

fn footer(model: &Model, look: Look, width: usize) -> Line<'static> {
    if model.typing {
        let text = format!("/{}_", look.text(&model.filter));
        return Line::raw(look.fit(&text, width));
    }
    let arrows = if look.unicode { "↑↓" } else { "j/k" };
    let order = format!(
        "order: {}{}",
        model.order.name(),
        if model.reverse { ", reversed" } else { "" }
    );
    let keys: &[(&str, &str)] = match model.screen {
        Screen::Dirs => &[
            ("q", "quit"),
            ("?", "help"),
            ("Enter", "details"),
            ("l", "log"),
            ("n", "node"),
            ("/", "filter"),
            ("p", "pause"),
            ("s", &order),
        ],
        Screen::Log => &[
            ("q", "back"),
            ("?", "help"),
            (arrows, "scroll"),
            ("/", "filter"),
            ("p", "pause"),
        ],
        _ => &[("q", "back"), ("?", "help"), (arrows, "scroll")],
    };
    let mut spans = Vec::new();
    let mut used = 0;
    let mut add = |key: &str, what: &str| {
        let what = format!(" {what}  ");
        used += table::width(key) + table::width(&what);
        // The last one needs no blanks behind it.
        if used <= width + 2 {
            let style = Style::new().add_modifier(Modifier::BOLD);
            spans.push(Span::styled(key.to_owned(), style));
            spans.push(Span::raw(what));
        }
    };
    if !model.filter.is_empty() {
        let filter = look.fit(&look.text(&model.filter), 20);
        add("filter:", &filter);
    }
    for (key, what) in keys {
        add(key, what);
    }
    Line::from(spans)
}
