//! The client against a peer that says what a test tells it to, byte by byte.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::fake::{Fake, answer, request};
use super::messages::{InfoResponse, LacResponse, ReadResponse, Request, Response, framed};
use super::*;
use crate::clock::Clock;
use crate::cluster::memory::Memory;

/// Long enough for a busy machine.
const PATIENT: Limits = Limits {
    answer: Duration::from_secs(30),
    connect: Duration::from_secs(30),
    rest: Duration::from_secs(5),
    waits: (Duration::from_millis(1), Duration::from_millis(1)),
    in_flight: 32,
    frame: 1000,
};

/// A peer, and the client's side of it.
struct Stage {
    listener: TcpListener,
    bookie: Arc<Bookie>,
    clock: Clock,
}

async fn stage(limits: Limits) -> Stage {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let id = listener.local_addr().unwrap().to_string();
    let clock = Clock::manual();
    Stage {
        listener,
        bookie: bookies(&clock, limits).get(&id),
        clock,
    }
}

fn bookies(clock: &Clock, limits: Limits) -> Bookies {
    let store = Memory::new(Clock::manual()).connect();
    Bookies::new(Arc::new(store), "/ledgers", clock.clone(), limits)
}

impl Stage {
    async fn accept(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    /// Reads entry 3 of ledger 7, of a peer that answers with these bytes and closes.
    async fn read(&self, bytes: &[u8]) -> String {
        let peer = async {
            let mut stream = self.accept().await;
            request(&mut stream).await.unwrap();
            stream.write_all(bytes).await.unwrap();
        };
        told(tokio::join!(self.bookie.read_entry(7, 3), peer).0)
    }
}

fn told<T: std::fmt::Debug>(result: Result<T, BookieError>) -> String {
    match result {
        Ok(found) => format!("{found:?}"),
        Err(error) => crate::report::text(&error),
    }
}

fn entry(request: &Request, body: &[u8]) -> Response {
    let asked = request.read.clone().unwrap();
    Response {
        read: Some(ReadResponse {
            status: Some(0),
            ledger: asked.ledger,
            entry: asked.entry,
            body: Some(body.to_vec()),
            max_lac: None,
        }),
        ..answer(request, 0)
    }
}

#[tokio::test]
async fn an_answer_in_pieces_with_unknown_fields() {
    let stage = stage(PATIENT).await;
    let peer = async {
        let mut stream = stage.accept().await;
        let request = request(&mut stream).await.unwrap();
        let mut frame = framed(&entry(&request, b"found"));
        // Field 300, four bytes that nobody knows.
        frame.extend(b"\xe2\x12\x04late");
        let length = u32::try_from(frame.len() - 4).unwrap();
        frame[..4].copy_from_slice(&length.to_be_bytes());
        for byte in frame {
            stream.write_all(&[byte]).await.unwrap();
            stream.flush().await.unwrap();
            tokio::task::yield_now().await;
        }
        stream
    };
    let (read, _stream) = tokio::join!(stage.bookie.read_entry(7, 3), peer);
    assert_eq!(read, Ok(b"found".to_vec()));
}

#[tokio::test]
async fn answers_out_of_order_over_one_connection() {
    let stage = stage(PATIENT).await;
    let peer = async {
        let mut stream = stage.accept().await;
        let first = request(&mut stream).await.unwrap();
        let second = request(&mut stream).await.unwrap();
        let text = |request: &Request| request.read.as_ref().unwrap().entry.unwrap().to_string();
        for request in [&second, &first] {
            let frame = framed(&entry(request, text(request).as_bytes()));
            stream.write_all(&frame).await.unwrap();
        }
        stream
    };
    let both = async { tokio::join!(stage.bookie.read_entry(7, 1), stage.bookie.read_entry(7, 2)) };
    let ((one, two), _stream) = tokio::join!(both, peer);
    assert_eq!((one, two), (Ok(b"1".to_vec()), Ok(b"2".to_vec())));
}

#[tokio::test]
async fn few_questions_are_under_way_at_a_time() {
    let stage = stage(Limits {
        in_flight: 2,
        ..PATIENT
    })
    .await;
    let peer = async {
        let mut stream = stage.accept().await;
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.push(request(&mut stream).await.unwrap());
        }
        // The third comes only after an answer.
        let third = tokio::time::timeout(Duration::from_millis(50), request(&mut stream)).await;
        assert!(third.is_err(), "a third question was under way");
        for request in &seen {
            stream
                .write_all(&framed(&entry(request, b"x")))
                .await
                .unwrap();
        }
        let third = request(&mut stream).await.unwrap();
        stream
            .write_all(&framed(&entry(&third, b"x")))
            .await
            .unwrap();
        stream
    };
    let ask = |entry| stage.bookie.read_entry(7, entry);
    let (one, two, three, _stream) = tokio::join!(ask(1), ask(2), ask(3), peer);
    assert!([one, two, three].iter().all(Result::is_ok));
}

#[tokio::test]
async fn what_is_no_answer_ends_the_connection_and_the_next_question_makes_another() {
    let stage = stage(PATIENT).await;
    let header = |txn: u8| {
        [
            &[0, 0, 0, 10, 0x0a, 6, 0x08, 3, 0x10, 1, 0x18, txn][..],
            &[0x10, 0],
        ]
        .concat()
    };
    let lines = [
        stage.read(&header(9)).await,
        stage.read(&[0, 0, 3, 0xe9]).await,
        stage.read(b"HTTP/1.1 400 Bad Request\r\n\r\n").await,
        stage.read(&[0, 0, 0, 5, 1, 2, 3, 4, 5]).await,
        stage.read(&[0, 0, 0, 2, 0x10, 0]).await,
        stage.read(&[0, 0, 0, 5, 1, 2]).await,
        stage.read(&[0, 0]).await,
        stage.read(&[]).await,
        // And a good one, without the body that belongs to it.
        stage.read(&header(1)).await,
    ];
    insta::assert_snapshot!(lines.join("\n"), @"
    the connection ended: an answer came to request 9, which was never made
    the connection ended: a frame of 1001 bytes is announced, 1000 at most are read
    the connection ended: a frame of 1213486160 bytes is announced, 1000 at most are read
    the connection ended: what came is no answer: failed to decode Protobuf message: invalid tag value: 0
    the connection ended: what came is no answer: it has no number
    the connection ended: the bookie closed it within an answer
    the connection ended: the bookie closed it
    the connection ended: the bookie closed it
    its answer lacks its body
    ");
}

#[tokio::test]
async fn an_idle_connection_that_died_is_made_again() {
    let stage = stage(PATIENT).await;
    let serve = async |stream: &mut TcpStream| {
        let request = request(stream).await.unwrap();
        stream
            .write_all(&framed(&entry(&request, b"x")))
            .await
            .unwrap();
    };
    for _ in 0..3 {
        let peer = async { serve(&mut stage.accept().await).await };
        let (read, ()) = tokio::join!(stage.bookie.read_entry(7, 3), peer);
        assert_eq!(read, Ok(b"x".to_vec()));
    }
}

#[tokio::test]
async fn a_silent_bookie_costs_one_deadline_and_is_left_alone_for_a_while() {
    let stage = stage(Limits {
        answer: Duration::from_millis(100),
        ..PATIENT
    })
    .await;
    let peer = async {
        let mut stream = stage.accept().await;
        request(&mut stream).await.unwrap();
        stream
    };
    let (read, _stream) = tokio::join!(stage.bookie.read_entry(7, 3), peer);
    let first = told(read);
    // Nothing is asked: there is nobody who would accept.
    let second = told(stage.bookie.read_entry(7, 3).await);
    insta::assert_snapshot!(format!("{first}\n{second}"), @"
    there was no answer within 100ms
    there was no answer within 100ms
    ");
    stage.clock.advance(PATIENT.rest);
    let peer = async {
        let mut stream = stage.accept().await;
        let request = request(&mut stream).await.unwrap();
        stream
            .write_all(&framed(&entry(&request, b"x")))
            .await
            .unwrap();
        stream
    };
    let (read, _stream) = tokio::join!(stage.bookie.read_entry(7, 3), peer);
    assert_eq!(read, Ok(b"x".to_vec()));
}

#[tokio::test]
async fn a_late_answer_among_others_is_ignored() {
    let stage = stage(Limits {
        answer: Duration::from_millis(500),
        ..PATIENT
    })
    .await;
    let peer = async {
        let mut stream = stage.accept().await;
        let slow = request(&mut stream).await.unwrap();
        let quick = request(&mut stream).await.unwrap();
        stream
            .write_all(&framed(&entry(&quick, b"quick")))
            .await
            .unwrap();
        let third = request(&mut stream).await.unwrap();
        for request in [&slow, &third] {
            stream
                .write_all(&framed(&entry(request, b"late")))
                .await
                .unwrap();
        }
        stream
    };
    let ask = async {
        let (slow, quick) =
            tokio::join!(stage.bookie.read_entry(7, 1), stage.bookie.read_entry(7, 2));
        let third = stage.bookie.read_entry(7, 3).await;
        [
            told(slow),
            told(quick.map(|_| "quick")),
            told(third.map(|_| "third")),
        ]
    };
    let (lines, _stream) = tokio::join!(ask, peer);
    insta::assert_snapshot!(lines.join("\n"), @r#"
    there was no answer within 500ms
    "quick"
    "third"
    "#);
}

#[tokio::test]
async fn nobody_there() {
    let stage = stage(PATIENT).await;
    let Stage {
        listener,
        bookie,
        clock,
    } = stage;
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let first = told(bookie.read_entry(7, 3).await).replace(&port.to_string(), "PORT");
    insta::assert_snapshot!(first, @"127.0.0.1:PORT cannot be reached: Connection refused (os error 111)");
    // It is back, and not tried before the rest is over.
    let fake = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .unwrap();
    assert!(bookie.read_entry(7, 3).await.is_err());
    clock.advance(PATIENT.rest);
    let peer = async {
        let mut stream = fake.accept().await.unwrap().0;
        let request = request(&mut stream).await.unwrap();
        stream
            .write_all(&framed(&answer(&request, 403)))
            .await
            .unwrap();
        stream
    };
    let (read, _stream) = tokio::join!(bookie.read_entry(7, 3), peer);
    assert!(read.unwrap_err().is_absent());
}

#[tokio::test]
async fn what_a_bookie_says_instead() {
    let mut lines = Vec::new();
    for status in [402, 403, 404, 501, 502, 503, 504, 505, 506, 507, 999] {
        let fake = Fake::start().await;
        fake.fail(status);
        let bookie = bookies(&Clock::manual(), PATIENT).get(fake.id());
        let error = bookie.read_entry(7, 3).await.unwrap_err();
        lines.push(format!(
            "{error}, absent {}, asked {}",
            error.is_absent(),
            fake.asked()
        ));
    }
    insta::assert_snapshot!(lines.join("\n"), @"
    it answered ENOLEDGER, absent true, asked 1
    it answered ENOENTRY, absent true, asked 1
    it answered EBADREQ, absent false, asked 1
    it answered EIO, absent false, asked 1
    it answered EUA, absent false, asked 1
    it answered EBADVERSION, absent false, asked 1
    it answered EFENCED, absent false, asked 1
    it answered EREADONLY, absent false, asked 1
    it answered ETOOMANYREQUESTS, absent false, asked 4
    it answered EUNKNOWNLEDGERSTATE, absent false, asked 1
    it answered status 999, absent false, asked 1
    ");
}

/// What the client makes of these answers to a read of entry 3 of ledger 7.
#[tokio::test]
async fn answers_about_something_else_are_refused() {
    let stage = stage(PATIENT).await;
    let body = |status, ledger, entry, body: Option<&[u8]>| ReadResponse {
        status: Some(status),
        ledger: Some(ledger),
        entry: Some(entry),
        body: body.map(<[u8]>::to_vec),
        max_lac: None,
    };
    let answers = [
        (0, body(0, 8, 3, Some(b"x"))),
        (0, body(0, 7, 4, Some(b"x"))),
        (0, body(0, 7, 3, None)),
        (0, body(403, 7, 3, Some(b"x"))),
        (501, body(0, 7, 3, Some(b"x"))),
        (0, body(0, 7, 3, Some(b"x"))),
    ];
    let mut stream = None;
    let mut lines = Vec::new();
    for (outer, read) in answers {
        let peer = async {
            let mut stream = match stream.take() {
                Some(stream) => stream,
                None => stage.accept().await,
            };
            let request = request(&mut stream).await.unwrap();
            let response = Response {
                read: Some(read),
                ..answer(&request, outer)
            };
            stream.write_all(&framed(&response)).await.unwrap();
            stream
        };
        let (read, used) = tokio::join!(stage.bookie.read_entry(7, 3), peer);
        stream = Some(used);
        lines.push(told(read));
    }
    insta::assert_snapshot!(lines.join("\n"), @"
    it was asked about ledger 7 and answered about ledger 8
    it was asked about entry 3 of ledger 7 and answered about entry 4 of ledger 7
    its answer lacks the entry
    it answered ENOENTRY
    it answered EIO
    [120]
    ");
}

#[tokio::test]
async fn the_other_questions() {
    let stage = stage(PATIENT).await;
    let peer = async {
        let mut stream = stage.accept().await;
        let mut send = async |make: fn(&Request) -> Response| {
            let request = request(&mut stream).await.unwrap();
            stream.write_all(&framed(&make(&request))).await.unwrap();
        };
        send(|request| {
            let asked = request.read.as_ref().unwrap();
            assert_eq!(
                (asked.entry, asked.previous_lac, asked.flag),
                (Some(-1), Some(4), Some(2))
            );
            let mut response = entry(request, b"x");
            let read = response.read.as_mut().unwrap();
            (read.entry, read.max_lac) = (Some(5), Some(9));
            response
        })
        .await;
        send(|request| {
            let mut response = entry(request, b"x");
            let read = response.read.as_mut().unwrap();
            (read.body, read.max_lac) = (None, Some(4));
            response
        })
        .await;
        send(|request| Response {
            read_lac: Some(LacResponse {
                status: Some(0),
                ledger: Some(7),
                lac: None,
                last_entry: Some(b"last".to_vec()),
            }),
            ..answer(request, 0)
        })
        .await;
        send(|request| Response {
            info: Some(InfoResponse {
                status: Some(0),
                total: Some(100),
                free: Some(40),
            }),
            ..answer(request, 0)
        })
        .await;
        stream
    };
    let ask = async {
        [
            told(stage.bookie.read_after(7, 4).await),
            told(stage.bookie.read_after(7, 4).await),
            told(stage.bookie.read_confirmed(7).await),
            told(stage.bookie.space().await),
        ]
    };
    let (lines, _stream) = tokio::join!(ask, peer);
    insta::assert_snapshot!(lines.join("\n"), @"
    After { confirmed: 9, entry: Some([120]) }
    After { confirmed: 4, entry: None }
    Confirmed { told: None, last: Some([108, 97, 115, 116]) }
    Space { total: 100, free: 40 }
    ");
}

#[tokio::test]
async fn entries_that_a_bookie_has() {
    let fake = Fake::start().await;
    for entry in [0, 1, 5] {
        fake.put(7, entry, b"x".to_vec());
    }
    let bookie = bookies(&Clock::manual(), PATIENT).get(fake.id());
    let held = bookie.entries_held(7).await.unwrap();
    let entries: Vec<_> = (0..9).filter(|entry| held.contains(*entry)).collect();
    assert_eq!(entries, [0, 1, 5]);
    assert!(bookie.entries_held(8).await.unwrap_err().is_absent());
    assert_eq!(bookie.read_last(7).await, Ok(b"x".to_vec()));
    assert_eq!(
        told(bookie.read_entry(u64::MAX, 0).await),
        "18446744073709551615 is more than a ledger or an entry can be called"
    );
}
