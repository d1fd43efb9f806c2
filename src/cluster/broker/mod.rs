//! Pulsar's brokers by their REST interface, as far as trimming needs it. A broker that is not the topic's owner sends us on
//! to the one that is; the token goes only to brokers of the cluster's own list. Nothing is tried twice: what is asked
//! of another broker is only what the first one never heard. Says of each call whether it loads the topic.

mod loaded;
mod name;
#[cfg(test)]
pub(crate) mod stub;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::health::dir::printable;
use crate::http_client::{
    Answer, Authorities, HttpClient, HttpError, Identity, Limits, TlsError, Url, Verb,
};
pub use loaded::Loaded;
use loaded::Page;
pub use name::TopicName;

/// How often a call is sent on: from one that is not the owner to the owner, and once more when the owner changes just
/// then. More is two brokers that do not agree.
const MOST_REDIRECTS: usize = 4;

/// A question: a topic with 100,000 ledgers answers with 10 MB.
const QUESTION: Limits = Limits {
    time: Duration::from_secs(15),
    bytes: 64 << 20,
};

/// An order: the broker loads the topic first, which may recover a ledger and its cursors.
const ORDER: Limits = Limits {
    time: Duration::from_secs(60),
    bytes: 1 << 20,
};

/// A page of metrics with the lines of a million topics; it is not kept.
const METRICS: Limits = Limits {
    time: Duration::from_secs(120),
    bytes: 3 << 30,
};

/// How much of a refusal's reason is told: one sentence.
const MOST_REASON: usize = 200;

/// Where the brokers are, and who we are to them.
#[derive(Debug, Clone)]
pub struct BrokerOptions {
    /// Web service addresses of some brokers, e.g. `http://broker-1:8080`. With `https` name all whose port differs.
    pub urls: Vec<Url>,
    /// The cluster's name; asked for where it is not given.
    pub cluster: Option<String>,
    /// Who we are.
    pub token: Option<String>,
    /// Who may have signed the brokers' certificates; nobody if none.
    pub authorities: Option<Authorities>,
}

/// Why a broker did not do, or say, what it was asked.
#[derive(Debug, Error)]
pub enum BrokerError {
    /// No address.
    #[error(
        "{url} is no web service address of a broker: it is http:// or https://, a host and perhaps a port"
    )]
    Address {
        /// The address.
        url: String,
    },
    /// No address at all.
    #[error("no address of a broker is given")]
    NoAddress,
    /// No secure connection is possible.
    #[error("no secure connection to the brokers is possible")]
    Tls(#[source] TlsError),
    /// Nothing was heard, or only a part.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// 401.
    #[error("{url} wants a token, and knows none such (401)")]
    Unauthorized {
        /// Who said so.
        url: Url,
    },
    /// 403.
    #[error(
        "{url} does not allow this to the role of our token (403): trim and unload take a tenant's admin, and metrics may need one too"
    )]
    Forbidden {
        /// Who said so.
        url: Url,
    },
    /// 404.
    #[error("{url} knows no such thing (404){}", after_colon(.reason))]
    NotFound {
        /// Who said so.
        url: Url,
        /// In its words.
        reason: String,
    },
    /// 405.
    #[error("{url} does not do this with such a topic (405){}", after_colon(.reason))]
    NotAllowed {
        /// Who said so.
        url: Url,
        /// In its words.
        reason: String,
    },
    /// Another refusal.
    #[error("{url} answered {status}{}", after_colon(.reason))]
    Failed {
        /// Who said so.
        url: Url,
        /// HTTP status.
        status: u16,
        /// In its words.
        reason: String,
    },
    /// An answer that is none.
    #[error("the answer of {url} cannot be understood: {why}")]
    Garbage {
        /// Who said so.
        url: Url,
        /// Why not.
        why: String,
    },
    /// From one to the other.
    #[error(
        "{url} was sent on more than {MOST_REDIRECTS} times: the brokers do not agree on who has the topic"
    )]
    Circle {
        /// Who was asked first.
        url: Url,
    },
    /// A redirection to somebody else.
    #[error("{url} sends us to {to}, which is no broker in the cluster's list and gets no token")]
    Stranger {
        /// Who said so.
        url: Url,
        /// To whom.
        to: String,
    },
    /// Several clusters.
    #[error("the brokers know the clusters {}: say which one it is", .0.join(", "))]
    Clusters(Vec<String>),
}

/// A ledger in the list that a broker tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InfoLedger {
    /// Its id.
    pub ledger_id: u64,
    /// Entries; 0 of the last one.
    #[serde(default)]
    pub entries: u64,
    /// Bytes; 0 of the last one.
    #[serde(default)]
    pub size: u64,
}

/// How long, and how much, is kept beyond what is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// Minutes; negative: for ever.
    #[serde(rename = "retentionTimeInMinutes")]
    pub minutes: i64,
    /// Megabytes; negative: without limit.
    #[serde(rename = "retentionSizeInMB")]
    pub megabytes: i64,
}

/// Who uses a topic now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Connected producers, replicators of other clusters counted in.
    pub producers: usize,
    /// Connected consumers and readers.
    pub consumers: usize,
}

impl Usage {
    /// Nobody does.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Usage::default()
    }
}

/// The brokers of one cluster.
#[derive(Debug)]
pub struct Brokers {
    client: HttpClient,
    given: Vec<Url>,
    cluster: Option<String>,
    /// Those of the cluster's list, the one that answered last first.
    known: Mutex<Vec<Url>>,
}

impl Brokers {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// An address is none, or no client can be made.
    pub fn new(options: BrokerOptions) -> Result<Brokers, BrokerError> {
        for url in &options.urls {
            let is_web = matches!(url.scheme(), "http" | "https");
            let is_bare = url.path() == "/" && url.query().is_none() && url.username().is_empty();
            if !is_web || !is_bare || !url.has_host() {
                let url = url.to_string();
                return Err(BrokerError::Address { url });
            }
        }
        if options.urls.is_empty() {
            return Err(BrokerError::NoAddress);
        }
        let client = match &options.authorities {
            None => HttpClient::new()?,
            Some(authorities) => {
                HttpClient::with_authorities(authorities).map_err(BrokerError::Tls)?
            }
        };
        let identity = options.token.map_or(Identity::Nobody, Identity::Token);
        Ok(Brokers {
            client: client.identified(identity),
            known: Mutex::new(options.urls.clone()),
            given: options.urls,
            cluster: options.cluster,
        })
    }

    /// Asks for the list of live brokers.
    ///
    /// # Errors
    /// No broker of which we know says it.
    pub async fn refresh(&self) -> Result<Vec<Url>, BrokerError> {
        let cluster = match &self.cluster {
            Some(cluster) => cluster.clone(),
            None => {
                let mut all: Vec<String> = self.question("/admin/v2/clusters", "").await?;
                all.retain(|name| name != "global");
                match <[String; 1]>::try_from(all) {
                    Ok([one]) => one,
                    Err(all) => return Err(BrokerError::Clusters(all)),
                }
            }
        };
        let path = format!("/admin/v2/brokers/{cluster}");
        let ids: Vec<String> = self.question(&path, "").await?;
        let live: Option<Vec<Url>> = ids.iter().map(|id| self.url_of(id)).collect();
        let live = live.filter(|live| !live.is_empty()).ok_or_else(|| {
            let url = self.given[0].clone();
            let why = format!("it lists the brokers {}", printable(&format!("{ids:?}")));
            BrokerError::Garbage { url, why }
        })?;
        *self.known() = live.clone();
        Ok(live)
    }

    /// A broker's id is its host and its plain port, or the other where it has no plain one.
    fn url_of(&self, id: &str) -> Option<Url> {
        let mut url = Url::parse(&format!("{}://{id}", self.given[0].scheme())).ok()?;
        if url.scheme() == "https" {
            let same_host = |given: &&Url| given.host() == url.host();
            let given = self.given.iter().find(same_host).unwrap_or(&self.given[0]);
            url.set_port(given.port()).ok()?;
        }
        (url.has_host() && url.path() == "/").then_some(url)
    }

    fn known(&self) -> MutexGuard<'_, Vec<Url>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A certificate says who a host is, whatever the port; without one the port is a part of who it is.
    fn is_known(&self, url: &Url) -> bool {
        let known = self.known();
        let mut all = known.iter().chain(&self.given);
        all.any(|broker| match url.scheme() {
            "https" => broker.scheme() == "https" && broker.host() == url.host(),
            _ => broker.origin() == url.origin(),
        })
    }

    /// Asks the first broker that takes the connection, and whoever that one sends us to.
    async fn call(
        &self,
        verb: Verb,
        path: &str,
        query: &str,
        limits: Limits,
    ) -> Result<(Url, Vec<u8>), BrokerError> {
        let mut all = self.known().clone();
        all.extend(self.given.iter().cloned());
        let mut last = None;
        for (at, broker) in all.iter().enumerate() {
            let mut url = broker.clone();
            url.set_path(path);
            url.set_query((!query.is_empty()).then_some(query));
            match self.follow(verb, url, limits).await {
                Err(BrokerError::Http(error @ HttpError::Unreachable { .. })) => {
                    last.get_or_insert(error);
                }
                other => {
                    let mut known = self.known();
                    if 0 < at && at < known.len() {
                        known.rotate_left(at);
                    }
                    return other;
                }
            }
        }
        Err(last.expect("there is at least one address").into())
    }

    async fn follow(
        &self,
        verb: Verb,
        first: Url,
        limits: Limits,
    ) -> Result<(Url, Vec<u8>), BrokerError> {
        let mut url = first.clone();
        for _ in 0..=MOST_REDIRECTS {
            let answer = self.client.ask(verb, &url, limits).await?;
            let to = match answer.status {
                307 | 308 => answer.location.unwrap_or_default(),
                _ => return accepted(url, answer),
            };
            let next = url.join(&to).ok().filter(|next| next.has_host());
            let stranger = |to: String| BrokerError::Stranger {
                url: url.clone(),
                to: printable(&to),
            };
            let Some(next) = next else {
                return Err(stranger(to));
            };
            if !self.is_known(&next) {
                return Err(stranger(next.origin().ascii_serialization()));
            }
            url = next;
        }
        Err(BrokerError::Circle { url: first })
    }

    async fn question<T: for<'a> Deserialize<'a>>(
        &self,
        path: &str,
        query: &str,
    ) -> Result<T, BrokerError> {
        let (url, body) = self.call(Verb::Get, path, query, QUESTION).await?;
        // A policy that is not set anywhere is answered with nothing.
        let body: &[u8] = if body.is_empty() { b"null" } else { &body };
        serde_json::from_slice(body).map_err(|error| BrokerError::Garbage {
            url,
            why: error.to_string(),
        })
    }

    async fn order(&self, verb: Verb, path: &str) -> Result<(), BrokerError> {
        self.call(verb, path, "", ORDER).await.map(drop)
    }

    /// Who leads the brokers. Any one of them knows.
    ///
    /// # Errors
    /// None says it.
    pub async fn leader(&self) -> Result<String, BrokerError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Leader {
            service_url: String,
        }
        let leader: Leader = self.question("/admin/v2/brokers/leaderBroker", "").await?;
        Ok(printable(&leader.service_url))
    }

    /// The ledgers in a topic's list. Loads nothing.
    ///
    /// # Errors
    /// No broker says it; of a topic that is not there it says 500.
    pub async fn ledgers(&self, topic: &TopicName) -> Result<Vec<InfoLedger>, BrokerError> {
        #[derive(Deserialize)]
        struct Info {
            ledgers: Vec<InfoLedger>,
        }
        let path = format!("{}/internal-info", topic.path());
        Ok(self.question::<Info>(&path, "").await?.ledgers)
    }

    /// The retention that applies to a topic, its own or from above; none where none is set. Loads nothing.
    ///
    /// # Errors
    /// No broker says it.
    pub async fn retention(&self, topic: &TopicName) -> Result<Option<Retention>, BrokerError> {
        let path = format!("{}/retention", topic.path());
        self.question(&path, "applied=true").await
    }

    /// Seconds after which messages count as acknowledged; none where they never do. Loads nothing.
    ///
    /// # Errors
    /// No broker says it.
    pub async fn ttl(&self, topic: &TopicName) -> Result<Option<u64>, BrokerError> {
        let path = format!("{}/messageTTL", topic.path());
        let ttl: Option<i64> = self.question(&path, "applied=true").await?;
        let ttl = ttl.and_then(|ttl| u64::try_from(ttl).ok());
        Ok(ttl.filter(|ttl| 0 < *ttl))
    }

    /// Who uses a topic. Loads it: only for those that we loaded.
    ///
    /// # Errors
    /// No broker says it.
    pub async fn usage(&self, topic: &TopicName) -> Result<Usage, BrokerError> {
        #[derive(Deserialize)]
        struct Stats {
            publishers: Vec<serde::de::IgnoredAny>,
            subscriptions: std::collections::BTreeMap<String, Subscription>,
        }
        #[derive(Deserialize)]
        struct Subscription {
            #[serde(default)]
            consumers: Vec<serde::de::IgnoredAny>,
        }
        let path = format!("{}/stats", topic.path());
        let stats: Stats = self.question(&path, "").await?;
        let consumers = stats.subscriptions.values();
        Ok(Usage {
            producers: stats.publishers.len(),
            consumers: consumers.map(|one| one.consumers.len()).sum(),
        })
    }

    /// Deletes what retention does not keep, as the broker does by itself now and then. Loads the topic and leaves it loaded;
    /// the list is written when this returns, the deletions go on.
    ///
    /// # Errors
    /// It was not done, or nobody knows whether it was.
    pub async fn trim(&self, topic: &TopicName) -> Result<(), BrokerError> {
        let path = format!("{}/trim", topic.path());
        self.order(Verb::Post, &path).await
    }

    /// Lets a broker forget a topic, which disconnects whoever uses it. One that is not loaded is for a moment.
    ///
    /// # Errors
    /// As for [`Brokers::trim`].
    pub async fn unload(&self, topic: &TopicName) -> Result<(), BrokerError> {
        let path = format!("{}/unload", topic.path());
        self.order(Verb::Put, &path).await
    }

    /// Acknowledges for all subscriptions what is older than so many seconds. Loads the topic.
    ///
    /// # Errors
    /// As for [`Brokers::trim`].
    pub async fn expire(&self, topic: &TopicName, seconds: u64) -> Result<(), BrokerError> {
        let path = topic.path();
        let path = format!("{path}/all_subscription/expireMessages/{seconds}");
        self.order(Verb::Post, &path).await
    }

    /// Which topics are loaded by any live broker. Loads nothing.
    ///
    /// # Errors
    /// One of them does not say it, so that it is not known.
    pub async fn loaded(&self) -> Result<Loaded, BrokerError> {
        let mut loaded = Loaded::default();
        for mut url in self.refresh().await? {
            url.set_path("/metrics/");
            let mut page = Page::new(&mut loaded);
            let read = self
                .client
                .read_within(&url, METRICS, &mut |bytes| page.take(bytes))
                .await;
            if let Err(error) = read {
                return Err(refused(error));
            }
            if let Some(why) = page.end() {
                let why = why.to_owned();
                return Err(BrokerError::Garbage { url, why });
            }
        }
        Ok(loaded)
    }
}

/// The body of a success.
fn accepted(url: Url, answer: Answer) -> Result<(Url, Vec<u8>), BrokerError> {
    match answer.status {
        200..=299 => Ok((url, answer.body)),
        status => Err(refusal(url, status, &String::from_utf8_lossy(&answer.body))),
    }
}

fn refused(error: HttpError) -> BrokerError {
    match error {
        HttpError::Refused { url, status, text } => refusal(url, status, &text),
        error => error.into(),
    }
}

fn refusal(url: Url, status: u16, text: &str) -> BrokerError {
    let reason = reason(text);
    match status {
        401 => BrokerError::Unauthorized { url },
        403 => BrokerError::Forbidden { url },
        404 => BrokerError::NotFound { url, reason },
        405 => BrokerError::NotAllowed { url, reason },
        status => BrokerError::Failed {
            url,
            status,
            reason,
        },
    }
}

/// What a broker says of a refusal: a document with a reason, or a page of HTML, which says nothing to anybody.
fn reason(text: &str) -> String {
    #[derive(Deserialize)]
    struct Said {
        reason: String,
    }
    let said = match serde_json::from_str::<Said>(text) {
        Ok(said) => said.reason,
        Err(_) if text.trim_start().starts_with('<') => String::new(),
        Err(_) => text.to_owned(),
    };
    let line = said.lines().next().unwrap_or_default();
    printable(&line.chars().take(MOST_REASON).collect::<String>())
}

fn after_colon(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!(": {text}")
}
