//! A server for tests that answers each request as a function says, word for word, so that it can answer badly.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::http_client::Url;

/// Longest head of a request; ours have less than a tenth.
const MOST_HEAD: usize = 16 << 10;

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Verb and path with its query, as on the wire.
    pub(crate) line: String,
    /// The token.
    pub(crate) token: Option<String>,
}

/// Answers until it is dropped.
#[derive(Debug)]
pub(crate) struct Stub {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Stub {
    /// What `answer` gives is written and the connection closed; for nothing it stays open, without an answer.
    pub(crate) async fn start(
        answer: impl Fn(Asked) -> Option<String> + Send + Sync + 'static,
    ) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(answer);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = Arc::clone(&answer);
                tokio::spawn(async move { serve(stream, &*answer).await });
            }
        });
        Stub { address, accepting }
    }

    pub(crate) fn url(&self) -> Url {
        Url::parse(&format!("http://{}", self.address)).unwrap()
    }

    pub(crate) fn id(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut stream: TcpStream, answer: &(dyn Fn(Asked) -> Option<String> + Send + Sync)) {
    let mut head = Vec::new();
    let mut piece = [0; 4096];
    while !head.ends_with(b"\r\n\r\n") && head.len() < MOST_HEAD {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(read) => head.extend_from_slice(&piece[..read]),
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let line = head.lines().next().unwrap_or_default();
    let line = line.trim_end_matches(" HTTP/1.1").to_owned();
    let token = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let value = value.strip_prefix("Bearer ")?;
        name.eq_ignore_ascii_case("authorization")
            .then(|| value.to_owned())
    });
    match answer(Asked { line, token }) {
        Some(said) => {
            let _ = stream.write_all(said.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        // Until the other side has had enough.
        None => while matches!(stream.read(&mut piece).await, Ok(read) if 0 < read) {},
    }
}

/// An answer on the wire.
pub(crate) fn said(status: u16, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// One that sends us on.
pub(crate) fn sent_on(to: &str) -> String {
    format!("HTTP/1.1 307 X\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}
