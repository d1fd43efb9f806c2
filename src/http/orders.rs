//! Orders: what a client with the token may ask the agent to do. Reading needs no token, and `may-stop`
//! none on this machine, so that any script can ask; what it reserves ends by itself.
//! Without a token file nobody gives orders.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::Shared;
use super::access::{Peer, bearer, same};
use super::api::find_dir;
use super::problem::{Problem, json_answer};
use crate::document::json;
use crate::health::claim::{ModeOrder, check_reason};
use crate::health::dir::DirId;
use crate::health::policy::Mode;

/// Where an order has its token when the authorization is that of a user.
const TOKEN_HEADER: &str = "x-dirkeeper-token";

/// Questions whether the server may end that wait for each other: each may take four seconds, and a
/// client waits five.
pub(super) const MAY_STOP_WAITING: usize = 8;

/// Rest after each: it takes the lock of the whole cluster for some milliseconds, and whoever asks without
/// end must not keep other agents from it, which wait for it to make their bookies read-only.
const MAY_STOP_REST: Duration = Duration::from_millis(300);

/// What a client may order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Probe this directory now, or all of them.
    Probe {
        /// The directory; none for all.
        dir: Option<DirId>,
    },
    /// Take the disk that is there now as the right one.
    Accept {
        /// The directory.
        dir: DirId,
    },
    /// Hold the server in a mode, or let it go.
    Mode(ModeOrder),
}

/// Why an order was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This agent cannot do it as it is configured.
    #[error("{0}")]
    NotSupported(&'static str),
    /// Its queue is full.
    #[error("the agent is busy")]
    Busy,
    /// It was handed on, and what became of it was not said in time.
    #[error("the order was taken and not answered in time: it may still be carried out")]
    NoAnswer,
    /// It may not be done now.
    #[error("{0}")]
    Refused(String),
}

/// Future of an order: what is to be said about it, if anything.
pub type Answer = Pin<Box<dyn Future<Output = Result<Option<String>, Refusal>> + Send>>;

/// Asks whether the server may end now, and reserves the yes if told so: taken when it may, refused with one reason
/// a line when not.
pub type MayStop = Arc<dyn Fn(bool) -> Answer + Send + Sync>;

/// Takes orders from those who have the token.
#[derive(Clone)]
pub struct Control {
    /// What the client must send as bearer token; read at start, never from a disk later.
    pub token: Arc<str>,
    /// Hands an order on, at best to a queue: it answers when the order is accepted, not when it is
    /// done.
    pub order: Arc<dyn Fn(Order) -> Answer + Send + Sync>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ProbeBody {
    #[serde(default)]
    dir: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AcceptBody {
    dir: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModeBody {
    /// Null must be written: an order that lost its mode must not end a claim.
    #[serde(deserialize_with = "Option::deserialize")]
    mode: Option<String>,
    reason: Option<String>,
}

/// What an order that was taken is answered with.
#[derive(Serialize)]
struct Taken {
    accepted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// What `may-stop` is answered with.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MayStopDocument {
    may_stop: bool,
    reasons: Vec<String>,
    /// What a yes rests on, and until when it is reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// `{}` or `{"dir": INDEX-OR-PATH}`.
pub(super) async fn probe(State(shared): State<Shared>, request: Request) -> Response {
    obey(&shared, request, |body: ProbeBody| {
        let dir = body.dir.map(|key| dir_id(&shared, &key)).transpose()?;
        Ok(Order::Probe { dir })
    })
    .await
}

/// `{"dir": INDEX-OR-PATH}`.
pub(super) async fn accept(State(shared): State<Shared>, request: Request) -> Response {
    obey(&shared, request, |body: AcceptBody| {
        let dir = dir_id(&shared, &body.dir)?;
        Ok(Order::Accept { dir })
    })
    .await
}

/// `{"mode": "readOnly", "reason": TEXT}`; null instead of a mode ends the claim.
pub(super) async fn mode(State(shared): State<Shared>, request: Request) -> Response {
    let bad = |text: String| Problem::new(StatusCode::BAD_REQUEST, text);
    obey(&shared, request, |body: ModeBody| {
        let reason = body.reason.as_deref().map(check_reason).transpose();
        let reason = reason.map_err(|error| bad(error.to_string()))?;
        let mode = match body.mode.as_deref() {
            None => return Ok(Order::Mode(ModeOrder::Release)),
            Some("readOnly") => Mode::ReadOnly,
            Some("writable") => Mode::Writable,
            Some(other) => {
                return Err(bad(format!(
                    "mode must be \"readOnly\", \"writable\" or null, not \"{other}\""
                )));
            }
        };
        let missing = || bad("the reason is missing: say why, others will read it".to_owned());
        let reason = reason.ok_or_else(missing)?.to_owned();
        Ok(Order::Mode(ModeOrder::Set { mode, reason }))
    })
    .await
}

/// `{"mayStop": false, "reasons": [TEXT]}`.
pub(super) async fn may_stop(State(shared): State<Shared>) -> Response {
    asked(&shared, false).await
}

/// The same, and reserves a yes: what is reserved is missing to all others for minutes, so that from other machines it
/// takes the token. A PUT, which no page of another site sends without asking first.
pub(super) async fn stops(State(shared): State<Shared>, request: Request) -> Response {
    if !is_from_here(&request)
        && let Err(problem) = admit(&shared, request.headers())
    {
        return problem.into_response();
    }
    asked(&shared, true).await
}

/// From this machine. Nobody knows where a request without an address comes from.
fn is_from_here(request: &Request) -> bool {
    let is_here = |peer: &Peer| peer.0.to_canonical().is_loopback();
    request.extensions().get().is_some_and(is_here)
}

async fn asked(shared: &Shared, reserve: bool) -> Response {
    let Ok(_waiting) = shared.may_stop_waiting.try_acquire() else {
        return problem(&Refusal::Busy).into_response();
    };
    // One at a time: whoever needs no token must not fill the queue of those who have it.
    let turn = Arc::clone(&shared.may_stop_turn).acquire_owned().await;
    let question = (shared.handles.may_stop)(reserve);
    let (say, said) = oneshot::channel();
    // A task of its own: the turn lasts to the end also when the client has gone.
    tokio::spawn(async move {
        let _ = say.send(question.await);
        tokio::time::sleep(MAY_STOP_REST).await;
        drop(turn);
    });
    let answer = said.await.unwrap_or(Err(Refusal::NoAnswer));
    let (may_stop, reasons, message) = match answer {
        Ok(message) => (true, Vec::new(), message),
        Err(Refusal::Refused(text)) => (false, text.lines().map(str::to_owned).collect(), None),
        Err(refusal) => return problem(&refusal).into_response(),
    };
    json_answer(json(&MayStopDocument {
        may_stop,
        reasons,
        message,
    }))
}

fn dir_id(shared: &Shared, key: &str) -> Result<DirId, Problem> {
    find_dir(&shared.snapshot(), key.as_bytes()).map(|dir| dir.id)
}

/// Checks the token, reads the body, makes the order of it and hands it on.
async fn obey<B: DeserializeOwned>(
    shared: &Shared,
    request: Request,
    order_of: impl FnOnce(B) -> Result<Order, Problem>,
) -> Response {
    let done = async {
        let control = admit(shared, request.headers())?;
        let body = Bytes::from_request(request, &()).await;
        let body = body.map_err(|error| Problem::new(error.status(), error.body_text()))?;
        // No body at all means no particular wish.
        let body = if body.is_empty() { b"{}" } else { &body[..] };
        let body = serde_json::from_slice(body)
            .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("body: {error}")))?;
        let taken = (control.order)(order_of(body)?).await;
        taken.map_err(|refusal| problem(&refusal))
    };
    match done.await {
        Ok(message) => {
            let body = json(&Taken {
                accepted: true,
                message,
            });
            (StatusCode::ACCEPTED, json_answer(body)).into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

fn problem(refusal: &Refusal) -> Problem {
    let status = match refusal {
        Refusal::NotSupported(_) => StatusCode::NOT_IMPLEMENTED,
        Refusal::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::NoAnswer => StatusCode::GATEWAY_TIMEOUT,
        Refusal::Refused(_) => StatusCode::CONFLICT,
    };
    Problem::new(status, refusal.to_string())
}

fn admit<'a>(shared: &'a Shared, headers: &HeaderMap) -> Result<&'a Control, Problem> {
    let Some(control) = &shared.handles.control else {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "orders are off: set control_token_file in the configuration to a file with a token, and send it as \"Authorization: Bearer TOKEN\"",
        ));
    };
    match given_token(headers) {
        Some(given) if same(given, &control.token) => Ok(control),
        Some(_) => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "the token is not the one in control_token_file",
        )),
        None => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "this needs the token of control_token_file as \"Authorization: Bearer TOKEN\"",
        )),
    }
}

/// The token of an order: in a header of its own where the authorization is that of a user.
fn given_token(headers: &HeaderMap) -> Option<&str> {
    match headers.get(TOKEN_HEADER) {
        Some(value) => value.to_str().ok().map(str::trim),
        None => bearer(headers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn only_this_machine_reserves_without_a_token() {
        let from = |peer: Option<&str>| {
            let mut request = Request::new(Body::empty());
            let peer = peer.map(|text| Peer(text.parse().unwrap()));
            peer.map(|peer| request.extensions_mut().insert(peer));
            is_from_here(&request)
        };
        let here = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"];
        assert!(here.iter().all(|peer| from(Some(peer))));
        let there = ["10.0.0.1", "::ffff:10.0.0.1", "fe80::1"];
        assert!(!there.iter().any(|peer| from(Some(peer))));
        assert!(!from(None));
    }
}
