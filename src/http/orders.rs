//! Orders: what a client with the token may ask the agent to do. Reading needs no token; without a
//! token file nobody gives orders.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Shared;
use super::api::find_dir;
use super::problem::{Problem, json_answer};
use crate::health::dir::DirId;
use crate::health::policy::Mode;

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
    SetMode {
        /// The mode; none ends the operator's claim.
        mode: Option<Mode>,
        /// Why, in the operator's words.
        reason: String,
    },
}

/// Why an order was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This agent cannot do it.
    #[error("this agent does not take this order")]
    NotSupported,
    /// Its queue is full.
    #[error("the agent is busy")]
    Busy,
    /// It may not be done now.
    #[error("{0}")]
    Refused(String),
}

/// Future of an order.
pub type Answer = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

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
    mode: Option<String>,
    reason: String,
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
    obey(&shared, request, |body: ModeBody| {
        let mode = match body.mode.as_deref() {
            None => None,
            Some("readOnly") => Some(Mode::ReadOnly),
            Some("writable") => Some(Mode::Writable),
            Some(other) => {
                return Err(Problem::new(
                    StatusCode::BAD_REQUEST,
                    format!("mode must be \"readOnly\", \"writable\" or null, not \"{other}\""),
                ));
            }
        };
        Ok(Order::SetMode {
            mode,
            reason: body.reason,
        })
    })
    .await
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
        taken.map_err(|refusal| {
            let status = match refusal {
                Refusal::NotSupported => StatusCode::NOT_IMPLEMENTED,
                Refusal::Busy => StatusCode::SERVICE_UNAVAILABLE,
                Refusal::Refused(_) => StatusCode::CONFLICT,
            };
            Problem::new(status, refusal.to_string())
        })
    };
    match done.await {
        Ok(()) => {
            let body = r#"{"accepted":true}"#.to_owned();
            (StatusCode::ACCEPTED, json_answer(body)).into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

fn admit<'a>(shared: &'a Shared, headers: &HeaderMap) -> Result<&'a Control, Problem> {
    let Some(control) = &shared.handles.control else {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "orders are off: set control_token_file in the configuration to a file with a token, and send it as \"Authorization: Bearer TOKEN\"",
        ));
    };
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    match given {
        Some(given) if same_token(given, &control.token) => Ok(control),
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

/// Compares in a time that depends on the lengths only, so that nobody guesses a token byte by
/// byte. An empty token never matches.
fn same_token(given: &str, token: &str) -> bool {
    if token.is_empty() || given.len() != token.len() {
        return false;
    }
    let pairs = given.bytes().zip(token.bytes());
    let difference = pairs.fold(0, |difference, (a, b)| black_box(difference | (a ^ b)));
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_matches() {
        assert!(same_token("secret", "secret"));
        for wrong in ["", "secre", "secret1", "Secret", "secreT"] {
            assert!(!same_token(wrong, "secret"), "{wrong}");
        }
        assert!(!same_token("", ""));
    }
}
