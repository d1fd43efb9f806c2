//! The one HTTP client: short time-outs, bounded bodies, a reader of event streams that connects
//! again by itself. TLS only with the authorities that it is given; it knows nothing of what it
//! carries, and prints nothing.
//!
//! `localhost` is known here. Other names are looked up on the runtime's own blocking thread, so a
//! name may wait for a dead disk under /etc: in the agent, use addresses.

mod sse;
mod tls;

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response, redirect};

pub use reqwest::Url;
pub use sse::{Follower, Heard, Message};
pub use tls::{Authorities, TlsError, TlsOptions};

/// An agent answers from memory: a connection that takes longer will not come.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The whole of an answer that is not a stream; covers a page of events over a slow line.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Nothing at all, not even a keep-alive, for this long: the connection is dead. Servers send one
/// each 15 s by custom.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// A status document with 500 directories and all their evidence is below 1 MiB, a page of 1000
/// events below 4 MiB.
pub const MAX_ANSWER: usize = 16 << 20;

/// How much of a refusal is read and shown: enough for a sentence.
const MAX_REFUSAL: usize = 1 << 10;

/// What one call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From the call to the last byte of its answer.
    pub time: Duration,
    /// Bytes of its answer.
    pub bytes: usize,
}

/// What a call may take that does not say otherwise.
const USUAL: Limits = Limits {
    time: ANSWER_TIMEOUT,
    bytes: MAX_ANSWER,
};

/// What a server said, whatever it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// When it wants to be asked again, as it wrote it.
    pub retry_after: Option<String>,
    /// What it said beside; empty where that is longer than a refusal should be.
    pub text: String,
}

/// What is done to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// It is read.
    Get,
    /// It is set.
    Put,
    /// It is told to do something.
    Post,
}

/// What a server answered, success or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Where it sends us to.
    pub location: Option<String>,
    /// The body; of one that is no success what can be read of it, which may be nothing.
    pub body: Vec<u8>,
}

/// What can go wrong with a request.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The client itself could not be made.
    #[error("cannot make an HTTP client")]
    Client(#[source] Innermost),
    /// Nobody took the connection.
    #[error("no answer from {url}")]
    Unreachable {
        /// Who was asked.
        url: Url,
        /// Why.
        source: Innermost,
    },
    /// Somebody took the connection, and one side does not trust the other.
    #[error("no secure connection to {url}")]
    Untrusted {
        /// Who was asked.
        url: Url,
        /// Why.
        source: Innermost,
    },
    /// Somebody took the connection and answered too late.
    #[error("no answer from {url} in time")]
    TimedOut {
        /// Who was asked.
        url: Url,
    },
    /// An answer that is not a success.
    #[error("{url} answered {status}{}", after_colon(.text))]
    Refused {
        /// Who was asked.
        url: Url,
        /// HTTP status.
        status: u16,
        /// What it said about it; may be empty.
        text: String,
    },
    /// The answer ended too early.
    #[error("the answer of {url} broke off")]
    Broken {
        /// Who was asked.
        url: Url,
        /// Why.
        source: Innermost,
    },
    /// The answer is larger than any sensible one.
    #[error("the answer of {url} is over {limit} bytes")]
    TooLong {
        /// Who was asked.
        url: Url,
        /// The limit.
        limit: usize,
    },
    /// Somebody else answers there.
    #[error("{url} does not answer with events: is it an agent?")]
    NotAStream {
        /// Who was asked.
        url: Url,
    },
}

impl HttpError {
    /// Whether the same request may succeed later without anybody changing it.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            HttpError::Unreachable { .. } | HttpError::TimedOut { .. } => true,
            HttpError::Broken { .. } => true,
            HttpError::Refused { status, .. } => *status == 429 || 500 <= *status,
            HttpError::Client(_)
            | HttpError::Untrusted { .. }
            | HttpError::TooLong { .. }
            | HttpError::NotAStream { .. } => false,
        }
    }

    fn of(url: &Url, error: &reqwest::Error) -> HttpError {
        let url = url.clone();
        let source = Innermost::new(error);
        if error.is_timeout() {
            HttpError::TimedOut { url }
        } else if is_of_tls(error) {
            HttpError::Untrusted { url, source }
        } else if error.is_connect() {
            HttpError::Unreachable { url, source }
        } else {
            HttpError::Broken { url, source }
        }
    }
}

/// What is at the bottom of a chain of errors. The layers of the client between it and the request
/// say nothing that helps.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Innermost(String);

impl Innermost {
    fn new(error: &(dyn Error + 'static)) -> Innermost {
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Innermost(innermost.to_string())
    }
}

/// The request failed because of the encryption, before or after the connection was there.
fn is_of_tls(error: &reqwest::Error) -> bool {
    let mut layer = error.source();
    while let Some(error) = layer {
        if error.is::<rustls::Error>() {
            return true;
        }
        // An I/O error passes over what it wraps when it is asked for its source.
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        layer = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    false
}

/// Who we are to a server that asks.
#[derive(Clone, Default)]
pub enum Identity {
    /// Nobody in particular.
    #[default]
    Nobody,
    /// A user with a password.
    User(String, String),
    /// Whoever has this token.
    Token(String),
}

// Passwords have no place in a log.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Where an order has its token when the authorization says who we are.
const TOKEN_HEADER: &str = "x-dirkeeper-token";

/// Makes requests. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: Client,
    identity: Identity,
}

impl HttpClient {
    /// A client without proxies: agents and bookies are asked directly, and a proxy of the
    /// environment would be asked for 127.0.0.1 of its own machine. It trusts nobody's certificate.
    ///
    /// # Errors
    /// The system gives no resources for one.
    pub fn new() -> Result<HttpClient, HttpError> {
        let tls = tls::config(None).map_err(|error| HttpError::Client(Innermost::new(&error)))?;
        HttpClient::of(tls)
    }

    /// Such a client for servers with these certificates.
    ///
    /// # Errors
    /// The certificates are none; the system gives no resources for a client.
    pub fn with_tls(options: &TlsOptions) -> Result<HttpClient, TlsError> {
        let tls = tls::config(Some(options))?;
        HttpClient::of(tls).map_err(TlsError::Client)
    }

    /// Such a client for servers with certificates of these authorities.
    ///
    /// # Errors
    /// There is none among them; the system gives no resources for a client.
    pub fn with_authorities(authorities: &Authorities) -> Result<HttpClient, TlsError> {
        HttpClient::of(tls::trusting(authorities)?).map_err(TlsError::Client)
    }

    fn of(tls: rustls::ClientConfig) -> Result<HttpClient, HttpError> {
        // The scheme or the address says the port.
        let localhost = [
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
        ];
        let client = Client::builder()
            .user_agent(concat!("dirkeeper/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_TIMEOUT)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .resolve_to_addrs("localhost", &localhost)
            .tls_backend_preconfigured(tls)
            .build()
            .map_err(|error| HttpError::Client(Innermost::new(&error)))?;
        Ok(HttpClient {
            client,
            identity: Identity::Nobody,
        })
    }

    /// The same client, as somebody.
    #[must_use]
    pub fn identified(self, identity: Identity) -> HttpClient {
        HttpClient { identity, ..self }
    }

    /// The request with who we are.
    fn signed(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.identity {
            Identity::Nobody => request,
            Identity::User(user, password) => request.basic_auth(user, Some(password)),
            Identity::Token(token) => request.bearer_auth(token),
        }
    }

    /// The order with its token.
    fn ordering(&self, request: RequestBuilder, token: &str, body: String) -> RequestBuilder {
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        match &self.identity {
            Identity::Nobody => request.bearer_auth(token),
            Identity::User(..) | Identity::Token(_) => {
                self.signed(request).header(TOKEN_HEADER, token)
            }
        }
    }

    /// The body of the answer to a GET, within 10 s and 16 MiB.
    ///
    /// # Errors
    /// No answer in time, an answer that is no success, or one that is too long.
    pub async fn get(&self, url: &Url) -> Result<Vec<u8>, HttpError> {
        self.get_within(url, USUAL).await
    }

    /// The body of the answer to a GET.
    ///
    /// # Errors
    /// As for [`HttpClient::get`].
    pub async fn get_within(&self, url: &Url, limits: Limits) -> Result<Vec<u8>, HttpError> {
        let request = self.signed(self.client.get(url.clone()));
        self.answer(url, request, limits).await
    }

    /// The body of the answer to a PUT of a JSON document. After [`HttpError::TimedOut`] and
    /// [`HttpError::Broken`] nobody knows whether it took effect, or will.
    ///
    /// # Errors
    /// As for [`HttpClient::get`].
    pub async fn put_within(
        &self,
        url: &Url,
        body: String,
        limits: Limits,
    ) -> Result<Vec<u8>, HttpError> {
        let request = self.client.put(url.clone()).body(body);
        let request = request.header(CONTENT_TYPE, "application/json");
        self.answer(url, request, limits).await
    }

    /// The body of the answer to a POST of a JSON document with a bearer token, as for
    /// [`HttpClient::get`].
    ///
    /// # Errors
    /// As for [`HttpClient::get`].
    pub async fn post(&self, url: &Url, token: &str, body: String) -> Result<Vec<u8>, HttpError> {
        let request = self.ordering(self.client.post(url.clone()), token, body);
        self.answer(url, request, USUAL).await
    }

    /// As [`HttpClient::post`], with a PUT.
    ///
    /// # Errors
    /// As for [`HttpClient::get`].
    pub async fn put(&self, url: &Url, token: &str, body: String) -> Result<Vec<u8>, HttpError> {
        let request = self.ordering(self.client.put(url.clone()), token, body);
        self.answer(url, request, USUAL).await
    }

    /// As [`HttpClient::post`], with a PUT that has no body and no token of its own.
    ///
    /// # Errors
    /// As for [`HttpClient::get`].
    pub async fn put_nothing(&self, url: &Url) -> Result<Vec<u8>, HttpError> {
        let request = self.signed(self.client.put(url.clone()));
        self.answer(url, request, USUAL).await
    }

    /// What a server says to a POST of a JSON document, success or not.
    ///
    /// # Errors
    /// It says nothing, or not in time.
    pub async fn tell(
        &self,
        url: &Url,
        headers: &[(&'static str, String)],
        body: String,
        time: Duration,
    ) -> Result<Reply, HttpError> {
        let mut request = self.client.post(url.clone()).body(body);
        request = request.header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let sent = request.timeout(time).send().await;
        let mut response = sent.map_err(|error| HttpError::of(url, &error))?;
        let header = response.headers().get(RETRY_AFTER);
        let retry_after = header.and_then(|value| Some(value.to_str().ok()?.to_owned()));
        let status = response.status().as_u16();
        let text = said(url, &mut response).await;
        Ok(Reply {
            status,
            retry_after,
            text,
        })
    }

    /// What a server answers to a request without a document, whatever it is. No redirection is followed.
    ///
    /// # Errors
    /// It says nothing, or not in time, or too much.
    pub async fn ask(&self, verb: Verb, url: &Url, limits: Limits) -> Result<Answer, HttpError> {
        let method = match verb {
            Verb::Get => Method::GET,
            Verb::Put => Method::PUT,
            Verb::Post => Method::POST,
        };
        let mut request = self.signed(self.client.request(method, url.clone()));
        if verb != Verb::Get {
            request = request.header(CONTENT_TYPE, "application/json").body("");
        }
        let sent = request.timeout(limits.time).send().await;
        let mut response = sent.map_err(|error| HttpError::of(url, &error))?;
        let status = response.status();
        let header = response.headers().get(LOCATION);
        let location = header.and_then(|value| Some(value.to_str().ok()?.to_owned()));
        let body = match status.is_success() {
            true => body(url, &mut response, limits.bytes).await?,
            false => said(url, &mut response).await.into_bytes(),
        };
        Ok(Answer {
            status: status.as_u16(),
            location,
            body,
        })
    }

    /// Hands over the body of the answer to a GET as it comes, for one that is too long to be kept.
    ///
    /// # Errors
    /// As for [`HttpClient::get`]; what came before it was handed over.
    pub async fn read_within(
        &self,
        url: &Url,
        limits: Limits,
        take: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<(), HttpError> {
        let request = self.signed(self.client.get(url.clone()));
        let sent = request.timeout(limits.time).send().await;
        let response = sent.map_err(|error| HttpError::of(url, &error))?;
        let mut response = successful(url, response).await?;
        let mut bytes = 0;
        loop {
            let chunk = response.chunk().await;
            let Some(chunk) = chunk.map_err(|error| HttpError::of(url, &error))? else {
                return Ok(());
            };
            bytes += chunk.len();
            if limits.bytes < bytes {
                return Err(HttpError::TooLong {
                    url: url.clone(),
                    limit: limits.bytes,
                });
            }
            take(&chunk);
        }
    }

    async fn answer(
        &self,
        url: &Url,
        request: RequestBuilder,
        limits: Limits,
    ) -> Result<Vec<u8>, HttpError> {
        let response = request
            .timeout(limits.time)
            .send()
            .await
            .map_err(|error| HttpError::of(url, &error))?;
        let mut response = successful(url, response).await?;
        body(url, &mut response, limits.bytes).await
    }

    /// Opens a stream of events after number `since`.
    ///
    /// # Errors
    /// As for [`HttpClient::get`]; also when the answer is no stream of events.
    async fn open_stream(&self, url: &Url, since: u64) -> Result<Response, HttpError> {
        let mut asked = url.clone();
        asked
            .query_pairs_mut()
            .append_pair("since", &since.to_string());
        let request = self
            .signed(self.client.get(asked))
            .header(ACCEPT, "text/event-stream")
            .header("last-event-id", since.to_string());
        // The time-out ends when the answer begins: the stream itself has none.
        let response = match tokio::time::timeout(ANSWER_TIMEOUT, request.send()).await {
            Ok(sent) => sent.map_err(|error| HttpError::of(url, &error))?,
            Err(_) => return Err(HttpError::TimedOut { url: url.clone() }),
        };
        let response = successful(url, response).await?;
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        if !is_stream {
            return Err(HttpError::NotAStream { url: url.clone() });
        }
        Ok(response)
    }
}

/// The answer, if it is a success.
async fn successful(url: &Url, mut response: Response) -> Result<Response, HttpError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    Err(HttpError::Refused {
        url: url.clone(),
        status: status.as_u16(),
        text: said(url, &mut response).await,
    })
}

/// What cannot be read of a refusal is not missed.
async fn said(url: &Url, response: &mut Response) -> String {
    let text = body(url, response, MAX_REFUSAL).await.unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}

fn after_colon(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!(": {text}")
}

async fn body(url: &Url, response: &mut Response, limit: usize) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    loop {
        let chunk = response
            .chunk()
            .await
            .map_err(|error| HttpError::of(url, &error))?;
        let Some(chunk) = chunk else {
            return Ok(body);
        };
        if limit < body.len() + chunk.len() {
            let url = url.clone();
            return Err(HttpError::TooLong { url, limit });
        }
        body.extend_from_slice(&chunk);
    }
}
