//! `status`: how a running agent sees its directories, fetched over HTTP and shown as a table or
//! passed through as it came.

use super::args::{Output, PictureArguments};
use super::exit::{Exit, Failure};
use super::remote::Agent;
use super::terminal::{self, Terminal, Tone, print, printable, words};
use super::{block_on, check, table, watch};
use crate::clock::Clock;
use crate::document::{
    self, BesideDocument, ListenerDocument, ModeDocument, StatusDocument, timestamp_text,
};

/// An agent makes a picture at least every few seconds, network disks included; one older than this
/// is worth a warning.
const STALE_SECONDS: u64 = 60;

/// Runs the command.
///
/// # Errors
/// The agent does not answer, or not with a status; or the result cannot be written.
pub fn run(arguments: &PictureArguments) -> Result<Exit, Failure> {
    let (is_live, arguments) = (arguments.watch, &arguments.agent);
    if is_live {
        return watch::run(arguments);
    }
    let agent = Agent::at(&arguments.remote)?;
    let body = block_on(agent.status())?;
    let document: StatusDocument = agent.parse(&body)?;
    match arguments.output {
        Output::Json => print(&(document::quiet(body.trim_end().to_owned()) + "\n"))?,
        Output::Human => {
            let now = timestamp_text(Clock::start().now().wall);
            print(&render(&document, &now, Terminal::stdout()))?;
        }
    }
    Ok(Exit::Ok)
}

/// The picture as text; `now` is what this machine's clock says.
#[must_use]
pub fn render(document: &StatusDocument, now: &str, terminal: Terminal) -> String {
    let mut text = heading(document, terminal);
    text.push_str(&mode(&document.mode, terminal));
    text.push_str(&beside(document.beside.as_ref(), terminal));
    if let Some(age) = stale(&document.time, now) {
        let warning = format!(
            "this picture is {age} old by this machine's clock: the agent stands still, or a \
             clock is wrong"
        );
        text.push_str(&terminal.paragraph(0, &warning));
    }
    text.push('\n');
    text.push_str(&table::directories(document, terminal));
    text.push_str(&check::restart(document.restart.as_ref(), terminal));
    text.push_str(&listeners(&document.listeners, terminal));
    text.push_str(&check::problems(&document.problems, terminal));
    text
}

/// All but the directories.
pub(super) fn node(document: &StatusDocument, terminal: Terminal) -> String {
    let parts = [
        heading(document, terminal),
        mode(&document.mode, terminal),
        beside(document.beside.as_ref(), terminal),
        check::restart(document.restart.as_ref(), terminal),
        listeners(&document.listeners, terminal),
        check::problems(&document.problems, terminal),
    ];
    parts.concat()
}

fn heading(document: &StatusDocument, terminal: Terminal) -> String {
    let status = terminal.paint(Tone::of_severity(&document.status), &document.status);
    let mut facts = vec![format!("dirkeeper {}", printable(&document.version))];
    if let Some(up) = terminal::between(&document.started_at, &document.time) {
        facts.push(format!("up {up}"));
    }
    if document.semantics != "dirkeeper" {
        facts.push(format!("semantics {}", printable(&document.semantics)));
    }
    let facts = terminal.paint(Tone::Dim, &format!("({})", facts.join(", ")));
    format!("{}: {status} {facts}\n", printable(&document.host))
}

/// The mode, who holds it, and why it is not changed now.
pub(super) fn mode(mode: &ModeDocument, terminal: Terminal) -> String {
    let shown = |mode: &Option<String>| mode.as_deref().map(words);
    let wanted = shown(&mode.wanted);
    let mut parts = vec![match &wanted {
        Some(wanted) => format!("mode: {wanted} is wanted"),
        None => "mode: too much is unknown to want one".to_owned(),
    }];
    match shown(&mode.observed) {
        Some(observed) if wanted.as_ref() != Some(&observed) => {
            parts.push(format!("but the bookie is {observed}"));
        }
        Some(observed) => parts.push(format!("the bookie is {observed}")),
        None => {}
    }
    let room = if mode.high_priority_writes { "" } else { "no " };
    parts.push(format!("{room}room for recovery writes"));
    parts.push(format!("control {}", printable(&mode.control)));
    let mut text = terminal.paragraph(0, &parts.join(", "));
    for claim in &mode.claims {
        let pending = if claim.pending {
            " (not in effect yet)"
        } else {
            ""
        };
        let claim = format!(
            "{} holds it {} since {}{pending}: {}",
            claim.owner,
            words(&claim.mode),
            claim.since,
            claim.reason
        );
        text.push_str(&terminal.paragraph(2, &printable(&claim)));
    }
    if let Some(held) = &mode.held {
        let held = format!("it is not changed now: {held}");
        text.push_str(&terminal.paragraph(2, &printable(&held)));
    }
    text
}

/// What beside does not answer; nothing where all does.
pub(super) fn beside(beside: Option<&BesideDocument>, terminal: Terminal) -> String {
    let mut text = String::new();
    let Some(beside) = beside else {
        return text;
    };
    if beside.bookie_up == Some(false) {
        text.push_str(&terminal.paragraph(2, "the bookie does not serve"));
    }
    if beside.zookeeper_connected == Some(false) {
        let line = "ZooKeeper is not connected: no mode is changed, and no order is taken";
        text.push_str(&terminal.paragraph(2, line));
    }
    text
}

/// How old the picture is, when it is older than it should be.
fn stale(time: &str, now: &str) -> Option<String> {
    let time = humantime::parse_rfc3339(time).ok()?;
    let now = humantime::parse_rfc3339(now).ok()?;
    let age = now.duration_since(time).ok()?.as_secs();
    (STALE_SECONDS < age).then(|| terminal::span(age))
}

/// Listeners that have failed or wait; the others are not worth a line.
fn listeners(listeners: &[ListenerDocument], terminal: Terminal) -> String {
    let mut text = String::new();
    for listener in listeners {
        let mut troubles = Vec::new();
        if listener.failed != 0 {
            troubles.push(format!("{} failed", listener.failed));
        }
        if listener.pending != 0 {
            troubles.push(format!("{} waiting", listener.pending));
        }
        if troubles.is_empty() {
            continue;
        }
        if text.is_empty() {
            text = format!("\n{}\n", terminal.paint(Tone::Heading, "LISTENERS"));
        }
        let line = format!(
            "{} ({}): {} delivered, {}",
            listener.name,
            listener.kind,
            listener.delivered,
            troubles.join(", ")
        );
        text.push_str(&terminal.paragraph(2, &printable(&line)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{ClaimDocument, sample, status_document};

    fn document() -> StatusDocument {
        status_document(&sample::snapshot(), &sample::self_view(), &sample::about())
    }

    #[test]
    fn the_picture_is_shown_with_what_is_wrong() {
        let now = timestamp_text(sample::NOW);
        insta::assert_snapshot!("status", render(&document(), &now, Terminal::NONE));
    }

    #[test]
    fn the_mode_says_who_wants_what() {
        let mut document = document();
        let mut modes = Vec::new();
        for (wanted, observed) in [
            (None, None),
            (Some("writable"), Some("writable")),
            (Some("readOnly"), Some("writable")),
        ] {
            document.mode.wanted = wanted.map(str::to_owned);
            document.mode.observed = observed.map(str::to_owned);
            document.mode.high_priority_writes = observed.is_some();
            modes.push(mode(&document.mode, Terminal::NONE));
        }
        document.mode.claims.push(ClaimDocument {
            owner: "operator".to_owned(),
            mode: "readOnly".to_owned(),
            reason: "disk swap\nat noon".to_owned(),
            since: "2026-11-30T01:00:00.000Z".to_owned(),
            pending: true,
        });
        document.mode.held = Some("no session\u{1b} with ZooKeeper".to_owned());
        modes.push(mode(&document.mode, Terminal::NONE));
        insta::assert_snapshot!("modes", modes.concat());
    }

    #[test]
    fn an_old_picture_is_called_old() {
        let check = |now: &str, expected: Option<&str>| {
            assert_eq!(stale("2026-11-30T01:02:03.456Z", now).as_deref(), expected);
        };
        check("2026-11-30T01:03:03.456Z", None);
        check("2026-11-30T01:05:04.456Z", Some("3 m 1 s"));
        check("2026-11-30T01:00:00.000Z", None);
    }
}
