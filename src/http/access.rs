//! Who may ask: users by basic authentication, programs by a bearer token. Whether the server speaks
//! TLS and which headers it adds is here too, because all of it can change while it runs.
//!
//! `/livez` and `/readyz` are open to all: a kubelet has no password, and they say nothing else.

use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use tokio::sync::{Semaphore, oneshot};

use super::Shared;
use super::places::source;
use super::problem::Problem;

/// Answers that everybody gets.
const OPEN: [&str; 2] = ["/livez", "/readyz"];

/// Passwords that were right and are known again: each user of some programs at once.
const KNOWN: usize = 64;

/// Passwords that wait to be checked. Each takes up to a second of a core on purpose, and a request
/// waits five: more would wait in vain.
const WAITING: usize = 16;

/// How many of them may be from one address, or one network of IPv6: the requests of a page that is opened.
const WAITING_OF_ONE: usize = 4;

/// Rest after a wrong password: who tries them one after the other takes no more than a part of a core.
const REST: Duration = Duration::from_millis(100);

/// The part of a bcrypt hash behind its cost, for users who do not exist: nobody knows its password,
/// and checking it takes as long.
const NOBODY: &str = "$012345678901234567890Oabcdefghijklmnopqrstuvwxyz01232";

/// Who may ask, and how answers leave. Without any of it: everybody, in plain HTTP.
#[derive(Clone, Default)]
pub struct Access {
    /// What TLS is spoken with.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Users with the bcrypt hashes of their passwords.
    pub users: BTreeMap<String, String>,
    /// What programs that only read may send as bearer token; read at start, never from a disk later.
    pub read_token: Option<Arc<str>>,
    /// Headers of every answer, beside or instead of the usual ones.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

// Hashes, tokens and keys have no place in a log.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Whether those who read are asked who they are.
    fn asks(&self) -> bool {
        !self.users.is_empty() || self.read_token.is_some()
    }
}

/// From where a request came; beside it in its extensions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// What a request says about who makes it.
enum Given<'a> {
    Nothing,
    Token(&'a str),
    Password(String, String),
}

/// How a password was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Right,
    Wrong,
    /// Too many are being checked.
    Busy,
}

/// Lets only those pass who may ask.
pub(super) async fn gate(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let access = Arc::clone(&shared.handles.access.borrow());
    if !access.asks() || OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let verdict = match given(request.headers()) {
        Given::Nothing => Verdict::Wrong,
        Given::Token(token) => {
            let control = shared.handles.control.as_ref();
            let known = [access.read_token.as_ref(), control.map(|it| &it.token)];
            // All of them, so that the time says nothing.
            let matching = known
                .into_iter()
                .flatten()
                .filter(|known| same(token, known));
            match matching.count() {
                0 => Verdict::Wrong,
                _ => Verdict::Right,
            }
        }
        Given::Password(user, password) => {
            let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
            shared.passwords.check(peer, &access, &user, password).await
        }
    };
    match verdict {
        Verdict::Right => next.run(request).await,
        Verdict::Wrong => refuse(&access),
        Verdict::Busy => {
            let text = "too many passwords are being checked";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

fn refuse(access: &Access) -> Response {
    let mut response = Problem::new(
        StatusCode::UNAUTHORIZED,
        "this needs a user of web_config_file with its password, or a token as \"Authorization: Bearer TOKEN\"",
    )
    .into_response();
    if !access.users.is_empty() {
        let basic = HeaderValue::from_static("Basic realm=\"dirkeeper\", charset=\"UTF-8\"");
        response
            .headers_mut()
            .append(header::WWW_AUTHENTICATE, basic);
    }
    response
}

/// The bearer token of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    match given(headers) {
        Given::Token(token) => Some(token),
        Given::Nothing | Given::Password(..) => None,
    }
}

fn given(headers: &HeaderMap) -> Given<'_> {
    let value = headers.get(header::AUTHORIZATION);
    let value = value.and_then(|value| value.to_str().ok());
    let Some((scheme, rest)) = value.and_then(|value| value.split_once(' ')) else {
        return Given::Nothing;
    };
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Given::Token(rest);
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Given::Nothing;
    }
    let decoded = STANDARD.decode(rest).ok();
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    match text.as_deref().and_then(|text| text.split_once(':')) {
        Some((user, password)) => Given::Password(user.to_owned(), password.to_owned()),
        None => Given::Nothing,
    }
}

/// Compares in a time that depends on the lengths only, so that nobody guesses a token byte by
/// byte. An empty token never matches.
pub(super) fn same(given: &str, token: &str) -> bool {
    if token.is_empty() || given.len() != token.len() {
        return false;
    }
    let pairs = given.bytes().zip(token.bytes());
    let difference = pairs.fold(0, |difference, (a, b)| black_box(difference | (a ^ b)));
    difference == 0
}

/// Checks passwords, one at a time and beside the runtime, and remembers the right ones by a keyed
/// hash, so that a scrape costs no second check.
pub(super) struct Passwords {
    key: hmac::Key,
    known: Mutex<VecDeque<hmac::Tag>>,
    turn: Arc<Semaphore>,
    waiting: Mutex<BTreeMap<Option<IpAddr>, usize>>,
}

impl Passwords {
    pub(super) fn new() -> Passwords {
        let mut random = [0_u8; 32];
        // What is kept under a guessable key is worth nothing either: it never leaves the process.
        let generator = ring::rand::SystemRandom::new();
        let _ = ring::rand::SecureRandom::fill(&generator, &mut random);
        Passwords {
            key: hmac::Key::new(hmac::HMAC_SHA256, &random),
            known: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
            waiting: Mutex::default(),
        }
    }

    async fn check(
        &self,
        peer: Option<IpAddr>,
        access: &Access,
        user: &str,
        password: String,
    ) -> Verdict {
        let hash = access.users.get(user);
        let tag = hash.map(|hash| self.tag(user, &password, hash));
        if tag.is_some_and(|tag| self.knows(&tag)) {
            return Verdict::Right;
        }
        let Some(_waiting) = Waiting::begin(&self.waiting, peer) else {
            return Verdict::Busy;
        };
        let Ok(turn) = Arc::clone(&self.turn).acquire_owned().await else {
            return Verdict::Busy;
        };
        // Another request of the same client may have been first.
        if tag.is_some_and(|tag| self.knows(&tag)) {
            return Verdict::Right;
        }
        let hash = hash.cloned().unwrap_or_else(|| nobody(&access.users));
        let (say, said) = oneshot::channel();
        // A task of its own: the turn is held to the end also when the client has gone.
        tokio::spawn(async move {
            let check = move || bcrypt::verify(password.as_bytes(), &hash).unwrap_or(false);
            let right = beside(check).await;
            let _ = say.send(right);
            if !right {
                tokio::time::sleep(REST).await;
            }
            drop(turn);
        });
        match (said.await, tag) {
            (Ok(true), Some(tag)) => {
                self.remember(tag);
                Verdict::Right
            }
            _ => Verdict::Wrong,
        }
    }

    /// Of user, password and hash together: a changed hash makes everything unknown that it said.
    fn tag(&self, user: &str, password: &str, hash: &str) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [user, password, hash] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        }
        context.sign()
    }

    fn knows(&self, tag: &hmac::Tag) -> bool {
        let known = locked(&self.known);
        known.iter().any(|known| known.as_ref() == tag.as_ref())
    }

    fn remember(&self, tag: hmac::Tag) {
        let mut known = locked(&self.known);
        if KNOWN <= known.len() {
            known.pop_front();
        }
        known.push_back(tag);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of a check that takes a core for a while, from a thread of its own; false without one.
async fn beside(check: impl FnOnce() -> bool + Send + 'static) -> bool {
    let (say, said) = oneshot::channel();
    let thread = thread::Builder::new().name("password".to_owned());
    let started = thread.spawn(move || {
        // Who asked has ended, or takes it.
        let _ = say.send(check());
    });
    started.is_ok() && said.await.unwrap_or(false)
}

/// A hash that nobody's password has, as costly as the costliest of the users'.
fn nobody(users: &BTreeMap<String, String>) -> String {
    let costs = users.values().filter_map(|hash| hash.get(4..6));
    let cost = costs.max().unwrap_or("10");
    format!("$2b${cost}{NOBODY}")
}

/// A password that waits to be checked, of this address.
struct Waiting<'a> {
    all: &'a Mutex<BTreeMap<Option<IpAddr>, usize>>,
    peer: Option<IpAddr>,
}

impl<'a> Waiting<'a> {
    fn begin(
        all: &'a Mutex<BTreeMap<Option<IpAddr>, usize>>,
        peer: Option<IpAddr>,
    ) -> Option<Waiting<'a>> {
        let peer = peer.map(source);
        let mut counts = locked(all);
        let of_peer = counts.get(&peer).copied().unwrap_or_default();
        if WAITING <= counts.values().sum::<usize>() || WAITING_OF_ONE <= of_peer {
            return None;
        }
        counts.insert(peer, of_peer + 1);
        Some(Waiting { all, peer })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut counts = locked(self.all);
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        let hash = bcrypt::hash("right", 4).unwrap();
        Access {
            users: BTreeMap::from([("prometheus".to_owned(), hash)]),
            ..Access::default()
        }
    }

    #[test]
    fn only_the_whole_token_matches() {
        assert!(same("secret", "secret"));
        for wrong in ["", "secre", "secret1", "Secret", "secreT"] {
            assert!(!same(wrong, "secret"), "{wrong}");
        }
        assert!(!same("", ""));
    }

    /// Otherwise the time of an answer says who is a user.
    #[test]
    fn a_user_that_does_not_exist_costs_a_whole_check() {
        let nobody = nobody(&access().users);
        assert_eq!(bcrypt::verify("right", &nobody).ok(), Some(false));
    }

    #[tokio::test]
    async fn a_right_password_is_known_until_its_hash_changes() {
        let (passwords, mut access) = (Passwords::new(), access());
        let check = async |access: &Access, user: &str, password: &str| {
            passwords
                .check(None, access, user, password.to_owned())
                .await
        };
        assert_eq!(check(&access, "prometheus", "wrong").await, Verdict::Wrong);
        assert_eq!(check(&access, "nobody", "right").await, Verdict::Wrong);
        assert_eq!(locked(&passwords.known).len(), 0);
        assert_eq!(check(&access, "prometheus", "right").await, Verdict::Right);
        assert_eq!(locked(&passwords.known).len(), 1);
        // Known again without a turn.
        let turn = passwords.turn.acquire().await.unwrap();
        assert_eq!(check(&access, "prometheus", "right").await, Verdict::Right);
        drop(turn);
        let other = bcrypt::hash("other", 4).unwrap();
        access.users.insert("prometheus".to_owned(), other);
        assert_eq!(check(&access, "prometheus", "right").await, Verdict::Wrong);
    }

    #[test]
    fn one_address_cannot_take_all_turns() {
        let all = Mutex::default();
        let address = |last| Some(IpAddr::from([192, 0, 2, last]));
        let mut taken = Vec::new();
        while let Some(waiting) = Waiting::begin(&all, address(1)) {
            taken.push(waiting);
        }
        assert_eq!(taken.len(), WAITING_OF_ONE);
        let network = |last| Some(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]));
        taken = (1..99)
            .filter_map(|last| Waiting::begin(&all, network(last)))
            .collect();
        assert_eq!(taken.len(), WAITING_OF_ONE, "one customer has all of them");
        for last in 2..=255 {
            taken.extend(Waiting::begin(&all, address(last)));
        }
        assert_eq!(taken.len(), WAITING);
        taken.clear();
        assert!(locked(&all).is_empty());
    }
}
