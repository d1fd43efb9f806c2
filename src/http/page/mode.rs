//! The server's mode on the page: what the disks ask for, what is, who holds it, and what is in the way.

use std::fmt::{Result as Written, Write};

use super::words::Escaped;
use super::{Scene, row};
use crate::health::policy::Mode;

pub(super) fn write(html: &mut String, scene: &Scene<'_>) -> Written {
    let mode = &scene.snapshot.mode;
    writeln!(
        html,
        "<section id=\"mode\" class=\"card\" aria-labelledby=\"mode-h\">\n<h2 id=\"mode-h\">Mode</h2>\n<dl>"
    )?;
    let wanted = mode.wanted.map_or("not known", name);
    match &mode.reason {
        Some(reason) => {
            let text = format_args!("{wanted}: {}", Escaped(reason));
            row(html, "Wanted mode", text)?;
        }
        None => row(html, "Wanted mode", wanted)?,
    }
    let observed = mode.observed.map_or("not known", name);
    match mode.observed.zip(mode.wanted) {
        Some((is, wanted)) if is != wanted => {
            row(
                html,
                "Observed mode",
                format_args!("▲ {observed}, and not as wanted"),
            )?;
        }
        _ => row(html, "Observed mode", observed)?,
    }
    row(html, "Control", Escaped(control(mode.control)))?;
    write_claims(html, scene)?;
    if let Some(held) = &mode.held {
        row(html, "Not changed now", format_args!("▲ {}", Escaped(held)))?;
    }
    if mode.journal_emergency {
        let text = "▲ a journal is nearly full: the bookie may go below the cluster's floor";
        row(html, "Emergency", text)?;
    }
    let possible = match mode.high_priority_writes {
        true => "possible",
        false => "not possible",
    };
    let taken = match scene.snapshot.beside.high_priority_writes {
        None => "",
        Some(true) => ", the bookie takes them",
        Some(false) => ", the bookie takes none",
    };
    row(html, "Recovery writes", format_args!("{possible}{taken}"))?;
    writeln!(html, "</dl>\n</section>")
}

fn write_claims(html: &mut String, scene: &Scene<'_>) -> Written {
    for claim in &scene.snapshot.mode.claims {
        let pending = match claim.pending {
            true => ", not in effect yet",
            false => "",
        };
        let below = match claim.below_floor {
            true => ", although too few bookies stayed writable",
            false => "",
        };
        let text = format_args!(
            "by {}, since {}{pending}{below}: {}",
            claim.owner.name(),
            scene.at(claim.since),
            Escaped(&claim.reason),
        );
        match claim.mode {
            Mode::ReadOnly => row(html, "Held read-only", text)?,
            Mode::Writable => row(html, "Held writable", text)?,
        }
    }
    Ok(())
}

/// What the word in the configuration means.
fn control(word: &str) -> &str {
    match word {
        "enforce" => "enforce: the bookie is put into the wanted mode",
        "observe" => "observe: nothing is changed, only said",
        other => other,
    }
}

const fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Writable => "writable",
        Mode::ReadOnly => "read-only",
    }
}
