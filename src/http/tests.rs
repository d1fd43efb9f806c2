//! The server over real connections: what each path answers, and what bad clients cannot do.

mod access;
mod mode;
mod page;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::document::sample;
use crate::health::event::Event;

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running server and the ends of its handles.
struct Server {
    address: SocketAddr,
    publish: watch::Sender<Arc<Snapshot>>,
    orders: Arc<Mutex<Vec<Order>>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    fn start() -> Server {
        Server::with(|_| {})
    }

    fn with(adapt: impl FnOnce(&mut Handles)) -> Server {
        let (publish, snapshot) = watch::channel(Arc::new(sample::snapshot()));
        let orders = Arc::new(Mutex::new(Vec::new()));
        let taken = orders.clone();
        let mut handles = Handles {
            snapshot,
            self_view: Arc::new(sample::self_view),
            about: sample::about(),
            events: Arc::new(|_, _| Box::pin(async { Ok(Vec::new()) })),
            live: Arc::new(|| Ok(())),
            access: watch::channel(Arc::default()).1,
            metrics: Arc::new(|| "# exposition\n".to_owned()),
            control: Some(Control {
                token: "secret".into(),
                order: Arc::new(move |order| {
                    taken.lock().unwrap().push(order);
                    Box::pin(std::future::ready(Ok(None)))
                }),
            }),
            may_stop: Arc::new(|_| Box::pin(std::future::ready(Ok(None)))),
        };
        adapt(&mut handles);
        let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(serve(listener, handles, async {
            let _ = stopped.await;
        }));
        Server {
            address,
            publish,
            orders,
            stop,
            task,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn get(&self, path: &str) -> Reply {
        self.request("GET", path, &[], "").await
    }

    async fn request(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        let mut stream = self.connect().await;
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        for header in headers {
            request += &format!("{header}\r\n");
        }
        request += &format!("content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        let read = timeout(PATIENCE, stream.read_to_string(&mut text)).await;
        read.expect("the server answers and closes").unwrap();
        Reply::parse(&text)
    }

    /// Begins to follow the events.
    async fn follow(&self, query: &str, header: &str) -> Following {
        self.open(&format!("/api/v1/events{query}"), header).await
    }

    /// Begins to read a stream.
    async fn open(&self, path: &str, header: &str) -> Following {
        let mut stream = self.connect().await;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut following = Following {
            lines: BufReader::new(stream),
        };
        following.until("\r\n").await;
        following
    }

    /// Waits for a place of those who follow. The server learns that one is free when its connection
    /// ends; each turn of this loop lets it look.
    async fn gives_back(&self, path: &str) {
        let free = async {
            loop {
                let mut stream = self.connect().await;
                let request =
                    format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n");
                stream.write_all(request.as_bytes()).await.unwrap();
                let mut line = String::new();
                BufReader::new(stream).read_line(&mut line).await.unwrap();
                if line.contains("200") {
                    return;
                }
            }
        };
        let freed = timeout(PATIENCE, free).await;
        freed.expect("places are given back");
    }

    /// Publishes a snapshot with these events as the newest ones.
    fn publish_events(&self, seqs: impl IntoIterator<Item = u64>) {
        let mut snapshot = sample::snapshot();
        snapshot.recent_events = Arc::new(seqs.into_iter().map(event).collect());
        snapshot.last_seq = snapshot.recent_events.last().unwrap().seq;
        self.publish.send_replace(Arc::new(snapshot));
    }
}

struct Reply {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Reply {
    fn parse(text: &str) -> Reply {
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let (status, headers) = head.split_once("\r\n").expect("headers");
        let headers = headers.lines().filter_map(|line| line.split_once(": "));
        Reply {
            status: status.split(' ').nth(1).unwrap().parse().unwrap(),
            headers: headers.map(|(k, v)| (k.into(), v.into())).collect(),
            body: body.to_owned(),
        }
    }

    fn json(&self) -> serde_json::Value {
        assert_eq!(self.headers["content-type"], "application/json");
        serde_json::from_str(&self.body).expect(&self.body)
    }

    #[track_caller]
    fn expect(&self, status: u16) -> &Reply {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    fn error(&self) -> String {
        self.json()["error"].as_str().expect("an error").to_owned()
    }

    fn seqs(&self) -> Vec<u64> {
        let document = self.json();
        let events = document["events"].as_array().unwrap();
        events
            .iter()
            .map(|event| event["seq"].as_u64().unwrap())
            .collect()
    }
}

/// A client that follows the events.
struct Following {
    lines: BufReader<TcpStream>,
}

impl Following {
    /// Reads up to and with the line that is or begins with `start`.
    async fn until(&mut self, start: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let read = timeout(PATIENCE, self.lines.read_line(&mut line)).await;
            assert_ne!(read.expect(start).unwrap(), 0, "no {start} in {all}");
            all += &line;
            if line.starts_with(start) {
                return all;
            }
        }
    }

    async fn rest(mut self) -> String {
        let mut rest = String::new();
        let read = timeout(PATIENCE, self.lines.read_to_string(&mut rest)).await;
        let _ = read.expect("the server ends the stream");
        rest
    }
}

fn event(seq: u64) -> Arc<Event> {
    let snapshot = sample::snapshot();
    Arc::new(Event {
        seq,
        ..(*snapshot.recent_events[0]).clone()
    })
}

/// A log that holds these events.
fn log_of(seqs: std::ops::RangeInclusive<u64>) -> EventSource {
    Arc::new(move |since, limit| {
        let host = sample::about().host;
        let found = seqs.clone().filter(|seq| since < *seq).take(limit);
        let found = found.map(|seq| PastEvent {
            seq,
            json: crate::document::event_json(&event(seq), &host).into(),
        });
        let found = Ok(found.collect());
        Box::pin(std::future::ready(found))
    })
}

#[tokio::test]
async fn liveness_follows_the_loop_and_readiness_the_first_round() {
    let live = Arc::new(Mutex::new(Ok(())));
    let said = live.clone();
    let server = Server::with(|handles| {
        handles.live = Arc::new(move || said.lock().unwrap().clone());
    });
    server.get("/livez").await.expect(200);
    server.get("/readyz").await.expect(200);
    *live.lock().unwrap() = Err("the monitor loop has not turned for 6 s".to_owned());
    let reply = server.get("/livez").await;
    assert_eq!(
        reply.expect(503).body,
        "the monitor loop has not turned for 6 s\n"
    );
    server.publish.send_modify(|snapshot| {
        Arc::make_mut(snapshot).ready = false;
    });
    server.get("/readyz").await.expect(503);
}

#[tokio::test]
async fn metrics_and_status_are_served_with_the_headers_of_all_answers() {
    let server = Server::start();
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.expect(200).body, "# exposition\n");
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(metrics.headers["content-type"], kind);
    let status = server.get("/api/v1/status").await;
    let expected = crate::document::status_document(
        &sample::snapshot(),
        &sample::self_view(),
        &sample::about(),
    );
    assert_eq!(
        status.expect(200).json(),
        serde_json::to_value(expected).unwrap()
    );
    for path in [
        "/",
        "/page.js",
        "/page.css",
        "/metrics",
        "/api/v1/status",
        "/nothing",
    ] {
        let reply = server.get(path).await;
        for (name, value) in HEADERS {
            assert_eq!(reply.headers[name.as_str()], value, "{path}");
        }
    }
    let head = server.request("HEAD", "/api/v1/status", &[], "").await;
    assert_eq!(head.expect(200).body, "");
}

#[tokio::test]
async fn a_directory_is_found_by_index_and_by_any_path() {
    let server = Server::start();
    for (key, index) in [
        ("0", 0),
        ("%2Fmnt%2Fjournal%20one", 0),
        ("/mnt/journal%20one", 0),
        ("%2Fmnt%2F%22quoted%22%20%5C%20l1%0Asecond%20line", 1),
        ("/mnt/%3Cscript%3Ealert('x')%3C%2Fscript%3E%26", 2),
        ("%2Fmnt%2Fbad%FF%FE%20byte", 3),
        ("%2Fmnt%2Fbad%5Cxff%5Cxfe%20byte", 3),
    ] {
        let reply = server.get(&format!("/api/v1/dirs/{key}")).await;
        let document = crate::document::dir_document(&sample::snapshot().dirs[index]);
        assert_eq!(
            reply.expect(200).json(),
            serde_json::to_value(document).unwrap(),
            "{key}"
        );
    }
    let list = server.get("/api/v1/dirs").await.json();
    assert_eq!(list["dirs"].as_array().unwrap().len(), 4);
    for key in ["4", "%2Fmnt", "mnt", "99999999999999999999"] {
        let reply = server.get(&format!("/api/v1/dirs/{key}")).await;
        assert!(reply.expect(404).error().contains("index below 4"), "{key}");
    }
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_said_so_in_json() {
    let server = Server::start();
    let reply = server.get("/api/v2").await;
    assert_eq!(reply.expect(404).error(), "there is nothing at /api/v2");
    for (method, path, allowed) in [
        ("POST", "/metrics", "GET,HEAD"),
        ("DELETE", "/api/v1/events", "GET,HEAD"),
        ("GET", "/api/v1/probe", "POST"),
        ("GET", "/api/v1/mode", "PUT"),
        ("POST", "/api/v1/mode/may-stop", "GET,HEAD,PUT"),
    ] {
        let reply = server.request(method, path, &[], "").await;
        assert!(reply.expect(405).error().contains(method));
        assert_eq!(reply.headers["allow"], allowed, "{path}");
    }
}

#[tokio::test]
async fn the_newest_events_come_from_the_snapshot_alone() {
    let server = Server::with(|handles| {
        handles.events = Arc::new(|_, _| panic!("nothing older was asked for"));
    });
    server.publish_events(10..=19);
    for (query, seqs, next) in [
        ("?since=9&limit=3", vec![10, 11, 12], 12),
        ("?since=17", vec![18, 19], 19),
        ("?since=19", vec![], 19),
        ("?limit=2", vec![18, 19], 19),
        // A number of a log that was lost: go on from the newest event.
        ("?since=500", vec![], 19),
    ] {
        let reply = server.get(&format!("/api/v1/events{query}")).await;
        assert_eq!(reply.expect(200).seqs(), seqs, "{query}");
        assert_eq!(reply.json()["next"], next, "{query}");
        assert!(reply.json()["problem"].is_null());
    }
}

#[tokio::test]
async fn older_events_come_from_the_log_without_gaps_or_repetitions() {
    let server = Server::with(|handles| handles.events = log_of(1..=14));
    server.publish_events(13..=16);
    let mut all = Vec::new();
    let mut since = 0;
    loop {
        let reply = server
            .get(&format!("/api/v1/events?since={since}&limit=5"))
            .await;
        if reply.seqs().is_empty() {
            break;
        }
        all.extend(reply.seqs());
        since = reply.json()["next"].as_u64().unwrap();
    }
    assert_eq!(all, (1..=16).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_log_that_fails_or_hangs_is_named_and_the_newest_events_are_served() {
    let refusing: EventSource = Arc::new(|_, _| Box::pin(async { Err("no writer".to_owned()) }));
    let hanging: EventSource = Arc::new(|_, _| Box::pin(std::future::pending()));
    for (source, problem) in [
        (refusing, "no writer"),
        (hanging, "the event log does not answer"),
    ] {
        let server = Server::with(|handles| handles.events = source);
        let reply = server.get("/api/v1/events?since=1").await;
        assert_eq!(reply.expect(200).seqs(), [41, 42]);
        assert_eq!(reply.json()["problem"], problem);
    }
}

#[tokio::test]
async fn bad_queries_are_explained() {
    let server = Server::start();
    for (query, word) in [
        ("since=x", "since"),
        ("since=-1", "since"),
        ("limit=0", "limit must be from 1 to 1000, not 0"),
        ("limit=1001", "limit must be from 1 to 1000, not 1001"),
        ("form=now", "form"),
    ] {
        let reply = server.get(&format!("/api/v1/events?{query}")).await;
        let error = reply.expect(400).error();
        assert!(error.contains(word), "{query}: {error}");
    }
}

#[tokio::test]
async fn followers_get_what_they_missed_and_then_each_event() {
    let server = Server::start();
    let mut fresh = server.follow("", "").await;
    let mut back = server.follow("", "last-event-id: 41\r\n").await;
    let seen = back.until("data:").await;
    assert!(
        seen.starts_with("id: 42\n") || seen.contains("\nid: 42\n"),
        "{seen}"
    );
    assert!(seen.contains("event: modeWanted\n"), "{seen}");
    server.publish_events(41..=43);
    for following in [&mut fresh, &mut back] {
        let seen = following.until("data:").await;
        assert!(
            seen.contains("id: 43\n") && !seen.contains("id: 42\n"),
            "{seen}"
        );
        let line = seen.lines().last().unwrap().strip_prefix("data: ").unwrap();
        let read: crate::document::EventDocument = serde_json::from_str(line).unwrap();
        assert_eq!(read.seq, 43);
    }
    // More events than the snapshot keeps and no log: the loss is said.
    server.publish_events(50..=51);
    let seen = fresh.until("id: 50").await;
    assert!(
        seen.contains("event: gap\ndata: {\"after\":43,\"before\":50}\n"),
        "{seen}"
    );
}

#[tokio::test]
async fn followers_are_counted_and_their_places_given_back() {
    let server = Server::start();
    let mut followers = Vec::new();
    for _ in 0..MAX_FOLLOWERS {
        followers.push(server.follow("", "").await);
    }
    let accept = ["accept: text/event-stream"];
    let reply = server.request("GET", "/api/v1/events", &accept, "").await;
    assert!(reply.expect(503).error().contains("16 clients"));
    assert_eq!(reply.headers["retry-after"], "1");
    followers.clear();
    server.gives_back("/api/v1/events").await;
}

#[tokio::test]
async fn orders_need_the_token() {
    let server = Server::start();
    for headers in [
        &[][..],
        &["authorization: Bearer wrong"],
        &["authorization: Basic secret"],
        &["authorization: secret"],
    ] {
        let reply = server.request("POST", "/api/v1/probe", headers, "").await;
        reply.expect(401);
        assert_eq!(reply.headers["www-authenticate"], "Bearer");
    }
    assert!(server.orders.lock().unwrap().is_empty());
    // Beside what a browser had to log in with, and before it.
    let own = ["authorization: Basic dTpw", "x-dirkeeper-token: secret"];
    let reply = server.request("POST", "/api/v1/probe", &own, "").await;
    reply.expect(202);
    let wrong = ["authorization: Bearer secret", "x-dirkeeper-token: secreT"];
    let reply = server.request("POST", "/api/v1/probe", &wrong, "").await;
    assert!(reply.expect(401).error().contains("not the one"));
    assert_eq!(server.orders.lock().unwrap().len(), 1);
    let closed = Server::with(|handles| handles.control = None);
    let token = ["authorization: Bearer secret"];
    let reply = closed.request("POST", "/api/v1/probe", &token, "").await;
    assert!(reply.expect(403).error().contains("control_token_file"));
}

#[tokio::test]
async fn orders_are_handed_on() {
    use crate::health::dir::DirId;
    let server = Server::start();
    for (method, path, body, status) in [
        ("POST", "probe", "", 202),
        ("POST", "probe", r#"{"dir": "2"}"#, 202),
        ("POST", "accept", r#"{"dir": "/mnt/journal one"}"#, 202),
        ("POST", "probe", r#"{"dir": "/mnt/other"}"#, 404),
        ("POST", "accept", "", 400),
        ("POST", "probe", r#"{"directory": "2"}"#, 400),
        ("POST", "probe", &" ".repeat(MAX_BODY + 1), 413),
    ] {
        let token = ["authorization: Bearer secret"];
        let path = format!("/api/v1/{path}");
        let reply = server.request(method, &path, &token, body).await;
        reply.expect(status);
        assert!(
            status == 202 || !reply.error().is_empty(),
            "{path} {status}"
        );
    }
    let orders = server.orders.lock().unwrap().clone();
    let expected = [
        Order::Probe { dir: None },
        Order::Probe {
            dir: Some(DirId(2)),
        },
        Order::Accept { dir: DirId(0) },
    ];
    assert_eq!(orders, expected);
}

/// Clients that never finish their header hold every place there is.
#[tokio::test]
async fn slow_clients_do_not_keep_a_scrape_out() {
    let server = Server::start();
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = server.connect().await;
        let sent = stream.write_all(b"GET /metrics HTTP/1.1\r\nx").await;
        slow.push((stream, sent));
    }
    for _ in 0..10 {
        server.get("/metrics").await.expect(200);
    }
}

/// Clients that asked once and keep their connections hold every place there is; one that follows
/// the events is not idle.
#[tokio::test]
async fn idle_clients_do_not_keep_a_scrape_out() {
    let server = Server::start();
    let mut following = server.follow("", "").await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut stream = server.connect().await;
        let request = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = [0; 12];
        let read = timeout(PATIENCE / 2, stream.read_exact(&mut answer)).await;
        read.expect("a place is made at once").unwrap();
        idle.push(stream);
    }
    server.get("/metrics").await.expect(200);
    server.publish_events(43..=43);
    following.until("data:").await;
}

#[tokio::test]
async fn the_server_stops_at_once_with_clients_connected() {
    let server = Server::start();
    let following = server.follow("", "").await;
    let mut half = server.connect().await;
    half.write_all(b"GET / HT").await.unwrap();
    server.stop.send(()).unwrap();
    let ended = timeout(PATIENCE, server.task).await;
    ended.expect("the server stops").unwrap().unwrap();
    following.rest().await;
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_used_address_is_named_with_what_to_do() {
    let first = bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = first.local_addr().unwrap();
    let error = bind(address).unwrap_err();
    assert!(matches!(error, BindError::InUse { .. }));
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("address {address} is in use")),
        "{text}"
    );
    assert!(text.contains("--listen"), "{text}");
    let foreign = bind(([192, 0, 2, 1], 0).into()).unwrap_err();
    assert!(
        foreign
            .to_string()
            .starts_with("cannot listen on 192.0.2.1:0")
    );
}
