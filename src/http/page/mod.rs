//! The status page: the snapshot as HTML, rendered here, complete without scripts and without anything
//! from another address. A script of its own swaps in parts that changed and sends orders. Each text that
//! comes from outside goes through [`Escaped`]; states differ by word, sign and border, and by colour
//! only besides.

mod beside;
mod dir;
mod hours;
mod lists;
mod live;
mod mode;
mod orders;
mod words;

use std::fmt::{self, Result as Written, Write};
use std::future::{Ready, ready};
use std::sync::PoisonError;

use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};

use super::Shared;
use crate::document::{About, problems, timestamp_text};
use crate::health::moment::Timestamp;
use crate::health::restart::Verdict;
use crate::health::snapshot::{SelfView, Snapshot};
use crate::health::status::Severity;
use words::{Escaped, about, age};

pub(super) use hours::{Hours, SharedHours};
pub(super) use live::{Live, stream};

/// Seconds after which a browser without scripts asks again. A page that is still there when the agent
/// is gone would lie; one that cannot be fetched again says so.
const REFRESH_SECONDS: u32 = 5;

/// Shared for the page without directories, and for each of them; only a hint.
const TEXT_PER_NODE: usize = 16 << 10;
const TEXT_PER_DIR: usize = 3 << 10;

/// What the page is made from.
pub(super) struct Scene<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) own: &'a SelfView,
    pub(super) about: &'a About,
    pub(super) hours: &'a Hours,
    /// The loop does not move, with the reason.
    pub(super) late: Option<String>,
    /// Somebody who has the token can give orders.
    pub(super) orders: bool,
    /// Times are followed by how long ago they were. Left out of parts that are sent: they would change
    /// each second, and the script writes them.
    pub(super) ages: bool,
}

impl Scene<'_> {
    /// A time, with its age.
    fn at(&self, time: Timestamp) -> At {
        At {
            time,
            age: self.ages.then(|| about(age(time, self.snapshot.time))),
        }
    }
}

struct At {
    time: Timestamp,
    age: Option<String>,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = timestamp_text(self.time);
        // To the second: the rest is in the attribute.
        let (shown, _) = text.split_once('.').unwrap_or((&text, ""));
        let shown = shown.replace('T', " ");
        write!(f, "<time datetime=\"{text}\">{shown}Z</time>")?;
        match &self.age {
            Some(age) => write!(f, "<span class=\"age\"> ({age} ago)</span>"),
            None => f.write_str("<span class=\"age\"></span>"),
        }
    }
}

/// Writes one part: an element with the name as its id, also when there is nothing to show.
type WritePart = fn(&mut String, &Scene<'_>) -> Written;

/// Parts above the directories, in their order; `dirs-head` is inside their section.
const ABOVE: [(&str, WritePart); 4] = [
    ("clock", write_clock),
    ("now", write_now),
    ("problems", write_problems),
    ("mode", mode::write),
];

const HEAD_OF_DIRS: (&str, WritePart) = ("dirs-head", dir::write_head);

/// Parts below them.
const BELOW: [(&str, WritePart); 2] = [
    ("beside", beside::write),
    ("listeners", lists::write_listeners),
];

const EVENTS: (&str, WritePart) = ("event-list", lists::write_events);

/// Every part but the directories.
fn fixed_parts() -> impl Iterator<Item = (&'static str, WritePart)> {
    let (above, below) = (ABOVE.into_iter(), BELOW.into_iter());
    above.chain([HEAD_OF_DIRS]).chain(below).chain([EVENTS])
}

pub(super) fn page(State(shared): State<Shared>) -> Ready<Html<String>> {
    let own = (shared.handles.self_view)();
    let hours = shared.hours.lock().unwrap_or_else(PoisonError::into_inner);
    ready(Html(render(&Scene {
        snapshot: &shared.snapshot(),
        own: &own,
        about: &shared.handles.about,
        hours: &hours,
        late: (shared.handles.live)().err(),
        orders: shared.handles.control.is_some(),
        ages: true,
    })))
}

pub(super) fn script() -> Ready<Response> {
    let kind = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")];
    ready((kind, include_str!("page.js")).into_response())
}

pub(super) fn style() -> Ready<Response> {
    let kind = [(header::CONTENT_TYPE, "text/css; charset=utf-8")];
    ready((kind, include_str!("page.css")).into_response())
}

pub(super) fn render(scene: &Scene<'_>) -> String {
    let text = TEXT_PER_NODE + TEXT_PER_DIR * scene.snapshot.dirs.len();
    let mut html = String::with_capacity(text);
    write_page(&mut html, scene).expect("memory takes every write");
    html
}

fn write_page(html: &mut String, scene: &Scene<'_>) -> Written {
    write_head(html, scene)?;
    for (_, write) in ABOVE {
        write(html, scene)?;
    }
    writeln!(html, "<section id=\"dirs\" aria-labelledby=\"dirs-h\">")?;
    (HEAD_OF_DIRS.1)(html, scene)?;
    lists::write_filter(html, "dir-list", "directories")?;
    writeln!(html, "<ul id=\"dir-list\">")?;
    for (dir, open) in dir::order(scene.snapshot) {
        dir::write(html, scene, dir, open)?;
    }
    writeln!(html, "</ul>\n</section>")?;
    for (_, write) in BELOW {
        write(html, scene)?;
    }
    writeln!(
        html,
        "<section id=\"events\" aria-labelledby=\"events-h\">\n<h2 id=\"events-h\">Latest events</h2>"
    )?;
    lists::write_filter(html, "event-list", "events")?;
    (EVENTS.1)(html, scene)?;
    writeln!(html, "</section>")?;
    orders::write(html, scene)?;
    writeln!(
        html,
        "</main>\n<footer>\n<p>dirkeeper {} {} · semantics {} · running since {}</p>\n\
         <p><a href=\"api/v1/status\">status</a> · <a href=\"api/v1/dirs\">directories</a> · \
         <a href=\"api/v1/events\">events</a> · <a href=\"metrics\">metrics</a></p>\n\
         </footer>\n</body>\n</html>",
        Escaped(scene.about.version),
        Escaped(scene.about.revision),
        Escaped(scene.about.semantics),
        scene.at(scene.snapshot.started_at),
    )
}

fn write_head(html: &mut String, scene: &Scene<'_>) -> Written {
    let about = scene.about;
    let host = Escaped(&about.host.host);
    write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <noscript><meta http-equiv=\"refresh\" content=\"{REFRESH_SECONDS}\"></noscript>\n\
         <title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <link rel=\"stylesheet\" href=\"page.css\">\n<script src=\"page.js\" type=\"module\"></script>\n\
         </head>\n<body data-build=\"{}\">\n\
         <a class=\"skip\" href=\"#dirs\">Skip to the directories</a>\n\
         <header>\n<h1>Directories of {host}</h1>\n<nav aria-label=\"Parts of this page\">\n",
        title(scene),
        Escaped(&build(about)),
    )?;
    for (id, name) in [
        ("dirs", "directories"),
        ("mode", "mode"),
        ("listeners", "listeners"),
        ("events", "events"),
        ("orders", "orders"),
    ] {
        writeln!(html, "<a href=\"#{id}\">{name}</a>")?;
    }
    writeln!(
        html,
        "</nav>\n</header>\n<div id=\"trouble\" role=\"alert\"></div>\n\
         <p id=\"said\" class=\"unseen\" role=\"status\"></p>\n<main>"
    )
}

/// Of the window; the script takes it from the part `now`.
fn title(scene: &Scene<'_>) -> String {
    let severity = scene.snapshot.severity;
    let (sign, word) = (sign(severity), severity.name());
    format!("{sign} {word}: {}", Escaped(&scene.about.host.host))
}

/// Tells a script of an older agent from one of this.
fn build(about: &About) -> String {
    format!("{} {}", about.version, about.revision)
}

fn write_clock(html: &mut String, scene: &Scene<'_>) -> Written {
    let at = scene.at(scene.snapshot.time);
    writeln!(html, "<p id=\"clock\">As of {at}</p>")
}

fn write_now(html: &mut String, scene: &Scene<'_>) -> Written {
    let snapshot = scene.snapshot;
    let severity = snapshot.severity;
    writeln!(
        html,
        "<section id=\"now\" class=\"card {word}\" aria-label=\"State of the node\" data-title=\"{}\">\n\
         <p><strong class=\"word\">{} {word}:</strong> {}</p>\n<dl>",
        title(scene),
        sign(severity),
        dir::counts(snapshot),
        word = severity.name(),
    )?;
    if let Some(id) = &scene.about.host.bookie_id {
        row(html, "Bookie", Escaped(id))?;
    }
    if !snapshot.ready {
        row(html, "Not ready", "not every directory was judged yet")?;
    }
    if let Some(restart) = &snapshot.restart {
        let reasons = restart.reasons.join("; ");
        let reasons = Escaped(&reasons);
        match restart.verdict {
            Verdict::WouldSucceed => row(html, "A restart", "no reason is known to fail")?,
            Verdict::WouldFail => row(html, "A restart", format_args!("would fail: {reasons}"))?,
            Verdict::Unknown => row(html, "A restart", format_args!("may fail: {reasons}"))?,
        }
    }
    writeln!(html, "</dl>\n</section>")
}

fn write_problems(html: &mut String, scene: &Scene<'_>) -> Written {
    let mut problems = problems(scene.snapshot, scene.own);
    problems.extend(scene.late.clone());
    if problems.is_empty() {
        return writeln!(html, "<section id=\"problems\" hidden></section>");
    }
    writeln!(
        html,
        "<section id=\"problems\" class=\"card warning\" aria-labelledby=\"problems-h\">\n\
         <h2 id=\"problems-h\">Problems of the agent</h2>\n<ul>"
    )?;
    for problem in problems {
        writeln!(html, "<li>{}</li>", Escaped(&problem))?;
    }
    writeln!(html, "</ul>\n</section>")
}

fn row(html: &mut String, name: &str, value: impl fmt::Display) -> Written {
    writeln!(html, "<dt>{name}</dt><dd>{value}</dd>")
}

/// A sign that differs in shape, for those who see no colours.
const fn sign(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "✓",
        Severity::Warning => "▲",
        Severity::Unknown => "?",
        Severity::Critical => "✖",
    }
}
