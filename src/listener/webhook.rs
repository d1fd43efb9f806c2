//! Webhooks: servers that are sent events. The body is the event's document, signed if there is a
//! secret; the status of the answer says what becomes of the event. One request here, with a limit
//! on each of its parts; when and how often is decided by the `courier`.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ring::hmac;
use tokio::runtime::{Builder, Runtime};

use super::courier::{MAX_PARALLEL, Run, Verdict};
use super::hook::Notice;
use crate::clock::Clock;
use crate::document::Host;
use crate::health::event::{Event, EventKind};
use crate::health::moment::Timestamp;
use crate::http_client::{Authorities, HttpClient, HttpError, Reply, TlsError, Url};

/// Header with the body's signature.
const SIGNATURE: &str = "x-dirkeeper-signature";

/// Headers that say number and name of the event to those who sort before they read.
const SEQUENCE: &str = "x-dirkeeper-sequence";
const EVENT: &str = "x-dirkeeper-event";

/// The longest wait that a server may ask for: the directory's newer events wait behind.
const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(600);

/// Threads of one webhook that look names up: the parallel requests, and as many again that a dead
/// disk under /etc keeps. When there are more, requests time out without another lost thread.
const NAME_THREADS: usize = 2 * MAX_PARALLEL;

/// A webhook, already validated.
#[derive(Clone)]
pub struct WebhookOptions {
    /// Name in configuration, views, metrics and logs.
    pub name: String,
    /// Where events are sent. Not shown beyond its host: the rest may be a secret.
    pub url: Url,
    /// Which events it wants; empty for all.
    pub events: Vec<EventKind>,
    /// Key of the signature; without one there is no signature.
    pub secret: Option<Vec<u8>>,
    /// Who may have signed the server's certificate.
    pub authorities: Authorities,
    /// Time for one request.
    pub timeout: Duration,
}

// Neither a secret nor a URL has a place in a log.
impl std::fmt::Debug for WebhookOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("WebhookOptions");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why there can be no webhook.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Its certificates are of no use.
    #[error("cannot use its certificates")]
    Tls(#[source] TlsError),
    /// The system refuses what its requests need.
    #[error("cannot make its runtime")]
    Runtime(#[source] io::Error),
}

/// A webhook that can be used. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Webhook {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: WebhookOptions,
    client: HttpClient,
    /// Its own: a name that is looked up may hold a thread for ever. Taken when it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Webhook {
    /// Makes what its requests need; connects to nobody.
    ///
    /// # Errors
    /// Its certificates are of no use, or the system gives no resources.
    pub fn new(options: WebhookOptions) -> Result<Webhook, WebhookError> {
        let client = HttpClient::with_authorities(&options.authorities);
        let client = client.map_err(WebhookError::Tls)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(NAME_THREADS)
            .build()
            .map_err(WebhookError::Runtime)?;
        let inner = Inner {
            options,
            client,
            runtime: Some(runtime),
        };
        Ok(Webhook {
            inner: Arc::new(inner),
        })
    }

    /// With what it was made.
    #[must_use]
    pub fn options(&self) -> &WebhookOptions {
        &self.inner.options
    }

    /// Sends an event and waits for the answer, at most its time-out.
    pub(super) fn post(&self, notice: &Notice, clock: &Clock) -> Run {
        let begun = clock.elapsed();
        let (options, body) = (self.options(), notice.json());
        let mut headers = vec![
            (SEQUENCE, notice.seq().to_string()),
            (EVENT, notice.event().to_owned()),
        ];
        if let Some(secret) = &options.secret {
            headers.push((SIGNATURE, signature(secret, body.as_bytes())));
        }
        let Inner {
            client, runtime, ..
        } = &*self.inner;
        let runtime = runtime.as_ref().expect("it is taken at the drop only");
        let sent = client.tell(&options.url, &headers, body, options.timeout);
        let answer = runtime.block_on(sent);
        let duration = clock.elapsed().saturating_sub(begun);
        match answer {
            Ok(reply) => of_reply(reply, clock.now().wall, duration),
            Err(error) => of_error(&error, duration),
        }
    }
}

/// One delivery of a webhook, for `dirkeeper hook test`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// What it means for the event.
    pub verdict: Verdict,
    /// How it ended, in words.
    pub end: String,
    /// How long it took.
    pub duration: Duration,
    /// What the server said, at most 1 KiB.
    pub text: String,
}

/// Sends an event and waits for the answer, at most the webhook's time-out. For
/// `dirkeeper hook test`; nothing is stored, counted or tried again.
#[must_use]
pub fn post_once(webhook: &Webhook, event: &Event, host: &Host) -> Posted {
    let run = webhook.post(&Notice::new(event, host), &Clock::start());
    Posted {
        verdict: run.verdict,
        end: run.end,
        duration: run.duration,
        text: run.output,
    }
}

/// HMAC-SHA256 of the body, as the receiver has to compute it as well.
fn signature(secret: &[u8], body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut text = "sha256=".to_owned();
    for byte in hmac::sign(&key, body).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn of_reply(reply: Reply, now: Timestamp, duration: Duration) -> Run {
    let verdict = verdict(reply.status);
    let followed = match reply.status {
        300..=399 => ", and redirects are not followed",
        _ => "",
    };
    let asked = reply.retry_after.as_deref();
    let wait = asked.filter(|_| verdict == Verdict::Again);
    Run {
        verdict,
        end: format!("status {}{followed}", reply.status),
        wait: wait.and_then(|text| retry_after(text, now)),
        duration,
        output: reply.text,
        output_dropped: 0,
    }
}

/// What the status of an answer means for the event.
fn verdict(status: u16) -> Verdict {
    match status {
        200..=299 => Verdict::Delivered,
        // The request took too long, came too early, or is one of too many.
        408 | 425 | 429 => Verdict::Again,
        500..=599 => Verdict::Again,
        _ => Verdict::Failed,
    }
}

/// Nobody refused the event: whatever is in the way may be away the next time, also a certificate
/// that is out of date.
fn of_error(error: &HttpError, duration: Duration) -> Run {
    let end = match error {
        HttpError::TimedOut { .. } => "no answer in time".to_owned(),
        HttpError::Unreachable { source, .. } => format!("no connection: {source}"),
        HttpError::Untrusted { source, .. } => format!("no secure connection: {source}"),
        HttpError::Broken { source, .. } => format!("the answer broke off: {source}"),
        other => other.to_string(),
    };
    Run {
        verdict: Verdict::Again,
        end,
        wait: None,
        duration,
        output: String::new(),
        output_dropped: 0,
    }
}

/// The wait that a server asks for, in seconds or until a date, within the limit.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let wait = match text.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = httpdate::parse_http_date(text.trim()).ok()?;
            let since = date.duration_since(std::time::UNIX_EPOCH).ok()?;
            let now = u64::try_from(now.0).unwrap_or_default();
            since.saturating_sub(Duration::from_millis(now))
        }
    };
    Some(wait.min(RETRY_AFTER_LIMIT))
}

#[cfg(test)]
pub(super) mod tests;
