//! What the agent says, for as long as somebody watches: its picture each second, and its log by its
//! stream of events. Both go on after every loss.

use std::convert::Infallible;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use super::super::exit::Failure;
use super::super::remote::Agent;
use super::model::Told;
use crate::backoff::Backoff;
use crate::document::{EventDocument, StatusDocument};
use crate::http_client::Heard;
use crate::report;

/// The pace at which an agent makes pictures when nothing happens.
const PACE: Duration = Duration::from_secs(1);

/// Waits after a question without an answer: somebody looks at the screen and waits for the agent.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(4));

/// Events that are asked for at first: what fills the tallest terminal. Each names all directories, and
/// with 500 of them an answer is far below its limit.
const FIRST_EVENTS: usize = 200;

/// What an agent says where it has no events any more.
#[derive(Deserialize)]
struct Gap {
    after: u64,
    before: u64,
}

/// Asks for pictures. Returns only when nobody wants them any more.
pub(super) async fn pictures(agent: &Agent, told: &Sender<Told>) -> Option<Infallible> {
    let mut backoff = BACKOFF;
    loop {
        let answer = agent.status().await;
        let document = answer.and_then(|body| agent.parse::<StatusDocument>(&body));
        let wait = match document {
            Ok(document) => {
                told.send(Told::Picture(Box::new(document))).await.ok()?;
                backoff.reset();
                PACE
            }
            Err(failure) => {
                told.send(Told::Silent(sentence(&failure))).await.ok()?;
                backoff.next_wait(fastrand::f64())
            }
        };
        sleep(wait).await;
    }
}

/// Follows the log from its newest events on. Returns only when nobody wants them any more.
pub(super) async fn events(agent: &Agent, told: &Sender<Told>) -> Option<Infallible> {
    let mut backoff = BACKOFF;
    let mut since = None;
    loop {
        let failure = match follow(agent, told, &mut since).await {
            Ok(()) => return None,
            Err(failure) => failure,
        };
        let trouble = Told::LogTrouble(Some(sentence(&failure)));
        told.send(trouble).await.ok()?;
        sleep(backoff.next_wait(fastrand::f64())).await;
    }
}

/// Until the stream cannot be had any more. `since` is the number of the newest event that was told.
async fn follow(
    agent: &Agent,
    told: &Sender<Told>,
    since: &mut Option<u64>,
) -> Result<(), Failure> {
    if since.is_none() {
        let page = agent.newest_events(FIRST_EVENTS).await?;
        let events: Vec<EventDocument> = page
            .events
            .iter()
            .filter_map(|event| serde_json::from_str(event.get()).ok())
            .collect();
        *since = Some(page.next);
        if told.send(Told::Events(events)).await.is_err() {
            return Ok(());
        }
    }
    let mut follower = agent.follow(since.unwrap_or(0)).await?;
    let mut message = Some(Told::LogTrouble(None));
    loop {
        if let Some(message) = message.take()
            && told.send(message).await.is_err()
        {
            return Ok(());
        }
        let heard = follower.hear().await;
        message = match heard.map_err(|error| agent.failure(error))? {
            Heard::Message(heard) => {
                *since = heard.id.or(*since);
                understood(&heard.name, &heard.data)
            }
            Heard::Lost(error) => Some(Told::LogTrouble(Some(report::text(&error)))),
            Heard::Back => Some(Told::LogTrouble(None)),
        };
    }
}

/// An event that a newer agent writes in another way is left out: the log is not what decides.
fn understood(name: &str, data: &str) -> Option<Told> {
    if name == "gap" {
        let Gap { after, before } = serde_json::from_str(data).ok()?;
        return Some(Told::Gap { after, before });
    }
    let event = serde_json::from_str(data).ok()?;
    Some(Told::Events(vec![event]))
}

fn sentence(failure: &Failure) -> String {
    report::text(failure.error.as_ref()).replace('\n', " ")
}
