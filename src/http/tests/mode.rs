//! Orders on the mode, and the question whether the server may end.

use super::*;
use crate::clock::Clock;
use crate::health::claim::{ModeOrder, REASON_LIMIT};
use crate::health::policy::Mode;

const TOKEN: [&str; 1] = ["authorization: Bearer secret"];

impl Server {
    /// A server whose orders are all answered with this.
    fn answering(answer: Result<Option<String>, Refusal>) -> Server {
        Server::with(|handles| {
            let said = answer.clone();
            let order = move |_| -> Answer { Box::pin(std::future::ready(answer.clone())) };
            handles.control.as_mut().unwrap().order = Arc::new(order);
            handles.may_stop = Arc::new(move |reserve| {
                let said = said.clone();
                let marked = said.map(|text| text.map(|text| format!("{text} {reserve}")));
                Box::pin(std::future::ready(marked))
            });
        })
    }

    async fn order_mode(&self, body: &str) -> Reply {
        self.request("PUT", "/api/v1/mode", &TOKEN, body).await
    }
}

#[tokio::test]
async fn an_order_on_the_mode_is_handed_on_with_its_reason() {
    let server = Server::start();
    let longest = "ü".repeat(REASON_LIMIT);
    for body in [
        r#"{"mode":"readOnly","reason":" disk swap "}"#.to_owned(),
        format!(r#"{{"mode":"writable","reason":"{longest}"}}"#),
        r#"{"mode":null,"reason":"done"}"#.to_owned(),
        r#"{"mode":null}"#.to_owned(),
    ] {
        let reply = server.order_mode(&body).await;
        assert_eq!(reply.expect(202).body, "{\"accepted\":true}\n");
    }
    let set = |mode, reason: &str| {
        let reason = reason.to_owned();
        Order::Mode(ModeOrder::Set { mode, reason })
    };
    let release = || Order::Mode(ModeOrder::Release);
    let expected = [
        set(Mode::ReadOnly, "disk swap"),
        set(Mode::Writable, &longest),
        release(),
        release(),
    ];
    assert_eq!(*server.orders.lock().unwrap(), expected);
}

#[tokio::test]
async fn an_order_without_sense_or_reason_reaches_nobody() {
    let server = Server::start();
    let long = "x".repeat(REASON_LIMIT + 1);
    let mut said = String::new();
    for body in [
        "",
        "{}",
        r#"{"reason":"disk swap"}"#,
        r#"{"mode":"readOnly"}"#,
        r#"{"mode":"readOnly","reason":null}"#,
        r#"{"mode":"readOnly","reason":""}"#,
        r#"{"mode":"readOnly","reason":" \t "}"#,
        r#"{"mode":"readOnly","reason":"two\nlines"}"#,
        r#"{"mode":"readOnly","reason":"\u001b[2J"}"#,
        &format!(r#"{{"mode":"readOnly","reason":"{long}"}}"#),
        r#"{"mode":"read-only","reason":"x"}"#,
        r#"{"mode":"READONLY","reason":"x"}"#,
        r#"{"mode":1,"reason":"x"}"#,
        r#"{"mode":"readOnly","reason":"x","force":true}"#,
        r#"{"mode":null,"reason":""}"#,
    ] {
        let reply = server.order_mode(body).await;
        said += &format!("{}\n", reply.expect(400).error());
    }
    insta::assert_snapshot!("bad_mode_orders", said);
    let reason = "x".repeat(1 << 20);
    let huge = format!(r#"{{"mode":"readOnly","reason":"{reason}"}}"#);
    let mut stream = server.connect().await;
    let head = format!(
        "PUT /api/v1/mode HTTP/1.1\r\nhost: x\r\n{}\r\ncontent-length: {}\r\n\r\n",
        TOKEN[0],
        huge.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The answer may come, and the connection end, before all of it was sent.
    let _ = stream.write_all(huge.as_bytes()).await;
    let mut answer = [0; 12];
    let read = timeout(PATIENCE, stream.read_exact(&mut answer)).await;
    read.expect("the server answers").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");

    for headers in [&[][..], &["authorization: Bearer wrong"]] {
        let body = r#"{"mode":"readOnly","reason":"x"}"#;
        let reply = server.request("PUT", "/api/v1/mode", headers, body).await;
        reply.expect(401);
    }
    assert!(server.orders.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_became_of_an_order_is_said() {
    let order = r#"{"mode":"readOnly","reason":"x"}"#;
    let refused = "too few bookies would stay writable: 3, and 4 are needed";
    let cases = [
        (
            Ok(Some("held".to_owned())),
            202,
            r#"{"accepted":true,"message":"held"}"#,
        ),
        (Err(Refusal::Refused(refused.to_owned())), 409, refused),
        (Err(Refusal::NotSupported("no bookie")), 501, "no bookie"),
        (Err(Refusal::Busy), 503, "busy"),
        (Err(Refusal::NoAnswer), 504, "may still be carried out"),
    ];
    for (answer, status, text) in cases {
        let server = Server::answering(answer);
        let reply = server.order_mode(order).await;
        assert!(reply.expect(status).body.contains(text), "{}", reply.body);
    }
}

#[tokio::test]
async fn whether_the_server_may_end_is_answered_without_a_token() {
    let refused = Refusal::Refused("it is read-only for a drain\nits ledgers have one copy".into());
    let cases = [
        (Ok(None), 200, r#"{"mayStop":true,"reasons":[]}"#),
        (
            Ok(Some("enough".to_owned())),
            200,
            r#"{"mayStop":true,"reasons":[],"message":"enough RESERVE"}"#,
        ),
        (
            Err(refused),
            200,
            r#"{"mayStop":false,"reasons":["it is read-only for a drain","its ledgers have one copy"]}"#,
        ),
        (Err(Refusal::NotSupported("no bookie")), 501, "no bookie"),
        (Err(Refusal::Busy), 503, "busy"),
        (Err(Refusal::NoAnswer), 504, "not answered in time"),
    ];
    for (answer, status, text) in cases {
        let server = Server::answering(answer);
        for (method, reserve) in [("GET", "false"), ("PUT", "true")] {
            let path = "/api/v1/mode/may-stop";
            let reply = server.request(method, path, &[], "").await;
            let expected = text.replace("RESERVE", reserve);
            assert!(
                reply.expect(status).body.contains(&expected),
                "{}",
                reply.body
            );
        }
    }
}

/// Each takes the lock of the whole cluster.
#[tokio::test]
async fn who_asks_without_end_whether_the_server_may_end_is_slowed_down() {
    let server = Server::answering(Ok(None));
    let clock = Clock::start();
    for _ in 0..3 {
        let reply = server.get("/api/v1/mode/may-stop").await;
        reply.expect(200);
    }
    let took = clock.elapsed();
    assert!(Duration::from_millis(600) <= took, "{took:?}");
}
