//! The live view without a terminal: what is drawn of made-up pictures, and what the keys do.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::draw::draw;
use super::draw::look::Look;
use super::keys::{Wish, press};
use super::model::{LOG_KEPT, Model, Screen, Told};
use crate::document::{EventDocument, StatusDocument, sample, status_document};
use crate::health::dir::Role;
use crate::health::moment::Elapsed;

const COLOUR: Look = Look {
    colour: true,
    unicode: true,
};
const PLAIN: Look = Look {
    colour: false,
    unicode: false,
};

fn document() -> StatusDocument {
    status_document(&sample::snapshot(), &sample::self_view(), &sample::about())
}

fn events() -> Vec<EventDocument> {
    let host = sample::about().host;
    let events = sample::snapshot().recent_events;
    let documents = events.iter().map(|event| EventDocument::new(event, &host));
    documents.collect()
}

/// A model that has heard of the sample.
fn model() -> Model {
    let mut model = Model::new("http://127.0.0.1:9475/".to_owned());
    model.hear(Told::Picture(Box::new(document())), Elapsed::ZERO);
    model.hear(Told::Events(events()), Elapsed::ZERO);
    model
}

fn many(count: u32) -> Model {
    let mut snapshot = sample::snapshot();
    snapshot.dirs = (0..count)
        .map(|id| sample::writable_dir(id, format!("/mnt/ledger-{id:03}"), Role::Ledger).into())
        .collect();
    let document = status_document(&snapshot, &sample::self_view(), &sample::about());
    let mut model = Model::new(String::new());
    model.hear(Told::Picture(Box::new(document)), Elapsed::ZERO);
    model
}

fn buffer(model: &mut Model, look: Look, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut longest = 0;
    terminal
        .draw(|frame| longest = draw(model, look, frame))
        .unwrap();
    model.scroll = model.scroll.min(longest);
    terminal.backend().buffer().clone()
}

/// The screen as text, without the blanks at the ends of lines.
fn shown(model: &mut Model, look: Look, width: u16, height: u16) -> String {
    let buffer = buffer(model, look, width, height);
    let mut text = String::new();
    for y in 0..height {
        let mut line = String::new();
        let mut skip = 0;
        for x in 0..width {
            let symbol = buffer[(x, y)].symbol();
            if skip == 0 {
                line.push_str(symbol);
                skip = super::draw::columns_of(symbol);
            }
            skip = skip.saturating_sub(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn keys(model: &mut Model, codes: &[KeyCode]) -> Wish {
    let mut wish = Wish::Nothing;
    for code in codes {
        wish = press(model, KeyEvent::new(*code, KeyModifiers::NONE));
    }
    wish
}

fn typed(model: &mut Model, text: &str) {
    for character in text.chars() {
        keys(model, &[KeyCode::Char(character)]);
    }
}

#[test]
fn the_picture_at_80_by_24() {
    insta::assert_snapshot!("picture_80", shown(&mut model(), COLOUR, 80, 24));
}

#[test]
fn the_picture_at_120_by_40() {
    insta::assert_snapshot!("picture_120", shown(&mut model(), COLOUR, 120, 40));
}

#[test]
fn a_small_terminal_shows_what_counts_and_a_tiny_one_says_so() {
    insta::assert_snapshot!("picture_60", shown(&mut model(), COLOUR, 60, 15));
    assert_eq!(shown(&mut model(), COLOUR, 20, 2), "too small\n\n");
    for (width, height) in [(1, 1), (24, 6), (30, 200), (300, 7)] {
        for code in ['x', 'l', 'n', '?', '\n'] {
            let mut model = model();
            keys(&mut model, &[KeyCode::Char(code), KeyCode::Enter]);
            shown(&mut model, COLOUR, width, height);
        }
    }
}

#[test]
fn everything_about_one_directory() {
    let mut model = model();
    typed(&mut model, "/l1");
    keys(&mut model, &[KeyCode::Enter, KeyCode::Enter]);
    assert_eq!(model.screen, Screen::Details);
    insta::assert_snapshot!("details_80", shown(&mut model, COLOUR, 80, 50));
}

#[test]
fn log_node_and_help() {
    let mut model = model();
    keys(&mut model, &[KeyCode::Char('l')]);
    let mut screens = shown(&mut model, COLOUR, 130, 8);
    keys(&mut model, &[KeyCode::Char('n')]);
    screens.push_str(&shown(&mut model, COLOUR, 80, 30));
    keys(&mut model, &[KeyCode::Char('?')]);
    screens.push_str(&shown(&mut model, COLOUR, 80, 24));
    insta::assert_snapshot!("screens", screens);
}

/// No sign that the locale does not have, and no colour that is not wanted; states differ all the same.
#[test]
fn without_colours_and_in_ascii() {
    let mut model = model();
    let picture = shown(&mut model, PLAIN, 80, 24);
    assert!(picture.is_ascii(), "{picture}");
    insta::assert_snapshot!("picture_plain", picture);
    for screen in [Screen::Dirs, Screen::Log, Screen::Node, Screen::Help] {
        model.show(screen);
        let cells = buffer(&mut model, PLAIN, 80, 24);
        for cell in cells.content() {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
            assert!(cell.symbol().is_ascii());
        }
    }
    model.show(Screen::Dirs);
    let colourful = buffer(&mut model, COLOUR, 80, 24);
    let red = colourful.content().iter().any(|cell| cell.fg == Color::Red);
    assert!(red, "a hung directory is red");
}

/// Names and messages come from disks and from people who are not to be trusted with a terminal.
#[test]
fn nothing_from_outside_steers_the_terminal() {
    const BAD: &str = "/mnt/\u{1b}]0;owned\u{7}\u{9b}2J\nx\u{202e}y";
    let mut document = document();
    document.host = BAD.to_owned();
    document.version = BAD.to_owned();
    document.status = BAD.to_owned();
    document.time = BAD.to_owned();
    document.mode.held = Some(BAD.to_owned());
    document.mode.wanted = Some(BAD.to_owned());
    document.mode.control = BAD.to_owned();
    document.problems = vec![BAD.to_owned()];
    for dir in &mut document.dirs {
        dir.path = BAD.to_owned();
        dir.role = BAD.to_owned();
        dir.status = BAD.to_owned();
        dir.since = BAD.to_owned();
        dir.sources = vec![BAD.to_owned()];
        if let Some(mount) = &mut dir.mount {
            mount.source = BAD.to_owned();
        }
    }
    let mut event = events().remove(0);
    event.event = BAD.to_owned();
    event.time = BAD.to_owned();
    event.dir = Some(BAD.to_owned());
    event.to = Some(BAD.to_owned());
    let mut model = Model::new(BAD.to_owned());
    let check = |model: &mut Model| {
        for look in [COLOUR, PLAIN] {
            for cell in buffer(model, look, 200, 60).content() {
                let steers = cell.symbol().chars().any(crate::health::dir::steers);
                assert!(!steers, "{:?}", cell.symbol());
            }
        }
    };
    check(&mut model);
    model.hear(Told::Silent(BAD.to_owned()), Elapsed::ZERO);
    check(&mut model);
    model.hear(Told::Picture(Box::new(document)), Elapsed::ZERO);
    model.hear(Told::Events(vec![event]), Elapsed::ZERO);
    model.hear(Told::LogTrouble(Some(BAD.to_owned())), Elapsed::ZERO);
    model.filter = "owned".to_owned();
    for screen in [Screen::Dirs, Screen::Details, Screen::Log, Screen::Node] {
        model.show(screen);
        check(&mut model);
    }
    model.show(Screen::Dirs);
    let picture = shown(&mut model, COLOUR, 200, 60);
    assert!(
        picture.contains(r"\x1b]0;owned\x07\xc2\x9b2J\x0ax"),
        "{picture}"
    );
}

#[test]
fn a_silent_agent_a_late_one_and_a_held_picture_have_a_banner() {
    let mut model = model();
    let seconds = Duration::from_secs;
    assert!(!model.tick(seconds(3)));
    assert_eq!(model.banner(), None);
    // No word, though nobody says why.
    assert!(model.tick(seconds(4)));
    let said = |model: &Model| model.banner().unwrap();
    insta::assert_snapshot!(said(&model), @"NO ANSWER: what is shown is 4 s old: it does not answer");
    model.hear(Told::Silent("connection refused".to_owned()), seconds(64));
    insta::assert_snapshot!(said(&model), @"NO ANSWER: what is shown is 1 m 4 s old: connection refused");
    let picture = shown(&mut model, COLOUR, 80, 24);
    assert!(picture.contains("\n NO ANSWER: what is shown"), "{picture}");

    // It is back, with the same picture as before.
    model.hear(Told::Picture(Box::new(document())), seconds(65));
    insta::assert_snapshot!(said(&model), @"LATE: the agent answers, but its picture has stood still for 1 m 5 s");
    let mut next = document();
    next.time = "2026-11-30T01:02:04.456Z".to_owned();
    model.hear(Told::Picture(Box::new(next.clone())), seconds(66));
    assert_eq!(model.banner(), None);

    assert_eq!(keys(&mut model, &[KeyCode::Char('p')]), Wish::Draw);
    next.host = "another".to_owned();
    next.time = "2026-11-30T01:02:05.456Z".to_owned();
    assert!(!model.hear(Told::Picture(Box::new(next)), seconds(68)));
    model.hear(
        Told::Gap {
            after: 1,
            before: 5,
        },
        seconds(68),
    );
    insta::assert_snapshot!(said(&model), @"PAUSED: what is shown is 2 s old (p: go on)");
    assert_eq!(model.document().unwrap().host, "bk-3");
    assert_eq!(model.log().count(), 2);
    keys(&mut model, &[KeyCode::Char('p')]);
    assert_eq!(model.document().unwrap().host, "another");
    assert_eq!(model.log().count(), 3);
    assert_eq!(model.banner(), None);

    let mut first = Model::new("http://h/".to_owned());
    first.hear(Told::Silent("connection refused".to_owned()), seconds(1));
    insta::assert_snapshot!(said(&first), @"NO ANSWER: connection refused");
}

/// Orders of the four directories, by the first letters of what is told apart in their paths.
#[test]
fn directories_are_sorted_and_filtered() {
    let mut model = model();
    let order = |model: &Model| {
        let names = model.dirs().into_iter().map(|dir| match &*dir.path {
            path if path.contains("journal") => 'j',
            path if path.contains("l1") => 'l',
            path if path.contains("script") => 's',
            _ => 'b',
        });
        format!("{}: {}", model.order.name(), names.collect::<String>())
    };
    let mut orders = Vec::new();
    for _ in 0..8 {
        orders.push(order(&model));
        keys(&mut model, &[KeyCode::Char('s')]);
    }
    insta::assert_snapshot!(orders.join("\n"), @r"
    worst first: slbj
    as configured: jlsb
    by path: lsbj
    fullest first: ljsb
    least room first: ljsb
    first to be full: ljsb
    slowest first: sjlb
    newest status first: sljb
    ");
    keys(&mut model, &[KeyCode::Char('S')]);
    assert_eq!(order(&model), "worst first: jbls");

    typed(&mut model, "/HUNG");
    assert_eq!(order(&model), "worst first: s");
    // The chosen one stays, what it shows is another's while it is filtered away.
    assert_eq!(
        keys(&mut model, &[KeyCode::Enter, KeyCode::Esc]),
        Wish::Draw
    );
    assert_eq!(model.filter, "");
    typed(&mut model, "/nothing of that name");
    assert!(shown(&mut model, COLOUR, 80, 24).contains("no directory passes the filter"));
    assert_eq!(keys(&mut model, &[KeyCode::Esc]), Wish::Draw);
    assert_eq!(keys(&mut model, &[KeyCode::Char('q')]), Wish::Quit);
}

#[test]
fn five_hundred_directories_are_walked_and_the_chosen_one_is_in_sight() {
    let mut model = many(500);
    shown(&mut model, COLOUR, 80, 24);
    model.page = 10;
    let chosen = |model: &Model| {
        let dirs = model.dirs();
        dirs[model.chosen(&dirs)].path.clone()
    };
    let mut walk = |codes: &[KeyCode], expected: &str| {
        keys(&mut model, codes);
        assert_eq!(chosen(&model), expected);
        let picture = shown(&mut model, COLOUR, 80, 24);
        assert!(picture.contains(expected), "{picture}");
    };
    walk(&[KeyCode::Down, KeyCode::Char('j')], "/mnt/ledger-002");
    walk(&[KeyCode::PageDown, KeyCode::PageDown], "/mnt/ledger-022");
    walk(&[KeyCode::End, KeyCode::Down], "/mnt/ledger-499");
    walk(&[KeyCode::Up, KeyCode::Char('k')], "/mnt/ledger-497");
    walk(&[KeyCode::Home, KeyCode::PageUp], "/mnt/ledger-000");
    walk(&[KeyCode::PageDown], "/mnt/ledger-010");
    // It stays chosen in another order.
    walk(&[KeyCode::Char('S')], "/mnt/ledger-010");
    assert_eq!(keys(&mut model, &[KeyCode::Enter]), Wish::Draw);
    assert_eq!(model.detailed().unwrap().path, "/mnt/ledger-010");
}

#[test]
fn the_log_is_bounded_and_scrolled_from_its_end() {
    let mut model = model();
    let event = events().remove(0);
    for seq in 0..2_000 {
        let event = EventDocument {
            seq,
            event: format!("event{seq}"),
            ..event.clone()
        };
        model.hear(Told::Events(vec![event]), Elapsed::ZERO);
    }
    assert_eq!(model.log().count(), LOG_KEPT);
    keys(&mut model, &[KeyCode::Char('l')]);
    let at = |model: &mut Model, codes: &[KeyCode], expected: &str| {
        keys(model, codes);
        let picture = shown(model, COLOUR, 80, 24);
        assert!(picture.contains(expected), "{picture}");
    };
    at(&mut model, &[], "event1999 ");
    at(&mut model, &[KeyCode::Home], "event1000 ");
    at(&mut model, &[KeyCode::Down], "event1022 ");
    at(&mut model, &[KeyCode::End], "event1999 ");
    typed(&mut model, "/event1500");
    at(&mut model, &[KeyCode::Enter], "event1500 ");
}

#[test]
fn control_keys_are_wishes_and_typing_takes_letters() {
    let mut model = model();
    let control = |character| KeyEvent::new(KeyCode::Char(character), KeyModifiers::CONTROL);
    typed(&mut model, "/q");
    assert_eq!(press(&mut model, control('c')), Wish::Quit);
    assert_eq!(press(&mut model, control('z')), Wish::Suspend);
    assert_eq!(press(&mut model, control('l')), Wish::Redraw);
    assert_eq!(press(&mut model, control('x')), Wish::Nothing);
    assert_eq!(model.filter, "q");
    for _ in 0..200 {
        typed(&mut model, "é");
    }
    assert!(model.filter.len() <= 101, "{}", model.filter.len());
    keys(&mut model, &[KeyCode::Backspace, KeyCode::Esc]);
    assert_eq!((model.typing, &*model.filter), (false, ""));
}
