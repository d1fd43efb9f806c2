//! The status page: the snapshot as HTML, rendered here, without scripts or anything from another
//! address. Each text that comes from outside goes through [`Escaped`]; states differ by word, sign
//! and border, and by colour only besides.

use std::fmt::{Result as Written, Write};
use std::future::{Ready, ready};

use axum::extract::State;
use axum::response::Html;

use super::Shared;
use super::words::{Escaped, about, age, millis, percent};
use crate::document::{
    About, path_text, problems, shown_space, shown_usage, timestamp_text, words,
};
use crate::health::beside::BesideView;
use crate::health::event::Event;
use crate::health::moment::Timestamp;
use crate::health::observation::Operation;
use crate::health::policy::Mode;
use crate::health::restart::Verdict;
use crate::health::snapshot::{DirView, SelfView, Snapshot};
use crate::health::status::{LatencyStatus, Severity};
use crate::health::words::bytes_text;

/// Seconds after which the browser asks again. A page that is still there when the agent is gone
/// would lie; one that cannot be fetched again says so.
const REFRESH_SECONDS: u32 = 5;

/// Events shown: what fits under one look at a phone. The API has the others.
const EVENTS_SHOWN: usize = 20;

/// Shared for the page without directories, and for each of them; only a hint.
const TEXT_PER_NODE: usize = 8 << 10;
const TEXT_PER_DIR: usize = 2 << 10;

const STYLE: &str = include_str!("page.css");

pub(super) fn page(State(shared): State<Shared>) -> Ready<Html<String>> {
    let own = (shared.handles.self_view)();
    ready(Html(render(
        &shared.snapshot(),
        &own,
        &shared.handles.about,
    )))
}

pub(super) fn render(snapshot: &Snapshot, own: &SelfView, about: &About) -> String {
    let mut html = String::with_capacity(TEXT_PER_NODE + TEXT_PER_DIR * snapshot.dirs.len());
    write_page(&mut html, snapshot, own, about).expect("memory takes every write");
    html
}

fn write_page(html: &mut String, snapshot: &Snapshot, own: &SelfView, about: &About) -> Written {
    write_head(html, snapshot, about)?;
    write_problems(html, &problems(snapshot, own))?;
    writeln!(html, "<h2>Directories</h2>")?;
    if snapshot.dirs.is_empty() {
        writeln!(html, "<p>No directory is watched.</p>")?;
    }
    for dir in snapshot.dirs.iter() {
        write_dir(html, dir, snapshot.time)?;
    }
    write_listeners(html, own)?;
    write_events(html, &snapshot.recent_events)?;
    write!(
        html,
        "<footer>\n<p>dirkeeper {} {} · semantics {} · control {} · running since {}</p>\n\
         <p><a href=\"/api/v1/status\">status</a> · <a href=\"/api/v1/dirs\">directories</a> · \
         <a href=\"/api/v1/events\">events</a> · <a href=\"/metrics\">metrics</a></p>\n\
         </footer>\n</body>\n</html>\n",
        Escaped(about.version),
        Escaped(about.revision),
        Escaped(about.semantics),
        Escaped(snapshot.mode.control),
        timestamp_text(snapshot.started_at),
    )
}

fn write_head(html: &mut String, snapshot: &Snapshot, about: &About) -> Written {
    let host = Escaped(&about.host.host);
    let severity = snapshot.severity;
    let (sign, word) = (sign(severity), severity.name());
    write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"refresh\" content=\"{REFRESH_SECONDS}\">\n\
         <title>{sign} {word}: {host}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>Directories of {host}</h1>\n\
         <article class=\"{word}\"><p><span class=\"word\">{sign} {word}</span> at {}</p>\n<dl>\n",
        timestamp_text(snapshot.time),
    )?;
    if let Some(id) = &about.host.bookie_id {
        row(html, "Bookie", Escaped(id))?;
    }
    write_beside(html, &snapshot.beside)?;
    if !snapshot.ready {
        row(html, "Not ready", "not every directory was judged yet")?;
    }
    write_mode(html, snapshot)?;
    if let Some(restart) = &snapshot.restart {
        let reasons = restart.reasons.join("; ");
        match restart.verdict {
            Verdict::WouldSucceed => row(html, "A restart", "no reason is known to fail")?,
            Verdict::WouldFail => {
                row(
                    html,
                    "A restart",
                    format_args!("would fail: {}", Escaped(&reasons)),
                )?;
            }
            Verdict::Unknown => {
                row(
                    html,
                    "A restart",
                    format_args!("may fail: {}", Escaped(&reasons)),
                )?;
            }
        }
    }
    writeln!(html, "</dl></article>")
}

/// Whether those beside the agent are there; nothing where nobody is asked.
fn write_beside(html: &mut String, beside: &BesideView) -> Written {
    let there = [
        (
            "Admin server",
            beside.bookie_up,
            "the bookie serves",
            "the bookie does not answer or does not serve",
        ),
        ("ZooKeeper", beside.zookeeper, "connected", "not connected"),
    ];
    for (name, is, yes, no) in there {
        if let Some(is) = is {
            row(html, name, if is { yes } else { no })?;
        }
    }
    Ok(())
}

fn write_mode(html: &mut String, snapshot: &Snapshot) -> Written {
    let (mode, now) = (&snapshot.mode, snapshot.time);
    let wanted = mode.wanted.map_or("not known", mode_words);
    match &mode.reason {
        Some(reason) => row(
            html,
            "Wanted mode",
            format_args!("{wanted}: {}", Escaped(reason)),
        )?,
        None => row(html, "Wanted mode", wanted)?,
    }
    if let Some(observed) = mode.observed {
        row(html, "Observed mode", mode_words(observed))?;
    }
    for claim in &mode.claims {
        let text = format_args!(
            "by {}, since {} ({}){}: {}",
            claim.owner.name(),
            timestamp_text(claim.since),
            about(age(claim.since, now)),
            if claim.pending {
                ", not in effect yet"
            } else {
                ""
            },
            Escaped(&claim.reason),
        );
        match claim.mode {
            Mode::ReadOnly => row(html, "Held read-only", text)?,
            Mode::Writable => row(html, "Held writable", text)?,
        }
    }
    if let Some(held) = &mode.held {
        row(html, "Not changed now", Escaped(held))?;
    }
    let possible = if mode.high_priority_writes {
        "possible"
    } else {
        "not possible"
    };
    match snapshot.beside.high_priority_writes {
        None => row(html, "Recovery writes", possible),
        Some(true) => row(
            html,
            "Recovery writes",
            format_args!("{possible}, the bookie takes them"),
        ),
        Some(false) => row(
            html,
            "Recovery writes",
            format_args!("{possible}, the bookie takes none"),
        ),
    }
}

fn write_problems(html: &mut String, problems: &[String]) -> Written {
    if problems.is_empty() {
        return Ok(());
    }
    writeln!(
        html,
        "<h2>Problems of the agent</h2>\n<ul class=\"problems warning\">"
    )?;
    for problem in problems {
        writeln!(html, "<li>{}</li>", Escaped(problem))?;
    }
    writeln!(html, "</ul>")
}

fn write_dir(html: &mut String, dir: &DirView, now: Timestamp) -> Written {
    let path = path_text(&dir.path);
    write!(
        html,
        "<article class=\"{}\">\n<h3><span class=\"word\">{} {}</span> <span class=\"path\">{}</span> ({})</h3>\n<dl>\n",
        dir.severity.name(),
        sign(dir.severity),
        words(dir.status.name()),
        Escaped(&path),
        dir.role.name(),
    )?;
    let since = timestamp_text(dir.since);
    row(
        html,
        "Since",
        format_args!("{since} ({})", about(age(dir.since, now))),
    )?;
    if let Some(reason) = &dir.reason {
        let cause = words(reason.cause.name());
        row(
            html,
            "Cause",
            format_args!("{}: {}", cause, Escaped(&reason.message)),
        )?;
    }
    let axes = format_args!(
        "space {}, access {}, latency {}",
        words(dir.space_status.name()),
        words(dir.access_status.name()),
        words(dir.latency_status.name()),
    );
    row(html, "Axes", axes)?;
    if dir.suspect {
        row(html, "Suspect", "not confirmed yet, it is probed again")?;
    }
    write_space(html, dir)?;
    write_probe(html, dir, now)?;
    if let Some(mount) = &dir.mount {
        let point = path_text(&mount.point);
        let text = format_args!(
            "{} on {}, {} ({})",
            Escaped(&mount.source),
            Escaped(&point),
            Escaped(&mount.fs_type),
            Escaped(&mount.options),
        );
        row(html, "Mount", text)?;
    }
    if !dir.sources.active.is_empty() {
        row(html, "Watched by", Escaped(&dir.sources.active.join(", ")))?;
    }
    writeln!(html, "</dl>")?;
    if !dir.evidence.is_empty() {
        writeln!(html, "<details><summary>Evidence</summary>\n<ul>")?;
        for evidence in &dir.evidence {
            let at = timestamp_text(evidence.at);
            writeln!(html, "<li>{at} {}</li>", Escaped(&evidence.text))?;
        }
        writeln!(html, "</ul></details>")?;
    }
    writeln!(html, "</article>")
}

fn write_space(html: &mut String, dir: &DirView) -> Written {
    let limits = &dir.thresholds;
    let or_below = |available| match available {
        0 => String::new(),
        _ => format!(" or with less than {} available", bytes_text(available)),
    };
    let thresholds = format!(
        "almost full above {} %{}, full above {} %{}, writable again below {} %",
        percent(limits.warn),
        or_below(limits.warn_available),
        percent(limits.full),
        or_below(limits.full_available),
        percent(limits.low_watermark),
    );
    match shown_usage(dir).zip(shown_space(dir)) {
        Some((ratio, space)) => row(
            html,
            "Usage",
            format_args!(
                "{used} % · {} of {} available · {thresholds}<br>\
                 <meter min=\"0\" max=\"1\" low=\"{}\" high=\"{}\" optimum=\"0\" value=\"{ratio}\">{used} %</meter>",
                bytes_text(space.available),
                bytes_text(space.size),
                limits.warn,
                limits.full,
                used = percent(ratio),
            ),
        )?,
        None => row(html, "Usage", format_args!("not known · {thresholds}"))?,
    }
    if let Some(space) = shown_space(dir).filter(|space| space.inodes != 0) {
        let (free, all) = (space.inodes_free, space.inodes);
        row(html, "Inodes", format_args!("{free} of {all} free"))?;
    }
    if let Some(forecast) = dir.forecast {
        let latest = match forecast.latest {
            Some(latest) => about(latest),
            None => "never".to_owned(),
        };
        let (expected, earliest) = (about(forecast.expected), about(forecast.earliest));
        let text = format_args!("full in {expected} (between {earliest} and {latest})");
        row(html, "Forecast", text)?;
    }
    if let Some(room) = dir.high_priority_room {
        let text = match room.enough {
            true => bytes_text(room.bytes),
            false => "less than the reserve".to_owned(),
        };
        row(html, "Recovery room", text)?;
    }
    Ok(())
}

fn write_probe(html: &mut String, dir: &DirView, now: Timestamp) -> Written {
    if let Some(running) = dir.in_flight {
        row(
            html,
            "In flight",
            format_args!("an operation has been running for {}", about(running)),
        )?;
    }
    let steps = [
        Operation::Create,
        Operation::Write,
        Operation::Sync,
        Operation::Read,
    ];
    let durations: Vec<String> = steps
        .into_iter()
        .filter_map(|step| {
            Some(format!(
                "{} {}",
                step.name(),
                millis(*dir.durations.get(&step)?)
            ))
        })
        .collect();
    if !durations.is_empty() {
        let slow = match dir.latency_status {
            LatencyStatus::Slow => " (slow)",
            _ => "",
        };
        row(
            html,
            "Newest probe",
            format_args!("{}{slow}", durations.join(", ")),
        )?;
    }
    if let Some(score) = dir.latency.score {
        let steps = dir.latency.steps.iter().map(|view| {
            let (median, max) = (millis(view.median), millis(view.max));
            format!("{} {median} (at most {max})", view.step.name())
        });
        let steps: Vec<String> = steps.collect();
        let text = format_args!("slow score {score} of 100; median {}", steps.join(", "));
        row(html, "Newest probes", text)?;
    }
    for (name, last) in [
        ("Last look", dir.last_observation),
        ("Last good probe", dir.last_probe_success),
    ] {
        match last {
            Some(at) => {
                let (text, ago) = (timestamp_text(at), about(age(at, now)));
                row(html, name, format_args!("{text} ({ago} ago)"))?;
            }
            None => row(html, name, "none yet")?,
        }
    }
    Ok(())
}

fn write_listeners(html: &mut String, own: &SelfView) -> Written {
    if own.listeners.is_empty() {
        return Ok(());
    }
    writeln!(
        html,
        "<h2>Listeners</h2>\n<div class=\"scroll\"><table>\n<tr><th>name<th>kind<th>delivered<th>failed<th>waiting</tr>"
    )?;
    for listener in &own.listeners {
        writeln!(
            html,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            Escaped(&listener.name),
            Escaped(listener.kind),
            listener.delivered,
            listener.failed,
            listener.pending,
        )?;
    }
    writeln!(html, "</table></div>")
}

fn write_events(html: &mut String, events: &[std::sync::Arc<Event>]) -> Written {
    writeln!(html, "<h2>Latest events</h2>")?;
    if events.is_empty() {
        return writeln!(html, "<p>None since the agent started.</p>");
    }
    writeln!(
        html,
        "<div class=\"scroll\"><table>\n<tr><th>time<th>event<th>change<th>directory<th>why</tr>"
    )?;
    for event in events.iter().rev().take(EVENTS_SHOWN) {
        let dir = event.dir.as_deref().map(path_text);
        let change = event.from.zip(event.to);
        let change = change.map(|(from, to)| format!("{} → {}", words(from), words(to)));
        let why = event.reason.as_ref().map(|reason| reason.message.as_str());
        writeln!(
            html,
            "<tr><td>{}<td>{} {}<td>{}<td class=\"path\">{}<td>{}</tr>",
            timestamp_text(event.time),
            sign(event.severity),
            event.kind.name(),
            change.unwrap_or_default(),
            Escaped(dir.as_deref().unwrap_or("the node")),
            Escaped(why.unwrap_or_default()),
        )?;
    }
    writeln!(html, "</table></div>")
}

fn row(html: &mut String, name: &str, value: impl std::fmt::Display) -> Written {
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

const fn mode_words(mode: Mode) -> &'static str {
    match mode {
        Mode::Writable => "writable",
        Mode::ReadOnly => "read-only",
    }
}
