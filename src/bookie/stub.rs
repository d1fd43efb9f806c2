//! Tests only: a server on 127.0.0.1 that answers as no bookie does, and remembers what it was asked.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// How to answer a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// With a status and a body.
    Body(u16, String),
    /// With these bytes, and an end.
    Raw(&'static str),
    /// With these bytes, and never with the rest.
    Stuck(&'static str),
    /// Never.
    Silence,
}

impl Reply {
    pub(crate) fn json(body: &str) -> Reply {
        Reply::Body(200, body.to_owned())
    }
}

/// The server; ends with the test's runtime.
#[derive(Debug, Clone)]
pub(crate) struct Stub {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    /// Requests in flight now, and at most.
    flights: Arc<Mutex<(usize, usize)>>,
}

type Replies = Arc<dyn Fn(&str) -> Reply + Send + Sync>;

impl Stub {
    /// Serves on a free port; `reply` is handed `METHOD PATH` or `METHOD PATH BODY`.
    pub(crate) async fn start(
        tls: Option<TlsAcceptor>,
        reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stub = Stub {
            port: listener.local_addr().unwrap().port(),
            asked: Arc::default(),
            flights: Arc::default(),
        };
        let replies: Replies = Arc::new(reply);
        let server = stub.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (server, replies, tls) = (server.clone(), Arc::clone(&replies), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => server.serve(stream, replies).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => server.serve(stream, replies).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        stub
    }

    /// What it was asked, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// The most requests that were in flight at a time.
    pub(crate) fn most_in_flight(&self) -> usize {
        self.flights.lock().unwrap().1
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        mut stream: S,
        replies: Replies,
    ) -> Option<()> {
        loop {
            let asked = request(&mut stream).await?;
            self.asked.lock().unwrap().push(asked.clone());
            self.fly();
            let reply = replies(&asked);
            // Long enough for another request to come meanwhile, if it could.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let end = answer(&mut stream, reply).await;
            self.flights.lock().unwrap().0 -= 1;
            end?;
        }
    }

    fn fly(&self) {
        let mut flights = self.flights.lock().unwrap();
        flights.0 += 1;
        flights.1 = flights.1.max(flights.0);
    }
}

/// None when the connection is to end.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, reply: Reply) -> Option<()> {
    match reply {
        Reply::Body(status, body) => {
            let length = body.len();
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.ok()
        }
        Reply::Raw(text) => {
            stream.write_all(text.as_bytes()).await.ok()?;
            let _ = stream.shutdown().await;
            None
        }
        Reply::Stuck(_) | Reply::Silence => {
            if let Reply::Stuck(text) = reply {
                stream.write_all(text.as_bytes()).await.ok()?;
            }
            // Until the other side gives up.
            let _ = stream.read_u8().await;
            None
        }
    }
}

/// The next request; none at the end.
async fn request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
        // TLS.
        if head[0] == 0x16 {
            return None;
        }
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    let line: Vec<&str> = head.lines().next()?.split(' ').collect();
    let asked = format!(
        "{} {} {}",
        line[0],
        line[1],
        String::from_utf8(body).unwrap()
    );
    Some(asked.trim_end().to_owned())
}
