//! What each key does to the model. Pure. No key changes anything at the agent.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::{Model, Screen};

/// A filter is typed by a person; what is longer was pasted by mistake.
const LONGEST_FILTER: usize = 100;

/// What a key asks of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Show the model as it is now.
    Draw,
    /// Show it on a cleared screen.
    Redraw,
    /// Give the terminal back until the shell continues the program.
    Suspend,
    /// End.
    Quit,
    /// Nothing.
    Nothing,
}

/// Keys and what they do, for the help.
pub(super) const HELP: &[(&str, &str)] = &[
    ("Up Down j k", "choose a directory, or scroll"),
    ("PgUp PgDn Home End", "the same in larger steps"),
    ("Enter", "everything about the chosen directory"),
    ("l", "the log of events on the whole screen"),
    ("n", "the node: mode and who holds it, listeners, problems"),
    ("s S", "another order of the directories; turn it round"),
    (
        "/",
        "show only directories and events with a text; Esc ends that",
    ),
    ("p", "hold the picture, and go on with the newest one"),
    ("Ctrl-L", "draw the screen anew"),
    ("Ctrl-Z", "back to the shell until 'fg'"),
    ("q Esc", "back, and from the directories: end"),
    ("Ctrl-C", "end"),
];

/// Takes in a key.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Wish {
    if key.kind == KeyEventKind::Release {
        return Wish::Nothing;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Wish::Quit,
            KeyCode::Char('z') => Wish::Suspend,
            KeyCode::Char('l') => Wish::Redraw,
            _ => Wish::Nothing,
        };
    }
    if model.typing {
        return write_filter(model, key.code);
    }
    let page = isize::try_from(model.page).unwrap_or(1);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return back(model),
        KeyCode::Up | KeyCode::Char('k') => model.step(-1),
        KeyCode::Down | KeyCode::Char('j') => model.step(1),
        KeyCode::PageUp => model.step(-page),
        KeyCode::PageDown | KeyCode::Char(' ') => model.step(page),
        KeyCode::Home | KeyCode::Char('g') => model.step(-isize::MAX),
        KeyCode::End | KeyCode::Char('G') => model.step(isize::MAX),
        KeyCode::Enter if model.screen == Screen::Dirs => model.show(Screen::Details),
        KeyCode::Char('l') => toggle(model, Screen::Log),
        KeyCode::Char('n') => toggle(model, Screen::Node),
        KeyCode::Char('?' | 'h') => toggle(model, Screen::Help),
        KeyCode::Char('s') => model.order = model.order.next(),
        KeyCode::Char('S') => model.reverse = !model.reverse,
        KeyCode::Char('p') => model.pause(),
        KeyCode::Char('/') => {
            if !matches!(model.screen, Screen::Dirs | Screen::Log) {
                model.show(Screen::Dirs);
            }
            model.typing = true;
        }
        _ => return Wish::Nothing,
    }
    Wish::Draw
}

/// One step back: out of a screen, of the filter, of the view.
fn back(model: &mut Model) -> Wish {
    if model.screen != Screen::Dirs {
        model.show(Screen::Dirs);
    } else if !model.filter.is_empty() {
        model.filter.clear();
    } else {
        return Wish::Quit;
    }
    Wish::Draw
}

fn toggle(model: &mut Model, screen: Screen) {
    let shown = model.screen == screen;
    model.show(if shown { Screen::Dirs } else { screen });
}

fn write_filter(model: &mut Model, code: KeyCode) -> Wish {
    match code {
        KeyCode::Enter => model.typing = false,
        KeyCode::Esc => {
            model.typing = false;
            model.filter.clear();
        }
        KeyCode::Backspace => {
            model.filter.pop();
        }
        KeyCode::Char(character) if model.filter.len() < LONGEST_FILTER => {
            model.filter.push(character);
        }
        // The list can be walked while the filter is typed.
        KeyCode::Up => model.step(-1),
        KeyCode::Down => model.step(1),
        _ => return Wish::Nothing,
    }
    Wish::Draw
}
