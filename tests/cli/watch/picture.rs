//! The picture of the live view in the documentation: a screen of the real program as SVG. Written
//! by `scripts/terminal-picture`, which makes the directories; in an ordinary run it draws a screen
//! that it knows.

use std::fmt::Write;

use super::*;

/// Set by the script: the file to write, and the agent's address.
const FILE: &str = "TERMINAL_PICTURE";
const URL: &str = "TERMINAL_PICTURE_URL";

/// Width and height of a cell, in the units of the picture.
const CELL: (u16, u16) = (9, 19);
/// The frame around the screen.
const MARGIN: u16 = 12;
/// Of a picture of text; more would be a mistake.
const MOST_BYTES: usize = 60 << 10;

#[test]
fn a_screen_is_drawn_as_svg() {
    let (Ok(file), Ok(url)) = (std::env::var(FILE), std::env::var(URL)) else {
        let mut parser = vt100::Parser::new(2, 20, 0);
        parser.process(b"\x1b[1;31mfull\x1b[0m <a&b>\r\n\x1b[7mchosen\x1b[0m");
        insta::assert_snapshot!(svg(parser.screen()), @r##"
        <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 204 62" font-family="ui-monospace,DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="15" role="img">
        <title>dirkeeper status --watch</title>
        <rect width="204" height="62" rx="8" fill="#1b1f27"/>
        <text x="12" y="26" textLength="36" fill="#f2726f" font-weight="bold">full</text>
        <text x="48" y="26" textLength="54" fill="#d7dae0"> &lt;a&amp;b&gt;</text>
        <rect x="12" y="31" width="54" height="19" fill="#d7dae0"/>
        <text x="12" y="45" textLength="54" fill="#1b1f27">chosen</text>
        </svg>
        "##);
        return;
    };
    let mut view = Pty::start(&[PROGRAM, "status", "--watch", "--url", &url], 100, 30);
    until("a whole picture that stands still", || {
        let screen = view.screen();
        thread::park_timeout(Duration::from_millis(100));
        let parts = ["✓ writable", "EVENTS", "diskVanished", "q quit"];
        parts.iter().all(|part| screen.contains(part)) && screen == view.screen()
    });
    let picture = svg(view.parser().screen());
    assert!(picture.len() < MOST_BYTES, "{} bytes", picture.len());
    view.press("q");
    view.end();
    fs::write(file, picture).unwrap();
}

/// The colours of a terminal, dark as most are.
fn colour(colour: vt100::Color, default: &'static str) -> &'static str {
    match colour {
        vt100::Color::Idx(1 | 9) => "#f2726f",
        vt100::Color::Idx(2 | 10) => "#7dc383",
        vt100::Color::Idx(3 | 11) => "#e0b458",
        vt100::Color::Idx(5 | 13) => "#c792d9",
        vt100::Color::Idx(8) => "#8b93a1",
        _ => default,
    }
}

const GROUND: &str = "#1b1f27";
const TEXT: &str = "#d7dae0";

/// Cells of one look that stand side by side.
#[derive(PartialEq)]
struct Run {
    at: u16,
    cells: u16,
    text: String,
    front: &'static str,
    ground: &'static str,
    bold: bool,
}

fn runs(screen: &vt100::Screen, row: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for at in 0..screen.size().1 {
        let Some(cell) = screen
            .cell(row, at)
            .filter(|cell| !cell.is_wide_continuation())
        else {
            continue;
        };
        let mut front = colour(cell.fgcolor(), TEXT);
        let mut ground = colour(cell.bgcolor(), GROUND);
        if cell.inverse() {
            std::mem::swap(&mut front, &mut ground);
        }
        let text = if cell.has_contents() {
            cell.contents()
        } else {
            " "
        };
        let bold = cell.bold();
        let cells = if cell.is_wide() { 2 } else { 1 };
        match runs.last_mut() {
            Some(run) if (run.front, run.ground, run.bold) == (front, ground, bold) => {
                run.text.push_str(text);
                run.cells += cells;
            }
            _ => runs.push(Run {
                at,
                cells,
                text: text.to_owned(),
                front,
                ground,
                bold,
            }),
        }
    }
    runs
}

/// The screen; each run of cells has its width, so that no font can break the columns.
fn svg(screen: &vt100::Screen) -> String {
    let (rows, columns) = screen.size();
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, rows * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace,DejaVu Sans Mono,Menlo,Consolas,monospace\" font-size=\"15\" \
         role=\"img\">\n<title>dirkeeper status --watch</title>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{GROUND}\"/>\n"
    );
    for row in 0..rows {
        for run in runs(screen, row) {
            let (x, y) = (MARGIN + run.at * CELL.0, MARGIN + row * CELL.1);
            let wide = run.cells * CELL.0;
            if run.ground != GROUND {
                let (fill, tall) = (run.ground, CELL.1);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{tall}\" fill=\"{fill}\"/>"
                );
            }
            let seen = run.text.trim_end();
            if seen.is_empty() {
                continue;
            }
            let blanks = u16::try_from(run.text.len() - seen.len()).unwrap();
            let wide = (run.cells - blanks) * CELL.0;
            let text = seen
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;")
                // A browser would make one of several.
                .replace(' ', "\u{a0}");
            let bold = if run.bold {
                " font-weight=\"bold\""
            } else {
                ""
            };
            let (fill, base) = (run.front, y + CELL.1 - 5);
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{base}\" textLength=\"{wide}\" fill=\"{fill}\"{bold}>{text}</text>"
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}
