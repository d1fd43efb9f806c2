//! `events`: the log of events, from a running agent or from the state directory of one that does
//! not run, as lines for people or as the documents they are.

use std::path::Path;

use serde::Deserialize;

use super::args::{EventsArguments, Output};
use super::block_on;
use super::exit::{Exit, Failure};
use super::remote::{Agent, PAGE};
use super::terminal::{Terminal, Tone, print, printable, words};
use crate::document::{self, EventDocument};
use crate::health::event::EventKind;
use crate::http_client::Heard;
use crate::report;
use crate::state::{self, StoreError};

/// Runs the command. With `--follow` it ends only when nobody reads any more, or when the agent
/// refuses.
///
/// # Errors
/// Nobody answers, what is there cannot be understood, or the result cannot be written.
pub fn run(arguments: &EventsArguments) -> Result<Exit, Failure> {
    let printer = Printer {
        kinds: &arguments.kinds,
        output: arguments.output,
        terminal: Terminal::stdout(),
    };
    let since = arguments.since;
    if let Some(state_dir) = &arguments.state_dir {
        stored(state_dir, since, &printer)?;
        return Ok(Exit::Ok);
    }
    let agent = Agent::at(&arguments.remote)?;
    if arguments.follow {
        block_on(follow(&agent, since, &printer))?;
    } else {
        block_on(pages(&agent, since, &printer))?;
    }
    Ok(Exit::Ok)
}

fn stored(state_dir: &Path, mut since: u64, printer: &Printer) -> Result<(), Failure> {
    loop {
        let events = state::read_events(state_dir, since, PAGE).map_err(unreadable)?;
        for event in &events {
            since = printer.event(&event.json)?;
        }
        if events.len() < PAGE {
            return Ok(());
        }
    }
}

fn unreadable(error: StoreError) -> Failure {
    let exit = match &error {
        StoreError::Locked { .. } | StoreError::Busy => {
            let remedy = "ask the agent: leave --state-dir away, or name its address with --url";
            return Failure::new(Exit::Unavailable, error).remedy(remedy);
        }
        StoreError::NotPermitted(why) => {
            let error = anyhow::anyhow!("the state directory cannot be read by this user ({why})");
            let remedy = "read it as the user of the agent";
            return Failure::new(Exit::NotPermitted, error).remedy(remedy);
        }
        StoreError::Damaged(_) | StoreError::NewerVersion { .. } => Exit::Data,
        _ => Exit::Io,
    };
    Failure::new(exit, error)
}

async fn pages(agent: &Agent, mut since: u64, printer: &Printer<'_>) -> Result<(), Failure> {
    loop {
        let page = agent.events(since).await?;
        if let Some(problem) = &page.problem {
            eprintln!("dirkeeper: older events may be missing: {problem}");
        }
        let before = since;
        for event in &page.events {
            since = printer.event(event.get())?;
        }
        // A page may be shorter than what there is; an empty one is the end.
        if since <= before {
            return Ok(());
        }
    }
}

async fn follow(agent: &Agent, since: u64, printer: &Printer<'_>) -> Result<(), Failure> {
    let mut follower = agent.follow(since).await?;
    let mut lost = false;
    loop {
        let heard = follower.hear().await;
        match heard.map_err(|error| agent.failure(error))? {
            Heard::Message(message) if message.name == "gap" => {
                let Gap { after, before } = parse(&message.data)?;
                eprintln!("dirkeeper: the events between {after} and {before} are lost");
            }
            Heard::Message(message) => {
                printer.event(&message.data)?;
            }
            Heard::Lost(error) => {
                // Once for each loss, not for each try.
                if !lost {
                    eprintln!("dirkeeper: {}; trying again", report::text(&error));
                }
                lost = true;
            }
            Heard::Back => {
                eprintln!("dirkeeper: the agent is back");
                lost = false;
            }
        }
    }
}

/// What is read of an event whatever else it holds.
#[derive(Deserialize)]
struct Head {
    seq: u64,
    event: String,
}

/// What an agent says where it has no events any more.
#[derive(Deserialize)]
struct Gap {
    after: u64,
    before: u64,
}

struct Printer<'a> {
    kinds: &'a [EventKind],
    output: Output,
    terminal: Terminal,
}

impl Printer<'_> {
    /// Prints an event if it is wanted, and tells its number.
    fn event(&self, json: &str) -> Result<u64, Failure> {
        let head: Head = parse(json)?;
        let wanted = self.kinds.iter().any(|kind| kind.name() == head.event);
        if wanted || self.kinds.is_empty() {
            match self.output {
                Output::Json => {
                    let json = document::quiet(json.trim().replace('\n', " "));
                    print(&(json + "\n"))?;
                }
                Output::Human => print(&line(&parse(json)?, self.terminal))?,
            }
        }
        Ok(head.seq)
    }
}

fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| {
        let what = "an event of the log cannot be understood";
        Failure::new(Exit::Data, anyhow::Error::new(error).context(what))
    })
}

/// One event as a line for people.
fn line(event: &EventDocument, terminal: Terminal) -> String {
    let tone = Tone::of_severity(&event.severity);
    let mut text = format!(
        "{} {:>6} {} {}",
        printable(&event.time),
        event.seq,
        terminal.paint(tone, &format!("{:<8}", printable(&event.severity))),
        terminal.paint(Tone::Heading, &format!("{:<16}", printable(&event.event))),
    );
    text.push_str(&what(event));
    let line = text.trim_end();
    format!("{line}\n")
}

/// What happened, after a blank if there is anything to say beside the event's name.
pub(super) fn what(event: &EventDocument) -> String {
    let mut text = String::new();
    if let Some(dir) = &event.dir {
        let role = event.role.as_deref().unwrap_or("directory");
        text.push_str(&printable(&format!(" {dir} ({role})")));
    }
    if let Some(to) = &event.to {
        let axis = event.axis.as_deref().unwrap_or("mode");
        text.push_str(&format!(" {}", printable(axis)));
        if let Some(from) = &event.from {
            text.push_str(&format!(" {}", words(from)));
        }
        text.push_str(&format!(" -> {}", words(to)));
    }
    match &event.cause {
        Some(cause) => text.push_str(&format!(": {}", printable(&cause.message))),
        None if event.dir.is_none() => text.push_str(&node(event)),
        None => {}
    }
    if event.coalesced != 0 {
        text.push_str(&format!(" ({} left out between)", event.coalesced));
    }
    text
}

/// How the directories stood, for an event that is about all of them.
fn node(event: &EventDocument) -> String {
    let node = &event.node;
    let groups = [
        ("writable", &node.writable),
        ("almost full", &node.almost_full),
        ("full", &node.full),
        ("unusable", &node.unusable),
    ];
    let counts = groups
        .iter()
        .filter(|(_, paths)| !paths.is_empty())
        .map(|(word, paths)| format!("{} {word}", paths.len()));
    let counts: Vec<String> = counts.collect();
    if counts.is_empty() {
        return String::new();
    }
    format!(" [{}]", counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::sample;

    #[test]
    fn events_are_lines() {
        let host = sample::about().host;
        let mut lines = String::new();
        for event in sample::snapshot().recent_events.iter() {
            let mut document = EventDocument::new(event, &host);
            lines.push_str(&line(&document, Terminal::NONE));
            document.coalesced = 3;
            document.from = None;
            lines.push_str(&line(&document, Terminal::NONE));
        }
        insta::assert_snapshot!(lines);
    }

    #[test]
    fn what_is_no_event_is_bad_data() {
        let printer = Printer {
            kinds: &[],
            output: Output::Json,
            terminal: Terminal::NONE,
        };
        let failure = printer.event("{\"seq\": 1}").unwrap_err();
        assert_eq!(failure.exit, Exit::Data);
        insta::assert_snapshot!(
            report::text(failure.error.as_ref()),
            @"an event of the log cannot be understood: missing field `event` at line 1 column 10"
        );
    }
}
