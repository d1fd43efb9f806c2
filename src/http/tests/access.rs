//! Who may read and who may order.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

fn guarded(adapt: impl FnOnce(&mut Access)) -> Server {
    let mut access = Access {
        users: BTreeMap::from([("ann".to_owned(), bcrypt::hash("pass:word", 4).unwrap())]),
        ..Access::default()
    };
    adapt(&mut access);
    Server::with(|handles| handles.access = watch::channel(Arc::new(access)).1)
}

fn basic(pair: &str) -> String {
    format!("authorization: Basic {}", STANDARD.encode(pair))
}

#[tokio::test]
async fn everything_but_liveness_needs_a_user_or_a_token() {
    let server = guarded(|access| access.read_token = Some("reader".into()));
    for path in ["/livez", "/readyz"] {
        server.get(path).await.expect(200);
    }
    for path in [
        "/",
        "/page.js",
        "/page/live",
        "/metrics",
        "/api/v1/status",
        "/nothing",
        "//livez",
        "/livez/",
    ] {
        let reply = server.get(path).await;
        assert_eq!(
            reply.expect(401).headers["x-content-type-options"],
            "nosniff"
        );
    }
    let right = basic("ann:pass:word");
    for (header, status) in [
        (right.as_str(), 200),
        ("authorization: Bearer reader", 200),
        ("authorization: bearer secret", 200),
        ("authorization: Bearer wrong!", 401),
        ("authorization: Bearer ", 401),
        (&basic("ann:wrong"), 401),
        (&basic("bob:pass:word"), 401),
        (&basic("ann"), 401),
        ("authorization: Basic %%%", 401),
        ("authorization: Digest x", 401),
    ] {
        let reply = server.request("GET", "/metrics", &[header], "").await;
        assert_eq!(reply.status, status, "{header}");
    }
}

#[tokio::test]
async fn an_order_needs_the_control_token_whoever_reads() {
    let server = guarded(|access| access.read_token = Some("reader".into()));
    let user = basic("ann:pass:word");
    let own = "x-dirkeeper-token: secret";
    for (headers, status) in [
        (vec!["authorization: Bearer secret"], 202),
        (vec![user.as_str(), own], 202),
        (vec!["authorization: Bearer reader", own], 202),
        (vec![user.as_str()], 401),
        (vec!["authorization: Bearer reader"], 401),
        (vec![user.as_str(), "x-dirkeeper-token: reader"], 401),
        // The door is passed first.
        (vec![own], 401),
    ] {
        let reply = server.request("POST", "/api/v1/probe", &headers, "").await;
        assert_eq!(reply.status, status, "{headers:?}");
    }
}

#[tokio::test]
async fn a_refusal_says_how_to_ask() {
    let server = guarded(|_| {});
    let mut stream = server.connect().await;
    let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("www-authenticate: Bearer\r\n"), "{text}");
    let basic = "www-authenticate: Basic realm=\"dirkeeper\", charset=\"UTF-8\"\r\n";
    assert!(text.contains(basic), "{text}");
}

#[tokio::test]
async fn headers_of_the_file_replace_the_usual_ones() {
    let server = guarded(|access| {
        access.users.clear();
        let same = HeaderValue::from_static("sameorigin");
        access.headers = vec![(header::X_FRAME_OPTIONS, same)];
    });
    let reply = server.get("/metrics").await;
    assert_eq!(reply.headers["x-frame-options"], "sameorigin");
    assert_eq!(reply.headers["referrer-policy"], "no-referrer");
    assert_eq!(reply.headers["cache-control"], "no-store");
}
