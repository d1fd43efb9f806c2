//! The directories of the page: those in trouble first and open, the others closed when there are many.

use std::collections::BTreeMap;
use std::fmt::{Result as Written, Write};
use std::sync::Arc;

use super::words::{Escaped, about, millis, percent, usage};
use super::{Scene, row, sign};
use crate::document::{path_text, shown_space, words};
use crate::health::dir::DirId;
use crate::health::moment::Timestamp;
use crate::health::observation::Operation;
use crate::health::snapshot::{DirView, Snapshot};
use crate::health::status::{AccessStatus, LatencyStatus, Severity, Status};
use crate::health::words::bytes_text;

/// With so many directories all are open: they fit two screens.
const ALL_OPEN: usize = 6;

/// Most that are open at first, and only those in trouble: whoever has more looks at the first ones first.
const MOST_OPEN: usize = 20;

/// A look is recent for so long, and then told without its time: that would change each second.
const RECENT_MILLIS: i64 = 10_000;

/// All directories, worst first, and whether each is open.
pub(super) fn order(snapshot: &Snapshot) -> impl Iterator<Item = (&DirView, bool)> {
    let mut dirs: Vec<&Arc<DirView>> = snapshot.dirs.iter().collect();
    dirs.sort_by_key(|dir| std::cmp::Reverse(dir.status));
    let few = dirs.len() <= ALL_OPEN;
    let open = move |at, dir: &DirView| few || (dir.severity != Severity::Ok && at < MOST_OPEN);
    let dirs = dirs.into_iter().enumerate();
    dirs.map(move |(at, dir)| (&**dir, open(at, dir)))
}

/// The id of the element.
pub(super) fn element(dir: DirId) -> String {
    format!("d{}", dir.0)
}

pub(super) fn write_head(html: &mut String, scene: &Scene<'_>) -> Written {
    let none = match scene.snapshot.dirs.is_empty() {
        true => "<p>No directory is watched.</p>\n",
        false => "",
    };
    writeln!(
        html,
        "<div id=\"dirs-head\">\n<h2 id=\"dirs-h\">Directories</h2>\n{none}</div>"
    )
}

/// How many there are of each status, worst first.
pub(super) fn counts(snapshot: &Snapshot) -> String {
    let mut counts: BTreeMap<Status, usize> = BTreeMap::new();
    for dir in &snapshot.dirs {
        *counts.entry(dir.status).or_default() += 1;
    }
    let counts = counts.iter().rev().map(|(status, count)| {
        let (sign, status) = (sign(status.severity()), words(status.name()));
        format!("{sign} {count} {status}")
    });
    counts.collect::<Vec<String>>().join(" · ")
}

/// How the element of a directory begins: all of its state that is more than numbers.
pub(super) fn frame(dir: &DirView, open: bool) -> String {
    let (severity, status) = (dir.severity.name(), words(dir.status.name()));
    format!(
        "<li id=\"{}\" data-severity=\"{severity}\"><details class=\"card {severity}\" data-state=\"{status}\"{}>",
        element(dir.id),
        if open { " open" } else { "" },
    )
}

pub(super) fn write(html: &mut String, scene: &Scene<'_>, dir: &DirView, open: bool) -> Written {
    let path = path_text(&dir.path);
    writeln!(
        html,
        "{}\n<summary><h3><span class=\"word\">{} {}</span> <span class=\"path\">{}</span> \
         <span class=\"role\">{}</span></h3>",
        frame(dir, open),
        sign(dir.severity),
        words(dir.status.name()),
        Escaped(&path),
        dir.role.name(),
    )?;
    write_bar(html, dir)?;
    writeln!(html, "</summary>\n<dl>")?;
    row(html, "Since", scene.at(dir.since))?;
    if let Some(reason) = &dir.reason {
        let (cause, message) = (words(reason.cause.name()), Escaped(&reason.message));
        row(html, "Cause", format_args!("{cause}: {message}"))?;
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
    write_space(html, scene, dir)?;
    write_probe(html, dir)?;
    if !dir.sources.active.is_empty() {
        let names = dir.sources.active.join(", ");
        row(html, "Watched by", Escaped(&names))?;
    }
    writeln!(html, "</dl>")?;
    write_evidence(html, scene, dir)?;
    writeln!(
        html,
        "<details data-state=\"more\"><summary>More</summary>\n<dl>"
    )?;
    write_reserves(html, dir)?;
    write_probes(html, scene, dir)?;
    write_place(html, dir)?;
    writeln!(html, "</dl></details>")?;
    write_orders(html, dir, &path)?;
    writeln!(html, "</details></li>")
}

/// The bar with its three marks; the numbers stand beside it and in the row of limits.
fn write_bar(html: &mut String, dir: &DirView) -> Written {
    let Some((ratio, space)) = usage(dir).zip(shown_space(dir)) else {
        return writeln!(html, "<span class=\"use\">usage not known</span>");
    };
    let limits = &dir.thresholds;
    write!(
        html,
        "<span class=\"use\">{} % used, {} of {} available</span>\n\
         <svg class=\"bar\" width=\"100%\" height=\"20\" aria-hidden=\"true\">\
         <rect class=\"used\" width=\"{:.1}%\" height=\"100%\"/>",
        percent(ratio),
        bytes_text(space.available),
        bytes_text(space.size),
        ratio * 100.0,
    )?;
    // The three may fall together, so each has a height of its own.
    for (name, limit, top) in [
        ("low", limits.low_watermark, "60%"),
        ("warn", limits.warn, "35%"),
        ("full", limits.full, "0%"),
    ] {
        let x = limit * 100.0;
        write!(
            html,
            "<line class=\"{name}\" x1=\"{x:.1}%\" x2=\"{x:.1}%\" y1=\"{top}\" y2=\"100%\"/>"
        )?;
    }
    writeln!(html, "</svg>")
}

fn write_space(html: &mut String, scene: &Scene<'_>, dir: &DirView) -> Written {
    let limits = &dir.thresholds;
    let or_below = |available| match available {
        0 => String::new(),
        _ => format!(" or with less than {} available", bytes_text(available)),
    };
    let marks = format_args!(
        "writable again below {} % (dotted), almost full above {} %{} (dashed), full above {} %{} (solid)",
        percent(limits.low_watermark),
        percent(limits.warn),
        or_below(limits.warn_available),
        percent(limits.full),
        or_below(limits.full_available),
    );
    row(html, "Marks", marks)?;
    scene.hours.write(html, dir.id)?;
    if let Some(forecast) = dir.forecast {
        let latest = match forecast.latest {
            Some(latest) => about(latest),
            None => "never".to_owned(),
        };
        let (expected, earliest) = (about(forecast.expected), about(forecast.earliest));
        let text = format_args!("full in {expected} (between {earliest} and {latest})");
        // Of a full one it says what stands above.
        if !forecast.expected.is_zero() {
            row(html, "Forecast", text)?;
        }
    }
    Ok(())
}

fn write_reserves(html: &mut String, dir: &DirView) -> Written {
    if let Some(space) = shown_space(dir).filter(|space| space.inodes != 0) {
        let (free, all) = (space.inodes_free, space.inodes);
        row(html, "Inodes", format_args!("{free} of {all} free"))?;
    }
    if let Some(room) = dir.high_priority_room {
        let text = match room.enough {
            true => bytes_text(room.bytes),
            false => "less than the reserve".to_owned(),
        };
        row(html, "Recovery room", text)?;
    }
    if let Some(ballast) = dir.ballast {
        let held = ballast.held.map_or("not known".to_owned(), bytes_text);
        let (wanted, state) = (bytes_text(ballast.wanted), words(ballast.state.name()));
        row(html, "Ballast", format_args!("{held} of {wanted}, {state}"))?;
    }
    if let Some(journal) = dir.journal {
        let unmarked = journal.unmarked.map_or("not known".to_owned(), bytes_text);
        let text = format_args!("{unmarked} to be read by a start, {} files", journal.files);
        row(html, "Journal", text)?;
    }
    Ok(())
}

fn write_probe(html: &mut String, dir: &DirView) -> Written {
    if let Some(running) = dir.in_flight {
        let running = about(running);
        let text = format_args!("an operation has been running for {running}");
        row(html, "In flight", text)?;
    }
    let steps = [
        Operation::Create,
        Operation::Write,
        Operation::Sync,
        Operation::Read,
    ];
    let durations = steps.into_iter().filter_map(|step| {
        let duration = millis(*dir.durations.get(&step)?);
        Some(format!("{} {duration}", step.name()))
    });
    let durations: Vec<String> = durations.collect();
    if !durations.is_empty() {
        let slow = match dir.latency_status {
            LatencyStatus::Slow => " (slow)",
            _ => "",
        };
        let durations = durations.join(", ");
        row(html, "Newest probe", format_args!("{durations}{slow}"))?;
    }
    Ok(())
}

fn write_probes(html: &mut String, scene: &Scene<'_>, dir: &DirView) -> Written {
    if let Some(score) = dir.latency.score {
        let steps = dir.latency.steps.iter().map(|view| {
            let (median, max) = (millis(view.median), millis(view.max));
            format!("{} {median} (at most {max})", view.step.name())
        });
        let steps: Vec<String> = steps.collect();
        let text = format_args!("slow score {score} of 100; median {}", steps.join(", "));
        row(html, "Newest probes", text)?;
    }
    write_last(html, scene, "Last look", dir.last_observation)?;
    write_last(html, scene, "Last good probe", dir.last_probe_success)
}

fn write_last(html: &mut String, scene: &Scene<'_>, name: &str, at: Option<Timestamp>) -> Written {
    let recent = |at: Timestamp| scene.snapshot.time.0 - at.0 < RECENT_MILLIS;
    match at {
        None => row(html, name, "none yet"),
        Some(at) if recent(at) => row(html, name, "less than 10s ago"),
        Some(at) => row(html, name, scene.at(at)),
    }
}

fn write_place(html: &mut String, dir: &DirView) -> Written {
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
    if !dir.sources.missing.is_empty() {
        let missing = dir.sources.missing.iter();
        let missing: Vec<_> = missing
            .map(|(name, why)| format!("{name}: {why}"))
            .collect();
        row(html, "Not watched by", Escaped(&missing.join("; ")))?;
    }
    Ok(())
}

fn write_evidence(html: &mut String, scene: &Scene<'_>, dir: &DirView) -> Written {
    if dir.evidence.is_empty() {
        return Ok(());
    }
    writeln!(
        html,
        "<details data-state=\"evidence\"><summary>Evidence</summary>\n<ul class=\"plain\">"
    )?;
    for evidence in &dir.evidence {
        let (at, text) = (scene.at(evidence.at), Escaped(&evidence.text));
        writeln!(html, "<li>{at} {text}</li>")?;
    }
    writeln!(html, "</ul></details>")
}

/// Buttons, which the page shows to those who have its script.
fn write_orders(html: &mut String, dir: &DirView, path: &str) -> Written {
    let path = Escaped(path);
    write!(
        html,
        "<p class=\"js\"><button type=\"button\" data-order=\"probe\" data-dir=\"{path}\">Probe now\
         <span class=\"unseen\"> {path}</span></button>"
    )?;
    if dir.access_status == AccessStatus::Replaced {
        write!(
            html,
            " <button type=\"button\" data-order=\"accept\" data-dir=\"{path}\">Accept this disk\
             <span class=\"unseen\"> in {path}</span></button>"
        )?;
    }
    writeln!(html, "</p>")
}
