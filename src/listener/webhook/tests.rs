//! Webhooks against a real server on this machine: what it is sent, and what its answers make of it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::document::event_json;
use crate::listener::courier::Limits;
use crate::listener::testing::{all_full, full, wait_until};
use crate::listener::tests::{Agent, Memory, Pending, pending};
use crate::listener::{Listener, lock};

/// What the server was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::listener) struct Request {
    line: String,
    headers: BTreeMap<String, String>,
    pub(in crate::listener) body: String,
}

impl Request {
    pub(in crate::listener) fn seq(&self) -> u64 {
        self.headers[SEQUENCE].parse().unwrap()
    }
}

fn read(stream: impl Read) -> Option<Request> {
    let mut stream = BufReader::new(stream);
    let mut request = Request::default();
    stream.read_line(&mut request.line).ok()?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        request
            .headers
            .insert(name.to_lowercase(), value.to_owned());
    }
    let length = request.headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    request.body = String::from_utf8(body).ok()?;
    Some(request)
}

/// What a server says to a request.
pub(in crate::listener) enum Said {
    /// A status with headers, and a body.
    Status(String),
    /// Nothing, until the other side gives up.
    Nothing,
    /// These bytes, and the connection is over.
    Bytes(&'static str),
    /// These bytes, and then others without end.
    Endless(&'static str),
}

impl From<&str> for Said {
    fn from(status: &str) -> Said {
        Said::Status(status.to_owned())
    }
}

/// Answers each request by what `answer` makes of it and of its number.
pub(in crate::listener) struct Server {
    pub(in crate::listener) url: String,
    asked: Arc<Mutex<Vec<Request>>>,
}

type Answer = dyn Fn(usize, &Request) -> Said + Send + Sync;

impl Server {
    pub(in crate::listener) fn start<S: Into<Said>>(
        answer: impl Fn(usize, &Request) -> S + Send + Sync + 'static,
    ) -> Server {
        let answer = move |number, request: &Request| answer(number, request).into();
        Server::with(Arc::new(answer), None)
    }

    fn with(answer: Arc<Answer>, tls: Option<Arc<ServerConfig>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!(
            "{scheme}://{}/hook?token=hidden",
            listener.local_addr().unwrap()
        );
        let asked: Arc<Mutex<Vec<Request>>> = Arc::default();
        let seen = Arc::clone(&asked);
        // Ends with the process of the tests.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (seen, answer, tls) = (Arc::clone(&seen), Arc::clone(&answer), tls.clone());
                thread::spawn(move || match tls {
                    Some(config) => {
                        let connection = ServerConnection::new(config).unwrap();
                        serve(StreamOwned::new(connection, stream), &seen, &*answer);
                    }
                    None => serve(stream, &seen, &*answer),
                });
            }
        });
        Server { url, asked }
    }

    fn asked(&self) -> Vec<Request> {
        lock(&self.asked).clone()
    }

    fn seqs(&self) -> Vec<u64> {
        self.asked().iter().map(Request::seq).collect()
    }
}

fn serve(mut stream: impl Read + Write, seen: &Mutex<Vec<Request>>, answer: &Answer) {
    let Some(request) = read(&mut stream) else {
        return;
    };
    let number = {
        let mut seen = lock(seen);
        seen.push(request.clone());
        seen.len()
    };
    let _ = match answer(number, &request) {
        Said::Status(status) => stream.write_all(
            format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 5\r\n\r\nsaid\n")
                .as_bytes(),
        ),
        Said::Nothing => stream.read_exact(&mut [0]),
        Said::Bytes(bytes) => stream.write_all(bytes.as_bytes()),
        Said::Endless(bytes) => {
            let mut written = stream.write_all(bytes.as_bytes());
            while written.is_ok() {
                written = stream.write_all(&[b'x'; 1 << 16]);
            }
            written
        }
    };
}

pub(in crate::listener) fn options(url: &str) -> WebhookOptions {
    WebhookOptions {
        name: "chat".to_owned(),
        url: Url::parse(url).unwrap(),
        events: Vec::new(),
        secret: None,
        authorities: Authorities::none(),
        timeout: Duration::from_secs(20),
    }
}

fn listener(options: WebhookOptions) -> Vec<Listener> {
    vec![Listener::Webhook(Webhook::new(options).unwrap())]
}

fn once(options: WebhookOptions) -> Posted {
    let webhook = Webhook::new(options).unwrap();
    post_once(&webhook, &full(7, "/mnt/l1"), &Host::default())
}

#[test]
fn a_request_carries_the_event_its_number_its_name_and_a_signature() {
    let server = Server::start(|_, _| "204 No Content");
    let signed = WebhookOptions {
        secret: Some(b"Jefe".to_vec()),
        ..options(&server.url)
    };
    let posted = once(signed);
    assert_eq!(
        (posted.verdict, &*posted.end),
        (Verdict::Delivered, "status 204")
    );
    let request = server.asked().remove(0);
    assert_eq!(request.line, "POST /hook?token=hidden HTTP/1.1\r\n");
    assert_eq!(
        request.body,
        event_json(&full(7, "/mnt/l1"), &Host::default())
    );
    assert_eq!(request.headers[EVENT], "diskFull");
    assert_eq!(request.headers[SEQUENCE], "7");
    assert_eq!(request.headers["content-type"], "application/json");
    let expected = signature(b"Jefe", request.body.as_bytes());
    assert_eq!(request.headers[SIGNATURE], expected);
    assert_eq!(once(options(&server.url)).verdict, Verdict::Delivered);
    assert!(!server.asked()[1].headers.contains_key(SIGNATURE));
}

#[test]
fn the_signature_is_that_of_rfc_4231() {
    assert_eq!(
        signature(b"Jefe", b"what do ya want for nothing?"),
        "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

#[test]
fn trouble_that_may_pass_is_tried_again_in_the_order_of_the_directory() {
    let troubles = [
        "503 Unavailable",
        "429 Slow\r\nretry-after: 0",
        "408 Late",
        "425 Early",
    ];
    let server = Server::start(move |number, _| *troubles.get(number - 1).unwrap_or(&"200 OK"));
    let store = Memory::new(true);
    let agent = Agent::start_with(
        listener(options(&server.url)),
        &store,
        Pending::new(),
        Limits::short(),
    );
    agent.dispatch([full(1, "/mnt/l1")]);
    wait_until("the first was sent", || !server.asked().is_empty());
    agent.dispatch((2..=5).map(|seq| full(seq, "/mnt/l1")));
    wait_until("all are taken", || store.acknowledged().len() == 5);
    assert_eq!(store.acknowledged(), [1, 2, 3, 4, 5]);
    let seqs = server.seqs();
    assert_eq!(seqs[..5], [1; 5]);
    assert!(seqs.is_sorted(), "{seqs:?}");
    let view = agent.view("chat");
    assert_eq!((view.kind, view.failed, view.retried), ("webhook", 0, 4));
    assert_eq!(view.delivered + view.coalesced, 5);
    assert_eq!(view.pending, 0);
    agent.stop();
}

#[test]
fn what_is_refused_or_redirected_has_failed_and_is_not_repeated() {
    let elsewhere = Server::start(|_, _| "200 OK");
    let answers = ["301 Moved", "302 Found", "307 Moved", "308 Moved", "404 No"];
    let location = elsewhere.url.clone();
    let server = Server::start(move |number, _| {
        Said::Status(format!("{}\r\nlocation: {location}", answers[number - 1]))
    });
    let store = Memory::new(true);
    let agent = Agent::start(listener(options(&server.url)), &store, Pending::new());
    for (seq, status) in (1..).zip(["301", "302", "307", "308"]) {
        agent.dispatch([full(seq, "/mnt/l1")]);
        wait_until("it is known", || agent.view("chat").failed == seq);
        let problem = agent.dispatcher.problems().remove(0);
        let said = format!(
            "failed on event {seq} diskFull of \"/mnt/l1\": status {status}, and redirects are not followed"
        );
        assert!(problem.contains(&said), "{problem}");
        assert!(!problem.contains("hidden"), "{problem}");
    }
    agent.dispatch([all_full(5)]);
    wait_until("it is refused", || agent.view("chat").failed == 5);
    wait_until("all are ended", || store.acknowledged().len() == 5);
    assert_eq!(agent.view("chat").retried, 0);
    assert_eq!(server.asked().len(), 5);
    assert_eq!(elsewhere.asked().len(), 0);
    agent.stop();
}

#[test]
fn what_an_earlier_run_left_is_sent_before_anything_new() {
    let server = Server::start(|_, _| "200 OK");
    let store = Memory::new(true);
    let left = pending("chat", &[full(3, "/mnt/l1"), full(4, "/mnt/l1")]);
    let agent = Agent::start(listener(options(&server.url)), &store, left);
    agent.dispatch([full(5, "/mnt/l1")]);
    wait_until("all are taken", || store.acknowledged().len() == 3);
    assert!(server.seqs().is_sorted());
    assert_eq!(server.seqs().first(), Some(&3));
    agent.stop();
}

/// The status decides; what comes after it is only shown, and neither its length nor its end matters.
#[test]
fn what_a_server_does_says_what_becomes_of_the_event() {
    let posted = |url: &str| {
        let brief = WebhookOptions {
            timeout: Duration::from_secs(2),
            ..options(url)
        };
        let Posted {
            verdict, end, text, ..
        } = once(brief);
        (verdict, end, text)
    };
    let of = |said: fn() -> Said| posted(&Server::start(move |_, _| said()).url);
    let taken = (Verdict::Delivered, "status 200".to_owned(), String::new());
    let broken = of(|| Said::Bytes("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"));
    assert_eq!(broken, taken);
    assert_eq!(of(|| Said::Endless("HTTP/1.1 200 OK\r\n\r\n")), taken);
    let (verdict, end, _) = of(|| Said::Bytes("HTTP/1.1 2"));
    assert_eq!(verdict, Verdict::Again, "{end}");
    let (verdict, end, _) = of(|| Said::Endless("HTTP/1.1 200 OK\r\nx: "));
    assert_eq!(verdict, Verdict::Again, "{end}");
    let (verdict, end, _) = of(|| Said::Nothing);
    assert_eq!((verdict, &*end), (Verdict::Again, "no answer in time"));

    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = format!("http://{}/", free.local_addr().unwrap());
    drop(free);
    let (verdict, end, _) = posted(&away);
    assert_eq!(verdict, Verdict::Again);
    assert!(end.starts_with("no connection: "), "{end}");

    // Ends the connection with the request unread, which resets it.
    let rude = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", rude.local_addr().unwrap());
    thread::spawn(move || {
        let (stream, _): (TcpStream, _) = rude.accept().unwrap();
        let _ = stream.peek(&mut [0]);
    });
    let (verdict, end, _) = posted(&url);
    assert_eq!(verdict, Verdict::Again);
    assert!(end.contains("reset"), "{end}");

    let plain = Server::start(|_, _| "200 OK");
    let (verdict, end, _) = posted(&plain.url.replace("http:", "https:"));
    assert_eq!(verdict, Verdict::Again);
    assert!(end.contains("tls"), "{end}");
    assert_eq!(plain.asked().len(), 0);
}

#[test]
fn a_certificate_counts_only_by_the_authorities_that_are_given() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let own = params.signed_by(&key, &ca).unwrap();
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![own.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
    let server = Server::with(Arc::new(|_, _| "200 OK".into()), Some(Arc::new(config)));
    let trusting = WebhookOptions {
        authorities: Authorities::of_pem(ca.pem().as_bytes()).unwrap(),
        ..options(&server.url)
    };
    let posted = once(trusting);
    assert_eq!(
        (posted.verdict, &*posted.text),
        (Verdict::Delivered, "said")
    );
    let posted = once(options(&server.url));
    assert_eq!(posted.verdict, Verdict::Again);
    assert!(
        posted.end.starts_with("no secure connection: "),
        "{}",
        posted.end
    );
    assert_eq!(server.asked().len(), 1);
    assert!(Authorities::of_pem(b"nothing").is_err());
}

#[test]
fn a_server_may_ask_for_a_wait_within_a_bound() {
    // Sun, 06 Nov 1994 08:49:37 GMT, a second and a half before.
    let now = Timestamp(784_111_775_500);
    let wait = |text| retry_after(text, now).map(|wait| wait.as_millis());
    assert_eq!(wait("3"), Some(3000));
    assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(1500));
    assert_eq!(wait("Sun, 06 Nov 1994 08:49:30 GMT"), Some(0));
    assert_eq!(wait("86400"), Some(RETRY_AFTER_LIMIT.as_millis()));
    assert_eq!(wait("soon"), None);
    assert_eq!(wait("-1"), None);
    let reply = |status: u16| Reply {
        status,
        retry_after: Some("2".to_owned()),
        text: String::new(),
    };
    let of = |status| of_reply(reply(status), now, Duration::ZERO);
    assert_eq!(of(503).wait, Some(Duration::from_secs(2)));
    assert_eq!((of(201).wait, of(404).wait), (None, None));
}
