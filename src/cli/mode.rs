//! `mode`: who holds the bookie in which mode, an operator's order to hold it or to let it go, and
//! whether it may end. The agent decides, remembers and acts; nothing is touched here.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::args::{ModeCommand, ModeOrderArguments, Output, SetMode, StatusArguments};
use super::exit::{Exit, Failure};
use super::remote::{self, Agent};
use super::terminal::{Terminal, print, printable};
use super::{block_on, status};
use crate::document::{self, StatusDocument};
use crate::health::claim::check_reason;
use crate::health::policy::Mode;

/// What `mode show --output json` passes through.
#[derive(Deserialize)]
struct WithMode {
    mode: Box<RawValue>,
}

/// How an order is answered.
#[derive(Deserialize)]
struct Taken {
    #[serde(default)]
    message: Option<String>,
}

/// How `may-stop` is answered.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MayStop {
    may_stop: bool,
    reasons: Vec<String>,
    #[serde(default)]
    message: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// The agent does not answer or refuses; the reason or the token is none.
pub fn run(command: ModeCommand) -> Result<Exit, Failure> {
    match command {
        ModeCommand::Show(arguments) => show(arguments),
        ModeCommand::Set(arguments) => {
            let reason = check_reason(&arguments.reason);
            let reason = reason.map_err(|error| Failure::new(Exit::Usage, error))?;
            let mode = match arguments.mode {
                SetMode::ReadOnly => Mode::ReadOnly,
                SetMode::Writable => Mode::Writable,
            };
            order(arguments.order, Some(mode), Some(reason))
        }
        ModeCommand::Release(arguments) => order(arguments, None, None),
        ModeCommand::MayStop(arguments) => may_stop(arguments),
    }
}

fn show(arguments: StatusArguments) -> Result<Exit, Failure> {
    let agent = Agent::at(&arguments.remote)?;
    let body = block_on(agent.status())?;
    let document: StatusDocument = agent.parse(&body)?;
    match arguments.output {
        Output::Json => {
            let WithMode { mode } = agent.parse(&body)?;
            print_json(mode.get())?;
        }
        Output::Human => print(&render(&document, Terminal::stdout()))?,
    }
    Ok(Exit::Ok)
}

/// The mode as text.
fn render(document: &StatusDocument, terminal: Terminal) -> String {
    let mode = &document.mode;
    let mut text = format!("{}\n", printable(&document.host));
    text.push_str(&status::mode(mode, terminal));
    text.push_str(&status::beside(document.beside.as_ref(), terminal));
    if mode.claims.is_empty() {
        text.push_str(&terminal.paragraph(2, "nobody holds it in a mode"));
    }
    let by_operator = mode.claims.iter().any(|claim| claim.owner == "operator");
    if mode.observed.as_deref() == Some(Mode::ReadOnly.name()) && !by_operator {
        let hint = "\
            to keep it read-only use 'dirkeeper mode set': a PUT to the bookie itself is answered 200 \
            and forgotten while it is read-only already";
        text.push_str(&terminal.paragraph(0, hint));
    }
    text
}

fn order(
    arguments: ModeOrderArguments,
    mode: Option<Mode>,
    reason: Option<&str>,
) -> Result<Exit, Failure> {
    let token = remote::token(arguments.token_file)?;
    let agent = Agent::at(&arguments.remote)?;
    let body = block_on(agent.set_mode(&token, mode.map(Mode::name), reason))?;
    let Taken { message } = agent.parse(&body)?;
    match arguments.output {
        Output::Json => print_json(&body)?,
        Output::Human => {
            let message = message.unwrap_or_else(|| "accepted".to_owned());
            print(&format!("{}\n", printable(&message)))?;
        }
    }
    Ok(Exit::Ok)
}

fn may_stop(arguments: StatusArguments) -> Result<Exit, Failure> {
    let agent = Agent::at(&arguments.remote)?;
    let body = block_on(agent.may_stop())?;
    let answer: MayStop = agent.parse(&body)?;
    match arguments.output {
        Output::Json => print_json(&body)?,
        Output::Human => print(&verdict(&answer, Terminal::stdout()))?,
    }
    Ok(if answer.may_stop {
        Exit::Ok
    } else {
        Exit::FAILED
    })
}

fn verdict(answer: &MayStop, terminal: Terminal) -> String {
    let mut text = String::from(if answer.may_stop {
        "the bookie may end now\n"
    } else {
        "the bookie must not end now:\n"
    });
    for reason in answer.reasons.iter().chain(&answer.message) {
        text.push_str(&terminal.paragraph(2, &printable(reason)));
    }
    text
}

fn print_json(body: &str) -> Result<(), Failure> {
    print(&(document::quiet(body.trim_end().to_owned()) + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{sample, status_document};

    #[test]
    fn the_mode_is_shown_with_who_holds_it_and_what_keeps_it_from_changing() {
        let mut snapshot = sample::snapshot();
        let mut shown = String::new();
        let mut show = |snapshot: &crate::health::snapshot::Snapshot| {
            let document = status_document(snapshot, &sample::self_view(), &sample::about());
            shown.push_str(&render(&document, Terminal::NONE));
        };
        show(&snapshot);
        snapshot.mode.observed = Some(Mode::ReadOnly);
        snapshot.mode.claims.pop();
        show(&snapshot);
        snapshot.mode = crate::health::snapshot::ModeView::default();
        show(&snapshot);
        insta::assert_snapshot!("mode", shown);
    }

    #[test]
    fn a_verdict_has_its_reasons() {
        let verdict = |may_stop, reasons: &[&str], message: Option<&str>| {
            let reasons = reasons.iter().map(|&reason| reason.to_owned()).collect();
            let message = message.map(str::to_owned);
            let answer = MayStop {
                may_stop,
                reasons,
                message,
            };
            verdict(&answer, Terminal::NONE)
        };
        let no = verdict(false, &["too few\u{1b}[2J", "no session"], None);
        let expected = "the bookie must not end now:\n  too few\\x1b[2J\n  no session\n";
        assert_eq!(no, expected);
        assert_eq!(verdict(true, &[], None), "the bookie may end now\n");
        let yes = verdict(true, &[], Some("reserved until noon"));
        assert_eq!(yes, "the bookie may end now\n  reserved until noon\n");
    }
}
