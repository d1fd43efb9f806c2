//! The event log: a page of it as JSON, or all that happens from now on as server-sent events. The
//! newest events are in the snapshot; older ones come from the event source, with a time limit.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::problem::{Problem, json_answer};
use super::{MAX_FOLLOWERS, PastEvent, Shared};
use crate::document::{event_json, json};

/// Events in one answer, unless asked otherwise.
const DEFAULT_LIMIT: usize = 100;

/// Most events in one answer: about 1 MiB.
const MAX_LIMIT: usize = 1000;

/// Longest wait for the event log. It answers in milliseconds or its disk is in trouble.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(1);

/// Events that wait for a follower beside the connection's own buffer. Short: a follower that is
/// late reads on from the snapshot and the event log, not from a queue.
const FOLLOWER_QUEUE: usize = 16;

/// How long a follower may take nothing before it is dropped.
const FOLLOWER_PATIENCE: Duration = Duration::from_secs(10);

/// Comments keep idle connections open through proxies, whose limit is often 30 s, and find clients
/// that are gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    since: Option<u64>,
    limit: Option<usize>,
}

/// As much of an event's document as a message needs.
#[derive(Deserialize)]
struct Named {
    event: String,
}

/// Some events in a row.
struct Page {
    events: Vec<PastEvent>,
    /// Number of the newest event there is.
    last_seq: u64,
    /// Why older ones may be missing.
    problem: Option<String>,
}

pub(super) async fn events(
    State(shared): State<Shared>,
    headers: HeaderMap,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(rejection) => {
            let text = rejection.body_text();
            let why = text.rsplit_once("string: ").map_or(&*text, |(_, why)| why);
            let text =
                format!("{why}; since is the number of an event, limit is from 1 to {MAX_LIMIT}");
            return bad_request(text).into_response();
        }
    };
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || MAX_LIMIT < limit {
        return bad_request(format!("limit must be from 1 to {MAX_LIMIT}, not {limit}"))
            .into_response();
    }
    let last_seq = shared.snapshot().last_seq;
    if wants_stream(&headers) {
        let since = match last_event_id(&headers) {
            Ok(since) => since.or(query.since),
            Err(problem) => return problem.into_response(),
        };
        return follow(shared, since.unwrap_or(last_seq).min(last_seq));
    }
    // Without a number, the newest ones.
    let newest = last_seq.saturating_sub(u64::try_from(limit).unwrap_or(u64::MAX));
    let since = query.since.unwrap_or(newest);
    json_answer(page_json(since, &page(&shared, since, limit).await))
}

fn bad_request(text: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, text)
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT);
    accepted
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/event-stream"))
}

/// The number from which a client that lost its connection wants to go on.
fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    match number {
        Some(seq) => Ok(Some(seq)),
        None => Err(bad_request(
            "the header Last-Event-ID must be the number of an event",
        )),
    }
}

/// `{"events": […], "next": SEQ, "problem": …}`; `next` is the `since` of the next request.
fn page_json(since: u64, page: &Page) -> String {
    let next = match page.events.last() {
        Some(event) => event.seq,
        // What could not be read now may be readable then.
        None if page.problem.is_some() => since,
        // Also for a client that remembers numbers of a log that was lost.
        None => page.last_seq,
    };
    let events: Vec<&str> = page.events.iter().map(|event| &*event.json).collect();
    let events = events.join(",");
    let problem = json(&page.problem);
    format!(r#"{{"events":[{events}],"next":{next},"problem":{problem}}}"#)
}

/// At most `limit` events after number `since`, oldest first. A short answer is followed by the rest
/// when it is asked for, and an empty one means that there is no more.
async fn page(shared: &Shared, since: u64, limit: usize) -> Page {
    let snapshot = shared.snapshot();
    let mut page = Page {
        events: Vec::new(),
        last_seq: snapshot.last_seq,
        problem: None,
    };
    if snapshot.last_seq <= since {
        return page;
    }
    let recent = &snapshot.recent_events;
    let first_recent = recent.first().map_or(u64::MAX, |event| event.seq);
    if since + 1 < first_recent {
        match timeout(HISTORY_TIMEOUT, (shared.handles.events)(since, limit)).await {
            Ok(Ok(events)) => page.events = events,
            Ok(Err(problem)) => page.problem = Some(problem),
            Err(_) => page.problem = Some("the event log does not answer".to_owned()),
        }
        page.events.truncate(limit);
    }
    // The log may have more than it gave; then the recent ones would leave a gap.
    let after = page.events.last().map_or(since, |event| event.seq);
    if page.events.is_empty() || first_recent <= after + 1 {
        let host = &shared.handles.about.host;
        let rest = recent.iter().filter(|event| after < event.seq);
        let rest = rest.take(limit - page.events.len()).map(|event| PastEvent {
            seq: event.seq,
            json: event_json(event, host).into(),
        });
        page.events.extend(rest);
    }
    page
}

fn follow(shared: Shared, since: u64) -> Response {
    let Ok(permit) = shared.followers.clone().try_acquire_owned() else {
        let text = format!("{MAX_FOLLOWERS} clients follow the events already");
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let (queue, messages) = mpsc::channel(FOLLOWER_QUEUE);
    let follower = Follower {
        shared,
        seq: since,
        queue,
        _permit: permit,
    };
    tokio::spawn(follower.run());
    let messages = ReceiverStream::new(messages).map(Ok::<Message, Infallible>);
    Sse::new(messages)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

/// Feeds one client that follows the events.
struct Follower {
    shared: Shared,
    /// Number of the newest event that it has.
    seq: u64,
    queue: mpsc::Sender<Message>,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    /// Until the client is gone or too slow, or the server stops.
    async fn run(mut self) {
        let mut snapshots = self.shared.handles.snapshot.clone();
        let mut stopping = self.shared.stopping.clone();
        loop {
            // Before the look at it: what comes after is not missed.
            snapshots.mark_unchanged();
            if self.catch_up().await.is_none() {
                return;
            }
            tokio::select! {
                changed = snapshots.changed() => if changed.is_err() { return },
                _ = stopping.changed() => return,
                () = self.queue.closed() => return,
            }
        }
    }

    /// Sends all there is; none when the client takes no more.
    async fn catch_up(&mut self) -> Option<()> {
        loop {
            let page = page(&self.shared, self.seq, FOLLOWER_QUEUE).await;
            if page.events.is_empty() {
                return Some(());
            }
            for event in page.events {
                if self.seq + 1 < event.seq {
                    self.send(gap(self.seq, event.seq)).await?;
                }
                self.send(message(&event)).await?;
                self.seq = event.seq;
            }
        }
    }

    async fn send(&self, message: Message) -> Option<()> {
        let sent = timeout(FOLLOWER_PATIENCE, self.queue.send(message)).await;
        sent.ok()?.ok()
    }
}

fn message(event: &PastEvent) -> Message {
    // The name is in the document: a stored event is nothing but its text.
    let mut message = Message::default().id(event.seq.to_string());
    if let Ok(named) = serde_json::from_str::<Named>(&event.json) {
        message = message.event(named.event);
    }
    message.data(&event.json)
}

/// Says that events between these two are lost. It has no number, so that a client that connects
/// again asks from the newest event that it really has.
fn gap(after: u64, before: u64) -> Message {
    let text = format!(r#"{{"after":{after},"before":{before}}}"#);
    Message::default().event("gap").data(text)
}
