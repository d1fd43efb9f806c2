//! The lists of the page: listeners, events, and the filter above a list.

use std::fmt::{Result as Written, Write};

use super::words::Escaped;
use super::{Scene, sign};
use crate::document::{path_text, words};
use crate::health::event::Event;

/// Events shown: those of the last hour of a bad day. The API has the others.
const EVENTS_SHOWN: usize = 100;

pub(super) fn write_listeners(html: &mut String, scene: &Scene<'_>) -> Written {
    writeln!(
        html,
        "<section id=\"listeners\" aria-labelledby=\"listeners-h\">\n<h2 id=\"listeners-h\">Listeners</h2>"
    )?;
    let listeners = &scene.own.listeners;
    if listeners.is_empty() {
        return writeln!(html, "<p>Nobody is told of events.</p>\n</section>");
    }
    writeln!(
        html,
        "<div class=\"scroll\" role=\"region\" aria-label=\"Listeners, as a table\" tabindex=\"0\"><table>\n\
         <thead><tr><th scope=\"col\">name<th scope=\"col\">kind<th scope=\"col\">health<th scope=\"col\">delivered\
         <th scope=\"col\">failed<th scope=\"col\">waiting</tr></thead>\n<tbody>"
    )?;
    for listener in listeners {
        let health = match (listener.pending, listener.failed) {
            (0, 0) => "✓ well",
            (0, _) => "▲ has failed",
            (_, 0) => "? behind",
            (_, _) => "▲ behind, has failed",
        };
        writeln!(
            html,
            "<tr><th scope=\"row\">{}<td>{}<td>{health}<td>{}<td>{}<td>{}</tr>",
            Escaped(&listener.name),
            Escaped(listener.kind),
            listener.delivered,
            listener.failed,
            listener.pending,
        )?;
    }
    writeln!(html, "</tbody></table></div>\n</section>")
}

/// What the script needs to filter a list; of no use without it.
pub(super) fn write_filter(html: &mut String, list: &str, name: &str) -> Written {
    writeln!(
        html,
        "<form class=\"js filter\" data-list=\"{list}\" role=\"search\" aria-label=\"Filter of {name}\">\n\
         <label>Only {name} with <input type=\"text\" name=\"text\" autocomplete=\"off\" spellcheck=\"false\"></label>\n\
         <label>and severity <select name=\"severity\"><option value=\"\">any</option>\
         <option value=\"critical\">✖ critical</option><option value=\"unknown\">? unknown</option>\
         <option value=\"warning\">▲ warning</option><option value=\"ok\">✓ ok</option></select></label>\n\
         <output></output>\n</form>"
    )
}

/// Newest first.
pub(super) fn write_events(html: &mut String, scene: &Scene<'_>) -> Written {
    writeln!(html, "<ol id=\"event-list\" class=\"plain\">")?;
    let events = &scene.snapshot.recent_events;
    if events.is_empty() {
        writeln!(html, "<li id=\"e0\">None since the agent started.</li>")?;
    }
    for event in events.iter().rev().take(EVENTS_SHOWN) {
        write_event(html, scene, event)?;
    }
    writeln!(html, "</ol>")
}

fn write_event(html: &mut String, scene: &Scene<'_>, event: &Event) -> Written {
    let dir = event.dir.as_deref().map(path_text);
    write!(
        html,
        "<li id=\"e{seq}\" data-seq=\"{seq}\" data-severity=\"{}\">{} <span class=\"what\"><strong>{} {}</strong> \
         <span class=\"path\">{}</span>",
        event.severity.name(),
        scene.at(event.time),
        sign(event.severity),
        event.kind.name(),
        Escaped(dir.as_deref().unwrap_or("the node")),
        seq = event.seq,
    )?;
    if let Some((from, to)) = event.from.zip(event.to) {
        write!(html, " {} → {}", words(from), words(to))?;
    }
    if let Some(reason) = &event.reason {
        write!(html, ": {}", Escaped(&reason.message))?;
    }
    writeln!(html, "</span></li>")
}
