//! `status --watch`: the live view of a running agent on a terminal, or each change of its picture as
//! a line of JSON. This is the loop: keys, answers, signals and time go into the pure `model`, and
//! what `draw` makes of it onto the screen, only when something has changed.

mod draw;
mod keys;
mod model;
mod screen;
mod source;
#[cfg(test)]
mod tests;

use std::time::Duration;

use nix::sys::signal::Signal;
use ratatui::crossterm::event::Event;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::keys::Wish;
use self::model::{Model, Told};
use self::screen::Screen;
use super::args::{Output, StatusArguments};
use super::block_on;
use super::exit::{Exit, Failure};
use super::remote::Agent;
use super::terminal::print;
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::document;
use crate::report;
use crate::shutdown::Signals;

/// Answers that wait while a screen is drawn: there are two who ask, one question each.
const TOLD_QUEUE: usize = 4;

/// How often ages on the screen move, and pictures are asked for.
const BEAT: Duration = Duration::from_secs(1);

/// Waits of the lines of JSON after a question without an answer: nobody sits there and waits.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));

/// Runs until the user ends it, or whoever reads the lines has gone.
///
/// # Errors
/// There is no terminal, or no agent for the first line of JSON.
pub(super) fn run(arguments: &StatusArguments) -> Result<Exit, Failure> {
    let agent = Agent::at(&arguments.remote)?;
    match arguments.output {
        Output::Json => block_on(lines(&agent)),
        Output::Human => block_on(view(&agent, arguments.remote.url.as_str())),
    }
}

async fn view(agent: &Agent, url: &str) -> Result<Exit, Failure> {
    let refused = |error| Failure::io("cannot listen to signals", error);
    // Before the terminal is taken, so that each of them gives it back.
    let signals = Signals::take().map_err(refused)?;
    let continued = SignalKind::from_raw(Signal::SIGCONT as i32);
    let continued = signal(continued).map_err(refused)?;
    let screen = Screen::take()?;
    let (told, answers) = mpsc::channel(TOLD_QUEUE);
    tokio::select! {
        end = watch(url, screen, answers, signals, continued) => end,
        // They end only after the view.
        _ = source::pictures(agent, &told) => Ok(Exit::Ok),
        _ = source::events(agent, &told) => Ok(Exit::Ok),
    }
}

async fn watch(
    url: &str,
    mut screen: Screen,
    mut answers: mpsc::Receiver<Told>,
    mut signals: Signals,
    mut continued: unix::Signal,
) -> Result<Exit, Failure> {
    let mut keys = screen::keys()?;
    let clock = Clock::start();
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut model = Model::new(url.to_owned());
    screen.draw(&mut model)?;
    loop {
        let wish = tokio::select! {
            // What a person does comes first.
            biased;
            _ = signals.next() => Wish::Quit,
            key = keys.recv() => match key {
                Some(key) => taken(&mut model, key, &mut keys),
                None => Wish::Quit,
            },
            _ = continued.recv() => Wish::Redraw,
            Some(told) = answers.recv() => drawn_if(model.hear(told, clock.elapsed())),
            _ = beat.tick() => drawn_if(model.tick(clock.elapsed())),
        };
        match wish {
            Wish::Nothing => continue,
            Wish::Quit => return Ok(Exit::Ok),
            Wish::Redraw => screen.again()?,
            Wish::Suspend => screen.suspend()?,
            Wish::Draw => {}
        }
        screen.draw(&mut model)?;
    }
}

fn drawn_if(changed: bool) -> Wish {
    if changed { Wish::Draw } else { Wish::Nothing }
}

/// Takes in a key and those that wait behind it, up to one that asks for more than a drawing: a key
/// that is held down scrolls once for each, and is drawn once.
fn taken(model: &mut Model, first: Event, keys: &mut mpsc::Receiver<Event>) -> Wish {
    let mut wish = Wish::Nothing;
    let mut next = Some(first);
    while let Some(event) = next {
        match event {
            Event::Key(key) => match keys::press(model, key) {
                Wish::Nothing => {}
                Wish::Draw => wish = Wish::Draw,
                more => return more,
            },
            Event::Resize(..) => wish = Wish::Draw,
            _ => {}
        }
        next = keys.try_recv().ok();
    }
    wish
}

/// A line for each picture that differs from the one before in more than its time.
async fn lines(agent: &Agent) -> Result<Exit, Failure> {
    let mut body = agent.status().await?;
    let mut backoff = BACKOFF;
    let mut shown = None;
    let mut lost = false;
    loop {
        let mut document: serde_json::Value = agent.parse(&body)?;
        if let Some(fields) = document.as_object_mut() {
            fields.remove("time");
        }
        if shown.as_ref() != Some(&document) {
            let line = body.trim().replace(['\n', '\r'], " ");
            print(&(document::quiet(line) + "\n"))?;
            shown = Some(document);
        }
        let mut wait = BEAT;
        body = loop {
            sleep(wait).await;
            match agent.status().await {
                Ok(body) => break body,
                Err(failure) => {
                    // Once for each loss, not for each try.
                    if !lost {
                        let why = report::text(failure.error.as_ref());
                        eprintln!("dirkeeper: {why}; trying again");
                    }
                    lost = true;
                    wait = backoff.next_wait(fastrand::f64());
                }
            }
        };
        if lost {
            eprintln!("dirkeeper: the agent is back");
            lost = false;
            backoff.reset();
        }
    }
}
