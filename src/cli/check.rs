//! `check`: one round of probes, its verdict as text, document or line, and as exit code. The round
//! itself is `app`'s.

use std::path::PathBuf;

use anyhow::Context;

use super::args::{CheckArguments, CheckOutput};
use super::exit::{Exit, Failure};
use super::terminal::{Terminal, Tone, print, printable, words};
use super::{block_on, explain, here, nagios, table};
use crate::app;
use crate::document::{self, About, RestartDocument, StatusDocument, path_text, status_document};
use crate::health::snapshot::{SelfView, Snapshot};
use crate::health::status::{Severity, Status};

/// Runs the command.
///
/// # Errors
/// The round could not be made, or its result not be written. With `--output nagios` there are no
/// errors: each is a line and the exit code 3.
pub fn run(arguments: CheckArguments) -> Result<Exit, Failure> {
    let (output, explain) = (arguments.output, arguments.explain);
    let result = round(arguments);
    let (text, exit) = match result {
        Ok((snapshot, own)) => (
            render(&snapshot, &own, output, explain, Terminal::stdout()),
            exit_of(snapshot.severity),
        ),
        Err(failure) if output == CheckOutput::Nagios => {
            let error = crate::report::text(failure.error.as_ref());
            (nagios::failure(&error), Exit::Unknown)
        }
        Err(failure) => return Err(failure),
    };
    match print(&text) {
        // The verdict stands, whether somebody reads it or not.
        Err(gone) if gone.exit == Exit::Ok => Ok(exit),
        Err(_) if output == CheckOutput::Nagios => Ok(Exit::Unknown),
        Err(failure) => Err(failure),
        Ok(()) => Ok(exit),
    }
}

fn round(arguments: CheckArguments) -> Result<(std::sync::Arc<Snapshot>, SelfView), Failure> {
    if arguments.explain && arguments.output != CheckOutput::Human {
        let error = anyhow::anyhow!("--explain is text for people: leave --output away");
        return Err(Failure::new(Exit::Usage, error));
    }
    let options = app::CheckOptions {
        sources: arguments.sources.into(),
        only: arguments
            .only
            .into_iter()
            .map(absolute)
            .collect::<Result<_, _>>()?,
        timeout: arguments.timeout,
    };
    block_on(app::check(options))
}

/// A path as a configuration has it, whatever the working directory.
///
/// # Errors
/// It is empty, or the working directory is gone.
pub(super) fn absolute(path: PathBuf) -> Result<PathBuf, Failure> {
    let context = || format!("cannot tell where {} is", printable(&path_text(&path)));
    let absolute = std::path::absolute(&path).with_context(context);
    absolute.map_err(|error| Failure::new(Exit::Usage, error))
}

/// The exit code for the worst directory.
#[must_use]
pub const fn exit_of(severity: Severity) -> Exit {
    match severity {
        Severity::Ok => Exit::Ok,
        Severity::Warning => Exit::Warning,
        Severity::Critical => Exit::Critical,
        Severity::Unknown => Exit::Unknown,
    }
}

/// The result in the wanted form.
#[must_use]
pub fn render(
    snapshot: &Snapshot,
    own: &SelfView,
    output: CheckOutput,
    explain: bool,
    terminal: Terminal,
) -> String {
    let document = status_document(snapshot, own, &about());
    match output {
        CheckOutput::Json => document::json(&document) + "\n",
        CheckOutput::Nagios => nagios::line(&document),
        CheckOutput::Human if explain => {
            summary(&document, terminal) + "\n" + &explain::explain(snapshot, terminal)
        }
        CheckOutput::Human => {
            let mut text = summary(&document, terminal);
            text.push('\n');
            text.push_str(&table::directories(&document, terminal));
            text.push_str(&restart(document.restart.as_ref(), terminal));
            text.push_str(&problems(&document.problems, terminal));
            text
        }
    }
}

/// What a check says about where it was made: no bookie is asked, nothing is controlled.
fn about() -> About {
    About {
        host: here(),
        version: crate::VERSION,
        revision: crate::REVISION,
        semantics: "dirkeeper",
    }
}

/// One line: the worst, and how many directories are what, worst first.
fn summary(document: &StatusDocument, terminal: Terminal) -> String {
    let mut counts = Vec::new();
    for status in Status::ALL.into_iter().rev() {
        let count = document
            .dirs
            .iter()
            .filter(|dir| dir.status == status.name())
            .count();
        if count != 0 {
            counts.push(format!("{count} {}", words(status.name())));
        }
    }
    let status = terminal.paint(Tone::of_severity(&document.status), &document.status);
    format!("{status}: {}\n", counts.join(", "))
}

/// What is known against a start of the bookie; nothing when nothing is. Not a part of the verdict:
/// the directories serve all the same.
#[must_use]
pub fn restart(restart: Option<&RestartDocument>, terminal: Terminal) -> String {
    let Some(restart) = restart.filter(|restart| !restart.reasons.is_empty()) else {
        return String::new();
    };
    let verdict = match restart.would_succeed {
        Some(false) => "a restart would fail",
        _ => "a restart may fail",
    };
    let text = format!("{verdict}: {}", restart.reasons.join("; "));
    format!("\n{}", terminal.paragraph(0, &printable(&text)))
}

/// Troubles of dirkeeper itself, below the table; nothing when there are none.
#[must_use]
pub fn problems(problems: &[String], terminal: Terminal) -> String {
    if problems.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", terminal.paint(Tone::Heading, "PROBLEMS"));
    for problem in problems {
        text.push_str(&terminal.paragraph(2, &printable(problem)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::sample;

    #[test]
    fn the_result_has_three_forms() {
        let forms = [CheckOutput::Human, CheckOutput::Json, CheckOutput::Nagios].map(|output| {
            let (snapshot, own) = (sample::snapshot(), sample::self_view());
            let text = render(&snapshot, &own, output, false, Terminal::NONE);
            text.replace(&here().host, "HOST")
        });
        insta::assert_snapshot!(forms.join("----\n"));
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst() {
        let codes = Status::ALL.map(|status| exit_of(status.severity()).code());
        assert_eq!(codes, [0, 1, 1, 3, 2, 2, 2, 2, 2, 2]);
    }
}
