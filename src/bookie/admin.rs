//! A bookie's admin HTTP server. It is one ordered worker inside the bookie, so this asks one thing
//! at a time (`line`), with short time-outs, and only what costs the bookie nothing: never `info`,
//! `sanity`, `list_*`, `last_log_mark` or `cluster_info`, which touch disks, ZooKeeper or other bookies.

use std::sync::Arc;
use std::time::Duration;

use super::answers::{self, ServerConfig};
use super::line::{Kind, Line, NotNow};
use crate::clock::Clock;
use crate::health::beside::{BookieState, CompactionFlags, GcDetails};
use crate::http_client::{HttpClient, HttpError, Innermost, Limits, TlsError, TlsOptions, Url};

/// A bookie answers from memory. One that does not within a second hangs in a request before this.
const QUESTION_TIME: Duration = Duration::from_secs(1);

/// An order changes a registration in ZooKeeper, a few round trips.
const ORDER_TIME: Duration = Duration::from_secs(3);

/// Most bytes of an answer: details of garbage collection of 500 directories are below 256 KiB.
const ANSWER_BYTES: usize = 512 << 10;

const ROOT: &str = "/api/v1/";
const STATE: &str = "bookie/state";
const READ_ONLY: &str = "bookie/state/readonly";
const GC: &str = "bookie/gc";
const GC_DETAILS: &str = "bookie/gc_details";
const SUSPENDED: &str = "bookie/gc/suspend_compaction";
const RESUME: &str = "bookie/gc/resume_compaction";
const CONFIG: &str = "config/server_config";

/// Where the admin server is, and how to be let in. Files were read by the caller, at start.
#[derive(Clone, Default)]
pub struct AdminOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    /// Authorities of the server's certificate in PEM form; needed for `https`.
    pub ca: Option<Vec<u8>>,
    /// Client certificate and its key in PEM form, for a server that asks for one.
    pub cert_and_key: Option<(Vec<u8>, Vec<u8>)>,
}

// A key has no place in a log.
impl std::fmt::Debug for AdminOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("AdminOptions");
        shown.field("url", &self.url).finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address cannot be one.
    #[error("{url:?} is no address of a bookie's admin server: {why}")]
    Address {
        /// What was configured.
        url: String,
        /// Why not.
        why: &'static str,
    },
    /// The certificates cannot be used.
    #[error("the certificates for the bookie's admin server are of no use")]
    Certificates(#[source] Box<TlsError>),
    /// No client could be made.
    #[error("cannot ask the bookie's admin server")]
    Client(#[source] Box<HttpError>),
    /// It was not asked: another request of ours is in flight.
    #[error("{url} was not asked: another request is in flight, and it takes one at a time")]
    Busy {
        /// What was to be asked.
        url: String,
    },
    /// It was not asked: it did not answer lately.
    #[error(
        "{url} was not asked: the bookie did not answer lately, and is asked again in {left:.0?}"
    )]
    Pause {
        /// What was to be asked.
        url: String,
        /// How long the pause goes on.
        left: Duration,
    },
    /// Nobody takes a connection.
    #[error(
        "cannot connect to {url} (does the bookie run, with httpServerEnabled=true and this port?)"
    )]
    Unreachable {
        /// Who was asked.
        url: String,
        /// Why.
        source: Innermost,
    },
    /// The two sides do not trust each other.
    #[error(
        "no secure connection to {url} (see httpServerTlsEnable of the bookie, and admin_ca, admin_cert and admin_key)"
    )]
    Untrusted {
        /// Who was asked.
        url: String,
        /// Why.
        source: Innermost,
    },
    /// No answer in time. An order may take effect all the same, now or much later.
    #[error("no answer from {url} within {limit:?} ({})", after_silence(*.is_order))]
    TimedOut {
        /// Who was asked.
        url: String,
        /// The limit.
        limit: Duration,
        /// It was told to change something.
        is_order: bool,
    },
    /// The answer ended too early, or is no HTTP. An order may have taken effect all the same.
    #[error("the answer of {url} broke off or is no HTTP ({})", after_noise(*.is_order))]
    Broken {
        /// Who was asked.
        url: String,
        /// It was told to change something.
        is_order: bool,
        /// Why.
        source: Innermost,
    },
    /// 404.
    #[error(
        "{url} answered 404 (this version of BookKeeper has no such call, or another program listens there)"
    )]
    Missing {
        /// Who was asked.
        url: String,
    },
    /// Another answer that is no success.
    #[error("{url} answered {status}{}", after_colon(.text))]
    Refused {
        /// Who was asked.
        url: String,
        /// HTTP status.
        status: u16,
        /// What it said about it; may be empty.
        text: String,
    },
    /// A success with a body that no bookie sends.
    #[error("the answer of {url} is not a bookie's, {what} (does another program listen there?)")]
    NotABookie {
        /// Who was asked.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// The order was taken, and the bookie says the opposite.
    #[error("{url} took the order, and readOnly is still {read_only}")]
    NotDone {
        /// Who was asked.
        url: String,
        /// What it says now.
        read_only: bool,
    },
}

impl AdminError {
    /// The bookie answered that it does not do this, and will say so again.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            AdminError::Missing { .. } => true,
            AdminError::Refused { status, .. } => *status < 500,
            _ => false,
        }
    }

    /// It was not asked at all.
    #[must_use]
    pub fn was_not_asked(&self) -> bool {
        matches!(self, AdminError::Busy { .. } | AdminError::Pause { .. })
    }

    fn of(error: HttpError, is_order: bool, limit: Duration) -> AdminError {
        match error {
            HttpError::Unreachable { url, source } => AdminError::Unreachable {
                url: url.into(),
                source,
            },
            HttpError::Untrusted { url, source } => AdminError::Untrusted {
                url: url.into(),
                source,
            },
            HttpError::TimedOut { url } => AdminError::TimedOut {
                url: url.into(),
                limit,
                is_order,
            },
            HttpError::Broken { url, source } => AdminError::Broken {
                url: url.into(),
                is_order,
                source,
            },
            HttpError::Refused {
                url, status: 404, ..
            } => AdminError::Missing { url: url.into() },
            HttpError::Refused { url, status, text } => AdminError::Refused {
                url: url.into(),
                status,
                text: match status {
                    300..400 => "a redirect, which no bookie sends".to_owned(),
                    _ if text.is_empty() => text,
                    _ => answers::quoted(text.as_bytes()),
                },
            },
            HttpError::TooLong { url, limit } => AdminError::NotABookie {
                url: url.into(),
                what: format!("it is over {limit} bytes"),
            },
            HttpError::NotAStream { .. } | HttpError::Client(_) => {
                AdminError::Client(Box::new(error))
            }
        }
    }
}

fn after_silence(is_order: bool) -> &'static str {
    match is_order {
        true => "the order may take effect all the same, even much later",
        false => "it takes one request at a time, and hangs in one while its ZooKeeper is away",
    }
}

fn after_noise(is_order: bool) -> &'static str {
    match is_order {
        true => "the order may have taken effect all the same",
        false => "does the bookie end, or another program listen there?",
    }
}

fn after_colon(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!(": {text}")
}

/// Asks a bookie's admin server. Clones share one line: one request is in flight to that bookie, ever.
/// No call waits longer than its time-out, the wait in the line included.
#[derive(Debug, Clone)]
pub struct AdminClient {
    shared: Arc<Shared>,
    /// Questions are polls: they do not wait in the line.
    polls: bool,
}

#[derive(Debug)]
struct Shared {
    http: HttpClient,
    root: Url,
    line: Line,
    clock: Clock,
}

impl AdminClient {
    /// A client for the server at that address. Connects to nothing yet.
    ///
    /// # Errors
    /// The address is none, certificates are of no use, or the system gives no resources.
    pub fn new(options: AdminOptions) -> Result<AdminClient, AdminError> {
        let root = root(&options)?;
        let http = match options.ca {
            Some(ca) if root.scheme() == "https" => {
                let cert_and_key = options.cert_and_key;
                let tls = TlsOptions {
                    ca: Some(ca),
                    cert_and_key,
                };
                HttpClient::with_tls(&tls)
                    .map_err(|error| AdminError::Certificates(Box::new(error)))?
            }
            _ => HttpClient::new().map_err(|error| AdminError::Client(Box::new(error)))?,
        };
        let clock = Clock::start();
        Ok(AdminClient {
            shared: Arc::new(Shared {
                http,
                root,
                line: Line::new(clock.clone()),
                clock,
            }),
            polls: false,
        })
    }

    /// A clone for questions that are asked again and again: one that finds the line busy is skipped.
    pub(super) fn polling(&self) -> AdminClient {
        AdminClient {
            shared: Arc::clone(&self.shared),
            polls: true,
        }
    }

    /// `GET state`, within 1 s.
    ///
    /// # Errors
    /// No answer, or none of a bookie.
    pub async fn state(&self) -> Result<BookieState, AdminError> {
        self.ask(STATE, answers::state).await
    }

    /// `PUT state/readonly`, within 3 s. The body is whole: BookKeeper takes a missing field for
    /// false and makes the bookie writable.
    ///
    /// # Errors
    /// As for [`AdminClient::state`]; the bookie says the opposite afterwards. One that is no refusal
    /// may take effect all the same: ask for the state before anything else.
    pub async fn set_read_only(&self, read_only: bool) -> Result<(), AdminError> {
        let body = format!("{{\"readOnly\":{read_only}}}");
        let (url, answer) = self.order(READ_ONLY, body).await?;
        match answers::read_only(&answer) {
            Ok(now) if now == read_only => Ok(()),
            Ok(read_only) => Err(AdminError::NotDone { url, read_only }),
            Err(what) => Err(AdminError::NotABookie { url, what }),
        }
    }

    /// `GET config/server_config`, within 1 s: which bookie answers, and whether it was started with a read-only mode.
    /// Its file may be newer than the bookie that runs, and some versions end at a PUT where it was turned off.
    ///
    /// # Errors
    /// As for [`AdminClient::state`].
    pub async fn server_config(&self) -> Result<ServerConfig, AdminError> {
        self.ask(CONFIG, answers::server_config).await
    }

    /// `GET gc/suspend_compaction`, within 1 s; none where this version has no such call.
    ///
    /// # Errors
    /// As for [`AdminClient::state`].
    pub async fn compaction(&self) -> Result<Option<CompactionFlags>, AdminError> {
        match self.ask(SUSPENDED, answers::compaction).await {
            Ok(flags) => Ok(Some(flags)),
            Err(AdminError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `GET gc_details`, within 1 s.
    ///
    /// # Errors
    /// As for [`AdminClient::state`].
    pub async fn gc_details(&self) -> Result<Vec<GcDetails>, AdminError> {
        self.ask(GC_DETAILS, answers::gc_details).await
    }

    /// `GET gc`: whether a forced garbage collection runs; within 1 s.
    ///
    /// # Errors
    /// As for [`AdminClient::state`].
    pub async fn forced_gc(&self) -> Result<bool, AdminError> {
        self.ask(GC, answers::forced_gc).await
    }

    /// `PUT gc/resume_compaction`, within 3 s. With DbLedgerStorage it is for all directories.
    ///
    /// # Errors
    /// As for [`AdminClient::set_read_only`]; [`AdminError::Missing`] before 4.16.0.
    pub async fn resume_compaction(&self, major: bool, minor: bool) -> Result<(), AdminError> {
        let body = format!("{{\"resumeMajor\":{major},\"resumeMinor\":{minor}}}");
        self.order(RESUME, body).await.map(drop)
    }

    /// `PUT gc`, within 3 s: garbage collection soon, with neither compaction forced. Without the
    /// flags both would be, whether suspended or not, and versions without [`Facts::gc_flags`] do so
    /// all the same.
    ///
    /// [`Facts::gc_flags`]: super::Facts::gc_flags
    ///
    /// # Errors
    /// As for [`AdminClient::set_read_only`].
    pub async fn trigger_gc(&self) -> Result<(), AdminError> {
        let body = "{\"forceMajor\":false,\"forceMinor\":false}".to_owned();
        self.order(GC, body).await.map(drop)
    }

    async fn ask<T>(
        &self,
        path: &str,
        read: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<T, AdminError> {
        let (url, answer) = self.exchange(path, None).await?;
        read(&answer).map_err(|what| AdminError::NotABookie { url, what })
    }

    async fn order(&self, path: &str, body: String) -> Result<(String, Vec<u8>), AdminError> {
        self.exchange(path, Some(body)).await
    }

    async fn exchange(
        &self,
        path: &str,
        order: Option<String>,
    ) -> Result<(String, Vec<u8>), AdminError> {
        let shared = &self.shared;
        let mut url = shared.root.clone();
        url.set_path(&format!("{ROOT}{path}"));
        let (is_order, limit) = match &order {
            Some(_) => (true, ORDER_TIME),
            None => (false, QUESTION_TIME),
        };
        let kind = match is_order {
            true => Kind::Order,
            false if self.polls => Kind::Poll,
            false => Kind::Question,
        };
        let began = shared.clock.elapsed();
        let turn = shared.line.turn(kind, limit).await;
        let mut turn = match turn {
            Ok(turn) => turn,
            Err(NotNow::Busy) => return Err(AdminError::Busy { url: url.into() }),
            Err(NotNow::Pause(left)) => {
                let url = url.into();
                return Err(AdminError::Pause { url, left });
            }
        };
        let waited = shared.clock.elapsed().saturating_sub(began);
        let limits = Limits {
            time: limit.saturating_sub(waited),
            bytes: ANSWER_BYTES,
        };
        let answer = match order {
            Some(body) => shared.http.put_within(&url, body, limits).await,
            None => shared.http.get_within(&url, limits).await,
        };
        if !matches!(answer, Err(HttpError::TimedOut { .. })) {
            turn.answered();
        }
        let answer = answer.map_err(|error| AdminError::of(error, is_order, limit))?;
        Ok((url.into(), answer))
    }
}

/// The address, checked.
fn root(options: &AdminOptions) -> Result<Url, AdminError> {
    let wrong = |why| AdminError::Address {
        url: options.url.clone(),
        why,
    };
    let url = Url::parse(&options.url).map_err(|_| wrong("write it like http://127.0.0.1:8080"))?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("it names no host"));
    }
    match (url.scheme(), &options.ca) {
        ("http", _) | ("https", Some(_)) => Ok(url),
        ("https", None) => Err(wrong(
            "https needs admin_ca, the authorities of its certificate",
        )),
        _ => Err(wrong("it must begin with http:// or https://")),
    }
}

#[cfg(test)]
mod tests;
