//! Bookie and cluster on the page, as they were last heard; nothing where nobody is asked.

use std::fmt::{Result as Written, Write};

use super::words::Escaped;
use super::{Scene, row};
use crate::document::words;
use crate::health::beside::{BesideAction, BesideView, ClusterView, Member, Registration};

/// Bookies of the cluster in the table, those that are not plainly writable first: a screen of them. The
/// API has all.
const MEMBERS_SHOWN: usize = 40;

pub(super) fn write(html: &mut String, scene: &Scene<'_>) -> Written {
    let beside = &scene.snapshot.beside;
    if *beside == BesideView::default() {
        return writeln!(html, "<section id=\"beside\" hidden></section>");
    }
    writeln!(
        html,
        "<section id=\"beside\" class=\"card\" aria-labelledby=\"beside-h\">\n\
         <h2 id=\"beside-h\">Bookie and cluster</h2>\n<dl>"
    )?;
    write_there(html, beside)?;
    if let Some(process) = &beside.process {
        let version = process.version.as_deref().unwrap_or("of unknown version");
        let (pid, since) = (process.pid, scene.at(process.started));
        let text = format_args!("{}, pid {pid}, running since {since}", Escaped(version));
        row(html, "Process", text)?;
    }
    if let Some(registration) = beside.registration {
        row(html, "Registered", registered(registration))?;
    }
    if let Some(should_be) = &beside.should_be {
        let (mode, reason) = (words(should_be.mode.name()), Escaped(&should_be.reason));
        row(html, "By itself it is", format_args!("{mode}: {reason}"))?;
    }
    write_compaction(html, beside)?;
    if let Some(action) = beside.action {
        let text = match action {
            BesideAction::ResumeCompaction { .. } => "to resume its compaction",
            BesideAction::RequestGc => "to collect garbage",
        };
        row(html, "To be asked", text)?;
    }
    writeln!(html, "</dl>")?;
    if let Some(cluster) = &beside.cluster {
        write_cluster(html, cluster)?;
    }
    writeln!(html, "</section>")
}

/// Whether those beside the agent are there.
fn write_there(html: &mut String, beside: &BesideView) -> Written {
    let there = [
        (
            "Admin server",
            beside.bookie_up,
            "✓ the bookie serves",
            "✖ the bookie does not answer or does not serve",
        ),
        (
            "ZooKeeper",
            beside.zookeeper,
            "✓ connected",
            "✖ not connected",
        ),
    ];
    for (name, is, yes, no) in there {
        if let Some(is) = is {
            row(html, name, if is { yes } else { no })?;
        }
    }
    Ok(())
}

const fn registered(registration: Registration) -> &'static str {
    match (registration.writable, registration.read_only) {
        (true, false) => "writable",
        (false, true) => "read-only",
        (true, true) => "both writable and read-only, which clients take for read-only",
        (false, false) => "nowhere",
    }
}

fn write_compaction(html: &mut String, beside: &BesideView) -> Written {
    let compaction = &beside.compaction;
    if let Some(suspended) = compaction.suspended {
        let what = match (suspended.major, suspended.minor) {
            (true, true) => "major and minor compaction",
            (true, false) => "major compaction",
            (false, _) => "minor compaction",
        };
        let how = match suspended.seen {
            true => "",
            false => " (concluded, the bookie does not say it)",
        };
        row(html, "Suspended", format_args!("▲ {what}{how}"))?;
    }
    if compaction.forced == Some(true) {
        row(html, "Garbage", "a forced collection runs")?;
    }
    Ok(())
}

fn write_cluster(html: &mut String, cluster: &ClusterView) -> Written {
    let all = cluster.members.len();
    let writable = cluster.members.iter().filter(|member| member.is_writable());
    let writable = writable.count();
    write!(html, "<p>{writable} of {all} bookies are writable")?;
    if let Some(ensemble) = cluster.largest_ensemble {
        write!(html, "; the largest ensemble in use has {ensemble}")?;
    }
    writeln!(html, ".</p>")?;
    if all == 0 {
        return Ok(());
    }
    let mut members: Vec<&Member> = cluster.members.iter().collect();
    members.sort_by_key(|member| {
        let warns = member.agent.as_ref().is_some_and(|agent| agent.over_warn);
        (member.is_writable(), !warns)
    });
    writeln!(
        html,
        "<div class=\"scroll\" role=\"region\" aria-label=\"Bookies of the cluster\" tabindex=\"0\">\
         <table>\n<thead><tr><th scope=\"col\">bookie<th scope=\"col\">registered<th scope=\"col\">rack\
         <th scope=\"col\">its agent says<th scope=\"col\">held</tr></thead>\n<tbody>"
    )?;
    for member in members.iter().take(MEMBERS_SHOWN) {
        writeln!(
            html,
            "<tr><th scope=\"row\">{}<td>{} {}<td>{}<td>{}<td>{}</tr>",
            Escaped(&member.id),
            if member.is_writable() { "✓" } else { "▲" },
            registered(member.registration),
            Escaped(member.rack.as_deref().unwrap_or("not known")),
            agent(member),
            match (member.claimed, member.below_floor) {
                (true, true) => "yes, below the floor",
                (true, false) => "yes",
                (false, _) => "no",
            },
        )?;
    }
    writeln!(html, "</tbody></table></div>")?;
    if let Some(more) = all.checked_sub(MEMBERS_SHOWN).filter(|more| *more != 0) {
        writeln!(html, "<p>and {more} more, in the API.</p>")?;
    }
    Ok(())
}

fn agent(member: &Member) -> &'static str {
    match &member.agent {
        None => "no agent",
        Some(agent) if agent.full => "✖ full or unusable",
        Some(agent) if agent.over_warn => "▲ over warn",
        Some(_) => "✓ room",
    }
}
