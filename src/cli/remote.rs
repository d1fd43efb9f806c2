//! A running agent as commands ask it: addresses of its API, and what its silence or its refusal
//! means for the exit code.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::args::RemoteArguments;
use super::exit::{Exit, Failure};
use crate::app;
use crate::health::dir::shown;
use crate::http_client::{Follower, HttpClient, HttpError, Identity, TlsOptions, Url};

/// Events in one page; at about 1 KiB each a page is far below the limit of an answer.
pub const PAGE: usize = 1_000;

/// An agent by its address.
#[derive(Debug)]
pub struct Agent {
    client: HttpClient,
    url: Url,
}

/// The token that orders need, from its file. May block on a disk.
///
/// # Errors
/// It cannot be read, others may use it, or it is none: then nothing may be ordered.
pub fn token(file: PathBuf) -> Result<Arc<str>, Failure> {
    app::read_token("control_token_file", file).map_err(|error| {
        Failure::new(Exit::NotPermitted, error).remedy(
            "name the file that is the agent's control_token_file with --token-file, as a user who \
             may read it; if the agent has none, set control_token_file in its configuration and \
             restart it",
        )
    })
}

/// Certificates and keys are far below it.
const MAX_FILE: u64 = 1 << 20;

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read()
        .map_err(|error: std::io::Error| Failure::io(format!("cannot read {}", shown(path)), error))
}

/// Who we are, from the file that says it: `USER:PASSWORD`, or a token, which has no colon.
fn identity(path: &Path) -> Result<Identity, Failure> {
    let failure = |why: &str, remedy: &str| {
        let error = anyhow::anyhow!("cannot use the auth file {}: {why}", shown(path));
        Failure::new(Exit::NotPermitted, error).remedy(remedy.to_owned())
    };
    let mode = std::fs::metadata(path).map_or(0, |facts| facts.permissions().mode());
    if mode & 0o007 != 0 {
        let why = format!("others may use it (mode {:03o})", mode & 0o777);
        return Err(failure(&why, "chmod 0640 it"));
    }
    let text = String::from_utf8(read(path)?).unwrap_or_default();
    let line = text.trim_end_matches(['\r', '\n']);
    match line.split_once(':') {
        _ if line.is_empty() || line.contains('\n') => {
            let remedy = "write USER:PASSWORD or a token into it";
            Err(failure("it does not hold one line", remedy))
        }
        Some((user, password)) => Ok(Identity::User(user.to_owned(), password.to_owned())),
        None => Ok(Identity::Token(line.to_owned())),
    }
}

/// A page of the event log. Each event is kept as it was written.
#[derive(Debug, Deserialize)]
pub struct Page {
    /// The events, oldest first.
    pub events: Vec<Box<RawValue>>,
    /// Number after which the next ones are.
    #[serde(default)]
    pub next: u64,
    /// Why older ones may be missing.
    #[serde(default)]
    pub problem: Option<String>,
}

/// How the API says why it refuses.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

impl Agent {
    /// The agent at that address; asks nothing yet.
    ///
    /// # Errors
    /// The system gives no resources for an HTTP client.
    pub fn new(url: Url) -> Result<Agent, Failure> {
        let client = HttpClient::new().map_err(|error| Failure::new(Exit::Io, error))?;
        Ok(Agent { client, url })
    }

    /// The agent that a command line names; asks nothing yet. May block on the disks of its files.
    ///
    /// # Errors
    /// A file cannot be read or holds something else; the system gives no resources for a client.
    pub fn at(arguments: &RemoteArguments) -> Result<Agent, Failure> {
        let url = arguments.url.clone();
        let read = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
        let (ca, cert) = (read(&arguments.ca_file)?, read(&arguments.cert_file)?);
        let client = if url.scheme() == "https" {
            let cert_and_key = cert.map(|pem| (pem.clone(), pem));
            HttpClient::with_tls(&TlsOptions { ca, cert_and_key }).map_err(|error| {
                Failure::new(Exit::Data, error)
                    .remedy("name files in PEM form with --ca-file and --cert-file")
            })?
        } else if ca.is_some() || cert.is_some() {
            let error = anyhow::anyhow!("--ca-file and --cert-file are of no use for {url}");
            return Err(Failure::new(Exit::Usage, error).remedy("write https in --url"));
        } else {
            HttpClient::new().map_err(|error| Failure::new(Exit::Io, error))?
        };
        let identity = arguments.auth_file.as_deref().map(identity).transpose()?;
        Ok(Agent {
            client: client.identified(identity.unwrap_or_default()),
            url,
        })
    }

    /// The status document as text.
    ///
    /// # Errors
    /// The agent does not answer, or refuses.
    pub async fn status(&self) -> Result<String, Failure> {
        self.get(&self.address("api/v1/status")).await
    }

    /// Orders the agent to take the disk in a directory as the right one.
    ///
    /// # Errors
    /// The agent does not answer, or refuses.
    pub async fn accept(&self, token: &str, dir: &str) -> Result<(), Failure> {
        let url = self.address("api/v1/accept");
        let body = serde_json::json!({ "dir": dir }).to_string();
        let sent = self.client.post(&url, token, body).await;
        sent.map(drop).map_err(|error| self.failure(error))
    }

    /// Orders the agent to hold its server in a mode, by the word of the API, or to end the
    /// operator's hold; the answer as text.
    ///
    /// # Errors
    /// The agent does not answer, or refuses.
    pub async fn set_mode(
        &self,
        token: &str,
        mode: Option<&str>,
        reason: Option<&str>,
    ) -> Result<String, Failure> {
        let mut body = serde_json::json!({ "mode": mode });
        if let Some(reason) = reason {
            body["reason"] = reason.into();
        }
        let url = self.address("api/v1/mode");
        let sent = self.client.put(&url, token, body.to_string()).await;
        self.text(sent)
    }

    /// Asks whether the agent's server may end now, and has a yes reserved; the answer as text.
    ///
    /// # Errors
    /// The agent does not answer, or does not know.
    pub async fn may_stop(&self) -> Result<String, Failure> {
        let url = self.address("api/v1/mode/may-stop");
        self.text(self.client.put_nothing(&url).await)
    }

    /// At most [`PAGE`] events after number `since`.
    ///
    /// # Errors
    /// The agent does not answer, refuses, or answers with something else.
    pub async fn events(&self, since: u64) -> Result<Page, Failure> {
        let mut url = self.address("api/v1/events");
        url.query_pairs_mut()
            .append_pair("since", &since.to_string())
            .append_pair("limit", &PAGE.to_string());
        self.parse(&self.get(&url).await?)
    }

    /// The newest events, at most `limit` of them, oldest first.
    ///
    /// # Errors
    /// The agent does not answer, refuses, or answers with something else.
    pub async fn newest_events(&self, limit: usize) -> Result<Page, Failure> {
        let mut url = self.address("api/v1/events");
        url.query_pairs_mut()
            .append_pair("limit", &limit.to_string());
        self.parse(&self.get(&url).await?)
    }

    /// All events after number `since`, and new ones as they happen.
    ///
    /// # Errors
    /// The agent does not answer, refuses, or answers with something else.
    pub async fn follow(&self, since: u64) -> Result<Follower, Failure> {
        let url = self.address("api/v1/events");
        Follower::open(self.client.clone(), url, since)
            .await
            .map_err(|error| self.failure(error))
    }

    /// The failure of a command that got this error from the agent.
    #[must_use]
    pub fn failure(&self, mut error: HttpError) -> Failure {
        if let HttpError::Refused { text, .. } = &mut error
            && let Ok(refusal) = serde_json::from_str::<Refusal>(text)
        {
            *text = refusal.error;
        }
        let exit = match &error {
            HttpError::TooLong { .. } | HttpError::NotAStream { .. } => Exit::Data,
            HttpError::Client(_) => Exit::Io,
            HttpError::Refused {
                status: 401 | 403, ..
            } => Exit::NotPermitted,
            // Not a matter of time: it is not configured to do that.
            HttpError::Refused { status: 501, .. } => Exit::FAILED,
            error if error.is_passing() => Exit::Unavailable,
            _ => Exit::FAILED,
        };
        let answered = matches!(error, HttpError::Refused { .. });
        if let Some(advice) = advice(&error) {
            return Failure::new(exit, error).remedy(advice);
        }
        let failure = Failure::new(exit, error);
        if exit != Exit::Unavailable {
            return failure;
        }
        if answered {
            return failure
                .remedy("again in a moment: somebody answers there, and cannot do it now");
        }
        failure.remedy(
            "start an agent with 'dirkeeper run', name another address with --url, or do without \
             one: 'dirkeeper check', 'dirkeeper events --state-dir DIR'",
        )
    }

    /// The text as a document.
    ///
    /// # Errors
    /// It is not one: somebody else answers at this address.
    pub fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, Failure> {
        serde_json::from_str(text).map_err(|error| {
            let what = format!("what {} answered cannot be understood", self.url);
            Failure::new(Exit::Data, anyhow::Error::new(error).context(what))
                .remedy("is it an agent of dirkeeper, and of this release?")
        })
    }

    async fn get(&self, url: &Url) -> Result<String, Failure> {
        self.text(self.client.get(url).await)
    }

    fn text(&self, body: Result<Vec<u8>, HttpError>) -> Result<String, Failure> {
        let body = body.map_err(|error| self.failure(error))?;
        // A document that is not UTF-8 is refused by the parser, with the place.
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// A path below the agent's address, which may have a path itself (behind a proxy).
    fn address(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/{path}"));
        url.set_query(None);
        url.set_fragment(None);
        url
    }
}

/// What to do about a connection that one side does not trust, or about a refusal of whoever we are.
/// The sentences of the libraries below are matched by their words: they have no codes.
fn advice(error: &HttpError) -> Option<&'static str> {
    match error {
        HttpError::Untrusted { source, .. } => {
            let why = source.to_string();
            let known = DISTRUST.iter().find(|(words, _)| why.contains(words));
            known.map(|(_, advice)| *advice)
        }
        HttpError::Broken { source, url } if url.scheme() == "http" => {
            let no_http = source.to_string() == "invalid HTTP version parsed";
            no_http.then_some("is it an agent? One that speaks TLS needs https in --url")
        }
        HttpError::Refused { status, url, .. } => {
            let path = url.path();
            let order = path.ends_with("/api/v1/accept") || path.ends_with("/api/v1/mode");
            match status {
                401 if order => Some(
                    "name the agent's control_token_file with --token-file; where it asks who \
                     reads, also --auth-file FILE with USER:PASSWORD",
                ),
                403 if order || path.ends_with("/api/v1/mode/may-stop") => {
                    Some("set control_token_file in the agent's configuration and restart it")
                }
                401 | 403 => Some(
                    "say who you are with --auth-file FILE, which holds USER:PASSWORD or a token",
                ),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Words of a reason not to trust a server, and what to do about it.
const DISTRUST: [(&str, &str); 6] = [
    (
        "UnknownIssuer",
        "its certificate is not of an authority that is trusted: name the authority with --ca-file",
    ),
    (
        "CaUsedAsEndEntity",
        "its certificate is that of an authority: make one with basicConstraints=critical,CA:FALSE, \
         see docs/access.md",
    ),
    ("not valid for name", OTHER_NAME),
    ("NotValidForName", OTHER_NAME),
    (
        "certificate expired",
        "its certificate has run out, or the clock of one of the two machines is wrong: make a new one",
    ),
    (
        "InvalidContentType",
        "does it speak TLS? One that does not needs http in --url",
    ),
];

const OTHER_NAME: &str = "its certificate is for other names: use one of them in --url, or make one \
                          with DNS:NAME or IP:ADDRESS in its subjectAltName";

#[cfg(test)]
mod tests {
    use super::super::args::DEFAULT_URL;
    use super::*;

    #[test]
    fn paths_are_put_below_the_agents_address() {
        let check = |url: &str, expected: &str| {
            let agent = Agent::new(Url::parse(url).unwrap()).unwrap();
            assert_eq!(agent.address("api/v1/status").as_str(), expected);
        };
        check(DEFAULT_URL, "http://127.0.0.1:9475/api/v1/status");
        check("http://host/bk-3/?x=1#y", "http://host/bk-3/api/v1/status");
    }
}
