//! The HTTP server: metrics, liveness, the API and the status page. Every answer is made from the
//! snapshot and from the closures in [`Handles`]; no handler touches a disk or waits for the monitor
//! loop, and each resource that a client can use up has a limit.

mod access;
mod api;
mod connection;
mod events;
mod impatient;
mod orders;
mod page;
mod places;
mod problem;

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use socket2::SockRef;
use tokio::sync::{Semaphore, watch};

use crate::document::About;
use crate::health::snapshot::{SelfView, Snapshot};

pub use access::Access;
pub use connection::serve;
pub use orders::{Answer, Control, MayStop, Order, Refusal};

use access::Passwords;
use problem::Problem;

/// Longest body of a request: an order with a reason needs less than a tenth of it.
const MAX_BODY: usize = 16 << 10;

/// Longest time for the body of a request and for its answer to begin. The slowest honest answer
/// waits one second for the state store.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a connection's answers that the kernel takes in before the client has read any (it doubles them). By itself
/// it takes in some megabytes, and copying those for clients that read nothing keeps the others waiting.
const SEND_BUFFER: usize = 128 << 10;

/// Clients that follow events at one time: some terminals and chat bridges. Each costs a task and a
/// queue of some kilobytes.
const MAX_FOLLOWERS: usize = 16;

/// An event of the past, as the state store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastEvent {
    /// Number of the event.
    pub seq: u64,
    /// Its JSON document, one line.
    pub json: Arc<str>,
}

/// Stored events, oldest first, or why there are none.
pub type PastEvents = Pin<Box<dyn Future<Output = Result<Vec<PastEvent>, String>> + Send>>;

/// Asks the event log for at most `limit` events after number `since`. A log that holds nothing of
/// what was asked answers with none.
pub type EventSource = Arc<dyn Fn(u64, usize) -> PastEvents + Send + Sync>;

/// Everything the server is handed. No closure may block.
#[derive(Clone)]
pub struct Handles {
    /// What the monitor loop published last.
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// What is known outside the loop.
    pub self_view: Arc<dyn Fn() -> SelfView + Send + Sync>,
    /// What the agent says about itself.
    pub about: About,
    /// Events older than the snapshot's.
    pub events: EventSource,
    /// Whether the monitor loop moves; the error says since when it does not.
    pub live: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// The Prometheus exposition.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Who may ask, and how answers leave; may change at any time.
    pub access: watch::Receiver<Arc<Access>>,
    /// Takes orders from those who have the token; without it nobody gives any.
    pub control: Option<Control>,
    /// Asks whether the server beside the agent may end now; needs no token.
    pub may_stop: MayStop,
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody else listens there.
    #[error(
        "address {address} is in use: another agent or program listens there; stop it or choose another address with --listen or `listen`"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The port or the address is not ours to use.
    #[error(
        "address {address} is not permitted: ports below 1024 need a privilege; choose a higher one with --listen or `listen`"
    )]
    NotPermitted {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// Anything else.
    #[error("cannot listen on {address}: set --listen or `listen` to an address of this machine")]
    Other {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Takes the address before anything else starts.
///
/// # Errors
/// The address is in use, not permitted, or not one of this machine.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        // Accepted connections inherit it; without it only more memory of the kernel can be had.
        let _ = SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER);
        Ok(listener)
    };
    listen().map_err(|source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AddrInUse => BindError::InUse { address, source },
        std::io::ErrorKind::PermissionDenied => BindError::NotPermitted { address, source },
        _ => BindError::Other { address, source },
    })
}

/// What all handlers share.
#[derive(Clone)]
struct Shared {
    handles: Handles,
    followers: Arc<Semaphore>,
    may_stop_turn: Arc<Semaphore>,
    /// How full each directory was, for the page.
    hours: page::SharedHours,
    live: Arc<page::Live>,
    may_stop_waiting: Arc<Semaphore>,
    passwords: Arc<Passwords>,
    /// Its sender is dropped when the server stops.
    stopping: watch::Receiver<()>,
}

impl Shared {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.handles.snapshot.borrow().clone()
    }
}

fn router(handles: Handles, stopping: watch::Receiver<()>) -> Router {
    let hours = page::Hours::keep(handles.snapshot.clone(), stopping.clone());
    let shared = Shared {
        handles,
        followers: Arc::new(Semaphore::new(MAX_FOLLOWERS)),
        may_stop_turn: Arc::new(Semaphore::new(1)),
        hours,
        live: page::Live::new(),
        may_stop_waiting: Arc::new(Semaphore::new(orders::MAY_STOP_WAITING)),
        passwords: Arc::new(Passwords::new()),
        stopping,
    };
    Router::new()
        .route("/", get(page::page))
        .route("/page.js", get(page::script))
        .route("/page.css", get(page::style))
        .route("/page/live", get(page::stream))
        .route("/metrics", get(api::metrics))
        .route("/livez", get(api::livez))
        .route("/readyz", get(api::readyz))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/dirs", get(api::dirs))
        .route("/api/v1/dirs/{*key}", get(api::dir))
        .route("/api/v1/events", get(events::events))
        .route("/api/v1/probe", post(orders::probe))
        .route("/api/v1/accept", post(orders::accept))
        .route("/api/v1/mode", put(orders::mode))
        .route(
            "/api/v1/mode/may-stop",
            get(orders::may_stop).put(orders::stops),
        )
        .fallback(|request: Request| async move {
            Problem::new(
                StatusCode::NOT_FOUND,
                format!("there is nothing at {}", request.uri().path()),
            )
        })
        .method_not_allowed_fallback(|request: Request| async move {
            let (method, path) = (request.method(), request.uri().path());
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("{path} does not know the method {method}"),
            )
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(shared.clone(), access::gate))
        .layer(middleware::from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

/// Headers of every answer. Nothing here is for another site, and nothing is worth caching: it is
/// out of date a second later. The page has a script and a style of its own, an icon within itself, and
/// speaks to nobody but this server.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, "no-store"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
];

/// Limits the time for an answer to begin, and adds the headers that every answer has.
async fn guard(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await;
    let mut response = answer.unwrap_or_else(|_| {
        let text = format!("the request took longer than {REQUEST_TIMEOUT:?}");
        Problem::new(StatusCode::REQUEST_TIMEOUT, text).into_response()
    });
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in &shared.handles.access.borrow().headers {
        headers.insert(name, value.clone());
    }
    response
}

#[cfg(test)]
mod tests;
